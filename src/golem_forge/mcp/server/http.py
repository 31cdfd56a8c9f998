"""`forge mcp serve --http HOST:PORT`: both protocol generations at `/mcp`, behind a guard, on one uvicorn in this loop.

At most 64 handshake sessions (a 65th gets 503), each closed after 30 idle minutes; bodies up to 4 MiB (413). A token
that has fewer than its share of them gets a place all the same: that of the session which the token with the most has
not used for the longest time. Refuses to listen beyond loopback unless `--allow-host` names the host. SIGTERM and
SIGINT end every call and child; exit code 0. The guard checks every request before anything of it is read: `Host` must
be ours (421), a present `Origin` allowed (403), the token known (401), the path `/mcp` (404). Tokens count in the
`Authorization` header only, because URLs end up in logs.

Threat: a page in the user's browser (DNS rebinding, cross-site requests), other users of the machine, a client that
takes every session, and a token that is revoked while its streams are open: those are cut at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.signals import stop_on_termination
from golem_forge.mcp.server import sdk
from golem_forge.mcp.server.host import ServingHost
from golem_forge.mcp.server.sdk import AccessToken, AuthenticatedUser, CORSMiddleware, PlainTextResponse, anyio
from golem_forge.mcp.server.service import Service
from golem_forge.mcp.server.tokens import ClientToken, TokenStore
from golem_forge.net.server import QuietConfig, QuietServer
from golem_forge.net.server_guard import (
    AllowedHosts,
    ASGIApp,
    Message,
    Receive,
    Scope,
    Send,
    bind_socket,
    check_bind,
    header_values,
    own_host,
    url_host,
)

MOST_SESSIONS: Final = 64
SHARES: Final = 16
"""Number of tokens that can each have their share of the sessions at the same time."""
IDLE_SECONDS: Final = 1800.0
MOST_BODY_BYTES: Final = 4 << 20
MOST_CONNECTIONS: Final = 512
"""Half of the files that a process may usually have open."""
_REVOKED_CHECK_SECONDS: Final = 0.5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    bind: str = "127.0.0.1"
    port: int = 8765
    """0 means any free port."""
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[::1]:PORT`, `HOST` or `PORT` → (host, port), the rest as by default."""
    default = HttpOptions()
    if text.isdecimal():
        host, port = default.bind, text
    elif text.endswith("]") or (text.count(":") != 1 and not text.startswith("[")):
        host, port = text, str(default.port)
    else:
        host, _, port = text.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise ForgeError(f"{text!r} is not a listen address; write HOST:PORT, e.g. {default.bind}:{default.port}")
    return host or default.bind, int(port)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpListener:
    """A running server. `stop` ends it."""

    url: str
    stop: Callable[[], None]


def print_address(listening: HttpListener) -> None:
    print(f"listening at {listening.url}", file=sys.stderr, flush=True)


async def serve_http(
    host: ServingHost, options: HttpOptions, tokens: TokenStore, started: Callable[[HttpListener], None] = print_address
) -> int:
    """Serves until a signal comes, or `stop` is called. Raises ForgeError for an address that is not available or not
    allowed.
    """
    check_bind(options.bind, options.allow_hosts)
    try:
        with bind_socket(options.bind, options.port) as listener:
            port = listener.getsockname()[1]
            async with _app(host, options, tokens, port) as app:
                most = MOST_CONNECTIONS
                server = QuietServer(QuietConfig(app, most_connections=most, limit_concurrency=most, ws="none"))
                listener.listen(128)
                started(HttpListener(url=f"http://{url_host(options.bind)}:{port}{PATH}", stop=server.stop))
                with stop_on_termination(server.stop):
                    await server.serve(sockets=[listener])
    finally:
        with anyio.CancelScope(shield=True):
            await host.aclose()
    return 0


@contextlib.asynccontextmanager
async def _app(host: ServingHost, options: HttpOptions, tokens: TokenStore, port: int) -> AsyncIterator[ASGIApp]:
    service = Service(host)
    sessions = sdk.StreamableHTTPSessionManager(
        service.server,
        session_idle_timeout=IDLE_SECONDS,
        max_sessions=MOST_SESSIONS,
        max_request_body_size=MOST_BODY_BYTES,
    )
    guard = TokenGuard(
        sessions.asgi_app,
        hosts=AllowedHosts(port, options.allow_hosts),
        origins=frozenset(options.allow_origins),
        tokens=tokens,
    )

    async def cut_off_revoked() -> None:
        while True:
            await asyncio.sleep(_REVOKED_CHECK_SECONDS)
            for gone in guard.tokens_in_use() - _valid(tokens):
                try:
                    await guard.end_token(gone)
                    await service.clients.revoked(gone.id)
                except Exception as error:  # one that cannot be ended in order must not keep all others in
                    _log.warning("a revoked token could not be cut off: %s", type(error).__name__)

    watching = asyncio.get_running_loop().create_task(cut_off_revoked())
    try:
        async with service.running(), sessions.run():
            yield guard
    finally:
        watching.cancel()


def _valid(tokens: TokenStore) -> frozenset[ClientToken]:
    try:
        return frozenset(tokens.tokens())
    except ForgeError:
        return frozenset()


PATH: Final = "/mcp"
_LONGEST_TOKEN: Final = 512
_MAX_SESSIONS_NOTED: Final = 256
"""Maximum number of a token's sessions in memory, most of which are closed."""
_SESSION: Final = b"mcp-session-id"
_VERSION: Final = b"mcp-protocol-version"
_FULL: Final = 503


class TokenGuard:
    def __init__(self, app: ASGIApp, *, hosts: AllowedHosts, origins: frozenset[str], tokens: TokenStore) -> None:
        self._app = app
        self._inside: ASGIApp = self._with_token
        if origins:  # a browser asks first, without its token, whether it may send one
            self._inside = CORSMiddleware(
                self._with_token,
                allow_origins=list(origins),
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["*"],
                expose_headers=["Mcp-Session-Id"],
            )
        self._hosts = hosts
        self._origins = origins
        self._tokens = tokens
        self._open: dict[ClientToken, set[anyio.CancelScope]] = {}
        """The requests that each has open."""
        self._sessions: dict[ClientToken, dict[str, float]] = {}
        """The sessions of the handshake era that each used, latest last, and when (loop time). One without any may have
        calls parked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if (refusal := self._refusal(scope)) is not None:
            await _refuse(*refusal)(scope, receive, send)
        else:
            await self._inside(scope, receive, send)

    async def _with_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = self._holder(scope)
        if token is None:
            await _refuse(401, "A token is needed: forge mcp token create NAME", {"WWW-Authenticate": "Bearer"})(
                scope, receive, send
            )
        elif scope["path"] != PATH:
            await _refuse(404, f"Not found; this server answers at {PATH}")(scope, receive, send)
        else:
            await self._admit(token, scope, receive, send)

    def tokens_in_use(self) -> frozenset[ClientToken]:
        return frozenset(self._open.keys() | self._sessions.keys())

    async def end_token(self, token: ClientToken) -> None:
        """The token was revoked: its requests are ended, its sessions closed as if it had asked for that itself."""
        for scope in list(self._open.pop(token, ())):
            scope.cancel()
        for session in self._sessions.pop(token, ()):
            await self._close(session, token)

    async def _admit(self, token: ClientToken, scope: Scope, receive: Receive, send: Send) -> None:
        modern = any(version in sdk.MODERN_PROTOCOL_VERSIONS for version in header_values(scope, _VERSION))
        opens, full = scope["method"] == "POST" and not modern and not header_values(scope, _SESSION), False
        read: deque[Message] = deque()

        async def remembering() -> Message:
            message = await receive()
            if opens:
                read.append(message)
            return message

        async def once_more() -> Message:
            return read.popleft() if read else await receive()

        async def noting_session(message: Message) -> None:
            nonlocal full
            if message["type"] == "http.response.start":
                full = opens and message["status"] == _FULL
                if not full:
                    self._note_answer(token, scope, message)
            if not full:
                await send(message)

        self._sessions.setdefault(token, {})
        with self._open_request(token):
            scope = {**scope, "user": _user(token)}
            await self._app(scope, remembering, noting_session)
            if full:
                opens = False
                await self._make_room(token)
                await self._app(scope, once_more, noting_session)

    def _note_answer(self, token: ClientToken, scope: Scope, answer: Message) -> None:
        mine = self._sessions.setdefault(token, {})
        ended = answer["status"] == 404 or (scope["method"] == "DELETE" and answer["status"] < 400)
        given = [value.decode("latin-1") for name, value in answer.get("headers", ()) if name.lower() == _SESSION]
        for session in (*header_values(scope, _SESSION), *given):
            mine.pop(session, None)
            if session in given and not ended:
                mine[session] = asyncio.get_running_loop().time()
        if len(mine) > _MAX_SESSIONS_NOTED:
            del mine[next(iter(mine))]

    async def _make_room(self, token: ClientToken) -> None:
        """Ends a session of the token that has the most, if this one has less than its share."""
        share = MOST_SESSIONS // SHARES
        most = max(self._sessions, key=self._session_count)
        if self._session_count(token) < share < self._session_count(most):
            for session in list(self._sessions[most]):
                self._sessions[most].pop(session, None)
                if await self._close(session, most):
                    return

    def _session_count(self, token: ClientToken) -> int:
        """Returns the number of sessions, without those that were closed for inactivity."""
        since = asyncio.get_running_loop().time() - IDLE_SECONDS
        return sum(used > since for used in self._sessions.get(token, {}).values())

    async def _close(self, session: str, token: ClientToken) -> bool:
        """Closes a session as if its client had asked for it. Returns whether there was one."""
        answers: list[Message] = []

        async def heard(message: Message) -> None:
            answers.append(message)

        with anyio.move_on_after(1):
            await self._app(_close_session_scope(session, token), _empty_body, heard)
        return any(answer.get("status", 500) < 400 for answer in answers)

    @contextlib.contextmanager
    def _open_request(self, token: ClientToken) -> Iterator[None]:
        with anyio.CancelScope() as scope:
            self._open.setdefault(token, set()).add(scope)
            try:
                yield
            finally:
                if (mine := self._open.get(token)) is not None:
                    mine.discard(scope)
                    if not mine:
                        del self._open[token]

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        if own_host(scope, self._hosts) is None:
            return 421, "This server does not answer for that host; --allow-host names others"
        if any(origin not in self._origins for origin in header_values(scope, b"origin")):
            return 403, "This origin is not allowed; --allow-origin names those that are"
        return None

    def _holder(self, scope: Scope) -> ClientToken | None:
        given = header_values(scope, b"authorization")
        scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not 0 < len(secret) <= _LONGEST_TOKEN:
            return None
        return self._tokens.holder(secret.strip())


def _user(token: ClientToken) -> AuthenticatedUser:
    """The SDK holds a session against who opened it. The secret itself is kept nowhere."""
    return AuthenticatedUser(AccessToken(token="", client_id=token.id, scopes=[], subject=token.name))


def _close_session_scope(session: str, token: ClientToken) -> Scope:
    return {
        "type": "http",
        "method": "DELETE",
        "path": PATH,
        "query_string": b"",
        "headers": [(_SESSION, session.encode("latin-1"))],
        "user": _user(token),
    }


async def _empty_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _refuse(status: int, text: str, headers: dict[str, str] | None = None) -> ASGIApp:
    return PlainTextResponse(text + "\n", status, headers)
