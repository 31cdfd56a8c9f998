"""Station: one worker's place in a session. Its catalog, sandbox, walls and policy, wired to the one path.

`open_station` gives the place with the native tools; tools that come from modules and sub-workers are added before the
first call (`admit`). A child's place is bounded by its caller's: zones, `blocked` and the interrupt signal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from golem_forge.core.ids import new_id
from golem_forge.core.leftovers import LEFTOVERS, leftover_lines
from golem_forge.core.signal import InterruptSignal
from golem_forge.orchestrator import Orchestrator
from golem_forge.orchestrator.approve import OnKept
from golem_forge.orchestrator.path import OnEffects
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks
from golem_forge.policy.ceilings import Ceiling
from golem_forge.policy.controller import ApprovalController
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.walled_child import Aftermath
from golem_forge.sandbox.walls.walls import Walls, tried_for_a_look
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.edit.recovery import recover
from golem_forge.workers.catalog import build_catalog
from golem_forge.workers.deferring import Deferring
from golem_forge.workers.surroundings import approval_blocks
from golem_forge.workers.tree import SessionTree
from golem_forge.workers.worker import Worker

if TYPE_CHECKING:
    from golem_forge.mcp.client.offering import ServerTools


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One worker on the way from the root to a station, as cards and events name it."""

    id: str
    name: str
    depth: int
    task: str = ""

    def to_wire(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "depth": self.depth, "task": self.task}


@dataclass(slots=True, kw_only=True)
class Station:
    tree: SessionTree
    worker: Worker
    lineage: tuple[Link, ...]
    """From the root to this worker."""
    path: Orchestrator
    sandbox: Sandbox
    walls: Walls
    signal: InterruptSignal
    parent: Station | None = None
    server_tools: ServerTools | None = None
    """What it sees of MCP servers; None: its file names none."""
    on_effects: OnEffects | None = None
    """Told what each planned call is about to touch."""
    deferring: Deferring = field(init=False, repr=False)
    """What of its tools its model is sent."""
    _forget: Callable[[], None] = field(default=lambda: None, repr=False)

    def __post_init__(self) -> None:
        self.deferring = Deferring(self)

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
        return self.path.catalog

    def admit(self, tools: Iterable[Tool], approval: Mapping[str, ApprovalBlock]) -> list[str]:
        """Adds tools, replacing those of their name, and what blocks say about them; gives a notice for each that
        cannot be offered."""
        for tool in tools:
            self.catalog.add_checked(tool, replace=True)
        blocks = self.path.judge.blocks
        self.path.judge.speak(ApprovalBlocks(program=blocks.program, blocks={**blocks.blocks, **approval}))
        return [f"tool '{bad.name}' is not offered: {bad.reason}" for bad in self.catalog.quarantined()]

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        self.tree.bus.emit(kind, data, self.id)

    def close(self) -> None:
        """The worker has ended; what its tools keep lives with the session."""
        self._forget()
        self.sandbox.close()


def open_station(
    tree: SessionTree,
    worker: Worker,
    sandbox: Sandbox,
    *,
    tools: Iterable[Tool | Callable[..., Any]] = (),
    toolsets: Mapping[str, Any] | None = None,
    parent: Station | None = None,
    task: str = "",
    worker_id: str = "",
    on_effects: OnEffects | None = None,
) -> Station:
    """`toolsets`: its native blocks; None: every native tool (the built-in worker). Takes over the sandbox."""
    signal = InterruptSignal() if parent is not None else tree.signal
    above = parent.lineage if parent is not None else ()
    link = Link(id=worker_id or new_id(), name=worker.name, depth=tree.depth + len(above), task=task)
    lineage = (*above, link)
    catalog = build_catalog(tools, toolsets)
    program = tree.program
    block = ApprovalBlock(default=program.approval.default, tools=program.approval.tools)
    _note_zones(tree, sandbox)
    walls = Walls(
        sandbox,
        program.walls,
        forge_home=tree.home.path,
        redactor=tree.redactor,
        rules=lambda: path.path_rules(),
        tried=tried_for_a_look if tree.dry else None,
    )
    path = _path(
        tree,
        lineage,
        catalog=catalog,
        sandbox=sandbox,
        walls=walls,
        approval=tree.controller,
        grants=tree.grants,
        on_kept=tree.on_kept,
        signal=signal,
        ceilings=_ceilings(parent),
        on_effects=on_effects,
    )
    path.judge.speak(ApprovalBlocks(program=block))
    walls.on_report(lambda report: tree.bus.emit("wallsReport", report.to_wire(), link.id))
    walls.on_unread(lambda after: _tell_left_behind(tree, link.id, after))
    station = Station(
        tree=tree,
        worker=worker,
        lineage=lineage,
        path=path,
        sandbox=sandbox,
        walls=walls,
        signal=signal,
        parent=parent,
        on_effects=on_effects,
    )
    if parent is not None:
        station._forget = parent.signal.listen(signal.interrupt)
    return station


def path_for_guest(station: Station, approval: ApprovalController, guest: str) -> Orchestrator:
    """The same place for somebody else who calls its tools: with approvals, a memory of them and processes of their
    own. `guest`: a name that no other guest has."""
    path = _path(
        station.tree,
        station.lineage,
        catalog=station.catalog,
        sandbox=station.sandbox,
        walls=station.walls,
        approval=approval,
        grants={},  # what this one's person allows, nobody else's call may use, in a resumed session neither
        on_kept=None,
        signal=station.signal,
        ceilings=station.path.judge.ceilings,
        on_effects=station.on_effects,
        guest=guest,
    )
    path.judge.speak(station.path.judge.blocks)
    path.look_for = station.path.look_for
    return path


def _path(
    tree: SessionTree,
    lineage: tuple[Link, ...],
    *,
    catalog: Catalog,
    sandbox: Sandbox,
    walls: Walls,
    approval: ApprovalController,
    grants: dict[str, set[str]],
    on_kept: OnKept | None,
    signal: InterruptSignal,
    ceilings: tuple[Ceiling, ...],
    on_effects: OnEffects | None,
    guest: str = "",
) -> Orchestrator:
    return Orchestrator(
        catalog,
        approval=approval,
        sandbox=sandbox,
        rules=tree.rules,
        bus=tree.bus,
        journal=tree.journal,
        redactor=tree.redactor,
        output_folder=tree.home.path / "output",
        session_id=tree.id,
        worker="/".join(each.name for each in lineage),
        worker_id=lineage[-1].id,
        signal=signal,
        gate=tree.gate,
        project=str(tree.program.root),
        strange_zones=tree.program.strange_zones,
        walls=walls,
        home=tree.home.path,
        parts=tree.parts,
        grants=grants,
        on_kept=on_kept,
        describe_path=lambda _: tuple(each.to_wire() for each in lineage),
        ceilings=ceilings,
        on_effects=on_effects,
        guest=guest,
    )


def check_program_block(station: Station, notices: list[str]) -> None:
    """The program's `approval` block, held against the tools there are. Unknown names become notices."""
    approval_blocks(station.tree.program, {tool.name: tool for tool in station.catalog}, notices)


def mend_edits(tree: SessionTree, sandbox: Sandbox) -> list[str]:
    """Patches that a crash cut in two are finished or taken back before anything else is done."""
    return [] if tree.dry else recover(tree.home.path, sandbox)


def _tell_left_behind(tree: SessionTree, worker_id: str, after: Aftermath) -> None:
    for line in leftover_lines(after.protected_created, after.leftovers):
        tree.bus.emit("status", {"type": "warning", "message": line.text, "code": LEFTOVERS}, worker_id)


def _ceilings(parent: Station | None) -> tuple[Ceiling, ...]:
    if parent is None:
        return ()
    judge = parent.path.judge
    return (*judge.ceilings, Ceiling(worker=parent.path.worker, blocks=judge.blocks))


def _note_zones(tree: SessionTree, sandbox: Sandbox) -> None:
    """Host paths that Forge itself might say become addresses."""
    for zone in sandbox.zones.values():
        for host in (zone.host, *zone.aliases):
            tree.redactor.add_path(host, f"/{zone.name}")
