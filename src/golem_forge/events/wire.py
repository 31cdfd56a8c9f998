"""One definition per event: snake_case attributes in Python, camelCase names on the wire, derived once per class.

`EventData` makes its subclasses frozen, keyword-only records (for type checkers: dataclasses). It is used instead of
`@dataclass` because compiling 38 of those costs more at start-up than the whole rest of the package.
A field without a default is required, also when its value may be None; a field that defaults to None is optional and
is left out of the wire while it is None. A field that is `filled` is always on the wire, but whoever emits may leave it
out. `from_wire` ignores unknown fields and refuses missing ones (ValueError).
What an emitter wrote is checked against the annotations as far as they are plain: `str`, `bool`, `int`, `float`,
`Json`, `list[…]` and `Literal[…]`, each also `| None`. Anything else is not looked at.
"""

from __future__ import annotations

import inspect
from ast import literal_eval
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, dataclass_transform

from golem_forge.core.options import camel, unknown_name

_MISSING: Any = object()
_PLAIN: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "text"),
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "list": ((list, tuple), "a list"),
    "Json": ((dict, Mapping), "an object"),
    "dict": ((dict, Mapping), "an object"),
}


class Field(NamedTuple):
    attribute: str
    wire: str
    required: bool


class Allowed(NamedTuple):
    """What a field may hold."""

    passes: frozenset[Any]
    """Types, and the words of a closed set: whose exact type or whose text is here needs no second look."""
    types: tuple[type, ...]
    words: str
    members: Mapping[str, Allowed]

    def problem(self, value: Any) -> str:
        """Empty: it may be this value. Threat: the value itself may be a secret, only a closed set's is repeated."""
        if type(value) in self.passes or (isinstance(value, str) and value in self.passes):
            return ""
        if not isinstance(value, self.types):
            shown = repr(value)[:60] if isinstance(value, str) and not self.types else type(value).__name__
            return f"is {self.words}, not {shown}"
        for name, allowed in self.members.items():
            if not isinstance(value, Mapping) or name not in value:
                return f"has no {name!r}; it is {self.words}"
            if problem := allowed.problem(value[name]):
                return f"has a {name!r} that {problem}"
        return ""


class _Everything(frozenset[Any]):
    def __contains__(self, value: object) -> bool:
        return True


ANYTHING = Allowed(_Everything(), (), "anything", {})


class _Filled(NamedTuple):
    make: Callable[[], Any]


def filled(make: Callable[[], Any]) -> Any:
    """The default of a field that whoever emits may leave out: `make()` gives its value then."""
    return _Filled(make)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class EventData:
    """What one event says. Subclasses list fields and give their wire name as `type=`.

    An event of somebody else may leave it out: its class name is the wire name, first letter lowered."""

    TYPE: ClassVar[str]
    FIELDS: ClassVar[tuple[Field, ...]]
    REQUIRED: ClassVar[frozenset[str]]
    """The wire names that must be present."""
    SPELLINGS: ClassVar[Mapping[str, str]]
    """Wire names and attributes → wire names: what an emitter may write."""
    FILLED: ClassVar[Mapping[str, Callable[[], Any]]]
    """Wire name → the value of a required field that the emitter left out."""
    RECORDED: ClassVar[bool]
    """Whether the journal keeps it. The others carry the number of the last recorded event."""
    ACTION: ClassVar[bool]
    """Whether it goes from a UI to the runtime."""
    MEMBERS: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Attribute → the members an object there must have, with their annotations."""
    ALLOWED: ClassVar[Mapping[str, Allowed] | None] = None
    """By wire name; worked out when the first one is emitted."""

    def __init_subclass__(cls, *, type: str = "", recorded: bool = True, action: bool = False) -> None:
        names = inspect.get_annotations(cls)
        cls.TYPE = type or cls.__name__[0].lower() + cls.__name__[1:]
        defaults = {name: cls.__dict__.get(name, _MISSING) for name in names}
        cls.FILLED = {camel(name): value.make for name, value in defaults.items() if isinstance(value, _Filled)}
        cls.FIELDS = tuple(
            Field(name, camel(name), value is _MISSING or isinstance(value, _Filled))
            for name, value in defaults.items()
        )
        cls.SPELLINGS = {spelled: field.wire for field in cls.FIELDS for spelled in (field.attribute, field.wire)}
        cls.REQUIRED = frozenset(field.wire for field in cls.FIELDS if field.required)
        cls.RECORDED = recorded
        cls.ACTION = action
        REGISTRY[cls.TYPE] = cls

    def __init__(self, **values: Any) -> None:
        state = self.__dict__
        for name, wire, required in self.FIELDS:
            value = values.pop(name, _MISSING)
            if value is _MISSING:
                if required and wire not in self.FILLED:
                    raise TypeError(f"event {self.TYPE!r}: required field {wire!r} is missing")
                value = self.FILLED[wire]() if required else None
            state[name] = value
        if values:
            raise TypeError(f"event {self.TYPE!r} has no field {next(iter(values))!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"event {self.TYPE!r} cannot be changed: every subscriber reads the same object")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = self.TYPE[0].upper() + self.TYPE[1:]
        return f"{shown}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


REGISTRY: dict[str, type[EventData]] = {}
"""Every event type by its wire name; filled when `types` is imported."""


def to_wire(data: EventData) -> dict[str, Any]:
    state = data.__dict__
    return {wire: state[name] for name, wire, required in data.FIELDS if required or state[name] is not None}


def refuse_missing(kind: type[EventData], wire: Mapping[str, Any]) -> None:
    for field in kind.FIELDS:
        if field.required and field.wire not in wire:
            raise ValueError(f"event {kind.TYPE!r}: required field {field.wire!r} is missing")


def allowed_in(kind: type[EventData]) -> Mapping[str, Allowed]:
    if kind.ALLOWED is None:
        annotations = inspect.get_annotations(kind)
        kind.ALLOWED = {camel(name): _allowed(each, kind.MEMBERS.get(name)) for name, each in annotations.items()}
    return kind.ALLOWED


def _allowed(annotation: Any, members: Mapping[str, str] | None = None) -> Allowed:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation).removeprefix("typing.")
    plain = text.removesuffix(" | None")
    none = frozenset([type(None)]) if plain != text else frozenset()
    if plain.startswith("Literal["):
        values = literal_eval(plain.removeprefix("Literal"))
        return Allowed(none.union(values), (), f"one of {', '.join(map(repr, values))}", {})
    types, words = _PLAIN.get(plain.partition("[")[0], ((), ""))
    if not types:
        return ANYTHING
    within = {name: _allowed(each) for name, each in (members or {}).items()}
    if within:
        words = f"{words} {{{', '.join(within)}}}"
    return Allowed(none if within else none.union(types), types, words, within)


def quick_check(kind: type[EventData]) -> Callable[[Mapping[str, Any]], bool]:
    """Whether the required fields hold what they may, at a glance: False is no verdict. KeyError: one is missing."""
    tests = tuple((name, allowed_in(kind)[name].passes) for name in sorted(kind.REQUIRED))

    def fits(data: Mapping[str, Any]) -> bool:
        for name, passes in tests:
            value = data[name]
            if type(value) not in passes and not (type(value) is str and value in passes):
                return False
        return True

    return fits


def known_type(name: str) -> str:
    """The wire name of an event type, spelled so or in snake_case. ValueError: there is none such."""
    wire = name if name in REGISTRY else camel(name)
    if wire not in REGISTRY:
        raise ValueError(unknown_name("there is no event", name, REGISTRY))
    return wire


def emitted(kind: type[EventData], data: Mapping[str, Any] | object) -> dict[str, Any]:
    """What an emitter wrote, by wire names and with nothing left out. ValueError: unknown, given twice or missing.
    TypeError: no mapping."""
    if not isinstance(data, Mapping):
        shape = ", ".join(field.wire for field in kind.FIELDS if field.wire in kind.REQUIRED - kind.FILLED.keys())
        raise TypeError(
            f"event {kind.TYPE!r} takes a mapping of its fields, {{{shape or '…'}}}, not {type(data).__name__}"
        )
    wire: dict[str, Any] = {}
    for spelled, value in data.items():
        name = kind.SPELLINGS.get(spelled)
        if name is None:
            fields = [field.wire for field in kind.FIELDS]
            raise ValueError(f"event {kind.TYPE!r}: {unknown_name('there is no field', spelled, fields)}")
        if name in wire:
            raise ValueError(f"event {kind.TYPE!r}: field {name!r} is given twice")
        wire[name] = value
    for name, make in kind.FILLED.items():
        if name not in wire:
            wire[name] = make()
    refuse_missing(kind, wire)
    return wire


def checked(kind: type[EventData], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """As `emitted`, and refuses (ValueError) a value that its field cannot hold."""
    wire = emitted(kind, data)
    allowed = allowed_in(kind)
    for name, value in wire.items():
        if problem := allowed[name].problem(value):
            raise ValueError(f"event {kind.TYPE!r}: field {name!r} {problem}")
    return wire


def from_wire(type_name: str, wire: Mapping[str, Any]) -> EventData:
    kind = REGISTRY.get(type_name)
    if kind is None:
        raise ValueError(f"unknown event type {type_name!r}")
    refuse_missing(kind, wire)
    return kind(**{name: wire[key] for name, key, _ in kind.FIELDS if key in wire})
