"""What the keys of an approval card do, in words: the line at the prompt and the page behind `?`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from golem_forge.ui.rendering.lines import words
from golem_forge.ui.terminal.palette import Line, plain

_LONGEST_SUBJECT: Final = 40


def card_question(request: Mapping[str, Any]) -> str:
    """Names what would be approved: its card may have been pushed out of sight by what was printed since."""
    if is_trust(request):
        return "Trust these files? [y/N]"
    tool = plain(words(request.get("tool", "")))
    effects = request.get("effects") or ()
    about = plain(words(effects[0] if effects else "")).replace("\n", " ")
    short = about if len(about) <= _LONGEST_SUBJECT else f"{about[: _LONGEST_SUBJECT - 1]}…"
    return f"{f'{tool}: {short}' if short else tool} · Approve? [y/N]"


def is_trust(request: Mapping[str, Any]) -> bool:
    """A card about a program's files: there are no arguments to edit, nothing is remembered but the trust itself."""
    return request.get("type") == "trust"


def card_keys(request: Mapping[str, Any], *, many: bool) -> str:
    choices = request.get("choices") or ()
    if is_trust(request):
        return "(y trust · n do not · d all · w why · ? help)"
    parts = ["y once", "n deny"]
    if _session(choices):
        parts.append("s session")
    if choices:
        parts.append("1 remember" if len(choices) == 1 else f"1-{len(choices)} remember")
    parts += ["e edit", "d all", "w why", "q stop"]
    if many:
        parts.append("Tab next")
    return f"({' · '.join([*parts, '? help'])})"


def card_help(request: Mapping[str, Any]) -> list[Line]:
    choices = request.get("choices") or ()
    if is_trust(request):
        rows = [("y", "trust them as they are now"), ("n", "start without what they say, as far as that goes")]
        rows += [("Enter", "the same as n"), ("d", "every line of them"), ("w", "why it is asked")]
        return [[("choice", f"  {key:<6}"), ("", text)] for key, text in rows]
    denial = "deny" if request.get("caller") == "human" else "deny, then say why if you like"
    rows = [("y", "run it, this once"), ("n", denial), ("Enter", "deny")]
    if _session(choices):
        rows.append(("s", "run it and remember the narrowest choice for this session"))
    if choices:
        keys = "1" if len(choices) == 1 else f"1-{len(choices)}"
        rows.append((keys, "run it and remember that choice"))
    rows += [
        ("e", "edit the arguments as a form; they are judged again"),
        ("d", "the whole diff or payload and every argument"),
        ("w", "why it is asked"),
        ("q", "deny and end the turn"),
        ("Tab", "the next question that waits, or this card again; Ctrl+L this card again"),
        ("Esc", "interrupt the turn; Ctrl+C as well"),
    ]
    return [[("choice", f"  {key:<6}"), ("", text)] for key, text in rows]


def _session(choices: Sequence[Mapping[str, Any]]) -> bool:
    return any(choice.get("scope") == "session" for choice in choices)
