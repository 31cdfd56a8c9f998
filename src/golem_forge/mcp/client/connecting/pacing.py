"""Pacing: nothing more is read from a server while too many answers to its own requests wait to be taken.

`paced` takes a transport's two streams and gives the same two, tied together. Threat: a server that asks without end
and never reads what it is told. Each answer would wait in a task of its own, and the wait has no end; so the server
waits instead, and its calls run into their limits.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from types import TracebackType
from typing import Any, Final, Self

MOST_WAITING: Final = 64


def paced(read: Any, write: Any) -> tuple[PacedReader, PacedWriter]:
    writer = PacedWriter(write)
    return PacedReader(read, writer), writer


class _Around:
    """A stream that opens and closes with the one inside it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)


class PacedWriter(_Around):
    """The SDK's WriteStream."""

    def __init__(self, inner: Any) -> None:
        from golem_forge.mcp import sdk

        super().__init__(inner)
        self._answer = (sdk.JSONRPCResponse, sdk.JSONRPCError)
        self._waiting = 0
        self._room = asyncio.Event()
        self._room.set()

    async def send(self, item: Any, /) -> None:
        if not isinstance(item.message, self._answer):
            return await self._inner.send(item)  # type: ignore[no-any-return]
        self._count(1)
        try:
            await self._inner.send(item)
        finally:
            self._count(-1)

    async def room(self) -> None:
        """Returns once there are few enough answers that nobody has taken yet."""
        if self._waiting >= MOST_WAITING:
            await self._room.wait()

    def _count(self, more: int) -> None:
        self._waiting += more
        if self._waiting >= MOST_WAITING:
            self._room.clear()
        else:
            self._room.set()


class PacedReader(_Around):
    """The SDK's ReadStream."""

    def __init__(self, inner: Any, writer: PacedWriter) -> None:
        super().__init__(inner)
        self._writer = writer

    @property
    def last_context(self) -> Context | None:
        """Whose context the last message came in, where the transport knows that."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        await self._writer.room()
        return await self._inner.receive()

    async def __anext__(self) -> Any:
        await self._writer.room()
        return await self._inner.__anext__()

    def __aiter__(self) -> PacedReader:
        return self
