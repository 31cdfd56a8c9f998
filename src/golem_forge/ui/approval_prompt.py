"""An approval asked line by line: prints the card, reads one line, asks again until it is an answer.

Used where there is a terminal but no full-screen UI: `forge call`, and programs that embed Forge through
`create_cli_approval_callback()` (for `ApprovalController` and `WorkerRuntime`). Takes the request; gives
`{approved, choice?, args?, reason?, stop?}`. Enter alone and the end of input deny; without a terminal the callback
denies. One question at a time, in the order of the calls: there is one keyboard. A runtime whose UI reads the same
terminal asks there.
Threat: keys typed before the card was drawn never answer it (`ask_line`). After a line that is no answer, input is
discarded until nobody types, so that the rest of it does not answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from golem_forge.ui.line_terminal import ask_line, can_ask, discard_until_idle, print_lines, terminal_width
from golem_forge.ui.render.card import answer_of_key, approval_card, asked_because, choice_numbers, full_card
from golem_forge.ui.render.lines import line, lines_of

if TYPE_CHECKING:
    from golem_forge.policy.request import ApprovalRequest

__all__ = ["ask_card", "ask_for_one_call", "ask_on_terminal", "can_ask", "card_data", "create_cli_approval_callback"]

NO_TERMINAL: Final = "There is no terminal to ask on."
Fields = Mapping[str, Any]


def create_cli_approval_callback() -> Callable[[ApprovalRequest], dict[str, Any]]:
    one_at_a_time = Lock()  # the thread of a question that was withdrawn may still read

    def approve(request: ApprovalRequest) -> dict[str, Any]:
        if not can_ask():
            return {"approved": False, "by": "nobody", "reason": NO_TERMINAL}
        with one_at_a_time:
            return ask_on_terminal(request)

    approve.keyboard = lambda: sys.stdin.fileno()  # type: ignore[attr-defined]
    return approve


def ask_on_terminal(request: ApprovalRequest) -> dict[str, Any]:
    data = card_data(request)
    return ask_card(data, data["choices"])


def ask_for_one_call(request: ApprovalRequest) -> dict[str, Any]:
    """Asks in a session that ends with this call, so without choices for the session."""
    data = card_data(request)
    return ask_card(data, [choice for choice in data["choices"] if choice["scope"] != "session"])


def card_data(request: ApprovalRequest) -> dict[str, Any]:
    """A request as its event would carry it, with the label and the problems of an edit where a card looks for them."""
    problems = [{"name": name, "error": problem} for name, problem in request.field_errors]
    return {**request.to_wire(), "label": request.label, "warnings": list(request.warnings), "fields": problems}


def ask_card(request: Fields, choices: Sequence[Fields]) -> dict[str, Any]:
    print_lines([[], *approval_card(request, choices, width=terminal_width())])
    remember = f"{choice_numbers(choices)} remember · " if choices else ""
    question = f"Approve? [y/N] (y once · n deny · {remember}e edit · d all · w why · q stop · ? help) "
    try:
        while (answer := _parse_answer(_read(question).lower(), request, choices)) is None:
            discard_until_idle()
    except EOFError:  # end of input is not a yes
        print_lines([[]])
        return {"approved": False}
    return answer


def _parse_answer(word: str, request: Fields, choices: Sequence[Fields]) -> dict[str, Any] | None:
    """Reads an answer; None means to ask again."""
    if word in ("", "n", "no"):
        return {"approved": False, "reason": _read("Reason for the caller (optional): ") if word else ""}
    if answer := answer_of_key("y" if word == "yes" else word, choices):
        return answer
    if word == "e":
        edited = _edit_arguments(request)
        return None if edited is None else {"approved": True, "args": edited}
    if word == "d":
        print_lines(full_card(request))
    elif word == "w":
        print_lines([line(asked_because(request.get("why", "")))])
    else:
        remembers = f" {choice_numbers(choices)} also remembers that choice," if choices else ""
        print_lines(
            lines_of(
                f"y runs it once, Enter or n denies,{remembers} e edits the arguments as JSON,\n"
                "d shows the whole diff or payload and all arguments, w says why Forge asks, "
                "q denies and ends the turn."
            )
        )
    return None


def _edit_arguments(request: Fields) -> dict[str, Any] | None:
    print_lines([line(f"now: {json.dumps(request.get('args'), ensure_ascii=False, default=str)}")])
    text = _read("new arguments as JSON (empty: back): ")
    if not text:
        return None
    try:
        args = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = f"✗ not JSON: {error}"
    else:
        if isinstance(args, dict):
            return args
        problem = "✗ the arguments are one JSON object"
    print_lines([line(problem, "fail", "  ")])
    return None


def _read(prompt: str) -> str:
    """A line without blanks around it. EOFError: the terminal was closed."""
    text = ask_line(prompt)
    if text is None:
        raise EOFError("the terminal was closed")
    return text.strip()
