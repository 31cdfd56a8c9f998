"""Addresses: from a host name to a connection in one lookup, and which addresses are private.

`lookup` asks the system's resolver once, in a daemon thread that can be abandoned (`run_in_thread`; the number of
threads is bounded). `refuse_private` raises PrivateAddress if any answer is not a public address (`is_public`).
`connect` takes the checked addresses and never a name. Threats: DNS rebinding (a second lookup may answer
differently, so nothing after the check sees the name); a name may point to the machine itself, the local network or
a cloud's metadata service, also through IPv6 forms that carry an IPv4 address. The lists of networks are written
out here because those of Python's `ipaddress` differ between versions.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final, TypeVar

Lookup = Callable[[str, int], Awaitable[tuple[str, ...]]]


"""(host, port) → addresses as text. Raises OSError."""


_MOST_ADDRESSES: Final = 32


_TRY_SECONDS: Final = 5.0


"""Timeout of a connection attempt if another address is left to try."""


T = TypeVar("T")


MAX_THREADS: Final = 64


_slots = threading.BoundedSemaphore(MAX_THREADS)


class PrivateAddress(Exception):
    """A name leads, at least in part, to an address that is not out on the internet."""


async def lookup(host: str, port: int) -> tuple[str, ...]:
    """An address stands for itself; a name is asked for once. Raises OSError if there is nothing."""
    found = await run_in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    return addresses


def refuse_private(addresses: Sequence[str]) -> None:
    """One private answer among public ones is enough: which of them is used would be chance."""
    if not all(is_public(address) for address in addresses):
        raise PrivateAddress


async def connect(
    addresses: Sequence[str], port: int, *, tls: ssl.SSLContext | None = None, name: str = "", limit: int = 1 << 16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The first address that answers. `name` is what the certificate must be for. Raises OSError."""
    failure: OSError | None = None
    tried = addresses[:_MOST_ADDRESSES]
    for number, address in enumerate(tried, 1):
        try:
            async with asyncio.timeout(None if number == len(tried) else _TRY_SECONDS):
                return await asyncio.open_connection(
                    address, port, ssl=tls, server_hostname=name if tls else None, limit=limit
                )
        except ssl.SSLError:  # somebody is there, but not the one we want
            raise
        except OSError as error:
            failure = error
    raise failure or OSError("no address")


_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",  # unspecified, "this network"
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared with a carrier's other customers
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's host agent, in the middle of public space
        "169.254.0.0/16",  # link-local and metadata
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # former 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)


_GLOBAL_6: Final = IPv6Network("2000::/3")


_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(each)
    for each in (
        "2001::/23",  # protocol assignments; Teredo is judged before
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)


_MAPPED: Final = IPv6Network("::ffff:0:0/96")


_NAT64: Final = IPv6Network("64:ff9b::/96")


_SIX_TO_FOUR: Final = IPv6Network("2002::/16")


_TEREDO: Final = IPv6Network("2001::/32")


_ALL_ONES: Final = 0xFFFFFFFF


@lru_cache(maxsize=1024)
def is_public(address: str | IPv4Address | IPv6Address) -> bool:
    """Whether this is a global unicast address. What is no address at all is not public."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in network for network in _NOT_PUBLIC_4)
    if parsed.scope_id is not None:  # belongs to one link of this machine
        return False
    carried = _embedded_ipv4(parsed)
    if carried:
        return all(is_public(each) for each in carried)
    return parsed in _GLOBAL_6 and not any(parsed in network for network in _NOT_PUBLIC_6)


def _embedded_ipv4(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that packets to this address end up at, or pass on their way."""
    number = int(address)
    if address in _MAPPED or address in _NAT64:
        return (IPv4Address(number & _ALL_ONES),)
    if address in _SIX_TO_FOUR:
        return (IPv4Address(number >> 80 & _ALL_ONES),)
    if address in _TEREDO:  # the server, and the client with its bits turned over
        return IPv4Address(number >> 64 & _ALL_ONES), IPv4Address(~number & _ALL_ONES)
    return ()


class ThreadLimitReached(OSError):
    """Every thread waits for a call that has not come back yet."""

    stated_name = "TooBusy"


async def run_in_thread(function: Callable[[], T]) -> T:
    """Cancelling abandons the thread; its result is then dropped."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    if not _slots.acquire(blocking=False):
        raise ThreadLimitReached(f"{MAX_THREADS} lookups are waiting already")

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            with contextlib.suppress(AttributeError):  # a socket that nobody waits for any more
                value.close()
        elif error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value: Any = None
        failure: BaseException | None = None
        try:
            value = function()
        except BaseException as error:
            failure = error
        finally:
            _slots.release()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, failure)

    try:
        threading.Thread(target=work, name="forge-network", daemon=True).start()
    except RuntimeError:
        _slots.release()
        raise ThreadLimitReached("the system allows no further thread") from None
    return await future
