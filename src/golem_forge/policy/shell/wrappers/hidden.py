"""Hidden: a command that stands in another one's arguments, as words or as text for a shell. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hidden:
    """Either `words` or `script` is given; `operands` says that piped words are added to the words."""

    words: tuple[str, ...] = ()
    script: str | None = None
    assignments: tuple[tuple[str, str], ...] = ()
    operands: bool = False
    placeholder: str = ""
    directory: str = ""  # where it is run
