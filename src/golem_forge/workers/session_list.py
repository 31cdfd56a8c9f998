"""The conversations that were recorded, as the table people read: `forge sessions list` and `/sessions` show the same.

Takes FORGE_HOME and the program that asks; gives what is known of each and its row, newest last. Reads, and nothing
else; the index may have journals to read, so it can take a moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from golem_forge.core.homely import homely
from golem_forge.core.visible import visible
from golem_forge.events.index import Index, SessionSummary
from golem_forge.events.session_files import is_held, journal_path
from golem_forge.workers.slash.table import local_time

HEAD: Final = ("SESSION", "STARTED", "LAST", "STATE", "WORKER", "MODEL", "DIRECTORY", "BEGAN WITH")
MOST: Final = 20
_HERE: Final = "."
_ID_SHOWN: Final = 12
_DAY: Final = len("2026-11-15")
_WIDTH: Final = 100
_GAPS: Final = 2 * (len(HEAD) - 1)
_NARROWEST: Final = {4: 6, 5: 10, 6: 9, 7: 12}
"""By column: what may be cut so that a row fits, and how far."""
_CUT_AT_START: Final = frozenset({5, 6})
"""Models and directories: their ends tell one from another."""


def listed_sessions(home: Path, *, everything: bool = False, limit: int = MOST) -> list[SessionSummary]:
    """`everything`: those in which no model was asked anything, too (single calls, starts that failed)."""
    index = Index(home)
    return (index.sessions(limit=limit) if everything else index.conversations(limit=limit))[::-1]


def session_state(home: Path, session: SessionSummary) -> str:
    if is_held(journal_path(home, session.id)):
        return "running"
    return "closed" if session.closed else "not closed"


def session_row(session: SessionSummary, state: str, root: Path | str) -> tuple[str, ...]:
    """`root`: the program that asks; its own directory is `.`, and what `last` means is the last of those."""
    return (
        session.id[:_ID_SHOWN],
        local_time(session.created),
        _last(local_time(session.created), local_time(session.updated)),
        state,
        session.worker or "-",
        session.model or "-",
        _HERE if session.root == str(root) else homely(session.root) or "-",
        session.input,
    )


def session_table(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows below their head, in cells of which each row fits a terminal of 100 columns: the widest give way."""
    table = [tuple(visible(cell).replace("\n", " ").replace("\t", " ") for cell in row) for row in (HEAD, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    while sum(widths) + _GAPS > _WIDTH:
        wide = [at for at, least in _NARROWEST.items() if widths[at] > least]
        if not wide:
            break
        widths[max(wide, key=lambda at: widths[at])] -= 1
    return [
        tuple(_cut(cell, width, at) for at, (cell, width) in enumerate(zip(row, widths, strict=True))) for row in table
    ]


def _last(started: str, last: str) -> str:
    """The time alone where it is of the same day."""
    return last[_DAY + 1 :] if started[:_DAY] == last[:_DAY] else last[_DAY - 5 :]


def _cut(cell: str, width: int, column: int) -> str:
    if len(cell) <= width:
        return cell
    return f"…{cell[len(cell) - width + 1 :]}" if column in _CUT_AT_START else f"{cell[: width - 1]}…"
