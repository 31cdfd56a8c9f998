"""resolve and validate: does this tool exist for this caller, and do the arguments fit it?

`resolve` takes the call and gives the Tool and its raw arguments. The execution mode is enforced here, not by hiding: a
model that names a `manual` tool gets `tool_not_found`. A tool may hand the call over to another before anything is
judged. Refuses with `tool_not_found`.

`validate` takes raw arguments and gives coerced ones. Refuses with `input_invalid`. Before the schema is asked, it
refuses what no schema can be trusted with: NaN and infinities, lone surrogates, nesting beyond 64 levels, more bytes
than the tool takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.decisions import VerdictSource
from golem_forge.core.json import copy_json
from golem_forge.tools.catalog import Catalog, ToolNotFound
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.tool import Tool, may_call
from golem_forge.tools.validation import InputInvalid, ToolDefinitionError

HandoverPolicy = Callable[[Tool, dict[str, Any]], tuple[VerdictSource, ...]]
"""What policy says of a tool that hands its call on; raises where it may not be called at all."""

_MAX_HANDOVERS: Final = 3
_MAX_JSON_CHARS: Final = 16 << 20


Resolved = tuple[Tool, dict[str, Any], tuple[VerdictSource, ...]]
"""The tool, its raw arguments, and what tightens the call because of the tools that handed it on."""


def resolve(call: ToolCall, catalog: Catalog, said_of: HandoverPolicy) -> Resolved:
    if call.problem:
        raise InputInvalid(call.problem)
    tool = catalog.resolve(call.name, call.caller)
    args = call.args
    if type(args) is not dict:
        args = _as_object(tool, args)
    if tool.redirect is None:  # nearly every call
        return tool, args, ()
    said: tuple[VerdictSource, ...] = ()
    for _ in range(_MAX_HANDOVERS):
        handed = None if tool.redirect is None else tool.redirect(args)
        if handed is None:
            return tool, args, said
        said += said_of(tool, _without_aliases(tool, args))
        meant, args = handed
        tool = _for_caller(meant, call.caller) if isinstance(meant, Tool) else catalog.resolve(meant, call.caller)
    raise InputInvalid(f"{call.name}: handed on more than {_MAX_HANDOVERS} times")


def _for_caller(tool: Tool, caller: Caller) -> Tool:
    if not may_call(caller, tool.mode):
        raise ToolNotFound(tool.name)
    return tool


def _without_aliases(tool: Tool, args: dict[str, Any]) -> dict[str, Any]:
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


MAX_ARGUMENT_DEPTH: Final = 64
_SHORT_TEXT_CHARS: Final = 256
_FEW_ARGUMENTS: Final = 64
_SMALL_INTEGER: Final = 1 << 63


def validate(tool: Tool, args: dict[str, Any]) -> Arguments:
    try:
        # Few, short and scalar: most calls. Names need no look where unknown ones are refused by name.
        plain = len(args) <= _FEW_ARGUMENTS and (tool.argument_names is not None or _names_are_plain(args))
        if plain:
            for value in args.values():
                kind = type(value)
                if not (
                    (kind is int and -_SMALL_INTEGER < value < _SMALL_INTEGER)
                    or (kind is str and len(value) < _SHORT_TEXT_CHARS and value.isascii())
                    or kind is bool
                    or value is None
                ):
                    plain = False
                    break
        if not plain:
            _check_size(tool, args)
            args = copy_json(args)  # what is judged must be what runs, whatever the caller does to its own objects
        return tool.validate(args)
    except ToolDefinitionError as error:
        raise InputInvalid(f"{tool.name} cannot be called: {error}") from None


def _names_are_plain(args: dict[str, Any]) -> bool:
    return all(type(name) is str and len(name) < _SHORT_TEXT_CHARS and name.isascii() for name in args)


def _check_size(tool: Tool, args: dict[str, Any]) -> None:
    size = _measure(tool.name, args, "", 1)
    if size > tool.max_argument_bytes:
        raise InputInvalid(f"{tool.name}: arguments are {size} bytes; the limit is {tool.max_argument_bytes}")


def _measure(tool: str, value: Any, path: str, depth: int) -> int:
    """The rough size of a value in bytes of JSON; refuses what JSON or a hash cannot hold."""
    if depth > MAX_ARGUMENT_DEPTH:
        raise InputInvalid(f"{tool}: {path[:100]}: nested more than {MAX_ARGUMENT_DEPTH} levels deep")
    if isinstance(value, str):
        try:
            return len(value) if value.isascii() else len(value.encode())
        except UnicodeEncodeError:
            raise InputInvalid(f"{tool}: {path[:100]}: contains a lone surrogate, which is not text") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise InputInvalid(f"{tool}: {path[:100]}: {value} is not JSON")
    if isinstance(value, dict):
        size = 2
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputInvalid(f"{tool}: {path[:100]}: keys must be strings, got {type(key).__name__}")
            size += _measure(tool, key, path, depth) + 4
            size += _measure(tool, item, f"{path}.{key}" if path else key, depth + 1)
        return size
    if isinstance(value, (list, tuple)):
        return 2 + sum(1 + _measure(tool, item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value))
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4096:
        raise InputInvalid(f"{tool}: {path[:100]}: a number of {value.bit_length()} bits is too large")
    return 8
