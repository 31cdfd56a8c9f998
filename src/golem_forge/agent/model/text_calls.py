"""Calls that a model wrote as text. Small models know the tools and write `{"name": …, "arguments": …}` as an answer.

`TextCallModel` wraps a Model: a response without calls whose whole text is one or more such calls of tools that the
model may call becomes a response with these calls, and `Completed.note` says so. Anything else stays the answer, byte
by byte; where it ends with such a call behind words, `Completed.unsent` names the tool, for the loop to ask. Text that
may become a call is held back while it streams; as soon as it cannot, it is shown.

`read_text_calls` reads the text. Taken: a JSON object with a name and arguments, a list of such objects, several one
after the other, each bare, in a code fence or in a tag (`<tool_call>`). Not taken: words beside it, other keys, a name
that no tool has.

Threat: a file or page may hold such text, and a model may repeat it. A call read here is judged like every call of the
model, and no more trusted than what the model writes in its own format.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from golem_forge.agent.messages import RequestedCall
from golem_forge.agent.model.interface import MAX_CALLS, Completed, Finish, ModelEvent, Request, TextDelta, WrappedModel
from golem_forge.agent.model.selection import OWN_SERVERS
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.regex import regex

LONGEST: Final = 1024 * 1024
"""Maximum characters of an answer that are looked at."""
_DECIDED_BY: Final = 1_000
"""Characters after which the beginning says no more than it has said."""
_NAMES: Final = ("name", "tool", "tool_name", "function", "function_name")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input")
_BESIDE: Final = frozenset(("id", "type"))
_TAGS: Final = ("tool_call", "tool_calls", "function_call", "toolcall", "tools", "tool")
_MARKS: Final = ("<|tool_call|>", "<|python_tag|>", "[TOOL_CALLS]")
_ANY_TAG: Final = "|".join(_TAGS)
_ANY_MARK: Final = "|".join(map(re.escape, _MARKS))
_OPEN_TAG: Final = regex(rf"(?:<(?:{_ANY_TAG})>|<function=([\w.-]{{1,200}})>|{_ANY_MARK})\s*")
_CLOSE_TAG: Final = regex(rf"\s*(?:</(?:{_ANY_TAG}|function)>|<\|/?tool_call\|>|<\|eom_id\|>)")
_OPENINGS: Final = (*(f"<{tag}>" for tag in _TAGS), *_MARKS)
_OPENING_FUNCTION: Final = regex(r"<(?:f(?:u(?:n(?:c(?:t(?:i(?:o(?:n(?:=[\w.-]{0,200})?)?)?)?)?)?)?)?)?\Z")
_OPENING_FENCE: Final = regex(r"(?:[`~]{1,2}|[`~]{3,16}[ \t]*[\w+-]{0,30}[ \t\r]*)\Z")
_OPEN_FENCE: Final = regex(r"(`{3,}|~{3,})[ \t]*[\w+-]{0,30}[ \t]*\r?\n\s*")
_BEGIN_OF_CALL: Final = regex(
    rf"^(?:(?:`{{3,}}|~{{3,}})[ \t]*[\w+-]{{0,30}}[ \t]*\r?$|<(?:{_ANY_TAG})>|<function=|\{{[ \t]*[\"\n])", re.MULTILINE
)
_BEGINS_TRIED: Final = 8
"""The last ones: each may be the beginning of a long text."""
_KEY_PREFIX: Final = regex(r"[\[\s]*(?:\{\s*(?:\"([^\"\\]*)(\")?)?)?\Z|[\[\s]*\{\s*\"([^\"\\]*)\"")


class _NoCall(Exception):
    """Raised if the text is no tool call."""


def read_text_calls(text: str, may_call: Callable[[str], bool]) -> tuple[tuple[str, Any], ...]:
    """(name, arguments) of each call, in order; empty: the text is no call."""
    rest = text.strip()
    if not rest or len(rest) > LONGEST or rest[0] not in "{[<`~":
        return ()
    calls: list[tuple[str, Any]] = []
    try:
        while rest:
            found, rest = _segment(rest)
            calls += found
            if len(calls) > MAX_CALLS:
                return ()
    except (_NoCall, ValueError, RecursionError):
        return ()
    return tuple(calls) if calls and all(may_call(name) for name, _ in calls) else ()


def unsent_call(text: str) -> str:
    """The tool, known or not, of the call that a text ends with; empty: it ends otherwise."""
    text = text.strip()
    if len(text) > LONGEST:
        return ""
    begins = [found.start() for found in _BEGIN_OF_CALL.finditer(text)]
    for begin in begins[-_BEGINS_TRIED:]:
        if begin and (calls := read_text_calls(text[begin:], bool)):
            return calls[0][0]
    return ""


def _segment(text: str) -> tuple[list[tuple[str, Any]], str]:
    """The calls of one piece at the beginning, and what follows it."""
    if fence := _OPEN_FENCE.match(text):
        calls: list[tuple[str, Any]] = []
        rest = text[fence.end() :]
        while rest and not rest.startswith(fence[1]):  # a fence inside an argument closes nothing
            found, rest = _segment(rest)
            calls += found
        if not calls:
            raise _NoCall
        return calls, rest.removeprefix(fence[1]).strip()
    tag = _OPEN_TAG.match(text)
    named = (tag[1] or "") if tag else ""
    value, rest = _json_value(text[tag.end() :] if tag else text)
    calls = [(named, value)] if named and isinstance(value, dict) else _calls_in(value)
    if tag is not None:
        while not named and rest.lstrip().startswith("{"):  # several calls in one tag
            value, rest = _json_value(rest.lstrip())
            calls += _calls_in(value)
        while closed := _CLOSE_TAG.match(rest):
            rest = rest[closed.end() :]
    return calls, rest.lstrip(" \t\r\n,;")


def _json_value(text: str) -> tuple[Any, str]:
    value, end = json.JSONDecoder(parse_constant=_refuse).raw_decode(text)
    return value, text[end:]


def _calls_in(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, list) and value:
        return [_call(each) for each in value]
    return [_call(value)]


def _call(value: Any) -> tuple[str, Any]:
    if not isinstance(value, dict):
        raise _NoCall
    inner = value.get("function")
    if isinstance(inner, dict) and value.keys() <= {"function", *_BESIDE}:
        value = inner
    names = [key for key in _NAMES if key in value]
    given = [key for key in _ARGUMENTS if key in value]
    if len(names) != 1 or len(given) != 1 or not value.keys() <= {names[0], given[0], *_BESIDE}:
        raise _NoCall
    name, args = value[names[0]], value[given[0]]
    if not isinstance(name, str) or not isinstance(args, (dict, str)):
        raise _NoCall
    return name, args


def _refuse(constant: str) -> Any:
    raise _NoCall


def may_become_call(text: str) -> bool:
    """Whether the beginning of an answer may still turn out to be a call."""
    rest = text.lstrip()
    if not rest:
        return True
    if len(rest) > LONGEST:
        return False
    if opened := _OPEN_FENCE.match(rest):
        rest = rest[opened.end() :]
    elif _OPENING_FENCE.match(rest):
        return True
    if opened := _OPEN_TAG.match(rest):
        if opened[1]:
            return True
        rest = rest[opened.end() :]
    elif any(each.startswith(rest) for each in _OPENINGS) or _OPENING_FUNCTION.match(rest):
        return True
    key = _KEY_PREFIX.match(rest)
    if key is None:
        return False
    begun, closed = key[1] or key[3] or "", key[2] is not None or key[3] is not None
    known = (*_NAMES, *_ARGUMENTS, *_BESIDE)
    return begun in known if closed else any(each.startswith(begun) for each in known)


class _Held:
    """The beginning of a response, as long as it may be a call."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0

    def add(self, piece: str) -> bool:
        """Adds a piece. Returns False if the text can no longer be a call."""
        self._pieces.append(piece)
        before, self._size = self._size, self._size + len(piece)
        if before > _DECIDED_BY:
            return self._size <= LONGEST
        return may_become_call(self.text)

    @property
    def text(self) -> str:
        return "".join(self._pieces)


class TextCallModel(WrappedModel):
    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        held: _Held | None = _Held() if request.tools else None
        events = self.inner.stream(request)
        try:
            async for event in events:
                if isinstance(event, TextDelta) and held is not None:
                    if held.add(event.text):
                        yield TextDelta("")  # a call may be being written
                    else:
                        yield TextDelta(held.text)
                        held = None
                elif isinstance(event, Completed):
                    taken = with_text_calls(event, request)
                    if held is None and taken.message is not event.message:
                        taken = event  # it was shown as words
                    if taken.message is event.message and held is not None and held.text:
                        yield TextDelta(held.text)
                    yield taken
                else:
                    yield event
        finally:
            aclose = getattr(events, "aclose", None)
            if aclose is not None:
                await aclose()


def with_text_calls(completed: Completed, request: Request) -> Completed:
    """Turns a text that is a tool call into a call; returns the same object if the text is an answer."""
    message = completed.message
    if message.calls or completed.finish is not Finish.STOP or not request.tools:
        return completed
    schemas: Mapping[str, Any] = {offer.name: offer.schema for offer in request.tools}
    found = read_text_calls(
        message.text, lambda name: name in schemas or bool(request.schema_of and request.schema_of(name))
    )
    if not found:
        unsent = unsent_call(message.text)
        return replace(completed, unsent=unsent) if unsent else completed
    calls = tuple(RequestedCall(id=f"call_{new_id()}", name=name, args=args) for name, args in found)
    named = ", ".join(dict.fromkeys(call.name for call in calls))
    note = f"{message.model or 'the model'} wrote its call as text; taken as a call of {named}"
    # What the provider has of this message is the text; the history shows the model its call in the right form.
    return replace(completed, message=replace(message, text="", calls=calls, raw=None), note=note)


def takes_text_calls(provider: str, said: bool | None) -> bool:
    """`said`: `models.<provider>.text_calls`; None: on for servers of one's own, whose models are often small."""
    return provider in OWN_SERVERS if said is None else said
