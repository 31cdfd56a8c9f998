"""The history of one worker, kept in the journal message by message: a kill loses at most the running response.

`add`, `replace_all` and `clear` return when the record is on disk; they raise JournalError where it cannot be
written, and the history is then as before. `History.restore` reads it back. The journal redacts, so what comes back is
what was recorded, not always what was said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from golem_forge.events.journal import Journal
from golem_forge.events.long_records import joined
from golem_forge.workers.messages import Message, UserMessage, message_from_json, message_to_json

ADDED: Final = "history"
REPLACED: Final = "historySet"
CLEARED: Final = "historyCleared"
_LOST: Final = "[A message stood here that could not be read back.]"


class History:
    def __init__(self, journal: Journal | None, worker_id: str, messages: Iterable[Message] = ()) -> None:
        """`messages` are on record already, or need not be."""
        self.messages: list[Message] = list(messages)
        self.worker_id = worker_id
        self._journal = journal

    def add(self, message: Message) -> None:
        self._record(ADDED, {"message": message_to_json(message)})
        self.messages.append(message)

    def replace_all(self, messages: Iterable[Message]) -> None:
        """After compaction: these instead of all before."""
        messages = list(messages)
        self._record(REPLACED, {"messages": [message_to_json(message) for message in messages]})
        self.messages[:] = messages

    def clear(self) -> None:
        self._record(CLEARED, {})
        self.messages.clear()

    @classmethod
    def restore(cls, records: Iterable[Mapping[str, Any]], worker_id: str, journal: Journal | None = None) -> History:
        """What the records of a journal say of this worker; from now on it is kept in `journal`."""
        messages: list[Message] = []
        for record in joined(records):
            if record.get("workerId") != worker_id:
                continue
            kind = record.get("type")
            if kind == ADDED:
                messages.append(_read(record.get("message")))
            elif kind == REPLACED:
                kept = record.get("messages")
                messages = [_read(each) for each in kept] if isinstance(kept, list) else [_read(None)]
            elif kind == CLEARED:
                messages = []
        return cls(journal, worker_id, messages)

    def _record(self, type: str, fields: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append(type, {"workerId": self.worker_id, **fields})
            self._journal.flush()


def _read(kept: Any) -> Message:
    """One that was too long to record, or came out of redaction as no message any more, leaves a mark in its place."""
    try:
        return message_from_json(kept)
    except (ValueError, AttributeError):
        return UserMessage(text=_LOST, kind="note")
