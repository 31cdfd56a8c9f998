"""How often calls met a rule, and when last, from the decisions in the journals.

A journal only grows, and most of them have ended: what one said is remembered by its size and time of change, so that a
second look reads only the journals that went on since.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.journal_files import list_journals
from golem_forge.events.journal_reader import parse_line

_MARK: Final = b'"source":"rules"'
_MAX_CACHED: Final = 4096
"""Journals; of more the rest is read anew each time."""


@dataclass(slots=True)
class RuleUsage:
    hits: int = 0
    last: str = ""
    """ISO time, UTC."""


_cache: dict[Path, tuple[tuple[int, int], Mapping[str, RuleUsage]]] = {}
"""Journal → (size, time of change in ns), and the usage it showed then."""


def rule_usage(home: Path) -> dict[str, RuleUsage]:
    """By rule id. A call that was judged twice (after an edit, say) counts once for each rule."""
    used: dict[str, RuleUsage] = {}
    for path in list_journals(home):
        with contextlib.suppress(FileNotFoundError):  # its session was removed meanwhile
            for rule, more in _used_in(path).items():
                usage = used.setdefault(rule, RuleUsage())
                usage.hits += more.hits
                usage.last = max(usage.last, more.last)
    return used


def _used_in(path: Path) -> Mapping[str, RuleUsage]:
    status = path.stat()  # before it is read: what is added meanwhile changes the size, and is read next time
    stamp = (status.st_size, status.st_mtime_ns)
    cached = _cache.get(path)
    if cached is not None and cached[0] == stamp:
        return cached[1]
    used = _read(path)
    if cached is not None or len(_cache) < _MAX_CACHED:
        _cache[path] = stamp, used
    return used


def _read(path: Path) -> dict[str, RuleUsage]:
    used: dict[str, RuleUsage] = {}
    seen: set[tuple[str, str]] = set()
    for record in _decisions(path):
        for source in record["decision"].get("sources", ()):
            if source.get("source") != "rules":
                continue
            rule = source.get("id", "")
            usage = used.setdefault(rule, RuleUsage())
            usage.last = max(usage.last, record.get("ts", ""))
            if (key := (record.get("call", ""), rule)) not in seen:
                seen.add(key)
                usage.hits += 1
    return used


def _decisions(path: Path) -> Iterator[dict[str, Any]]:
    """Only lines that can name a rule are parsed: most calls meet none."""
    with path.open("rb") as file:
        for line in file:
            record = parse_line(line[:-1]) if _MARK in line else None
            if record is not None and isinstance(record.get("decision"), dict):
                yield record
