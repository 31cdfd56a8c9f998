"""Station: one worker's place in a session. Its catalog, sandbox, walls and policy, wired to the one path.

`open_station` gives the place with the native tools; tools that come from modules and sub-workers are added before the
first call (`admit`). A child's place is bounded by its caller's: zones, `blocked` and the interrupt signal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from golem_forge.core.errors import ConfigError
from golem_forge.core.ids import new_id
from golem_forge.core.signal import InterruptSignal
from golem_forge.orchestrator import Orchestrator
from golem_forge.orchestrator.path import OnEffects
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks, check_block
from golem_forge.policy.ceilings import Ceiling
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.edit.recovery import recover
from golem_forge.workers.catalog import build_catalog
from golem_forge.workers.tree import SessionTree
from golem_forge.workers.worker import Worker


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
    _forget: Callable[[], None] = field(default=lambda: None, repr=False)

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
    link = Link(id=worker_id or new_id(), name=worker.name, depth=len(above), task=task)
    lineage = (*above, link)
    names = "/".join(each.name for each in lineage)
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
    )
    path = Orchestrator(
        catalog,
        approval=tree.controller,
        sandbox=sandbox,
        blocks=ApprovalBlocks(program=block),
        rules=tree.rules,
        bus=tree.bus,
        journal=tree.journal,
        redactor=tree.redactor,
        output_folder=tree.home.path / "output",
        session_id=tree.id,
        worker=names,
        worker_id=link.id,
        signal=signal,
        gate=tree.gate,
        project=str(program.root),
        strange_zones=program.strange_zones,
        walls=walls,
        home=tree.home.path,
        parts=tree.parts,
        grants=tree.grants,
        on_kept=tree.on_kept,
        describe_path=lambda _: tuple(each.to_wire() for each in lineage),
        ceilings=_ceilings(parent),
        on_effects=on_effects,
    )
    walls.on_report(lambda report: tree.bus.emit("wallsReport", report.to_wire(), link.id))
    station = Station(
        tree=tree,
        worker=worker,
        lineage=lineage,
        path=path,
        sandbox=sandbox,
        walls=walls,
        signal=signal,
        parent=parent,
    )
    if parent is not None:
        station._forget = parent.signal.listen(signal.interrupt)
    return station


def check_program_block(station: Station, notices: list[str]) -> None:
    """The program's `approval` block, held against the tools there are. Unknown names become notices."""
    block = station.path.judge.blocks.program
    errors, unknown = check_block(block, {tool.name: tool for tool in station.catalog})
    if errors:
        raise ConfigError(*errors)
    notices += unknown


def mend_edits(tree: SessionTree, sandbox: Sandbox) -> list[str]:
    """Patches that a crash cut in two are finished or taken back before anything else is done."""
    return recover(tree.home.path, sandbox)


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
