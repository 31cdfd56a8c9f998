"""Kept outputs: what was too long for its caller and was kept whole, in pages of numbered lines as `/output` shows it.

Gives those of the session in the path and of no other. Looking is no call: nothing is judged, run or recorded. Known
secrets are taken out as `read_output` does it. Threat: a handle is a file name; only what `out_` and 12 hexadecimal
digits can spell is looked for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from golem_forge.core.errors import ToolFailed
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import Call, Operation, operation
from golem_forge.ui.web.api.subject import subject_of
from golem_forge.ui.web.wire import Model, Refused

MOST_LINES: Final = 2000
_USUAL_LINES: Final = 200
_HANDLE: Final = re.compile(r"out_[0-9a-f]{12}")
_Line = Annotated[int, Field(ge=1, le=9_999_999_999)]


class OutputQuery(Model, title="OutputQuery"):
    start: _Line = 1
    """The first line, counted from 1."""
    end: _Line | None = None
    """The last line; without it 200 lines, and of what is too long for one page what fits."""


class OutputPage(Model, title="OutputPage"):
    handle: str
    text: str
    """Lines as `L<number>: text`; the last may say which they are: `[lines 1-200 of 900; continue with offset=201]`."""
    total: int
    """How many lines there are; a very long one counts once for each of its parts."""
    next: int | None
    """The `start` of the page behind this one; null: this is the last."""


@operation(
    "GET",
    "/api/sessions/{id}/outputs/{handle}",
    "read_output",
    tag="events",
    query=OutputQuery,
    answer=OutputPage,
    refusals={422: "no line, or more than 2000"},
)
async def read_output(call: Call) -> OutputPage:
    """Lines of an output that was kept whole, by the handle in `outputHandle`."""
    session = await call.house.find(call.path["id"])
    subject = await subject_of(call)
    handle, start = call.path["handle"], call.query.start
    count = _USUAL_LINES if call.query.end is None else call.query.end - start + 1
    if not 1 <= count <= MOST_LINES:
        raise Refused(422, f"A range has 1 to {MOST_LINES} lines.", {"end": f"{start} to {start + MOST_LINES - 1}"})
    if not _HANDLE.fullmatch(handle):
        raise _nothing()
    path = subject.home.path / "output" / session.id / handle
    text, total, following = await run_in_thread(lambda: _page(path, start, count))
    return OutputPage(handle=handle, text=subject.fit(text), total=total, next=following)


def _page(path: Path, start: int, count: int) -> tuple[str, int, int | None]:
    from golem_forge.toolsets.output_pages import find_place, page
    from golem_forge.toolsets.output_rows import blocks_of

    try:
        place = find_place(blocks_of(path), start)
        text = page(blocks_of(path), place, count)
    except OSError:
        raise _nothing() from None
    except ToolFailed as error:
        raise Refused(422, error.message, {"start": error.message}) from None
    rows = text.split("\n")
    shown = len(rows) - rows[-1].startswith("[lines ")  # a line of the output begins with its number
    following = place.first + shown
    return text, place.total, following if following <= place.total else None


def _nothing() -> Refused:
    return Refused(404, "This session keeps no such output.")


OPERATIONS: Final[tuple[Operation, ...]] = (read_output,)
