"""The request guard of both HTTP servers: where one listens, the `Host` check, headers, secrets by digest, limits.

`check_bind` refuses an address that needs a name; `bind_socket` gives a listening socket or raises ForgeError with the
reason; `AllowedHosts` knows the `Host` headers that mean this server. Time limits: a body has 30 s plus 1 s for every
64 KiB; a piece of the answer must be taken within 30 s. `RateLimit` bounds how often something may happen.

Threats: DNS rebinding (a web page's own name that suddenly points to this machine), and an address that other machines
can reach although nobody asked for that. Whoever guesses a secret must not learn from the time that a comparison takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.regex import regex

_HOST: Final = regex(r"(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_LONGEST_HOST: Final = 255


class AllowedHosts:
    """Which `Host` headers mean this server: a loopback address or `localhost` with its port, and those that somebody
    allowed."""

    def __init__(self, port: int, more: Iterable[str] = ()) -> None:
        self._port = str(port)
        self._named = frozenset(host.lower() for host in more)

    def __contains__(self, given: str) -> bool:
        given = given.lower()
        bare, _, port = given.rpartition(":") if has_port(given) else (given, "", "80")
        return not self._named.isdisjoint((given, bare)) or (port == self._port and is_loopback(bare))


def has_port(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return bool(colon) and port.isascii() and port.isdigit() and not (":" in name and not name.endswith("]"))


def is_host(text: str) -> bool:
    """`NAME`, `NAME:PORT`, `[::1]` or `[::1]:PORT`: what a `Host` header can hold."""
    return len(text) <= _LONGEST_HOST and _HOST.fullmatch(text) is not None


def is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def url_host(host: str) -> str:
    """As it is written in a URL: an IPv6 address in brackets."""
    return f"[{host.strip('[]')}]" if ":" in host else host


def check_bind(host: str, allow_hosts: Sequence[str]) -> None:
    """Before anything listens. Raises ForgeError for an address that other machines reach, without a name for it."""
    if not is_loopback(host) and not allow_hosts:
        raise ForgeError(
            f"{host} can be reached from other machines; name the host that they use with --allow-host NAME",
            code="BIND_REFUSED",
        )


@contextlib.contextmanager
def bind_socket(host: str, port: int) -> Iterator[socket.socket]:
    """A socket at that address, closed at the end. Port 0: any free one. Raises ForgeError where it cannot be had."""
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((name, port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ForgeError(f"cannot listen at {host}:{port}: {why}", code="CANNOT_BIND") from None
        yield listener
    finally:
        listener.close()


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
