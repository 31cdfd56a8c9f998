"""The one path. Every call, whoever makes it, goes through `Orchestrator.call` and comes out as exactly one Outcome.

    resolve → validate → plan → judge → approve → (gate) → journal → run → bound (present) → record

There is no second way in: a batch, a slash command, an MCP request and a tool that calls another tool all enter here.
`Orchestrator._run_stages` is that line as code; each stage is an object in a file of its own. A call that waits, for
its turn or for an answer, does so by `OpenCalls.wait`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import Caller, Outcome, ToolCall
from golem_forge.core.decisions import AnsweredBy, Status, Verdict
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.signals import InterruptSignal
from golem_forge.events.journal_files import JournalError
from golem_forge.orchestrator.approve import ApprovalStage
from golem_forge.orchestrator.bound_output import BoundStage, OutputStore, learn_typed_secrets
from golem_forge.orchestrator.call_state import CallScope, CallState
from golem_forge.orchestrator.contexts import ToolContexts
from golem_forge.orchestrator.gate import OpenCalls
from golem_forge.orchestrator.hooks import CallHooks
from golem_forge.orchestrator.plan import PlanStage
from golem_forge.orchestrator.record import ChangeRecorder, Recorder
from golem_forge.orchestrator.resolve import ResolveStage
from golem_forge.orchestrator.run import RunStage
from golem_forge.orchestrator.schedule import BatchMode, OnFailure, run_batch
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.evaluate import Judge, always_refused
from golem_forge.policy.rules.book import PathAccess
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.forms import secret_texts
from golem_forge.tools.tool import Tool, llm_tools

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import Walls

MAX_REPLANS: Final = 3
OVERTAKEN: Final = "The approval check of this call was slow, so calls that came after it ran first."


class Orchestrator:
    """Sends calls through all stages and holds what the stages need. There is one for each worker of a session."""

    def __init__(
        self, scope: CallScope | Catalog | Iterable[Tool], approval: ApprovalController, **options: Any
    ) -> None:
        """`scope` is a CallScope, or tools without a session; then `options` are fields of CallScope and
        SessionServices.
        """
        if not isinstance(scope, CallScope):
            scope = CallScope.of(scope, **options)
        elif options:
            raise TypeError(f"Orchestrator: {', '.join(options)}: set it in the CallScope")
        services = scope.services
        self.scope = scope
        self.session_id = services.id
        self.redactor = services.redactor
        self.parts = services.parts
        self.worker = scope.worker
        self.catalog = scope.catalog
        self.signal = scope.signal
        archive = services.journal.archive if services.journal is not None else None
        self.outputs = OutputStore(services.output_folder, services.id, archive)
        self.judge = Judge(
            scope.blocks,
            services.rules,
            approval.mode,
            services.project,
            services.strange_zones,
            scope.parents,
            scope.grants,
        )
        self.judge.directory_names = services.directory_names
        access = PathAccess(self.judge, scope.worker)
        self.path_rules = access.paths
        """What rules say about paths, for walls that are made before any call. Raises RulesUnusable."""
        self._gate = services.gate
        self.open_calls = OpenCalls()
        self._recorder = Recorder(services, scope.worker, scope.worker_id)
        self.changes = ChangeRecorder(scope, self._recorder)
        self.hooks = CallHooks(scope, self._recorder, self.judge)
        self._contexts = ToolContexts(self, self._recorder, access)
        self.dry_context = self._contexts.dry
        redirect_sources = partial(self.judge.redirect_sources, scope.worker)
        self.resolve_stage = ResolveStage(scope.catalog, redirect_sources, self._gate, self.open_calls)
        self._plan_stage = PlanStage(scope, self.judge, self.hooks, self._contexts, self.resolve_stage, self.open_calls)
        self._approval_stage = ApprovalStage(scope, approval, self.judge, self.hooks, self._plan_stage)
        self._bound = BoundStage(services.redactor, self.outputs, scope.worker, scope.sandbox)
        self._run_stage = RunStage(self.changes, self.hooks, self._bound)

    @property
    def sandbox(self) -> Sandbox | None:
        return self.scope.sandbox

    @property
    def walls(self) -> Walls | None:
        return self.scope.walls

    @property
    def only_waits(self) -> bool:
        return self.open_calls.only_wait

    @property
    def runs_something(self) -> bool:
        return self.open_calls.run_something

    def call(self, call: ToolCall) -> Coroutine[Any, Any, Outcome]:
        """Makes one call and returns its Outcome. Never raises for a failure of the call; only cancellation of the
        calling task passes through.
        """
        if type(call.caller) is not Caller:
            call.caller = Caller(call.caller)  # ValueError: nobody else may call
        return self.step(CallState(call, self.signal, self.signal))

    async def batch(
        self,
        calls: Sequence[ToolCall],
        *,
        mode: BatchMode | str = BatchMode.PARALLEL,
        on_failure: OnFailure | str = OnFailure.COLLECT_ALL,
    ) -> list[Outcome]:
        """Makes the calls of one turn and returns one Outcome each, in request order."""
        outcomes = await run_batch(self, calls, mode=mode, on_failure=on_failure)
        pairs = zip(outcomes, calls, strict=True)
        return [outcome if outcome.call is call else replace(outcome, call=call) for outcome, call in pairs]

    async def step(self, state: CallState) -> Outcome:
        """Runs one call through the stages, alone or at its place in a batch."""
        call_id, running = state.call.id, self.open_calls.running
        if state.program is None:
            state.program = self.scope.program
        if call_id in running:
            asked, state.call, state.proposed = state.call, _with_new_id(state.call), False
            return replace(await self.step(state), call=asked)
        running.add(call_id)
        cancelled: asyncio.CancelledError | None = None
        try:
            outcome = await self._run_stages(state)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                cancelled = error
                outcome = state.outcome(Status.INTERRUPTED, error="The caller was cancelled.")
            else:
                outcome = self._bound.failed(state, error)
        except BaseException as error:
            outcome = self._bound.failed(state, error)
        finally:
            state.ended = True
            if state.ctx is not None:
                self._contexts.detach(state)
            running.discard(call_id)  # nothing else runs before its end is recorded below
            state.close()
            state.place.done()
        if state.place.stopped and outcome.status is Status.INTERRUPTED and not outcome.executed:
            outcome.status, outcome.error = Status.SKIPPED, state.place.stopped
        outcome = self._recorder.finished(state, outcome)
        if state.recording is not None:
            self.changes.tell(state.recording)
        if (reviewer := self.scope.services.reviewer) is not None:
            reviewer.note_call(outcome, self._recorder.shown_args(state, outcome.args), hidden=state.reads_secret)
        if cancelled is not None:
            raise cancelled
        return outcome

    async def _run_stages(self, state: CallState) -> Outcome:
        if state.waiting.reason is not None:
            return state.outcome(Status.INTERRUPTED, error="Interrupted before it started.")
        await self.resolve_stage.resolve(state)
        for _ in range(MAX_REPLANS):
            await self._plan_stage.decide(state)
            if state.judged is not None and not state.judged.decision.runs_unasked:
                await self._approve(state)
            holds_slot = await self._wait_turn(state)
            try:
                if await self._plan_stage.is_as_judged(state):
                    await self._start(state)
                    return await self._run_stage.run(state)
            finally:
                if holds_slot:
                    self._gate.leave(state.reads_only)
        raise ForgeError(f"'{state.tool.name}' keeps changing between approval and run", status=Status.POLICY_DENIED)

    async def _approve(self, state: CallState) -> None:
        assert state.judged is not None
        self._recorder.before_waiting(state)
        if state.judged.decision.verdict is Verdict.ASK:
            await self.open_calls.wait(state, state.place.wait_to_ask())
        await self.open_calls.wait(state, self._approval_stage.approve(state), plain=True)

    async def _wait_turn(self, state: CallState) -> bool:
        """Waits until the call may run. True: it holds a slot at the gate, which is to be given back."""
        place = state.place
        if state.parent is not None:
            state.share_slot()
            return False
        if not place.alone:
            await self.open_calls.wait(state, place.wait_turn(state.read_only or not state.tool.gated))
            if place.overtaken and OVERTAKEN not in state.notes:
                state.notes = (*state.notes, OVERTAKEN)
        if not state.tool.gated:
            return False
        state.reads_only = state.read_only
        if not self._gate.try_enter(state.reads_only):
            await self.open_calls.wait(state, self._gate.enter(state.reads_only))
        return True

    async def _start(self, state: CallState) -> None:
        """Puts the start of the call on record. This is the last moment at which an interrupt prevents the run."""
        if (admits := self._recorder.admits) is not None:
            await self.open_calls.wait(state, admits.wait())
        if state.waiting.reason is not None:  # also one that came while the call waited for its turn
            raise ForgeError("Interrupted before it started.", status=Status.INTERRUPTED)
        tool = state.tool
        if tool.secret_fields and (state.call.caller is Caller.HUMAN or state.edited):
            learn_typed_secrets(tool.name, secret_texts(tool.secret_fields, state.arguments.plain), self.redactor)
        if tool.wants_context:
            self._contexts.of(state)
        if state.ctx is not None:
            state.ctx.contained = state.decision is not None and state.decision.answered_by is AnsweredBy.CONTAINED
        state.started = perf_counter()  # the duration excludes the time a person took to answer
        if state.judged is not None:
            self.judge.count(state.judged)
            if self.scope.on_effects is not None and state.judged.facts.effects:
                self.scope.on_effects(state.call, state.judged.facts.effects)
        self._recorder.started(state)
        if self._recorder.commits_later and tool.effects != ():
            await self._recorder.committed(state)

    def propose(self, calls: Sequence[ToolCall], waiting: InterruptSignal) -> list[CallState]:
        """Puts a whole batch on record before any of it starts, so that a crash shows what never ran."""
        taken = set(self.open_calls.running)
        states = []
        for call in calls:
            call.caller = Caller(call.caller)
            state = CallState(_with_new_id(call) if call.id in taken else call, self.signal, waiting)
            taken.add(call.id)
            states.append(state)
            with contextlib.suppress(JournalError):  # its start will try again, and refuse
                self._recorder.proposed(state)
        return states

    async def wait_for_tool(self, name: str, caller: Caller) -> None:
        """Waits for the server of an unknown tool as its call would, for whoever needs the tool's schema before that.
        Raises ForgeError."""
        await self.resolve_stage.wait_for_tool(name, caller, self.signal)

    def skip(self, state: CallState, why: str) -> Outcome:
        """Records a call that will not start, and returns its Outcome."""
        return self._recorder.finished(state, state.outcome(Status.SKIPPED, error=why))

    def usable_tools(self) -> dict[str, Tool]:
        """Returns the tools that a model may call by name, in catalog order, without those that are always refused."""
        tools = llm_tools(self.catalog)
        return {tool.name: tool for tool in tools if not always_refused(self.judge, tool, self.sandbox)}

    def search_tools(self, query: str, limit: int) -> list[Tool]:
        return self.catalog.find_among(query, limit, self.usable_tools()).tools


def _with_new_id(call: ToolCall) -> ToolCall:
    """Refuses a call whose id a running call has, and records it under a new id: the records of an id must be those of
    one call, else nobody could tell after a crash what may have run."""
    problem = f"call id {call.id[:80]!r} is in use; give each call an id of its own"
    return replace(call, id=new_id(), problem=call.problem or problem)
