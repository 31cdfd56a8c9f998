"""Guard: whether every path that walls mask or keep read-only is still the thing on disk they were built on.

Takes the zones and what was planned for them (`guarded`); gives a question for the watcher (`Guard`): False once
something else stands at such a path. Threat: a mount stands on a file, not on its name. Whoever saves over `.env` from
outside (an editor, `git config`) takes the mount away in all running walls, and a child would read or write the new
file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from golem_forge.sandbox.access import ENTRY, Handle, identity_of
from golem_forge.sandbox.walls.layout import Masked, Mount
from golem_forge.sandbox.walls.planning import Planned, Planner
from golem_forge.sandbox.walls.restrictions import ZoneRestrictions
from golem_forge.sandbox.zones import Zone

AT_A_LOOK: Final = 200
"""So many paths are asked for at one look; the others have their turn at the next."""
MOST_HELD: Final = 64
"""So many of them are held open; of the others only the number is known."""

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
        parts = {*(one.parts for one in kept.found), *kept.pinned}
        places.update((zone.root, "/".join(each)) for each in parts)
    hosts = tuple(f"{zone.host}/" for zone in zones)
    # A zone in another one stands on a directory of that one.
    places.update((None, zone.host) for zone in zones if zone.host.startswith(hosts))
    outside = {*masked, *(mount.place for mount in mounts if isinstance(mount, Masked))}
    bases = tuple({*hosts, *(f"/{zone.name}/" for zone in zones)})
    places.update((None, path) for path in outside if not path.startswith(bases))
    return tuple(sorted(places, key=lambda place: place[1]))


class Guards:
    """One worker's: which paths a plan guards is found out once, as long as plans stay the same."""

    def __init__(self) -> None:
        self._last: tuple[Planned, tuple[Place, ...]] | None = None

    def on(self, planned: Planned, planner: Planner) -> Guard:
        if self._last is None or self._last[0] is not planned:
            masked = planner.toolchains.masked
            self._last = planned, guarded(planner.zones, planned.held, planned.mounts, masked)
        return Guard(self._last[1])


class Guard:
    def __init__(self, places: Sequence[Place]) -> None:
        """Make it before the walls are built."""
        self._places = places
        self._known: dict[Place, Identity] = {}
        self._held: list[Handle] = []
        """File systems give the number of a removed file to the next one at once, but not while a handle is open."""
        self._next = 0
        self._compare(self._places)

    def __call__(self) -> bool:
        start = self._next
        turn = self._places[start : start + AT_A_LOOK]
        self._next = start + AT_A_LOOK if start + AT_A_LOOK < len(self._places) else 0
        return self._compare(turn)

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
