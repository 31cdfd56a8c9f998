"""Nearest names: what a person probably meant by a word that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The closest known name, ignoring case and `-`/`_`; None if nothing is close."""
    import difflib

    folded: dict[str, str] = {}
    for name in sorted(known):
        folded.setdefault(name.lower().replace("-", "_"), name)
    wanted = word.lower().replace("-", "_")[:100]
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None
