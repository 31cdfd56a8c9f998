"""Searching lines for a pattern somebody else wrote, within a fixed time.

Threat: Python's `re` backtracks, so a short pattern such as `(a+)+$` can run for years and, holding the interpreter,
would freeze the whole runtime; no check of the pattern finds all of these. Plain text is searched right here, block
by block; everything else in a process of its own, which reads the file itself and is killed when the time is up or
the call is cancelled. Neither ever holds the whole text.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed
from golem_forge.sandbox.host import isolated
from golem_forge.toolsets import line_search_child
from golem_forge.toolsets.line_search_child import Span
from golem_forge.toolsets.output import OutputBlock

SECONDS: Final = 10
MAX_PATTERN: Final = 1000
_MEMORY: Final = 1 << 30
_SPECIAL: Final = frozenset(r".^$*+?{}[]\|()")


def pattern_problem(pattern: str) -> str:
    """What is wrong with a pattern, with its position; empty if it can be used."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of syntax that may change its meaning some day
            re.compile(pattern)
    except re.error as error:
        where = "" if error.pos is None else f" at position {error.pos}"
        return f"not a valid pattern: {error.msg}{where}"
    except (RecursionError, OverflowError):
        return "not a valid pattern: too deeply nested or too large a count"
    return ""


class SearchScope(NamedTuple):
    """Which of the matches are wanted: no caller is shown more than a page of them."""

    first: int
    """Index of the first line to look at, from 0."""
    after: int
    """Lines up to this index do not count for `most`."""
    most: int


def is_plain(pattern: str) -> bool:
    return _SPECIAL.isdisjoint(pattern)


def search_plain(text: str, blocks: Iterable[OutputBlock], scope: SearchScope) -> dict[int, list[Span]]:
    """Index of a line → where in it: of a long one, the parts that hold any of a match."""
    needle = text.encode(errors="surrogatepass")
    found: dict[int, list[Span]] = {}
    if b"\n" in needle or b"\r" in needle:
        return found
    missing = scope.most
    for index, span in _plain_hits(needle, (block for block in blocks if block.line + block.rows > scope.first)):
        if index < scope.first:
            continue
        if index not in found:
            if not missing:
                break
            missing -= index > scope.after
            found[index] = []
        if span is not None:
            found[index].append(span)
    return found


def _plain_hits(needle: bytes, blocks: Iterable[OutputBlock]) -> Iterator[tuple[int, Span | None]]:
    overlap = len(needle) - 1
    before, tail = (0, 0), b""
    for block in blocks:
        if block.start is None:
            for index in _lines_with(needle, block):
                yield index, None
            continue
        if not block.start:
            tail = b""
        part = (block.start, block.start + len(block.data.decode()))
        if needle in tail + block.data[:overlap]:  # divided between two parts
            yield block.line, before
            yield block.line, part
        elif needle in block.data:
            yield block.line, part
        before, tail = part, block.data[-overlap:] if overlap else b""


def _lines_with(needle: bytes, block: OutputBlock) -> Iterator[int]:
    data, line, start = block.data, block.line, 0
    while (place := data.find(needle, start)) >= 0:
        line += data.count(b"\n", start, place)
        yield line
        if (start := data.find(b"\n", place)) < 0:
            return


async def search(pattern: str, path: Path, long: int, scope: SearchScope) -> dict[int, list[Span]]:
    """Index of a line → where in it (only for lines of more than `long` characters). Raises ToolFailed, OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        order = {"pattern": pattern, "long": long, "seconds": SECONDS + 1, "memory": _MEMORY, "file": file}
        answer = await _run_child(json.dumps(order | scope._asdict()).encode() + b"\n", file)
    finally:
        os.close(file)
    found = (json.loads(line) for line in answer.splitlines())
    return {index: [(start, end) for start, end in spans] for index, *spans in found}


async def _run_child(question: bytes, file: int) -> bytes:
    child = await asyncio.create_subprocess_exec(
        *isolated(line_search_child.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=(file,),
        env={},
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SECONDS):
            answer, _ = await child.communicate(question)
    except TimeoutError:
        text = f"The pattern took more than {SECONDS} s on this text and was stopped; use a simpler one."
        raise ToolFailed(text, status=Status.TIMEOUT, code="PATTERN_TIMEOUT") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise ToolFailed("The pattern needs too much time or memory on this text; use a simpler one.")
    return answer
