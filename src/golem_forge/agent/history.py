"""The message history of one worker: recorded in the journal, completed, compacted, summarised, rewound.

`History.add`, `replace_all` and `clear` return when the record is on disk. They raise JournalError where it cannot be
written; the history is then unchanged. A kill loses at most the running response. The journal redacts, so what comes
back is what was recorded, not always what was said.

Before each request `complete_results` gives every requested call exactly one result, in request order, and leaves out
results without a call: providers accept nothing else. `compact` makes a history smaller that no longer fits the context
window. `recap` summarises one for a person; `rewind_points` lists the inputs that a conversation can go back to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from golem_forge.agent.budget import message_tokens
from golem_forge.agent.model.interface import (
    AssistantMessage,
    CallResult,
    Message,
    RequestedCall,
    ResultsMessage,
    UserMessage,
    fenced,
    message_from_json,
    message_to_json,
    unfenced,
)
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.json import compact_json, safe_json
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import shorten
from golem_forge.events.journal import HIDDEN_ARGS, Journal
from golem_forge.events.journal_files import JournalError
from golem_forge.events.journal_records import join_records

ADDED: Final = "history"
REPLACED: Final = "historySet"
CLEARED: Final = "historyCleared"
HISTORY_RECORDS: Final = frozenset({ADDED, REPLACED, CLEARED})
_KEPT_RANGE: Final = "kept"
"""Key in a `historySet`: `{"kept": [3, 9]}` stands for messages 3 to 8 of the history before it."""
_LOST: Final = "[A message stood here that could not be read back.]"


class History:
    def __init__(self, journal: Journal | None, worker_id: str, messages: Iterable[Message] = ()) -> None:
        """`messages` are on record already, or need not be."""
        self.messages: list[Message] = list(messages)
        self.worker_id = worker_id
        self._journal = journal
        self._on_record = not self.messages
        """Whether the journal is known to hold just these messages, so that a record can refer to them."""

    def add(self, message: Message) -> None:
        fields: dict[str, Any] = {"message": message_to_json(message)}
        if isinstance(message, AssistantMessage) and self._journal is not None and self._journal.commits_later:
            # another process may have to make these calls, from what is recorded of them
            hidden = [call.id for call in message.calls if self._journal.redacts(call.args)]
            fields |= {HIDDEN_ARGS: hidden} if hidden else {}
        self._record(ADDED, fields)
        self.messages.append(message)

    def replace_all(self, messages: Iterable[Message]) -> None:
        """Replaces all messages, after compaction. Messages that stay are not written to the journal again."""
        messages = list(messages)
        before = self.messages if self._on_record else []
        written = [
            {_KEPT_RANGE: [each.start, each.stop]} if isinstance(each, range) else message_to_json(each)
            for each in _with_kept(messages, before)
        ]
        self._record(REPLACED, {"messages": written, "before": len(before)})
        self.messages[:] = messages
        self._on_record = True

    def clear(self) -> None:
        self._record(CLEARED, {})
        self.messages.clear()
        self._on_record = True

    @classmethod
    def restore(cls, records: Iterable[Mapping[str, Any]], worker_id: str, journal: Journal | None = None) -> History:
        """Rebuilds a worker's history from the records of a journal; later messages are written to `journal`."""
        messages: list[Message] = []
        for record in join_records(records):
            if record.get("workerId") == worker_id:
                messages = apply_record(messages, record)
        return cls.recorded(journal, worker_id, messages)

    @classmethod
    def recorded(cls, journal: Journal | None, worker_id: str, messages: Iterable[Message]) -> History:
        """One whose messages the journal holds, all of them and in this order."""
        history = cls(journal, worker_id, messages)
        history._on_record = True
        return history

    def _record(self, type: str, fields: dict[str, Any]) -> None:
        if self._journal is None:
            return
        try:
            self._journal.append(type, {"workerId": self.worker_id, **fields})
            self._journal.flush()
        except JournalError:
            self._on_record = False  # it may still be written with a later record
            raise


def apply_record(messages: list[Message], record: Mapping[str, Any]) -> list[Message]:
    """The history after one more record of its worker: the same list grown, or another one."""
    kind = record.get("type")
    if kind == ADDED:
        messages.append(_read_message(record.get("message")))
    elif kind == REPLACED:
        written, before = record.get("messages"), record.get("before")
        if not isinstance(written, list):
            return [_read_message(None)]
        # Where more or less came back than was there, what is kept is counted from the end: that is what came last.
        shift = len(messages) - before if isinstance(before, int) else 0
        return [message for each in written for message in _read_all(each, messages, shift)]
    elif kind == CLEARED:
        return []
    return messages


def _with_kept(messages: Sequence[Message], before: Sequence[Message]) -> list[Message | range]:
    """`messages` with each row of those that stood in `before`, in that order, as the range of where they stood."""
    places = {id(message): place for place, message in enumerate(before)}
    found: list[Message | range] = []
    for message in messages:
        place = places.get(id(message))
        last = found[-1] if found else None
        if place is None:
            found.append(message)
        elif isinstance(last, range) and last.stop == place:
            found[-1] = range(last.start, place + 1)
        else:
            found.append(range(place, place + 1))
    return found


def _read_all(written: Any, before: Sequence[Message], shift: int) -> list[Message]:
    """The messages that one member of a `historySet` stands for; a mark for those that are not there."""
    if not (isinstance(written, dict) and _KEPT_RANGE in written):
        return [_read_message(written)]
    span = written[_KEPT_RANGE]
    if not (isinstance(span, list) and len(span) == 2 and all(isinstance(place, int) for place in span)):
        return [_read_message(None)]
    start, stop = span[0] + shift, span[1] + shift
    there = list(before[max(start, 0) : max(stop, 0)])
    return there if len(there) == stop - start else [_read_message(None), *there]


def _read_message(kept: Any) -> Message:
    """One that was too long to record, or came out of redaction as no message any more, leaves a mark in its place."""
    try:
        return message_from_json(kept)
    except (ValueError, AttributeError):
        return UserMessage(text=_LOST, kind="note")


ResultOf = Callable[[RequestedCall], CallResult]


def complete_results(messages: Sequence[Message], answer: ResultOf, note: str = "") -> list[Message]:
    """`note` is told with results that had to be made; the same objects where nothing was missing."""
    whole: list[Message] = []
    asked: tuple[RequestedCall, ...] = ()
    for message in (*messages, None):
        given = message if isinstance(message, ResultsMessage) else None
        if asked:
            whole.append(_with_results(asked, given, answer, note))
        if message is None or given is not None:
            asked = ()
            continue
        whole.append(message)
        asked = message.calls if isinstance(message, AssistantMessage) else ()
    return whole


def _with_results(
    asked: tuple[RequestedCall, ...], given: ResultsMessage | None, answer: ResultOf, note: str
) -> ResultsMessage:
    known = {result.id: result for result in given.results} if given else {}
    if given is not None and tuple(known) == tuple(call.id for call in asked) and len(known) == len(given.results):
        return given
    results = tuple(known.get(call.id) or answer(call) for call in asked)
    return ResultsMessage(results=results, note=(given.note if given else "") or note)


KEEP_LAST: Final = 10
KEEP_LAST_ON_REQUEST: Final = 2
"""Messages that stay as they are where a person asks for a shorter history: the last words and their answer."""
COMPACT_AT: Final = 0.8
_BYTES_PER_TOKEN: Final = 3
"""Used for a transcript that must fit; lower than in an estimate."""
_WORTH_KEEPING: Final = 100
"""Characters; a shorter output is no longer than the line that would stand for it."""
_OUTPUT_KEPT: Final = "[output kept, handle "
_SUMMARY_SHARE: Final = 0.5
"""The part of the window that the text to summarise may take."""
_LEAST_SHOWN: Final = 200


class ContextExceeded(ForgeError):
    def __init__(self) -> None:
        super().__init__("context limit exceeded", code="CONTEXT_EXCEEDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    messages: list[Message]
    before: int
    after: int
    """Estimated tokens of the next request."""


async def compact(
    history: Sequence[Message],
    *,
    limit: int,
    used: int,
    summarise: Callable[[list[Message]], Awaitable[str]],
    keep_output: Callable[[str], str],
    keep: int = KEEP_LAST,
    force: bool = False,
    count: Callable[[Message], int] = message_tokens,
) -> Compacted | None:
    """A smaller history, or None where nothing has to be done. First old pictures go (their handles stay), then old
    tool outputs become handles, then the oldest turns become one summary. The first input, the last messages and every
    call with its result are always kept. The input is not changed, so an interrupt loses nothing. Raises
    ContextExceeded when what must be kept is still too large.

    `used`: tokens the next request would take. `keep_output` stores a text and gives its handle. `summarise` gets one
    user message that holds the old turns as text. `force`: also where there is room left. `count`: the tokens of a
    message, by the rule of the model.
    """
    if used <= limit * COMPACT_AT and not force:
        return None
    messages = _change_old_results(history, keep, lambda each: replace(each, media=()) if each.media else each)
    after = used - _saved_tokens(history, messages, count)
    if force or after > limit * COMPACT_AT:
        messages = _change_old_results(messages, keep, lambda each: _with_handle(each, keep_output))
        after = used - _saved_tokens(history, messages, count)
    if (force or after > limit * COMPACT_AT) and (old := _old_turns(messages, keep)):
        before_summary = messages
        transcript = _transcript(old.messages, int(limit * _SUMMARY_SHARE) * _BYTES_PER_TOKEN)
        text = (await summarise([UserMessage(text=transcript, kind="note")])).strip()
        summary = UserMessage(text=f"[Summary of {len(old.messages)} earlier messages]\n{text}", kind="summary")
        messages = [*messages[: old.start], summary, *old.unanswered, *messages[old.end :]]
        if not text or _saved_tokens(before_summary, messages, count) <= 0:
            messages = before_summary  # a summary that is longer than what it stands for helps nobody
        after = used - _saved_tokens(history, messages, count)
    if after > limit:
        raise ContextExceeded
    return Compacted(messages=messages, before=used, after=after) if messages != list(history) else None


def _saved_tokens(before: Sequence[Message], after: Sequence[Message], count: Callable[[Message], int]) -> int:
    return sum(map(count, before)) - sum(map(count, after))


def _change_old_results(
    history: Sequence[Message], keep: int, change: Callable[[CallResult], CallResult]
) -> list[Message]:
    """Changes the results before the last `keep` messages. Unchanged messages stay the same objects, to which the
    journal refers."""
    messages = list(history)
    for index, message in enumerate(history[: max(len(history) - keep, 0)]):
        if isinstance(message, ResultsMessage):
            results = tuple(map(change, message.results))
            if results != message.results:
                messages[index] = replace(message, results=results)
    return messages


def _with_handle(result: CallResult, keep_output: Callable[[str], str]) -> CallResult:
    if len(result.text) <= _WORTH_KEEPING or result.text.startswith(_OUTPUT_KEPT):
        return result
    try:
        handle = result.output_handle or keep_output(unfenced(result.text))
    except (OSError, ToolFailed):  # no room for it on disk: better large than lost
        return result
    return replace(result, text=f"{_OUTPUT_KEPT}{handle}]", output_handle=handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OldTurns:
    start: int
    end: int
    messages: list[Message]
    unanswered: list[Message]
    """Calls without a result, and what was asked for beside them: they stay, whatever else goes."""


def _old_turns(history: Sequence[Message], keep: int) -> _OldTurns | None:
    """Returns the messages between the first input and the last messages, without separating a call from its result."""
    first = next((i for i, each in enumerate(history) if isinstance(each, UserMessage) and each.kind == "input"), -1)
    start, end = first + 1, _first_kept(history, keep)
    answered = {each.id for message in history if isinstance(message, ResultsMessage) for each in message.results}
    pending = {
        call.id
        for message in history[start:end]
        if isinstance(message, AssistantMessage) and any(call.id not in answered for call in message.calls)
        for call in message.calls
    }
    old: list[Message] = []
    unanswered: list[Message] = []
    for message in history[start:end]:
        (old if pending.isdisjoint(_ids(message)) else unanswered).append(message)
    if all(isinstance(each, UserMessage) and each.kind == "summary" for each in old):
        return None
    return _OldTurns(start=start, end=end, messages=old, unanswered=unanswered)


def _first_kept(history: Sequence[Message], keep: int) -> int:
    """Returns where the last messages begin, moved back to the calls whose results are among them."""
    asked = {call: index for index, message in enumerate(history) for call in _calls(message)}
    end = max(len(history) - keep, 0)
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        if index < end:
            break
        if isinstance(message, ResultsMessage):
            end = min(end, *(asked.get(each.id, end) for each in message.results), end)
    return end


def _calls(message: Message) -> list[str]:
    return [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []


def _ids(message: Message) -> list[str]:
    return [each.id for each in message.results] if isinstance(message, ResultsMessage) else _calls(message)


def _transcript(messages: Sequence[Message], room: int) -> str:
    """The turns as text, each cut in its middle where all of them together are too long."""
    texts = [_message_text(message) for message in messages]
    share = max(room // max(len(texts), 1), _LEAST_SHOWN)
    if sum(len(text.encode("utf-8", "replace")) for text in texts) > room:
        texts = [_cut(text, share) for text in texts]
    body = _cut("\n\n".join(texts), max(room, _LEAST_SHOWN))
    return f"The conversation so far, to be summarised:\n{fenced(body)}"


def _message_text(message: Message) -> str:
    if isinstance(message, UserMessage):
        names = "".join(f"\n[attachment {each.name}, {each.media_type}]" for each in message.attachments)
        return f"{'Earlier summary' if message.kind == 'summary' else 'Person'}: {message.text}{names}"
    if isinstance(message, AssistantMessage):
        calls = "".join(f"\n[calls {call.name} {_args_text(call.args)}]" for call in message.calls)
        return f"Assistant: {message.text}{calls}"
    results = "\n".join(f"[{each.name}: {each.status}] {unfenced(each.text)}" for each in message.results)
    return f"Results: {results}{f' ({message.note})' if message.note else ''}"


def _cut(text: str, most: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    half = max(most // 2 - 2, 1)
    return f"{data[:half].decode('utf-8', 'ignore')} … {data[-half:].decode('utf-8', 'ignore')}"


def _args_text(args: Any) -> str:
    return args if isinstance(args, str) else compact_json(safe_json(args)[0])


_LINES: Final = 4
_LONGEST_LINE: Final = 160


def recap(history: Sequence[Message]) -> str:
    """Returns the number of turns, the person's last message, and the beginning of its answer; empty if nothing was
    said.
    """
    places = [at for at, each in enumerate(history) if isinstance(each, UserMessage) and each.kind == "input"]
    if not places:
        return ""
    last = history[places[-1]]
    assert isinstance(last, UserMessage)
    answers = [each for each in history[places[-1] :] if isinstance(each, AssistantMessage) and each.text.strip()]
    turns = f"{len(places)} turns" if len(places) > 1 else "1 turn"
    answer = _beginning(answers[-1].text) if answers else ["(there was no answer yet)"]
    return "\n".join((f"{turns} so far. The last one:", *(f"> {line}" for line in _beginning(last.text)), *answer))


def _beginning(text: str) -> list[str]:
    lines = text.strip().splitlines()
    shown = [shorten(line, _LONGEST_LINE) for line in lines[:_LINES]]
    return [*shown, "…"] if len(lines) > _LINES else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPoint:
    turn: int
    text: str
    at: int
    """The index of the message in the history."""


def rewind_points(
    messages: Sequence[Message], records: Iterable[Mapping[str, Any]], worker_id: str
) -> tuple[RewindPoint, ...]:
    """The inputs that the history of the root worker still has, oldest first, with turn and place. Without records, as
    in a session that keeps no journal, turns are counted from the history.

    Going back to one is `History.replace_all` with the messages before it, so a resumed session has the shorter history
    too, and a `rewound` event. Turns are counted as change sets count them: every message of the person in the session,
    also those that were rewound or compacted away.
    """
    inputs = [(at, message) for at, message in enumerate(messages) if _is_input(message)]
    turns = _recorded_turns(records, worker_id)
    if len(turns) != len(inputs):  # of no journal that Forge writes, or of none: the last ones are what they are
        last = max(turns, default=len(inputs))
        turns = list(range(last - len(inputs) + 1, last + 1))
    return tuple(
        RewindPoint(turn=turn, text=message.text, at=at)
        for turn, (at, message) in zip(turns, inputs, strict=True)
        if isinstance(message, UserMessage)
    )


def _recorded_turns(records: Iterable[Mapping[str, Any]], worker_id: str) -> list[int]:
    """The turn of each input in the history as the journal has it."""
    history: list[Message] = []
    turns: dict[int, int] = {}
    """id of the message object → its turn; the objects stay alive in `history`."""
    turn = 0
    for record in join_records(records):
        if record.get("workerId") != worker_id:
            continue
        kind = record.get("type")
        if kind == "event":
            data = record.get("data")
            message = data.get("message") if isinstance(data, Mapping) else None
            said = isinstance(message, Mapping) and message.get("role") == "user"
            turn += record.get("event") == "message" and said
        elif kind in HISTORY_RECORDS:
            before = list(history)
            history = apply_record(history, record)
            if kind == ADDED and _is_input(history[-1]):
                turns[id(history[-1])] = turn
            elif kind == REPLACED:
                turns = _carried_over(before, history, turns)
    return [turns.get(id(message), 0) for message in history if _is_input(message)]


def _carried_over(before: Sequence[Message], after: Sequence[Message], turns: Mapping[int, int]) -> dict[int, int]:
    """A resumed session writes the messages that stay anew: they are found by what they say, in their order."""
    earlier = [message for message in before if _is_input(message)]
    found: dict[int, int] = {}
    for message in after:
        if not _is_input(message):
            continue
        at = next((at for at, each in enumerate(earlier) if each is message or each == message), None)
        if at is not None:
            found[id(message)] = turns.get(id(earlier[at]), 0)
            del earlier[: at + 1]
    return found


def _is_input(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.kind == "input"
