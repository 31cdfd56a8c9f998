"""What changed in a file that a person trusted, as the rows of a unified diff. Pure.

Takes a name and both texts. Threats: whoever wrote the file may have chosen both texts to be slow to compare (see
`core.line_diff`), or to differ by a line end that some readers take for one and others do not: what was a comment is
code then. And a name with a line end in it would write rows of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from golem_forge.core.line_diff import changes_between, hunks

_MOST_COMPARISONS: Final = 250_000


def file_diff(name: str, old: str | None, new: str | None) -> Iterator[str]:
    """None: there is no such file. Lines end at LF only: another line end is a change that must be seen."""
    shown = name.replace("\n", "\\n").replace("\t", "\\t")
    yield f"--- {'/dev/null' if old is None else f'a/{shown}'}"
    yield f"+++ {'/dev/null' if new is None else f'b/{shown}'}"
    before, after = _ended_lines(old), _ended_lines(new)
    changes = changes_between(before, after, most_comparisons=_MOST_COMPARISONS)
    yield from (row.removesuffix("\n") for row in hunks(before, after, changes))


def _ended_lines(text: str | None) -> list[str]:
    return [] if not text else re.findall(r"[^\n]*\n|[^\n]+$", text)
