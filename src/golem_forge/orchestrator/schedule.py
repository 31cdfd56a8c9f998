"""Scheduling: batches, the order inside a parallel batch, and the gate that lets readers run together and writers
alone.

A batch is several calls of one turn, answered exactly once each, in request order. `parallel` starts them together as
the gate allows; `sequential` one after the other. `fail_fast` starts nothing further after the first Outcome that is
not a success; what was already running is reported as what it was.

In a parallel batch a writer runs after the calls before it and before those after it. Approval is asked for all calls
at once, in their order; a call that waits for another one to end, or is not judged in time, is asked about later. A
call whose place is not known yet (it is still being planned) counts as a writer. A call that depends on what one before
it writes waits for that one before it is planned: `writes_of` and `reads_of` say from the effects who writes what, and
what a plan was made from.

The gate is first come, first served. Its `generation` counts the writers that have passed, so that a plan made before
one of them is known to be possibly stale.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Final, Protocol

from golem_forge.core.calls import Outcome, ToolCall
from golem_forge.core.decisions import Status
from golem_forge.core.effects import Mark, Verb
from golem_forge.core.regex import regex
from golem_forge.core.signals import InterruptSignal
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

    def propose(self, calls: Sequence[ToolCall], waiting: InterruptSignal) -> list[CallState]: ...
    def skip(self, state: CallState, why: str) -> Outcome: ...
    async def step(self, state: CallState, *, order: BatchOrder | None = None, index: int = 0) -> Outcome: ...


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
    order = BatchOrder(len(calls), runner.signal)

    async def one(index: int, state: CallState) -> Outcome:
        outcome = await runner.step(state, order=order, index=index)
        if why := _stop_reason(outcome, fail_fast):
            order.stop(why)
        return outcome

    tasks = [asyncio.ensure_future(one(*each)) for each in enumerate(runner.propose(calls, order.waiting))]
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


class BatchOrder:
    def __init__(self, size: int, signal: InterruptSignal) -> None:
        self.waiting = InterruptSignal()
        """Ends every wait of this batch: given when the session is interrupted or nothing further may start."""
        self.stopped = ""
        """Why nothing further may start; empty while the batch goes on."""
        self.close = signal.listen(self.waiting.interrupt)
        self._places = [_CallRole.UNKNOWN] * size
        self._first_open = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._writes: dict[int, tuple[str, ...]] = {}
        """Index → real paths, once they are known."""
        self._reads: dict[int, tuple[str, ...]] = {}
        self._may_write = dict.fromkeys(range(size))
        """The calls that have not ended and write something, or may write as far as is known."""
        self._checked: set[int] = set()
        """Calls whose own check is running."""
        self._slow: dict[int, _CallRole] = {}
        """Calls with a slow check → the role they had before."""
        self._touched: dict[int, tuple[str, ...]] = {}
        """Index → everything it reads or changes, of calls whose declared effects are all of it."""
        self._patient: set[int] = set()
        """Calls whose tool an undeclared writer before them may change or create."""
        self._settling: list[asyncio.Future[None]] = []
        self._overtaken: set[int] = set()
        self._unasked = set(range(size))
        """Calls that may still be asked about ahead of those after them."""
        self._askers: list[asyncio.Future[None]] = []

    async def wait_to_ask(self, index: int) -> None:
        """Waits until a person may be asked about this call: each earlier call was asked about, needs no answer, or
        itself waits for another call to end.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + MAX_CARD_DELAY_S
        while any(before < index for before in self._unasked) and (left := end - loop.time()) > 0:
            changed: asyncio.Future[None] = loop.create_future()
            self._askers.append(changed)
            await asyncio.wait((changed,), timeout=left)
        self._pass_on(index)

    def _pass_on(self, index: int) -> None:
        """Marks that later questions need not wait for this call any more, and wakes them."""
        self._unasked.discard(index)
        askers, self._askers = self._askers, []
        for changed in askers:
            if not changed.done():
                changed.set_result(None)

    async def wait_turn(self, index: int, read_only: bool) -> None:
        self._pass_on(index)
        self._places[index] = _CallRole.READER if read_only else _CallRole.WRITER
        if read_only:
            self._wake()
        while not self._may_run(index):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((index, turn))
            await turn
        if self._slow:
            read = _CallRole.READER if read_only else None
            self._overtaken.update(at for at, place in self._slow.items() if at < index and place is not read)

    def announce(self, index: int, writes: tuple[str, ...], reads: tuple[str, ...] = ()) -> None:
        """Stores the real paths that this call is about to write and those that its plan was made from."""
        self._writes[index] = writes
        if reads:
            self._reads[index] = reads
        if not writes:
            self._may_write.pop(index, None)
        elif self._places[index] is not _CallRole.DONE:
            self._may_write[index] = None
        self._wake_settling()

    def touches(self, index: int, paths: tuple[str, ...] | None) -> None:
        """Stores every path that the call reads or changes; None means unknown."""
        if paths is None:
            self._touched.pop(index, None)
        else:
            self._touched[index] = paths

    def wait_for_undeclared(self, index: int) -> None:
        """Makes the call wait until earlier writers with undeclared effects have ended, also while their checks run."""
        self._patient.add(index)

    def only_reads(self, index: int) -> None:
        """Marks the call as a reader before its plan and check are done, so other readers need not wait for those."""
        if self._places[index] is _CallRole.UNKNOWN:
            self._places[index] = _CallRole.READER
            self.announce(index, ())
            self._wake()

    async def wait_for_writers(self, index: int, reads: Sequence[str]) -> bool:
        """Waits until no earlier call is about to write what this one reads. Returns True if it had to wait."""
        waited = False
        while (blocked := self._unsettled(index, reads)) is not None:
            waited = waited or blocked
            if blocked:
                self._pass_on(index)
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.append(changed)
            await changed
        if waited:
            self._unasked.add(index)
        return waited

    @contextmanager
    def checking(self, index: int) -> Iterator[None]:
        """Context manager around the tool's own check. The check delays the approval of other calls only briefly,
        unless this call is known to write what they read; a slow check gives up the call's place too.
        """
        loop = asyncio.get_running_loop()
        late = loop.call_later(MAX_CHECK_DELAY_S, self._give_way, index)
        ahead = loop.call_later(MAX_CHECK_AHEAD_S, self._pass_on, index)
        self._checked.add(index)
        self._wake_settling()
        if index in self._touched:
            self._wake()
        try:
            yield
        finally:
            late.cancel()
            ahead.cancel()
            self._checked.discard(index)
            before = self._slow.pop(index, None)
            if before is not None and self._places[index] is _CallRole.SLOW:
                self._places[index] = before

    def was_overtaken(self, index: int) -> bool:
        """Whether a later call ran first because the check of this one was slow."""
        return index in self._overtaken

    def writer_before(self, index: int) -> bool:
        """Whether an earlier call may still change something."""
        first = self._first_open
        places = (self._slow.get(at, place) for at, place in enumerate(self._places[first:index], first))
        return any(place not in _RUNS_WITH_READER for place in places)

    def done(self, index: int) -> None:
        self._pass_on(index)
        self._places[index] = _CallRole.DONE
        self._may_write.pop(index, None)
        while self._first_open < len(self._places) and self._places[self._first_open] is _CallRole.DONE:
            self._first_open += 1
        self._wake()
        self._wake_settling()

    def is_next(self, index: int) -> bool:
        """Whether every call before this one is done: nothing can change any more before it runs."""
        return self._first_open >= index

    def stop(self, why: str) -> None:
        if not self.stopped:
            self.stopped = why
            self.waiting.interrupt()

    def _may_run(self, index: int) -> bool:
        harmless = _RUNS_WITH_READER if self._places[index] is _CallRole.READER else _RUNS_WITH_WRITER
        first = self._first_open
        return all(
            place in harmless
            or (place is _CallRole.SLOW and not self._may_depend(at, index))
            or (at in self._checked and self._is_unrelated(at, index))
            for at, place in enumerate(self._places[first:index], first)
        )

    def _may_depend(self, before: int, index: int) -> bool:
        """Whether the two calls are known to touch the same paths, or an undeclared writer may create what the second
        one uses.
        """
        wrote, writes = self._writes.get(before, ()), self._writes.get(index, ())
        if index in self._patient and wrote != tuple(_specific_paths(wrote)):
            return True
        touched = (*self._reads.get(index, ()), *writes)
        return paths_overlap(_specific_paths(wrote), _specific_paths(touched)) or paths_overlap(
            _specific_paths(self._reads.get(before, ())), _specific_paths(writes)
        )

    def _is_unrelated(self, before: int, index: int) -> bool:
        first, second = self._touched.get(before), self._touched.get(index)
        return first is not None and second is not None and not paths_overlap(first, second)

    def _give_way(self, index: int) -> None:
        place = self._places[index]
        if index in self._checked and place in (_CallRole.UNKNOWN, _CallRole.READER):
            self._slow[index] = place
            self._places[index] = _CallRole.SLOW
            self._wake()

    def _unsettled(self, index: int, reads: Sequence[str]) -> bool | None:
        """Returns None if there is nothing to wait for, True if an earlier call writes what this one reads, and False
        if an earlier call is not planned yet.
        """
        planned = True
        for at in self._may_write:
            if at >= index:
                continue
            writes = self._writes.get(at)
            if writes is None:
                planned = False
            elif paths_overlap(
                _specific_paths(writes) if at in self._checked and index not in self._patient else writes, reads
            ):
                return True
        return None if planned else False

    def _wake_settling(self) -> None:
        settling, self._settling = self._settling, []
        for changed in settling:
            if not changed.done():
                changed.set_result(None)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for index, turn in waiting:
            if turn.cancelled():
                continue
            if self._may_run(index):
                turn.set_result(None)
            else:
                self._waiting.append((index, turn))


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
            found += [program] if any(_is_within(program, zone) for zone in zones) else ()
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
    return any(_is_within(one, other) or _is_within(other, one) for one in some for other in others)


def _specific_paths(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path not in ANYWHERE]


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class Gate:
    __slots__ = ("_queue", "_readers", "_writing", "generation")

    def __init__(self) -> None:
        self._readers = 0
        self._writing = False
        self._queue: deque[tuple[bool, asyncio.Future[None]]] = deque()
        self.generation = 0

    def try_enter(self, read_only: bool) -> bool:
        """Enters if no other call is in the way; never overtakes a waiting writer."""
        if self._queue or self._writing or (self._readers and not read_only):
            return False
        self._admit(read_only)
        return True

    async def enter(self, read_only: bool) -> None:
        if self.try_enter(read_only):
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (read_only, place)
        self._queue.append(entry)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # admitted and cancelled in the same breath
                self.leave(read_only)
            else:
                with contextlib.suppress(ValueError):  # already passed over, because it was cancelled
                    self._queue.remove(entry)
                self._admit_waiting()
            raise

    def leave(self, read_only: bool) -> None:
        if read_only:
            self._readers -= 1
        else:
            self._writing = False
            self.generation += 1
        if self._queue:
            self._admit_waiting()

    def _admit(self, read_only: bool) -> None:
        if read_only:
            self._readers += 1
        else:
            self._writing = True

    def _admit_waiting(self) -> None:
        while self._queue:
            read_only, place = self._queue[0]
            if self._writing or (self._readers and not read_only):
                return
            self._queue.popleft()
            if not place.cancelled():
                self._admit(read_only)
                place.set_result(None)
