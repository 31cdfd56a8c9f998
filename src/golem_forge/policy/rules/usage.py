"""How often calls met a rule, and when last, from the decisions in the journals.

A journal only grows, and most of them have ended: what one said is remembered by its size and time of change, so that a
second look reads only the journals that went on since.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.journal_files import list_journals, unseal_line

_MARK: Final = b'"source":"rules"'
_MAX_CACHED: Final = 4096
"""Journals; of more the rest is read anew each time."""


@dataclass(slots=True)
class RuleUsage:
    hits: int = 0
    last: str = ""
    """ISO time, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _JournalUsage:
    """What one journal said when it was this long and this old."""

    size: int
    changed_ns: int
    used: Mapping[str, RuleUsage]


_cache: dict[Path, _JournalUsage] = {}


def rule_usage(home: Path) -> dict[str, RuleUsage]:
    """By rule id. A call that was judged twice (after an edit, say) counts once for each rule."""
    used: dict[str, RuleUsage] = {}
    for path in list_journals(home):
        with contextlib.suppress(FileNotFoundError):  # its session was removed meanwhile
            _add(used, _used_in(path))
    return used


def _add(used: dict[str, RuleUsage], more: Mapping[str, RuleUsage]) -> None:
    for rule, one in more.items():
        usage = used.setdefault(rule, RuleUsage())
        usage.hits += one.hits
        usage.last = max(usage.last, one.last)


def _used_in(path: Path) -> Mapping[str, RuleUsage]:
    about = path.stat()  # before it is read: what is added meanwhile makes another size, and is read next time
    told = _cache.get(path)
    if told is not None and (told.size, told.changed_ns) == (about.st_size, about.st_mtime_ns):
        return told.used
    used = _read(path)
    if told is not None or len(_cache) < _MAX_CACHED:
        _cache[path] = _JournalUsage(size=about.st_size, changed_ns=about.st_mtime_ns, used=used)
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
            if _MARK not in line or (parts := unseal_line(line[:-1])) is None:
                continue
            try:
                record = json.loads(parts[0] + b"}")
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("decision"), dict):
                yield record
