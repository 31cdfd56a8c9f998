"""contexts: what a tool gets to work with beside its arguments, and its way to other tools.

`ToolContexts.of` makes the context of a call when a tool, a plan or the full evaluation first needs it. A tool that
calls another tool does so by `NestedCalls`, which enters the one path again: each nested call is judged, approved and
recorded by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import Caller, Outcome, ToolCall
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.record import Recorder
from golem_forge.policy.rules.book import PathAccess
from golem_forge.tools.catalog import ToolNotFound
from golem_forge.tools.context import ToolContext
from golem_forge.tools.tool import Tool

if TYPE_CHECKING:
    from golem_forge.orchestrator.orchestrator import Orchestrator

MAX_CALL_DEPTH: Final = 5
"""Maximum depth of tools that call each other, the first one included."""


class ToolContexts:
    def __init__(self, orchestrator: Orchestrator, recorder: Recorder, access: PathAccess) -> None:
        self._orchestrator = orchestrator
        self._recorder = recorder
        self._access = access

    def of(self, state: CallState) -> ToolContext:
        if state.ctx is None:
            ctx = state.ctx = self.dry()
            ctx.call_id = call_id = state.call.id
            ctx.outermost_call_id = state.callers[0][0] if state.callers else call_id
            ctx.called_by = state.callers[-1][1] if state.callers else ""
            ctx.caller, ctx.cancel = state.call.caller, state.signal
            ctx.progress, ctx.show = partial(self._recorder.progress, call_id), self._recorder.show
            nested = NestedCalls(self._orchestrator, self._recorder, state)
            ctx.call, ctx.find = nested.call, nested.find
            ctx.loop = asyncio.get_running_loop()
            ctx.offered, ctx.program = self._orchestrator, state.program
        return state.ctx

    def dry(self) -> ToolContext:
        """Returns a context for a call that is only evaluated: it can be planned, but it calls no tool and emits
        nothing.
        """
        orchestrator, scope = self._orchestrator, self._orchestrator.scope
        services = scope.services
        return ToolContext(
            session_id=services.id,
            worker=scope.worker,
            guest=scope.guest,
            contains=orchestrator.judge.mode is ApprovalMode.CONTAINED,
            sandbox=scope.sandbox,
            outputs=orchestrator.outputs,
            walls=scope.walls,
            parts=services.parts,
            redactor=services.redactor,
            home=services.home.path if services.home is not None else None,
            undo=services.undo,
            host_rule=self._access.host,
            path_rules=self._access.paths,
        )

    def detach(self, state: CallState) -> None:
        """Lets the context of an ended call keep only what it takes to refuse further calls. Context and state refer to
        each other: else only the collector would free them.
        """
        assert state.ctx is not None
        nested = NestedCalls(self._orchestrator, self._recorder, state.detached_copy())
        state.ctx.call, state.ctx.find = nested.call, nested.find


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
                await orchestrator.resolve_stage.wait_for_tool(name, Caller.TOOL, self._parent.signal)
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
