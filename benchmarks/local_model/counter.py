"""A relay between an agent and the model's server, which counts requests and what they carry.

Every agent is counted the same way, by what it sends: bytes divided by 3.5, as `benchmarks.wire` does. Answers go
through as they come; no agent gets more tokens for one than another, because a small model may never end by itself.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from benchmarks.wire import BYTES_PER_TOKEN

_PASSED_ON = ("content-type", "authorization", "accept")
_PIECE = 1 << 14
_PATIENCE = 900


class Counter(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, server: str, most_output: int) -> None:
        """`server`: the address of the model's server, `http://127.0.0.1:8080/v1`. `most_output`: tokens of one
        answer."""
        super().__init__(("127.0.0.1", 0), _Relay)
        self.most_output = most_output
        self.upstream = urlsplit(server)
        self.requests = 0
        self.bytes = 0
        self.exchange: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_address[1]}{self.upstream.path}"

    def __enter__(self) -> Counter:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def tokens(self) -> float:
        return self.bytes / BYTES_PER_TOKEN


class _Relay(BaseHTTPRequestHandler):
    server: Counter

    def do_GET(self) -> None:
        self._relay(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests += 1
        self.server.bytes += len(body)
        self.server.exchange.append(f"SENT {body.decode()}")
        asked = {key: value for key, value in json.loads(body).items() if key != "max_completion_tokens"}
        self._relay(json.dumps(asked | {"max_tokens": self.server.most_output}).encode())

    def _relay(self, body: bytes) -> None:
        upstream = self.server.upstream
        assert upstream.hostname is not None
        connection = http.client.HTTPConnection(upstream.hostname, upstream.port, timeout=_PATIENCE)
        try:
            headers = {name: value for name in _PASSED_ON if (value := self.headers.get(name))}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            got = bytearray()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client has ended its request
                self.send_response(answer.status)
                self.send_header("content-type", answer.getheader("content-type") or "application/json")
                self.send_header("connection", "close")
                self.end_headers()
                while piece := answer.read1(_PIECE):
                    got += piece
                    self.wfile.write(piece)
                    self.wfile.flush()
            self.server.exchange.append(f"GOT {got.decode(errors='replace')}")
        finally:
            connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""
