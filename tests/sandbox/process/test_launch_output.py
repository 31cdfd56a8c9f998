"""Output as text: characters and secrets divided between reads, and captures that outgrow memory."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests import descriptors
from tests.deadlines import PATIENCE

from golem_forge.events.redaction import Redactor, StreamRedactor
from golem_forge.sandbox.process.child import start_process
from golem_forge.sandbox.process.launch import IN_MEMORY, Capture, OutputBudget, OutputReader
from golem_forge.sandbox.walls.model import Streams

from .launches import Plain, launch_of


async def test_a_character_in_two_writes(run):
    child = await run(r"printf '\xe4\xbd'; sleep 0.2; printf '\xa0'")
    await child.wait()
    assert child.output.read().decode() == "你"


async def test_bytes_that_are_no_text(run):
    child = await run(r"printf 'a\xff\xfeb\xe4\xbd'")
    await child.wait()
    assert child.output.read() == b"a\xff\xfeb\xe4\xbd"
    assert child.output.read().decode("utf-8", "replace") == "a\ufffd\ufffdb\ufffd"


async def test_a_cut_by_the_budget_divides_no_character():
    left = OutputBudget(7, lambda: None)
    assert left.fit("a\udcff") == "a\udcff"  # two bytes
    assert left.fit("éé" + "é") == "éé"  # four of the five that are left
    assert left.over


def redacting(name: str = "TOKEN", value: str = "canary-4711-secret") -> StreamRedactor:
    redactor = Redactor()
    redactor.add_secret(name, value)
    return StreamRedactor(redactor)


async def test_a_secret_in_two_writes(root):
    launch = launch_of(root, "sh", "-c", "printf 'is canary-47'; sleep 0.2; printf '11-secret.'")
    child = await start_process(launch, Streams.MERGED, stdin=None, filter=redacting)
    await child.wait()
    text = child.output.read().decode()
    assert text.startswith("is ") and text.endswith(".")
    assert "canary" not in text and "4711" not in text


def filled(text: str, times: int) -> Capture:
    capture = Capture()
    for _ in range(times):
        capture.append(text)
    return capture


@pytest.mark.parametrize("times", [100, 40_000], ids=["memory", "file"])
def test_no_read_divides_a_character(times):
    text = "aé你🙂" * 4
    capture = filled(text, times)
    whole = (text * times).encode()
    assert capture.size == len(whole)
    assert capture.read() == whole
    for first in range(24):
        for last in range(first, 24):
            capture.read(first, last).decode()
        assert capture.read(0, first) + capture.read(first, 40) == capture.read(0, 40)
    assert capture.read(capture.size) == b""
    assert capture.read(-5, capture.size + 5) == whole
    pieces = list(capture.pieces(1))
    assert b"".join(pieces) == whole[1:]
    for piece in pieces:
        piece.decode()
    capture.close()


def test_past_a_mebibyte_nothing_stays_in_memory_and_no_descriptor_is_left():
    before = descriptors.held()
    capture = filled("x" * 65536, IN_MEMORY // 65536)
    assert capture._file is None and descriptors.no_more_than(before)
    capture.append("y")
    assert not capture._memory
    assert capture._file is not None and os.fstat(capture._file).st_size == capture.size
    assert capture.read(IN_MEMORY - 1) == b"xy"
    del capture
    assert descriptors.no_more_than(before)


async def test_more_answers_everyone_who_waits():
    capture = Capture()
    waiting = [asyncio.create_task(capture.more(0, PATIENCE)) for _ in range(3)]
    late = asyncio.create_task(capture.more(3, PATIENCE))
    await asyncio.sleep(0)
    capture.append("abc")
    assert await asyncio.gather(*waiting) == [True] * 3
    assert not late.done()
    capture.finish()
    assert await late is False
    assert await capture.more(0, PATIENCE) is True
    assert await Capture().more(0, 0.01) is False


async def test_no_room_for_the_temporary_file(monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("golem_forge.sandbox.process.launch.tempfile.TemporaryFile", full)
    told = []
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    reader = OutputReader(ours, Plain(), OutputBudget(1 << 30, lambda: told.append(1)))
    for _ in range(20):
        os.write(theirs, b"x" * 65536)
        await asyncio.sleep(0.005)
    reader.finish()
    os.close(theirs)
    assert told == [1]
    assert reader.capture.read() == b"x" * IN_MEMORY


async def read_all(data: bytes, limit: int, text_filter) -> tuple[str, list[int]]:
    told: list[int] = []
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    reader = OutputReader(ours, text_filter, OutputBudget(limit, lambda: told.append(1)))
    os.write(theirs, data)
    os.close(theirs)
    reader.finish()
    return reader.capture.read().decode("utf-8", "replace"), told


@pytest.mark.parametrize("shown", [1, 4, 17])
async def test_a_secret_cut_by_the_limit_is_not_kept(shown):
    data = b"x" * 99 + b" canary-4711-secret and more"
    text, told = await read_all(data, 100 + shown, redacting())
    assert (text, told) == ("x" * 99 + " ", [1])


async def test_an_end_like_a_secret_is_kept_when_nothing_was_cut():
    assert await read_all(b"a canary", 8, redacting()) == ("a canary", [])


async def test_the_limit_holds_for_what_is_kept():
    text, told = await read_all(b"a" + b"\xff" * 2000, 1500, Plain())
    assert (text, told) == ("a" + "\ufffd" * 1499, [1])
    text, told = await read_all(b"1c0f" * 500, 3000, redacting("A_NAME_THAT_IS_LONGER_THAN_ITS_VALUE", "1c0f"))
    assert len(text) == 3000 and told == [1] and "1c0f" not in text
