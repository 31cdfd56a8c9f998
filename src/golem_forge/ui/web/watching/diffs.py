"""What an open question would change at one path, as `diffContent`: taken from the diff that its card shows.

The card's diff was made of the very bytes that would be written. Where it shows parts of a file only, so does this,
with a line `…` between the parts; an old content that it does not show is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from golem_forge.events.envelope import Event

_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@")
_BETWEEN: Final = "…\n"
_NONE: Final = "/dev/null"


@dataclass(slots=True)
class _File:
    path: str
    is_new: bool
    old_shown: bool = True
    hunks: int = 0
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


def diff_for(question: Event | None, path: str) -> dict[str, Any] | None:
    """The data of `diffContent`; None where this question changes no such path."""
    if question is None or not isinstance(diff := question.wire.get("diff"), str):
        return None
    file = next((each for each in _files(diff) if each.path == path), None)
    if file is None:
        return None
    data: dict[str, Any] = {"requestId": question.wire["requestId"], "path": path, "modified": "".join(file.new)}
    data["isNew"] = file.is_new
    if file.old_shown and not file.is_new:
        data["original"] = "".join(file.old)
    return data


def _files(diff: str) -> Iterator[_File]:
    """Threat: a removed line `-- a/x` must not pass for a heading, so the lines of a hunk are counted."""
    file: _File | None = None
    heading = mark = ""
    old = new = 0
    for line in diff.split("\n"):
        if file is not None and line.startswith("\\"):
            _without_last_end(file, mark)
        elif file is not None and (old > 0 or new > 0):
            mark = line[:1]
            if mark != "+":
                file.old.append(f"{line[1:]}\n")
                old -= 1
            if mark != "-":
                file.new.append(f"{line[1:]}\n")
                new -= 1
        elif file is not None and (hunk := _HUNK.match(line)):
            old, new = (int(count) if count else 1 for count in hunk.groups())
            if file.hunks:
                file.old.append(_BETWEEN)
                file.new.append(_BETWEEN)
            file.hunks += 1
        elif line.startswith("--- "):
            heading = line[4:]
        elif line.startswith("+++ "):
            if file is not None:
                yield file
            named = heading if line[4:] == _NONE else line[4:]
            file = _File(path=named[1:], is_new=heading == _NONE)
        elif file is not None and line.startswith("# "):
            file.old_shown = False
    if file is not None:
        yield file


def _without_last_end(file: _File, mark: str) -> None:
    """`\\ No newline at end of file`: of the line before, on the sides it belongs to."""
    for side in (file.old,) if mark == "-" else (file.new,) if mark == "+" else (file.old, file.new):
        if side:
            side[-1] = side[-1].removesuffix("\n")
