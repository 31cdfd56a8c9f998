"""A Host on a real session, as `workers/serving.py` builds it: each guest has its own approvals on its own path."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from golem_forge.agent.session import Session
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import Caller, Outcome, ToolCall
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.signals import InterruptSignal
from golem_forge.mcp.server.host import ClientApproval, ClientFacts, Progress, ServedCalls
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.tools.tool import Tool


class SessionGuest:
    def __init__(self, session: Session, client: ClientFacts, mode: ApprovalMode, calls: ServedCalls) -> None:
        station = session.scope
        self._session = session
        self._name = client.caller_name
        own = {"grants": {}, "on_kept": None, "on_effects": None, "blocks": station.orchestrator.judge.blocks}
        self._path = Orchestrator(replace(station.orchestrator.scope, **own), ClientApproval(mode, calls))

    async def call(self, name: str, args: Any, *, call_id: str, cancel: InterruptSignal, progress: Progress) -> Outcome:
        session = self._session
        session.refresh()
        blocks = session.path.judge.blocks
        if self._path.judge.blocks is not blocks:
            self._path.judge.set_blocks(blocks)
        travel = CallState(ToolCall(name, args, Caller.MCP, id=call_id, caller_name=self._name), cancel, cancel)

        def told(event: Any) -> None:
            data = event.data
            if data.tool_call_id == call_id:
                progress(data.progress, data.total, data.message or "")

        with contextlib.ExitStack() as stack:
            stack.callback(session.bus.on("toolProgress", told))
            stack.callback(session.state.signal.listen(cancel.interrupt))
            return await self._path.step(travel)

    def output(self, handle: str) -> Path | None:
        kept = self._path.outputs.find(handle, self._path.worker)
        return kept.path if kept else None

    async def aclose(self) -> None:
        return None


class SessionHost:
    def __init__(self, session: Session, mode: ApprovalMode = ApprovalMode.INTERACTIVE) -> None:
        self.session = session
        self.redactor = session.state.redactor
        self.calls = ServedCalls()
        self.mode = mode

    async def gathered(self) -> None:
        return None

    def offered(self) -> tuple[Tool, ...]:
        self.session.refresh()
        return self.session.catalog.offered(Caller.MCP)

    def admit(self, client: ClientFacts) -> SessionGuest:
        return SessionGuest(self.session, client, self.mode, self.calls)

    async def aclose(self) -> None:
        self.session.interrupt("the server ends")
        await self.session.aclose()
