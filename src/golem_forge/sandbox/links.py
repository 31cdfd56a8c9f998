"""Finding what stands at a path inside a zone: links are read and resolved by hand, never followed by the kernel.

Takes a zone and components, gives Found (the real path, handles on the entry and its directory), refuses links that
leave the zone or go round in circles. Threat: names change while they are walked. Every step therefore starts from a
handle already held, `..` inside a link's text goes back along our own handles, and the path that comes out is opened
again from the zone's root with links forbidden: a link that appears in between is an error, not a detour.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from golem_forge.sandbox.access import DIRECTORY, ENTRY, Handle
from golem_forge.sandbox.errors import (
    SandboxError,
    from_os_error,
    invalid_path,
    not_a_directory,
    not_found,
    path_changed,
    symlink_escape,
    too_large,
)
from golem_forge.sandbox.paths import has_control_character
from golem_forge.sandbox.zones import Zone

MAX_LINKS: Final = 40
MAX_DEPTH: Final = 64


@dataclass(slots=True, kw_only=True)
class Found:
    """What a walk met. `parent` is the deepest existing directory before the entry (the zone's root for itself)."""

    parts: tuple[str, ...]
    parent: Handle
    entry: Handle | None = None
    stat: os.stat_result | None = None
    missing: int = 0
    """How many of the last components do not exist."""
    obstacle: SandboxError | None = None
    """Why nothing can be made at a missing path: it goes through a file, or back up out of a missing directory."""


@dataclass(slots=True)
class _Route:
    parts: tuple[str, ...]
    missing: int = 0
    obstacle: SandboxError | None = None


def find(zone: Zone, parts: tuple[str, ...], *, follow_last: bool, only_entry: bool = False) -> Found:
    """Resolve an address. With `follow_last` off a last component that is a link is itself what is found.

    `only_entry`: the caller has no use for the directory it is in; where that is quicker, `parent` is the zone's root.
    """
    if len(parts) > MAX_DEPTH:
        raise _too_deep(zone.virtual(parts), len(parts))
    found = _entry_alone(zone, parts) if only_entry else None
    if found is None:
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
        raise invalid_path(zone.virtual(found.parts), "control character in the name")
    return found


def _entry_alone(zone: Zone, parts: tuple[str, ...]) -> Found | None:
    """Something that exists and is reached without links, by one call of the kernel; None: look properly."""
    try:
        entry = zone.open(parts, ENTRY)
    except OSError:
        return None
    return Found(parts=parts, parent=zone.root, entry=entry, stat=os.fstat(entry.fd))


def _without_links(zone: Zone, parts: tuple[str, ...]) -> Found | None:
    """The common case, nothing but directories on the way; None when something else is there and must be looked at."""
    if not parts:
        return Found(parts=(), parent=zone.root, entry=zone.root, stat=os.fstat(zone.root.fd))
    try:
        parent = zone.open(parts[:-1], DIRECTORY)
    except OSError:
        return None
    try:
        entry = Handle(os.open(parts[-1], ENTRY, dir_fd=parent.fd))
    except FileNotFoundError:
        return Found(parts=parts, parent=parent, missing=1)
    except OSError:
        return None
    return Found(parts=parts, parent=parent, entry=entry, stat=os.fstat(entry.fd))


def _open_route(zone: Zone, route: _Route, shown: str, *, follow_last: bool) -> Found:
    parts = route.parts
    if route.obstacle:
        return Found(parts=parts, parent=zone.root, missing=1, obstacle=route.obstacle)
    if not parts:
        return Found(parts=(), parent=zone.root, entry=zone.root, stat=os.fstat(zone.root.fd))
    try:
        parent = zone.open(parts[: len(parts) - (route.missing or 1)], DIRECTORY)
        if route.missing:
            return Found(parts=parts, parent=parent, missing=route.missing)
        entry = Handle(os.open(parts[-1], ENTRY, dir_fd=parent.fd))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # it was otherwise a moment ago
            raise path_changed(shown) from None
        raise from_os_error(error, shown) from None
    found = Found(parts=parts, parent=parent, entry=entry, stat=os.fstat(entry.fd))
    if follow_last and _is_link(found):
        raise path_changed(shown)
    return found


def _follow(zone: Zone, parts: tuple[str, ...], *, follow_last: bool) -> _Route:
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
                raise symlink_escape(shown)
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
            raise from_os_error(error, shown) from None
        if stat.S_ISLNK(kind) and (todo or follow_last):
            links += 1
            if links > MAX_LINKS:
                raise invalid_path(shown, "too many links")
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
            return _Route(parts, obstacle=not_a_directory(zone.virtual(names)))
        else:
            break
    return _Route(tuple(names))


def _link_steps(zone: Zone, target: str, shown: str) -> Sequence[str]:
    """What a link's text asks for: steps from the link's directory or, absolute, from the zone's root."""
    try:
        target.encode()
    except UnicodeEncodeError:
        raise invalid_path(shown, "not UTF-8") from None
    steps = [step for step in target.split("/") if step not in ("", ".")]
    if not target.startswith("/"):
        return steps
    inside = zone.inside(steps)
    if inside is None:
        raise symlink_escape(shown)
    return inside


def _missing_route(asked: tuple[str, ...], names: list[str], rest: list[str], shown: str) -> _Route:
    if ".." in rest:  # only a link's text has it; no directory is made in order to leave it again
        depth = len(names)
        for step in rest:
            depth += -1 if step == ".." else 1
            if depth < 0:
                raise symlink_escape(shown)
        return _Route(asked, obstacle=not_found(shown))
    parts = (*names, *rest)
    if len(parts) > MAX_DEPTH:
        raise _too_deep(shown, len(parts))
    return _Route(parts, missing=len(rest))


def _is_link(found: Found) -> bool:
    return found.stat is not None and stat.S_ISLNK(found.stat.st_mode)


def _too_deep(shown: str, depth: int) -> SandboxError:
    return too_large(shown, depth, MAX_DEPTH, "Use a path with fewer directories.", unit="levels deep")
