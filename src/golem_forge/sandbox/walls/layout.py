"""The layout of full walls: which mounts, in which order, as plain data that `bubblewrap` turns into arguments.

Takes what the system has, toolchains, zones and their restrictions; gives Mounts. Order is what makes it hold: later
mounts stand on earlier ones, so system directories come first, then private ones, toolchains, zones from the outside
in, and last the root itself becomes read-only. Nothing here starts or opens anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls.devices import known_modes
from golem_forge.sandbox.walls.git_shadow import ShadowPlan
from golem_forge.sandbox.walls.plan import Restriction
from golem_forge.sandbox.walls.restrictions import ZoneRestrictions
from golem_forge.sandbox.walls.scan import Parts
from golem_forge.sandbox.zones import Zone

HOME: Final = "/home/forge"
EMPTY: Final = "/home/forge/work"
"""Where a child without zones starts."""
SHIPPED: Final = "/opt/forge/bin"
"""Where Forge's own programs stand."""
BYTECODE: Final = "/opt/forge/bytecode"
"""Where Python's bytecode is kept."""
TEMPORARY: Final = "/tmp"  # noqa: S108 - a private one
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the same
PRIVATE: Final = (TEMPORARY, HOME, _SHARED_MEMORY)
_ANOTHER_HOME: Final = "/opt/forge/home"
PRIVATE_BYTES: Final = 512 << 20
_SHARED_MEMORY_BYTES: Final = 256 << 20
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_ETC: Final = (
    *("alternatives", "ld.so.cache", "ssl", "ca-certificates", "localtime", "os-release", "mime.types", "services"),
    *("protocols", "pki/tls/certs", "pki/tls/cert.pem", "pki/ca-trust/extracted"),
)
_TAKEN: Final = (*SYSTEM, "/etc", "/proc", "/dev", "/sys", "/run", TEMPORARY, HOME, SHIPPED, BYTECODE, _ANOTHER_HOME)
"""No zone can stand at or above one of these."""
_NSSWITCH: Final = "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"
_LONGEST_NAMES: Final = 32 * 1024
"""Of a file that goes through a pipe."""
_NEVER_BELOW: Final = ("/proc", "/dev", "/sys")


@dataclass(frozen=True, slots=True)
class Words:
    """Arguments as they are."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A path of a zone, bound by the handle it is opened with."""

    zone: Zone
    parts: Parts
    place: str
    writable: bool = False
    directory: bool = True


@dataclass(frozen=True, slots=True)
class Brought:
    """A host directory of no zone, bound by the handle it is opened with."""

    host: str
    place: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A small file of our own."""

    place: str
    content: str


@dataclass(frozen=True, slots=True)
class Masked:
    """A file that is there, empty and unreadable."""

    place: str


@dataclass(frozen=True, slots=True)
class Empty:
    """A file that is there, empty and read-only."""

    place: str


@dataclass(frozen=True, slots=True)
class Present:
    """Not a mount: the next one is right only while this path of a zone is still there and no link."""

    zone: Zone
    parts: Parts
    directory: bool


Mount = Words | Shown | Brought | Text | Masked | Empty | Present


def system_mounts(*, uid: int, gid: int) -> tuple[Mount, ...]:
    """The empty root filled with what every child may read, and its private directories."""
    known_modes()
    return (
        Words(("--ro-bind", "/usr", "/usr")),
        *_system_directories(),
        *_processes(),
        Words(("--dev", "/dev", "--perms", "1777", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", _SHARED_MEMORY)),
        Words(("--remount-ro", "/dev")),
        Words(("--perms", "1777", "--size", str(PRIVATE_BYTES), "--tmpfs", TEMPORARY)),
        Words(("--perms", "0700", "--size", str(PRIVATE_BYTES), "--tmpfs", HOME)),
        *_etc(),
        Text(
            "/etc/passwd", _accounts(f"forge:x:{uid}:{gid}:forge:{HOME}:/bin/sh", "root:x:0:0:root:/:/bin/false", uid)
        ),
        Text("/etc/group", _accounts(f"forge:x:{gid}:", "root:x:0:", gid)),
        Text("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        Text("/etc/nsswitch.conf", _NSSWITCH),
    )


def naming_mounts() -> Iterator[Mount]:
    """How a child that shares the host's network finds names, as the host does; on top of `system_mounts`."""
    for path in ("/etc/hosts", "/etc/resolv.conf"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                yield Text(path, file.read(_LONGEST_NAMES))
        except OSError:
            continue
    yield Text("/etc/nsswitch.conf", _NSSWITCH.replace("hosts: files", "hosts: files dns"))


def kept_home_at(others: Iterable[str]) -> str:
    """Where a home that is kept stands. Threat: bubblewrap makes places for mounts below it on the host, through links
    that somebody left there; so nothing else may stand in it, which it does where the person is called forge."""
    return _ANOTHER_HOME if any(_is_at_or_below(path, HOME) for path in others) else HOME


def smallest_mounts() -> tuple[Mount, ...]:
    """What the inner stage itself needs."""
    return (
        Words(("--ro-bind", "/usr", "/usr")),
        *_system_directories(),
        Words(("--dir", EMPTY)),
    )


def shown_directories(directories: Iterable[str], masked: Iterable[str]) -> Iterator[Mount]:
    """Toolchains and declared directories, read-only at their own paths, outer before inner."""
    for directory in sorted(directories):
        yield Words(("--ro-bind-try", directory, directory))
    for path in sorted(masked):
        if os.path.islink(path) or not os.path.exists(path):
            continue
        yield from _mask_directory(path) if os.path.isdir(path) else (Masked(path),)


def stands_at(zone: Zone, names: Iterable[str]) -> str:
    """Where a zone stands inside: at its host path, unless that is asked for otherwise or taken by something else.

    `names` are those of all zones: `/<name>` always means the zone of that name.
    """
    address = zone.virtual(())
    host = zone.host
    blocked = (
        not zone.at_host_path
        or any(_is_at_or_below(taken, host) for taken in _TAKEN)
        or any(_is_at_or_below(host, never) for never in _NEVER_BELOW)
        or any(_is_at_or_below(host, f"/{name}") for name in names if name != zone.name)
        or (host != address and _is_at_or_below(host, address))
    )
    return address if blocked else host


def zone_mounts(zone: Zone, base: str, held: ZoneRestrictions) -> Iterator[Mount]:
    if held.masked:
        yield from _empty_directory(base, "0555")
    else:
        yield Shown(zone, (), base, writable=held.writable)
        restricted = {one.parts: one for one in held.found}
        for parts in sorted({*restricted, *held.pinned}, key=lambda parts: (len(parts), parts)):
            place = os.path.join(base, *parts)
            one = restricted.get(parts)
            if one is None:
                yield Shown(zone, parts, place, writable=True)
            else:
                yield from _restricted(zone, place, one, held)
    if held.git is not None and not held.masked:
        yield from _git_mounts(zone, os.path.join(base, GIT_FILE), held.git)
    if base != zone.virtual(()):
        yield Words(("--symlink", base, zone.virtual(())))


def _git_mounts(zone: Zone, place: str, git: ShadowPlan) -> Iterator[Mount]:
    """The private `.git`, and what of the person's own stands in it."""
    yield Brought(git.tree, place, writable=True)
    for mount in git.mounts:
        there = os.path.join(place, mount.path)
        if not mount.missing:
            parts = (GIT_FILE, *mount.path.split("/"))
            yield Shown(zone, parts, there, writable=mount.writable, directory=mount.directory)
        elif mount.directory:
            yield from _empty_directory(there, "0555")
        else:
            yield Empty(there)


def alias_mounts(zone: Zone, base: str, occupied: Iterable[str]) -> Iterator[Mount]:
    """Links for other spellings of a zone's host path, where nothing else stands: files have these baked in too."""
    if base != zone.host:
        return
    taken = (*occupied, *(path for path in _TAKEN if path not in PRIVATE))
    for alias in zone.aliases:
        around = alias in PRIVATE or any(_is_at_or_below(path, alias) for path in PRIVATE)
        if not around and not any(_is_at_or_below(alias, one) or _is_at_or_below(one, alias) for one in taken):
            yield Words(("--symlink", base, alias))


def closing(cwd: str) -> Words:
    return Words(("--remount-ro", "/", "--chdir", cwd))


def _restricted(zone: Zone, place: str, one: Restriction, held: ZoneRestrictions) -> Iterator[Mount]:
    if one.parts in held.placeholders:
        yield from _empty_directory(place, "0555") if one.directory else (Empty(place),)
    elif not one.masked:
        yield Shown(zone, one.parts, place, directory=one.directory)
    elif not one.directory:
        yield Present(zone, one.parts, directory=False)
        yield Masked(place)
    else:
        yield Present(zone, one.parts, directory=True)
        inside = [parts for parts in held.lifted if parts[: len(one.parts)] == one.parts]
        if not inside:
            yield from _mask_directory(place)
            return
        yield Words(("--perms", "0555", "--tmpfs", place))
        for parts in inside:
            yield Shown(zone, parts, os.path.join(place, *parts[len(one.parts) :]), directory=False)
        yield Words(("--remount-ro", place))


def _mask_directory(place: str) -> Iterator[Mount]:
    yield from _empty_directory(place, "0000")


def _empty_directory(place: str, mode: str) -> Iterator[Mount]:
    yield Words(("--perms", mode, "--size", "4096", "--tmpfs", place, "--remount-ro", place))


def _processes() -> Iterator[Mount]:
    """Threat: process 1 is bubblewrap itself, under the child's own user. Who writes its memory takes it over, and with
    it what ends the tree when Forge dies; who reads it learns how the walls were built. So nothing of it can be reached
    by name: its environment and command line, for which programs ask, are answered by the command's. Read-only, because
    what children write about themselves can hold for their whole session, and process 1 is in it (`autogroup`)."""
    yield Words(("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"))
    yield Words(("--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1"))
    yield Words(("--symlink", "../2/environ", "/proc/1/environ", "--symlink", "../2/cmdline", "/proc/1/cmdline"))
    yield Words(("--remount-ro", "/proc/1", "--remount-ro", "/proc"))


def _system_directories() -> Iterator[Mount]:
    for path in SYSTEM[1:]:
        if os.path.islink(path) and path.count("/") == 1:
            yield Words(("--symlink", os.readlink(path), path))
        elif os.path.isdir(path):
            yield Words(("--ro-bind", path, path))


def _etc() -> Iterator[Mount]:
    for name in _ETC:
        path = f"/etc/{name}"
        real = os.path.realpath(path)
        if not os.path.exists(real):
            continue
        if real.startswith("/usr/"):  # /usr is there anyway, and a link costs less than a mount
            yield Words(("--symlink", real, path))
        else:
            yield Words(("--ro-bind", real, path))
    private = os.path.realpath("/etc/ssl/private")
    if os.path.isdir(private) and private.startswith("/etc/ssl/"):  # keys, which root could read
        yield from _mask_directory(private)


def _accounts(own: str, root: str, number: int) -> str:
    """Lines of /etc/passwd or /etc/group; one line per number."""
    nobody = "nobody:x:65534:" if own.count(":") == 3 else "nobody:x:65534:65534:nobody:/:/bin/false"
    lines: Sequence[str] = (own, *(() if number == 0 else (root,)), *(() if number == 65534 else (nobody,)))
    return "\n".join((*lines, ""))


def _is_at_or_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
