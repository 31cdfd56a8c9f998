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
    """Empty outside of every zone."""
    restricted: str = ""
    """The virtual path whose restriction it is (the path itself or a directory above it)."""


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
        if _below(path, self.private) or _below(path, ("/dev",)):
            return None
        if access is Verb.READ and _below(path, self.readable):
            return None
        return Refusal(target=path, access=access, why=Why.OUTSIDE)


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
        )
    if changes and not zone.writable:
        return Refusal(
            target=zone.virtual(parts), access=access, why=Why.ZONE, zone=zone.name, restricted=zone.virtual(())
        )
    return None


def _below(path: str, directories: Sequence[str]) -> bool:
    return any(path == one or path.startswith(one.rstrip("/") + "/") for one in directories)
