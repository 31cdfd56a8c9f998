"""Reopening a session after an orderly end or a crash. Nothing is run, nothing is repeated.

A torn last line is cut off. Calls that were about to run get the outcome `interrupted`, `may have run before the
crash`; calls that never started get `interrupted`. Questions and cards that were open on the screen are closed the same
way. Refuses: SessionNotFound, SessionInUse, JournalDamaged (the chain is broken: what it says cannot be trusted).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.core.decisions import Status
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.envelope import Event
from golem_forge.events.journal import Journal
from golem_forge.events.journal_files import JournalDamaged, journal_path, open_locked, read_anchor, write_anchor
from golem_forge.events.journal_reader import Record, check_anchor, scan
from golem_forge.events.journal_records import CallRecord, CallRecords, RecordedState
from golem_forge.events.model import ApprovalResolved, EventData, FormResolved, InputResolved, to_wire
from golem_forge.events.serialization import iso_now

MAY_HAVE_RUN: Final = "may have run before the crash"
NEVER_RAN: Final = "interrupted before it started"

_QUESTIONS: Final[Mapping[str, Callable[[str], EventData]]] = {
    "approvalRequired": lambda id: ApprovalResolved(request_id=id, approved=False, by="interrupt", edited=False),
    "formRequired": lambda id: FormResolved(request_id=id, action="cancel"),
    "inputPrompt": lambda id: InputResolved(request_id=id),
}
"""By the event that opens a question: the one that closes it when nobody will answer."""
_CLOSING_EVENTS: Final = {
    "approvalResolved": "approvalRequired",
    "formResolved": "formRequired",
    "inputResolved": "inputPrompt",
}
"""By the event that closes a question: the one that opened it. Both name it by `requestId`."""


@dataclass(slots=True, kw_only=True)
class ReopenedJournal:
    journal: Journal
    interrupted: list[CallRecord]
    """Those that the crash had left open, in order."""


RecordHandler = Callable[[Record, CallRecord | None], object]
"""Is given each record of the past and, where it is about a call, what is known of that call by then."""


class _OpenState:
    """What the past left open. Holds no call that finished and no record that was answered."""

    def __init__(self, take: RecordHandler | None) -> None:
        self._take = take
        self.calls = CallRecords()
        self.events: dict[tuple[str, str], Record] = {}
        self.fault: Exception | None = None

    def add(self, record: Record) -> None:
        """A record that cannot be understood ends it. Whether somebody wrote it, or Forge is wrong, is known only when
        the whole chain was checked."""
        if self.fault is None:
            try:
                self._add(record)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                self.fault = error

    def _add(self, record: Record) -> None:
        call = self.calls.add(record)
        if call is not None and call.state is RecordedState.FINISHED:
            del self.calls.calls[call.id]
        if record.get("type") == "event":
            name, data = record["event"], record["data"]
            if name in _QUESTIONS:
                self.events[name, data.get("requestId")] = record
            elif name in _CLOSING_EVENTS:
                self.events.pop((_CLOSING_EVENTS[name], data.get("requestId")), None)
        if self._take is not None:
            self._take(record, call)


def reopen(
    home: Path,
    session_id: str,
    *,
    redact: Callable[[Any], Any] | None = None,
    sync: bool = False,
    take: RecordHandler | None = None,
) -> ReopenedJournal:
    """Reads the journal once and keeps none of it: whoever needs the past is given it through `take`. What `take` was
    given counts only if this returns: a chain that turns out to be broken raises at the end."""
    path = journal_path(home, session_id)
    fd = open_locked(path, session_id)
    try:
        past = _OpenState(take)
        anchor = read_anchor(path)
        found = scan(path, want=frozenset({anchor.lines} if anchor else ()), take=past.add)
        problems = found.problems or (check_anchor(found, anchor) if anchor else [])
        if problems:
            raise JournalDamaged(session_id, *problems[0])
        if not found.lines or found.session_id != session_id:
            raise JournalDamaged(session_id, 1, "is not the first line of this session")
        if past.fault is not None:
            raise past.fault
        if found.torn:
            os.ftruncate(fd, found.size)
        journal = Journal(path, fd, session_id, redact=redact, sync=sync, past=found)
        journal.append("resumed", {"tornBytes": found.torn} if found.torn else {})
        interrupted = list(past.calls.calls.values())
        for call in interrupted:
            call.error = MAY_HAVE_RUN if call.state is RecordedState.AMBIGUOUS else NEVER_RAN
            call.status = Status.INTERRUPTED.value
            call.finished_at = iso_now()
            journal.finish(call.id, call.status, error=call.error)
        for (name, key), record in past.events.items():
            closing = _QUESTIONS[name](key)
            worker_id = record.get("workerId", "")
            journal.record_event(Event(closing.TYPE, to_wire(closing), closing, 0, iso_now(), worker_id=worker_id))
        journal.flush()
        write_anchor(path, journal.anchor)
    except BaseException:
        os.close(fd)
        raise
    return ReopenedJournal(journal=journal, interrupted=interrupted)
