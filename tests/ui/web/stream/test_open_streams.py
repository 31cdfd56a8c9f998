"""What streams: each page is sent what it has not seen, whatever pace it reads at; nothing twice, nothing left out."""

from __future__ import annotations

import json
import random
from typing import Any

from golem_forge.events.serialization import Event
from golem_forge.ui.web.stream.open_streams import (
    KEPT_OUTPUT,
    MAX_OPEN,
    START_POSITION,
    GrowingText,
    OpenStream,
    OpenStreams,
    StreamPosition,
)


def streaming(delta: str = "", *, request: str = "r", channel: str = "thinking", **more: Any) -> Event:
    data = {"requestId": request, "delta": delta, "done": False, "channel": channel, **more}
    return Event("streaming", data, None, 3, "", "s", "root")


def output(delta: str, call: str = "c", stream: str = "stdout") -> Event:
    return Event("toolOutput", {"toolCallId": call, "stream": stream, "delta": delta}, None, 3, "", "s", "root")


class Reader:
    """A page: puts together what it is sent."""

    def __init__(self, flow: OpenStream) -> None:
        self.flow = flow
        self.place: StreamPosition = START_POSITION
        self.text = ""
        self.frames: list[dict[str, Any]] = []

    async def read(self) -> None:
        while (piece := await self.flow.piece(self.place)) is not None:
            self.place = piece.place
            data = json.loads(piece.text)["event"]["data"]
            self.frames.append(data)
            self.text = data["whole"] if "whole" in data else self.text + data["delta"]


def taken(streams: OpenStreams, *events: Event) -> OpenStream:
    flows = [streams.take(event) for event in events]
    assert flows[-1] is not None
    return flows[-1]


async def test_readers_of_any_pace_end_with_the_same_text() -> None:
    chance = random.Random(7)
    streams = OpenStreams()
    flow = taken(streams, streaming("start "))
    readers = [Reader(flow) for _ in range(5)]
    text = "start "
    for _ in range(400):
        piece = chance.choice(["a", "äöü ", "line\n", "x" * 50])
        text += piece
        streams.take(streaming(piece))
        for reader in readers:
            if chance.random() < 0.2:
                await reader.read()
    streams.take(streaming(done=True))
    for reader in readers:
        await reader.read()
        await reader.read()  # there is nothing more
        assert reader.text == text
        assert [frame["done"] for frame in reader.frames].count(True) == 1
        assert [index for index, frame in enumerate(reader.frames) if "whole" in frame] == [0]


async def test_a_text_that_is_replaced_is_sent_whole_once() -> None:
    streams = OpenStreams()
    flow = taken(streams, streaming("wrong"))
    reader = Reader(flow)
    await reader.read()
    streams.take(streaming(whole="right"))
    streams.take(streaming(" and more"))
    await reader.read()
    assert reader.text == "right and more"
    assert len(reader.frames) == 2


async def test_what_is_withdrawn_says_so_and_is_open_no_more() -> None:
    streams = OpenStreams()
    flow = taken(streams, streaming("half a"))
    reader = Reader(flow)
    await reader.read()
    streams.take(streaming(done=True, discarded=True))
    await reader.read()
    assert reader.frames[-1]["discarded"] is True and reader.frames[-1]["done"] is True
    assert streams.flows() == [] and streams.ids() == []


async def test_the_end_of_an_answer_ends_its_thinking_too() -> None:
    streams = OpenStreams()
    taken(streams, streaming("hm"), streaming("Yes", channel="text"))
    assert len(streams.flows()) == 2
    streams.take(streaming(channel="text", done=True))
    assert streams.flows() == []


async def test_a_long_text_comes_in_several_frames_with_one_end() -> None:
    streams = OpenStreams()
    flow = taken(streams, streaming("x" * 700_000))
    streams.take(streaming(done=True))
    reader = Reader(flow)
    await reader.read()
    assert len(reader.text) == 700_000
    assert [frame["done"] for frame in reader.frames] == [False, False, True]


async def test_of_output_the_last_64_kib_are_there_for_who_comes_late() -> None:
    streams = OpenStreams()
    early = Reader(taken(streams, output("first\n")))
    await early.read()
    for number in range(20_000):
        flow = taken(streams, output(f"line {number}\n"))
        if number == 10:
            await early.read()
    late = Reader(flow)
    await late.read()
    await early.read()
    assert len(late.text) == KEPT_OUTPUT and late.text.endswith("line 19999\n")
    assert early.text == late.text, "who fell behind is given the end whole"
    streams.take(output("more\n"))
    await late.read()
    assert late.frames[-1] == {"toolCallId": "c", "stream": "stdout", "delta": "more\n"}


async def test_a_result_ends_the_output_and_progress_of_its_call_alone() -> None:
    streams = OpenStreams()
    taken(streams, output("a"), output("b", stream="stderr"), output("c", call="other"))
    taken(streams, Event("toolProgress", {"toolCallId": "c", "progress": 0.5}, None, 3, "", "s", "root"))
    assert streams.take(Event("toolResult", {"toolCallId": "c"}, None, 4, "", "s", "root")) is None
    assert streams.ids() == ["other"]


async def test_only_the_newest_progress_is_told() -> None:
    streams = OpenStreams()
    for number in range(10):
        flow = taken(streams, Event("toolProgress", {"toolCallId": "c", "progress": number}, None, 3, "", "s", "root"))
    piece = await flow.piece(START_POSITION)
    assert piece is not None and json.loads(piece.text)["event"]["data"]["progress"] == 9
    assert await flow.piece(piece.place) is None


async def test_streams_that_never_end_are_bounded() -> None:
    streams = OpenStreams()
    for number in range(MAX_OPEN + 50):
        streams.take(streaming("x", request=f"r{number}"))
        streams.take(output("x", call=f"c{number}"))
    assert len(streams.flows()) == 2 * MAX_OPEN


async def test_text_is_found_by_position_across_its_pieces() -> None:
    text = GrowingText()
    whole = ""
    for number in range(3000):
        piece = f"{number} "
        whole += piece
        text.add(piece)
    for position in (0, 1, 4095, 4096, 4097, len(whole) - 1, len(whole), len(whole) + 5):
        assert text.since(position) == whole[position:]


async def test_what_pages_at_one_place_are_sent_is_made_once() -> None:
    flow = taken(OpenStreams(), streaming("same"))
    assert await flow.piece(START_POSITION) is await flow.piece(START_POSITION)


async def test_rendered_text_keeps_the_blocks_that_no_longer_change() -> None:
    streams = OpenStreams()
    flow = taken(streams, streaming("# One\n\nTwo\n\nThr", channel="text"))
    first = await flow.piece(START_POSITION)
    assert first is not None
    streams.take(streaming("ee\n\nFour", channel="text"))
    streams.take(streaming(channel="text", done=True))
    second = await flow.piece(first.place)
    assert second is not None
    view = json.loads(second.text)["view"]
    assert view["keep"] >= 1
    assert "Three" in view["html"] and "One" not in view["html"]
    assert json.loads(second.text)["event"]["data"]["delta"] == "ee\n\nFour"
