"""A person's program with MCP servers, for acceptance tests: its files, sessions on it, who answers, who is left.

`McpBench.yaml({...})` and `.mcp_json(...)` write what a person writes; `.ours("echo.py")` and `.theirs(argv)` are the
blocks of servers, ours and foreign ones; `async with bench.session() as session` is an ordinary session with a person
before it: every card (of a server, of a call) goes to `bench.cards`, every form to `bench.forms`. Each server carries a
mark in its environment; `bench.left()` are the processes that still have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import known_walls
from tests.acceptance.user_tools import Cards, Said
from tests.deadlines import PATIENCE, ROOM
from tests.mcp import foreign
from tests.mcp.pools import naming
from tests.ready import Started

from golem_forge import open_session
from golem_forge.agent.files.worker import Worker, WorkerSandbox, WorkerZone
from golem_forge.agent.mcp_servers import session_servers
from golem_forge.agent.model.interface import Request
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.session_plan import read_program
from golem_forge.agent.trust import trust_store
from golem_forge.config.program import Program
from golem_forge.mcp.client.manifest import ManifestCache
from golem_forge.mcp.client.pool import Pool
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.storage.home import ForgeHome

PROGRAMS = foreign.ROOT / "tests" / "mcp" / "programs"
PYTHON = os.path.realpath(sys.executable)
"""Without its environment: visible inside walls, and quicker than a version manager's shim."""
_MARK = "BENCH_MARK"


Words = str | Turn | Sequence[tuple[str, dict[str, Any]]]
"""What a model says: a text, a turn, or the calls it wants."""


class Forms(list[Any]):
    """Whoever fills in forms: keeps each, answers from a list, the last answer repeats."""

    def __init__(self, *answers: Mapping[str, Any]) -> None:
        super().__init__()
        self.answers: list[Mapping[str, Any]] = list(answers) or [{"action": "cancel"}]

    def __call__(self, form: Any) -> Mapping[str, Any]:
        self.append(form)
        return self.answers[min(len(self), len(self.answers)) - 1]


@dataclass
class McpBench:
    root: Path
    walls: Path
    """What is known of this machine's; see known_walls."""
    ready: Any
    """See the fixture `ready_forge`."""
    cards: Cards = field(default_factory=Cards)
    forms: Forms = field(default_factory=Forms)
    started: list[Started[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home = ForgeHome(self.root / "forge-home")
        self.workspace = self.root / "program"
        self.workspace.mkdir(parents=True)
        self.mark = f"mark-{self.root.name}-{os.getpid()}"
        known_walls.put(self.walls, self.home.path)

    # ---- what a person writes

    def yaml(self, servers: Mapping[str, Any], **more: Any) -> None:
        """forge.yaml with these servers and whatever else."""
        (self.workspace / "forge.yaml").write_text(json.dumps({"mcp": {"servers": servers}, **more}) + "\n")

    def mcp_json(self, **servers: Any) -> None:
        (self.workspace / ".mcp.json").write_text(json.dumps({"mcpServers": servers}, indent=2))

    def ours(self, program: str, *args: str, zones: Mapping[str, str] | None = None, **keys: Any) -> dict[str, Any]:
        """A block for one of tests/mcp/programs, which is copied into the workspace first."""
        for each in {program, "echo.py"}:  # hostile.py is built on it
            shutil.copy(PROGRAMS / each, self.workspace)
        given = {"workspace": "rw"} if zones is None else zones
        argv = ["-S", f"${{zone:workspace}}/{program}", *args]
        return self._marked({"command": PYTHON, "args": argv, "zones": given, **keys})

    def theirs(self, argv: list[str], **keys: Any) -> dict[str, Any]:
        """A block for a program of others: `theirs(foreign.everything())`."""
        return self._marked({"command": argv[0], "args": argv[1:], **keys})

    def _marked(self, block: dict[str, Any]) -> dict[str, Any]:
        return {**block, "env": {_MARK: self.mark, **block.get("env", {})}}

    # ---- what a person agreed to before

    def program(self) -> Program:
        return read_program(self.workspace, self.home, trust_store(self.home))

    def trust(self) -> None:
        trust_store(self.home).give(self.workspace)

    def approve(self, *names: str) -> None:
        """As `forge mcp approve` does; without names, all servers."""
        for name, spec in self.program().mcp.servers.items():
            if not names or name in names:
                self.book.approve_server(spec, "person")

    @property
    def book(self) -> ServerTrustStore:
        return ServerTrustStore(self.home)

    @property
    def cache(self) -> ManifestCache:
        return ManifestCache(self.home)

    # ---- sessions

    @contextlib.asynccontextmanager
    async def session(self, *, person: bool = True, **options: Any) -> AsyncIterator[Any]:
        """`person`: somebody is there, and answers cards of servers too. Servers begin at once, as in `forge run`."""
        how = {"home": self.home, **({"approval_callback": self.cards} if person else {}), **options}
        opened = open_session(self.workspace, **how)
        detach = answering(opened.state, self.cards, self.forms) if person else lambda: None
        async with opened as session:
            await session.look()
            yield session
            detach()

    @contextlib.asynccontextmanager
    async def conversation(self, turns: Sequence[Words], *, servers: Sequence[str] = ("*",)) -> AsyncIterator[Talk]:
        """A worker with these servers and a model that says `turns`: a text, or calls `[(tool, args), …]`."""
        worker = Worker(
            name="main",
            toolsets={"mcp": {"servers": list(servers)}},
            sandbox=WorkerSandbox(zones=(WorkerZone(name="workspace"),)),
        )
        talk = Talk(list(turns))
        talk.runtime = WorkerRuntime(
            worker,
            directory=self.workspace,
            home=self.home.path,
            model=FunctionScript(talk.next_turn),
            approval_callback=self.cards,
        )
        async with talk.runtime as runtime:
            detach = answering(runtime.tree, self.cards, self.forms)
            await runtime.refresh()
            yield talk
            detach()

    def forge(self, *words: str, within: float = PATIENCE, **environ: str) -> Said:
        """The command, in the program's directory, with nobody to ask."""
        ran = self.ready(*words, cwd=self.workspace, env=self.environ(**environ), timeout=within)
        return Said(code=ran.returncode, out=ran.stdout, err=ran.stderr)

    def start(self, *words: str) -> Started[str]:
        """The command, left running in a session of its own; the fixture ends it."""
        process: Started[str] = self.ready.start(
            ["forge", *words], cwd=self.workspace, env=self.environ(), start_new_session=True
        )
        self.started.append(process)
        return process

    def environ(self, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "FORGE_HOME": str(self.home.path), **more}

    # ---- what is seen afterwards

    def lines(self, name: str) -> list[str]:
        """Of a file in the workspace that a server writes; none if it is not there."""
        file = self.workspace / name
        return file.read_text().splitlines() if file.exists() else []

    def log(self, name: str = "log") -> list[dict[str, Any]]:
        """What a server with `env={"ECHO_LOG": "/workspace/log"}` was sent, over all its processes."""
        return [json.loads(line) for line in self.lines(name)]

    def starts(self, name: str = "log") -> int:
        return sum(message.get("method") == "initialize" for message in self.log(name))

    def kept_bytes(self) -> bytes:
        """Everything Forge left on disk: journals, caches, outputs, approvals."""
        return b"\n".join(path.read_bytes() for path in self.home.path.rglob("*") if path.is_file())

    def left(self) -> list[str]:
        """Processes that carry the mark: servers, and whatever they started."""
        return naming(self.mark, environ=True)

    def nobody_left(self, within: float = 1 + ROOM, *, beside: Callable[[], Iterable[int]] = tuple) -> bool:
        """`beside`: those that may be there."""
        end = time.monotonic() + within
        while {int(each.split()[0]) for each in self.left()}.difference(beside()):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE)


@dataclass
class Talk:
    """A conversation: what the model was sent, and what it says next."""

    turns: list[Words]
    requests: list[Request] = field(default_factory=list)
    runtime: Any = None

    def next_turn(self, request: Request) -> Turn | str:
        self.requests.append(request)
        assert self.turns, "the script is over"
        turn = self.turns.pop(0)
        if isinstance(turn, str | Turn):
            return turn
        return Turn(calls=tuple(TurnCall(tool=name, args=args) for name, args in turn))

    async def turn(self, text: str) -> Any:
        return await self.runtime.turn(text)

    def told(self, index: int = -1) -> list[tuple[str, str]]:
        """(status, text) of what the model was told in that request about the calls before it."""
        return [(each.status.value, each.text) for each in self.requests[index].messages[-1].results]  # type: ignore[union-attr]

    # as of a session

    @property
    def servers(self) -> Any:
        return session_servers(self.runtime.tree)

    @property
    def catalog(self) -> Any:
        return self.runtime.path.catalog

    def refresh(self) -> None:
        self.servers.sync(self.runtime._active.scope)


def answering(tree: Any, cards: Cards, forms: Forms) -> Callable[[], None]:
    """Somebody at a screen: answers every card and form of a session as they come. Gives how they leave."""

    def card(event: Any) -> None:
        answer = {"requestId": event.data.request_id, **cards(event.data)}
        asyncio.get_running_loop().call_soon(tree.bus.emit, "approvalResponse", answer)

    def form(event: Any) -> None:
        answer = {"requestId": event.data.request_id, **forms(event.data)}
        asyncio.get_running_loop().call_soon(tree.bus.emit, "formResponse", answer)

    leaving = [tree.ui.attach("person"), tree.bus.on("approvalRequired", card), tree.bus.on("formRequired", form)]
    return lambda: [each() for each in leaving] and None


def pool_of(session: Any) -> Pool:
    found: Pool = session.servers.pool
    return found


def state(session: Any, server: str) -> str:
    return pool_of(session).status(server).state.value


async def settled(session: Any, *servers: str, within: float = PATIENCE) -> None:
    """Each of them answers, or it says why not."""
    async with asyncio.timeout(within):
        for server in servers or pool_of(session).names():
            await pool_of(session).wait_connected(server)
    session.refresh()


def offered(session: Any) -> list[str]:
    """The servers' tools that a model sees now."""
    session.refresh()
    return sorted(tool.name for tool in session.catalog.list(source="mcp"))


def of_servers(cards: Iterable[Any]) -> list[Any]:
    """The cards that ask whether a server may start."""
    return [card for card in cards if card.type == "trust"]
