"""The door of the HTTP server: who may speak to it at all. Every request passes here before anything of it is read.

`Host` must be ours (421), a present `Origin` allowed (403), the token known (401), the path `/mcp` (404). Tokens count
in the `Authorization` header only: what stands in a URL ends up in logs.

Threat: a page in the person's browser (DNS rebinding, cross-site requests), somebody else on the machine, a token that
was revoked while its streams are open: those are cut off at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from golem_forge.core.listening import Hosts
from golem_forge.mcp.server.tokens import Token, TokenStore

if TYPE_CHECKING:
    from golem_forge.mcp.server.sdk import ASGIApp, AuthenticatedUser, Message, Receive, Scope, Send, anyio

PATH: Final = "/mcp"
_LONGEST_TOKEN: Final = 512
_MOST_NOTED: Final = 256
"""Of a token's sessions, most of which are long closed."""
_SESSION: Final = b"mcp-session-id"


class Guard:
    def __init__(self, app: ASGIApp, *, hosts: Hosts, origins: frozenset[str], tokens: TokenStore) -> None:
        from golem_forge.mcp.server.sdk import CORSMiddleware

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
        self._open: dict[Token, set[anyio.CancelScope]] = {}
        """The requests that each has open."""
        self._sessions: dict[Token, dict[str, None]] = {}
        """The sessions of the handshake era that each used, latest last. One without any may have calls parked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if (refusal := self._at_the_door(scope)) is not None:
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

    def tokens_in_use(self) -> frozenset[Token]:
        return frozenset(self._open.keys() | self._sessions.keys())

    async def cut_off(self, token: Token) -> None:
        """The token was revoked: its requests are ended, its sessions closed as if it had asked for that itself."""
        from golem_forge.mcp.server.sdk import anyio

        for scope in list(self._open.pop(token, ())):
            scope.cancel()
        for session in self._sessions.pop(token, ()):
            with anyio.move_on_after(1):
                await self._app(_closing(session, token), _nothing_more, _unheard)

    async def _admit(self, token: Token, scope: Scope, receive: Receive, send: Send) -> None:
        async def noting_session(message: Message) -> None:
            if message["type"] == "http.response.start":
                for name, value in message.get("headers", ()):
                    if name.lower() == _SESSION:
                        self._note_session(token, value.decode("latin-1"))
            await send(message)

        self._sessions.setdefault(token, {})
        with self._noted(token):
            await self._app({**scope, "user": _user(token)}, receive, noting_session)

    def _note_session(self, token: Token, session: str) -> None:
        mine = self._sessions.setdefault(token, {})
        mine.pop(session, None)
        mine[session] = None
        if len(mine) > _MOST_NOTED:
            del mine[next(iter(mine))]

    @contextlib.contextmanager
    def _noted(self, token: Token) -> Iterator[None]:
        from golem_forge.mcp.server.sdk import anyio

        with anyio.CancelScope() as scope:
            self._open.setdefault(token, set()).add(scope)
            try:
                yield
            finally:
                if (mine := self._open.get(token)) is not None:
                    mine.discard(scope)
                    if not mine:
                        del self._open[token]

    def _at_the_door(self, scope: Scope) -> tuple[int, str] | None:
        hosts = _header(scope, b"host")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 421, "This server does not answer for that host; --allow-host names others"
        origins = _header(scope, b"origin")
        if any(origin not in self._origins for origin in origins):
            return 403, "This origin is not allowed; --allow-origin names those that are"
        return None

    def _holder(self, scope: Scope) -> Token | None:
        given = _header(scope, b"authorization")
        scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not 0 < len(secret) <= _LONGEST_TOKEN:
            return None
        return self._tokens.holder(secret.strip())


def _user(token: Token) -> AuthenticatedUser:
    """The SDK holds a session against who opened it. The secret itself is kept nowhere."""
    from golem_forge.mcp.server.sdk import AccessToken, AuthenticatedUser

    return AuthenticatedUser(AccessToken(token="", client_id=token.id, scopes=[], subject=token.name))


def _closing(session: str, token: Token) -> Scope:
    return {
        "type": "http",
        "method": "DELETE",
        "path": PATH,
        "query_string": b"",
        "headers": [(_SESSION, session.encode("latin-1"))],
        "user": _user(token),
    }


async def _nothing_more() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(message: Message) -> None:
    return None


def _refuse(status: int, text: str, headers: dict[str, str] | None = None) -> ASGIApp:
    from golem_forge.mcp.server.sdk import PlainTextResponse

    return PlainTextResponse(text + "\n", status, headers)


def _header(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]
