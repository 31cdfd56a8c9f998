"""One tool call while it runs and how it was decided: `toolStarted`, `toolProgress`, and a result's Decision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from golem_forge.ui.rendering.lines import Line, lines_of, number, one_line, shortened, words

Fields = Mapping[str, Any]
_MOST_ARGUMENT: Final = 60
_MOST_ARGUMENTS: Final = 6


def started(data: Fields) -> Line:
    """`▸ git_push (Push to Remote) branch="main"`: long arguments are cut here, and shown whole where they matter."""
    label, caller = data.get("label"), data.get("caller")
    named = one_line(data.get("toolName", "")) + (f" ({one_line(label)})" if label else "")
    by = f" [{one_line(caller)}]" if caller and caller != "llm" else ""
    return [("title", "▸"), ("", f" {named}{by}"), ("dim", _short_arguments(data.get("args")))]


def arguments(data: Fields) -> list[Line]:
    """In full."""
    args = data.get("args")
    try:
        text = json.dumps(args, ensure_ascii=False, indent=2)
    except (TypeError, ValueError, RecursionError):
        text = words(args)
    return lines_of(text, "dim", "  ")


def progress(data: Fields, tool: str) -> Line:
    total = data.get("total")
    done = f"{number(data.get('progress')):g}" + (f"/{number(total):g}" if total is not None else "")
    message = data.get("message")
    return [("dim", f"  {one_line(tool)} {done}" + (f" {one_line(message)}" if message else ""))]


def decision(said: Fields) -> list[Line]:
    """The verdict, which rule or tool decided, the risk, who answered, and the fingerprint."""
    by = said.get("decidedBy")
    parts = [one_line(said.get("verdict", "")) + (f" by {_source(by)}" if isinstance(by, Mapping) else "")]
    parts.append(f"risk {one_line(said.get('risk', ''))}")
    answered = said.get("answeredBy")
    if answered and answered != "nobody":
        parts.append(f"answered by {one_line(answered)}")
    parts += [name for name in ("cached", "edited") if said.get(name)]
    if said.get("remembered"):
        parts.append(f"remembered: {one_line(said['remembered'])}")
    if said.get("fingerprint"):
        parts.append(f"fingerprint {one_line(said['fingerprint'])}")
    return [[("dim", f"  decision: {' · '.join(parts)}")]]


def _source(by: Fields) -> str:
    label = f"{one_line(by.get('source', ''))} {one_line(by.get('id', ''))}".strip()
    reason = f": {one_line(by['reason'])}" if by.get("reason") else ""
    place = f"{one_line(by['file'])}:{one_line(by.get('line', 0))}" if by.get("file") else ""
    return f"{label}{reason}" + (f" ({place})" if place else "")


def _short_arguments(args: Any) -> str:
    if not isinstance(args, Mapping) or not args:
        return ""
    shown = [f"{one_line(name)}={_short(value)}" for name, value in list(args.items())[:_MOST_ARGUMENTS]]
    return " " + " ".join(shown) + (" …" if len(args) > _MOST_ARGUMENTS else "")


def _short(value: Any) -> str:
    text = f'"{one_line(value)}"' if isinstance(value, str) else one_line(value)
    return shortened(text, _MOST_ARGUMENT)
