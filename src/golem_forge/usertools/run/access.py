"""What one tool may access: its zones and walls, and the effects of one call, before anybody is asked.

`tool_access` takes a manifest and the call's context: every zone read-only unless the manifest names them. Refuses a
zone that the worker lacks (ZONE_ACCESS_DENIED), `rw` where the worker has `ro` (PERMISSION_ESCALATION), and what the
walls of this machine cannot hold (WALLS_UNAVAILABLE, `check_walls`). `/user_tools` is never among them: no tool reads
or changes another.

`plan_access` takes the call's values and gives its effects; it holds the files of `path` arguments open. Refuses
(SandboxError, without a prompt) a path outside of the tool's zones, or one to write where the tool only reads. Threat:
a path argument that names one file to the person who is asked and another one to the tool; it is resolved here, judged
by what it leads to, and reaches the tool as the place where that very file stands inside the walls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from golem_forge.core.decisions import Status, Verdict, strictest
from golem_forge.core.effects import ANY_HOST, AtMost, Effect, Mark, Verb
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.policy.containment import path_reasons, process_reasons, walls_reason
from golem_forge.policy.rules.model import expand_groups, host_and_port
from golem_forge.sandbox.errors import SandboxError, walls_unavailable, zone_access_denied
from golem_forge.sandbox.files import write_atomic
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import FileKind, Target
from golem_forge.sandbox.walls.model import Coverage, Level, ProbeReport, ShownPath, UncoveredPath
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode, Zone, ZoneRequest
from golem_forge.storage.home import forge_home
from golem_forge.tools.context import ToolContext
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.manifest import PathUse, ToolManifest

ASK_DOCTOR: Final = "Run 'forge doctor' to see why full walls are missing and how to get them."
_ZoneKey = tuple[tuple[str, str], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAccess:
    sandbox: Sandbox
    """Exactly the tool's zones, in its modes: paths are judged by this."""
    walls: Walls
    worker: Sandbox
    """The worker's sandbox, used for hints only."""

    @property
    def zones(self) -> tuple[Zone, ...]:
        return tuple(self.sandbox.zones.values())

    @property
    def reads_only(self) -> bool:
        """Whether no zone is writable for it."""
        return all(zone.mode is AccessMode.RO for zone in self.zones)

    def workspace(self, level: Level) -> str:
        """Returns the path of the default zone inside the walls; empty without one."""
        zone = self.sandbox.default_zone
        return self.walls.mount_point(zone, level) if zone is not None else ""

    def could_write(self, zone: str) -> bool:
        """Whether `zones` in its tool.yaml would be enough: the worker itself may write there."""
        found = self.worker.zones.get(zone)
        return found is not None and zone != USER_TOOLS and found.mode is AccessMode.RW


class ToolAccessCache:
    """A part of the session: the same walls for the same zones, so that nothing is scanned for every call."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, _ZoneKey], ToolAccess] = {}
        self._own: dict[int, tuple[Sandbox, Walls]] = {}

    def of(self, manifest: ToolManifest, ctx: ToolContext) -> ToolAccess:
        sandbox = ctx.sandbox or Sandbox(has_block=False)
        walls = ctx.walls if ctx.walls is not None else self._around(sandbox, ctx)
        zones: _ZoneKey = None if manifest.zones is None else tuple(manifest.zones.items())
        key = (id(walls), zones)
        if key not in self._known:
            narrowed = _narrow_sandbox(sandbox, manifest, ctx.worker)
            inner = walls if zones is None else walls.narrowed(narrowed)
            self._known[key] = ToolAccess(sandbox=narrowed, walls=inner, worker=sandbox)
        return self._known[key]

    def _around(self, sandbox: Sandbox, ctx: ToolContext) -> Walls:
        """Returns walls for an embedder that brings none."""
        if id(sandbox) not in self._own:
            home = ctx.home or forge_home().path
            walls = Walls(sandbox, forge_home=home, redactor=ctx.redactor, rules=ctx.path_rules)
            self._own[id(sandbox)] = (sandbox, walls)  # the sandbox is kept too, or its id would be used again
        return self._own[id(sandbox)][1]


def tool_access(manifest: ToolManifest, ctx: ToolContext) -> ToolAccess:
    """Raises SandboxError for zones that the worker cannot give."""
    return ctx.parts.get(ToolAccessCache).of(manifest, ctx)


def check_walls(report: ProbeReport, manifest: ToolManifest) -> None:
    """Refuses, before anybody is asked, what the walls cannot hold. Raises SandboxError WALLS_UNAVAILABLE."""
    if report.level is Level.NONE:
        raise walls_unavailable(report.cause or "this machine has none", report.fix or ASK_DOCTOR)
    if report.level is not Level.LANDLOCK:
        return
    written = next((zone for zone, mode in (manifest.zones or {}).items() if mode == AccessMode.RW), None)
    if isinstance(manifest.network, tuple) and manifest.network:
        cause = "network access needs full walls"
    elif written is not None:
        cause = f"this machine has read-only walls, and tool '{manifest.name}' writes in /{written}"
    elif manifest.only_paths:
        cause = f"tool '{manifest.name}' sees only the paths that it is given, which needs full walls"
    elif manifest.calls:
        cause = f"tool '{manifest.name}' calls other tools, which needs full walls"
    else:
        return
    raise walls_unavailable(cause, report.fix or ASK_DOCTOR)


def check_testable(report: ProbeReport, manifest: ToolManifest) -> None:
    """Checks that the walls allow a tool's tests, which all write. Raises SandboxError WALLS_UNAVAILABLE."""
    if manifest.tests and report.level is Level.LANDLOCK:
        raise walls_unavailable(f"the tests of tool '{manifest.name}' need full walls", report.fix or ASK_DOCTOR)


def _narrow_sandbox(sandbox: Sandbox, manifest: ToolManifest, worker: str) -> Sandbox:
    wanted = manifest.zones
    if wanted is None:
        wanted = {name: AccessMode.RO for name in sandbox.zones if name != USER_TOOLS}
        if not sandbox.has_block:
            return sandbox.without_zones()
    requests = [ZoneRequest(name=name, mode=AccessMode(mode)) for name, mode in wanted.items()]
    default = sandbox.default_zone if sandbox.default_zone in wanted else None
    try:
        return sandbox.restricted(manifest.name, worker, requests, default_zone=default)
    except SandboxError as error:
        if error.code != "PERMISSION_ESCALATION":
            raise
        text = f"Tool '{manifest.name}' asks for more than worker '{worker}' has: {error.path} rw."
        raise SandboxError(error.code, text, path=error.path, status=Status.SANDBOX_DENIED) from None


_HTTPS_PORT = 443


@dataclass(slots=True, kw_only=True)
class PlannedAccess:
    effects: tuple[Effect, ...]
    targets: tuple[Target, ...] = ()
    """Targets of `path` arguments, held open until `close`."""
    paths: Mapping[str, str]
    """Parameter → where its file stands inside the walls."""
    only: tuple[ShownPath, ...] | None = None
    """The only parts of the zones that the tool sees; None means all of its zones."""
    coverage: Coverage | None = None
    """What could not be undone if the tool changed it; set in the approval mode `contained`."""

    def not_kept(self, ctx: ToolContext) -> tuple[tuple[str, UncoveredPath], ...]:
        return self.coverage.not_kept if ctx.contained and self.coverage is not None else ()

    def recheck(self) -> None:
        """Called after a wait; raises if a path no longer leads where it was judged to."""
        for target in self.targets:
            target.recheck()

    def close(self) -> None:
        for target in self.targets:
            target.close()

    def make_missing(self) -> tuple[Target, ...]:
        """A file alone can only be shown if it is there: makes those to write that are missing, empty. Returns them.
        Raises SandboxError."""
        if self.only is None:
            return ()
        missing = tuple(each for each in self.targets if each.access is Verb.WRITE and not each.exists)
        for target in missing:
            write_atomic(target, b"")
        return missing


def plan_access(entry: ToolEntry, values: Mapping[str, Any], access: ToolAccess, level: Level) -> PlannedAccess:
    """`level`: of the walls it will run in. Release it with `close`. Raises SandboxError."""
    manifest = entry.manifest
    targets: list[Target] = []
    paths: dict[str, str] = {}
    own: list[Effect] = []
    only: list[ShownPath] = []
    try:
        for parameter in manifest.parameters:
            value = values.get(parameter.name, parameter.default)
            if parameter.path is None or value is None:
                continue
            verb = Verb.WRITE if parameter.path is PathUse.WRITE else Verb.READ
            target = _target(value, verb, access)
            targets.append(target)
            assert target.zone is not None
            effect = target.effect(verb)
            if target.kind is FileKind.DIRECTORY and verb is Verb.WRITE:  # who may write in it may delete there, too
                effect = replace(effect, zone_verdict=strictest((target.zone.write, target.zone.delete)))
            own.append(effect)
            place = access.walls.mount_point(target.zone.name, level)
            paths[parameter.name] = os.path.join(place, *target.parts)
            if target.exists or verb is Verb.WRITE:
                directory, writable = target.kind is FileKind.DIRECTORY, verb is Verb.WRITE
                only.append(ShownPath(target.zone.name, target.parts, directory, writable))
    except BaseException:
        for target in targets:
            target.close()
        raise
    alone = manifest.only_paths and level is not Level.OFF
    zones = () if alone else tuple(map(zone_effect, access.zones))
    effects = (_exec_effect(entry, access, level), *zones, *_net_effects(manifest))
    if own:  # a path may be named twice, or be a zone itself
        effects = tuple(dict.fromkeys((*effects, *own)))
    return PlannedAccess(effects=effects, targets=tuple(targets), paths=paths, only=tuple(only) if alone else None)


async def contain(planned: PlannedAccess, manifest: ToolManifest, access: ToolAccess, ctx: ToolContext) -> None:
    """Says of the effects what leaves the walls or cannot be undone, where the approval mode is `contained`."""
    if not ctx.contains:
        return
    report = await access.walls.report()
    reasons = [reason] if (reason := walls_reason(report)) else []
    if manifest.env:
        reasons.append(f"'{manifest.name}' is given variables of yours")
    if manifest.calls:
        reasons.append(f"'{manifest.name}' calls other tools")
    if report.level is Level.FULL and not access.reads_only:
        planned.coverage = await access.walls.coverage()
        reasons += process_reasons(access.zones, planned.coverage)
        for target in planned.targets:
            if target.access is Verb.WRITE:
                reasons += path_reasons(target.zone, target.parts, target.access, planned.coverage)
    leaves = tuple(dict.fromkeys(reasons))
    planned.effects = tuple(
        replace(effect, leaves=leaves) if effect.verb in (Verb.EXEC, Verb.WRITE) else effect
        for effect in planned.effects
    )


def is_read_only(manifest: ToolManifest, access: ToolAccess) -> bool:
    """Its place at the gate: readers run together, writers alone."""
    return access.reads_only and not manifest.network


def manifest_hosts(manifest: ToolManifest) -> tuple[tuple[str, int], ...]:
    """(host, port) for each host the manifest names, by itself or in a group."""
    if isinstance(manifest.network, bool):
        return ()
    declared = expand_groups(manifest.network)
    found = (host_and_port(text) or host_and_port(f"{text}:{_HTTPS_PORT}") for text in declared)
    return tuple(dict.fromkeys(each for each in found if each is not None))


def zone_hint(zone: str) -> str:
    return f'declare "zones: {{{zone}: rw}}" in tool.yaml'


def _exec_effect(entry: ToolEntry, access: ToolAccess, level: Level) -> Effect:
    marks = (Mark.NO_WALLS,) if level is Level.OFF else ()
    target = f"{entry.name} ({entry.manifest.entrypoint})"
    limit = None if entry.manifest.network else (AtMost.READS if access.reads_only else AtMost.WRITES)
    return Effect(verb=Verb.EXEC, target=target, marks=marks, at_most=limit)


def zone_effect(zone: Zone) -> Effect:
    writes = zone.mode is AccessMode.RW
    return Effect(
        verb=Verb.WRITE if writes else Verb.READ,
        target=zone.virtual(()),
        real=zone.host,
        # Whoever may write everywhere in a zone may delete there, too.
        zone_verdict=strictest((zone.write, zone.delete)) if writes else Verdict.PRE_APPROVED,
        outer=zone.virtual(zone.subpath) if zone.subpath else "",
    )


def _net_effects(manifest: ToolManifest) -> Iterator[Effect]:
    if manifest.network is True:
        yield Effect(verb=Verb.NET, target=ANY_HOST)
    for host, port in manifest_hosts(manifest):
        yield Effect(verb=Verb.NET, target=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def _target(value: Any, verb: Verb, access: ToolAccess) -> Target:
    try:
        target = access.sandbox.target(value, verb)
    except SandboxError as error:
        if error.code == "IS_A_DIRECTORY" and verb is Verb.WRITE and error.path != "/":
            return access.sandbox.target(value, Verb.READ)  # to write in; that the zone is writable was seen first
        raise _with_hint(error, access) from None
    if target.zone is None:
        target.close()
        raise zone_access_denied("/", access.sandbox.describe_zones())
    return target


def _with_hint(error: SandboxError, access: ToolAccess) -> SandboxError:
    zone = error.path.split("/")[1] if error.path.startswith("/") else ""
    if error.code != "READ_ONLY_ZONE" or not access.could_write(zone):
        return error
    text = f"Zone '/{zone}' is read-only for this tool; '{error.path}' was not changed. To write there, "
    return SandboxError(error.code, f"{text}{zone_hint(zone)}.", path=error.path, status=error.status)
