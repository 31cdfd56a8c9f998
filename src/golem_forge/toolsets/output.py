"""read_output: pages through an output that was too long for its caller and was kept whole.

Touches nothing but kept outputs, and of those only the ones of the calling worker and of workers below it (a person at
the keyboard: of any session).

A line too long for one page is shown in parts, `L<n>+<char offset>: …`. Each part counts as a line for `offset` and
`limit`, so that every character can be reached. With a search, `offset` is where it starts, and the closing note says
how far it came.

Threat: an output of 64 MiB has up to 64 million lines; as a list of texts they would take gigabytes. So the text is
read as often as needed, one block (at most 32 KiB) at a time, and never held. Plain text is searched right here, block
by block; a pattern in a process that can be killed (`tools/pattern_search.py`) and reads the file itself.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from golem_forge.core.calls import Caller
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_module import pydantic, pydantic_core
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import OutputLookup, ToolContext
from golem_forge.tools.factory import native_tool
from golem_forge.tools.pattern_child import Span
from golem_forge.tools.pattern_search import (
    MAX_PATTERN,
    PatternLimits,
    PatternTooCostly,
    pattern_problem,
    search_in_child,
)
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.file_access import PAGE_BYTES, closing_note, first_line, offset_field

DEFAULT_LIMIT: Final = 200
SECONDS: Final = 10
"""Timeout of a pattern search."""
_MEMORY: Final = 1 << 30
_SPECIAL: Final = frozenset(r".^$*+?{}[]\|()")
_DESCRIPTION: Final = (
    "Read an output that was too long to be shown, by the handle in its `[… left out …]` line. Lines come back "
    "numbered as `L<n>: text`; the last line says where to continue. `grep` shows only matching lines."
)


def create_read_output_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None, *, outputs: OutputLookup | None = None
) -> Tool:
    """Makes the tool. Without `outputs` it reads those of the calling session. `sandbox` is there because every
    `create_<tool>_tool` has it; kept outputs are in no zone.
    """

    async def read_output(args: dict[str, Any], ctx: ToolContext) -> str:
        handle = args["handle"]
        store = outputs or ctx.outputs
        person = ctx.caller is Caller.HUMAN
        kept = await run_in_thread(lambda: store.find(handle, ctx.worker, any_session=person) if store else None)
        page = _PageRequest(args.get("offset", 1), args.get("limit", DEFAULT_LIMIT), args.get("context", 0))
        try:
            if kept is not None:
                return await _read_page(kept.path, page, args.get("grep", ""))
        except OSError:  # pruned a moment ago
            pass
        raise ToolFailed(f"No output '{escape_control_chars(handle[:100])}'.", code="NO_OUTPUT")

    return native_tool(
        "read_output",
        _DESCRIPTION,
        input_schema=_arguments,
        execute=read_output,
        needs_approval=needs_approval,
        label="Read output",
        category="Output",
        read_only=True,
        effects=(),
    )


def _arguments() -> type[pydantic.BaseModel]:
    def usable(pattern: str) -> str:
        if problem := pattern_problem(pattern):
            raise pydantic_core.PydanticCustomError("pattern", "{problem}", {"problem": problem})
        return pattern

    grep = pydantic.Field(
        default="", max_length=MAX_PATTERN, description="Show only lines that match this regular expression."
    )
    context = pydantic.Field(
        default=0, ge=0, le=20, description="With `grep`: how many lines to show around each match."
    )
    return pydantic.create_model(
        "read_output",
        handle=(str, pydantic.Field(description="The handle, `out_` and 12 hexadecimal digits.")),
        offset=offset_field("show"),
        limit=(int, pydantic.Field(default=DEFAULT_LIMIT, ge=1, le=2000, description="How many lines at most.")),
        grep=(Annotated[str, pydantic.AfterValidator(usable)], grep),
        context=(int, context),
    )


class _PageRequest(NamedTuple):
    offset: int
    limit: int
    context: int


async def _read_page(path: Path, page: _PageRequest, pattern: str) -> str:
    """Every thread opens the file for itself: one that was abandoned must not read what its number means by then."""

    def whole_page() -> str:
        return render_page(blocks_of(path), find_position(blocks_of(path), page.offset), page.limit)

    def beginning() -> tuple[PagePosition, SearchScope]:
        place = find_position(blocks_of(path), page.offset)
        line = line_at(blocks_of(path), place.first)
        # A match in each line behind the first fills a page of `limit` rows, one more ends it.
        return place, SearchScope(first=max(0, line - page.context), after=line, most=page.limit + 1)

    def matching_page(place: PagePosition, found: WantedLines) -> str:
        return render_page(blocks_of(path), place, page.limit, with_context(found, page.context))

    def plain_page() -> str:
        place, scope = beginning()
        return matching_page(place, search_plain(pattern, blocks_of(path), scope))

    if not pattern:
        return await run_in_thread(whole_page)
    if _SPECIAL.isdisjoint(pattern):
        return await run_in_thread(plain_page)
    place, scope = await run_in_thread(beginning)
    found = await search(pattern, path, MAYBE_LONG, scope)
    return await run_in_thread(lambda: matching_page(place, found))


LONG_LINE: Final = 32 * 1024 - 256
"""A line over 32 KiB is shown in parts; a little less, so that number and closing note still fit beside it."""
MAYBE_LONG: Final = LONG_LINE // 4
"""A line of fewer characters cannot be long."""


class OutputRow(NamedTuple):
    """A line, or one part of a long line."""

    line: int
    """Index of the line, from 0."""
    text: str
    start: int | None = None
    """Offset of a part in its line, in characters; None for a whole line."""

    def format(self) -> str:
        part = "" if self.start is None else f"+{self.start}"
        return f"L{self.line + 1}{part}: {self.text}"


class OutputBlock(NamedTuple):
    """Some whole lines, none of them long, or one part of a long line."""

    line: int
    """Index of the first line, from 0."""
    rows: int
    data: bytes
    """The bytes without the last line end."""
    start: int | None = None

    def split_rows(self) -> Iterator[OutputRow]:
        for index, text in enumerate(self.data.decode().split("\n"), self.line):
            yield OutputRow(index, text, self.start)


_PIECE_CHARS: Final = 1 << 18


def blocks_of(path: Path) -> Iterator[OutputBlock]:
    """Yields the blocks of a file. Raises OSError."""
    with open(path, encoding="utf-8", errors="replace") as text:  # every line end is LF then
        yield from _BlockSplitter().blocks(piece.encode() for piece in iter(lambda: text.read(_PIECE_CHARS), ""))


class _BlockSplitter:
    def __init__(self) -> None:
        self._buffer = b""
        self._place = 0
        self._line = 0
        self._start: int | None = None
        """Inside a long line: how many of its characters are passed."""

    def blocks(self, pieces: Iterable[bytes]) -> Iterator[OutputBlock]:
        for piece in pieces:
            self._buffer, self._place = self._buffer[self._place :] + piece, 0
            yield from self._known(final=False)
        yield from self._known(final=True)

    def _known(self, *, final: bool) -> Iterator[OutputBlock]:
        """The blocks that are certain whatever follows; with `final` nothing does."""
        while self._place < len(self._buffer):
            enough = LONG_LINE if self._start is None else PAGE_BYTES
            if len(self._buffer) - self._place <= enough and not final:
                return
            if (block := self._lines() if self._start is None else self._part(self._start)) is not None:
                yield block

    def _lines(self) -> OutputBlock | None:
        """Returns a block of as many lines as fit the size of one long line; None if a long one begins."""
        place = self._place
        end = self._buffer.rfind(b"\n", place, place + LONG_LINE + 1)
        if end < 0:
            if len(self._buffer) - place > LONG_LINE:
                self._start = 0
                return None
            end = len(self._buffer)
        data = self._buffer[place:end]
        block = OutputBlock(self._line, data.count(b"\n") + 1, data)
        self._line += block.rows
        self._place = end + 1
        return block

    def _part(self, start: int) -> OutputBlock | None:
        """Returns the next part of a long line; None if the line ended with the part before."""
        place = self._place
        end = self._buffer.find(b"\n", place, place + PAGE_BYTES + 1)
        if not (ended := end >= 0):
            end = min(place + PAGE_BYTES, len(self._buffer))
            while end < len(self._buffer) and self._buffer[end] & 0xC0 == 0x80:
                end -= 1
        data = self._buffer[place:end]
        block = OutputBlock(self._line, 1, data, start) if data else None
        self._place = end + ended
        self._line += ended
        self._start = None if ended else start + len(data.decode())
        return block


WantedLines = Mapping[int, list[Span]]
"""Index of a line (from 0) → where in it, for lines that may be long."""


class PagePosition(NamedTuple):
    first: int
    """Number of the first row, from 1."""
    total: int


def find_position(blocks: Iterable[OutputBlock], offset: int) -> PagePosition:
    """Raises ToolFailed for an offset past the end."""
    total = sum(block.rows for block in blocks)
    return PagePosition(first_line(offset, total), total)


def line_at(blocks: Iterable[OutputBlock], number: int) -> int:
    """Returns the index of the line that a row belongs to."""
    for block in blocks:
        if number <= block.rows:
            return block.line + number - 1
        number -= block.rows
    return 0


def render_page(
    blocks: Iterable[OutputBlock], place: PagePosition, limit: int, wanted: WantedLines | None = None
) -> str:
    """Renders the rows that fit, from `place` on; with `wanted` only those lines."""
    last = place.total
    shown: list[str] = []
    room = PAGE_BYTES
    for number, row in _numbered_rows(blocks, place.first, wanted):
        text = row.format()
        room -= len(text.encode()) + 1
        if shown and (room < 0 or len(shown) == limit):
            last = number - 1
            break
        shown.append(text)
    if not shown:
        shown.append("(empty output)" if wanted is None else "No matches.")
    if note := closing_note(place.first, last, place.total):
        shown.append(note)
    return "\n".join(shown)


def with_context(found: WantedLines, context: int) -> WantedLines:
    """The matching lines and those around them; of a long line around a match, its beginning."""
    around: dict[int, list[Span]] = {
        near: [(0, 0)] for index in found for near in range(index - context, index + context + 1)
    }
    return around | dict(found)


def _numbered_rows(
    blocks: Iterable[OutputBlock], first: int, wanted: WantedLines | None
) -> Iterator[tuple[int, OutputRow]]:
    lines = None if wanted is None else sorted(wanted)
    passed = 0
    for block in blocks:
        wants = lines is None or bisect_left(lines, block.line) < bisect_left(lines, block.line + block.rows)
        if passed + block.rows >= first and wants:
            for number, row in enumerate(block.split_rows(), passed + 1):
                if number >= first and (wanted is None or _is_wanted(row, wanted)):
                    yield number, row
        passed += block.rows
        if lines is not None and (not lines or lines[-1] < block.line):
            return


def _is_wanted(row: OutputRow, wanted: WantedLines) -> bool:
    spans = wanted.get(row.line)
    if spans is None or row.start is None:
        return spans is not None
    start, end = row.start, row.start + len(row.text)
    return any(first < end and start <= max(first, last - 1) for first, last in spans)


class SearchScope(NamedTuple):
    """Limits which matches are returned: no caller sees more than a page of them."""

    first: int
    """Index of the first line to search, from 0."""
    after: int
    """Lines up to this index do not count for `most`."""
    most: int


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
    rows: list[list[Any]] = []
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        order = {"pattern": pattern, "long": long, "file": file, **scope._asdict()}
        await search_in_child(order, PatternLimits(SECONDS, _MEMORY), rows.append, (file,))
    except TimeoutError:
        text = f"The pattern took more than {SECONDS} s on this text and was stopped; use a simpler one."
        raise ToolFailed(text, status=Status.TIMEOUT, code="PATTERN_TIMEOUT") from None
    except PatternTooCostly:
        raise ToolFailed("The pattern needs too much time or memory on this text; use a simpler one.") from None
    finally:
        os.close(file)
    return {index: [(start, end) for start, end in spans] for index, *spans in rows}
