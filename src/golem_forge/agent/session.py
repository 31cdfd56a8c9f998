"""Sessions without a model: for embedders, `forge call` and `forge mcp serve`.

`open_session` reads the program around a directory (or works without one) and returns a Session whose `call` runs a
tool as the built-in worker `default`. `entry_session` does the same as the program's entry worker; it opens no model
and raises NotTrusted where that worker needs code that nobody trusts. Both raise ConfigError.

`ToolRouter` is one list of tools and one way to call them, over a Session, a WorkerRuntime, an Orchestrator or plain
tools; for plain tools it makes an Orchestrator that denies what would ask, unless it is given an ApprovalController.
`dispatch` takes the one path like every other call.
"""

from __future__ import annotations

import asyncio
import builtins
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.files.worker import McpBlock
from golem_forge.agent.session_changes import read_changes, undo_call
from golem_forge.agent.session_plan import DEFAULT_WORKER, SessionPlan, plan_call, plan_embedded
from golem_forge.agent.session_state import (
    SessionOptions,
    SessionState,
    learn_declared,
    learn_logins,
    open_session_state,
)
from golem_forge.agent.slash.invocation import ActionHost, conceal_secrets
from golem_forge.agent.tool_inventory import build_catalog
from golem_forge.agent.trust import NotTrusted
from golem_forge.agent.user_tools import (
    initial_notices,
    record_agent_writes,
    user_tools_for,
    with_user_tools_zone,
)
from golem_forge.agent.worker_scope import (
    WorkerScope,
    check_program_block,
    open_scope,
    recover_edits,
)
from golem_forge.config.program import Program
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import Caller, Outcome, ToolCall, to_tool_call
from golem_forge.core.changes import ChangeSelection, ChangeSet
from golem_forge.core.decisions import Status
from golem_forge.core.ids import is_id
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.options import require, takes_options
from golem_forge.core.text import nearest_hint
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal
from golem_forge.events.runtime_ui import RuntimeUI
from golem_forge.events.serialization import Event
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.policy.approval_queue import ApprovalCallback
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.rules.book import RuleBook
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.catalog import Catalog, CatalogError, DefinitionFormat
from golem_forge.tools.factory import GivenTool, as_tool
from golem_forge.tools.tool import Mode, SourceKind, Tool, may_call
from golem_forge.toolsets.client import ClientRequests, Partner
from golem_forge.toolsets.tool_search import TOOL_SEARCH
from golem_forge.usertools.catalog_sync import UserTools

if TYPE_CHECKING:
    from golem_forge.agent.mcp_servers import SessionServers
    from golem_forge.agent.worker_manager import WorkerManager


NO_COMMANDS: Final = (
    "This session has no worker, so it takes no slash commands; `manualToolInvoke` with toolName and args runs a tool."
)


@dataclass(slots=True)
class Session:
    state: SessionState
    scope: WorkerScope
    notices: tuple[str, ...] = ()
    """Warnings for the person at the start."""
    user_tools: UserTools | None = None
    servers: SessionServers | None = None
    """The MCP servers; None: none were configured when it was opened."""

    @property
    def notices_for_one_command(self) -> tuple[str, ...]:
        """Returns the notices without those about tools that wait to be activated, which would be noise before every
        single call.
        """
        waiting = self.user_tools.announcements if self.user_tools is not None else ()
        return tuple(notice for notice in self.notices if notice not in waiting)

    async def call(self, name: ToolCall | str, args: Any = None, *, caller: Caller | str | None = None) -> Outcome:
        """A call of the model, unless `caller` says who else asks. A ToolCall has its arguments and caller itself."""
        call = to_tool_call(name, args, caller, "session.call")
        await self.look(call.name)
        outcome = await self.path.call(call)
        if caller is None and isinstance(name, str):
            warn_manual_tool(outcome, self.catalog)
        return outcome

    async def batch(self, calls: Sequence[ToolCall], **how: Any) -> list[Outcome]:
        """Several calls of one turn; `mode` and `on_failure` as in Orchestrator.batch."""
        await self.look(*(call.name for call in calls))
        return await self.path.batch(calls, **how)

    def changes(self) -> tuple[ChangeSet, ...]:
        """Returns what calls of this session changed in the zones, oldest first."""
        return read_changes(self.state.home.path, self.id)

    async def undo(
        self,
        *,
        turn: int | None = None,
        call: str = "",
        paths: Sequence[str] = (),
        also: Sequence[str] = (),
        redo: bool = False,
    ) -> Outcome:
        """Takes it back, as a call of the person: of this turn, call or of these paths; without any, of the last turn
        that changed something. `also`: paths to take back although they were changed since or may be somebody else's
        work."""
        selected = ChangeSelection(turn=turn, call=call, paths=tuple(paths))
        return await self.call(undo_call(selected, also=also, redo=redo))

    def refresh(self) -> None:
        """Tool folders and lists of servers that changed count from now on; every call and batch looks by itself.
        Waits for nothing: of a server that was never connected, `wait_listed` knows more."""
        self.scope.sync(self.user_tools)
        if self.servers is not None:
            self.servers.look()
            self.servers.sync(self.scope)

    async def wait_listed(self) -> None:
        """Looks, and waits a few seconds for servers that were never asked before what they offer: from then on
        `catalog` has their tools."""
        await self.look()
        if self.servers is not None:
            await self.servers.wait_listed(self.scope)

    async def look(self, *names: str) -> None:
        """`refresh`, with what changed in the configuration; for calls of tools of these names. Waits for no server: a
        call of one of its tools does."""
        servers, scope = self.servers, self.scope
        nothing_new = servers is not None and await servers.refresh()
        scope.sync(self.user_tools)
        if servers is not None and not (
            nothing_new and scope.server_tools is not None and scope.server_tools.is_current
        ):
            servers.sync(scope)
        if TOOL_SEARCH in names:
            scope.model_tools.select()

    def interrupt(self, reason: str = "interrupted") -> None:
        """Ends whatever runs or waits, within a second. Calls are refused from then on, until `reset`."""
        self.state.interrupt(reason)

    def reset(self) -> None:
        """Clears an `interrupt`, so that the next call runs."""
        self.state.signal.reset()

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def program(self) -> Program:
        return self.state.program

    @property
    def path(self) -> Orchestrator:
        return self.scope.orchestrator

    @property
    def catalog(self) -> Catalog:
        return self.scope.catalog

    @property
    def bus(self) -> EventBus:
        return self.state.bus

    @property
    def rules(self) -> RuleBook:
        return self.state.rules

    @property
    def sandbox(self) -> Sandbox:
        return self.scope.sandbox

    @property
    def journal(self) -> Journal | None:
        return self.state.journal

    async def aclose(self) -> None:
        """Ends whatever still runs for this session, then closes it."""
        await self.state.parts.close()
        self.close()

    def close(self) -> None:
        """Closes without waiting; processes that still run are ended with this process. Prefer `aclose`."""
        self.scope.close()
        self.state.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def warn_manual_tool(outcome: Outcome, catalog: Catalog) -> None:
    """Warns the program that named nobody as caller, and a tool that only people may call. Not in the Outcome: a model
    may read that, and for a model there is no such tool."""
    tool = catalog.get(outcome.call.name) if outcome.status is Status.TOOL_NOT_FOUND else None
    if tool is not None and not may_call(Caller.LLM, tool.mode):  # of any other reason the Outcome speaks
        text = f"'{tool.name}' is for people only, and a model called it: add caller='human' to call it as a person"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


class SessionActions:
    """Hears `manualToolInvoke` and `interrupt` on a session's bus, and refuses `command`: there is no worker.

    A runtime has `SlashCommands` instead."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        bus = session.bus
        bus.conceal = partial(conceal_secrets, self)
        bus.commands = self
        self._forget = [bus.on("interrupt", self._interrupt)]
        self._paused = [bus.on("manualToolInvoke", self._invoke), bus.on("command", self._refuse)]

    def pause(self) -> None:
        while self._paused:
            self._paused.pop()()

    def resume(self) -> None:
        """Commands had a host, which is gone: they are refused no more, by nobody."""
        if not self._closed:
            self._paused = [self._session.bus.on("manualToolInvoke", self._invoke)]

    @property
    def path(self) -> Orchestrator:
        return self._session.path

    @property
    def ui(self) -> RuntimeUI:
        return self._session.state.ui

    async def aclose(self) -> None:
        self._closed = True
        self.pause()
        for forget in self._forget:
            forget()
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def _interrupt(self, event: Event) -> None:
        self._session.interrupt(str(event.wire.get("reason") or "interrupted"))

    def _refuse(self, event: Event) -> None:
        self._session.bus.emit("status", {"type": "error", "message": NO_COMMANDS, "code": "command"})

    def _invoke(self, event: Event) -> None:
        wire, known = event.wire, self._session.state.call_ids
        call = ToolCall(str(wire["toolName"]), wire["args"], Caller.HUMAN)
        if is_id(request_id := wire.get("requestId")):
            if request_id in known:  # sent twice, run once
                return
            known.add(request_id)
            call.id = request_id
        task = asyncio.get_running_loop().create_task(self._run(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, call: ToolCall) -> None:
        await self._session.look(call.name)
        await self.path.call(call)


@takes_options("open_session", at=0)
def open_session(
    directory: Path | str | Mapping[str, Any] = ".",
    *,
    tools: Iterable[GivenTool] = (),
    toolsets: Mapping[str, Any] | None = None,
    approval: ApprovalMode | str | None = None,
    approval_mode: ApprovalMode | str | None = None,
    approval_callback: ApprovalCallback | None = None,
    home: ForgeHome | Path | str | None = None,
    journal: bool = True,
) -> Session:
    """`tools` (or plain functions) come in addition to the native ones; one that cannot be offered is refused.
    `toolsets` names the native ones, each with its block, as a worker file does; without it all are there.
    `approval_mode` is another name of `approval`. All of it may be one mapping.

    Without a callback the session never asks: it is `auto_deny`.
    """
    assert not isinstance(directory, Mapping)  # `takes_options` has read it
    if approval is not None and approval_mode not in (None, approval):
        raise TypeError("open_session: approval and approval_mode are the same option; give one of them")
    approval = approval_mode if approval is None else approval
    require(isinstance(directory, (str, Path)), "open_session: directory", "a directory", directory)
    answers = approval_callback is not None
    options = SessionOptions(
        home=home, approval=approval, answers=answers, approval_callback=approval_callback, journal=journal
    )
    session = open_planned_session(plan_embedded(directory, options, toolsets), options, tools)
    session.state.parts.get(SessionActions, lambda: SessionActions(session))
    return session


def open_planned_session(plan: SessionPlan, options: SessionOptions, tools: Iterable[GivenTool] = ()) -> Session:
    """Opens a plan of the built-in worker. Opened dry, it leaves user tools and MCP servers to `agent.explain`."""
    session_state, place = open_session_state(plan, options), plan.root
    try:
        learn_declared(session_state, (place.native,))
        learn_logins(session_state.program.mcp.servers.values(), session_state.home, session_state.redactor)
        notices = list(session_state.notices)
        own, mcp = place.blocks.user_tools, place.blocks.mcp
        sandbox = with_user_tools_zone(place.open_zones(notices), own, session_state)
        scope = open_scope(
            session_state,
            place.worker,
            sandbox,
            build_catalog(tools, place.native, place.program.toolsets_off),
            worker_id=DEFAULT_WORKER,
            on_effects=record_agent_writes(session_state, lambda: DEFAULT_WORKER) if own is not None else None,
        )
        session_state.parts.get(ClientRequests).set_worker(scope.orchestrator.worker, partial(_partner, scope))
        notices += scope.add_tools((), place.approval)
        servers = users = None
        # "all" of none needs nothing loaded
        if mcp is not None and (mcp != McpBlock() or session_state.program.mcp.servers):
            from golem_forge.agent.mcp_servers import attach_servers

            servers = attach_servers(scope, mcp)
        if own is not None and not session_state.dry:
            users = user_tools_for(scope, own)
            notices += initial_notices(users)
        check_program_block(scope, notices if not session_state.dry else [])
        notices += recover_edits(session_state, sandbox)
    except BaseException:
        session_state.discard()
        raise
    return Session(session_state, scope, tuple(notices), users, servers)


def _partner(scope: WorkerScope) -> Partner:
    from golem_forge.agent.sampler import PersonPartner

    return PersonPartner(scope)


@asynccontextmanager
async def entry_session(
    directory: Path | str = ".",
    *,
    worker: Path | str | None = None,
    approval: str | None = None,
    approval_callback: ApprovalCallback | None = None,
) -> AsyncIterator[Session]:
    """Opens a session with the program's entry worker, or `worker`. Without a callback nobody is asked: the mode is
    `auto_deny`.
    """
    answers = approval_callback is not None
    options = SessionOptions(approval=approval, answers=answers, approval_callback=approval_callback)
    plan = plan_call(directory, options, worker)
    if plan.roster is None:
        async with open_planned_session(plan, options) as session:
            yield session
        return
    if plan.waits_for_trust:
        raise NotTrusted(plan.program.root)
    manager = open_worker_manager(plan, options)
    try:
        run = await manager.start(plan.worker)
    except BaseException:
        manager.state.discard()
        raise
    notices = (*plan.notices, *run.notices)
    try:
        yield Session(manager.state, run.scope, notices, run.user_tools, run.servers)
    finally:
        await manager.stop(run)
        await manager.state.aclose()


def open_worker_manager(plan: SessionPlan, options: SessionOptions) -> WorkerManager:
    """Opens a plan of a program's worker, which is started next; without a model."""
    from golem_forge.agent.delegation import new_worker_manager

    assert plan.roster is not None
    return new_worker_manager(open_session_state(plan, options), plan.roster)


class ToolRouter:
    def __init__(
        self,
        tools: Session | ActionHost | Orchestrator | Catalog | Iterable[GivenTool],
        *,
        approval: ApprovalController | ApprovalMode | str | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        """`approval` (or a mode that asks nobody) and `sandbox`: for tools alone; a session has its own. Raises
        TypeError where both are given."""
        self._session = tools if isinstance(tools, Session) else None
        path = tools if isinstance(tools, Orchestrator) else getattr(tools, "path", None)
        if path is not None:
            if approval is not None or sandbox is not None:
                raise TypeError("ToolRouter: approval= and sandbox= are for tools alone; a session has its own")
            self._path: Orchestrator = path
        else:
            given: Any = tools
            asks = approval if isinstance(approval, ApprovalController) else ApprovalController(approval or "auto_deny")
            self._path = Orchestrator(given, approval=asks, sandbox=sandbox)

    @property
    def catalog(self) -> Catalog:
        if self._session is not None:
            self._session.refresh()
        return self._path.catalog

    def list(
        self,
        source: SourceKind | str | None = None,
        mode: Mode | str | None = None,
        category: str | None = None,
        query: str | None = None,
    ) -> builtins.list[Tool]:
        """The tools that fit everything given; `query` is part of a name or description. ValueError: no such source.

        It waits for no MCP server: the tools of one that was never connected are there after `await
        session.wait_listed()`."""
        if source is not None and source not in tuple(SourceKind):
            hint = nearest_hint(str(source), SourceKind, f"; there are {', '.join(SourceKind)}")
            raise ValueError(f"no source {source!r}{hint}")
        return self.catalog.list(source, mode, category, query)

    def query(self, name: str) -> Tool | None:
        """The tool of this name, whoever may call it; None: there is none."""
        catalog = self.catalog
        return catalog.get(name) or catalog.get(catalog.aliases().get(name, ""))

    def tool_definitions(
        self, shape: DefinitionFormat | str = DefinitionFormat.MCP, caller: Caller | str = Caller.LLM
    ) -> builtins.list[dict[str, Any]]:
        """Returns the tools offered to this caller: `name`, `description` and schema in the format of MCP, `anthropic`
        or `openai`.
        """
        return builtins.list(self.catalog.definitions(shape, Caller(caller)))

    def register(self, tool: Tool | Callable[..., Any] | Mapping[str, Any]) -> None:
        """Adds a tool. Raises CatalogError for a name that is taken or a definition that cannot be offered."""
        added = as_tool(tool)
        if (bad := self._path.catalog.add_checked(added)) is not None:
            raise CatalogError(f"tool {added.name!r} cannot be offered: {bad.reason}")

    async def dispatch(
        self, name: ToolCall | str, args: dict[str, Any] | None = None, *, caller: Caller | str | None = None
    ) -> Outcome:
        """One call, judged, asked and recorded like every other: `dispatch("read_file", {"path": "a.txt"})`."""
        call = to_tool_call(name, args, caller, "dispatch")
        if self._session is not None:
            await self._session.look(call.name)
        outcome = await self._path.call(call)
        if caller is None and isinstance(name, str):
            warn_manual_tool(outcome, self._path.catalog)
        return outcome
