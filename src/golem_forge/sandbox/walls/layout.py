"""The layout of full walls: which mounts, in which order, as plain data that `bubblewrap` turns into arguments.

Takes the system's directories, toolchains, zones and their restrictions; returns Mounts. Later mounts cover earlier
ones, so system directories come first, then private ones, toolchains, zones from the outside in, and last the root
becomes read-only. Nothing here starts or opens anything. `describe_outside` reads the same mounts to say what a
child finds at a path outside of every zone.

Threat: root inside walls owns the device nodes that bubblewrap binds writable and can change their mode; their
modes are restored after each child where Forge runs as root (`restore_device_modes`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.sandbox.handles import Parts, entry_stat
from golem_forge.sandbox.host import SYSTEM, is_below
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls.exits import NO_EXITS, Exits
from golem_forge.sandbox.walls.model import Restriction, ShadowPlan
from golem_forge.sandbox.zones import Zone

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.restrictions import ZoneRestrictions

HOME: Final = "/home/forge"
CACHE: Final = "/home/forge/.cache"
"""Mount point of the kept cache of commands."""
EMPTY: Final = "/home/forge/work"
"""Working directory of a child without zones."""
SHIPPED: Final = "/opt/forge/bin"
"""Mount point of Forge's own programs."""
BYTECODE: Final = "/opt/forge/bytecode"
"""Mount point of Python's cached bytecode."""
SIGNING: Final = "/forge/sign"
"""Path of the stub by which git in a command has commits signed."""
CLONED: Final = "/forge/clone"
"""Path where git finds what Forge fetched for a clone."""
TEMPORARY: Final = "/tmp"  # noqa: S108 - a private one
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the same
PRIVATE: Final = (TEMPORARY, HOME, _SHARED_MEMORY)
_ANOTHER_HOME: Final = "/opt/forge/home"
PRIVATE_BYTES: Final = 512 << 20
_SHARED_MEMORY_BYTES: Final = 256 << 20
ETC: Final = (
    *("alternatives", "ld.so.cache", "ssl", "ca-certificates", "localtime", "os-release", "mime.types", "services"),
    *("protocols", "pki/tls/certs", "pki/tls/cert.pem", "pki/ca-trust/extracted", "maven"),
)
_TAKEN: Final = (*SYSTEM, "/etc", "/proc", "/dev", "/sys", "/run", TEMPORARY, HOME, SHIPPED, BYTECODE, _ANOTHER_HOME)
"""No zone can be mounted at or above one of these."""
_NSSWITCH: Final = "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"
_GITCONFIG: Final = """[gc]
\twriteCommitGraph = false
[fetch]
\twriteCommitGraph = false
[repack]
\tupdateServerInfo = false
[sparse]
\texpectFilesOutsideOfPatterns = true
"""
"""Settings for the private copy of a repository: `objects/info` is read-only, and files that commands cannot read count
as unchanged.
"""
_LONGEST_NAMES: Final = 32 * 1024
"""Maximum size of a file that is passed through a pipe."""
_SHARES_OF_INOTIFY: Final = {"instances": 8, "watches": 2}
"""Divisors for the part of the person's inotify limits that one call may use: an eighth of the 128 instances, half of
the watches.
"""
_NEVER_BELOW: Final = ("/proc", "/dev", "/sys")
_MASKED: Final = "0000"


@dataclass(frozen=True, slots=True)
class RawArguments:
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ZoneMount:
    """A path of a zone, bound by the handle it is opened with."""

    zone: Zone
    parts: Parts
    place: str
    writable: bool = False
    directory: bool = True


@dataclass(frozen=True, slots=True)
class HostMount:
    """A host directory of no zone, bound by the handle it is opened with."""

    host: str
    place: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class TextMount:
    """A mount of a small file with given content."""

    place: str
    content: str


@dataclass(frozen=True, slots=True)
class MaskedFile:
    """A mount that makes a file empty and unreadable."""

    place: str


@dataclass(frozen=True, slots=True)
class MaskedDirectory:
    """A directory that is there, empty and unreadable."""

    place: str


@dataclass(frozen=True, slots=True)
class EmptyFile:
    """A mount that makes a file empty and read-only."""

    place: str


@dataclass(frozen=True, slots=True)
class ExpectedPath:
    """Not a mount, but a condition: the next mount is right only while this path of a zone exists and is no link."""

    zone: Zone
    parts: Parts
    directory: bool


Mount = RawArguments | ZoneMount | HostMount | TextMount | MaskedFile | MaskedDirectory | EmptyFile | ExpectedPath


def system_mounts(*, uid: int, gid: int, exits: Exits = NO_EXITS) -> tuple[Mount, ...]:
    """The empty root filled with what every child may read, and its private directories; with the devices of `exits`,
    for which there must be places before /dev becomes read-only."""
    remember_device_modes((*(f"/dev/{name}" for name in DEVICES), *exits.devices))
    return (
        RawArguments(("--ro-bind", "/usr", "/usr")),
        *_system_directories(),
        *_proc_mounts(exits),
        RawArguments(
            ("--dev", "/dev", "--perms", "1777", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", _SHARED_MEMORY)
        ),
        *(RawArguments(("--dev-bind", device, device)) for device in exits.devices),
        *(RawArguments(("--symlink", node, place)) for place, node in exits.links),
        RawArguments(("--remount-ro", "/dev")),
        RawArguments(("--perms", "1777", "--size", str(PRIVATE_BYTES), "--tmpfs", TEMPORARY)),
        RawArguments(("--perms", "0700", "--size", str(PRIVATE_BYTES), "--tmpfs", HOME)),
        *_etc_mounts(),
        TextMount(
            "/etc/passwd", _accounts(f"forge:x:{uid}:{gid}:forge:{HOME}:/bin/sh", "root:x:0:0:root:/:/bin/false", uid)
        ),
        TextMount("/etc/group", _accounts(f"forge:x:{gid}:", "root:x:0:", gid)),
        TextMount("/etc/gitconfig", _GITCONFIG),
        TextMount("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        TextMount("/etc/nsswitch.conf", _NSSWITCH),
    )


def naming_mounts() -> Iterator[Mount]:
    """Yields the files for name lookup of a child that shares the host's network; on top of `system_mounts`."""
    for path in ("/etc/hosts", "/etc/resolv.conf"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                yield TextMount(path, file.read(_LONGEST_NAMES))
        except OSError:
            continue
    yield TextMount("/etc/nsswitch.conf", _NSSWITCH.replace("hosts: files", "hosts: files dns"))


def exit_mounts(exits: Exits) -> Iterator[Mount]:
    """Sockets of the host, and what drivers of its devices read; on top of everything else."""
    for path in exits.readable:
        yield RawArguments(("--ro-bind-try", path, path))
    for socket in exits.sockets:
        yield from (RawArguments(("--ro-bind", socket.host, place)) for place in socket.places)


def kept_home_mount_point(others: Iterable[str]) -> str:
    """Returns the mount point of a home that is kept. Threat: bubblewrap makes places for mounts below it on the host,
    through links that somebody left there; so nothing else may stand in it, which it does where the person is called
    forge.
    """
    return _ANOTHER_HOME if any(is_below(path, HOME) for path in others) else HOME


def smallest_mounts() -> tuple[RawArguments, ...]:
    """Returns the mounts that the inner stage itself needs."""
    return (
        RawArguments(("--ro-bind", "/usr", "/usr")),
        *_system_directories(),
        RawArguments(("--dir", EMPTY)),
    )


def shown_directories(directories: Iterable[str], masked: Iterable[str]) -> Iterator[Mount]:
    """Toolchains and declared directories, read-only at their own paths, outer before inner."""
    for directory in sorted(directories):
        yield RawArguments(("--ro-bind-try", directory, directory))
    for path in sorted(masked):
        if os.path.islink(path) or not os.path.exists(path):
            continue
        yield MaskedDirectory(path) if os.path.isdir(path) else MaskedFile(path)


def zone_mount_point(zone: Zone, names: Iterable[str]) -> str:
    """Returns the mount point of a zone: its host path, unless that is configured otherwise or taken by something else.

    `names` are those of all zones: `/<name>` always means the zone of that name.
    """
    address = zone.virtual(())
    host = zone.host
    blocked = (
        not zone.at_host_path
        or any(is_below(taken, host) for taken in _TAKEN)
        or any(is_below(host, never) for never in _NEVER_BELOW)
        or any(is_below(host, f"/{name}") for name in names if name != zone.name)
        or (host != address and is_below(host, address))
    )
    return address if blocked else host


def zone_mounts(zone: Zone, base: str, held: ZoneRestrictions) -> Iterator[Mount]:
    if held.masked:
        yield from _empty_directory(base, "0555")
    elif held.shown is not None:
        yield RawArguments(("--perms", "0555", "--tmpfs", base))
        for root in held.shown:
            place = os.path.join(base, *root.parts)
            yield ZoneMount(zone, root.parts, place, writable=root.writable, directory=root.directory)
            yield from _mounts_below(zone, base, held, root.parts, writable=root.writable)
        yield RawArguments(("--remount-ro", base))
    else:
        yield ZoneMount(zone, (), base, writable=held.writable)
        yield from _mounts_below(zone, base, held, (), writable=held.writable)
    if held.git is not None and not held.masked and not held.git.outside:
        yield from git_mounts(zone, os.path.join(base, GIT_FILE), held.git)
    if base != zone.virtual(()):
        yield RawArguments(("--symlink", base, zone.virtual(())))


def _mounts_below(zone: Zone, base: str, held: ZoneRestrictions, root: Parts, *, writable: bool) -> Iterator[Mount]:
    """Yields the mounts for restrictions below a shown path, outer before inner."""
    restricted = {one.parts: one for one in held.found}
    inside = [parts for parts in {*restricted, *held.pinned} if parts[: len(root)] == root != parts]
    for parts in sorted(inside, key=lambda parts: (len(parts), parts)):
        place, one = os.path.join(base, *parts), restricted.get(parts)
        if one is not None:
            yield from _restriction_mounts(zone, place, one, held)
        else:
            yield ZoneMount(zone, parts, place, writable=writable)


def git_mounts(zone: Zone, place: str, git: ShadowPlan) -> Iterator[Mount]:
    """The private copy of a git directory, and what of the user's own stands in it."""
    yield HostMount(git.tree, place, writable=git.writable)
    for mount in git.mounts:
        there = os.path.join(place, mount.path)
        if mount.missing:
            yield from _empty_directory(there, "0555") if mount.directory else (EmptyFile(there),)
        elif mount.host:
            yield HostMount(mount.host, there, writable=mount.writable and git.writable)
        elif git.outside:
            yield RawArguments(("--ro-bind", os.path.join(git.outside, mount.real), there))
        else:
            parts = (GIT_FILE, *mount.real.split("/"))
            yield ZoneMount(zone, parts, there, writable=mount.writable, directory=mount.directory)


def alias_mounts(zone: Zone, base: str, occupied: Iterable[str]) -> Iterator[Mount]:
    """Links for other spellings of a zone's host path, where nothing else stands: files have these baked in too."""
    if base != zone.host:
        return
    taken = (*occupied, *(path for path in _TAKEN if path not in PRIVATE))
    for alias in zone.aliases:
        around = alias in PRIVATE or any(is_below(path, alias) for path in PRIVATE)
        if not around and not any(is_below(alias, one) or is_below(one, alias) for one in taken):
            yield RawArguments(("--symlink", base, alias))


def final_arguments(cwd: str) -> RawArguments:
    return RawArguments(("--remount-ro", "/", "--chdir", cwd))


def _restriction_mounts(zone: Zone, place: str, one: Restriction, held: ZoneRestrictions) -> Iterator[Mount]:
    if one.parts in held.placeholders:
        yield from _empty_directory(place, "0555") if one.directory else (EmptyFile(place),)
    elif not one.masked:
        yield ZoneMount(zone, one.parts, place, directory=one.directory)
    elif not one.directory:
        yield ExpectedPath(zone, one.parts, directory=False)
        yield MaskedFile(place)
    else:
        yield ExpectedPath(zone, one.parts, directory=True)
        inside = [parts for parts in held.lifted if parts[: len(one.parts)] == one.parts]
        if not inside:
            yield MaskedDirectory(place)
            return
        yield RawArguments(("--perms", "0555", "--tmpfs", place))
        for parts in inside:
            yield ZoneMount(zone, parts, os.path.join(place, *parts[len(one.parts) :]), directory=False)
        yield RawArguments(("--remount-ro", place))


def empty_directory_arguments(place: str, mode: str = _MASKED) -> tuple[str, ...]:
    return "--perms", mode, "--size", "4096", "--tmpfs", place, "--remount-ro", place


def _empty_directory(place: str, mode: str) -> Iterator[Mount]:
    yield RawArguments(empty_directory_arguments(place, mode))


def _proc_mounts(exits: Exits) -> Iterator[Mount]:
    """Threat: process 1 is bubblewrap itself, under the child's own user. Who writes its memory takes it over, and with
    it what ends the tree when Forge dies; who reads it learns how the walls were built. So nothing of it can be reached
    by name: its environment and command line, for which programs ask, are answered by the command's. Read-only, because
    what children write about themselves can hold for their whole session, and process 1 is in it (`autogroup`): with a
    driver that must name its threads there, they can make their own end slower, and nothing else."""
    yield RawArguments(("--proc", "/proc"))
    yield from _inotify_limits()
    yield RawArguments(("--ro-bind", "/proc/sys", "/proc/sys"))
    yield RawArguments(("--perms", "0555", "--size", "4096", "--tmpfs", "/proc/1"))
    yield RawArguments(("--symlink", "../2/environ", "/proc/1/environ", "--symlink", "../2/cmdline", "/proc/1/cmdline"))
    yield RawArguments(("--remount-ro", "/proc/1"))
    if exits.names_threads:
        yield from (RawArguments(("--ro-bind", path, path)) for path in _kernel_settings())
    else:
        yield RawArguments(("--remount-ro", "/proc"))


def _kernel_settings() -> Iterator[str]:
    """Yields the entries of /proc that belong to the whole machine and are writable by their mode."""
    for entry in sorted(os.listdir("/proc")):
        with contextlib.suppress(OSError):
            mode = os.lstat(f"/proc/{entry}").st_mode
            if not (entry.isdigit() or entry == "sys") and (
                stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and mode & 0o222)
            ):
                yield f"/proc/{entry}"


def _inotify_limits() -> Iterator[Mount]:
    """Threat: what a child takes of these counts for the person too, whose programs could watch no file any more.
    bubblewrap writes the files while it is in the walls' own user namespace, whose limits they are."""
    for name, share in _SHARES_OF_INOTIFY.items():
        try:
            with open(f"/proc/sys/fs/inotify/max_user_{name}", "rb") as file:
                most = int(file.read(32))
        except (OSError, ValueError):
            continue
        yield TextMount(f"/proc/sys/user/max_inotify_{name}", f"{max(1, most // share)}\n")


def _system_directories() -> Iterator[RawArguments]:
    for path in SYSTEM[1:]:
        if os.path.islink(path) and path.count("/") == 1:
            yield RawArguments(("--symlink", os.readlink(path), path))
        elif os.path.isdir(path):
            yield RawArguments(("--ro-bind", path, path))


@functools.cache
def java_settings() -> tuple[str, ...]:
    """Directories of /etc that a Java machine cannot start without, on systems whose /usr/lib/jvm links to them."""
    with contextlib.suppress(OSError):
        return tuple(sorted(name for name in os.listdir("/etc") if name.startswith("java-")))
    return ()


def etc_secrets() -> tuple[str, ...]:
    """Directories below the shown ones that hold keys and passwords of the machine, which root could read."""
    return ("/etc/ssl/private", *(f"/etc/{name}/management" for name in java_settings()))


def _etc_mounts() -> Iterator[Mount]:
    for name in (*ETC, *java_settings()):
        path = f"/etc/{name}"
        real = os.path.realpath(path)
        if not os.path.exists(real):
            continue
        if real.startswith("/usr/"):  # /usr is there anyway, and a link costs less than a mount
            yield RawArguments(("--symlink", real, path))
        else:
            yield RawArguments(("--ro-bind", real, path))
    for path in etc_secrets():
        private = os.path.realpath(path)
        if os.path.isdir(private) and private.startswith(os.path.dirname(path) + "/"):
            yield from _empty_directory(private, _MASKED)


def _accounts(own: str, root: str, number: int) -> str:
    """Lines of /etc/passwd or /etc/group; one line per number."""
    nobody = "nobody:x:65534:" if own.count(":") == 3 else "nobody:x:65534:65534:nobody:/:/bin/false"
    lines: Sequence[str] = (own, *(() if number == 0 else (root,)), *(() if number == 65534 else (nobody,)))
    return "\n".join((*lines, ""))


DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")


_device_modes: Final[dict[str, int]] = {}


def remember_device_modes(paths: Iterable[str]) -> None:
    """Stores the present modes of devices; call it before the first child that sees them starts. Only root can change
    them.
    """
    if os.geteuid() != 0:
        return
    for path in paths:
        if path not in _device_modes and (mode := _mode(path)) is not None:
            _device_modes[path] = mode


def restore_device_modes() -> None:
    for path, mode in _device_modes.items():
        if _mode(path) not in (mode, None):
            with contextlib.suppress(OSError):
                os.chmod(path, mode)


def _mode(path: str) -> int | None:
    info = entry_stat(path)
    return stat.S_IMODE(info.st_mode) if info and stat.S_ISCHR(info.st_mode) else None


IS_ABSENT: Final = "not there"
IS_PRIVATE: Final = "private, gone afterwards"
IS_HIDDEN: Final = "hidden: there, empty and unreadable"
_IS_OWN_FILE: Final = "system, read-only; a small file of the walls' own"
IS_PARENT: Final = "a directory with nothing but what is shown below it, read-only"
IS_DEVICE: Final = "a device of the host (sandbox.devices)"
IS_SOCKET: Final = "a socket of the host (sandbox.sockets)"
_KINDS: Final = {
    "own": _IS_OWN_FILE,
    "masked": IS_HIDDEN,
    "system": "system, read-only",
    "private": IS_PRIVATE,
    "device": IS_DEVICE,
}
_MOST_LINKS: Final = 8
_ARGUMENTS: Final = {"--ro-bind": 2, "--ro-bind-try": 2, "--bind": 2, "--dev-bind": 2, "--symlink": 2}
"""Number of arguments of an option; 1 if it is not listed."""


def describe_outside(path: str, mounts: Sequence[Mount], toolchains: Iterable[str]) -> str:
    """`path` is absolute and folded; `toolchains`: the directories shown as such."""
    known = tuple(toolchains)
    for _ in range(_MOST_LINKS):
        said, link = _describe_at(path, mounts, known)
        if not link:
            return said
        path = link
    return IS_ABSENT


def _describe_at(path: str, mounts: Sequence[Mount], toolchains: tuple[str, ...]) -> tuple[str, str]:
    """Describes what the last mount over the path makes of it, or returns the path that a link of the walls leads to
    instead.
    """
    said, link = IS_ABSENT, ""
    for kind, source, place in _operations(mounts):
        if not is_below(path, place):
            if said == IS_ABSENT and is_below(place, path) and kind != "remount":
                said = IS_PARENT
            continue
        rest = path[len(place.rstrip("/")) :]
        if kind == "link":
            said, link = IS_ABSENT, posixpath.normpath(posixpath.join(posixpath.dirname(place), source) + rest)
            continue
        if kind == "remount":
            said = (IS_HIDDEN if path == place else IS_ABSENT) if said == IS_PRIVATE else said
            continue
        link = ""
        if kind != "shown":
            said = _KINDS[kind]
        elif not os.path.lexists(source + rest):
            said = IS_ABSENT
        elif not rest and _is_socket(source):
            said = IS_SOCKET
        elif place in toolchains:
            said = "toolchain, read-only"
        else:
            system = any(is_below(place, one) for one in (*SYSTEM, "/etc", SHIPPED))
            said = "system, read-only" if system else "read-only"
    return said, link


def _is_socket(path: str) -> bool:
    info = entry_stat(path)
    return info is not None and stat.S_ISSOCK(info.st_mode)


def mounted_at(mount: Mount) -> tuple[str, ...]:
    """Returns the paths that a mount, or the several mounts of raw arguments, cover."""
    if isinstance(mount, ExpectedPath):
        return ()
    if isinstance(mount, RawArguments):
        return tuple(place for kind, _, place in _argument_operations(mount.words) if kind != "remount")
    return (mount.place,)


def _operations(mounts: Sequence[Mount]) -> Iterator[tuple[str, str, str]]:
    """(kind, source, place) of everything that stands outside of zones, in order."""
    for mount in mounts:
        if isinstance(mount, TextMount):
            yield "own", "", mount.place
        elif isinstance(mount, MaskedFile):
            yield "masked", "", mount.place
        elif isinstance(mount, MaskedDirectory):
            yield from _argument_operations(empty_directory_arguments(mount.place))
        elif isinstance(mount, RawArguments):
            yield from _argument_operations(mount.words)


def _argument_operations(words: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    at = 0
    while at < len(words):
        word, count = words[at], _ARGUMENTS.get(words[at], 1)
        given = words[at + 1 : at + 1 + count]
        at += 1 + count
        if word in ("--ro-bind", "--ro-bind-try", "--bind"):
            yield ("system" if given[1].startswith("/proc") else "shown"), given[0], given[1]
        elif word == "--dev-bind":
            yield "device", given[0], given[1]
        elif word == "--symlink":
            yield "link", given[0], given[1]
        elif word == "--proc":
            yield "system", "", given[0]
        elif word in ("--tmpfs", "--dev"):
            yield "private", "", given[0]
        elif word == "--remount-ro" and given[0] not in ("/", "/dev"):
            yield "remount", "", given[0]
