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
    """The driver on a terminal, the file it notes every action of the UI in, and the time it is told."""

    def __init__(self, terminal: Any, notes: Path, home: Path, clock: Path) -> None:
        self.terminal = terminal
        self.notes = notes
        self.home = home
        self._clock = clock

    def noted(self, kind: str = "") -> list[dict[str, Any]]:
        """Without a kind: all but the keys."""
        if not self.notes.exists():
            return []
        all_notes = [json.loads(line) for line in self.notes.read_text().splitlines()]
        return [note for note in all_notes if note["type"] == kind or (not kind and note["type"] != "key")]

    def wait_noted(self, kind: str, count: int = 1) -> dict[str, Any]:
        """The `count`-th action of a kind, once it was sent."""
        end = time.monotonic() + PATIENCE
        while len(found := self.noted(kind)) < count:
            if time.monotonic() > end:
                raise AssertionError(f"no {kind} number {count}: {self.noted()}\n{self.terminal.text}")
            self.terminal.pump()
        return found[count - 1]

    def press(self, *keys: str) -> None:
        """One key after the other: each is heard before the next is pressed."""
        for key in keys:
            heard = len(self.noted("key"))
            self.terminal.send(key)
            self.wait_noted("key", heard + 1)

    def say(self, text: str) -> None:
        self.terminal.send(text + screen.ENTER)

    def go(self) -> None:
        """Lets a scene go on that waits for it."""
        Path(f"{self.notes}.go").touch()

    def pass_time(self, seconds: float) -> None:
        told = self._clock.read_text()
        now = float(told) + seconds
        being_written = self._clock.with_suffix(".new")
        being_written.write_text(f"{now:+}" if told.startswith("+") else f"{now}")
        being_written.replace(self._clock)

    def after_silence(self, shown: str, within: float = PATIENCE) -> None:
        """Until this is on the screen, which comes once nobody has typed for a while: that while is skipped."""
        end = time.monotonic() + within
        while shown not in self.terminal.visible:
            assert time.monotonic() < end, f"not on the screen: {shown!r}\n{self.terminal.visible}"
            self.pass_time(1)
            self.terminal.settle(0.05)


@pytest.fixture
def play(tmp_path: Path, ready_forge: Any) -> Iterator[Callable[..., Played]]:
    opened: list[Any] = []

    def start(
        *words: str, columns: int = 100, prompt: bool = True, stands_still: bool = False, **environ: str
    ) -> Played:
        home, clock = tmp_path / "home", tmp_path / "clock"
        notes = tmp_path / f"notes-{len(opened)}.jsonl"
        clock.write_text("100.0" if stands_still else "+0")
        env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
        env |= {"NOTES": str(notes), "DRIVER_HOME": str(home), "CLOCK": str(clock), "PYTHONDONTWRITEBYTECODE": ""}
        command = ["python", str(HERE / "driver.py"), *words]
        terminal = screen.Terminal(command, env=env | environ, columns=columns, spawn=ready_forge.on_a_terminal)
        opened.append(terminal)
        if prompt:
            terminal.wait_for("you>")
        return Played(terminal, notes, home, clock)

    yield start
    for terminal in opened:
        terminal.close()
