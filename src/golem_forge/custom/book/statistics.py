"""Statistics of user tools, from the Outcomes the book has kept: per tool and digest, and totals over all of them.

Takes the book and, for what only the registry knows, which tools there are and their states; gives plain records with
`to_json`. Nothing here changes anything: `unused` lists candidates, a person retires them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.core.visible import visible
from golem_forge.custom.book import Book
from golem_forge.events.clock import iso

_AGE: Final = re.compile(r"([0-9]{1,7})([smhdw])", re.ASCII)
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LONGEST_AGE_S: Final = 100 * 366 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
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
class ToolStatistics:
    name: str
    usage: Usage
    by_digest: Mapping[str, Usage]
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
class Unused:
    name: str
    last_used: str
    """Empty: never."""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "last_used": self.last_used or None}


def statistics(book: Book, names: Iterable[str] = ()) -> tuple[ToolStatistics, ...]:
    """Of these tools, used or not; without names, of all that were ever used. By name."""
    asked = tuple(names)
    tallies = _tallies(book, asked[0] if len(asked) == 1 else "")
    wanted = sorted(asked or {name for name, _ in tallies})
    rated = {name: (good, bad) for name, good, bad in book.rows(_RATINGS)}
    sequences: dict[str, float] = dict(book.rows(_SUGGESTED))
    of_tool: dict[str, dict[str, _Tally]] = {}
    for (name, digest), tally in tallies.items():
        of_tool.setdefault(name, {})[digest] = tally
    found: list[ToolStatistics] = []
    for name in wanted:
        digests = of_tool.get(name, {})
        usage = _sum(digests.values()).usage()
        good, bad = rated.get(name, (0, 0))
        found.append(
            ToolStatistics(
                name=name,
                usage=usage,
                by_digest={digest: tally.usage() for digest, tally in digests.items()},
                good=good,
                bad=bad,
                saved_ms=_saved(sequences.get(name), usage),
            )
        )
    return tuple(found)


def unused(book: Book, names: Iterable[str], age_s: float, *, now: float | None = None) -> tuple[Unused, ...]:
    """Those of `names` that never ran or not within `age_s`, longest unused first. Retired ones are no candidates."""
    since = iso((time.time() if now is None else now) - age_s)
    last: dict[str, str] = dict(book.rows(_LAST_USED))
    retired = {name for (name,) in book.rows("SELECT name FROM tools WHERE retired_at IS NOT NULL")}
    found = [Unused(name=name, last_used=last.get(name, "")) for name in names if name not in retired]
    return tuple(
        sorted((each for each in found if each.last_used < since), key=lambda each: (each.last_used, each.name))
    )


def parse_age(text: str) -> int:
    """`90d`, `12h`, `30m`, `45s`, `2w` as seconds."""
    match = _AGE.fullmatch(text.strip().lower())
    seconds = int(match[1]) * _UNIT_S[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST_AGE_S:
        raise ForgeError(
            f"'{visible(text[:50])}' is no length of time: write a number and s, m, h, d or w, like 90d",
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

    def usage(self) -> Usage:
        return Usage(
            calls=sum(self.statuses.values()),
            statuses=dict(sorted(self.statuses.items())),
            ran=self.ran,
            successes=self.successes,
            last_used=self.last_used,
            median_ms=_median(self.durations),
            total_ms=self.total_ms,
        )


def _tallies(book: Book, name: str) -> dict[tuple[str, str], _Tally]:
    found: dict[tuple[str, str], _Tally] = {}
    for tool, digest, status, ran, calls, total_ms, at in book.rows(_OLD_USES, {"name": name}):
        found.setdefault((tool, digest), _Tally()).add(status, ran, calls, total_ms, at)
    for tool, digest, status, ran, duration_ms, at in book.rows(_USES, {"name": name}):
        tally = found.setdefault((tool, digest), _Tally())
        tally.add(status, ran, 1, duration_ms, at)
        if ran:
            tally.durations.append(duration_ms)
    return found


def _sum(tallies: Iterable[_Tally]) -> _Tally:
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


def _saved(sequence_ms: float | None, usage: Usage) -> float | None:
    if sequence_ms is None:
        return None
    return 0.0 if usage.median_ms is None else (sequence_ms - usage.median_ms) * usage.calls


def _median(values: list[float]) -> float | None:
    if not values:
        return None
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
