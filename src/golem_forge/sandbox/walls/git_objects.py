"""New objects in a repository's store, checked by their names: an object's name is the hash of its content.

The store is shared between the person's git and commands. Threat: git believes the name of a loose object, and of most
objects in a pack; under the name of an old directory a command can store another one, and `git status` is clean while
a module is evil. A link in the store makes the person's git write and delete elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import zlib
from collections.abc import Iterator
from typing import Final

from golem_forge.core.leftovers import Leftover, Severity
from golem_forge.sandbox.walls.git_dir import GitDir
from golem_forge.sandbox.walls.git_program import agrees

_STORE: Final = "objects"
_MOST_OBJECTS: Final = 5_000
_MOST_BYTES: Final = 128 << 20
_LARGEST: Final = 64 << 20
_SLACK_NS: Final = 50_000_000
"""So far the clock of files may be behind the one that is read."""
_MOST_NAMED: Final = 5


class ObjectCheck:
    """One look at the objects that came since a moment."""

    def __init__(self, real: GitDir, host: str, shown: str, since_ns: int) -> None:
        """`host`: the git directory on the host; `shown`: how people call it."""
        self._real = real
        self._host = host
        self._shown = shown
        self._since = since_ns - _SLACK_NS
        self._objects = _MOST_OBJECTS
        self._bytes = _MOST_BYTES

    def run(self) -> Iterator[Leftover]:
        links: list[str] = []
        forged: list[str] = []
        packs: list[str] = []
        unread = 0
        for name, info in self._real.names(_STORE).items():
            path = f"{_STORE}/{name}"
            if stat.S_ISLNK(info.st_mode):
                links.append(path)
            elif stat.S_ISDIR(info.st_mode):
                for below, found in self._real.names(path).items():
                    if stat.S_ISLNK(found.st_mode):
                        links.append(f"{path}/{below}")
                    elif found.st_ctime_ns < self._since or not stat.S_ISREG(found.st_mode):
                        continue
                    elif name == "pack" and below.endswith((".idx", ".pack")):
                        packs.append(f"{path}/{below.rpartition('.')[0]}.idx")
                    elif name == "info" and below in ("alternates", "http-alternates"):
                        links.append(f"{path}/{below}")
                    elif len(name) == 2 and not below.startswith("tmp"):
                        good = self._is_sound(f"{path}/{below}", name + below, found.st_size)
                        unread += good is None
                        if good is False:
                            forged.append(f"{path}/{below}")
        for path in (*links, *forged):
            with contextlib.suppress(OSError):
                self._real.remove(path)
        if links:
            yield self._told(Severity.CRITICAL, "led your git elsewhere, and was removed", links)
        if forged:
            yield self._told(Severity.CRITICAL, "had another content than its name says, and was removed", forged)
        packs = sorted(set(packs))
        if packs and (bad := self._bad_packs(packs)) is not None:
            severity = Severity.CRITICAL if bad else Severity.NOTE
            text = "is damaged or forged: run `git fsck`" if bad else "is new and was not checked: `git fsck` does"
            yield self._told(severity, text, packs)
        if unread:
            text = f"{unread:,} new objects in {self._shown}/{_STORE} were not checked: `git fsck` does."
            yield Leftover(kind="git_objects", severity=Severity.NOTE, text=text)

    def _is_sound(self, path: str, name: str, size: int) -> bool | None:
        """None: too much to read."""
        if self._objects <= 0 or size > self._bytes:
            return None
        self._objects -= 1
        self._bytes -= size
        content = self._real.read(path)
        if content is None:
            return False
        try:
            unpacked = zlib.decompressobj()
            plain = unpacked.decompress(content, _LARGEST)
            if unpacked.unconsumed_tail:
                return None
        except zlib.error:
            return False
        self._bytes -= len(plain)
        made = hashlib.sha256(plain) if len(name) == 64 else hashlib.sha1(plain, usedforsecurity=False)
        return made.hexdigest() == name

    def _bad_packs(self, packs: list[str]) -> bool | None:
        """None: git has looked at each object in them, and each is what its name says. False: nobody could."""
        if len(packs) > _MOST_NAMED:
            return False
        sound = agrees(self._host, "verify-pack", *(os.path.join(self._host, path) for path in packs))
        return {True: None, False: True, None: False}[sound]

    def _told(self, severity: Severity, what: str, paths: list[str]) -> Leftover:
        named = ", ".join(f"{self._shown}/{path}" for path in paths[:_MOST_NAMED])
        more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
        shown = tuple(f"{self._shown}/{path}" for path in paths[:20])
        return Leftover(kind="git_objects", severity=severity, text=f"{named}{more} {what}.", paths=shown)
