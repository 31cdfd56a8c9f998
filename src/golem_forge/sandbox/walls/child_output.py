"""What children say, without the host's paths: a Redactor for one sandbox that also knows the session's secrets.

A zone's directory turns up in two forms: as people spell it, and as the kernel's mount table shows it, relative to the
file system it lies on. Both become the zone's address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.walls.layout import BYTECODE
from golem_forge.sandbox.zones import Zone

_TABLE: Final = "/proc/self/mountinfo"
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_FEWEST_COMPONENTS: Final = 2
"""A shorter path is an ordinary word of other paths, and says nothing about this machine."""


def output_redactor(zones: Iterable[Zone], session: Redactor | None) -> Redactor:
    made = session.copy() if session is not None else Redactor()
    table = _mounts()
    for zone in zones:
        for host in dict.fromkeys((zone.host, *zone.aliases, *_forms(zone.host, table))):
            made.add_path(host, zone.virtual(()))
        # Python names bytecode by the whole path of its source.
        made.add_path(BYTECODE + zone.host, BYTECODE + zone.virtual(()))
    return made


def _forms(host: str, table: list[tuple[str, str]]) -> Iterator[str]:
    """Other spellings of a host directory that a child can come across."""
    if escaped(host) != host:
        yield escaped(host)
    around = [(point, root) for point, root in table if host == point or host.startswith(point.rstrip("/") + "/")]
    if not around:
        return
    longest = max(len(point) for point, _ in around)
    point, root = [mount for mount in around if len(mount[0]) == longest][-1]  # the last one covers the others
    relative = root.rstrip("/") + "/" + host.removeprefix(point).lstrip("/")
    relative = relative.rstrip("/")
    if len([part for part in relative.split("/") if part]) >= _FEWEST_COMPONENTS:
        yield relative
        if escaped(relative) != relative:
            yield escaped(relative)


def escaped(path: str) -> str:
    """As the mount table writes it."""
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in path)


def _mounts() -> list[tuple[str, str]]:
    """(mount point, root of the mount within its file system) for everything mounted, in order."""
    try:
        with open(_TABLE, encoding="utf-8", errors="surrogateescape") as file:
            fields = [line.split(" ", 5) for line in file]
    except OSError:
        return []
    return [(_plain(field[4]), _plain(field[3])) for field in fields if len(field) > 5]


def _plain(written: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), written)
