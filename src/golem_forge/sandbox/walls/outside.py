"""What stands at a path outside of every zone, in words: for `forge sandbox explain`, which starts nothing.

Takes the mounts of full walls and a host path, gives what a child finds there. The mounts themselves are asked, in
their order, so that what is said is what would be built; only whether a shown thing exists is looked up on the disk.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from golem_forge.sandbox.walls.forbidden import is_below
from golem_forge.sandbox.walls.layout import SHIPPED, SYSTEM, Masked, Mount, Text, Words

ABSENT: Final = "not there"
PRIVATE: Final = "private, gone afterwards"
HIDDEN: Final = "hidden: there, empty and unreadable"
_OWN: Final = "system, read-only; a small file of the walls' own"
ABOVE: Final = "a directory with nothing but what is shown below it, read-only"
_MOST_LINKS: Final = 8
_ARGUMENTS: Final = {"--ro-bind": 2, "--ro-bind-try": 2, "--bind": 2, "--symlink": 2}
"""How many words follow; one where it is not said."""


def stands_outside(path: str, mounts: Sequence[Mount], toolchains: Iterable[str]) -> str:
    """`path` is absolute and folded; `toolchains`: the directories shown as such."""
    known = tuple(toolchains)
    for _ in range(_MOST_LINKS):
        said, link = _at(path, mounts, known)
        if not link:
            return said
        path = link
    return ABSENT


def _at(path: str, mounts: Sequence[Mount], toolchains: tuple[str, ...]) -> tuple[str, str]:
    """What the last mount over the path makes of it; or the path that a link of the walls leads to instead."""
    said, link = ABSENT, ""
    for kind, source, place in _operations(mounts):
        if not is_below(path, place):
            if said == ABSENT and is_below(place, path) and kind != "remount":
                said = ABOVE
            continue
        rest = path[len(place.rstrip("/")) :]
        if kind == "link":
            said, link = ABSENT, posixpath.normpath(posixpath.join(posixpath.dirname(place), source) + rest)
            continue
        if kind == "remount":
            said = (HIDDEN if path == place else ABSENT) if said == PRIVATE else said
            continue
        link = ""
        if kind == "shown":
            said = _shown(place, toolchains) if os.path.lexists(source + rest) else ABSENT
        else:
            said = {"own": _OWN, "masked": HIDDEN, "system": "system, read-only", "private": PRIVATE}[kind]
    return said, link


def _shown(place: str, toolchains: tuple[str, ...]) -> str:
    if place in toolchains:
        return "toolchain, read-only"
    return "system, read-only" if any(is_below(place, one) for one in (*SYSTEM, "/etc", SHIPPED)) else "read-only"


def _operations(mounts: Sequence[Mount]) -> Iterator[tuple[str, str, str]]:
    """(kind, source, place) of everything that stands outside of zones, in order."""
    for mount in mounts:
        if isinstance(mount, Text):
            yield "own", "", mount.place
        elif isinstance(mount, Masked):
            yield "masked", "", mount.place
        elif isinstance(mount, Words):
            yield from _of_words(mount.words)


def _of_words(words: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    at = 0
    while at < len(words):
        word, count = words[at], _ARGUMENTS.get(words[at], 1)
        given = words[at + 1 : at + 1 + count]
        at += 1 + count
        if word in ("--ro-bind", "--ro-bind-try", "--bind"):
            yield ("system" if given[1].startswith("/proc") else "shown"), given[0], given[1]
        elif word == "--symlink":
            yield "link", given[0], given[1]
        elif word == "--proc":
            yield "system", "", given[0]
        elif word in ("--tmpfs", "--dev"):
            yield "private", "", given[0]
        elif word == "--remount-ro" and given[0] not in ("/", "/dev"):
            yield "remount", "", given[0]
