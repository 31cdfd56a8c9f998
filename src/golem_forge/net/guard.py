"""What the guards of both servers share: reading headers, the `Host` check, secrets by digest, time and rate limits.

Time limits: a body has 30 s plus 1 s for every 64 KiB; a piece of the answer must be taken within 30 s.
Threat: whoever guesses a secret must not learn from the time that a comparison takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, Final

from golem_forge.net.listen import AllowedHosts

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

BODY_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 30.0
DISCARD_SECONDS: Final = 2.0
_BYTES_PER_SECOND: Final = 1 << 16


def header_values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def own_host(scope: Scope, hosts: AllowedHosts) -> str | None:
    """The one `Host` that the request names, if this server answers for it. Threat: DNS rebinding."""
    given = header_values(scope, b"host")
    return given[0] if len(given) == 1 and given[0] in hosts else None


def declared_size(scope: Scope) -> int:
    return max((int(value) for value in header_values(scope, b"content-length") if value.isdigit()), default=0)


def secret_hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find_hash(known: Iterable[str], secret: str) -> str | None:
    """The hash of this secret, if it is known. Compares with all, so that the time says nothing about which it is."""
    given = secret_hash(secret)
    found = [each for each in known if hmac.compare_digest(each, given)]
    return found[-1] if found else None


class RateLimit:
    """A token bucket: `burst` at once, `per_second` from then on. What is refused counts too, until as much again is
    owed: whoever only slows down is let in again, whoever goes on is `exhausted`."""

    def __init__(self, burst: float, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = self._left = burst
        self._per_second = per_second
        self._clock = clock
        self._at = clock()

    def take(self, amount: float = 1) -> bool:
        """False: too much."""
        now = self._clock()
        left = min(self._left + (now - self._at) * self._per_second, self._burst)
        self._at, self._left = now, max(left - amount, -self._burst)
        return left >= amount

    @property
    def exhausted(self) -> bool:
        return self._left <= -self._burst


class RequestAbandoned(BaseException):
    """This request goes no further. Not an Exception: what answers requests must not take it for a fault of its own."""

    def __init__(self, *, slow: bool) -> None:
        super().__init__()
        self.slow = slow
        """False: the client left in the middle of its own request."""


def receive_in_time(receive: Receive) -> Receive:
    """Until the body is whole; afterwards it waits for the client to leave, as long as that takes."""
    started = asyncio.get_running_loop().time()
    taken, whole = 0, False

    async def next_piece() -> Message:
        nonlocal taken, whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at(started + BODY_SECONDS + taken / _BYTES_PER_SECOND):
                message = await receive()
        except TimeoutError:
            raise RequestAbandoned(slow=True) from None
        if message["type"] == "http.disconnect":
            raise RequestAbandoned(slow=False)
        taken += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        return message

    return next_piece


async def discard_body(receive: Receive, most: int) -> None:
    """The body of a refused request: a client that still sends when it is cut off never reads why."""
    read = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while read <= most:
                message = await receive()
                read += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def send_in_time(send: Send) -> Send:
    async def piece(message: Message) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await send(message)
        except TimeoutError:
            raise RequestAbandoned(slow=True) from None

    return piece
