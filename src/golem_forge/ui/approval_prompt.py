"""An approval asked line by line: prints the card, reads one line, asks again until it is an answer.

Used where there is a terminal but no full-screen UI: `forge call`, and programs that embed Forge through
`create_cli_approval_callback()` (for `ApprovalController` and `WorkerRuntime`). Takes the request and a LineTerminal;
gives `{approved, choice?, args?, reason?, stop?}`. Enter alone and the end of input deny; without a terminal the
callback denies. One question at a time: there is one keyboard. A runtime whose UI reads the same terminal asks there.
Threat: after a line that is no answer, input is discarded (`settle`) so that the rest of it does not answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.ui.line_terminal import ask_line, can_ask, discard_until_idle, print_lines, terminal_width
from golem_forge.ui.render.card import approval_card, full_card
from golem_forge.ui.render.lines import Line, line, lines_of, to_text

if TYPE_CHECKING:
    from golem_forge.policy.request import ApprovalRequest

NO_TERMINAL: Final = "There is no terminal to ask on."


def create_cli_approval_callback() -> Callable[[ApprovalRequest], dict[str, Any]]:
    one_at_a_time = Lock()  # each request is asked in a thread of its own, and there is one keyboard

    def approve(request: ApprovalRequest) -> dict[str, Any]:
        if not can_ask():
            return {"approved": False, "by": "nobody", "reason": NO_TERMINAL}
        data = card_data(request)
        with one_at_a_time:
            terminal = LineTerminal(read=ask_line, say=print_lines, width=terminal_width(), settle=discard_until_idle)
            return ask_approval(terminal, data, data["choices"])

    approve.keyboard = lambda: sys.stdin.fileno()  # type: ignore[attr-defined]
    return approve


Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTerminal:
    read: Callable[[str], str | None]
    """Asks with a prompt; None at the end of input."""
    say: Callable[[Sequence[Line]], None]
    width: int = 80
    settle: Callable[[], None] = lambda: None
    """Throws away what is typed until nobody types; called after a line that was no answer."""


def ask_approval(terminal: LineTerminal, request: Fields, choices: Sequence[Fields]) -> dict[str, Any]:
    terminal.say([[], *approval_card(request, choices, width=terminal.width)])
    answer: dict[str, Any] | None = None
    try:
        while answer is None:
            numbers = f"{_numbers(choices)} remember · " if choices else ""
            question = f"Approve? [y/N] (y once · n deny · {numbers}e edit · d all · w why · q stop · ? help) "
            answer = _parse_answer(_read(terminal, question).strip().lower(), terminal, request, choices)
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


def _help(choices: Sequence[Fields]) -> str:
    remembers = f" {_numbers(choices)} also remembers that choice," if choices else ""
    return (
        f"y runs it once, Enter or n denies,{remembers} e edits the arguments as JSON,\n"
        "d shows the whole diff or payload and all arguments, w says why it is asked, q denies and ends the turn."
    )


def _numbers(choices: Sequence[Fields]) -> str:
    return "1" if len(choices) == 1 else f"1-{len(choices)}"


def _parse_answer(
    key: str, terminal: LineTerminal, request: Fields, choices: Sequence[Fields]
) -> dict[str, Any] | None:
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
        edited = _edit_arguments(terminal, request)
        return None if edited is None else {"approved": True, "args": edited}
    if key == "d":
        terminal.say(full_card(request))
    elif key == "w":
        terminal.say([line(f"asked because: {to_text(request.get('why', ''))}")])
    else:
        terminal.say(lines_of(_help(choices)))
    return None


def _edit_arguments(terminal: LineTerminal, request: Fields) -> dict[str, Any] | None:
    terminal.say([line(f"now: {json.dumps(request.get('args'), ensure_ascii=False, default=str)}")])
    text = _read(terminal, "new arguments as JSON (empty: back): ").strip()
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
    terminal.say([line(problem, "fail", "  ")])
    return None


def _read(terminal: LineTerminal, prompt: str) -> str:
    text = terminal.read(prompt)
    if text is None:
        raise EOFError("the terminal was closed")
    return text
