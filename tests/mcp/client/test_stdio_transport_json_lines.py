"""Standard output of a server as messages: what is dropped, what is taken, what ends the stream, who waits for whom."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.mcp import sdk
from golem_forge.mcp.client.stdio_transport import _LINES_PER_TURN, LONGEST_LINE, LineReader, LineSplitter
from golem_forge.mcp.client.transport import LineTooLong, TransportError


def note(number: int = 1, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": f"n{number}", "params": params}).encode() + b"\n"


class Pipe:
    def __init__(self) -> None:
        self.theirs, self.ours = os.pipe()
        os.set_blocking(self.theirs, False)
        os.set_blocking(self.ours, False)
        self.failures: list[TransportError] = []
        self.endings = 0

    def reader(self) -> LineReader:
        self.lines = LineReader(self.theirs, server="test", over=self.over, answered=partial(asyncio.sleep, 0))
        return self.lines

    def over(self, error: TransportError | None) -> None:
        self.endings += 1
        self.failures += [error] if error else []

    def write(self, data: bytes) -> int:
        return os.write(self.ours, data)

    async def feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.ours, view) :]
            except BlockingIOError:
                await asyncio.sleep(0)

    def end(self) -> None:
        os.close(self.ours)
        self.ours = -1

    def close(self) -> None:
        if hasattr(self, "lines"):
            self.lines.finish()
            assert self.endings == 1
        os.close(self.theirs)
        if self.ours >= 0:
            os.close(self.ours)


@pytest.fixture
async def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


async def taken(lines: LineReader) -> list[str]:
    return [item.message.method async for item in lines]  # type: ignore[union-attr]


async def test_messages_arrive_whole_however_they_are_cut(pipe: Pipe) -> None:
    lines = pipe.reader()
    data = note(1, text="ä😀") + note(2).replace(b"\n", b"\r\n") + b"\n\r\n  \n" + note(3)[:-1]
    taking = asyncio.create_task(taken(lines))
    for place in range(len(data)):
        pipe.write(data[place : place + 1])
        if place % 7 == 0:
            await asyncio.sleep(0)
    pipe.end()
    assert await asyncio.wait_for(taking, PATIENCE) == ["n1", "n2", "n3"]
    assert lines.dropped == 1  # the blanks; a line end alone is nothing


async def test_what_is_not_json_rpc_is_dropped_and_counted(pipe: Pipe, caplog: pytest.LogCaptureFixture) -> None:
    lines = pipe.reader()
    junk = [b"hello", b"{", b"[]", b"1", b'"x"', b'{"jsonrpc":"1.0","method":"x"}', b"{}", b"\xff\xfe", b"[" * 5000]
    junk += [b'{"jsonrpc":"2.0","id":1}', b'{"a":' * 5000 + b"1" + b"}" * 5000, b"CANARY-secret", b"\x00\x1b]0;x"]
    with caplog.at_level("DEBUG"):
        await pipe.feed(b"\n".join([*junk, note(7)]))
        pipe.end()
        assert await asyncio.wait_for(taken(lines), PATIENCE) == ["n7"]
    assert lines.dropped == len(junk)
    assert 0 < len([one for one in caplog.records if "not JSON-RPC" in one.message]) <= 5
    assert "CANARY" not in caplog.text


@pytest.mark.parametrize("broken", [b'"\\ud83d"', b'"\xff\xfe caf\xe9"', b'"a\\udc00b"'])
async def test_an_answer_with_half_a_character_still_counts(pipe: Pipe, broken: bytes) -> None:
    lines = pipe.reader()
    pipe.write(b'{"jsonrpc":"2.0","id":1,"result":{"text":' + broken + b',"n":5}}\n')
    message = (await asyncio.wait_for(lines.receive(), PATIENCE)).message
    assert isinstance(message, sdk.JSONRPCResponse)
    assert message.result["n"] == 5 and message.result["text"].isprintable()
    assert lines.dropped == 0


async def test_a_line_at_the_limit_is_taken_and_one_byte_more_ends_the_stream(pipe: Pipe) -> None:
    lines = pipe.reader()
    taking = asyncio.create_task(taken(lines))
    frame = len(note(1, x="")) - 1
    await pipe.feed(note(1, x="y" * (LONGEST_LINE - frame)))
    assert not pipe.failures
    await pipe.feed(b"z" * LONGEST_LINE)
    await asyncio.sleep(0.05)
    assert not pipe.failures
    await pipe.feed(b"z")
    assert await asyncio.wait_for(taking, PATIENCE) == ["n1"]
    assert [type(one) for one in pipe.failures] == [LineTooLong]
    assert "16 MiB" in pipe.failures[0].message


def test_a_splitter_is_the_same_for_every_cut() -> None:
    data = b"a\n\nbb\nccc\n\n\ndddd"
    for size in range(1, len(data) + 1):
        splitter, found = LineSplitter(), []
        for place in range(0, len(data), size):
            found += splitter.feed(data[place : place + size])
        assert [*found, splitter.rest()] == data.split(b"\n"), size


def test_a_splitter_refuses_a_line_that_ends_in_the_same_piece() -> None:
    splitter = LineSplitter(longest=10)
    splitter.feed(b"12345678")
    with pytest.raises(LineTooLong):
        splitter.feed(b"901\nx")


def test_a_long_line_costs_its_length_and_not_its_square() -> None:
    """Looked through or copied at each piece, it would be two tebibytes."""
    splitter = LineSplitter()
    piece = b"x" * 64
    for _ in range(LONGEST_LINE // len(piece)):
        assert splitter.feed(piece) == []
    assert len(splitter.rest()) == LONGEST_LINE


@pytest.mark.parametrize("line", [b"\n", b"x\n", b"{}\n", note(1)], ids=["empty", "junk", "object", "message"])
async def test_a_flood_of_tiny_lines_leaves_others_their_turn(pipe: Pipe, line: bytes) -> None:
    lines = pipe.reader()
    understood, read = lines._understood, lines._read
    at_once = most = 0

    def counted(work: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any) -> Any:
            nonlocal at_once
            at_once += 1
            return work(*args)

        return counting

    async def watch() -> None:
        nonlocal at_once, most
        while True:
            most, at_once = max(most, at_once), 0
            await asyncio.sleep(0)

    lines._pause()
    lines._understood, lines._read = counted(understood), counted(read)  # type: ignore[method-assign]
    lines._listen()
    watching = asyncio.create_task(watch())
    feeding = asyncio.create_task(pipe.feed(line * (70_000 // len(line)) + note(9)))
    feeding.add_done_callback(lambda _: pipe.end())
    methods = await asyncio.wait_for(taken(lines), PATIENCE)
    watching.cancel()
    assert methods[-1] == "n9"
    assert 0 < most <= 2 * _LINES_PER_TURN + 2, "lines and reads before somebody else had a turn"


async def test_a_server_that_writes_faster_than_we_take_waits(pipe: Pipe) -> None:
    lines = pipe.reader()
    waits = False
    for _ in range(1000):
        try:
            pipe.write(note(1, x="y" * 1000))
        except BlockingIOError:
            waits = True
            break
        await asyncio.sleep(0)
    assert waits
    assert sum(map(len, lines._lines)) < 1 << 18


async def test_a_closed_reader_drops_the_rest_so_that_the_writer_can_end(pipe: Pipe) -> None:
    lines = pipe.reader()
    await lines.aclose()
    await asyncio.wait_for(pipe.feed(b"x" * (1 << 20)), PATIENCE)
    with pytest.raises(StopAsyncIteration):
        await anext(lines)


async def test_a_cancelled_taker_loses_nothing(pipe: Pipe) -> None:
    lines = pipe.reader()
    waiting = asyncio.create_task(lines.receive())
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.sleep(0)
    pipe.write(note(4))
    assert (await asyncio.wait_for(lines.receive(), PATIENCE)).message.method == "n4"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "members",
    [
        {"id": 7, "result": {"content": []}},
        {"id": "7", "result": {}, "more": 1},
        {"id": 7, "result": {"text": "the \"method\" and the 'error'"}},
        {"id": 7, "result": {}, "method": "tools/list"},
        {"id": 7, "error": {"code": -1, "message": "no result"}},
        {"id": None, "result": {}},
        {"id": 7, "result": [1]},
    ],
)
async def test_an_answer_is_what_the_sdk_takes_it_for(pipe: Pipe, members: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **members}).encode()
    read = pipe.reader()._understood(line)
    try:
        expected = sdk.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except sdk.ValidationError:
        assert read is None
    else:
        assert read is not None and type(read.message) is type(expected) and read.message == expected
