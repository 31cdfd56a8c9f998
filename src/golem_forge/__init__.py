"""Golem Forge: a tool runtime for AI agents. Everything public is exported here, and loaded when first used.

Imports nothing of the standard library but `sys`, which is built in: the `forge` command comes through here before it
has dropped the project from its module path (`sandbox.host`).
"""

import sys

from golem_forge._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from golem_forge.agent.conversation import Conversation
    from golem_forge.agent.files.worker import Worker
    from golem_forge.agent.model.interface import ModelError
    from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
    from golem_forge.agent.modules.custom_tools import load_custom_tools
    from golem_forge.agent.recorded_sessions import replay
    from golem_forge.agent.run_result import RunResult
    from golem_forge.agent.runtime import WorkerRuntime
    from golem_forge.agent.session import Session, ToolRouter, open_session
    from golem_forge.agent.slash.handler import SlashCommands
    from golem_forge.agent.slash.parser import classify_command, is_command, parse_command
    from golem_forge.agent.tool_inventory import TOOL_LIST, TOOLKIT
    from golem_forge.agent.trust import NotTrusted
    from golem_forge.core.calls import Caller, Outcome, ToolCall
    from golem_forge.core.decisions import Risk, Status, Verdict
    from golem_forge.core.effects import Effect
    from golem_forge.core.errors import BlockedError, ConfigError
    from golem_forge.core.results import ToolResult, is_valid_kind, is_well_known_kind
    from golem_forge.core.signals import InterruptSignal, create_interrupt_signal
    from golem_forge.events.bus import UIEventBus, create_ui_event_bus
    from golem_forge.events.runtime_ui import RuntimeUI, create_runtime_ui
    from golem_forge.events.serialization import Event
    from golem_forge.orchestrator.orchestrator import Orchestrator
    from golem_forge.policy.approval_queue import ApprovalAnswer
    from golem_forge.policy.controller import ApprovalController
    from golem_forge.policy.request import ApprovalRequest
    from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
    from golem_forge.sandbox.zones import ZoneSpec
    from golem_forge.tools.context import Plan, ToolContext
    from golem_forge.tools.factory import Toolset, ToolsetContext, define_mcp_tool, prompt, resource, tool
    from golem_forge.tools.forms import derive_fields, derive_fields_from_schema
    from golem_forge.tools.tool import (
        NamedTool,
        Tool,
        get_llm_tools,
        get_manual_tools,
        is_manual_tool,
        llm_tools,
        manual_tools,
    )
    from golem_forge.toolsets import (
        FilesystemToolset,
        create_delete_file_tool,
        create_read_file_tool,
        create_write_file_tool,
    )
    from golem_forge.ui.approval_prompt import create_cli_approval_callback
    from golem_forge.ui.terminal import create_event_cli_adapter
    from golem_forge.ui.trace import create_trace_formatter

_HOME_OF = {
    "Caller": "golem_forge.core.calls",
    "Outcome": "golem_forge.core.calls",
    "ToolCall": "golem_forge.core.calls",
    "BlockedError": "golem_forge.core.errors",
    "ConfigError": "golem_forge.core.errors",
    "Risk": "golem_forge.core.decisions",
    "Status": "golem_forge.core.decisions",
    "Verdict": "golem_forge.core.decisions",
    "ApprovalRequest": "golem_forge.policy.request",
    "ApprovalAnswer": "golem_forge.policy.approval_queue",
    "ToolResult": "golem_forge.core.results",
    "InterruptSignal": "golem_forge.core.signals",
    "create_interrupt_signal": "golem_forge.core.signals",
    "Event": "golem_forge.events.serialization",
    "RuntimeUI": "golem_forge.events.runtime_ui",
    "UIEventBus": "golem_forge.events.bus",
    "Conversation": "golem_forge.agent.conversation",
    "SlashCommands": "golem_forge.agent.slash.handler",
    "replay": "golem_forge.agent.recorded_sessions",
    "create_ui_event_bus": "golem_forge.events.bus",
    "create_runtime_ui": "golem_forge.events.runtime_ui",
    "Orchestrator": "golem_forge.orchestrator",
    "ApprovalController": "golem_forge.policy.controller",
    "Sandbox": "golem_forge.sandbox.sandbox",
    "open_sandbox": "golem_forge.sandbox.sandbox",
    "ToolContext": "golem_forge.tools.context",
    "ZoneSpec": "golem_forge.sandbox.zones",
    "define_mcp_tool": "golem_forge.tools.factory",
    "prompt": "golem_forge.tools.factory",
    "resource": "golem_forge.tools.factory",
    "tool": "golem_forge.tools.factory",
    "derive_fields": "golem_forge.tools.forms",
    "derive_fields_from_schema": "golem_forge.tools.forms",
    "get_llm_tools": "golem_forge.tools.tool",
    "get_manual_tools": "golem_forge.tools.tool",
    "is_manual_tool": "golem_forge.tools.tool",
    "llm_tools": "golem_forge.tools.tool",
    "manual_tools": "golem_forge.tools.tool",
    "is_valid_kind": "golem_forge.core.results",
    "is_well_known_kind": "golem_forge.core.results",
    "NamedTool": "golem_forge.tools.tool",
    "Tool": "golem_forge.tools.tool",
    "ToolRouter": "golem_forge.agent.session",
    "Toolset": "golem_forge.tools.factory",
    "TOOLKIT": "golem_forge.agent.tool_inventory",
    "TOOL_LIST": "golem_forge.agent.tool_inventory",
    "FilesystemToolset": "golem_forge.toolsets",
    "create_delete_file_tool": "golem_forge.toolsets",
    "create_read_file_tool": "golem_forge.toolsets",
    "create_write_file_tool": "golem_forge.toolsets",
    "WorkerRuntime": "golem_forge.agent.runtime",
    "Worker": "golem_forge.agent.files.worker",
    "RunResult": "golem_forge.agent.run_result",
    "load_custom_tools": "golem_forge.agent.modules.custom_tools",
    "create_event_cli_adapter": "golem_forge.ui.terminal",
    "create_cli_approval_callback": "golem_forge.ui.approval_prompt",
    "create_trace_formatter": "golem_forge.ui.trace",
    "parse_command": "golem_forge.agent.slash.parser",
    "classify_command": "golem_forge.agent.slash.parser",
    "is_command": "golem_forge.agent.slash.parser",
    "Effect": "golem_forge.core.effects",
    "ModelError": "golem_forge.agent.model.interface",
    "NotTrusted": "golem_forge.agent.trust",
    "FunctionScript": "golem_forge.agent.model.scripted",
    "Turn": "golem_forge.agent.model.scripted",
    "TurnCall": "golem_forge.agent.model.scripted",
    "Plan": "golem_forge.tools.context",
    "ToolsetContext": "golem_forge.tools.factory",
    "Session": "golem_forge.agent.session",
    "open_session": "golem_forge.agent.session",
}
"""Where each public name lives."""

__all__ = [
    "TOOLKIT",
    "TOOL_LIST",
    "ApprovalAnswer",
    "ApprovalController",
    "ApprovalRequest",
    "BlockedError",
    "Caller",
    "ConfigError",
    "Conversation",
    "Effect",
    "Event",
    "FilesystemToolset",
    "FunctionScript",
    "InterruptSignal",
    "ModelError",
    "NamedTool",
    "NotTrusted",
    "Orchestrator",
    "Outcome",
    "Plan",
    "Risk",
    "RunResult",
    "RuntimeUI",
    "Sandbox",
    "Session",
    "SlashCommands",
    "Status",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "ToolRouter",
    "Toolset",
    "ToolsetContext",
    "Turn",
    "TurnCall",
    "UIEventBus",
    "Verdict",
    "Worker",
    "WorkerRuntime",
    "ZoneSpec",
    "__version__",
    "classify_command",
    "create_cli_approval_callback",
    "create_delete_file_tool",
    "create_event_cli_adapter",
    "create_interrupt_signal",
    "create_read_file_tool",
    "create_runtime_ui",
    "create_trace_formatter",
    "create_ui_event_bus",
    "create_write_file_tool",
    "define_mcp_tool",
    "derive_fields",
    "derive_fields_from_schema",
    "get_llm_tools",
    "get_manual_tools",
    "is_command",
    "is_manual_tool",
    "is_valid_kind",
    "is_well_known_kind",
    "llm_tools",
    "load_custom_tools",
    "manual_tools",
    "open_sandbox",
    "open_session",
    "parse_command",
    "prompt",
    "replay",
    "resource",
    "tool",
]


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'golem_forge' has no attribute {name!r}{_meant(name)}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


_INSTEAD = {
    "EventCLIAdapter": "create_event_cli_adapter(bus, …) makes one",
    "ShellToolset": "name it in open_session(toolsets={'shell': {…}}) or in a worker file",
    "WorkerCallToolset": "toolsets: {workers: {allow: […]}} in a worker file makes a tool of each worker",
    "isNamedTool": "isinstance(value, NamedTool) says it",
    "wrapWithDefaultApproval": "load_custom_tools(path, {'tools': […], 'approval': {…}}) applies it",
    "ApprovalConfig": "it is a mapping, {'default': …, 'tools': {…}}",
    "ApprovalDecisionType": "it is Verdict",
    "CustomToolsetConfig": "it is a mapping, load_custom_tools(path, {'tools': […], 'approval': {…}})",
    "CallToolResult": "ToolResult.to_mcp() and ToolResult.from_mcp(message) write and read it",
    "DisplayHints": "it is a mapping; golem_forge.tools.results.DisplayHints is its type",
}
"""Names of the design documents that are not here, with what to use."""


def _meant(name: str) -> str:
    """The public name that is spelled otherwise, as in the design documents. Imports nothing, like all of this."""
    folded = name.replace("_", "").lower()
    close = [known for known in __all__ if known.replace("_", "").lower() == folded]
    instead = [words for known, words in _INSTEAD.items() if known.lower() == folded]
    return f"; here it is {close[0]}" if close else f"; {instead[0]}" if instead else ""


class _MovedModules:
    """Finds the module paths of earlier versions (`_moved`), after every other finder has failed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> "Any":
        if not name.startswith("golem_forge.") or name == "golem_forge._moved":
            return None
        from golem_forge._moved import find_spec

        return find_spec(name)


sys.meta_path.append(_MovedModules)


def __dir__() -> list[str]:
    return sorted(__all__)
