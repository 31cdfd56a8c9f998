"""Both sides of one git directory: the user's own, and the private copy of it (the shadow) that commands see.

GitSides knows where they are. SyncState is what they held when they were last the same. Sync is one comparison: what
RefExchange, IndexExchange and GitExchange find out and what there is to tell afterwards.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, Final, NamedTuple

from golem_forge.core.calls import Leftover, Severity
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.sandbox.errors import one_line
from golem_forge.sandbox.git.directory import GitDir, Stamp
from golem_forge.sandbox.git.transport import Transport
from golem_forge.sandbox.handles import Parts
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.zones import Zone

MOST_NAMED: Final = 8
"""So many paths or refs are told by name."""


class SyncPhase(StrEnum):
    """What is going on inside while both sides are compared."""

    RUNNING = "running"
    """A command is at work: what is missing may only be on its way, and an operation that it began is left to it."""
    BETWEEN = "between"
    """Before a command, or between two calls of a process that serves many."""
    ENDED = "ended"
    """A command has ended: what it left is final, and told."""


StampPair = tuple[Stamp | None, Stamp | None]
"""Of the user's file and of the shadow's."""


@dataclass(slots=True)
class SyncState:
    """What both sides held when they were last the same."""

    files: dict[str, StampPair] = field(default_factory=dict)
    refs: dict[str, dict[str, str]] = field(default_factory=dict)
    """By the prefix of the git directory below `.git`."""
    told: dict[str, Any] = field(default_factory=dict)
    """What was refused already, so that it is told once."""


class WorkTree(NamedTuple):
    """Where a work tree and the zone lie to each other; one of the two begins in the other."""

    lead: Parts = ()
    """The work tree begins here in the zone."""
    below: Parts = ()
    """The zone begins here in the work tree."""

    def in_zone(self, path: bytes) -> Parts | None:
        """A path of the work tree, in the zone; None: it lies outside."""
        parts = tuple(os.fsdecode(path).split("/"))
        if parts[: len(self.below)] != self.below:
            return None
        return (*self.lead, *parts[len(self.below) :])

    def of_zone(self, parts: Parts) -> bytes | None:
        """The other way round."""
        if parts[: len(self.lead)] != self.lead or len(parts) == len(self.lead):
            return None
        return os.fsencode("/".join((*self.below, *parts[len(self.lead) :])))


@dataclass(slots=True, kw_only=True)
class GitSides:
    """One git directory: the repository's own (`prefix` is empty) or that of a submodule (`modules/x/`)."""

    zone: Zone
    prefix: str
    real: GitDir
    shadow: GitDir
    store: GitDir
    """The shadow's objects."""
    base: GitDir
    """Copies of the user's index files as they were when both sides were last the same."""
    transport: Transport
    own: str = ""
    """Below `real`: the git directory of the work tree that the zone lies in. Not empty for a linked worktree."""
    trees: dict[str, WorkTree] = field(default_factory=dict)
    """By the path of an index."""
    sparse: bool = False
    """The user has a sparse checkout."""
    weak_times: bool = False
    """The user's settings make git believe times that anybody can set."""

    crowded: bool = False
    """The store holds so much that it is emptied before the next command."""
    _listed: dict[str, tuple[Stamp, bytes]] = field(default_factory=dict)

    def listed(self, path: str, only: Collection[bytes] | None = None) -> bytes:
        """The entries of an index of the user's; kept while it does not change. `only`: those of some paths are
        enough. Raises GitFailed."""
        stamp = self.real.stamp(path)
        known = self._listed.get(path)
        if stamp is None:
            return b""
        if known is not None and known[0] == stamp:
            return known[1]
        if only is not None:
            return self.transport.entries(self.real.read(path), only)
        self._listed[path] = (stamp, self.transport.entries(self.real.read(path)))
        return self._listed[path][1]

    def expect(self, path: str, stamp: Stamp, entries: bytes) -> None:
        """What an index with this stamp holds."""
        self._listed[path] = (stamp, entries)

    def shown(self, path: str) -> str:
        whole = f"{self.prefix}{path}".rstrip("/")
        return self.zone.virtual((GIT_FILE, whole) if whole else ())


class Sync:
    def __init__(
        self, sides: GitSides, state: SyncState, when: SyncPhase, skipped: Collection[Parts] = frozenset()
    ) -> None:
        """`skipped`: paths of the zone that commands cannot read."""
        self.sides = sides
        self.state = state
        self.when = when
        self.skipped = skipped
        self.leftovers: list[Leftover] = []
        self.moved: dict[str, tuple[str | None, str | None]] = {}
        """Refs that were carried over to the user: what they were, and what they are."""
        self.gitlinks: set[Parts] = set()
        """Directories of the zone that commands added to an index as repositories of their own."""
        self.locked_paths: list[str] = []
        """What could not be written because another git has its lock, or changed it meanwhile."""
        self.leaves_zone = False
        """The command changed tracked files outside of the zone, which it cannot see."""
        self.postponed = False
        """Something was left for later: a command is at work, or git refused it."""

    def note(self, path: str, stamps: StampPair) -> None:
        """Both sides of a file are the same now."""
        if stamps == (None, None):
            self.state.files.pop(f"{self.sides.prefix}{path}", None)
        else:
            self.state.files[f"{self.sides.prefix}{path}"] = stamps

    def retry(self, path: str) -> None:
        """Somebody else wrote at the same time: a command that runs, or another git of the user's."""
        if self.when is SyncPhase.RUNNING:
            self.postponed = True
        else:
            self.locked_paths.append(f"{self.sides.prefix}{path}")

    def put_back(self, path: str, content: bytes | None, stamp: Stamp | None, *, seen: Stamp | None) -> None:
        """The shadow holds what the user has, whatever a command put in its way. `seen`: the stamp of the shadow's file
        that this was decided for. Raises GitLocked if it is another one: a command wrote meanwhile."""
        shadow = self.sides.shadow
        pieces = path.split("/")
        for length in range(1, len(pieces) + 1):
            found = shadow.look("/".join(pieces[:length]))
            expected = stat.S_ISREG if length == len(pieces) else stat.S_ISDIR
            if found is not None and not expected(found.st_mode):
                shadow.clear("/".join(pieces[:length]))
        write_side(shadow, path, content, stamp, still=lambda: shadow.stamp(path) == seen)

    def tell(self, kind: str, severity: Severity, text: str, path: str) -> None:
        shown = one_line(self.sides.shown(path))
        self.leftovers.append(Leftover(kind=kind, severity=severity, text=one_line(text), paths=(shown,)))

    def tell_once(self, key: str, value: Any, kind: str, severity: Severity, text: str) -> None:
        """Not again while `value` is the same."""
        name = f"{self.sides.prefix}{key}"
        if self.state.told.get(name) != value:
            self.state.told[name] = value
            self.tell(kind, severity, text, key)


def write_side(
    side: GitDir, path: str, content: bytes | None, stamp: Stamp | None, still: Callable[[], bool] | None = None
) -> None:
    """`stamp`: of the file that the content was read from, whose time it keeps; `still`: see `GitDir.replace`."""
    if content is None:
        side.remove(path, still=still)
        return
    found = side.look(path)
    mode = stat.S_IMODE(found.st_mode) & 0o666 if found is not None else 0
    side.replace(path, content, mode=mode or 0o644, written=stamp[2] if stamp else None, still=still)
