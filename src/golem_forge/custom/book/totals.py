"""Totals over all user tools, as they head `forge tools stats`, and a small bar chart in text.

Takes the book and the state of each tool there is (name → state); gives Totals with `to_json`, `chart` gives lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, Final

from golem_forge.core.visible import visible
from golem_forge.custom.book import Book
from golem_forge.custom.book.statistics import statistics

ACTIVE: Final = "active"
BLOCKS: Final = "▏▎▍▌▋▊▉█"
"""Eighths of a cell, the whole one last."""
PLAIN: Final = "#"
"""For terminals and files that are not Unicode."""
_LEAST_BAR: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Creations:
    """How far tools that came into being ever got."""

    made: int
    built: int
    tested: int
    activated: int

    def to_json(self) -> dict[str, Any]:
        counts = {"built": self.built, "tested": self.tested, "activated": self.activated}
        rates = {f"{what}_rate": count / self.made if self.made else None for what, count in counts.items()}
        return {"made": self.made, **counts, **rates}


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshTimes:
    """Of the last 1,000 refreshes."""

    count: int
    p50_ms: float | None
    p95_ms: float | None

    def to_json(self) -> dict[str, Any]:
        return {"count": self.count, "p50_ms": self.p50_ms, "p95_ms": self.p95_ms}


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    tools: int
    by_author: Mapping[str, int]
    by_state: Mapping[str, int]
    creations: Creations
    reuse: float | None
    """Share of active tools that were called in at least two sessions; None without an active tool."""
    saved_ms: float | None
    """An estimate over the tools made from a suggestion; None if there is none."""
    refresh: RefreshTimes

    def to_json(self) -> dict[str, Any]:
        return {
            "tools": self.tools,
            "by_author": dict(self.by_author),
            "by_state": dict(self.by_state),
            "creations": self.creations.to_json(),
            "reuse": self.reuse,
            "time_saved_ms": self.saved_ms,
            "refresh": self.refresh.to_json(),
        }


def totals(book: Book, states: Mapping[str, str]) -> Totals:
    """`states`: of every tool folder there is, by name."""
    active = [name for name, state in states.items() if state == ACTIVE]
    reused = {name for (name,) in book.rows("SELECT name FROM tools WHERE reused")}
    saved = [each.saved_ms for each in statistics(book, states) if each.saved_ms is not None] if states else []
    return Totals(
        tools=len(states),
        by_author=_sorted(Counter(book.provenance(name).kind.value for name in states)),
        by_state=_sorted(Counter(str(state) for state in states.values())),
        creations=_creations(book),
        reuse=sum(name in reused for name in active) / len(active) if active else None,
        saved_ms=sum(saved) if saved else None,
        refresh=_refresh(book),
    )


def chart(rows: Sequence[tuple[str, float]], width: int, *, marks: str = BLOCKS) -> list[str]:
    """A line for each (label, value): the label, a bar, the value; none wider than `width` if a bar fits at all."""
    if not rows:
        return []
    figures = [f"{value:g}" for _, value in rows]
    widest_figure = max(map(len, figures))
    labels = [visible(label).replace("\n", " ").replace("\t", " ") for label, _ in rows]
    room = max(1, width - widest_figure - 2 - _LEAST_BAR)
    widest_label = min(room, max(map(len, labels)))
    space = max(_LEAST_BAR, width - widest_label - widest_figure - 2)
    largest = max((value for _, value in rows if isfinite(value)), default=0)
    lines: list[str] = []
    for label, figure, (_, value) in zip(labels, figures, rows, strict=True):
        shown = label if len(label) <= widest_label else label[: widest_label - 1] + "~"
        lines.append(f"{shown:<{widest_label}} {_bar(value, largest, space, marks):<{space}} {figure:>{widest_figure}}")
    return lines


def _bar(value: float, largest: float, space: int, marks: str) -> str:
    """Anything above nothing is seen."""
    if not isfinite(value) or value <= 0 or largest <= 0:
        return ""
    whole, rest = divmod(max(1, round(value / largest * space * len(marks))), len(marks))
    return marks[-1] * whole + (marks[rest - 1] if rest else "")


def _creations(book: Book) -> Creations:
    found = book.rows("SELECT count(*), total(built), total(tested), total(activated) FROM creations")
    made, built, tested, activated = found[0] if found else (0, 0, 0, 0)
    return Creations(made=made, built=int(built), tested=int(tested), activated=int(activated))


def _refresh(book: Book) -> RefreshTimes:
    times = [ms for (ms,) in book.rows("SELECT ms FROM refreshes ORDER BY ms")]
    return RefreshTimes(count=len(times), p50_ms=_rank(times, 0.50), p95_ms=_rank(times, 0.95))


def _rank(ordered: Sequence[float], share: float) -> float | None:
    return ordered[ceil(share * len(ordered)) - 1] if ordered else None


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
