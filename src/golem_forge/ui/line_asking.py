"""An approval asked line by line: shows the card, reads one line, and asks again until it is an answer.

A line that is no answer is followed by a silence (`settle`), so that the rest of what was typed does not answer.

Takes the request and how to read and say; gives `{approved, choice?, args?, reason?, stop?}`. Enter alone denies, and
so does the end of input. Used where there is a terminal but no full-screen UI: `forge call`, and embedders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from golem_forge.ui.rendering.card import card, whole
from golem_forge.ui.rendering.lines import Line, line, lines_of, words

if TYPE_CHECKING:
    from golem_forge.policy.request import ApprovalRequest

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTerminal:
    read: Callable[[str], str | None]
    """Asks with a prompt; None at the end of input."""
    say: Callable[[Sequence[Line]], None]
    width: int = 80
    settle: Callable[[], None] = lambda: None
    """Throws away what is typed until nobody types; called after a line that was no answer."""


def ask(terminal: LineTerminal, request: Fields, choices: Sequence[Fields]) -> dict[str, Any]:
    terminal.say([[], *card(request, choices, width=terminal.width)])
    answer: dict[str, Any] | None = None
    try:
        while answer is None:
            answer = _answer_to(_read(terminal, _question(choices)).strip().lower(), terminal, request, choices)
            if answer is None:
                terminal.settle()
    except EOFError:  # end of input is not a yes
        terminal.say([[]])
        return {"approved": False}
    return answer


def card_data(request: ApprovalRequest) -> dict[str, Any]:
    """A request as its event would carry it, with the label and the problems of an edit where a card looks for them."""
    problems = [{"name": name, "error": problem} for name, problem in request.field_errors]
    return {**request.to_wire(), "label": request.label, "warnings": list(request.warnings), "fields": problems}


def _question(choices: Sequence[Fields]) -> str:
    numbers = f"{_numbers(choices)} remember · " if choices else ""
    return f"Approve? [y/N] (y once · n deny · {numbers}e edit · d all · w why · q stop · ? help) "


def _help(choices: Sequence[Fields]) -> str:
    remembers = f" {_numbers(choices)} also remembers that choice," if choices else ""
    return (
        f"y runs it once, Enter or n denies,{remembers} e edits the arguments as JSON,\n"
        "d shows the whole diff or payload and all arguments, w says why it is asked, q denies and ends the turn."
    )


def _numbers(choices: Sequence[Fields]) -> str:
    return "1" if len(choices) == 1 else f"1-{len(choices)}"


def _answer_to(key: str, terminal: LineTerminal, request: Fields, choices: Sequence[Fields]) -> dict[str, Any] | None:
    """None: the key was no answer; ask again."""
    if key in ("", "n", "no"):
        reason = _read(terminal, "Reason for the caller (optional): ").strip() if key else ""
        return {"approved": False, "reason": reason}
    if key in ("y", "yes"):
        return {"approved": True}
    if key == "q":
        return {"approved": False, "stop": True}
    if key.isascii() and key.isdigit() and 1 <= int(key) <= len(choices):
        return {"approved": True, "choice": choices[int(key) - 1].get("id")}
    if key == "e":
        edited = _edit(terminal, request)
        return None if edited is None else {"approved": True, "args": edited}
    if key == "d":
        terminal.say(whole(request))
    elif key == "w":
        terminal.say([line(f"asked because: {words(request.get('why', ''))}")])
    else:
        terminal.say(lines_of(_help(choices)))
    return None


def _edit(terminal: LineTerminal, request: Fields) -> dict[str, Any] | None:
    terminal.say([line(f"now: {json.dumps(request.get('args'), ensure_ascii=False, default=str)}")])
    text = _read(terminal, "new arguments as JSON (empty: back): ").strip()
    if not text:
        return None
    try:
        args = json.loads(text)
    except (ValueError, RecursionError) as error:
        terminal.say([line(f"✗ not JSON: {error}", "fail", "  ")])
        return None
    if not isinstance(args, dict):
        terminal.say([line("✗ the arguments are one JSON object", "fail", "  ")])
        return None
    return args


def _read(terminal: LineTerminal, prompt: str) -> str:
    text = terminal.read(prompt)
    if text is None:
        raise EOFError("the terminal was closed")
    return text
