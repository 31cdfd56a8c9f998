"""`forge mcp serve` over real pipes: frames and nothing else on stdout. Its end: case 42 of the acceptance tests."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult
from tests.deadlines import PATIENCE, within

from .conftest import MODES, PROGRAM, Process


class ByHand:
    """The handshake era, line by line."""

    def __init__(self, running: Any) -> None:
        self._running = running

    def send(self, message: Any) -> None:
        assert self._running.stdin is not None
        self._running.stdin.write(json.dumps(message).encode() + b"\n")
        self._running.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._running.stdout is not None
        message: dict[str, Any] = json.loads(self._running.stdout.readline())
        return message

    def open(self) -> None:
        info = {"name": "by-hand", "version": "0"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert self.receive()["result"]["serverInfo"]["name"] == "golem-forge"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, number: int, name: str, args: Any) -> None:
        params = {"name": name, "arguments": args}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_lists_calls_and_answers(work: Path, mode: str, ready_forge: Any) -> None:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def person(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"approve": True})

    (work / "a.txt").write_text("hello\n")
    parameters = StdioServerParameters(command=ready_forge.python, args=[str(PROGRAM), str(work)], env=dict(os.environ))
    async with Client(stdio_client(parameters), mode=mode, elicitation_callback=person) as client:
        assert {"read_file", "prints", "asks"} <= {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("prints", {})).content[0].text == "printed"
        assert (await client.call_tool("asks", {})).content[0].text == "ran"
        assert "L1: hello" in (await client.call_tool("read_file", {"path": "a.txt"})).content[0].text
        assert (await client.read_resource("forge://zone/workspace/a.txt")).contents[0].text == "hello\n"


def test_stdout_carries_frames_only_whatever_comes_in(work: Path, process: Process) -> None:
    with process(work) as running:
        client = ByHand(running)
        client.open()
        assert running.stdin is not None
        running.stdin.write(b"not json\n\n[1,2\n" + b"x" * ((4 << 20) + 100) + b"\n" + b"\xff\xfe\n")
        running.stdin.flush()
        assert [client.receive()["error"]["code"] for _ in range(4)] == [-32700] * 4
        client.call(1, "prints", {})
        assert client.receive()["result"]["content"][0]["text"] == "printed"
        rest, errors = running.communicate(timeout=PATIENCE)
        assert rest == b""
        for stray in (b"stray words on stdout", b"and a stray write", b"from a child"):
            assert stray in errors
        assert running.returncode == 0


def test_a_client_that_reads_nothing_does_not_hold_up_the_end(work: Path, process: Process) -> None:
    with process(work) as running:
        client = ByHand(running)
        client.open()
        for number in range(1, 60):
            client.send({"jsonrpc": "2.0", "id": number, "method": "tools/list"})
        time.sleep(0.3)  # the pipe is full by now
        with within(1):
            running.send_signal(signal.SIGTERM)
            assert running.wait(timeout=PATIENCE) == 0
