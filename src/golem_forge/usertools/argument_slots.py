"""What stays the same in the arguments of calls that repeat, and what differs: whole values, and parts of texts.

`read_slots` takes a repeated sequence and a lookup of recorded arguments, and gives a slot for each argument of each
call. `assign_parameters` says of each slot what it becomes: a constant; a parameter; or a template, a text with
parameters in it (`grep -c ERROR logs/{name}.log`). What changes together with another slot is one parameter. Part of a
path alone is no template, for files of one directory share it by accident: it must also vary together with another
slot. A text over 300 characters is never a template.
Threat: a value that redaction took out, in the journal or by what is known to be secret now, becomes a parameter
without an example, and is part of no template.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.usertools.call_sequences import (
    HIDDEN_MARK,
    MARK_TYPES,
    NULL_MARK,
    Occurrence,
    RepeatedSequence,
    value_mark,
)

ArgumentsLookup = Callable[[Occurrence], Mapping[str, Mapping[str, Any]]]
"""The calls of one place where a run was seen → call id → arguments; without those that cannot be read."""
Redact = Callable[[Any], Any]
PLACEHOLDER: Final = regex(r"\{([A-Za-z][A-Za-z0-9_-]*)\}")
_MOST_READ: Final = 8
"""Places whose arguments are read from their journals, the newest."""
_LONGEST_EXAMPLE: Final = 60
_LONGEST_TEMPLATE: Final = 300
_MOST_PARTS: Final = 3
_LONGEST_NAME: Final = 64
_ROOM_FOR_NUMBER: Final = 4
_SCALARS: Final = (str, int, float, bool)
_NOT_IN_NAMES: Final = regex(r"[^A-Za-z0-9_-]+")
_TOKEN: Final = regex(r"[A-Za-z0-9_]+|[^A-Za-z0-9_]")
_WORD: Final = regex(r"[A-Za-z]{3,}")
_JOINING: Final = frozenset("-._:")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedParameter:
    """A parameter with the keys of a manifest."""

    name: str
    type: str
    description: str
    required: bool = True
    items: str = ""

    def to_json(self) -> dict[str, Any]:
        known = {"name": self.name, "type": self.type, "description": self.description, "required": self.required}
        return known | ({"items": self.items} if self.items else {})


_UNKNOWN_VALUE: Final = object()
"""Stands for a value that cannot be read any more, or must not be shown."""


def _known_value(args: Mapping[str, Any], argument: str, expected: str, redact: Redact) -> Any:
    """The value, if it is still the one that was seen and nothing of it is secret."""
    if argument not in args or expected == HIDDEN_MARK:
        return _UNKNOWN_VALUE
    value = args[argument]
    known = value_mark(value) == expected == value_mark(redact({argument: value}).get(argument))
    return value if known else _UNKNOWN_VALUE


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentSlot:
    """One argument of one call of the run, over all places where it was seen."""

    tool: str
    argument: str
    at: int
    marks: tuple[str, ...]
    """The value marks of every complete occurrence."""
    value: Any
    """The value of the newest occurrence; `_UNKNOWN_VALUE` if it is unknown."""
    texts: tuple[str, ...] = ()
    """The texts of the occurrences, newest first; empty if not all of them are texts that may be shown."""
    begun: str = ""
    """The mark in the place where the run has only begun; empty: there is none."""
    begun_text: str | None = None
    """The text of the occurrence that is not complete yet."""

    @property
    def stays(self) -> bool:
        return len({*self.marks, self.begun} - {""}) == 1 and self.value is not _UNKNOWN_VALUE

    def named_parameter(self, taken: Collection[str]) -> SuggestedParameter:
        return self.parameter(parameter_name(self.argument, taken))

    def parameter(self, name: str) -> SuggestedParameter:
        kind, items = self._type()
        what = f"{self.argument} of {self.tool}{' as JSON' if self._structured else ''}{self._example()}"
        return SuggestedParameter(
            name=name,
            type=kind,
            items=items,
            description=" ".join(escape_control_chars(what).split()),
            required=NULL_MARK not in self.marks,
        )

    @property
    def _structured(self) -> bool:
        """A user tool takes its arguments as flags; an object goes as text."""
        return any(each.startswith("o") for each in self.marks)

    def _type(self) -> tuple[str, str]:
        kinds = {each.partition(":")[0] for each in self.marks if each not in (NULL_MARK, HIDDEN_MARK)}
        if kinds == {"i", "n"}:
            return MARK_TYPES["n"], ""
        if len(kinds) != 1 or self._structured:
            return MARK_TYPES["s"], ""
        (kind,) = kinds
        return MARK_TYPES[kind[0]], MARK_TYPES[kind[1]] if len(kind) > 1 and kind[1] != "s" else ""

    def _example(self) -> str:
        value = self.value
        if not isinstance(value, _SCALARS) or HIDDEN_MARK in self.marks or len(str(value)) > _LONGEST_EXAMPLE:
            return ""
        return f", for example {value}" if str(value).strip() else ""


def read_slots(found: RepeatedSequence, arguments_of: ArgumentsLookup, redact: Redact) -> list[ArgumentSlot]:
    complete, begun = found.complete, found.begun
    newest = sorted(complete, key=lambda each: each.steps[-1].at, reverse=True)[:_MOST_READ]
    read = [(seen, arguments_of(seen)) for seen in (*newest, *([begun] if begun is not None else []))]
    slots: list[ArgumentSlot] = []
    for at, shape in enumerate(found.sequence):
        for place, argument in enumerate(shape[1:]):
            there = [(seen.steps[at], args) for seen, args in read if at < len(seen.steps)]
            values = [
                _known_value(args.get(step.call, {}), argument, step.marks[place], redact) for step, args in there
            ]
            known, late = values[: len(newest)], values[len(newest) :]
            slots.append(
                ArgumentSlot(
                    tool=shape[0],
                    argument=argument,
                    at=at,
                    marks=tuple(seen.steps[at].marks[place] for seen in complete),
                    value=known[0],
                    texts=tuple(known) if all(isinstance(each, str) for each in values) else (),
                    begun=begun.steps[at].marks[place] if begun is not None and late else "",
                    begun_text=late[0] if late and isinstance(late[0], str) else None,
                )
            )
    return slots


def first_words(seen: Occurrence, arguments: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns the first words of its longer text arguments, which tell the kind of work."""
    texts = [
        value
        for step in seen.steps
        for _, value in sorted(arguments.get(step.call, {}).items())
        if isinstance(value, str) and len(value) <= _LONGEST_TEMPLATE
    ]
    return tuple(text.split()[0] for text in texts if len(text.split()) > 1)


@dataclass(slots=True)
class ParameterPlan:
    """Maps the index of a call in the sequence to what each of its arguments is."""

    constant: dict[int, dict[str, Any]] = field(default_factory=dict)
    whole: dict[int, dict[str, str]] = field(default_factory=dict)
    templates: dict[int, dict[str, str]] = field(default_factory=dict)
    constant_steps: frozenset[int] = frozenset()
    _named: dict[str, SuggestedParameter] = field(default_factory=dict)
    _by_values: dict[tuple[str, ...], str] = field(default_factory=dict)

    @property
    def parameters(self) -> tuple[SuggestedParameter, ...]:
        return tuple(self._named.values())

    def name_of(self, values: tuple[str, ...], make: Callable[[Collection[str]], SuggestedParameter]) -> str:
        """The parameter that has these values, place by place; a new one, if none has. No values: always a new one."""
        name = self._by_values.get(values, "") if values else ""
        if not name:
            made = make(self._named)
            name = made.name
            self._named[name] = made
            if values:
                self._by_values[values] = name
        return name


def assign_parameters(slots: Sequence[ArgumentSlot]) -> ParameterPlan:
    plan = ParameterPlan()
    open_slots = [slot for slot in slots if not slot.stays]
    templates = {index: parts for index, slot in enumerate(open_slots) if (parts := _slot_parts(slot)) is not None}
    shared = _shared_parts(open_slots, templates)
    constant: set[int] = set()
    for slot in slots:
        if slot.stays:
            plan.constant.setdefault(slot.at, {})[slot.argument] = slot.value
            if slot.value and not isinstance(slot.value, (bool, int, float)):
                constant.add(slot.at)
    for index, slot in enumerate(open_slots):
        parts = templates.get(index)
        if parts is not None and (_says_something(parts) or any(each in shared for each in _varying(parts))):
            text = "".join(
                _escaped(part) if isinstance(part, str) else f"{{{_part_name(plan, slot, part)}}}" for part in parts
            )
            plan.templates.setdefault(slot.at, {})[slot.argument] = text
            constant.add(slot.at)
            continue
        key = () if HIDDEN_MARK in slot.marks else (slot.texts or slot.marks)
        name = plan.name_of(key, slot.named_parameter)
        plan.whole.setdefault(slot.at, {})[slot.argument] = name
    plan.constant_steps = frozenset(constant)
    return plan


Part = str | tuple[str, ...]
"""A part of a text: constant, or the texts of each occurrence."""


def _slot_parts(slot: ArgumentSlot) -> tuple[Part, ...] | None:
    """Returns the parts of the complete occurrences; an incomplete one must fit too."""
    if slot.begun_text is None or not slot.texts:
        return text_parts(slot.texts)
    parts = text_parts((*slot.texts, slot.begun_text))
    return None if parts is None else tuple(part if isinstance(part, str) else part[:-1] for part in parts)


def text_parts(texts: Sequence[str]) -> tuple[Part, ...] | None:
    """Splits texts into constant and varying parts; None if they have nothing in common."""
    if len(texts) < 2 or max(map(len, texts)) > _LONGEST_TEMPLATE or len(set(texts)) == 1:
        return None
    rows = [_TOKEN.findall(text) for text in texts]
    columns: list[Part] = []
    if len({len(row) for row in rows}) == 1:
        columns = [column[0] if len(set(column)) == 1 else column for column in zip(*rows, strict=True)]
    else:
        start = _common(rows)
        end = _common([row[start:][::-1] for row in rows])
        middles = tuple("".join(row[start : len(row) - end]) for row in rows)
        if not all(middles):
            return None
        columns = [*rows[0][:start], middles, *rows[0][len(rows[0]) - end :]]
    parts = _joined(columns)
    fixed = "".join(part for part in parts if isinstance(part, str))
    return parts if fixed and len(_varying(parts)) <= _MOST_PARTS else None


def _common(rows: Sequence[Sequence[str]]) -> int:
    """Returns the number of tokens that all rows begin with."""
    count = 0
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count


def _joined(columns: Sequence[Part]) -> tuple[Part, ...]:
    """Neighbours together; what differs on both sides of a dash or a dot is one thing: `2026-01-02`."""
    parts: list[Part] = []
    for column in columns:
        last = parts[-1] if parts else None
        if isinstance(column, str):
            parts = [*parts[:-1], last + column] if isinstance(last, str) else [*parts, column]
        elif isinstance(last, tuple):
            parts[-1] = tuple(a + b for a, b in zip(last, column, strict=True))
        elif isinstance(last, str) and last in _JOINING and len(parts) > 1 and isinstance(before := parts[-2], tuple):
            parts[-2:] = [tuple(a + last + b for a, b in zip(before, column, strict=True))]
        else:
            parts.append(column)
    return tuple(parts)


def _varying(parts: Iterable[Part]) -> list[tuple[str, ...]]:
    return [part for part in parts if isinstance(part, tuple)]


def _says_something(parts: Sequence[Part]) -> bool:
    """Whether it is a text of several words, of which one stays."""
    fixed = [part for part in parts if isinstance(part, str)]
    return any(" " in part for part in fixed) and any(_WORD.search(part) for part in fixed)


def _shared_parts(slots: Sequence[ArgumentSlot], templates: Mapping[int, tuple[Part, ...]]) -> set[tuple[str, ...]]:
    """Returns the varying parts that occur in several different texts."""
    owners: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for index, slot in enumerate(slots):
        if slot.texts:
            for part in (*_varying(templates.get(index, ())), slot.texts):
                owners.setdefault(part, set()).add(slot.texts)
    return {part for part, texts in owners.items() if len(texts) > 1}


def _part_name(plan: ParameterPlan, slot: ArgumentSlot, values: tuple[str, ...]) -> str:
    def make(taken: Collection[str]) -> SuggestedParameter:
        shown = f", for example {values[0]}" if len(values[0]) <= _LONGEST_EXAMPLE else ""
        what = f"part of {slot.argument} of {slot.tool}{shown}"
        name = parameter_name("name" if not values[0].isdigit() else "number", taken)
        return SuggestedParameter(name=name, type="string", description=" ".join(escape_control_chars(what).split()))

    return plan.name_of(values, make)


def _escaped(text: str) -> str:
    """Braces of the text itself are no placeholder."""
    return text.replace("{", "{{").replace("}", "}}")


def parameter_name(argument: str, taken: Collection[str]) -> str:
    """The argument's name as far as a parameter can be called so; `path`, `path_2`, … where several are."""
    plain = _NOT_IN_NAMES.sub("_", argument).lstrip("_-0123456789")[: _LONGEST_NAME - _ROOM_FOR_NUMBER].rstrip("_-")
    lower = {name.lower() for name in taken}
    return unique_name(plain or "value", lambda name: name.lower() not in lower)


def unique_name(plain: str, fits: Callable[[str], bool]) -> str:
    return next(name for name in (plain, *(f"{plain}_{number}" for number in range(2, 1000))) if fits(name))
