"""The session behind `forge mcp serve`: one worker's scope, and for each client its own orchestrator.

Clients share tools, zones, walls, rules and the journal. They share no approval: what one client's user agreed to is
asked of the next one again. They share no process: what a call left running belongs to its client and ends when that
client leaves. Workers that a served call delegates to ask that call's client and remember nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golem_forge.agent.files.worker import McpBlock
from golem_forge.agent.mcp_servers import attach_servers
from golem_forge.agent.session import Session, entry_session
from golem_forge.agent.session_plan import named_mode
from golem_forge.agent.worker_scope import guest_orchestrator
from golem_forge.agent.worker_zones import is_built_in
from golem_forge.core.calls import LEFTOVERS, MAX_LEFTOVER_LINES, Caller, Outcome, ToolCall
from golem_forge.core.effects import Verb
from golem_forge.core.ids import new_id
from golem_forge.core.signals import InterruptSignal
from golem_forge.mcp.client.resources import ServerAccess
from golem_forge.mcp.server.host import ClientApproval, ClientFacts, OnceApproval, Progress, ServedCalls, ServedOffers
from golem_forge.orchestrator.call_state import CallState
from golem_forge.sandbox.errors import SandboxError
from golem_forge.storage.home import stamp_from_stat
from golem_forge.tools.context import ToolContext
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.client import ClientRequests
from golem_forge.toolsets.exec.sessions import ExecSessions

if TYPE_CHECKING:
    from golem_forge.config.run_block import ApprovalMode
    from golem_forge.events.serialization import Event


@contextlib.asynccontextmanager
async def serve_session(
    directory: Path | str = ".", *, worker: Path | str | None = None, approval: ApprovalMode | str | None = None
) -> AsyncIterator[SessionHost]:
    """`worker`: a file or a name of the program's; None: its entry, else the built-in one. Raises ConfigError,
    NotTrusted, and ForgeError where a required server cannot be had."""
    async with entry_session(directory, worker=worker) as session:
        mode = session.program.mode(None if approval is None else named_mode(approval))
        host = SessionHost(session, mode.value)
        if session.servers is not None:
            await session.servers.pool.wait_required()
        yield host


class SessionHost:
    def __init__(self, session: Session, mode: ApprovalMode) -> None:
        self.session = session
        self.mode = mode
        self.calls = ServedCalls()
        self.redactor = session.state.redactor
        session.state.controller = OnceApproval(mode, self.calls)
        if session.servers is None and is_built_in(session.scope.worker):
            session.servers = attach_servers(session.scope, McpBlock())  # some may be configured while it serves
        if session.servers is not None:
            session.servers.form_asker = self.calls.ask_form
            session.servers.begin()
        session.state.parts.get(ClientRequests).default = self.calls
        self.calls.offers = ServedOffers(
            reserved=session.catalog.reserved,
            access=session.state.parts.get(ServerAccess),
            worker=session.path.worker,
            stamp=self._stamp,
        )
        self._gathering: asyncio.Task[None] | None = None

    async def gathered(self) -> None:
        if self._gathering is None:
            self._gathering = asyncio.create_task(self.session.wait_listed())
        await asyncio.shield(self._gathering)

    def offered(self) -> tuple[Tool, ...]:
        self.session.refresh()
        return self.session.catalog.offered(Caller.MCP)

    def _stamp(self, path: str) -> object:
        try:
            with self.session.scope.sandbox.target(path, Verb.READ) as target:
                return target.stat and stamp_from_stat(target.stat)
        except (SandboxError, OSError):
            return None

    def admit(self, client: ClientFacts) -> SessionGuest:
        return SessionGuest(self.session, client, ClientApproval(self.mode, self.calls))

    async def aclose(self) -> None:
        self.session.interrupt("the server ends")
        await self.session.aclose()


class SessionGuest:
    def __init__(self, session: Session, client: ClientFacts, approval: ClientApproval) -> None:
        self._session = session
        self._name = client.caller_name
        self._id = new_id()
        self._path = guest_orchestrator(session.scope, approval, self._id)
        self._leftovers: list[str] = []
        """What commands left behind that no call reports on, for this client's next result."""
        self._unsubscribe = session.bus.on("status", self._keep_leftover)

    async def call(self, name: str, args: Any, *, call_id: str, cancel: InterruptSignal, progress: Progress) -> Outcome:
        # What changed on disk, at a server or in the config counts for this call.
        session = self._session
        await session.look(name)
        blocks = session.path.judge.blocks
        if self._path.judge.blocks is not blocks:
            self._path.judge.set_blocks(blocks)
        state = CallState(ToolCall(name, args, Caller.MCP, id=call_id, caller_name=self._name), cancel, cancel)

        def report(event: Event) -> None:
            data: Any = event.data
            if data.tool_call_id == call_id:
                progress(data.progress, data.total, data.message or "")

        with contextlib.ExitStack() as until_done:
            until_done.callback(self._session.bus.on("toolProgress", report))
            until_done.callback(self._session.state.signal.listen(cancel.interrupt))
            outcome = await self._path.step(state)
            leftovers, self._leftovers = self._leftovers, []
            outcome.notes = (*(line for line in leftovers if line not in outcome.leftover_texts), *outcome.notes)
            return outcome

    def _keep_leftover(self, event: Event) -> None:
        if event.wire.get("code") == LEFTOVERS and len(self._leftovers) < MAX_LEFTOVER_LINES:
            self._leftovers.append(str(event.wire.get("message", "")))

    def output(self, handle: str) -> Path | None:
        kept = self._path.outputs.find(handle, self._path.worker)
        return kept.path if kept is not None else None

    async def aclose(self) -> None:
        self._unsubscribe()
        owner = ToolContext(worker=self._path.worker, guest=self._id).owner
        await self._session.state.parts.get(ExecSessions).end_owned_by(owner)
