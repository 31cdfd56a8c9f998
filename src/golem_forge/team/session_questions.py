"""The questions of a session that a runner has: each is a row of the store until somebody answers it.

    the worker asks → a row → somebody answers it → the worker's bus, once → the row is closed

The session parks on what is open here (`session_run.py`). An answer counts for the question that was asked: its id is
made of the call, its fingerprint and its diff. After the session has left this runner nothing is asked or answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.core.decisions import Risk, is_riskier
from golem_forge.core.text import shorten
from golem_forge.events.bus import EventBus
from golem_forge.events.open_questions import TIMEOUT
from golem_forge.events.serialization import Event
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.rows import (
    ANSWERED,
    AUTHOR_ONCE,
    EXPIRED,
    SOMEBODY_ELSE,
    Lease,
    QuestionRow,
    question_title,
)
from golem_forge.team.store import Store

RETRY_S: Final = 1.0
_log = logging.getLogger(__name__)


class TaskSet:
    """Tasks that nobody awaits; they end with their session."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()


class SessionQuestions:
    def __init__(self, store: Store, lease: Lease, bus: EventBus, changed: asyncio.Event) -> None:
        """Sets `changed` when a question was kept, answered or withdrawn."""
        self.runtime: WorkerRuntime | None = None
        """None before the worker is open and after it is closed."""
        self.open: dict[str, Mapping[str, Any]] = {}
        """Open approvals and forms by id."""
        self.unkept: set[str] = set()
        """Those that are not in the store yet: until they are, the session does not park, or nobody could answer."""
        self.tasks = TaskSet()
        self._store = store
        self._lease = lease
        self._bus = bus
        self._changed = changed
        self._answered_here: dict[str, tuple[str, str]] = {}
        """Person and door of an answer that did not go through the store."""
        self._is_closed = False
        bus.on("approvalRequired", self._asked)
        bus.on("approvalResolved", self._resolved)
        bus.on("formRequired", self._asked)
        bus.on("formResolved", self._resolved)

    @property
    def can_wait(self) -> bool:
        """Whether people can answer all that is open, without this process."""
        return bool(self.open) and not self.unkept

    @property
    def title(self) -> str:
        """What lists show that the session waits for."""
        first = next(iter(self.open.values()), {})
        more = f" and {len(self.open) - 1} more" if len(self.open) > 1 else ""
        return shorten(question_title(first), 100) + more

    def close(self) -> None:
        """Marks that the session has left this runner."""
        self._is_closed = True

    def deny_all(self, reason: str) -> None:
        """Denies all open questions because nobody answered in time."""
        assert self.runtime is not None
        for question_id in list(self.open):
            self.runtime.ui.withdraw_approval(question_id, approved=False, by=TIMEOUT, reason=reason)

    def _asked(self, event: Event) -> None:
        wire = dict(event.wire)
        shown_again = str(wire["requestId"]) in self.open
        self.open[str(wire["requestId"])] = wire
        if not shown_again:
            self.unkept.add(str(wire["requestId"]))
            self.tasks.start(self._ask(wire, "approval" if event.type == "approvalRequired" else "form"))

    async def _ask(self, wire: Mapping[str, Any], kind: str) -> None:
        question_id = str(wire["requestId"])
        runtime = self.runtime
        timeout = runtime.program.approval.timeout if runtime is not None else None
        expires_in = timeout.value if timeout else None
        level = runtime.program.approval.four_eyes if runtime is not None else None
        four_eyes = 0
        if kind == "approval" and level is not None:
            below = is_riskier(Risk(level.value), Risk(wire["risk"]))
            four_eyes = AUTHOR_ONCE if below else SOMEBODY_ELSE
        while question_id in self.open and not self._is_closed:
            try:
                row = await asyncio.to_thread(
                    self._store.questions.ask, self._lease, wire, kind=kind, expires_in=expires_in, four_eyes=four_eyes
                )
            except StoreUnavailable:
                await asyncio.sleep(RETRY_S)
                continue
            except TeamError as error:
                if error.code != "LEASE_LOST":  # that one is told elsewhere
                    _log.warning("session %s: its question could not be kept: %s", self._lease.id[:12], error.message)
                    if runtime is not None:  # nobody would see it
                        why = "The store could not keep this question."
                        runtime.ui.withdraw_approval(question_id, approved=False, by=TIMEOUT, reason=why)
                return
            self.unkept.discard(question_id)
            self.apply(row)
            break
        self._changed.set()

    def apply(self, row: QuestionRow) -> None:
        """An answer counts for the question that was asked: its id is made of the call, its fingerprint and diff."""
        runtime = self.runtime
        if runtime is None or row.id not in self.open or self._is_closed:
            return
        if row.kind == "approval" and row.state in (ANSWERED, EXPIRED):
            # The decision names the times of the inbox: this process may take the answer up hours later.
            runtime.ui.kept_times[row.id] = row.asked, row.answered or row.expires
        if row.state == EXPIRED:
            runtime.ui.withdraw_approval(row.id, approved=False, by=TIMEOUT, reason="No answer came in time.")
        elif row.state == ANSWERED:
            by = row.person or "a person"
            source = f"{by} ({row.door})" if row.door else by
            answer = {**row.answer, "requestId": row.id}
            self._bus.emit("approvalResponse" if row.kind == "approval" else "formResponse", answer, source=source)
            if row.id in self.open:  # it did not count: an edit that is not valid
                runtime.ui.kept_times.pop(row.id, None)
                self.tasks.start(self._ask_again(row.id))

    def answer_form(self, answer: Mapping[str, Any], by: str, door: str) -> str:
        """Takes an answer from a terminal or page of this machine, past the store, because it may hold a secret.
        Returns why it does not count; empty if it does.
        """
        question_id, runtime = str(answer.get("requestId")), self.runtime
        if runtime is None or question_id not in self.open or self._is_closed:
            return "this is no longer asked"
        problem = runtime.ui.objection("formResponse", answer)
        if problem is None or problem:
            return problem or "this is no longer asked"
        self._answered_here[question_id] = (by, door)
        self._bus.emit("formResponse", dict(answer), source=f"{by or 'a person'} ({door})")
        return ""

    def _resolved(self, event: Event) -> None:
        question_id = str(event.wire.get("requestId"))
        self.unkept.discard(question_id)
        if self.open.pop(question_id, None) is not None and not self._is_closed:
            self.tasks.start(self._withdraw(question_id))
        self._changed.set()

    async def _ask_again(self, question_id: str) -> None:
        if (wire := self.open.get(question_id)) is not None:
            with contextlib.suppress(TeamError):
                await asyncio.to_thread(self._store.questions.ask_again, self._lease, question_id, wire)
            self._changed.set()

    async def _withdraw(self, question_id: str) -> None:
        person, door = self._answered_here.pop(question_id, ("", ""))
        with contextlib.suppress(TeamError):
            await asyncio.to_thread(self._store.questions.withdraw, self._lease, question_id, person, door)
