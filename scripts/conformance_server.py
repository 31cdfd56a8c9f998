"""The example program, served over HTTP for the conformance suite, which cannot send a token.

`served` trusts the program and its server in a FORGE_HOME of its own, makes a token, starts `forge mcp serve --http`
and puts a doorman before it: a port that hands every request on with that token, and everything else as it came (the
host too, but for its port), so that what is tested is the real server.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FORGE = Path(sys.executable).parent / "forge"
START_S = 30.0
_HOP = frozenset({"connection", "transfer-encoding", "keep-alive"})
_REPLACED = _HOP | {"host", "authorization"}


@contextlib.contextmanager
def served(example: Path, folder: Path) -> Iterator[str]:
    program, port, door = folder / "program", free_port(), free_port()
    shutil.copytree(example, program, ignore=shutil.ignore_patterns("__pycache__"))
    environ = {**os.environ, "FORGE_HOME": str(folder / "home")}
    forge(program, environ, "trust", "--yes")
    forge(program, environ, "mcp", "approve", "fixtures", "--yes")
    token = found_token(forge(program, environ, "mcp", "token", "create", "suite"))
    origins = [word for host in ("127.0.0.1", "localhost") for word in ("--allow-origin", f"http://{host}:{door}")]
    command = [str(FORGE), "mcp", "serve", "--http", f"127.0.0.1:{port}", *origins]
    with open(folder / "served.log", "w+") as log:
        server = subprocess.Popen(command, cwd=program, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_for(port, server, log)
            with doorman(door, port, token) as url:
                yield url
        finally:
            server.terminate()
            server.wait(10)


def forge(program: Path, environ: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [FORGE, *words], cwd=program, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"forge {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def found_token(said: str) -> str:
    """The longest word is the token: it is shown once, among what to do with it."""
    words: list[str] = re.findall(r"[A-Za-z0-9_\-]{20,}", said)
    return max(words, key=len)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, server: subprocess.Popen[bytes], log: Any) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    log.seek(0)
    raise SystemExit(f"forge mcp serve did not come up:\n{log.read()[-3000:]}")


@contextlib.contextmanager
def doorman(own_port: int, port: int, token: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def hand_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            kept = [(name, value) for name, value in self.headers.items() if name.lower() not in _REPLACED]
            host = self.headers.get("Host", "")
            own = f":{own_port}"
            host = f"{host.removesuffix(own)}:{port}" if host.endswith(own) else host
            headers = dict([*kept, ("Host", host), ("Authorization", f"Bearer {token}")])
            behind = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                behind.request(self.command, self.path, body or None, headers)
                self.give_back(behind.getresponse())
            except (OSError, http.client.HTTPException):  # one of the two has gone
                self.close_connection = True
            finally:
                behind.close()

        def give_back(self, answer: http.client.HTTPResponse) -> None:
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            while piece := answer.read1(65536):  # as it comes: a stream may stay open
                self.wfile.write(piece)
                self.wfile.flush()

        do_GET = do_POST = do_DELETE = do_OPTIONS = do_PUT = do_HEAD = hand_on

        def log_message(self, format: str, *args: Any) -> None:
            return None

    door = ThreadingHTTPServer(("127.0.0.1", own_port), Handler)
    door.daemon_threads = True
    threading.Thread(target=door.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{own_port}/mcp"
    finally:
        door.shutdown()
        door.server_close()
