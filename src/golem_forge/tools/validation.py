"""Validation: does a value fit a JSON Schema (2020-12, or the draft it declares), and if not, what is wrong and where.

`Ok` and `Err` are the answers of `validate_input`; InputInvalid and ToolDefinitionError its errors. The constructor of
`SchemaCheck` raises ToolDefinitionError for a schema that cannot be used: not valid, over 64 KiB, over 64 levels, a
`$ref` that is not in the schema itself, or one that branches without end. `errors` never raises and its work is
bounded. `format` is an annotation. Nothing is ever fetched. `explain_error` puts one finding into plain words, (where,
what is wrong), and never repeats a large value. jsonschema_rs is loaded when the first schema is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import compact_json, safe_json
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import clip, closest_match, nearest_hint
from golem_forge.tools.schema import SchemaCost, field_path, json_path

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator


@dataclass(frozen=True, slots=True)
class Ok:
    data: dict[str, Any]
    ok: Literal[True] = True


@dataclass(frozen=True, slots=True)
class Err:
    message: str
    ok: Literal[False] = False

    @property
    def error(self) -> str:
        """Another name of `message`."""
        return self.message


class InputInvalid(ForgeError):
    """The arguments do not fit the tool's schema; nothing was judged, asked or run."""

    stated_name = "InputInvalid"

    def __init__(self, message: str, *, fields: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message, status=Status.INPUT_INVALID, code="INPUT_INVALID")
        self.fields = fields
        """(field path, problem) pairs, for forms that show each error at its field."""


class ToolDefinitionError(Exception):
    """A tool that cannot be offered: the text says what to change in its definition."""

    stated_name = "ToolDefinitionError"


MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_SCHEMA_LEVELS: Final = 64
MAX_SCHEMA_WIDTH: Final = 100_000
MAX_INSTANCE_LEVELS: Final = 128
"""Threat: the validator recurses on the C stack; a few thousand levels end the whole process."""
MAX_INSTANCE_VALUES: Final = 1_000_000
_MAX_COST_EXPLAIN_ALL: Final = 20_000
"""Up to this cost every error is collected at once; above, the first one only; far above, none is explained."""
_MAX_COST_EXPLAIN_ONE: Final = 1_000_000

_REFERENCES: Final = ('"$ref"', '"$dynamicRef"', '"$recursiveRef"')
_DRAFTS: Final = {
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft-06/schema": "Draft6Validator",
    "json-schema.org/draft-04/schema": "Draft4Validator",
}
Retrieve = Callable[[str], Any]


class SchemaCheck:
    def __init__(self, schema: dict[str, Any] | bool, *, retrieve: Retrieve | None = None) -> None:
        """`retrieve` gives the schema behind a foreign `$ref`; without it such a schema is refused."""
        self._schema = schema
        written = _check_size(schema)
        # without references there are no more ways through a schema than it has bytes: nothing to count
        if any(reference in written for reference in _REFERENCES) and self._cost.width > MAX_SCHEMA_WIDTH:
            raise ToolDefinitionError(
                f"the schema branches too often (more than {MAX_SCHEMA_WIDTH} ways through it); "
                "merge alternatives that repeat each other"
            )
        properties = schema.get("properties") if isinstance(schema, dict) else None
        self._properties = tuple(properties) if isinstance(properties, dict) else ()
        self._validator = _compiled(schema, retrieve)

    @cached_property
    def _cost(self) -> SchemaCost:
        return SchemaCost(self._schema if isinstance(self._schema, dict) else {})

    def errors(self, instance: Any, limit: int = 5) -> tuple[tuple[str, str], ...]:
        """(field path, problem) pairs, at most `limit`; empty when the value fits."""
        return tuple((field_path(parts), text) for parts, text in self.problems(instance, limit))

    def problems(self, instance: Any, limit: int = 5) -> tuple[SchemaProblem, ...]:
        """Returns the problems of a value, each with its path in parts."""
        values, levels = _measure(instance)
        if levels > MAX_INSTANCE_LEVELS:
            return (((), f"has more than {MAX_INSTANCE_LEVELS} levels"),)
        if values > MAX_INSTANCE_VALUES:
            return (((), f"has more than {MAX_INSTANCE_VALUES} values"),)
        try:
            if self._validator.is_valid(instance):
                return ()
            return self._explained(instance, self._cost.of(values, levels), limit)
        except Exception as error:  # values JSON does not know, broken Unicode, a pattern that gives up
            return (((), f"cannot be checked as JSON: {str(error)[:150]}"),)

    def _explained(self, instance: Any, cost: int, limit: int) -> tuple[SchemaProblem, ...]:
        from jsonschema_rs import ValidationError

        if cost <= _MAX_COST_EXPLAIN_ALL:
            found: list[SchemaProblem] = []
            for error in self._validator.iter_errors(instance):
                if (problem := explain_error(error, self._properties)) not in found:
                    found.append(problem)
                if len(found) >= max(limit, 1):
                    break
            return tuple(found)
        if cost <= _MAX_COST_EXPLAIN_ONE or not self._cost.has_alternatives:
            try:
                self._validator.validate(instance)
            except ValidationError as error:
                return (explain_error(error, self._properties),)
        return (((), "does not match the schema"),)


def _check_size(schema: Any) -> str:
    if not isinstance(schema, (dict, bool)):
        raise ToolDefinitionError(f"a schema must be an object, got {type(schema).__name__}")
    values, levels = _measure(schema)
    if levels > MAX_SCHEMA_LEVELS:
        raise ToolDefinitionError(f"the schema has more than {MAX_SCHEMA_LEVELS} levels")
    try:
        written = compact_json(schema) if values <= MAX_SCHEMA_BYTES else ""
        size = len(written.encode()) or values
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(f"the schema is not JSON: {error}") from None
    if size > MAX_SCHEMA_BYTES:
        raise ToolDefinitionError(f"the schema is larger than {MAX_SCHEMA_BYTES // 1024} KiB")
    return written


def _compiled(schema: dict[str, Any] | bool, retrieve: Retrieve | None) -> Validator:
    import jsonschema_rs

    declared = schema.get("$schema") if isinstance(schema, dict) else None
    draft = str(declared).removeprefix("https://").removeprefix("http://").removesuffix("#")
    name = "Draft202012Validator" if declared is None else _DRAFTS.get(draft)
    if name is None and retrieve is None:
        raise ToolDefinitionError(
            f"the schema declares the unknown draft {str(declared)[:100]!r}; "
            "use https://json-schema.org/draft/2020-12/schema"
        )
    build = getattr(jsonschema_rs, name or "Draft202012Validator")
    try:
        validator: Validator = build(schema, validate_formats=False, retriever=retrieve or _refuse_remote)
    except Exception as error:
        reason = str(getattr(error, "message", error)).split("\n", 1)[0]
        if "retrieving it failed" in reason:
            reason = f"{reason.split(' is not present', 1)[0]} is remote; only local $ref are allowed"
        path: tuple[str | int, ...] = tuple(getattr(error, "instance_path", ()))
        if isinstance(error, jsonschema_rs.ValidationError) and error.kind.name != "$ref":
            path, reason = _explain_keyword(error)
        raise ToolDefinitionError(f"not a valid schema at {json_path(path)}: {reason[:_MAX_MESSAGE]}") from None
    return validator


def _explain_keyword(error: ValidationError) -> SchemaProblem:
    """Describes a wrong keyword of a schema; for a misspelt type it also names the likely one."""
    path, reason = explain_error(error)
    instance = error.instance
    if error.kind.name == "format":
        return path, f"'{short_value(instance)}' is not a regular expression"
    wrong = [each for each in (instance if isinstance(instance, list) else [instance]) if each not in SCHEMA_TYPES]
    if tuple(error.instance_path)[-1:] != ("type",) or not wrong or not isinstance(wrong[0], str):
        return path, reason
    known = f"; types: {', '.join(SCHEMA_TYPES)}"
    return path, f"'{short_value(wrong[0])}' is not a type{nearest_hint(wrong[0], SCHEMA_TYPES, known)}"


def _refuse_remote(uri: str) -> Any:
    raise ValueError("only local $ref are allowed")


def _measure(value: Any) -> tuple[int, int]:
    """(values, levels), level by level; stops counting once either is beyond every limit."""
    values, levels, layer = 1, 0, [value]
    while layer := [node for node in layer if isinstance(node, (dict, list, tuple))]:
        levels += 1
        layer = [item for node in layer for item in (node.values() if isinstance(node, dict) else node)]
        values += len(layer)
        if levels > MAX_INSTANCE_LEVELS or values > MAX_INSTANCE_VALUES:
            break
    return values, levels


SchemaProblem = tuple[tuple[str | int, ...], str]
_MAX_MESSAGE: Final = 200
_MAX_SHOWN: Final = 40
_MAX_OPTIONS: Final = 12
SCHEMA_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")

_UNKNOWN_MEMBER_KEYWORDS: Final = ("additionalProperties", "unevaluatedProperties")
_LIMIT_MESSAGES: Final[dict[str, str]] = {
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
_FIXED_MESSAGES: Final[dict[str, str]] = {
    "contains": "does not have the right number of items of the expected form",
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


def explain_error(error: ValidationError, properties: Sequence[str] = ()) -> SchemaProblem:
    """`properties`: the names the schema knows at its top, for a hint at a misspelt one."""
    path = tuple(error.instance_path)
    kind: Any = error.kind
    name = kind.name
    if name == "required":
        return (*path, kind.property), "field required"
    if name in _UNKNOWN_MEMBER_KEYWORDS:
        unknown = kind.unexpected[0]
        close = None if path else closest_match(unknown, properties)
        return (*path, unknown), f"unknown property; did you mean {close!r}?" if close else "unknown property"
    if name == "falseSchema" and error.schema_path and error.schema_path[-1] in _UNKNOWN_MEMBER_KEYWORDS:
        return path, "must have no properties"
    if name in ("anyOf", "oneOf") and (better := _alternative(error, kind)):
        return better
    return path, _message(name, kind, error)[:_MAX_MESSAGE]


def type_name(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def short_value(value: Any) -> str:
    """A value as a person would write it, cut to a few dozen characters."""
    return clip(value if isinstance(value, str) else compact_json(safe_json(value)[0]), _MAX_SHOWN)


def _message(name: str, kind: Any, error: ValidationError) -> str:
    write: Callable[[], str] | None = {
        "type": lambda: _type_message(kind.types, error.instance),
        "enum": lambda: f"must be one of {_option_list(kind.options)}",
        "const": lambda: f"must be {short_value(kind.expected_value)}",
        "multipleOf": lambda: f"must be a multiple of {short_value(kind.multiple_of)}",
        "pattern": lambda: _pattern_message(kind),
        "falseSchema": lambda: "is not allowed here",
    }.get(name)
    if write is not None:
        return write()
    if name in _LIMIT_MESSAGES:
        return _LIMIT_MESSAGES[name].format(short_value(kind.limit))
    return _FIXED_MESSAGES.get(name) or f"does not match the schema ({name})"


def _pattern_message(kind: Any) -> str:
    pattern = getattr(kind, "pattern", None)  # without one the engine gave up: it would have searched for ever
    if pattern is None:
        return "takes too long to check against its pattern"
    return f"must match the pattern {short_value(pattern)}"


def _type_message(wanted: list[str], value: Any) -> str:
    names = sorted(dict.fromkeys(wanted), key=lambda name: name == "null")
    return f"expected {' or '.join(names)}, got {type_name(value)}"


def _option_list(options: list[Any]) -> str:
    shown = ", ".join(short_value(option) for option in options[:_MAX_OPTIONS])
    return shown if len(options) <= _MAX_OPTIONS else f"{shown} and {len(options) - _MAX_OPTIONS} more"


def _alternative(error: ValidationError, kind: Any) -> SchemaProblem | None:
    """Describes what the writer most likely meant: all wrong types together, or the one alternative that
    nearly fits.
    """
    branches: list[list[Any]] = kind.context
    here = list(error.instance_path)
    wrong_type = [
        branch for branch in branches if any(e.kind.name == "type" and list(e.instance_path) == here for e in branch)
    ]
    if len(wrong_type) == len(branches) and branches:
        types = [t for branch in branches for e in branch if e.kind.name == "type" for t in e.kind.types]
        return tuple(here), _type_message(types, error.instance)[:_MAX_MESSAGE]
    nearly = [branch for branch in branches if branch and branch not in wrong_type]
    return explain_error(nearly[0][0]) if len(nearly) == 1 else None
