"""How often calls met a rule, and when last, from the decisions in the journals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golem_forge.events.chain import unseal
from golem_forge.events.session_files import list_journals

_MARK = b'"source":"rules"'


@dataclass(slots=True)
class Usage:
    hits: int = 0
    last: str = ""
    """ISO time, UTC."""


def rule_usage(home: Path) -> dict[str, Usage]:
    """By rule id. A call that was judged twice (after an edit, say) counts once for each rule."""
    used: dict[str, Usage] = {}
    for path in list_journals(home):
        seen: set[tuple[str, str]] = set()
        for record in _decisions(path):
            for source in record["decision"].get("sources", ()):
                if source.get("source") != "rules":
                    continue
                usage = used.setdefault(source.get("id", ""), Usage())
                usage.last = max(usage.last, record.get("ts", ""))
                if (key := (record.get("call", ""), source.get("id", ""))) not in seen:
                    seen.add(key)
                    usage.hits += 1
    return used


def _decisions(path: Path) -> Iterator[dict[str, Any]]:
    """Only lines that can name a rule are parsed: most calls meet none."""
    with path.open("rb") as file:
        for line in file:
            if _MARK not in line or (parts := unseal(line[:-1])) is None:
                continue
            try:
                record = json.loads(parts[0] + b"}")
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("decision"), dict):
                yield record
