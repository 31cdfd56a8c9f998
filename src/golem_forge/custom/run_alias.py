"""`run_custom_tool`: another way to say the name of a user tool. It hands the call on at resolve and does nothing else.

Mode, schema, policy, fingerprint and statistics are those of the tool that is meant; what is said of
`run_custom_tool` itself can only tighten. Through it a tool that is not active yet is promoted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.custom.diagnostic import Diagnostic
from golem_forge.custom.manifest import LONGEST_TIMEOUT_S
from golem_forge.tools.tool import Mode, SourceKind, Tool
from golem_forge.tools.validation import InputInvalid

NAME: Final = "run_custom_tool"
Find = Callable[[str, float | None], "Tool | Diagnostic | None"]
"""(name, seconds or None) → the tool as it is now, why it cannot be run, or None: there is no such tool."""
Available = Callable[[], "tuple[str, ...]"]

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "tool_name": {"type": "string", "description": "Name of the custom tool"},
        "arguments": {"type": "object", "description": "The tool's own parameters, by name", "default": {}},
        "timeout": {"type": "number", "description": "Seconds; absent, 0 or negative: what the tool's manifest says"},
    },
    "required": ["tool_name"],
    "additionalProperties": False,
}


def create_run_custom_tool(find: Find, available: Available) -> Tool:
    def redirect(args: dict[str, Any]) -> tuple[Tool, dict[str, Any]]:
        name, given, seconds = _read(args)
        found = find(name, seconds)
        if isinstance(found, Tool):
            return found, given
        raise ForgeError(why_not(name, found, available()), status=Status.TOOL_NOT_FOUND, code="TOOL_NOT_FOUND")

    return Tool(
        NAME,
        "Run a custom tool by its name: also one that was just created or changed and is not active yet. It is then "
        "built, shown to the person, tested, and offered under its own name from that moment on.",
        input_schema=_SCHEMA,
        execute=_never,
        redirect=redirect,
        mode=Mode.BOTH,
        source=SourceKind.NATIVE,
        category="Custom tools",
        effects=(),
    )


def _read(args: dict[str, Any]) -> tuple[str, dict[str, Any], float | None]:
    if unexpected := [str(name) for name in args if name not in _SCHEMA["properties"]]:
        names = ", ".join(unexpected)
        raise InputInvalid(f'{NAME}: put tool parameters inside "arguments"; unexpected: {names[:500]}')
    name, given, seconds = args.get("tool_name"), args.get("arguments", {}), args.get("timeout")
    if not isinstance(name, str) or not name:
        raise InputInvalid(f"{NAME}: tool_name: missing required parameter", fields=(("tool_name", "is required"),))
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise InputInvalid(f"{NAME}: arguments: must be an object, got {type(given).__name__}")
    if seconds is None:
        return name, given, None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds != seconds:
        raise InputInvalid(f"{NAME}: timeout: must be a number of seconds")
    if seconds > LONGEST_TIMEOUT_S:
        raise InputInvalid(f"{NAME}: timeout: must be at most {LONGEST_TIMEOUT_S:g} seconds, got {seconds:g}")
    return name, given, float(seconds) if seconds > 0 else None


def why_not(name: str, found: Diagnostic | None, available: tuple[str, ...] = ()) -> str:
    """`available`: what could be named instead of one that is not there."""
    shown = name[:128]
    if found is not None:
        return f"custom tool '{shown}' is not available: {found.code}: {found.message}"
    if available:
        return f"custom tool '{shown}' not found. Available tools: {', '.join(available)}"
    return (
        f"custom tool '{shown}' not found. No custom tools are currently available. "
        "Use create_custom_tool to create one"
    )


def _never(args: dict[str, Any]) -> str:
    raise AssertionError("its calls are handed on")
