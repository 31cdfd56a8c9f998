"""Endpoint: the HTTP client under the SDK's, for one server. Imported when the first server over HTTP is used.

Whatever happens to a request comes back to the SDK as an answer to that request, and as a fact to its caller's
Delivery: an exception there would end every call of the connection at once. Threats: an answer of any size, also
compressed (16 MiB of plain bytes at most, and per event of a stream), a server that hangs up and asks to be called
again at once (a stream is opened once a second at most), a goodbye that is never answered (half a second), and logs
that would show an address with a token in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

from golem_forge.config.mcp.address import is_loopback
from golem_forge.config.mcp.expanding import Expanded
from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.core.visible import visible
from golem_forge.mcp import sdk
from golem_forge.mcp.client.transport.delivery import Delivery, current
from golem_forge.mcp.client.transport.errors import (
    ConnectionLost,
    SessionUnknown,
    TransportError,
    Unreachable,
    needs_login,
)
from golem_forge.mcp.client.transport.posting import Posting

LARGEST: Final = 16 << 20
_STREAM_EVERY_S: Final = 1.0
_GOODBYE_S: Final = 0.5
_WRITE_S: Final = 30.0
_PATIENCE_S: Final = 60.0
"""On top of `total_timeout`, after which the caller has given up anyway: for connections that died without a word."""
_MOST_WORDS: Final = 200
_MOST_REDIRECTS: Final = 3
"""Threat: each one within the origin is the same call, sent again."""
_SESSION: Final = "mcp-session-id"
_UNAUTHORISED: Final = (401, 403)
_UNKNOWN: Final = (404, 410)
_MESSAGE: Final = {"json", "headers"}
_ABOUT_THE_BODY: Final = ("content-encoding", "content-length", "transfer-encoding")

_request_of: ContextVar[Delivery | None] = ContextVar("request_of", default=None)
"""Whose request is being sent in this context; None for everything that is no request."""
_ours: ContextVar[bool] = ContextVar("ours", default=False)


class _NotOurs(logging.Filter):
    """Threat: an address may hold a token."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _ours.get()


logging.getLogger("httpx2").addFilter(_NotOurs())
# It logs messages, session ids and what servers answer, word by word.
logging.getLogger("mcp.client.streamable_http").setLevel(logging.CRITICAL + 1)


class Outbox:
    """The SDK's write stream; it notes whose request each message is, for the task that will send it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def send(self, item: sdk.SessionMessage, /) -> None:
        token = _request_of.set(current() if isinstance(item.message, sdk.JSONRPCRequest) else None)
        try:
            await self._inner.send(item)  # takes the context along
        finally:
            _request_of.reset(token)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Outbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Endpoint(sdk.httpx2.AsyncClient):
    def __init__(self, spec: ServerSpec, expanded: Expanded, auth: sdk.httpx2.Auth | None) -> None:
        address = urlsplit(expanded.url)
        super().__init__(
            headers={"user-agent": "golem-forge", **expanded.headers, "accept-encoding": "identity"},
            auth=auth,
            follow_redirects=False,
            max_redirects=_MOST_REDIRECTS,
            trust_env=not is_loopback(address.hostname or ""),  # no proxy stands between us and this machine
            timeout=sdk.httpx2.Timeout(
                connect=spec.connect_timeout,
                pool=spec.connect_timeout,
                write=_WRITE_S,
                read=spec.total_timeout + _PATIENCE_S,
            ),
        )
        self._server = spec.name
        self._url = expanded.url
        self._posting = Posting(expanded.url, self.headers, self.timeout)
        self._next_stream = 0.0
        self.failure: TransportError | None = None
        self.is_leaving = False
        """Only the goodbye is still to be said."""

    def build_request(self, method: str, url: sdk.httpx2.URL | str, **options: Any) -> sdk.httpx2.Request:
        """A message to the server, nearly always; a cookie that it gave makes each request another."""
        if method == "POST" and url == self._url and options.keys() == _MESSAGE and not self.cookies:
            return self._posting.request(options["json"], options["headers"])
        return super().build_request(method, url, **options)

    async def send(self, request: sdk.httpx2.Request, **options: Any) -> sdk.httpx2.Response:
        """Raises nothing but cancellation. The SDK reads every answer as a stream."""
        delivery = _request_of.get() or Delivery()
        if request.method == "GET":
            await self._not_too_often()
        delivery.sent += 1
        token = _ours.set(True)
        try:
            if not self.is_leaving:
                return await self._answered(request, options, delivery)
            with sdk.anyio.move_on_after(_GOODBYE_S):
                return await self._answered(request, options, delivery)
            return self._failed(request, ConnectionLost(f"{self._server} does not answer"), delivery)
        except Exception as error:
            failure = self._failure(error)
            delivery.refused += isinstance(failure, Unreachable)
            return self._failed(request, failure, delivery)
        finally:
            _ours.reset(token)

    async def _answered(
        self, request: sdk.httpx2.Request, options: dict[str, Any], delivery: Delivery
    ) -> sdk.httpx2.Response:
        response = await super().send(request, **{**options, "stream": True})
        if self.is_leaving:
            await response.aclose()
            return _bare(response)
        return await self._judged(request, response, delivery)

    async def _not_too_often(self) -> None:
        now = asyncio.get_running_loop().time()
        wait = self._next_stream - now
        self._next_stream = max(now, self._next_stream) + _STREAM_EVERY_S
        if wait > 0:
            await sdk.anyio.sleep(wait)

    async def _judged(
        self, request: sdk.httpx2.Request, response: sdk.httpx2.Response, delivery: Delivery
    ) -> sdk.httpx2.Response:
        status = response.status_code
        failure: TransportError | None = None
        if response.next_request is not None:
            delivery.refused += 1  # answered with another address, whether that is followed or not
            await response.aclose()
            return _bare(response)
        if status in _UNAUTHORISED:
            failure = needs_login(self._server)
        elif status in _UNKNOWN and _SESSION in request.headers:
            failure = SessionUnknown(f"{self._server} does not know this session any more", code="SESSION_UNKNOWN")
            delivery.refused += 1
        if failure is not None:
            await response.aclose()
            return self._failed(request, failure, delivery, status)
        if request.method == "POST" or response.is_success:  # a stream that is not given again is still lost
            self.failure = delivery.failure = None
        said = dict(response.headers.items())  # once: each lookup goes through all of them
        kind = said.get("content-type", "").lower()
        if why := _unusable(status, said, kind):
            await response.aclose()
            return _answer(request, max(status, 400), f"{self._server} {why}")
        stream = response.stream
        assert isinstance(stream, sdk.httpx2.AsyncByteStream)
        around = _Events if kind.startswith("text/event-stream") else _Body
        response.stream = around(stream, self, delivery)
        return response

    def _failure(self, error: Exception) -> TransportError:
        if isinstance(error, TransportError):
            return error
        if isinstance(error, sdk.httpx2.ConnectError | sdk.httpx2.ConnectTimeout | sdk.httpx2.PoolTimeout):
            why = visible(str(error)[:_MOST_WORDS]) or type(error).__name__
            return Unreachable(f"{self._server} cannot be reached ({why})", code="UNREACHABLE")
        if isinstance(error, sdk.OAuthFlowError):
            return needs_login(self._server)
        return self.lost(error)

    def _failed(
        self, request: sdk.httpx2.Request, failure: TransportError, delivery: Delivery, status: int = 503
    ) -> sdk.httpx2.Response:
        self.failure = delivery.failure = failure
        return _answer(request, status, failure.message)

    def lost(self, error: Exception | None = None) -> ConnectionLost:
        why = f" ({type(error).__name__})" if error is not None else ""
        return ConnectionLost(f"connection to {self._server} was lost{why}", code="CONNECTION_LOST")


class _Body(sdk.httpx2.AsyncByteStream):
    """A bounded answer. Raises StreamError, which the SDK takes for an answer that cannot be read."""

    def __init__(self, inner: sdk.httpx2.AsyncByteStream, endpoint: Endpoint, delivery: Delivery) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._delivery = delivery

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > LARGEST:
                    raise sdk.httpx2.StreamError(f"it is larger than {LARGEST >> 20} MiB")
                yield chunk
        except sdk.httpx2.HTTPError as error:
            self._delivery.failure = self._endpoint.lost(error)
            raise sdk.httpx2.StreamError("the connection was lost") from None

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Events(_Body):
    """A stream of events, each bounded by its reader. Whoever has the answer stops reading: its end comes too early."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        error: Exception | None = None
        try:
            async for chunk in self._inner:
                yield chunk
        except sdk.httpx2.HTTPError as caught:
            error = caught
        self._delivery.failure = self._endpoint.lost(error)


def _unusable(status: int, headers: Mapping[str, str], kind: str) -> str:
    """Why this answer is not read. `kind`: its content type."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        return "sent a compressed answer that was not asked for"
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length[:20]) > LARGEST:
        return f"sent an answer larger than {LARGEST >> 20} MiB"
    if status >= 400 and not kind.startswith("application/json") and status != 404:
        return f"answered HTTP {status}"
    return ""


def _bare(response: sdk.httpx2.Response) -> sdk.httpx2.Response:
    """The same answer without its body, which nobody needs and which may have no end."""
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _ABOUT_THE_BODY]
    bare = sdk.httpx2.Response(response.status_code, headers=headers, content=b"", request=response.request)
    bare.next_request = response.next_request
    return bare


def _answer(request: sdk.httpx2.Request, status: int, words: str) -> sdk.httpx2.Response:
    """What the SDK is told instead: an error of this one request."""
    error = {"code": sdk.INTERNAL_ERROR, "message": words}
    return sdk.httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)
