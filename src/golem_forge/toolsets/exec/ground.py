"""Ground: the sandbox and the walls that the commands of one call run in, and where exactly they start.

Tools made for an embedder may bring a sandbox of their own; its walls are built when first needed, once per session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from golem_forge.core.effects import Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.verdict import Verdict
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import Kind, Target
from golem_forge.sandbox.zones import USER_TOOLS, Mode
from golem_forge.tools.context import ToolContext

if TYPE_CHECKING:
    from golem_forge.policy.world import SandboxWorld
    from golem_forge.sandbox.walls.levels import Level
    from golem_forge.sandbox.walls.walls import Walls

NOWHERE: Final = "/home/forge"
"""Where commands of a worker without zones start: an empty private directory."""


@dataclass(frozen=True, slots=True)
class Ground:
    sandbox: Sandbox
    walls: Walls

    def world(self) -> SandboxWorld:
        """The machine as commands inside these walls find it."""
        from golem_forge.policy.world import SandboxWorld
        from golem_forge.sandbox.walls.backend import ripgrep

        return SandboxWorld(
            self.sandbox,
            self.walls.search_path(),
            shipped_rg=ripgrep(),
            complete=lambda virtual, hidden: self.walls.scan_complete(virtual, hidden=hidden),
            rules=self.walls.path_rules,
        )

    def workspace(self, level: Level) -> str:
        """Where the default zone stands for commands; empty without one."""
        zone = self.sandbox.default_zone
        return self.walls.stands_at(zone, level) if zone is not None else ""

    @property
    def writable(self) -> bool:
        """Whether there is a zone that commands may change."""
        return any(
            zone.mode is Mode.RW and Verdict.BLOCKED not in (zone.write, zone.delete)
            for zone in self.sandbox.zones.values()
            if zone.name != USER_TOOLS
        )


class OwnWalls:
    """Walls around sandboxes that no session brought; a part of the session."""

    def __init__(self) -> None:
        self._built: dict[int, tuple[Sandbox, Walls]] = {}

    def around(self, sandbox: Sandbox, ctx: ToolContext) -> Walls:
        from golem_forge.config.home import forge_home
        from golem_forge.sandbox.walls.walls import Walls

        if id(sandbox) not in self._built:
            home = ctx.home or forge_home().path
            walls = Walls(sandbox, forge_home=home, redactor=ctx.redactor, rules=ctx.path_rules)
            self._built[id(sandbox)] = (sandbox, walls)  # the sandbox is kept too, or its id would be used again
        return self._built[id(sandbox)][1]


def ground_of(sandbox: Sandbox | None, ctx: ToolContext) -> Ground:
    """`sandbox`: the tool's own; None: that of the call."""
    meant = sandbox or ctx.sandbox or Sandbox(has_block=False)
    if ctx.walls is not None and meant is ctx.sandbox:
        return Ground(meant, ctx.walls)
    return Ground(meant, ctx.parts.get(OwnWalls).around(meant, ctx))


def start_directory(workdir: str, sandbox: Sandbox) -> Target | None:
    """The directory to start in, held open; None: the private one of a worker without zones. Refuses what is none."""
    if not workdir and sandbox.default_zone is None:
        return None
    target = sandbox.target(workdir or f"/{sandbox.default_zone}", Verb.READ)
    try:
        if target.zone is None:
            raise ToolFailed(f"workdir '/' is in no zone. Zones: {sandbox.describe_zones()}")
        if target.zone.name == USER_TOOLS:
            name = target.parts[0] if target.parts else "<name>"
            raise ToolFailed(f"Forge builds user tools itself; call run_custom_tool '{name}'.")
        if target.kind is not Kind.DIRECTORY:
            is_none = "is not a directory" if target.exists else "does not exist"
            raise ToolFailed(f"workdir '{target.virtual}' {is_none}.")
    except ToolFailed:
        target.close()
        raise
    return target


def as_host_paths(word: str, cwd: str, sandbox: Sandbox) -> str:
    """A path operand as it is written where zones stand at their host directories only."""
    climbs = ".." in word.split("/")
    if not word.startswith("/") and not climbs:
        return word
    try:
        place = sandbox.locate(word if word.startswith("/") else f"{cwd}/{word}")
    except SandboxError:
        return word
    return place.zone.real(place.parts) if place.zone else word
