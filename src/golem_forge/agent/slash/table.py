"""Text tables of commands: aligned columns, times in the local time zone. No cell can break its line or steer a
screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from golem_forge.core.text import escape_control_chars

_GAP = "  "


def columns(rows: Iterable[Sequence[str]], indent: str = "") -> str:
    cleaned = [[escape_control_chars(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows]
    if not cleaned:
        return ""
    widths = [
        max((len(row[at]) for row in cleaned if at < len(row)), default=0) for at in range(max(map(len, cleaned)))
    ]
    return "\n".join(
        (indent + _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in cleaned
    )


def local_time(ts: str) -> str:
    """The journal writes UTC; people read their own clock."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(ts).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ts
