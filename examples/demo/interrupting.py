"""Ctrl+C at the right moment: waits until a tool runs, gives it a second, interrupts, and looks at what is left."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 90.0
"""The run ends within a second. A machine that is busy with other things takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    processes: int
    """That ran below forge when it was interrupted."""
    left: int
    seconds: float
    """From the signal to the end of forge."""


def interrupt_during(tool: str, process: subprocess.Popen[bytes], home: Path, after: float = 1.0) -> Interrupt | None:
    """None: the process ended by itself before the tool began."""
    while not _runs(tool, home):
        if process.poll() is not None:
            return None
        time.sleep(0.02)
    time.sleep(after)
    below = list(_below(process.pid))
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE_S)
    seconds = time.monotonic() - sent
    return Interrupt(processes=len(below), left=sum(map(_lives, below)), seconds=seconds)


def _runs(tool: str, home: Path) -> bool:
    """Whether the journal, which is written before the effect, has the tool as started."""
    return any(record["type"] == "started" and record["tool"] == tool for record in records(home))


def records(home: Path) -> Iterator[dict[str, Any]]:
    """Every whole line of every session."""
    for path in sorted((home / "sessions").glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)


def _below(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # ended while we looked
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from _below(child)


def _lives(pid: int) -> bool:
    """A dead process that its parent has not looked at yet (state Z) does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
