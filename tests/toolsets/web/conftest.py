"""A real server on this machine's loopback that misbehaves as told, and `fetch`: one webfetch call to it."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.results import ToolResult
from golem_forge.events.redaction import Redactor
from golem_forge.tools.context import HostPermission, ToolContext
from golem_forge.tools.validation import Ok
from golem_forge.toolsets.web import webfetch_tool

Speak = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Says `answers[path]` (bytes, or a coroutine function that writes) and keeps the requests it got."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | Speak] = {}
        self.requests: list[str] = []
        self.port = 0

    def page(
        self, path: str, body: bytes | str, kind: str = "text/html; charset=utf-8", status: str = "200 OK"
    ) -> None:
        data = body.encode() if isinstance(body, str) else body
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self.answers[path] = head.encode() + data

    def redirect(self, path: str, to: str, status: str = "302 Found") -> None:
        self.answers[path] = f"HTTP/1.1 {status}\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            answer = self.answers.get(head.split()[1], b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(head, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client had enough
        finally:
            writer.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key and the self-signed certificate of site.test; the certificate alone is beside it, `.crt`."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    file = tmp_path_factory.mktemp("tls") / "site.pem"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=site.test"
    names = ["-addext", "subjectAltName=DNS:site.test", "-keyout", str(file), "-out", f"{file}.crt"]
    subprocess.run(["openssl", *request.split(), *names], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with await asyncio.start_server(made.answer, "127.0.0.1", 0) as listening:
        made.port = listening.sockets[0].getsockname()[1]
        yield made


@pytest.fixture
async def tls_server(certificate: Path) -> AsyncIterator[Server]:
    made = Server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with await asyncio.start_server(made.answer, "127.0.0.1", 0, ssl=context) as listening:
        made.port = listening.sockets[0].getsockname()[1]
        yield made


class Resolver:
    """Knows some names, and who asked for which."""

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, ...]] = {"site.test": ("127.0.0.1",)}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> tuple[str, ...]:
        self.asked.append(host)
        if host not in self.names:
            raise OSError("unknown")
        return self.names[host]


@pytest.fixture
def resolver() -> Resolver:
    return Resolver()


def own_rule(*hosts: str) -> Callable[[str, int], HostPermission]:
    """As if the person's rules listed every port of these hosts from 1024 up, with `private`."""
    return lambda host, port: HostPermission(listed=host in hosts and port >= 1024, private=host in hosts)


@pytest.fixture
def fetch(resolver: Resolver, server: Server) -> Callable[..., Awaitable[ToolResult]]:
    """`fetch("/path")` gets it from the server as http://site.test, for which a rule says `private`."""

    async def made(
        url: str, *, rule: Any = None, seconds: float = 20.0, redactor: Redactor | None = None, **args: Any
    ) -> ToolResult:
        tool = webfetch_tool(lookup=resolver, seconds=seconds)
        whole = f"http://site.test:{server.port}{url}" if url.startswith("/") else url
        checked = tool.validate_input({"url": whole, **args})
        assert isinstance(checked, Ok), checked
        ctx = ToolContext(host_rule=rule or own_rule("site.test"), redactor=redactor)
        return await tool.execute(checked.data, ctx)

    return made
