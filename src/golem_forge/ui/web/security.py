"""The request guard: checks every request and every WebSocket before the application does.

In this order: `Host` is ours (421); a present `Origin` is the page's own and `Sec-Fetch-Site` no other page's (403);
the cookie is known (401; only the page's files and the login go without); what changes something or opens a socket
proves that it comes from the page, by its `Origin` or by `Sec-Fetch-Site: same-origin` (403). A client that is no
browser sets `Origin` itself. Bodies over 1 MiB are refused (413) except for operations with their own limit.
Login: a code from the printed link, valid once for 5 minutes, becomes a cookie for 12 hours. Both are 256 random bits,
kept as digests in memory and compared in constant time; too many wrong codes or tokens are refused (429), a right one
never. The cookie's name has the port in it, because cookies ignore ports.
Time limits: a body has 30 s plus 1 s for every 64 KiB (408); a piece of the answer must be taken within 30 s.
WebSockets are counted (503) and closed when their login ends or the server stops. What a login sends as actions, over
sockets and requests together, is bounded by rate (`ActionLimit`).
Every answer, refusals included, carries the same security headers.
Threat: any page the person has open (CSRF, DNS rebinding, cross-site sockets, another port of this machine) and every
other user of the machine; text of a model or a tool that gets into the page as markup.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.net.server_guard import (
    AllowedHosts,
    ASGIApp,
    Headers,
    Message,
    RateLimit,
    Receive,
    RequestAbandoned,
    Scope,
    Send,
    declared_size,
    discard_body,
    find_hash,
    header_values,
    own_host,
    receive_in_time,
    secret_hash,
    send_in_time,
)
from golem_forge.ui.web.api import ApiProblem, ApiRefusal
from golem_forge.ui.web.api.operation import MAX_BODY_BYTES
from golem_forge.ui.web.sdk import BaseRoute, JSONResponse, Match, Request, Response, WebSocketDisconnect

LOGIN: Final = ("POST", "/api/login")
_SINGLE_HEADERS: Final = (b"cookie", b"content-type", b"content-length", b"sec-fetch-site", b"sec-fetch-mode")
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_MAX_DISCARDED: Final = 16 << 20
"""Maximum bytes of a refused body that are read; the connection of a larger or waiting one is cut."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GuardRefusal:
    status: int
    problem: str
    headers: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        problem = ApiProblem(problem=self.problem, fields=self.fields)
        return JSONResponse(problem.model_dump(by_alias=True), self.status, self.headers)


_NOT_OUR_HOST: Final = GuardRefusal(421, "This server does not answer for that host; --allow-host names others.")
_NOT_A_PATH: Final = GuardRefusal(400, "The target of a request must be a path.")
_DUPLICATE_HEADER: Final = GuardRefusal(400, "The request has a header twice that may appear only once.")
_TWO_LENGTHS: Final = GuardRefusal(
    400,
    "A body has a length or comes in chunks, not both.",
    {"Connection": "close"},  # where the next request begins is anybody's guess
)
NOT_LOGGED_IN: Final = GuardRefusal(
    401,
    "Open the link that Forge printed last; `/web` in the session, or `forge web link`, prints a new one.",
    {"WWW-Authenticate": 'Cookie realm="golem-forge"'},
)
_FOREIGN_ORIGIN: Final = GuardRefusal(
    403, "This request does not come from the page of this server: the header Origin must name the address of the page."
)
_TOO_LARGE: Final = GuardRefusal(413, f"A body may have {MAX_BODY_BYTES} bytes.")
_TOO_SLOW: Final = GuardRefusal(408, "The body did not arrive in time.", {"Connection": "close"})
TOO_MANY: Final = 4429
"""Close code of a socket: there are too many, or this one sends too much."""
_TOO_MANY: Final = "Too many pages are open here, also of other people. Close one of yours, then load this one again."
_TOO_MANY_OF_ONE: Final = "You have {} pages open here, and nobody may have more. Close one, then load this one again."
_FAULT: Final = GuardRefusal(500, "This did not work; the log of the process that serves this page says why.")


class RequestGuard:
    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: AllowedHosts,
        login: LoginStore,
        public: frozenset[str] = frozenset(),
        counts_itself: Sequence[BaseRoute] = (),
    ) -> None:
        """`public`: the paths of the shell page and its parts. `counts_itself`: routes with a limit of their own."""
        self.sockets = OpenSockets(login)
        self._app = app
        self._hosts = hosts
        self._login = login
        self._public = public
        self.not_logged_in = NOT_LOGGED_IN
        self._counts_itself = counts_itself

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._request(scope, receive, _GuardedSend(send_in_time(send)))
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, _GuardedSend(send))

    async def _request(self, scope: Scope, receive: Receive, answer: _GuardedSend) -> None:
        try:
            refusal = self._refusal(scope) or (_TOO_LARGE if self._too_large(scope) else None)
            if refusal is None:
                await self._app(scope, receive_in_time(receive), answer)
                return
            response = refusal.response()
            if declared_size(scope) > _MAX_DISCARDED or header_values(scope, b"expect"):
                response.headers["connection"] = "close"
            else:
                await discard_body(receive, _MAX_DISCARDED)
            await response(scope, receive, answer)
        except RequestAbandoned as abandoned:
            if abandoned.slow and not answer.started:
                await _TOO_SLOW.response()(scope, receive, answer)
        except Exception as error:  # its words may quote what nobody may see
            if not answer.started:
                _log.error("a request failed: %s", type(error).__name__)
                await _FAULT.response()(scope, receive, answer)

    async def _socket(self, scope: Scope, receive: Receive, answer: _GuardedSend) -> None:
        refusal, cookie = self._refusal(scope), self._login.cookie_of(scope)
        if refusal is not None or cookie is None:
            await (refusal or self.not_logged_in).response()(scope, receive, answer)
            return
        if reason := self.sockets.full_for(cookie):
            await _refuse_socket(reason, receive, answer)
            return
        try:
            await self.sockets.serve(self._app, cookie, scope, receive, answer)
        except Exception as error:
            if not isinstance(error, (OSError, WebSocketDisconnect)):  # both say: the page left
                _log.error("a socket failed: %s", type(error).__name__)
            if not answer.started:
                await _FAULT.response()(scope, receive, answer)

    def _refusal(self, scope: Scope) -> GuardRefusal | None:
        host = own_host(scope, self._hosts)
        if host is None:
            return _NOT_OUR_HOST
        if not scope["path"].startswith("/"):  # a whole URL: whose it is counts more than the Host beside it
            whose = scope["path"].partition("://")[2].partition("/")[0]
            return _NOT_A_PATH if not whose or whose in self._hosts else _NOT_OUR_HOST
        if any(len(header_values(scope, name)) > 1 for name in _SINGLE_HEADERS):
            return _DUPLICATE_HEADER
        if header_values(scope, b"transfer-encoding") and header_values(scope, b"content-length"):
            return _TWO_LENGTHS
        origins, sites = header_values(scope, b"origin"), header_values(scope, b"sec-fetch-site")
        # https too: a proxy in front of us may speak it, and only a browser that came that way says so.
        own_origins = {f"http://{host.lower()}", f"https://{host.lower()}"}
        if len(origins) > 1 or any(origin.lower() not in own_origins for origin in origins):
            return _FOREIGN_ORIGIN
        socket = scope["type"] == "websocket"
        method = "GET" if socket else scope["method"]
        open_to_all = not socket and method in {"GET", "HEAD"} and scope["path"] in self._public
        if not open_to_all and any(site not in _OWN_SITES for site in sites):
            return _FOREIGN_ORIGIN
        if open_to_all:
            return None
        if (method, scope["path"]) != LOGIN and self._login.cookie_of(scope) is None:
            return self.not_logged_in
        proven = bool(origins) or (not socket and "same-origin" in sites) or self._login.proves_itself(scope)
        return None if proven or (method in _SAFE_METHODS and not socket) else _FOREIGN_ORIGIN

    def _too_large(self, scope: Scope) -> bool:
        large = declared_size(scope) > MAX_BODY_BYTES
        return large and all(route.matches(scope)[0] is not Match.FULL for route in self._counts_itself)


class _GuardedSend:
    """Adds the security headers to every answer, and knows whether one was started."""

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


CODE_SECONDS: Final = 300.0
COOKIE_SECONDS: Final = 43_200
_MAX_CODES: Final = 32
_MAX_COOKIES: Final = 256
_MAX_FAILURES: Final = 20
_FAILURE_SECONDS: Final = 60.0
_MAX_SECRET: Final = 200
_MAX_SAME_NAMED: Final = 8
_TOO_MANY_CODES: Final = "Too many wrong codes; wait a minute, then open the link that Forge printed last."

LogoutCallback = Callable[[], object]

_ACTIONS_AT_ONCE: Final = 300
"""More than the 200 messages that wait in a page while the server is away."""
_ACTIONS_PER_SECOND: Final = 30
_BYTES_AT_ONCE: Final = 4 << 20
_BYTES_PER_SECOND: Final = 1 << 18
TOO_MUCH_AT_ONCE: Final = "Too much was sent at once: this was not done. Wait a second, then send it again."


class ActionLimit:
    """Rate limit of one login for messages to sessions: a few a second, and now and then a large one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._messages = RateLimit(_ACTIONS_AT_ONCE, _ACTIONS_PER_SECOND, clock)
        self._bytes = RateLimit(_BYTES_AT_ONCE, _BYTES_PER_SECOND, clock)

    def take(self, size: int) -> bool:
        """One message of so many bytes. False: it must not be acted upon."""
        few, short = self._messages.take(), self._bytes.take(size)
        return few and short

    @property
    def exhausted(self) -> bool:
        """Whether the client goes on although it was refused."""
        return self._messages.exhausted or self._bytes.exhausted


@dataclass(slots=True, kw_only=True)
class _Login:
    until: float
    actions: ActionLimit
    token_hash: str = ""
    """Hash of the person's token; empty where there are no people."""
    watching: dict[LogoutCallback, None] = field(default_factory=dict)


class LoginStore:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, float] = {}
        """Hash → until when."""
        self._logins: dict[str, _Login] = {}
        """By the hash of the cookie."""
        self._failures: dict[str, deque[float]] = {}

    def new_code(self) -> str:
        code = secrets.token_urlsafe(32)
        self._codes[secret_hash(code)] = self._clock() + CODE_SECONDS
        if len(self._codes) > _MAX_CODES:
            del self._codes[next(iter(self._codes))]
        return code

    def exchange(self, code: str) -> str | None:
        """The cookie for a code, which is used up; None for a wrong one. Refused: too many of those."""
        now = self._clock()
        known = _find(self._codes, code)
        if known is not None and self._codes.pop(known) > now:
            return self._enter(secrets.token_urlsafe(32))
        self._count_failure()
        return None

    def _enter(self, cookie: str, token_hash: str = "", seconds: float = COOKIE_SECONDS) -> str:
        self._add(secret_hash(cookie), token_hash, min(seconds, COOKIE_SECONDS))
        return cookie

    def _add(self, cookie_hash: str, token_hash: str, seconds: float) -> None:
        until = self._clock() + seconds
        self._logins[cookie_hash] = _Login(until=until, actions=ActionLimit(self._clock), token_hash=token_hash)
        if len(self._logins) > _MAX_COOKIES:
            self._end(next(iter(self._logins)))

    def _count_failure(self, whose: str = "", problem: str = _TOO_MANY_CODES) -> None:
        """`whose`: of each person they are counted apart."""
        now, failures = self._clock(), self._failures.setdefault(whose, deque(maxlen=_MAX_FAILURES))
        if len(failures) == _MAX_FAILURES and now - failures[0] < _FAILURE_SECONDS:
            raise ApiRefusal(429, problem)
        failures.append(now)

    def knows(self, cookie: str) -> bool:
        return self.seconds_left(cookie) > 0

    def token_hash_of(self, cookie: str) -> str:
        """Returns the token hash of the person behind a login; empty where there are no people."""
        found = self._logins.get(secret_hash(cookie))
        return found.token_hash if found is not None else ""

    def seconds_left(self, cookie: str) -> float:
        """Returns the seconds until the cookie expires; 0 if it is unknown."""
        found = _find(self._logins, cookie)
        return max(self._logins[found].until - self._clock(), 0.0) if found is not None else 0.0

    def forget(self, cookie: str) -> None:
        if (found := _find(self._logins, cookie)) is not None:
            self._end(found)

    def when_forgotten(self, cookie: str, then: LogoutCallback) -> LogoutCallback:
        """`then` is called when the cookie, which must be known, is forgotten before its time. Gives what ends that."""
        watching = self._logins[secret_hash(cookie)].watching
        watching[then] = None
        return lambda: watching.pop(then, None)

    def cookie_of(self, scope: Scope) -> str | None:
        """The known cookie that came with a request.

        Another server on this machine may have planted one of the same name, which comes first if its path is longer:
        so all of them count.
        """
        name = cookie_name(scope)
        given = header_values(scope, b"cookie")
        pairs = (pair.strip().partition("=") for pair in given[0].split(";")) if len(given) == 1 else ()
        values = [value.strip('"') for key, _, value in pairs if key == name]
        return next((value for value in values[:_MAX_SAME_NAMED] if self.knows(value)), None)

    def proves_itself(self, scope: Scope) -> bool:
        """Whether the request carries a secret that no browser sends by itself: then no page of another can be it."""
        return False

    def actions_of(self, scope: Scope) -> ActionLimit:
        """Returns the rate limit for the sender of this request; a new one without a login."""
        cookie = self.cookie_of(scope)
        return self._logins[secret_hash(cookie)].actions if cookie is not None else ActionLimit(self._clock)

    def set_cookie(self, request: Request, answer: Response, cookie: str, *, secure: bool = False) -> None:
        # Only the browser itself says truthfully by which scheme it came; X-Forwarded-Proto anybody can write.
        secure = secure or request.headers.get("origin", "").startswith("https://")
        kept = _cookie_header(request, cookie, COOKIE_SECONDS)
        answer.headers.append("set-cookie", kept + ("; Secure" if secure else ""))

    def drop_cookie(self, request: Request, answer: Response) -> None:
        if (cookie := self.cookie_of(request.scope)) is not None:
            self.forget(cookie)
        answer.headers.append("set-cookie", _cookie_header(request, "", 0))

    def _end(self, cookie_hash: str) -> None:
        for then in list(self._logins.pop(cookie_hash).watching):
            then()


def cookie_name(scope: Scope) -> str:
    server = scope.get("server")
    return f"forge_{server[1] if server else 0}"


def _cookie_header(request: Request, value: str, seconds: int) -> str:
    return f"{cookie_name(request.scope)}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict"


def _find(known: Iterable[str], secret: str) -> str | None:
    return find_hash(known, secret) if 0 < len(secret) <= _MAX_SECRET else None


MAX_SOCKETS: Final = 128
MAX_OF_PERSON: Final = 16
"""Maximum sockets of one person of a team. Threat: whoever opens all of them closes the page for everybody else."""
GOING_AWAY: Final = 1001
LOGGED_OUT: Final = 4401
_GOODBYE_SECONDS: Final = 0.2


class SocketClose(NamedTuple):
    code: int
    reason: str


class OpenSockets:
    def __init__(self, login: LoginStore) -> None:
        self._login = login
        self._open: dict[asyncio.Future[SocketClose], str] = {}
        """With the hash of their person's token."""
        self._none_left = asyncio.Event()
        self._none_left.set()

    def full_for(self, cookie: str) -> str:
        """Why one more is not for this person; empty: there is room."""
        person = self._login.token_hash_of(cookie)
        if person and sum(each == person for each in self._open.values()) >= MAX_OF_PERSON:
            return _TOO_MANY_OF_ONE.format(MAX_OF_PERSON)
        return _TOO_MANY if len(self._open) >= MAX_SOCKETS else ""

    async def serve(self, app: ASGIApp, cookie: str, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[SocketClose] = loop.create_future()

        def log_out() -> None:
            _end(ended, LOGGED_OUT, "Logged out.")

        too_old = loop.call_later(self._login.seconds_left(cookie), log_out)
        unwatch = self._login.when_forgotten(cookie, log_out)
        self._open[ended] = self._login.token_hash_of(cookie)
        self._none_left.clear()
        try:
            await _serve_until_closed(app, scope, receive, send, ended)
        finally:
            too_old.cancel()
            unwatch()
            del self._open[ended]
            if not self._open:
                self._none_left.set()

    async def end_all(self, reason: str, within: float) -> None:
        """Says goodbye to every page, and waits until they are closed or the time is up."""
        for ended in list(self._open):
            _end(ended, GOING_AWAY, reason)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._none_left.wait()


async def _refuse_socket(reason: str, receive: Receive, send: Send) -> None:
    """Opens it to say why: a page cannot read the answer to a handshake that fails."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": json.dumps({"kind": "bye", "reason": reason})})
    await send({"type": "websocket.close", "code": TOO_MANY})


async def _serve_until_closed(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, ended: asyncio.Future[SocketClose]
) -> None:
    accepted = False

    async def noting(message: Message) -> None:
        nonlocal accepted
        if ended.done():
            raise OSError("this socket is closed")  # what starlette takes for a page that left
        await send(message)
        accepted = accepted or message["type"] == "websocket.accept"

    serving: asyncio.Future[Any] = asyncio.ensure_future(app(scope, receive, noting))
    either: set[asyncio.Future[Any]] = {serving, ended}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            if accepted:
                closing = ended.result()
                bye = json.dumps({"kind": "bye", "reason": closing.reason})
                with contextlib.suppress(OSError, RuntimeError):  # a TimeoutError is an OSError: the page does not read
                    async with asyncio.timeout(_GOODBYE_SECONDS):
                        await send({"type": "websocket.send", "text": bye})
                        await send({"type": "websocket.close", "code": closing.code, "reason": closing.reason})
            await asyncio.wait({serving}, timeout=_GOODBYE_SECONDS)  # it hears of the closing as of any other
    finally:
        serving.cancel()
        await asyncio.wait({serving})
    if not serving.cancelled():
        serving.result()


def _end(ended: asyncio.Future[SocketClose], code: int, reason: str) -> None:
    if not ended.done():
        ended.set_result(SocketClose(code, reason))


CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Headers] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_OWN_NAMES: Final = frozenset(name for name, _ in HEADERS) | {b"server"}


def with_headers(given: Headers) -> list[tuple[bytes, bytes]]:
    """Adds the security headers, in place of those that the answer itself has."""
    return [*((name, value) for name, value in given if name.lower() not in _OWN_NAMES), *HEADERS]
