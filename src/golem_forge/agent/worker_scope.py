"""WorkerScope: one worker's catalog, sandbox, walls and policy, connected to the one path.

`open_scope` returns a scope with the native tools; tools of modules, sub-workers, users and MCP servers are added
before the first call (`add_tools`). A child's scope is bounded by its caller's: zones, `blocked` and the interrupt
signal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from golem_forge.agent.files.worker import Worker
from golem_forge.agent.prompt import ModelTools
from golem_forge.agent.session_plan import approval_blocks
from golem_forge.agent.session_state import SessionState
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import LEFTOVERS, leftover_lines
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.signals import InterruptSignal
from golem_forge.orchestrator.call_state import CallScope, OnEffects
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks
from golem_forge.policy.containment import walls_reason
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.evaluate import ParentPolicy
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import ProbeReport
from golem_forge.sandbox.walls.walls import Aftermath, UndoScope, Walls, WallsHost, probe_without_saving
from golem_forge.tools.catalog import Catalog, CatalogChanges, ToolSource
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.edit import recover_patches
from golem_forge.toolsets.exec import offer_outside

if TYPE_CHECKING:
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
    """The workers from the root to this one."""
    orchestrator: Orchestrator
    sandbox: Sandbox
    walls: Walls
    signal: InterruptSignal
    parent: WorkerScope | None = None
    server_tools: ServerTools | None = None
    """Its view of MCP servers; None if its file names none."""
    model_tools: ModelTools = field(init=False, repr=False)
    """Selects which of its tools are sent to its model."""
    _forget: Callable[[], None] = field(default=lambda: None, repr=False)

    def __post_init__(self) -> None:
        self.model_tools = ModelTools(self.orchestrator, self.state)

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

    def sync(self, source: ToolSource | None) -> None:
        """Updates the catalog from a source of tools and reports what changed. Cheap where nothing did."""
        if source is None or (changes := source.refresh()) is None:
            return
        if changes.added or changes.changed or changes.removed or changes.diagnostics:
            self.emit_catalog_changed(changes)
        for text in changes.warnings:
            self.emit("status", {"type": "warning", "message": text})
        for text in changes.announcements:
            self.emit("status", {"type": "info", "message": text})

    def emit_catalog_changed(self, changes: CatalogChanges, problems: Iterable[str] = ()) -> None:
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
    catalog: Catalog,
    *,
    parent: WorkerScope | None = None,
    task: str = "",
    worker_id: str = "",
    on_effects: OnEffects | None = None,
) -> WorkerScope:
    """`catalog`: with the native tools (`build_catalog`). Takes over the sandbox."""
    signal = InterruptSignal() if parent is not None else session_state.signal
    above = parent.lineage if parent is not None else ()
    link = Ancestor(id=worker_id or new_id(), name=worker.name, depth=session_state.depth + len(above), task=task)
    lineage = (*above, link)
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
        host=WallsHost(tried=probe_without_saving) if session_state.dry else None,
        undo=UndoScope(session=session_state.id, settings=program.undo),
    )
    if walls.offers_outside:
        offer_outside(catalog)
    parents: tuple[ParentPolicy, ...] = ()
    if parent is not None:
        judge = parent.orchestrator.judge
        parents = (*judge.parents, ParentPolicy(worker=parent.orchestrator.worker, blocks=judge.blocks))
    calls = CallScope(
        services=session_state,
        catalog=catalog,
        worker="/".join(each.name for each in lineage),
        worker_id=link.id,
        ancestors=tuple(each.to_wire() for each in lineage),
        parents=parents,
        blocks=ApprovalBlocks(program=block),
        sandbox=sandbox,
        walls=walls,
        signal=signal,
        grants=session_state.grants,
        on_kept=session_state.on_kept,
        on_effects=on_effects,
    )
    path = Orchestrator(calls, session_state.controller)

    def tell_walls(report: ProbeReport) -> None:
        exits = walls.exit_lines()
        session_state.bus.emit(
            "wallsReport", {**report.to_wire(), **({"exits": list(exits)} if exits else {})}, link.id
        )

    walls.on_report(tell_walls)
    if parent is None:
        walls.on_report(lambda report: _tell_not_contained(session_state, link.id, report))
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
    )
    if parent is not None:
        scope._forget = parent.signal.listen(signal.interrupt)
    return scope


def guest_orchestrator(scope: WorkerScope, approval: ApprovalController, guest: str) -> Orchestrator:
    """Returns an orchestrator for another caller of the same worker's tools, with its own approvals, memory and
    processes. `guest`: a name that no other guest has.
    """
    # What this client's person allows, no other client's call may use, in a resumed session neither.
    calls = replace(
        scope.orchestrator.scope, guest=guest, grants={}, on_kept=None, blocks=scope.orchestrator.judge.blocks
    )
    path = Orchestrator(calls, approval)
    path.resolve_stage.on_unknown_tool = scope.orchestrator.resolve_stage.on_unknown_tool
    return path


def check_program_block(scope: WorkerScope, notices: list[str]) -> None:
    """The program's `approval` block, held against the tools there are. Unknown names become notices."""
    approval_blocks(scope.state.program, {tool.name: tool for tool in scope.catalog}, notices)


def recover_edits(session_state: SessionState, sandbox: Sandbox) -> list[str]:
    """Completes or reverts patches, undos and calls that a crash interrupted, before anything else is done."""
    if session_state.dry:
        return []
    home = session_state.home.path
    said = recover_patches(home, sandbox)
    if (home / "undo").exists():
        from golem_forge.sandbox.undo.restore import recover  # loads SQLite

        said += recover(home, sandbox, session_state.program.undo)
    return said


def _tell_not_contained(session_state: SessionState, worker_id: str, report: ProbeReport) -> None:
    """Warns once that the mode `contained` asks like an interactive one if the walls are not full."""
    if session_state.controller.mode is ApprovalMode.CONTAINED and (why := walls_reason(report)):
        text = f"The approval mode is contained, but {why}. So Forge asks as in the mode interactive."
        session_state.bus.emit("status", {"type": "warning", "message": text, "code": "NOT_CONTAINED"}, worker_id)


def _emit_leftovers(session_state: SessionState, worker_id: str, after: Aftermath) -> None:
    for line in leftover_lines(after.protected_created, after.leftovers):
        session_state.bus.emit("status", {"type": "warning", "message": line.text, "code": LEFTOVERS}, worker_id)
