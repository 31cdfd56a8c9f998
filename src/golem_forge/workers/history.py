"""The history of one worker, kept in the journal message by message: a kill loses at most the running response.

`add`, `replace_all` and `clear` return when the record is on disk; they raise JournalError where it cannot be
written, and the history is then as before. `History.restore` reads it back. The journal redacts, so what comes back is
what was recorded, not always what was said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from golem_forge.events.journal import Journal
from golem_forge.events.journal_errors import JournalError
from golem_forge.events.long_records import joined
from golem_forge.workers.messages import Message, UserMessage, message_from_json, message_to_json

ADDED: Final = "history"
REPLACED: Final = "historySet"
CLEARED: Final = "historyCleared"
_KEPT: Final = "kept"
"""In a `historySet`: `{"kept": [3, 9]}` stands for messages 3 to 8 of the history before it."""
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
        self._record(ADDED, {"message": message_to_json(message)})
        self.messages.append(message)

    def replace_all(self, messages: Iterable[Message]) -> None:
        """After compaction: these instead of all before. Messages that stay are not written again."""
        messages = list(messages)
        before = self.messages if self._on_record else []
        written = [
            {_KEPT: [each.start, each.stop]} if isinstance(each, range) else message_to_json(each)
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
        """What the records of a journal say of this worker; from now on it is kept in `journal`."""
        messages: list[Message] = []
        for record in joined(records):
            if record.get("workerId") == worker_id:
                messages = taken_in(messages, record)
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


def taken_in(messages: list[Message], record: Mapping[str, Any]) -> list[Message]:
    """The history after one more record of its worker: the same list grown, or another one."""
    kind = record.get("type")
    if kind == ADDED:
        messages.append(_read(record.get("message")))
    elif kind == REPLACED:
        written, before = record.get("messages"), record.get("before")
        if not isinstance(written, list):
            return [_read(None)]
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
    if not (isinstance(written, dict) and _KEPT in written):
        return [_read(written)]
    span = written[_KEPT]
    if not (isinstance(span, list) and len(span) == 2 and all(isinstance(place, int) for place in span)):
        return [_read(None)]
    start, stop = span[0] + shift, span[1] + shift
    there = list(before[max(start, 0) : max(stop, 0)])
    return there if len(there) == stop - start else [_read(None), *there]


def _read(kept: Any) -> Message:
    """One that was too long to record, or came out of redaction as no message any more, leaves a mark in its place."""
    try:
        return message_from_json(kept)
    except (ValueError, AttributeError):
        return UserMessage(text=_LOST, kind="note")
