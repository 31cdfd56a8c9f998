"""Suggestions: a repeated run of calls as one tool that could replace it.

`find_suggestions` is what `forge tools suggest` and every session's start do; it reads files, so a session does it off
its event loop. Nothing here makes a tool, changes a journal or talks to a model. Sequences that became tools, or that
the person dismissed (FORGE_HOME/state/suggestions.json, 0600), are left out with their parts. A dismissal file that is
lost or unreadable dismisses nothing; ForgeError where a dismissal could not be kept.

What stayed the same is constant, the rest become parameters; values come from the newest occurrence. Threat: a value
that redaction took out, in the journal or by what is known to be secret now, becomes a parameter without an example.

Threat: arguments may be a stranger's words (of a page, of a file) that came through a model into a journal, and a line
of Forge's own would carry them into later sessions. A model is told names, numbers and values that are a single plain
word; anything else is `…`. People see all of it, escaped.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.json import canonical
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import clip, duration, escape_control_chars, one_line
from golem_forge.events.journal_files import journal_path
from golem_forge.events.journal_records import CallRecords
from golem_forge.events.serialization import iso_now, iso_time
from golem_forge.storage.home import ForgeHome
from golem_forge.storage.private_file import JSON_FILE_ERRORS, read_json, write_private
from golem_forge.usertools.call_sequences import (
    DAY_S,
    DAYS,
    HIDDEN_MARK,
    MARK_TYPES,
    NULL_MARK,
    JournalTail,
    Occurrence,
    RepeatedSequence,
    SessionCalls,
    find_repeated,
    sequence_key,
    value_mark,
)
from golem_forge.usertools.diagnostics import is_reserved, name_problem
from golem_forge.usertools.store import ToolStore
from golem_forge.usertools.store.statistics import median


def find_suggestions(
    home: ForgeHome,
    store: ToolStore,
    sessions: Iterable[SessionCalls],
    *,
    native: Collection[str] = (),
    redact: Redact = lambda value: value,
) -> tuple[Suggestion, ...]:
    """`native`: names of built-in tools, which stay what they are where a user tool replaces one."""
    since = iso_time(time.time() - DAYS * DAY_S)
    own = {str(name) for (name,) in store.rows("SELECT name FROM tools")}
    made = {str(key) for (key,) in store.rows("SELECT DISTINCT suggestion FROM creations WHERE suggestion <> ''")}
    settled = made | dismissed_keys(home).keys()
    found = [each for each in find_repeated(sessions, own=own - set(native), since=since) if each.key not in settled]
    return tuple(
        make_suggestion(each, lambda seen: journal_arguments(home.path, seen), redact, {*own, *native})
        for each in found
    )


def journal_arguments(home: Path, seen: Occurrence) -> Mapping[str, Mapping[str, Any]]:
    """From the journal, for it alone holds them. Whatever cannot be read is left out."""
    wanted = {step.call for step in seen.steps}
    states = CallRecords()
    try:
        for record in JournalTail(journal_path(home, seen.session)).records():
            if record.get("call") in wanted and states.add(record) is not None:
                states.calls[record["call"]].value = None
    except (OSError, ValueError):
        return {}
    return {id: call.args for id, call in states.calls.items() if isinstance(call.args, dict)}


LONGEST_VALUE: Final = 2_000
"""Characters of a value that stays the same; a longer one is named by where it stands."""
_LONGEST_EXAMPLE: Final = 60
_SCALARS: Final = (str, int, float, bool)

ArgumentsLookup = Callable[[Occurrence], Mapping[str, Mapping[str, Any]]]
"""The calls of one place where a run was seen → call id → arguments; without those that cannot be read."""
Redact = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedParameter:
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
class SuggestedCall:
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
    sequence: tuple[SuggestedCall, ...]
    parameters: tuple[SuggestedParameter, ...]
    occurrences: int
    sessions: int
    last_seen: str
    sequence_ms: float
    """The median time of the calls."""
    seen_in: frozenset[str] = frozenset()
    """The ids of the sessions that made the calls."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Session → the last program in it that made the calls: `create_custom_tool` can make the tool of it."""

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


def make_suggestion(
    found: RepeatedSequence,
    arguments_of: ArgumentsLookup,
    redact: Redact = lambda value: value,
    taken: Collection[str] = (),
) -> Suggestion:
    """`taken`: names that no new tool can have."""
    newest = max(found.occurrences, key=lambda each: each.steps[-1].at)
    read = arguments_of(newest)
    slots = [
        _ArgumentSlot(
            tool=shape[0],
            argument=argument,
            at=at,
            marks=tuple(seen.steps[at].marks[place] for seen in found.occurrences),
            value=_known_value(read.get(newest.steps[at].call, {}), argument, newest.steps[at].marks[place], redact),
        )
        for at, shape in enumerate(found.sequence)
        for place, argument in enumerate(shape[1:])
    ]
    parameters: dict[str, SuggestedParameter] = {}
    by_marks: dict[tuple[str, ...], str] = {}
    given: list[dict[str, str]] = [{} for _ in found.sequence]
    constant: list[dict[str, Any]] = [{} for _ in found.sequence]
    for slot in slots:
        if slot.stays:
            constant[slot.at][slot.argument] = _bounded_value(slot.value, newest, slot.at)
            continue
        name = "" if HIDDEN_MARK in slot.marks else by_marks.get(slot.marks, "")
        if not name:  # what changes together with another argument is one thing
            name = by_marks[slot.marks] = parameter_name(slot.argument, parameters)
            parameters[name] = slot.parameter(name)
        given[slot.at][slot.argument] = name
    return Suggestion(
        key=found.key,
        name=tool_name((shape[0] for shape in found.sequence), taken),
        sequence=tuple(
            SuggestedCall(tool=shape[0], arguments=constant[at], parameters=given[at])
            for at, shape in enumerate(found.sequence)
        ),
        parameters=tuple(parameters.values()),
        occurrences=len(found.occurrences),
        sessions=found.sessions,
        last_seen=found.last,
        sequence_ms=median([sum(step.ms for step in seen.steps) for seen in found.occurrences]) or 0.0,
        seen_in=frozenset(seen.session for seen in found.occurrences),
        programs={
            seen.session: seen.steps[-1].program
            for seen in sorted(found.occurrences, key=lambda each: each.steps[-1].at)
            if seen.steps[-1].program
        },
    )


def event_sequence_key(sequence: Any) -> str:
    """Of the sequence that a `toolSuggested` event names; empty if it names none."""
    try:
        return sequence_key(
            [
                [call["name"], *sorted([*call["arguments"], *(each["argument"] for each in call["parameters"])])]
                for call in sequence
            ]
        )
    except (TypeError, KeyError, ValueError):
        return ""


_UNKNOWN_VALUE: Final = object()
"""It cannot be read any more, or must not be shown."""


def _known_value(args: Mapping[str, Any], argument: str, expected: str, redact: Redact) -> Any:
    """The value, if it is still the one that was seen and nothing of it is secret."""
    if argument not in args or expected == HIDDEN_MARK:
        return _UNKNOWN_VALUE
    value = args[argument]
    known = value_mark(value) == expected == value_mark(redact({argument: value}).get(argument))
    return value if known else _UNKNOWN_VALUE


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArgumentSlot:
    """One argument of one call of the run, over all places where it was seen."""

    tool: str
    argument: str
    at: int
    marks: tuple[str, ...]
    value: Any

    @property
    def stays(self) -> bool:
        return len(set(self.marks)) == 1 and self.value is not _UNKNOWN_VALUE

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


def _bounded_value(value: Any, seen: Occurrence, at: int) -> Any:
    length = len(canonical(value))
    if length <= LONGEST_VALUE:
        return value
    return f"[{length:,} characters, the same each time; call {seen.steps[at].call} of session {seen.session} has them]"


_NOT_IN_NAMES: Final = regex(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME: Final = 64
_ROOM_FOR_NUMBER: Final = 4
_FIRST_WORD: Final = regex(r"[A-Za-z][A-Za-z0-9]*")
_MOST_WORDS: Final = 4
_FALLBACK_TOOL: Final = "steps"


def parameter_name(argument: str, taken: Collection[str]) -> str:
    """The argument's name as far as a parameter can be called so; `path`, `path_2`, … where several are."""
    plain = _NOT_IN_NAMES.sub("_", argument).lstrip("_-0123456789")[: _LONGEST_NAME - _ROOM_FOR_NUMBER].rstrip("_-")
    lower = {name.lower() for name in taken}
    return _unique(plain or "value", lambda name: name.lower() not in lower)


def tool_name(tools: Iterable[str], taken: Collection[str]) -> str:
    """`read_grep_write` for read_file, grep_files, write_file: the first word of each, which mostly is what it does."""
    words = [match[0].lower() for tool in tools if (match := _FIRST_WORD.search(tool))]
    different = [word for at, word in enumerate(words) if at == 0 or word != words[at - 1]]
    plain = "_".join(different[:_MOST_WORDS])[: _LONGEST_NAME - _ROOM_FOR_NUMBER].rstrip("_") or _FALLBACK_TOOL
    lower = {name.lower() for name in taken}

    def fits(name: str) -> bool:
        return name.lower() not in lower and not name_problem(name) and not is_reserved(name)

    return _unique(plain if not name_problem(plain) else _FALLBACK_TOOL, fits)


def _unique(plain: str, fits: Callable[[str], bool]) -> str:
    return next(name for name in (plain, *(f"{plain}_{number}" for number in range(2, 1000))) if fits(name))


_PLAIN_WORD: Final = regex(r"[A-Za-z0-9_./*:@+=,^$\\-]{1,60}", re.ASCII)
_PLAIN_NAME: Final = regex(r"[A-Za-z][A-Za-z0-9_.-]{0,127}", re.ASCII)
_LONGEST_LINE: Final = 1_000
_LONGEST_SHOWN_VALUE: Final = 120
_LEFT_OUT: Final = "…"


def line_for_model(suggestion: Suggestion, session: str = "") -> str:
    """`session`: the one that is told; where a program of it made the calls, that program is the tool."""
    calls = " → ".join(f"{_name_for_model(call.tool)}({_arguments_for_model(call)})" for call in suggestion.sequence)
    needs = ", ".join(each.name for each in suggestion.parameters) or "no parameters"
    if len(calls) > _LONGEST_LINE:
        calls = " → ".join(_name_for_model(call.tool) for call in suggestion.sequence)
    makes = "create_custom_tool makes it, and asks them."
    program = suggestion.programs.get(session, "")
    if _PLAIN_WORD.fullmatch(program):
        literals = "{name: literal}" if suggestion.parameters else "{}"
        makes = (
            f'create_custom_tool(from_run="{program}", name="{suggestion.name}", description=…, parameters={literals}) '
            "makes it of the program that you ran, and asks them."
        )
    return (
        f"Forge noticed the same calls {suggestion.occurrences} times in {suggestion.sessions} sessions: {calls}. "
        f"They could be one custom tool, for example {suggestion.name} ({needs[:_LONGEST_LINE]}). If it would help "
        f"here, propose it to the person; {makes}"
    )


def lines_for_person(suggestion: Suggestion) -> list[str]:
    """Name and key first, then each call, then what to do about it."""
    width = max(len(call.tool) for call in suggestion.sequence)
    calls = [f"  {call.tool:<{width}}  {_arguments_for_person(call)}".rstrip() for call in suggestion.sequence]
    parameters = [f"    {each.name} ({each.type}): {each.description}" for each in suggestion.parameters]
    lines = (
        f"{suggestion.key}  {' → '.join(suggestion.tools)}",
        f"  seen {suggestion.occurrences} times in {suggestion.sessions} sessions, last {suggestion.last_seen}; "
        f"{duration(suggestion.sequence_ms)} each",
        *calls,
        *(["  parameters:", *parameters] if parameters else ["  no parameters: every call was the same"]),
    )
    return [one_line(line) for line in lines]


def _arguments_for_model(call: SuggestedCall) -> str:
    fixed = [f"{_name_for_model(name)}={_value_for_model(value)}" for name, value in call.arguments.items()]
    given = [f"{_name_for_model(name)}=<{parameter}>" for name, parameter in call.parameters.items()]
    return ", ".join([*fixed, *given])


def _value_for_model(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)[:_LONGEST_SHOWN_VALUE]
    return value if isinstance(value, str) and _PLAIN_WORD.fullmatch(value) else _LEFT_OUT


def _name_for_model(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else _LEFT_OUT


def _arguments_for_person(call: SuggestedCall) -> str:
    fixed = [f"{name}={_value_for_person(value)}" for name, value in call.arguments.items()]
    return " ".join([*fixed, *(f"{name}=<{parameter}>" for name, parameter in call.parameters.items())])


def _value_for_person(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return clip(text, _LONGEST_SHOWN_VALUE)


_STATE_FOLDER: Final = "state"
_DISMISSED_FILE: Final = "suggestions.json"
_LARGEST_FILE: Final = 1 << 20
_MOST_DISMISSED: Final = 1_000


def dismissed_keys(home: ForgeHome) -> dict[str, str]:
    """Key → when it was dismissed."""
    try:
        known = read_json(home.path / _STATE_FOLDER / _DISMISSED_FILE, _LARGEST_FILE)
        return {str(key): str(at) for key, at in known["dismissed"].items()}
    except JSON_FILE_ERRORS:
        return {}


def dismiss_sequence(home: ForgeHome, key: str) -> None:
    known = {other: at for other, at in dismissed_keys(home).items() if other != key}
    _save_dismissed(home, dict([*known.items(), (key, iso_now())][-_MOST_DISMISSED:]))


def undismiss_sequence(home: ForgeHome, key: str) -> bool:
    """False if it was not dismissed."""
    known = dismissed_keys(home)
    if known.pop(key, None) is None:
        return False
    _save_dismissed(home, known)
    return True


def _save_dismissed(home: ForgeHome, known: dict[str, str]) -> None:
    try:
        text = json.dumps({"dismissed": known}, indent=2)
        write_private(home.ensure(_STATE_FOLDER) / _DISMISSED_FILE, text.encode(), durable=False)
    except OSError as error:
        raise ForgeError(
            f"The dismissal could not be kept in $FORGE_HOME/{_STATE_FOLDER}/{_DISMISSED_FILE}: {error.strerror}. "
            "Correct that and try again."
        ) from None
