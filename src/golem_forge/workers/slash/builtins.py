"""The built-in commands by name, with the line `/help` has for each."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from golem_forge.core.slash import slash
from golem_forge.tools.fields import derive_fields
from golem_forge.tools.tool import Tool
from golem_forge.workers.slash import (
    config_command,
    mcp,
    output_commands,
    policy_commands,
    rating,
    session_commands,
    tool_commands,
)
from golem_forge.workers.slash.host import Invocation
from golem_forge.workers.slash.parsing import callable_names, find_name
from golem_forge.workers.slash.prompts import find_prompt
from golem_forge.workers.slash.running import find_tool
from golem_forge.workers.slash.table import columns


class BuiltIn(NamedTuple):
    usage: str
    does: str
    run: Callable[[Invocation], Awaitable[str]]
    """Gives what is said to the person; empty: nothing. Raises CommandError."""


async def help_(call: Invocation) -> str:
    if not call.args:
        rows = [(each.usage, each.does) for each in BUILT_INS.values()]
        return columns([*rows, ("/NAME …", "the same as /tool NAME …")]) + "\n/help NAME says more, of tools too."
    name = call.args[0].removeprefix("/")
    if (built_in := BUILT_INS.get(name.lower())) is not None:
        text = f"{built_in.usage}\n{built_in.does}"
        if find_name(name, callable_names(call.host.path.catalog)):
            text += f"\nA tool has this name too: /tool {name} runs it."
        return text
    if (prompt := find_prompt(call.host, name)) is not None:
        return _described(f"/{prompt.name}", prompt.description or f"a prompt of {prompt.server}", prompt.fields)
    return _about(find_tool(call.host.path.catalog, name))


def _about(tool: Tool) -> str:
    return _described(slash(tool.name), tool.description.strip(), derive_fields(tool.input_schema))


def _described(typed: str, words: str, fields: list[dict[str, Any]]) -> str:
    rows = [
        (
            f"--{field['name']}",
            field["type"] if field["type"] != "select" else "|".join(each["label"] for each in field["options"]),
            "required" if field["required"] else _default(field),
            field["description"],
        )
        for field in fields
    ]
    options = "\n" + columns(rows, indent="  ") if rows else "\nIt takes no options."
    return f"{typed}: {words}{options}\n-i opens a form."


def _default(field: dict[str, object]) -> str:
    default = field.get("default")
    if default is None or default == "":
        return ""
    return f"default {default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)}"


BUILT_INS: Final = {
    "help": BuiltIn("/help [NAME]", "these commands, or one command or tool", help_),
    "tools": BuiltIn("/tools", "the tools you can run", tool_commands.list_tools),
    "tool": BuiltIn("/tool NAME …", "run a tool; -i opens a form", tool_commands.run_named),
    "t": BuiltIn("/t NAME …", "the same, shorter", tool_commands.run_named),
    "model": BuiltIn("/model [NAME]", "show or switch the model", session_commands.model),
    "clear": BuiltIn("/clear", "empty the history", session_commands.clear),
    "status": BuiltIn("/status", "worker, model, context, cost, what waits", session_commands.status),
    "config": BuiltIn("/config", "the configuration in force and where it comes from", config_command.config),
    "rules": BuiltIn("/rules [revoke ID]", "what is remembered and the rules; take one back", policy_commands.rules),
    "why": BuiltIn("/why [CALL]", "what was decided about the last call, or another", policy_commands.why),
    "sessions": BuiltIn("/sessions", "recorded sessions", session_commands.sessions),
    "plan": BuiltIn("/plan", "the plan of the work", output_commands.plan),
    "output": BuiltIn("/output HANDLE [FIRST-LAST]", "an output that was too long to show", output_commands.output),
    "rate": BuiltIn("/rate NAME good|bad [note]", "say how good one of your own tools is", rating.rate),
    "trace": BuiltIn("/trace [LEVEL]", "quiet, summary, normal or debug", output_commands.trace),
    "mcp": BuiltIn("/mcp [reconnect NAME]", "servers and their state", mcp.mcp),
    "web": BuiltIn("/web", "this session in a browser, beside here", session_commands.web),
    "exit": BuiltIn("/exit", "end the session", session_commands.leave),
}
