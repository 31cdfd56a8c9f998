"""A schema as form fields: what a person is asked, one dict per parameter, in declared order.

`derive_fields` takes a JSON Schema, a pydantic model or a Tool and gives
`{name, label, type, required, description, default?, options?, min?, max?, step?, pattern?, format?, fields?, item?,
variants?}`; TypeError for anything else, also for the schema of something that is no object. A field that may be null
has the default None and is not required: left empty it sends null. A schema too wide or too deep for a form ends in
`json` fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from golem_forge.tools.schema_refs import Reading, alternatives, read_schema

_MAX_RECURSION: Final = 5
_MAX_LEVELS: Final = 20
_MAX_FIELDS: Final = 1000
"""Threat: a few definitions that refer to each other twice per step describe more fields than a screen or a day has."""
_MULTILINE_FROM: Final = 200
_FORMATS: Final = frozenset({"date", "date-time", "time", "email", "uri"})


def derive_fields(schema: Any) -> list[dict[str, Any]]:
    root = schema if isinstance(schema, dict) else _schema_of(schema)
    reading = read_schema(root, root)
    if not _is_object(reading.schema):
        if (kind := reading.schema.get("type")) is not None:
            raise TypeError(f"derive_fields: a form needs a schema of type object, not {kind!r}")
        return []
    return _Form(root).members(reading, {}, 0)


derive_fields_from_schema = derive_fields
"""The name that the design documents have for it."""


def _schema_of(given: Any) -> dict[str, Any]:
    build = getattr(given, "model_json_schema", None)
    schema = build(by_alias=True) if build is not None else getattr(given, "input_schema", given)
    if not isinstance(schema, Mapping):
        raise TypeError(
            f"derive_fields takes a JSON Schema, a pydantic model or a Tool, not {repr(given)[:60]}; "
            "tool(function) makes one of a function"
        )
    return dict(schema)


class _Form:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = _MAX_FIELDS

    def members(self, reading: Reading, seen: dict[str, int], level: int) -> list[dict[str, Any]]:
        properties = reading.schema.get("properties")
        required = reading.schema.get("required")
        needed = required if isinstance(required, list) else ()
        if not isinstance(properties, dict):
            return []
        seen = _counted(seen, reading)
        return [self.field(str(name), part, name in needed, seen, level) for name, part in properties.items()]

    def field(self, name: str, part: Any, listed: bool, seen: dict[str, int], level: int) -> dict[str, Any]:
        self._left -= 1
        reading = read_schema(part, self._root)
        schema = reading.schema
        field: dict[str, Any] = {
            "name": name,
            "label": _own_title(part) or _spoken(name),
            "type": "json",
            "required": listed and "default" not in schema and not reading.nullable,
            "description": _text(schema.get("description")),
        }
        if reading.nullable or schema.get("default") is not None:
            field["default"] = schema.get("default")
        counted = _counted(seen, reading)
        too_much = self._left < 0 or level > _MAX_LEVELS or max(counted.values(), default=0) > _MAX_RECURSION
        if not too_much:
            field.update(self._form_of(schema, name, counted, level))
        if field["type"] == "secret":
            field.pop("default", None)
            if reading.nullable:
                field["default"] = None
        return field

    def _form_of(self, schema: dict[str, Any], name: str, seen: dict[str, int], level: int) -> dict[str, Any]:
        """The type of a field and what belongs to it."""
        if "const" in schema:
            return {"type": "fixed", "default": schema["const"]}
        if (options := _options(schema, self._root)) is not None:
            return {"type": "select", "options": options}
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return self._variants([{**schema, "type": kind} for kind in kinds], name, seen, level)
        if choices := alternatives(schema):
            around = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", *_ABOUT)}
            members = [{**around, **choice} if isinstance(choice, dict) else choice for choice in choices]
            return self._variants(members, name, seen, level)
        if kinds == "string":
            return _string(schema)
        if kinds in ("number", "integer"):
            return {"type": "number", **_range(schema, kinds)}
        if kinds == "boolean":
            return {"type": "boolean"}
        if kinds == "array":
            return self._array(schema, name, seen, level)
        if _is_object(schema) and schema.get("properties"):
            return {"type": "group", "fields": self.members(Reading(schema, False, ()), seen, level + 1)}
        return {"type": "json"}

    def _array(self, schema: dict[str, Any], name: str, seen: dict[str, int], level: int) -> dict[str, Any]:
        limits = {
            key: schema[keyword]
            for key, keyword in (("min", "minItems"), ("max", "maxItems"))
            if isinstance(schema.get(keyword), int)
        }
        if "prefixItems" in schema or isinstance(schema.get("items"), list):
            return {"type": "json"}
        items = read_schema(schema.get("items"), self._root)
        options = _options(items.schema, self._root)
        if options is not None and not items.nullable:
            return {"type": "multiselect", "options": options, **limits}
        item = self.field(name, schema.get("items"), True, seen, level + 1)
        return {"type": "list", "item": item, **limits}

    def _variants(self, members: list[Any], name: str, seen: dict[str, int], level: int) -> dict[str, Any]:
        variants = []
        for number, member in enumerate(members, 1):
            variant = self.field(name, member, True, seen, level + 1)
            schema = read_schema(member, self._root).schema
            variant["label"] = _text(schema.get("title")) or _kind_label(schema) or f"Option {number}"
            variants.append(variant)
        return {"type": "variants", "variants": variants}


_ABOUT: Final = ("title", "description", "default", "examples")


def _string(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("format")
    if kind == "password" or schema.get("writeOnly") is True:
        return {"type": "secret"}
    field: dict[str, Any] = {"type": "text"}
    if isinstance(pattern := schema.get("pattern"), str):
        field["pattern"] = pattern
    if isinstance(kind, str) and kind in _FORMATS:
        field["format"] = kind
    elif any(length > _MULTILINE_FROM for length in _numbers(schema.get("maxLength"))) or "contentMediaType" in schema:
        field["format"] = "multiline"
    return field


def _range(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """min, max and step; an exclusive limit of an integer is the next integer."""
    step = 1 if kind == "integer" else 0
    found: dict[str, Any] = {}
    lowest = _numbers(schema.get("minimum")) + [limit + step for limit in _numbers(schema.get("exclusiveMinimum"))]
    highest = _numbers(schema.get("maximum")) + [limit - step for limit in _numbers(schema.get("exclusiveMaximum"))]
    if lowest:
        found["min"] = max(lowest)
    if highest:
        found["max"] = min(highest)
    for size in _numbers(schema.get("multipleOf")):
        found["step"] = size
    return found


def _options(schema: dict[str, Any], root: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Choices of an enum, or of alternatives that are all constants; None if it is neither."""
    if isinstance(values := schema.get("enum"), list) and values:
        return [{"value": value, "label": _shown(value)} for value in values]
    options = []
    for member in alternatives(schema):
        choice = read_schema(member, root).schema
        if "const" not in choice:
            return None
        options.append({"value": choice["const"], "label": _text(choice.get("title")) or _shown(choice["const"])})
    return options or None


def _is_object(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "object" or (kind is None and isinstance(schema.get("properties"), dict))


def _counted(seen: dict[str, int], reading: Reading) -> dict[str, int]:
    """How often each reference was followed on the way here."""
    if not reading.references:
        return seen
    return {**seen, **{reference: seen.get(reference, 0) + 1 for reference in reading.references}}


def _spoken(name: str) -> str:
    words = name.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:] if words else name


def _own_title(part: Any) -> str:
    """Not that of a schema it refers to: a parameter `billing` of type Address is labelled Billing."""
    return _text(part.get("title")) if isinstance(part, dict) else ""


def _kind_label(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    return kind.capitalize() if isinstance(kind, str) else ""


def _shown(value: Any) -> str:
    from golem_forge.tools.json_values import compact, safe_json

    return value if isinstance(value, str) else compact(safe_json(value)[0])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _numbers(value: Any) -> list[int | float]:
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []
