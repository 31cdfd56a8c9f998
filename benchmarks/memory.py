"""Memory of what stands idle: a `forge` session beside `llm chat`, `forge mcp serve` beside a fastmcp server.

Resident memory (RSS) of the process. `forge mcp serve` keeps the functions of a project in a second process, inside
walls; the row without a goal adds it (pages that both share count twice). The session is the built-in worker on a
scripted model at its prompt; the servers offer the same functions over stdio and have been asked for their tools.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.harness import Pace
from benchmarks.mcp_served import FORGE, PROGRAM, write_program
from benchmarks.on_a_pty import Terminal
from benchmarks.ours import project_and_home
from benchmarks.rows import Row, below_peer, row
from benchmarks.terminal import LLM, SESSION, STARTS, environment_of, write_script

TOOLS: Final = 10
FASTMCP: Final = "fastmcp"
AT_REST_S: Final = 2.0
REPEATS: Final = 3


class Resident(NamedTuple):
    """In megabytes."""

    of_process: float
    of_all: float
    """And of its descendants."""


async def rows(pace: Pace) -> list[Row]:
    repeats = min(pace.rounds, REPEATS)
    session, chat = (median(_at_prompt(name) for _ in range(repeats)) for name in (SESSION, LLM))
    ours, theirs = (
        [median(each) for each in zip(*(measure() for _ in range(repeats)), strict=True)]
        for measure in (_served_by_us, _served_by_fastmcp)
    )
    serving = f"memory of forge mcp serve, {TOOLS} tools (MB)"
    walled = f"memory of it and of the walled process of its tools, {TOOLS} tools (MB)"
    return [
        row("memory of an idle forge session (MB)", session, peer=chat, peer_name=LLM, goal=below_peer()),
        row(serving, ours[0], peer=theirs[0], peer_name=FASTMCP, goal=below_peer()),
        row(walled, ours[1], peer=theirs[1], peer_name=FASTMCP),
    ]


def _at_prompt(name: str) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-memory-") as folder:
        write_script(folder)
        with Terminal(STARTS[name].command, cwd=folder, env=environment_of(folder)) as terminal:
            for text in STARTS[name].shown:
                terminal.until(text)
            terminal.quiet(AT_REST_S)
            return resident_megabytes(terminal.pid).of_all


def _served_by_us() -> Resident:
    with project_and_home() as (project, home):
        write_program(project, home, TOOLS)
        return _serving([str(FORGE), "mcp", "serve", "-p", str(project)], {**os.environ, "FORGE_HOME": str(home)})


def _served_by_fastmcp() -> Resident:
    return _serving([sys.executable, str(PROGRAM), "fastmcp", str(TOOLS)], os.environ)


def _serving(command: Sequence[str], environ: Mapping[str, str]) -> Resident:
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        _ask(server, {"id": 1, "method": "initialize", "params": client})
        _ask(server, {"method": "notifications/initialized"})
        answer = _ask(server, {"id": 2, "method": "tools/list", "params": {}})
        assert answer.count(b'"tool_') >= TOOLS, answer
        time.sleep(AT_REST_S)
        resident = resident_megabytes(server.pid)
        server.terminate()
    return resident


def _ask(server: subprocess.Popen[bytes], message: Mapping[str, object]) -> bytes:
    """The line that answers a request; a notification has none."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    server.stdin.flush()
    while "id" in message:
        line = server.stdout.readline()
        assert line, "the server ended"
        if json.loads(line).get("id") == message["id"]:
            return line
    return b""


def resident_megabytes(pid: int) -> Resident:
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (facts := _read(f"/proc/{entry.name}/stat")):
            parent = int(facts.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    waiting, sizes = [pid], []
    while waiting:
        one = waiting.pop()
        pages = int((_read(f"/proc/{one}/statm") or "0 0").split()[1])
        sizes.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
        waiting += children.get(one, ())
    return Resident(sizes[0], sum(sizes))


def _read(path: str) -> str:
    """Empty for a process that has ended."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
