"""read_output of very large outputs: a page costs a page, not the output; and pages are those of the whole text."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.orchestrator.bound_output import OutputStore
from golem_forge.tools import pattern_child
from golem_forge.tools.context import ToolContext
from golem_forge.toolsets import create_read_output_tool
from golem_forge.toolsets import output as output_rows
from golem_forge.toolsets.file_access import split_lines, strip_line_end
from golem_forge.toolsets.output import LONG_LINE, SearchScope, blocks_of, search, search_plain

MIB = 1 << 20


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> OutputStore:
    return OutputStore(tmp_path_factory.mktemp("output"), "s1")


@pytest.fixture(scope="module")
def handles(store: OutputStore) -> dict[str, str]:
    """Of six MiB, and of fifteen where a character has several bytes."""
    texts = {
        "lines": [b"line of text with some wo\r\n" * (MIB // 27)] * 6,
        "short lines": [b"y\n" * (MIB // 2)] * 6,
        "one line": [b"0123456789abcdef" * (MIB // 16)] * 6,
        "characters": [("é€" * 51 + "\n").encode() * (MIB // 256)] * 15,
    }
    return {name: store.keep_pieces(pieces, "main") for name, pieces in texts.items()}


@table(
    ("output", "args", "begin", "end"),
    [
        ("lines", {}, "L1: line of text with some wo\nL2: ", "continue with offset=201]"),
        ("lines", {"offset": -1}, "L233016: line of text", "[lines 233016-233016 of 233016]"),
        ("lines", {"grep": "wo", "offset": -2}, "L233015: line", "[lines 233015-233016 of 233016]"),
        ("short lines", {"offset": 3_100_000, "limit": 1}, "L3100000: y\n[", "continue with offset=3100001]"),
        ("short lines", {"grep": "y", "offset": 5, "limit": 1, "context": 1}, "L5: y\n[", "continue with offset=6]"),
        ("short lines", {"grep": "^y+$", "limit": 2000}, "L1: y\nL2: y\n", "continue with offset=2001]"),
        ("short lines", {"grep": "zzz"}, "No matches.", "No matches."),
        ("one line", {"offset": 3}, "L1+61440: 0123", "[lines 3-3 of 205; continue with offset=4]"),
        ("one line", {"offset": -1}, "L1+6266880: 0123", "[lines 205-205 of 205]"),
        ("one line", {"grep": "nothing"}, "No matches.", "No matches."),
        ("characters", {"offset": -1}, "L61440: é€", "[lines 61440-61440 of 61440]"),
    ],
)
async def test_a_page_needs_little_memory_and_holds_up_nobody(
    store: OutputStore, handles: dict[str, str], output: str, args: dict[str, Any], begin: str, end: str
) -> None:
    tool = create_read_output_tool(outputs=store)
    tool.validate_input({"handle": ""})  # what is imported for the first time is not of the page
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0 if turns < 10 else 0.01)
            turns += 1

    turning = asyncio.create_task(turn())
    tracemalloc.start()
    try:
        text = (await tool.execute({"handle": handles[output], **args}, ToolContext(session_id="s1"))).text
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        turning.cancel()

    assert text.startswith(begin) and text.endswith(end), (text[:80], text[-80:])
    assert len(text.encode()) <= 32 * 1024
    assert turns, "the loop was held up"
    assert peak < (7 if output == "characters" else 4) * MIB, "about half of what is kept"


def rows_of(lines: list[str], long_line: int, part: int) -> Iterator[tuple[int, str, int | None]]:
    """What the rows of a text are, said simply."""
    for index, line in enumerate(lines):
        if len(line.encode()) <= long_line:
            yield index, line, None
            continue
        start = 0
        while start < len(line):
            end = start + 1
            while end < len(line) and len(line[start : end + 1].encode()) <= part:
                end += 1
            yield index, line[start:end], start
            start = end


_PIECES = st.sampled_from(
    [
        *(b"a", b"needle", b"nee", b"dle", b"x" * 29, b"x" * 41, b"\n", b"\r", b"\r\n", b"\n\n", b"\xff", b"\xe2\x82"),
        *("é".encode() * 9, "😀€".encode() * 4, "\u2028\x0b\x85".encode(), "\ufffd".encode()),
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(_PIECES, max_size=30), at_once=st.sampled_from([1, 2, 3, 7, 50, 1000]), first=st.integers(0, 4))
def test_rows_and_matches_are_those_of_the_whole_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], at_once: int, first: int
) -> None:
    path = tmp_path / "output"
    data = b"".join(pieces)
    path.write_bytes(data)
    lines = [strip_line_end(line) for line in split_lines(data.decode("utf-8", "replace"))]
    monkeypatch.setattr(output_rows, "_PIECE_CHARS", at_once)
    monkeypatch.setattr(output_rows, "LONG_LINE", 40)
    monkeypatch.setattr(output_rows, "PAGE_BYTES", 30)

    blocks = list(blocks_of(path))
    assert [tuple(row) for block in blocks for row in block.split_rows()] == list(rows_of(lines, 40, 30))
    assert all(len(list(block.split_rows())) == block.rows for block in blocks)
    assert list(pattern_child.output_lines(str(path), first)) == lines[first:]
    with_needle = [index for index, line in enumerate(lines) if "needle" in line and index >= first]
    found = search_plain("needle", iter(blocks), SearchScope(first=first, after=first, most=100))
    assert list(found) == with_needle
    for index, spans in found.items():
        for start, end in spans:  # every part has some of a match
            near = lines[index][max(0, start - 5) : end + 5]
            assert "needle" in near
    few = search_plain("needle", iter(blocks), SearchScope(first=first, after=first, most=1))
    assert list(few) == with_needle[: 1 + (first in with_needle)]


@pytest.mark.parametrize("pattern", ["needle", "ne{2}dle"])
async def test_a_search_begins_and_ends_where_it_is_told(tmp_path: Path, pattern: str) -> None:
    path = tmp_path / "output"
    path.write_text("needle\n" * 10 + "x" * (LONG_LINE + 5) + "needle\n" + "needle\n" * 10)
    scope = SearchScope(first=3, after=5, most=6)
    if pattern == "needle":
        found = search_plain(pattern, blocks_of(path), scope)
    else:
        found = await search(pattern, path, output_rows.MAYBE_LONG, scope)
    assert list(found) == [3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert [bool(spans) for spans in found.values()] == [False] * 7 + [True, False]
