"""SchemaCheck: a JSON Schema (2020-12, or the draft it declares) that says what is wrong with a value, and where.

The constructor raises ToolDefinitionError for a schema that cannot be used: not valid, over 64 KiB, over 64 levels,
a `$ref` that is not in the schema itself, or one that branches without end. `errors` never raises and its work is
bounded. `format` is an annotation. Nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from golem_forge.tools.json_values import compact
from golem_forge.tools.schema_cost import SchemaCost
from golem_forge.tools.schema_messages import Problem, explain
from golem_forge.tools.schema_paths import field_path, json_path
from golem_forge.tools.validation import ToolDefinitionError

if TYPE_CHECKING:
    from jsonschema_rs import Validator

__all__ = ["MAX_SCHEMA_BYTES", "MAX_SCHEMA_LEVELS", "SchemaCheck", "field_path", "json_path"]

MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_SCHEMA_LEVELS: Final = 64
MAX_WIDTH: Final = 100_000
MAX_INSTANCE_LEVELS: Final = 128
"""Threat: the validator recurses on the C stack; a few thousand levels end the whole process."""
MAX_INSTANCE_VALUES: Final = 1_000_000
_EXPLAIN_ALL: Final = 20_000
"""Up to this cost every error is collected at once; above, the first one only; far above, none is explained."""
_EXPLAIN_ONE: Final = 1_000_000

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
        if any(reference in written for reference in _REFERENCES) and self._cost.width > MAX_WIDTH:
            raise ToolDefinitionError(
                f"the schema branches too often (more than {MAX_WIDTH} ways through it); "
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

    def problems(self, instance: Any, limit: int = 5) -> tuple[Problem, ...]:
        """The same with the path in parts."""
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

    def _explained(self, instance: Any, cost: int, limit: int) -> tuple[Problem, ...]:
        from jsonschema_rs import ValidationError

        if cost <= _EXPLAIN_ALL:
            found: list[Problem] = []
            for error in self._validator.iter_errors(instance):
                if (problem := explain(error, self._properties)) not in found:
                    found.append(problem)
                if len(found) >= max(limit, 1):
                    break
            return tuple(found)
        if cost <= _EXPLAIN_ONE or not self._cost.has_alternatives:
            try:
                self._validator.validate(instance)
            except ValidationError as error:
                return (explain(error, self._properties),)
        return (((), "does not match the schema"),)


def _check_size(schema: Any) -> str:
    """The schema as JSON text."""
    if not isinstance(schema, (dict, bool)):
        raise ToolDefinitionError(f"a schema must be an object, got {type(schema).__name__}")
    values, levels = _measure(schema)
    if levels > MAX_SCHEMA_LEVELS:
        raise ToolDefinitionError(f"the schema has more than {MAX_SCHEMA_LEVELS} levels")
    try:
        written = compact(schema) if values <= MAX_SCHEMA_BYTES else ""
        size = len(written.encode()) or values
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(f"the schema is not JSON: {error}") from None
    if size > MAX_SCHEMA_BYTES:
        raise ToolDefinitionError(f"the schema is larger than {MAX_SCHEMA_BYTES // 1024} KiB")
    return written


def _compiled(schema: dict[str, Any] | bool, retrieve: Retrieve | None) -> Validator:
    import jsonschema_rs

    declared = schema.get("$schema") if isinstance(schema, dict) else None
    name = "Draft202012Validator" if declared is None else _DRAFTS.get(_draft_id(declared))
    if name is None and retrieve is None:
        raise ToolDefinitionError(
            f"the schema declares the unknown draft {str(declared)[:100]!r}; "
            "use https://json-schema.org/draft/2020-12/schema"
        )
    build = getattr(jsonschema_rs, name or "Draft202012Validator")
    try:
        validator: Validator = build(schema, validate_formats=False, retriever=retrieve or _nothing_remote)
    except Exception as error:
        reason = str(getattr(error, "message", error)).split("\n", 1)[0]
        if "retrieving it failed" in reason:
            reason = f"{reason.split(' is not present', 1)[0]} is remote; only local $ref are allowed"
        path = json_path(getattr(error, "instance_path", ()))
        raise ToolDefinitionError(f"not a valid schema at {path}: {reason[:200]}") from None
    return validator


def _draft_id(declared: Any) -> str:
    return str(declared).removeprefix("https://").removeprefix("http://").removesuffix("#")


def _nothing_remote(uri: str) -> Any:
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
