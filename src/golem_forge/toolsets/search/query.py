"""What the search tools share. Query: one search as an engine is asked to do it. Matches: what it found so far; they
grow while an engine works, so that what was found is there when the time is up.

WithheldPaths: what a walk through a zone may not look into, because reading it would need a question of its own. Takes
the path that was named and judged, and the rules about paths; answers for everything below it. Withheld are secrets and
what a read rule of `ask` or `blocked` speaks of. What the call itself named was asked for, so neither its own secrecy
nor a rule that matched it counts again below it; a rule that speaks only of something deeper still does.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from golem_forge.core.effects import Mark
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.sandbox import protected
from golem_forge.sandbox.paths import MAX_DEPTH
from golem_forge.sandbox.target import Target
from golem_forge.sandbox.walls.model import PathRule, is_masked
from golem_forge.sandbox.zones import Zone
from golem_forge.tools.validation import InputInvalid

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor
    from golem_forge.sandbox.handles import Handle
    from golem_forge.toolsets.search.scan_child import IncludeGlob

MAX_LINE_TEXT: Final = 500
"""A line's text is cut here, in characters."""


class SearchMode(StrEnum):
    FILES = "files"
    LINES = "lines"


class MatchLine(NamedTuple):
    path: str
    """Virtual."""
    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRoot:
    """Where to look: a directory, or one file, in one zone."""

    zone: Zone
    parts: tuple[str, ...]
    entry: Handle
    """What was judged, held open."""
    is_file: bool
    withheld: WithheldPaths
    include: IncludeGlob | None
    masked: bool = False
    """Walls would hide the place itself, although this call may read it."""

    def virtual(self, path: str) -> str:
        """`path` is relative to the zone's root."""
        return f"/{self.zone.name}/{path}"

    @property
    def levels(self) -> int:
        """How deep the search may go below it; 0 for a file."""
        return 0 if self.is_file else MAX_DEPTH - len(self.parts)

    def may_show(self, parts: tuple[str, ...]) -> bool:
        """Whether a path that an engine found may be read and was asked for."""
        if self.is_file:
            return True
        return (self.include is None or self.include(parts)) and not self.withheld(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    pattern: str
    ignore_case: bool
    mode: SearchMode
    include: str
    limit: int
    places: tuple[SearchRoot, ...]
    """In the order of their paths."""
    until: float
    """When the time is up, by the event loop's clock."""
    redactor: Redactor | None = None
    """For lines that are cut before anybody else could take a secret out of them."""


@dataclass(slots=True)
class SearchMatches:
    limit: int
    found: list[tuple[SearchRoot, str]] = field(default_factory=list)
    """Files with a match, by their path from the zone's root, as an engine found them: in any order, and not yet asked
    whether they may be shown."""
    lines: list[MatchLine] = field(default_factory=list)
    """In path order, only such as may be shown."""
    more: bool = False
    stopped: bool = False
    """The time was up before the search was done."""

    def add_line(self, line: MatchLine) -> bool:
        """False once nothing further is needed."""
        if len(self.lines) == self.limit:
            self.more = True
        else:
            self.lines.append(line)
        return not self.more


def bad_pattern(problem: str) -> InputInvalid:
    return InputInvalid(f"grep_files: pattern: {problem}", fields=(("pattern", problem),))


class WithheldPaths:
    """For one zone, below the named target (or below the whole zone, where `/` was named)."""

    def __init__(self, named: Target, zone: Zone, rules: Sequence[PathRule]) -> None:
        self._zone = zone
        self._start = len(named.parts)
        self._secrets_count = Mark.SECRET_PATH not in named.marks
        answered = set(_virtual_names(zone, named.parts)) if named.zone else set()
        self._rules = tuple(rule for rule in rules if not any(map(rule.matches, answered)))
        self._known: dict[tuple[str, ...], bool] = {}

    def __call__(self, parts: tuple[str, ...]) -> bool:
        """Whether the path, or a directory between it and the named one, is held back."""
        if len(parts) <= self._start:
            return False
        directory = parts[:-1]
        if directory not in self._known:
            self._known[directory] = self(directory)
        return self._known[directory] or self._itself(parts)

    def _itself(self, parts: tuple[str, ...]) -> bool:
        secret = self._secrets_count and protected.is_secret_name(self._zone.real(parts))
        if not secret and not self._rules:
            return False
        outer, *inner = _virtual_names(self._zone, parts)
        # A worker whose zone begins deeper cannot rename its way around a rule that asks or blocks.
        return is_masked(outer, secret=secret, rules=self._rules) or any(
            is_masked(name, secret=False, rules=self._rules) for name in inner
        )


def named_is_masked(named: Target, rules: Sequence[PathRule]) -> bool:
    """Whether walls would hide the very path that this call was allowed to read."""
    if named.zone is None:
        return False
    outer = _virtual_names(named.zone, named.parts)[0]
    return is_masked(outer, secret=Mark.SECRET_PATH in named.marks, rules=rules)


def _virtual_names(zone: Zone, parts: Sequence[str]) -> list[str]:
    """The path as the program names it and, where this worker's zone begins deeper, as the worker does."""
    outer = zone.virtual((*zone.subpath, *parts))
    return [outer, zone.virtual(parts)] if zone.subpath else [outer]
