"""Git repositories behind a real https address of this machine, for tests; with a login, who has it may push."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.deadlines import PATIENCE


@contextmanager
def git_server(root: Path, login: str = "", moved_to: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """`https://127.0.0.1:PORT` over the repositories below `root`, and the environment in which it is believed.
    `login`: `user:password`; without it nobody may push. `moved_to`: every request is sent on to this address."""
    certificate = root / "certificate.pem"
    certificate.write_bytes(_key_and_certificate())
    others = root / "no other certificates"
    others.mkdir(exist_ok=True)
    server = _Server(("127.0.0.1", 0), _backend(root, login, moved_to))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    # Each thread shakes hands for itself: a client that stands still holds up nobody else, nor the end.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        # Else git's curl reads all certificates of the system, too, each time it starts: most of what it does.
        believed = {"GIT_SSL_CAINFO": str(certificate), "GIT_SSL_CAPATH": str(others)}
        yield f"https://127.0.0.1:{server.server_port}", {**believed, "NO_PROXY": "*"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@cache
def _key_and_certificate() -> bytes:
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    command = ["openssl", *request.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "-", "-out", "-"]
    return subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE).stdout


class _Server(ThreadingHTTPServer):
    """Has no name: for `localhost`, curl tries ::1 first, where somebody else may listen on the same port."""

    def handle_error(self, request: object, client_address: object) -> None:
        """A client does not believe the certificate, or was ended."""


def _backend(root: Path, login: str, moved_to: str) -> type[GitBackend]:
    return type("Backend", (GitBackend,), {"root": str(root), "login": login, "moved_to": moved_to})


class GitBackend(BaseHTTPRequestHandler):
    """git's own http-backend."""

    root = ""
    login = ""
    moved_to = ""

    def do_GET(self) -> None:
        if self.moved_to:
            self.send_response(301)
            self.send_header("Location", f"{self.moved_to}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        wanted = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.login and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": self.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            **({"REMOTE_USER": self.login.partition(":")[0]} if self.login else {}),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        given = subprocess.run(["git", "http-backend"], env=environ, input=body, capture_output=True, timeout=PATIENCE)
        head, _, content = given.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in {**fields, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass
