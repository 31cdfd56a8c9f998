"""The screens in docs/guides/terminal.md are what a terminal shows: one session on a real pty, typed as the page says.

A ```screen block holds `$ command` (starts it), `» keys` (typed; `⏎` at the end: and Enter) and lines that the screen
must show, in this order, once the keys above them were typed; `…` stands for any text.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "guides/terminal.md"
_SCREEN = re.compile(r"^```screen\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_KEYS = {"Esc": "\x1b", "Tab": "\t", "Ctrl+C": "\x03", "": ""}


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


transcripts = _loaded("transcripts_of_terminal_page", HERE / "transcripts.py")
screen = _loaded("screen_of_terminal_page", HERE.parent / "ui" / "terminal" / "screen.py")


def _steps() -> Iterator[tuple[str, list[str]]]:
    """(what is typed, the lines that then appear)."""
    lines = "\n".join(block.strip("\n") for block in _SCREEN.findall(PAGE.read_text())).splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith(("$ ", "» "))]
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield lines[at], lines[at + 1 : end]


def _pattern(line: str) -> re.Pattern[str]:
    start = "(?m:^)" if line.startswith("  ") else ""  # the words of a card's row may stand in other rows, too
    return re.compile(start + "[^\n]*".join(re.escape(part) for part in line.split("…")))


def test_the_page_shows_what_a_terminal_shows(tmp_path: Path, ready_forge: Any) -> None:
    home, project = tmp_path / "home", tmp_path / "home" / "notes"
    project.mkdir(parents=True)
    for step in transcripts.steps_of(PAGE.read_text()):
        subprocess.run(["bash", "-c", step.command], cwd=project, check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FORGE_", "PYTHON"))}
    environ = kept | {"HOME": str(home), "FORGE_HOME": str(home / ".forge"), "TZ": "UTC", "NO_COLOR": "1"}
    (first, greeting), *rest = _steps()
    command, spawn = ["forge", *first.split()[2:]], ready_forge.on_a_terminal
    with screen.Terminal(command, cwd=project, env=environ, columns=120, rows=50, spawn=spawn) as terminal:
        for typed, shown in [("» ", greeting), *rest]:
            keys = typed.removeprefix("» ").strip()
            if keys.endswith("⏎"):
                terminal.type(keys.removesuffix("⏎").strip(), pause=0.003)
                terminal.send(screen.ENTER)
            else:
                terminal.send(_KEYS.get(keys, keys))
            for line in shown:
                terminal.wait_for(_pattern(line))
        assert terminal.wait_end() == 0
        _in_order(terminal.text, [line for _, shown in [("", greeting), *rest] for line in shown])


def _in_order(text: str, lines: list[str]) -> None:
    """What is not there any more was a question at the foot of the screen; all else stands in the page's order."""
    place = 0
    for line in lines:
        if _pattern(line).search(text):
            found = _pattern(line).search(text, place)
            assert found, f"out of order: {line}\n{text}"
            place = found.end()
