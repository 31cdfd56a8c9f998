"""Which answer counts for a question of the store: its shape, who gives it, and that no secret becomes a row.

Four eyes are judged here and nowhere else. An author of a session started it (also by a schedule or a batch), said
something to it (a message, the reason of a denial, a form), or edited a call. Authors may deny, never approve.
Threat: one person who is both: they edit what only they saw, or write the message whose call they then approve.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import one_line
from golem_forge.events.open_questions import approval_answer, form_answer
from golem_forge.team.database import TeamError
from golem_forge.team.rows import ANSWERED, EXACT_CALL, EXPIRED, SOMEBODY_ELSE, QuestionRow

_MOST_NAMED: Final = 5


def _four_eyes(question: QuestionRow, why: str) -> TeamError:
    return TeamError(f"{why} Question {question.id[:12]} stays open.", "FOUR_EYES")


def says_something(kind: str, answer: Mapping[str, Any]) -> bool:
    """Whether whoever gave this answer is an author from then on: the model reads it, or the call is another."""
    return kind != "approval" or bool(answer.get("reason")) or answer.get("args") is not None


def check_four_eyes(question: QuestionRow, answer: Mapping[str, Any], person: str, authors: Collection[str]) -> None:
    """Raises TeamError for an answer that approves more than this person may. Whoever is not named is an author."""
    if not question.four_eyes or answer.get("approved") is False:
        return
    is_author = not person or person in authors
    if is_author and question.four_eyes == SOMEBODY_ELSE:
        who = f"{person} is an author of this session" if person else "nobody is named as the one who answers"
        raise _four_eyes(
            question,
            f"{who}, and approval.four_eyes asks for somebody else's answer to a call of risk {question.risk}: authors "
            "started it, wrote to it or edited the call. They can deny it.",
        )
    if _remembers_more(answer) and (is_author or chosen_scope(question, answer) == "session"):
        raise _four_eyes(
            question,
            "With approval.four_eyes a person approves this call once: what is remembered for the session could cover "
            "calls that nobody else sees.",
        )


def with_authors(question: QuestionRow, authors: Collection[str], approvers: Iterable[str]) -> QuestionRow:
    """The card of a question that needs four eyes says who has to look. `approvers`: everybody whose role would do."""
    left = [one_line(each) for each in approvers if each not in authors]
    named = ", ".join(sorted(map(one_line, authors))) or "nobody"
    who = f"{', '.join(left[:_MOST_NAMED])} can" if left else "nobody is left who can. Add an operator, or deny it"
    text = f"Four eyes: {named} started this session, wrote to it or edited the call, and cannot approve; {who}."
    return replace(question, wire={**question.wire, "warnings": [*(question.wire.get("warnings") or ()), text]})


def not_open(found: QuestionRow) -> TeamError:
    if found.state == ANSWERED:
        by = f" by {found.person}" if found.person else ""
        return TeamError(f"Question {found.id[:12]} was answered already{by}. Nothing changed.", "QUESTION_ANSWERED")
    if found.state == EXPIRED:
        return TeamError(f"Question {found.id[:12]} has expired and was denied. Nothing changed.", "QUESTION_EXPIRED")
    return TeamError(f"Question {found.id[:12]} was withdrawn. Nothing changed.", "QUESTION_WITHDRAWN")


def check_answer(question: QuestionRow, answer: Mapping[str, Any]) -> None:
    """Raises TeamError for an answer that cannot count. Edited arguments are checked where they are used."""
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
