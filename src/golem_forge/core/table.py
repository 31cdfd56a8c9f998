"""Text tables: aligned columns, times in the local time zone, amounts. No cell can break its line or steer a screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any, Final

from golem_forge.core.text import one_line

GAP: Final = "  "


def columns(rows: Iterable[Sequence[str]], indent: str = "") -> str:
    """Rows with each column as wide as its widest cell; the last one is as long as it is."""
    table = [[one_line(cell) for cell in row] for row in rows]
    count = max(map(len, table), default=0)
    widths = [max((len(row[at]) for row in table if at < len(row)), default=0) for at in range(count)]
    return "\n".join(
        (indent + GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in table
    )


def local_time(ts: str, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """The journal writes UTC; people read their own clock."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(ts).astimezone().strftime(form)
    except ValueError:
        return ts


def local_minute(ts: str) -> str:
    return local_time(ts, "%Y-%m-%d %H:%M")


COST_UNKNOWN: Final = "cost unknown"
_LOCAL: Final = "local"


def cost_text(dollars: Any, prices: Any = "") -> str:
    """`$0.0123`; `local` where the models ran on this machine; `cost unknown`. `prices`: where the prices come from."""
    if type(dollars) not in (int, float) or not isfinite(dollars):
        return COST_UNKNOWN
    if prices == _LOCAL and dollars == 0:
        return _LOCAL
    return f"${dollars:.2f}" if dollars >= 10 or dollars == 0 else f"${dollars:.4f}"
