"""WorkerScope: one worker's catalog, sandbox, walls and policy, connected to the one path.

`open_scope` returns a scope with the native tools; tools of modules, sub-workers, users and MCP servers are added
before the first call (`add_tools`). A child's scope is bounded by its caller's: zones, `blocked` and the interrupt
signal.

`attach_servers` connects a scope to the session's MCP servers and `sync_servers` keeps its catalog up to date. The code
that talks to servers is imported only where a worker file or the user's configuration names one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from golem_forge.agent.files.block_schema import McpBlock
from golem_forge.agent.files.toolset_blocks import check_servers
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.model_tools import ModelTools
from golem_forge.agent.session_state import SessionState
from golem_forge.agent.tool_inventory import build_catalog
from golem_forge.agent.worker_zones import approval_blocks
from golem_forge.core.calls import LEFTOVERS, leftover_lines
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.signals import InterruptSignal
from golem_forge.orchestrator.orchestrator import OnEffects, Orchestrator
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks, check_block
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.evaluate import ParentPolicy
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.walls import Aftermath, Walls, probe_without_saving
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.toolsets.edit.apply import recover_patches

if TYPE_CHECKING:
    from golem_forge.agent.mcp_servers import SessionServers
    from golem_forge.mcp.client.tool_source import ServerTools


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """One worker on the way from the root to this scope, as cards and events name it."""

    id: str
    name: str
    depth: int
    task: str = ""

    def to_wire(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "depth": self.depth, "task": self.task}


@dataclass(slots=True, kw_only=True)
class WorkerScope:
    state: SessionState
    worker: Worker
    lineage: tuple[Ancestor, ...]
    """From the root to this worker."""
    orchestrator: Orchestrator
    sandbox: Sandbox
    walls: Walls
    signal: InterruptSignal
    parent: WorkerScope | None = None
    server_tools: ServerTools | None = None
    """What it sees of MCP servers; None: its file names none."""
    on_effects: OnEffects | None = None
    """Told what each planned call is about to touch."""
    model_tools: ModelTools = field(init=False, repr=False)
    """What of its tools its model is sent."""
    _forget: Callable[[], None] = field(default=lambda: None, repr=False)

    def __post_init__(self) -> None:
        self.model_tools = ModelTools(self)

    @property
    def id(self) -> str:
        return self.lineage[-1].id

    @property
    def depth(self) -> int:
        return self.lineage[-1].depth

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(link.name for link in self.lineage)

    @property
    def catalog(self) -> Catalog:
        return self.orchestrator.catalog

    def add_tools(self, tools: Iterable[Tool], approval: Mapping[str, ApprovalBlock]) -> list[str]:
        """Adds tools, replacing those of their name, and what blocks say about them; gives a notice for each that
        cannot be offered."""
        for tool in tools:
            self.catalog.add_checked(tool, replace=True)
        blocks = self.orchestrator.judge.blocks
        self.orchestrator.judge.set_blocks(ApprovalBlocks(program=blocks.program, blocks={**blocks.blocks, **approval}))
        return [f"tool '{bad.name}' is not offered: {bad.reason}" for bad in self.catalog.quarantined()]

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        self.state.bus.emit(kind, data, self.id)

    def emit_catalog_changed(self, changes: Any, problems: Iterable[str] = ()) -> None:
        """`changes`: the names `added`, `changed` and `removed`, and `diagnostics`."""
        data = {key: list(getattr(changes, key)) for key in ("added", "changed", "removed", "diagnostics")}
        data["diagnostics"] += problems
        self.emit("catalogChanged", data)

    def close(self) -> None:
        """The worker has ended; what its tools keep lives with the session."""
        self._forget()
        self.sandbox.close()


def open_scope(
    session_state: SessionState,
    worker: Worker,
    sandbox: Sandbox,
    *,
    tools: Iterable[Tool | Callable[..., Any]] = (),
    toolsets: Mapping[str, Any] | None = None,
    parent: WorkerScope | None = None,
    task: str = "",
    worker_id: str = "",
    on_effects: OnEffects | None = None,
) -> WorkerScope:
    """`toolsets`: its native blocks; None: every native tool (the built-in worker). Takes over the sandbox."""
    signal = InterruptSignal() if parent is not None else session_state.signal
    above = parent.lineage if parent is not None else ()
    link = Ancestor(id=worker_id or new_id(), name=worker.name, depth=session_state.depth + len(above), task=task)
    lineage = (*above, link)
    catalog = build_catalog(tools, toolsets)
    program = session_state.program
    block = ApprovalBlock(default=program.approval.default, tools=program.approval.tools)
    # Host paths that Forge itself might say become addresses.
    for zone in sandbox.zones.values():
        for host in (zone.host, *zone.aliases):
            session_state.redactor.add_path(host, f"/{zone.name}")
    walls = Walls(
        sandbox,
        program.walls,
        forge_home=session_state.home.path,
        redactor=session_state.redactor,
        rules=lambda: path.path_rules(),
        tried=probe_without_saving if session_state.dry else None,
    )
    parents: tuple[ParentPolicy, ...] = ()
    if parent is not None:
        judge = parent.orchestrator.judge
        parents = (*judge.parents, ParentPolicy(worker=parent.orchestrator.worker, blocks=judge.blocks))
    path = _orchestrator(
        session_state,
        lineage,
        catalog,
        sandbox=sandbox,
        walls=walls,
        approval=session_state.controller,
        grants=session_state.grants,
        on_kept=session_state.on_kept,
        signal=signal,
        ceilings=parents,
        on_effects=on_effects,
    )
    path.judge.set_blocks(ApprovalBlocks(program=block))
    walls.on_report(lambda report: session_state.bus.emit("wallsReport", report.to_wire(), link.id))
    walls.on_unread(lambda after: _emit_leftovers(session_state, link.id, after))
    scope = WorkerScope(
        state=session_state,
        worker=worker,
        lineage=lineage,
        orchestrator=path,
        sandbox=sandbox,
        walls=walls,
        signal=signal,
        parent=parent,
        on_effects=on_effects,
    )
    if parent is not None:
        scope._forget = parent.signal.listen(signal.interrupt)
    return scope


def guest_orchestrator(scope: WorkerScope, approval: ApprovalController, guest: str) -> Orchestrator:
    """The same place for somebody else who calls its tools: with approvals, a memory of them and processes of their
    own. `guest`: a name that no other guest has."""
    path = _orchestrator(
        scope.state,
        scope.lineage,
        scope.catalog,
        sandbox=scope.sandbox,
        walls=scope.walls,
        approval=approval,
        grants={},  # what this one's person allows, nobody else's call may use, in a resumed session neither
        on_kept=None,
        signal=scope.signal,
        ceilings=scope.orchestrator.judge.parents,
        on_effects=scope.on_effects,
        guest=guest,
    )
    path.judge.set_blocks(scope.orchestrator.judge.blocks)
    path.on_unknown_tool = scope.orchestrator.on_unknown_tool
    return path


def _orchestrator(
    session_state: SessionState,
    lineage: tuple[Ancestor, ...],
    catalog: Catalog,
    **own: Any,
) -> Orchestrator:
    """`own`: what differs between the worker's orchestrator and those of its guests."""
    return Orchestrator(
        catalog,
        rules=session_state.rules,
        bus=session_state.bus,
        journal=session_state.journal,
        redactor=session_state.redactor,
        output_folder=session_state.home.path / "output",
        session_id=session_state.id,
        worker="/".join(each.name for each in lineage),
        worker_id=lineage[-1].id,
        gate=session_state.gate,
        project=str(session_state.program.root),
        strange_zones=session_state.program.strange_zones,
        home=session_state.home.path,
        parts=session_state.parts,
        describe_path=lambda _: tuple(each.to_wire() for each in lineage),
        **own,
    )


def check_program_block(scope: WorkerScope, notices: list[str]) -> None:
    """The program's `approval` block, held against the tools there are. Unknown names become notices."""
    approval_blocks(scope.state.program, {tool.name: tool for tool in scope.catalog}, notices)


def recover_edits(session_state: SessionState, sandbox: Sandbox) -> list[str]:
    """Patches that a crash cut in two are finished or taken back before anything else is done."""
    return [] if session_state.dry else recover_patches(session_state.home.path, sandbox)


def _emit_leftovers(session_state: SessionState, worker_id: str, after: Aftermath) -> None:
    for line in leftover_lines(after.protected_created, after.leftovers):
        session_state.bus.emit("status", {"type": "warning", "message": line.text, "code": LEFTOVERS}, worker_id)


def attach_servers(scope: WorkerScope, block: McpBlock) -> SessionServers:
    """The session's servers, those of them that the block names put before this worker. Raises ConfigError."""
    from golem_forge.agent.mcp_servers import session_servers

    if problems := check_servers(block, scope.state.program):
        raise ConfigError(*problems)
    servers = session_servers(scope.state)
    scope.server_tools = servers.tools_for(scope, block.servers)
    scope.orchestrator.on_unknown_tool = partial(load_server_of, scope)
    return servers


def sync_servers(scope: WorkerScope) -> None:
    """Updates the catalog from the lists of its servers. Cheap where nothing changed."""
    if scope.server_tools is None:
        return
    if (changes := scope.server_tools.refresh()) is not None:
        scope.emit_catalog_changed(changes)
    _warn_unknown_names(scope, scope.server_tools)


def servers_in_sync(scope: WorkerScope) -> bool:
    """Asked where `SessionServers.refresh` has just found nothing new: whether this catalog has all that is older."""
    return scope.server_tools is not None and scope.server_tools.is_current


def _warn_unknown_names(scope: WorkerScope, tools: ServerTools) -> None:
    """Warns once about each tool that forge.yaml names and its server does not have."""
    from golem_forge.agent.mcp_servers import session_servers

    if not (unchecked := session_servers(scope.state).unchecked):
        return
    for name in [name for name in unchecked if tools.lists(name) is not None]:
        said = unchecked.pop(name)
        if not tools.lists(name):
            there = {tool.name: tool for tool in scope.catalog.list(SourceKind.MCP)}
            _, (unknown,) = check_block(ApprovalBlock(tools={name: said}), there)
            scope.emit("status", {"type": "warning", "message": unknown})


async def load_server_of(scope: WorkerScope, name: str) -> bool:
    """For a call of a tool that nobody has heard of: its server may simply not have been asked yet. True: it was."""
    tools = scope.server_tools
    if tools is None or name in scope.catalog or not (server := tools.server_of(name)):
        return False
    try:
        await tools.wait_connected(server)
    except ForgeError:
        return False  # its state says why; the call is told that there is no such tool
    sync_servers(scope)
    return True
