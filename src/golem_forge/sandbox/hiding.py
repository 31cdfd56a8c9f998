"""Keeps host paths out of text: a zone's directory is written as its address, other known directories `<outside>`.

Takes any message, gives the same message for the caller's eyes. Only whole path components count: the directory
`<zone's>-evil` is another directory, and `/data/srv/app` does not contain `/srv/app`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from golem_forge.core.root_links import leads_to_root
from golem_forge.sandbox.zones import Zone

OUTSIDE = "<outside>"
_ENDS_A_WORD = r"\s'\"`=:,;()<>|&\[\]{}"
_REST = rf"(?P<rest>/[^{_ENDS_A_WORD}]*)?"
_BOUNDARY = r"(?![\w+@~-])(?!\.\w)"
"""What follows does not make it a longer name; punctuation does not, so that no path slips through before a `!`."""


class HostPaths:
    """The directories one sandbox knows and what to write instead."""

    def __init__(self, zones: Sequence[Zone], hidden: Sequence[str]) -> None:
        self._names = {directory: OUTSIDE for directory in hidden if directory != "/"}
        for zone in zones:
            self._names |= dict.fromkeys(
                (spelling for spelling in (zone.host, *zone.aliases) if spelling != "/"), zone.virtual(())
            )

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._names, key=len, reverse=True)
        return re.compile(rf"(?P<host>{'|'.join(map(re.escape, longest_first))}){_BOUNDARY}{_REST}")

    def replaced(self, text: str) -> str:
        if not any(directory in text for directory in self._names):
            return text
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        if not _starts_a_path(match.string, match.start()):
            return match.group()
        name = self._names[match["host"]]
        return name if name == OUTSIDE else name + (match["rest"] or "")


def _starts_a_path(text: str, start: int) -> bool:
    """Whether the path really begins here. `-I/srv/app`, `file:///srv/app` and `/proc/self/root/srv/app` do,
    `/data/srv/app` goes on."""
    before = re.search(rf"[^{_ENDS_A_WORD}]*\Z", text[max(0, start - 4096) : start])
    word = before.group() if before else ""
    if "/" not in word or (word == "//" and text[: start - 2].endswith(":")):
        return True
    return leads_to_root(word[word.index("/") :])
