"""Terminals for tests: `play()` runs the driver beside this file on a pty and reads what the person's UI sent."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.deadlines import PATIENCE

HERE = Path(__file__).parent


def _load_screen() -> ModuleType:
    spec = importlib.util.spec_from_file_location("terminal_screen", HERE / "screen.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("terminal_screen", module)
    spec.loader.exec_module(module)
    return module


screen = _load_screen()


class Played:
    """The driver on a terminal, and the file it notes every action of the UI in."""

    def __init__(self, terminal: Any, notes: Path, home: Path) -> None:
        self.terminal = terminal
        self.notes = notes
        self.home = home

    def noted(self, kind: str = "") -> list[dict[str, Any]]:
        if not self.notes.exists():
            return []
        all_notes = [json.loads(line) for line in self.notes.read_text().splitlines()]
        return [note for note in all_notes if not kind or note["type"] == kind]

    def wait_noted(self, kind: str, count: int = 1, within: float = PATIENCE) -> dict[str, Any]:
        """The `count`-th action of a kind, once it was sent."""
        end = time.monotonic() + within
        while len(found := self.noted(kind)) < count:
            if time.monotonic() > end:
                raise AssertionError(f"no {kind} number {count}: {self.noted()}\n{self.terminal.text}")
            self.terminal.pump()
        return found[count - 1]

    def say(self, text: str) -> None:
        self.terminal.enter(text)


@pytest.fixture
def play(tmp_path: Path, ready_forge: Any) -> Iterator[Callable[..., Played]]:
    opened: list[Any] = []

    def start(*words: str, columns: int = 100, rows: int = 30, prompt: bool = True, **environ: str) -> Played:
        home = tmp_path / "home"
        notes = tmp_path / f"notes-{len(opened)}.jsonl"
        env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
        env |= {"NOTES": str(notes), "DRIVER_HOME": str(home), "PYTHONDONTWRITEBYTECODE": ""} | environ
        command = ["python", str(HERE / "driver.py"), *words]
        terminal = screen.Terminal(command, env=env, columns=columns, rows=rows, spawn=ready_forge.on_a_terminal)
        opened.append(terminal)
        if prompt:
            terminal.wait_for("you>")
        return Played(terminal, notes, home)

    yield start
    for terminal in opened:
        terminal.close()
