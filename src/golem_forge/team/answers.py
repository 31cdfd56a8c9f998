"""Which answer counts for a question of the store: its shape, who gives it, and that no secret becomes a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from golem_forge.events.open_questions import approval_answer, form_answer
from golem_forge.team.database import TeamError
from golem_forge.team.rows import ANSWERED, EXACT_CALL, EXPIRED, SOMEBODY_ELSE, STARTER_ONCE, QuestionRow


def _four_eyes(question: QuestionRow, person: str) -> TeamError:
    who = f"{person} started this session" if person else "nobody is named as the one who answers"
    return TeamError(
        f"{who}, and approval.four_eyes asks for somebody else's answer to a call of risk {question.risk}. Question "
        f"{question.id[:12]} stays open; another operator can answer it.",
        "FOUR_EYES",
    )


def not_open(found: QuestionRow) -> TeamError:
    if found.state == ANSWERED:
        by = f" by {found.person}" if found.person else ""
        return TeamError(f"Question {found.id[:12]} was answered already{by}. Nothing changed.", "QUESTION_ANSWERED")
    if found.state == EXPIRED:
        return TeamError(f"Question {found.id[:12]} has expired and was denied. Nothing changed.", "QUESTION_EXPIRED")
    return TeamError(f"Question {found.id[:12]} was withdrawn. Nothing changed.", "QUESTION_WITHDRAWN")


def check_answer(question: QuestionRow, answer: Mapping[str, Any], person: str, *, is_starter: bool) -> None:
    """Raises TeamError for an answer that cannot count. Edited arguments are checked where they are used."""
    if is_starter and question.four_eyes == SOMEBODY_ELSE:
        raise _four_eyes(question, person)
    if is_starter and question.four_eyes == STARTER_ONCE and _remembers_more(answer):
        raise TeamError(
            f"{person or 'Whoever started this session'} started this session. With approval.four_eyes they approve "
            f"this call once; what is remembered beyond it could cover riskier calls. Question {question.id[:12]} "
            "stays open.",
            "FOUR_EYES",
        )
    if problem := _secret_problem(question, answer):
        raise TeamError(problem, "QUESTION_SECRET")
    judged = (approval_answer if question.kind == "approval" else form_answer)(question.wire, answer)
    if isinstance(judged, str):
        raise TeamError(
            f"This answer does not count: {judged}. Question {question.id[:12]} stays open.", "ANSWER_INVALID"
        )


def _remembers_more(answer: Mapping[str, Any]) -> bool:
    """More than this very call."""
    return bool(answer.get("remember")) or answer.get("choice") not in (None, EXACT_CALL)


def _secret_problem(question: QuestionRow, answer: Mapping[str, Any]) -> str:
    """Why this answer must not become a row; empty: it may."""
    if not has_secret(question.wire):
        return ""
    if question.kind == "form" and answer.get("values"):
        return (
            f"This form has a secret field, and the store keeps no secret. Answer it with "
            f"`forge attach {question.session[:12]}` on the machine of its runner."
        )
    if question.kind != "form" and answer.get("args") is not None:
        return "This call has a secret argument, and the store keeps no secret. Deny it and say what to change."
    return ""


def has_secret(wire: Mapping[str, Any]) -> bool:
    """Whether a form or card has a field whose value nobody may read later."""
    waiting: list[Any] = list(wire.get("fields") or ())
    while waiting:
        field = waiting.pop()
        if isinstance(field, Mapping):
            if field.get("type") == "secret":
                return True
            waiting += [value for value in field.values() if isinstance(value, Mapping | list | tuple)]
        elif isinstance(field, list | tuple):
            waiting += field
    return False


def chosen_scope(question: QuestionRow, answer: Mapping[str, Any]) -> str:
    """`session`, `always`, or empty where nothing is to be remembered."""
    if (wanted := answer.get("choice")) is not None:
        offers = question.wire.get("choices") or ()
        return next((str(each.get("scope", "")) for each in offers if each.get("id") == wanted), "")
    return "always" if answer.get("remember") not in (None, "", "session", "none") else ""


def remembers_beyond_session(question: QuestionRow, answer: Mapping[str, Any]) -> bool:
    return chosen_scope(question, answer) not in ("", "session")
