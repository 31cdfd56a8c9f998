"""Answers to an approval request, read strictly: what is not clearly a yes is a no."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.core.decision import AnsweredBy
from golem_forge.core.verdict import Status
from golem_forge.core.visible import visible
from golem_forge.events.answers import wrong_member
from golem_forge.policy.offers import Offer
from golem_forge.policy.request import ApprovalRequest

MAX_REASON: Final = 2000
_SHAPE: Final = "{approved, remember?, choice?, args?, reason?, stop?}"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    approved: bool
    by: AnsweredBy = AnsweredBy.PERSON
    message: str = ""
    """Why not, in words for the caller."""
    status: Status = Status.APPROVAL_DENIED
    choice: Offer | None = None
    args: dict[str, Any] | None = None
    stop: bool = False
    cached: bool = False


def denied(message: str, *, by: AnsweredBy = AnsweredBy.NOBODY, status: Status = Status.APPROVAL_DENIED) -> Answer:
    return Answer(approved=False, by=by, message=message, status=status)


def read_answer(raw: Any, request: ApprovalRequest) -> Answer:
    """A mapping `{approved, remember?, choice?, args?, reason?, stop?}`; any other value denies, and so does a member
    that has another name or value."""
    if not isinstance(raw, Mapping):
        return denied(f"The approval callback gave no valid answer ({_SHAPE}); the call was not run.")
    wrong = wrong_member(raw, besides=("by",))
    if not wrong and raw.get("remember") == "always":
        wrong = "'remember' is 'always', not 'session'; what is kept for good is named by its 'choice'"
    if wrong:
        _log.warning("an answer to an approval denied: %s", wrong)
        return denied(f"The approval callback gave no valid answer: {wrong}. The call was not run.")
    reason = raw.get("reason")
    if not raw["approved"]:
        text = visible(str(reason))[:MAX_REASON].strip() if reason else ""
        if raw.get("by") in ("timeout", "interrupt", "nobody") and text:
            return denied(text)
        return Answer(
            approved=False,
            message=f"Denied by the user: {text}" if text else "Denied by the user.",
            stop=bool(raw.get("stop")),
        )
    args = raw.get("args")
    try:
        choice = _chosen(raw, request)
    except LookupError:
        return denied("The answer names a choice that was not offered; the call was not run.")
    return Answer(approved=True, choice=choice, args=None if args is None else dict(args))


def _chosen(raw: Mapping[str, Any], request: ApprovalRequest) -> Offer | None:
    if wanted := raw.get("choice"):
        for offer in request.choices:
            if offer.id == wanted:
                return offer
        raise LookupError(wanted)
    if raw.get("remember") == "session":  # the narrowest; what outlives the session is chosen by its id, never in short
        return next((offer for offer in request.choices if offer.scope == "session"), None)
    return None
