"""One finding: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class State(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing that is needed fails."""
    PROBLEM = "problem"


_SHOWN: Final = {State.OK: "ok", State.NOTE: "note", State.PROBLEM: "PROBLEM"}


@dataclass(frozen=True, slots=True)
class Finding:
    about: str
    state: State
    text: str
    fix: str = ""
    """What to do, where something is to be done."""

    def lines(self) -> Iterator[tuple[str, str, str]]:
        yield _SHOWN[self.state], self.about, self.text
        if self.fix:
            yield "", "", f"→ {self.fix}"

    def to_json(self) -> dict[str, Any]:
        return {"about": self.about, "state": self.state.value, "text": self.text, "fix": self.fix or None}


def ok(about: str, text: str) -> Finding:
    return Finding(about, State.OK, text)


def note(about: str, text: str, fix: str = "") -> Finding:
    return Finding(about, State.NOTE, text, fix)


def problem(about: str, text: str, fix: str) -> Finding:
    return Finding(about, State.PROBLEM, text, fix)
