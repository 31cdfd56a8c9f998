"""WallPlan: what one call's walls show and refuse, as plain data. The layout is made from it, denials are judged by it.

Takes zones and what holds inside each; gives `refusal`: why a path, as the child sees it, cannot be read or changed.
Nothing here asks the disk: what the plan refuses is what was mounted, whatever happened to the disk since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from golem_forge.core.effects import Verb


class Why(StrEnum):
    """The reason of a restriction."""

    PROTECTED = "protected"
    SECRET = "secret"
    SEALED = "sealed"
    """A socket of the host, or a directory that nobody could look through: no grant lifts its mask."""
    OWN_CODE = "own_code"
    """The running Forge was loaded from it."""
    RULE = "rule"
    ZONE = "zone"
    """The whole zone is read-only for this call."""
    OUTSIDE = "outside"
    """Below no zone: a system directory, a toolchain, or something that is not there at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """One path of a zone, with all that lies below it, that a child may not read or may not change."""

    parts: tuple[str, ...]
    why: Why
    masked: bool = False
    """Neither read nor changed; otherwise only not changed."""
    directory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedZone:
    name: str
    host: str
    base: str
    """Where it stands inside the walls: its host path, or `/<name>`."""
    writable: bool
    restrictions: tuple[Restriction, ...] = ()
    lifted: tuple[tuple[str, ...], ...] = ()
    """Paths below a masked directory that this call may read all the same."""
    subpath: tuple[str, ...] = ()
    """Where it begins inside the zone that rules speak of."""
    meant_writable: bool = False
    """Its mode is `rw`, whether or not a child may write there now."""

    def virtual(self, parts: Sequence[str]) -> str:
        return "/".join(("", self.name, *parts))

    def inside(self, path: str) -> tuple[str, ...] | None:
        """The components below this zone of a path that names it by its base, its host path or its address."""
        for start in (self.base, self.host, f"/{self.name}"):
            if path == start:
                return ()
            if path.startswith(start + "/"):
                return tuple(path[len(start) + 1 :].split("/"))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What the walls refuse at one path."""

    target: str
    """Virtual where a zone has it, else as given."""
    access: Verb
    why: Why
    zone: str = ""
    """Outside of every zone: one that lies in the same directory, if any does."""
    restricted: str = ""
    """The virtual path whose restriction it is (the path itself or a directory above it)."""
    ruled: str = ""
    """The same as rules name it, which is other than the worker does where its zone begins deeper."""
    meant_writable: bool = False
    """The mode of the zone is not what refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WallPlan:
    zones: tuple[PlannedZone, ...] = ()
    cwd: str = "/"
    """The working directory as the child sees it."""
    private: tuple[str, ...] = ()
    """Writable directories of the call's own, gone afterwards."""
    readable: tuple[str, ...] = ()
    """Directories outside of zones that can be read but not changed."""
    mounted: bool = False
    """A read-only zone is a read-only mount, which refuses with no other error than that."""

    def refusal(self, path: str, access: Verb) -> Refusal | None:
        """Why this absolute, folded path cannot be read (READ) or changed (WRITE, DELETE); None: the walls allow it."""
        for zone in sorted(self.zones, key=lambda zone: len(zone.base), reverse=True):
            parts = zone.inside(path)
            if parts is not None:
                return _refusal_in(zone, parts, access)
        around = [one for one in (*self.private, "/dev", *self.readable) if _below(path, (one,))]
        innermost = max(around, key=len, default="")  # which is what stands there
        if around and (access is Verb.READ or innermost in (*self.private, "/dev")):
            return None
        directory = path.rpartition("/")[0]
        beside = (
            zone.name for zone in self.zones if _below(zone.base, (directory,)) or _below(zone.host, (directory,))
        )
        return Refusal(target=path, access=access, why=Why.OUTSIDE, zone=next(beside, ""))


def _refusal_in(zone: PlannedZone, parts: tuple[str, ...], access: Verb) -> Refusal | None:
    changes = access is not Verb.READ
    for one in zone.restrictions:
        if parts[: len(one.parts)] != one.parts:
            continue
        if not changes and (not one.masked or parts in zone.lifted):
            continue
        return Refusal(
            target=zone.virtual(parts),
            access=access,
            why=one.why,
            zone=zone.name,
            restricted=zone.virtual(one.parts),
            ruled=zone.virtual((*zone.subpath, *one.parts)),
        )
    if changes and not zone.writable:
        return Refusal(
            target=zone.virtual(parts),
            access=access,
            why=Why.ZONE,
            zone=zone.name,
            restricted=zone.virtual(()),
            meant_writable=zone.meant_writable,
        )
    return None


def _below(path: str, directories: Sequence[str]) -> bool:
    return any(path == one or path.startswith(one.rstrip("/") + "/") for one in directories)
