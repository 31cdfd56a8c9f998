"""What a catalog refuses: two tools of one name, and a name that means nothing to this caller."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status

_MAX_SUGGESTIONS: Final = 3
_NEARLY_AS_CLOSE: Final = 0.1
_COMPARED_IN_FULL: Final = 100
_MAX_SHOWN: Final = 128


class CatalogError(Exception):
    """Two tools, or a tool and an alias, that cannot both have a name; the text says which and what to do."""

    stated_name = "CatalogError"


class ToolNotFound(ForgeError):
    """There is no such tool for this caller; `suggestions` are names it may call."""

    stated_name = "ToolNotFound"

    def __init__(self, name: str, known: Iterable[str] = (), *, reason: str = "") -> None:
        self.suggestions = () if reason else close_names(name, known)
        shown = name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "…"
        if reason:
            message = f"Tool {shown!r} is not available: {reason}"
        elif self.suggestions:
            message = f"Unknown tool {shown!r}. Did you mean {_either(self.suggestions)}?"
        else:
            message = f"Unknown tool {shown!r}."
        super().__init__(message, status=Status.TOOL_NOT_FOUND, code="TOOL_NOT_FOUND")


def close_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Up to three names that are about equally close to a misspelt one, best first."""
    from difflib import SequenceMatcher, get_close_matches

    spelled: dict[str, str] = {}
    for one in sorted(known):
        spelled.setdefault(one.lower().replace("-", "_"), one)
    wanted = name.lower().replace("-", "_")[:100]
    close = get_close_matches(wanted, _sharing_letters(wanted, spelled), n=_MAX_SUGGESTIONS, cutoff=0.6)
    ranked = sorted((-SequenceMatcher(None, one, wanted).ratio(), spelled[one]) for one in close)
    return tuple(known_name for distance, known_name in ranked if distance <= ranked[0][0] + _NEARLY_AS_CLOSE)


def _sharing_letters(wanted: str, names: Iterable[str]) -> list[str]:
    """The few dozen names that share most three-letter pieces; comparing ten thousand in full takes half a second."""
    known = list(names)
    if len(known) <= _COMPARED_IN_FULL:
        return known
    pieces = {wanted[place : place + 3] for place in range(max(len(wanted) - 2, 1))}
    shared = [(sum(piece in name for piece in pieces), name) for name in known]
    return [name for _, name in nlargest(_COMPARED_IN_FULL, shared)]


def _either(names: tuple[str, ...]) -> str:
    quoted = [repr(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
