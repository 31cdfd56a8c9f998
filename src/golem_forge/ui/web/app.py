"""The web application and its server: routes and page files behind the request guard, listening in the caller's loop.

`WebAdapter` is the SessionUI of one session. `initialize` attaches to the bus and listens; from then on the session
counts as answerable, with or without an open page. Alone, it stays until the person ends the session on the page or the
process is told to; beside a terminal, the terminal decides.

`WebServer` is the HTTP server of `net.server` with the page's limits, security headers and WebSocket connections. It
raises ForgeError for an address that cannot or may not be used. `stop` closes every page and returns within a second.
Signals, logs and the terminal stay the session's own. `forge web link` and `status` reach it by the control socket
(listen.py); where they cannot, `link_problem` says why.

Page files are read once and served by exact path. Nothing of a request becomes part of a file path; a file of unknown
media type is an error at start, so that the browser never guesses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import escape_control_chars
from golem_forge.net import server
from golem_forge.net.server import QuietConfig, QuietServer
from golem_forge.net.server_guard import AllowedHosts, ASGIApp, RateLimit, bind_socket
from golem_forge.ui.web.api import ApiProblem
from golem_forge.ui.web.api.openapi import all_operations
from golem_forge.ui.web.api.operation import Operation
from golem_forge.ui.web.listen import LINK, STATUS, ControlSocket, ListenAddress, check_address
from golem_forge.ui.web.sdk import (
    HandshakeResponse,
    HTTPException,
    JSONResponse,
    Request,
    Response,
    Route,
    ServerProtocol,
    Starlette,
    WebSocket,
    WebSocketRoute,
    WebSocketsSansIOProtocol,
)
from golem_forge.ui.web.security import HEADERS, LoginStore, RequestGuard
from golem_forge.ui.web.session_registry import SessionRegistry
from golem_forge.ui.web.stream.socket import serve_socket
from golem_forge.ui.web.stream.watched_session import LiveSession

MAX_CONNECTIONS: Final = 256
"""A quarter of the files that a process may usually have open."""
MAX_FRAME_BYTES: Final = 1 << 20
MAX_UNREAD_BYTES: Final = 4 << 20
PING_SECONDS: Final = 20.0
_MAX_HEADER_BYTES: Final = 1 << 14
_FRAMES_AT_ONCE: Final = 2000
_FRAMES_PER_SECOND: Final = 200
_PIECE_BYTES: Final = 1 << 14
"""Parsed at once: the smallest frames fill it 2,300 times."""


def page_config(app: ASGIApp) -> QuietConfig:
    return QuietConfig(
        app,
        most_connections=MAX_CONNECTIONS,
        makes_room=True,
        refusal_headers=HEADERS,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        ws=TimedSocketConnection,
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        backlog=128,
    )


class TimedSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket connection with limits: it is cut off where it is closed and not read to its end, pings faster than
    it reads, or sends a flood of frames (pings, or a message in tiny pieces). A refused handshake carries the security
    headers too."""

    _next_check: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # No compression: it costs each page memory, and on loopback it saves nothing.
        self.conn = _Handshake(extensions=[], max_size=self.config.ws_max_size, logger=self.logger)
        self._frames = RateLimit(_FRAMES_AT_ONCE, _FRAMES_PER_SECOND)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._next_check = self.loop.call_later(server.CHECK_SECONDS, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_check is not None:
            self._next_check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            for at in range(0, len(data), _PIECE_BYTES):
                super().data_received(data[at : at + _PIECE_BYTES])
                if self._frames.exhausted:
                    self.transport.abort()
                    return
        except Exception:
            self.transport.abort()

    def handle_events(self) -> None:
        self._frames.take(len(self.conn.events))
        super().handle_events()

    def handle_ping(self) -> None:
        super().handle_ping()
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:  # it asks faster than it reads
            self.transport.abort()

    def _check(self) -> None:
        """A closed one whose last bytes nobody takes would stay for ever."""
        if self.transport.is_closing():
            self.transport.abort()
        else:
            self._next_check = self.loop.call_later(server.CHECK_SECONDS, self._check)


class _Handshake(ServerProtocol):
    def reject(self, status: Any, text: str) -> HandshakeResponse:
        response = super().reject(status, text)
        for name, value in HEADERS:
            response.headers[name.decode()] = value.decode()
        return response


ShowLink = Callable[[str], None]
"""Shows the person a link that lets whoever has it in, once."""
_NEVER_RAN: Final = frozenset({RunStatus.INVALID_CONFIG, RunStatus.MODEL_UNAVAILABLE})
"""Statuses of a first turn that ended before anything ran."""


class WebAdapter:
    def __init__(
        self,
        runtime: WorkerRuntime,
        reach: ListenAddress,
        *,
        directory: Path,
        show_link: ShowLink,
        forget_links: Callable[[], None] = lambda: None,
        notify: bool = False,
    ) -> None:
        """`forget_links` is called when no link is of use any more."""
        self.exit_requested = asyncio.Event()
        self.exit_code = 0
        self._runtime = runtime
        self._listen_address = reach
        self._show_link = show_link
        self._forget_links = forget_links
        self._registry = SessionRegistry(runtime.home, directory, notify=notify)
        self._server: WebServer | None = None

    async def initialize(self) -> None:
        server = WebServer(self._registry, self._listen_address, LoginStore())
        await server.start()
        self._server = server
        session = LiveSession(self._runtime, self._runtime.bus, self._runtime.home.path, self._registry.directory)
        await session.open()
        await self._registry.add(session)
        self.show_link()

    def show_link(self) -> None:
        """Shows another link; each opens the page once."""
        if self._server is not None:
            self._show_link(self._server.url)

    @property
    def address(self) -> str:
        return self._server.address if self._server is not None else ""

    async def shutdown(self) -> None:
        """Stops the server; safe to call twice. Open questions are denied if no other UI can answer."""
        server, self._server = self._server, None
        if server is not None:
            self._forget_links()
            await self._registry.close()
            await server.stop()

    def finished(self, result: RunResult) -> None:
        """Does nothing: the events of the run are on the page."""

    async def stay(self, result: RunResult) -> None:
        """Keeps the page open until the person leaves; where nothing ran there is nothing to show."""
        if result.status in _NEVER_RAN:
            print(f"forge: {escape_control_chars(result.error)}", file=sys.stderr)
            return
        print("The worker has ended; the page stays until Ctrl-C.", file=sys.stderr)
        await self.exit_requested.wait()

    def request_exit(self, code: int = 0) -> None:
        if not self.exit_requested.is_set():
            self.exit_code = code
            self.exit_requested.set()


_CLOSE_SECONDS: Final = 0.3
_STOPPING: Final = "The session that serves this page ended."


class WebServer:
    def __init__(
        self,
        registry: SessionRegistry,
        reach: ListenAddress,
        login: LoginStore,
        app: Callable[..., RequestGuard] | None = None,
    ) -> None:
        """`app` replaces `make_app`."""
        self._app = app or make_app
        self._registry = registry
        self._listen_address = reach
        self._login = login
        self._holding = contextlib.ExitStack()
        self._guard: RequestGuard | None = None
        self._server: QuietServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port = 0
        self._control: ControlSocket | None = None
        self._since = ""
        self.link_problem = ""

    @property
    def address(self) -> str:
        return self._listen_address.address(self._port)

    @property
    def url(self) -> str:
        """Lets whoever opens it in, once. In the fragment, which browsers keep to themselves."""
        code = self._login.new_code()
        return f"{self.address}#code={code}" if code else self.address

    async def start(self) -> None:
        """Starts the server; it listens when this returns."""
        check_address(self._listen_address)
        try:
            listener = self._holding.enter_context(bind_socket(self._listen_address.host, self._listen_address.port))
        except ForgeError as error:
            raise ForgeError(
                f"{error.message}; `ui.web.port` or `forge web --port` names another port (default: any free one)",
                code=error.code,
            ) from None
        try:
            await self._serve(listener)
        except BaseException:
            self._holding.close()
            raise
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        answers = {LINK: lambda: {"link": self.url}, STATUS: self._status}
        control = ControlSocket(self._registry.home, self._port, answers)
        try:
            await control.open()
        except OSError as error:  # the page is served all the same
            self.link_problem = error.strerror or str(error)
        else:
            self._control = control

    def _status(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "port": self._port,
            "pid": os.getpid(),
            "since": self._since,
            "starts_sessions": self._registry.may_start,
            "sessions": [session.id for session in self._registry.live_sessions()],
        }

    async def _serve(self, listener: socket.socket) -> None:
        self._port = listener.getsockname()[1]
        self._guard = self._app(self._registry, login=self._login, hosts=self._listen_address.hosts(self._port))
        self._server = QuietServer(page_config(self._guard))
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listener]))
        await self._server.listening.wait()

    async def stop(self) -> None:
        """Stops the server; safe to call twice."""
        server, self._server = self._server, None
        if server is None or self._guard is None or self._serving is None:
            return
        if self._control is not None:
            await self._control.close()
        await self._guard.sockets.end_all(_STOPPING, _CLOSE_SECONDS)
        server.stop()
        await asyncio.wait({self._serving})  # both of its waits have a limit
        self._holding.close()


STREAM: Final = "/api/sessions/{id}/stream"
_PROBLEMS: Final = {
    404: "There is nothing at this address; GET /api/openapi.json lists what there is.",
    405: "This address does not take that method.",
}


def make_app(
    registry: SessionRegistry,
    *,
    login: LoginStore,
    hosts: AllowedHosts,
    operations: Sequence[Operation] = (),
    socket: Callable[[WebSocket], Awaitable[None]] = serve_socket,
    guard: Callable[..., RequestGuard] = RequestGuard,
) -> RequestGuard:
    """`app.state.registry` and `app.state.login` are there for every operation and for the socket.

    `operations`: instead of all there are.
    """
    operations = operations or all_operations()

    async def no_socket(websocket: WebSocket) -> None:
        await websocket.send_denial_response(_problem(404))

    async def problem_response(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _problem(error.status_code, error.headers)

    assets = load_assets()
    app = Starlette(
        routes=[
            *(operation.route() for operation in operations),
            WebSocketRoute(STREAM, socket),
            WebSocketRoute("/{anywhere:path}", no_socket),
            *(asset.route(path) for path, asset in assets.items()),
        ],
        exception_handlers={HTTPException: problem_response},
    )
    app.router.redirect_slashes = False
    app.state.registry = registry
    app.state.login = login
    return guard(
        app,
        hosts=hosts,
        login=login,
        public=frozenset(assets),
        counts_itself=[operation.route() for operation in operations if operation.raw_body],
    )


def _problem(status: int, headers: Mapping[str, str] | None = None) -> Response:
    words = _PROBLEMS.get(status, "This request cannot be answered.")
    return JSONResponse(ApiProblem(problem=words).model_dump(by_alias=True), status, headers)


SHELL: Final = "index.html"
_SHEETS: Final = ("tokens", "base", "layout", "chat", "side", "cards", "forms", "diff", "code", "pages")
"""The style sheets, in the order in which they overrule each other."""
_MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
    "json": "application/json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    media_type: str
    data: bytes

    def route(self, path: str) -> Route:
        async def answered(request: Request) -> Response:
            return Response(self.data, headers={"content-type": self.media_type})

        return Route(path, answered, methods=["GET"], name=f"asset {path}", include_in_schema=False)


def load_assets(root: Traversable | None = None) -> Mapping[str, Asset]:
    """Path in the URL → file. The shell page stands at `/` as well, and all style sheets are one at `/page.css`."""
    found = dict(_walk_assets(root if root is not None else files("golem_forge.ui.web") / "page", "/"))
    if (shell := found.get(f"/{SHELL}")) is not None:
        found["/"] = shell
    sheets = [found[path].data for name in _SHEETS if (path := f"/css/{name}.css") in found]
    if sheets:
        found["/page.css"] = Asset(media_type=_MEDIA_TYPES["css"], data=b"\n".join(sheets))
    return found


def _walk_assets(folder: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.name.startswith((".", "__")):
            continue
        if entry.is_dir():
            yield from _walk_assets(entry, f"{prefix}{entry.name}/")
            continue
        media_type = _MEDIA_TYPES.get(entry.name.rpartition(".")[2])
        if media_type is None:
            raise ForgeError(f"The page has a file of unknown kind: {prefix}{entry.name}", code="WEB_BROKEN")
        yield f"{prefix}{entry.name}", Asset(media_type=media_type, data=entry.read_bytes())
