"""The one path. Every call, whoever makes it, goes through `Orchestrator.call` and comes out as exactly one Outcome.

    resolve → validate → plan → judge → approve → (gate) → journal → run → bound (present) → record

There is no second way in: a batch, a slash command, an MCP request and a tool that calls another tool all enter here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import Caller, Outcome, ToolCall
from golem_forge.core.decisions import AnsweredBy, Status, Verdict
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.signals import InterruptSignal
from golem_forge.events.journal_files import JournalError
from golem_forge.orchestrator.approve import ApprovalStage
from golem_forge.orchestrator.call_state import CallScope, CallState
from golem_forge.orchestrator.hooks import CallHooks
from golem_forge.orchestrator.present import OutputStore, Presenter, failure_text, learn_typed_secrets
from golem_forge.orchestrator.record import ChangeRecorder, Recorder
from golem_forge.orchestrator.resolve import resolve, validate
from golem_forge.orchestrator.run import (
    CallAborted,
    CallLimits,
    make_plan,
    run,
    run_with_limits,
    still_as_judged,
    wait_with_signal,
)
from golem_forge.orchestrator.schedule import (
    BatchMode,
    BatchOrder,
    OnFailure,
    reads_of,
    run_batch,
    touched_by,
    writes_of,
)
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.evaluate import Evaluation, Judge, always_refused
from golem_forge.policy.rules.book import PathAccess
from golem_forge.tools.catalog import Catalog, ToolNotFound
from golem_forge.tools.context import ToolContext
from golem_forge.tools.forms import secret_texts
from golem_forge.tools.tool import Tool, llm_tools

MAX_CALL_DEPTH: Final = 5
"""Maximum depth of tools that call each other, the first one included."""
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
        self.sandbox = scope.sandbox
        self.walls = scope.walls
        self.signal = scope.signal
        self.on_unknown_tool: Callable[[str, Caller], Coroutine[Any, Any, bool]] = _never_found
        """Hook for unknown tool names: waits for the server that a name belongs to. True: the catalog may have changed,
        look the name up again. Raises ForgeError where the server cannot be had."""
        self.refresh_tools: Callable[[], Coroutine[Any, Any, None]] = _no_refresh
        """Puts tools that changed on disk in force, when a call of a batch may have changed them for one after it."""
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
        self._access = PathAccess(self.judge, scope.worker)
        self.path_rules = self._access.paths
        """What rules say about paths, for walls that are made before any call. Raises RulesUnusable."""
        self._redirect_sources = partial(self.judge.redirect_sources, scope.worker)
        self._gate = services.gate
        self._running: set[str] = set()
        """The ids of calls that have no Outcome yet."""
        self._waiting: set[str] = set()
        """Those of a model that wait for an answer, or for the calls before them."""
        self._recorder = Recorder(services, scope.worker, scope.worker_id)
        self.changes = ChangeRecorder(scope, self._recorder)
        self.hooks = CallHooks(scope, self._recorder, self.judge)
        self._approval = ApprovalStage(scope, approval, self.judge, self.hooks)
        self._present = Presenter(services.redactor, self.outputs, scope.worker, scope.sandbox)

    @property
    def only_waits(self) -> bool:
        """Whether calls are open and none of them has had an effect yet, so that they can start again without loss."""
        return bool(self._running) and self._running == self._waiting

    @property
    def runs_something(self) -> bool:
        return self._running != self._waiting

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

    async def step(self, state: CallState, *, order: BatchOrder | None = None, index: int = 0) -> Outcome:
        """Runs one call through the stages, alone or at its place in a batch."""
        call_id = state.call.id
        if state.program is None:
            state.program = self.scope.program
        if call_id in self._running:
            asked, state.call, state.proposed = state.call, _with_new_id(state.call), False
            return replace(await self.step(state, order=order, index=index), call=asked)
        self._running.add(call_id)
        cancelled: asyncio.CancelledError | None = None
        try:
            outcome = await self._run_stages(state, order, index)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                cancelled = error
                outcome = state.outcome(Status.INTERRUPTED, error="The caller was cancelled.")
            else:
                outcome = self._failed(state, error)
        except BaseException as error:
            outcome = self._failed(state, error)
        finally:
            state.ended = True
            if state.ctx is not None:  # it refers to the state that refers to it: only the collector would free them
                nested = NestedCalls(self, self._recorder, state.detached_copy())
                state.ctx.call, state.ctx.find = nested.call, nested.find
            self._running.discard(call_id)  # nothing else runs before its end is recorded below
            if state.plan is not None:
                state.close()
            if order is not None:
                order.done(index)
        if order is not None and order.stopped and outcome.status is Status.INTERRUPTED and not outcome.executed:
            outcome.status, outcome.error = Status.SKIPPED, order.stopped
        outcome = self._recorder.finished(state, outcome)
        if state.recording is not None:
            self.changes.tell(state.recording)
        if (reviewer := self.scope.services.reviewer) is not None:
            reviewer.note_call(outcome, self._recorder.shown_args(state, outcome.args), hidden=state.reads_secret)
        if cancelled is not None:
            raise cancelled
        return outcome

    def _failed(self, state: CallState, error: BaseException) -> Outcome:
        """Turns an exception of a stage or of the tool into an Outcome."""
        if isinstance(error, CallAborted):
            return self._present.ended(state, error)
        if isinstance(error, ForgeError):
            return state.outcome(error.status, error=self._present.safe(error.message), code=error.code)
        text = failure_text(error)
        if isinstance(error, asyncio.CancelledError):  # the tool cancelled something of its own and let it escape
            return state.outcome(Status.EXECUTION_FAILED, error=text)
        return state.outcome(Status.EXECUTION_FAILED, error=self._present.safe(text))

    def propose(self, calls: Sequence[ToolCall], waiting: InterruptSignal) -> list[CallState]:
        """Puts a whole batch on record before any of it starts, so that a crash shows what never ran."""
        taken = set(self._running)
        states = []
        for call in calls:
            call.caller = Caller(call.caller)
            state = CallState(_with_new_id(call) if call.id in taken else call, self.signal, waiting)
            taken.add(call.id)
            states.append(state)
            with contextlib.suppress(JournalError):  # its start will try again, and refuse
                self._recorder.proposed(state)
        return states

    async def wait_for_tool(self, name: str, caller: Caller, signal: InterruptSignal | None = None) -> None:
        """Waits for the server of an unknown tool as its call would, for whoever needs the tool's schema before that.
        Raises ForgeError."""
        try:
            await wait_with_signal(self.on_unknown_tool(name, caller), self.signal if signal is None else signal)
        except CallAborted:
            text = f"'{name[:200]}' was interrupted before it ran."
            raise ForgeError(text, status=Status.INTERRUPTED) from None

    def skip(self, state: CallState, why: str) -> Outcome:
        """Records a call that will not start, and returns its Outcome."""
        return self._recorder.finished(state, state.outcome(Status.SKIPPED, error=why))

    async def _run_stages(self, state: CallState, order: BatchOrder | None, index: int) -> Outcome:
        if state.waiting.reason is not None:
            return state.outcome(Status.INTERRUPTED, error="Interrupted before it started.")
        try:
            if order is None:
                self._resolve(state)
            else:
                await self._resolve_in_order(state, order, index)
        except ToolNotFound:
            name, caller = state.call.name, state.call.caller
            if not isinstance(name, str) or not await self._wait(state, self.on_unknown_tool(name, caller)):
                raise
            self._resolve(state)
        for _ in range(MAX_REPLANS):
            tool = state.tool
            if order is not None:
                if tool.read_only or not tool.gated:
                    order.only_reads(index)
                elif tool.planner is None:
                    order.announce(index, writes_of(state, self.sandbox))
                if tool.planner is None:
                    order.touches(index, touched_by(state))
            if (
                tool.planner is not None
                or state.handover_sources
                or (self._has_hooks and self.hooks.before(state))
                or not self._decide_at_once(state)
            ):
                await self._plan_in_order(state, order, index)
                tool = state.tool
            if state.judged is not None and not state.judged.decision.runs_unasked:
                self._recorder.before_waiting(state)
                if order is not None and state.judged.decision.verdict is Verdict.ASK:
                    await self._wait(state, order.wait_to_ask(index))
                await self._wait(state, self._approval.approve(state, self.plan_and_judge), plain=True)
            slot = state.parent is None and tool.gated
            read_only = state.read_only
            if slot:
                state.reads_only = read_only
                if order is not None or not self._gate.try_enter(read_only):
                    await self._enter_gate(state, read_only, order, index)
            elif state.parent is not None:
                state.share_slot()
            elif order is not None:
                await self._wait(state, order.wait_turn(index, True))
            if order is not None and order.was_overtaken(index) and OVERTAKEN not in state.notes:
                state.notes = (*state.notes, OVERTAKEN)
            try:
                if await self._is_as_judged(state):
                    if (admits := self._recorder.admits) is not None:
                        await self._wait(state, admits.wait())
                    self._about_to_run(state)
                    if self._recorder.commits_later and tool.effects != ():
                        await self._recorder.committed(state)
                    return await self._run_recorded(state)
            finally:
                if slot:
                    self._gate.leave(read_only)
        raise ForgeError(f"'{tool.name}' keeps changing between approval and run", status=Status.POLICY_DENIED)

    @property
    def _has_hooks(self) -> bool:
        return self.scope.services.hooks is not None

    async def _run_recorded(self, state: CallState) -> Outcome:
        """Runs the tool and then its hooks; saves the zones' files before and records what changed after."""
        hooks = self._has_hooks and bool(self.hooks.after(state))
        recording = await self.changes.begin(state, everywhere=hooks and self.hooks.may_write(state))
        state.recording = recording
        if state.ctx is not None:
            state.ctx.recording = recording
        try:
            if hooks:
                return await self._run_with_hooks(state)
            value = await run(state)
        finally:
            if recording is not None:
                await self.changes.end(recording)
        return self._present.ran(state, value)

    async def _run_with_hooks(self, state: CallState) -> Outcome:
        try:
            outcome = self._present.ran(state, await run(state))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            outcome = self._failed(state, asyncio.CancelledError())
        except BaseException as error:
            outcome = self._failed(state, error)
        with contextlib.suppress(CallAborted):  # an interrupt ends the hooks; the call has run
            await wait_with_signal(self.hooks.run_after(state, outcome, self.changes), state.signal)
        return outcome

    def _resolve(self, state: CallState) -> None:
        """Runs the stages resolve and validate."""
        tool, args, handed = resolve(state.call, self.catalog, self._redirect_sources)
        state.tool = tool
        if handed:
            state.handover_sources = handed
        if tool.made_from:
            state.found_at = self._gate.generation
        if state.edited:  # what a person wrote on the card stays, whatever the call said
            args = state.arguments.given or state.arguments.plain
        state.arguments = validate(tool, args)
        if tool.wants_context:
            self._context(state)

    async def _resolve_in_order(self, state: CallState, order: BatchOrder, index: int) -> None:
        """A tool may be made from what a call before it in the batch is about to write: it is looked up after that."""
        alone = order.is_next(index)
        try:
            self._resolve(state)
        except ForgeError as error:
            if alone or state.call.problem or not _may_exist_later(state, error) or not order.writer_before(index):
                raise
            order.wait_for_undeclared(index)
            await self._wait(state, order.wait_turn(index, False))
        else:
            made_from = state.tool.made_from
            if alone or not made_from:
                return
            order.wait_for_undeclared(index)
            waited = await self._wait(state, order.wait_for_writers(index, made_from))
            if not waited and state.found_at == self._gate.generation:
                return
        await wait_with_signal(self.refresh_tools(), state.waiting)
        self._resolve(state)

    async def _plan_in_order(self, state: CallState, order: BatchOrder | None, index: int) -> None:
        """A plan may need what a call before it in the batch is about to make. Then, and if it fails, it is made after
        that one has ended. What refuses the call is not asked again: not a check, not a rule."""
        if order is None:
            await self.plan_and_judge(state)
            return
        alone = order.is_next(index)  # asked first: the call before may end while this one is planned
        if state.tool.planner is not None:
            again = False
            try:
                await self._plan(state)
            except ForgeError as error:
                if alone or error.status is Status.POLICY_DENIED:
                    raise
                read_only = state.tool.read_only or not state.tool.gated
                await self._wait(state, order.wait_turn(index, read_only))
                again = True
            else:
                self._announce(state, order, index)
                if not alone:
                    reads = reads_of(state, self.sandbox)
                    waited = await self._wait(state, order.wait_for_writers(index, reads))
                    again = waited or state.planned_at != self._gate.generation
            if again:
                if state.tool.made_from:
                    self._resolve(state)
                await self._plan(state)
                self._announce(state, order, index)
        slow = callable(state.tool.needs_approval) or (self._has_hooks and self.hooks.before(state))
        with order.checking(index) if slow else contextlib.nullcontext():
            await self._judge(state)

    def _announce(self, state: CallState, order: BatchOrder, index: int) -> None:
        order.touches(index, touched_by(state))
        order.announce(index, writes_of(state, self.sandbox), reads_of(state, self.sandbox))

    async def _is_as_judged(self, state: CallState) -> bool:
        """Whether the tool and plan are still those that were judged, now that it is the call's turn. False means:
        evaluate again, and perhaps ask again.
        """
        tool, generation = state.tool, self._gate.generation
        if tool.made_from and state.found_at != generation:
            now, _, handed = resolve(state.call, self.catalog, self._redirect_sources)
            state.found_at = generation
            if now.definition_digest != tool.definition_digest:
                state.tool, state.handover_sources, state.approved_as = now, handed, ""
                state.arguments = validate(now, state.arguments.given or state.arguments.plain)
                return False
        return state.plan is None or await still_as_judged(state, self._context(state), self._gate, self.judge)

    def _decide_at_once(self, state: CallState) -> bool:
        keys = partial(self.judge.keys, state.tool, state.arguments, None, self.worker)
        state.decision = self.judge.quick_decision(state.tool, keys)
        return state.decision is not None

    async def plan_and_judge(self, state: CallState) -> None:
        if state.tool.planner is not None:
            await self._plan(state)
        await self._judge(state)

    async def _plan(self, state: CallState) -> None:
        state.close()
        state.plan = await make_plan(state, self._context(state), self._gate)

    async def _judge(self, state: CallState) -> None:
        # a check must not outlive an interrupt
        state.judged = await run_with_limits(self._evaluated(state), CallLimits(state.waiting))
        state.decision = state.judged.decision
        state.decision.edited = state.edited

    async def _evaluated(self, state: CallState) -> Evaluation:
        judged = await self.judge.judge(
            state.tool, state.arguments, state.plan, self._context(state), state.handover_sources
        )
        if not self._has_hooks or judged.decision.verdict is Verdict.BLOCKED:
            return judged
        return await self.hooks.tighten(state, judged)

    async def _enter_gate(self, state: CallState, read_only: bool, order: BatchOrder | None, index: int) -> None:
        """Waits for this call's turn. Interrupting ends the wait with zero executions."""
        if order is not None:
            await self._wait(state, order.wait_turn(index, read_only))
        if not self._gate.try_enter(read_only):
            await self._wait(state, self._gate.enter(read_only))
        if state.waiting:
            self._gate.leave(read_only)
            raise ForgeError("Interrupted before it started.", status=Status.INTERRUPTED)

    async def _wait(self, state: CallState, turn: Coroutine[Any, Any, Any], *, plain: bool = False) -> Any:
        """Waits for a turn or, `plain`, for an answer, which hears an interrupt by itself."""
        mine = state.call.caller is Caller.LLM and state.depth == 0
        if mine:
            self._waiting.add(state.call.id)
        try:
            return await (turn if plain else wait_with_signal(turn, state.waiting))
        finally:
            if mine:
                self._waiting.discard(state.call.id)

    def _about_to_run(self, state: CallState) -> None:
        if state.waiting.reason is not None:  # the last moment at which an interrupt prevents the run
            raise ForgeError("Interrupted before it started.", status=Status.INTERRUPTED)
        if state.tool.secret_fields and (state.call.caller is Caller.HUMAN or state.edited):
            typed = secret_texts(state.tool.secret_fields, state.arguments.plain)
            learn_typed_secrets(state.tool.name, typed, self.redactor)
        if state.ctx is not None:
            state.ctx.contained = state.decision is not None and state.decision.answered_by is AnsweredBy.CONTAINED
        state.started = perf_counter()  # the duration excludes the time a person took to answer
        if state.judged is not None:
            self.judge.count(state.judged)
            if self.scope.on_effects is not None and state.judged.facts.effects:
                self.scope.on_effects(state.call, state.judged.facts.effects)
        self._recorder.started(state)

    def _context(self, state: CallState) -> ToolContext:
        """Returns the call's ToolContext. It is made when a tool, a plan or the full evaluation first needs it."""
        if state.ctx is None:
            ctx = state.ctx = self.dry_context()
            ctx.call_id = call_id = state.call.id
            ctx.outermost_call_id = state.callers[0][0] if state.callers else call_id
            ctx.called_by = state.callers[-1][1] if state.callers else ""
            ctx.caller, ctx.cancel = state.call.caller, state.signal
            ctx.progress, ctx.show = partial(self._recorder.progress, call_id), self._recorder.show
            nested = NestedCalls(self, self._recorder, state)
            ctx.call, ctx.find = nested.call, nested.find
            ctx.loop = asyncio.get_running_loop()
            ctx.offered, ctx.program = self, state.program
        return state.ctx

    def usable_tools(self) -> dict[str, Tool]:
        """Returns the tools that a model may call by name, in catalog order, without those that are always refused."""
        tools = llm_tools(self.catalog)
        return {tool.name: tool for tool in tools if not always_refused(self.judge, tool, self.sandbox)}

    def search_tools(self, query: str, limit: int) -> list[Tool]:
        return self.catalog.find_among(query, limit, self.usable_tools()).tools

    def dry_context(self) -> ToolContext:
        """Returns a context for a call that is only evaluated: it can be planned, but it calls no tool and emits
        nothing.
        """
        home = self.scope.services.home
        return ToolContext(
            session_id=self.session_id,
            worker=self.worker,
            guest=self.scope.guest,
            contains=self.judge.mode is ApprovalMode.CONTAINED,
            sandbox=self.sandbox,
            outputs=self.outputs,
            walls=self.walls,
            parts=self.parts,
            redactor=self.redactor,
            home=home.path if home is not None else None,
            undo=self.scope.services.undo,
            host_rule=self._access.host,
            path_rules=self._access.paths,
        )


class NestedCalls:
    """Finds and calls other tools for a tool that runs. It outlives its call, since the tool may keep it."""

    __slots__ = ("_orchestrator", "_parent", "_recorder")

    def __init__(self, orchestrator: Orchestrator, recorder: Recorder, parent: CallState) -> None:
        self._orchestrator = orchestrator
        self._recorder = recorder
        self._parent = parent

    async def find(self, name: str) -> Tool | None:
        orchestrator = self._orchestrator
        with contextlib.suppress(ForgeError):
            try:
                return orchestrator.catalog.resolve(name, Caller.TOOL)
            except ToolNotFound:
                await orchestrator.wait_for_tool(name, Caller.TOOL, self._parent.signal)
                return orchestrator.catalog.resolve(name, Caller.TOOL)
        return None

    async def call(self, name: str, args: dict[str, Any], *, refuse: str = "", whole: bool = False) -> Outcome:
        """Runs a call that the tool makes. It is judged and approved by itself, under the gate slot that its parent
        already holds.
        """
        parent = self._parent
        state = CallState(ToolCall(name, args, Caller.TOOL, parent_id=parent.call.id), parent.signal, parent.signal)
        state.depth = parent.depth + 1
        state.callers = (*parent.callers, (parent.call.id, parent.tool.name))
        if parent.tool.gated:  # one that holds no slot has none to share: what it calls goes to the gate itself
            state.parent = parent
        state.program = parent.ctx.program if parent.ctx is not None else parent.program
        state.keeps_whole = whole
        refused = refuse
        if parent.ended:
            refused = f"'{parent.tool.name}' has ended and can call no more tools."
        elif state.depth >= MAX_CALL_DEPTH:
            refused = f"Tools may call each other at most {MAX_CALL_DEPTH} levels deep."
        elif not refused and state.program is not None:
            try:
                self._orchestrator.scope.spend_call()
            except ForgeError as error:
                refused = error.message
        if refused:
            return self._recorder.finished(state, state.outcome(Status.POLICY_DENIED, error=refused))
        try:
            return await self._orchestrator.step(state)
        finally:
            parent.calls_read_secret = parent.calls_read_secret or (state.executed and state.reads_secret)


def _may_exist_later(state: CallState, error: ForgeError) -> bool:
    """Whether a lookup that failed may succeed once the calls before it have ended: there was no such tool, or the
    arguments do not fit the files it is made from."""
    if state.tool:
        return bool(state.tool.made_from)
    return error.status is Status.TOOL_NOT_FOUND


async def _never_found(name: str, caller: Caller) -> bool:
    return False


async def _no_refresh() -> None:
    return None


def _with_new_id(call: ToolCall) -> ToolCall:
    """Refuses a call whose id a running call has, and records it under a new id: the records of an id must be those of
    one call, else nobody could tell after a crash what may have run."""
    problem = f"call id {call.id[:80]!r} is in use; give each call an id of its own"
    return replace(call, id=new_id(), problem=call.problem or problem)
