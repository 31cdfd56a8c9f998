"""JSON-RPC over two descriptors, one JSON object a line: reads frames, answers what is no request, writes in order.

Takes bytes from a client that may be hostile, gives method and params to a handler, and carries requests the other way.
It refuses with an error frame and goes on: -32700 for what is no JSON, -32600 for what is no object, no request or
longer than 16 MiB. An answer that nobody waits for is dropped. No error frame repeats what the client sent.

`run` returns when the client is gone: its input ended, it closed its end of our output, or it has not read for so long
that 64 MiB wait for it. While frames wait to be written, no more of what it sends is taken.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.json import strict_json
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.net.stdio import StdioDescriptors, hung_up, write_whole
from golem_forge.tools.threads import run_in_thread

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NOT_FOUND: Final = -32002
AUTH_REQUIRED: Final = -32000

CANCEL_REQUEST: Final = "$/cancel_request"
MOST_FRAME_BYTES: Final = 16 << 20
MOST_AT_ONCE: Final = 200
"""Requests of the client that may be under way."""
_MOST_UNREAD_BYTES: Final = 64 << 20
_MANY_UNREAD_BYTES: Final = 1 << 20
"""Unread bytes above which nothing more is read from the client (backpressure)."""
_CHUNK: Final = 1 << 16
_FRAMES_PER_TURN: Final = 32
_FLUSH_SECONDS: Final = 0.3
_HUNG_UP_SECONDS: Final = 0.1
"""Interval at which a client that does not read is checked."""
_MOST_ID: Final = 200
_log = logging.getLogger(__name__)

Json = dict[str, Any]


class RpcError(Exception):
    """The answer to a request that is refused, or that failed."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_wire(self) -> Json:
        return {"code": self.code, "message": self.message, **({} if self.data is None else {"data": self.data})}


class ClientGone(Exception):
    """Raised if the client has gone and no answer will come."""


@dataclass(frozen=True, slots=True)
class Reply:
    result: Json
    then: Callable[[], object] = lambda: None
    """Called when the answer is on its way: what it does comes after it."""


class Handler(Protocol):
    async def request(self, method: str, params: Json) -> Reply:
        """Handles a request. Raises RpcError."""

    async def notification(self, method: str, params: Json) -> None: ...


class FrameConnection:
    def __init__(self, handler: Handler, pipes: StdioDescriptors) -> None:
        self._handler = handler
        self._pipes = pipes
        self._gone = asyncio.Event()
        self._waiting: list[bytes] = []
        self._unread = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: dict[str | int | None, tuple[str, Json]] = {}
        """Method and params of the requests that are not answered yet, by id."""
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0

    # ---- life

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        writing = loop.create_task(self._write())
        reading = loop.create_task(self._read())
        gone = loop.create_task(self._gone.wait())
        try:
            await asyncio.wait({reading, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._gone.set()
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(ClientGone())
            self._asked.clear()
            self._more.set()
            self._room.set()
            for task in (reading, gone):
                task.cancel()
            await asyncio.wait({writing}, timeout=_FLUSH_SECONDS)
            writing.cancel()

    def hang_up(self) -> None:
        self._gone.set()

    async def aclose(self) -> None:
        """Ends the handlers that still run."""
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    # ---- to the client

    def notify(self, method: str, params: Json) -> None:
        self._send({"method": method, "params": params})

    async def has_room(self) -> None:
        """Returns when the client has read most of what it was sent, or is gone."""
        await self._room.wait()

    async def ask(self, method: str, params: Json) -> Any:
        """The client's result. Raises RpcError where it refuses, ClientGone."""
        if self._gone.is_set():
            raise ClientGone
        self._last_id += 1
        number, answer = self._last_id, asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._send({"id": number, "method": method, "params": params})
        try:
            return await answer
        finally:
            self._asked.pop(number, None)

    def _send(self, frame: Json) -> None:
        if self._gone.is_set():
            return
        line = _encoded({"jsonrpc": "2.0", **frame})
        self._waiting.append(line)
        self._unread += len(line)
        self._more.set()
        if self._unread > _MANY_UNREAD_BYTES:
            self._room.clear()
        if self._unread > _MOST_UNREAD_BYTES:
            _log.error("the client does not read: %d MiB wait for it", self._unread >> 20)
            self._gone.set()

    def _refuse(self, id: str | int | None, error: RpcError) -> None:
        self._send({"id": id, "error": error.to_wire()})

    async def _write(self) -> None:
        while self._waiting or not self._gone.is_set():
            self._more.clear()
            if not self._waiting:
                await self._more.wait()
                continue
            data, self._waiting = b"".join(self._waiting), []
            try:
                await run_in_thread(lambda data=data: write_whole(self._pipes.write, data))  # type: ignore[misc]
            except OSError:
                self._gone.set()
                return
            self._unread -= len(data)
            if self._unread <= _MANY_UNREAD_BYTES:
                self._room.set()

    # ---- from the client

    async def _read(self) -> None:
        held, skipping, taken = bytearray(), False, 0
        while chunk := await run_in_thread(lambda: _read_some(self._pipes.read)):
            start = 0
            while start <= len(chunk):
                end = chunk.find(b"\n", start)
                piece = chunk[start:] if end < 0 else chunk[start:end]
                if not skipping and len(held) + len(piece) > MOST_FRAME_BYTES:
                    held, skipping = bytearray(), True
                    text = f"a frame may have {MOST_FRAME_BYTES >> 20} MiB"
                    self._refuse(None, RpcError(INVALID_REQUEST, text))
                if not skipping:
                    held += piece
                if end < 0:
                    break
                if not skipping:
                    self._take(bytes(held))
                    taken += 1
                held, skipping, start = bytearray(), False, end + 1
                if not taken % _FRAMES_PER_TURN:
                    await asyncio.sleep(0)
                while not self._room.is_set():
                    if hung_up(self._pipes.read):
                        return
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_HUNG_UP_SECONDS):
                            await self._room.wait()

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            frame = strict_json(line)
        except (ValueError, RecursionError):
            self._refuse(None, RpcError(PARSE_ERROR, "this line is not JSON"))
            return
        if not isinstance(frame, dict):
            self._refuse(None, RpcError(INVALID_REQUEST, "a frame is one JSON object"))
            return
        id, has_id = frame.get("id"), "id" in frame
        if has_id and not _is_id(id):
            self._refuse(
                None, RpcError(INVALID_REQUEST, f"an id is a whole number, or a text of at most {_MOST_ID} characters")
            )
        elif frame.get("jsonrpc") != "2.0":
            self._refuse(id, RpcError(INVALID_REQUEST, 'a frame says "jsonrpc": "2.0"'))
        elif "method" in frame:
            self._take_call(frame, id, has_id)
        elif has_id and ("result" in frame or "error" in frame):
            self._take_answer(frame, id)
        else:
            self._refuse(id, RpcError(INVALID_REQUEST, "a frame is a request, a notification or an answer"))

    def _take_call(self, frame: Json, id: str | int | None, is_request: bool) -> None:
        method, params = frame["method"], frame.get("params")
        if not isinstance(method, str):
            self._refuse(id, RpcError(INVALID_REQUEST, "a method is a text"))
        elif params is not None and not isinstance(params, dict):
            if is_request:
                self._refuse(id, RpcError(INVALID_PARAMS, "params is an object"))
        elif not is_request:
            if method == CANCEL_REQUEST:
                method, params = self._cancelled(params or {})
            self._start(self._hear(method, params or {}))
        elif id in self._under_way:
            self._refuse(id, RpcError(INVALID_REQUEST, "a request with this id is under way"))
        elif len(self._under_way) >= MOST_AT_ONCE:
            self._refuse(id, RpcError(INVALID_REQUEST, f"{MOST_AT_ONCE} requests are under way; wait for one to end"))
        else:
            self._under_way[id] = method, params or {}
            self._start(self._answer(id, method, params or {}))

    def _cancelled(self, params: Json) -> tuple[str, Json]:
        """`$/cancel_request` of a prompt is `session/cancel` of its session. Any other request ends soon by itself."""
        id = params.get("requestId")
        method, asked = self._under_way.get(id, ("", {})) if _is_id(id) else ("", {})
        return ("session/cancel", {"sessionId": asked.get("sessionId")}) if method == "session/prompt" else ("", {})

    def _take_answer(self, frame: Json, id: Any) -> None:
        answer = self._asked.get(id) if type(id) is int else None
        if answer is None or answer.done():
            _log.debug("an answer to nothing was dropped")
            return
        if "error" in frame:
            answer.set_exception(RpcError(INTERNAL_ERROR, "the client refused the request"))
        else:
            answer.set_result(frame["result"])

    def _start(self, work: Awaitable[None]) -> None:
        # In the order of the frames: a task runs to its first wait before the next one begins.
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hear(self, method: str, params: Json) -> None:
        try:
            await self._handler.notification(method, params)
        except RpcError as error:
            _log.debug("a notification was refused: %s", error.message)
        except Exception as error:
            _log.error("a notification failed: %s", error_name(error))

    async def _answer(self, id: str | int | None, method: str, params: Json) -> None:
        try:
            reply = await self._handler.request(method, params)
        except RpcError as error:
            self._refuse(id, error)
        except ForgeError as error:
            self._refuse(id, RpcError(INTERNAL_ERROR, error.message))
        except asyncio.CancelledError:
            self._refuse(id, RpcError(INTERNAL_ERROR, "the agent ends"))
            raise
        except Exception as error:  # its words may quote what nobody may see
            _log.exception("a request failed")
            self._refuse(id, RpcError(INTERNAL_ERROR, f"the agent failed ({error_name(error)}); its log says why"))
        else:
            self._send({"id": id, "result": reply.result})
            reply.then()
        finally:
            self._under_way.pop(id, None)


def _is_id(id: Any) -> bool:
    """Whether the value is a valid id; its size is limited because an answer repeats it."""
    if isinstance(id, str):
        return len(id) <= _MOST_ID
    return id is None or (isinstance(id, int) and not isinstance(id, bool) and id.bit_length() <= 64)


def _read_some(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        return b""


def _encoded(frame: Json) -> bytes:
    """One line. What JSON cannot hold becomes text; half a character becomes a question mark: a strict client ends the
    connection at either."""
    try:
        text = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError):
        plain = json.loads(json.dumps(frame, default=str), parse_constant=str)
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"
