"""Others on the same machine and other pages in the same browser: what they can send to a server of ours.

`sent` is one request, exactly as written, on a socket of its own, and the whole answer. `other_site` is a server with a
page of somebody else: whatever it tries, it tries from a real browser.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.deadlines import PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: dict[str, str]
    """By name in small letters."""
    body: bytes


async def sent(address: str, request: str | bytes, *, within: float = PATIENCE) -> Answer:
    """`sent(stage.address, "GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n")`; `Connection: close` is up to you."""
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(request.encode("latin-1") if isinstance(request, str) else request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), within)
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = b""
        if (size := int(headers.get("content-length", "0") or 0)) and request[:4] not in ("HEAD", b"HEAD"):
            body = await asyncio.wait_for(reader.readexactly(size), within)
        return Answer(status=int(first.split(" ")[1]), headers=headers, body=body)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def request(address: str, path: str, *, method: str = "GET", body: str = "", **headers: str) -> str:
    """As one of ours unless told otherwise: `request(address, "/api/me", Host="evil.test")`; "" leaves one out."""
    given = {"Host": urlsplit(address).netloc, "Connection": "close"}
    if body:
        given |= {"Content-Type": "application/json", "Content-Length": str(len(body.encode()))}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in given.items() if value]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", body])


@dataclass(slots=True)
class OtherSite:
    port: int
    asked: list[str] = field(default_factory=list)
    """The head of every request that came here: first line and headers."""

    @property
    def address(self) -> str:
        """Of the same site as ours, though of another origin: browsers ignore ports there."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def foreign(self) -> str:
        return f"http://evil.test:{self.port}"


@contextlib.asynccontextmanager
async def other_site() -> AsyncIterator[OtherSite]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            site.asked.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            page = b"<!doctype html><title>Other</title><h1>Another page</h1>"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(page), page))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    site = OtherSite(server.sockets[0].getsockname()[1])
    try:
        yield site
    finally:
        server.close()
