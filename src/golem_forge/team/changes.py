"""What a session changed in its workspace, and what bringing it into another checkout would write.

`changes` gives the files that differ between the base and the last checkpoint, `diff` the unified diff, both bounded.
`read_change_set` gives all of it with the contents. `apply_plan` takes that and a checkout and gives the files to
delete there, then those to write, merged with what the checkout holds, and the conflicts. It writes nothing and runs no
git in the checkout: `cli.team.changes` asks once and writes. Raises WorkspaceError. Names and texts are an agent's:
escape them before you show them.

Threats: a checkpoint that names `.git/hooks/…` or `../…`; a link in the checkout that leads out of it; contents without
end. Such a path is a conflict, and sizes are bounded.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.sandbox.git.command import GitLimits
from golem_forge.sandbox.git.directory import is_object_id
from golem_forge.sandbox.handles import CONTENT, DIRECTORY, Handle, best_opener, read_regular
from golem_forge.team.checkpoint import is_git_name
from golem_forge.team.workspace import GITLINK, LINK, Clone, WorkspaceError, disk_errors, last_commit, run_local

DIFF_BYTES: Final = 1 << 20
MOST_APPLIED: Final = 256 << 20
"""Bytes of all old and new contents that a plan reads."""
_SECONDS: Final = 120.0
_COMPARE: Final = ("diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty")
_STATUS: Final = {"A": "added", "D": "deleted", "R": "renamed", "C": "added", "M": "modified", "T": "modified"}
_NOTHING: Final = "000000"
_MODES: Final = frozenset({_NOTHING, "100644", "100755", LINK, GITLINK})
MOST_SENT: Final = 32 << 20
"""Bytes of all contents that a team's server sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    path: str
    status: str
    """`added`, `modified`, `deleted` or `renamed`."""
    old_path: str = ""
    """The old name of a renamed file."""
    added: int = 0
    """Number of added lines."""
    deleted: int = 0
    binary: bool = False


@dataclass(frozen=True, slots=True)
class WorkspaceDiff:
    text: str
    cut: bool
    """Whether the diff was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWrite:
    path: str
    content: bytes
    executable: bool
    before: bytes | None
    """The checkout's present content; None if there is no file."""
    merged: bool = False
    """The checkout had changes of its own, which are kept."""
    moved_from: str = ""
    """The old name of a renamed file, which is among the deletes."""


@dataclass(frozen=True, slots=True)
class FileDelete:
    path: str
    before: bytes


@dataclass(frozen=True, slots=True)
class Conflict:
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    writes: tuple[FileWrite, ...]
    deletes: tuple[FileDelete, ...]
    conflicts: tuple[Conflict, ...]
    """If there are any, nothing should be written before a person has looked."""
    unchanged: tuple[str, ...]
    """Files that the checkout already has."""


class Difference(NamedTuple):
    """One changed file, as in `git diff-tree --raw`."""

    status: str
    old_mode: str
    mode: str
    old_id: str
    id: str
    old_path: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceChangeSet:
    """Everything that a session changed, with the contents before and after."""

    base: str
    commit: str
    differences: tuple[Difference, ...]
    blobs: Mapping[str, bytes]
    """Contents by object id, without links and submodules."""


def changes(clone: Clone) -> tuple[Change, ...]:
    """Returns the changes between the base and the last checkpoint."""
    listed = _compare(clone, "-z", "--raw", "--numstat").split(b"\0")
    found, rest = _read_raw(listed)
    counted = _read_counts(rest)
    return tuple(
        Change(
            path=one.path,
            status=_STATUS.get(one.status, "modified"),
            old_path=one.old_path if one.status == "R" else "",
            added=added or 0,
            deleted=deleted or 0,
            binary=added is None,
        )
        for one in found
        for added, deleted in [counted.get(one.path, (0, 0))]
    )


def diff(clone: Clone, limit: int = DIFF_BYTES) -> WorkspaceDiff:
    """Returns the diff; binary files are only named."""
    limits = GitLimits(seconds=_SECONDS, output=limit, cut=True)
    words = (*_COMPARE, "-p", "--src-prefix=a/", "--dst-prefix=b/", clone.base, last_commit(clone))
    ran = run_local(clone, words, "compare the files", limits=limits)
    shown = ran.output[: ran.output.rfind(b"\n") + 1] if ran.cut else ran.output
    return WorkspaceDiff(shown.decode("utf-8", "replace"), ran.cut)


def session_changes(clone: Clone, *, contents: bool, limit: int = MOST_APPLIED) -> SessionChanges:
    """Returns the changes of a session. `limit`: bytes of all contents."""
    return SessionChanges(changes(clone), diff(clone), read_change_set(clone, limit) if contents else None)


def _compare(clone: Clone, *words: str) -> bytes:
    return run_local(clone, (*_COMPARE, *words, clone.base, last_commit(clone)), "compare the files").output


def _read_raw(listed: Sequence[bytes]) -> tuple[list[Difference], Sequence[bytes]]:
    """Reads the lines of `--raw`. Returns them and what follows."""
    found: list[Difference] = []
    at = 0
    while at < len(listed) and listed[at].startswith(b":"):
        old_mode, mode, old_id, id, status = listed[at][1:].decode("ascii").split()
        old_path = path = os.fsdecode(listed[at + 1])
        at += 2
        if status[0] in "RC":
            path = os.fsdecode(listed[at])
            at += 1
        found.append(Difference(status[0], old_mode, mode, old_id, id, old_path, path))
    return found, listed[at:]


def _read_counts(listed: Sequence[bytes]) -> dict[str, tuple[int | None, int | None]]:
    """Lines added and deleted of each path; None: a binary file."""
    found: dict[str, tuple[int | None, int | None]] = {}
    left = iter(listed)
    for line in left:
        if not line:
            continue
        added, deleted, name = line.split(b"\t", 2)
        if not name:  # a rename: old and new name follow
            next(left)
            name = next(left)
        found[os.fsdecode(name)] = (_count(added), _count(deleted))
    return found


def _count(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None


# ---- from a team's server


class SessionChanges(NamedTuple):
    files: tuple[Change, ...]
    diff: WorkspaceDiff
    contents: WorkspaceChangeSet | None = None


def changes_to_json(found: SessionChanges) -> dict[str, Any]:
    """Raises WorkspaceError for contents that a server does not send."""
    files = [{**asdict(one), "path": _shown(one.path), "old_path": _shown(one.old_path)} for one in found.files]
    told: dict[str, Any] = {"files": files, "diff": found.diff.text, "cut": found.diff.cut}
    if (given := found.contents) is not None:
        if any(_shown(path) != path for one in given.differences for path in (one.old_path, one.path)):
            raise WorkspaceError("A file has a name that is not UTF-8; fetch the session's ref with git.")
        told |= {"base": given.base, "commit": given.commit, "differences": [list(one) for one in given.differences]}
        told["blobs"] = {id: base64.b64encode(data).decode() for id, data in given.blobs.items()}
    return told


def changes_from_json(told: Mapping[str, Any]) -> SessionChanges:
    """Threat: whatever answers. Every member is checked, and each content is the one that its id names."""
    try:
        files = tuple(Change(**one) for one in told["files"])
        fits = all(_fits(one) for one in files) and isinstance(told["cut"], bool) and isinstance(told["diff"], str)
        contents = _contents_from_json(told) if "differences" in told else None
    except (KeyError, TypeError, ValueError, AttributeError):
        fits = False
    if not fits:
        raise WorkspaceError("The team's server gave no changes that Forge can read; upgrade the older one.")
    return SessionChanges(files, WorkspaceDiff(told["diff"], told["cut"]), contents)


def _fits(one: Change) -> bool:
    texts, numbers = (one.path, one.status, one.old_path), (one.added, one.deleted)
    return all(isinstance(each, str) for each in texts) and all(isinstance(each, int) for each in numbers)


def _contents_from_json(told: Mapping[str, Any]) -> WorkspaceChangeSet:
    """Reads a change set from JSON. Raises ValueError for anything else."""
    found = tuple(Difference(*map(str, one)) for one in told["differences"])
    base, commit = str(told["base"]), str(told["commit"])
    blobs = {str(id): base64.b64decode(data, validate=True) for id, data in told["blobs"].items()}
    known = all(
        one.status in _STATUS and {one.old_mode, one.mode} <= _MODES and is_object_id(one.old_id) and one.path
        for one in found
    )
    if not (known and is_object_id(base) and is_object_id(commit) and wanted_blobs(found) <= blobs.keys()):
        raise ValueError("not a set of changes")
    if any(blob_id(data, id) != id for id, data in blobs.items()):
        raise ValueError("a content is not the one that its id names")
    return WorkspaceChangeSet(base=base, commit=commit, differences=found, blobs=blobs)


def blob_id(data: bytes, like: str) -> str:
    """git's id of a file's content, by the algorithm of another id."""
    algorithm = "sha256" if len(like) == 64 else "sha1"
    return hashlib.new(algorithm, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _shown(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()


# ---- into another checkout


def read_change_set(clone: Clone, limit: int = MOST_APPLIED) -> WorkspaceChangeSet:
    """Reads the change set. `limit`: bytes of all contents."""
    commit = last_commit(clone)
    found, _ = _read_raw(_compare(clone, "-z", "--raw", "--no-abbrev").split(b"\0"))
    blobs = _read_blobs(clone, wanted_blobs(found), limit)
    return WorkspaceChangeSet(base=clone.base, commit=commit, differences=tuple(found), blobs=blobs)


def wanted_blobs(found: Iterable[Difference]) -> set[str]:
    files = (one for one in found if not {one.old_mode, one.mode} & {LINK, GITLINK})
    return {id for one in files for id in (one.old_id, one.id) if id.strip("0")}


def apply_plan(given: WorkspaceChangeSet, checkout: Path, scratch: Clone) -> ApplyPlan:
    """`checkout`: the top of a work tree; its repository is not read, so a file counts as what it is on disk.
    `scratch`: where files are merged."""
    planner = _Planner(scratch, checkout, given.blobs)
    for one in sorted(given.differences, key=lambda one: one.mode != _NOTHING and one.status != "R"):
        planner.plan(one)
    return ApplyPlan(tuple(planner.writes), tuple(planner.deletes), tuple(planner.conflicts), tuple(planner.unchanged))


class _Held(NamedTuple):
    """A file of the checkout."""

    content: bytes
    executable: bool


class _Clash(Exception):
    """Raised with the reason why a change cannot be applied."""

    stated_name = "Clash"


class _Planner:
    def __init__(self, clone: Clone, checkout: Path, blobs: Mapping[str, bytes]) -> None:
        self._clone = clone
        self._blobs = blobs
        self._open = best_opener()
        try:
            self._root = Handle(os.open(checkout, DIRECTORY & ~os.O_NOFOLLOW))
        except OSError:
            raise WorkspaceError("The checkout is not a directory; go to the top of your checkout.") from None
        self.writes: list[FileWrite] = []
        self.deletes: list[FileDelete] = []
        self.conflicts: list[Conflict] = []
        self.unchanged: list[str] = []

    def plan(self, one: Difference) -> None:
        try:
            for path in (one.old_path, one.path):
                if not _is_plain_path(path):
                    raise _Clash("Forge does not write a file with this name")
            if GITLINK in (one.old_mode, one.mode):
                raise _Clash("it is a submodule; change it by hand")
            if LINK in (one.old_mode, one.mode):
                raise _Clash("it is a link; make it by hand")
            if one.mode == _NOTHING:
                self._delete(one)
            elif one.status == "R":
                self._rename(one)
            else:
                self._write(one, self._read(one.path), None if one.old_mode == _NOTHING else self._blobs[one.old_id])
        except _Clash as clash:
            self.conflicts.append(Conflict(one.path, str(clash)))

    def _delete(self, one: Difference) -> None:
        ours = self._read(one.path)
        if ours is None:
            self.unchanged.append(one.path)
        elif ours.content != self._blobs[one.old_id]:
            raise _Clash("the session deleted it, and the checkout has changed it")
        else:
            self.deletes.append(FileDelete(one.path, ours.content))

    def _rename(self, one: Difference) -> None:
        source, target = self._read(one.old_path), self._read(one.path)
        if source is None and target is not None and target.content == self._blobs[one.id]:
            self.unchanged.append(one.path)
            return
        if source is None:
            raise _Clash(f"the session renamed it from {one.old_path}, which the checkout does not have")
        if target is not None:
            raise _Clash(f"the session renamed it from {one.old_path}, and the checkout has a file of that name")
        self._write(one, source, self._blobs[one.old_id], renamed=True)
        self.deletes.append(FileDelete(one.old_path, source.content))

    def _write(self, one: Difference, ours: _Held | None, base: bytes | None, *, renamed: bool = False) -> None:
        """Three ways: `base` is what the session began with, None if it made the file."""
        theirs = self._blobs[one.id]
        executable = one.mode == "100755"
        merged = False
        if ours is None:
            if base is not None:
                raise _Clash("the session changed it, and the checkout does not have it")
        elif base is None:
            if ours.content != theirs:
                raise _Clash("the session and the checkout both added it, with different contents")
        else:
            if one.mode == one.old_mode:
                executable = ours.executable
            if ours.content not in (base, theirs):
                merged = theirs != base
                theirs = self._merge(base, ours.content, theirs) if merged else ours.content
        before = None if ours is None or renamed else ours.content
        if ours is not None and not renamed and ours == (theirs, executable):
            self.unchanged.append(one.path)
            return
        self.writes.append(
            FileWrite(
                path=one.path,
                content=theirs,
                executable=executable,
                before=before,
                merged=merged,
                moved_from=one.old_path if renamed else "",
            )
        )

    def _merge(self, base: bytes, ours: bytes, theirs: bytes) -> bytes:
        with disk_errors("merge"), tempfile.TemporaryDirectory(dir=self._clone.place) as folder:
            names = []
            for name, content in (("checkout", ours), ("base", base), ("session", theirs)):
                names.append(os.path.join(folder, name))
                Path(names[-1]).write_bytes(content)
            limits = GitLimits(seconds=_SECONDS, output=len(ours) + len(theirs) + len(base), cut=True)
            ran = run_local(self._clone, ("merge-file", "-p", "--", *names), "merge", limits=limits, accept=range(256))
        if ran.code != 0:
            raise _Clash("the session and the checkout changed the same lines")
        return ran.output

    def _read(self, path: str) -> _Held | None:
        """Reads a file of the checkout; None if there is none."""
        try:
            file = Handle(self._open(self._root.fd, path.split("/"), CONTENT))
            data = read_regular(file.fd, MOST_APPLIED + 1)
            mode = os.fstat(file.fd).st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ENOTDIR and any(path.startswith(f"{gone.path}/") for gone in self.deletes):
                return None
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise _Clash("a link or a file of the checkout stands at its path or on the way") from None
            raise _Clash("Forge may not read the file of the checkout") from None
        if data is None:
            raise _Clash("the checkout has no regular file there")
        if len(data) > MOST_APPLIED:
            raise _Clash("the file of the checkout is too large")
        return _Held(data, bool(mode & stat.S_IXUSR))


def _is_plain_path(path: str) -> bool:
    parts = path.split("/")
    return not any(part in ("", ".", "..") or is_git_name(part) for part in parts) and "\0" not in path


def _read_blobs(clone: Clone, ids: Iterable[str], limit: int) -> dict[str, bytes]:
    asked = sorted(ids)
    limits = GitLimits(seconds=_SECONDS, output=limit)
    stdin = "".join(f"{id}\n" for id in asked).encode()
    given = run_local(clone, ("cat-file", "--batch"), "read the changes", limits=limits, stdin=stdin).output
    return dict(_split_batch(asked, given))


def _split_batch(asked: Iterable[str], given: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    for id in asked:
        end = given.index(b"\n", at)
        name, kind, size = given[at:end].decode("ascii").split()
        if (name, kind) != (id, "blob"):
            raise WorkspaceError("git did not give a file of the checkpoint; fetch the session's ref again.")
        at = end + 1 + int(size) + 1
        yield id, given[end + 1 : at - 1]
