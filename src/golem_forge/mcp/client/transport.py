"""Transports to MCP servers: opening one, its errors, what became of each request, and the live connection
(ServerLink).

`TransportOpener.open` takes a spec and returns a transport for the SDK that is ready but not entered, and access to its
stderr. Environment values are expanded here and nowhere else. It raises ForgeError for an unset variable, a zone that
the server was not given, or walls that cannot be built. No error text holds a header, a token or an expanded value; of
a URL it names the host at most.

`Delivery` records whether a request may have been processed; a call that may have reached the server is never sent
again. A caller opens it with `track_delivery()`; both transports find it in the caller's context. Provably not
processed:
- stdio: not one byte of the request's line was written. A line that was written in part counts as sent.
- HTTP: no connection was made, the server answered 404 or 410 to the session's id, or it only named another address.

`ServerLink` sends requests raw and returns the answers unchanged. `WatchedDispatcher` wraps the SDK's JSON-RPC
dispatcher; `paced` applies backpressure: reading stops while too many answers to the server's own requests wait to be
written. Threat: a server that floods us with notifications or requests, or asks without end and never reads. It may
cost time, never memory.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar, Token
from typing import Any, Final, Self

from golem_forge.config.mcp_spec import AuthKind, ServerSpec, expand_spec
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import escape_control_chars
from golem_forge.events.redaction import Redactor
from golem_forge.mcp import lazy_sdk as sdk
from golem_forge.mcp.client.model import Hooks
from golem_forge.mcp.client.oauth import provider
from golem_forge.storage.home import ForgeHome


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransport:
    transport: sdk.Transport
    stderr: Callable[[], tuple[str, ...]] = tuple
    failure: Callable[[], TransportError | None] = lambda: None
    """Returns the failure that the transport itself saw."""
    clean_text: Callable[[str], str] | None = None
    """Rewrites the server's texts before anybody reads them; None if they stay unchanged."""
    zone_paths: Mapping[str, str] = field(default_factory=dict)
    """Address of a zone → where it stands for the server, if that is elsewhere."""
    dropped: Callable[[], int] = int
    """Returns the number of lines on standard output that were no messages."""
    why_ended: Callable[[], str] = str
    """Describes how the process ended; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOpener:
    """Opens every connection of one session."""

    home: ForgeHome
    redactor: Redactor
    environ: Mapping[str, str]
    hooks: Hooks

    async def open(self, spec: ServerSpec) -> OpenTransport:
        return await (self._http(spec) if spec.is_http else self._stdio(spec))

    async def _stdio(self, spec: ServerSpec) -> OpenTransport:
        from golem_forge.mcp.client.stdio_transport import StdioTransport

        walls = self.hooks.walls_for(spec)
        report = await walls.report()
        places = {f"/{zone}": walls.mount_point(zone, report.level) for zone in spec.zones}
        expanded = self._expanded(spec, lambda zone: places[f"/{zone}"])
        transport = StdioTransport(spec, expanded, walls, self.home, self.redactor, self.hooks.host_rule)
        return OpenTransport(
            transport=transport,
            stderr=transport.stderr_tail,
            failure=lambda: transport.failure,
            clean_text=walls.redact,
            zone_paths={address: place for address, place in places.items() if place not in ("", address)},
            dropped=lambda: transport.dropped_lines,
            why_ended=transport.why_ended,
        )

    async def _http(self, spec: ServerSpec) -> OpenTransport:
        from golem_forge.mcp.client.http_transport import HttpTransport

        expanded, auth = self._expanded(spec, _no_zone), None
        if spec.auth.kind is AuthKind.OAUTH:
            auth = provider(spec, self.home, url=expanded.url, redactor=self.redactor)
        transport = HttpTransport(spec, expanded, auth=auth)
        # It knows what it was sent in headers: said back in a description, that would be part of every model request.
        return OpenTransport(
            transport=transport, failure=lambda: transport.failure, clean_text=self.redactor.redact_secrets
        )

    def _expanded(self, spec: ServerSpec, zone: Callable[[str], str]) -> Any:
        expanded = expand_spec(spec, self.environ, zone)
        for value in expanded.secrets:
            if value not in self.redactor.secrets:  # every connection brings the same ones
                self.redactor.add_secret(spec.name, value)
        return expanded


def _no_zone(name: str) -> str:
    raise KeyError(name)


class ClosingStream:
    """One of the SDK's streams: leaving it closes it."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@dataclass(slots=True)
class Delivery:
    sent: int = 0
    """Requests of which a byte may have reached the server."""
    refused: int = 0
    """Number of requests that the server certainly did not process."""
    failure: TransportError | None = None
    """The transport's failure of the last request; None if it was answered, or still may be."""

    @property
    def unprocessed(self) -> bool:
        """Whether nothing that was sent can have had an effect, so that it may be sent again."""
        return self.sent == self.refused


_current_delivery: ContextVar[Delivery | None] = ContextVar("delivery", default=None)


def current_delivery() -> Delivery:
    """The caller's; one that nobody reads, if it did not ask for any."""
    return _current_delivery.get() or Delivery()


class track_delivery:
    """`with track_delivery() as delivery: await session.call_tool(…)`; read it after a failure."""

    __slots__ = ("_token",)

    def __enter__(self) -> Delivery:
        delivery = Delivery()
        self._token: Token[Delivery | None] = _current_delivery.set(delivery)
        return delivery

    def __exit__(self, *_: object) -> None:
        _current_delivery.reset(self._token)


class TransportError(ForgeError):
    """The way to a server failed, not what the server did with a call."""


class WallsFailed(TransportError):
    """The walls around a server could not be built; nothing ran. The text has the cause and the fix."""


class CannotStart(TransportError):
    """Raised if there is no such command inside the walls; nothing ran."""


class UnusableAnswer(TransportError):
    """An answer came and cannot be used, e.g. it is larger than the bound: what was asked may have been done."""


class LineTooLong(UnusableAnswer):
    """A server wrote more than 16 MiB without an end of line: nothing after that can be told apart."""


class NotSent(TransportError):
    """Raised if not one byte of this request was written, so that it was not processed."""


class Unreachable(TransportError):
    """Raised if no connection to the server could be made."""


class NeedsLogin(TransportError):
    """Raised for HTTP status 401 or 403."""


class SessionUnknown(TransportError):
    """404 or 410 for the session's id: the server does not know this session (any more), and did nothing."""


class ConnectionLost(TransportError):
    """Raised if the connection broke after something was sent: the request may have been executed."""


class Redirected(TransportError):
    """The server names another address, which is not followed; it did nothing. The text has the address."""


class BadAddress(TransportError):
    """A URL that is neither https nor http to this machine; nothing was sent."""


def needs_login(server: str) -> NeedsLogin:
    return NeedsLogin(f"run: forge mcp login {server}", code="NEEDS_LOGIN")


MOST_WORDS: Final = 2000
CLOSED_WORDS: Final = "Connection closed"
"""The SDK dispatcher's error text for requests that are open when the connection ends."""
_FIRST_ID: Final = 1000
"""Above every id that the SDK gives to the few requests it sends by itself."""
Progress = Callable[[float, float | None, str], None]
_log = logging.getLogger(__name__)


class ErrorResponse(Exception):
    """Raised for a JSON-RPC error of the server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class Unanswered(Exception):
    """Raised if no answer will come. `cause`: what the transport knows about it."""

    def __init__(self, cause: TransportError | None) -> None:
        super().__init__(cause)
        self.cause = cause


class ResponseLost(Unanswered):
    """Raised if the answer was lost; the request may have run."""


class Unprocessed(Unanswered):
    """Raised if the request did not reach the server, or was refused before anything was done."""


class ServerLink:
    """One live connection. A caller gets exactly one of: the result (a plain dict), `ErrorResponse` (the server
    refused), `ResponseLost` (no answer will come and the call may have run), `Unprocessed` (it certainly did not run),
    or a TransportError with more detail. Which of the last three it is rests on the transport's own Delivery, not on
    the server's word."""

    def __init__(
        self,
        server: str,
        session: sdk.ClientSession,
        wire: WatchedDispatcher,
        failure: Callable[[], TransportError | None] = lambda: None,
    ) -> None:
        """`failure`: what went wrong with the connection as a whole."""
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
    """The SDK's dispatcher, watched: notes the end of the connection, passes notifications on in order without a task
    for each, and bounds the requests a server may have open."""

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
        """The context of the last message, if the transport knows it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        await self._writer.room()
        return await self._inner.receive()

    async def __anext__(self) -> Any:
        await self._writer.room()
        return await self._inner.__anext__()

    def __aiter__(self) -> PacedReader:
        return self
