"""GitState: HEAD, refs, index and stash of the person's repository as states of paths, and bringing them back.

    .git/HEAD               a link to `ref: refs/heads/main`, or to a commit
    .git/refs/heads/main    a link to a commit
    .git/refs/stash         a link to all entries, newest first
    .git/index              a file: the commit that HEAD is, and what the index has otherwise (`git diff-index`),
                            with its flags and what is in conflict

So a change set has them like every other path. Git reads and writes all of it: refs move by one transaction that names
the old values, the index is exchanged under git's own lock. `stamp` says without git whether anything may have changed.
Commits that a ref leaves are named by `refs/forge/was/undo/<id>`, so that no gc takes them while they can come back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final, NamedTuple

from golem_forge.core.changes import PathChange, PathKind, PathState
from golem_forge.sandbox.git.command import (
    QUIET_ENVIRONMENT,
    QUIET_SETTINGS,
    GitLimits,
    GitMissing,
    GitOutputLimit,
    GitTimeout,
    run_git,
)
from golem_forge.sandbox.git.repository import Repository
from golem_forge.sandbox.handles import CONTENT, Handle, read_regular
from golem_forge.storage.home import write_private

PREFIX: Final = ".git/"
HEAD: Final = f"{PREFIX}HEAD"
INDEX: Final = f"{PREFIX}index"
STASH: Final = f"{PREFIX}refs/stash"
_WAS: Final = "refs/forge/was/undo/"
_LIMITS: Final = GitLimits(seconds=30, output=256 << 20)
_EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_SYMBOLIC: Final = "ref: "
_DEEPEST: Final = 24
_FLAGS: Final = b"\0flags\0"
_STAGES: Final = b"\0stages\0"
_OPERATIONS: Final = (
    *("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "AUTO_MERGE"),
    *("BISECT_LOG", "BISECT_START", "BISECT_TERMS", "BISECT_NAMES", "BISECT_EXPECTED_REV", "BISECT_ANCESTORS_OK"),
    *("rebase-merge", "rebase-apply", "sequencer", "SQUASH_MSG"),
)
"""Files and directories by which git knows that something is not finished."""
_MOST_FILES: Final = 200
_LARGEST_FILE: Final = 1 << 20


class GitRefused(Exception):
    """Git could not read or restore something; the text says why."""

    stated_name = "GitRefused"


class GitListing(NamedTuple):
    """What git says of a repository; `GitState.states` makes states of paths of it."""

    found: dict[str, tuple[PathState, bytes]]
    """Without the index."""
    commit: str
    """Which HEAD is; empty: there is none yet."""
    diff: bytes
    """What the index has otherwise."""


class GitState:
    def __init__(self, zone: str, repository: Repository, folder: Path) -> None:
        self._zone = zone
        self._common = repository.git_dir
        self._own = os.path.join(repository.git_dir, repository.own) if repository.own else repository.git_dir
        self._folder = folder

    def index_stamp(self) -> str:
        """Changes whenever anybody writes the index."""
        return repr(_stamp(os.path.join(self._own, "index")))

    def stamp(self) -> tuple[object, ...]:
        own = (_stamp(os.path.join(self._own, name)) for name in ("HEAD", "index"))
        common = (_stamp(os.path.join(self._common, name)) for name in ("packed-refs", "logs/refs/stash", "reftable"))
        going_on = (_stamp(os.path.join(self._own, name)) for name in _OPERATIONS)
        return (*own, *common, *going_on, *_directories(os.path.join(self._common, "refs")))

    def read(self) -> GitListing:
        """Raises GitRefused."""
        found: dict[str, tuple[PathState, bytes]] = {}
        for line in self._git("for-each-ref", "--format=%(objectname) %(refname)").splitlines():
            id_, _, name = line.partition(b" ")
            if not name.startswith((b"refs/forge/", b"refs/stash")):
                found[PREFIX + os.fsdecode(name)] = (_link(id_.decode()), b"")
        head = self._head()
        branch = found.get(PREFIX + head.removeprefix(_SYMBOLIC)) if head.startswith(_SYMBOLIC) else None
        commit = branch[0].target if branch is not None else "" if head.startswith(_SYMBOLIC) else head
        found[HEAD] = (_link(head), b"")
        if os.path.lexists(os.path.join(self._common, "logs", "refs", "stash")):
            entries = self._git("reflog", "show", "--format=%H", "refs/stash", "--", may_fail=True).split()
            if entries:
                found[STASH] = (_link(b" ".join(entries).decode("ascii", "replace")), b"")
        words = ("diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", "--ignore-submodules=none")
        diff = self._git(*words, commit or _EMPTY_TREE, may_fail=not commit)
        for file, content in self._operation_files():
            found[PREFIX + file] = (PathState(PathKind.FILE), content)
        return GitListing(found, commit, diff)

    def states(
        self, reading: GitListing, hidden: tuple[os.stat_result, list[tuple[bytes, bytes]]] | None = None
    ) -> dict[str, tuple[PathState, bytes]]:
        """Path → state, and the content where it is a file; the caller keeps it. `hidden`: entries with a flag, as
        somebody read them from the index that had this stat. Raises GitRefused."""
        found, commit, diff = reading
        known = hidden is not None and _stamp_of(hidden[0]) == _stamp(os.path.join(self._own, "index"))
        flags = b"\0".join(tag + b" " + path for tag, path in (hidden[1] if hidden and known else self._hidden()))
        content = commit.encode() + b"\n" + diff + _FLAGS + flags
        if any(line.startswith(b":") and line.endswith(b" U") for line in diff.split(b"\0")):
            content += _STAGES + self._git("ls-files", "-u", "-z")
        return {**found, INDEX: (PathState(PathKind.FILE), content)}

    def _hidden(self) -> list[tuple[bytes, bytes]]:
        """Entries that are hidden by a flag: `h` assumed unchanged, `S` not in the work tree."""
        listed = self._git("ls-files", "-v", "-z")
        if listed.count(b"\0H ") + listed.startswith(b"H ") == listed.count(b"\0"):
            return []
        return [(line[:1], line[2:]) for line in listed.split(b"\0") if line[:1] not in (b"H", b"")]

    def _operation_files(self) -> Iterator[tuple[str, bytes]]:
        """Of a merge, rebase, cherry-pick, revert or bisect that is not finished."""
        waiting = [name for name in _OPERATIONS if os.path.lexists(os.path.join(self._own, name))]
        while waiting:
            name = waiting.pop()
            path = os.path.join(self._own, name)
            if os.path.isdir(path) and not os.path.islink(path):
                if name.count("/") < 2:
                    waiting += [f"{name}/{each}" for each in os.listdir(path)[:_MOST_FILES]]
                continue
            with contextlib.suppress(OSError):
                file = Handle(os.open(path, CONTENT))
                data = read_regular(file.fd, _LARGEST_FILE)
                if data is not None:
                    yield name, data

    def _head(self) -> str:
        """`ref: refs/heads/main`, or a commit."""
        with contextlib.suppress(OSError), open(os.path.join(self._own, "HEAD"), "rb") as file:
            said = os.fsdecode(file.read(4096)).strip()
            if said and not said.endswith("/.invalid"):  # what a reftable repository has there
                return said
        name = self._git("symbolic-ref", "-q", "HEAD", may_fail=True).strip()
        return _SYMBOLIC + os.fsdecode(name) if name else self._git("rev-parse", "HEAD").decode().strip()

    def pin(self, ids: Set[str]) -> None:
        """Keeps these commits from being collected. Git refuses one that is named twice."""
        self._update_pins(f"update {_WAS}{one} {one}\n" for one in ids)

    def unpin(self, ids: Set[str]) -> None:
        self._update_pins(f"delete {_WAS}{one}\n" for one in ids)

    def _update_pins(self, lines: Iterable[str]) -> None:
        if given := "".join(lines).encode():
            with contextlib.suppress(GitRefused):
                self._git("update-ref", "--stdin", given=given)

    def restore(self, steps: Sequence[tuple[str, PathState, PathState]], content: Mapping[str, bytes]) -> None:
        """`steps`: path, what stands there, what it becomes; `content`: of the index to come, by its path. All of the
        refs move, or none does. Raises GitRefused."""
        refs = [one for one in steps if one[0].startswith(f"{PREFIX}refs/") and one[0] != STASH]
        lines: list[bytes] = [b"start"]
        for path, now, then in refs:
            name = os.fsencode(path.removeprefix(PREFIX))
            if then.kind is PathKind.ABSENT:
                lines.append(b"delete " + name + b"\0" + now.target.encode())
            elif now.kind is PathKind.ABSENT:
                lines.append(b"create " + name + b"\0" + then.target.encode())
            else:
                lines.append(b"update " + name + b"\0" + then.target.encode() + b"\0" + now.target.encode())
        for path, now, then in steps:
            if path == HEAD and not then.target.startswith(_SYMBOLIC):
                old = b"" if now.target.startswith(_SYMBOLIC) else now.target.encode()
                # Git moves a branch and the HEAD that is on it in two transactions only.
                lines += [b"prepare", b"commit", b"start"] if len(lines) > 1 else []
                lines += [b"option no-deref", b"update HEAD\0" + then.target.encode() + b"\0" + old]
        if len(lines) > 1:
            given = b"\0".join((*lines, b"prepare", b"commit")) + b"\0"
            self._git("update-ref", "-m", "forge: undo", "--stdin", "-z", given=given)
        for path, now, then in steps:
            if path == HEAD and then.target.startswith(_SYMBOLIC):
                self._git("symbolic-ref", "-m", "forge: undo", "HEAD", then.target.removeprefix(_SYMBOLIC))
            elif path == STASH:
                self._restore_stash(now.target.split(), then.target.split())
        for path, _, then in steps:
            if path == INDEX:
                if then.lost:
                    raise GitRefused(then.lost)
                self._restore_index(content[path])
            elif path.removeprefix(PREFIX).partition("/")[0] in _OPERATIONS:
                self._restore_file(path.removeprefix(PREFIX), content.get(path))

    def _restore_file(self, name: str, content: bytes | None) -> None:
        path = Path(self._own, name)
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_private(path, content, durable=False)
            path.chmod(0o644)
            return
        path.unlink(missing_ok=True)
        for parent in path.parents:
            if parent == Path(self._own):
                break
            with contextlib.suppress(OSError):
                parent.rmdir()

    def _restore_stash(self, now: list[str], then: list[str]) -> None:
        """Entries that came are dropped, those that went are stored again, newest last."""
        common = 0
        while common < min(len(now), len(then)) and now[-1 - common] == then[-1 - common]:
            common += 1
        for _ in now[: len(now) - common]:
            self._git("stash", "drop", "-q", "stash@{0}")
        for one in reversed(then[: len(then) - common]):
            message = self._git("log", "-1", "--format=%s", one).decode("utf-8", "replace").strip()
            self._git("stash", "store", "-q", "-m", message, one)

    def _restore_index(self, content: bytes) -> None:
        commit, _, rest = content.partition(b"\n")
        diff, _, rest = rest.rpartition(_FLAGS)  # the last one: a path may have this name
        flags, _, stages = rest.partition(_STAGES)
        hidden = [line for line in flags.split(b"\0") if line]
        fields = diff.split(b"\0")[:-1]
        entries = b"".join(
            b"%s %s\t%s\0" % (facts.split(b" ")[1], facts.split(b" ")[3], path)
            for facts, path in zip(fields[::2], fields[1::2], strict=True)
        )
        index = os.path.join(self._own, "index")
        lock = f"{index}.lock"
        try:
            held = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            raise GitRefused("another git command works in this repository; try again when it has ended") from None
        try:
            with os.fdopen(held, "wb") as file:
                fresh = self._folder / "index.restored"
                fresh.unlink(missing_ok=True)
                named = {"GIT_INDEX_FILE": str(fresh)}
                self._git("read-tree", commit.decode() or _EMPTY_TREE, environ=named)
                self._git("update-index", "-z", "--index-info", environ=named, given=entries + stages)
                for tag, option in ((b"h", "--assume-unchanged"), (b"S", "--skip-worktree")):
                    paths = b"".join(line[2:] + b"\0" for line in hidden if line[:1] == tag)
                    if paths:
                        self._git("update-index", option, "-z", "--stdin", environ=named, given=paths)
                self._git("update-index", "-q", "--refresh", environ=named, may_fail=True)
                file.write(fresh.read_bytes())
                fresh.unlink()
            os.rename(lock, index)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(lock)
            raise

    def _git(
        self, *words: str, given: bytes = b"", environ: Mapping[str, str] | None = None, may_fail: bool = False
    ) -> bytes:
        own = {name: value for name, value in os.environ.items() if name in ("HOME", "PATH", "XDG_CONFIG_HOME")}
        every: dict[str, Any] = {
            **own,
            **QUIET_ENVIRONMENT,
            **_AUTHOR,
            "GIT_DIR": self._own,
            "GIT_WORK_TREE": self._zone,
        }
        options = [word for one in QUIET_SETTINGS for word in ("-c", one)]
        try:
            run = run_git(
                ("-C", self._zone, *options, *words),
                folder=self._folder,
                environ={**every, **(environ or {})},
                limits=_LIMITS,
                stdin=given,
            )
        except (GitMissing, GitTimeout, GitOutputLimit, OSError) as error:
            raise GitRefused(type(error).__name__) from None
        if run.code and not may_fail:
            raise GitRefused(run.errors or f"git {words[0]} ended with {run.code}")
        return b"" if run.code else run.output


_AUTHOR: Final = {
    "GIT_COMMITTER_NAME": "Golem Forge",
    "GIT_COMMITTER_EMAIL": "forge@localhost",
    "GIT_AUTHOR_NAME": "Golem Forge",
    "GIT_AUTHOR_EMAIL": "forge@localhost",
}
"""Of reflog entries."""


def left_commits(change: PathChange) -> Iterator[str]:
    """What a ref does not name any more after a change."""
    before, after = change.before, change.after
    if change.in_git and before.kind is PathKind.LINK and not before.target.startswith(_SYMBOLIC):
        yield from set(before.target.split()).difference(after.target.split())


def _link(target: str) -> PathState:
    return PathState(PathKind.LINK, target=target)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        return _stamp_of(os.lstat(path))
    except OSError:
        return None


def _stamp_of(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_mtime_ns, info.st_ino, info.st_size


def _directories(top: str, depth: int = 0) -> Iterator[object]:
    """The stamps of all directories of refs: git replaces a ref's file, which changes its directory."""
    if depth > _DEEPEST:
        return
    try:
        yield _stamp(top)
        with os.scandir(top) as found:
            below = sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in below:
        if depth or name != "forge":
            yield from _directories(os.path.join(top, name), depth + 1)
