"""schedule: batches, and the order inside a parallel batch.

A batch is several calls of one turn, answered exactly once each, in request order. `parallel` starts them together as
the gate allows; `sequential` one after the other. `fail_fast` starts nothing further after the first Outcome that is
not a success; what was already running is reported as what it was.

In a parallel batch a writer runs after the calls before it and before those after it. Approval is asked for all calls
at once, in their order; a call that waits for another one to end, or is not judged in time, is asked about later. A
call whose place is not known yet (it is still being planned) counts as a writer. A call that depends on what one before
it writes waits for that one before it is planned: `writes_of` and `reads_of` say from the effects who writes what, and
what a plan was made from.

Each call has a `Place`, by which the stages tell what is known of it and wait for the calls before it. A call in no
batch stands alone: nothing is before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Final, Protocol

from golem_forge.core.calls import Outcome, ToolCall
from golem_forge.core.decisions import Status
from golem_forge.core.effects import Mark, Verb
from golem_forge.core.regex import regex
from golem_forge.core.signals import InterruptSignal
from golem_forge.sandbox.host import is_below
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import AccessMode

if TYPE_CHECKING:
    from golem_forge.orchestrator.call_state import CallState


class BatchMode(StrEnum):
    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"


class OnFailure(StrEnum):
    COLLECT_ALL = "collect_all"
    FAIL_FAST = "fail_fast"


class CallRunner(Protocol):
    """The part of the Orchestrator that a batch uses."""

    signal: InterruptSignal

    @property
    def sandbox(self) -> Sandbox | None: ...
    def propose(self, calls: Sequence[ToolCall], waiting: InterruptSignal) -> list[CallState]: ...
    def skip(self, state: CallState, why: str) -> Outcome: ...
    async def step(self, state: CallState) -> Outcome: ...


async def run_batch(
    runner: CallRunner, calls: Sequence[ToolCall], *, mode: BatchMode | str, on_failure: OnFailure | str
) -> list[Outcome]:
    fail_fast = OnFailure(on_failure) is OnFailure.FAIL_FAST
    if BatchMode(mode) is BatchMode.PARALLEL:
        return await _run_parallel(runner, calls, fail_fast)
    outcomes: list[Outcome] = []
    why = ""
    for state in runner.propose(calls, runner.signal):
        outcome = runner.skip(state, why) if why else await runner.step(state)
        outcomes.append(outcome)
        why = why or _stop_reason(outcome, fail_fast)
    return outcomes


async def _run_parallel(runner: CallRunner, calls: Sequence[ToolCall], fail_fast: bool) -> list[Outcome]:
    order = BatchOrder(len(calls), runner.signal, runner.sandbox)

    async def one(place: Place, state: CallState) -> Outcome:
        state.place = place
        outcome = await runner.step(state)
        if why := _stop_reason(outcome, fail_fast):
            order.stop(why)
        return outcome

    proposed = runner.propose(calls, order.waiting)
    tasks = [asyncio.ensure_future(one(*each)) for each in zip(order.places, proposed, strict=True)]
    try:
        return list(await asyncio.gather(*tasks))
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    finally:
        order.close()


def _stop_reason(outcome: Outcome, fail_fast: bool) -> str:
    """Returns why no further call may start after this Outcome; empty if the batch goes on."""
    if outcome.stop_turn:
        return "Skipped: the user ended the turn."
    if fail_fast and outcome.status is not Status.SUCCESS:
        return f"Skipped: '{outcome.tool}' before it ended with {outcome.status.value}."
    return ""


MAX_CHECK_DELAY_S: Final = 2.0
"""Seconds that a tool's own check holds up the calls after it, unless they are known to touch other things: those do
not wait at all. Longer checks let all pass but what is known, or has to be assumed, to depend on the call."""
MAX_CARD_DELAY_S: Final = 3.0
"""Seconds that a question waits for the questions of earlier calls, while those are still being planned."""
MAX_CHECK_AHEAD_S: Final = 0.5
"""The same limit while a tool's own check runs, which may itself ask somebody."""
ANYWHERE: Final = ("/",)
_CONTENT_HASH: Final = regex(r" (?:sha256:[0-9a-f]{64}|[0-9a-f]{32})$")
"""The hash that stands after the path of a program inside a zone (`policy.facts`)."""
_PATHS: Final = frozenset({Verb.READ, Verb.WRITE, Verb.DELETE})
_CHANGES: Final = frozenset({Verb.WRITE, Verb.DELETE})


class _CallRole(Enum):
    UNKNOWN = auto()
    SLOW = auto()
    """Its check takes so long that only calls known to touch the same paths still wait for it."""
    READER = auto()
    WRITER = auto()
    DONE = auto()


_RUNS_WITH_READER: Final = frozenset({_CallRole.DONE, _CallRole.READER})
_RUNS_WITH_WRITER: Final = frozenset({_CallRole.DONE})


class Place:
    """Where a call stands among the calls of its batch. This one stands alone."""

    alone = True
    overtaken = False
    """Whether a later call ran first because the check of this one was slow."""

    @property
    def is_next(self) -> bool:
        """Whether every call before this one is done: nothing can change any more before it runs."""
        return True

    @property
    def stopped(self) -> str:
        """Why nothing further may start; empty while the batch goes on."""
        return ""

    def announce_tool(self, state: CallState) -> None:
        """Tells what the tool alone says of the call."""

    def announce_plan(self, state: CallState) -> None:
        """Tells what the call is about to read and write."""

    def writer_before(self) -> bool:
        """Whether an earlier call may still change something."""
        return False

    def wait_for_undeclared(self) -> None:
        """Makes the call wait until earlier writers with undeclared effects have ended, also while their checks run."""

    async def wait_for_writers(self, state: CallState) -> bool:
        """Waits until no earlier call is about to write what this one reads. Returns True if it had to wait."""
        return False

    async def wait_to_ask(self) -> None:
        """Waits until a person may be asked about this call: each earlier call was asked about, needs no answer, or
        itself waits for another call to end.
        """

    async def wait_turn(self, read_only: bool) -> None:
        """Waits until the calls before this one let it run."""

    def checking(self) -> AbstractContextManager[None]:
        """Context manager around the tool's own check. The check delays the approval of other calls only briefly,
        unless this call is known to write what they read; a slow check gives up the call's place too.
        """
        return nullcontext()

    def done(self) -> None:
        """Tells that the call has ended."""


ALONE: Final = Place()


class BatchOrder:
    """The places of a parallel batch, and who waits for what."""

    def __init__(self, size: int, signal: InterruptSignal, sandbox: Sandbox | None) -> None:
        self.waiting = InterruptSignal()
        """Ends every wait of this batch: given when the session is interrupted or nothing further may start."""
        self.stopped = ""
        self.close = signal.listen(self.waiting.interrupt)
        self.sandbox = sandbox
        self.places = [PlaceInBatch(self, index) for index in range(size)]
        self.first_open = 0
        self._turns: list[tuple[PlaceInBatch, asyncio.Future[None]]] = []
        self._settling: list[asyncio.Future[None]] = []
        self._askers: list[asyncio.Future[None]] = []

    def stop(self, why: str) -> None:
        if not self.stopped:
            self.stopped = why
            self.waiting.interrupt()

    def open_before(self, index: int) -> list[PlaceInBatch]:
        return self.places[self.first_open : index]

    async def turn_of(self, place: PlaceInBatch) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append((place, turn))
        await turn

    def give_turns(self) -> None:
        waiting, self._turns = self._turns, []
        for place, turn in waiting:
            if turn.cancelled():
                continue
            if place.may_run():
                turn.set_result(None)
            else:
                self._turns.append((place, turn))

    def next_announcement(self) -> asyncio.Future[None]:
        return _future_in(self._settling)

    def tell_announcement(self) -> None:
        settling, self._settling = self._settling, []
        _wake(settling)

    def next_question(self) -> asyncio.Future[None]:
        return _future_in(self._askers)

    def let_ask(self) -> None:
        askers, self._askers = self._askers, []
        _wake(askers)


def _future_in(futures: list[asyncio.Future[None]]) -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    futures.append(future)
    return future


def _wake(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class PlaceInBatch(Place):
    alone = False

    def __init__(self, order: BatchOrder, index: int) -> None:
        self._order = order
        self._index = index
        self._role = _CallRole.UNKNOWN
        self._role_before_check: _CallRole | None = None
        """Set while the check is slow."""
        self._writes: tuple[str, ...] | None = None
        """Real paths, once they are known."""
        self._reads: tuple[str, ...] = ()
        self._touched: tuple[str, ...] | None = None
        """Everything it reads or changes, if the declared effects are all of it."""
        self._may_write = True
        """Whether it has not ended and writes something, or may write as far as is known."""
        self._is_checked = False
        """Whether its own check is running."""
        self._is_patient = False
        """Whether an undeclared writer before it may change or create its tool."""
        self._asks_first = True
        """Whether it may still be asked about ahead of those after it."""

    @property
    def is_next(self) -> bool:
        return self._order.first_open >= self._index

    @property
    def stopped(self) -> str:
        return self._order.stopped

    def announce_tool(self, state: CallState) -> None:
        tool = state.tool
        if tool.read_only or not tool.gated:
            self._only_reads()
        elif tool.planner is None:
            self._announce(writes_of(state, self._order.sandbox))
        if tool.planner is None:
            self._touched = touched_by(state)

    def announce_plan(self, state: CallState) -> None:
        self._touched = touched_by(state)
        self._reads = reads_of(state, self._order.sandbox) or self._reads
        self._announce(writes_of(state, self._order.sandbox))

    def _only_reads(self) -> None:
        """Makes the call a reader before its plan and check are done, so other readers need not wait for those."""
        if self._role is _CallRole.UNKNOWN:
            self._role = _CallRole.READER
            self._announce(())
            self._order.give_turns()

    def _announce(self, writes: tuple[str, ...]) -> None:
        self._writes = writes
        self._may_write = bool(writes) and self._role is not _CallRole.DONE
        self._order.tell_announcement()

    def writer_before(self) -> bool:
        roles = (each._role_before_check or each._role for each in self._order.open_before(self._index))
        return any(role not in _RUNS_WITH_READER for role in roles)

    def wait_for_undeclared(self) -> None:
        self._is_patient = True

    async def wait_for_writers(self, state: CallState) -> bool:
        reads, waited = reads_of(state, self._order.sandbox), False
        while (blocked := self._is_blocked(reads)) is not None:
            waited = waited or blocked
            if blocked:
                self._let_others_ask()
            await self._order.next_announcement()
        if waited:
            self._asks_first = True
        return waited

    async def wait_to_ask(self) -> None:
        loop, order = asyncio.get_running_loop(), self._order
        end = loop.time() + MAX_CARD_DELAY_S
        while any(each._asks_first for each in order.open_before(self._index)) and (left := end - loop.time()) > 0:
            await asyncio.wait((order.next_question(),), timeout=left)
        self._let_others_ask()

    def _let_others_ask(self) -> None:
        """Later questions need not wait for this call any more."""
        self._asks_first = False
        self._order.let_ask()

    async def wait_turn(self, read_only: bool) -> None:
        self._let_others_ask()
        self._role = _CallRole.READER if read_only else _CallRole.WRITER
        if read_only:
            self._order.give_turns()
        while not self.may_run():
            await self._order.turn_of(self)
        for each in self._order.open_before(self._index):
            if each._role_before_check and not (read_only and each._role_before_check is _CallRole.READER):
                each.overtaken = True

    @contextmanager
    def checking(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        late = loop.call_later(MAX_CHECK_DELAY_S, self._give_way)
        ahead = loop.call_later(MAX_CHECK_AHEAD_S, self._let_others_ask)
        self._is_checked = True
        self._order.tell_announcement()
        if self._touched is not None:
            self._order.give_turns()
        try:
            yield
        finally:
            late.cancel()
            ahead.cancel()
            self._is_checked = False
            before, self._role_before_check = self._role_before_check, None
            if before is not None and self._role is _CallRole.SLOW:
                self._role = before

    def _give_way(self) -> None:
        if self._is_checked and self._role in (_CallRole.UNKNOWN, _CallRole.READER):
            self._role_before_check, self._role = self._role, _CallRole.SLOW
            self._order.give_turns()

    def done(self) -> None:
        order, self._role, self._may_write = self._order, _CallRole.DONE, False
        self._let_others_ask()
        while order.first_open < len(order.places) and order.places[order.first_open]._role is _CallRole.DONE:
            order.first_open += 1
        order.give_turns()
        order.tell_announcement()

    def may_run(self) -> bool:
        harmless = _RUNS_WITH_READER if self._role is _CallRole.READER else _RUNS_WITH_WRITER
        return all(
            each._role in harmless
            or (each._role is _CallRole.SLOW and not self._may_depend_on(each))
            or (each._is_checked and self._is_unrelated_to(each))
            for each in self._order.open_before(self._index)
        )

    def _may_depend_on(self, before: PlaceInBatch) -> bool:
        """Whether the two calls are known to touch the same paths, or an undeclared writer may create what this one
        uses.
        """
        wrote, writes = before._writes or (), self._writes or ()
        if self._is_patient and wrote != tuple(_specific_paths(wrote)):
            return True
        return paths_overlap(_specific_paths(wrote), _specific_paths((*self._reads, *writes))) or paths_overlap(
            _specific_paths(before._reads), _specific_paths(writes)
        )

    def _is_unrelated_to(self, before: PlaceInBatch) -> bool:
        first, second = before._touched, self._touched
        return first is not None and second is not None and not paths_overlap(first, second)

    def _is_blocked(self, reads: Sequence[str]) -> bool | None:
        """Returns None if there is nothing to wait for, True if an earlier call writes what this one reads, and False
        if an earlier call is not planned yet.
        """
        planned = True
        for each in self._order.open_before(self._index):
            if not each._may_write:
                continue
            if each._writes is None:
                planned = False
            elif paths_overlap(
                _specific_paths(each._writes) if each._is_checked and not self._is_patient else each._writes, reads
            ):
                return True
        return None if planned else False


def writes_of(state: CallState, sandbox: Sandbox | None) -> tuple[str, ...]:
    """The real paths that a call is about to change, as far as its effects name them.

    A process that is not held to the paths of its effects may write wherever its walls let it: every rw zone.
    Undeclared effects may be anywhere.
    """
    tool, plan = state.tool, state.plan
    effects = tool.effects if plan is None else plan.effects
    if effects == () or state.read_only or not tool.gated:
        return ()
    if effects is None:
        return ANYWHERE
    found: list[str] = []
    starts = Verb.EXEC if tool.remote is None else Verb.NET  # a server is a process too
    for effect in effects:
        if effect.verb in _CHANGES:
            found.append(effect.real or effect.target)
        elif Mark.NO_WALLS in effect.marks:
            found += ANYWHERE
        elif effect.verb is starts and not effect.proven and not tool.made_from:
            # the zones of a user tool are effects of its own
            zones = None if sandbox is None else sandbox.zones.values()
            found += ANYWHERE if zones is None else (zone.host for zone in zones if zone.mode is AccessMode.RW)
    return tuple(found)


def reads_of(state: CallState, sandbox: Sandbox | None) -> tuple[str, ...]:
    """The real paths that a call's plan was made from: files it names, a program in a zone, the tool's own files.

    A whole zone is what a process may reach, not what was read for the plan.
    """
    plan = state.plan
    zones = {zone.host for zone in sandbox.zones.values()} if sandbox is not None else set()
    found = list(state.tool.made_from)
    for effect in (plan.effects if plan is not None else None) or ():
        if effect.verb in _PATHS and (effect.real or effect.target) not in zones:
            found.append(effect.real or effect.target)
        elif effect.verb is Verb.EXEC and effect.real:
            program = _CONTENT_HASH.sub("", effect.real)
            found += [program] if any(is_below(program, zone) for zone in zones) else ()
    return tuple(found)


def touched_by(state: CallState) -> tuple[str, ...] | None:
    """The real paths that a call reads or changes, if that is all it does by its declared effects; else None.

    A process, a server and another worker reach more than a path says.
    """
    effects = state.tool.effects if state.plan is None else state.plan.effects
    if effects is None or any(effect.verb not in _PATHS or Mark.NO_WALLS in effect.marks for effect in effects):
        return None
    return (*state.tool.made_from, *(effect.real or effect.target for effect in effects))


def paths_overlap(some: Iterable[str], others: Sequence[str]) -> bool:
    """Whether a path of one list equals, contains or lies in a path of the other."""
    return any(is_below(one, other) or is_below(other, one) for one in some for other in others)


def _specific_paths(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path not in ANYWHERE]
