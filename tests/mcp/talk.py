"""A server spoken to without Forge, line by line: what it says by itself."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.deadlines import PATIENCE

BEGIN = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Talk:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.last = 0
        """The id of the last request."""

    def say(self, method: str, **more: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self, ident: int) -> dict[str, Any]:
        """The result of that request; whatever else comes before it is passed over."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict) and message.get("id") == ident and message.get("jsonrpc") == "2.0":
                    return dict(message["result"])
        raise AssertionError("it ended")

    def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        self.last += 1
        self.say(method, id=self.last, params=params or {})
        return self.answer(self.last)

    def call(self, name: str, args: Any = None) -> dict[str, Any]:
        return self.ask("tools/call", {"name": name, "arguments": args or {}})


@contextlib.contextmanager
def talking(argv: Sequence[str | Path]) -> Iterator[Talk]:
    """With a server that was begun with."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    talk = Talk(process)
    try:
        talk.ask("initialize", BEGIN)
        talk.say("notifications/initialized")
        yield talk
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)
