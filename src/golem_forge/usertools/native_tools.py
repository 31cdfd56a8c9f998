"""The native tools of user tools as a catalog has them: `create_custom_tool`, `run_custom_tool` and `run_code` (the
`code` toolset): names, schemas, checks of their arguments.

Light: listing the tools there are loads this and nothing else of `usertools` where there is no tool folder. What a call
does is in `create`, `catalog_sync` and `program`, loaded when used.

`run_code` runs a program that calls tools. Its own effects are reads: zones are read-only inside, there is no network,
and `/tmp` is its own. So it needs no approval and holds no slot at the gate; each call that it makes is judged,
approved and scheduled by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.decisions import Status
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_module import pydantic
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext, native_tool
from golem_forge.tools.tool import Mode, NeedsApproval, OnOutcome, Planner, SourceKind, Tool
from golem_forge.tools.validation import InputInvalid
from golem_forge.usertools.manifest import LONGEST_TIMEOUT_S

if TYPE_CHECKING:
    from golem_forge.usertools.diagnostics import Diagnostic


CREATE_TOOL_NAME: Final = "create_custom_tool"
_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_CREATE_TOOL_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Letters, digits, '-' and '_', starting with a letter"},
        "description": {"type": "string", "description": "One line: what the tool does"},
        "language": {"enum": ["python", "shell", "go"], "default": "python"},
        "usage": {"type": "string", "description": "How to use it, for whoever calls it later"},
        "parameters": {
            "anyOf": [{"type": "array", "items": _OBJECT}, _OBJECT],
            "description": "Each {name, type, description, required?, default?, enum?, …}; with `from_run` instead "
            "{name: literal of the program that it replaces}",
        },
        "from_run": {
            "type": "string",
            "description": "Id of a run_code call that worked, or `last`: its program becomes the tool, with what it "
            "called and a test that replays those calls",
        },
        "source": {"type": "string", "description": "The whole source; without it a template is written"},
        "tests": {
            "type": "array",
            "items": _OBJECT,
            "description": "Each {name, arguments, files?, expect: {stdout | stdout_contains | json | exit_code}}",
        },
        "version": {"type": "string", "default": "1.0.0"},
        "zones": {"type": "object", "description": "Zone → `ro` or `rw`; without it every zone, read-only"},
        "only_paths": {"type": "boolean", "description": "It sees only the files that its `path` arguments name"},
        "network": {
            "anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}],
            "description": "Hosts it may reach, each `host` or `host:port`; without it none",
        },
        "env": {"type": "array", "description": "Variables it gets, each a name or {name, required}"},
        "calls": {"type": "array", "items": {"type": "string"}, "description": "Tools it may call: `forge call NAME`"},
        "arguments": {
            "enum": ["flags", "stdin-json", "env"],
            "description": "How its arguments arrive: as --name=value (the default; a boolean as --name or nothing), "
            "as one JSON object on standard input, or as variables FORGE_ARG_NAME",
        },
        "output": {"enum": ["text", "json"], "description": "`json`: what it prints is one JSON value"},
        "output_schema": {"type": "object", "description": "Of the JSON that it prints"},
        "timeout": {"type": "number", "description": "Seconds, 30 without it"},
    },
    "required": ["name", "description"],
    "additionalProperties": False,
}


def listed_create_custom_tool() -> Tool:
    """Returns the tool for listings, where nothing is called."""
    return create_tool_definition(_not_planned)


MANIFEST_KEYS: Final = (
    "zones",
    "only_paths",
    "network",
    "env",
    "calls",
    "arguments",
    "output",
    "output_schema",
    "timeout",
)
"""Arguments that are keys of tool.yaml."""


def create_tool_definition(planner: Planner, on_outcome: OnOutcome | None = None) -> Tool:
    return Tool(
        CREATE_TOOL_NAME,
        "Create a new custom tool that stays for later sessions: a folder in /user_tools with its tool.yaml and "
        "source. Edit the files, declare parameters and at least one test, then call run_custom_tool.",
        input_schema=_CREATE_TOOL_SCHEMA,
        planner=planner,
        redirect=_check_required,
        mode=Mode.BOTH,
        source=SourceKind.NATIVE,
        category="Custom tools",
        always=Verb.WRITE,
        on_outcome=on_outcome,
    )


def _check_required(args: dict[str, Any]) -> None:
    """Checks required arguments; an empty text counts as missing. Raises InputInvalid."""
    for name in ("name", "description"):
        if not args.get(name):
            raise invalid_field(name, "missing required parameter")


def _not_planned(args: dict[str, Any], ctx: ToolContext) -> Plan:
    raise AssertionError("it is only shown")


def invalid_field(field: str, problem: str) -> InputInvalid:
    return InputInvalid(f"{CREATE_TOOL_NAME}: {field}: {problem}", fields=((field, problem),))


RUN_TOOL_NAME: Final = "run_custom_tool"
FindTool = Callable[[str, float | None], "Tool | Diagnostic | None"]
"""(name, seconds or None) → the tool as it is now, why it cannot be run, or None: there is no such tool."""
AvailableNames = Callable[[], "tuple[str, ...]"]

_RUN_TOOL_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "tool_name": {"type": "string", "description": "Name of the custom tool"},
        "arguments": {"type": "object", "description": "The tool's own parameters, by name", "default": {}},
        "timeout": {"type": "number", "description": "Seconds; absent, 0 or negative: what the tool's manifest says"},
        "version": {
            "enum": ["current", "trusted"],
            "default": "current",
            "description": "`trusted`: while its folder holds a change, the version that was trusted last",
        },
    },
    "required": ["tool_name"],
    "additionalProperties": False,
}


def create_run_custom_tool(find: FindTool, available: AvailableNames, find_trusted: FindTool | None = None) -> Tool:
    """`find_trusted`: the version of a tool that was trusted last, whatever its folder holds now."""

    def redirect(args: dict[str, Any]) -> tuple[Tool, dict[str, Any]]:
        name, given, seconds = _read_arguments(args)
        before = args.get("version") == "trusted"
        found = (find_trusted if before and find_trusted is not None else find)(name, seconds)
        if isinstance(found, Tool):
            return found, given
        raise not_found(unavailable_message(name, found, available()))

    return Tool(
        RUN_TOOL_NAME,
        "Run a custom tool by its name: also one that was just created or changed and is not active yet. It is then "
        "built, shown to the person, tested, and offered under its own name from that moment on.",
        input_schema=_RUN_TOOL_SCHEMA,
        execute=_not_executed,
        redirect=redirect,
        mode=Mode.BOTH,
        source=SourceKind.NATIVE,
        category="Custom tools",
        effects=(),
    )


def _read_arguments(args: dict[str, Any]) -> tuple[str, dict[str, Any], float | None]:
    if unexpected := [str(name) for name in args if name not in _RUN_TOOL_SCHEMA["properties"]]:
        names = ", ".join(unexpected)
        raise InputInvalid(f'{RUN_TOOL_NAME}: put tool parameters inside "arguments"; unexpected: {names[:500]}')
    name, given, seconds = args.get("tool_name"), args.get("arguments", {}), args.get("timeout")
    if not isinstance(name, str) or not name:
        raise InputInvalid(
            f"{RUN_TOOL_NAME}: tool_name: missing required parameter", fields=(("tool_name", "is required"),)
        )
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise InputInvalid(f"{RUN_TOOL_NAME}: arguments: must be an object, got {type(given).__name__}")
    if args.get("version") not in (None, *_RUN_TOOL_SCHEMA["properties"]["version"]["enum"]):
        raise InputInvalid(f"{RUN_TOOL_NAME}: version: must be current or trusted")
    if seconds is None:
        return name, given, None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds != seconds:
        raise InputInvalid(f"{RUN_TOOL_NAME}: timeout: must be a number of seconds")
    if seconds > LONGEST_TIMEOUT_S:
        raise InputInvalid(f"{RUN_TOOL_NAME}: timeout: must be at most {LONGEST_TIMEOUT_S:g} seconds, got {seconds:g}")
    return name, given, float(seconds) if seconds > 0 else None


def not_found(message: str) -> ForgeError:
    return ForgeError(message, status=Status.TOOL_NOT_FOUND, code="TOOL_NOT_FOUND")


def unavailable_message(name: str, found: Diagnostic | None, available: tuple[str, ...] = ()) -> str:
    """`available`: what could be named instead of one that is not there."""
    shown = name[:128]
    if found is not None:
        return f"custom tool '{shown}' is not available: {found.code}: {found.message}"
    if available:
        return f"custom tool '{shown}' not found. Available tools: {', '.join(available)}"
    none = "No custom tools are currently available. Use create_custom_tool to create one"
    return f"custom tool '{shown}' not found. {none}"


def _not_executed(args: dict[str, Any]) -> str:
    raise AssertionError("its calls are handed on")


RUN_CODE: Final = "run_code"
DEFAULT_MAX_CALLS: Final = 200
MOST_MAX_CALLS: Final = 10_000
DEFAULT_TIMEOUT_MS: Final = 120_000
LONGEST_TIMEOUT_MS: Final = 3_600_000
LONGEST_CODE: Final = 256 * 1024
_DESCRIPTION: Final = (
    "Run a Python program that calls your tools as functions. Use it for loops, many calls, or to filter large "
    "results: one turn instead of many, and you read only what it prints or answers.\n"
    "  from forge_tools import read_file, grep_files, map, answer\n"
    "Every tool that you may call is a function of keyword arguments; those of an MCP server are "
    'forge_tools.SERVER.TOOL. search("words") finds tools that are not in your list, call("name", **args) calls any of '
    'them, help("name") prints parameters and result. Text results are str, others dict or list. A failed call raises '
    "ToolError, a denied one ToolDenied. map(function, items) makes many calls at once; answer(value) gives one "
    "structured value.\n"
    "Standard library only, no network. It may open files of the zones to read; to write, call a tool. Calls inside "
    "are judged and asked about like your own."
)


class CodeToolset:
    name = "code"

    @cached_property
    def config(self) -> type[pydantic.BaseModel]:
        calls = pydantic.Field(default=DEFAULT_MAX_CALLS, ge=1, le=MOST_MAX_CALLS)
        return pydantic.create_model(
            "code", __config__=pydantic.ConfigDict(extra="forbid", strict=True), max_calls=(int, calls)
        )

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        config = ctx.config if ctx is not None else None
        return [create_run_code_tool(max_calls=config.max_calls if config is not None else DEFAULT_MAX_CALLS)]


def create_run_code_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None, *, max_calls: int = DEFAULT_MAX_CALLS
) -> Tool:
    """`sandbox` is not used: a program runs in the walls of its call; every `create_<tool>_tool` has it."""
    return native_tool(
        RUN_CODE,
        _DESCRIPTION,
        input_schema=_arguments,
        planner=partial(_plan, max_calls),
        needs_approval=needs_approval,
        label="Run program",
        category="Programs",
        gated=False,
    )


def _arguments() -> type[pydantic.BaseModel]:
    code = pydantic.Field(min_length=1, max_length=LONGEST_CODE, description="The program.")
    time = f"Its time in ms (default {DEFAULT_TIMEOUT_MS}); it stops while a question is open."
    timeout = pydantic.Field(default=DEFAULT_TIMEOUT_MS, ge=100, le=LONGEST_TIMEOUT_MS, description=time)
    return pydantic.create_model(RUN_CODE, code=(str, code), timeout_ms=(int, timeout))


async def _plan(max_calls: int, args: dict[str, Any], ctx: ToolContext) -> Plan:
    from golem_forge.usertools.program import plan_program

    return await plan_program(args, ctx, max_calls)
