"""What a command made or changed in a zone that other programs obey: told afterwards, because it stays writable.

Takes a zone and the paths that changed, gives Leftovers of kind `obeyed_name`, one for each class of names, and one of
kind `own_code` for a link through which Forge was started. Refuses nothing. Names that walls protect are told as
`protected_created` where the scan looks; here only those that lie deeper. `Look` bounds this and every other check of
what changed.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from golem_forge.core.effects import Mark
from golem_forge.core.leftovers import Leftover, Severity
from golem_forge.core.visible import visible
from golem_forge.sandbox import protected
from golem_forge.sandbox.access import DIRECTORY
from golem_forge.sandbox.own_code import own_code_in
from golem_forge.sandbox.target import takes_the_place_of_another
from golem_forge.sandbox.walls.scan import DEPTH, Parts
from golem_forge.sandbox.zones import Zone

_MOST_PATHS: Final = 20
_MOST_NAMED: Final = 5
_MOST_LISTED: Final = 12
"""So many are named if each is by another name on our lists: a dozen harmless ones hide no `sitecustomize.py`."""
_MOST_LOOKED_AT: Final = 20_000
_ORDER_S: Final = 0.25
_LOOK_S: Final = 0.15
"""Of computing, not of waiting: what is told must not depend on what else runs on this machine."""
_PATHS_PER_CLOCK: Final = 64
_DEEPEST: Final = 64
"""Components of a directory whose rank is kept, with that of each directory above it."""


class Look:
    """The paths that changed, those that matter most first, as many as its bounds allow.

    Threat: a command that makes 100,000 files would hold up Forge, and hide one of them behind the others.
    """

    def __init__(self, changed: Iterable[Parts], matters: Callable[[str], bool] = lambda name: False) -> None:
        """First what lies outside dependency directories and has a name that others obey, or one that `matters`."""
        self._until = time.thread_time() + _ORDER_S
        ranked: tuple[list[Parts], ...] = ([], [], [])
        known: dict[Parts, int] = {(): 1}
        in_order = True
        for count, parts in enumerate(set(changed)):
            in_order = in_order and (count % _PATHS_PER_CLOCK > 0 or not self.is_over())
            rank = (known.get(parts[:-1]) or _rank(parts[:-1], known)) if in_order else 1
            if rank == 1 and in_order and parts and (matters(parts[-1]) or protected.is_listed(parts[-1])):
                rank = 0
            ranked[rank].append(parts)
        self.paths: list[Parts] = []
        for paths in ranked:
            self.paths += sorted(paths[: _MOST_LOOKED_AT - len(self.paths)])
        self._until = time.thread_time() + _LOOK_S
        self._all = sum(map(len, ranked))
        self._dependencies = len(ranked[2])
        self.unseen = 0
        """How many were left out; complete once the paths were gone through."""

    def __iter__(self) -> Iterator[Parts]:
        self.unseen = self._all
        for count, parts in enumerate(self.paths):
            if not count % _PATHS_PER_CLOCK and self.is_over():
                return
            self.unseen -= 1
            yield parts

    def is_over(self) -> bool:
        return time.thread_time() > self._until

    def rest(self, kind: str, text: str) -> Iterator[Leftover]:
        """One line about what was left out, if anything was. Of dependency directories alone it is a note: installers
        fill them with as many files."""
        if self.unseen:
            severity = Severity.NOTE if self.unseen <= self._dependencies else Severity.WARNING
            yield Leftover(kind=kind, severity=severity, text=f"{self.unseen:,} further {text}")


def told(zone: Zone, changed: Iterable[Parts]) -> Iterator[Leftover]:
    """`changed`: paths of the zone that a command made or changed; what is gone again is left out."""
    above = tuple(part for part in zone.host.split("/") if part)
    links = own_code_in(zone.host).links
    look = Look(changed)
    filled = _filled(look.paths)
    own: list[Parts] = []
    obeyed: dict[Parts, str] = {}
    instructions: dict[Parts, str] = {}
    for parts in look:
        if not parts or protected.GIT_FILE in parts:  # a branch may be called `x.pth`
            continue
        if parts in links:
            if _stands(zone, parts, filled):
                own.append(parts)
        elif Mark.PROTECTED_PATH in protected.marks((*above, *parts), unprotect=zone.unprotect):
            deeper = len(parts) > DEPTH + 1 and not protected.in_dependencies(parts)
            if deeper and _stands(zone, parts, filled):
                obeyed[parts] = "protected"
        elif protected.in_dependencies(parts):  # installers leave hundreds, which nothing reads there
            continue
        elif (name := _obeyed_by(zone, parts, above)) is not None:
            if _stands(zone, parts, filled):
                obeyed[parts] = name
        elif protected.instructions(parts) and _stands(zone, parts, filled):
            instructions[parts] = parts[-1].casefold()
    if own:
        text = "Exchanged, and your next `forge` starts through it; look where it leads before you run Forge again"
        yield _leftover(zone, "own_code", Severity.CRITICAL, text, dict.fromkeys(own, ""))
    if obeyed:
        text = "Made or changed, and other programs obey it without being told to"
        yield _leftover(zone, "obeyed_name", Severity.WARNING, text, obeyed)
    if instructions:
        text = "Made or changed, and other agents read it as instructions"
        yield _leftover(zone, "obeyed_name", Severity.WARNING, text, instructions)
    text = "paths changed while the command ran; their names were not compared with those that other programs obey"
    yield from look.rest("obeyed_name", text)


def _rank(directory: Parts, known: dict[Parts, int]) -> int:
    """Of all that lies in it: 0 if names there are obeyed, 2 in dependency directories. Adds to `known`."""
    if len(directory) > _DEEPEST:
        return 2 if protected.in_dependencies((*directory, "")) else int(not any(map(protected.is_listed, directory)))
    depth = next(depth for depth in range(len(directory), -1, -1) if directory[:depth] in known)
    rank = known[directory[:depth]]
    for length in range(depth + 1, len(directory) + 1):
        name = directory[length - 1]
        if rank != 2 and protected.in_dependencies((name, "")):
            rank = 2
        elif rank == 1 and protected.is_listed(name):
            rank = 0
        known[directory[:length]] = rank
    return rank


def _obeyed_by(zone: Zone, parts: Parts, above: Parts) -> str | None:
    name = protected.obeyed_by(parts, above)
    return parts[-1] if not name and takes_the_place_of_another(zone, parts) else name


def _filled(changed: Iterable[Parts]) -> set[Parts]:
    """Directories that something of what they hold is named of."""
    filled: set[Parts] = set()
    for above in {parts[:-1] for parts in changed}:
        while above and above not in filled:
            filled.add(above)
            above = above[:-1]
    return filled


def _stands(zone: Zone, parts: Parts, filled: set[Parts]) -> bool:
    """A directory counts only where nothing of what is in it is named: it may have been moved there whole."""
    try:
        directory = zone.open(parts[:-1], DIRECTORY)
        info = os.stat(parts[-1], dir_fd=directory.fd, follow_symlinks=False)
    except (OSError, ValueError):
        return False
    return not stat.S_ISDIR(info.st_mode) or parts not in filled


def _leftover(zone: Zone, kind: str, severity: Severity, text: str, found: dict[Parts, str]) -> Leftover:
    """`found`: each path with the name on our lists that it is obeyed by. Of each such name one comes first, and what
    has none last: many of one kind do not push the others out of sight."""
    seen: Counter[str] = Counter()
    turns: dict[Parts, tuple[bool, int]] = {}
    for parts, name in found.items():
        turns[parts] = (not name, seen[name])
        seen[name] += 1
    ordered = sorted(found, key=lambda parts: (*turns[parts], parts))
    paths = [visible(zone.virtual(parts)).replace("\n", "\\x0a").replace("\t", "\\x09") for parts in ordered]
    most = max(_MOST_NAMED, min(_MOST_LISTED, len(seen)))
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    text = f"{text}: {', '.join(paths[:most])}{more}"
    return Leftover(kind=kind, severity=severity, text=text, paths=tuple(paths[:_MOST_PATHS]))
