"""A project on disk for tests of undo: what stands in it, exactly, and operations that change it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from golem_forge.core.changes import ChangeSelection, ChangeSet, UndoSettings
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.undo.log import UNDO_TOOL, SessionChangeLog
from golem_forge.sandbox.undo.restore import preview, restore_all
from golem_forge.sandbox.undo.zone_history import ZoneHistory, zone_history
from golem_forge.sandbox.zones import ZoneSpec

GIT_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "LC_ALL": "C",
}


def git(root: Path, *words: str, check: bool = True) -> str:
    ran = subprocess.run(
        ["git", "-C", str(root), *words],
        env=GIT_ENVIRONMENT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert not check or ran.returncode == 0, (words, ran.stderr)
    return ran.stdout


def repository_at(place: Path, ignores: str = "") -> Path:
    """A copy of a repository with one commit, in which two files are tracked, and a `.gitignore` with these lines."""
    shutil.copytree(_template(ignores), place, symlinks=True)
    git(place, "update-index", "-q", "--refresh")
    return place


@functools.cache
def _template(ignores: str) -> Path:
    root = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.email", "ada@example.org")
    git(root, "config", "user.name", "Ada")
    for sample in (root / ".git/hooks").iterdir():
        sample.unlink()
    (root / "a.txt").write_text("one\n")
    (root / "src").mkdir()
    (root / "src/b.py").write_text("print(1)\n")
    if ignores:
        (root / ".gitignore").write_text(ignores)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def snapshot(root: Path) -> dict[str, object]:
    """Every file, link and directory with its content and mode, and what git says."""
    found: dict[str, object] = {}
    for here, directories, files in os.walk(os.fsencode(root)):
        if here == os.fsencode(root):
            directories[:] = [name for name in directories if name != b".git"]
        for name in (*directories, *files):
            path = os.path.join(here, name)
            info = os.lstat(path)
            what: object = os.readlink(path) if stat.S_ISLNK(info.st_mode) else ""
            if stat.S_ISREG(info.st_mode):
                mode = stat.S_IMODE(info.st_mode)
                if not mode & 0o400:
                    os.chmod(path, 0o600)
                what = Path(os.fsdecode(path)).read_bytes()
                os.chmod(path, mode)
            mode = 0 if stat.S_ISLNK(info.st_mode) else info.st_mode
            found[os.fsdecode(path.removeprefix(os.fsencode(root)))] = (mode, what)
    if (root / ".git").exists():
        found["status"] = git(root, "status", "--porcelain=v2", "--branch", "-z", "--ignored")
        found["index"] = git(root, "ls-files", "-s", "-z")
        found["refs"] = [line for line in git(root, "show-ref", check=False).splitlines() if "refs/forge" not in line]
        found["head"] = (root / ".git/HEAD").read_text()
        stashed = root / ".git/logs/refs/stash"
        found["stash"] = [line.split()[1] for line in stashed.read_bytes().splitlines()] if stashed.exists() else []
    return found


class Project:
    """A zone with its history, and calls in it as a session would make them."""

    def __init__(self, root: Path, home: Path, *, session: str = "s1", settings: UndoSettings | None = None) -> None:
        self.root = root
        self.home = home
        self.session = session
        self.settings = settings or UndoSettings()
        self.sandbox: Sandbox = open_sandbox([ZoneSpec(name="workspace", path=root)])
        self.history: ZoneHistory = zone_history(self.sandbox.zones["workspace"], home, self.settings)
        self.log = SessionChangeLog(home, session)
        self._calls = 0

    def begin(self, turn: int) -> tuple[object, dict[str, object]]:
        self._calls += 1
        facts = {"session": self.session, "call": f"c{self._calls}", "tool": "exec_command", "turn": turn}
        span = self.history.begin(self.session, f"c{self._calls}", f"exec_command (c{self._calls})", facts)
        assert span is not None, self.history.problem
        return span, facts

    def end(self, begun: tuple[object, dict[str, object]], *, undoes: tuple[str, ...] = ()) -> ChangeSet:
        span, facts = begun
        changes = tuple(self.history.end(span))  # type: ignore[arg-type]
        made = ChangeSet(**facts, changes=changes, undoes=undoes, remade=tuple(self.history.take_remade(span)))  # type: ignore[arg-type]
        self.log.append(made)
        return made

    @contextlib.contextmanager
    def call(self, turn: int) -> Iterator[None]:
        begun = self.begin(turn)
        yield
        self.end(begun)

    def undo(
        self, *, turn: int | None = None, paths: Sequence[str] = (), also: Sequence[str] = (), redo: bool = False
    ) -> dict[str, str]:
        """What was left alone, with the reason."""
        selected = ChangeSelection(turn=turn, paths=tuple(paths))
        found = preview(self.home, self.sandbox, self.session, selected, also=also, redo=redo, settings=self.settings)
        begun = self.begin(0)
        begun[1]["tool"] = UNDO_TOOL
        left = restore_all(self.home, self.sandbox, found.selected, self.settings)
        left |= {one.path: one.why for one in (*found.steps, *found.lost) if not one.selected}
        self.end(begun, undoes=found.calls)
        return left


def remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
