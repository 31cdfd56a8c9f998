"""The questions that wait at this terminal, one in front: approval cards take single keys, forms take lines.

Takes question events and what the person pressed or typed; gives answer events to `emit` and styled lines to `say`.
Esc, Tab and keys without a meaning never answer. `meaning` tells the keyboard which keys answer. Does not use the
terminal itself. `card_keys` and `card_help` describe the keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import shorten
from golem_forge.tools.forms import mask_secrets
from golem_forge.ui.render.card import (
    answer_of_key,
    approval_card,
    asked_because,
    choice_numbers,
    full_card,
    numbered_choices,
)
from golem_forge.ui.render.lines import mappings_in, one_line, to_text, width_of, wrapped_lines
from golem_forge.ui.terminal.forms import FormDialog, FormQuestion
from golem_forge.ui.terminal.tty import StyledLine, safe_text

UI_NAME: Final = "terminal"
APPROVAL_EVENT: Final = "approvalRequired"
FORM_EVENT: Final = "formRequired"
PERSON: Final = "human"
"""The caller name of a person, who is asked for no reason."""
Emit = Callable[[str, dict[str, Any]], None]
Say = Callable[[Iterable[StyledLine]], None]


class AnswerStage(StrEnum):
    """The kind of input that is expected now."""

    NOTHING = "nothing"
    KEY = "key"
    """One key answers: a card, or the last look at a form."""
    LINE = "line"
    """A line of text: a reason, a field."""


class KeyMeaning(StrEnum):
    """The meaning of a single key at the front question."""

    ANSWER = "answer"
    COMMAND = "command"
    """It shows or opens something; the question stays."""
    NONE = "none"


@dataclass(slots=True, kw_only=True)
class PendingQuestion:
    id: str
    kind: str
    wire: Mapping[str, Any]
    form: FormDialog | None = None
    reason: bool = False
    """Whether the reason of a denial is being asked for."""
    note: str = ""
    """Why the last key was no answer."""
    edited: dict[str, Any] = field(default_factory=dict)
    """The arguments of an edit that was refused; the next one starts from them."""
    drawn: bool = False


class PendingQuestions:
    def __init__(self, emit: Emit, say: Say, width: Callable[[], int]) -> None:
        self._emit = emit
        self._width = width
        self._say = say
        self._open: dict[str, PendingQuestion] = {}
        self._front = ""

    # ---- what is open

    @property
    def front(self) -> PendingQuestion | None:
        return self._open.get(self._front)

    @property
    def waiting(self) -> bool:
        """Whether any question is open, in front or not."""
        return bool(self._open)

    @property
    def stage(self) -> AnswerStage:
        front = self.front
        if front is None:
            return AnswerStage.NOTHING
        if front.reason or (front.form is not None and front.form.question is not None):
            return AnswerStage.LINE
        return AnswerStage.KEY

    @property
    def question(self) -> FormQuestion | None:
        return self.front.form.question if self.front is not None and self.front.form is not None else None

    @property
    def start(self) -> str:
        """The initial text of the answer's line."""
        front = self.front
        return front.form.start if front is not None and front.form is not None and not front.reason else ""

    def opened(self, kind: str, wire: Mapping[str, Any]) -> bool:
        """A question was asked, or asked again with errors. True: it is the one in front now."""
        id = str(wire["requestId"])
        known = self._open.get(id)
        self._open[id] = PendingQuestion(id=id, kind=kind, wire=wire, edited=known.edited if known else {})
        if self._front != id and len(self._open) > 1:
            return False  # one is in front, or is brought there soon
        self._bring(id)
        return True

    def closed(self, id: str, ending: Callable[[PendingQuestion], StyledLine]) -> bool:
        """Says how it ended; an `ending` without text is not said. True: no question is in front now."""
        pending = self._open.pop(id, None)
        if pending is None:
            return False
        if line := ending(pending):
            self._say(self._wrapped([line]))
        if self._front != id:
            return False
        self._front = ""
        return True

    def bring_next(self) -> bool:
        """Draws the oldest question, where none is in front. True: there was one."""
        if self.front is not None or not self._open:
            return False
        self._bring(next(iter(self._open)))
        return True

    def show_front(self) -> None:
        """Draws the question in front again, e.g. for a new width."""
        if self.front is not None:
            self._present(self.front)

    def _bring(self, id: str) -> None:
        self._front = id
        self._present(self._open[id])

    def _present(self, pending: PendingQuestion) -> None:
        pending.drawn = True
        if pending.kind == FORM_EVENT:
            if pending.form is None:
                pending.form = FormDialog(mappings_in(pending.wire.get("fields")), {})
            self._say(self._wrapped(_form_head(pending.wire)))
            if pending.form.question is None and not is_choice(pending.wire):
                self._show_arguments(pending)
        else:
            self._say(approval_card(pending.wire, width=self._width()))

    # ---- what the person does

    def meaning(self, key: str) -> KeyMeaning:
        front = self.front
        if front is None or self.stage is not AnswerStage.KEY:
            return KeyMeaning.NONE
        if front.form is not None:
            answers, commands = ("yn", "") if front.kind == FORM_EVENT else ("y", "n")
        else:
            answers = "ynq" + "".join(map(str, numbered_choices(front.wire.get("choices") or ())))
            answers += "s" if _has_session_choice(front.wire) else ""
            commands = "dw?" if is_trust(front.wire) else "edw?"
        if key == "enter":
            return KeyMeaning.NONE if front.form is not None else KeyMeaning.ANSWER
        if key == "tab" or (len(key) == 1 and key in commands):
            return KeyMeaning.COMMAND
        return KeyMeaning.ANSWER if len(key) == 1 and key in answers else KeyMeaning.NONE

    def press(self, key: str) -> None:
        front = self.front
        if front is None or self.stage is not AnswerStage.KEY:
            return
        front.note = ""
        if key == "tab":
            self.next()
        elif front.form is not None:
            self._confirm_key(front, front.form, key)
        else:
            self._card_key(front, key)

    def enter(self, text: str) -> None:
        front = self.front
        if front is None or self.stage is not AnswerStage.LINE:
            return
        if front.reason:
            reason = text.strip()
            self._answer(front, {"approved": False, **({"reason": reason} if reason else {})})
            return
        assert front.form is not None
        front.form.submit(text)
        if front.form.question is None:
            self._show_arguments(front)

    def back(self) -> None:
        """Esc in a line: the field before; before the first field of an edit, or from a reason, the card."""
        front = self.front
        if front is None:
            return
        if is_choice(front.wire):
            self._answer(front, {"action": "cancel"})
        elif front.reason:
            front.reason = False
        elif front.form is not None and not front.form.back() and front.kind == APPROVAL_EVENT:
            front.form = None

    def cancel(self) -> bool:
        """Ctrl+C: an edit is given up, a form is cancelled. False: nothing of that kind is open."""
        front = self.front
        if front is None or (front.form is None and not front.reason):
            return False
        if front.kind == FORM_EVENT:
            self._answer(front, {"action": "cancel"})
        else:
            front.form, front.reason = None, False
        return True

    def next(self) -> None:
        """The question after the one in front; where it is the only one, that one again, whole."""
        ids = list(self._open)
        self._bring(ids[(ids.index(self._front) + 1) % len(ids)])

    def _card_key(self, front: PendingQuestion, key: str) -> None:
        if answer := answer_of_key(key, front.wire.get("choices") or ()):
            self._answer(front, answer)
        elif key == "n" and not is_trust(front.wire) and front.wire.get("caller") != PERSON:
            front.reason = True
        elif key in ("enter", "n"):
            self._answer(front, {"approved": False})
        elif key == "s" and _has_session_choice(front.wire):
            self._answer(front, {"approved": True, "remember": "session"})
        elif key == "e" and not is_trust(front.wire):
            args = front.edited or front.wire.get("args")
            args = dict(args) if isinstance(args, Mapping) else {}
            fields = front.wire.get("fields")
            front.form = FormDialog(fields, args) if fields else FormDialog([_ALL_ARGUMENTS], {"arguments": args})
        elif key == "d":
            self._say(full_card(front.wire))
        elif key == "w":
            self._say(self._wrapped([[("", asked_because(front.wire.get("why", "")))]]))
        elif key == "?":
            self._say(self._wrapped(card_help(front.wire)))
        else:
            front.note = f"{repr(safe_text(key)) if len(key) == 1 else 'that key'} is not an answer"

    def _confirm_key(self, front: PendingQuestion, form: FormDialog, key: str) -> None:
        if key == "y":
            values: Any = form.arguments
            if front.kind == FORM_EVENT:
                self._answer(front, {"action": "accept", "values": values})
                return
            if not front.wire.get("fields"):
                values = values.get("arguments")
                if not isinstance(values, dict):
                    form.back()
                    front.note = "the arguments are one JSON object"
                    return
            front.edited, front.form = values, None
            self._answer(front, {"approved": True, "args": values})
        elif key == "n":
            if front.kind == FORM_EVENT:
                self._answer(front, {"action": "decline"})
            else:
                front.form = None
        elif key == "escape":
            self.back()
        else:
            front.note = "y or n; Esc decides later" if is_choice(front.wire) else "y sends it, Esc goes back"

    def _answer(self, front: PendingQuestion, data: dict[str, Any]) -> None:
        kind = "formResponse" if front.kind == FORM_EVENT else "approvalResponse"
        self._emit(kind, {"requestId": front.id, **data})

    def _show_arguments(self, front: PendingQuestion) -> None:
        assert front.form is not None
        shown = mask_secrets(mappings_in(front.wire.get("fields")), front.form.arguments, _DOTS)
        lines: list[StyledLine] = []
        for name, value in shown.items():
            text = one_line(json.dumps(value, ensure_ascii=False, default=str))
            lines.append([("code", f"  {one_line(name)}"), ("", f" = {text}")])
        self._say([[("title", "These will be sent:")], *(lines or [[("dim", "  no arguments")]])])

    # ---- what stands above the answer

    def lines(self, *, taken: bool, text_waits: bool = False, writing: bool = False) -> list[StyledLine]:
        """`taken`: the question has the keyboard; until then its keys are not named, because they do not count.

        `text_waits`: it gets the keyboard once the input line is empty. `writing`: the person went to that line.
        """
        front = self.front
        if front is None:
            return []
        number, count = list(self._open).index(self._front) + 1, len(self._open)
        place = f"{number} of {count} · " if count > 1 else ""
        lines: list[StyledLine] = [[("warn", safe_text(front.note))]] if front.note else []
        if is_choice(front.wire):
            hint = "(Esc: not now)" if taken else _WRITING_HINT if writing else _TEXT_WAITS_HINT if text_waits else ""
            return [*lines, *self._asked(f"{place}y or n?", hint or _WAITS_HINT)]
        if not taken:
            head = "Send? [y/N]" if self.stage is AnswerStage.KEY and front.form else _HEADS[self.stage, front.kind]
            hint = _WRITING_HINT if writing else _TEXT_WAITS_HINT if text_waits else _WAITS_HINT
            return [*lines, *self._asked(f"{place}{head}", hint)]
        if front.reason:
            keys = "(Enter sends it, also an empty one · Esc back)"
            return [*lines, *self._asked("Deny. Reason for the model:", keys)]
        if (question := self.question) is not None:
            return lines + self._wrapped(_question_lines(question, place))
        if front.form is not None:
            no = "n decline" if front.kind == FORM_EVENT else "n back to the card"
            return [*lines, *self._asked(f"{place}Send? [y/N]", f"(y send · {no} · Esc back)")]
        keys = card_keys(front.wire, many=count > 1, most=self._width() - 1)
        return [*lines, *self._asked(f"{place}{card_question(front.wire)}", keys)]

    def _asked(self, question: str, keys: str) -> list[StyledLine]:
        """The keys beside the question, or below it where that is too narrow, broken between words."""
        if width_of(f"{question} {keys}") <= max(self._width() - 1, 20):
            return [[("title", question), ("dim", f" {keys}")]]
        return self._wrapped([[("title", question)], [("dim", keys)]])

    def _wrapped(self, lines: Iterable[StyledLine]) -> list[StyledLine]:
        return list(wrapped_lines(lines, self._width()))


_WAITS_HINT: Final = "(waits until you stop typing; what you type goes to the input line)"
_TEXT_WAITS_HINT: Final = "(your text waits in the input line: clear it with Ctrl+U to answer, or send it with Enter)"
_WRITING_HINT: Final = "(waits while you write; Enter sends your line, Shift+Tab comes back here)"
_HEADS: Final = {
    (AnswerStage.KEY, APPROVAL_EVENT): "Approve? [y/N]",
    (AnswerStage.KEY, FORM_EVENT): "Send? [y/N]",
    (AnswerStage.LINE, FORM_EVENT): "A form is to be filled in",
    (AnswerStage.LINE, APPROVAL_EVENT): "The arguments are being edited",
}
_DOTS: Final = "••••"
"""Shown in place of a secret."""
_ALL_ARGUMENTS: Final = {
    "name": "arguments",
    "label": "Arguments",
    "type": "json",
    "required": True,
    "description": "all arguments as one JSON object",
}


def _form_head(wire: Mapping[str, Any]) -> list[StyledLine]:
    lines: list[StyledLine] = [[("title", f"── {one_line(wire['title'])}")]]
    lines += [[("", f"  {line}")] for line in safe_text(str(wire.get("message") or "")).splitlines()]
    if wire.get("url"):
        lines.append([("", f"  {one_line(wire['url'])}")])
    if is_choice(wire):
        for key, name in (("y", "accept"), ("n", "decline")):
            lines.append([("choice", f"  {key}  "), ("", one_line(wire.get(name) or ""))])
    return lines


def _question_lines(question: FormQuestion, place: str) -> list[StyledLine]:
    """Threat: labels, options and descriptions are a tool's or a server's; none of them may begin a line of its own."""
    head: list[tuple[str, str]] = [("title", place + one_line(question.label))]
    if question.hint:
        head.append(("dim", f"  ({one_line(question.hint)})"))
    lines: list[StyledLine] = [head]
    if question.description:
        lines += [[("dim", f"  {line}")] for line in safe_text(question.description).splitlines()[:1]]
    if question.error:
        lines.append([("fail", f"  ✗ {one_line(question.error)}")])
    return lines


_MAX_SUBJECT: Final = 40


def card_question(request: Mapping[str, Any]) -> str:
    """Names what would be approved: its card may have been pushed out of sight by what was printed since."""
    if is_trust(request):
        return "Trust these files? [y/N]"
    tool = safe_text(to_text(request.get("tool", "")))
    effects = request.get("effects") or ()
    about = safe_text(to_text(effects[0] if effects else "")).replace("\n", " ")
    return f"{tool}{': ' if about else ''}{shorten(about, _MAX_SUBJECT)} · Approve? [y/N]"


def is_trust(request: Mapping[str, Any]) -> bool:
    """A card about a program's files: there are no arguments to edit, nothing is remembered but the trust itself."""
    return request.get("type") == "trust"


def is_choice(wire: Mapping[str, Any]) -> bool:
    """A form without fields that says what y and n mean; Esc puts the answer off."""
    return bool(wire.get("accept")) and not wire.get("fields")


_LESS_USED: Final = ("Shift+Tab", "w", "e", "s")
"""Keys that only `?` explains, where not all fit on one line, the first of these first."""


def card_keys(request: Mapping[str, Any], *, many: bool, most: int = 0) -> str:
    """`most`: the columns there are; more than that are only taken where the keys that everybody needs take them."""
    named = {key: f"{key} {word}" for key, word, _ in _key_table(request, many=many) if word}
    for left_out in ("", *_LESS_USED):
        named.pop(left_out, "")
        if not most or width_of(" · ".join(named.values())) + 2 <= most:
            break
    return f"({' · '.join(named.values())})"


def card_help(request: Mapping[str, Any]) -> list[StyledLine]:
    return [[("choice", f"  {key:<10}"), ("", text)] for key, _, text in _key_table(request) if text]


def _key_table(request: Mapping[str, Any], *, many: bool = False) -> list[tuple[str, str, str]]:
    """Each key, its word beside the question, and what `?` says of it; empty: not there."""
    if is_trust(request):
        return [
            ("y", "trust", "trust exactly these files"),
            ("n", "do not", "do not trust them; Forge starts without them if it can"),
            ("Enter", "", "the same as n"),
            ("d", "all", "show every line of them"),
            ("w", "why", "say why Forge asks"),
            ("?", "help", ""),
        ]
    choices = request.get("choices") or ()
    denial = "deny" if request.get("caller") == PERSON else "deny, then say why if you like"
    session = ("s", "session", "run it and remember the narrowest choice for this session")
    return [
        ("y", "once", "run it, this once"),
        ("n", "deny", denial),
        ("Enter", "", "deny"),
        *([session] if _has_session_choice(request) else []),
        *([(choice_numbers(choices), "remember", "run it and remember that choice")] if choices else []),
        ("e", "edit", "edit the arguments as a form; Forge judges the changed call again"),
        ("d", "all", "show the whole diff or payload and every argument"),
        ("w", "why", "say why Forge asks"),
        ("q", "stop", "deny and end the turn"),
        ("Tab", "next" if many else "", "show the next question, or this card again; Ctrl+L shows this card again"),
        ("Shift+Tab", "write", "go to the input line, for a message or a command; Shift+Tab comes back"),
        ("Esc", "", "interrupt the turn; Ctrl+C as well"),
        ("?", "help", ""),
    ]


def _has_session_choice(request: Mapping[str, Any]) -> bool:
    return any(choice.get("scope") == "session" for choice in request.get("choices") or ())
