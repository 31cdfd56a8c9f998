"""GitDir: one git directory, opened by handle, whose files and refs are read and replaced.

Every write takes git's own lock file and ends in a rename, so the user's git, which may run at the same time, sees
the old or the new content. Threat: one side is a directory that hostile commands write to. No link is followed,
only regular files are read, and nothing is read without a bound.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from typing import Final

from golem_forge.core.regex import regex
from golem_forge.sandbox.handles import CONTENT, DIRECTORY, LISTING, Handle, Opener, Parts, read_regular
from golem_forge.sandbox.process.cleanup import remove_tree

Stamp = tuple[int, int, int, int]
"""Inode, size, time of writing, time of change: other ones mean another content."""

PACKED_REFS: Final = "packed-refs"
_LARGEST: Final = 256 << 20
"""No index or list of refs is larger; a file that is stays where it is."""
_LARGEST_LOG: Final = 16 << 20
_LARGEST_FILE: Final = 1 << 20
_DEEPEST: Final = 24
"""Threat: each file below hundreds of directories takes the system as many steps to find."""
MOST_INSIDE: Final = 100_000
"""Files that commands may leave in a private copy; of more, it begins anew."""
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OURS: Final = regex(r"\.forge-[0-9a-f]{16}\.tmp(?:\.lock)?")
_STALE_NS: Final = 10_000_000_000
_EDITED_NS: Final = 600_000_000_000
"""So much longer a file of ours may be there that is no lock: git edits an index in it, for a Forge of another zone."""
UNSETTLED_NS: Final = 20_000_000
"""A directory that changed so short ago may change again within the same tick of the clock."""
_OBJECT: Final = regex(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PACKED_LINE: Final = regex(rb"^([0-9a-f]{40,64}) (refs/[^\x00-\x20\x7f]{1,1000})$", re.MULTILINE)
_LONGEST_PART: Final = 255 - len(".lock")
_FORBIDDEN: Final = regex(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.$|/$|\.lock(?:/|$)|(?:^|/)\.|^@$")


class GitLocked(Exception):
    """Another git holds the lock of this file."""

    stated_name = "Busy"


class TooManyFiles(Exception):
    """More files than anybody could mean."""

    stated_name = "TooMany"


class GitDir:
    def __init__(self, root: int, opener: Opener, base: Parts, *, most: int = 2_000_000) -> None:
        """`root` stays the caller's to close; `base`: the git directory below it; `most`: files that are looked at."""
        self._most = most
        self._root = root
        self._opener = opener
        self._base = base
        self._values: dict[str, tuple[Stamp, str]] = {}
        self._packed: tuple[Stamp | None, dict[str, str]] = (None, {})
        self._listed: dict[str, tuple[int, dict[str, os.stat_result]]] = {}
        """Of directories of objects: the time of change, and what is in it."""
        self._looked_for_stale = 0
        self.too_deep = ""
        """A directory that nobody looks into when refs are read: it lies deeper than anybody could mean."""

    def stamp(self, path: str) -> Stamp | None:
        """Of a regular file; None for anything else."""
        found = self.look(path)
        return stamp_of(found) if found is not None and stat.S_ISREG(found.st_mode) else None

    def look(self, path: str) -> os.stat_result | None:
        """What stands at a path, without following a link at its end."""
        with contextlib.suppress(OSError):
            if not self._parts(path):
                return os.fstat(self._root)
            with self._parent(path) as (parent, name):
                return os.stat(name, dir_fd=parent, follow_symlinks=False)
        return None

    def read(self, path: str) -> bytes | None:
        """The content of a regular file; None if there is none, or it is larger than git makes such a file."""
        try:
            file = Handle(self._opener(self._root, self._parts(path), CONTENT))
            size = os.fstat(file.fd).st_size
            return read_regular(file.fd, size + 1) if size <= size_limit(path) else None
        except (OSError, ValueError):
            return None

    def replace(
        self,
        path: str,
        content: bytes,
        *,
        mode: int = 0o644,
        written: int | None = None,
        still: Callable[[], bool] | None = None,
        beside: str = "",
    ) -> Stamp:
        """Gives the stamp of the new file; its time of change may be a later one. `written`: the time of writing, where
        a copy must keep it: git compares the index's with those of files. `still`: asked while the lock is held; False:
        it is no longer what was judged. `beside`: the name of a file of ours there that has the content. Raises
        GitLocked then, and while somebody else has the lock; OSError where the system refuses."""
        self._make_parents(path)
        with self._parent(path) as (parent, name), _lock(parent, name, content, mode, written, beside) as lock:
            if still is not None and not still():
                raise GitLocked(path)
            stamp = stamp_of(os.stat(lock, dir_fd=parent, follow_symlinks=False))
            try:
                os.rename(lock, name, src_dir_fd=parent, dst_dir_fd=parent)
            except IsADirectoryError:  # empty ones that are left of other refs give way, as with git
                _remove_empty(name, parent)
                os.rename(lock, name, src_dir_fd=parent, dst_dir_fd=parent)
            return stamp

    def remove(self, path: str, *, still: Callable[[], bool] | None = None) -> None:
        """A file or a link, and the directories that are empty without it (not `refs` and its first level). `still`:
        as for `replace`."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._parent(path) as (parent, name):
            if still is None:
                os.unlink(name, dir_fd=parent)
            else:
                with _lock(parent, name):
                    if not still():
                        raise GitLocked(name)
                    os.unlink(name, dir_fd=parent)
        above = path.split("/")[:-1]
        while above and above != ["logs"] and not (above[0] == "refs" and len(above) <= 2):
            try:
                with self._parent("/".join(above)) as (parent, name):
                    os.rmdir(name, dir_fd=parent)
            except OSError:
                return
            above.pop()

    def remove_stale(self) -> None:
        """Locks and files of a Forge that was killed while it wrote here. Each lock of ours is a second name of a file
        of ours beside it; nobody else's is. Looked for once in the time after which they count as stale."""
        before = time.time_ns() - _STALE_NS
        if before < self._looked_for_stale:
            return
        self._looked_for_stale = before + _STALE_NS
        for folder, _ in list(self.folders("")):
            names = self.names(folder)
            ours = {
                one.st_ino
                for name, one in names.items()
                if _OURS.fullmatch(name) and one.st_ctime_ns < before - (_EDITED_NS if one.st_nlink == 1 else 0)
            }
            for name, found in names.items():
                if found.st_ino in ours:
                    self.remove(_joined(folder, name))

    def copy_verified(self, path: str, other: GitDir, sha256: str) -> bool:
        """A file of any size, to the same path of another directory. False: its content has another SHA-256, and
        nothing was written. Raises OSError."""
        other._make_parents(path)
        source = self._opener(self._root, self._parts(path), CONTENT)
        fresh = own_name()
        with os.fdopen(source, "rb") as given, other._parent(path) as (parent, name):
            if not stat.S_ISREG(os.fstat(source).st_mode):
                return False
            try:
                made = hashlib.sha256()
                with os.fdopen(os.open(fresh, _WRITE, 0o444, dir_fd=parent), "wb") as file:
                    while block := given.read(1 << 20):
                        made.update(block)
                        file.write(block)
                if made.hexdigest() == sha256:
                    os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
                    return True
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(fresh, dir_fd=parent)
        return False

    def link_to(self, path: str, other: GitDir, name: str, *, aside: str) -> bool:
        """A second name for a file that git replaces and never changes, in another directory: it keeps this content.
        Another file that has the name is called `aside` from then on. False: that is not possible, on another file
        system for instance."""
        there_now = other.stamp(name)
        if there_now is not None and there_now == self.stamp(path):  # another link would be another time of change
            return True
        try:
            with self._parent(path) as (here, source), other._parent(name) as (there, target):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(target, aside, src_dir_fd=there, dst_dir_fd=there)
                os.link(source, target, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
        except OSError:
            return False
        return True

    def write_log(self, path: str, content: bytes | None, *, old: Stamp | None) -> None:
        """Of a ref whose lock the caller holds: git locks no log. Raises GitLocked if it is not `old`; OSError."""
        if self.stamp(path) != old:
            raise GitLocked(path)
        if content is None:
            self.remove(path)
        else:
            self.replace(path, content)

    def make_folder(self, path: str) -> None:
        self._make_parents(f"{path}/")

    def make_accessible(self) -> None:
        """Threat: a command takes away the right to enter a directory, so that what it did there is not looked at."""
        with contextlib.suppress(OSError), self._parent("") as (parent, last):
            os.chmod(last, 0o700, dir_fd=parent)
        waiting = [""]
        while waiting:
            here = waiting.pop()
            for name, found in self.names(here).items():
                if stat.S_ISDIR(found.st_mode):
                    below = _joined(here, name)
                    if stat.S_IMODE(found.st_mode) & 0o700 != 0o700:
                        with contextlib.suppress(OSError), self._parent(below) as (parent, last):
                            os.chmod(last, 0o700, dir_fd=parent)
                    if below.count("/") < _DEEPEST:
                        waiting.append(below)

    def clear(self, path: str) -> None:
        with contextlib.suppress(OSError), self._parent(path) as (parent, name):
            try:
                os.unlink(name, dir_fd=parent)
            except OSError:
                remove_tree(name, dir_fd=parent)

    def names(self, path: str = "") -> dict[str, os.stat_result]:
        try:
            directory = self._opener(self._root, self._parts(path), LISTING)
        except OSError:
            return {}
        found: dict[str, os.stat_result] = {}
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        found[entry.name] = entry.stat(follow_symlinks=False)
                    if len(found) >= self._most:
                        break
        except OSError:
            pass
        finally:
            os.close(directory)
        return found

    def files(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        """Everything below a directory that is no directory, by its path; links too. Raises TooManyFiles."""
        left = self._most
        waiting = [path]
        while waiting:
            here = waiting.pop()
            for name, found in self.names(here).items():
                left -= 1
                if left < 0:  # a cut list would look as if the others had been deleted
                    raise TooManyFiles
                below = _joined(here, name)
                if not stat.S_ISDIR(found.st_mode):
                    yield below, found
                elif below.count("/") < _DEEPEST:
                    waiting.append(below)
                else:
                    self.too_deep = below

    def objects(self) -> Iterator[tuple[str, os.stat_result]]:
        """The same of a whole store of objects, of which a directory is listed again only when it has changed: sizes
        may be old, names and kinds are not. A store has up to 256 directories, and a commit changes three of them.
        Raises TooManyFiles."""
        known, self._listed = self._listed, {}
        settled = time.time_ns() - UNSETTLED_NS
        left = self._most
        waiting = [("", 0)]
        while waiting:
            here, changed = waiting.pop()
            kept = known.get(here)
            names = kept[1] if kept is not None and kept[0] == changed else self.names(here)
            left -= len(names)
            if left < 0:
                raise TooManyFiles
            above = len(waiting)
            for name, found in names.items():
                below = _joined(here, name)
                if not stat.S_ISDIR(found.st_mode):
                    yield below, found
                elif below.count("/") < _DEEPEST:
                    waiting.append((below, found.st_ctime_ns))
            if here and len(waiting) == above and changed < settled:  # with others in it: their times are read there
                self._listed[here] = changed, names

    def folders(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        """A directory and all directories below it, but for those of objects. Raises TooManyFiles."""
        found = self.look(path)
        waiting = [(path, found)] if found is not None and stat.S_ISDIR(found.st_mode) else []
        left = self._most // 10
        while waiting:
            here, info = waiting.pop()
            left -= 1
            if left < 0:
                raise TooManyFiles
            yield here, info
            if here.count("/") < _DEEPEST:
                waiting += [
                    (_joined(here, name), one)
                    for name, one in self.names(here).items()
                    if stat.S_ISDIR(one.st_mode) and name != "objects"
                ]

    # --- refs

    def refs(self) -> dict[str, str]:
        """Every ref with its value: an object id, or `ref: …` for a symbolic one. Loose ones are read first, as git
        does: one that is being packed is then seen twice, and not never."""
        loose: dict[str, tuple[Stamp, str]] = {}
        self.too_deep = ""
        for path, info in self.files("refs"):
            if not stat.S_ISREG(info.st_mode) or path.endswith((".lock", ".tmp")):
                continue
            stamp = stamp_of(info)
            known = self._values.get(path)
            if known is None or known[0] != stamp:
                known = (stamp, self._loose(path))
            loose[path] = known
        self._values = loose
        return {**self._packed_refs(), **{path: value for path, (_, value) in loose.items() if value}}

    def ref(self, name: str) -> str | None:
        return self._loose(name) or self._packed_refs().get(name)

    def set_ref(self, name: str, value: str, *, old: str | None) -> None:
        """Raises GitLocked, also where it is no longer `old`; OSError."""
        self.replace(name, f"{value}\n".encode(), still=lambda: self.ref(name) == old)

    def delete_ref(self, name: str, *, old: str | None) -> None:
        """From the list of packed ones first: else the old value would come back for a moment."""
        if name in self._packed_refs():
            stamp = self.stamp(PACKED_REFS)
            kept, skipping = [], False
            for line in (self.read(PACKED_REFS) or b"").splitlines(keepends=True):
                if not line.startswith(b"^"):  # the object that the tag on the line before points at
                    skipping = line.rstrip(b"\n").endswith(b" " + os.fsencode(name))
                if not skipping:
                    kept.append(line)
            loose = self._loose(name)
            is_old = (loose or self._packed_refs().get(name)) == old
            self.replace(PACKED_REFS, b"".join(kept), still=lambda: is_old and self.stamp(PACKED_REFS) == stamp)
            old = loose or None
        if self._loose(name):
            self.remove(name, still=lambda: self._loose(name) == old)

    def _loose(self, name: str) -> str:
        return (self.read(name) or b"")[:4096].decode("utf-8", "replace").strip()

    def _packed_refs(self) -> dict[str, str]:
        stamp = self.stamp(PACKED_REFS)
        if stamp is None:
            return {}
        if self._packed[0] != stamp:
            content = self.read(PACKED_REFS) or b""
            refs = {os.fsdecode(match[2]): match[1].decode() for match in _PACKED_LINE.finditer(content)}
            self._packed = (stamp, refs)
        return self._packed[1]

    # --- the way there

    def _parts(self, path: str) -> Parts:
        return (*self._base, *path.split("/")) if path else self._base

    @contextlib.contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        *above, name = self._parts(path) or (".",)
        parent = self._opener(self._root, above, DIRECTORY)
        try:
            yield parent, name
        finally:
            os.close(parent)

    def _make_parents(self, path: str) -> None:
        above = path.split("/")[:-1]
        for length in range(1, len(above) + 1):
            with self._parent("/".join(above[:length])) as (parent, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=parent)


def own_name() -> str:
    """Of a file of ours in a git directory; who is killed leaves it to `remove_stale`."""
    return f".forge-{os.urandom(8).hex()}.tmp"


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def size_limit(path: str) -> int:
    """The size up to which a file is carried over. Threat: one with a hole costs a command nothing."""
    last = path.rpartition("/")[2]
    if last == PACKED_REFS or last.startswith(("index", "sharedindex")):
        return _LARGEST
    return _LARGEST_LOG if "logs/" in path else _LARGEST_FILE


@contextlib.contextmanager
def _lock(
    parent: int, name: str, content: bytes = b"", mode: int = 0o644, written: int | None = None, beside: str = ""
) -> Iterator[str]:
    """Git's own lock of a file, with its new content. Raises GitLocked. Written beside it first: whoever is killed
    while the lock is held leaves it to block the person's git, and a second name tells that the lock is ours."""
    lock, fresh = f"{name}.lock", beside or own_name()
    try:
        if not beside:
            with os.fdopen(os.open(fresh, _WRITE, mode, dir_fd=parent), "wb") as opened:
                opened.write(content)
        if written is not None:
            os.utime(fresh, ns=(written, written), dir_fd=parent, follow_symlinks=False)
        try:
            os.link(fresh, lock, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError:
            raise GitLocked(name) from None
        try:
            yield lock
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock, dir_fd=parent)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(fresh, dir_fd=parent)


def is_ref_name(name: str) -> bool:
    """Whether git would take this for the full name of a ref, and a file can have it."""
    plain = name.startswith("refs/") and len(name) < 1024 and _FORBIDDEN.search(name) is None
    return plain and all(len(part.encode("utf-8", "replace")) <= _LONGEST_PART for part in name.split("/"))


def is_object_id(text: str) -> bool:
    return _OBJECT.fullmatch(text) is not None


def stamp_of(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _remove_empty(name: str, parent: int) -> None:
    """A directory that holds nothing but empty directories. Raises OSError where there is more."""
    directory = os.open(name, LISTING, dir_fd=parent)
    try:
        for below in os.listdir(directory):
            _remove_empty(below, directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)
