"""Statistics of user tools, from the outcomes in the store: per tool and digest, totals, and a bar chart in text.

Takes the store and, for what only the registry knows, which tools there are and their states; gives records with
`to_json`. Changes nothing: `unused_tools` lists candidates, a person retires them.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import ceil, isfinite
from typing import Any, Final, NamedTuple

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, one_line
from golem_forge.events.serialization import iso_time
from golem_forge.usertools.store import ToolStore

_AGE: Final = regex(r"([0-9]{1,7})([smhdw])", re.ASCII)
_SECONDS_PER_UNIT: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LONGEST_AGE_S: Final = 100 * 366 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUsage:
    """Usage of a tool, or of one digest of it."""

    calls: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    ran: int = 0
    """Calls whose code was entered; the others were refused before."""
    successes: int = 0
    last_used: str = ""
    """The time of its last run; empty if never."""
    median_ms: float | None = None
    """The median of the last 2,000 calls."""
    total_ms: float = 0.0

    @property
    def success_rate(self) -> float | None:
        return self.successes / self.ran if self.ran else None

    def to_json(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "statuses": dict(self.statuses),
            "ran": self.ran,
            "success_rate": self.success_rate,
            "last_used": self.last_used or None,
            "median_ms": self.median_ms,
            "total_ms": self.total_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStats:
    name: str
    usage: ToolUsage
    by_digest: Mapping[str, ToolUsage]
    good: int = 0
    bad: int = 0
    saved_ms: float | None = None
    """An estimate, only for a tool made from a suggestion."""

    def to_json(self) -> dict[str, Any]:
        found = {"name": self.name, **self.usage.to_json(), "ratings": {"good": self.good, "bad": self.bad}}
        if self.saved_ms is not None:
            found["time_saved_ms"] = self.saved_ms
        return found | {"digests": {digest: usage.to_json() for digest, usage in self.by_digest.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedTool:
    name: str
    last_used: str
    """Empty if never used."""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "last_used": self.last_used or None}


def tool_statistics(store: ToolStore, names: Iterable[str] = ()) -> tuple[ToolStats, ...]:
    """Returns the statistics of these tools, used or not; without names, of all that were ever used. Sorted by name."""
    asked = tuple(names)
    only = {"name": asked[0] if len(asked) == 1 else ""}
    uses: dict[str, dict[str, list[_Uses]]] = {}
    for row in (*store.rows(_OLD_USES, only), *store.rows(_USES, only)):
        uses.setdefault(row[0], {}).setdefault(row[1], []).append(_Uses(*row[2:]))
    rated = {name: (good, bad) for name, good, bad in store.rows(_RATINGS)}
    sequences: dict[str, float] = dict(store.rows(_SUGGESTED))
    found: list[ToolStats] = []
    for name in sorted(asked or uses):
        digests = uses.get(name, {})
        usage, by_digest = _usage(chain(*digests.values())), {key: _usage(each) for key, each in digests.items()}
        good, bad = rated.get(name, (0, 0))
        saved = None
        if name in sequences:
            saved = 0.0 if usage.median_ms is None else max(0.0, sequences[name] - usage.median_ms) * usage.calls
        found.append(ToolStats(name=name, usage=usage, by_digest=by_digest, good=good, bad=bad, saved_ms=saved))
    return tuple(found)


def unused_tools(
    store: ToolStore, names: Iterable[str], age_s: float, *, now: float | None = None
) -> tuple[UnusedTool, ...]:
    """Returns the tools that never ran or not within `age_s`, longest unused first. Retired ones are left out."""
    since = iso_time((time.time() if now is None else now) - age_s)
    last: dict[str, str] = dict(store.rows(_LAST_USED))
    retired = {name for (name,) in store.rows("SELECT name FROM tools WHERE retired_at IS NOT NULL")}
    found = [UnusedTool(name=name, last_used=last.get(name, "")) for name in names if name not in retired]
    unused = (each for each in found if each.last_used < since)
    return tuple(sorted(unused, key=lambda each: (each.last_used, each.name)))


def parse_age(text: str) -> int:
    """Returns `90d`, `12h`, `30m`, `45s`, `2w` in seconds. Raises ForgeError."""
    match = _AGE.fullmatch(text.strip().lower())
    seconds = int(match[1]) * _SECONDS_PER_UNIT[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST_AGE_S:
        raise ForgeError(
            f"'{escape_control_chars(text[:50])}' is not a duration: write a number and s, m, h, d or w, like 90d",
            status=Status.INPUT_INVALID,
            code="AGE",
        )
    return seconds


_USES: Final = (
    "SELECT name, digest, status, ran, 1, duration_ms, at, duration_ms FROM uses "
    "WHERE :name = '' OR name = :name ORDER BY name, id"
)
_OLD_USES: Final = (
    "SELECT name, digest, status, ran, calls, total_ms, last_at, NULL FROM tallies WHERE :name = '' OR name = :name"
)
_RATINGS: Final = "SELECT name, sum(good), sum(NOT good) FROM ratings GROUP BY name"
_SUGGESTED: Final = (
    "SELECT name, sequence_ms FROM creations WHERE suggestion <> '' "
    "AND id IN (SELECT max(id) FROM creations GROUP BY name)"
)
_LAST_USED: Final = (
    "SELECT name, max(at) FROM (SELECT name, at FROM uses WHERE ran UNION ALL "
    "SELECT name, last_at FROM tallies WHERE ran) GROUP BY name"
)


class _Uses(NamedTuple):
    """One use, or the sum of old ones."""

    status: str
    ran: int
    calls: int
    total_ms: float
    last_at: str
    single_ms: float | None


def _usage(uses: Iterable[_Uses]) -> ToolUsage:
    every = list(uses)
    ran = [each for each in every if each.ran]
    statuses: Counter[str] = Counter()
    for each in every:
        statuses[each.status] += each.calls
    return ToolUsage(
        calls=statuses.total(),
        statuses=_by_name(statuses),
        ran=sum(each.calls for each in ran),
        successes=sum(each.calls for each in ran if each.status == Status.SUCCESS),
        last_used=max((each.last_at for each in ran), default=""),
        median_ms=median([each.single_ms for each in ran if each.single_ms is not None]),
        total_ms=sum((each.total_ms for each in ran), 0.0),
    )


def median(values: list[float]) -> float | None:
    if not values:
        return None
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


ACTIVE: Final = "active"
BLOCKS: Final = "▏▎▍▌▋▊▉█"
"""Block characters for eighths of a cell, the full one last."""
PLAIN_BLOCKS: Final = "#"
"""Used for terminals and files without Unicode."""
_MIN_BAR: Final = 5


@dataclass(frozen=True, slots=True)
class CreationCounts:
    """How many created tools were built, tested and activated."""

    made: int
    built: int
    tested: int
    activated: int

    def to_json(self) -> dict[str, Any]:
        counts = {"built": self.built, "tested": self.tested, "activated": self.activated}
        rates = {f"{what}_rate": count / self.made if self.made else None for what, count in counts.items()}
        return {"made": self.made, **counts, **rates}


@dataclass(frozen=True, slots=True)
class RefreshStats:
    """Statistics of the last 1,000 refreshes."""

    count: int
    p50_ms: float | None
    p95_ms: float | None

    def to_json(self) -> dict[str, Any]:
        return {"count": self.count, "p50_ms": self.p50_ms, "p95_ms": self.p95_ms}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTotals:
    tools: int
    by_author: Mapping[str, int]
    by_state: Mapping[str, int]
    creations: CreationCounts
    reuse: float | None
    """Share of active tools that were called in at least two sessions; None without an active tool."""
    saved_ms: float | None
    """An estimate over the tools made from a suggestion, deleted ones too; None if there is none."""
    refresh: RefreshStats

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


def total_statistics(store: ToolStore, states: Mapping[str, str]) -> ToolTotals:
    """`states`: of every tool folder there is, by name."""
    active = [name for name, state in states.items() if state == ACTIVE]
    reused = {name for (name,) in store.rows("SELECT name FROM tools WHERE reused")}
    saved = [each.saved_ms for each in tool_statistics(store) if each.saved_ms is not None]
    made = store.rows("SELECT count(*), total(built), total(tested), total(activated) FROM creations") or [(0, 0, 0, 0)]
    times = [ms for (ms,) in store.rows("SELECT ms FROM refreshes ORDER BY ms")]
    return ToolTotals(
        tools=len(states),
        by_author=_by_name(Counter(store.provenance(name).kind.value for name in states)),
        by_state=_by_name(Counter(str(state) for state in states.values())),
        creations=CreationCounts(*map(int, made[0])),
        reuse=sum(name in reused for name in active) / len(active) if active else None,
        saved_ms=sum(saved) if saved else None,
        refresh=RefreshStats(len(times), _percentile(times, 0.50), _percentile(times, 0.95)),
    )


def bar_chart(rows: Sequence[tuple[str, float]], width: int, *, marks: str = BLOCKS) -> list[str]:
    """A line for each (label, value): the label, a bar, the value; none wider than `width` if a bar fits at all."""
    if not rows:
        return []
    figures = [f"{value:g}" for _, value in rows]
    widest_figure = max(map(len, figures))
    labels = [one_line(label) for label, _ in rows]
    room = max(1, width - widest_figure - 2 - _MIN_BAR)
    widest_label = min(room, max(map(len, labels)))
    space = max(_MIN_BAR, width - widest_label - widest_figure - 2)
    largest = max((value for _, value in rows if isfinite(value)), default=0)
    lines: list[str] = []
    for label, figure, (_, value) in zip(labels, figures, rows, strict=True):
        shown = label if len(label) <= widest_label else label[: widest_label - 1] + "~"
        lines.append(f"{shown:<{widest_label}} {_bar(value, largest, space, marks):<{space}} {figure:>{widest_figure}}")
    return lines


def _bar(value: float, largest: float, space: int, marks: str) -> str:
    """Returns a bar; any value above 0 is visible."""
    if not isfinite(value) or value <= 0 or largest <= 0:
        return ""
    whole, rest = divmod(max(1, round(value / largest * space * len(marks))), len(marks))
    return marks[-1] * whole + (marks[rest - 1] if rest else "")


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[ceil(share * len(ordered)) - 1] if ordered else None


def _by_name(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
