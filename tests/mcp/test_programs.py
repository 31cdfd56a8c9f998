"""The servers that other tests lean on do what they are there for: a hostile one that behaves would prove nothing."""

from __future__ import annotations

import ast
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
BEGIN = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
NOT_HERE = ("silent-start", "dies-start", "forks")
"""Modes that never answer the first request, and the one whose children only walls can end."""


def modes() -> list[str]:
    for node in ast.parse((PROGRAMS / "hostile.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "MODES":
            assert isinstance(node.value, ast.Dict)
            return [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
    raise AssertionError("hostile.py has no table MODES")


class Talk:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def say(self, method: str, params: Any = None, ident: int | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        message |= {} if ident is None else {"id": ident}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, ident: int) -> dict[str, Any]:
        """The answer to it; whatever else comes before that is passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict) and message.get("id") == ident and message.get("jsonrpc") == "2.0":
                    return message
        raise AssertionError("it ended")

    def ask(self, method: str, params: Any = None, ident: int = 1) -> dict[str, Any]:
        self.say(method, params, ident)
        return dict(self.answer(ident)["result"])


@contextlib.contextmanager
def program(name: str, *words: str, **environ: str) -> Iterator[Talk]:
    process = subprocess.Popen(
        [sys.executable, "-S", PROGRAMS / name, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ,
    )
    try:
        yield Talk(process)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("mode", [mode for mode in modes() if mode not in NOT_HERE])
def test_a_hostile_server_can_be_connected_to(mode: str) -> None:
    with program("hostile.py", mode, *(["1"] if mode == "flood" else [])) as server:
        assert server.ask("initialize", BEGIN, ident=7)["serverInfo"]["name"] == "hostile"


def test_the_good_one_is_good() -> None:
    with program("echo.py") as server:
        server.ask("initialize", BEGIN, ident=1)
        names = [tool["name"] for tool in server.ask("tools/list", ident=2)["tools"]]
        assert "echo" in names and "append" in names
        said = server.ask("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, ident=3)
        assert said["structuredContent"] == {"sum": 3}


def test_pages_are_all_different_and_end() -> None:
    with program("hostile.py", "pages") as server:
        names, cursor, ident = [], None, 1
        while ident == 1 or cursor:
            page = server.ask("tools/list", {"cursor": cursor} if cursor else {}, ident)
            names += [tool["name"] for tool in page["tools"]]
            cursor, ident = page.get("nextCursor"), ident + 1
    assert ident - 1 == 25
    assert len(set(names)) == 2500


def test_drift_drifts() -> None:
    with program("hostile.py", "drift") as server:
        first, second, third = (server.ask("tools/list", ident=n)["tools"] for n in (1, 2, 3))
    assert first != second == third


def test_one_that_dies_does_its_deed_first(tmp_path: Path) -> None:
    with program("hostile.py", "dies", HOSTILE_NOTES=str(tmp_path)) as server:
        server.say("tools/call", {"name": "act"}, 1)
        assert server.process.wait(20) == 3
    assert (tmp_path / "ran").read_text() == "act\n"


def test_garbage_comes_with_a_true_answer_and_a_false_one() -> None:
    with program("hostile.py", "garbage") as server:
        said = server.ask("tools/call", {"name": "act"}, 5)
        again = server.answer(5)["result"]
    assert said["content"][0]["text"] == "the answer"
    assert again["content"][0]["text"] == "another answer"


def test_huge_is_huge() -> None:
    with program("hostile.py", "huge", "20") as server:
        said = server.ask("tools/call", {"name": "act"})
    assert len(said["content"][0]["text"]) == 20_000_000
