"""The questions that wait for a person at this terminal, one in front: cards take single keys, forms take lines.

Takes question events and what the person pressed or typed; gives answer events to `emit` and styled lines to `say`.
Nothing is ever answered by Esc, by Tab or by a key that has no meaning. `meaning` tells the keyboard which keys answer.
Nothing here knows the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from golem_forge.ui.rendering.card import card, whole
from golem_forge.ui.rendering.lines import one_line, width_of, wrapped
from golem_forge.ui.terminal.card_words import card_help, card_keys, card_question, is_trust
from golem_forge.ui.terminal.forms import Form, Question
from golem_forge.ui.terminal.palette import Line, plain

NAME: Final = "terminal"
CARD: Final = "approvalRequired"
FORM: Final = "formRequired"
PERSON: Final = "human"
"""Who made the call of a card: a person needs no reason from themselves."""
Emit = Callable[[str, dict[str, Any]], None]
Say = Callable[[Iterable[Line]], None]


class Stage(StrEnum):
    """What the person is asked for right now."""

    NOTHING = "nothing"
    KEY = "key"
    """One key answers: a card, or the last look at a form."""
    LINE = "line"
    """A line of text: a reason, a field."""


class Meaning(StrEnum):
    """What a single key is at the question in front."""

    ANSWER = "answer"
    COMMAND = "command"
    """It shows or opens something; the question stays."""
    NONE = "none"


@dataclass(slots=True, kw_only=True)
class Pending:
    id: str
    kind: str
    wire: Mapping[str, Any]
    form: Form | None = None
    reason: bool = False
    """The reason of a denial is being asked for."""
    note: str = ""
    """Why the last key was no answer."""
    edited: dict[str, Any] = field(default_factory=dict)
    """The arguments of an edit that was refused; the next one starts from them."""


class Answering:
    def __init__(self, emit: Emit, say: Say, width: Callable[[], int]) -> None:
        self._emit = emit
        self._width = width
        self._say = say
        self._open: dict[str, Pending] = {}
        self._front = ""

    # ---- what is open

    @property
    def front(self) -> Pending | None:
        return self._open.get(self._front)

    @property
    def stage(self) -> Stage:
        front = self.front
        if front is None:
            return Stage.NOTHING
        if front.reason or (front.form is not None and front.form.question is not None):
            return Stage.LINE
        return Stage.KEY

    @property
    def question(self) -> Question | None:
        front = self.front
        return front.form.question if front is not None and front.form is not None else None

    @property
    def start(self) -> str:
        """What stands in the answer's line to begin with."""
        front = self.front
        return front.form.start if front is not None and front.form is not None and not front.reason else ""

    def opened(self, kind: str, wire: Mapping[str, Any]) -> bool:
        """A question was asked, or asked again with errors. True: it is the one in front now."""
        id = str(wire["requestId"])
        known = self._open.get(id)
        pending = Pending(id=id, kind=kind, wire=wire, edited=known.edited if known else {})
        self._open[id] = pending
        if not self.front or self._front == id:
            self._bring(id)
            return True
        return False

    def closed(self, id: str, ending: Callable[[Mapping[str, Any]], Line]) -> bool:
        """Says how it ended, then asks what is next. True: another question is in front now, or none."""
        pending = self._open.pop(id, None)
        if pending is None:
            return False
        self._say(self._wrapped([ending(pending.wire)]))
        if self._front != id:
            return False
        self._front = ""
        if self._open:
            self._bring(next(iter(self._open)))
        return True

    def show_front(self) -> None:
        """Draws the question in front again, e.g. for a new width."""
        if self.front is not None:
            self._present(self.front)

    def _bring(self, id: str) -> None:
        self._front = id
        self._present(self._open[id])

    def _present(self, pending: Pending) -> None:
        if pending.kind == FORM:
            if pending.form is None:
                pending.form = Form(_fields(pending.wire), {})
            self._say(self._wrapped(_form_head(pending.wire)))
            if pending.form.question is None:
                self._show_arguments(pending)
        else:
            self._say(card(pending.wire, width=self._width()))

    # ---- what the person does

    def meaning(self, key: str) -> Meaning:
        front = self.front
        if front is None or self.stage is not Stage.KEY:
            return Meaning.NONE
        if front.form is not None:
            answers, commands = ("yn", "") if front.kind == FORM else ("y", "n")
        else:
            answers = "ynq" + "".join(str(number) for number in range(1, _choice_count(front.wire) + 1))
            answers += "s" if _may_keep_for_session(front.wire) else ""
            commands = "dw?" if is_trust(front.wire) else "edw?"
        if key == "enter":
            return Meaning.NONE if front.form is not None else Meaning.ANSWER
        if key == "tab" or (len(key) == 1 and key in commands):
            return Meaning.COMMAND
        return Meaning.ANSWER if len(key) == 1 and key in answers else Meaning.NONE

    def press(self, key: str) -> None:
        front = self.front
        if front is None or self.stage is not Stage.KEY:
            return
        front.note = ""
        if front.form is not None:
            self._last_look(front, key)
        else:
            self._card_key(front, key)

    def enter(self, text: str) -> None:
        front = self.front
        if front is None or self.stage is not Stage.LINE:
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
        if front.reason:
            front.reason = False
        elif front.form is not None and not front.form.back() and front.kind == CARD:
            front.form = None

    def leave(self) -> bool:
        """Ctrl+C: an edit is given up, a form is cancelled. False: nothing of that kind is open."""
        front = self.front
        if front is None or (front.form is None and not front.reason):
            return False
        if front.kind == FORM:
            self._answer(front, {"action": "cancel"})
        else:
            front.form, front.reason = None, False
        return True

    def next(self) -> None:
        """The question after the one in front; where it is the only one, that one again, whole."""
        ids = list(self._open)
        self._bring(ids[(ids.index(self._front) + 1) % len(ids)])

    def _card_key(self, front: Pending, key: str) -> None:
        choices: Sequence[Mapping[str, Any]] = front.wire.get("choices") or ()
        if key == "y":
            self._answer(front, {"approved": True})
        elif key == "n" and not is_trust(front.wire) and front.wire.get("caller") != PERSON:
            front.reason = True
        elif key in ("enter", "n"):
            self._answer(front, {"approved": False})
        elif key == "q":
            self._answer(front, {"approved": False, "stop": True})
        elif key == "s" and _may_keep_for_session(front.wire):
            self._answer(front, {"approved": True, "remember": "session"})
        elif key.isascii() and key.isdigit() and 1 <= int(key) <= len(choices):
            self._answer(front, {"approved": True, "choice": choices[int(key) - 1]["id"]})
        elif key == "e" and not is_trust(front.wire):
            self._edit(front)
        elif key == "d":
            self._say(whole(front.wire))
        elif key == "w":
            self._say(self._wrapped([[("", f"why asked: {one_line(front.wire.get('why', ''))}")]]))
        elif key == "?":
            self._say(card_help(front.wire))
        elif key == "tab":
            self.next()
        else:
            front.note = f"{plain(key)!r} is no answer; ? helps" if len(key) == 1 else "that key is no answer; ? helps"

    def _edit(self, front: Pending) -> None:
        args = front.edited or front.wire.get("args")
        args = dict(args) if isinstance(args, Mapping) else {}
        fields = front.wire.get("fields")
        if fields:
            front.form = Form(fields, args)
        else:
            front.form = Form([_WHOLE], {"arguments": args})

    def _last_look(self, front: Pending, key: str) -> None:
        assert front.form is not None
        if key == "y":
            values: Any = front.form.arguments
            if front.kind == FORM:
                self._answer(front, {"action": "accept", "values": values})
                return
            if not front.wire.get("fields"):
                values = values.get("arguments")
                if not isinstance(values, dict):
                    front.form.back()
                    front.note = "the arguments are one JSON object"
                    return
            front.edited, front.form = values, None
            self._answer(front, {"approved": True, "args": values})
        elif key == "n":
            if front.kind == FORM:
                self._answer(front, {"action": "decline"})
            else:
                front.form = None
        elif key == "escape":
            self.back()
        elif key == "tab":
            self.next()
        else:
            front.note = "y sends it, Esc goes back"

    def _answer(self, front: Pending, data: dict[str, Any]) -> None:
        kind = "formResponse" if front.kind == FORM else "approvalResponse"
        self._emit(kind, {"requestId": front.id, **data})

    def _show_arguments(self, front: Pending) -> None:
        assert front.form is not None
        self._say([[("title", "These will be sent:")]])
        shown = _masked(_fields(front.wire), front.form.arguments)
        self._say(_argument_lines(shown) or [[("dim", "  no arguments")]])

    # ---- what stands above the answer

    def lines(self, *, taken: bool, text_waits: bool = False) -> list[Line]:
        """`taken`: the question has the keyboard; until then its keys are not named, for they do not count.

        `text_waits`: it gets the keyboard once the input line is empty.
        """
        front = self.front
        if front is None:
            return []
        place = self._place()
        lines: list[Line] = [[("warn", plain(front.note))]] if front.note else []
        if not taken:
            head = "Send? [y/N]" if self.stage is Stage.KEY and front.form else _HEADS[self.stage, front.kind]
            return [*lines, *self._asked(f"{place}{head}", _TEXT_WAITS if text_waits else _WAITS)]
        if front.reason:
            keys = "(Enter sends it, also an empty one · Esc back)"
            return [*lines, *self._asked("Deny. Reason for the model:", keys)]
        question = self.question
        if question is not None:
            return lines + self._wrapped(_question_lines(question, place))
        if front.form is not None:
            no = "n decline" if front.kind == FORM else "n back to the card"
            return [*lines, *self._asked(f"{place}Send? [y/N]", f"(y send · {no} · Esc back)")]
        keys = card_keys(front.wire, many=len(self._open) > 1)
        return [*lines, *self._asked(f"{place}{card_question(front.wire)}", keys)]

    def _asked(self, question: str, keys: str) -> list[Line]:
        """The keys beside the question, or below it where that is too narrow, broken between words."""
        if width_of(f"{question} {keys}") <= max(self._width() - 1, 20):
            return [[("title", question), ("dim", f" {keys}")]]
        return self._wrapped([[("title", question)], [("dim", keys)]])

    def _wrapped(self, lines: Iterable[Line]) -> list[Line]:
        width = max(self._width() - 1, 20)
        return [row for line in lines for row in wrapped(line, width)]

    def _place(self) -> str:
        if len(self._open) < 2:
            return ""
        return f"{list(self._open).index(self._front) + 1} of {len(self._open)} · "


_WAITS: Final = "(waits until you stop typing; what you type goes to the input line)"
_TEXT_WAITS: Final = "(your text waits in the input line: Enter sends it, Ctrl+U clears it)"
_HEADS: Final = {
    (Stage.KEY, CARD): "Approve? [y/N]",
    (Stage.KEY, FORM): "Send? [y/N]",
    (Stage.LINE, FORM): "A form is to be filled in",
    (Stage.LINE, CARD): "The arguments are being edited",
}
_WHOLE: Final = {
    "name": "arguments",
    "label": "Arguments",
    "type": "json",
    "required": True,
    "description": "all arguments as one JSON object",
}


def _choice_count(wire: Mapping[str, Any]) -> int:
    """Of the choices that one digit picks."""
    return min(len(wire.get("choices") or ()), 9)


def _may_keep_for_session(wire: Mapping[str, Any]) -> bool:
    return any(choice.get("scope") == "session" for choice in wire.get("choices") or ())


def _fields(wire: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in wire.get("fields") or () if isinstance(each, Mapping)]


def _form_head(wire: Mapping[str, Any]) -> list[Line]:
    lines: list[Line] = [[("title", f"── {one_line(wire['title'])}")]]
    lines += [[("", f"  {line}")] for line in plain(str(wire.get("message") or "")).splitlines()]
    if wire.get("url"):
        lines.append([("", f"  {one_line(wire['url'])}")])
    return lines


def _question_lines(question: Question, place: str) -> list[Line]:
    """Threat: labels, options and descriptions are a tool's or a server's; none of them may begin a line of its own."""
    head: list[tuple[str, str]] = [("title", place + one_line(question.label))]
    if question.hint:
        head.append(("dim", f"  ({one_line(question.hint)})"))
    lines: list[Line] = [head]
    if question.description:
        lines += [[("dim", f"  {line}")] for line in plain(question.description).splitlines()[:1]]
    if question.error:
        lines.append([("fail", f"  ✗ {one_line(question.error)}")])
    return lines


def _argument_lines(arguments: Mapping[str, Any]) -> list[Line]:
    return [
        [("code", f"  {one_line(name)}"), ("", f" = {one_line(json.dumps(value, ensure_ascii=False, default=str))}")]
        for name, value in arguments.items()
    ]


def _masked(fields: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with dots for what was typed unseen, however deep it lies."""
    by_name = {field["name"]: field for field in fields}
    return {name: _hidden(by_name.get(name, {}), value) for name, value in values.items()}


def _hidden(field: Mapping[str, Any], value: Any) -> Any:
    kind = field.get("type")
    if kind == "secret":
        return "••••"
    if kind == "group" and isinstance(value, Mapping):
        return _masked(field["fields"], value)
    if kind == "list" and isinstance(value, list):
        return [_hidden(field["item"], item) for item in value]
    if kind == "variants":
        return "••••" if any(variant["type"] == "secret" for variant in field["variants"]) else value
    return value
