"""How much the built-in worker's first request carries, before anybody has said a word: system prompt and tools.

A local server takes the request of a whole `forge run` as it stands on the wire and refuses it; nothing is made up.
Tokens are bytes divided by 3.5, which is what tokenizers of today's models make of JSON and prose (cl100k: 3.46).
The request of an agent that waits for a slow local model is the time until its first word.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Pace
from benchmarks.rows import Row, below, row

MOST_TOKENS: Final = 2_500
BYTES_PER_TOKEN: Final = 3.5
_PATIENCE: Final = 120
_REFUSAL: Final = b'{"error": {"message": "only measured"}}'


async def rows(pace: Pace) -> list[Row]:
    body = first_request()
    parts = {"tools": body["tools"], "system prompt": [each for each in body["messages"] if each["role"] == "system"]}
    return [
        row("first request of the built-in worker (tokens)", tokens(body), goal=below(MOST_TOKENS)),
        *(row(f"of it: {name} (tokens)", tokens(part)) for name, part in parts.items()),
        row("tools in it", len(body["tools"])),
    ]


def tokens(part: Any) -> float:
    return len(json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode()) / BYTES_PER_TOKEN


def first_request() -> dict[str, Any]:
    """Every tool is offered: nothing is left out because nobody is there to ask."""
    with _Recorder() as server, tempfile.TemporaryDirectory() as folder:
        home, project = Path(folder, "home"), Path(folder, "project")
        home.mkdir()
        project.mkdir()
        address = f"http://127.0.0.1:{server.server_address[1]}/v1"
        (home / "config.yaml").write_text(f"models: {{openai-compatible: {{base_url: '{address}'}}}}\n")
        words = ("run", "--headless", "-a", "approve_all", "-m", "openai-compatible:any", "hello")
        subprocess.run(
            [str(Path(sys.executable).with_name("forge")), *words],
            cwd=project,
            env={**os.environ, "HOME": folder, "FORGE_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,  # the server refused its request
        )
        [body] = server.bodies
        return body


class _Recorder(HTTPServer):
    """Keeps what it is sent and answers 400, which nobody tries again."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []

    def __enter__(self) -> _Recorder:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: _Recorder

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(400)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(_REFUSAL)))
        self.end_headers()
        self.wfile.write(_REFUSAL)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""
