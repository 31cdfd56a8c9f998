"""DirectoryListing: one directory of a zone as a scan knows it, and which of its names walls must know.

`DirectoryLister.listed` opens a directory and returns a DirectoryListing, or None where there is none any more. A
*near* directory keeps all its names, and protected ones count in it; of the others (too deep, `node_modules`,
virtual environments, `.git`) only secret names and sockets do. Threats: a file that is cleared by its content (a
bundle of certificates that HTTPS clients must read) can be a secret a moment later, so it is looked at again when
it changed; a directory that a scan does not judge would be where a child takes a secret to, so every one is judged.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final

from golem_forge.core.effects import Mark
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.sandbox.handles import CONTENT, ENTRY, LISTING, Handle, Parts, entry_stat, read_regular
from golem_forge.sandbox.protected import GIT_FILE, PROTECTED_NAMES, in_dependencies, is_plain, is_plain_anywhere, marks

DEPTH: Final = 4
"""Directories so many levels below the zone's root are still near."""
_GIT_DEPTH: Final = 6
"""The depth limit below a `.git`, where names of submodules may have several components."""
_SETTLED_NS: Final = 100_000_000
_BOUND_NS: Final = 20_000_000
MOST_NAMES: Final = 500_000
"""A directory with more is one that cannot be listed: every change in it would take a second to find."""
_IN_GIT: Final = frozenset({"modules", "worktrees"})
_NOT_IN_MODULES: Final = frozenset({"objects", "refs", "logs", "info", "lfs", "rr-cache", "hooks", "branches"})
"""Parts of a repository that hold no other one; but a submodule may have such a name too."""
_OF_A_REPOSITORY: Final = ("config", "hooks")
"""Entries that a child cannot remove from a repository to make it look like something else."""
_HEADS_OF_PAIRS: Final = frozenset({GIT_FILE, ".config", ".kube", ".docker"})
"""Directories in which a name one level deeper matters; they count as near if their parent does."""
_HEADS: Final = _HEADS_OF_PAIRS | {name.partition("/")[0] for name in PROTECTED_NAMES if "/" in name}
_PACKAGES: Final = "site-packages"
"""Holds most files of a virtual environment. Recognised by its path alone, because any child can create a file beside
it.
"""
_WRITTEN_BY_GIT: Final = frozenset({"objects", "refs", "logs"})
_LONGEST: Final = 1 << 20
"""The bundle of certificates that Python programs bring has 300 KiB."""
_KEY_FILES: Final = (".pem", ".key")
_LABEL: Final = regex(rb"-----BEGIN ([A-Z0-9 ]+)-----")
_PUBLIC: Final = frozenset(
    {
        *(b"CERTIFICATE", b"TRUSTED CERTIFICATE", b"X509 CERTIFICATE", b"CERTIFICATE REQUEST"),
        *(b"NEW CERTIFICATE REQUEST", b"PUBLIC KEY", b"RSA PUBLIC KEY", b"X509 CRL", b"PKCS7"),
        *(b"DH PARAMETERS", b"EC PARAMETERS", b"DSA PARAMETERS"),
    }
)
_OF_GIT: Final = regex(rb"(?:[0-9a-f]{40}|[0-9a-f]{64}|ref: refs/[!-~]+)\n|(?:[0-9a-f]{40}|[0-9a-f]{64}) [^\0]*")

Stamp = tuple[int, int, int]
"""Time of change, which no child can set; number and device."""


class EntryKind(StrEnum):
    DIRECTORY = "directory"
    LINK = "link"
    SOCKET = "socket"
    """Or a FIFO: either leads to another process, through a read-only mount too. A socket that nobody has bound any
    more never does again, and is found as little as a file."""
    FILE = "file"
    """A file, or anything else that is neither a directory nor a link."""


@dataclass(frozen=True, slots=True)
class ScanFinding:
    """An existing name that walls must handle."""

    parts: Parts
    kind: EntryKind
    protected: bool
    secret: bool
    unlisted: bool = False
    """A directory that this process cannot list, so nobody knows what is in it; its owner can open it again."""
    made: Stamp | None = None
    """The stamp of a link; another link of the same name may lead elsewhere."""


@dataclass(slots=True)
class DirectoryListing:
    path: str
    parts: Parts
    near: bool
    stamp: Stamp
    mode: int = 0
    settled: bool = False
    """Whether it had been unchanged for a while when it was listed; otherwise the same stamp may hide
    another change.
    """
    listed: bool = False
    size: int = 0
    entries: dict[str, EntryKind] | None = None
    """The entries; only of a near directory."""
    directories: tuple[str, ...] = ()
    near_below: frozenset[str] = frozenset()
    findings: tuple[ScanFinding, ...] = ()
    judged: tuple[tuple[str, Stamp], ...] = ()
    """Names whose content decided whether they are secrets."""
    watch: int = -1

    def is_stale(self) -> bool:
        return (
            not self.settled
            or stamp_at(self.path) != self.stamp
            or any(stamp_at(os.path.join(self.path, name)) != stamp for name, stamp in self.judged)
        )


class DirectoryLister:
    def __init__(self, host: str, unprotect: Iterable[str]) -> None:
        self._above = tuple(part for part in host.split("/") if part)
        self._unprotect = tuple(unprotect)
        self._public: dict[Stamp, bool] = {}

    def listed(
        self, parts: Parts, path: str, *, near: bool, watch: Callable[[int, int, str], int] | None = None
    ) -> DirectoryListing | None:
        """`watch` is called with the open directory, its device and path before its names are read."""
        now = time.time_ns()
        listing = DirectoryListing(path, parts, near, (0, 0, 0))
        try:
            fd = os.open(path, LISTING)
        except PermissionError:
            listing.stamp = stamp_at(path)
        except OSError:
            return None
        else:
            try:
                info = os.fstat(fd)
                listing.stamp, listing.mode = stamp_of(info), info.st_mode
                if watch is not None:
                    listing.watch = watch(fd, info.st_dev, path)
                os.stat(".", dir_fd=fd)  # names that cannot be looked at are as good as none
                self._read(listing, fd, now)
                listing.listed = True
            except OSError:
                listing.entries, listing.directories = None, ()
            finally:
                os.close(fd)
        if not listing.listed:
            listing.findings = (ScanFinding(parts, EntryKind.DIRECTORY, protected=False, secret=False, unlisted=True),)
        stamps = (listing.stamp, *(stamp for _, stamp in listing.judged))
        listing.settled = all(abs(now - stamp[0]) > _SETTLED_NS for stamp in stamps)
        return listing

    def _read(self, listing: DirectoryListing, fd: int, now: int) -> None:
        plain: list[str] = []
        others: dict[str, EntryKind] = {}
        with os.scandir(fd) as found:
            for entry in found:
                if entry.is_file(follow_symlinks=False):
                    plain.append(entry.name)
                else:
                    others[entry.name] = _kind(entry)
                if len(plain) + len(others) > MOST_NAMES:
                    raise OSError(errno.EFBIG, "too many names")
        listing.size = len(plain) + len(others)
        listing.directories = tuple(name for name, kind in others.items() if kind is EntryKind.DIRECTORY)
        entries = others
        above = (*self._above, *listing.parts)
        has_head, all_count = False, False
        if not is_plain("/".join(above)):
            has_head = any(part.casefold() in _HEADS for part in above)
            all_count = bool(marks((*above, "-")))
        if listing.near:
            entries = listing.entries = {**others, **dict.fromkeys(plain, EntryKind.FILE)}
            listing.near_below = frozenset(_near_below(listing.parts, entries, listing.path))
        elif has_head or all_count or not is_plain("/".join(plain)):
            entries = {**others, **dict.fromkeys(plain, EntryKind.FILE)}
        judged: list[tuple[str, Stamp]] = []
        if not all_count:
            plain_here = is_plain_anywhere if has_head else is_plain
            entries = {name: kind for name, kind in entries.items() if kind is EntryKind.SOCKET or not plain_here(name)}
        if entries:
            listing.findings = tuple(self._found(listing, entries, fd, now, judged))
            listing.judged = tuple(judged)

    def _found(
        self,
        listing: DirectoryListing,
        entries: dict[str, EntryKind],
        fd: int,
        now: int,
        judged: list[tuple[str, Stamp]],
    ) -> Iterator[ScanFinding]:
        parts = listing.parts
        above = (*self._above, *parts)
        for name, kind in entries.items():
            found = marks((*above, name), git_is_file=kind is not EntryKind.DIRECTORY, unprotect=self._unprotect)
            protected = listing.near and Mark.PROTECTED_PATH in found
            secret = Mark.SECRET_PATH in found
            if secret and (content := self._judge_content(parts, name, kind, fd, now)) is not None:
                stamp, is_public = content
                secret = not is_public
                judged.append((name, stamp))
            if protected or secret or (kind is EntryKind.SOCKET and not is_dead_socket(name, fd)):
                made = stamp_at(name, fd) if kind is EntryKind.LINK else None
                yield ScanFinding((*parts, name), kind, protected, secret, made=made)

    def _judge_content(self, parts: Parts, name: str, kind: EntryKind, fd: int, now: int) -> tuple[Stamp, bool] | None:
        """The stamp of what only its name makes a secret, and whether it is none. None: the name decides. Where
        installers and git write, names like `cacert.pem`, or a branch `fix.key`, are ordinary: there the content
        decides."""
        in_git = _is_written_by_git(parts)
        if not in_git and not (in_dependencies((*parts, name)) and self._is_key_file(parts, name)):
            return None
        if kind is EntryKind.DIRECTORY:  # its own names are judged
            return None if name.startswith(".") else (stamp_at(name, fd), True)
        if kind is EntryKind.LINK:  # what it leads to is judged by its own name
            return stamp_at(name, fd), True
        try:
            file = Handle(os.open(name, CONTENT, dir_fd=fd))
            info = os.fstat(file.fd)
            stamp = stamp_of(info)
            known = self._public.get(stamp)
            if known is None:
                known = _is_public(file.fd, info.st_size, in_git=in_git)
                if abs(now - stamp[0]) > _SETTLED_NS:
                    self._public[stamp] = known
            return stamp, known
        except OSError:
            return None

    def _is_key_file(self, parts: Parts, name: str) -> bool:
        """Whether nothing but the ending makes it a secret."""
        if not name.casefold().endswith(_KEY_FILES):
            return False
        return Mark.SECRET_PATH not in marks((*self._above, *parts, f"{name}.-"))


def _is_public(file: int, size: int, *, in_git: bool) -> bool:
    """Whether a file is empty, holds certificates and public keys only, or, in a repository, names of commits."""
    data = read_regular(file, _LONGEST + 1) if size <= _LONGEST else None
    if data is None:
        return False
    if not data or (in_git and _OF_GIT.fullmatch(data)):
        return True
    labels = set(_LABEL.findall(data))
    return bool(labels) and labels <= _PUBLIC and b"PRIVATE KEY" not in data and len(data) <= _LONGEST


def _is_written_by_git(parts: Parts) -> bool:
    folded = [part.casefold() for part in parts]
    return GIT_FILE in folded and not _WRITTEN_BY_GIT.isdisjoint(folded[folded.index(GIT_FILE) :])


def _near_below(parts: Parts, entries: dict[str, EntryKind], path: str) -> Iterator[str]:
    folded = [part.casefold() for part in parts]
    git = folded.index(GIT_FILE) if GIT_FILE in folded else None
    for name, kind in entries.items():
        if kind is not EntryKind.DIRECTORY or name == "node_modules":
            continue
        lower = name.casefold()
        if git is None:
            if lower == _PACKAGES and any(part.startswith("lib") for part in folded[-2:]):
                continue
            if len(parts) < DEPTH or lower in _HEADS_OF_PAIRS:
                yield name
        elif git == len(parts) - 1:
            if lower in _IN_GIT:
                yield name
        elif len(parts) - git < _GIT_DEPTH and not (
            lower in _NOT_IN_MODULES
            and "HEAD" in entries
            and not any(os.path.lexists(os.path.join(path, name, part)) for part in _OF_A_REPOSITORY)
        ):
            yield name


def _kind(entry: os.DirEntry[str]) -> EntryKind:
    if entry.is_symlink():
        return EntryKind.LINK
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.DIRECTORY
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except FileNotFoundError:
        return EntryKind.FILE
    return EntryKind.SOCKET if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) else EntryKind.FILE


def is_dead_socket(path: str, directory: int | None = None) -> bool:
    """Whether a socket was left behind: nobody has it bound, in whatever network, and nobody can bind it again. A
    datagram socket asks, of which even the one who has it bound learns nothing. Threat: a program makes the file a
    moment before it has it bound, so what is new leads somewhere."""
    try:
        entry = Handle(os.open(path, ENTRY, dir_fd=directory))
        info = os.fstat(entry.fd)
        if stat.S_ISSOCK(info.st_mode) and abs(time.time_ns() - info.st_ctime_ns) >= _BOUND_NS:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as asking:
                asking.connect(f"/proc/self/fd/{entry.fd}")
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    return False


def stamp_of(info: os.stat_result) -> Stamp:
    return info.st_ctime_ns, info.st_ino, info.st_dev


def stamp_at(path: str, directory: int | None = None) -> Stamp:
    info = entry_stat(path, directory)
    return stamp_of(info) if info is not None else (0, 0, 0)
