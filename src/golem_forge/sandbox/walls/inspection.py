"""While a command runs and after it: do the walls still hold, and what did it leave that the user's programs would
run.

Inspection is made for each start in full walls. `begin` prepares a zone, `planned` records the moment from which
changes count; `finish`, once nothing of the command runs any more, carries over what git may have (GitShadow), sets
aside or deletes what must not stay, and keeps the rest as `leftovers`. Only names and stats of what changed are
read.

MountCheck is the monitor's question: False once something else stands at a path that is masked or read-only, or
something appeared that walls built now would mask and that the child cannot have made itself. Threats: a mount
stands on a file, not on its name, so whoever saves over `.env` from outside takes the mount away in all running
walls; a secret or socket that a user's program makes in a zone has no mount at all. Not closed: a secret or FIFO
that appears in a zone which the child may write can be the child's own, so it is reported afterwards
(`secrets_made`) and nothing is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from golem_forge.core.calls import Leftover, Severity
from golem_forge.core.errors import error_name
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import display_name, escape_control_chars
from golem_forge.sandbox.git.nested import vet_repositories
from golem_forge.sandbox.git.shadow import GitShadow
from golem_forge.sandbox.git.sides import SyncPhase
from golem_forge.sandbox.handles import ENTRY, Handle, Identity, Parts, identity_of
from golem_forge.sandbox.process.monitor import process_stat
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls.changes import ScanMark
from golem_forge.sandbox.walls.directories import EntryKind, ScanFinding
from golem_forge.sandbox.walls.layout import MaskedFile, Mount
from golem_forge.sandbox.walls.leftovers import hidden_code, obeyed_leftovers, remove_bytecode
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.planner import PlannedWalls, Planner
from golem_forge.sandbox.walls.restrictions import ZoneRestrictions, is_below, may_move, restrictions
from golem_forge.sandbox.walls.scan import ZoneScan
from golem_forge.sandbox.walls.zone_lease import ZoneLease, exclusive_lock
from golem_forge.sandbox.zones import Zone, zone_key
from golem_forge.storage.home import read_json, write_private

_LOOKS_PER_ROUND: Final = 100
"""The guard is asked every 50 ms: a repository that a running command left lying for 5 to 10 s is judged. Not sooner:
test suites make and remove repositories with hooks all the time."""
_MOST_NAMED: Final = 5
_CARRY_EVERY_S: Final = 2.0
_SHARE_OF_TIME: Final = 20
"""While a command runs, its git changes are copied now and then, in at most a twentieth of the time."""
_NOTES: Final = "running"
"""In FORGE_HOME, a file for each zone in which commands run: since when, and which Forge runs them. Threat: a Forge
that is killed checks nothing that its command left. The next one finds the note and checks all that changed since. If
the home cannot be written, only the note is lost, never the walls.
"""
_LARGEST_NOTE: Final = 4096
_running: Counter[str] = Counter()
"""Number of this process's running commands in each zone, by the note's path."""


@dataclass(slots=True)
class _WatchedZone:
    zone: Zone
    scan: ZoneScan
    shadow: GitShadow | None
    before: tuple[ScanFinding, ...] = ()
    mark: ScanMark | None = None
    lying: frozenset[Parts] = field(default_factory=frozenset)
    """The paths that had changed in the previous round."""
    unseen_since: int = 0
    """Since when changes were not checked, if a Forge was killed."""
    behind: bool = False
    """Whether the last sync of git failed."""
    changed: frozenset[Parts] = field(default_factory=frozenset)
    """The changed paths, known once the command has ended."""


class Inspection:
    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._watched: list[_WatchedZone] = []
        self._carrying: asyncio.Future[None] | None = None
        self._unsaid: dict[GitShadow, set[Parts]] = {}
        self.leftovers: tuple[Leftover, ...] = ()
        """Complete after `finish`."""

    async def begin(self, zone: Zone, job: Job, lease: ZoneLease | None = None) -> None:
        """Begins to watch a zone, before the plan is made. `lease`: set for a zone that the command can write. Raises
        WALLS_UNAVAILABLE.
        """
        shadow = self._planner.open_shadow(zone, job)
        since = _note_start(self._planner.forge_home, zone.host) if lease is not None else 0
        try:
            repair = bool(since) and lease is not None and await lease.is_alone()
            if shadow is not None and (repair or not shadow.is_ready()):
                await asyncio.to_thread(shadow.prepare, repair=repair)
        except BaseException:
            if lease is not None:
                _note_end(self._planner.forge_home, zone.host)
            raise
        if lease is None:
            return
        if shadow is not None:
            shadow.begin()
        self._watched.append(_WatchedZone(zone, self._planner.scans[zone.name], shadow, unseen_since=since))
        if since:
            text = f"An earlier Forge was ended while a command ran in {zone.virtual(())}"
            self._tell("unchecked", Severity.WARNING, f"{text}: this report includes what changed since then.")

    def begin_again(self) -> None:
        """Something changed on disk while the walls were built."""
        for one in self._watched:
            if one.shadow is not None:
                one.shadow.invalidate_mounts()
                one.shadow.prepare()  # rare: something on disk changed while the walls were built

    def planned(self, planned: PlannedWalls) -> None:
        """The zones were just looked at; from now on what changes counts."""
        self._unsaid = {}
        for one in self._watched:
            one.before = planned.known.get(one.zone.name, ())
            one.mark = one.scan.mark_at(one.unseen_since) if one.unseen_since else one.scan.mark()
            unreadable = {each.parts for each in planned.held[one.zone.name].found if each.masked}
            if one.shadow is not None and not one.shadow.skips(unreadable):
                self._unsaid[one.shadow] = unreadable

    @property
    def has_unsaid(self) -> bool:
        """Whether git inside is still to hear which files the command cannot read."""
        return bool(self._unsaid)

    async def say_unreadable(self) -> None:
        """Tells git to skip unreadable files before the command starts; otherwise its `git add -A` fails. Raises
        WALLS_UNAVAILABLE.
        """
        for shadow, paths in self._unsaid.items():
            await asyncio.to_thread(shadow.skip, paths)

    async def exchange(self) -> None:
        """Carry over now what git has on either side: where a call of a child that goes on living begins or ends."""
        for one in self._watched:
            if one.shadow is not None and not one.shadow.is_ready():
                await asyncio.to_thread(self._sync, one, SyncPhase.BETWEEN)

    def while_it_runs(self, guard: Callable[[], bool]) -> Callable[[], bool]:
        """The question of the watcher, with our own work after it: what that takes is no part of the answer."""
        looks = 0
        not_before = time.monotonic() + _CARRY_EVERY_S
        loop = asyncio.get_running_loop()

        def carry() -> None:
            nonlocal not_before
            began = time.monotonic()
            for one in self._watched:
                self._sync(one, SyncPhase.RUNNING)
            now = time.monotonic()
            not_before = now + max(_CARRY_EVERY_S, (now - began) * _SHARE_OF_TIME)

        def work() -> None:
            nonlocal not_before
            stirred = any(one.shadow is not None and not one.shadow.is_ready() for one in self._watched)
            if stirred and time.monotonic() >= not_before:
                not_before = float("inf")  # until this one has ended
                self._carrying = loop.run_in_executor(None, carry)
            if looks % _LOOKS_PER_ROUND == 0:
                for one in self._watched:
                    with self._telling(one):
                        changed = one.scan.changed_since(one.mark).paths if one.mark is not None else frozenset()
                        self.leftovers += vet_repositories(one.zone, changed & one.lying)
                        one.lying = changed

        def look() -> bool:
            nonlocal looks
            looks += 1
            if time.monotonic() >= not_before or looks % _LOOKS_PER_ROUND == 0:
                loop.call_soon(work)
            return guard()

        return look if self._watched else guard

    def finish(self) -> Awaitable[None] | None:
        """Checks what a command left, once it has ended and released the zones. Each step runs by itself: if one fails,
        it is reported and the others still run. If git has work to do, that runs in a thread: await it, and only then
        `leftovers` are complete.
        """
        for one in self._watched:
            with self._telling(one):
                one.changed = self._changes(one)
        if any(one.shadow is not None and (one.changed or not one.shadow.is_ready()) for one in self._watched):
            return self._finish_in_thread()
        self._carry_all()
        self._conclude()
        return None

    async def _finish_in_thread(self) -> None:
        if self._carrying is not None:
            await asyncio.wait([self._carrying])
        await asyncio.to_thread(self._carry_all)
        self._conclude()

    def _carry_all(self) -> None:
        for one in self._watched:
            if one.shadow is not None and not one.shadow.is_ready():
                with self._telling(one), exclusive_lock(one.zone) as alone:
                    if alone:
                        one.shadow.repair()
            self._sync(one, SyncPhase.ENDED, one.changed)

    def _conclude(self) -> None:
        watched, self._watched = self._watched, []
        for one in watched:
            if one.behind:
                text = "What the command did with git could not be carried over; the next command tries again."
                self._tell("git_files", Severity.WARNING, text)
            if one.shadow is not None:
                with self._telling(one):
                    self.leftovers += one.shadow.leftovers()
            for step in (self._vetted, self._hidden):
                with self._telling(one):
                    self.leftovers += tuple(step(one, one.changed))
            _note_end(self._planner.forge_home, one.zone.host)

    @contextlib.contextmanager
    def _telling(self, one: _WatchedZone) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            text = f"What the command left in {one.zone.virtual(())} could not be checked ({error_name(error)})."
            self._tell("unchecked", Severity.CRITICAL, text)

    def _tell(self, kind: str, severity: Severity, text: str, paths: tuple[str, ...] = ()) -> None:
        self.leftovers += (Leftover(kind=kind, severity=severity, text=text, paths=paths),)

    def _changes(self, one: _WatchedZone) -> frozenset[Parts]:
        """Returns what changed in a zone; reports what could not be checked."""
        if one.mark is None:
            return frozenset()
        found = one.scan.changed_since(one.mark)
        zone = one.zone
        if found.unlisted:
            paths = tuple(sorted(escape_control_chars(zone.virtual(parts)) for parts in found.unlisted)[:_MOST_NAMED])
            text = f"Became unreadable while the command ran, so Forge could not check it: {', '.join(paths)}."
            self._tell("unchecked", Severity.CRITICAL, text, paths)
        if not found.complete:
            text = f"{zone.virtual(())} has too many or too deep directories: what changed in some is not known."
            self._tell("unchecked", Severity.WARNING, text)
        return found.paths

    def _vetted(self, one: _WatchedZone, changed: frozenset[Parts]) -> Iterator[Leftover]:
        gitlinks = one.shadow.new_gitlinks() if one.shadow is not None else ()
        if one.shadow is not None:
            one.shadow.mend_clones(changed)
        if changed or gitlinks:
            yield from vet_repositories(one.zone, changed, gitlinks)
            yield from remove_bytecode(one.zone, changed)

    def _hidden(self, one: _WatchedZone, changed: frozenset[Parts]) -> Iterator[Leftover]:
        zone = one.zone
        if changed:
            tracked = one.shadow.tracks() if one.shadow is not None else lambda parts: False
            yield from obeyed_leftovers(zone, changed)
            yield from hidden_code(zone, changed, tracked, person_ignores=self._planner.global_ignores())
        yield from secrets_made(zone, one.before, one.scan.findings)

    def _sync(self, one: _WatchedZone, when: SyncPhase, changed: Collection[Parts] = ()) -> None:
        if one.shadow is None:
            return
        try:
            one.shadow.sync(when, changed)
            one.behind = False
        except Exception:  # a hostile shadow; the next start begins with another one if it must
            one.behind = True


# --- notes of running commands


def _note_start(forge_home: Path, zone: str) -> int:
    """Call it before a command starts. Since when (nanoseconds since the epoch) nobody has looked at what commands left
    in this zone, because their Forge was killed; 0: there is no such moment."""
    path = _note_path(forge_home, zone)
    _running[path] += 1
    if _running[path] > 1:
        return 0
    since = _stale_since(path)
    said = {"since": since or time.time_ns(), "pid": os.getpid(), "started": _own_start(os.getpid())}
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_private(Path(path), json.dumps(said).encode(), durable=False)
    return since


@lru_cache(maxsize=1)
def _own_start(pid: int) -> int:
    """When this process started, by the clock of `ProcessStat.started`. Asking the system takes 50 µs of each start; a
    fork has another pid."""
    facts = process_stat(pid)
    return facts.started if facts else 0


def _note_end(forge_home: Path, zone: str) -> None:
    """Call it once what the command left has been looked at."""
    path = _note_path(forge_home, zone)
    _running[path] -= 1
    if _running[path] <= 0:
        del _running[path]
        with contextlib.suppress(OSError):
            os.unlink(path)


def _stale_since(path: str) -> int:
    try:
        said = read_json(path, _LARGEST_NOTE)
        since, pid, started = int(said["since"]), int(said["pid"]), int(said["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    facts = process_stat(pid)
    return 0 if facts is not None and facts.alive and facts.started == started else since


def _note_path(forge_home: Path, zone: str) -> str:
    return os.path.join(forge_home, _NOTES, zone_key(zone))


AT_A_LOOK: Final = 200
"""Paths that one check compares; the others follow in the next. More if there are many, so that none waits longer than
ROUND checks.
"""
ROUND: Final = 20
_PAUSE: Final = 4
"""The pause after a check, as a multiple of the time that the check took."""
MOST_HELD: Final = 64
"""Maximum number of paths that are held open; of the others only the number is known."""
_MOST_PATHS: Final = 20
_SOCKET_TABLE: Final = "/proc/self/net/unix"
_BY_FAMILY: Final = 20
_REQUEST_DUMP: Final = 0x301
_WITH_FILE: Final = 2
_FILE: Final = 1
_HEADER: Final = struct.Struct("IHHII")
_QUESTION: Final = struct.Struct("BBHIIIII")
_ANSWER: Final = struct.Struct("BBBBIII")
_ATTRIBUTE: Final = struct.Struct("HH")
_NUMBER_AND_DEVICE: Final = struct.Struct("II")

GuardedPath = tuple[Handle | None, str]
"""A directory and a path from there; or None and an absolute one."""


def guarded_paths(
    zones: Iterable[Zone], held: Mapping[str, ZoneRestrictions], mounts: Iterable[Mount], masked: Iterable[str]
) -> tuple[GuardedPath, ...]:
    """`masked`: directories and files outside of zones."""
    zones = tuple(zones)
    places: set[GuardedPath] = set()
    for zone in zones:
        kept = held[zone.name]
        # What a child may take along with a directory, it may also make anew.
        free = {one.parts for one in kept.found if one.masked and kept.writable and may_move(one.parts)}
        parts = {*(one.parts for one in kept.found), *kept.pinned, *(((GIT_FILE,),) if kept.git else ())} - free
        places.update((zone.root, "/".join(each)) for each in parts)
    hosts = tuple(f"{zone.host}/" for zone in zones)
    # A zone in another one stands on a directory of that one.
    places.update((None, zone.host) for zone in zones if zone.host.startswith(hosts))
    outside = {*masked, *(mount.place for mount in mounts if isinstance(mount, MaskedFile))}
    bases = tuple({*hosts, *(f"/{zone.name}/" for zone in zones)})
    places.update((None, path) for path in outside if not path.startswith(bases))
    return tuple(sorted(places, key=lambda place: place[1]))


class NewPathCheck:
    """Checks what appears in one zone while a child with these planned walls runs."""

    def __init__(self, zone: Zone, planner: Planner, planned: PlannedWalls, job: Job) -> None:
        self._zone = zone
        self._scan = planner.scans[zone.name]
        self._held = planned.held[zone.name]
        self._job = job
        self._rules = planner.rules
        self._seen = planned.known.get(zone.name, ())
        self._left_alone: set[Parts] = set()
        self._not_before = 0.0

    def all_harmless(self) -> bool:
        """Whether every new secret path is the child's own, or hidden from it. For 20,000 names a check takes 0.2 s; a
        pause follows, so that a command that creates one after another does not block Forge.
        """
        self._scan.refresh_briefly()
        found, began = self._scan.findings, time.monotonic()
        if found is self._seen or self._held.masked or began < self._not_before:
            return True
        before, self._seen = {one.parts for one in self._seen}, found
        if {one.parts for one in found} <= before:
            return True
        harmless = not any(self._is_unwelcome(parts) for parts in self._unmasked())
        now = time.monotonic()
        self._not_before = now + (now - began) * _PAUSE
        return harmless

    def _unmasked(self) -> Iterator[Parts]:
        """Yields the paths that walls built now would mask, and these do not."""
        try:
            rules = self._rules()
        except Exception:  # rules that cannot be read allow nothing
            rules = ()
        now = restrictions(self._zone, self._scan, rules, writable=False, lifted=self._job.lifted)
        masked = {one.parts for one in self._held.found if one.masked}
        for one in now.found:
            new = one.masked and one.parts not in masked and not is_below(one.parts, masked)
            in_shadow = self._held.git is not None and one.parts[0] == GIT_FILE
            if new and not in_shadow and one.parts not in self._left_alone:
                yield one.parts

    def _is_unwelcome(self, parts: Parts) -> bool:
        if not self._held.writable:  # the child can have made nothing here
            return True
        try:
            info = os.stat("/".join(parts), dir_fd=self._zone.root.fd, follow_symlinks=False)
        except (OSError, ValueError):
            return False
        # A child's own sockets live in its own network: whatever is bound in Forge's is somebody else's.
        apart = stat.S_ISSOCK(info.st_mode) and not self._job.shares_network
        if apart and is_bound_here(self._zone.real(parts), info):
            return True
        self._left_alone.add(parts)
        return False


def mount_check(planned: PlannedWalls, planner: Planner, job: Job) -> MountCheck:
    """Makes the check; call it before the walls are built."""
    for zone in planner.zones:
        planner.scans[zone.name].placeholders = frozenset(planned.held[zone.name].placeholders)
    places = guarded_paths(planner.zones, planned.held, planned.mounts, planner.toolchains.masked)
    return MountCheck(places, [NewPathCheck(zone, planner, planned, job) for zone in planner.zones])


class MountCheck:
    def __init__(self, places: Sequence[GuardedPath], newcomers: Sequence[NewPathCheck] = ()) -> None:
        self._places = places
        self._newcomers = newcomers
        self._known: dict[GuardedPath, Identity] = {}
        self._held: list[Handle] = []
        """File systems give the number of a removed file to the next one at once, but not while a handle is open."""
        self._next = 0
        self._compare(self._places)

    def __call__(self) -> bool:
        start, count = self._next, max(AT_A_LOOK, -(-len(self._places) // ROUND))
        turn = self._places[start : start + count]
        self._next = start + count if start + count < len(self._places) else 0
        return self._compare(turn) and all(one.all_harmless() for one in self._newcomers)

    def _compare(self, places: Iterable[GuardedPath]) -> bool:
        """Whether the paths are still the same files. A missing path is no change: a placeholder is only made with the
        walls, and a directory that the child itself moved takes the mounts in it along.
        """
        for place in places:
            with contextlib.suppress(OSError, ValueError):  # a closed zone has nothing to compare with
                known = self._known.get(place)
                if known is None:
                    self._known[place] = self._learnt(place)
                elif identity_of(_stat_path(place)) != known:
                    return False
        return True

    def _learnt(self, place: GuardedPath) -> Identity:
        root, path = place
        if len(self._held) >= MOST_HELD:
            return identity_of(_stat_path(place))
        descriptor = os.open(path, ENTRY, dir_fd=root.fd if root else None)
        self._held.append(Handle(descriptor))
        return identity_of(os.fstat(descriptor))


def _stat_path(place: GuardedPath) -> os.stat_result:
    root, path = place
    return os.stat(path, dir_fd=root.fd if root else None, follow_symlinks=False)


def secrets_made(zone: Zone, before: Iterable[ScanFinding], now: Iterable[ScanFinding]) -> Iterator[Leftover]:
    """One line about secrets, FIFOs and sockets that appeared in a writable zone while a command ran. Whether the
    command made them or somebody else, nobody can tell."""
    known = {one.parts for one in before}
    made = [
        display_name(zone.virtual(one.parts))
        for one in now
        if (one.secret or one.kind is EntryKind.SOCKET)
        and one.parts not in known
        and one.parts[0].casefold() != GIT_FILE
    ]
    if made:
        named = ", ".join(made[:_MOST_NAMED])
        more = f" and {len(made) - _MOST_NAMED} more" if len(made) > _MOST_NAMED else ""
        text = f"Appeared while the command ran, so the command could read or use it: {named}{more}"
        yield Leftover(kind="secret_made", severity=Severity.NOTE, text=text, paths=tuple(made[:_MOST_PATHS]))


def is_bound_here(path: str, info: os.stat_result) -> bool:
    """Whether a process in this process's own network has bound a Unix socket to a file. The kernel's answer by the
    file's number is exact; where it gives none, or another device than `stat`, the table of names is asked."""
    with contextlib.suppress(OSError, ValueError, struct.error):
        device = os.major(info.st_dev) << 20 | os.minor(info.st_dev)
        if (info.st_ino & 0xFFFF_FFFF, device) in set(_bound_files()):
            return True
    with contextlib.suppress(OSError), open(_SOCKET_TABLE, encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            name = line.rstrip("\n").split(maxsplit=7)[7:]
            if name == [path] or (
                name and name[0][0] not in "/@" and os.path.basename(name[0]) == os.path.basename(path)
            ):
                return True
    return False


def _bound_files() -> Iterator[tuple[int, int]]:
    """Number and device of the file of every Unix socket in this process's network (`sock_diag(7)`)."""
    question = _QUESTION.pack(socket.AF_UNIX, 0, 0, 0xFFFF_FFFF, 0, _WITH_FILE, 0xFFFF_FFFF, 0xFFFF_FFFF)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 4) as asking:
        asking.settimeout(1)
        asking.send(_HEADER.pack(_HEADER.size + len(question), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + question)
        while True:
            data = asking.recv(1 << 17)
            place = 0
            while place < len(data):
                length, kind, _, _, _ = _HEADER.unpack_from(data, place)
                if kind != _BY_FAMILY:  # the end, or an error
                    return
                yield from _file_of(data[place + _HEADER.size + _ANSWER.size : place + length])
                place += (length + 3) & ~3


def _file_of(attributes: bytes) -> Iterator[tuple[int, int]]:
    place = 0
    while place + _ATTRIBUTE.size <= len(attributes):
        length, kind = _ATTRIBUTE.unpack_from(attributes, place)
        if kind == _FILE:
            yield _NUMBER_AND_DEVICE.unpack_from(attributes, place + _ATTRIBUTE.size)
        place += max((length + 3) & ~3, _ATTRIBUTE.size)
