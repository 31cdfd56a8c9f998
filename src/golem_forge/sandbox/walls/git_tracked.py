"""TrackedFiles: git's index of a zone, as far as somebody must be able to trust it.

Takes the person's git directory; judges an index that a command wrote before it is taken over, says which paths git
tracks, and tells of files that changed where git was told not to look. Threat: `git status` believes the index, so a
command can hide a changed Makefile in it. See `git_index` for what is compared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from typing import Final

from golem_forge.core.leftovers import Leftover, Severity
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls.git_config import read_config
from golem_forge.sandbox.walls.git_dir import GitDir, Parts, Stamp
from golem_forge.sandbox.walls.git_index import (
    SHA1_SIZE,
    SHA256_SIZE,
    Conversions,
    IndexFile,
    compare_indexes,
    plain_index,
    read_index,
)
from golem_forge.sandbox.zones import Zone

_INDEX: Final = "index"
_ODD_PATH: Final = re.compile(rb"(?:^|/)(?:\.\.?|\.git)?(?:/|$)|\x00", re.IGNORECASE)
"""Git refuses such paths when it adds them, not when it finds them in an index."""
_NS: Final = 1_000_000_000


class TrackedFiles:
    def __init__(self, zone: Zone) -> None:
        self._zone = zone
        self._real = GitDir(zone.root.fd, zone.opener, (GIT_FILE,))
        self._known: tuple[Stamp | None, IndexFile | None] = (None, None)
        self._changed: Collection[Parts] = ()
        self._compared = False
        self._gitlinks: set[Parts] = set()
        self.leftovers: list[Leftover] = []

    def begin(self, changed: Collection[Parts]) -> None:
        """`changed`: what a command made or changed in the zone, for all that follows until `finish`."""
        self._changed, self._compared = changed, False

    def judged(self, name: str, theirs: bytes | None, ours: bytes) -> tuple[bytes, str]:
        """What of an index that a command wrote is taken over, or why nothing is. Caches in it are left out, and what
        it hides is told; files are compared with the entries of the zone's own work tree only."""
        shown = self._zone.virtual((GIT_FILE, name))
        refused = f"The command wrote {shown} so that it cannot be judged ({{}}); the old one stays."
        size = self._hash_size()
        try:
            after = read_index(ours, hash_size=size)
            before = read_index(theirs, hash_size=size) if theirs is not None else None
            if after.split:  # entries in it have no names
                if before is None or not before.split:
                    return ours, refused.format("a split index")
                text = f"{shown} is split: what a command hides in it is not seen. Join it by `git update-index"
                text += " --no-split-index`."
                self.leftovers.append(Leftover(kind="git_index", severity=Severity.WARNING, text=text))
                return ours, ""
            if any(_ODD_PATH.search(entry.path.removesuffix(b"/")) for entry in after.entries):
                return ours, refused.format("it names paths outside of the work tree or in .git")
            distrusted: Collection[bytes] = ()
            if name == _INDEX:
                known = set(before.gitlinks()) if before is not None else set()
                self._gitlinks |= set(after.gitlinks()) - known
                distrusted = self._compare(before, after)
            return plain_index(ours, hash_size=size, distrusted=distrusted), ""
        except ValueError as error:
            return ours, refused.format(error)

    def finish(self) -> None:
        """Tell of changed files that git was told not to look at, where the index itself did not change."""
        if self._changed and not self._compared and (index := self._index()) is not None and not index.split:
            self._compare(index, index)
        self._changed = ()

    def new_gitlinks(self) -> tuple[Parts, ...]:
        """Directories that commands added to the index as repositories of their own, since somebody last asked."""
        found, self._gitlinks = tuple(self._gitlinks), set()
        return found

    def includes(self) -> Callable[[Parts], bool]:
        """Whether git tracks a path of the zone."""
        index = self._index()
        paths = {entry.path for entry in index.entries} if index is not None else set()
        return lambda parts: os.fsencode("/".join(parts)) in paths

    def _compare(self, before: IndexFile | None, after: IndexFile) -> Collection[bytes]:
        compared = compare_indexes(before, after, self._zone, changed=self._changed, conversions=self._conversions())
        self.leftovers += compared.leftovers
        self._compared = True
        return compared.distrusted

    def _index(self) -> IndexFile | None:
        """The person's own, read again when it is another one."""
        stamp = self._real.stamp(_INDEX)
        if self._known[0] != stamp:
            try:
                content = self._real.read(_INDEX) if stamp is not None else None
                found = None
                if content is not None and stamp is not None:
                    found = read_index(content, hash_size=self._hash_size(), mtime=stamp[2] // _NS)
            except ValueError:
                found = None
            self._known = (stamp, found)
        return self._known[1]

    def _hash_size(self) -> int:
        return SHA256_SIZE if setting(self._real, "extensions.objectformat") == "sha256" else SHA1_SIZE

    def _conversions(self) -> Conversions:
        """What the person's repository does to content on its way in."""
        try:
            settings = read_config((self._real.read("config") or b"").decode("utf-8", "surrogateescape"))
        except ValueError:
            settings = []
        names = {one.subsection for one in settings if one.section == "filter" and one.key in ("clean", "process")}
        attributes = (self._real.read("info/attributes") or b"").decode("utf-8", "surrogateescape")
        return Conversions(filters=frozenset(name or "" for name in names), attributes=(attributes,))


def setting(git: GitDir, name: str) -> str:
    """A value of a repository's own config, in lower case; empty if there is none, or nobody can read it."""
    try:
        settings = read_config((git.read("config") or b"").decode("utf-8", "surrogateescape"))
    except ValueError:
        return ""
    return next((one.value or "" for one in reversed(settings) if one.name == name), "").casefold()
