"""read_output: pages through an output that was too long for its caller and was kept whole.

Touches nothing but kept outputs, and of those only the ones of the calling worker and of workers below it (a person at
the keyboard: of any session).

A line too long for one page is shown in parts, `L<n>+<char offset>: …`. Each part counts as a line for `offset` and
`limit`, so that every character can be reached. With a search, `offset` is where it starts, and the closing note says
how far it came.

Threat: an output of 64 MiB has up to 64 million lines; as a list of texts they would take gigabytes. So the text is
read as often as needed, one block (at most 32 KiB) at a time, and never held.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from golem_forge._version import __version__
from golem_forge.core.calls import Caller
from golem_forge.core.errors import ToolFailed
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import OutputLookup, ToolContext
from golem_forge.tools.tool import NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.line_search_child import Span, clean_pieces
from golem_forge.toolsets.text import PAGE_BYTES, closing_note, first_line, offset_field

if TYPE_CHECKING:
    from pydantic import BaseModel

DEFAULT_LIMIT: Final = 200
_DESCRIPTION: Final = (
    "Read an output that was too long to be shown, by the handle in its `[… left out …]` line. Lines come back "
    "numbered as `L<n>: text`; the last line says where to continue. `grep` shows only matching lines."
)


def create_read_output_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None, *, outputs: OutputLookup | None = None
) -> Tool:
    """Without `outputs`: those of the session that makes the call. `sandbox` is there because every
    `create_<tool>_tool` has it; kept outputs are in no zone."""

    async def read_output(args: dict[str, Any], ctx: ToolContext) -> str:
        from golem_forge.tools.threads import run_in_thread

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

    return Tool(
        "read_output",
        _DESCRIPTION,
        input_schema=_arguments,
        execute=read_output,
        needs_approval=needs_approval,
        label="Read output",
        category="Output",
        read_only=True,
        effects=(),
        source=SourceKind.NATIVE,
        code_digest=__version__,
    )


def _arguments() -> type[BaseModel]:
    from pydantic import AfterValidator, Field, create_model
    from pydantic_core import PydanticCustomError

    from golem_forge.toolsets.line_search import MAX_PATTERN, pattern_problem

    def usable(pattern: str) -> str:
        if problem := pattern_problem(pattern):
            raise PydanticCustomError("pattern", "{problem}", {"problem": problem})
        return pattern

    grep = Field(default="", max_length=MAX_PATTERN, description="Show only lines that match this regular expression.")
    context = Field(default=0, ge=0, le=20, description="With `grep`: how many lines to show around each match.")
    return create_model(
        "read_output",
        handle=(str, Field(description="The handle, `out_` and 12 hexadecimal digits.")),
        offset=offset_field("show"),
        limit=(int, Field(default=DEFAULT_LIMIT, ge=1, le=2000, description="How many lines at most.")),
        grep=(Annotated[str, AfterValidator(usable)], grep),
        context=(int, context),
    )


class _PageRequest(NamedTuple):
    offset: int
    limit: int
    context: int


async def _read_page(path: Path, page: _PageRequest, pattern: str) -> str:
    """Every thread opens the file for itself: one that was abandoned must not read what its number means by then."""
    from golem_forge.tools.threads import run_in_thread
    from golem_forge.toolsets.line_search import SearchScope, is_plain, search, search_plain

    def whole_page() -> str:
        return render_page(blocks_of(path), find_position(blocks_of(path), page.offset), page.limit)

    def beginning() -> tuple[PagePosition, SearchScope]:
        place = find_position(blocks_of(path), page.offset)
        line = line_at(blocks_of(path), place)
        # A match in each line behind the first fills a page of `limit` rows, one more ends it.
        return place, SearchScope(first=max(0, line - page.context), after=line, most=page.limit + 1)

    def matching_page(place: PagePosition, found: WantedLines) -> str:
        return render_page(blocks_of(path), place, page.limit, with_context(found, page.context))

    def plain_page() -> str:
        place, scope = beginning()
        return matching_page(place, search_plain(pattern, blocks_of(path), scope))

    if not pattern:
        return await run_in_thread(whole_page)
    if is_plain(pattern):
        return await run_in_thread(plain_page)
    place, scope = await run_in_thread(beginning)
    found = await search(pattern, path, MAYBE_LONG, scope)
    return await run_in_thread(lambda: matching_page(place, found))


LONG_LINE: Final = 32 * 1024 - 256
"""A line over 32 KiB is shown in parts; a little less, so that number and closing note still fit beside it."""
MAYBE_LONG: Final = LONG_LINE // 4
"""No line of fewer characters can be long."""


class OutputRow(NamedTuple):
    """A line, or one part of a long one."""

    line: int
    """From 0."""
    text: str
    start: int | None = None
    """Where in its line a part begins, in characters; None for a whole line."""

    def format(self) -> str:
        part = "" if self.start is None else f"+{self.start}"
        return f"L{self.line + 1}{part}: {self.text}"


class OutputBlock(NamedTuple):
    """Some whole lines, none of them long, or one part of a long line."""

    line: int
    """Index of the first, from 0."""
    rows: int
    data: bytes
    """Without the last line end."""
    start: int | None = None

    def split_rows(self) -> Iterator[OutputRow]:
        for index, text in enumerate(self.data.decode().split("\n"), self.line):
            yield OutputRow(index, text, self.start)


def blocks_of(path: Path) -> Iterator[OutputBlock]:
    """Everything in a file. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        yield from _BlockSplitter().blocks(clean_pieces(file))


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
        """As many lines as there are in the room of one long line; None where a long one begins."""
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
        """None where the line ended with the part before."""
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


_ENOUGH_BYTES: Final = 3 * LONG_LINE
"""Bytes: at worst one block with a single row of the page, a row that fills it, and one that ends it."""
_MAX_KEPT_BYTES: Final = 4 << 20
WantedLines = Mapping[int, list[Span]]
"""Index of a line (from 0) → where in it, for lines that may be long."""


class PagePosition(NamedTuple):
    first: int
    """Number of the row, from 1."""
    total: int
    before: int
    """How many rows there are before those that were kept on the way."""
    kept: tuple[OutputBlock, ...]
    """Blocks with enough rows for a page, if the first is among them: most pages need no second look at the text."""

    @property
    def is_kept(self) -> bool:
        return self.before < self.first


def find_position(blocks: Iterable[OutputBlock], offset: int) -> PagePosition:
    """Raises ToolFailed for an offset past the end."""
    kept: deque[OutputBlock] = deque()
    total = before = size = 0
    for block in blocks:
        total += block.rows
        if offset > 0:
            if total < offset:
                before = total
            elif size <= _ENOUGH_BYTES:
                kept.append(block)
                size += len(block.data)
            continue
        kept.append(block)
        size += len(block.data)
        while total - before - kept[0].rows >= -offset or size > _MAX_KEPT_BYTES:
            gone = kept.popleft()
            before += gone.rows
            size -= len(gone.data)
    return PagePosition(first_line(offset, total), total, before, tuple(kept))


def line_at(blocks: Iterable[OutputBlock], place: PagePosition) -> int:
    """Index of the line that the first row belongs to."""
    passed, blocks = (place.before, place.kept) if place.is_kept else (0, blocks)
    for block in blocks:
        if place.first <= passed + block.rows:
            return block.line + place.first - passed - 1
        passed += block.rows
    return 0


def render_page(
    blocks: Iterable[OutputBlock], place: PagePosition, limit: int, wanted: WantedLines | None = None
) -> str:
    """What fits, from `place` on; with `wanted` only those lines."""
    last = place.total
    shown: list[str] = []
    room = PAGE_BYTES
    before, blocks = (place.before, place.kept) if place.is_kept and wanted is None else (0, blocks)
    for number, row in _numbered_rows(blocks, before, place.first, wanted):
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
    blocks: Iterable[OutputBlock], passed: int, first: int, wanted: WantedLines | None
) -> Iterator[tuple[int, OutputRow]]:
    lines = None if wanted is None else sorted(wanted)
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
