"""resolve: does this tool exist for this caller? Takes the call, gives the Tool and its raw arguments.

The execution mode is enforced here, not by hiding: a model that names a `manual` tool gets `tool_not_found`. A tool
may hand the call on to another before anything is judged. Refuses with `tool_not_found`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from golem_forge.core.call import Caller, ToolCall
from golem_forge.core.decision import Source
from golem_forge.tools.catalog import Catalog, ToolNotFound
from golem_forge.tools.modes import may_call
from golem_forge.tools.tool import Tool
from golem_forge.tools.validation import InputInvalid

SaidOfHandover = Callable[[Tool, dict[str, Any]], tuple[Source, ...]]
"""What policy says of a tool that hands its call on; raises where it may not be called at all."""

_MAX_HANDOVERS: Final = 3
_MAX_JSON_CHARS: Final = 16 << 20


Resolved = tuple[Tool, dict[str, Any], tuple[Source, ...]]
"""The tool, its raw arguments, and what tightens the call because of the tools that handed it on."""


def resolve(call: ToolCall, catalog: Catalog, said_of: SaidOfHandover) -> Resolved:
    if call.problem:
        raise InputInvalid(call.problem)
    tool = catalog.resolve(call.name, call.caller)
    args = call.args
    if type(args) is not dict:
        args = _as_object(tool, args)
    if tool.redirect is None:  # nearly every call
        return tool, args, ()
    said: tuple[Source, ...] = ()
    for _ in range(_MAX_HANDOVERS):
        handed = None if tool.redirect is None else tool.redirect(args)
        if handed is None:
            return tool, args, said
        said += said_of(tool, _in_real_names(tool, args))
        meant, args = handed
        tool = _for_caller(meant, call.caller) if isinstance(meant, Tool) else catalog.resolve(meant, call.caller)
    raise InputInvalid(f"{call.name}: handed on more than {_MAX_HANDOVERS} times")


def _for_caller(tool: Tool, caller: Caller) -> Tool:
    if not may_call(caller, tool.mode):
        raise ToolNotFound(tool.name)
    return tool


def _in_real_names(tool: Tool, args: dict[str, Any]) -> dict[str, Any]:
    """A rule speaks of an argument by its name; an alias must not get past it."""
    aliases = tool.argument_aliases or {}
    return {aliases.get(name, name): value for name, value in args.items()}


def _as_object(tool: Tool, args: Any) -> dict[str, Any]:
    if args is None:
        return {}
    if isinstance(args, (str, bytes)):
        args = parse_arguments(tool.name, args)
    if not isinstance(args, dict):
        raise InputInvalid(f"{tool.name}: arguments must be an object, got {type(args).__name__}")
    return args


def parse_arguments(tool: str, text: str | bytes) -> Any:
    """JSON text → value; duplicate keys, NaN and broken text are refused with their position."""
    if len(text) > _MAX_JSON_CHARS:
        raise InputInvalid(f"{tool}: arguments are {len(text)} characters of JSON; the limit is {_MAX_JSON_CHARS}")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputInvalid(f"{tool}: duplicate key {twice!r} in the arguments")
        return found

    def refuse(constant: str) -> Any:
        raise InputInvalid(f"{tool}: {constant} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise InputInvalid(f"{tool}: arguments are not valid JSON: {error.msg} at position {error.pos}") from None
    except RecursionError:
        raise InputInvalid(f"{tool}: arguments are nested too deeply") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise InputInvalid(f"{tool}: arguments are not valid JSON: {type(error).__name__}") from None
