"""A worker made in Python on a model whose turns are written down: `runtime(turns, …)`, and what UIs saw of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.files.worker import Worker, WorkerSandbox, WorkerZone
from golem_forge.agent.model.interface import Request
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.config.program import load_program
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.storage.home import ForgeHome, forge_home

WORKSPACE = WorkerSandbox(zones=(WorkerZone(name="workspace"),))


def put(root: Path, name: str, text: str = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def let_servers_start(root: Path, home: ForgeHome | None = None) -> None:
    """As a person who was asked about each server of a program."""
    home = home or forge_home()
    for spec in load_program(root, home, trusted=lambda _: True).mcp.servers.values():
        ServerTrustStore(home).approve_server(spec, "a person")


class Script:
    """Plays its turns in order and keeps every request."""

    def __init__(self, turns: Sequence[Turn | str | Callable[[Request], Turn | str]], **facts: Any) -> None:
        self._turns = list(turns)
        self.requests: list[Request] = []
        self.model = FunctionScript(self._next, **facts)

    def _next(self, request: Request) -> Turn | str:
        self.requests.append(request)
        assert self._turns, "the script is over"
        turn = self._turns.pop(0)
        return turn(request) if callable(turn) else turn

    def results(self, index: int = -1) -> list[tuple[str, str]]:
        """(status, text) of what the model was told in that request about the calls before it."""
        return [(each.status.value, each.text) for each in self.requests[index].messages[-1].results]  # type: ignore[union-attr]


def calls(*wanted: tuple[str, dict[str, Any]], say: str = "") -> Turn:
    return Turn(say=say, calls=tuple(TurnCall(tool=name, args=args) for name, args in wanted))


class Played:
    def __init__(self, runtime: WorkerRuntime, script: Script) -> None:
        self.runtime = runtime
        self.script = script
        self.events: list[Any] = []
        runtime.bus.on("*", self.events.append)

    def seen(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type == kind]


@pytest.fixture
async def play(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """`await play(turns, tools=[…], worker=Worker(…), approval="approve_all")` gives an initialized Played; with
    `run="go"`, or `turn="go"`, one that was told so."""
    opened: list[WorkerRuntime] = []
    folder = tmp_path / "project"
    folder.mkdir()

    async def make(
        turns: Sequence[Any],
        *,
        worker: Worker | str | Path | None = None,
        approval: str | None = "approve_all",
        facts: dict[str, Any] | None = None,
        run: str = "",
        turn: str = "",
        **options: Any,
    ) -> Played:
        script = Script(turns, **(facts or {}))
        options.setdefault("directory", folder)
        runtime = WorkerRuntime(
            worker or Worker(name="main", toolsets={"filesystem": {}}, sandbox=WORKSPACE),
            model=script.model,
            approval_mode=approval,
            **options,
        )
        opened.append(runtime)
        played = Played(runtime, script)
        await runtime.initialize()
        if run:
            await runtime.run(run)
        if turn:
            await runtime.turn(turn)
        return played

    yield make
    for runtime in opened:
        await runtime.aclose()
