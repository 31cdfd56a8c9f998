"""Target: from the text of a path to one checked thing on disk, kept open from plan to run, so that what policy judged
is what is used.

1. `locate` works on text alone: it returns a ZonePath and refuses INVALID_PATH and paths in no zone.
2. `resolve_links` walks the zone: links are read and resolved here, never followed by the kernel; it returns a
   ResolvedPath with handles on the entry and its directory, and refuses links that leave the zone or form a loop.
   Threat: names change while they are walked. Every step starts from a handle already held, `..` inside a link goes
   back along our own handles, and the result is opened again from the zone's root with links forbidden: a link that
   appears in between is an error, not a detour.
3. `open_target`, for `Sandbox.target`, makes the Target. It provides the facts policy needs (`effect`), the handles the
   file operations use, and `recheck` for the time after a wait. Refuses what can never work before a user is asked:
   writing to a read-only zone, over a directory or a device, or to a new name with control characters. One target
   serves one operation; a write makes it stale.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Self

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import process_link
from golem_forge.sandbox import errors, protected
from golem_forge.sandbox.git.repository import is_named_by_git
from golem_forge.sandbox.handles import (
    CONTENT,
    DIRECTORY,
    ENTRY,
    Handle,
    Identity,
    identity_of,
    reopen_entry,
)
from golem_forge.sandbox.zones import AccessMode, Zone

MAX_PATH_BYTES: Final = 4096
MAX_NAME_BYTES: Final = 255
_TOOLS_FOLDERS: Final = (
    *((home, ".forge", "tools") for home in ("~", "$HOME", "${HOME}", "root")),
    *((homes, "*", ".forge", "tools") for homes in ("home", "Users")),
    *((variable, "tools") for variable in ("$FORGE_HOME", "${FORGE_HOME}")),
)
"""Spellings of FORGE_HOME/tools, component by component."""
MAX_LINKS: Final = 40
MAX_DEPTH: Final = 64
_WHEN_READ: Final = frozenset({Mark.SECRET_PATH})
_WHEN_CHANGED: Final = frozenset({Mark.PROTECTED_PATH, Mark.OBEYED_PATH, Mark.SECRET_PATH})


@dataclass(frozen=True, slots=True)
class ZonePath:
    """An address before links are looked at. Without a zone it is `/`, the list of zones."""

    zone: Zone | None
    parts: tuple[str, ...]

    @property
    def virtual(self) -> str:
        return self.zone.virtual(self.parts) if self.zone else "/"


def locate(
    path: object, zones: Mapping[str, Zone], default_zone: str | None, refuse: Callable[[str], errors.SandboxError]
) -> ZonePath:
    text = checked_text(path)
    if link := process_link(text):
        # `/proc/self/root/x` is `/x` for whoever reads it. The root of another process may be another one, and where
        # `..` follows, a shell and the kernel mean different paths: those lie in no zone.
        if link.name != "root" or not link.own or ".." in text.split("/"):
            raise refuse(text)
        text = f"/{link.rest}"
    if not text.startswith("/") and default_zone is None:
        raise refuse(text)
    base = () if text.startswith("/") or default_zone is None else (default_zone,)
    parts = normalize_parts(text, base)
    if not parts:
        return ZonePath(None, ())
    if zone := zones.get(parts[0]):
        return ZonePath(zone, parts[1:])
    hits = [(len(rest), zone, rest) for zone in zones.values() if (rest := zone.inside(parts)) is not None]
    if not hits:
        raise refuse("/" + "/".join(parts))
    _, zone, rest = min(hits, key=lambda hit: hit[0])
    return ZonePath(zone, rest)


def checked_text(path: object) -> str:
    """Returns the path if it is a valid one; raises a SandboxError otherwise."""
    if not isinstance(path, str):
        raise errors.invalid_path(str(path), "not a string")
    if not path:
        raise errors.invalid_path(path, "empty")
    if "\0" in path:
        raise errors.invalid_path(path, "contains NUL")
    if not path.isascii() or len(path) > MAX_NAME_BYTES:
        _must_fit(path)
    if path.lstrip("/").split("/", 1)[0] == "~":
        raise errors.invalid_path(path, "home directories are not addressable")
    return path


def _must_fit(path: str) -> None:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise errors.invalid_path(path, "not UTF-8") from None
    if size > MAX_PATH_BYTES or any(len(name.encode()) > MAX_NAME_BYTES for name in path.split("/")):
        raise errors.invalid_path(path, "too long")


def normalize_parts(path: str, base: Sequence[str] = ()) -> tuple[str, ...]:
    """Components of the path below `base`, with `.`, `..` and `//` folded as text."""
    if "/." not in path and "//" not in path and not path.startswith("."):
        inner = path.strip("/")
        return (*base, *inner.split("/")) if inner else tuple(base)
    parts = list(base)
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name == "..":
            if not parts:
                raise errors.invalid_path(path, "escapes the root")
            parts.pop()
        else:
            parts.append(name)
    return tuple(parts)


def below_tools_folder(path: str, folders: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the components below the folder of user tools if the text names it in a usual spelling:
    `~/.forge/tools/x`, with a variable, or as a host path (`folders`, and the usual homes). Returns None otherwise.
    """
    if "tools" not in path or path[:1] not in ("~", "$", "/"):
        return None
    try:
        parts = normalize_parts(path)
    except errors.SandboxError:
        return None
    for folder in (*_TOOLS_FOLDERS, *(tuple(filter(None, folder.split("/"))) for folder in folders)):
        if len(parts) >= len(folder) and all(name in ("*", part) for name, part in zip(folder, parts, strict=False)):
            return parts[len(folder) :]
    return None


def has_control_character(name: str) -> bool:
    """C0, DEL and C1: such names can be listed, but tools neither make nor open them."""
    return not name.isprintable() and any(char < " " or "\x7f" <= char <= "\x9f" for char in name)


@dataclass(slots=True, kw_only=True)
class ResolvedPath:
    """The result of a path walk. `parent` is the deepest existing directory before the entry (the zone's root for
    itself).
    """

    parts: tuple[str, ...]
    parent: Handle
    entry: Handle | None = None
    stat: os.stat_result | None = None
    missing: int = 0
    """How many of the last components do not exist."""
    obstacle: errors.SandboxError | None = None
    """Why nothing can be made at a missing path: it goes through a file, or back up out of a missing directory."""


@dataclass(slots=True)
class _LinkRoute:
    parts: tuple[str, ...]
    missing: int = 0
    obstacle: errors.SandboxError | None = None


def resolve_links(zone: Zone, parts: tuple[str, ...], *, follow_last: bool) -> ResolvedPath:
    """Resolve an address. With `follow_last` off a last component that is a link is itself what is found."""
    if len(parts) > MAX_DEPTH:
        raise _too_deep(zone.virtual(parts), len(parts))
    found = _without_links(zone, parts)
    if found is None or _is_link(found):
        route = _follow(zone, parts, follow_last=True)  # a link that leaves is refused even where only it is meant
        if not follow_last:
            route = _follow(zone, parts, follow_last=False)
        found = _open_route(zone, route, zone.virtual(parts), follow_last=follow_last)
    if (
        found.entry is not None
        and not "".join(found.parts).isprintable()
        and any(map(has_control_character, found.parts))
    ):
        raise errors.invalid_path(zone.virtual(found.parts), "control character in the name")
    return found


def _without_links(zone: Zone, parts: tuple[str, ...]) -> ResolvedPath | None:
    """The common case, nothing but directories on the way; None when something else is there and must be looked at."""
    if not parts:
        return ResolvedPath(parts=(), parent=zone.root, entry=zone.root, stat=os.fstat(zone.root.fd))
    try:
        parent = zone.open(parts[:-1], DIRECTORY)
    except OSError:
        return None
    try:
        entry = Handle(os.open(parts[-1], ENTRY, dir_fd=parent.fd))
    except FileNotFoundError:
        return ResolvedPath(parts=parts, parent=parent, missing=1)
    except OSError:
        return None
    return ResolvedPath(parts=parts, parent=parent, entry=entry, stat=os.fstat(entry.fd))


def _open_route(zone: Zone, route: _LinkRoute, shown: str, *, follow_last: bool) -> ResolvedPath:
    parts = route.parts
    if route.obstacle:
        return ResolvedPath(parts=parts, parent=zone.root, missing=1, obstacle=route.obstacle)
    if not parts:
        return ResolvedPath(parts=(), parent=zone.root, entry=zone.root, stat=os.fstat(zone.root.fd))
    try:
        parent = zone.open(parts[: len(parts) - (route.missing or 1)], DIRECTORY)
        if route.missing:
            return ResolvedPath(parts=parts, parent=parent, missing=route.missing)
        entry = Handle(os.open(parts[-1], ENTRY, dir_fd=parent.fd))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # it was otherwise a moment ago
            raise errors.path_changed(shown) from None
        raise errors.from_os_error(error, shown) from None
    found = ResolvedPath(parts=parts, parent=parent, entry=entry, stat=os.fstat(entry.fd))
    if follow_last and _is_link(found):
        raise errors.path_changed(shown)
    return found


def _follow(zone: Zone, parts: tuple[str, ...], *, follow_last: bool) -> _LinkRoute:
    """The real components of an address, by reading each link relative to the handle of the directory it is in."""
    shown = zone.virtual(parts)
    trail: list[Handle] = [zone.root]
    names: list[str] = []
    todo = list(reversed(parts))
    links = 0
    while todo:
        name = todo.pop()
        if name == "..":
            if not names:
                raise errors.symlink_escape(shown)
            names.pop()
            trail.pop()
            continue
        try:
            here = Handle(os.open(name, ENTRY, dir_fd=trail[-1].fd))
            kind = os.fstat(here.fd).st_mode
            target = os.readlink("", dir_fd=here.fd) if stat.S_ISLNK(kind) else ""
        except FileNotFoundError:
            return _missing_route(parts, names, [name, *reversed(todo)], shown)
        except OSError as error:
            raise errors.from_os_error(error, shown) from None
        if stat.S_ISLNK(kind) and (todo or follow_last):
            links += 1
            if links > MAX_LINKS:
                raise errors.invalid_path(shown, "too many links")
            steps = _link_steps(zone, target, shown)
            if target.startswith("/"):
                del trail[1:], names[:]
            todo.extend(reversed(steps))
            continue
        names.append(name)
        if len(names) > MAX_DEPTH:
            raise _too_deep(shown, len(names))
        if stat.S_ISDIR(kind):
            trail.append(here)
        elif todo:
            return _LinkRoute(parts, obstacle=errors.not_a_directory(zone.virtual(names)))
        else:
            break
    return _LinkRoute(tuple(names))


def _link_steps(zone: Zone, target: str, shown: str) -> Sequence[str]:
    """Returns the components of a link's text: from the link's directory or, if absolute, from the zone's root."""
    try:
        target.encode()
    except UnicodeEncodeError:
        raise errors.invalid_path(shown, "not UTF-8") from None
    steps = [step for step in target.split("/") if step not in ("", ".")]
    if not target.startswith("/"):
        return steps
    inside = zone.inside(steps)
    if inside is None:
        raise errors.symlink_escape(shown)
    return inside


def _missing_route(asked: tuple[str, ...], names: list[str], rest: list[str], shown: str) -> _LinkRoute:
    if ".." in rest:  # only a link's text has it; no directory is made in order to leave it again
        depth = len(names)
        for step in rest:
            depth += -1 if step == ".." else 1
            if depth < 0:
                raise errors.symlink_escape(shown)
        return _LinkRoute(asked, obstacle=errors.not_found(shown))
    parts = (*names, *rest)
    if len(parts) > MAX_DEPTH:
        raise _too_deep(shown, len(parts))
    return _LinkRoute(parts, missing=len(rest))


def _is_link(found: ResolvedPath) -> bool:
    return found.stat is not None and stat.S_ISLNK(found.stat.st_mode)


def _too_deep(shown: str, depth: int) -> errors.SandboxError:
    return errors.too_large(shown, depth, MAX_DEPTH, "Use a path with fewer directories.", unit="levels deep")


class FileKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(slots=True, kw_only=True, eq=False)
class Target:
    access: Verb
    zone: Zone | None
    """None for `/`, the list of zones."""
    virtual: str
    """The address after links: what is judged, shown and opened."""
    real: str = field(default="", repr=False)
    """The host path, for the fingerprint only."""
    parts: tuple[str, ...] = ()
    kind: FileKind | None = None
    """None if nothing exists there."""
    stat: os.stat_result | None = field(default=None, repr=False)
    """The stat at the time of the decision."""
    marks: tuple[Mark, ...] = ()
    """Facts about the name; `effect` states those that matter for `access`. What only matters to a change is not looked
    for where a file is read; a directory that is looked at may be one to write in."""
    missing: int = 0
    """How many of the last components do not exist; above 1, directories would be created."""
    parent: Handle | None = field(default=None, repr=False)
    """The deepest existing directory before the entry."""
    entry: Handle | None = field(default=None, repr=False)
    """The thing itself: readable for a file or directory unless `unreadable`, else a handle without content."""
    unreadable: bool = False
    obstacle: errors.SandboxError | None = None
    follow_last: bool = True
    requested: tuple[str, ...] = ()
    """The requested components, before links were followed."""
    zones: Mapping[str, Zone] = field(default_factory=dict, repr=False)
    """The zones that `/` lists."""

    @property
    def exists(self) -> bool:
        return self.kind is not None

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else ""

    @property
    def identity(self) -> Identity | None:
        return identity_of(self.stat) if self.stat else None

    def effect(self, access: Verb | None = None) -> Effect:
        """A secret matters when it is read or changed, a protected or obeyed path when it is changed.

        `access`: another one that the same operation implies, as a move also hands on what it takes away.
        """
        access = access or self.access
        relevant = _WHEN_READ if access is Verb.READ else _WHEN_CHANGED
        return Effect(
            verb=access,
            target=self.virtual,
            real=self.real,
            zone_verdict=self.zone.verdict(access) if self.zone else Verdict.PRE_APPROVED,
            marks=tuple(mark for mark in self.marks if mark in relevant),
            outer=self.zone.virtual((*self.zone.subpath, *self.parts)) if self.zone and self.zone.subpath else "",
        )

    def must_exist(self) -> None:
        if not self.exists:
            raise self.obstacle or errors.not_found(self.virtual)

    def must_be_file(self) -> None:
        """Refuses directories and everything whose content is not just bytes on disk."""
        self.must_exist()
        if self.kind is FileKind.DIRECTORY:
            if self.zone is not None and self.zone.is_placeholder(self.name, self.stat):
                raise (
                    errors.held_by_walls(self.virtual) if self.access is Verb.WRITE else errors.not_found(self.virtual)
                )
            raise errors.is_a_directory(self.virtual)
        if self.kind is not FileKind.FILE:
            raise errors.not_a_file(self.virtual, special_file_kind(self.stat))

    def recheck(self) -> None:
        """Walk the name again after a wait. PATH_CHANGED unless it leads to the same real path and the same thing."""
        if self.zone is None:
            return
        self.zone.must_be_in_place(self.virtual)
        try:
            found = resolve_links(self.zone, self.requested, follow_last=self.follow_last)
        except errors.SandboxError as error:
            if error.code in ("PERMISSION_DENIED", "IO_ERROR"):
                raise
            raise errors.path_changed(self.virtual) from None
        if found.parts != self.parts or (found.obstacle is None) != (self.obstacle is None):
            raise errors.path_changed(self.virtual)
        self._must_be_as_judged(found.stat)
        if self.access is not Verb.READ:
            self.must_be_in_place()

    def must_be_in_place(self, directory: Handle | None = None) -> None:
        """PATH_CHANGED unless the judged directory is where it was judged and holds the judged entry, or still none.

        `directory` is the entry's own one, once a write has made what was missing. The zone is walked from its root
        with links forbidden, so a directory that was moved out of the zone is noticed although its handle works.
        What remains is the moment between this and the one system call that follows it: a directory that someone
        moves out of the zone right then takes the change along, and a file put under the name right then is replaced.
        Neither follows a link, and neither touches a file that was not under that very name in that very directory.
        """
        if self.zone is None or self.parent is None:  # closed: its call has already ended
            raise errors.path_changed(self.virtual)
        self.zone.must_be_in_place(self.virtual)
        depth = len(self.parts) - (1 if directory else max(self.missing, 1))
        directory = directory or self.parent
        now = None
        try:
            if self.zone.open(self.parts[:depth], DIRECTORY).identity() != directory.identity():
                raise errors.path_changed(self.virtual)
            if depth == len(self.parts) - 1:
                now = _entry_stat(self.name, directory)
        except OSError as error:
            raise _changed_or(error, self.virtual) from None
        self._must_be_as_judged(now)

    def release_content(self) -> None:
        """Let go of the content alone: one call may plan hundreds of files, and descriptors are few."""
        self.entry = None

    def content(self) -> Handle | None:
        """The entry's handle, opened anew if it was set down; None: nothing was there. PATH_CHANGED if it went."""
        if self.entry is not None or not self.exists:
            return self.entry
        if self.zone is None or self.parent is None:  # closed: its call has already ended
            raise errors.path_changed(self.virtual)
        try:
            again = self.zone.open(self.parts, ENTRY if self.unreadable else CONTENT)
            same = again.identity() == self.identity
        except OSError as error:
            raise _changed_or(error, self.virtual) from None
        if not same:
            raise errors.path_changed(self.virtual)
        return again

    def close(self) -> None:
        """Let go of the handles; this also happens when the last reference to the target goes."""
        self.parent = self.entry = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _must_be_as_judged(self, now: os.stat_result | None) -> None:
        same = (now is None) == (self.stat is None)
        if now is not None and self.stat is not None:
            same = identity_of(now) == identity_of(self.stat)
            if self.access is Verb.WRITE:  # the diff a person agreed to was made against this content
                same = same and (now.st_size, now.st_mtime_ns) == (self.stat.st_size, self.stat.st_mtime_ns)
        if not same:
            raise errors.path_changed(self.virtual)


def open_target(place: ZonePath, access: Verb, zones: Mapping[str, Zone], *, follow_last: bool) -> Target:
    """Resolve a place and hold what is there, or refuse."""
    if access not in (Verb.READ, Verb.WRITE, Verb.DELETE):
        raise ValueError(f"a path is read, written or deleted, not {access}")
    zone = place.zone
    if zone is None:
        if access is not Verb.READ:
            raise errors.is_a_directory("/")
        return Target(access=access, zone=None, virtual="/", kind=FileKind.DIRECTORY, zones=zones)
    if access is not Verb.READ and zone.mode is AccessMode.RO:
        raise errors.read_only_zone(zone.name, place.virtual)
    zone.must_be_in_place(place.virtual)
    follow_last = follow_last and access is not Verb.DELETE  # a link is deleted itself, not what it leads to
    found = resolve_links(zone, place.parts, follow_last=follow_last)
    kind = kind_of(found.stat)
    target = Target(
        access=access,
        zone=zone,
        virtual=zone.virtual(found.parts),
        real=zone.real(found.parts),
        parts=found.parts,
        kind=kind,
        stat=found.stat,
        marks=_marks(zone, found.parts, place.parts, kind, access),
        missing=found.missing,
        parent=found.parent if access is not Verb.READ else None,
        entry=found.entry,
        obstacle=found.obstacle,
        follow_last=follow_last,
        requested=place.parts,
    )
    if access is not Verb.READ:
        _must_be_changeable(target)
    _open_content(target, found)
    return target


def kind_of(info: os.stat_result | None) -> FileKind | None:
    if info is None:
        return None
    mode = info.st_mode
    if stat.S_ISREG(mode):
        return FileKind.FILE
    if stat.S_ISDIR(mode):
        return FileKind.DIRECTORY
    return FileKind.LINK if stat.S_ISLNK(mode) else FileKind.OTHER


def special_file_kind(info: os.stat_result | None) -> str:
    """Returns a word for an entry that is neither file nor directory: link, fifo, socket or device."""
    mode = info.st_mode if info else 0
    for test, word in ((stat.S_ISLNK, "link"), (stat.S_ISFIFO, "fifo"), (stat.S_ISSOCK, "socket")):
        if test(mode):
            return word
    return "device"


def _must_be_changeable(target: Target) -> None:
    if target.access is Verb.DELETE:
        if target.kind is not FileKind.LINK:
            target.must_be_file()
        return
    if target.exists or target.obstacle:
        target.must_be_file()
    elif any(map(has_control_character, target.parts)):
        raise errors.invalid_path(target.virtual, "control character in a new name")


def _open_content(target: Target, found: ResolvedPath) -> None:
    """Replace the bare handle by a readable one on the same inode, while the directory is still at hand."""
    if found.entry is None or target.kind not in (FileKind.FILE, FileKind.DIRECTORY):
        return
    flags = CONTENT | (os.O_DIRECTORY if target.kind is FileKind.DIRECTORY else 0)
    try:
        if (same := reopen_entry(found.entry, flags)) is not None:
            target.entry = Handle(same)
            return
        content = target.zone.open(target.parts, flags) if target.zone else found.entry
    except PermissionError:
        target.unreadable = True
        return
    except OSError as error:
        raise _changed_or(error, target.virtual) from None
    if content.identity() != target.identity:
        raise errors.path_changed(target.virtual)
    target.entry = content


def _marks(
    zone: Zone, real: tuple[str, ...], requested: tuple[str, ...], kind: FileKind | None, access: Verb
) -> tuple[Mark, ...]:
    """Both names count: a link does not make `.git/hooks` harmless, nor an innocent name the hooks behind it.

    So do the directories above: a zone that begins inside `.git` or `.ssh` is still inside it. Forge's own code is
    protected by its place, whatever it is called.
    """
    only_read = access is Verb.READ and kind is not FileKind.DIRECTORY
    plain = real == requested and protected.is_plain(zone.real(real))
    if plain and only_read:
        return ()
    above = [part for part in zone.host.split("/") if part]
    names = tuple({real: None, requested: None})
    found: dict[Mark, None] = {}
    if not plain:
        for parts in names:
            marks = protected.marks(
                (*above, *parts), git_is_file=kind is not FileKind.DIRECTORY, unprotect=zone.unprotect
            )
            found |= dict.fromkeys(marks)
    if only_read:
        return tuple(found)
    if any(protected.is_own_code(zone.host, parts) for parts in names):
        found[Mark.PROTECTED_PATH] = None
    if Mark.PROTECTED_PATH not in found and any(
        protected.is_obeyed(parts, above) or shadows_another(zone, parts) for parts in names
    ):
        found[Mark.OBEYED_PATH] = None
    if not found and access is not Verb.READ and any(is_named_by_git(zone, parts) for parts in names):
        found[Mark.OBEYED_PATH] = None
    return tuple(found)


def shadows_another(zone: Zone, parts: tuple[str, ...]) -> bool:
    """Whether programs read this file instead of one that is there: a GNUmakefile beside a Makefile."""
    others = protected.shadowed_names(parts[-1]) if parts else ()
    if not others:
        return False
    try:
        directory = zone.open(parts[:-1], DIRECTORY)
        own = _entry_stat(parts[-1], directory)
        there = [_entry_stat(name, directory) for name in others]
    except OSError:
        return False
    # Where a file system ignores case, `makefile` and `Makefile` are one file.
    return any(one is not None and (own is None or identity_of(one) != identity_of(own)) for one in there)


def _entry_stat(name: str, directory: Handle) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _changed_or(error: OSError, virtual: str) -> errors.SandboxError:
    """The judged path was there and free of links; if the system now says otherwise, it changed."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO):
        return errors.path_changed(virtual)
    return errors.from_os_error(error, virtual)
