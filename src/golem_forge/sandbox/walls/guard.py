"""Guard: whether running walls still hide and keep what they must, though the zone changes around them.

Takes the zones and what was planned for them (`guarded`, `Newcomers`); gives a question for the watcher (`Guard`):
False once something else stands at a path that is masked or read-only, or something appeared that walls built now
would mask and that the child cannot have made itself. Threats: a mount stands on a file, not on its name: whoever saves
over `.env` from outside (an editor, `git config`) takes the mount away in all running walls; and a secret or a socket
that a person's program makes in a zone has no mount at all. What is not closed: a secret or FIFO that appears in a zone
which the child may write can be the child's own, so it is told afterwards (`secrets_made`) and not ended for.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from golem_forge.core.leftovers import Leftover, Severity
from golem_forge.core.visible import visible
from golem_forge.sandbox.access import ENTRY, Handle, identity_of
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls.budget import is_below, may_move
from golem_forge.sandbox.walls.job import Job
from golem_forge.sandbox.walls.layout import Masked, Mount
from golem_forge.sandbox.walls.planning import Planned, Planner
from golem_forge.sandbox.walls.restrictions import ZoneRestrictions, restrictions
from golem_forge.sandbox.walls.scan import EntryKind, Finding, Parts, ZoneScan
from golem_forge.sandbox.walls.settings import PathRule
from golem_forge.sandbox.zones import Zone

AT_A_LOOK: Final = 200
"""So many paths are asked for at one look; the others have their turn at the next."""
MOST_HELD: Final = 64
"""So many of them are held open; of the others only the number is known."""
_MOST_NAMED: Final = 5
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

Place = tuple[Handle | None, str]
"""A directory and a path from there; or None and an absolute one."""
Identity = tuple[int, int]


def guarded(
    zones: Iterable[Zone], held: Mapping[str, ZoneRestrictions], mounts: Iterable[Mount], masked: Iterable[str]
) -> tuple[Place, ...]:
    """`masked`: directories and files outside of zones."""
    zones = tuple(zones)
    places: set[Place] = set()
    for zone in zones:
        kept = held[zone.name]
        # What a child may take along with a directory, it may also make anew.
        free = {one.parts for one in kept.found if one.masked and kept.writable and may_move(one.parts)}
        parts = {*(one.parts for one in kept.found), *kept.pinned, *(((GIT_FILE,),) if kept.git else ())} - free
        places.update((zone.root, "/".join(each)) for each in parts)
    hosts = tuple(f"{zone.host}/" for zone in zones)
    # A zone in another one stands on a directory of that one.
    places.update((None, zone.host) for zone in zones if zone.host.startswith(hosts))
    outside = {*masked, *(mount.place for mount in mounts if isinstance(mount, Masked))}
    bases = tuple({*hosts, *(f"/{zone.name}/" for zone in zones)})
    places.update((None, path) for path in outside if not path.startswith(bases))
    return tuple(sorted(places, key=lambda place: place[1]))


class Newcomers:
    """What appears in one zone while a child lives that was planned with `held`, when the scan had found `known`."""

    def __init__(
        self,
        zone: Zone,
        scan: ZoneScan,
        held: ZoneRestrictions,
        known: tuple[Finding, ...],
        job: Job,
        rules: Callable[[], tuple[PathRule, ...]],
    ) -> None:
        self._zone = zone
        self._scan = scan
        self._held = held
        self._job = job
        self._rules = rules
        self._seen = known
        self._left_alone: set[Parts] = set()

    def are_welcome(self) -> bool:
        """False: one of them is not the child's own, and the child can use it."""
        self._scan.glance()
        found = self._scan.findings
        if found is self._seen or self._held.masked:
            return True
        before, self._seen = {one.parts for one in self._seen}, found
        if {one.parts for one in found} <= before:
            return True
        return not any(self._is_unwelcome(parts) for parts in self._unmasked())

    def _unmasked(self) -> Iterator[Parts]:
        """What walls built now would mask, and these do not."""
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


class Guards:
    """One worker's: which paths a plan guards is found out once, as long as plans stay the same."""

    def __init__(self) -> None:
        self._last: tuple[Planned, tuple[Place, ...]] | None = None

    def on(self, planned: Planned, planner: Planner, job: Job) -> Guard:
        if self._last is None or self._last[0] is not planned:
            masked = planner.toolchains.masked
            self._last = planned, guarded(planner.zones, planned.held, planned.mounts, masked)
        for zone in planner.zones:
            planner.scans[zone.name].placeholders = frozenset(planned.held[zone.name].placeholders)
        newcomers = [
            Newcomers(
                zone,
                planner.scans[zone.name],
                planned.held[zone.name],
                planned.known.get(zone.name, ()),
                job,
                planner.rules,
            )
            for zone in planner.zones
        ]
        return Guard(self._last[1], newcomers)


class Guard:
    def __init__(self, places: Sequence[Place], newcomers: Sequence[Newcomers] = ()) -> None:
        """Make it before the walls are built."""
        self._places = places
        self._newcomers = newcomers
        self._known: dict[Place, Identity] = {}
        self._held: list[Handle] = []
        """File systems give the number of a removed file to the next one at once, but not while a handle is open."""
        self._next = 0
        self._compare(self._places)

    def __call__(self) -> bool:
        start = self._next
        turn = self._places[start : start + AT_A_LOOK]
        self._next = start + AT_A_LOOK if start + AT_A_LOOK < len(self._places) else 0
        return self._compare(turn) and all(one.are_welcome() for one in self._newcomers)

    def _compare(self, places: Iterable[Place]) -> bool:
        """What is missing is not another thing: a placeholder is only made with the walls, and a directory that the
        child itself moved takes the mounts in it along."""
        for place in places:
            with contextlib.suppress(OSError, ValueError):  # a closed zone has nothing to compare with
                known = self._known.get(place)
                if known is None:
                    self._known[place] = self._learnt(place)
                elif identity_of(_stat(place)) != known:
                    return False
        return True

    def _learnt(self, place: Place) -> Identity:
        root, path = place
        if len(self._held) >= MOST_HELD:
            return identity_of(_stat(place))
        descriptor = os.open(path, ENTRY, dir_fd=root.fd if root else None)
        self._held.append(Handle(descriptor))
        return identity_of(os.fstat(descriptor))


def _stat(place: Place) -> os.stat_result:
    root, path = place
    return os.stat(path, dir_fd=root.fd if root else None, follow_symlinks=False)


def secrets_made(zone: Zone, before: Iterable[Finding], now: Iterable[Finding]) -> Iterator[Leftover]:
    """One line about secrets, FIFOs and sockets that appeared in a writable zone while a command ran. Whether the
    command made them or somebody else, nobody can tell."""
    known = {one.parts for one in before}
    made = [
        visible(zone.virtual(one.parts)).replace("\n", "\\n").replace("\t", "\\t")
        for one in now
        if (one.secret or one.kind is EntryKind.SOCKET)
        and one.parts not in known
        and one.parts[0].casefold() != GIT_FILE
    ]
    if made:
        named = ", ".join(made[:_MOST_NAMED])
        more = f" and {len(made) - _MOST_NAMED} more" if len(made) > _MOST_NAMED else ""
        text = f"Appeared while it ran, so it could read or use it, whoever made it: {named}{more}"
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
