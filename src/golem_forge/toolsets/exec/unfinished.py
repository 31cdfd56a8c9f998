"""Would a shell go on reading this command on the next line? Takes what was typed so far, without its last newline.

Wrong answers are cheap on purpose: the caller judges the lines together and each by itself. It looks for a backslash at
the end, an open quote or bracket, an operator that wants a right side, and a heredoc without its end.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(r"\\.|\\\Z|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?:(?<=\s)|(?<![^\n]))#[^\n]*|[\"'`(){}]", re.DOTALL)
_HEREDOC: Final = re.compile(r"<<-?[ \t]*(['\"\\]?)(?!\d+\b)([\w.-]+)")
_WANTS_MORE: Final = ("|", "&&", "|&")


def is_unfinished(text: str) -> bool:
    brackets = ticks = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\\" or token in ("'", '"'):
            return True  # the last backslash, or a quote that nothing closes
        if token in "({":
            brackets += 1
        elif token in ")}":
            brackets -= 1
        elif token == "`":
            ticks += 1
    if brackets > 0 or ticks % 2 or text.rstrip().endswith(_WANTS_MORE):
        return True
    lines = text.split("\n")
    return any(
        not any(line.lstrip("\t") == match[2] for line in lines[text.count("\n", 0, match.end()) + 1 :])
        for match in _HEREDOC.finditer(text)
    )
