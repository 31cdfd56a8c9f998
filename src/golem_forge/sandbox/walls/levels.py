"""How strong the walls are on this machine, and what exactly was shown to hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    FULL = "full"
    """bubblewrap: own user, mount, pid, net, ipc and uts namespaces, and seccomp."""
    LANDLOCK = "landlock"
    """Landlock and seccomp: read-only walls."""
    NONE = "none"
    """No process runs."""
    OFF = "off"
    """The person switched walls off: processes run without, and every call that needs one asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelResult:
    """One rung of the ladder, as tried."""

    level: Level
    held: tuple[str, ...] = ()
    """Guarantees (`G1` …) whose forbidden attempt failed."""
    missing: tuple[str, ...] = ()
    """Those that were tried and did not hold."""
    untried: tuple[str, ...] = ()
    """Those that there was no time for: nothing is known about them, and another try may find that they hold."""
    cause: str = ""
    """Why this level is not reached; empty if it is."""
    fix: str = ""

    @property
    def reached(self) -> bool:
        return not self.cause


@dataclass(frozen=True, slots=True, kw_only=True)
class WallsReport:
    level: Level
    tried: tuple[LevelResult, ...] = field(default=())

    @property
    def _own(self) -> LevelResult | None:
        return next((each for each in self.tried if each.level is self.level), None)

    @property
    def held(self) -> tuple[str, ...]:
        return self._own.held if self._own else ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Of the level in force, by nature or as tried."""
        tried = self._own.missing if self._own else ()
        return (*tried, *DIFFERS) if self.level is Level.LANDLOCK else tried

    @property
    def cause(self) -> str:
        """Why the walls are not full; empty if they are."""
        failure = self._first_failure
        if failure is None:
            return ""
        return f"{failure.level} walls were {failure.cause}" if failure.untried else failure.cause

    @property
    def fix(self) -> str:
        return self._first_failure.fix if self._first_failure else ""

    @property
    def _first_failure(self) -> LevelResult | None:
        """Full walls need no excuse for a lower level that was tried beside them."""
        return None if self.level is Level.FULL else next((each for each in self.tried if each.cause), None)

    def to_wire(self) -> dict[str, Any]:
        """The data of a `wallsReport` event."""
        optional = {"cause": self.cause, "fix": self.fix}
        return {
            "level": "read-only" if self.level is Level.LANDLOCK else self.level.value,
            "guarantees": list(self.held),
            "missing": list(self.missing),
            **{name: text for name, text in optional.items() if text},
        }


DIFFERS = {"G14": "host paths are visible inside; those of zones are rewritten in output"}
"""What level landlock never gives, in words. (G1 it keeps in its own way: no zone is writable at all.)"""

GUARANTEES = {
    "G1": "writes only in rw zones and private directories",
    "G2": "reads only zones, system directories and toolchains",
    "G3": "protected paths unchanged",
    "G4": "secret paths unreadable",
    "G5": "no network",
    "G6": "no Unix socket of the host",
    "G7": "no capability, no new privileges, no remount, no nested namespace",
    "G8": "other processes out of reach",
    "G9": "dangerous system calls refused",
    "G10": "own session, away from your terminal",
    "G11": "ends when Forge ends",
    "G12": "limits on time, memory, processes, files and output",
    "G13": "empty environment, no inherited descriptor",
}
"""In words, for people."""
