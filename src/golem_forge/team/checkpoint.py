"""Checkpoints: what a session's files are now, committed and pushed to the origin of its workspace.

`checkpoint` takes a clone, commits its tree to `refs/forge/<session>` and pushes that ref. It gives the commit, what it
left out (files that are too large, repositories inside the tree, names that git refuses) and whether the origin has
it. A push that failed is data: the next checkpoint, or `push_checkpoint`, tries again. Raises WorkspaceError. Call it
in a thread.

Threat: an agent wrote the tree and may still be writing. Git never runs on it. Forge walks the tree by handles that
follow no link, so a directory that becomes a link in mid-walk leads nowhere, and passes contents to `git fast-import`,
which knows no hook, filter, attribute, work tree or submodule.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, shorten
from golem_forge.sandbox.git.formats import LARGEST_IGNORE_FILE, GitIgnore
from golem_forge.sandbox.handles import CONTENT, LISTING, Handle, Parts, best_opener, entry_stat, read_regular
from golem_forge.team.workspace import (
    GITLINK,
    LINK,
    MOST_FILES,
    NEXT_REF,
    PUSHED_REF,
    Clone,
    TreeEntry,
    Workspace,
    WorkspaceError,
    disk_errors,
    last_commit,
    list_checkpoints,
    read_tree,
    resolve_ref,
    run_local,
    run_network,
    served_by,
    set_ref,
)

LARGEST_FILE: Final = 100 << 20
"""Bytes of one file that a checkpoint takes. Common servers refuse larger ones."""
MOST_BYTES: Final = 2 << 30
"""Maximum bytes of new content in one checkpoint."""
_LONGEST_PATH: Final = 2000
_DEEPEST: Final = 100
_MOST_NAMED: Final = 50
_WALK_SECONDS: Final = 300.0
_LONGEST_MESSAGE: Final = 5000
_MOST_DELETED: Final = 500
_LINK_NAME: Final = regex(r"\.?gi[t0-9a-f].*", re.IGNORECASE)
"""Git refuses a link at `.gitmodules`, however a file system spells that."""
_HIDDEN_CHARS: Final = regex("[\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
"""Characters that HFS+ ignores in a name."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    commit: str | None
    """The new commit; None: nothing changed since the last one."""
    pushed: bool
    """Whether the origin has all checkpoints."""
    problem: str = ""
    """Why the push failed. The next checkpoint, or `push_checkpoint`, tries again."""
    left_out: tuple[LeftOut, ...] = ()
    """Files that are not in the checkpoint, the first 50. A tracked file among them keeps its old content."""


def checkpoint(clone: Clone, message: str) -> Checkpoint:
    """Commits what the tree holds now, ignored files aside, and pushes. Files that change meanwhile are taken as they
    were when they were read."""
    parent = last_commit(clone)
    before = read_tree(clone, parent)
    with disk_errors("write a checkpoint"), tempfile.TemporaryFile(dir=clone.place) as stream:
        taken = _Snapshot(before, stream, "sha256" if len(parent) == 64 else "sha1")
        taken.take(clone.tree)
        gone = [path for path in before if not taken.has(path)]
        commit = None
        if gone or taken.written:
            stream.write(_commit_text(clone, parent, message))
            stream.writelines(b"D %s\n" % _quoted(path) for path in gone)
            for path, (mode, id) in taken.written.items():
                stream.write(b"M %s %s %s\n" % (mode.encode(), id.encode(), _quoted(path)))
            stream.write(b"\ndone\n")
            stream.seek(0)
            commit = _import(clone, stream)
    problem = push_checkpoint(clone)
    return Checkpoint(commit=commit, pushed=not problem, problem=problem, left_out=tuple(taken.left_out))


def push_checkpoint(clone: Clone) -> str:
    """Gives the origin the last checkpoint, if it has not got it; empty: it has it now, else why not. Never forced: a
    checkpoint that another runner has pushed stays."""
    commit = resolve_ref(clone, clone.ref)
    if not commit or commit == resolve_ref(clone, PUSHED_REF):
        return ""
    serve = served_by(clone.workspace, "receive-pack")
    words = ("push", "--quiet", "--no-verify", *serve, "--", clone.workspace.git, f"{commit}:{clone.ref}")
    try:
        with disk_errors("push the checkpoint"):
            run_network(clone, words, "push the checkpoint")
    except WorkspaceError as error:
        return error.message
    set_ref(clone, PUSHED_REF, commit)
    return ""


def delete_checkpoints(workspace: Workspace, place: Path, sessions: Collection[str]) -> None:
    """Deletes the refs of these sessions at the origin, where it has them. `place`: an empty directory. Raises
    WorkspaceError; then some may be left."""
    scratch = Clone(workspace, place, "", "")
    with disk_errors("delete checkpoints"):
        scratch.repository.mkdir(mode=0o700)
        run_local(scratch, ("init", "--quiet", "--bare", "--template="), "delete checkpoints")
        there = sorted({f"refs/forge/{session}" for session in sessions} & list_checkpoints(scratch).keys())
        serve = served_by(workspace, "receive-pack")
        for start in range(0, len(there), _MOST_DELETED):
            deleted = (f":{name}" for name in there[start : start + _MOST_DELETED])
            words = ("push", "--quiet", "--no-verify", *serve, "--", workspace.git, *deleted)
            run_network(scratch, words, "delete checkpoints")


def _commit_text(clone: Clone, parent: str, message: str) -> bytes:
    said = shorten(escape_control_chars(message).strip() or "Checkpoint", _LONGEST_MESSAGE)
    text = f"{said}\n\nForge-Session: {clone.session}\nForge-Base: {clone.base}\n".encode("utf-8", "replace")
    who = f"committer Golem Forge <forge@localhost> {int(time.time())} +0000"
    return b"commit %s\n%s\ndata %d\n%s\nfrom %s\n" % (
        NEXT_REF.encode(),
        who.encode(),
        len(text),
        text,
        parent.encode(),
    )


def _import(clone: Clone, stream: IO[bytes]) -> str:
    """The new commit. Before it counts, git reads its tree: one that git refuses to check out is no checkpoint."""
    doing = "write the checkpoint"
    run_local(clone, ("fast-import", "--quiet", "--force", "--done", "--date-format=raw"), doing, stdin=stream)
    commit = resolve_ref(clone, NEXT_REF)
    index = {"GIT_INDEX_FILE": os.fspath(clone.repository / "index")}
    run_local(clone, ("read-tree", commit), doing, more=index)
    set_ref(clone, clone.ref, commit)
    return commit


def _quoted(path: str) -> bytes:
    """Quotes a name for fast-import, whatever its bytes."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in os.fsencode(path))
    return f'"{"".join(plain)}"'.encode("ascii")


def is_git_name(name: str) -> bool:
    """Whether git, on any file system, takes it for `.git`: `.GIT`, `git~1`, `.git ` and the like."""
    for part in name.split("\\"):
        folded = _HIDDEN_CHARS.sub("", part).partition(":")[0].rstrip(" .").casefold()
        if folded in (".git", "git~1"):
            return True
    return False


class _Snapshot:
    """Walks a tree that others may be writing to, and puts new contents into a stream for fast-import."""

    def __init__(self, tracked: Mapping[str, TreeEntry], stream: IO[bytes], algorithm: str) -> None:
        self._tracked = tracked
        self._folders = {path[:at] for path in tracked for at, char in enumerate(path) if char == "/"}
        self._stream = stream
        self._algorithm = algorithm
        self._open = best_opener()
        self._until = time.monotonic() + _WALK_SECONDS
        self._bytes = 0
        self._seen: set[str] = set()
        self._unread: list[str] = []
        """Tracked directories that could not be listed: what was in them stays."""
        self.written: dict[str, tuple[str, str]] = {}
        self.left_out: list[LeftOut] = []

    def take(self, tree: Path) -> None:
        try:
            root = Handle(os.open(tree, LISTING))
        except OSError:
            raise WorkspaceError("The session's files are gone from this machine; restore the clone.") from None
        waiting: list[tuple[Parts, GitIgnore | None, bool]] = [((), None, False)]
        while waiting:
            parts, rules, hidden = waiting.pop()
            waiting += self._take_folder(root, parts, rules, hidden)

    def has(self, path: str) -> bool:
        """Whether a tracked path is in the checkpoint."""
        return path in self._seen or path in self.written or path.startswith(tuple(self._unread))

    def _take_folder(
        self, root: Handle, parts: Parts, rules: GitIgnore | None, hidden: bool
    ) -> Iterator[tuple[Parts, GitIgnore | None, bool]]:
        """`hidden`: git ignores the directory, so only tracked files in it count. Gives the directories in it."""
        here = "/".join(parts)
        try:
            folder = Handle(self._open(root.fd, parts, LISTING))
            names = sorted(os.listdir(folder.fd))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                self._keep_folder(here)
                self._leave_out(f"{here}/", "Forge may not read this directory")
            return
        if parts and ".git" in names and here not in self._folders:
            self._leave_out(f"{here}/", "it is a git repository of its own; remove its .git to keep its files")
            return
        if ".gitignore" in names and (own := self._read_ignores(folder)):
            rules = GitIgnore(own, len(parts), rules)
        for name in names:
            path = f"{here}/{name}" if here else name
            info = entry_stat(name, folder.fd)
            if info is None or (name == ".git" and not parts):
                continue
            if stat.S_ISDIR(info.st_mode):
                below = self._enter(path, (*parts, name), rules, hidden)
                if below is not None:
                    yield (*parts, name), rules, below
            elif self._wants(path, (*parts, name), rules, hidden):
                self._take_entry(folder, name, path, info)

    def _enter(self, path: str, parts: Parts, rules: GitIgnore | None, hidden: bool) -> bool | None:
        """Whether a directory's entries are hidden; None: it is not entered."""
        known = path in self._folders
        if path in self._tracked and self._tracked[path].mode == GITLINK:
            self._seen.add(path)
            return None
        hidden = hidden or (rules is not None and rules.ignores(parts, True, self._is_over))
        if hidden and not known:
            return None
        if self._is_refused(path, parts):
            self._keep_folder(path)
            return None
        return hidden

    def _wants(self, path: str, parts: Parts, rules: GitIgnore | None, hidden: bool) -> bool:
        if path not in self._tracked and (hidden or (rules is not None and rules.ignores(parts, False, self._is_over))):
            return False
        return not self._is_refused(path, parts)

    def _is_refused(self, path: str, parts: Parts) -> bool:
        if is_git_name(parts[-1]):
            if parts[-1] != ".git":
                self._leave_out(path, "some file systems take this name for .git")
            return True
        if len(os.fsencode(path)) > _LONGEST_PATH or len(parts) > _DEEPEST:
            self._leave_out(path, "its path is too long")
            return True
        return False

    def _take_entry(self, folder: Handle, name: str, path: str, info: os.stat_result) -> None:
        self._is_over()
        try:
            if stat.S_ISLNK(info.st_mode):
                if _LINK_NAME.fullmatch(name):
                    self._leave_out(path, "git refuses a link with this name")
                else:
                    self._keep(path, LINK, os.fsencode(os.readlink(name, dir_fd=folder.fd)))
            elif stat.S_ISREG(info.st_mode):
                self._take_file(Handle(self._open(folder.fd, (name,), CONTENT)), path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL):
                self._leave_out(path, "Forge may not read this file")

    def _take_file(self, file: Handle, path: str) -> None:
        info = os.fstat(file.fd)
        mode = "100755" if info.st_mode & stat.S_IXUSR else "100644"
        if info.st_size > LARGEST_FILE:
            known = self._tracked.get(path)
            if known is None or known.size != info.st_size or known.id != self._hash_large(file, info.st_size):
                self._leave_out(path, f"it is larger than {LARGEST_FILE >> 20} MB; add it to .gitignore")
            self._seen.add(path)
            return
        data = read_regular(file.fd, LARGEST_FILE + 1)
        if data is not None and len(data) <= LARGEST_FILE:
            self._keep(path, mode, data)

    def _keep(self, path: str, mode: str, data: bytes) -> None:
        id = hashlib.new(self._algorithm, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        known = self._tracked.get(path)
        if known is not None and (known.mode, known.id) == (mode, id):
            self._seen.add(path)
            return
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            raise WorkspaceError(
                f"The session wrote more than {MOST_BYTES >> 30} GB; add what git should not keep to .gitignore."
            )
        if len(self.written) >= MOST_FILES:
            raise WorkspaceError(f"The session wrote more than {MOST_FILES} files; add some to .gitignore.")
        self.written[path] = (mode, id)
        self._stream.write(b"blob\ndata %d\n%s\n" % (len(data), data))

    def _hash_large(self, file: Handle, size: int) -> str:
        hasher = hashlib.new(self._algorithm, b"blob %d\0" % size, usedforsecurity=False)
        while size > 0 and (piece := os.read(file.fd, min(size, 1 << 20))):
            hasher.update(piece)
            size -= len(piece)
        return hasher.hexdigest()

    def _read_ignores(self, folder: Handle) -> bytes:
        """A file that is a link, or longer than anybody's, ignores nothing: a checkpoint rather keeps too much."""
        try:
            file = Handle(self._open(folder.fd, (".gitignore",), CONTENT))
            data = read_regular(file.fd, LARGEST_IGNORE_FILE + 1) or b""
        except OSError:
            return b""
        return data if len(data) <= LARGEST_IGNORE_FILE else b""

    def _is_over(self) -> bool:
        if time.monotonic() > self._until:
            raise WorkspaceError(f"Forge could not read the session's files within {_WALK_SECONDS:g} seconds.")
        return False

    def _keep_folder(self, path: str) -> None:
        if path in self._folders:
            self._unread.append(f"{path}/")

    def _leave_out(self, path: str, why: str) -> None:
        self._seen.add(path)
        if len(self.left_out) < _MOST_NAMED:
            self.left_out.append(LeftOut(path, why))
