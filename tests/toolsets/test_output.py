"""read_output: T4 (second half), T53, T54 and the rules behind them."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.core.calls import Caller
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed
from golem_forge.orchestrator.bound_output import OutputStore, bound_text
from golem_forge.tools.context import ToolContext
from golem_forge.tools.validation import Err, Ok
from golem_forge.toolsets import TOOLKIT, create_read_output_tool, output


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    return OutputStore(tmp_path / "output", "session-one")


async def read(store: OutputStore, handle: str, ctx: ToolContext | None = None, **args: Any) -> str:
    tool = create_read_output_tool(outputs=store)
    checked = tool.validate_input({"handle": handle} | args)
    assert isinstance(checked, Ok), checked
    result = await tool.execute(checked.data, ctx or ToolContext(session_id="session-one"))
    assert result.kind == "text"
    return result.text


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({}, "L1: a\nL2: b\nL3: c\nL4: d"),
        ({"offset": 2, "limit": 2}, "L2: b\nL3: c\n[lines 2-3 of 4; continue with offset=4]"),
        ({"offset": -1}, "L4: d\n[lines 4-4 of 4]"),
    ],
)
async def test_lines_and_note_are_those_of_read_file(store: OutputStore, args: dict[str, Any], text: str) -> None:
    assert await read(store, store.keep("a\nb\r\nc\nd\n", "main"), **args) == text


async def test_past_the_end(store: OutputStore) -> None:
    with pytest.raises(ToolFailed, match=re.escape("offset 9 is past the end (1 line)")):
        await read(store, store.keep("a", "main"), offset=9)


async def test_an_empty_output(store: OutputStore) -> None:
    assert await read(store, store.keep("", "main")) == "(empty output)"


async def whole(store: OutputStore, handle: str, **args: Any) -> str:
    """Everything, by following the closing notes; every page fits what a caller is shown."""
    lines: dict[str, str] = {}
    offset: str | None = "1"
    while offset:
        text = await read(store, handle, offset=int(offset), **args)
        assert len(text.encode()) <= 32 * 1024
        for number, part in re.findall(r"^L(\d+)(?:\+\d+)?: (.*)$", text, re.M):
            lines[number] = lines.get(number, "") + part
        found = re.search(r"continue with offset=(\d+)\]$", text)
        offset = found[1] if found else None
    return "\n".join(lines.values())


@pytest.mark.parametrize(
    "text",
    ["x" * 1_000_000, "é" * 100_000 + "\nshort\n" + "€" * 40_000, "\n".join(f"{n} {'y' * 300}" for n in range(2000))],
    ids=["a line of 1 MB", "long lines of several bytes a character", "many lines"],
)
async def test_t4_every_character_can_be_read(store: OutputStore, text: str) -> None:
    shown, handle = bound_text(text, 32 * 1024, store, "main")
    assert f"read_output handle={handle}]" in shown
    assert await whole(store, handle) == text


async def test_parts_of_a_long_line_tell_where_they_begin(store: OutputStore) -> None:
    handle = store.keep("first\n" + "é" * 40_000 + "\nlast", "main")
    text = await read(store, handle, offset=2, limit=1)
    assert text.startswith("L2+0: éé")
    assert text.endswith("é\n[lines 2-2 of 5; continue with offset=3]")
    assert (await read(store, handle, offset=3, limit=1)).startswith("L2+15360: é")
    assert (await read(store, handle, offset=-1)) == "L3: last\n[lines 5-5 of 5]"


@table(
    ("worker", "caller", "session", "found"),
    [
        ("main/coder", Caller.LLM, "session-one", True),
        ("main", Caller.LLM, "session-one", True),
        ("main/coder/helper", Caller.LLM, "session-one", False),
        ("main/code", Caller.LLM, "session-one", False),
        ("main/other", Caller.TOOL, "session-one", False),
        ("main", Caller.LLM, "session-two", False),
        ("main", Caller.MCP, "session-two", False),
        ("main", Caller.HUMAN, "session-two", True),
    ],
)
async def test_t53_whose_outputs_can_be_read(
    store: OutputStore, tmp_path: Path, worker: str, caller: Caller, session: str, found: bool
) -> None:
    handle = store.keep("secret\n", "main/coder")
    theirs = OutputStore(tmp_path / "output", session)
    ctx = ToolContext(worker=worker, caller=caller, session_id=session)
    if found:
        assert await read(theirs, handle, ctx) == "L1: secret"
        return
    with pytest.raises(ToolFailed) as failed:
        await read(theirs, handle, ctx)
    assert failed.value.message == f"No output '{handle}'."
    assert failed.value.status is Status.EXECUTION_FAILED


@table("handle", ["out_000000000000", "../index.jsonl", "index.jsonl", ""])
async def test_no_such_output(store: OutputStore, handle: str) -> None:
    store.keep("x", "main")
    with pytest.raises(ToolFailed) as failed:
        await read(store, handle)
    assert failed.value.message == f"No output '{handle}'."


async def test_an_output_that_was_removed_is_no_output(store: OutputStore, tmp_path: Path) -> None:
    handle = store.keep("x", "main")
    os.unlink(tmp_path / "output" / "session-one" / handle)
    with pytest.raises(ToolFailed, match=f"No output '{handle}'."):
        await read(store, handle)


async def test_the_listed_tool_finds_the_outputs_of_its_session(tmp_path: Path) -> None:
    store = OutputStore(tmp_path / "output", "s1")
    handle = store.keep("kept", "main")
    result = await TOOLKIT["read_output"].execute({"handle": handle}, ToolContext(session_id="s1", outputs=store))
    assert result.text == "L1: kept"


_LOG = "\n".join(["start", "error: one", "fine", "fine", "Error: two", "fine", "error: three", "end"])


@table(
    ("args", "text"),
    [
        ({"grep": "error"}, "L2: error: one\nL7: error: three"),
        ({"grep": "(?i)^error: t"}, "L5: Error: two\nL7: error: three"),
        ({"grep": "one$", "context": 1}, "L1: start\nL2: error: one\nL3: fine"),
        ({"grep": "[Ee]rror", "context": 1, "offset": 6}, "L6: fine\nL7: error: three\nL8: end\n[lines 6-8 of 8]"),
        ({"grep": "error", "limit": 1}, "L2: error: one\n[lines 1-6 of 8; continue with offset=7]"),
        ({"grep": "error", "offset": 7}, "L7: error: three\n[lines 7-8 of 8]"),
        ({"grep": "error", "offset": -1}, "No matches.\n[lines 8-8 of 8]"),
        ({"grep": "nothing"}, "No matches."),
        ({"grep": "no+thing"}, "No matches."),
        ({"grep": "^(start|end)$"}, "L1: start\nL8: end"),
    ],
)
async def test_t54_grep(store: OutputStore, args: dict[str, Any], text: str) -> None:
    assert await read(store, store.keep(_LOG, "main"), **args) == text


@pytest.mark.parametrize("pattern", ["needle", "ne+dle"])
async def test_t54_of_a_long_line_only_the_parts_with_a_match(store: OutputStore, pattern: str) -> None:
    line = "x" * 30_717 + "needle" + "x" * 100_000
    handle = store.keep(f"a\n{line}\nneedle\n", "main")
    first = await read(store, handle, grep=pattern)
    assert first.startswith("L2+0: xxx") and first.endswith("nee\n[lines 1-2 of 7; continue with offset=3]"), first[
        -80:
    ]
    second = await read(store, handle, grep=pattern, offset=3)
    assert second.startswith("L2+30720: dlexxx")
    rest = await read(store, handle, grep=pattern, offset=4)
    assert rest == "L3: needle\n[lines 4-7 of 7]"


async def test_t54_a_pattern_that_would_run_for_years_is_stopped(
    store: OutputStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "SECONDS", 0.5)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.05)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(ToolFailed) as failed:
        await read(store, store.keep("a" * 5000 + "!", "main"), grep="(a+)+$")
    ticking.cancel()
    assert ticks, "the loop was held up"
    assert failed.value.message == "The pattern took more than 0.5 s on this text and was stopped; use a simpler one."
    assert failed.value.status is Status.TIMEOUT
    assert _children() == set()


async def test_cancelling_ends_the_search_and_its_process(store: OutputStore) -> None:
    search = asyncio.create_task(read(store, store.keep("a" * 5000 + "!", "main"), grep="(a+)+$"))
    deadline = time.monotonic() + PATIENCE
    while not _children() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert _children()
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    assert _children() == set()


def _children() -> set[str]:
    me = os.getpid()
    return {
        child
        for task in os.listdir(f"/proc/{me}/task")
        for child in Path(f"/proc/{me}/task/{task}/children").read_text().split()
        if "pattern_child" in Path(f"/proc/{child}/cmdline").read_text()
    }


@table(
    ("args", "message"),
    [
        ({"grep": "a(b"}, "read_output: grep: not a valid pattern: missing ), unterminated subpattern at position 1"),
        ({"context": 21}, "read_output: context: input should be less than or equal to 20"),
        ({"limit": 2001}, "read_output: limit: input should be less than or equal to 2000"),
        ({"offset": 0}, "read_output: offset: must not be 0; the first line is 1, the last one -1"),
    ],
)
def test_bad_arguments(args: dict[str, Any], message: str) -> None:
    assert TOOLKIT["read_output"].validate_input({"handle": "out_0"} | args) == Err(message)


def test_it_touches_nothing_and_is_a_reader() -> None:
    tool = TOOLKIT["read_output"]
    assert (tool.effects, tool.read_only) == ((), True)
