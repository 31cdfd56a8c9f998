"""Who answered what: the last resolutions of a session's questions, for a page whose answer came too late.

Forms and inputs do not say by whom they were resolved; the action that came before it does.
"""

from __future__ import annotations

from typing import Any, Final

from golem_forge.events.envelope import Event

MOST_KEPT: Final = 200
_ANSWERS: Final = frozenset({"approvalResponse", "formResponse", "userInput"})
_RESOLVED: Final = frozenset({"approvalResolved", "formResolved", "inputResolved"})
_WORDS: Final = {
    "memory": "an earlier answer covered it",
    "mode": "the approval mode answered",
    "timeout": "nobody answered in time",
    "interrupt": "it was interrupted",
    "nobody": "nobody could answer",
}


class Resolutions:
    def __init__(self) -> None:
        self._by: dict[str, str] = {}
        self._answering: dict[str, str] = {}

    def take(self, event: Event) -> None:
        if event.type in _ANSWERS:
            _keep(self._answering, event.wire.get("requestId"), event.source)
        elif event.type in _RESOLVED:
            request = event.wire.get("requestId")
            said = event.wire.get("by")
            by = said if isinstance(said, str) else self._answering.pop(str(request), "")
            _keep(self._by, request, by)

    def words(self, request_id: str) -> str:
        """`Too late: answered in terminal.`; empty for a question that was never resolved here."""
        by = self._by.get(request_id)
        if by is None:
            return ""
        if by in _WORDS:
            return f"Too late: {_WORDS[by]}."
        return f"Too late: answered in {by}." if by else "Too late: it is answered already."


def _keep(kept: dict[str, str], request: Any, by: str) -> None:
    if not isinstance(request, str):
        return
    kept.pop(request, None)
    kept[request] = by
    if len(kept) > MOST_KEPT:
        del kept[next(iter(kept))]
