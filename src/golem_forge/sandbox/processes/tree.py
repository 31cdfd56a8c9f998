"""What /proc tells about a tree of processes: who is in it, what memory and CPU time they hold.

Takes host pids. A process that is gone simply has nothing: no function here fails because somebody died meanwhile.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MEMORY_FILE: Final = "/memfd:"
_BLOCK: Final = 512
_PAGES_PER_TABLE: Final = _PAGE // 8


@dataclass(frozen=True, slots=True)
class Stat:
    """The part of `/proc/<pid>/stat` that matters here."""

    state: str
    parent: int
    group: int
    session: int
    cpu_s: float
    threads: int
    started: int
    """Clock ticks since boot: with the pid, one process and no later one of that number."""

    @property
    def alive(self) -> bool:
        return self.state not in "ZXx"


def stat(pid: int) -> Stat | None:
    text = _content(f"/proc/{pid}/stat")
    # The name may hold anything, also spaces and brackets; the fields begin after the last bracket.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    parent, group, session, threads, started = (int(fields[index]) for index in (1, 2, 3, 17, 19))
    return Stat(fields[0].decode(), parent, group, session, cpu_s, threads, started)


def children(pid: int) -> list[int]:
    """Oldest first, as far as they were started by one thread."""
    return _below()(pid)


def descendants(root: int, at_most: int | None = None) -> list[int]:
    """Everybody below `root`, not itself; the walk stops once more than `at_most` are found."""
    below = _below()
    found = [root]
    seen = {root}
    for pid in found:  # grows while it is walked
        for child in below(pid):
            if child not in seen:
                seen.add(child)
                found.append(child)
        if at_most is not None and len(found) - 1 > at_most:
            break
    return found[1:]


def in_sessions(sessions: Set[int]) -> list[int]:
    """Every living process of these sessions, wherever it hangs in the tree of the system."""
    facts = ((pid, stat(pid)) for pid in _every_pid())
    return [pid for pid, found in facts if found and found.alive and found.session in sessions]


def is_first_of_a_namespace(pid: int) -> bool:
    """Whether it is number 1 of a pid namespace below ours."""
    for line in _content(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"NSpid:"):
            numbers = line.split()[1:]
            return len(numbers) > 1 and numbers[-1] == b"1"
    return False


def carrying(marker: str) -> list[int]:
    """Every process of ours that was started with this text in its environment."""
    sought = marker.encode()
    return [pid for pid in _every_pid() if sought in _content(f"/proc/{pid}/environ")]


def resident_memory(pid: int) -> int:
    """Bytes, pages of program files among them, and what page tables may need for the addresses in use: never less than
    `own_memory`, but for the tables of many small mappings far apart."""
    fields = _content(f"/proc/{pid}/statm").split()
    return (int(fields[1]) + int(fields[0]) // _PAGES_PER_TABLE) * _PAGE if len(fields) > 1 else 0


def own_memory(pid: int) -> int:
    """Bytes that are no file's on disk, shared memory among them as far as it is mapped, and page tables; what several
    processes share counts for each. Of a file in memory (`memory_files`), only what is mapped."""
    return _kilobytes(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:", b"VmPTE:")) or 0


def page_tables(pid: int) -> int:
    """Bytes. Threat: who reads one page of every 2 MiB of an empty mapping holds no page of its own, but the tables."""
    return _kilobytes(f"/proc/{pid}/status", (b"VmPTE:",)) or 0


def proportional_memory(pid: int) -> int | None:
    """Like `own_memory`, but without page tables, and what several processes share counts once between them. Slow (the
    kernel walks the page tables), and None where the system does not tell."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))


def memory_files(pids: Iterable[int]) -> dict[int, int]:
    """Bytes by inode of the files in memory (memfd) that these have open, mapped or not. Slow: one look at every
    descriptor. Not seen: one that is on its way through a socket, and one that is closed but still mapped somewhere."""
    found: dict[int, int] = {}
    for pid in pids:
        place = f"/proc/{pid}/fd"
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            try:
                if os.readlink(f"{place}/{name}").startswith(_MEMORY_FILE):
                    info = os.stat(f"{place}/{name}")
                    found[info.st_ino] = info.st_blocks * _BLOCK
            except OSError:
                continue
    return found


def mapped_of(pid: int, inodes: Set[int]) -> int:
    """Bytes of these files in memory that `proportional_memory` counts as well. As slow as that."""
    if _MEMORY_FILE.encode() not in _content(f"/proc/{pid}/maps"):
        return 0
    held, counts = 0, False
    for line in _content(f"/proc/{pid}/smaps").splitlines():
        fields = line.split(maxsplit=5)
        if not fields[0].endswith(b":"):
            counts = len(fields) > 5 and fields[5].startswith(_MEMORY_FILE.encode()) and int(fields[4]) in inodes
        elif counts and fields[0] == b"Pss:":
            held += int(fields[1]) * 1024
    return held


def all_shared_memory() -> int:
    """Bytes of the whole system, files in memory among them: no tree has more."""
    return _kilobytes("/proc/meminfo", (b"Shmem:",)) or 0


def _kilobytes(path: str, names: tuple[bytes, ...]) -> int | None:
    """The sum of these lines, in bytes."""
    found = [int(line.split()[1]) for line in _content(path).splitlines() if line.startswith(names)]
    return sum(found) * 1024 if found else None


@functools.cache
def _kernel_lists_children() -> bool:
    return os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children")


def _below() -> Callable[[int], list[int]]:
    if _kernel_lists_children():
        return _listed
    by_parent: dict[int, list[tuple[int, int]]] = {}
    for pid in _every_pid():
        if found := stat(pid):
            by_parent.setdefault(found.parent, []).append((found.started, pid))
    return lambda pid: [child for _, child in sorted(by_parent.get(pid, []))]


def _listed(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for thread in threads for child in _content(f"/proc/{pid}/task/{thread}/children").split()]


def _every_pid() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _content(path: str) -> bytes:
    pieces: list[bytes] = []
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        while piece := os.read(file, 1 << 16):
            pieces.append(piece)
    except OSError:  # it died while it was being read
        return b""
    finally:
        os.close(file)
    return b"".join(pieces)
