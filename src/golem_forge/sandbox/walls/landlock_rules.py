"""What Landlock gives back to a child at level landlock: rules on paths, computed from what may be read.

Takes host directories that may be read and host paths that must stay masked, gives rules for the launcher. Landlock
only adds: a right on a directory holds for everything below it, so a directory with a masked path in it gets no right
of its own, its other entries get theirs, and a file made there later is unreadable. Threat: a link that leads a rule
onto a masked path; rules are made on real paths only and links get none.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK = (1 << bit for bit in range(4, 10))
_MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM, _REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(10, 16))

READING: Final = EXECUTE | READ_FILE | READ_DIR
DEVICE: Final = READ_FILE | WRITE_FILE | TRUNCATE
WRITING: Final = (
    READING
    | WRITE_FILE
    | TRUNCATE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_FIFO
    | _MAKE_SYM
    | _REFER
)
"""Everything but devices and sockets."""
ONLY_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_ETC: Final = (
    *("alternatives", "ca-certificates", "group", "hosts", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf"),
    *("os-release", "passwd", "protocols", "services", "ssl"),
    *("pki/tls/certs", "pki/tls/cert.pem", "pki/ca-trust/extracted"),
)
NAMING: Final = ("/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf")
"""How names are found in the host's network: only for a child that shares it."""
_NEVER: Final = ("/etc/ssl/private",)
"""Keys of the machine: to root they would be open."""
_PROC: Final = ("cpuinfo", "meminfo", "stat", "version")
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")

Rule = tuple[str, int]


def abi() -> int:
    """The kernel's Landlock version by its own word; 0 where there is none, or it is switched off."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(ctypes.c_long(444), None, ctypes.c_long(0), ctypes.c_long(1))))


def handled_files(version: int) -> int:
    """Every right on files this kernel can forbid."""
    bits = 16 if version >= 5 else 15 if version >= 3 else 14 if version == 2 else 13
    return (1 << bits) - 1


def rules(
    readable: Iterable[str], masked: Iterable[str], lifted: Iterable[str], private: Iterable[str]
) -> Iterator[Rule]:
    """All of them. `lifted` is readable though masked; `private` directories are the child's own, to write in."""
    hidden = sorted({real for path in (*masked, *_NEVER) for real in (os.path.abspath(path), os.path.realpath(path))})
    shown = {os.path.realpath(path) for path in (*SYSTEM, *(f"/etc/{name}" for name in _ETC), *readable)}
    for path in sorted(shown):
        yield from _reading(path, hidden)
    for path in lifted:
        yield os.path.realpath(path), READING
    for name in _PROC:
        yield f"/proc/{name}", READ_FILE
    for name in _DEVICES:
        yield f"/dev/{name}", DEVICE | (IOCTL_DEV if name == "tty" else 0)
    for path in private:
        yield os.path.realpath(path), WRITING


def _reading(path: str, masked: Sequence[str]) -> Iterator[Rule]:
    if any(_is_at_or_below(path, each) for each in masked):
        return
    below = [each for each in masked if _is_at_or_below(each, path)]
    if not below:
        yield path, READING
        return
    yield path, READ_DIR  # names only; listing a directory is not reading what is in it
    try:
        with os.scandir(path) as entries:
            names = [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return
    for each in names:
        yield from _reading(each, below)


def _is_at_or_below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")
