"""A served session: native tools, some of our own, over loopback HTTP or a real process with pipes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.deadlines import PATIENCE

from golem_forge.agent.session import open_session
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.decisions import Verdict
from golem_forge.mcp.server.http import HttpListener, HttpOptions, serve_http
from golem_forge.mcp.server.tokens import TokenStore
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import ToolContext
from golem_forge.tools.tool import Tool

from .hosting import SessionHost
from .wire import sdk_client

MODES = ("legacy", "auto")
PROGRAM = Path(__file__).with_name("serve_program.py")
Process = Callable[..., Any]


@dataclass
class Ran:
    """What really ran, in order."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def tools_that_note(ran: Ran) -> list[Tool]:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

    def noting(name: str, needs: Verdict, **more: Any) -> Tool:
        async def execute(args: dict[str, Any]) -> Any:
            ran.calls.append((name, args))
            return {"got": args["x"]}

        about = f"The tool {name}."
        return Tool(name, about, input_schema=schema, execute=execute, needs_approval=needs, **more)

    async def slow(args: dict[str, Any], ctx: ToolContext) -> str:
        ran.calls.append(("slow", args))
        for step in range(args["x"]):
            ctx.report_progress(step + 1, args["x"], f"step {step + 1}")
            await asyncio.sleep(0.05)
        return "slept"

    async def long(args: dict[str, Any]) -> str:
        return "\n".join(f"line {number}" for number in range(args["x"]))

    return [
        noting(
            "free", Verdict.PRE_APPROVED, output_schema={"type": "object", "properties": {"got": {"type": "integer"}}}
        ),
        noting("asks", Verdict.ASK),
        Tool("slow", "Takes its time.", input_schema=schema, execute=slow, needs_approval=Verdict.PRE_APPROVED),
        Tool("long", "Says a lot.", input_schema=schema, execute=long, needs_approval=Verdict.PRE_APPROVED),
    ]


@dataclass
class Served:
    url: str
    host: SessionHost
    ran: Ran
    tokens: TokenStore
    token: str
    listening: HttpListener
    work: Path
    http: Any
    """An HTTP client without a token."""

    def add(self, name: str, execute: Any, **more: Any) -> None:
        """A tool that takes anything and asks nobody."""
        about = f"The tool {name}."
        own = {"input_schema": {"type": "object"}, "needs_approval": False} | more
        self.host.session.catalog.add(Tool(name, about, execute=execute, **own))

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def client(self, mode: str, token: str = "", **how: Any) -> AbstractAsyncContextManager[Any]:
        return sdk_client(self.url, token or self.token, mode, **how)


Serving = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def serving(tmp_path: Path, own_home: Path) -> Serving:
    @asynccontextmanager
    async def serve(
        options: HttpOptions | None = None,
        mode: ApprovalMode = ApprovalMode.INTERACTIVE,
        hosted: Callable[..., Any] = SessionHost,
        **opening: Any,
    ) -> AsyncIterator[Served]:
        home = ForgeHome(own_home / ".forge")
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        ran = Ran()
        session = open_session(work, tools=tools_that_note(ran), home=home, **opening)
        host = hosted(session, mode)
        tokens = TokenStore(home)
        secret = tokens.create("laptop")
        up: asyncio.Future[HttpListener] = asyncio.get_running_loop().create_future()
        serve = asyncio.create_task(serve_http(host, options or HttpOptions(port=0), tokens, up.set_result))
        await asyncio.wait({serve, up}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if serve.done():
            serve.result()
        listening = up.result()
        async with httpx2.AsyncClient(timeout=PATIENCE, verify=False) as http:
            try:
                yield Served(listening.url, host, ran, tokens, secret, listening, work, http)
            finally:
                listening.stop()
                await asyncio.wait_for(serve, PATIENCE)

    return serve


@pytest.fixture
def process(ready_forge: Any) -> Iterator[Process]:
    """`with process(work) as running`: the program, as a `subprocess.Popen[bytes]`."""

    @contextmanager
    def start(work: Path) -> Iterator[Any]:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        running = ready_forge.start_with_input(["python", str(PROGRAM), str(work)], cwd=work, env=env)
        try:
            yield running
        finally:
            running.kill()
            running.wait(PATIENCE)
            for pipe in (running.stdin, running.stdout, running.stderr):
                with suppress(OSError):
                    pipe.close()

    return start
