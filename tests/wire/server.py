"""A local HTTP server that speaks the wire formats of Anthropic, OpenAI and Gemini. Only what the model says is written
down.

`WireServer([WireTurn(say="Hello")])` in a `with` block; each request takes the next turn and is recorded in `requests`.
The path asked for decides the format. Turns may fail with a status, be slow, or break off before their end.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from tests.deadlines import PATIENCE

from .formats import ENDING, FORMATS, WHOLE, WireCall, format_at

__all__ = ["WireCall", "WireRequest", "WireServer", "WireTurn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireTurn:
    say: str = ""
    think: str = ""
    calls: tuple[WireCall, ...] = ()
    finish: Literal["stop", "length", "refused"] = "stop"
    input: int = 100
    output: int = 10
    cached: int = 0
    reasoning: int = 0
    """Of `output`; not told by Anthropic."""
    counted: bool = True
    """False: a server that reports no usage (Chat Completions only)."""
    piece: int = 8
    """Characters of text per event."""
    pause: float = 0.0
    """Seconds before each event."""
    until: threading.Event | None = None
    """A gate: the stream stands still before its last event until the test sets it."""
    status: int = 200
    """Anything else: an error response with `headers` and `error`."""
    headers: dict[str, str] = field(default_factory=dict)
    error: str = "the wire server was told to fail"
    body: str | None = None
    """Sent with status 200 and `headers` instead of a stream of events."""
    hold: float = 0.0
    """Seconds before anything is answered."""
    cut: Literal["", "clean", "abrupt", "early"] = ""
    """Everything but the end is sent. `clean`: the HTTP response ends in order; `abrupt`: the connection is dropped;
    `early`: dropped after the first piece of the content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRequest:
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: Any


Answer = Callable[[WireRequest], WireTurn]


class WireServer:
    def __init__(self, turns: Iterable[WireTurn] | Answer = ()) -> None:
        """`turns` in order; a request beyond the last one is answered with 400. Or a function of the request."""
        self.requests: list[WireRequest] = []
        self.lists: list[WireRequest] = []
        """What asked for the list of models."""
        self.models: tuple[str, ...] = ()
        """What `GET …/models` lists."""
        self.facts: dict[str, Any] = {}
        """Path → what is answered there, besides the list of models."""
        self.key = ""
        """The only key that is taken; empty: any."""
        self.dropped = 0
        """Streams whose client went away before the end."""
        self._answer = turns if callable(turns) else None
        self._turns = [] if callable(turns) else list(turns)
        self._taken = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.wire = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> WireServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def base_url(self, provider: str) -> str:
        """What `models: {<provider>: {base_url: …}}` must say."""
        return self.url if provider in ("anthropic", "google") else f"{self.url}/v1"

    def add(self, *turns: WireTurn) -> None:
        with self._lock:
            self._turns.extend(turns)

    def take(self, request: WireRequest) -> tuple[WireTurn, int]:
        with self._lock:
            self.requests.append(request)
            number = self._taken
            self._taken += 1
            if self._answer is None and number < len(self._turns):
                return self._turns[number], number
        if self._answer is not None:
            return self._answer(request), number
        return WireTurn(status=400, error=f"the wire server has only {len(self._turns)} turns"), number

    def wait(self, seconds: float) -> bool:
        """True when the server stops meanwhile."""
        return self._stopping.wait(seconds) if seconds else self._stopping.is_set()

    def stopped_before(self, gate: threading.Event | None) -> bool:
        """True when the server stops before the test opens the gate."""
        while gate is not None and not gate.wait(0.02):
            if self._stopping.is_set():
                return True
        return False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    wire: WireServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """Or the second piece of each answer waits until the client acknowledges the first: 40 ms."""
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        wire = self.server.wire
        wire.lists.append(WireRequest(path=self.path.partition("?")[0], headers=headers, body=None))
        if not self._knows_key(headers):
            self._fail(WireTurn(status=401, error="invalid key"))
        elif (path := self.path.partition("?")[0]) in wire.facts:
            self._send(200, {"content-type": "application/json"}, json.dumps(wire.facts[path]).encode())
        elif path.endswith(("/v1/models", "/v1beta/models")):
            listed = json.dumps({"data": [{"id": name} for name in wire.models]}).encode()
            self._send(200, {"content-type": "application/json"}, listed)
        else:
            self._fail(WireTurn(status=404, error="no such path"))

    def _knows_key(self, headers: dict[str, str]) -> bool:
        sent = (
            headers.get("x-api-key")
            or headers.get("x-goog-api-key")
            or headers.get("authorization", "").removeprefix("Bearer ")
        )
        return self.server.wire.key in ("", sent)

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/"):  # Ollama's own questions: no request to a model
            self.rfile.read(int(self.headers["content-length"]))
            facts = self.server.wire.facts.get(path)
            self._send(404 if facts is None else 200, {}, json.dumps(facts).encode())
            return
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        wire = self.server.wire
        turn, number = wire.take(WireRequest(path=path, headers=headers, body=body))
        if not self._knows_key(headers):
            turn = WireTurn(status=401, error="invalid key")
        if wire.wait(turn.hold):
            self.close_connection = True
            return
        if turn.body is not None:
            self._send(200, turn.headers, turn.body.encode("latin-1"))
            return
        form = format_at(path)
        if not form:
            turn = WireTurn(status=404, error=f"no such path: {path}")
        if turn.status != 200:
            self._fail(turn)
            return
        if not (body.get("stream") or path.endswith(":streamGenerateContent")):
            self._answer_whole(form, turn, number)
            return
        try:
            self._stream(form, turn, number)
        except OSError:
            wire.dropped += 1
            self.close_connection = True

    def _answer_whole(self, form: str, turn: WireTurn, number: int) -> None:
        if form not in WHOLE:
            self._fail(WireTurn(status=400, error="only streaming requests are answered"))
            return
        self._send(200, {"content-type": "application/json"}, json.dumps(WHOLE[form](turn, number)).encode())

    def _fail(self, turn: WireTurn) -> None:
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(turn.status, "api_error")
        data = json.dumps({"type": "error", "error": {"type": kind, "message": turn.error}}).encode()
        self._send(turn.status, {**turn.headers, "content-type": "application/json"}, data)

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        with suppress(OSError):  # whoever asked may have gone away meanwhile
            self.wfile.write(data)

    def _stream(self, form: str, turn: WireTurn, number: int) -> None:
        events = FORMATS[form](turn, number)
        if turn.cut == "early":
            events = events[:4]
        elif turn.cut:
            events = events[: -ENDING[form]]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for left, (name, data) in zip(range(len(events) - 1, -1, -1), events, strict=True):
            if self.server.wire.wait(turn.pause) or (not left and self.server.wire.stopped_before(turn.until)):
                break
            text = data if isinstance(data, str) else json.dumps(data)
            self._chunk((f"event: {name}\n" if name else "") + f"data: {text}\n\n")
        if turn.cut in ("abrupt", "early"):
            self.close_connection = True
            return
        self._chunk("")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Polls; False when the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
