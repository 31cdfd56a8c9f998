"""Offered: the suggestions a session was told of, and which of them a tool that is made there comes from.

A model may make a tool after a suggestion that has nothing to do with it, and nobody says which it is. So something
must speak for it: the proposed name, the proposed parameters, or at least a word of what the calls do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from golem_forge.custom.making.scaffold import NewTool
    from golem_forge.custom.suggestions.suggestion import Suggestion

_WORD: Final = re.compile(r"[^\W_]+")
_SAY_NOTHING: Final = frozenset({"file", "files", "tool", "path", "name", "command", "content", "text", "the", "and"})
_SHORTEST_WORD: Final = 3


class Offered:
    def __init__(self) -> None:
        self._open: list[Suggestion] = []

    def add(self, suggestion: Suggestion) -> None:
        self._open = [each for each in self._open if each.key != suggestion.key] + [suggestion]

    def made_into(self, order: NewTool) -> tuple[str, float]:
        """Key and median time of the sequence that this new tool comes from; ("", 0.0): of none. Each is taken once,
        the newest that fits best."""
        declared = {str(each.get("name", "")).lower() for each in order.parameters if isinstance(each, dict)}
        words = _words(f"{order.name} {order.description} {order.usage} {' '.join(declared)}")
        best = max(reversed(self._open), key=lambda each: _speaks_for(each, order.name, declared, words), default=None)
        if best is None or not any(_speaks_for(best, order.name, declared, words)):
            return "", 0.0
        self._open.remove(best)
        return best.key, best.sequence_ms


def _speaks_for(suggestion: Suggestion, name: str, declared: set[str], words: set[str]) -> tuple[bool, bool, int]:
    needed = {each.name.lower() for each in suggestion.parameters}
    return name == suggestion.name, bool(needed) and needed <= declared, len(words & _words(" ".join(suggestion.tools)))


def _words(text: str) -> set[str]:
    found = {word for word in _WORD.findall(text.lower()) if len(word) >= _SHORTEST_WORD}
    return found - _SAY_NOTHING
