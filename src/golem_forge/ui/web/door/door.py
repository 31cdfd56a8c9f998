"""The door: who may speak to this server at all. Every request and every socket passes here before anything is read.

In this order: `Host` must be ours (421), a present `Origin` the page's own and `Sec-Fetch-Site` no other page's (403),
the cookie known (401; only the shell page, its parts and the login go without), and what changes something or opens a
socket must prove that it comes from the page: by its `Origin`, or by `Sec-Fetch-Site: same-origin` (403). Browsers
always send one of the two; a UI of somebody else, which is no browser, sets `Origin` itself. Bodies over 1 MiB are
refused (413) but for operations that count for themselves.

Threat: any page the person has open (CSRF, DNS rebinding, cross-site sockets, another port of this machine, which
browsers call the same site), and everybody else on the machine.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from golem_forge.core.listening import Hosts
from golem_forge.ui.web.api.operation import MOST_BODY_BYTES
from golem_forge.ui.web.door.body import Abandoned, dropped, taken_in_time, timely
from golem_forge.ui.web.door.headers import with_headers
from golem_forge.ui.web.door.login import Login
from golem_forge.ui.web.door.sockets import OpenSockets
from golem_forge.ui.web.wire import Problem

if TYPE_CHECKING:
    from golem_forge.ui.web.sdk import ASGIApp, BaseRoute, Message, Receive, Response, Scope, Send

LOGIN: Final = ("POST", "/api/login")
_ONCE: Final = (b"cookie", b"content-type", b"content-length", b"sec-fetch-site", b"sec-fetch-mode")
_CHANGES_NOTHING: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_FROM_HERE: Final = frozenset({"same-origin", "none"})
_MOST_DROPPED: Final = 16 << 20
"""Of a refused body. One that says it is larger, or waits to be asked for, is cut off."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _No:
    status: int
    problem: str
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        from golem_forge.ui.web.sdk import JSONResponse

        return JSONResponse(Problem(problem=self.problem).model_dump(by_alias=True), self.status, self.headers)


_NOT_OUR_HOST: Final = _No(status=421, problem="This server does not answer for that host; --allow-host names others.")
_NO_PATH: Final = _No(status=400, problem="The target of a request must be a path.")
_TWICE: Final = _No(status=400, problem="A header that may come once came twice.")
_TWO_LENGTHS: Final = _No(
    status=400,
    problem="A body has a length or comes in chunks, not both.",
    headers={"Connection": "close"},  # where the next request begins is anybody's guess
)
_NOT_LOGGED_IN: Final = _No(
    status=401,
    problem="Open the link that was printed last; `/web` in the session, or `forge web` anew, prints a fresh one.",
    headers={"WWW-Authenticate": 'Cookie realm="golem-forge"'},
)
_NOT_FROM_HERE: Final = _No(
    status=403, problem="This request does not come from the page of this server: its Origin must be the page's own."
)
_TOO_LARGE: Final = _No(status=413, problem=f"A body may have {MOST_BODY_BYTES} bytes.")
_TOO_SLOW: Final = _No(status=408, problem="The body did not arrive in time.", headers={"Connection": "close"})
_TOO_MANY: Final = _No(status=503, problem="Too many pages are open; close one of them, then load this one again.")
_FAULT: Final = _No(status=500, problem="This did not work; the log of the process that serves this page says why.")


class Door:
    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Hosts,
        login: Login,
        public: frozenset[str] = frozenset(),
        counts_itself: Sequence[BaseRoute] = (),
    ) -> None:
        """`public`: the paths of the shell page and its parts. `counts_itself`: routes with a limit of their own."""
        self.sockets = OpenSockets(login)
        self._app = app
        self._hosts = hosts
        self._login = login
        self._public = public
        self._counts_itself = counts_itself

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._request(scope, receive, _Answer(taken_in_time(send)))
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, _Answer(send))

    async def _request(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            no = self._refusal(scope) or (_TOO_LARGE if self._too_large(scope) else None)
            if no is None:
                await self._app(scope, timely(receive), answer)
                return
            response = no.response()
            if _declared_size(scope) > _MOST_DROPPED or _values(scope, b"expect"):
                response.headers["connection"] = "close"
            else:
                await dropped(receive, _MOST_DROPPED)
            await response(scope, receive, answer)
        except Abandoned as abandoned:
            if abandoned.slow and not answer.started:
                await _TOO_SLOW.response()(scope, receive, answer)
        except Exception as error:  # its words may quote what nobody may see
            if not answer.started:
                _log.error("a request failed: %s", type(error).__name__)
                await _FAULT.response()(scope, receive, answer)

    async def _socket(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        no = self._refusal(scope)
        cookie = self._login.cookie_of(scope)
        if no is None and self.sockets.full:
            no = _TOO_MANY
        if no is not None or cookie is None:
            await (no or _NOT_LOGGED_IN).response()(scope, receive, answer)
            return
        try:
            await self.sockets.serve(self._app, cookie, scope, receive, answer)
        except Exception as error:
            from golem_forge.ui.web.sdk import WebSocketDisconnect

            if not isinstance(error, (OSError, WebSocketDisconnect)):  # both say: the page left
                _log.error("a socket failed: %s", type(error).__name__)
            if not answer.started:
                await _FAULT.response()(scope, receive, answer)

    def _refusal(self, scope: Scope) -> _No | None:
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return _NOT_OUR_HOST
        if not scope["path"].startswith("/"):  # a whole URL: whose it is counts more than the Host beside it
            whose = scope["path"].partition("://")[2].partition("/")[0]
            return _NO_PATH if not whose or whose in self._hosts else _NOT_OUR_HOST
        if any(len(_values(scope, name)) > 1 for name in _ONCE):
            return _TWICE
        if _values(scope, b"transfer-encoding") and _values(scope, b"content-length"):
            return _TWO_LENGTHS
        origins, sites = _values(scope, b"origin"), _values(scope, b"sec-fetch-site")
        if len(origins) > 1 or any(not _same_origin(origin, hosts[0]) for origin in origins):
            return _NOT_FROM_HERE
        socket = scope["type"] == "websocket"
        method = "GET" if socket else scope["method"]
        open_to_all = not socket and method in {"GET", "HEAD"} and scope["path"] in self._public
        if not open_to_all and any(site not in _FROM_HERE for site in sites):
            return _NOT_FROM_HERE
        if open_to_all or (not socket and (method, scope["path"]) == LOGIN):
            return None
        if self._login.cookie_of(scope) is None:
            return _NOT_LOGGED_IN
        proven = bool(origins) or (not socket and "same-origin" in sites)
        return None if proven or (method in _CHANGES_NOTHING and not socket) else _NOT_FROM_HERE

    def _too_large(self, scope: Scope) -> bool:
        from golem_forge.ui.web.sdk import Match

        large = _declared_size(scope) > MOST_BODY_BYTES
        return large and all(route.matches(scope)[0] is not Match.FULL for route in self._counts_itself)


class _Answer:
    """Puts our headers on whatever is answered, and knows whether something was."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] in {"http.response.start", "websocket.http.response.start", "websocket.accept"}:
            self.started = True
            message = {**message, "headers": with_headers(message.get("headers", ()))}
        elif message["type"] == "websocket.close":
            self.started = True
        await self._send(message)


def _same_origin(origin: str, host: str) -> bool:
    """https too: a proxy in front of us may speak it, and only a browser that came that way says so."""
    return origin.lower() in {f"http://{host.lower()}", f"https://{host.lower()}"}


def _declared_size(scope: Scope) -> int:
    return max((int(value) for value in _values(scope, b"content-length") if value.isdigit()), default=0)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]
