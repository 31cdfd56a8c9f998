"""A session behind a real server, asked over HTTP as the page asks: `asked = await sessions(toolsets={…})`.

    rules = await asked.get("rules")
    await asked.post("rules/explain", {"tool": "read_file", "args": {…}}, status=200)

Calls of its tools are made as the model makes them; `answer` is what a person at the terminal says to every card.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.deadlines import PATIENCE
from tests.ui.web.onlooker import Served, served
from tests.ui.web.stage import WORKSPACE

from golem_forge.agent.files.worker import Worker
from golem_forge.agent.model.scripted import FunctionScript
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.core.calls import Caller, Outcome, ToolCall
from golem_forge.storage.home import ForgeHome


@dataclass(slots=True, kw_only=True)
class Asked:
    served: Served
    client: httpx2.AsyncClient
    """Logged in; one for all, since making one costs more than asking."""
    session: str
    runtime: WorkerRuntime | None = None
    answer: dict[str, Any] = field(default_factory=lambda: {"approved": True})
    cards: list[dict[str, Any]] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)

    async def ask(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        where = path if path.startswith("/") else f"/api/sessions/{self.session}/{path}"
        answer = await self.client.request(method, where, **({"json": body} if body is not None else {}))
        assert answer.status_code == status, (answer.status_code, answer.text[:2000])
        return answer.json() if answer.content else None

    async def get(self, path: str, *, status: int = 200) -> Any:
        return await self.ask("GET", path, status=status)

    async def post(self, path: str, body: Any = None, *, status: int = 200) -> Any:
        return await self.ask("POST", path, body, status=status)

    async def call(self, name: str, **args: Any) -> Outcome:
        assert self.runtime is not None
        return await self.runtime.path.call(ToolCall(name, args, Caller.LLM))

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [event.wire for event in self.events if event.type == kind]

    async def until(self, fits: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not fits():
                await asyncio.sleep(0.02)

    def _answer(self, event: Any) -> None:
        assert self.runtime is not None
        self.cards.append(event.wire)
        if self.answer:
            answer = {"requestId": event.wire["requestId"], **self.answer}
            emit = partial(self.runtime.bus.emit, "approvalResponse", answer, source="terminal")
            asyncio.get_running_loop().call_soon(emit)


async def _asking(
    until_the_end: AsyncExitStack, serving: AbstractAsyncContextManager[Served]
) -> tuple[Served, httpx2.AsyncClient]:
    shown = await until_the_end.enter_async_context(serving)
    headers = shown.headers
    client = httpx2.AsyncClient(base_url=headers["Origin"], headers=headers, verify=False, timeout=PATIENCE)
    return shown, await until_the_end.enter_async_context(client)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def forge_home(own_home: Path) -> ForgeHome:
    home = ForgeHome(own_home / ".forge")
    home.ensure()
    return home


@pytest.fixture
async def sessions(project: Path, forge_home: ForgeHome) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as open_until_the_end:

        async def make(*, toolsets: dict[str, Any] | None = None, program: Any = None, **options: Any) -> Asked:
            answer = options.pop("answer", {"approved": True})
            if program is not None:
                (project / "forge.yaml").write_text(json.dumps(program))
            runtime = WorkerRuntime(
                Worker(name="main", toolsets=toolsets or {"filesystem": {}}, sandbox=WORKSPACE),
                directory=project,
                model=FunctionScript(lambda request: "Done."),
                home=forge_home.path,
                **options,
            )
            shown, client = await _asking(open_until_the_end, served(runtime))
            asked = Asked(served=shown, client=client, session="", runtime=runtime, answer=answer)
            runtime.bus.on("approvalRequired", asked._answer)
            runtime.bus.on("*", asked.events.append)
            await runtime.initialize()
            open_until_the_end.push_async_callback(runtime.aclose)
            asked.session = runtime.session_id
            return asked

        yield make


@pytest.fixture
async def recorded(forge_home: ForgeHome, sessions: Any) -> AsyncIterator[Callable[..., Any]]:
    """`await recorded(toolsets=…)`: the same session after it ended, shown by a server in which nothing runs."""
    async with AsyncExitStack() as open_until_the_end:

        async def make(**options: Any) -> Asked:
            ended = await sessions(**options)
            await ended.runtime.run("Hello")
            await ended.runtime.aclose()
            shown, client = await _asking(open_until_the_end, served(home=forge_home.path))
            return Asked(served=shown, client=client, session=ended.session)

        yield make
