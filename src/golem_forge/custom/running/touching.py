"""Touching: what one call of a user tool is about to touch, before anybody is asked.

Takes the tool, the call's values and its Reach; gives a Touched that holds the files of `path` arguments open. Refuses
(SandboxError, without a prompt) a path outside of the tool's zones, or one to write where the tool only reads. Threat:
a path argument that names one file to whoever is asked and another one to the tool; it is resolved here, judged by
what it leads to, and reaches the tool as the place where that very file stands inside the walls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from golem_forge.core.effects import AtMost, Effect, Mark, Verb
from golem_forge.core.verdict import Verdict, strictest
from golem_forge.custom.entry import Entry
from golem_forge.custom.manifest import Manifest, PathUse
from golem_forge.custom.running.reach import Reach
from golem_forge.policy.rules.hosts import host_and_port
from golem_forge.sandbox.errors import SandboxError, zone_access_denied
from golem_forge.sandbox.walls.levels import Level
from golem_forge.sandbox.walls.masking import is_masked
from golem_forge.sandbox.zones import Mode, Zone

if TYPE_CHECKING:
    from golem_forge.sandbox.target import Target
    from golem_forge.sandbox.walls.settings import PathRule

ANY_HOST = "any host"
_HTTPS = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    effects: tuple[Effect, ...]
    targets: tuple[Target, ...] = ()
    """Of `path` arguments, held open until `close`."""
    paths: Mapping[str, str]
    """Parameter → where its file stands inside the walls."""

    def recheck(self) -> None:
        """After a wait: raises if a path no longer leads where it was judged to."""
        for target in self.targets:
            target.recheck()

    def close(self) -> None:
        for target in self.targets:
            target.close()

    def lifted(self, rules: Sequence[PathRule]) -> frozenset[str]:
        """Masked paths that this call's own effects name: once approved, they are visible to it."""
        return frozenset(
            effect.target
            for effect in self.effects
            if effect.verb is Verb.READ
            and is_masked(effect.outer or effect.target, secret=Mark.SECRET_PATH in effect.marks, rules=rules)
        )


def touched(entry: Entry, values: Mapping[str, Any], reach: Reach, level: Level) -> Touched:
    """`level`: of the walls it will run in. Release it with `close`. Raises SandboxError."""
    manifest = entry.manifest
    targets: list[Target] = []
    paths: dict[str, str] = {}
    own: list[Effect] = []
    try:
        for parameter in manifest.parameters:
            value = values.get(parameter.name, parameter.default)
            if parameter.path is None or value is None:
                continue
            verb = Verb.WRITE if parameter.path is PathUse.WRITE else Verb.READ
            target = _target(value, verb, reach)
            targets.append(target)
            own.append(target.effect(verb))
            paths[parameter.name] = _stands(target, reach, level)
    except BaseException:
        for target in targets:
            target.close()
        raise
    effects = (_exec(entry, reach, level), *map(_zone, reach.zones), *_net(manifest))
    if own:  # a path may be named twice, or be a zone itself
        effects = tuple(dict.fromkeys((*effects, *own)))
    return Touched(effects=effects, targets=tuple(targets), paths=paths)


def is_reader(manifest: Manifest, reach: Reach) -> bool:
    """Its place at the gate: readers run together, writers alone."""
    return reach.reads_only and not manifest.network


def hosts_of(manifest: Manifest) -> tuple[tuple[str, int], ...]:
    """(host, port) for each host the manifest names."""
    if isinstance(manifest.network, bool):
        return ()
    found = (host_and_port(text) or host_and_port(f"{text}:{_HTTPS}") for text in manifest.network)
    return tuple(dict.fromkeys(each for each in found if each is not None))


def declare_zone(zone: str) -> str:
    return f'declare "zones: {{{zone}: rw}}" in tool.yaml'


def _exec(entry: Entry, reach: Reach, level: Level) -> Effect:
    marks = (Mark.NO_WALLS,) if level is Level.OFF else ()
    target = f"{entry.name} ({entry.manifest.entrypoint})"
    limit = None if entry.manifest.network else (AtMost.READS if reach.reads_only else AtMost.WRITES)
    return Effect(verb=Verb.EXEC, target=target, marks=marks, at_most=limit)


def _zone(zone: Zone) -> Effect:
    writes = zone.mode is Mode.RW
    return Effect(
        verb=Verb.WRITE if writes else Verb.READ,
        target=zone.virtual(()),
        real=zone.host,
        # Whoever may write everywhere in a zone may delete there, too.
        zone_verdict=strictest((zone.write, zone.delete)) if writes else Verdict.PRE_APPROVED,
        outer=zone.virtual(zone.subpath) if zone.subpath else "",
    )


def _net(manifest: Manifest) -> Iterator[Effect]:
    if manifest.network is True:
        yield Effect(verb=Verb.NET, target=ANY_HOST)
    for host, port in hosts_of(manifest):
        yield Effect(verb=Verb.NET, target=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def _target(value: Any, verb: Verb, reach: Reach) -> Target:
    try:
        target = reach.sandbox.target(value, verb)
    except SandboxError as error:
        if error.code == "IS_A_DIRECTORY" and verb is Verb.WRITE and error.path != "/":
            return reach.sandbox.target(value, Verb.READ)  # to write in; that the zone is writable was seen first
        raise _with_hint(error, reach) from None
    if target.zone is None:
        target.close()
        raise zone_access_denied("/", reach.sandbox.describe_zones())
    return target


def _with_hint(error: SandboxError, reach: Reach) -> SandboxError:
    zone = error.path.split("/")[1] if error.path.startswith("/") else ""
    if error.code != "READ_ONLY_ZONE" or not reach.could_write(zone):
        return error
    text = f"Zone '/{zone}' is read-only for this tool; '{error.path}' was not changed. To write there, "
    return SandboxError(error.code, f"{text}{declare_zone(zone)}.", path=error.path, status=error.status)


def _stands(target: Target, reach: Reach, level: Level) -> str:
    assert target.zone is not None
    return os.path.join(reach.walls.stands_at(target.zone.name, level), *target.parts)
