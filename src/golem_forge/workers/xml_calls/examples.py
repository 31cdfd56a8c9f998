"""An example of arguments made from a tool's schema, for the prompt. It fits the schema, or there is none.

Takes a schema, gives a mapping with the required members (else the first one), or None where no fitting value was
found: a strange pattern, members that depend on each other. Work is bounded; patterns run in the validator only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from golem_forge.tools.json_values import NotJson, as_json
from golem_forge.tools.jsonschema import SchemaCheck
from golem_forge.tools.schema_refs import alternatives, read_schema
from golem_forge.tools.validation import ToolDefinitionError

_MAX_LEVELS: Final = 6
_MAX_ITEMS: Final = 3
_TEXTS: Final = (
    "text", "a", "A", "1", "a-b", "a.b", "example.txt", "/workspace/example.txt", "2026-01-31",
    "2026-01-31T12:00:00Z", "12:00", "https://example.com", "me@example.com", "1.0.0", "out_0123456789ab",
    "0123456789abcdef", "00000000-0000-4000-8000-000000000000", "#a1b2c3", "main",
)  # fmt: skip
"""Tried in this order where a pattern wants more than any text."""


def example_arguments(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    root = dict(schema)
    try:
        value = as_json(_object(root, root, 0))
        check = SchemaCheck(root)
    except (NotJson, ToolDefinitionError):
        return None
    return value if not check.problems(value, 1) else None


def _object(schema: dict[str, Any], root: dict[str, Any], level: int) -> dict[str, Any]:
    known = schema.get("properties")
    members = known if isinstance(known, dict) else {}
    required = [name for name in schema.get("required") or () if isinstance(name, str)]
    wanted = required or (list(members)[:1] if level == 0 else [])
    return {name: _value(members.get(name), root, level + 1) for name in wanted}


def _value(schema: Any, root: dict[str, Any], level: int) -> Any:
    own = read_schema(schema, root).schema
    if "const" in own:
        return own["const"]
    for given in ("enum", "examples"):
        if isinstance(options := own.get(given), list) and options:
            return options[0]
    if own.get("default") is not None:
        return own["default"]
    if (members := alternatives(own)) and level < _MAX_LEVELS:
        return _value(members[0], root, level + 1)
    kind = own.get("type")
    if isinstance(kind, list):
        kind = next(iter(kind), "string")
    if kind == "object" or (kind is None and "properties" in own):
        return _object(own, root, level) if level < _MAX_LEVELS else {}
    if kind == "array":
        return _array(own, root, level)
    if kind in ("integer", "number"):
        return _number(own, is_whole=kind == "integer")
    return {"boolean": True, "null": None}[kind] if kind in ("boolean", "null") else _text(own)


def _array(schema: dict[str, Any], root: dict[str, Any], level: int) -> list[Any]:
    least = schema.get("minItems")
    count = min(max(least, 1), _MAX_ITEMS) if isinstance(least, int) else 1
    return [_value(schema.get("items"), root, level + 1) for _ in range(count)] if level < _MAX_LEVELS else []


def _number(schema: dict[str, Any], *, is_whole: bool) -> float:
    step = schema.get("multipleOf")
    if isinstance(step, (int, float)) and step > 0:
        return step
    least, most = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    gap = 1 if is_whole else 0.5
    if isinstance(least, (int, float)) and least > 1:
        return least
    if isinstance(above, (int, float)) and above >= 1:
        return above + gap
    if isinstance(most, (int, float)) and most < 1:
        return most
    if isinstance(below, (int, float)) and below <= 1:
        return below - gap
    return 1


def _text(schema: dict[str, Any]) -> str:
    limits: dict[str, Any] = {key: schema[key] for key in ("minLength", "maxLength", "pattern") if key in schema}
    if not limits:
        return _TEXTS[0]
    try:
        check = SchemaCheck({"type": "string", **limits})
    except ToolDefinitionError:
        return _TEXTS[0]
    least = limits.get("minLength")
    padded = (text.ljust(least, "x") for text in _TEXTS[:1]) if isinstance(least, int) and least < 200 else ()
    return next((text for text in (*_TEXTS, *padded) if not check.problems(text, 1)), _TEXTS[0])
