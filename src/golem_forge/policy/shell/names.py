"""Sets of names written as one line of text, so that the tables of this package read like the specification."""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())
