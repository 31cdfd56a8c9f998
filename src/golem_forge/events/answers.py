"""Which answers count. Each function takes an open question and an answer's data and gives the answer the runtime acts
on, or a string that says why it is invalid; an invalid answer leaves the question open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from golem_forge.core.options import unknown_name

Answer = dict[str, Any]
MAX_REASON: Final = 2000
_MEMBERS: Final[Mapping[str, tuple[type, str]]] = {
    "approved": (bool, "true or false"),
    "choice": (str, "the id of a choice"),
    "remember": (str, "'session'"),
    "args": (Mapping, "an object"),
    "reason": (str, "text"),
    "stop": (bool, "true or false"),
}
_SCOPES: Final = ("session", "always")


class ApprovalAnswer(Answer):
    """`{approved, by, choice?, remember?, args?, reason?, stop?}`, and true only if approved.

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


def wrong_member(data: Mapping[str, Any], besides: Collection[str] = ()) -> str:
    """Which member of an answer to an approval cannot be understood, and why; empty: every one can.

    `besides`: what else it may hold.
    """
    if not isinstance(data.get("approved"), bool):
        return "'approved' is not true or false"
    for name, value in data.items():
        if name in besides:
            continue
        if name not in _MEMBERS:
            return unknown_name("there is no", name, _MEMBERS)
        kind, words = _MEMBERS[name]
        if value is not None and not isinstance(value, kind):
            return f"{name!r} is not {words}"
    if data.get("remember") not in (None, *_SCOPES):
        return f"'remember' is {data['remember']!r}, not 'session'; leave it out for this once"
    return "an approval cannot also stop the turn" if data["approved"] and data.get("stop") else ""


def approval_answer(question: Mapping[str, Any], data: Mapping[str, Any]) -> Answer | str:
    """`{approved, choice?, remember?, args?, reason?, stop?}`; `remember` only where no choices were offered."""
    if wrong := wrong_member(data, besides=("requestId",)):
        return wrong
    approved = data["approved"]
    choice = _choice(question, data)
    if isinstance(choice, str):
        return choice
    answer: Answer = {"approved": approved}
    if approved and choice is not None:
        answer["choice"] = choice["id"]
    elif approved and data.get("remember"):
        answer["remember"] = data["remember"]
    if approved and data.get("args") is not None:
        answer["args"] = dict(data["args"])
    if data.get("reason"):
        answer["reason"] = str(data["reason"])[:MAX_REASON]
    if data.get("stop"):
        answer["stop"] = True
    return answer


def _choice(question: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Any] | str | None:
    """The offered choice an answer names, by id or by scope; choices are offered narrow to wide."""
    choices = question.get("choices") or []
    named, scope = data.get("choice"), data.get("remember")
    if named is not None:
        offered = ", ".join(str(one.get("id")) for one in choices) or "none"
        why = f"choice {named!r} was not offered; there is {offered}"
        return next((one for one in choices if one.get("id") == named), why)
    if scope and (choices or scope != "session"):  # without choices, what `session` means is up to whoever asks
        why = f"'remember': no choice for {scope!r} was offered"
        return next((one for one in choices if one.get("scope") == scope), why)
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
