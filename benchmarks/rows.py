"""A row is one comparison: our figure, a peer's, and the goal. Rows are printed and kept in build/bench.json.

`RECORD` is the run that the repository keeps: `make pictures` draws it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

BENCH_JSON = Path(__file__).resolve().parent.parent / "build" / "bench.json"
RECORD = Path(__file__).with_name("record.json")


@dataclass(frozen=True, slots=True)
class Goal:
    text: str
    holds: Callable[[float, float | None], bool]
    """Takes our figure and the peer's."""


def at_most(share: float) -> Goal:
    """Ours is at most this share of the peer's."""
    return Goal(f"<= {share:g} x peer", lambda ours, peer: peer is not None and ours <= share * peer)


def at_most_more(difference: float) -> Goal:
    """Ours is at most so much more than the peer's, in the unit of the row."""
    return Goal(f"<= peer + {difference:g}", lambda ours, peer: peer is not None and ours <= peer + difference)


def below_peer() -> Goal:
    return Goal("< peer", lambda ours, peer: peer is not None and ours < peer)


def below(limit: float) -> Goal:
    """Ours is below a fixed figure, in the unit of the row."""
    return Goal(f"< {limit:g}", lambda ours, _peer: ours < limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    """What was measured, with the unit in brackets at the end; smaller is better."""
    ours: float
    peer: float | None
    peer_name: str
    ratio: float | None
    """Ours divided by the peer's."""
    goal: str
    met: bool | None
    """None: there is no goal, the row is for information."""


def row(name: str, ours: float, *, peer: float | None = None, peer_name: str = "", goal: Goal | None = None) -> Row:
    return Row(
        name=name,
        ours=_rounded(ours),
        peer=None if peer is None else _rounded(peer),
        peer_name=peer_name,
        ratio=_rounded(ours / peer) if peer else None,
        goal=goal.text if goal else "",
        met=goal.holds(ours, peer) if goal else None,
    )


def table(rows: Sequence[Row]) -> str:
    head = ("what", "ours", "peer", "", "ratio", "goal", "")
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    numbers = {1, 2, 4}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def verdict(rows: Sequence[Row]) -> str:
    """How many goals were met, and the rows that missed theirs, a line each."""
    judged = [row for row in rows if row.met is not None]
    missed = [f"{row.name} against {row.peer_name or 'its limit'}" for row in judged if not row.met]
    return "\n".join(
        (f"goals met: {len(judged) - len(missed)} of {len(judged)}", *(f"missed: {one}" for one in missed))
    )


def save(rows: Sequence[Row], path: Path = BENCH_JSON, **about: object) -> None:
    """`about`: what else is said of the run, beside its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {**about, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        _figure(row.ours),
        "" if row.peer is None else _figure(row.peer),
        row.peer_name,
        "" if row.ratio is None else f"{row.ratio:.3f}",
        row.goal,
        {True: "met", False: "MISSED", None: ""}[row.met],
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
