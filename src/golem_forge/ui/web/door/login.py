"""Who may use the page: a code from the printed link, good once for 5 minutes, becomes a cookie for 12 hours.

Codes and cookies are 256 random bits, kept as digests in the memory of this process and compared in constant time: what
is written nowhere cannot be read, and a restart ends every login. Refuses (429) wrong codes that come in too fast; a
right one is always taken, else anybody on this machine could lock the person out by guessing.

The cookie's name has the port in it: cookies do not know about ports, and two servers on one machine must not overwrite
each other's.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from golem_forge.ui.web.wire import Refused

if TYPE_CHECKING:
    from golem_forge.ui.web.sdk import Request, Response, Scope

CODE_SECONDS: Final = 300.0
COOKIE_SECONDS: Final = 43_200
_MOST_CODES: Final = 32
_MOST_COOKIES: Final = 256
_MOST_FAILURES: Final = 20
_FAILURE_SECONDS: Final = 60.0
_LONGEST: Final = 200
_MOST_SAME_NAMED: Final = 8
_TOO_OFTEN: Final = "Too many wrong codes; wait a minute, then open the link that was printed last."

Then = Callable[[], None]


class Login:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[bytes, float] = {}
        self._cookies: dict[bytes, float] = {}
        """Digest → until when."""
        self._failures: deque[float] = deque(maxlen=_MOST_FAILURES)
        self._watching: dict[bytes, list[Then]] = {}

    def new_code(self) -> str:
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = self._clock() + CODE_SECONDS
        _keep_latest(self._codes, _MOST_CODES)
        return code

    def exchange(self, code: str) -> str | None:
        """The cookie for a code, which is used up; None for a wrong one. Refused: too many of those."""
        now = self._clock()
        found = _found(self._codes, code)
        if found is not None and self._codes.pop(found) > now:
            cookie = secrets.token_urlsafe(32)
            self._cookies[_digest(cookie)] = now + COOKIE_SECONDS
            for gone in _keep_latest(self._cookies, _MOST_COOKIES):
                self._over(gone)
            return cookie
        if len(self._failures) == _MOST_FAILURES and now - self._failures[0] < _FAILURE_SECONDS:
            raise Refused(429, _TOO_OFTEN)
        self._failures.append(now)
        return None

    def knows(self, cookie: str) -> bool:
        return self.seconds_left(cookie) > 0

    def seconds_left(self, cookie: str) -> float:
        """Until the cookie is worth nothing; 0: it is not known."""
        found = _found(self._cookies, cookie)
        return max(self._cookies[found] - self._clock(), 0.0) if found is not None else 0.0

    def forget(self, cookie: str) -> None:
        found = _found(self._cookies, cookie)
        if found is not None:
            del self._cookies[found]
            self._over(found)

    def when_forgotten(self, cookie: str, then: Then) -> Then:
        """`then` is called when the cookie is forgotten before its time. Gives what ends that."""
        digest = _digest(cookie)
        watching = self._watching.setdefault(digest, [])
        watching.append(then)

        def stop() -> None:
            if then in watching:
                watching.remove(then)
            if not watching:
                self._watching.pop(digest, None)

        return stop

    def cookie_of(self, scope: Scope) -> str | None:
        """The known cookie that came with a request.

        Another server on this machine may have planted one of the same name, which comes first if its path is longer:
        so all of them count.
        """
        name = cookie_name(scope)
        given = [value.decode("latin-1") for key, value in scope["headers"] if key == b"cookie"]
        pairs = (pair.strip().partition("=") for pair in given[0].split(";")) if len(given) == 1 else ()
        values = [value.strip('"') for key, _, value in pairs if key == name]
        return next((value for value in values[:_MOST_SAME_NAMED] if self.knows(value)), None)

    def set_cookie(self, request: Request, answer: Response, cookie: str) -> None:
        # Only the browser itself says truthfully by which scheme it came; X-Forwarded-Proto anybody can write.
        secure = "; Secure" if request.headers.get("origin", "").startswith("https://") else ""
        answer.headers.append("set-cookie", _cookie(request, cookie, COOKIE_SECONDS) + secure)

    def drop_cookie(self, request: Request, answer: Response) -> None:
        if (cookie := self.cookie_of(request.scope)) is not None:
            self.forget(cookie)
        answer.headers.append("set-cookie", _cookie(request, "", 0))

    def _over(self, digest: bytes) -> None:
        for then in self._watching.pop(digest, ()):
            then()


def cookie_name(scope: Scope) -> str:
    server = scope.get("server")
    return f"forge_{server[1] if server else 0}"


def _cookie(request: Request, value: str, seconds: int) -> str:
    return f"{cookie_name(request.scope)}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict"


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _found(known: dict[bytes, float], secret: str) -> bytes | None:
    """Looks at all of them, whichever it is."""
    if not 0 < len(secret) <= _LONGEST:
        return None
    digest = _digest(secret)
    found = None
    for each in known:
        if hmac.compare_digest(each, digest):
            found = each
    return found


def _keep_latest(known: dict[bytes, float], most: int) -> list[bytes]:
    gone = list(known)[: max(len(known) - most, 0)]
    for each in gone:
        del known[each]
    return gone
