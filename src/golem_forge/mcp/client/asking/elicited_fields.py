"""The fields of an elicited form: from the requested schema, bounded, flat, with nothing hidden in them.

Refuses what MCP does not allow in a form (objects in objects), more than 50 fields, and texts in which a person would
not see every character of what they send.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from golem_forge.core.visible import count_hidden
from golem_forge.mcp.client.asking.foreign_text import shown
from golem_forge.mcp.client.asking.request_errors import INVALID_PARAMS, Refused
from golem_forge.tools.fields import derive_fields

MOST_FIELDS: Final = 50
_LONGEST_NAME: Final = 200
_LABEL_BYTES: Final = 200
_DESCRIPTION_BYTES: Final = 1000
_FLAT: Final = frozenset({"text", "secret", "number", "boolean", "select", "multiselect", "fixed"})
_SCALARS: Final = (str, int, float, bool, type(None))


def flat_fields(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, Mapping):
        raise Refused(INVALID_PARAMS, "requestedSchema: must be an object with properties")
    if len(properties) > MOST_FIELDS:
        raise Refused(INVALID_PARAMS, f"requestedSchema: more than {MOST_FIELDS} fields")
    fields = [_shown_field(field) for field in derive_fields(dict(schema))]
    for field in fields:
        _label_options(field, properties[field["name"]])
        _check(field)
    return fields


def _shown_field(field: dict[str, Any]) -> dict[str, Any]:
    shown_field = {
        **field,
        "label": shown(field["label"], _LABEL_BYTES),
        "description": shown(field["description"], _DESCRIPTION_BYTES),
    }
    if "options" in field:
        shown_field["options"] = [{**each, "label": shown(each["label"], _LABEL_BYTES)} for each in field["options"]]
    return shown_field


def _label_options(field: dict[str, Any], part: Any) -> None:
    """`enumNames`: how servers of 2025 label the values of an `enum`."""
    names = part.get("enumNames") if isinstance(part, Mapping) else None
    options = field.get("options", ())
    if isinstance(names, list) and len(names) == len(options) and all(isinstance(name, str) for name in names):
        for option, name in zip(options, names, strict=True):
            option["label"] = shown(name, _LABEL_BYTES)


def _check(field: Mapping[str, Any]) -> None:
    name = field["name"]
    if len(name) > _LONGEST_NAME or count_hidden(name):
        raise Refused(INVALID_PARAMS, "requestedSchema: a name that is too long or hides characters")
    item = field.get("item", {})
    if field["type"] not in _FLAT and not (field["type"] == "list" and item.get("type") == "text"):
        raise Refused(INVALID_PARAMS, f"requestedSchema: {name}: must be text, a number, a boolean or a choice")
    if any(not isinstance(value, _SCALARS) for value in _proposals(field)):
        raise Refused(INVALID_PARAMS, f"requestedSchema: {name}: values must be text, numbers or booleans")
    if any(isinstance(value, str) and count_hidden(value) for value in _proposals(field)):
        raise Refused(INVALID_PARAMS, f"requestedSchema: {name}: a value hides characters")


def _proposals(field: Mapping[str, Any]) -> Iterable[Any]:
    """What a person may send without having typed it."""
    yield from (option["value"] for option in field.get("options", ()))
    default = field.get("default")
    yield from default if isinstance(default, list) else (default,)
