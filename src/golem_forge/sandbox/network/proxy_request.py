"""The first request of a client at the proxy: what it wants to reach, and what is sent on for it.

Takes the bytes of a request head. Gives the target for CONNECT and for absolute-form HTTP; everything else is a
BadRequest. Threat: a head that two readers understand differently, so lines that are no plain headers are refused,
and what is sent on is written anew with the host that was checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from golem_forge.sandbox.network.grants import plain_host

_REQUEST_LINE: Final = re.compile(r"([A-Z]{1,20}) ([!-~]{1,8192}) HTTP/1\.([01])")
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*)")
_AUTHORITY: Final = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,254})(?::([0-9]{1,5}))?")
_ABSOLUTE: Final = re.compile(r"(?i:http)://([^/?#@]+)([/?][^#]*)?")
_NOT_SENT_ON: Final = frozenset(
    {"host", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "upgrade"}
)


class BadRequest(Exception):
    """The text is the answer's body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRequest:
    host: str
    port: int
    forward: bytes | None
    """The head to send on; None for CONNECT, where nothing of it is."""


def read_request(head: bytes) -> ProxyRequest:
    lines = head.decode("latin-1").split("\r\n")
    found = _REQUEST_LINE.fullmatch(lines[0])
    if found is None:
        raise BadRequest("This is an HTTP proxy.")
    method, target, minor = found.groups()
    headers = _headers([line for line in lines[1:] if line])
    if method == "CONNECT":
        host, port = _authority(target, None)
        return ProxyRequest(host=host, port=port, forward=None)
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise BadRequest("Only CONNECT and http:// URLs are proxied.")
    authority, path = absolute.groups(default="")
    host, port = _authority(authority, 80)
    path = path if path.startswith("/") else f"/{path}"
    kept = [f"{name}: {value}" for name, value in headers if name.lower() not in _NOT_SENT_ON]
    # `close`: a connection that stayed open could carry a second request, for a host that nobody checked.
    shown = f"[{host}]" if ":" in host else host
    first = [f"{method} {path} HTTP/1.{minor}", f"Host: {shown}{'' if port == 80 else f':{port}'}", "Connection: close"]
    return ProxyRequest(host=host, port=port, forward="\r\n".join([*first, *kept, "", ""]).encode("latin-1"))


def _headers(lines: list[str]) -> list[tuple[str, str]]:
    headers = []
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise BadRequest("A header line is malformed.")
        headers.append((found[1], found[2]))
    return headers


def _authority(text: str, default: int | None) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    port = int(found[2]) if found and found[2] else default
    if found is None or port is None or not 0 < port < 65536:
        raise BadRequest("The target is not host:port.")
    return plain_host(found[1]), port
