"""SessionRun: one session in a runner, from the claim until it waits or ends.

    claim → read the journal → open the worker → go on with the open turn → take messages → finish, or park

The worker runs as `forge run` would run it, with the runner account's rules, trust, keys and tools. Its questions are
rows of the store. When all that is open are calls of the root worker that wait for an answer, or when the next message
is awaited, the session parks: one transaction writes `waiting` and gives the lease back, unless something arrived; then
everything of it in this process ends, and nothing of that end is recorded. What cannot park keeps its slot (`held`);
its questions are denied after `hold`.

A runner that lost its lease lets go at once. Whoever has the session now reads from the journal what was begun. One
whose disk is full gives its sessions back to the queue, after the calls that run. So does one that was frozen while a
session started, if the start failed: the watchdog has ended what it ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.model.interface import AssistantMessage, UserMessage
from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.slash.handler import COMMAND_CODE
from golem_forge.agent.slash.session_commands import is_port_command
from golem_forge.agent.trust import NotTrusted
from golem_forge.config.run_block import ApprovalMode
from golem_forge.config.sandbox_block import PROJECT_SECRETS
from golem_forge.core.decisions import Risk
from golem_forge.core.errors import ConfigError, ForgeError, error_name
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.signals import InterruptSignal
from golem_forge.core.text import one_line, shorten, shorten_prose
from golem_forge.events.bus import EventBus
from golem_forge.events.serialization import Event
from golem_forge.team.accounts import SessionRules, StoreRules
from golem_forge.team.database import StoreUnavailable, TeamError, complaints
from golem_forge.team.journal import ARRIVED, PORT_COMMAND, CommitThread, StoredJournals
from golem_forge.team.quotas import SessionSpending
from golem_forge.team.rows import (
    CHECKPOINT,
    FAILED,
    FINISHED,
    NEXT_MESSAGE,
    STOPPED,
    Append,
    Arrival,
    Lease,
    QuestionRow,
    SessionEnding,
)
from golem_forge.team.session_questions import RETRY_S, SessionQuestions, TaskSet
from golem_forge.team.session_workspace import LOST, WORKSPACE, SessionWorkspace, checkpoint_notice, name_call
from golem_forge.team.store import Store
from golem_forge.toolsets.exec.sessions import ExecSessions

if TYPE_CHECKING:
    from golem_forge.team.runner import LeaseKeeper

UI_NAME: Final = "store"
LOOK_S: Final = 1.0
SETTLE_S: Final = 0.3
"""Seconds without a change before a session parks, so that a quick answer still finds it here."""
FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT)
CALLS_END_S: Final = 60.0
"""Seconds that running calls may go on when the disk is full."""
_NOT_FOUR_EYES: Final = (
    "approval.four_eyes asks for a second person's answer, and approve_all would answer everything beforehand. Start "
    "the session with another --approval."
)
MAY_HAVE_RUN_NOTICE: Final = "A runner ended in the middle of these calls, so they may have run:"
"""The start of a notice line that stays, like LOST."""
TURN_FAILED: Final = "The last turn failed:"
"""The same, until a turn ends well."""
_MOST_NAMED: Final = 20
_LOGGED: Final = 500
ANSWER_DROPPED: Final = "ANSWER_DROPPED"
LEFT: Final = "left"
"""The reason of the signal that ends a session's work here without a word in its journal."""
STOPPED_BY_PERSON: Final = "stopped"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerParts:
    """What the sessions of one runner share."""

    store: Store
    commits: CommitThread
    leases: LeaseKeeper
    home: Path
    copies: Path
    """The folder of journal copies while their sessions run here."""
    hold_s: float
    rules: StoreRules | None = None
    """The rules of the store; None means the account's own only."""
    on_delta: Callable[[str, Event], None] | None = None
    """Given what is not recorded (text as it comes), for UIs that are attached elsewhere."""


class Phase(Enum):
    """The state of a session in its runner."""

    OPENING = "opening"
    """Its journal is read and its worker starts. What arrives waits until the journal said what was."""
    IDLE = "idle"
    """No turn runs."""
    TURN = "turn"
    """A turn runs; the session parks when all of it waits for people."""
    HELD = "held"
    """A turn waits for people and cannot park: the session keeps its slot."""
    ENDING = "ending"
    """Its end is being recorded: it is not handed over any more."""
    LEFT = "left"
    """It is parked, given back or lost: nothing more of it is recorded here, while this process cleans up."""


_NEXT: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.OPENING: frozenset((Phase.IDLE, Phase.ENDING, Phase.LEFT)),
    Phase.IDLE: frozenset((Phase.TURN, Phase.ENDING, Phase.LEFT)),
    Phase.TURN: frozenset((Phase.IDLE, Phase.HELD, Phase.ENDING, Phase.LEFT)),
    Phase.HELD: frozenset((Phase.TURN, Phase.ENDING, Phase.LEFT)),
    Phase.ENDING: frozenset((Phase.LEFT,)),
    Phase.LEFT: frozenset(),
}
"""A turn ends without `IDLE` only where the runner itself failed."""


class SessionRun:
    def __init__(self, parts: RunnerParts, lease: Lease) -> None:
        self.lease = lease
        self._began = time.monotonic()
        self.phase = Phase.OPENING
        self.lost = ""
        """Why the session is not this runner's any more. The threads of leases and commits set it; then the loop
        leaves."""
        self._settled = False
        """Whether the store has taken its end, its parking or its return: who finds no lease here from then on has not
        lost one."""
        self.is_full = False
        """Whether it was given back because the disk here is full."""
        self._parts = parts
        self._store = parts.store
        self._loop = asyncio.get_running_loop()
        self._signal = InterruptSignal()
        self._runtime: WorkerRuntime | None = None
        self._journals: StoredJournals | None = None
        self._rules: SessionRules | None = None
        self._bus = EventBus(lease.id)
        self._seen = 0
        """The number of the last arrival that was looked at."""
        self._messages: list[Arrival] = []
        self._changed = asyncio.Event()
        self.questions = SessionQuestions(parts.store, lease, self._bus, self._changed)
        self._hold_timer: asyncio.TimerHandle | None = None
        self._giving_back: asyncio.Future[None] | None = None
        """It is not cancelled with the rest: the session would wait until its lease is over."""
        self._stop_asked = False
        self._interrupt_due = 0
        """The number of the last interrupt that found no turn: it ends the turns that were asked for before it."""
        self._workspace: SessionWorkspace | None = None
        self._checkpoint_seq = -1
        """The number of the last event when the origin had all files; what came later may have changed some."""
        notices = dict.fromkeys((MAY_HAVE_RUN_NOTICE, LOST, TURN_FAILED), "")
        notice = lease.session.notice
        for begins in notices:
            if notice.startswith(begins):
                notices[begins], _, notice = notice.partition("\n")
        self._kept_notices: dict[str, str] = notices
        """By how they begin: what lists say of the session for as long as there is one."""
        self._checkpoint_notice = notice
        self._looking = asyncio.Lock()
        self._tasks = TaskSet()

    @property
    def id(self) -> str:
        return self.lease.id

    def _enter(self, phase: Phase) -> None:
        if phase is not self.phase:
            assert phase in _NEXT[self.phase], f"{self.phase} → {phase}"
            self.phase = phase

    def _is_gone(self) -> bool:
        """Whether nothing more may be recorded here. Asked again after every wait."""
        return self.phase is Phase.LEFT or bool(self.lost)

    # ---- from start to end

    async def run(self) -> None:
        """Returns when the session has left this runner; never raises for what happens in it."""
        try:
            await self._run()
        except TeamError as error:
            if error.code != "LEASE_LOST":
                _log.warning("session %s: %s", self.id[:12], error.message)
            self.lost = self.lost or error.message
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if _is_disk_full(error):
                await self._give_away(error)
                return
            _log.exception("session %s could not go on", self.id[:12])
            if not self._is_gone():
                await self._end(SessionEnding(state=FAILED, error=f"the runner failed ({error_name(error)})"))
        finally:
            await self._close()
            if self._settled:
                self.lost = ""

    async def _run(self) -> None:
        parts, lease = self._parts, self.lease
        facts = lease.facts
        directory = str(facts.get("directory") or "")
        journals, is_here = await asyncio.to_thread(self._open_journals, directory)
        if directory and not is_here:
            await self._end(SessionEnding(state=FAILED, error=_not_here(directory, lease.session.label)))
            return
        overrides = [str(each) for each in facts.get("overrides") or ()]
        if facts.get("workspace"):
            try:
                self._workspace = SessionWorkspace(facts["workspace"], parts.home, lease.id)
                overrides.append(await asyncio.to_thread(self._workspace.open, journals.records()))
                journals.directory_names = self._workspace.directory_names
            except (ConfigError, ForgeError) as error:
                await self._end(SessionEnding(state=FAILED, error=_without_path(str(error), directory)))
                return
        await self._open_secrets()
        runtime = WorkerRuntime(
            facts.get("worker") or None,
            directory=directory or None,
            model=facts.get("model") or None,
            approval_mode=facts.get("approval") or "interactive",
            overrides=tuple(overrides),
            bus=self._bus,
            interrupt_signal=self._signal,
            home=parts.home,
            resume=lease.id if journals.has_run else "",
            journal=journals,
            default_mode=lease.session.mode or "single",  # type: ignore[arg-type]
        )
        detach = runtime.ui.attach(UI_NAME, may_trust=False)
        self._bus.on("*", self._pass_on)
        try:
            try:
                await runtime.initialize()
            except (ConfigError, NotTrusted, ForgeError) as error:
                if _is_disk_full(error):
                    raise
                if parts.leases.was_silent(self._began) and not self._stop_asked:  # its module's process was ended
                    _log.warning("session %s is given back: this runner was frozen while it started", self.id[:12])
                    await self.hand_over()
                    return
                state, why = (STOPPED, "") if self._stop_asked else (FAILED, _without_path(str(error), directory))
                await self._end(SessionEnding(state=state, error=why))
                return
            if runtime.program.approval.four_eyes is not None and runtime.controller.mode is ApprovalMode.APPROVE_ALL:
                await self._end(SessionEnding(state=FAILED, error=_NOT_FOUR_EYES))
                return
            title = lease.session.title
            if (redacted := runtime.tree.redactor.redact_secrets(title)) != title:
                await asyncio.to_thread(self._store.leases.set_title, lease, redacted)
            if (level := runtime.program.approval.four_eyes) is not None:
                runtime.tree.four_eyes = Risk(level.value)
                if self._rules is not None:
                    self._rules.authors = await asyncio.to_thread(self._store.questions.authors, lease.id)
            await asyncio.to_thread(self._store.quotas.release, lease.session)
            runtime.tree.spending = SessionSpending(self._store.quotas, lease.session)
            self._runtime = self.questions.runtime = runtime
            if self._is_gone():  # the runner was told to end while the worker started
                self._leave()
                return
            self._continue_script(runtime)
            if journals.last_command:
                runtime.tree.parts.get(ExecSessions).continue_after(journals.last_command)
            await self._work(runtime, journals)
        finally:
            detach()

    async def _open_secrets(self) -> None:
        """Decrypts the secrets of the session's project for its tasks and those that they start."""
        program, home = self.lease.session.program, self._parts.home
        try:
            opened, closed = await asyncio.to_thread(self._store.secrets.opened, program, home)
        except (OSError, TeamError) as error:
            if isinstance(error, StoreUnavailable):
                raise
            opened, closed = {}, [error.message if isinstance(error, TeamError) else f"state/runner.key: {error}"]
        if closed:
            said = "session %s: secrets of its project do not open with state/runner.key here: %s"
            _log.warning(said, self.id[:12], ", ".join(map(one_line, closed)))
        PROJECT_SECRETS.set(opened)

    def _open_journals(self, directory: str) -> tuple[StoredJournals, bool]:
        """Opens the journals, and tells whether this machine has the program's directory; runs in a thread."""
        parts, lease = self._parts, self.lease
        self._journals = journals = StoredJournals(
            self._store,
            parts.commits,
            lease,
            parts.copies,
            lambda: parts.leases.deadline(lease.id),
            self._lost_in_thread,
        )
        journals.on_full = self._full_in_thread
        if parts.rules is not None:
            journals.shared_rules = self._rules = SessionRules(parts.rules, journals, lease.session.program)
            parts.rules.refresh()
        return journals, os.path.isdir(directory)

    async def _work(self, runtime: WorkerRuntime, journals: StoredJournals) -> None:
        self._seen = journals.last_arrival
        self._enter(Phase.IDLE)
        assert journals.journal is not None
        journals.journal.writer.started = True
        if self.lease.epoch > 1:
            questions = self._store.questions
            await asyncio.to_thread(questions.withdraw_others, self.lease, _open_calls(runtime))
            if unused := await asyncio.to_thread(questions.unused_answers, self.id, journals.is_unused):
                await self._tell_dropped(runtime, unused)
                journals.journal.flush()
                await asyncio.to_thread(journals.journal.writer.flush)  # on record before nobody would find them again
                await asyncio.to_thread(questions.drop_answers, self.lease, [row.id for row in unused])
        if journals.may_have_run:
            before = self._kept_notices[MAY_HAVE_RUN_NOTICE].removeprefix(MAY_HAVE_RUN_NOTICE).strip(" .")
            calls = [before] if before else []
            calls += [name_call(call.tool, call.args) for call in journals.may_have_run[:_MOST_NAMED]]
            said = shorten_prose(f"{MAY_HAVE_RUN_NOTICE} {', '.join(calls)}.", _LOGGED)
            self._kept_notices[MAY_HAVE_RUN_NOTICE] = said
            await self._tell_checkpoint(self._checkpoint_notice, again=True)
        while not await self.look():
            if self._is_gone():
                return
            await asyncio.sleep(RETRY_S)
        if self._interrupt_due and runtime.resumed is not None and runtime.resumed.open_turn is not None:
            self._signal.interrupt("interrupted")
        if self._workspace is not None and self._workspace.new_clone:
            journals.journal.append(WORKSPACE, {"clone": self._workspace.new_clone})
        told = self._tell_lost(runtime)
        result = await self._attend(runtime.go_on())
        if not told and not self._is_gone():
            result = await self._attend(runtime.turn(self._lost_note, said=""))
        while not self._is_gone():
            if self._stop_asked or (result is not None and result.status is RunStatus.TERMINATED):
                await self._end_with(runtime, result, STOPPED)
                return
            if self._messages:
                message = self._messages.pop(0)
                assert runtime.journal is not None
                runtime.journal.append(ARRIVED, {"number": message.number, "by": message.person, "door": message.door})
                if self._interrupt_due > message.number:
                    self._signal.interrupt("interrupted")
                text, by = str(message.data.get("text", "")), message.person
                result = await self._attend(runtime.turn(text, by=by))
                continue
            if (self.lease.session.mode or runtime.mode) == "single":
                if await self._nothing_new():
                    await self._end_with(runtime, result, _state_after(result))
                    return
            elif await self._park(NEXT_MESSAGE):
                return

    async def _attend(self, turn: Any) -> RunResult | None:
        """Runs a turn, and parks the session while it waits for people. None: the session has left, or there was no
        turn."""
        runtime, questions = self._runtime, self.questions
        assert runtime is not None
        if self._is_gone():  # given back or lost before the turn began
            turn.close()
            return None
        self._enter(Phase.TURN)
        task = asyncio.ensure_future(turn)
        while not task.done():
            waits = runtime.only_waits and questions.can_wait
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait(
                {task, changed}, timeout=SETTLE_S if waits else LOOK_S, return_when=asyncio.FIRST_COMPLETED
            )
            changed.cancel()
            if task.done():
                break
            if self._is_gone():
                await self._abandon(task)
                return None
            if self._changed.is_set():
                self._changed.clear()
            elif not runtime.only_waits:
                await self._hold(bool(questions.open))
            elif waits and questions.open and not self._stop_asked and await self._park(questions.title):
                await self._abandon(task)
                return None
        await self._hold(False)
        if not self._is_gone():
            self._enter(Phase.IDLE)
        result: RunResult | None = await task
        await self._checkpoint()
        if result is not None and (self.lease.session.mode or runtime.mode) == "chat":
            await self._tell_turn(result)
        if self._signal.reason not in (STOPPED_BY_PERSON, LEFT):
            self._signal.reset()
        return result

    async def _tell_turn(self, result: RunResult) -> None:
        """Lists say why the last turn of a conversation failed: it waits for a message as one that was answered."""
        directory = str(self.lease.facts.get("directory") or "")
        why = shorten_prose(one_line(_without_path(result.error, directory)), _LOGGED)
        said = f"{TURN_FAILED} {why}" if _state_after(result) == FAILED else ""
        if said != self._kept_notices[TURN_FAILED]:
            self._kept_notices[TURN_FAILED] = said
            await self._tell_checkpoint(self._checkpoint_notice, again=True)

    async def _park(self, waits_for: str) -> bool:
        """Parks the session. Returns True if it waits in the store, and nothing more of it is recorded here."""
        journal, runtime = self._journals.journal if self._journals is not None else None, self._runtime
        assert journal is not None
        assert runtime is not None
        await self._checkpoint()
        seen, asked = self._seen, list(self.questions.open)
        calls = [{"call": wire.get("toolCallId", ""), "question": id} for id, wire in self.questions.open.items()]
        line, number = journal.parked_line({"calls": calls})
        try:
            await journal.committed()
        except ForgeError:  # it cannot act for the session any more; that is told elsewhere
            return False
        if journal.lines != number - 1 or asked != list(self.questions.open) or self.questions.unkept:
            return False  # something was recorded or answered meanwhile
        append = Append(session=self.id, epoch=self.lease.epoch, first=number, lines=(line,))
        cost = runtime.meter.cost or 0.0
        try:
            parked = await asyncio.to_thread(
                self._store.leases.park, self.lease, append, seen=seen, waits_for=waits_for, cost=cost
            )
        except StoreUnavailable:
            return False
        if not parked:
            await self.look()
            return False
        self._settled = True
        self._leave()
        return True

    async def _tell_dropped(self, runtime: WorkerRuntime, dropped: Sequence[QuestionRow]) -> None:
        """Reports answers that the previous runner did not use before it stopped: their calls did not run."""
        for row in dropped[:_MOST_NAMED]:
            did = "answered" if row.kind != "approval" else "approved" if row.answer.get("approved") else "denied"
            who = (
                f"{one_line(row.person) or 'Somebody'} ({row.door})" if row.door else one_line(row.person) or "Somebody"
            )
            said = f"{who} {did} '{shorten(one_line(row.title), 100)}', but the runner had stopped: it did not run."
            said = f"{said} It is asked again if it is proposed again."
            runtime.ui.show_status(type="warning", message=said, code=ANSWER_DROPPED)
            self._kept_notices[row.id] = said
            if runtime.resumed is not None and (turn := runtime.resumed.open_turn) is not None:
                runtime.resumed.open_turn = replace(turn, note="\n".join(filter(None, (turn.note, said))))
        await self._tell_checkpoint(self._checkpoint_notice, again=True)

    # ---- the workspace

    @property
    def _lost_note(self) -> str:
        return self._workspace.lost_note if self._workspace is not None else ""

    def _tell_lost(self, runtime: WorkerRuntime) -> bool:
        """Says which changes are gone, before the model says anything more. False: that takes a turn of its own,
        because the model has given its answer already."""
        if not self._lost_note:
            return True
        assert self._workspace is not None
        runtime.ui.show_status(type="warning", message=self._lost_note)
        self._kept_notices[LOST] = self._workspace.lost_notice
        self._tasks.start(self._tell_checkpoint(self._checkpoint_notice, again=True))
        resumed = runtime.resumed
        turn = resumed.open_turn if resumed is not None else None
        if resumed is not None and turn is not None and turn.response is not None:
            resumed.open_turn = replace(turn, note="\n".join(filter(None, (turn.note, self._lost_note))))
            return bool(turn.response.calls)
        if turn is None and (self.lease.session.mode or runtime.mode) == "single" and not self._messages:
            return False
        runtime.history.add(UserMessage(text=self._lost_note, kind="note"))
        return True

    async def _checkpoint(self) -> None:
        """Makes a checkpoint after every turn and before the session leaves this runner, so that another machine can
        continue.
        """
        journal = self._journals.journal if self._journals is not None else None
        if self._workspace is None or journal is None or self._is_gone():
            return
        if journal.seq == self._checkpoint_seq:
            return
        try:
            made = await asyncio.to_thread(self._workspace.checkpoint, self.lease.session.title)
        except ForgeError as error:
            self._checkpoint_seq = -1
            await self._tell_checkpoint(f"The files are not checkpointed: {error.message}")
            return
        if self._is_gone():
            return
        journal.append(CHECKPOINT, {"commit": made.commit, "pushed": made.pushed})
        await self._tell_checkpoint(checkpoint_notice(made))
        self._checkpoint_seq = journal.seq if made.pushed else -1

    async def _tell_checkpoint(self, notice: str, *, again: bool = False) -> None:
        """Reports a problem of the last checkpoint in the journal, and in `forge ps` until it is solved."""
        if (notice == self._checkpoint_notice and not again) or self._is_gone():
            return
        told, self._checkpoint_notice = self._checkpoint_notice, notice
        if notice not in ("", told):
            _log.warning("session %s: %s", self.id[:12], notice)
            if self._runtime is not None:
                self._runtime.ui.show_status(type="warning", message=notice)
        whole = "\n".join(filter(None, (*self._kept_notices.values(), notice)))
        with contextlib.suppress(TeamError):
            await asyncio.to_thread(self._store.leases.set_notice, self.lease, whole)

    async def _hold(self, held: bool) -> None:
        if held == (self.phase is Phase.HELD) or self.phase is Phase.LEFT:
            return
        self._enter(Phase.HELD if held else Phase.TURN)
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
        if held:
            reason = f"No answer within {self._parts.hold_s:g} s."  # the slot is one that others need
            self._hold_timer = self._loop.call_later(self._parts.hold_s, self.questions.deny_all, reason)
        with contextlib.suppress(StoreUnavailable):
            await asyncio.to_thread(self._store.leases.hold, self.lease, held, self.questions.title if held else "")

    # ---- leaving

    def takes_news(self) -> bool:
        """Whether what changed in the store can still change anything here."""
        return self.phase is not Phase.ENDING and not self._is_gone()

    def _leave(self) -> None:
        self._enter(Phase.LEFT)
        self.questions.close()
        if self._journals is not None and self._journals.journal is not None:
            self._journals.journal.leave()

    async def _abandon(self, task: asyncio.Future[Any]) -> None:
        """Ends what the turn does in this process; its journal is silent by now."""
        self._leave()
        self._signal.interrupt(LEFT)
        await asyncio.wait({task}, timeout=5)
        if not task.done():
            task.cancel()
        with contextlib.suppress(BaseException):
            await task

    def drain(self) -> None:
        """Lets no further call start; running ones may end."""
        journal = self._journals.journal if self._journals is not None else None
        if journal is not None and journal.admits is None:
            journal.admits = asyncio.Event()

    async def hand_over(self) -> None:
        """The runner ends: the session goes on elsewhere, from what is recorded. One that is about to end, ends."""
        if not self.takes_news():
            return
        await self._checkpoint()
        if self._is_gone():
            return
        journal = self._journals.journal if self._journals is not None else None
        if journal is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(5):
                    await journal.committed()
        if not self.takes_news():  # while this waited: a journal that falls silent now would lack its end
            return
        self._leave()
        self._changed.set()
        self._giving_back = asyncio.ensure_future(self._give_back())
        await asyncio.shield(self._giving_back)

    async def _give_back(self) -> None:
        with contextlib.suppress(TeamError):
            await asyncio.to_thread(self._store.leases.give_back, self.lease)
            self._settled = True

    def _full_in_thread(self, error: OSError) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs
            self._loop.call_soon_threadsafe(lambda: self._tasks.start(self._give_away(error)))

    async def _give_away(self, error: BaseException) -> None:
        """This machine's disk is full: the session goes on elsewhere, or here when there is room again."""
        self.is_full = True
        complaints.tell("sessions are given back, the disk of this runner is full", error)
        self.drain()
        until = time.monotonic() + CALLS_END_S
        while self.runs_something and self.phase is not Phase.LEFT:
            if time.monotonic() > until:
                break
            await asyncio.sleep(0.05)
        await self.hand_over()

    @property
    def runs_something(self) -> bool:
        """Whether a call of it runs now."""
        runtime = self._runtime
        if runtime is None or not runtime.is_ready:
            return False
        path = runtime.path
        return path.runs_something or runtime.tree.parts.busy

    def _lost_in_thread(self, why: str) -> None:
        """Called by the commit thread or the lease thread."""
        self.lost = self.lost or why
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs
            self._loop.call_soon_threadsafe(self._let_go)

    def lose(self, why: str) -> None:
        """Called on the loop when another runner has the session, or the lease has expired."""
        self.lost = self.lost or why
        self._let_go()

    def _let_go(self) -> None:
        self._leave()
        self._signal.interrupt(LEFT)
        self._changed.set()

    async def _end_with(self, runtime: WorkerRuntime, result: RunResult | None, state: str) -> None:
        """`sessionEnd` and the last line first: whoever sees the state can read the whole journal."""
        if self._is_gone():
            return
        self._enter(Phase.ENDING)
        if left := runtime.tree.parts.get(ExecSessions).in_background:
            said = f"{left} command{' was' if left == 1 else 's were'} ended with the session."
            runtime.ui.show_status(type="warning", message=said)
            self._kept_notices["commands"] = said
            await self._tell_checkpoint(self._checkpoint_notice, again=True)
        runtime.end(result)
        answer = result.response if result is not None else ""
        error = result.error if result is not None else ""
        if state == FINISHED and not answer:
            answer = _last_text(runtime)
        cost, model = runtime.meter.cost or 0.0, runtime.model_name
        journal = self._journals.journal if self._journals is not None else None
        await self._close_runtime()
        if journal is None or self._is_gone():
            return
        last = journal.writer.next_append()
        ending = SessionEnding(
            state=state, result=answer, error=error, cost=cost, model=model, anchor=journal.anchor, last=last
        )
        await self._end(ending)
        if last is not None:
            journal.writer.kept(last)
        if self._workspace is not None and self._checkpoint_seq >= 0 and self._settled:
            await asyncio.to_thread(self._workspace.remove)

    async def _end(self, ending: SessionEnding) -> None:
        if self.phase is not Phase.LEFT:
            self._enter(Phase.ENDING)
        ended = None
        while ended is None and not self.lost:
            try:
                ended = await asyncio.to_thread(self._store.leases.end, self.lease, ending)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_S)
        self._settled = bool(ended)
        if ended is False:
            self.lost = "another runner has taken this session over"
        elif ended and ending.state == FAILED:
            _log.warning("session %s failed: %s", self.id[:12], shorten_prose(one_line(ending.error), _LOGGED))

    async def _close_runtime(self) -> None:
        runtime, self._runtime = self._runtime, None
        self.questions.runtime = None
        if runtime is not None:
            await runtime.aclose()

    async def _close(self) -> None:
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        self._tasks.cancel()
        self.questions.tasks.cancel()
        if self._giving_back is not None:
            await asyncio.wait({self._giving_back})
        with contextlib.suppress(Exception):
            await self._close_runtime()
        self._parts.leases.release(self.id)
        if self._journals is not None:
            self._journals.remove()

    # ---- what arrives

    def ring(self, *, stop: bool = False, arrivals: int = 0) -> None:
        """Called on the loop when the store has news of this session."""
        if stop and not self._stop_asked:
            self._stop_asked = True
            self._signal.interrupt(STOPPED_BY_PERSON)
            self._changed.set()
        if self.phase is not Phase.OPENING and arrivals > self._seen:
            self._tasks.start(self.look())

    async def look(self) -> bool:
        """Takes up what arrived: messages for the next turn, answers, interrupts. False: the store cannot be asked."""
        async with self._looking:
            try:
                arrived = await asyncio.to_thread(self._store.arrived, self.id, self._seen)
                asked = list(self.questions.open) if arrived else []
                rows = [await asyncio.to_thread(self._store.questions.get, question_id) for question_id in asked]
                rules, tree = self._rules, self._runtime.tree if self._runtime is not None else None
                if arrived and rules is not None and tree is not None and tree.four_eyes is not None:
                    rules.authors = await asyncio.to_thread(self._store.questions.authors, self.id)
            except StoreUnavailable:
                return False
            # From here nothing else runs: what is not taken up yet is not seen, and keeps the session from parking.
            for each in arrived:
                if each.kind == "message":
                    self._messages.append(each)
                elif each.kind == "interrupt":
                    self._interrupt(each)
                elif each.kind == PORT_COMMAND:
                    self._port_command(each)
                elif each.kind == "stop":
                    self.ring(stop=True)
            for row in rows:
                if row is not None:
                    self.questions.apply(row)
            if arrived:
                self._seen = arrived[-1].number
                self._changed.set()
            return True

    def _interrupt(self, arrival: Arrival) -> None:
        """Handles an interrupt once: the journal records handled ones, so that an old one does not interrupt a woken
        session.
        """
        journals, runtime = self._journals, self._runtime
        if journals is None or arrival.number <= journals.last_interrupt:
            return
        journals.last_interrupt = arrival.number
        if runtime is not None and runtime.journal is not None:
            fields = {"number": arrival.number, "kind": arrival.kind, "by": arrival.person, "door": arrival.door}
            runtime.journal.append(ARRIVED, fields)
        if self.phase in (Phase.TURN, Phase.HELD):
            self._signal.interrupt("interrupted")
        else:
            self._interrupt_due = arrival.number

    def _port_command(self, arrival: Arrival) -> None:
        """Handles a port command once, like an interrupt: an old link is not made again. Its output is an event of the
        session.
        """
        journals, runtime, text = self._journals, self._runtime, str(arrival.data.get("text", ""))
        if journals is None or runtime is None or arrival.number <= journals.last_port_command:
            return
        journals.last_port_command = arrival.number
        if runtime.journal is not None:
            fields = {"number": arrival.number, "kind": arrival.kind, "by": arrival.person, "door": arrival.door}
            runtime.journal.append(ARRIVED, fields)
        if not is_port_command(text):  # whoever can write into the store may have written anything
            return
        if text.startswith("/publish") and runtime.program.approval.four_eyes is not None:
            said = "This program wants four eyes: ask the agent to publish the port, and somebody else to agree."
            runtime.bus.emit("status", {"type": "error", "message": said, "code": COMMAND_CODE}, runtime.id)
        else:
            runtime.bus.emit("command", {"text": text}, source=arrival.door)

    async def _nothing_new(self) -> bool:
        before = self._seen
        if not await self.look():  # a session must not end because nobody could say what is left to do
            await asyncio.sleep(RETRY_S)
            return False
        return self._seen == before and not self._messages

    def _pass_on(self, event: Event) -> None:
        if self._parts.on_delta is not None and self.phase is not Phase.LEFT:
            self._parts.on_delta(self.id, event)

    def _continue_script(self, runtime: WorkerRuntime) -> None:
        """A scripted model plays on where the last process stopped."""
        if runtime.resumed is not None and (skip := getattr(runtime.model, "skip_turns", None)) is not None:
            skip(sum(isinstance(each, AssistantMessage) for each in runtime.history.messages))


def _state_after(result: RunResult | None) -> str:
    if result is None or result.status is RunStatus.COMPLETED:
        return FINISHED
    return STOPPED if result.status in (RunStatus.INTERRUPTED, RunStatus.TERMINATED) else FAILED


def _not_here(directory: str, label: str) -> str:
    """Returns the error text without a host path, because viewers read it."""
    whom = f"a runner that takes the label {label!r}" if label else "this runner"
    name, host = Path(directory).name, socket.gethostname()
    return (
        f"the directory {name!r} of its program is not on {host}, or cannot be read there: {whom} needs it at the path "
        "that the session was started with"
    )


def _without_path(text: str, directory: str) -> str:
    return text.replace(directory, Path(directory).name) if directory else text


def _is_disk_full(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL_DISK:
            return True
        error = error.__cause__ or error.__context__
    return False


def _open_calls(runtime: WorkerRuntime) -> list[str]:
    turn = runtime.resumed.open_turn if runtime.resumed is not None else None
    if turn is None or turn.response is None:
        return []
    return [call.id for call in turn.response.calls if call.id not in turn.known]


def _last_text(runtime: WorkerRuntime) -> str:
    messages = runtime.history.messages
    return next((each.text for each in reversed(messages) if isinstance(each, AssistantMessage)), "")
