"""Query: one search as an engine is asked to do it, and Matches: what it found so far.

Matches grow while an engine works, so that what was found is there when the time is up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from golem_forge.sandbox.links import MAX_DEPTH
from golem_forge.tools.validation import InputInvalid
from golem_forge.toolsets.search.held_back import HeldBack

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor
    from golem_forge.sandbox.access import Handle
    from golem_forge.sandbox.zones import Zone
    from golem_forge.toolsets.search.scan.include import Include

LONGEST_TEXT: Final = 500
"""A line's text is cut here, in characters."""


class Mode(StrEnum):
    FILES = "files"
    LINES = "lines"


class Line(NamedTuple):
    path: str
    """Virtual."""
    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to look: a directory, or one file, in one zone."""

    zone: Zone
    parts: tuple[str, ...]
    entry: Handle
    """What was judged, held open."""
    is_file: bool
    held: HeldBack
    include: Include | None
    masked: bool = False
    """Walls would hide the place itself, although this call may read it."""

    def virtual(self, path: str) -> str:
        """The address of a path from the zone's root."""
        return f"/{self.zone.name}/{path}"

    @property
    def levels(self) -> int:
        """How deep the search may go below it; 0 for a file."""
        return 0 if self.is_file else MAX_DEPTH - len(self.parts)

    def wants(self, parts: tuple[str, ...]) -> bool:
        """The last word on what an engine found: a path that may be read and was asked for."""
        if self.is_file:
            return True
        return (self.include is None or self.include(parts)) and not self.held(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    pattern: str
    ignore_case: bool
    mode: Mode
    include: str
    limit: int
    places: tuple[Place, ...]
    """In the order of their paths."""
    until: float
    """When the time is up, by the event loop's clock."""
    redactor: Redactor | None = None
    """For lines that are cut before anybody else could take a secret out of them."""


@dataclass(slots=True)
class Matches:
    limit: int
    found: list[tuple[Place, str]] = field(default_factory=list)
    """Files with a match, by their path from the zone's root, as an engine found them: in any order, and not yet asked
    whether they may be shown."""
    lines: list[Line] = field(default_factory=list)
    """In path order, only such as may be shown."""
    more: bool = False
    """There is more than `limit`."""
    stopped: bool = False
    """The time was up before the search was done."""

    def add_line(self, line: Line) -> bool:
        """False once nothing further is needed."""
        if len(self.lines) == self.limit:
            self.more = True
        else:
            self.lines.append(line)
        return not self.more


def bad_pattern(problem: str) -> InputInvalid:
    return InputInvalid(f"grep_files: pattern: {problem}", fields=(("pattern", problem),))
