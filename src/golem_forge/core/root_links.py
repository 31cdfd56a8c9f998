"""Paths that begin anew on the way: `/proc/self/root/etc/x` is `/etc/x`, `/proc/self/cwd/x` is `x`.

Takes paths as text, asks nothing of the disk. Threat: whoever judges or hides a path by how it begins is misled by a
prefix that leads back to the root; so every such place asks here first.
"""

from __future__ import annotations

import posixpath
from typing import Final, NamedTuple

_PROCESSES: Final = frozenset({"self", "thread-self"})
"""Whoever reads the path. A process with a number may have another root."""


class ProcessLink(NamedTuple):
    """An absolute path divided at the last link of a process that it goes through."""

    name: str
    """`root` or `cwd`."""
    rest: str
    """What follows, as it is written; empty if nothing does."""
    own: bool
    """Whether every link on the way is one of the process that reads the path, whichever that is."""


def process_link(path: str) -> ProcessLink | None:
    """`/proc/<process>/root` or `/proc/<process>/cwd`, also of a thread; None: the path goes through neither."""
    if not path.startswith("/") or "proc" not in path:
        return None
    found: ProcessLink | None = None
    parts: list[str] = []
    names = path.split("/")
    for index, name in enumerate(names):
        if name in ("", "."):
            continue
        if name == "..":
            del parts[-1:]  # that of the root is the root
            continue
        parts.append(name)
        if name in ("root", "cwd") and parts[0] == "proc" and _is_of_process(parts):
            own = parts[1] in _PROCESSES and (found is None or found.own)
            found = ProcessLink(name, "/".join(names[index + 1 :]).lstrip("/"), own)
            if name == "cwd":  # what it leads to is not known here, so nothing after it can be
                return found
            parts.clear()
    return found


def from_root(path: str) -> str:
    """The path that is meant, from the root on; unchanged where it is not reached through a process."""
    link = process_link(path)
    return f"/{link.rest}" if link is not None and link.name == "root" else path


def leads_to_root(prefix: str) -> bool:
    """Whether a path goes on from the root behind this one: `/.`, `/usr/..`, `/proc/self/root`."""
    return posixpath.normpath(from_root(prefix)).strip("/") in ("", ".")


def _is_of_process(parts: list[str]) -> bool:
    return len(parts) == 3 or (len(parts) == 5 and parts[2] == "task")
