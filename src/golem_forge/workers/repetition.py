"""Repetition: a model that makes the same failing call again and again is told so, then stopped.

`saw_all` takes the Outcomes of each turn and gives a note for the model or nothing; `over` says why the run must end.
In a row means: nothing else became of this call in between, and no other call did either, except those that were
asked for beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from golem_forge.core.call import Outcome
from golem_forge.core.canonical import sha256_hex
from golem_forge.core.verdict import Status

NOTE_AT: Final = 3
END_AT: Final = 5
_NOT_TRIED: Final = frozenset({Status.INTERRUPTED, Status.SKIPPED})
_HANDLE: Final = re.compile(r"out_[0-9a-f]{12}")
"""Differs each time an output is kept; the failure is the same."""


class Repetition:
    def __init__(self) -> None:
        self.over = ""
        self._failing: dict[str, tuple[str, int]] = {}
        """Call → its last failure, and how often in a row."""

    def saw_all(self, outcomes: Iterable[Outcome]) -> list[str]:
        """The outcomes of one turn, a note for each or nothing. Calls that were not repeated in it are forgotten."""
        outcomes = list(outcomes)
        notes = [self._saw(outcome) for outcome in outcomes]
        asked = {_key(outcome) for outcome in outcomes}
        self._failing = {key: failing for key, failing in self._failing.items() if key in asked}
        return notes

    def _saw(self, outcome: Outcome) -> str:
        if outcome.status in _NOT_TRIED:
            return ""
        key = _key(outcome)
        if outcome.ok:
            self._failing.pop(key, None)
            return ""
        failure = sha256_hex(_HANDLE.sub("", f"{outcome.status} {outcome.text}"))
        before, count = self._failing.get(key, ("", 0))
        count = count + 1 if failure == before else 1
        self._failing[key] = (failure, count)
        if count >= END_AT and not self.over:
            self.over = f"'{outcome.tool}' was called {count} times with the same arguments and failed each time"
        return f"This exact call has failed {count} times." if count >= NOTE_AT else ""


def _key(outcome: Outcome) -> str:
    return sha256_hex(f"{outcome.tool} {_spelling(outcome.call.args)}")


def _spelling(args: Any) -> str:
    """One text for one set of arguments, whether they came as a mapping or as JSON."""
    try:
        return json.dumps(json.loads(args) if isinstance(args, str) else args, sort_keys=True, default=repr)
    except (ValueError, TypeError, RecursionError):
        return repr(args)
