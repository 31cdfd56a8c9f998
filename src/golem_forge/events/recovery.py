"""Reopening a session after an orderly end or a crash. Nothing is run, nothing is repeated.

A torn last line is cut off. Calls that were about to run get the outcome `interrupted`, `may have run before the
crash`; calls that never started get `interrupted`. Questions and cards that were open on the screen are closed the same
way. Refuses: SessionNotFound, SessionInUse, JournalDamaged (the chain is broken: what it says cannot be trusted).

`read_past` and `settle_past` are the two halves, for a journal that is not a file of this machine. A session that goes
on by itself (`goes_on`) keeps what no effect of can have happened: calls of the root worker's model that never started
stay open, with their questions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from golem_forge.core.calls import Caller
from golem_forge.core.decisions import Status
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.journal import Journal
from golem_forge.events.journal_files import (
    Anchor,
    JournalDamaged,
    JournalFile,
    journal_path,
    open_locked,
    read_anchor,
    write_anchor,
)
from golem_forge.events.journal_reader import JournalScan, Record, check_anchor, scan
from golem_forge.events.journal_records import CallRecord, CallRecords, RecordedState
from golem_forge.events.model import ApprovalResolved, EventData, FormResolved, InputResolved, to_wire
from golem_forge.events.serialization import Event, iso_now

MAY_HAVE_RUN: Final = "may have run before the crash"
NEVER_RAN: Final = "interrupted before it started"
ARGS_NOT_KEPT: Final = "its arguments held a secret and were not kept; propose it again"
HIDDEN_ARGS: Final = "hiddenArgs"
"""Key in a history record: ids of calls whose arguments were redacted, so that the recorded call differs from the real
one.
"""

_QUESTIONS: Final[Mapping[str, Callable[[str], EventData]]] = {
    "approvalRequired": lambda id: ApprovalResolved(request_id=id, approved=False, by="interrupt", edited=False),
    "formRequired": lambda id: FormResolved(request_id=id, action="cancel"),
    "inputPrompt": lambda id: InputResolved(request_id=id),
}
"""Event that opens a question → the event that closes it without an answer."""
_CLOSING_EVENTS: Final = {
    "approvalResolved": "approvalRequired",
    "formResolved": "formRequired",
    "inputResolved": "inputPrompt",
}
"""Event that closes a question → the event that opened it. Both name it by `requestId`."""


@dataclass(slots=True, kw_only=True)
class ReopenedJournal:
    journal: Journal
    interrupted: list[CallRecord]
    """The calls that the crash left open, in order."""
    goes_on: bool = False
    """Whether what never started stays open: the session continues where it was, without a word of a person."""


RecordHandler = Callable[[Record, CallRecord | None], object]
"""Is given each record of the past and, where it is about a call, what is known of that call by then."""


class SessionJournals(Protocol):
    """Creates and finds the journals of sessions that are not kept in files of FORGE_HOME."""

    shared_rules: Any
    """The rules that all users of the journals share (policy's `SharedRules`); None if there are none."""
    directory_names: Mapping[str, str]
    """Names that fingerprints use for directories whose path differs between the session's machines."""
    confined: bool
    """Whether the model was named by somebody who may not name any file here: a script lies inside the program."""

    def create(self, session_id: str, redact: Callable[[Any], Any] | None) -> Journal: ...

    def reopen(self, session_id: str, redact: Callable[[Any], Any] | None, take: RecordHandler) -> ReopenedJournal: ...


class PastSession:
    """What a past session left open: unfinished calls and unanswered questions."""

    def __init__(self, take: RecordHandler | None) -> None:
        self._take = take
        self.found = JournalScan()
        self.calls = CallRecords()
        self.events: dict[tuple[str, str], Record] = {}
        self.hidden: set[str] = set()
        """Ids of calls whose arguments were not kept as they were."""
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
        elif HIDDEN_ARGS in record:
            self.hidden.update(record[HIDDEN_ARGS])
        if self._take is not None:
            self._take(record, call)


def reopen(
    home: Path,
    session_id: str,
    *,
    redact: Callable[[Any], Any] | None = None,
    sync: bool = False,
    take: RecordHandler | None = None,
    asks_again: bool = False,
) -> ReopenedJournal:
    """`asks_again`: a call that waited to be judged or answered is left open, to be made by whoever goes on. Reads the
    journal once and keeps none of it: whoever needs the past is given it through `take`. What `take` was
    given counts only if this returns: a chain that turns out to be broken raises at the end."""
    path = journal_path(home, session_id)
    fd = open_locked(path, session_id)
    try:
        past = read_past(path, session_id, read_anchor(path), take)
        found = past.found
        if found.torn:
            os.ftruncate(fd, found.size)
        writer = JournalFile(path, fd, size=found.size, sync=sync)
        journal = Journal(path, writer, session_id, redact=redact, past=found)
        reopened = settle_past(journal, past, goes_on=asks_again and _waits_for_answer(past))
        write_anchor(path, reopened.journal.anchor)
    except BaseException:
        os.close(fd)
        raise
    return reopened


def read_past(path: Path, session_id: str, anchor: Anchor | None, take: RecordHandler | None = None) -> PastSession:
    """Reads and checks every line. Raises JournalDamaged."""
    past = PastSession(take)
    found = past.found = scan(path, want=frozenset({anchor.lines} if anchor else ()), take=past.add)
    problems = found.problems or (check_anchor(found, anchor) if anchor else [])
    if problems:
        raise JournalDamaged(session_id, *problems[0])
    if not found.lines or found.session_id != session_id:
        raise JournalDamaged(session_id, 1, "is not the first line of this session")
    if past.fault is not None:
        raise past.fault
    return past


def settle_past(journal: Journal, past: PastSession, *, goes_on: bool = False) -> ReopenedJournal:
    """Records that the session goes on, and what became of what was open."""
    journal.append("resumed", {"tornBytes": past.found.torn} if past.found.torn else {})
    able = {call.id for call in past.calls.calls.values() if goes_on and _can_go_on(call)}
    kept = able - past.hidden
    interrupted = [call for call in past.calls.calls.values() if call.id not in kept]
    for call in interrupted:
        never_ran = ARGS_NOT_KEPT if call.id in able else NEVER_RAN
        call.error = MAY_HAVE_RUN if call.state is RecordedState.AMBIGUOUS else never_ran
        call.status = Status.INTERRUPTED.value
        call.finished_at = iso_now()
        journal.finish(call.id, call.status, error=call.error)
    for (name, key), record in past.events.items():
        if record["data"].get("toolCallId") in kept:
            continue
        closing = _QUESTIONS[name](key)
        worker_id = record.get("workerId", "")
        journal.record_event(Event(closing.TYPE, to_wire(closing), closing, 0, iso_now(), worker_id=worker_id))
    journal.flush()
    return ReopenedJournal(journal=journal, interrupted=interrupted, goes_on=goes_on)


def _waits_for_answer(past: PastSession) -> bool:
    """Whether a call was proposed and never started: it waited to be judged or answered, and can still be made. A call
    that may run at once has both on record together."""
    return any(_can_go_on(call) and call.id not in past.hidden for call in past.calls.calls.values())


def _can_go_on(call: CallRecord) -> bool:
    """A call that the root worker's own model asked for, and that never started. What another tool or a sub-worker
    called belongs to a call that was running."""
    asked_by_root = call.caller == Caller.LLM and not call.parent and "/" not in call.worker
    return asked_by_root and call.state is RecordedState.NEVER_STARTED
