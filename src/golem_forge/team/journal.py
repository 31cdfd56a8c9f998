"""The journal of a shared session: the same lines and the same chain as a file, kept in the store.

`CommitThread` writes for all sessions of a runner, on a connection of its own. Lines wait at most 50 ms; a start that
somebody awaits takes everything with it, in one commit. Nothing touches the database on the event loop.

`SessionWriter` is the `JournalWriter` of one session. It is *lost* for good when the store says that another runner has
the session: from then on nothing can be recorded, so nothing starts, and the runner lets the session go. While the
database is away the lines are kept and tried again; lines whose commit had no answer are compared with what is there.
Each line is also appended to a file of this machine, which everybody who reads journals by path can read; it goes when
the session leaves the runner. Where that file cannot be written (a full disk), the store still has every line, and
`on_full` is told: the session should go on elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.events.journal import (
    ARGS_NOT_KEPT,
    JOURNAL_VERSION,
    MAY_HAVE_RUN,
    NEVER_RAN,
    Journal,
    RecordHandler,
    ReopenedJournal,
    read_past,
    settle_past,
)
from golem_forge.events.journal_files import Anchor, JournalError, seal_records
from golem_forge.events.journal_records import CallRecord, JournalScan, join_records, read
from golem_forge.events.serialization import encode_json, iso_now
from golem_forge.policy.rules.files import SharedRules
from golem_forge.storage.home import make_private_dir
from golem_forge.team.database import TeamError, complaints
from golem_forge.team.rows import CONFINED, Append, Lease
from golem_forge.team.session_table import is_private
from golem_forge.team.store import Store

COMMIT_AFTER_S: Final = 0.05
RETRY_S: Final = (0.1, 0.2, 0.5, 1.0)
RENEWED_WITHIN_S: Final = 10.0
"""A call whose start was recorded after the database was away waits so long for the lease to be renewed too."""
PARKED: Final = "parked"
ARRIVED: Final = "arrived"
"""A message or an interrupt (`kind`) of a person was taken up: its number, who sent it and through which door."""
PORT_COMMAND: Final = "command"
"""The kind of an arrival: `/ports`, `/publish PORT` or `/unpublish PORT`, for the process that runs the session."""
_AFTER_ARRIVAL: Final = frozenset({"history", "proposed", "begun", PARKED, ARRIVED})
"""Record types that show that the message before them was handled. A runner that was killed earlier did nothing about
it.
"""
_QUESTIONS: Final = frozenset({"approvalRequired", "formRequired"})
"""Events of questions that are rows of the store."""
_CLOSINGS: Final = frozenset({"approvalResolved", "formResolved"})
_SETTLED: Final = frozenset({MAY_HAVE_RUN, NEVER_RAN, ARGS_NOT_KEPT})
"""What a journal that is reopened says of calls that were open."""
_log = logging.getLogger(__name__)


class CommitThread:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._writers: set[SessionWriter] = set()
        """Those that have something to write."""
        self._bell: SimpleQueue[bool] = SimpleQueue()
        """Whether somebody waits for it: True a start, False the first line after a rest. A queue of the interpreter: a
        Condition costs four times as much."""
        self._rests = False
        self._closing = False
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="forge-commits", daemon=True)
        self._thread.start()

    def wake(self, writer: SessionWriter, *, urgent: bool = False) -> None:
        """Shortly after a commit the thread looks by itself: only a start rings then."""
        with self._lock:
            self._writers.add(writer)
            rings, self._rests = urgent or self._rests, False
        if rings:
            self._bell.put(urgent)

    def close(self) -> None:
        """Writes what waits, if the database takes it, and ends."""
        with self._lock:
            self._closing = True
        self._bell.put(True)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        failures = 0
        while True:
            self._wait()
            with self._lock:
                writers, self._writers = self._writers, set()
            if not writers:
                if self._closing:
                    return
                continue
            try:
                self._commit(writers)
                failures = 0
            except Exception as error:  # the database is away; what waits is kept
                complaints.tell("records wait, the store cannot take them now", error)
                if self._closing:
                    for writer in writers:
                        writer.lose("the store could not be reached while this runner ended")
                    return
                time.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1
                for writer in writers:
                    self.wake(writer, urgent=True)

    def _wait(self) -> None:
        """Waits until a start waits for its commit, or lines have waited long enough."""
        while not self._closing:
            with contextlib.suppress(Empty):
                if self._bell.get(timeout=COMMIT_AFTER_S):
                    return
                continue
            with self._lock:
                if self._writers:
                    return
                self._rests = True
            if self._bell.get():
                return

    def _commit(self, writers: Iterable[SessionWriter]) -> None:
        batch = {writer: append for writer in writers if (append := writer.next_append()) is not None}
        if not batch:
            return
        refused = self.store.append(list(batch.values()))
        self.commits += 1
        for writer, append in batch.items():
            if append.session in refused:
                writer.lose(refused[append.session])
            else:
                writer.kept(append)


class SessionWriter:
    commits_later = True

    def __init__(
        self,
        thread: CommitThread,
        lease: Lease,
        copy: Path,
        deadline: Callable[[], float],
        on_lost: Callable[[str], None],
        kept_bytes: int = 0,
    ) -> None:
        """`copy`: the file of this machine; `deadline`: until when (monotonic) the runner may act for this session;
        `kept_bytes`: of the outputs that the session has in the store."""
        self.refused = False
        self.lost = ""
        """Why nothing can be recorded any more."""
        self._thread = thread
        self._lease = lease
        self._copy = copy
        self._deadline = deadline
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._first = 0
        """The number of the first line that waits."""
        self._outputs: list[tuple[str, str, int, bytes]] = []
        self._rules: list[tuple[Mapping[str, Any], str, str]] = []
        self.on_rules: Callable[[int], None] | None = None
        """Told how many of the rules that wait, the oldest first, were kept or never will be."""
        self.kept_bytes = kept_bytes
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.started = False
        """What is recorded before the first turn is written with it: nothing has happened yet."""
        self._silent = False
        self._file = copy.open("ab", buffering=0)
        self.on_full: Callable[[OSError], None] | None = None
        self._is_full = False

    def start_after(self, lines: int) -> None:
        self._first = lines + 1

    def write(self, data: bytes) -> None:
        if self._silent:
            return
        if self.lost:
            raise JournalError(f"Nothing can be recorded: {self.lost}. The call was not run.")
        with self._lock:
            self._lines += [line + b"\n" for line in data.split(b"\n")[:-1]]
        if not self._is_full:
            try:
                self._write_copy(data)
            except OSError as error:
                self._is_full = True
                if self.on_full is not None:
                    self.on_full(error)
        if self.started:
            self._thread.wake(self)

    def _write_copy(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def add_output(self, handle: str, worker: str, pieces: Iterable[bytes]) -> None:
        """Queues an output for the next commit, so before the result that names it."""
        numbered = [(handle, worker, number, piece) for number, piece in enumerate(pieces)]
        with self._lock:
            self._outputs += numbered

    def add_rule(self, rule: Mapping[str, Any], author: str, project: str) -> None:
        """Queues a rule for all runners; it is committed at the latest with the decision that names it."""
        with self._lock:
            self._rules.append((rule, author, project))

    def find_output(self, handle: str) -> tuple[str, Iterable[bytes]] | None:
        return self._thread.store.output(self._lease.id, handle)

    async def committed(self) -> None:
        """Raises JournalError where the session is another's, and ForgeError where this runner's time is up."""
        if self._silent:
            raise JournalError("The session has left this runner; the call was not run.")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            last = self._first + len(self._lines) - 1
            if self.lost:
                raise JournalError(f"Nothing can be recorded: {self.lost}. The call was not run.")
            self._waiters.append((last, waiter))
        self._thread.wake(self, urgent=True)
        await waiter
        given_up = time.monotonic() + RENEWED_WITHIN_S
        while time.monotonic() >= (until := self._deadline()):
            if self.lost or self._silent or not until or time.monotonic() >= given_up:
                text = "This runner could not renew its lease in time; the call was not run."
                raise ForgeError(text, status=Status.INTERRUPTED, code="LEASE")
            await asyncio.sleep(0.05)

    def flush(self, timeout: float = 10.0) -> bool:
        """Waits in a thread until all queued lines are committed. Returns True if they are."""
        done = threading.Event()
        with self._lock:
            if not self._lines and not self._outputs:
                return not self.lost
            last = self._first + len(self._lines) - 1
            self._waiters.append((last, _EventWaiter(done)))  # type: ignore[arg-type]
        self._thread.wake(self, urgent=True)
        return done.wait(timeout) and not self.lost

    # ---- for the thread

    def next_append(self) -> Append | None:
        with self._lock:
            if self.lost or not (self._lines or self._waiters):
                return None
            return Append(
                session=self._lease.id,
                epoch=self._lease.epoch,
                first=self._first,
                lines=tuple(self._lines),
                outputs=tuple(self._outputs),
                rules=tuple(self._rules),
            )

    def kept(self, append: Append) -> None:
        with self._lock:
            del self._lines[: len(append.lines)]
            del self._outputs[: len(append.outputs)]
            self._forget_rules(len(append.rules))
            self._first = append.first + len(append.lines)
            done = [waiter for last, waiter in self._waiters if last < self._first]
            self._waiters = [(last, waiter) for last, waiter in self._waiters if last >= self._first]
        for waiter in done:
            _settle(waiter, None)

    def _forget_rules(self, count: int) -> None:
        del self._rules[:count]
        if count and self.on_rules is not None:
            self.on_rules(count)

    def lose(self, why: str) -> None:
        with self._lock:
            if self.lost:
                return
            self.lost, self.refused = why, True
            waiters, self._waiters = self._waiters, []
            self._lines.clear()
            self._forget_rules(len(self._rules))
        for _, waiter in waiters:
            _settle(waiter, JournalError(f"Nothing can be recorded: {why}. The call was not run."))
        self._on_lost(why)

    def go_silent(self) -> None:
        """The session leaves this runner: what is still said about it here is for nobody."""
        self._silent = True
        with self._lock:
            self._lines.clear()
            self._forget_rules(len(self._rules))
            waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            _settle(waiter, JournalError("The session has left this runner; the call was not run."))

    def end(self, anchor: Anchor) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def remove_copy(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
            self._copy.unlink(missing_ok=True)


class _EventWaiter:
    def __init__(self, event: threading.Event) -> None:
        self.event = event


def _settle(waiter: asyncio.Future[None] | _EventWaiter, error: Exception | None) -> None:
    if isinstance(waiter, _EventWaiter):
        waiter.event.set()
        return

    def settle() -> None:
        if waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)

    with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits
        waiter.get_loop().call_soon_threadsafe(settle)


def check_line(session_id: str, number: int, expected: int, line: bytes) -> None:
    """Raises TeamError for a line out of order, and for a journal that a newer version of Forge wrote."""
    if number != expected:
        raise TeamError(f"line {expected} of the journal of session {session_id[:12]} is missing")
    if number == 1:
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            version = int(json.loads(line).get("version", 1))
            if version > JOURNAL_VERSION:
                raise TeamError(
                    f"Session {session_id[:12]} was recorded by a newer version of Forge (journal version {version}, "
                    f"this Forge knows {JOURNAL_VERSION}). Upgrade Forge here.",
                    "STORE_VERSION",
                )


class StoredJournal(Journal):
    """A journal that can be parked: the session then waits in the store and in no process."""

    writer: SessionWriter

    def parked_line(self, fields: dict[str, Any]) -> tuple[bytes, int]:
        """The sealed `parked` record and its number, not written yet."""
        body = encode_json(fields)[1:-1].decode()
        record = f'"ts":"{iso_now()}","type":"{PARKED}"' + (f",{body}" if body else "")
        with self._lock:
            self._flush()
            data, number, _ = seal_records([record], self.lines, self.hash)
        return data, number

    def leave(self) -> None:
        """Another process goes on with the session, or it waits in the store: nothing more is recorded from here."""
        with self._lock:
            self._waiting.clear()
            self._held_start = None
            self.writer.go_silent()


class StoredJournals:
    """`SessionJournals` of one leased session. Blocks; a runner calls it in a thread or before anything runs."""

    def __init__(
        self,
        store: Store,
        thread: CommitThread,
        lease: Lease,
        folder: Path,
        deadline: Callable[[], float],
        on_lost: Callable[[str], None],
    ) -> None:
        self._store = store
        self._lease = lease
        make_private_dir(folder)
        self._copy = folder / f"{lease.id}.jsonl"
        self._copy.unlink(missing_ok=True)
        kept = store.journals.output_bytes(lease.id) if lease.session.epoch > 1 else 0
        self._writer_of: Callable[[], SessionWriter] = lambda: SessionWriter(
            thread, lease, self._copy, deadline, on_lost, kept
        )
        self.journal: StoredJournal | None = None
        self.on_full: Callable[[OSError], None] | None = None
        self.shared_rules: SharedRules | None = None
        self.directory_names: Mapping[str, str] = {}
        self.confined = bool(lease.facts.get(CONFINED) and lease.facts.get("model"))
        self.last_arrival = 0
        """The number of the last message that the journal says was taken up."""
        self.last_interrupt = 0
        self.last_port_command = 0
        """The numbers of the last ones that were taken up: neither is done twice."""
        self.last_command = 0
        """The highest number that a command in the background had."""
        self.may_have_run: list[CallRecord] = []
        """Calls that the runner before this one had begun, and of whose end it recorded nothing."""
        self._asked: set[str] = set()
        """Ids of all questions on record."""
        self._closed: set[str] = set()
        """Ids of those that ended with a runner, without an answer."""
        self._go_on: set[str] = set()
        """Ids of calls that are made now: each asks the same question, by its id, and finds the answer."""
        self._never_ran: set[str] = set()
        """Ids of calls that ended with a runner before they started."""
        self.has_run = False
        """Whether a worker ran in it before."""
        self._lines = self._download()

    def _download(self) -> int:
        """Fetches what the store has, into the copy; gives the number of lines. There is none before the first lease:
        a line needs one."""
        count = 0
        with self._copy.open("wb") as file:
            while self._lease.epoch > 1 and (page := self._store.lines(self._lease.id, count)):
                for number, line in page:
                    check_line(self._lease.id, number, count + 1, line)
                    file.write(line)
                    count = number
                    self.has_run = self.has_run or is_private(line)
        return count

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Returns the records from before this runner."""
        return join_records(read(self._copy))

    def create(self, session_id: str, redact: Callable[[Any], Any] | None) -> Journal:
        if self._lines:  # another runner made it, and did not come to its first turn
            return self.reopen(session_id, redact, lambda record, call: None).journal
        journal = self._journal(session_id, redact, None)
        journal.append("session", {"version": JOURNAL_VERSION, "sessionId": session_id, "created": iso_now()})
        journal.flush()
        return journal

    def reopen(self, session_id: str, redact: Callable[[Any], Any] | None, take: RecordHandler) -> ReopenedJournal:
        taken_up = 0
        call_of: dict[str, str] = {}
        settled: set[str] = set()

        def take_record(record: dict[str, Any], call: Any) -> None:
            nonlocal taken_up
            if record.get("type") in _AFTER_ARRIVAL:
                self.last_arrival = max(self.last_arrival, taken_up)
            if record.get("type") == ARRIVED and record.get("kind") == "interrupt":
                self.last_interrupt = max(self.last_interrupt, int(record.get("number", 0)))
            elif record.get("type") == ARRIVED and record.get("kind") == PORT_COMMAND:
                self.last_port_command = max(self.last_port_command, int(record.get("number", 0)))
            elif record.get("type") == ARRIVED:
                taken_up = int(record.get("number", 0))
            elif isinstance(value := record.get("value"), Mapping) and value.get("kind") == "exec.result":
                self.last_command = max(self.last_command, int(value.get("session_id") or 0))
            else:
                self._note_question(record, call_of, settled)
            take(record, call)

        past = read_past(self._copy, session_id, None, take_record)
        reopened = settle_past(self._journal(session_id, redact, past.found), past, goes_on=True)
        self.may_have_run = [call for call in reopened.interrupted if call.error == MAY_HAVE_RUN]
        over = {None, *(call.id for call in reopened.interrupted)}
        asked = ((str(id), record["data"]) for (_, id), record in past.events.items())
        self._closed |= {id for id, data in asked if data.get("toolCallId") in over}
        self._go_on = past.calls.calls.keys() - over
        self._never_ran |= {call.id for call in reopened.interrupted if call.error != MAY_HAVE_RUN}
        return reopened

    def _note_question(self, record: Mapping[str, Any], call_of: dict[str, str], settled: set[str]) -> None:
        """Collects the questions on record, and those that ended with their runner. The runner that wrote so may have
        been killed before it told of the answers that came to nothing."""
        if record.get("type") == "finished" and record.get("error") in _SETTLED:
            settled.add(str(record["call"]))
            if record["error"] != MAY_HAVE_RUN:
                self._never_ran.add(str(record["call"]))
        if record.get("type") != "event":
            return
        event, question = record["event"], str(record["data"].get("requestId"))
        if event in _QUESTIONS:
            self._asked.add(question)
            call_of[question] = str(record["data"].get("toolCallId"))
        elif event in _CLOSINGS and call_of.get(question) in settled:
            self._closed.add(question)

    def is_unused(self, question_id: str, call_id: str) -> bool:
        """Whether an answer to this question came to nothing: its runner did not take it up, did not start the call, or
        did not come to record that it asks."""
        if call_id in self._go_on:
            return False
        return question_id not in self._asked or question_id in self._closed or call_id in self._never_ran

    def _journal(self, session_id: str, redact: Callable[[Any], Any] | None, past: JournalScan | None) -> StoredJournal:
        writer = self._writer_of()
        writer.on_full = self.on_full
        writer.start_after(past.lines if past else 0)
        journal = StoredJournal(self._copy, writer, session_id, redact=redact, past=past)
        journal.writer = journal.archive = writer
        self.journal = journal
        return journal

    def remove(self) -> None:
        """Removes the local copy after the session has left this runner."""
        if self.journal is not None:
            self.journal.writer.remove_copy()
        self._copy.unlink(missing_ok=True)
