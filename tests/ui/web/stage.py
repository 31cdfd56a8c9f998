"""A session in this process, on a page: a real WorkerRuntime and a scripted model, served as `forge run --ui web` is.

    stage = await staged([calls(("write_file", {…})), "Done."], tools=[…])
    window = await windows()
    await window.open(stage.link())

It is the conversation that the command would hold; what a tool really did the test sees from the tool. While it is
`unplugged` nobody gets through; `stop_server` takes the server away, `serve` puts another in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from golem_forge.agent.conversation import Conversation
from golem_forge.agent.files.worker import Worker, WorkerSandbox, WorkerZone
from golem_forge.agent.model.interface import Request
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.agent.runtime import WorkerRuntime

WORKSPACE = WorkerSandbox(zones=(WorkerZone(name="workspace"),))
Said = Turn | str | Callable[[Request], Turn | str]


def calls(*wanted: tuple[str, dict[str, Any]], say: str = "", **more: Any) -> Turn:
    return Turn(say=say, calls=tuple(TurnCall(tool=name, args=args) for name, args in wanted), **more)


class Stage:
    def __init__(self, runtime: WorkerRuntime, directory: Path) -> None:
        self.runtime = runtime
        self.directory = directory
        self.events: list[Any] = []
        self.requests: list[Request] = []
        """What the model was asked."""
        self._links: list[str] = []
        self._adapter: Any = None
        self._talking: asyncio.Task[Any] | None = None
        runtime.bus.on("*", self.events.append)

    async def start(self, *allow_hosts: str) -> None:
        """Until it stands, or asks its first question: whether the program is trusted."""
        await self.serve(0, *allow_hosts)
        self._talking = asyncio.get_running_loop().create_task(self._talk())
        while not (self._talking.done() or self.seen("inputPrompt") or self.seen("approvalRequired")):
            await asyncio.sleep(0.01)
        if self._talking.done():
            self._talking.result()

    async def _talk(self) -> None:
        await self.runtime.initialize()
        await Conversation(self.runtime).run()

    async def serve(self, port: int, *allow_hosts: str) -> None:
        from golem_forge.ui.web.app import WebAdapter
        from golem_forge.ui.web.listen import ListenAddress

        listen = ListenAddress(port=port, allow_hosts=allow_hosts)
        self._adapter = WebAdapter(self.runtime, listen, directory=self.directory, show_link=self._links.append)
        await self._adapter.initialize()

    @property
    def address(self) -> str:
        return str(self._adapter.address).rstrip("/")

    def link(self) -> str:
        """A new one each time: each opens the page once."""
        self._adapter.show_link()
        return self._links[-1]

    async def stop_server(self) -> int:
        """Gives the port that is free now."""
        port = int(self.address.rpartition(":")[2])
        await self._adapter.shutdown()
        return port

    @contextlib.contextmanager
    def unplugged(self) -> Iterator[None]:
        """As a network that is away: every connection breaks off without a goodbye, and no other gets through."""
        from golem_forge.net.server import TimedHttpConnection

        made = TimedHttpConnection.connection_made

        def refuse(connection: Any, transport: Any) -> None:
            made(connection, transport)
            transport.abort()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TimedHttpConnection, "connection_made", refuse)
            for connection in list(self._adapter._server._server.server_state.connections):
                connection.transport.abort()
            yield

    @contextlib.contextmanager
    def deaf(self) -> Iterator[None]:
        """As a process that hangs: every connection stays open, and nothing that comes over one is heard."""
        from golem_forge.net.server import TimedHttpConnection
        from golem_forge.ui.web.app import TimedSocketConnection

        with pytest.MonkeyPatch.context() as patch:
            for connection in (TimedHttpConnection, TimedSocketConnection):
                patch.setattr(connection, "data_received", lambda connection, data: None)
            patch.setattr(TimedSocketConnection, "keepalive_timeout", lambda connection: None)
            yield

    def seen(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type == kind]

    def results(self) -> list[tuple[str, str]]:
        """(tool, status) of every call so far."""
        return [(event.wire["toolName"], event.wire["status"]) for event in self.seen("toolResult")]

    def told(self, index: int = -1) -> list[tuple[str, str]]:
        """(status, text) of what the model was told in that request about the calls before it."""
        return [(each.status.value, each.text) for each in self.requests[index].messages[-1].results]  # type: ignore[union-attr]

    def told_ever(self) -> str:
        """All that the model was told about its calls."""
        messages = self.requests[-1].messages if self.requests else ()
        return "\n".join(each.text for message in messages for each in getattr(message, "results", ()))

    async def close(self) -> None:
        if self._talking is not None:
            self.runtime.interrupt("terminated")
            self._talking.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._talking
        await self.runtime.aclose()
        await self._adapter.shutdown()


@pytest_asyncio.fixture(loop_scope="session")
async def staged(tmp_path: Path, own_home: Path) -> AsyncIterator[Callable[..., Any]]:
    """`await staged(turns, tools=[…], worker=Worker(…), approval="interactive")`; see Stage."""
    opened: list[Stage] = []

    async def make(
        turns: Sequence[Said], *, worker: Worker | str | Path | None = None, approval: str | None = None, **options: Any
    ) -> Stage:
        folder = Path(options.pop("directory", tmp_path / "project"))
        folder.mkdir(exist_ok=True)
        waiting = list(turns)
        allow_hosts = options.pop("allow_hosts", ())

        def next_turn(request: Request) -> Turn | str:
            stage.requests.append(request)
            turn = waiting.pop(0) if waiting else "There is no more in the script."
            return turn(request) if callable(turn) else turn

        runtime = WorkerRuntime(
            worker or Worker(name="main", toolsets={"filesystem": {}}, sandbox=WORKSPACE),
            directory=folder,
            model=FunctionScript(next_turn, context_window=options.pop("context_window", 32_000)),
            approval_mode=approval,
            default_mode="chat",
            **options,
        )
        stage = Stage(runtime, folder)
        opened.append(stage)
        await stage.start(*allow_hosts)
        return stage

    yield make
    for stage in opened:
        await stage.close()


@pytest.fixture
def said_calls() -> Callable[..., Turn]:
    return calls
