"""Verdicts (may the call run?), risks (how bad could it be?), statuses (how did it end?) and the Decision on one call.

The values are spelled the same in YAML, JSON and Python. A Decision holds the verdict and everything that led to it; it
is kept with the Outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, ClassVar, Final

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import nearest_hint


class ChoiceEnum(StrEnum):
    """One of a closed set of words. ValueError for another one: it names the set (`noun=`) and the nearest."""

    _noun: ClassVar[str]

    def __init_subclass__(cls, *, noun: str) -> None:
        cls._noun = noun

    @classmethod
    def _missing_(cls, value: object) -> Any:
        hint = nearest_hint(value, list(cls))
        raise ValueError(f"{cls._noun} {value!r} is not one of {', '.join(cls)}{hint}")


class Verdict(ChoiceEnum, noun="verdict"):
    """The decision of policy about a call, before a person is asked."""

    PRE_APPROVED = "preApproved"
    ASK = "ask"
    BLOCKED = "blocked"


class Risk(ChoiceEnum, noun="risk"):
    """`low` reads inside zones, `medium` changes them or runs in full walls, `high` reaches out, deletes or is held by
    less, `critical` the rest."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Status(StrEnum):
    """The end of a call. Every call has exactly one."""

    SUCCESS = "success"
    EXECUTION_FAILED = "execution_failed"
    INPUT_INVALID = "input_invalid"
    TOOL_NOT_FOUND = "tool_not_found"
    APPROVAL_DENIED = "approval_denied"
    POLICY_DENIED = "policy_denied"
    SANDBOX_DENIED = "sandbox_denied"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"


_STRICTNESS: Final = {Verdict.PRE_APPROVED: 0, Verdict.ASK: 1, Verdict.BLOCKED: 2}
_RISK_ORDER: Final = {Risk.LOW: 0, Risk.MEDIUM: 1, Risk.HIGH: 2, Risk.CRITICAL: 3}


def strictest(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that wins when several sources speak; `preApproved` if none does."""
    return max(verdicts, key=_STRICTNESS.__getitem__, default=Verdict.PRE_APPROVED)


def is_stricter(one: Verdict, other: Verdict) -> bool:
    return _STRICTNESS[one] > _STRICTNESS[other]


def highest_risk(risks: Iterable[Risk]) -> Risk:
    """The risk of a whole is the highest risk of its parts; `low` if it has none."""
    return max(risks, key=_RISK_ORDER.__getitem__, default=Risk.LOW)


def is_riskier(one: Risk, other: Risk) -> bool:
    return _RISK_ORDER[one] > _RISK_ORDER[other]


class AnsweredBy(StrEnum):
    NOBODY = "nobody"
    MODE = "mode"
    MEMORY = "memory"
    RULE = "rule"
    CONTAINED = "contained"
    """Nobody was asked: in the mode `contained`, a call that stays inside the walls and can be undone
    needs no answer.
    """
    REVIEWER = "reviewer"
    """A program or a model that the person lets answer small questions."""
    PERSON = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSource:
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
    sources: tuple[VerdictSource, ...] = ()
    decided_by: VerdictSource | None = None
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
    answered_as: str = ""
    """The name of the person who answered, where several people answer a session; `door`: by which way they came."""
    door: str = ""
    not_contained: tuple[str, ...] = ()
    """Why a call asks in the mode `contained`; texts that follow `because`."""
    only_a_person: bool = False
    """Whether only a person's answer to this very call lets it run: no mode, no memory, no reviewer."""
    compute_keys: Callable[[], tuple[str, str]] | None = field(default=None, repr=False, compare=False)
    _keys: tuple[str, str] | None = field(default=None, repr=False, compare=False)

    def keys(self) -> tuple[str, str]:
        """(fingerprint, args_key). Computed when read: hashing every call would cost more than most calls do."""
        if self._keys is None:
            self._keys = self.compute_keys() if self.compute_keys else ("", "")
        return self._keys

    @property
    def runs_unasked(self) -> bool:
        """Whether the call runs without an answer: it is preApproved, or contained."""
        return self.verdict is Verdict.PRE_APPROVED or self.answered_by is AnsweredBy.CONTAINED

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
        """Returns the decision as JSON without the approval keys, for a call that needed no approval."""
        who: dict[str, Any] = {"answeredAs": self.answered_as, "door": self.door} if self.answered_as else {}
        if self.not_contained:
            who["notContained"] = list(self.not_contained)
        if self.only_a_person:
            who["onlyAPerson"] = True
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
            **who,
        }
