"""One finding of the JSON Schema validator in plain words: (where, what is wrong). Never repeats a large value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.nearest import nearest

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

Problem = tuple[tuple[str | int, ...], str]
_MAX_MESSAGE: Final = 200
_MAX_SHOWN: Final = 40
_MAX_OPTIONS: Final = 12

_NO_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties")
_LIMITS: Final[dict[str, str]] = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "additionalItems": "must have at most {} items",
    "minProperties": "must have at least {} properties",
    "maxProperties": "must have at most {} properties",
}
_FIXED: Final[dict[str, str]] = {
    "contains": "has not the right number of items of the wanted form",
    "not": "has a form that is not allowed",
    "propertyNames": "has a property whose name is not allowed",
    "uniqueItems": "must not contain the same item twice",
    "unevaluatedItems": "has more items than are allowed",
    "oneOf": "must match exactly one of the allowed forms",
    "anyOf": "matches none of the allowed forms",
}
_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
    dict: "object",
    type(None): "null",
}


def explain(error: ValidationError, properties: Sequence[str] = ()) -> Problem:
    """`properties`: the names the schema knows at its top, for a hint at a misspelt one."""
    path = tuple(error.instance_path)
    kind: Any = error.kind
    name = kind.name
    if name == "required":
        return (*path, kind.property), "field required"
    if name in _NO_MEMBERS:
        unknown = kind.unexpected[0]
        close = None if path else nearest(unknown, properties)
        return (*path, unknown), f"unknown property; did you mean {close!r}?" if close else "unknown property"
    if name == "falseSchema" and error.schema_path and error.schema_path[-1] in _NO_MEMBERS:
        return path, "must have no properties"
    if name in ("anyOf", "oneOf") and (better := _alternative(error, kind)):
        return better
    return path, _message(name, kind, error)[:_MAX_MESSAGE]


def type_name(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def short(value: Any) -> str:
    """A value as a person would write it, cut to a few dozen characters."""
    from golem_forge.tools.json_values import compact, safe_json

    text = value if isinstance(value, str) else compact(safe_json(value)[0])
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def _message(name: str, kind: Any, error: ValidationError) -> str:
    write: Callable[[], str] | None = {
        "type": lambda: _types(kind.types, error.instance),
        "enum": lambda: f"must be one of {_options(kind.options)}",
        "const": lambda: f"must be {short(kind.expected_value)}",
        "multipleOf": lambda: f"must be a multiple of {short(kind.multiple_of)}",
        "pattern": lambda: _pattern(kind),
        "falseSchema": lambda: "is not allowed here",
    }.get(name)
    if write is not None:
        return write()
    if name in _LIMITS:
        return _LIMITS[name].format(short(kind.limit))
    return _FIXED.get(name) or f"does not match the schema ({name})"


def _pattern(kind: Any) -> str:
    pattern = getattr(kind, "pattern", None)  # without one the engine gave up: it would have searched for ever
    return (
        "cannot be held against its pattern within bounds"
        if pattern is None
        else f"must match the pattern {short(pattern)}"
    )


def _types(wanted: list[str], value: Any) -> str:
    names = sorted(dict.fromkeys(wanted), key=lambda name: name == "null")
    return f"expected {' or '.join(names)}, got {type_name(value)}"


def _options(options: list[Any]) -> str:
    shown = ", ".join(short(option) for option in options[:_MAX_OPTIONS])
    return shown if len(options) <= _MAX_OPTIONS else f"{shown} and {len(options) - _MAX_OPTIONS} more"


def _alternative(error: ValidationError, kind: Any) -> Problem | None:
    """What the writer most likely meant: all wrong types named together, or the one alternative that nearly fits."""
    branches: list[list[Any]] = kind.context
    here = list(error.instance_path)
    wrong_type = [
        branch for branch in branches if any(e.kind.name == "type" and list(e.instance_path) == here for e in branch)
    ]
    if len(wrong_type) == len(branches) and branches:
        types = [t for branch in branches for e in branch if e.kind.name == "type" for t in e.kind.types]
        return tuple(here), _types(types, error.instance)[:_MAX_MESSAGE]
    nearly = [branch for branch in branches if branch and branch not in wrong_type]
    return explain(nearly[0][0]) if len(nearly) == 1 else None
