"""What the book of trust holds, as data and as JSON: of each server an approval, and the pins of its tools.

`from_json` refuses (ValueError) anything that `to_json` would not have written: a book is believed whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
VERSION: Final = 1
MAX_PINS: Final = 10_000
"""Of one server. Beyond it, new tools that nobody agreed to and that are gone again are forgotten."""
MAX_DEFINITIONS_BYTES: Final = 4 << 20
"""Of one server. Beyond it, a pin is a digest alone and its diff shows the present definition."""


class PinState(StrEnum):
    PINNED = "pinned"
    NEW = "new"
    """It came after the server was first pinned, and nobody has agreed to it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    digest: str
    definition: Mapping[str, Any] | None
    """None: too large to be kept."""
    at: str
    state: PinState


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    digest: str
    """Of the unexpanded config."""
    described: Mapping[str, Any]
    """As `server_card.agreed` gives it."""
    at: str
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All that is known of one server."""

    approval: Approval | None = None
    listed: bool = False
    """Its tools were pinned once: whatever comes later is new."""
    pins: Mapping[str, Pin] = field(default_factory=dict)
    """By raw tool name. A tool that went keeps its pin."""

    def with_pins(self, more: Mapping[str, Pin], present: Collection[str]) -> Record:
        """`present`: the tools that the server has now."""
        pins = {**self.pins, **more}
        if len(pins) > MAX_PINS:
            pins = {name: pin for name, pin in pins.items() if name in present or pin.state is PinState.PINNED}
        return replace(self, listed=True, pins=_within_room(pins))


Records = dict[tuple[str, str], Record]
"""By (scope, server)."""
UNKNOWN: Final = Record()


def to_json(records: Records) -> dict[str, Any]:
    servers = [
        {
            "scope": scope,
            "server": server,
            "approval": None if (given := record.approval) is None else _fields(given, Approval),
            "listed": record.listed,
            "pins": {name: _fields(pin, Pin) for name, pin in record.pins.items()},
        }
        for (scope, server), record in sorted(records.items())
    ]
    return {"version": VERSION, "servers": servers}


def from_json(data: Any) -> Records:
    if _typed(data, dict).get("version") != VERSION:
        raise ValueError("it was written by another version of Forge")
    records: Records = {}
    for entry in _typed(data.get("servers"), list):
        _typed(entry, dict)
        given = entry.get("approval")
        pins = _typed(entry.get("pins"), dict).items()
        records[_typed(entry.get("scope"), str), _typed(entry.get("server"), str)] = Record(
            approval=None if given is None else _approval(_typed(given, dict)),
            listed=_typed(entry.get("listed"), bool),
            pins={name: _pin(_typed(pin, dict)) for name, pin in pins},
        )
    return records


def _approval(data: dict[str, Any]) -> Approval:
    return Approval(
        digest=_typed(data.get("digest"), str),
        described=_typed(data.get("described"), dict),
        at=_typed(data.get("at"), str),
        who=_typed(data.get("who"), str),
    )


def _pin(data: dict[str, Any]) -> Pin:
    definition = data.get("definition")
    return Pin(
        digest=_typed(data.get("digest"), str),
        definition=None if definition is None else _typed(definition, dict),
        at=_typed(data.get("at"), str),
        state=PinState(_typed(data.get("state"), str)),
    )


def _fields(record: Approval | Pin, kind: type[Approval] | type[Pin]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in kind.__slots__}


def _typed(value: Any, kind: type[_T]) -> _T:
    if type(value) is not kind:
        raise ValueError("it does not have the shape of a book")
    return value


def _within_room(pins: Mapping[str, Pin]) -> dict[str, Pin]:
    """The definitions that fit, the shortest first: no one of them can push all others out."""
    room, dropped = MAX_DEFINITIONS_BYTES, set[str]()
    for size, name in sorted(_sizes(pins.items())):
        room -= size
        if room < 0:
            dropped.add(name)
    return {name: replace(pin, definition=None) if name in dropped else pin for name, pin in pins.items()}


def _sizes(pins: Iterable[tuple[str, Pin]]) -> Iterable[tuple[int, str]]:
    for name, pin in pins:
        if pin.definition is not None:
            yield len(json.dumps(pin.definition)), name
