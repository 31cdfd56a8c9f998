"""Suggestion: a run of calls as one tool that could stand for it. What stayed the same stays, the rest are parameters.

Values come from the newest place where the run was seen. Threats: a value that redaction took out, in the journal or
by what is known to be secret now, is never shown, so it becomes a parameter without an example; what cannot be found
any more does too. Texts here may be a stranger's (arguments that a page or a file put into a model's mouth): whoever
shows them makes them visible, and a model is told them as `wording` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.core.canonical import canonical
from golem_forge.core.visible import visible
from golem_forge.custom.suggestions.mining import Found, Seen, key_of
from golem_forge.custom.suggestions.naming import parameter_name, tool_name
from golem_forge.custom.suggestions.steps import ABSENT, HIDDEN, TYPES, mark

LONGEST_VALUE: Final = 2_000
"""Characters of a value that stays the same; a longer one is named by where it stands."""
_LONGEST_EXAMPLE: Final = 60
_SCALARS: Final = (str, int, float, bool)

ArgumentsOf = Callable[[Seen], Mapping[str, Mapping[str, Any]]]
"""The calls of one place where a run was seen → call id → arguments; without those that cannot be read."""
Redact = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """In the words of a manifest."""

    name: str
    type: str
    description: str
    required: bool = True
    items: str = ""

    def to_json(self) -> dict[str, Any]:
        known = {"name": self.name, "type": self.type, "description": self.description, "required": self.required}
        return known | ({"items": self.items} if self.items else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    tool: str
    arguments: Mapping[str, Any]
    """What stayed the same."""
    parameters: Mapping[str, str]
    """Argument → the parameter that gives it."""

    def to_json(self) -> dict[str, Any]:
        """As pairs: an argument called `token` would make redaction take its parameter's name for one."""
        pairs = [{"argument": argument, "parameter": name} for argument, name in self.parameters.items()]
        return {"name": self.tool, "arguments": dict(self.arguments), "parameters": pairs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    key: str
    name: str
    """What the tool could be called."""
    sequence: tuple[Call, ...]
    parameters: tuple[Parameter, ...]
    occurrences: int
    sessions: int
    last_seen: str
    sequence_ms: float
    """The median time of the calls."""

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(call.tool for call in self.sequence)

    def event(self) -> dict[str, Any]:
        """The data of `toolSuggested`."""
        return {
            "sequence": [call.to_json() for call in self.sequence],
            "occurrences": self.occurrences,
            "parameters": [each.to_json() for each in self.parameters],
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "name": self.name,
            **self.event(),
            "sessions": self.sessions,
            "last_seen": self.last_seen,
            "median_ms": round(self.sequence_ms, 3),
        }


def suggestion_of(
    found: Found, arguments_of: ArgumentsOf, redact: Redact = lambda value: value, taken: Collection[str] = ()
) -> Suggestion:
    """`taken`: names that no new tool can have."""
    newest = max(found.seen, key=lambda each: each.steps[-1].at)
    read = arguments_of(newest)
    slots = [
        _Slot(
            tool=shape[0],
            argument=argument,
            at=at,
            marks=tuple(seen.steps[at].marks[place] for seen in found.seen),
            value=_known(read.get(newest.steps[at].call, {}), argument, newest.steps[at].marks[place], redact),
        )
        for at, shape in enumerate(found.run)
        for place, argument in enumerate(shape[1:])
    ]
    parameters: dict[str, Parameter] = {}
    by_marks: dict[tuple[str, ...], str] = {}
    given: list[dict[str, str]] = [{} for _ in found.run]
    constant: list[dict[str, Any]] = [{} for _ in found.run]
    for slot in slots:
        if slot.stays:
            constant[slot.at][slot.argument] = _shown(slot.value, newest, slot.at)
            continue
        name = "" if HIDDEN in slot.marks else by_marks.get(slot.marks, "")
        if not name:  # what changes together with another argument is one thing
            name = by_marks[slot.marks] = parameter_name(slot.argument, parameters)
            parameters[name] = slot.parameter(name)
        given[slot.at][slot.argument] = name
    return Suggestion(
        key=found.key,
        name=tool_name((shape[0] for shape in found.run), taken),
        sequence=tuple(
            Call(tool=shape[0], arguments=constant[at], parameters=given[at]) for at, shape in enumerate(found.run)
        ),
        parameters=tuple(parameters.values()),
        occurrences=len(found.seen),
        sessions=found.sessions,
        last_seen=found.last,
        sequence_ms=_median(sorted(sum(step.ms for step in seen.steps) for seen in found.seen)),
    )


def key_of_event(sequence: Any) -> str:
    """Of the sequence that a `toolSuggested` event names; empty if it names none."""
    try:
        return key_of(
            [
                [call["name"], *sorted([*call["arguments"], *(each["argument"] for each in call["parameters"])])]
                for call in sequence
            ]
        )
    except (TypeError, KeyError, ValueError):
        return ""


class _Unknown:
    """No value: it cannot be read any more, or must not be shown."""


_UNKNOWN: Final = _Unknown()


def _known(args: Mapping[str, Any], argument: str, expected: str, redact: Redact) -> Any:
    """The value, if it is still the one that was seen and nothing of it is secret."""
    if argument not in args or expected == HIDDEN:
        return _UNKNOWN
    value = args[argument]
    return value if mark(value) == expected == mark(redact({argument: value}).get(argument)) else _UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """One argument of one call of the run, over all places where it was seen."""

    tool: str
    argument: str
    at: int
    marks: tuple[str, ...]
    value: Any

    @property
    def stays(self) -> bool:
        return len(set(self.marks)) == 1 and not isinstance(self.value, _Unknown)

    def parameter(self, name: str) -> Parameter:
        kind, items = self._type()
        what = f"{self.argument} of {self.tool}" + (" as JSON" if self._structured else "")
        return Parameter(
            name=name,
            type=kind,
            items=items,
            description=_one_line(what + self._example()),
            required=ABSENT not in self.marks,
        )

    @property
    def _structured(self) -> bool:
        """A user tool takes its arguments as flags; an object goes as text."""
        return any(each.startswith("o") for each in self.marks)

    def _type(self) -> tuple[str, str]:
        kinds = {each.partition(":")[0] for each in self.marks if each not in (ABSENT, HIDDEN)}
        if kinds == {"i", "n"}:
            return TYPES["n"], ""
        if len(kinds) != 1 or self._structured:
            return TYPES["s"], ""
        (kind,) = kinds
        return TYPES[kind[0]], TYPES[kind[1]] if len(kind) > 1 and kind[1] != "s" else ""

    def _example(self) -> str:
        value = self.value
        if not isinstance(value, _SCALARS) or HIDDEN in self.marks or len(str(value)) > _LONGEST_EXAMPLE:
            return ""
        return f", for example {value}" if str(value).strip() else ""


def _shown(value: Any, seen: Seen, at: int) -> Any:
    length = len(canonical(value))
    if length <= LONGEST_VALUE:
        return value
    return f"[{length:,} characters, the same each time; call {seen.steps[at].call} of session {seen.session} has them]"


def _median(ordered: list[float]) -> float:
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())
