"""The approval card on a plain terminal: everything literal, Enter alone denies.

Keys typed before the card was drawn never answer it (`plain.ask_line`).
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from golem_forge.cli.plain import ask_line
from golem_forge.core.visible import visible
from golem_forge.policy.offers import Offer
from golem_forge.policy.request import ApprovalRequest

_SHOWN_LINES: Final = 40
_QUESTION: Final = "Approve? [y/N] (y once · n deny · 1… remember · e edit · d all · w why · ? help) "
_HELP: Final = """y runs it once, Enter or n denies, a number also remembers that choice, e edits the arguments as JSON,
d shows the whole diff or payload, w says who asks, q denies and ends the turn."""


def can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_on_terminal(request: ApprovalRequest) -> dict[str, Any]:
    return _answer(request, list(request.choices))


def ask_for_one_call(request: ApprovalRequest) -> dict[str, Any]:
    """For a session that ends with this call: what would be kept for the session is not offered."""
    return _answer(request, [choice for choice in request.choices if choice.scope != "session"])


def _answer(request: ApprovalRequest, choices: list[Offer]) -> dict[str, Any]:
    _show(request, choices)
    answer: dict[str, Any] | None = None
    try:
        while answer is None:
            answer = _answer_to(_read(_QUESTION).strip().lower(), request, choices)
    except EOFError:  # end of input is not a yes
        _say("")
        return {"approved": False}
    return answer


def _answer_to(key: str, request: ApprovalRequest, choices: list[Offer]) -> dict[str, Any] | None:
    """None: the key was no answer; ask again."""
    if key in ("", "n", "no"):
        reason = _read("Reason for the caller (optional): ").strip() if key else ""
        return {"approved": False, "reason": reason}
    if key in ("y", "yes"):
        return {"approved": True}
    if key == "q":
        return {"approved": False, "stop": True}
    if key.isdigit() and 1 <= int(key) <= len(choices):
        return {"approved": True, "choice": choices[int(key) - 1].id}
    if key == "e":
        edited = _edit(request)
        return None if edited is None else {"approved": True, "args": edited}
    if key == "d":
        _say(request.diff or request.payload)
    elif key == "w":
        _say(f"asked because: {request.why}")
    else:
        _say(_HELP)
    return None


def _show(request: ApprovalRequest, choices: list[Offer]) -> None:
    _say("")
    _say(f"── {request.label or request.tool} wants to run · risk {request.risk} " + "─" * 20)
    _say(_bounded(request.diff or request.payload))
    for effect in request.effects:
        _say(f"  {effect}")
    for reason in request.risk_reasons:
        _say(f"  ! {reason}")
    for warning in request.warnings:
        _say(f"  ! {visible(warning)}")
    if request.changed:
        _say("  the tool's definition changed:")
        _say(_bounded(request.changed))
    if request.previously_denied:
        _say(f"  denied {request.previously_denied} times before in this session")
    _say(f"  why asked: {request.why}")
    for name, problem in request.field_errors:
        _say(f"  ✗ {visible(name)}: {visible(problem)}")
    for number, choice in enumerate(choices, 1):
        where = f" for this project, in {choice.file}" if choice.file else ""
        _say(f"  {number}  approve and remember: {visible(choice.label)} ({choice.scope}{where})")


def _bounded(text: str) -> str:
    """The first and the last 20 lines: an end that is not shown is where a trick would hide."""
    lines = text.splitlines()
    if len(lines) <= _SHOWN_LINES:
        return text
    half = _SHOWN_LINES // 2
    between = f"… {len(lines) - _SHOWN_LINES} lines between; d shows all …"
    return "\n".join([*lines[:half], between, *lines[-half:]])


def _edit(request: ApprovalRequest) -> dict[str, Any] | None:
    _say(f"now: {visible(json.dumps(request.args, ensure_ascii=False))}")
    text = _read("new arguments as JSON (empty: back): ").strip()
    if not text:
        return None
    try:
        args = json.loads(text)
    except ValueError as error:
        _say(f"  ✗ not JSON: {error}")
        return None
    if not isinstance(args, dict):
        _say("  ✗ the arguments are one JSON object")
        return None
    return args


def _read(prompt: str) -> str:
    line = ask_line(prompt)
    if line is None:
        raise EOFError("the terminal was closed")
    return line


def _say(text: str) -> None:
    print(text, file=sys.stderr)
