"""Where `((…))`, `$((…))` and `$[…]` end, by their brackets."""

from __future__ import annotations

import re

from .report import Report

_BRACKETS = re.compile(r"[()\[\]]")


def arithmetic_end(text: str, start: int, closer: str, report: Report) -> int | None:
    """Where the closer of arithmetic stands; none if its brackets do not fit."""
    if not report.spend(0):
        return None  # looking for brackets that never close takes long
    level = 0
    opening, closing = ("[", "]") if closer == "]" else ("(", ")")
    for match in _BRACKETS.finditer(text, start):
        if match[0] == opening:
            level += 1
        elif match[0] == closing:
            if level == 0:
                end = match.start()
                report.spend(end - start)
                return end if text.startswith(closer, end) else None
            level -= 1
    report.spend(len(text) - start)
    return None
