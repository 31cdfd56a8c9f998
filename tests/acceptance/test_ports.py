"""A server in one call, its client in the next; the person's browser, a database of the host, and who gets there."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.session import entry_session
from golem_forge.core.decisions import Status

SERVER = """\
import http.server, sys

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = sys.argv[2].encode() + b" " + self.path.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page)
print("listening", flush=True)
server.serve_forever()
"""
CLIENT = "import urllib.request as r, sys; print(r.urlopen(sys.argv[1], timeout=20).read().decode())"


@pytest.fixture
def project(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "server.py").write_text(SERVER)
    (root / "client.py").write_text(CLIENT)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
async def session(project: Path) -> AsyncIterator[Any]:
    async with entry_session(project, approval="approve_all") as opened:
        yield opened


async def serve(session: Any, port: int, says: str = "hello", **more: Any) -> str:
    """Returns what the call said; the server listens then."""
    outcome = await session.call(
        "exec_command", {"cmd": f"python3 server.py {port} {says}", "yield_time_ms": 0, **more}
    )
    assert outcome.status is Status.SUCCESS, outcome.error
    text = first = outcome.result.text
    number = outcome.result.value["session_id"]
    while "listening" not in text:
        read = await session.call("write_stdin", {"session_id": number, "yield_time_ms": 50})
        text = read.result.text
        assert "Running" in text, text
    return first


async def fetch(session: Any, url: str, **more: Any) -> str:
    outcome = await session.call("exec_command", {"cmd": f"python3 client.py {url}", "yield_time_ms": 30_000, **more})
    return outcome.result.value["output"]


async def test_a_server_of_one_call_answers_the_next(session: Any) -> None:
    await serve(session, 3000)
    assert await fetch(session, "http://127.0.0.1:3000/a") == "hello /a\n"
    assert await fetch(session, "http://localhost:3000/b") == "hello /b\n"
    by_program = await session.call("shell", {"command": "python3 client.py http://127.0.0.1:3000/c"})
    assert by_program.result.value["stdout"] == "hello /c\n"


async def test_nobody_on_the_host_reaches_it(session: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    await serve(session, port)
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=20):
        pass


async def test_two_sessions_have_the_same_port_each(session: Any, project: Path) -> None:
    await serve(session, 3000, "first")
    async with entry_session(project, approval="approve_all") as other:
        assert "refused" in await fetch(other, "http://127.0.0.1:3000/")
        await serve(other, 3000, "second")
        assert await fetch(other, "http://127.0.0.1:3000/") == "second /\n"
        assert await fetch(session, "http://127.0.0.1:3000/") == "first /\n"
