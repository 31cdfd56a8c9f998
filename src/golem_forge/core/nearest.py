"""Nearest names: what a person probably meant by a word that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_CLOSE: Final = 0.62
"""Above what two words of four and six letters reach by three common ones: `nope` is not `openai`."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The closest known name, ignoring case and `-`/`_`; None if nothing is close."""
    import difflib

    folded: dict[str, str] = {}
    for name in sorted(known):
        folded.setdefault(name.lower().replace("-", "_"), name)
    wanted = word.lower().replace("-", "_")[:100]
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=_CLOSE)
    return folded[close[0]] if close else None
