"""A server over streamable HTTP: the SDK's client on top of an HTTP client of ours. Imports the SDK; import it when
used.

Takes a spec with expanded values; gives the SDK's two streams. Refuses an address that is neither https nor http to
loopback before anything is sent. Whatever happens to a request is returned to the SDK as an answer to that request and
noted in its caller's Delivery: an exception would end every call of the connection. A redirect is followed only within
the server's own origin and with the same method; headers and tokens go nowhere else, and the error names where it would
have led. A session id that could not be sent back is refused. The user's proxies and certificates are used, but never a
proxy for loopback. Address, headers and limits are parsed once, not per message.

Threat: answers of any size, also compressed (16 MiB at most, per event of a stream too); a server that hangs up and
asks to be called again (a stream is opened once a second at most); a goodbye that is never answered (0.5 s); logs that
show an address with a token in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import urlsplit

from golem_forge.config.mcp_spec import ExpandedServer, ServerSpec, is_loopback, url_problem
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.mcp import sdk
from golem_forge.mcp.client.transport import (
    BadAddress,
    ClosingStream,
    ConnectionLost,
    Delivery,
    Redirected,
    SessionUnknown,
    TransportError,
    Unreachable,
    UnusableAnswer,
    current_delivery,
    needs_login,
)
from golem_forge.net.tls import client_tls


class HttpTransport:
    def __init__(self, spec: ServerSpec, expanded: ExpandedServer, *, auth: sdk.httpx2.Auth | None = None) -> None:
        """Prepares the transport of one connection. Raises BadAddress."""
        if why := url_problem(expanded.url):
            raise BadAddress(f"url: {why}", code="URL")
        self._spec = spec
        self._expanded = expanded
        self._auth = auth
        self._endpoint: ServerHttpClient | None = None
        self._stack = contextlib.AsyncExitStack()

    @property
    def failure(self) -> TransportError | None:
        """The last failure of any request; None if the last answer was good."""
        return self._endpoint.failure if self._endpoint else None

    async def __aenter__(self) -> sdk.TransportStreams:
        async with contextlib.AsyncExitStack() as stack:
            self._endpoint = await stack.enter_async_context(ServerHttpClient(self._spec, self._expanded, self._auth))
            read, write = await stack.enter_async_context(
                sdk.streamable_http_client(
                    self._expanded.url, http_client=self._endpoint, max_sse_event_size=MAX_ANSWER_BYTES
                )
            )
            self._stack = stack.pop_all()
        return read, RequestWriteStream(write)

    async def __aexit__(self, *error: Any) -> None:
        if self._endpoint is not None:
            self._endpoint.is_closing = True
        await self._stack.__aexit__(*error)


MAX_ANSWER_BYTES: Final = 16 << 20
_STREAM_EVERY_S: Final = 1.0
_GOODBYE_S: Final = 0.5
_WRITE_S: Final = 30.0
_PATIENCE_S: Final = 60.0
"""Seconds added to `total_timeout`, after which the caller has given up anyway: for connections that died silently."""
_MOST_WORDS: Final = 200
_MOST_REDIRECTS: Final = 3
"""Threat: each one within the origin is the same call, sent again."""
_FOLLOWED: Final = "redirects followed"
"""A request's extension: the number of redirects that led to it."""
_SESSION_ID: Final = regex(r"[\x21-\x7e]{1,1024}")
_TOO_LARGE: Final = f"sent an answer larger than {MAX_ANSWER_BYTES >> 20} MiB, which was cut off"
_BLANK_LINES: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
"""Separators of two events."""
_MESSAGE: Final = {"json", "headers"}
_ABOUT_THE_BODY: Final = ("content-encoding", "content-length", "transfer-encoding")

_request_delivery: ContextVar[Delivery | None] = ContextVar("request_of", default=None)
"""The delivery of the request that this context sends; None outside of a request."""
_in_own_request: ContextVar[bool] = ContextVar("ours", default=False)


class _HideOwnRequests(logging.Filter):
    """Threat: an address may hold a token."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _in_own_request.get()


logging.getLogger("httpx2").addFilter(_HideOwnRequests())
# It logs messages, session ids and what servers answer, word by word.
logging.getLogger("mcp.client.streamable_http").setLevel(logging.CRITICAL + 1)


class RequestWriteStream(ClosingStream):
    """The SDK's write stream; it notes whose request each message is, for the task that will send it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def send(self, item: sdk.SessionMessage, /) -> None:
        token = _request_delivery.set(current_delivery() if isinstance(item.message, sdk.JSONRPCRequest) else None)
        try:
            await self._inner.send(item)  # takes the context along
        finally:
            _request_delivery.reset(token)

    async def aclose(self) -> None:
        await self._inner.aclose()


class ServerHttpClient(sdk.httpx2.AsyncClient):
    def __init__(self, spec: ServerSpec, expanded: ExpandedServer, auth: sdk.httpx2.Auth | None) -> None:
        own = is_loopback(urlsplit(expanded.url).hostname or "")
        super().__init__(
            headers={"user-agent": "golem-forge", **expanded.headers, "accept-encoding": "identity"},
            auth=auth,
            follow_redirects=False,
            max_redirects=_MOST_REDIRECTS,
            trust_env=not own,  # no proxy stands between us and this machine
            verify=client_tls(trust_env=not own),
            timeout=sdk.httpx2.Timeout(
                connect=spec.connect_timeout,
                pool=spec.connect_timeout,
                write=_WRITE_S,
                read=spec.total_timeout + _PATIENCE_S,
            ),
        )
        self._server = spec.name
        self._url = expanded.url
        self._posting = RequestBuilder(expanded.url, self.headers, self.timeout)
        self._next_stream = 0.0
        self.failure: TransportError | None = None
        self.is_closing = False
        """Only the goodbye is still to be said."""

    def build_request(self, method: str, url: sdk.httpx2.URL | str, **options: Any) -> sdk.httpx2.Request:
        """A message to the server, nearly always; a cookie that it gave makes each request another."""
        if method == "POST" and url == self._url and options.keys() == _MESSAGE and not self.cookies:
            return self._posting.request(options["json"], options["headers"])
        return super().build_request(method, url, **options)

    async def send(self, request: sdk.httpx2.Request, **options: Any) -> sdk.httpx2.Response:
        """Raises nothing but cancellation. The SDK reads every answer as a stream."""
        delivery = _request_delivery.get() or Delivery()
        if request.method == "GET":
            await self._not_too_often()
        delivery.sent += 1
        token = _in_own_request.set(True)
        try:
            if not self.is_closing:
                return await self._answered(request, options, delivery)
            with sdk.anyio.move_on_after(_GOODBYE_S):
                return await self._answered(request, options, delivery)
            return self._failed(request, ConnectionLost(f"{self._server} does not answer"), delivery)
        except Exception as error:
            failure = self._failure(error)
            delivery.refused += isinstance(failure, Unreachable)
            return self._failed(request, failure, delivery)
        finally:
            _in_own_request.reset(token)

    async def _answered(
        self, request: sdk.httpx2.Request, options: dict[str, Any], delivery: Delivery
    ) -> sdk.httpx2.Response:
        response = await super().send(request, **{**options, "stream": True})
        if self.is_closing:
            await response.aclose()
            return _without_body(response)
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
            if request.method == "POST" and (why := self._why_not_followed(response)):
                return self._failed(request, Redirected(why, code="REDIRECTED"), delivery)
            return _without_body(response)
        if status in (401, 403):
            failure = needs_login(self._server)
        elif status in (404, 410) and "mcp-session-id" in request.headers:
            failure = SessionUnknown(f"{self._server} does not know this session any more", code="SESSION_UNKNOWN")
            delivery.refused += 1
        if failure is not None:
            await response.aclose()
            return self._failed(request, failure, delivery, status)
        if request.method == "POST" or response.is_success:  # a stream that is not given again is still lost
            self.failure = delivery.failure = None
        said = dict(response.headers.items())  # once: each lookup goes through all of them
        kind = said.get("content-type", "").lower()
        if why := _why_unusable(status, said, kind) or _malformed_session(request, said):
            await response.aclose()
            words = f"{self._server} {why}"
            if request.method != "POST" or status >= 400:  # the latter says itself that it failed
                return _error_answer(request, max(status, 400), words)
            return self._failed(request, UnusableAnswer(words, code="UNUSABLE_ANSWER"), delivery, 400)
        stream = response.stream
        assert isinstance(stream, sdk.httpx2.AsyncByteStream)
        around = _EventStream if kind.startswith("text/event-stream") else _BoundedBody
        response.stream = around(stream, self, delivery)
        return response

    def _why_not_followed(self, response: sdk.httpx2.Response) -> str:
        """Empty: the SDK follows it. Threat: user, query and fragment of an address may hold credentials."""
        following = response.next_request
        assert following is not None
        may_follow = sdk.next_request_within_origin(response) is not None
        followed = response.request.extensions.get(_FOLLOWED, 0)
        if may_follow and followed < _MOST_REDIRECTS:
            following.extensions = {**following.extensions, _FOLLOWED: followed + 1}
            return ""
        bare = following.url.copy_with(userinfo=b"", query=None, fragment=None)
        where = f"{self._server} redirects to {escape_control_chars(str(bare)[:_MOST_WORDS])}"
        if may_follow:
            return f"{where} (HTTP {response.status_code}), the {followed + 1}th redirect in a row; it is not followed"
        rest = "which is not followed; if that is the server, write that address as its `url`"
        return f"{where} (HTTP {response.status_code}), {rest}"

    def _failure(self, error: Exception) -> TransportError:
        if isinstance(error, TransportError):
            return error
        if isinstance(error, sdk.httpx2.ConnectError | sdk.httpx2.ConnectTimeout | sdk.httpx2.PoolTimeout):
            why = escape_control_chars(str(error)[:_MOST_WORDS]) or type(error).__name__
            return Unreachable(f"{self._server} cannot be reached ({why})", code="UNREACHABLE")
        if isinstance(error, sdk.OAuthFlowError):
            return needs_login(self._server)
        return self.connection_lost(error)

    def _failed(
        self, request: sdk.httpx2.Request, failure: TransportError, delivery: Delivery, status: int = 503
    ) -> sdk.httpx2.Response:
        self.failure = delivery.failure = failure
        return _error_answer(request, status, failure.message)

    def too_large(self) -> UnusableAnswer:
        return UnusableAnswer(f"{self._server} {_TOO_LARGE}", code="UNUSABLE_ANSWER")

    def connection_lost(self, error: Exception | None = None) -> ConnectionLost:
        why = f" ({type(error).__name__})" if error is not None else ""
        return ConnectionLost(f"connection to {self._server} was lost{why}", code="CONNECTION_LOST")


class _BoundedBody(sdk.httpx2.AsyncByteStream):
    """A bounded answer. Raises StreamError, which the SDK takes for an answer that cannot be read."""

    def __init__(self, inner: sdk.httpx2.AsyncByteStream, endpoint: ServerHttpClient, delivery: Delivery) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._delivery = delivery

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > MAX_ANSWER_BYTES:
                    self._delivery.failure = self._endpoint.too_large()
                    raise sdk.httpx2.StreamError(f"it is larger than {MAX_ANSWER_BYTES >> 20} MiB")
                yield chunk
        except sdk.httpx2.HTTPError as error:
            self._delivery.failure = self._endpoint.connection_lost(error)
            raise sdk.httpx2.StreamError("the connection was lost") from None

    async def aclose(self) -> None:
        await self._inner.aclose()


class _EventStream(_BoundedBody):
    """A stream of events, each bounded by its reader. Whoever has the answer stops reading: its end comes too early."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        error: Exception | None = None
        size, end = 0, b""
        try:
            async for chunk in self._inner:
                seen = end + chunk
                blank = max(map(seen.rfind, _BLANK_LINES))
                size, end = (len(seen) - blank if blank >= 0 else size + len(chunk)), seen[-3:]
                if size > MAX_ANSWER_BYTES:  # its reader refuses it
                    self._delivery.failure = self._endpoint.too_large()
                yield chunk
        except sdk.httpx2.HTTPError as caught:
            error = caught
        self._delivery.failure = self._endpoint.connection_lost(error)


def _why_unusable(status: int, headers: Mapping[str, str], kind: str) -> str:
    """Why this answer is not read. `kind`: its content type."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        return "sent a compressed answer that was not asked for"
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length[:20]) > MAX_ANSWER_BYTES:
        return _TOO_LARGE
    if status >= 400 and not kind.startswith("application/json") and status != 404:
        return f"answered HTTP {status}"
    return ""


def _malformed_session(request: sdk.httpx2.Request, headers: Mapping[str, str]) -> str:
    """Whether the id of the session that this request opens could not be sent back. Only a handshake has no version."""
    session = headers.get("mcp-session-id", "")
    opens = session and "mcp-session-id" not in request.headers and "mcp-protocol-version" not in request.headers
    if not opens or _SESSION_ID.fullmatch(session):
        return ""
    return "sent a malformed session id; one may have only visible ASCII characters, and 1,024 of them"


def _without_body(response: sdk.httpx2.Response) -> sdk.httpx2.Response:
    """Returns the answer without its body, which is not needed and may be endless."""
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _ABOUT_THE_BODY]
    bare = sdk.httpx2.Response(response.status_code, headers=headers, content=b"", request=response.request)
    bare.next_request = response.next_request
    return bare


def _error_answer(request: sdk.httpx2.Request, status: int, words: str) -> sdk.httpx2.Response:
    """Returns the answer that the SDK gets instead: an error of this one request."""
    error = {"code": sdk.INTERNAL_ERROR, "message": words}
    return sdk.httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


class RequestBuilder:
    def __init__(self, url: str, headers: sdk.httpx2.Headers, timeout: sdk.httpx2.Timeout) -> None:
        """`headers`: what every request has, unless it says otherwise itself."""
        self._url = sdk.httpx2.URL(url)
        usual = {name.lower(): value for name, value in headers.raw}
        self._headers = {b"host": self._url.netloc, **usual}
        self._timeout = timeout.as_dict()

    def request(self, message: Any, headers: Mapping[str, str]) -> sdk.httpx2.Request:
        """Builds the same request as httpx would, except for the case of the header names."""
        body = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        said = {name.lower().encode("ascii"): value.encode("ascii") for name, value in headers.items()}
        return sdk.httpx2.Request(
            "POST",
            self._url,
            headers={**self._headers, **said, b"content-length": b"%d" % len(body)},
            stream=sdk.httpx2.ByteStream(body),
            extensions={"timeout": dict(self._timeout)},
        )
