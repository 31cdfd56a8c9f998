"""`forge mcp serve --http HOST:PORT`: both eras at `/mcp`, behind the guard, on one uvicorn in this process's loop.

At most 64 sessions of the handshake era (a 65th gets 503), each closed after 30 idle minutes; bodies up to 4 MiB (413).
Refuses to listen beyond loopback unless `--allow-host` says under which name it may be reached. SIGTERM and SIGINT end
every call and every child; the exit code is 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from golem_forge.core.ending_signals import until_signalled
from golem_forge.core.errors import ForgeError
from golem_forge.core.listening import Hosts, bound, in_url, is_loopback
from golem_forge.mcp.server.guard import PATH, Guard
from golem_forge.mcp.server.host import Host
from golem_forge.mcp.server.tokens import Token, TokenStore

if TYPE_CHECKING:
    from golem_forge.mcp.server.sdk import ASGIApp

MOST_SESSIONS: Final = 64
IDLE_SECONDS: Final = 1800.0
MOST_BODY_BYTES: Final = 4 << 20
_REVOKED_LOOK_SECONDS: Final = 0.5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    bind: str = "127.0.0.1"
    port: int = 8765
    """0: any free one."""
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[::1]:PORT`, `HOST` or `PORT` → (host, port), the rest as by default."""
    default = HttpOptions()
    if text.isdigit():
        host, port = default.bind, text
    elif text.endswith("]") or (text.count(":") != 1 and not text.startswith("[")):
        host, port = text, str(default.port)
    else:
        host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ForgeError(f"{text!r} is no address to listen at; write HOST:PORT, e.g. {default.bind}:{default.port}")
    return host or default.bind, int(port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A server that answers. `stop` ends it."""

    url: str
    stop: Callable[[], None]


def announce(listening: Listening) -> None:
    print(f"listening at {listening.url}", file=sys.stderr, flush=True)


async def serve_http(
    host: Host, options: HttpOptions, tokens: TokenStore, started: Callable[[Listening], None] = announce
) -> int:
    """Until a signal comes, or `stop` is called. Raises ForgeError for an address that cannot or may not be had."""
    check_bind(options)
    try:
        with bound(options.bind, options.port) as listener:
            async with _app(host, options, tokens, listener.getsockname()[1]) as app:
                await _serve(app, listener, options, started)
    finally:
        from golem_forge.mcp.server.sdk import anyio

        with anyio.CancelScope(shield=True):
            await host.aclose()
    return 0


def check_bind(options: HttpOptions) -> None:
    if not is_loopback(options.bind) and not options.allow_hosts:
        raise ForgeError(
            f"{options.bind} can be reached from other machines; say with --allow-host NAME under which name it may be",
            code="BIND_REFUSED",
        )


@contextlib.asynccontextmanager
async def _app(host: Host, options: HttpOptions, tokens: TokenStore, port: int) -> AsyncIterator[ASGIApp]:
    from golem_forge.mcp.server import sdk
    from golem_forge.mcp.server.service import Service

    service = Service(host)
    sessions = sdk.StreamableHTTPSessionManager(
        service.server,
        session_idle_timeout=IDLE_SECONDS,
        max_sessions=MOST_SESSIONS,
        max_request_body_size=MOST_BODY_BYTES,
    )
    guard = Guard(
        sessions.asgi_app,
        hosts=Hosts(port, options.allow_hosts),
        origins=frozenset(options.allow_origins),
        tokens=tokens,
    )

    async def cut_off_revoked() -> None:
        while True:
            await asyncio.sleep(_REVOKED_LOOK_SECONDS)
            for gone in guard.tokens_in_use() - _valid(tokens):
                try:
                    await guard.cut_off(gone)
                    await service.clients.revoked(gone.id)
                except Exception as error:  # one that cannot be ended in order must not keep all others in
                    _log.warning("a revoked token could not be cut off: %s", type(error).__name__)

    watching = asyncio.get_running_loop().create_task(cut_off_revoked())
    try:
        async with service.running(), sessions.run():
            yield guard
    finally:
        watching.cancel()


def _valid(tokens: TokenStore) -> frozenset[Token]:
    try:
        return frozenset(tokens.tokens())
    except ForgeError:
        return frozenset()


async def _serve(
    app: ASGIApp, listener: socket.socket, options: HttpOptions, started: Callable[[Listening], None]
) -> None:
    from golem_forge.mcp.server import sdk

    server = sdk.QuietServer(
        sdk.uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            http=sdk.ImpatientProtocol,
            limit_concurrency=sdk.MOST_CONNECTIONS,
            timeout_graceful_shutdown=0,
            proxy_headers=False,
        )
    )
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    def stop() -> None:
        server.should_exit = True

    listener.listen(128)
    started(Listening(url=f"http://{in_url(options.bind)}:{listener.getsockname()[1]}{PATH}", stop=stop))
    with until_signalled(stop):
        await server.serve(sockets=[listener])
