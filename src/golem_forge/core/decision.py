"""Decision: the verdict on one call and everything that led to it, kept with the Outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from golem_forge.core.verdict import Risk, Verdict


class AnsweredBy(StrEnum):
    NOBODY = "nobody"
    MODE = "mode"
    MEMORY = "memory"
    RULE = "rule"
    PERSON = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One voice in the verdict: a zone, a tool's own predicate, the config, a rule, or a floor."""

    source: str
    verdict: Verdict
    id: str = ""
    reason: str = ""
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """`forge.yaml:7`, or empty where nothing was written down."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def describe(self) -> str:
        place = f" ({self.place})" if self.file else ""
        label = f"{self.source} {self.id}".strip()
        return f"{label}: {self.reason}{place}" if self.reason else f"{label}{place}"

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "verdict": self.verdict.value,
            "id": self.id,
            "reason": self.reason,
            "file": self.file,
            "line": self.line,
        }


@dataclass(slots=True)
class Decision:
    verdict: Verdict
    sources: tuple[Source, ...] = ()
    decided_by: Source | None = None
    risk: Risk = Risk.LOW
    risk_reasons: tuple[str, ...] = ()
    answered_by: AnsweredBy = AnsweredBy.NOBODY
    remembered: str = ""
    """Empty, or the scope under which the answer was kept: `session` or `always`."""
    cached: bool = False
    """An earlier answer was used instead of asking again."""
    edited: bool = False
    message: str = ""
    asked_at: str = ""
    answered_at: str = ""
    compute_keys: Callable[[], tuple[str, str]] | None = field(default=None, repr=False, compare=False)
    _keys: tuple[str, str] | None = field(default=None, repr=False, compare=False)

    def keys(self) -> tuple[str, str]:
        """(fingerprint, args_key). Computed when read: hashing every call would cost more than most calls do."""
        if self._keys is None:
            self._keys = self.compute_keys() if self.compute_keys else ("", "")
        return self._keys

    @property
    def fingerprint(self) -> str:
        return self.keys()[0]

    @property
    def args_key(self) -> str:
        return self.keys()[1]

    def to_json(self) -> dict[str, Any]:
        fingerprint, args_key = self.keys()
        return {**self.without_keys(), "fingerprint": fingerprint, "argsKey": args_key}

    def without_keys(self) -> dict[str, Any]:
        """The same for a call that nobody had to answer for: there is no approval that a key would name."""
        return {
            "verdict": self.verdict.value,
            "sources": [source.to_json() for source in self.sources],
            "decidedBy": self.decided_by.to_json() if self.decided_by else None,
            "risk": self.risk.value,
            "riskReasons": list(self.risk_reasons),
            "fingerprint": "",
            "argsKey": "",
            "answeredBy": self.answered_by.value,
            "remembered": self.remembered,
            "cached": self.cached,
            "edited": self.edited,
            "message": self.message,
            "askedAt": self.asked_at,
            "answeredAt": self.answered_at,
        }
