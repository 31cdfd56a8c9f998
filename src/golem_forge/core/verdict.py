"""Verdicts (may it run?), risks (how bad could it be?) and statuses (what became of it), each a closed set.

The values are spelled the same in YAML, JSON and Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, ClassVar, Final

from golem_forge.core.nearest import nearest


class Word(StrEnum):
    """One of a closed set of words. ValueError for another one: it names the set (`noun=`) and the nearest."""

    _noun: ClassVar[str]

    def __init_subclass__(cls, *, noun: str) -> None:
        cls._noun = noun

    @classmethod
    def _missing_(cls, value: object) -> Any:
        close = nearest(value, list(cls)) if isinstance(value, str) else None
        hint = f"; did you mean '{close}'?" if close else ""
        raise ValueError(f"{cls._noun} {value!r} is none of {', '.join(cls)}{hint}")


class Verdict(Word, noun="verdict"):
    """What policy says of a call before a person is involved."""

    PRE_APPROVED = "preApproved"
    ASK = "ask"
    BLOCKED = "blocked"


class Risk(Word, noun="risk"):
    """`low` reads inside zones, `medium` changes them or runs in full walls, `high` reaches out, deletes or is held by
    less, `critical` the rest."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Status(StrEnum):
    """How a call ended. Every call has exactly one."""

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


def highest(risks: Iterable[Risk]) -> Risk:
    """The risk of a whole is the highest risk of its parts; `low` if it has none."""
    return max(risks, key=_RISK_ORDER.__getitem__, default=Risk.LOW)


def is_riskier(one: Risk, other: Risk) -> bool:
    return _RISK_ORDER[one] > _RISK_ORDER[other]
