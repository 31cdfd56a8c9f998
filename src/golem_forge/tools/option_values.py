"""The text a person typed for one option, as the value its schema asks for.

`value_of` raises Mismatch with what was expected. The look of the text decides nothing: `007` for a string stays `007`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from golem_forge.core.visible import visible
from golem_forge.tools.schema_messages import short
from golem_forge.tools.schema_refs import Reading, alternatives, read_schema

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_MAX_SHOWN: Final = 60
BOOLEANS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""The words for a switch that is given a value."""
_ABSENT: Final = object()


class Mismatch(ValueError):
    """The text does not fit; the message completes `'--option' at position 6: …`."""


def is_boolean(schema: Any, root: dict[str, Any]) -> bool:
    """Whether an option is a switch, which needs no value."""
    return _kind(read_schema(schema, root)) == "boolean"


def is_array(schema: Any, root: dict[str, Any]) -> bool:
    return _kind(read_schema(schema, root)) == "array"


def value_of(text: str, schema: Any, root: dict[str, Any]) -> Any:
    reading = read_schema(schema, root)
    if "const" in reading.schema or isinstance(reading.schema.get("enum"), list):
        return _choice(text, reading)
    if reading.nullable and text == "null":
        return None
    kind = _kind(reading)
    if kind == "string":
        return text
    if kind == "integer":
        return _number(text, _INTEGER, "integer")
    if kind == "number":
        return _number(text, _NUMBER, "number")
    if kind == "boolean":
        if text not in BOOLEANS:
            raise _expected("boolean", text)
        return BOOLEANS[text]
    if kind in ("array", "object"):
        found = _json(text)
        if not isinstance(found, list if kind == "array" else dict):
            raise _expected(kind, text)
        return found
    if kind == "null":
        if text != "null":
            raise _expected("null", text)
        return None
    found = _json(text)
    return found if found is not _ABSENT and _allows(schema, root, found) else text


def array_of(text: str, schema: Any, root: dict[str, Any]) -> Any:
    """An array option that was given once: the whole array as JSON, or its only item."""
    whole = _json(text)
    reading = read_schema(schema, root)
    if isinstance(whole, list) or (whole is None and reading.nullable):
        return whole
    return [value_of(text, reading.schema.get("items"), root)]


def item_of(text: str, schema: Any, root: dict[str, Any]) -> Any:
    """One of several values given for an array option."""
    return value_of(text, read_schema(schema, root).schema.get("items"), root)


def _kind(reading: Reading) -> str | None:
    """The one type a value must have; None where several would do."""
    schema = reading.schema
    kind = schema.get("type")
    if isinstance(kind, str):
        return kind
    if kind is None and not alternatives(schema) and isinstance(schema.get("properties"), dict):
        return "object"
    return None


def _choice(text: str, reading: Reading) -> Any:
    options = [reading.schema["const"]] if "const" in reading.schema else reading.schema["enum"]
    for option in options:
        if text == (option if isinstance(option, str) else json.dumps(option)):
            return option
    if reading.nullable and text == "null":
        return None
    raise Mismatch(f"must be one of {', '.join(visible(short(option)) for option in options[:50])}")


def _number(text: str, pattern: re.Pattern[str], name: str) -> int | float:
    if not pattern.fullmatch(text):
        raise _expected(name, text)
    if _INTEGER.fullmatch(text):
        return int(text)
    value = float(text)
    if value - value != 0.0:
        raise _expected(name, text)
    return value


def _json(text: str) -> Any:
    """The JSON value a text is, or _ABSENT; NaN and Infinity are not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _ABSENT


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _allows(schema: Any, root: dict[str, Any], value: Any) -> bool:
    from golem_forge.tools.jsonschema import SchemaCheck
    from golem_forge.tools.validation import ToolDefinitionError

    if not isinstance(schema, dict) or not schema:
        return True
    definitions: dict[str, Any] = {key: root[key] for key in ("$defs", "definitions", "$schema") if key in root}
    try:
        return not SchemaCheck({**definitions, **schema}).errors(value, limit=1)
    except ToolDefinitionError:  # it refers to a place outside the definitions; the whole schema is checked later
        return True


def _expected(name: str, text: str) -> Mismatch:
    shown = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    return Mismatch(f'expected {name}, got "{visible(shown)}"')
