"""What became of a recorded call, in a word: its status, or what can be said of one that has none."""

from __future__ import annotations

from typing import Any, Final

from golem_forge.core.verdict import Status
from golem_forge.events.call_states import CallRecord, CallState
from golem_forge.events.index import CallSummary
from golem_forge.events.recovery import MAY_HAVE_RUN

RUNNING: Final = "running"
MAY_HAVE: Final = "may_have_run"
NEVER_STARTED: Final = "never_started"
OPEN_WORDS: Final = (RUNNING, MAY_HAVE, NEVER_STARTED)
STATUS_WORDS: Final = (*(status.value for status in Status), *OPEN_WORDS)


def status_word(call: CallRecord | CallSummary, *, alive: bool) -> str:
    """`alive`: a process still writes this session's journal, so an open call is simply not over."""
    if call.state is CallState.FINISHED:
        return MAY_HAVE if call.error == MAY_HAVE_RUN else call.status
    if alive:
        return RUNNING
    return MAY_HAVE if call.state is CallState.AMBIGUOUS else NEVER_STARTED


def spoken(word: str) -> str:
    return word.replace("_", " ") if word in OPEN_WORDS else word


def decision_words(decision: dict[str, Any] | None) -> str:
    """Who decided and why: `ask by base write: zone /workspace says ask for write; answered by person`."""
    if decision is None:
        return ""
    words = str(decision["verdict"])
    if by := decision["decidedBy"]:
        named = " ".join(part for part in (by["source"], by["id"]) if part)
        words += f" by {named}" + (f": {by['reason']}" if by["reason"] else "")
    if decision["answeredBy"] not in ("", "nobody"):
        words += f"; answered by {decision['answeredBy']}"
    return words


def local_time(ts: str) -> str:
    """The journal writes UTC; people read their own clock."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(ts).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return ts
