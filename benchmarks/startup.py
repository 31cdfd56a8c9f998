"""How long a command keeps a person waiting: whole processes, from the start to the exit.

The goal of each of ours is to be nearer to a bare Python than to the peer: ours - python < peer - ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.rows import Goal, Row, row

PYTHON = "python -c pass"
PEER = "llm --version"
OURS = ("forge --version", "forge tools list")


async def rows(pace: Pace) -> list[Row]:
    with tempfile.TemporaryDirectory() as home:
        commands = {PYTHON: [sys.executable, "-c", "pass"]} | {name: _command(name) for name in (*OURS, PEER)}
        blocks = {name: Block(run=partial(_run, command, home)) for name, command in commands.items()}
        seconds = await race_blocks(blocks, rounds=pace.rounds)
    python, peer = seconds[PYTHON] * 1e3, seconds[PEER] * 1e3
    nearer = Goal("nearer to python than to llm", lambda ours, peer: peer is not None and ours - python < peer - ours)
    return [
        *(row(f"{name} (ms)", seconds[name] * 1e3, peer=peer, peer_name=PEER, goal=nearer) for name in OURS),
        *(row(f"{name} (ms)", seconds[name] * 1e3, peer=python, peer_name=PYTHON) for name in OURS),
    ]


def _command(line: str) -> list[str]:
    program, *arguments = line.split()
    return [str(Path(sys.executable).with_name(program)), *arguments]


def _run(command: list[str], home: str, _material: object) -> None:
    """With byte-code files (they are written in the warm-up round), and with a home where nothing was ever set up."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "HOME": home, "FORGE_HOME": f"{home}/.forge", "LLM_USER_PATH": f"{home}/llm"}
    subprocess.run(command, cwd=home, env=environment, check=True, capture_output=True, stdin=subprocess.DEVNULL)
