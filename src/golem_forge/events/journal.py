"""The journal's writer: one append-only, hash-chained file per session, written before the effect; and reopening one.

A call leaves four records: `proposed`, `decided`, `started`, `finished`. The first two wait in memory until `start`
writes everything that waits with one `write()`; `finish` is written before the loop does anything else. Whoever is
about to wait (for a person, for a slow plan) calls `flush` first. `begin` is the first three as one record `begun`,
for a call that never waited. Written means: it survives `kill -9`; with `sync=True` also a power cut.

No record, no run: when a write fails, what waited is kept and tried again with the next write, and `start` raises
JournalError, having taken its own record back. Calls belong on one thread, the loop's; one from another thread waits
for the one under way, so the chain holds whoever calls.

`reopen` takes up a session again after an orderly end or a crash. Nothing is run, nothing is repeated. A torn last
line is cut off. Calls that were about to run get the outcome `interrupted`, `may have run before the crash`; calls that
never started get `interrupted`. Questions and cards that were open on the screen are closed the same way. Refuses:
SessionNotFound, SessionInUse, JournalDamaged (the chain is broken: what it says cannot be trusted). `read_past` and
`settle_past` are the two halves, for a journal that is not a file of this machine. A session that goes on by itself
(`goes_on`) keeps what no effect of can have happened: calls of the root worker's model that never started stay open,
with their questions.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from threading import RLock
from time import time
from typing import Any, Final, NamedTuple, Protocol

from golem_forge.core.calls import Caller
from golem_forge.core.decisions import Decision, Status
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.journal_files import (
    Anchor,
    JournalDamaged,
    JournalError,
    JournalFile,
    JournalWriter,
    create_locked,
    journal_path,
    open_locked,
    read_anchor,
    seal_records,
    write_anchor,
)
from golem_forge.events.journal_records import (
    CallRecord,
    CallRecords,
    JournalScan,
    Record,
    RecordedState,
    RecordEncoder,
    check_anchor,
    scan,
    split_record,
)
from golem_forge.events.model import ApprovalResolved, EventData, FormResolved, InputResolved, to_wire
from golem_forge.events.serialization import Event, encode_json, iso_now, iso_time, parse_raw_args
from golem_forge.storage.home import HOME_ADVICE, ForgeHome

JOURNAL_VERSION: Final = 1
_log = logging.getLogger(__name__)
_FLUSH_AT: Final = 64
"""Maximum records that wait for a flush; one more writes them all."""
_MAX_WAITING: Final = 1024
"""Maximum records that wait while the disk refuses writes; one more raises."""


class CallStart(NamedTuple):
    """The data of a call that is about to run."""

    id: str
    tool: str
    """The tool's canonical name."""
    args: Any
    """The validated arguments."""
    decision: Decision
    caller: str = "llm"
    worker: str = ""
    """The worker's path."""
    parent: str = ""
    requested: str = ""
    """The name that was asked for, where it is not the canonical one."""
    fingerprint: str = ""
    worker_id: str = ""
    """The worker's run, where events are known by that."""


class _HeldStart(NamedTuple):
    """The start of a call that touches nothing, while nothing else has happened."""

    call: str
    ts: str
    seq: int
    text: str


def _head(type: str, ts: str = "") -> str:
    """Returns the first members of a record; `ts` defaults to now."""
    return f'"ts":"{ts or iso_time(time())}","type":"{type}"'


class Journal:
    def __init__(
        self,
        path: Path,
        writer: JournalWriter,
        session_id: str,
        *,
        redact: Callable[[Any], Any] | None = None,
        past: JournalScan | None = None,
    ) -> None:
        """Use `Journal.create` or `reopen`. `path`: where its lines can be read; `past`: what they hold."""
        past = past or JournalScan()
        self.path = path
        self.session_id = session_id
        self.lines = past.lines
        self.hash = past.hash
        self.seq = past.seq
        """The number of the last recorded event."""
        self.closed = False
        self._writer = writer
        self.commits_later = writer.commits_later
        """Whether a start is kept only when `committed` has returned."""
        self.admits: asyncio.Event | None = None
        """Where it is set, no call starts before it is: the process is about to hand the session on."""
        self.archive: Any = None
        """An `OutputArchive`, where outputs are kept with the records."""
        self._redact = redact
        self._encoder = RecordEncoder(redact)
        self._waiting: list[str] = []
        self._lock = RLock()
        """Held by every method that keeps or writes; between two threads, half a step of one is no chain."""
        self._flush_due = False
        self._held_start: _HeldStart | None = None

    @classmethod
    def create(
        cls, home: Path, session_id: str = "", *, redact: Callable[[Any], Any] | None = None, sync: bool = False
    ) -> Journal:
        session_id = session_id or new_id()
        path = journal_path(home, session_id)
        try:
            fd = create_locked(path, session_id)
        except OSError as error:
            why = f"could not be created in {ForgeHome(home).shown(path.parent)}: {error.strerror}; {HOME_ADVICE}"
            raise JournalError(f"The journal {why}.") from error
        journal = cls(path, JournalFile(path, fd, size=0, sync=sync), session_id, redact=redact)
        journal.append("session", {"version": JOURNAL_VERSION, "sessionId": session_id, "created": iso_now()})
        try:
            journal.flush()
        except JournalError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        return journal

    # ---- the life of a call

    def propose(
        self,
        call_id: str,
        tool: str,
        args: Any,
        caller: str = "llm",
        worker: str = "",
        parent: str = "",
        worker_id: str = "",
    ) -> None:
        """A call arrived. `tool` is the name as requested, `args` as it arrived (a mapping, or raw JSON text).

        `worker` is the worker's path; `worker_id` its run, where events are known by that.
        """
        text = self._encoder
        record = (
            f'{_head("proposed")},"call":{text.name(call_id)},"tool":{text.name(tool)},'
            f'"args":{text.json(parse_raw_args(args))},"caller":{quoted(caller)},"worker":{quoted(worker)}'
            + (f',"parent":{text.name(parent)}' if parent else "")
            + (f',"workerId":{quoted(worker_id)}' if worker_id else "")
        )
        with self._lock:
            self._keep(record)

    def decide(self, call_id: str, decision: Decision) -> None:
        call, text = self._encoder.name(call_id), self._encoder.decision(decision)
        with self._lock:
            self._add(f'{_head("decided")},"call":{call},"decision":{text}')

    def start(self, call_id: str, tool: str, args: Any, fingerprint: str = "") -> int:
        """Records that `tool` (its canonical name) is about to run with these validated arguments; on disk when this
        returns.

        This record is the `toolStarted` event; returns its number.
        """
        text = self._encoder
        with self._lock:
            self._add(
                f'{_head("started")},"seq":{self.seq + 1},"call":{text.name(call_id)},"tool":{text.name(tool)},'
                f'"args":{text.json(args)},"fingerprint":{quoted(fingerprint)}'
            )
            return self._flush_start()

    def begin(self, start: CallStart) -> int:
        """`propose`, `decide` and `start` in one record, for a call that waited for nothing on its way to the run."""
        with self._lock:
            self._add(f'{_head("begun")},"seq":{self.seq + 1},{self._begun(start)}')
            return self._flush_start()

    def begin_without_effects(self, start: CallStart) -> int:
        """Like `begin`, for a call that touches nothing: no effect has to wait for its record.

        It is written before the loop does anything else, so a call that waits for anything is on disk by then. A call
        that waits for nothing is recorded with its end, as one record `done`.
        """
        with self._lock:
            if self._writer.refused:  # no record, no run
                return self.begin(start)
            text = self._begun(start)
            self._queue_held_start()
            self.seq += 1
            self._held_start = _HeldStart(start.id, iso_time(time()), self.seq, text)
            self._flush_soon()
            return self.seq

    def _begun(self, start: CallStart) -> str:
        text = self._encoder
        more = f',"workerId":{quoted(start.worker_id)}' if start.worker_id else ""
        if start.parent:
            more += f',"parent":{text.name(start.parent)}'
        if start.requested != start.tool and start.requested:
            more += f',"requested":{text.name(start.requested)}'
        if start.fingerprint:
            more += f',"fingerprint":{quoted(start.fingerprint)}'
        return (
            f'"call":{text.name(start.id)},"tool":{text.name(start.tool)},"args":{text.json(start.args)},'
            f'"caller":{quoted(start.caller)},"worker":{quoted(start.worker)},'
            f'"decision":{text.decision(start.decision)}{more}'
        )

    def finish(
        self,
        call_id: str,
        status: str,
        duration_ms: float = 0.0,
        error: str = "",
        output_handle: str = "",
        value: Any = None,
        more: Mapping[str, Any] | None = None,
    ) -> int:
        """Records the end of a call. This record is the `toolResult` event; returns its number.

        `value` is the semantic value, bounded and redacted; `more` holds the event's rarer members by wire name.
        """
        text = f'"status":{quoted(status)},"ms":{duration_ms:.3f}'
        if error:
            text += f',"error":{self._encoder.short(error)}'
        if output_handle:
            text += f',"outputHandle":{quoted(output_handle)}'
        if value is not None:
            text += f',"value":{self._encoder.written(value)}'
        if more:
            text += f',"more":{self._encoder.json(more)}'
        with self._lock:
            held = self._held_start
            if held is not None and held.call == call_id:
                self._held_start = None
                self.seq += 1
                self._waiting.append(f'{_head("done", held.ts)},"seq":{self.seq},{held.text},{text}')
            else:
                self._queue_held_start()
                self.seq += 1
                call = self._encoder.name(call_id)
                self._waiting.append(f'{_head("finished")},"seq":{self.seq},"call":{call},{text}')
            self._flush_soon()
            return self.seq

    # ---- everything else

    def record_event(self, event: Event) -> int:
        """Stores an event of the bus, which has redacted it, and returns its number."""
        worker = f',"workerId":{quoted(event.worker_id)}' if event.worker_id else ""
        data = encode_json(event.wire).decode()
        with self._lock:
            self.seq = seq = self.seq + 1
            self._add(f'{_head("event", event.ts)},"seq":{seq},"event":{quoted(event.type)}{worker},"data":{data}')
            self._flush()
            return seq

    def note(self, text: str, **facts: Any) -> None:
        """Something worth keeping that is neither a call nor an event."""
        self.append("note", {"text": text, **facts})

    def append(self, type: str, fields: Mapping[str, Any]) -> None:
        """Adds any other record, redacted; it is written with the next flush. A record that is too long for a line is
        split.
        """
        self.append_as_is(type, fields if self._redact is None else self._redact(fields))

    def append_as_is(self, type: str, fields: Mapping[str, Any]) -> None:
        """Like `append`, not redacted: for a host path that resuming needs and nobody is shown."""
        ts = f'"ts":"{iso_time(time())}"'
        with self._lock:
            for part in split_record(type, encode_json(fields)):
                self._keep(f"{ts},{part}")

    def redacts(self, value: Any) -> bool:
        """Whether this value would not come back as it is."""
        return self._redact is not None and bool(self._redact(value) != value)

    async def committed(self) -> None:
        """The start that was just written is kept, and its effect may begin. Raises JournalError: it may not."""
        await self._writer.committed()

    def flush(self) -> None:
        """Writes all waiting records to disk. Raises JournalError if the disk refuses."""
        if self._waiting or self._held_start:
            with self._lock:
                self._flush()

    def _add(self, record: str) -> None:
        self._queue_held_start()
        self._waiting.append(record)

    def _queue_held_start(self) -> None:
        """Something comes between the start of a call that touches nothing and its end: they are two records then."""
        held, self._held_start = self._held_start, None
        if held is not None:
            self._waiting.append(f'{_head("begun", held.ts)},"seq":{held.seq},{held.text}')

    def _flush(self) -> None:
        self._queue_held_start()
        waiting = self._waiting
        if not waiting:
            return
        if self.closed:
            raise JournalError("The journal of this session is closed.")
        data, lines, hash = seal_records(waiting, self.lines, self.hash)
        self._writer.write(data)
        self.lines = lines
        self.hash = hash
        waiting.clear()

    def close(self) -> None:
        """Ends the file with a `closed` record and lets the session go."""
        with self._lock:
            if self.closed:
                return
            self._add(_head("closed"))
            try:
                self._flush()
                self.closed = True
                self._writer.end(self.anchor)
            except OSError as error:
                raise JournalError(f"The journal could not be closed: {error.strerror}.") from error
            finally:
                self.release()

    def release(self) -> None:
        """Lets the file go without a `closed` record, as a crash would."""
        with self._lock:
            if not self.closed:
                self.closed = True
                self._writer.close()

    @property
    def anchor(self) -> Anchor:
        return Anchor(self.lines, self.hash)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- inside

    def _flush_soon(self) -> None:
        """Schedules a flush before anything else happens on the loop, or with the next start: the end of a call has no
        effect that must wait for its record.

        If the process is killed in between, the call counts as one that may have run.
        """
        loop = asyncio._get_running_loop()
        if loop is None or len(self._waiting) > _FLUSH_AT:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flush_due = False
        if not self.closed:
            try:
                self.flush()
            except JournalError as error:  # what waits is kept; the next start tries again and refuses
                _log.error("the journal could not be written: %s", error.message)

    def _flush_start(self) -> int:
        try:
            self._flush()
        except JournalError:
            self._waiting.pop()  # it did not start, so nothing may ever say it did
            raise
        self.seq += 1
        return self.seq

    def _keep(self, record: str) -> None:
        """Lets a record wait. Where many do, nobody flushed (so they are written now) or the disk refuses them.

        While it refuses, what waits is kept; only a record for which there is no more room is refused itself.
        """
        self._queue_held_start()
        waiting = self._waiting
        crowd = len(waiting)
        if crowd >= _FLUSH_AT and (not self._writer.refused or crowd % _FLUSH_AT == 0 or crowd >= _MAX_WAITING):
            try:
                self._flush()
            except JournalError as error:
                if self.closed:
                    raise
                if crowd >= _MAX_WAITING:
                    raise JournalError(
                        "The journal cannot be written and too many records wait already. Free disk space and retry."
                    ) from error
                _log.error("the journal could not be written: %s", error.message)
        waiting.append(record)


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
