"""Coverage: which paths of a zone could not be brought back if a command changed them, and why.

A zone is covered if everything in it is kept or can be made again by the tool that made it. What is neither is
read-only for a command that runs without a question; where that takes too many mounts, the zone has a `problem` and
its commands ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.sandbox.handles import Parts

MOST_READ_ONLY: Final = 40


@dataclass(frozen=True, slots=True)
class UncoveredPath:
    parts: Parts
    why: str
    """`40 MiB, above undo.max_file (32 MiB)`"""
    directory: bool = False


@dataclass(frozen=True, slots=True)
class ZoneCoverage:
    problem: str = ""
    """Why commands in this zone cannot be undone at all: `more than 200,000 entries`. Empty: they can."""
    uncovered: tuple[UncoveredPath, ...] = ()
    """At most MOST_READ_ONLY, outermost paths only: what stands here is read-only for a contained call."""

    def below(self, directory: Parts) -> ZoneCoverage:
        """The same of a zone that begins at a directory of this one."""
        depth = len(directory)
        if not depth:
            return self
        if any(directory[: len(one.parts)] == one.parts for one in self.uncovered):
            return ZoneCoverage("it lies in a directory that cannot be kept")
        inside = (one for one in self.uncovered if one.parts[:depth] == directory)
        return ZoneCoverage(
            self.problem, tuple(UncoveredPath(one.parts[depth:], one.why, one.directory) for one in inside)
        )

    def at(self, parts: Parts) -> UncoveredPath | None:
        """What of `uncovered` a path is, or lies in."""
        return next((one for one in self.uncovered if parts[: len(one.parts)] == one.parts), None)


@dataclass(frozen=True, slots=True)
class Coverage:
    zones: Mapping[str, ZoneCoverage] = field(default_factory=dict)
    """By the name of each zone that commands can write."""

    @property
    def problem(self) -> str:
        return next((f"/{name}: {one.problem}" for name, one in self.zones.items() if one.problem), "")

    @property
    def not_kept(self) -> tuple[tuple[str, UncoveredPath], ...]:
        """(zone, path in it) for `Job.not_kept`."""
        return tuple((name, one) for name, zone in self.zones.items() for one in zone.uncovered)


def fold_uncovered(found: Iterable[UncoveredPath], covered: Iterable[Parts]) -> tuple[UncoveredPath, ...] | None:
    """At most MOST_READ_ONLY of them: where there are more, directories that hold nothing else stand for what is in
    them. None: there are still too many."""
    every = {one.parts: one for one in found}
    if len(every) <= MOST_READ_ONLY:
        return tuple(sorted(every.values(), key=lambda one: one.parts))
    holds_kept = {parts[:length] for parts in covered for length in range(len(parts))}
    folded: dict[Parts, UncoveredPath] = {}
    for parts, one in every.items():
        top = next((parts[:length] for length in range(1, len(parts)) if parts[:length] not in holds_kept), parts)
        folded[top] = one if top == parts else UncoveredPath(top, one.why, directory=True)
    return tuple(sorted(folded.values(), key=lambda one: one.parts)) if len(folded) <= MOST_READ_ONLY else None
