"""The one path. Every call, whoever makes it, goes through `Orchestrator.call` and comes out as exactly one Outcome.

    resolve → validate → plan → judge → approve → (gate) → journal → run → bound (present) → record

There is no second way in: a batch, a slash command, an MCP request and a tool that calls another tool all enter here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.call import Caller, Outcome, ToolCall
from golem_forge.core.effects import Effect
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.signal import InterruptSignal
from golem_forge.core.verdict import Status, Verdict
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal
from golem_forge.events.journal_errors import JournalError
from golem_forge.events.redaction import Redactor
from golem_forge.orchestrator.approve import Approval, DescribePath, OnKept, worker_path
from golem_forge.orchestrator.batch import BatchMode, OnFailure, run_batch
from golem_forge.orchestrator.driver import Ended, Watch, drive, drive_within
from golem_forge.orchestrator.failure import failure_text
from golem_forge.orchestrator.gate import Gate
from golem_forge.orchestrator.order import BatchOrder, reads_of, touched_by, writes_of
from golem_forge.orchestrator.outputs import OutputStore
from golem_forge.orchestrator.plan import make_plan, still_as_judged
from golem_forge.orchestrator.present import Presenter
from golem_forge.orchestrator.record import Recorder
from golem_forge.orchestrator.redact import learn_typed_secrets
from golem_forge.orchestrator.resolve import resolve
from golem_forge.orchestrator.run import run
from golem_forge.orchestrator.travel import Travel
from golem_forge.orchestrator.validate import validate
from golem_forge.policy.base import ApprovalBlocks
from golem_forge.policy.ceilings import Ceiling
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.judge import Judge
from golem_forge.policy.judged import call_keys
from golem_forge.policy.ruled_reach import RuledReach
from golem_forge.policy.rules import RuleBook
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.catalog import Catalog, ToolNotFound
from golem_forge.tools.context import ToolContext
from golem_forge.tools.decorator import as_tools
from golem_forge.tools.session_parts import SessionParts
from golem_forge.tools.tool import Tool

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import Walls

MAX_DEPTH: Final = 5
"""Tools that call each other, the first one included."""
OnEffects = Callable[[ToolCall, tuple[Effect, ...]], None]
MAX_REPLANS: Final = 3
OVERTAKEN: Final = "The approval check of this call was slow, so calls that came after it ran first."


class Orchestrator:
    """The path with everything its stages need. One per worker of a session."""

    def __init__(
        self,
        tools: Catalog | Iterable[Tool],
        *,
        approval: ApprovalController,
        sandbox: Sandbox | None = None,
        blocks: ApprovalBlocks | None = None,
        rules: RuleBook | None = None,
        bus: EventBus | None = None,
        journal: Journal | None = None,
        redactor: Redactor | None = None,
        output_folder: Path | None = None,
        session_id: str = "",
        worker: str = "main",
        worker_id: str = "",
        signal: InterruptSignal | None = None,
        gate: Gate | None = None,
        project: str = "",
        strange_zones: frozenset[str] = frozenset(),
        walls: Walls | None = None,
        home: Path | None = None,
        parts: SessionParts | None = None,
        describe_path: DescribePath = worker_path,
        ceilings: tuple[Ceiling, ...] = (),
        grants: dict[str, set[str]] | None = None,
        on_kept: OnKept | None = None,
        on_effects: OnEffects | None = None,
        guest: str = "",
    ) -> None:
        """`walls`: where its processes run; `home`: FORGE_HOME; `parts`: what tools keep for the session.

        `worker` is the worker's path, which policy and memory go by; `worker_id` its run, for events (default: the
        path). `describe_path` tells a person who asks: `{id, name, depth, task}` for each worker on the path.
        `grants` is shared by the workers of a session; `on_kept` hears what a person kept for it; `on_effects` what
        each planned call is about to touch. `guest`: the one client of several that calls here.
        """
        self.catalog = tools if isinstance(tools, Catalog) else _catalog_of(tools)
        self.session_id = session_id or new_id()
        self.worker = worker
        self.signal = InterruptSignal() if signal is None else signal
        self.sandbox = sandbox
        self.look_for: Callable[[str], Awaitable[bool]] = _not_to_come
        """Asked about a name that means nothing: true once that may have changed (its server was asked)."""
        self.look_again: Callable[[], Coroutine[Any, Any, None]] = _nothing_new
        """Puts tools that changed on disk in force, when a call of a batch may have changed them for one after it."""
        self.redactor = redactor or Redactor()
        self.outputs = OutputStore(output_folder or _default_output_folder(), self.session_id)
        self.judge = Judge(blocks or ApprovalBlocks(), rules, approval.mode, project, strange_zones, ceilings, grants)
        self._reach = RuledReach(self.judge, worker)
        self.path_rules = self._reach.paths
        """What rules say about paths, for walls that are made before any call. Raises RulesUnusable."""
        self.walls = walls
        self.parts = parts or SessionParts()
        self._home = home
        self._said_of_handover = partial(self.judge.said_of_handover, worker)
        self._on_effects = on_effects
        self._guest = guest
        self._gate = gate or Gate()
        self._under_way: set[str] = set()
        """The ids of calls that have no Outcome yet."""
        self._approval = Approval(approval, self.judge, self.redactor, describe_path, on_kept)
        self._recorder = Recorder(bus, journal, self.redactor, worker, worker_id)
        self._present = Presenter(self.redactor, self.outputs, worker, sandbox)
        self._ran = self._present.ran

    def call(self, call: ToolCall) -> Coroutine[Any, Any, Outcome]:
        """One call. Never raises for what it does; only the cancellation of the calling task passes through."""
        if type(call.caller) is not Caller:
            call.caller = Caller(call.caller)  # ValueError: nobody else may call
        return self.step(Travel(call, self.signal, self.signal))

    async def batch(
        self,
        calls: Sequence[ToolCall],
        *,
        mode: BatchMode | str = BatchMode.PARALLEL,
        on_failure: OnFailure | str = OnFailure.COLLECT_ALL,
    ) -> list[Outcome]:
        """Several calls of one turn: one Outcome each, in request order."""
        outcomes = await run_batch(self, calls, mode=mode, on_failure=on_failure)
        together = zip(outcomes, calls, strict=True)
        return [each if each.call is call else replace(each, call=call) for each, call in together]

    async def step(self, travel: Travel, *, order: BatchOrder | None = None, index: int = 0) -> Outcome:
        """One call, by itself or at its place in a batch."""
        call_id, under_way = travel.call.id, self._under_way
        if call_id in under_way:
            asked, travel.call, travel.proposed = travel.call, _with_own_id(travel.call), False
            return replace(await self.step(travel, order=order, index=index), call=asked)
        under_way.add(call_id)
        cancelled: asyncio.CancelledError | None = None
        try:
            outcome = await self._travel(travel, order, index)
        except Ended as ended:
            outcome = self._present.ended(travel, ended)
        except ForgeError as error:
            outcome = travel.outcome(error.status, error=self._present.safe(error.message), code=error.code)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                cancelled = error
                outcome = travel.outcome(Status.INTERRUPTED, error="The caller was cancelled.")
            else:  # the tool cancelled something of its own and let it escape
                outcome = travel.outcome(Status.EXECUTION_FAILED, error=failure_text(error))
        except BaseException as error:
            outcome = travel.outcome(Status.EXECUTION_FAILED, error=self._present.safe(failure_text(error)))
        finally:
            travel.ended = True
            if travel.ctx is not None:  # it holds the travel that holds it: else only the collector would free them
                travel.ctx.call = partial(self._nested, travel.remains())
            under_way.discard(call_id)  # nobody else gets a turn before its end is recorded below
            if travel.plan is not None:
                travel.close()
            if order is not None:
                order.done(index)
        if order is not None and order.stopped and outcome.status is Status.INTERRUPTED and not outcome.executed:
            outcome.status, outcome.error = Status.SKIPPED, order.stopped
        outcome = self._recorder.finished(travel, outcome)
        if cancelled is not None:
            raise cancelled
        return outcome

    def propose(self, calls: Sequence[ToolCall], waiting: InterruptSignal) -> list[Travel]:
        """Puts a whole batch on record before any of it starts, so that a crash shows what never ran."""
        taken = set(self._under_way)
        travels = []
        for call in calls:
            call.caller = Caller(call.caller)
            travel = Travel(_with_own_id(call) if call.id in taken else call, self.signal, waiting)
            taken.add(call.id)
            travels.append(travel)
            with contextlib.suppress(JournalError):  # its start will try again, and refuse
                self._recorder.proposed(travel)
        return travels

    def skip(self, travel: Travel, why: str) -> Outcome:
        """A call that will not start any more: recorded like every other."""
        return self._recorder.finished(travel, travel.outcome(Status.SKIPPED, error=why))

    async def _travel(self, travel: Travel, order: BatchOrder | None, index: int) -> Outcome:
        if travel.waiting.reason is not None:
            return travel.outcome(Status.INTERRUPTED, error="Interrupted before it started.")
        try:
            if order is None:
                self._find(travel)
            else:
                await self._find_in_order(travel, order, index)
        except ToolNotFound:
            if not await self._may_come(travel.call):
                raise
            self._find(travel)
        for _ in range(MAX_REPLANS):
            tool = travel.tool
            if order is not None:
                if tool.read_only or not tool.gated:
                    order.only_reads(index)
                elif tool.planner is None:
                    order.announce(index, writes_of(travel, self.sandbox))
                if tool.planner is None:
                    order.touches(index, touched_by(travel))
            if tool.planner is not None or travel.handed or not self._decide_at_once(travel):
                await self._plan_in_order(travel, order, index)
                tool = travel.tool
            if travel.judged is not None and travel.judged.decision.verdict is not Verdict.PRE_APPROVED:
                self._recorder.before_waiting(travel)
                await self._approval.approve(travel, partial(self._plan_and_judge, travel))
            slot = travel.parent is None and tool.gated
            read_only = travel.read_only
            if slot:
                travel.reads_only = read_only
                if order is not None or not self._gate.try_enter(read_only):
                    await self._enter(travel, read_only, order, index)
            elif travel.parent is not None:
                travel.share_slot()
            elif order is not None:
                await self._turn(travel, True, order, index)
            if order is not None and order.overtaken(index) and OVERTAKEN not in travel.notes:
                travel.notes = (*travel.notes, OVERTAKEN)
            try:
                if await self._is_as_judged(travel):
                    self._about_to_run(travel)
                    return self._ran(travel, await run(travel))
            finally:
                if slot:
                    self._gate.leave(read_only)
        raise ForgeError(f"'{tool.name}' keeps changing between approval and run", status=Status.POLICY_DENIED)

    async def _may_come(self, call: ToolCall) -> bool:
        """Whether the catalog is worth a second look. A model does not wait for a tool that it was not offered."""
        return call.caller is not Caller.LLM and isinstance(call.name, str) and await self.look_for(call.name)

    def _find(self, travel: Travel) -> None:
        """resolve and validate."""
        tool, args, handed = resolve(travel.call, self.catalog, self._said_of_handover)
        travel.tool = tool
        if handed:
            travel.handed = handed
        if tool.made_from:
            travel.found_at = self._gate.generation
        if travel.edited:  # what a person wrote on the card stays, whatever the call said
            args = travel.arguments.given or travel.arguments.plain
        travel.arguments = validate(tool, args)
        if tool.wants_context and travel.ctx is None:
            travel.ctx = self._context(travel)

    async def _find_in_order(self, travel: Travel, order: BatchOrder, index: int) -> None:
        """A tool may be made from what a call before it in the batch is about to write: it is looked up after that."""
        alone = order.is_next(index)
        try:
            self._find(travel)
        except ForgeError as error:
            if alone or travel.call.problem or not _may_be_other_later(travel, error) or not order.writer_before(index):
                raise
            order.is_patient(index)
            await self._turn(travel, False, order, index)
        else:
            made_from = travel.tool.made_from
            if alone or not made_from:
                return
            order.is_patient(index)
            waited = await self._waited(travel, order, index, made_from)
            if not waited and travel.found_at == self._gate.generation:
                return
        await drive(self.look_again(), Watch.over_a_wait(travel.waiting))
        self._find(travel)

    async def _waited(self, travel: Travel, order: BatchOrder, index: int, reads: tuple[str, ...]) -> bool:
        """Waits for the calls before this one that write what it reads; false if there was none."""
        waited: bool = await drive(order.settled(index, reads), Watch.over_a_wait(travel.waiting))
        return waited

    async def _plan_in_order(self, travel: Travel, order: BatchOrder | None, index: int) -> None:
        """A plan may need what a call before it in the batch is about to make. Then, and if it fails, it is made after
        that one has ended. What refuses the call is not asked again: not a check, not a rule."""
        if order is None:
            await self._plan_and_judge(travel)
            return
        alone = order.is_next(index)  # asked first: the call before may end while this one is planned
        if travel.tool.planner is not None:
            again = False
            try:
                await self._plan(travel)
            except ForgeError as error:
                if alone or error.status is Status.POLICY_DENIED:
                    raise
                await self._turn(travel, travel.tool.read_only or not travel.tool.gated, order, index)
                again = True
            else:
                self._announce(travel, order, index)
                if not alone:
                    waited = await self._waited(travel, order, index, reads_of(travel, self.sandbox))
                    again = waited or travel.planned_at != self._gate.generation
            if again:
                if travel.tool.made_from:
                    self._find(travel)
                await self._plan(travel)
                self._announce(travel, order, index)
        if not callable(travel.tool.needs_approval):
            await self._judge(travel)
            return
        with order.checking(index):
            await self._judge(travel)

    def _announce(self, travel: Travel, order: BatchOrder, index: int) -> None:
        order.touches(index, touched_by(travel))
        order.announce(index, writes_of(travel, self.sandbox), reads_of(travel, self.sandbox))

    async def _is_as_judged(self, travel: Travel) -> bool:
        """False: judge and perhaps ask again. Its turn has come, and what was judged may be no more."""
        tool, generation = travel.tool, self._gate.generation
        if tool.made_from and travel.found_at != generation:
            now, _, handed = resolve(travel.call, self.catalog, self._said_of_handover)
            travel.found_at = generation
            if now.definition_digest != tool.definition_digest:
                travel.tool, travel.handed, travel.approved_as = now, handed, ""
                travel.arguments = validate(now, travel.arguments.given or travel.arguments.plain)
                return False
        return travel.plan is None or await still_as_judged(travel, self._context_of(travel), self._gate)

    def _decide_at_once(self, travel: Travel) -> bool:
        keys = partial(call_keys, travel.tool, travel.arguments, None, self.worker)
        travel.decision = self.judge.at_once(travel.tool, keys)
        return travel.decision is not None

    async def _plan_and_judge(self, travel: Travel) -> None:
        if travel.tool.planner is not None:
            await self._plan(travel)
        await self._judge(travel)

    async def _plan(self, travel: Travel) -> None:
        travel.close()
        travel.plan = await make_plan(travel, self._context_of(travel), self._gate)

    async def _judge(self, travel: Travel) -> None:
        tool, arguments, ctx = travel.tool, travel.arguments, self._context_of(travel)
        keys = partial(call_keys, tool, arguments, travel.plan, self.worker)
        judging = self.judge.judge(tool, arguments, travel.plan, ctx, keys, travel.handed)
        travel.judged = await drive_within(judging, travel.waiting, None)  # a check must not outlive an interrupt
        travel.decision = travel.judged.decision
        travel.decision.edited = travel.edited

    async def _enter(self, travel: Travel, read_only: bool, order: BatchOrder | None, index: int) -> None:
        """Waits for this call's turn. Interrupting ends the wait with zero executions."""
        if order is not None:
            await self._turn(travel, read_only, order, index)
        if not self._gate.try_enter(read_only):
            await drive(self._gate.enter(read_only), Watch.over_a_wait(travel.waiting))
        if travel.waiting:
            self._gate.leave(read_only)
            raise ForgeError("Interrupted before it started.", status=Status.INTERRUPTED)

    async def _turn(self, travel: Travel, read_only: bool, order: BatchOrder, index: int) -> None:
        await drive(order.my_turn(index, read_only), Watch.over_a_wait(travel.waiting))

    def _about_to_run(self, travel: Travel) -> None:
        if travel.waiting.reason is not None:  # the last moment at which an interrupt still means: not at all
            raise ForgeError("Interrupted before it started.", status=Status.INTERRUPTED)
        if travel.tool.secret_fields and _typed(travel):
            learn_typed_secrets(travel.tool, travel.arguments.plain, self.redactor)
        travel.started = perf_counter()  # how long it took is how long it ran, not how long a person thought
        if travel.judged is not None:
            self.judge.count(travel.judged)
            if self._on_effects is not None and travel.judged.facts.effects:
                self._on_effects(travel.call, travel.judged.facts.effects)
        self._recorder.started(travel)

    def _context_of(self, travel: Travel) -> ToolContext:
        """A tool that wants no context only gets one when its call is judged at length."""
        if travel.ctx is None:
            travel.ctx = self._context(travel)
        return travel.ctx

    def _context(self, travel: Travel) -> ToolContext:
        call_id = travel.call.id
        return ToolContext(
            call_id=call_id,
            outermost_call_id=travel.callers[0][0] if travel.callers else call_id,
            session_id=self.session_id,
            worker=self.worker,
            guest=self._guest,
            caller=travel.call.caller,
            sandbox=self.sandbox,
            outputs=self.outputs,
            cancel=travel.signal,
            progress=partial(self._recorder.progress, call_id),
            call=partial(self._nested, travel),
            find=self._found_for_tools,
            loop=asyncio.get_running_loop(),
            walls=self.walls,
            parts=self.parts,
            redactor=self.redactor,
            home=self._home,
            show=self._recorder.show,
            host_rule=self._reach.host,
            path_rules=self._reach.paths,
        )

    def onlooker(self) -> ToolContext:
        """For a call that is only judged: it is planned where others are, and calls, shows and reports nothing."""
        return ToolContext(
            session_id=self.session_id,
            worker=self.worker,
            guest=self._guest,
            sandbox=self.sandbox,
            outputs=self.outputs,
            walls=self.walls,
            parts=self.parts,
            redactor=self.redactor,
            home=self._home,
            host_rule=self._reach.host,
            path_rules=self._reach.paths,
        )

    def _found_for_tools(self, name: str) -> Tool | None:
        try:
            return self.catalog.resolve(name, Caller.TOOL)
        except ForgeError:
            return None

    async def _nested(self, parent: Travel, name: str, args: dict[str, Any], *, refuse: str = "") -> Outcome:
        """A tool calls another tool: judged and approved by itself, under the gate slot its parent already holds."""
        travel = Travel(ToolCall(name, args, Caller.TOOL, parent_id=parent.call.id), parent.signal, parent.signal)
        travel.depth = parent.depth + 1
        travel.callers = (*parent.callers, (parent.call.id, parent.tool.name))
        if parent.tool.gated:  # one that holds no slot has none to share: what it calls goes to the gate itself
            travel.parent = parent
        refused = refuse
        if parent.ended:
            refused = f"'{parent.tool.name}' has ended and can call no more tools."
        elif travel.depth >= MAX_DEPTH:
            refused = f"Tools may call each other at most {MAX_DEPTH} levels deep."
        if refused:
            return self._recorder.finished(travel, travel.outcome(Status.POLICY_DENIED, error=refused))
        return await self.step(travel)


def _may_be_other_later(travel: Travel, error: ForgeError) -> bool:
    """Whether a lookup that failed may succeed once the calls before it have ended: there was no such tool, or the
    arguments do not fit the files it is made from."""
    if travel.tool:
        return bool(travel.tool.made_from)
    return error.status is Status.TOOL_NOT_FOUND


def _typed(travel: Travel) -> bool:
    """Whether a person wrote the arguments, or changed what somebody else wrote."""
    return travel.call.caller is Caller.HUMAN or travel.edited


async def _not_to_come(name: str) -> bool:
    return False


async def _nothing_new() -> None:
    return None


def _with_own_id(call: ToolCall) -> ToolCall:
    """A call whose id another one has that is not over: refused, and recorded under an id of its own.

    The records of an id must be those of one call: else nobody could tell after a crash what may have run.
    """
    problem = f"call id {call.id[:80]!r} is in use; give each call an id of its own"
    return replace(call, id=new_id(), problem=call.problem or problem)


def _catalog_of(tools: Iterable[Tool]) -> Catalog:
    catalog = Catalog()
    for tool in as_tools(tools):
        catalog.add(tool)
    return catalog


def _default_output_folder() -> Path:
    from golem_forge.config.home import forge_home

    return forge_home().path / "output"
