"""`forge mcp serve` as others meet it: a program with a tool of each source, served by the command, and clients.

`served_program(bench)` writes the program; `http_server(bench)` and `StdioServer(bench)` are the running command;
`follow("typescript", orders)` lets a client of somebody else do what it is told (clients/orders.md). `Wire` speaks HTTP
by hand, for what no client does.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_types import ElicitResult
from tests.acceptance.mcp_bench import McpBench
from tests.acceptance.user_tools import yaml_of
from tests.deadlines import PATIENCE
from tests.mcp import foreign
from tests.mcp.server.wire import sdk_client
from tests.ready import Started

YES = {"action": "accept", "content": {"approve": True, "remember": "once"}}
CLIENTS = Path(__file__).parent / "clients"
LEGACY, MODERN = "legacy", "2026-07-28"
ERAS = (LEGACY, MODERN)
NEWEST_LEGACY = "2025-11-25"

_WORKER = """\
---
name: main
description: Serves.
toolsets:
  filesystem: {}
  exec: {}
  mcp_resources: {}
  user_tools: {approval: {default: preApproved}}
  custom:
    module: ./tools.py
    tools: [double, note, never, by_hand]
    approval: {tools: {double: preApproved}}
  mcp: {servers: ["*"]}
sandbox:
  zones:
    - {name: workspace, mode: rw}
---
You are not asked anything.
"""
_TOOLS = '''\
from pathlib import Path

from golem_forge import Tool

NOTES = Path("/workspace/notes")


def _noted(name, text):
    with NOTES.open("a") as file:
        file.write(f"{name} {text}\\n")
    return f"{name} noted {text}"


def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


def note(text: str) -> str:
    """Keeps a line; asks first."""
    return _noted("note", text)


_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
never = Tool("never", "Is blocked.", input_schema=_TEXT, needs_approval="blocked",
             execute=lambda args: _noted("never", args["text"]))
by_hand = Tool("by_hand", "For people.", input_schema=_TEXT, mode="manual", needs_approval=False,
               execute=lambda args: _noted("by_hand", args["text"]))
'''


def served_program(bench: McpBench, worker: str = _WORKER, tools: str = _TOOLS, **servers: list[str]) -> None:
    """Native tools, module tools (`double` is free, `note` asks, `never` is blocked, `by_hand` is for people) and the
    server `echo`, or what else is given; trusted and approved. `servers`: name → program and its arguments, none of one
    that is left out."""
    trusted = {"trust": "trusted", "network": False, "approval": {"default": "preApproved"}}
    bench.yaml(
        {
            name: bench.ours(*program, **trusted)
            for name, program in {"echo": ["echo.py"], **servers}.items()
            if program
        },
        entry="main.worker",
        sandbox={"zones": {"workspace": {"path": ".", "mode": "rw"}}},
    )
    (bench.workspace / "main.worker").write_text(worker)
    (bench.workspace / "tools.py").write_text(tools)
    (bench.workspace / "hello.txt").write_text("hello from a zone\n")
    bench.trust()
    bench.approve()


def user_tool(bench: McpBench, name: str) -> None:
    """A folder as a person writes it; it is theirs alone until they activate it."""
    folder = bench.home.path / "tools" / name
    folder.mkdir(parents=True)
    manifest = {"name": name, "description": f"Does {name}.", "version": "1.0.0", "entrypoint": f"{name}.sh"}
    manifest |= {"parameters": [{"name": "who", "type": "string", "description": "whom"}]}
    (folder / "tool.yaml").write_text(yaml_of(manifest))
    (folder / f"{name}.sh").write_text('echo "hello ${1#--who=}"\n')


def activate(bench: McpBench, name: str) -> None:
    said = bench.forge("tools", "activate", name, "--yes")
    assert said.code == 0, said.err


def notes(bench: McpBench) -> list[str]:
    """What really ran, of the tools that leave a note."""
    return bench.lines("notes")


# ---- over HTTP


@dataclass
class HttpServer:
    bench: McpBench
    process: Started[str]
    url: str
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        found = re.search(r":(\d+)/", self.url)
        assert found is not None
        return int(found[1])

    def token(self, name: str = "laptop") -> str:
        """Made by `forge mcp token create` the first time it is asked for."""
        if name not in self.tokens:
            made = self.bench.forge("mcp", "token", "create", name)
            assert made.code == 0, made.err
            self.tokens[name] = max(re.findall(r"[A-Za-z0-9_\-]{20,}", made.out), key=len)
        return self.tokens[name]

    def orders(self, *calls: Any, era: str = LEGACY, token: str = "laptop", **more: Any) -> dict[str, Any]:
        return {"url": self.url, "token": self.token(token), "era": era, "calls": list(calls), **more}

    def client(self, era: str, token: str = "laptop", **how: Any) -> AbstractAsyncContextManager[Any]:
        return sdk_client(self.url, self.token(token), era, **how)

    def wire(self, token: str = "laptop") -> Wire:
        return Wire(self.port, self.token(token))


@contextlib.contextmanager
def http_server(bench: McpBench, *words: str) -> Iterator[HttpServer]:
    process = bench.start("mcp", "serve", "--http", "127.0.0.1:0", *words)
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"listening at (\S+)", line):
            break
    else:
        raise AssertionError("".join(said))
    try:
        yield HttpServer(bench, process, found[1])
    finally:
        children = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert not [child for child in children if alive(child)]


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    body: str

    @property
    def message(self) -> dict[str, Any]:
        """The one JSON-RPC message, as JSON or as the last event of a stream."""
        text = self.body
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            text = [line for line in text.splitlines() if line.startswith("data: {")][-1].removeprefix("data: ")
        found: dict[str, Any] = json.loads(text)
        return found


@dataclass
class Wire:
    port: int
    token: str

    def send(self, body: Any = None, *, method: str = "POST", path: str = "/mcp", **headers: str | None) -> Answered:
        """Headers by keyword, `_` for `-`; None leaves one out that is usually there."""
        usual: dict[str, str | None] = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "Host": f"127.0.0.1:{self.port}",
        }
        given = {**usual, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.putrequest(method, path, skip_host=True)
            data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            for name, value in {**given, "Content-Length": str(len(data))}.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(data)
            answer = connection.getresponse()
            return Answered(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
        finally:
            connection.close()

    def initialize(self) -> Answered:
        return self.send(initialize(1))


def initialize(ident: int, **capabilities: Any) -> dict[str, Any]:
    params = {
        "protocolVersion": NEWEST_LEGACY,
        "capabilities": capabilities,
        "clientInfo": {"name": "by hand", "version": "0"},
    }
    return {"jsonrpc": "2.0", "id": ident, "method": "initialize", "params": params}


# ---- over stdin and stdout


class StdioServer:
    """The running command, spoken to line by line in the handshake era. `async with StdioServer(bench) as server`."""

    def __init__(self, bench: McpBench, *words: str, **capabilities: Any) -> None:
        self._bench = bench
        self._words = words
        self._capabilities = capabilities
        self._last = 0
        self.received: list[dict[str, Any]] = []
        """Every message, in order."""

    async def __aenter__(self) -> StdioServer:
        self.process: Started[bytes] = self._bench.ready.start_with_input(
            ["forge", "mcp", "serve", *self._words], cwd=self._bench.workspace, env=self._bench.environ()
        )
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(asyncio.to_thread(self._read, asyncio.get_running_loop()))
        self.write(initialize(0, **self._capabilities))
        await self.answer_to(0)
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.end()
        await self._reading
        self.process.__exit__()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in self.process.stdout:
            self.received.append(json.loads(line))  # nothing but protocol is on stdout
            loop.call_soon_threadsafe(self._news.set)

    def write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, **params: Any) -> int:
        self._last += 1
        self.write({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def call(self, name: str, args: dict[str, Any], **params: Any) -> int:
        return self.request("tools/call", name=name, arguments=args, **params)

    async def answer_to(self, ident: int, within: float = PATIENCE) -> dict[str, Any]:
        return await self.message(lambda each: each.get("id") == ident and "method" not in each, within)

    async def message(self, wanted: Any, within: float = PATIENCE) -> dict[str, Any]:
        async with asyncio.timeout(within):
            while True:
                for each in self.received:
                    if wanted(each):
                        return each
                self._news.clear()
                await self._news.wait()

    async def end(self) -> int:
        """Closes stdin; its code, once it has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await asyncio.to_thread(self.process.wait, PATIENCE)


# ---- clients of others


def follow(client: str, *orders: dict[str, Any]) -> list[dict[str, Any]]:
    """What `typescript` saw, or `python` (fastmcp or pydantic-ai, as an order's `by` says); one answer an order."""
    programs = {
        "python": [*foreign.python(), str(CLIENTS / "python_clients.py")],
        "typescript": foreign.typescript(CLIENTS / "typescript_client.cjs"),
    }
    ran = subprocess.run(
        programs[client],
        env=foreign.environ(NODE_PATH=str(foreign.NODE_MODULES), NO_COLOR="1"),
        input=json.dumps(orders),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


def inspect(bench: McpBench, *words: str) -> dict[str, Any]:
    """`inspector --cli … -- forge mcp serve`: it starts the server itself, as it would any other; one that is ready."""
    variables = [word for name in ("FORGE_HOME", "HOME") for word in ("-e", f"{name}={bench.environ()[name]}")]
    ran = subprocess.run(
        foreign.inspector("--format", "json", "-q", *variables, *words, "--", bench.ready.forge, "mcp", "serve"),
        cwd=bench.workspace,
        env=foreign.environ(HOME=bench.environ()["HOME"], NO_COLOR="1"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stdout[-1500:] + ran.stderr[-1500:]
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def alive(process: int) -> bool:
    return _state(process)[0] not in "ZX"


def words_of(process: int) -> str:
    """The words it was started with; none of one that is not there."""
    try:
        return Path("/proc", str(process), "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def _state(process: int) -> tuple[str, int]:
    """(its state, its parent); `X` of one that is not there."""
    try:
        stat = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return stat[0], int(stat[1])


def children_of(process: int) -> list[int]:
    """Those that live, at any depth."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (found := _state(int(entry)))[0] not in "ZX":
            parents[int(entry)] = found[1]
    below, level = [], [process]
    while level:
        level = [child for child, parent in parents.items() if parent in level]
        below += level
    return below


@contextlib.contextmanager
def serving_bench(root: Path, walls: Path, ready: Any, **program: Any) -> Iterator[McpBench]:
    """A bench for all tests of a module, with a HOME of its own. `program`: as `served_program` takes it."""
    home = root / "person"
    home.mkdir(parents=True)
    bench = SharedBench(root, walls, ready)
    try:
        served_program(bench, **program)
        yield bench
    finally:
        bench.close()


class SharedBench(McpBench):
    """Tests come and go, each with another HOME; this one's stays."""

    def environ(self, **more: str) -> dict[str, str]:
        return super().environ(**{"HOME": str(self.root / "person"), **more})


class Person:
    """At a client that can be asked: keeps every form, gives their name where it is wanted, else the same answer."""

    def __init__(self, answer: dict[str, Any], name: str = "") -> None:
        self.asked: list[Any] = []
        self._answer, self._name = answer, name

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params)
        if "name" in params.requested_schema["properties"]:
            return ElicitResult(action="accept", content={"name": self._name})
        return ElicitResult(**self._answer)
