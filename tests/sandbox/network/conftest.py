"""A real server on this machine's loopback, a certificate of our own, and walls with a network namespace."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE
from tests.sandbox.walls.conftest import house as house

BWRAP = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
WALLS = (  # noqa: SIM905
    "--ro-bind / / --dev /dev --proc /proc --unshare-user --disable-userns --unshare-pid --unshare-ipc --unshare-uts "
    "--unshare-net --cap-drop ALL --new-session --die-with-parent"
).split()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file with the key and the self-signed certificate of ok.test."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    file = tmp_path_factory.mktemp("tls") / "ok.pem"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ok.test"
    names = ["-addext", "subjectAltName=DNS:ok.test", "-keyout", str(file), "-out", f"{file}.crt"]
    subprocess.run(["openssl", *request.split(), *names], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    file.chmod(0o644)
    return file


class Server:
    """Answers every request with `body` and keeps the heads it was sent."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.body = b"hello from outside"
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(self.body) + self.body)
        await writer.drain()
        writer.close()


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


class Inside:
    """A command that waits inside a network namespace of its own for a line on standard input."""

    def __init__(self, process: subprocess.Popen[str], pid: int) -> None:
        self.process = process
        self.pid = pid

    async def go(self) -> str:
        """Lets the command run; everything it wrote."""
        done = await asyncio.get_running_loop().run_in_executor(None, self.process.communicate, "\n", PATIENCE)
        return done[0]


@pytest.fixture
def walls() -> list[str]:
    """The beginning of a command line that starts something in namespaces of its own."""
    if BWRAP is None:
        pytest.skip("bwrap is not installed")
    return [BWRAP, *WALLS]


@pytest.fixture
def inside(walls: list[str]) -> Iterator[Callable[..., Inside]]:
    started: list[subprocess.Popen[str]] = []

    def start(script: str, env: dict[str, str]) -> Inside:
        read, write = os.pipe()
        argv = [*walls, "--info-fd", str(write), "/bin/sh", "-c", f"echo ready; read go\n{script}"]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[write],
            env={"PATH": "/usr/bin:/bin", **env},
        )
        started.append(process)
        os.close(write)
        with os.fdopen(read) as info:
            pid = json.load(info)["child-pid"]
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return Inside(process, pid)

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None and not stream.closed:
                stream.close()
