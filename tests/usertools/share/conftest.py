"""A home, a tool folder to share, and real git repositories to import from."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE

from golem_forge.storage.home import ForgeHome

MANIFEST = """\
# how we greet
name: {name}
description: Greets a person by name
version: "1.2"
entrypoint: greet.py
usage: |
  Say --who=NAME.
parameters:
  - name: who
    type: string
    description: Whom to greet
    required: true
"""


@pytest.fixture
def make_tool(tmp_path: Path) -> Callable[..., Path]:
    """A tool folder below `outside/`; further files as name → text or bytes."""

    def make(name: str = "greet", /, *, at: Path | None = None, **files: str | bytes) -> Path:
        folder = at or tmp_path / "outside" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tool.yaml").write_text(MANIFEST.format(name=name))
        (folder / "greet.py").write_text("print('hello')\n")
        (folder / "run.bin").write_bytes(b"#!/bin/sh\n\xff\n")
        (folder / "run.bin").chmod(0o755)
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / "words.txt").write_text("hi\n")
        for each, content in files.items():
            (folder / each).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    return make


def git(folder: Path, *arguments: str) -> str:
    named = ("-c", "user.name=t", "-c", "user.email=t@example.test", "-c", "init.defaultBranch=main")
    command = ["git", *named, "-c", "maintenance.auto=false", *arguments]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout.strip()


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        git(folder, "init", "-q")

    def commit(self) -> str:
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", "a version")
        return (self.folder / ".git" / "refs" / "heads" / "main").read_text().strip()

    def run(self, *arguments: str) -> str:
        return git(self.folder, *arguments)

    def source(self, commit: str, below: str = "") -> str:
        return f"git+file://{self.folder}@{commit}" + (f"#{below}" if below else "")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
def leftovers(home: ForgeHome) -> Callable[[], list[str]]:
    """Everything that an import may have left in the home, but for the empty `tools` and the lock's guard."""

    def look() -> list[str]:
        found = (str(path.relative_to(home.path)) for path in home.path.rglob("*")) if home.path.exists() else ()
        return sorted(name for name in found if name not in ("tools", ".tools.lock.guard"))

    return look
