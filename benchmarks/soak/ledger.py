"""The ledger: the lines that tools wrote beside the calls that the journals know."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.soak.sessions import Played
from golem_forge.events.journal_records import CallRecords

_IN_COMMAND: Final = re.compile(r"mark\.py (\S+)")


@dataclass(slots=True, kw_only=True)
class Ledger:
    calls: int = 0
    effects: int = 0
    succeeded: int = 0
    may_have_run: int = 0
    refused: int = 0
    failed: int = 0
    """Ended otherwise: a server that died, an interrupt, a full disk."""
    lost: int = 0
    """Recorded as a success, and there is no line."""
    doubled: int = 0
    unrecorded: int = 0
    """A line of a call whose start is in no journal."""
    repeated: int = 0
    """Started twice."""
    left_out: int = 0
    """Never proposed, in a session that finished."""
    unsettled: int = 0
    """Proposed and without an end, in a session that finished."""
    reasons: Counter[str] = field(default_factory=Counter)

    def broken(self) -> list[str]:
        promises = ("lost", "doubled", "unrecorded", "repeated", "left_out", "unsettled")
        return [f"effects or calls {name}: {count}" for name in promises if (count := getattr(self, name))]

    def add_lines(self, done: Counter[str], known: Iterable[str]) -> None:
        """The lines themselves, once."""
        self.effects = sum(done.values())
        self.doubled = sum(count - 1 for count in done.values())
        self.unrecorded += len(set(done) - set(known))

    def add_session(self, played: Played, state: str, records: Iterable[Mapping[str, Any]], done: Counter[str]) -> None:
        starts: Counter[str] = Counter()
        calls = CallRecords()
        for record in records:
            call = calls.add(record)
            if call is not None and record["type"] in ("started", "begun"):
                starts[_name_of(call.args)] += 1
        ends = {_name_of(call.args): call for call in calls.calls.values()}
        for name in played.names:
            lines = done[name]
            call = ends.get(name)
            self.repeated += max(0, starts[name] - 1)
            self.unrecorded += bool(lines and not starts[name])
            if call is None:
                self.left_out += state == "finished"
                continue
            self.calls += 1
            if not call.finished_at:
                self.unsettled += state == "finished"
            elif call.status == "success":
                self.succeeded += 1
                self.lost += lines == 0 and not played.background
            elif "may have run" in call.error:
                self.may_have_run += 1
            elif call.status == "approval_denied":
                self.refused += 1
                self.unrecorded += lines > 0
            else:
                self.failed += 1
                self.reasons[f"{call.status}: {call.error[:80]}"] += 1


def _name_of(args: Any) -> str:
    given = args if isinstance(args, Mapping) else {}
    found = _IN_COMMAND.search(str(given.get("cmd", "")))
    return found[1] if found else str(given.get("name", ""))
