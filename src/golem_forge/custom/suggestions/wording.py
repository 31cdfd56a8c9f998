"""How a suggestion is said: one line for a model, a few for a person.

Threat: arguments may be a stranger's words (of a page, of a file) that came through a model into a journal, and a line
of Forge's own would carry them into later sessions as if Forge said them. A model is told names, numbers and values
that are a single plain word; anything else is `…`. People see it all, made visible.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from golem_forge.core.visible import visible
from golem_forge.custom.suggestions.suggestion import Call, Suggestion

_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_./*:@+=,^$\\-]{1,60}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}", re.ASCII)
_LONGEST_LINE: Final = 1_000
_LONGEST_VALUE: Final = 120
_LEFT_OUT: Final = "…"


def line_for_model(suggestion: Suggestion) -> str:
    calls = " → ".join(f"{_name(call.tool)}({_arguments_for_model(call)})" for call in suggestion.sequence)
    needs = ", ".join(each.name for each in suggestion.parameters) or "no parameters"
    if len(calls) > _LONGEST_LINE:
        calls = " → ".join(_name(call.tool) for call in suggestion.sequence)
    return (
        f"Forge noticed the same calls {suggestion.occurrences} times in {suggestion.sessions} sessions: {calls}. "
        f"They could be one custom tool, for example {suggestion.name} ({needs[:_LONGEST_LINE]}). If it would help "
        "here, propose it to the person; create_custom_tool makes it, and asks them."
    )


def lines_for_person(suggestion: Suggestion) -> list[str]:
    """Name and key first, then each call, then what to do about it."""
    width = max(len(call.tool) for call in suggestion.sequence)
    calls = [f"  {call.tool:<{width}}  {_arguments_for_person(call)}".rstrip() for call in suggestion.sequence]
    parameters = [f"    {each.name} ({each.type}): {each.description}" for each in suggestion.parameters]
    return [
        _one_line(line)
        for line in (
            f"{suggestion.key}  {' → '.join(suggestion.tools)}",
            f"  seen {suggestion.occurrences} times in {suggestion.sessions} sessions, last {suggestion.last_seen}; "
            f"{suggestion.sequence_ms:,.0f} ms each",
            *calls,
            *(["  parameters:", *parameters] if parameters else ["  no parameters: every call was the same"]),
        )
    ]


def _arguments_for_model(call: Call) -> str:
    fixed = [f"{_name(name)}={_value_for_model(value)}" for name, value in call.arguments.items()]
    return ", ".join([*fixed, *(f"{_name(name)}=<{parameter}>" for name, parameter in call.parameters.items())])


def _value_for_model(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)[:_LONGEST_VALUE]
    return value if isinstance(value, str) and _PLAIN_WORD.fullmatch(value) else _LEFT_OUT


def _name(name: str) -> str:
    return name if _NAME.fullmatch(name) else _LEFT_OUT


def _arguments_for_person(call: Call) -> str:
    fixed = [f"{name}={_value_for_person(value)}" for name, value in call.arguments.items()]
    return " ".join([*fixed, *(f"{name}=<{parameter}>" for name, parameter in call.parameters.items())])


def _value_for_person(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}{_LEFT_OUT}"


def _one_line(text: str) -> str:
    return visible(text).replace("\n", " ").replace("\t", " ")
