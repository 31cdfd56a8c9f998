"""A few lines on what was said before, for a person who goes on with a session. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from golem_forge.workers.messages import AssistantMessage, Message, UserMessage

_LINES: Final = 4
_LONGEST_LINE: Final = 160


def recap(history: Sequence[Message]) -> str:
    """How many turns there were, what the person said last, and how its answer began; empty: nothing was said."""
    places = [at for at, each in enumerate(history) if isinstance(each, UserMessage) and each.kind == "input"]
    if not places:
        return ""
    last = history[places[-1]]
    assert isinstance(last, UserMessage)
    answers = [each for each in history[places[-1] :] if isinstance(each, AssistantMessage) and each.text.strip()]
    turns = f"{len(places)} turns" if len(places) > 1 else "1 turn"
    answer = _beginning(answers[-1].text) if answers else ["(there was no answer yet)"]
    return "\n".join((f"{turns} so far. The last one:", *(f"> {line}" for line in _beginning(last.text)), *answer))


def _beginning(text: str) -> list[str]:
    lines = text.strip().splitlines()
    shown = [line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…" for line in lines[:_LINES]]
    return [*shown, "…"] if len(lines) > _LINES else shown
