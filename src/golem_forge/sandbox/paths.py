"""From the text of a path to what is on disk: which zone, which components, and where symbolic links lead.

`locate` works on text alone: it returns a ZonePath and refuses INVALID_PATH and paths in no zone. `resolve_links`
walks the zone: links are read and resolved here, never followed by the kernel; it returns a ResolvedPath with
handles on the entry and its directory, and refuses links that leave the zone or form a loop. Threat: names change
while they are walked. Every step starts from a handle already held, `..` inside a link goes back along our own
handles, and the result is opened again from the zone's root with links forbidden: a link that appears in between is
an error, not a detour.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import process_link
from golem_forge.sandbox import errors
from golem_forge.sandbox.handles import DIRECTORY, ENTRY, Handle
from golem_forge.sandbox.zones import Zone

MAX_PATH_BYTES: Final = 4096
MAX_NAME_BYTES: Final = 255
_TOOLS_FOLDERS: Final = (
    *((home, ".forge", "tools") for home in ("~", "$HOME", "${HOME}", "root")),
    *((homes, "*", ".forge", "tools") for homes in ("home", "Users")),
    *((variable, "tools") for variable in ("$FORGE_HOME", "${FORGE_HOME}")),
)
"""Spellings of FORGE_HOME/tools, component by component."""


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


MAX_LINKS: Final = 40
MAX_DEPTH: Final = 64


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
