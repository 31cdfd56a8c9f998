"""How long a command keeps a person waiting: whole processes, from the start to the exit, beside a bare Python.

With a home where nothing is set up. `forge call` opens a session, runs the tool through the whole path and keeps its
journal; `llm --version` is there for scale.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.rows import Row, at_most, row

PYTHON: Final = "python -c pass"
PEER: Final = "llm --version"
SHARES: Final = {"forge --version": 2.5, "forge tools list": 10, "forge call file_exists --path=notes.txt": 24}
"""Command → how many times as long as `python -c pass` it may take."""


async def rows(pace: Pace) -> list[Row]:
    with tempfile.TemporaryDirectory() as home:
        commands = {PYTHON: [sys.executable, "-c", "pass"]} | {name: _command(name) for name in (*SHARES, PEER)}
        blocks = {name: Block(run=partial(_run, command, home)) for name, command in commands.items()}
        seconds = await race_blocks(blocks, rounds=pace.rounds)
    ms = {name: value * 1e3 for name, value in seconds.items()}
    return [
        *(
            row(f"{name} (ms)", ms[name], peer=ms[PYTHON], peer_name=PYTHON, goal=at_most(share))
            for name, share in SHARES.items()
        ),
        *(row(f"{name} (ms)", ms[name], peer=ms[PEER], peer_name=PEER) for name in SHARES),
    ]


def _command(line: str) -> list[str]:
    program, *arguments = line.split()
    return [str(Path(sys.executable).with_name(program)), *arguments]


def _run(command: list[str], home: str, _material: object) -> None:
    """With byte-code files, which are written in the warm-up round."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "HOME": home, "FORGE_HOME": f"{home}/.forge", "LLM_USER_PATH": f"{home}/llm"}
    project = Path(home, "project")
    project.mkdir(exist_ok=True)
    subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True, stdin=subprocess.DEVNULL)
