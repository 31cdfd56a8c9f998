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

from golem_forge.core.calls import ToolCall
from golem_forge.core.decisions import Status, VerdictSource
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import copy_json
from golem_forge.tools.catalog import Catalog, ToolNotFound
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.tool import Tool, may_call
from golem_forge.tools.validation import InputInvalid, ToolDefinitionError

HandoverPolicy = Callable[[Tool, dict[str, Any]], tuple[VerdictSource, ...]]
"""Returns the policy verdicts on a tool that hands its call over; raises ForgeError if it may not be called at all."""

_MAX_HANDOVERS: Final = 3
_MAX_JSON_CHARS: Final = 16 << 20

Resolved = tuple[Tool, dict[str, Any], tuple[VerdictSource, ...]]
"""The tool, its raw arguments, and the verdicts of the tools that handed the call over; those can only make it
stricter.
"""


def resolve(call: ToolCall, catalog: Catalog, policy_of: HandoverPolicy) -> Resolved:
    if call.problem:
        raise InputInvalid(call.problem)
    tool = catalog.resolve(call.name, call.caller)
    args = {} if call.args is None else call.args
    if isinstance(args, (str, bytes)):
        args = _parse_arguments(tool.name, args)
    if not isinstance(args, dict):
        raise InputInvalid(f"{tool.name}: arguments must be an object, got {type(args).__name__}")
    sources: tuple[VerdictSource, ...] = ()
    for _ in range(_MAX_HANDOVERS):
        handed = None if tool.redirect is None else tool.redirect(args)
        if handed is None:
            return tool, args, sources
        # A rule names an argument by its own name; an alias must not get past it.
        aliases = tool.argument_aliases or {}
        try:
            sources += policy_of(tool, {aliases.get(name, name): value for name, value in args.items()})
        except ForgeError as error:
            if error.status is not Status.POLICY_DENIED:
                raise
            return tool, args, sources  # what may not be called hands nothing over: it is judged, and refused, as it is
        target, args = handed
        if not isinstance(target, Tool):
            tool = catalog.resolve(target, call.caller)
        elif may_call(call.caller, target.mode):
            tool = target
        else:
            raise ToolNotFound(target.name)
    raise InputInvalid(f"{call.name}: handed on more than {_MAX_HANDOVERS} times")


def _parse_arguments(tool: str, text: str | bytes) -> Any:
    """Parses JSON text. Refuses duplicate keys, NaN and broken text, with their position."""
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
    except ValueError as error:
        raise InputInvalid(f"{tool}: arguments are not valid JSON: {type(error).__name__}") from None


MAX_ARGUMENT_DEPTH: Final = 64
_SHORT_TEXT_CHARS: Final = 256
_FEW_ARGUMENTS: Final = 64
_SMALL_INTEGER: Final = 1 << 63


def validate(tool: Tool, args: dict[str, Any]) -> Arguments:
    try:
        # Few, short and scalar: most calls. Names need no look where unknown ones are refused by name.
        names_are_known = tool.argument_names is not None
        plain = len(args) <= _FEW_ARGUMENTS and all(
            _is_plain(value) and (names_are_known or _is_short_text(name)) for name, value in args.items()
        )
        if not plain:
            size = _measure(tool.name, args, "", 1)
            if size > tool.max_argument_bytes:
                raise InputInvalid(f"{tool.name}: arguments are {size} bytes; the limit is {tool.max_argument_bytes}")
            args = copy_json(args)  # what is judged must be what runs, whatever the caller does to its own objects
        return tool.validate(args)
    except ToolDefinitionError as error:
        raise InputInvalid(f"{tool.name} cannot be called: {error}") from None


def _is_short_text(value: Any) -> bool:
    return type(value) is str and len(value) < _SHORT_TEXT_CHARS and value.isascii()


def _is_plain(value: Any) -> bool:
    kind = type(value)
    small = kind is int and -_SMALL_INTEGER < value < _SMALL_INTEGER
    return small or kind is bool or value is None or _is_short_text(value)


def _measure(tool: str, value: Any, path: str, depth: int) -> int:
    """Returns the rough size of a value in bytes of JSON; refuses values that JSON or a hash cannot hold."""
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
