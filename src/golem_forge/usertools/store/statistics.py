"""Statistics of user tools, from the outcomes in the store: per tool and digest, totals, and a bar chart in text.

Takes the store and, for what only the registry knows, which tools there are and their states; gives records with
`to_json`. Changes nothing: `unused_tools` lists candidates, a person retires them.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, isfinite
from typing import Any, Final

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import escape_control_chars
from golem_forge.events.serialization import iso_time
from golem_forge.usertools.store import ToolStore

_AGE: Final = re.compile(r"([0-9]{1,7})([smhdw])", re.ASCII)
_SECONDS_PER_UNIT: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LONGEST_AGE_S: Final = 100 * 366 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUsage:
    """Of one tool, or of one digest of it."""

    calls: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    ran: int = 0
    """Calls whose code was entered; the others were refused before."""
    successes: int = 0
    last_used: str = ""
    """When it last ran; empty: never."""
    median_ms: float | None = None
    """Over the last 2,000 calls."""
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
    """Empty: never."""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "last_used": self.last_used or None}


def tool_statistics(store: ToolStore, names: Iterable[str] = ()) -> tuple[ToolStats, ...]:
    """Of these tools, used or not; without names, of all that were ever used. By name."""
    asked = tuple(names)
    tallies = _tallies(store, asked[0] if len(asked) == 1 else "")
    wanted = sorted(asked or {name for name, _ in tallies})
    rated = {name: (good, bad) for name, good, bad in store.rows(_RATINGS)}
    sequences: dict[str, float] = dict(store.rows(_SUGGESTED))
    of_tool: dict[str, dict[str, _Tally]] = {}
    for (name, digest), tally in tallies.items():
        of_tool.setdefault(name, {})[digest] = tally
    found: list[ToolStats] = []
    for name in wanted:
        digests = of_tool.get(name, {})
        usage, by_digest = _sum_tallies(digests.values()).usage(), {key: each.usage() for key, each in digests.items()}
        good, bad = rated.get(name, (0, 0))
        saved = _time_saved(sequences.get(name), usage)
        found.append(ToolStats(name=name, usage=usage, by_digest=by_digest, good=good, bad=bad, saved_ms=saved))
    return tuple(found)


def unused_tools(
    store: ToolStore, names: Iterable[str], age_s: float, *, now: float | None = None
) -> tuple[UnusedTool, ...]:
    """Those of `names` that never ran or not within `age_s`, longest unused first. Retired ones are no candidates."""
    since = iso_time((time.time() if now is None else now) - age_s)
    last: dict[str, str] = dict(store.rows(_LAST_USED))
    retired = {name for (name,) in store.rows("SELECT name FROM tools WHERE retired_at IS NOT NULL")}
    found = [UnusedTool(name=name, last_used=last.get(name, "")) for name in names if name not in retired]
    unused = (each for each in found if each.last_used < since)
    return tuple(sorted(unused, key=lambda each: (each.last_used, each.name)))


def parse_age(text: str) -> int:
    """`90d`, `12h`, `30m`, `45s`, `2w` as seconds."""
    match = _AGE.fullmatch(text.strip().lower())
    seconds = int(match[1]) * _SECONDS_PER_UNIT[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST_AGE_S:
        raise ForgeError(
            f"'{escape_control_chars(text[:50])}' is no length of time: write a number and s, m, h, d or w, like 90d",
            status=Status.INPUT_INVALID,
            code="AGE",
        )
    return seconds


_USES: Final = (
    "SELECT name, digest, status, ran, duration_ms, at FROM uses WHERE :name = '' OR name = :name ORDER BY name, id"
)
_OLD_USES: Final = (
    "SELECT name, digest, status, ran, calls, total_ms, last_at FROM tallies WHERE :name = '' OR name = :name"
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


@dataclass(slots=True)
class _Tally:
    statuses: dict[str, int] = field(default_factory=dict)
    ran: int = 0
    successes: int = 0
    last_used: str = ""
    total_ms: float = 0.0
    durations: list[float] = field(default_factory=list)

    def add(self, status: str, ran: int, calls: int, total_ms: float, at: str) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + calls
        if ran:
            self.ran += calls
            self.successes += calls if status == Status.SUCCESS else 0
            self.total_ms += total_ms
            self.last_used = max(self.last_used, at)

    def usage(self) -> ToolUsage:
        return ToolUsage(
            calls=sum(self.statuses.values()),
            statuses=dict(sorted(self.statuses.items())),
            ran=self.ran,
            successes=self.successes,
            last_used=self.last_used,
            median_ms=median(self.durations),
            total_ms=self.total_ms,
        )


def _tallies(store: ToolStore, name: str) -> dict[tuple[str, str], _Tally]:
    found: dict[tuple[str, str], _Tally] = {}
    for tool, digest, status, ran, calls, total_ms, at in store.rows(_OLD_USES, {"name": name}):
        found.setdefault((tool, digest), _Tally()).add(status, ran, calls, total_ms, at)
    for tool, digest, status, ran, duration_ms, at in store.rows(_USES, {"name": name}):
        tally = found.setdefault((tool, digest), _Tally())
        tally.add(status, ran, 1, duration_ms, at)
        if ran:
            tally.durations.append(duration_ms)
    return found


def _sum_tallies(tallies: Iterable[_Tally]) -> _Tally:
    total = _Tally()
    for tally in tallies:
        for status, calls in tally.statuses.items():
            total.statuses[status] = total.statuses.get(status, 0) + calls
        total.ran += tally.ran
        total.successes += tally.successes
        total.last_used = max(total.last_used, tally.last_used)
        total.total_ms += tally.total_ms
        total.durations += tally.durations
    return total


def _time_saved(sequence_ms: float | None, usage: ToolUsage) -> float | None:
    if sequence_ms is None:
        return None
    return 0.0 if usage.median_ms is None else (sequence_ms - usage.median_ms) * usage.calls


def median(values: list[float]) -> float | None:
    if not values:
        return None
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


ACTIVE: Final = "active"
BLOCKS: Final = "▏▎▍▌▋▊▉█"
"""Eighths of a cell, the whole one last."""
PLAIN_BLOCKS: Final = "#"
"""For terminals and files that are not Unicode."""
_MIN_BAR: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationCounts:
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
class RefreshStats:
    """Of the last 1,000 refreshes."""

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
    """An estimate over the tools made from a suggestion; None if there is none."""
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
    saved = [each.saved_ms for each in tool_statistics(store, states) if each.saved_ms is not None] if states else []
    return ToolTotals(
        tools=len(states),
        by_author=_by_name(Counter(store.provenance(name).kind.value for name in states)),
        by_state=_by_name(Counter(str(state) for state in states.values())),
        creations=_creation_counts(store),
        reuse=sum(name in reused for name in active) / len(active) if active else None,
        saved_ms=sum(saved) if saved else None,
        refresh=_refresh_stats(store),
    )


def bar_chart(rows: Sequence[tuple[str, float]], width: int, *, marks: str = BLOCKS) -> list[str]:
    """A line for each (label, value): the label, a bar, the value; none wider than `width` if a bar fits at all."""
    if not rows:
        return []
    figures = [f"{value:g}" for _, value in rows]
    widest_figure = max(map(len, figures))
    labels = [escape_control_chars(label).replace("\n", " ").replace("\t", " ") for label, _ in rows]
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
    """Anything above nothing is seen."""
    if not isfinite(value) or value <= 0 or largest <= 0:
        return ""
    whole, rest = divmod(max(1, round(value / largest * space * len(marks))), len(marks))
    return marks[-1] * whole + (marks[rest - 1] if rest else "")


def _creation_counts(store: ToolStore) -> CreationCounts:
    found = store.rows("SELECT count(*), total(built), total(tested), total(activated) FROM creations")
    made, built, tested, activated = found[0] if found else (0, 0, 0, 0)
    return CreationCounts(made=made, built=int(built), tested=int(tested), activated=int(activated))


def _refresh_stats(store: ToolStore) -> RefreshStats:
    times = [ms for (ms,) in store.rows("SELECT ms FROM refreshes ORDER BY ms")]
    return RefreshStats(count=len(times), p50_ms=_percentile(times, 0.50), p95_ms=_percentile(times, 0.95))


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[ceil(share * len(ordered)) - 1] if ordered else None


def _by_name(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
