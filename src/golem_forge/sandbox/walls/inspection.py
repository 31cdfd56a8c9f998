"""Inspection: what one command left in its zones that the person's own programs would run or obey.

Made for each start in full walls. `begin` prepares a zone, `planned` notes the moment from which changes count;
`finish`, once nothing of the command runs any more, carries over what git may have (GitShadow), sets aside or deletes
what must not stay, and keeps the rest as `leftovers`, to be told on every door. A command that runs for long is looked
after every few seconds. Only names and stats of what changed are read, so a command that changed nothing costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from golem_forge.core.errors import error_name
from golem_forge.core.leftovers import Leftover, Severity
from golem_forge.core.visible import visible
from golem_forge.sandbox.processes.tree import stat
from golem_forge.sandbox.walls.git_exchange import When
from golem_forge.sandbox.walls.git_shadow import GitShadow
from golem_forge.sandbox.walls.guard import secrets_made
from golem_forge.sandbox.walls.hidden_code import hidden_code, remove_bytecode
from golem_forge.sandbox.walls.nested import vet
from golem_forge.sandbox.walls.obeyed import told
from golem_forge.sandbox.walls.placeholder import alone_in
from golem_forge.sandbox.walls.planning import Planned, Planner
from golem_forge.sandbox.walls.scan import Finding, Parts, ScanMark, ZoneScan
from golem_forge.sandbox.zones import Zone

_LOOKS_PER_ROUND: Final = 100
"""The guard is asked every 50 ms: a repository that a running command left lying for 5 to 10 s is judged. Not sooner:
test suites make and remove repositories with hooks all the time."""
_MOST_NAMED: Final = 5
_SHARE_OF_TIME: Final = 20
"""While a command runs, commits are carried over at every look, but at most a twentieth of the time is spent on it."""
_NOTES: Final = "running"
"""In FORGE_HOME, a file for each zone in which commands run: since when, and which Forge runs them. Threat: a Forge
that is killed looks at nothing that its command left. The next one finds the note, and judges all that changed since.
A home that cannot be written costs the note, never the walls."""
_LARGEST_NOTE: Final = 4096
_running: Counter[str] = Counter()
"""How many commands of this process run in each zone, by the note's path."""


@dataclass(slots=True)
class _Watched:
    zone: Zone
    scan: ZoneScan
    shadow: GitShadow | None
    before: tuple[Finding, ...] = ()
    mark: ScanMark | None = None
    lying: frozenset[Parts] = field(default_factory=frozenset)
    """What had changed at the round before this one."""
    unseen_since: int = 0
    """Since when nobody has looked, if a Forge was killed."""
    behind: bool = False
    """The last sync of git failed."""


class Inspection:
    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._watched: list[_Watched] = []
        self.leftovers: tuple[Leftover, ...] = ()
        """Complete after `finish`."""

    def begin(self, zone: Zone) -> None:
        """Before the plan is made, for each zone that the command can write. Raises WALLS_UNAVAILABLE."""
        shadow = self._planner.prepare_git(zone)
        since = _note_start(self._planner.forge_home, zone.host)
        self._watched.append(_Watched(zone, self._planner.scans[zone.name], shadow, unseen_since=since))
        if since:
            text = (
                f"An earlier Forge was ended while a command ran in {zone.virtual(())}: what changed since then is told"
                " now."
            )
            self.leftovers += (Leftover(kind="unchecked", severity=Severity.WARNING, text=text),)

    def begin_again(self) -> None:
        """Something changed on disk while the walls were built."""
        for one in self._watched:
            if one.shadow is not None:
                one.shadow.forget_mounts()
                one.shadow.prepare()

    def planned(self, planned: Planned) -> None:
        """The zones were just looked at; from now on what changes counts."""
        for one in self._watched:
            one.before = planned.known.get(one.zone.name, ())
            one.mark = one.scan.mark_at(one.unseen_since) if one.unseen_since else one.scan.mark()

    def exchange(self) -> None:
        """Carry over now what git has on either side: where a call of a child that goes on living begins or ends."""
        for one in self._watched:
            self._sync(one, When.BETWEEN)

    def while_it_runs(self, guard: Callable[[], bool]) -> Callable[[], bool]:
        """The question of the watcher, with our own work after it: what that takes is no part of the answer."""
        looks = 0
        not_before = 0.0

        def work() -> None:
            nonlocal not_before
            began = time.monotonic()
            for one in self._watched:
                self._sync(one, When.RUNNING)
            if looks % _LOOKS_PER_ROUND == 0:
                for one in self._watched:
                    with self._telling(one):
                        changed = _changed(one)
                        self.leftovers += vet(one.zone, changed & one.lying)
                        one.lying = changed
            now = time.monotonic()
            not_before = now + (now - began) * _SHARE_OF_TIME

        def look() -> bool:
            nonlocal looks
            looks += 1
            if time.monotonic() >= not_before or looks % _LOOKS_PER_ROUND == 0:
                asyncio.get_running_loop().call_soon(work)
            return guard()

        return look if self._watched else guard

    def finish(self) -> None:
        """Once; nothing of the command runs any more, and its walls no longer occupy the zones. Each step by itself:
        whatever a command did to make one of them fail, the others are taken, and it is told."""
        watched, self._watched = self._watched, []
        for one in watched:
            changed: frozenset[Parts] = frozenset()
            with self._telling(one):
                changed = self._changes(one)
            with self._telling(one), alone_in(one.zone) as alone:
                if alone and one.shadow is not None:
                    one.shadow.remove_locks()
            self._sync(one, When.ENDED, changed)
            if one.behind:
                text = "What the command did with git could not be carried over; the next command tries again."
                self.leftovers += (Leftover(kind="git_files", severity=Severity.WARNING, text=text),)
            if one.shadow is not None:
                with self._telling(one):
                    self.leftovers += one.shadow.leftovers()
            for step in (self._vetted, self._hidden):
                with self._telling(one):
                    self.leftovers += tuple(step(one, changed))
            _note_end(self._planner.forge_home, one.zone.host)

    @contextlib.contextmanager
    def _telling(self, one: _Watched) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            text = f"What the command left in {one.zone.virtual(())} could not be checked ({error_name(error)})."
            self.leftovers += (Leftover(kind="unchecked", severity=Severity.CRITICAL, text=text),)

    def _changes(self, one: _Watched) -> frozenset[Parts]:
        """What changed in a zone; what is not known of it is told."""
        if one.mark is None:
            return frozenset()
        found = one.scan.changed_since(one.mark)
        zone = one.zone
        if found.unlisted:
            paths = tuple(sorted(visible(zone.virtual(parts)) for parts in found.unlisted)[:_MOST_NAMED])
            text = f"Closed while the command ran, so nobody can see what is in it: {', '.join(paths)}."
            self.leftovers += (Leftover(kind="unchecked", severity=Severity.CRITICAL, text=text, paths=paths),)
        if not found.complete:
            text = f"{zone.virtual(())} has too many or too deep directories: what changed in some is not known."
            self.leftovers += (Leftover(kind="unchecked", severity=Severity.WARNING, text=text),)
        return found.paths

    def _vetted(self, one: _Watched, changed: frozenset[Parts]) -> Iterator[Leftover]:
        gitlinks = one.shadow.tracked.new_gitlinks() if one.shadow is not None else ()
        if changed or gitlinks:
            yield from vet(one.zone, changed, gitlinks)
            yield from remove_bytecode(one.zone, changed)

    def _hidden(self, one: _Watched, changed: frozenset[Parts]) -> Iterator[Leftover]:
        zone = one.zone
        if changed:
            tracked = one.shadow.tracked.includes() if one.shadow is not None else _nothing_tracked
            yield from told(zone, changed)
            yield from hidden_code(zone, changed, tracked, person_ignores=self._planner.global_ignores())
        yield from secrets_made(zone, one.before, one.scan.findings)

    def _sync(self, one: _Watched, when: When, changed: Collection[Parts] = ()) -> None:
        if one.shadow is None:
            return
        try:
            one.shadow.sync(when, changed)
            one.behind = False
        except Exception:  # a hostile shadow; the next start begins with another one if it must
            one.behind = True


def _changed(one: _Watched) -> frozenset[Parts]:
    return one.scan.changed_since(one.mark).paths if one.mark is not None else frozenset()


def _nothing_tracked(parts: Parts) -> bool:
    return False


# --- notes of running commands


def _note_start(forge_home: Path, zone: str) -> int:
    """Call it before a command starts. Since when (nanoseconds since the epoch) nobody has looked at what commands left
    in this zone, because their Forge was killed; 0: there is no such moment."""
    path = _note_path(forge_home, zone)
    _running[path] += 1
    if _running[path] > 1:
        return 0
    since = _left_by_the_dead(path)
    facts = stat(os.getpid())
    said = {"since": since or time.time_ns(), "pid": os.getpid(), "started": facts.started if facts else 0}
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fresh = f"{path}.{os.getpid()}"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(said, file)
        os.replace(fresh, path)
    return since


def _note_end(forge_home: Path, zone: str) -> None:
    """Call it once what the command left has been looked at."""
    path = _note_path(forge_home, zone)
    _running[path] -= 1
    if _running[path] <= 0:
        del _running[path]
        with contextlib.suppress(OSError):
            os.unlink(path)


def _left_by_the_dead(path: str) -> int:
    try:
        with open(path, "rb") as file:
            said = json.loads(file.read(_LARGEST_NOTE))
        since, pid, started = int(said["since"]), int(said["pid"]), int(said["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    facts = stat(pid)
    return 0 if facts is not None and facts.alive and facts.started == started else since


def _note_path(forge_home: Path, zone: str) -> str:
    return os.path.join(forge_home, _NOTES, hashlib.sha256(os.fsencode(zone)).hexdigest()[:32])
