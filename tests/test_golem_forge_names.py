"""The public API, pinned: what is exported is a promise, and importing the package costs nothing."""

from __future__ import annotations

import subprocess
import sys

from tests.deadlines import PATIENCE

import golem_forge

PUBLIC = """
    __version__ ApprovalController ApprovalRequest BlockedError Caller ConfigError FilesystemToolset
    InterruptSignal Orchestrator Outcome Risk RunResult Sandbox Session Status TOOLKIT TOOL_LIST Tool ToolCall
    ToolContext ToolResult Toolset Verdict Worker WorkerRuntime classify_command create_cli_approval_callback
    create_delete_file_tool create_event_cli_adapter create_trace_formatter is_command load_custom_tools
    parse_command create_interrupt_signal create_read_file_tool create_runtime_ui create_ui_event_bus
    create_write_file_tool derive_fields is_manual_tool is_valid_kind is_well_known_kind llm_tools
    manual_tools open_sandbox open_session prompt resource tool
    Conversation Event RuntimeUI SlashCommands UIEventBus replay
    NamedTool ToolRouter ZoneSpec define_mcp_tool derive_fields_from_schema get_llm_tools get_manual_tools
    ApprovalAnswer Effect FunctionScript ModelError NotTrusted Plan ToolsetContext Turn TurnCall
"""


def test_exactly_these_names_are_public() -> None:
    assert sorted(golem_forge.__all__) == sorted(PUBLIC.split())
    for name in golem_forge.__all__:
        assert getattr(golem_forge, name) is not None


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "pydantic pydantic_core jsonschema_rs ruamel sqlite3 ctypes asyncio"
    code = f"import golem_forge, sys; print([m for m in {heavy.split()!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ran.stdout.strip() == "[]"
