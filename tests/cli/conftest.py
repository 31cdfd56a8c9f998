"""The `forge` command, as a process of its own, in a project directory beside a home that is empty."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FORGE = Path(sys.executable).with_name("forge")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Shell:
    """A person's shell: `shell("log", "verify")` runs `forge log verify` in the project."""

    home: Path
    project: Path
    forge: Any
    """See the fixture `ready_forge`."""

    @property
    def forge_home(self) -> Path:
        return self.home / ".forge"

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FORGE_", "PYTHON"))}
        return kept | {"HOME": str(self.home), "FORGE_HOME": str(self.forge_home), "TZ": "UTC"}

    def __call__(self, *words: str, cwd: Path | None = None, stdin: str = "") -> Ended:
        done = self.forge(*words, cwd=cwd or self.project, env=self.environ, stdin=stdin)
        assert "Traceback" not in done.stderr, done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    def write(self, name: str, text: str) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_home(self, name: str, text: str) -> Path:
        self.forge_home.mkdir(mode=0o700, exist_ok=True)
        path = self.forge_home / name
        path.write_text(text)
        return path

    def everything(self) -> dict[str, bytes]:
        """Every file of home and project, to show that a command changed nothing."""
        return {
            str(path): path.read_bytes()
            for root in (self.home, self.project)
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def shell(tmp_path: Path, ready_forge: Any) -> Shell:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    return Shell(home, project, ready_forge)


@pytest.fixture
def on_terminal(shell: Shell) -> Callable[..., tuple[int, str]]:
    """Runs `forge` on a pseudo-terminal and types: `on_terminal(["trust"], (r"\\[y/N\\]", "y"))` → (code, screen)."""
    import pexpect

    def run(words: list[str], *talk: tuple[str, str]) -> tuple[int, str]:
        child = shell.forge.expecting(
            words, cwd=str(shell.project), env=shell.environ, encoding="utf-8", timeout=20, echo=False
        )
        screen = ""
        for awaited, typed in talk:
            child.expect(awaited)
            screen += child.before + child.after
            child.sendline(typed)
        child.expect(pexpect.EOF)
        screen += child.before
        child.close()
        return child.exitstatus, screen

    return run
