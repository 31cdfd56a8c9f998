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
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.json import canonical
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import clip, duration, one_line
from golem_forge.events.journal_files import journal_path
from golem_forge.events.journal_records import CallRecords
from golem_forge.events.serialization import iso_now, iso_time
from golem_forge.storage.home import JSON_FILE_ERRORS, ForgeHome, read_json, write_private
from golem_forge.usertools.argument_slots import (
    PLACEHOLDER,
    ArgumentsLookup,
    Redact,
    SuggestedParameter,
    assign_parameters,
    first_words,
    read_slots,
    unique_name,
)
from golem_forge.usertools.call_sequences import (
    DAY_S,
    DAYS,
    MIN_OCCURRENCES,
    MIN_SESSIONS,
    JournalTail,
    Occurrence,
    RepeatedSequence,
    SessionCalls,
    find_repeated,
    sequence_key,
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
    own = names_taken(store)
    found = unsettled_sequences(home, store, sessions, native=native)
    lookup = lru_cache(maxsize=None)(partial(journal_arguments, home.path))
    made = (_meaningful(each, lookup, redact, {*own, *native}) for each in found)
    return tuple(each for each in made if each is not None)


def unsettled_sequences(
    home: ForgeHome,
    store: ToolStore,
    sessions: Iterable[SessionCalls],
    *,
    native: Collection[str] = (),
    nearly: bool = False,
) -> list[RepeatedSequence]:
    """Returns the sequences that neither became a tool nor were dismissed. `nearly`: includes those that one more
    occurrence would make repeated.
    """
    since = iso_time(time.time() - DAYS * DAY_S)
    settled = {str(key) for (key,) in store.rows("SELECT DISTINCT suggestion FROM creations WHERE suggestion <> ''")}
    settled |= dismissed_keys(home).keys()
    found = find_repeated(sessions, own=names_taken(store) - set(native), since=since, nearly=nearly)
    return [each for each in found if each.key not in settled]


def names_taken(store: ToolStore) -> set[str]:
    return {str(name) for (name,) in store.rows("SELECT name FROM tools")}


def _meaningful(
    found: RepeatedSequence, lookup: ArgumentsLookup, redact: Redact, taken: Collection[str]
) -> Suggestion | None:
    """Returns a suggestion from what all occurrences share; else from the largest group that begins with the same
    words. None if only the names of tools repeat, as in any work.
    """
    whole = make_suggestion(found, lookup, redact, taken)
    if whole.constant_steps:
        return whole
    groups: dict[tuple[str, ...], list[Occurrence]] = {}
    for seen in found.complete:
        groups.setdefault(first_words(seen, lookup(seen)), []).append(seen)
    for group in sorted(groups.values(), key=len, reverse=True):
        if MIN_OCCURRENCES <= len(group) < len(found.complete):
            part = RepeatedSequence(found.sequence, tuple(group))
            made = make_suggestion(part, lookup, redact, taken)
            if part.sessions >= MIN_SESSIONS and made.constant_steps:
                return made
    return None


def begun_suggestion(
    known: Iterable[RepeatedSequence], begun: Occurrence, home: ForgeHome, redact: Redact, taken: Collection[str]
) -> Suggestion | None:
    """Returns a suggestion if the last steps of an unfinished turn repeat a run a third time, completely or all but its
    last call. `known`: runs that were seen at least twice.
    """
    lookup = partial(journal_arguments, home.path)
    for each in known:
        length = len(each.sequence)
        for count in (length, length - 1):
            steps = begun.steps[-count:]
            if len(steps) < count or tuple(step.shape for step in steps) != each.sequence[:count]:
                continue
            third = RepeatedSequence(each.sequence, (*each.occurrences, Occurrence(begun.session, steps)))
            if len(third.occurrences) < MIN_OCCURRENCES or third.sessions < MIN_SESSIONS:
                continue
            made = make_suggestion(third, lookup, redact, taken)
            if any(at < count for at in made.constant_steps):
                return made
    return None


def journal_arguments(home: Path, seen: Occurrence) -> Mapping[str, Mapping[str, Any]]:
    """Reads the arguments from the journal, which alone holds them. Unreadable ones are left out."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedCall:
    tool: str
    arguments: Mapping[str, Any]
    """The constant arguments."""
    parameters: Mapping[str, str]
    """Argument → its parameter."""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Argument → its text, with `{parameter}` where it differs."""

    def to_json(self) -> dict[str, Any]:
        """Returns the call as JSON, with parameters as pairs: redaction would take the parameter of an argument called
        `token` for a secret.
        """
        pairs = [{"argument": argument, "parameter": name} for argument, name in self.parameters.items()]
        texts = [{"argument": argument, "template": text} for argument, text in self.templates.items()]
        told = {"name": self.tool, "arguments": dict(self.arguments), "parameters": pairs}
        return told | ({"templates": texts} if texts else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    key: str
    name: str
    """A possible name for the tool."""
    sequence: tuple[SuggestedCall, ...]
    parameters: tuple[SuggestedParameter, ...]
    occurrences: int
    sessions: int
    last_seen: str
    sequence_ms: float
    """The median time of the calls, with the model's requests and people's answers between them."""
    constant_steps: frozenset[int] = frozenset()
    """The calls whose arguments have a constant part; empty if only the names of tools repeat."""
    seen_in: frozenset[str] = frozenset()
    """The ids of the sessions that made the calls."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Session → the last program in it that made the calls: `create_custom_tool` can make the tool of it."""

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(call.tool for call in self.sequence)

    def event(self) -> dict[str, Any]:
        """Returns the data of `toolSuggested`."""
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
    """Builds a suggestion. `taken`: names that no new tool can have."""
    newest = max(found.complete, key=lambda each: each.steps[-1].at)
    given = assign_parameters(read_slots(found, arguments_of, redact))
    return Suggestion(
        key=found.key,
        name=tool_name((shape[0] for shape in found.sequence), taken),
        sequence=tuple(
            SuggestedCall(
                tool=shape[0],
                arguments={
                    name: _bounded_value(value, newest, at) for name, value in given.constant.get(at, {}).items()
                },
                parameters=given.whole.get(at, {}),
                templates=given.templates.get(at, {}),
            )
            for at, shape in enumerate(found.sequence)
        ),
        parameters=given.parameters,
        constant_steps=given.constant_steps,
        occurrences=len(found.occurrences),
        sessions=found.sessions,
        last_seen=found.last,
        sequence_ms=median([seen.elapsed_ms for seen in found.complete]) or 0.0,
        seen_in=frozenset(seen.session for seen in found.occurrences),
        programs={
            seen.session: seen.steps[-1].program
            for seen in sorted(found.complete, key=lambda each: each.steps[-1].at)
            if seen.steps[-1].program
        },
    )


def event_sequence_key(sequence: Any) -> str:
    """Returns the key of the sequence in a `toolSuggested` event; empty if it has none."""
    try:
        return sequence_key(
            [
                [
                    call["name"],
                    *sorted(
                        [
                            *call["arguments"],
                            *(each["argument"] for each in (*call["parameters"], *call.get("templates", ()))),
                        ]
                    ),
                ]
                for call in sequence
            ]
        )
    except (TypeError, KeyError, ValueError):
        return ""


def _bounded_value(value: Any, seen: Occurrence, at: int) -> Any:
    length = len(canonical(value))
    if length <= LONGEST_VALUE:
        return value
    return f"[{length:,} characters, the same each time; call {seen.steps[at].call} of session {seen.session} has them]"


_LONGEST_NAME: Final = 64
_ROOM_FOR_NUMBER: Final = 4
_FIRST_WORD: Final = regex(r"[A-Za-z][A-Za-z0-9]*")
_MOST_WORDS: Final = 4
_FALLBACK_TOOL: Final = "steps"


def tool_name(tools: Iterable[str], taken: Collection[str]) -> str:
    """`read_grep_write` for read_file, grep_files, write_file: the first word of each, which mostly is what it does."""
    words = [match[0].lower() for tool in tools if (match := _FIRST_WORD.search(tool))]
    different = [word for at, word in enumerate(words) if at == 0 or word != words[at - 1]]
    plain = "_".join(different[:_MOST_WORDS])[: _LONGEST_NAME - _ROOM_FOR_NUMBER].rstrip("_") or _FALLBACK_TOOL
    lower = {name.lower() for name in taken}

    def fits(name: str) -> bool:
        return name.lower() not in lower and not name_problem(name) and not is_reserved(name)

    return unique_name(plain if not name_problem(plain) else _FALLBACK_TOOL, fits)


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
    fixed += [f"{_name_for_model(name)}={_template_for_model(text)}" for name, text in call.templates.items()]
    given = [f"{_name_for_model(name)}=<{parameter}>" for name, parameter in call.parameters.items()]
    return ", ".join([*fixed, *given])


def _value_for_model(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)[:_LONGEST_SHOWN_VALUE]
    return value if isinstance(value, str) and _PLAIN_WORD.fullmatch(value) else _LEFT_OUT


def _template_for_model(text: str) -> str:
    """A single plain word with its parameters; of any other text its first word, where that is plain, and they."""
    names = PLACEHOLDER.findall(text)
    if _PLAIN_WORD.fullmatch(PLACEHOLDER.sub("x", text)):
        return PLACEHOLDER.sub(r"<\1>", text)
    first = text.partition(" ")[0]
    program = f"{first} " if _PLAIN_NAME.fullmatch(first) else ""
    return f"{program}{_LEFT_OUT} " + " ".join(f"<{name}>" for name in names)


def _name_for_model(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else _LEFT_OUT


def _arguments_for_person(call: SuggestedCall) -> str:
    fixed = [f"{name}={_value_for_person(value)}" for name, value in {**call.arguments, **call.templates}.items()]
    return " ".join([*fixed, *(f"{name}=<{parameter}>" for name, parameter in call.parameters.items())])


def _value_for_person(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return clip(text, _LONGEST_SHOWN_VALUE)


_STATE_FOLDER: Final = "state"
_DISMISSED_FILE: Final = "suggestions.json"
_LARGEST_FILE: Final = 1 << 20
_MOST_DISMISSED: Final = 1_000


def dismissed_keys(home: ForgeHome) -> dict[str, str]:
    """Returns the dismissed keys with the time of dismissal."""
    try:
        known = read_json(home.path / _STATE_FOLDER / _DISMISSED_FILE, _LARGEST_FILE)
        return {str(key): str(at) for key, at in known["dismissed"].items()}
    except JSON_FILE_ERRORS:
        return {}


def dismiss_sequence(home: ForgeHome, key: str) -> None:
    known = {other: at for other, at in dismissed_keys(home).items() if other != key}
    _save_dismissed(home, dict([*known.items(), (key, iso_now())][-_MOST_DISMISSED:]))


def undismiss_sequence(home: ForgeHome, key: str) -> bool:
    """Removes a dismissal. Returns False if there was none."""
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
