"""One GET over one connection: HTTP/1.1 spoken by hand, because every byte of it must be bounded.

Takes the checked addresses of a host, gives status, headers and a reader for the body. Sends no cookie, no
credential, no referrer, and asks no proxy. Raises ToolFailed for a server that cannot be reached or understood.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from golem_forge._version import __version__
from golem_forge.core.errors import ToolFailed
from golem_forge.toolsets.web.address import WebAddress
from golem_forge.toolsets.web.body import ACCEPTED

if TYPE_CHECKING:
    from asyncio import StreamReader
    from ssl import SSLContext

MAX_HEADERS: Final = 1 << 16
_STATUS_LINE: Final = re.compile(r"HTTP/1\.[0-9] ([1-5][0-9]{2})( .*)?")
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:(.*)")
_ONE_VALUE: Final = frozenset({"content-type", "location"})
_ACCEPT: Final = (
    "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, application/xml;q=0.9, */*;q=0.1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    reader: StreamReader


@asynccontextmanager
async def get(address: WebAddress, addresses: Sequence[str]) -> AsyncIterator[Answer]:
    import ssl

    from golem_forge.sandbox.network.resolve import connect

    tls = await _tls() if address.scheme == "https" else None
    try:
        reader, writer = await connect(addresses, address.port, tls=tls, name=address.host, limit=MAX_HEADERS)
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message or "it does not verify"
        raise ToolFailed(f"The certificate of '{address.host}' is not trusted: {why}.", code="TLS_FAILED") from None
    except ssl.SSLError:
        text = f"'{address.target}' does not speak TLS in a way that is safe to use."
        raise ToolFailed(text, code="TLS_FAILED") from None
    except OSError:
        raise ToolFailed(f"Could not connect to '{address.target}'.", code="CONNECT_FAILED") from None
    try:
        writer.write(_request(address))
        status, headers = await _read_head(reader)
        yield Answer(status=status, headers=headers, reader=reader)
    except OSError:
        raise ToolFailed(f"The connection to '{address.target}' broke off.", code="CONNECT_FAILED") from None
    finally:
        writer.transport.abort()  # nothing more is wanted, and a slow farewell would keep the call waiting


async def _tls() -> SSLContext:
    """The system's certificates, read off the loop: there are many."""
    import ssl

    from golem_forge.sandbox.network.off_loop import off_the_loop

    context = await off_the_loop(ssl.create_default_context)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _request(address: WebAddress) -> bytes:
    lines = [
        f"GET {address.resource} HTTP/1.1",
        f"Host: {address.authority}",
        f"User-Agent: golem-forge/{__version__}",
        f"Accept: {_ACCEPT}",
        f"Accept-Encoding: {ACCEPTED}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _read_head(reader: StreamReader) -> tuple[int, dict[str, str]]:
    """The final answer's; interim ones (1xx) are passed over, and count towards the same bound."""
    room = MAX_HEADERS
    while True:
        lines: list[str] = []
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                line = b"x" * (MAX_HEADERS + 1)
            room -= len(line)
            if room < 0:
                raise ToolFailed(f"The server sent more than {MAX_HEADERS} bytes of headers.")
            if not line.endswith(b"\n"):
                raise ToolFailed("The server closed the connection without an answer.")
            text = line.rstrip(b"\r\n").decode("latin-1")
            if not text:
                break
            lines.append(text)
        found = _STATUS_LINE.fullmatch(lines[0]) if lines else None
        if found is None:
            raise ToolFailed("The server does not answer in HTTP/1.")
        status = int(found[1])
        if status == 101 or status >= 200:
            return status, _headers(lines[1:])


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            continue  # a folded or broken line says nothing that is needed
        name, value = found[1].lower(), found[2].strip()
        if name not in headers:
            headers[name] = value
        elif name not in _ONE_VALUE:
            headers[name] += f", {value}"
    return headers
