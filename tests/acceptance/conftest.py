"""A program in a directory and the `forge` command on it: run to its end, started and left running, looked at.

`desk(files, …)` writes the program; `.forge(…)` gives what a finished command said (see the fixture `ready_forge`),
`.start(…)` a running one. Journals are read as the files they are. No key of the person who runs the tests reaches a
command.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests import known_walls
from tests.deadlines import PATIENCE
from tests.ready import run_in_process
from tests.ui.terminal.screen import Terminal

from golem_forge.agent.trust import trust_store
from golem_forge.storage.home import ForgeHome

FORGE = str(Path(sys.executable).parent / "forge")
_KEPT = ("PATH", "HOME", "FORGE_HOME", "LANG", "LC_ALL", "TMPDIR")


@dataclass(slots=True)
class Desk:
    root: Path
    home: Path
    """FORGE_HOME."""
    environ: dict[str, str]
    ready: Any
    walls: Path
    """What is known of this machine's; see known_walls."""
    capture: Any = None
    """The fixture `capfd`: `forge` runs in this process then, where only words, texts and codes matter."""
    started: list[Any] = field(default_factory=list)

    def write(self, **texts: str) -> None:
        """`write(**{"workers/a.worker": "…"})`."""
        for name, text in texts.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def know_walls(self) -> None:
        known_walls.put(self.walls, self.home)

    def start(self, *words: str, cwd: Path | None = None, **environ: str) -> Any:
        """As a `subprocess.Popen`."""
        process = self.ready.start(["forge", *words], cwd=cwd or self.root, env=self.environ | environ)
        self.started.append(process)
        return process

    def forge(self, *words: str, cwd: Path | None = None, **environ: str) -> Ran:
        where = {"cwd": cwd or self.root, "env": self.environ | environ}
        ran = run_in_process(self.capture, *words, **where) if self.capture else self.ready(*words, **where)
        return Ran(code=ran.returncode, out=ran.stdout, err=ran.stderr)

    def trust(self) -> None:
        """As `forge trust --yes` does."""
        trust_store(ForgeHome(self.home)).give(self.root)

    @property
    def journals(self) -> list[Path]:
        return sorted((self.home / "sessions").glob("*.jsonl"))

    def records(self, at: int = -1) -> list[dict[str, Any]]:
        """Of one session; a line that is being written is left out."""
        lines = self.journals[at].read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def calls(self, at: int = -1) -> list[Call]:
        """In the order they were asked for."""
        found: dict[str, Call] = {}
        for record in self.records(at):
            if record["type"] == "proposed":
                found[record["call"]] = Call(
                    id=record["call"], worker=record["worker"], tool=record["tool"], args=record["args"]
                )
            elif record["type"] == "started":
                found[record["call"]].starts += 1
            elif record["type"] == "finished":
                found[record["call"]].status = record["status"]
                found[record["call"]].error = record.get("error", "")
        return list(found.values())

    def history(self, at: int = -1) -> list[dict[str, Any]]:
        return [record["message"] for record in self.records(at) if record["type"] == "history"]

    def kept_bytes(self) -> bytes:
        """Everything Forge left on disk."""
        return b"\n".join(path.read_bytes() for path in self.home.rglob("*") if path.is_file())


@dataclass(slots=True, kw_only=True)
class Call:
    id: str
    worker: str
    tool: str
    args: Any
    starts: int = 0
    status: str = ""
    error: str = ""

    @property
    def told(self) -> tuple[str, str, str, str]:
        """What must be the same whatever the model speaks."""
        return (self.worker, self.tool, json.dumps(self.args, sort_keys=True), self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str


def finished(process: Any, within: float = PATIENCE) -> Ran:
    out, err = process.communicate(timeout=within)
    return Ran(code=process.returncode, out=out, err=err)


@pytest.fixture
def finish() -> Callable[..., Ran]:
    return finished


@pytest.fixture
def desks(tmp_path: Path, own_home: Path, ready_forge: Any, tried_walls: Path) -> Iterator[Callable[..., Desk]]:
    """`desk({"main.worker": "…"}, name="a", OPENAI_API_KEY="canary-…")`; each has a FORGE_HOME of its own."""
    made: list[Desk] = []

    def make(files: dict[str, str], name: str = "program", **environ: str) -> Desk:
        root = tmp_path / name
        root.mkdir()
        home = tmp_path / f"{name}-home"
        kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
        desk = Desk(root, home, kept | {"FORGE_HOME": str(home)} | environ, ready_forge, tried_walls)
        desk.write(**files)
        made.append(desk)
        return desk

    yield make
    for process in (process for desk in made for process in desk.started):
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def desk(desks: Callable[..., Desk]) -> Callable[..., Desk]:
    """Each `forge` is a process of its own."""
    return desks


@pytest.fixture
def desk_here(desks: Callable[..., Desk], capfd: pytest.CaptureFixture[str]) -> Callable[..., Desk]:
    """Its `forge` runs in this process."""

    def make(*files: Any, **more: Any) -> Desk:
        made = desks(*files, **more)
        made.capture = capfd
        return made

    return make


@pytest.fixture
def terminal() -> Iterator[Callable[..., Any]]:
    """`terminal(desk, *words)`: the command on a terminal of its own, a `tests/ui/terminal` screen."""
    opened: list[Terminal] = []

    def start(
        desk: Desk, *words: str, cwd: Path | None = None, size: tuple[int, int] = (120, 40), **environ: str
    ) -> Any:
        env, (columns, rows) = desk.environ | environ, size
        spawn, cwd = desk.ready.on_a_terminal, cwd or desk.root
        opened.append(Terminal(["forge", *words], cwd=cwd, env=env, columns=columns, rows=rows, spawn=spawn))
        return opened[-1]

    yield start
    for screen in opened:
        screen.close()


def until(condition: Callable[[], Any], what: str, within: float = PATIENCE) -> Any:
    """Polls; gives the first thing that is not empty."""
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {within} s: {what}"
        time.sleep(0.01)
    return found


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., Any]:
    return until


@pytest.fixture
def marker() -> Iterator[str]:
    """Part of a command line; whatever still holds it when the test is over was left behind."""
    value = f"forge-test-{uuid.uuid4().hex}"
    yield value
    assert marked(value, 20) == [], "a process outlived its test"


def marked(marker: str, within: float) -> list[str]:
    """Command lines that hold the marker, once that stays so."""
    end = time.monotonic() + within
    while True:
        found = []
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if marker.encode() in (line := place.read_bytes()):
                    found.append(line.decode(errors="replace"))
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.02)


@pytest.fixture
def mcp_bench(tmp_path: Path, tried_walls: Path, ready_forge: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A person's program with MCP servers: see mcp_bench.py. No process of a server outlives its test."""
    from tests.acceptance.mcp_bench import McpBench
    from tests.mcp import foreign

    monkeypatch.setenv("PATH", f"{foreign.BIN}:{os.environ['PATH']}")
    bench = McpBench(tmp_path, tried_walls, ready_forge)
    yield bench
    bench.close()
    assert bench.nobody_left(), f"a server outlived its test: {bench.left()}"
