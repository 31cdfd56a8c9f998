"""What a person at a terminal waits for: whole processes on a pseudo-terminal.

The prompt: from the start of the process until `forge` (the built-in worker on a scripted model, which needs no key)
has drawn its input line, and until its session stands; beside `llm chat` and the prompt of a bare Python.

Esc: from the key, pressed while an answer is awaited, until the idle prompt is drawn again. A terminal sends Esc also
as the beginning of other keys, so every program has to wait a little before it takes it for the key.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.on_a_pty import Terminal
from benchmarks.rows import Row, at_most, row

MODEL: Final = "scripted:slow.yaml"
SCRIPT: Final = "turns:\n" + 200 * "  - say: Never said.\n    pause: 600\n"
FOOT: Final = f"default · {MODEL}".encode()
"""Stands below the input line from the moment the session stands, and is drawn again whenever the line is."""
WORKING: Final = b"Esc interrupts"
ESC: Final = b"\x1b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A command, and what it has written, one after the other, when the wait is over."""

    command: Sequence[str]
    shown: Sequence[bytes]


async def rows(pace: Pace) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-terminal-") as folder:
        write_script(folder)
        environment = environment_of(folder)
        starts = {name: Block(run=_waiter(start, folder, environment)) for name, start in STARTS.items()}
        ms = {name: value * 1e3 for name, value in (await race_blocks(starts, rounds=pace.rounds)).items()}
        esc = _esc_to_idle(folder, environment, presses=2 * pace.rounds) * 1e3
    return [
        *(
            row(f"forge to {what} (ms)", ms[what], peer=ms[LLM], peer_name=LLM, goal=at_most(share))
            for what, share in ((PROMPT, 0.6), (SESSION, 0.7))
        ),
        *(row(f"forge to {what} (ms)", ms[what], peer=ms[PYTHON], peer_name=PYTHON) for what in (PROMPT, SESSION)),
        row("Esc to the idle prompt (ms)", esc),
    ]


def _waiter(start: Start, folder: str, environment: Mapping[str, str]) -> Callable[[object], None]:
    def run(_material: object) -> None:
        with Terminal(start.command, cwd=folder, env=environment) as terminal:
            for text in start.shown:
                terminal.until(text)

    return run


def _esc_to_idle(folder: str, environment: Mapping[str, str], presses: int) -> float:
    """One session, interrupted again and again."""
    seconds: list[float] = []
    with Terminal(STARTS[SESSION].command, cwd=folder, env=environment) as terminal:
        terminal.until(FOOT)
        for _ in range(presses):
            terminal.quiet(0.3)
            terminal.press(b"go\r")
            terminal.until(WORKING)
            terminal.until(FOOT)
            pressed = terminal.press(ESC)
            seconds.append(terminal.until(FOOT) - pressed)
    return median(seconds)


def write_script(folder: str) -> None:
    Path(folder, MODEL.removeprefix("scripted:")).write_text(SCRIPT)


def environment_of(home: str) -> dict[str, str]:
    """A home where nothing was ever set up. `llm chat` wants a key before it shows its prompt; it is never sent."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    paths = {"HOME": home, "FORGE_HOME": f"{home}/.forge", "LLM_USER_PATH": f"{home}/llm"}
    return {**kept, **paths, "TERM": "xterm-256color", "OPENAI_API_KEY": "no-key"}


def _program(name: str, *arguments: str) -> tuple[str, ...]:
    return (str(Path(sys.executable).with_name(name)), *arguments)


_FORGE: Final = _program("forge", "-m", MODEL)
PROMPT, SESSION, LLM, PYTHON = "its prompt", "a session that stands", "llm chat", "python -q"
STARTS: Final = {
    PROMPT: Start(command=_FORGE, shown=(b"\x1b[?2004h", b">")),  # an input line switches to marked pastes first
    SESSION: Start(command=_FORGE, shown=(FOOT,)),
    LLM: Start(command=_program("llm", "chat"), shown=(b"Chatting with", b"> ")),
    PYTHON: Start(command=_program("python", "-q"), shown=(b">>> ",)),
}
