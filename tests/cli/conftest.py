"""The `forge` command, in a project directory beside a home that is empty: `shell` as a process of its own,
`in_process` in this one, where only words, texts and codes matter."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests import known_walls
from tests.deadlines import PATIENCE
from tests.ready import run_in_process

from golem_forge.sandbox.walls import probe

FORGE = Path(sys.executable).with_name("forge")


class Ended(NamedTuple):
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


def new_shell(place: Path, forge: Any) -> Shell:
    shell = Shell(place / "home", place / "project", forge)
    shell.home.mkdir(exist_ok=True)
    shell.project.mkdir(exist_ok=True)
    return shell


@pytest.fixture
def shell(tmp_path: Path, ready_forge: Any) -> Shell:
    return new_shell(tmp_path, ready_forge)


@pytest.fixture
def in_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Shell:
    return new_shell(tmp_path, partial(run_in_process, capfd))


@pytest.fixture
def inside(in_process: Shell) -> Callable[..., Ended]:
    """`inside("list")` is `forge tools list`."""
    return partial(in_process, "tools")


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """A person with tool folders of their own; see own_tools."""
    from .own_tools import Person

    for name in ("forge-home", "project"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "forge-home"))
    monkeypatch.chdir(tmp_path / "project")
    return Person(tmp_path / "forge-home", capfd)


@pytest.fixture
def told_of_walls(tried_walls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`forge doctor`, which tries the walls each time, is told of them in this process."""
    monkeypatch.setattr(probe, "probe", probe.probe)  # what the next line replaces comes back
    known_walls.always(tried_walls)


@pytest.fixture
def on_terminal(tmp_path: Path, ready_forge: Any) -> Callable[..., tuple[int, str]]:
    """Runs `forge` on a pseudo-terminal and types: `on_terminal(["trust"], (r"\\[y/N\\]", "y"))` → (code, screen)."""
    import pexpect

    shell = new_shell(tmp_path, ready_forge)

    def run(words: list[str], *talk: tuple[str, str]) -> tuple[int, str]:
        child = ready_forge.expecting(
            words, cwd=str(shell.project), env=shell.environ, encoding="utf-8", timeout=PATIENCE, echo=False
        )
        screen = ""
        for awaited, typed in talk:
            child.expect(awaited)
            screen += child.before + child.after
            child.sendline(typed)
        child.expect(pexpect.EOF)
        screen += child.before
        child.wait()
        child.close()
        return child.exitstatus, screen

    return run
