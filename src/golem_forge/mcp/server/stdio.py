"""`forge mcp serve` over stdin and stdout: one client, one line for each message, nothing else on stdout.

While it serves, descriptor 1 leads to stderr and 0 to nothing: a stray print or a child cannot break a frame. The end
of stdin, SIGTERM and SIGINT end every call and every child; the exit code is 0. A line over 4 MiB is refused.

Threat: a client that sends and never reads; while too many answers wait for it, no more of what it sends is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from golem_forge.core.signals import stop_on_termination
from golem_forge.mcp.server.host import ServingHost
from golem_forge.mcp.server.sdk import (
    MemoryObjectReceiveStream,
    MemoryObjectSendStream,
    SessionMessage,
    anyio,
    types,
)
from golem_forge.mcp.server.service import Service
from golem_forge.net.stdio import StdioDescriptors, hung_up, own_pipes, write_whole
from golem_forge.tools.threads import run_in_thread

MOST_LINE_BYTES: Final = 4 << 20
_CHUNK: Final = 1 << 16
_FLUSH_SECONDS: Final = 0.3
MOST_UNREAD: Final = 256
"""Messages that wait to be written; more than a client can have calls under way."""
_BACKPRESSURE_CHECK_SECONDS: Final = 0.02


async def serve_stdio(host: ServingHost, pipes: StdioDescriptors | None = None) -> int:
    """Serves until stdin ends or a signal comes. `pipes` replaces this process's stdin and stdout."""
    service = Service(host)
    told_to_end = anyio.CancelScope()
    with (
        own_pipes() if pipes is None else contextlib.nullcontext(pipes) as used,
        stop_on_termination(told_to_end.cancel),
    ):
        try:
            with told_to_end:
                async with anyio.create_task_group() as together, service.running(), _messages(used) as (read, write):
                    await service.server.run(read, write, service.server.create_initialization_options())
                    together.cancel_scope.cancel()
        finally:  # a second signal does not cut this short
            with anyio.CancelScope(shield=True):
                await host.aclose()
    return 0


@contextlib.asynccontextmanager
async def _messages(
    pipes: StdioDescriptors,
) -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    to_us, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_us = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.get_running_loop().create_task(_read_lines(pipes.read, to_us, write.clone()))
    writing = asyncio.get_running_loop().create_task(_write_lines(pipes.write, from_us))
    try:
        yield read, write
    finally:
        write.close()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({writing}, timeout=_FLUSH_SECONDS)  # a client that does not read is not waited for
        reading.cancel()
        writing.cancel()


async def _read_lines(
    descriptor: int,
    to_us: MemoryObjectSendStream[SessionMessage | Exception],
    to_client: MemoryObjectSendStream[SessionMessage],
) -> None:
    async def refuse(why: str) -> None:
        error = types.ErrorData(code=types.PARSE_ERROR, message=why)
        await to_client.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=error)))

    async def hand_over(line: bytes) -> None:
        if len(line) > MOST_LINE_BYTES:
            await refuse(f"a message may have {MOST_LINE_BYTES >> 20} MiB")
        elif line.strip():
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                await refuse("not a JSON-RPC message")
            else:
                await to_us.send(SessionMessage(message))

    async def has_room() -> bool:
        """Waits until the client reads; False if it has hung up."""
        while to_client.statistics().tasks_waiting_send > MOST_UNREAD:
            if hung_up(descriptor):
                return False
            await anyio.sleep(_BACKPRESSURE_CHECK_SECONDS)
        return True

    held = b""
    async with to_us, to_client:
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            while chunk := await run_in_thread(lambda: os.read(descriptor, _CHUNK)):
                *lines, held = (held + chunk).split(b"\n")
                for line in lines:
                    if not await has_room():
                        return
                    await hand_over(line)
                held = held[: MOST_LINE_BYTES + 1]  # what is too long is known to be, without its rest


async def _write_lines(descriptor: int, from_us: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with from_us:
        async for message in from_us:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            try:
                await run_in_thread(partial(write_whole, descriptor, line))
            except OSError:
                return
