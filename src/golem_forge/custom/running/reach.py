"""Reach: which zones one tool has of those its worker has, and the walls that hold exactly these.

Takes a manifest and the call's context, gives a Reach: every zone read-only unless the manifest names them. Refuses
before anything runs a zone that the worker lacks (ZONE_ACCESS_DENIED), `rw` where the worker has `ro`
(PERMISSION_ESCALATION), and what the walls of this machine cannot hold (WALLS_UNAVAILABLE, `must_fit`). `/user_tools`
is never among them: no tool reads or changes another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from golem_forge.core.verdict import Status
from golem_forge.custom.manifest import Manifest
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.levels import Level, WallsReport
from golem_forge.sandbox.zones import USER_TOOLS, Mode, Zone, ZoneRequest
from golem_forge.tools.context import ToolContext

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import Walls

_FIX: Final = "Run 'forge doctor' to see why full walls are missing and how to get them."
_ZoneKey = tuple[tuple[str, str], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    sandbox: Sandbox
    """Exactly the tool's zones, in its modes: paths are judged by this."""
    walls: Walls
    worker: Sandbox
    """What its worker has, for hints only."""

    @property
    def zones(self) -> tuple[Zone, ...]:
        return tuple(self.sandbox.zones.values())

    @property
    def reads_only(self) -> bool:
        """No zone is writable for it."""
        return all(zone.mode is Mode.RO for zone in self.zones)

    def workspace(self, level: Level) -> str:
        """Where the default zone stands inside the walls; empty without one."""
        zone = self.sandbox.default_zone
        return self.walls.stands_at(zone, level) if zone is not None else ""

    def could_write(self, zone: str) -> bool:
        """Whether `zones` in its tool.yaml would be enough: the worker itself may write there."""
        found = self.worker.zones.get(zone)
        return found is not None and zone != USER_TOOLS and found.mode is Mode.RW


class Reaches:
    """A part of the session: the same walls for the same zones, so that nothing is scanned for every call."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, _ZoneKey], Reach] = {}
        self._own: dict[int, tuple[Sandbox, Walls]] = {}

    def of(self, manifest: Manifest, ctx: ToolContext) -> Reach:
        sandbox = ctx.sandbox or Sandbox(has_block=False)
        walls = ctx.walls if ctx.walls is not None else self._around(sandbox, ctx)
        zones: _ZoneKey = None if manifest.zones is None else tuple(manifest.zones.items())
        key = (id(walls), zones)
        if key not in self._known:
            narrowed = _narrowed(sandbox, manifest, ctx.worker)
            inner = walls if zones is None else walls.narrowed(narrowed)
            self._known[key] = Reach(sandbox=narrowed, walls=inner, worker=sandbox)
        return self._known[key]

    def _around(self, sandbox: Sandbox, ctx: ToolContext) -> Walls:
        """For an embedder who brings no walls."""
        from golem_forge.config.home import forge_home
        from golem_forge.sandbox.walls.walls import Walls

        if id(sandbox) not in self._own:
            home = ctx.home or forge_home().path
            walls = Walls(sandbox, forge_home=home, redactor=ctx.redactor, rules=ctx.path_rules)
            self._own[id(sandbox)] = (sandbox, walls)  # the sandbox is kept too, or its id would be used again
        return self._own[id(sandbox)][1]


def reach_of(manifest: Manifest, ctx: ToolContext) -> Reach:
    """Raises SandboxError for zones that the worker cannot give."""
    return ctx.parts.get(Reaches).of(manifest, ctx)


def must_fit(report: WallsReport, manifest: Manifest) -> None:
    """Nobody is asked for what will not run. Raises SandboxError WALLS_UNAVAILABLE."""
    if report.level is Level.NONE:
        raise walls_unavailable(report.cause or "this machine has none", report.fix or _FIX)
    if report.level is not Level.LANDLOCK:
        return
    if isinstance(manifest.network, tuple) and manifest.network:
        raise walls_unavailable("network access needs full walls", report.fix or _FIX)
    for zone, mode in (manifest.zones or {}).items():
        if mode == Mode.RW:
            cause = f"this machine has read-only walls, and tool '{manifest.name}' writes in /{zone}"
            raise walls_unavailable(cause, report.fix or _FIX)
    if manifest.calls:
        cause = f"tool '{manifest.name}' calls other tools, which needs full walls"
        raise walls_unavailable(cause, report.fix or _FIX)


def must_be_testable(report: WallsReport, manifest: Manifest) -> None:
    """The same of a tool whose tests have yet to pass: each of them writes. Raises SandboxError WALLS_UNAVAILABLE."""
    if manifest.tests and report.level is Level.LANDLOCK:
        raise walls_unavailable(f"the tests of tool '{manifest.name}' need full walls", report.fix or _FIX)


def _narrowed(sandbox: Sandbox, manifest: Manifest, worker: str) -> Sandbox:
    wanted = manifest.zones
    if wanted is None:
        wanted = {name: Mode.RO for name in sandbox.zones if name != USER_TOOLS}
        if not sandbox.has_block:
            return sandbox.without_zones()
    requests = [ZoneRequest(name=name, mode=Mode(mode)) for name, mode in wanted.items()]
    default = sandbox.default_zone if sandbox.default_zone in wanted else None
    try:
        return sandbox.restricted(manifest.name, worker, requests, default_zone=default)
    except SandboxError as error:
        if error.code != "PERMISSION_ESCALATION":
            raise
        text = f"Tool '{manifest.name}' asks for more than worker '{worker}' has: {error.path} rw."
        raise SandboxError(error.code, text, path=error.path, status=Status.SANDBOX_DENIED) from None
