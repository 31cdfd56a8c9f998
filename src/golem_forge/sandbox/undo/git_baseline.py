"""GitBaseline: the files of a zone that need not be copied, because the person's repository has their content.

A private copy of the person's index says which tracked files are unchanged (`git diff-files`) and which blob each of
them is; git tells what is untracked (`git ls-files -o`). Git works on an object store that only borrows the person's,
with no settings but ours: nothing of theirs is written, and no hook, filter, monitor or submodule runs.

A blob is a file's content only where git converts nothing: with attributes, `core.autocrlf` or a partial clone every
file is checked (`_converted`), and what differs is copied like an untracked one. Raises GitUnusable: then the zone is
walked, and everything is copied.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from golem_forge.core.regex import regex
from golem_forge.sandbox.git.command import (
    QUIET_ENVIRONMENT,
    QUIET_SETTINGS,
    GitLimits,
    GitMissing,
    GitOutputLimit,
    GitRun,
    GitTimeout,
    run_git,
)
from golem_forge.sandbox.git.repository import Repository
from golem_forge.sandbox.handles import CONTENT, Handle, entry_stat, read_regular
from golem_forge.storage.home import make_private_dir, write_private

_LIMITS: Final = GitLimits(seconds=60, output=512 << 20)
_SETTINGS: Final = (*QUIET_SETTINGS, "core.untrackedCache=false", "core.preloadIndex=true", "core.fileMode=true")
_TICK_NS: Final = 10_000_000
"""Of the clock that gives files their times."""
_LARGEST_INDEX: Final = 256 << 20
_LARGEST_BLOB: Final = 256 << 20
_BATCH_BYTES: Final = 64 << 20
_LARGEST_ATTRIBUTES: Final = 1 << 20
_PLAIN: Final = frozenset({b"H 100644 ", b"H 100755 ", b"H 120000 "})
_ATTRIBUTES: Final = b".gitattributes"
_HARMLESS: Final = regex(
    r"[-!]\S+|binary|(?:linguist|gitlab|export)-\S+|diff(?:=\S+)?|merge=\S+|whitespace\S*|encoding=\S+|delta"
)
"""Attributes that convert nothing."""
_FILTERING: Final = ("filter", "ident", "working-tree-encoding")


class GitUnusable(Exception):
    """Git cannot say what is unchanged here."""

    stated_name = "GitUnusable"


class IndexEntry(NamedTuple):
    id: bytes
    mode: int


class IndexListing:
    """The output of `git ls-files -s -v -z`, searched where it stands: git sorts it by path, and taking 50,000 lines
    apart takes longer than git's own work."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def at(self, path: bytes) -> dict[bytes, IndexEntry]:
        """A path, or all below a directory."""
        if not path:
            return self._between(b"", b"\xff" * 8)
        line = self._line(self._place(path))
        found = _index_entry(line) if _path_of(line) == path else {}
        return found or self._between(path + b"/", path + b"0")  # a file has nothing below

    def paths_in(self, directory: bytes) -> Iterator[bytes]:
        """What lies directly in a directory."""
        start = directory + b"/" if directory else b""
        place = self._place(start)
        while (line := self._line(place)) and (path := _path_of(line)).startswith(start):
            name, slash, _ = path[len(start) :].partition(b"/")
            if slash:
                place = self._place(start + name + b"0", place)  # behind all that lies below
            else:
                yield path
                place += len(line) + 1

    def _between(self, low: bytes, high: bytes) -> dict[bytes, IndexEntry]:
        found: dict[bytes, IndexEntry] = {}
        place = self._place(low)
        while (line := self._line(place)) and _path_of(line) < high:
            found |= _index_entry(line)
            place += len(line) + 1
        return found

    def _place(self, path: bytes, low: int = 0) -> int:
        """Where the first line begins whose path is not before this one. `low`: a line that is."""
        high = len(self._text)
        while low < high:
            middle = max(self._text.rfind(b"\0", low, (low + high) // 2) + 1, low)
            line = self._line(middle)
            if _path_of(line) < path:
                low = middle + len(line) + 1
            else:
                high = middle
        return low

    def _line(self, place: int) -> bytes:
        end = self._text.find(b"\0", place)
        return self._text[place:end] if end >= 0 else b""


def _index_entry(line: bytes) -> dict[bytes, IndexEntry]:
    facts, _, path = line.partition(b"\t")
    _, mode, id_, stage = facts.split(b" ")
    return {path: IndexEntry(id_, int(mode, 8))} if stage == b"0" and mode != b"160000" else {}


class WorkTreeState(NamedTuple):
    """What differs from the index, paths relative to the zone."""

    changed: frozenset[bytes]
    """Tracked paths whose content is not the blob of the index, or may not be; gone ones included."""
    untracked: tuple[bytes, ...]
    """Files, and directories (they end with `/`) with nothing tracked below."""


class GitBaseline:
    def __init__(self, zone: str, repository: Repository, folder: Path) -> None:
        """`folder`: private, for the copy of the index and the borrowing object store."""
        self._zone = zone
        self._git_dir = repository.git_dir
        self._person_index = os.path.join(repository.git_dir, repository.own, "index")
        self._folder = folder
        self._index = folder / "index"
        self._listing: IndexListing | None = None
        self._listed = 0
        self.hidden: tuple[os.stat_result, list[tuple[bytes, bytes]]] | None = None
        """Of the person's index as it was then: the entries with a flag, as (letter of `ls-files -v`, path)."""

    @property
    def has_snapshot(self) -> bool:
        return self._index.exists()

    def racy_since(self) -> int:
        """A file that changed after git wrote the index may look unchanged to git, which compares whole seconds, and
        believes a time of writing that anybody can set. Before this moment it looked at the file later."""
        info = entry_stat(self._person_index)
        return info.st_mtime_ns - _TICK_NS if info is not None else 0

    def forget_snapshot(self) -> None:
        self._index.unlink(missing_ok=True)

    def take_snapshot(self, files: int | None = None) -> WorkTreeState:
        """A new copy of the person's index, and what differs from it. The old copy is replaced only by a good one.
        `files`: how many there are in the zone, where that is known."""
        self._make_borrower()
        fresh = self._folder / "index.new"
        try:
            data, info = _read_index(self._person_index)
            write_private(fresh, data, durable=False)
            os.utime(fresh, ns=(info.st_mtime_ns, info.st_mtime_ns))  # git tells by it which entries are racy
            with ThreadPoolExecutor(3) as pool:
                listed = pool.submit(self._git, ("ls-files", "-s", "-v", "-z"), index=fresh)
                settings = pool.submit(self._converting_settings)
                others = pool.submit(self._untracked, fresh) if files != _count_in_header(data) else None
                changed = self.compare_tracked(fresh)
                entries, careful = listed.result(), settings.result()
                odd = _odd_entries(entries)
                if others is not None:
                    untracked = others.result()
                elif not odd and files == entries.count(b"\0") - sum(not self._is_file(path) for path in changed):
                    untracked = ()  # every file is a tracked one
                else:
                    untracked = self._untracked(fresh)
            changed |= frozenset(map(_path_of, odd))
            if careful or not self._harmless_attributes(entries, untracked):
                changed |= self._converted(entries.split(b"\0"), changed, fresh)
            os.replace(fresh, self._index)
            self._listing, self._listed = IndexListing(entries), self._index.stat().st_ino
            self.hidden = (info, [(one[:1], _path_of(one)) for one in odd if one[:1] != b"H"])
        except OSError as error:
            raise GitUnusable(os.strerror(error.errno or 0)) from None
        submodules = tuple(_path_of(one) + b"/" for one in odd if one[2:8] == b"160000")
        return WorkTreeState(changed, (*untracked, *submodules))

    def compare(self) -> WorkTreeState:
        """What differs from the copy of the index that stands."""
        self._make_borrower()
        with ThreadPoolExecutor(1) as pool:
            others = pool.submit(self._untracked, self._index)
            return WorkTreeState(self.compare_tracked(), others.result())

    def compare_tracked(self, index: Path | None = None) -> frozenset[bytes]:
        """Only the tracked paths that differ from the copy of the index."""
        raw = self._git(("diff-files", "-z", "--name-only", "--ignore-submodules=all"), index=index)
        return frozenset(path for path in raw.split(b"\0") if path)

    def _untracked(self, index: Path) -> tuple[bytes, ...]:
        raw = self._git(("ls-files", "-o", "--directory", "-z"), index=index)
        return tuple(path for path in raw.split(b"\0") if path and not path.startswith(b".git/"))

    def _is_file(self, path: bytes) -> bool:
        info = entry_stat(os.path.join(self._zone, os.fsdecode(path)))
        return info is not None and not stat.S_ISDIR(info.st_mode)

    def lookup(self, paths: Collection[bytes]) -> dict[bytes, IndexEntry]:
        """Of the copied index: these paths, and all below a path."""
        found: dict[bytes, IndexEntry] = {}
        if paths and (listing := self._current_listing()) is not None:
            for path in paths:
                found |= listing.at(path)
        return found

    def paths_in(self, directory: bytes) -> Iterable[bytes]:
        """Of the copied index: what lies directly in a directory."""
        listing = self._current_listing()
        return listing.paths_in(directory) if listing is not None else ()

    def _current_listing(self) -> IndexListing | None:
        try:
            inode = self._index.stat().st_ino
        except FileNotFoundError:
            return None
        if self._listing is None or self._listed != inode:  # another process may have taken a newer copy
            self._listing, self._listed = IndexListing(self._git(("ls-files", "-s", "-v", "-z"))), inode
        return self._listing

    def blobs(self, ids: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """(id, content) of each that is there and not too large to be read."""
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return
        try:
            yield from self._contents(wanted, GitLimits(seconds=_LIMITS.seconds, output=_BATCH_BYTES))
            return
        except GitUnusable:  # more than that
            batches = self._batches(wanted)
        for batch in batches:
            with contextlib.suppress(GitUnusable):  # these are lost, and the others are not
                yield from self._contents(batch)

    def _contents(self, ids: list[bytes], limits: GitLimits = _LIMITS) -> list[tuple[bytes, bytes]]:
        data = self._git(("cat-file", "--batch"), given=b"\n".join(ids) + b"\n", limits=limits)
        found: list[tuple[bytes, bytes]] = []
        place = 0
        for id_ in ids:
            end = data.index(b"\n", place)
            words = data[place:end].split()
            place = end + 1
            if words[1:2] == [b"blob"]:
                size = int(words[2])
                found.append((id_, data[place : place + size]))
                place += size + 1
        return found

    def _batches(self, ids: list[bytes]) -> Iterator[list[bytes]]:
        """As many at a time as fit into memory."""
        sizes = self._git(("cat-file", "--batch-check=%(objectsize)"), given=b"\n".join(ids) + b"\n").splitlines()
        batch: list[bytes] = []
        total = 0
        for id_, said in zip(ids, sizes, strict=True):
            size = int(said) if said.isdigit() else 0
            if size > _LARGEST_BLOB:
                continue
            if batch and total + size > _BATCH_BYTES:
                yield batch
                batch, total = [], 0
            batch.append(id_)
            total += size
        if batch:
            yield batch

    # --- whether blobs are what is in the files

    def _converting_settings(self) -> bool:
        """Whether settings of the person make git convert files, or leave objects at a server."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        wanted = r"^(core\.(autocrlf|eol|attributesfile)|extensions\..*|remote\..*\.(promisor|partialclonefilter))$"
        run = self._run(
            ("config", "--null", "--get-regexp", wanted), {**environ, "GIT_DIR": self._git_dir}, settings=()
        )
        for line in run.output.split(b"\0"):
            name, _, value = line.partition(b"\n")
            if name == b"extensions.objectformat" and value.lower() != b"sha1":
                raise GitUnusable("another object format")
            if name and name != b"extensions.worktreeconfig" and value.lower() not in (b"false", b"lf", b""):
                return True
        own = os.path.join(self._git_dir, "info", "attributes")
        theirs = os.path.expanduser("~/.config/git/attributes")
        return any(_has_content(path) for path in (own, theirs, "/etc/gitattributes"))

    def _harmless_attributes(self, entries: bytes, untracked: Sequence[bytes]) -> bool:
        files = []
        if _ATTRIBUTES + b"\0" in entries:
            files = [path for one in entries.split(b"\0") if _is_attributes(path := _path_of(one))]
        files += filter(_is_attributes, untracked)
        for path in files:
            text = _regular_text(os.path.join(os.fsencode(self._zone), path))
            if text is None:
                return False
            lines = (line.strip() for line in text.splitlines())
            if not all(
                _HARMLESS.fullmatch(word) for line in lines if line and line[0] != "#" for word in line.split()[1:]
            ):
                return False
        return True

    def _converted(self, entries: Sequence[bytes], known: Collection[bytes], index: Path) -> frozenset[bytes]:
        """Tracked paths whose file has another content than the blob: a conversion of line ends makes a blob smaller, a
        filter may do anything, and an object may not be there."""
        plain = {_path_of(one): one for one in entries if one[:9] in _PLAIN}
        paths = [path for path in plain if path not in known]
        ids = b"".join(plain[path].split(b" ")[2] + b"\n" for path in paths)
        sizes = self._git(("cat-file", "--batch-check=%(objectsize)"), given=ids).splitlines()
        found = {
            path
            for path, size in zip(paths, sizes, strict=True)
            if not size.isdigit() or int(size) != _size(os.path.join(os.fsencode(self._zone), path))
        }
        said = self._git(("check-attr", "-z", "--stdin", *_FILTERING), given=b"\0".join(paths) + b"\0", index=index)
        words = said.split(b"\0")
        for path, value in zip(words[::3], words[2::3], strict=False):
            if value not in (b"unspecified", b"unset"):
                found.add(path)
        return frozenset(found)

    # --- git

    def _make_borrower(self) -> None:
        git = self._folder / "git"
        if (git / "HEAD").exists():
            return
        for name in ("", "objects", "objects/info", "refs"):
            make_private_dir(git / name)
        objects = os.path.join(self._git_dir, "objects")
        if "\n" in objects:
            raise GitUnusable("a path with a line end")
        write_private(git / "objects/info/alternates", os.fsencode(objects) + b"\n", durable=False)
        write_private(git / "config", b"[core]\nrepositoryformatversion = 0\nbare = false\n", durable=False)
        write_private(git / "HEAD", b"ref: refs/heads/none\n", durable=False)

    def _git(
        self, words: Sequence[str], *, given: bytes = b"", index: Path | None = None, limits: GitLimits = _LIMITS
    ) -> bytes:
        environ = {
            **QUIET_ENVIRONMENT,
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_DIR": str(self._folder / "git"),
            "GIT_WORK_TREE": self._zone,
            "GIT_INDEX_FILE": str(index or self._index),
        }
        run = self._run(words, environ, given, limits=limits)
        if run.code:
            raise GitUnusable(run.errors or f"git {words[0]} ended with {run.code}")
        return run.output

    def _run(
        self,
        words: Sequence[str],
        environ: dict[str, str],
        given: bytes = b"",
        settings: Sequence[str] = _SETTINGS,
        limits: GitLimits = _LIMITS,
    ) -> GitRun:
        options = [word for one in settings for word in ("-c", one)]
        folder = self._folder
        try:
            return run_git(
                ("-C", self._zone, *options, *words), folder=folder, environ=environ, limits=limits, stdin=given
            )
        except GitMissing:
            raise GitUnusable("there is no git") from None
        except (GitTimeout, GitOutputLimit, OSError) as error:
            raise GitUnusable(type(error).__name__) from None


def _read_index(path: str) -> tuple[bytes, os.stat_result]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _LARGEST_INDEX:
            raise GitUnusable("its index is too large")
        return file.read(), info


def _count_in_header(index: bytes) -> int:
    """How many entries an index says it has. Only a hint: git counts them itself."""
    return int.from_bytes(index[8:12], "big")


def _odd_entries(entries: bytes) -> list[bytes]:
    """Of `ls-files -s -v`: what is no plain tracked file. Hidden by a flag, in conflict, a submodule. Searched first: a
    list of 50,000 lines takes longer than all the rest."""
    tracked = entries.count(b"\0H 1") + entries.startswith(b"H 1")
    if tracked == entries.count(b"\0") and b"\0H 16" not in entries and not entries.startswith(b"H 16"):
        return []
    return [one for one in entries.split(b"\0") if one and one[:9] not in _PLAIN]


def _is_attributes(path: bytes) -> bool:
    return path.rpartition(b"/")[2] == _ATTRIBUTES


def _regular_text(path: bytes) -> str | None:
    """None: no regular file. Threat: a link that leads elsewhere, a FIFO that nobody writes to."""
    try:
        file = Handle(os.open(path, CONTENT))
        data = read_regular(file.fd, _LARGEST_ATTRIBUTES)
    except OSError:
        return None
    return data.decode("utf-8", "replace") if data is not None else None


def _path_of(line: bytes) -> bytes:
    return line.partition(b"\t")[2]


def _size(path: bytes) -> int:
    info = entry_stat(os.fsdecode(path))
    return info.st_size if info is not None else -1


def _has_content(path: str) -> bool:
    with contextlib.suppress(OSError):
        return os.stat(path).st_size > 0
    return False
