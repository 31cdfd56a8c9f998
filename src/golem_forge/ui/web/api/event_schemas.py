"""The schemas of events and actions, made of the very classes that the bus checks them by.

`event.<type>` is an envelope with its data, `action.<type>` what a UI sends. Unknown members are to be ignored, so none
is forbidden; a member that is not required is left out, never null, unless its type says so.
"""

from __future__ import annotations

from typing import Any, Final, get_type_hints

from golem_forge.events.types import REGISTRY, EventData
from golem_forge.ui.web.api.attribute_words import attribute_words

Schema = dict[str, Any]
REF: Final = "#/components/schemas/"


def event_schemas() -> dict[str, Schema]:
    """By component name, with `Event` and `AnyAction`, each one of them all."""
    events = {f"event.{name}": _event(kind) for name, kind in REGISTRY.items()}  # actions are recorded like all else
    actions = {f"action.{name}": _action(kind) for name, kind in REGISTRY.items() if kind.ACTION}
    return {
        **events,
        **actions,
        "Event": _one_of(events, "One thing that happened. Types that you do not know are to be ignored."),
        "AnyAction": _one_of(actions, "What a UI asks of a session."),
    }


def _one_of(known: dict[str, Schema], words: str) -> Schema:
    mapping = {name.partition(".")[2]: REF + name for name in known}
    return {
        "description": words,
        "oneOf": [{"$ref": REF + name} for name in known],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }


def _event(kind: type[EventData]) -> Schema:
    seq = "Its own number, gapless per session from 1." if kind.RECORDED else "Of the last recorded event: not its own."
    return {
        "type": "object",
        "description": "" if kind.RECORDED else "Not recorded: only who watches sees it.",
        "properties": {
            "type": {"const": kind.TYPE},
            "seq": {"type": "integer", "minimum": 0, "description": seq},
            "ts": {"type": "string", "description": "UTC, ISO 8601 with milliseconds."},
            "sessionId": {"type": "string"},
            "workerId": {"type": "string"},
            "data": _data(kind),
        },
        "required": ["type", "seq", "ts", "sessionId", "workerId", "data"],
    }


def _action(kind: type[EventData]) -> Schema:
    return {
        "type": "object",
        "properties": {"type": {"const": kind.TYPE}, "data": _data(kind)},
        "required": ["type", "data"],
    }


def _data(kind: type[EventData]) -> Schema:
    hints, words = get_type_hints(kind), attribute_words(kind)
    members: dict[str, Schema] = {}
    for attribute, wire, required in kind.FIELDS:
        schema = _schema(hints[attribute], optional=not required)
        members[wire] = schema | {"description": words[attribute]} if attribute in words else schema
    return {"type": "object", "properties": members, "required": sorted(kind.REQUIRED)}


def _schema(hint: Any, *, optional: bool) -> Schema:
    from pydantic import TypeAdapter

    schema = TypeAdapter(hint).json_schema()
    return without_null(schema) if optional else schema


def without_null(schema: Schema) -> Schema:
    """The schema of a member that is absent rather than null."""
    rest = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(rest) != 1:
        return schema
    return {**{name: value for name, value in schema.items() if name not in ("anyOf", "default")}, **rest[0]}
