"""`project`: a repository with a remote behind a login, the person's settings for it, and git tools on the one path."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.git_remotes import Elsewhere, git, https_remote
from tests.toolsets.conftest import Bench

from golem_forge.core.calls import Outcome
from golem_forge.tools.factory import ToolsetContext
from golem_forge.toolsets.exec import ExecToolset


@dataclass
class Project:
    root: Path
    home: Path
    remote: Path
    """On the server's disk."""
    url: str
    elsewhere: Elsewhere
    bench: Bench
    asked: list[Any] = field(default_factory=list)
    answers: Callable[[Any], Any] = lambda request: {"approved": True}

    def git(self, *words: str) -> str:
        return git(self.root, *words, home=self.home)

    def served(self, *words: str) -> str:
        return git(self.remote, *words)

    def commit(self, subject: str, name: str = "a.txt") -> str:
        (self.root / name).write_text(f"{subject}\n")
        self.git("add", name)
        self.git("commit", "-q", "-m", subject)
        return self.git("rev-parse", "HEAD")

    async def push(self, *refspecs: str, **args: Any) -> Outcome:
        return await self.bench.call("git_push", refspecs=list(refspecs), **args)

    async def fetch(self, *refspecs: str, **args: Any) -> Outcome:
        return await self.bench.call("git_fetch", refspecs=list(refspecs), **args)

    def others_push(self, subject: str, branch: str = "main") -> None:
        """Somebody else's commit on top of main, on a branch of the remote."""
        author = ("-c", "user.name=B", "-c", "user.email=b@example.test")
        made = self.served(*author, "commit-tree", "-p", "main", "-m", subject, "main^{tree}")
        self.served("update-ref", f"refs/heads/{branch}", made)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    with https_remote(tmp_path / "elsewhere") as remote:
        yield remote


@pytest.fixture
def project(
    benches: Callable[..., Bench],
    workspace: Path,
    own_home: Path,
    tmp_path: Path,
    elsewhere: Elsewhere,
    monkeypatch: pytest.MonkeyPatch,
) -> Project:
    for name, value in elsewhere.environ.items():
        monkeypatch.setenv(name, value)
    settings = f"[user]\n\tname = Ada\n\temail = ada@example.test\n{elsewhere.settings}"
    for home in (own_home, tmp_path / "home"):
        (home / ".gitconfig").write_text(settings)

    def ask(request: Any) -> Any:
        made.asked.append(request)
        return made.answers(request)

    remote = tmp_path / "elsewhere/served/project.git"
    bench = benches(*ExecToolset().get_tools(ToolsetContext()), ask=ask)
    shutil.copytree(_template(), workspace, dirs_exist_ok=True)
    with (workspace / ".git/config").open("a") as config:
        config.write(f'[remote "origin"]\n\turl = {elsewhere.url}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n')
    made = Project(workspace, own_home, remote, elsewhere.url, elsewhere, bench)
    made.git("status")  # the index knows these files by their times
    return made


@functools.cache
def _template() -> Path:
    """The repository that each test has a copy of: one commit of Ada's."""
    root = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    git(root, "init", "-q", "-b", "main", ".")
    (root / "a.txt").write_text("first\n")
    git(root, "add", "a.txt")
    git(root, "-c", "user.name=Ada", "-c", "user.email=ada@example.test", "commit", "-q", "-m", "first")
    return root
