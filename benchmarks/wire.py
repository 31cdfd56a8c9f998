"""How much the built-in worker's first request carries, before anybody has said a word: system prompt and tools.

A local server takes the request of a whole `forge run` as it stands on the wire and refuses it; nothing is made up.
The same word goes to `llm`, which has no tools of its own, and to the agents codex (npm: `@openai/codex`) and opencode
(npm: `opencode-ai`), each pointed at that server; one that is not on the PATH is skipped by name.
Tokens are bytes divided by 3.5, which is what tokenizers of today's models make of JSON and prose (cl100k: 3.46).
The request of an agent that waits for a slow local model is the time until its first word.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Pace
from benchmarks.rows import Row, at_most, below, row

MOST_TOKENS: Final = 2_500
BYTES_PER_TOKEN: Final = 3.5
_PATIENCE: Final = 300
_WORD: Final = "hello"
_REFUSAL: Final = b'{"error": {"message": "only measured"}}'


async def rows(pace: Pace) -> list[Row]:
    body = first_request()
    parts = {"tools": body["tools"], "system prompt": [each for each in body["messages"] if each["role"] == "system"]}
    found = [
        row("first request of the built-in worker (tokens)", tokens(body), goal=below(MOST_TOKENS)),
        *(row(f"of it: {name} (tokens)", tokens(part)) for name, part in parts.items()),
        row("tools in it", len(body["tools"])),
    ]
    for name, (prepare, is_agent) in _PEERS.items():
        program = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}")
        try:
            sent = _requests(program, prepare) if program else []
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"skipped: {name} did not run ({type(error).__name__})", file=sys.stderr)
            continue
        if not sent:
            print(f"skipped: {name} {'sent no request' if program else 'is not on the PATH'}", file=sys.stderr)
            continue
        most = max(map(tokens, sent))  # an agent may ask for a title first, which carries little
        goal = at_most(1) if is_agent else None
        found.append(row("the same word (tokens)", tokens(body), peer=most, peer_name=name, goal=goal))
    return found


def tokens(part: Any) -> float:
    return len(json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode()) / BYTES_PER_TOKEN


Prepare = Callable[[Path, str], tuple[Sequence[str], Mapping[str, str]]]
"""(home, address of the server) → (its arguments, its environment), after it wrote what the program needs there."""


def first_request() -> dict[str, Any]:
    """Every tool is offered: nothing is left out because nobody is there to ask."""
    [body] = _requests(str(Path(sys.executable).with_name("forge")), _forge)
    return body


def _requests(program: str, prepare: Prepare) -> list[dict[str, Any]]:
    with _Recorder() as server, tempfile.TemporaryDirectory() as folder:
        home, project = Path(folder, "home"), Path(folder, "project")
        home.mkdir()
        project.mkdir()
        words, env = prepare(home, f"http://127.0.0.1:{server.server_address[1]}/v1")
        subprocess.run(
            [program, *words],
            cwd=project,
            env={**os.environ, "HOME": str(home), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,  # the server refused its request
        )
        return server.bodies


def _forge(home: Path, address: str) -> tuple[Sequence[str], Mapping[str, str]]:
    (home / "config.yaml").write_text(f"models: {{openai-compatible: {{base_url: '{address}'}}}}\n")
    words = ("run", "--headless", "-a", "approve_all", "-m", "openai-compatible:any", _WORD)
    return words, {"FORGE_HOME": str(home)}


def _llm(home: Path, address: str) -> tuple[Sequence[str], Mapping[str, str]]:
    model = f"- {{model_id: any, model_name: any, api_base: '{address}'}}\n"
    (home / "extra-openai-models.yaml").write_text(model)
    return ("prompt", "-m", "any", "--no-log", "--key", "none", _WORD), {"LLM_USER_PATH": str(home)}


def _codex(home: Path, address: str) -> tuple[Sequence[str], Mapping[str, str]]:
    provider = f'model_providers.bench={{name="bench",base_url="{address}",wire_api="responses"}}'
    settings = ("-c", 'model_provider="bench"', "-c", provider)
    return ("exec", "--skip-git-repo-check", *settings, "-m", "any", _WORD), {}


def _opencode(home: Path, address: str) -> tuple[Sequence[str], Mapping[str, str]]:
    options = {"baseURL": address, "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"any": {"name": "any"}}}
    settings = {"provider": {"bench": provider}, "small_model": "bench/any", "autoupdate": False}
    (home / "opencode.json").write_text(json.dumps(settings))
    env = {"OPENCODE_CONFIG": str(home / "opencode.json"), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return ("run", "-m", "bench/any", _WORD), env


_PEERS: Final[dict[str, tuple[Prepare, bool]]] = {
    "llm": (_llm, False),
    "codex": (_codex, True),
    "opencode": (_opencode, True),
}
"""Program → (how it is pointed at the server, whether it is an agent with tools of its own)."""


class _Recorder(ThreadingHTTPServer):
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
