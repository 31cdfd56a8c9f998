"""One live connection as callers use it: sends requests raw and returns the answers unchanged.

A caller gets exactly one of: the result (a plain dict), `ErrorResponse` (the server refused), `ResponseLost` (no answer
will come and the call may have run), `Unprocessed` (it certainly did not run), or a TransportError with more detail.
Which of the last three it is rests on the transport's own Delivery, not on the server's word.

`WatchedDispatcher` wraps the SDK's JSON-RPC dispatcher: it notes the end of the connection, passes notifications on in
order without a task for each, and bounds the requests a server may have open. `paced` applies backpressure: reading
stops while too many answers to the server's own requests wait to be written.

Threat: a server that floods us with notifications or requests, or asks without end and never reads. It may cost time,
never memory.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Self

from golem_forge.core.text import escape_control_chars
from golem_forge.mcp.client.transport import LineTooLong, NeedsLogin, TransportError, track_delivery

if TYPE_CHECKING:
    from golem_forge.mcp import sdk

MOST_WORDS: Final = 2000
CLOSED_WORDS: Final = "Connection closed"
"""What the SDK's dispatcher says of every request that is open when the connection ends."""
_FIRST_ID: Final = 1000
"""Above every id that the SDK gives to the few requests it sends by itself."""
Progress = Callable[[float, float | None, str], None]
_log = logging.getLogger(__name__)


class ErrorResponse(Exception):
    """A JSON-RPC error of the server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class Unanswered(Exception):
    """No answer will come. `cause`: what the transport knows about it."""

    def __init__(self, cause: TransportError | None) -> None:
        super().__init__(cause)
        self.cause = cause


class ResponseLost(Unanswered):
    """It may have run."""


class Unprocessed(Unanswered):
    """It did not reach the server, or was turned away before anything was done with it."""


class ServerLink:
    def __init__(
        self,
        server: str,
        session: sdk.ClientSession,
        wire: WatchedDispatcher,
        failure: Callable[[], TransportError | None] = lambda: None,
    ) -> None:
        """`failure`: what went wrong with the connection as a whole."""
        from golem_forge.mcp import sdk

        self._failure = failure
        self.server = server
        self.session = session
        self.wire = wire
        self.version = session.protocol_version or ""
        self.is_modern = self.version in sdk.MODERN_PROTOCOL_VERSIONS
        """2026-07-28 and later: no session, no ping, questions inside results."""
        self._stamp, self._error, self._closed = sdk.stamp, sdk.MCPError, sdk.CONNECTION_CLOSED
        self._ids = itertools.count(_FIRST_ID)
        self._progress: dict[int, Progress] = {}

    @property
    def is_alive(self) -> bool:
        return not self.wire.closed.is_set()

    def offers(self, capability: str) -> bool:
        return getattr(self.session.server_capabilities, capability, None) is not None

    def announces(self, capability: str) -> bool:
        """Whether it says that it will tell of changes in its list."""
        offered = getattr(self.session.server_capabilities, capability, None)
        return bool(getattr(offered, "list_changed", False))

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        progress: Progress | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Cancelling the task that awaits this tells the server."""
        ident = next(self._ids)
        sent: dict[str, Any] = dict(params or {})
        options: sdk.CallOptions = {"request_id": ident}
        if headers:
            options["headers"] = dict(headers)
        if progress is not None:
            sent["_meta"] = {**sent.get("_meta", {}), "progressToken": ident}
            self._progress[ident] = progress
        data = {"method": method, "params": sent}
        self._stamp(self.session, data, options)
        with track_delivery() as delivery:
            try:
                return await self.wire.send_raw_request(method, sent, options)
            except self._error as error:
                failure = delivery.failure
                if isinstance(failure, NeedsLogin):
                    raise failure from None
                # The dispatcher's own word for the end. A server that says exactly that of itself is believed: it
                # costs a new connection, and nothing is repeated.
                ended = error.message == CLOSED_WORDS or not self.is_alive
                if failure is not None or (error.code == self._closed and ended):
                    if failure is None and isinstance(cut_off := self._failure(), LineTooLong):
                        failure = cut_off
                    raise (Unprocessed(failure) if delivery.unprocessed else ResponseLost(failure)) from None
                raise ErrorResponse(error.code, escape_control_chars(error.message[:MOST_WORDS])) from None
            except TransportError as failure:
                if isinstance(failure, NeedsLogin):
                    raise
                raise (Unprocessed(failure) if delivery.unprocessed else ResponseLost(failure)) from None
            finally:
                self._progress.pop(ident, None)

    def note_progress(self, params: Mapping[str, Any]) -> None:
        """A `notifications/progress`; for no call of ours it is dropped."""
        token, done, total, words = (params.get(key) for key in ("progressToken", "progress", "total", "message"))
        if isinstance(token, str) and token.isascii() and token.isdigit() and len(token) < 20:
            token = int(token)  # servers that keep tokens as text
        heard = self._progress.get(token) if type(token) is int else None
        if heard is None or not isinstance(done, int | float) or not _is_finite(done):
            return
        whole = float(total) if isinstance(total, int | float) and _is_finite(total) else None
        try:
            heard(float(done), whole, words if isinstance(words, str) else "")
        except Exception as error:
            _log.debug("progress of %s could not be shown: %s", self.server, type(error).__name__)


def _is_finite(value: float) -> bool:
    return not isinstance(value, bool) and abs(value) < 1e300


MAX_OPEN_REQUESTS: Final = 32
OnNotification = Callable[[str, Mapping[str, Any]], None]
"""(method, params) of a notification. Must not raise and must not wait."""


class WatchedDispatcher:
    def __init__(self, inner: sdk.JSONRPCDispatcher[Any], noticed: OnNotification) -> None:
        self._inner = inner
        self._noticed = noticed
        self._asked = 0
        self.closed = asyncio.Event()
        """Nothing more comes from the server."""

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: sdk.CallOptions | None = None
    ) -> dict[str, Any]:
        return await self._inner.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: sdk.CallOptions | None = None) -> None:
        await self._inner.notify(method, params, opts)

    async def run(
        self,
        on_request: sdk.OnRequest,
        on_notify: sdk.OnNotify,
        on_notify_intercept: sdk.OnNotifyIntercept | None = None,
        *,
        task_status: Any = None,
    ) -> None:
        """Till the connection ends. The session's own listeners see a notification first."""

        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            if on_notify_intercept is None or not on_notify_intercept(method, params):
                self._noticed(method, params or {})
            return True  # nobody else waits for any

        async def answer(context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
            if self._asked >= MAX_OPEN_REQUESTS:
                from golem_forge.mcp import sdk

                raise sdk.MCPError(sdk.INTERNAL_ERROR, "too many requests at once")
            self._asked += 1
            try:
                return await on_request(context, method, params)
            finally:
                self._asked -= 1

        try:
            await self._inner.run(answer, on_notify, intercept, task_status=task_status)
        finally:
            self.closed.set()


MAX_WAITING_ANSWERS: Final = 64


def paced(read: Any, write: Any) -> tuple[PacedReader, PacedWriter]:
    writer = PacedWriter(write)
    return PacedReader(read, writer), writer


class _WrappedStream:
    """A stream that opens and closes with the one inside it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)


class PacedWriter(_WrappedStream):
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
        if self._waiting >= MAX_WAITING_ANSWERS:
            await self._room.wait()

    def _count(self, more: int) -> None:
        self._waiting += more
        if self._waiting >= MAX_WAITING_ANSWERS:
            self._room.clear()
        else:
            self._room.set()


class PacedReader(_WrappedStream):
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
