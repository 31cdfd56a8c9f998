"""Which answers count. Each function takes an open question and an answer's data and gives the answer the runtime acts
on, or a string that says why it is invalid; an invalid answer leaves the question open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Answer = dict[str, Any]
MAX_REASON: Final = 2000


class ApprovalAnswer(Answer):
    """`{approved, by, choice?, args?, reason?, stop?}`, and true only if approved.

    Threat: whoever asks writes `if await …request_approval(…)`, and a denial is a mapping with members, too.
    """

    def __bool__(self) -> bool:
        return self.get("approved") is True

    @property
    def approved(self) -> bool:
        return bool(self)


class InputText(str):
    """What a person typed: the text itself, with the files that came with it."""

    __slots__ = ("attachments", "request_id")

    def __new__(cls, content: str, request_id: str = "", attachments: list[dict[str, Any]] | None = None) -> InputText:
        text = super().__new__(cls, content)
        text.request_id, text.attachments = request_id, attachments
        return text

    request_id: str
    attachments: list[dict[str, Any]] | None

    @property
    def content(self) -> str:
        return str(self)


def approval_answer(question: Mapping[str, Any], data: Mapping[str, Any]) -> Answer | str:
    """`{approved, choice?, args?, reason?, stop?}`"""
    approved = data.get("approved")
    if not isinstance(approved, bool):
        return "'approved' is not a boolean"
    choice = _choice(question, data)
    if isinstance(choice, str):
        return choice
    answer: Answer = {"approved": approved}
    if approved and choice is not None:
        answer["choice"] = choice["id"]
    args = data.get("args")
    if args is not None:
        if not isinstance(args, Mapping):
            return "'args' is not an object"
        if approved:
            answer["args"] = dict(args)
    if data.get("reason"):
        answer["reason"] = str(data["reason"])[:MAX_REASON]
    if data.get("stop"):
        if approved:
            return "an approval cannot also stop the turn"
        answer["stop"] = True
    return answer


def _choice(question: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Any] | str | None:
    """The offered choice an answer names, by id or by scope; choices are offered narrow to wide."""
    choices = question.get("choices") or []
    named, scope = data.get("choice"), data.get("remember")
    if named is not None:
        return next((one for one in choices if one.get("id") == named), f"choice {named!r} was not offered")
    if scope:
        return next((one for one in choices if one.get("scope") == scope), f"no choice for {scope!r} was offered")
    return None


def form_answer(question: Mapping[str, Any], data: Mapping[str, Any]) -> Answer | str:
    """`{action, values?}`"""
    action = data.get("action")
    if action not in ("accept", "decline", "cancel"):
        return f"action {action!r} is not accept, decline or cancel"
    if action != "accept":
        return {"action": action}
    values = data.get("values")
    if values is not None and not isinstance(values, Mapping):
        return "'values' is not an object"
    return {"action": action, "values": dict(values or {})}


def input_answer(question: Mapping[str, Any], data: Mapping[str, Any]) -> Answer | str:
    """`{content, attachments?}`"""
    if not isinstance(data.get("content"), str):
        return "'content' is not text"
    return {key: data[key] for key in ("content", "attachments") if data.get(key) is not None}


def with_field_errors(question: Mapping[str, Any], errors: Mapping[str, str]) -> dict[str, Any]:
    """The same card, showing what is wrong with an edit: at its fields, and in words for UIs without a form."""
    fields = [
        {key: value for key, value in field.items() if key != "error"}
        | ({"error": errors[field["name"]]} if field.get("name") in errors else {})
        for field in question.get("fields") or []
    ]
    words = [f"{name}: {error}" if name else error for name, error in errors.items()]
    kept = [text for text in question.get("warnings") or [] if text not in words]
    return {**question, "warnings": kept + words, **({"fields": fields} if fields else {})}
