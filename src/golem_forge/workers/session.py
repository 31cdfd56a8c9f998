"""A session for embedders and one-shot calls: the built-in worker's place, without a model and without a loop.

`open_session` reads the program around a directory (or makes do without one) and gives a Session whose `call` runs a
tool as the built-in worker `default`. Refuses (ConfigError) a configuration with any problem.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from golem_forge.config.home import ForgeHome
from golem_forge.config.modes import ApprovalMode
from golem_forge.config.program import Program
from golem_forge.core.call import Caller, Outcome, ToolCall, call_of
from golem_forge.core.options import must_be, takes_options
from golem_forge.core.verdict import Status
from golem_forge.custom.offering import UserTools
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal
from golem_forge.orchestrator import Orchestrator
from golem_forge.policy.asking import ApprovalCallback
from golem_forge.policy.rules import RuleBook
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.modes import is_manual_tool
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.tool_search import TOOL_SEARCH
from golem_forge.workers.blocks import McpBlock
from golem_forge.workers.declared_secrets import learn_declared, learn_logins
from golem_forge.workers.mcp.told import ask_its_server, in_step_with_servers, look_at_servers, servers_for
from golem_forge.workers.session_plan import SessionPlan, plan_embedded
from golem_forge.workers.slash.manual import SessionActions
from golem_forge.workers.station import Station, check_program_block, mend_edits, open_station
from golem_forge.workers.surroundings import DEFAULT_WORKER
from golem_forge.workers.tree import SessionTree, TreeOptions, open_tree
from golem_forge.workers.user_tools import noting_writes, opening_notices, told, user_tools_for, with_zone

if TYPE_CHECKING:
    from golem_forge.workers.mcp.servers import SessionServers


@dataclass(slots=True)
class Session:
    tree: SessionTree
    station: Station
    notices: tuple[str, ...] = ()
    """What the person should know at the start, one text each."""
    user_tools: UserTools | None = None
    servers: SessionServers | None = None
    """The MCP servers; None: none were configured when it was opened."""

    @property
    def notices_for_one_command(self) -> tuple[str, ...]:
        """Without which tools wait to be activated: news in a conversation, noise before every single call."""
        waiting = self.user_tools.announcements if self.user_tools is not None else ()
        return tuple(notice for notice in self.notices if notice not in waiting)

    async def call(self, name: ToolCall | str, args: Any = None, *, caller: Caller | str | None = None) -> Outcome:
        """A call of the model, unless `caller` says who else asks. A ToolCall has its arguments and caller itself."""
        call = call_of(name, args, caller, "session.call")
        await self.look(call.name)
        outcome = await self.path.call(call)
        if caller is None and isinstance(name, str):
            hint_at_manual(outcome, self.catalog)
        return outcome

    async def batch(self, calls: Sequence[ToolCall], **how: Any) -> list[Outcome]:
        """Several calls of one turn; `mode` and `on_failure` as in Orchestrator.batch."""
        await self.look(*(call.name for call in calls))
        return await self.path.batch(calls, **how)

    def refresh(self) -> None:
        """Tool folders and lists of servers that changed count from now on; every call and batch looks by itself."""
        self._look_at_folders()
        look_at_servers(self.station)

    def _look_at_folders(self) -> None:
        if self.user_tools is not None and (news := self.user_tools.refresh()) is not None:
            told(self.station, news)

    async def look(self, *names: str) -> None:
        """`refresh`, and a server that was never asked what it offers is asked, where one of its tools is named."""
        nothing_new = self.servers is not None and await self.servers.refresh()
        self._look_at_folders()
        if not nothing_new or not in_step_with_servers(self.station):
            look_at_servers(self.station)
        if TOOL_SEARCH in names:
            self.station.deferring.look()
        for name in names:
            await ask_its_server(self.station, name)

    def interrupt(self, reason: str = "interrupted") -> None:
        """Ends whatever runs or waits, within a second. Calls are refused from then on, until `reset`."""
        self.tree.interrupt(reason)

    def reset(self) -> None:
        """After `interrupt`: the next call is a normal one."""
        self.tree.signal.reset()

    @property
    def id(self) -> str:
        return self.tree.id

    @property
    def program(self) -> Program:
        return self.tree.program

    @property
    def path(self) -> Orchestrator:
        return self.station.path

    @property
    def catalog(self) -> Catalog:
        return self.station.catalog

    @property
    def bus(self) -> EventBus:
        return self.tree.bus

    @property
    def rules(self) -> RuleBook:
        return self.tree.rules

    @property
    def sandbox(self) -> Sandbox:
        return self.station.sandbox

    @property
    def journal(self) -> Journal | None:
        return self.tree.journal

    async def aclose(self) -> None:
        """Ends whatever still runs for this session, then closes it."""
        await self.tree.parts.close()
        self.close()

    def close(self) -> None:
        """Without waiting; processes that still run are ended when this process ends. Prefer `aclose`."""
        self.station.close()
        self.tree.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def hint_at_manual(outcome: Outcome, catalog: Catalog) -> None:
    """Warns the program that named nobody as caller, and a tool that only people may call. Not in the Outcome: a model
    may read that, and for a model there is no such tool."""
    tool = catalog.get(outcome.call.name) if outcome.status is Status.TOOL_NOT_FOUND else None
    if tool is not None and is_manual_tool(tool):
        text = (
            f"'{tool.name}' is for people only, and this was a call of the model: add caller='human' to call it as one"
        )
        warnings.warn(text, RuntimeWarning, stacklevel=3)


@takes_options("open_session", at=0)
def open_session(
    directory: Path | str | Mapping[str, Any] = ".",
    *,
    tools: Iterable[Tool | Callable[..., Any]] = (),
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
    must_be(isinstance(directory, (str, Path)), "open_session: directory", "a directory", directory)
    options = TreeOptions(home=home, approval=approval, approval_callback=approval_callback, journal=journal)
    session = session_of(plan_embedded(directory, options.wanted, toolsets), options, tools)
    session.tree.parts.get(SessionActions, lambda: SessionActions(session))
    return session


def session_of(plan: SessionPlan, options: TreeOptions, tools: Iterable[Tool | Callable[..., Any]] = ()) -> Session:
    """Opens a plan of the built-in worker. On a dry tree the person's own tools and MCP servers are left to whoever
    looks (`explaining.evaluator`)."""
    tree, place = open_tree(plan, options), plan.root
    try:
        learn_declared(tree, (place.native,))
        learn_logins(tree.program.mcp.servers.values(), tree.home, tree.redactor)
        notices = list(tree.notices)
        own, mcp = place.blocks.user_tools, place.blocks.mcp
        sandbox = with_zone(place.open_zones(notices), own, tree)
        station = open_station(
            tree,
            place.worker,
            sandbox,
            tools=tools,
            toolsets=place.native,
            worker_id=DEFAULT_WORKER,
            on_effects=noting_writes(tree, lambda: DEFAULT_WORKER) if own is not None else None,
        )
        notices += station.admit((), place.approval)
        servers = users = None
        if mcp is not None and (mcp != McpBlock() or tree.program.mcp.servers):  # "all" of none needs nothing loaded
            servers = servers_for(station, mcp)
        if own is not None and not tree.dry:
            users = user_tools_for(station, own)
            notices += opening_notices(users)
        check_program_block(station, notices if not tree.dry else [])
        notices += mend_edits(tree, sandbox)
    except BaseException:
        tree.abandon()
        raise
    return Session(tree, station, tuple(notices), users, servers)
