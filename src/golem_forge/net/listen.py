"""Where a server listens, and which `Host` headers it accepts. Shared by the web page and the MCP server.

`check_bind` refuses an address that needs a name; `bind_socket` gives a listening socket or raises ForgeError with the
reason; `AllowedHosts` knows the `Host` headers that mean this server.
Threats: DNS rebinding (a web page's own name that suddenly points to this machine), and an address that other machines
can reach although nobody asked for that.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.regex import regex

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_HOST: Final = regex(r"(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_LONGEST_HOST: Final = 255


class AllowedHosts:
    """Which `Host` headers mean this server: the loopback names with its port, and those that somebody allowed."""

    def __init__(self, port: int, more: Iterable[str] = ()) -> None:
        self._exact = {f"{host}:{port}" for host in _LOOPBACK}
        if port == 80:
            self._exact |= set(_LOOPBACK)
        self._any_port: set[str] = set()
        for host in more:
            (self._exact if has_port(host) else self._any_port).add(host.lower())

    def __contains__(self, given: str) -> bool:
        given = given.lower()
        bare = given.rpartition(":")[0] if has_port(given) else given
        return given in self._exact or bare in self._any_port


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
