"""validate: do the arguments fit the tool? Takes raw arguments, gives coerced ones. Refuses with `input_invalid`.

Before the schema is asked, what no schema can be trusted with is refused: NaN and infinities, lone surrogates,
nesting beyond 64 levels, more bytes than the tool takes.
"""

from __future__ import annotations

import math
from typing import Any, Final

from golem_forge.core.copying import own_copy
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.tool import Tool
from golem_forge.tools.validation import InputInvalid, ToolDefinitionError

MAX_DEPTH: Final = 64
_TINY: Final = 256
_FEW: Final = 64
_SMALL: Final = 1 << 63


def validate(tool: Tool, args: dict[str, Any]) -> Arguments:
    try:
        # Few, short and scalar: most calls. Names need no look where unknown ones are refused by name.
        plain = len(args) <= _FEW and (tool.argument_names is not None or _names_are_plain(args))
        if plain:
            for value in args.values():
                kind = type(value)
                if not (
                    (kind is int and -_SMALL < value < _SMALL)
                    or (kind is str and len(value) < _TINY and value.isascii())
                    or kind is bool
                    or value is None
                ):
                    plain = False
                    break
        if not plain:
            _check_whole(tool, args)
            args = own_copy(args)  # what is judged must be what runs, whatever the caller does to its own objects
        return tool.validate(args)
    except ToolDefinitionError as error:
        raise InputInvalid(f"{tool.name} cannot be called: {error}") from None


def _names_are_plain(args: dict[str, Any]) -> bool:
    return all(type(name) is str and len(name) < _TINY and name.isascii() for name in args)


def _check_whole(tool: Tool, args: dict[str, Any]) -> None:
    size = _measure(tool.name, args, "", 1)
    if size > tool.max_argument_bytes:
        raise InputInvalid(f"{tool.name}: arguments are {size} bytes; the limit is {tool.max_argument_bytes}")


def _measure(tool: str, value: Any, path: str, depth: int) -> int:
    """The rough size of a value in bytes of JSON; refuses what JSON or a hash cannot hold."""
    if depth > MAX_DEPTH:
        raise InputInvalid(f"{tool}: {path[:100]}: nested more than {MAX_DEPTH} levels deep")
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
