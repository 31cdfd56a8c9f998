"""The approval card on a plain terminal: everything that is approved, literally; Enter alone denies.

Keys typed before the card was drawn never answer it (`plain.ask_line`). Threat: an argument that is not on the card
(a working directory, hosts, a terminal) would be approved unseen, so what a payload leaves out has a line of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

from golem_forge.cli.plain import ask_line, can_ask, one_line
from golem_forge.core.visible import visible
from golem_forge.policy.offers import Offer
from golem_forge.policy.request import ApprovalRequest

__all__ = ["ask_for_one_call", "ask_on_terminal", "can_ask"]

_SHOWN_LINES: Final = 40
_NO_WALLS: Final = "NO WALLS"


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
            answer = _answer_to(_read(_question(choices)).strip().lower(), request, choices)
    except EOFError:  # end of input is not a yes
        _say("")
        return {"approved": False}
    return answer


def _question(choices: list[Offer]) -> str:
    numbers = f"{_numbers(choices)} remember · " if choices else ""
    return f"Approve? [y/N] (y once · n deny · {numbers}e edit · d all · w why · q stop · ? help) "


def _help(choices: list[Offer]) -> str:
    remembers = f" {_numbers(choices)} also remembers that choice," if choices else ""
    return (
        f"y runs it once, Enter or n denies,{remembers} e edits the arguments as JSON,\n"
        "d shows the whole diff or payload and all arguments, w says why it is asked, q denies and ends the turn."
    )


def _numbers(choices: list[Offer]) -> str:
    return "1" if len(choices) == 1 else f"1-{len(choices)}"


def _answer_to(key: str, request: ApprovalRequest, choices: list[Offer]) -> dict[str, Any] | None:
    """None: the key was no answer; ask again."""
    if key in ("", "n", "no"):
        reason = _read("Reason for the caller (optional): ").strip() if key else ""
        return {"approved": False, "reason": reason}
    if key in ("y", "yes"):
        return {"approved": True}
    if key == "q":
        return {"approved": False, "stop": True}
    if key.isascii() and key.isdigit() and 1 <= int(key) <= len(choices):
        return {"approved": True, "choice": choices[int(key) - 1].id}
    if key == "e":
        edited = _edit(request)
        return None if edited is None else {"approved": True, "args": edited}
    if key == "d":
        _show_all(request)
    elif key == "w":
        _say(f"asked because: {request.why}")
    else:
        _say(_help(choices))
    return None


def _show(request: ApprovalRequest, choices: list[Offer]) -> None:
    _say("")
    _say(f"── {request.label or request.tool} wants to run · risk {request.risk} " + "─" * 20)
    _say(_bounded(request.diff or request.payload))
    seen = {f"exec {request.payload}".strip()}
    for line in (*_circumstances(request), *request.effects):
        if line not in seen:
            seen.add(line)
            _say(f"  {line}")
    for reason in dict.fromkeys(request.risk_reasons):
        if reason not in request.why and not reason.startswith(_NO_WALLS):
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
        _say_wrapped(f"{number}  approve and remember ({choice.scope}{where}): {choice.label}")


def _circumstances(request: ApprovalRequest) -> Iterator[str]:
    """What holds for the call besides its text; nothing for what is as usual."""
    no_walls = next((reason for reason in request.risk_reasons if reason.startswith(_NO_WALLS)), "")
    if no_walls:
        yield no_walls
    args = request.args
    if request.tool == "exec_command":
        if args.get("workdir"):
            yield f"in {one_line(str(args['workdir']))}"
        if args.get("shell", "bash") != "bash" or args.get("login"):
            yield f"by {'a login ' if args.get('login') else ''}{one_line(str(args.get('shell', 'bash')))}"
        if args.get("tty"):
            yield "in a terminal"
    elif request.tool == "write_stdin":
        yield f"typed into session {one_line(str(args.get('session_id', '')))}"
    if request.model_note:
        yield f"the caller says: {one_line(request.model_note)}"


def _show_all(request: ApprovalRequest) -> None:
    _say(request.diff or request.payload)
    arguments = visible(json.dumps(request.args, ensure_ascii=False, indent=2, default=str))
    if arguments != request.payload:
        _say("all arguments:")
        _say(arguments)


def _say_wrapped(text: str) -> None:
    """A long line is broken between words, not wherever the terminal ends."""
    import textwrap

    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        width = 80
    lines = textwrap.wrap(
        one_line(text),
        max(width - 1, 40),
        initial_indent="  ",
        subsequent_indent="     ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    _say("\n".join(lines))


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
