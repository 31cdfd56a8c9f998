"""Workshop: what all workers of one session share about user tools. The folders, the book, the builder.

Nothing here runs a tool. Trust that mode `approve_all` gave lives here alone and ends with the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from golem_forge.config.home import ForgeHome
from golem_forge.custom.book import Book
from golem_forge.custom.book.history import prune
from golem_forge.custom.building.builder import Builder
from golem_forge.custom.entry import Entry
from golem_forge.custom.registry import Registry
from golem_forge.custom.rooms import room
from golem_forge.custom.running import RunOn
from golem_forge.custom.running.surroundings import learn_values
from golem_forge.custom.suggestions.offered import Offered
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.store import ContentStore
from golem_forge.sandbox.walls.settings import WallSettings
from golem_forge.tools.context import HostRule, no_host_rule

if TYPE_CHECKING:
    from golem_forge.custom.building.prepared import Prepared
    from golem_forge.sandbox.walls.levels import WallsReport
    from golem_forge.sandbox.walls.walls import Walls


T = TypeVar("T")
_MOST_KEPT: Final = 64


class Kept(Generic[T]):
    """The last few things by name; the one that was not used for longest makes room."""

    def __init__(self) -> None:
        self._kept: dict[str, T] = {}

    def get(self, name: str) -> T | None:
        found = self._kept.pop(name, None)
        if found is not None:
            self._kept[name] = found
        return found

    def keep(self, name: str, what: T) -> None:
        self._kept.pop(name, None)
        self._kept[name] = what
        if len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]


@dataclass(slots=True, kw_only=True)
class Workshop:
    home: ForgeHome
    registry: Registry
    book: Book
    builder: Builder
    native: Mapping[str, str]
    """Name → description of every built-in tool."""
    session_id: str = ""
    redactor: Redactor | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    """What a tool's declared variables are copied from."""
    settings: WallSettings | None = None
    run_on: RunOn | None = None
    """How a `background` tool goes on after its call."""
    trusted_here: set[tuple[str, str]] = field(default_factory=set)
    """(name, digest) that only mode `approve_all` let through: for this session, never on disk."""
    made_here: set[str] = field(default_factory=set)
    """Names that this session created: nobody need be told that they are there."""
    prepared: Kept[Prepared] = field(default_factory=Kept)
    """By digest: what was found ready before, so that a call need not look for it again."""
    suggested: Offered = field(default_factory=Offered)
    """What this session was told could be a tool."""
    changes: int = 0
    """Counts what this session did to the book, so that whoever shows tools looks again."""

    def version(self) -> object:
        """Another value whenever what the book says may be other than before, also by another process."""
        return self.changes, self.book.stamp()

    def trusts(self, entry: Entry) -> bool:
        given = self.book.trusted(entry.name, entry.digest)
        return self.counts(entry, trusted=given is not None, shadow=given is not None and given.shadow)

    def counts(self, entry: Entry, *, trusted: bool, shadow: bool) -> bool:
        """Whether exactly this content may run here, by what the book says of it."""
        if (entry.name, entry.digest) in self.trusted_here:
            return True
        return trusted and (shadow or not self.shadows(entry.name))

    def trusted_otherwise(self, entry: Entry) -> bool:
        """Other bytes of this tool were the last that somebody, or mode `approve_all` in this session, agreed to."""
        before = self.book.last_trusted(entry.name)
        here = {digest for name, digest in self.trusted_here if name == entry.name}
        return (before not in ("", entry.digest)) or bool(here - {entry.digest})

    def shadows(self, name: str) -> bool:
        return name in self.native

    def trust(self, entry: Entry, *, who: str) -> None:
        """A person agreed to exactly this content. Raises ForgeError where that cannot be kept."""
        self.book.trust(entry.name, entry.digest, who=who, shadow=self.shadows(entry.name))
        self.changes += 1

    def trust_here(self, entry: Entry) -> None:
        self.trusted_here.add((entry.name, entry.digest))
        self.changes += 1

    def shown_folder(self, name: str) -> str:
        """As its owner knows it; a model is told the address instead."""
        return self.home.shown(self.home.path / "tools" / name)

    async def aclose(self) -> None:
        """The session has ended. Whoever still asks opens the book again."""
        self.book.close()


def open_workshop(
    home: ForgeHome,
    *,
    native: Mapping[str, str],
    session_id: str = "",
    redactor: Redactor | None = None,
    environ: Mapping[str, str],
    settings: WallSettings | None = None,
    report: Callable[[], WallsReport | None] = lambda: None,
    run_on: RunOn | None = None,
    zones: Sequence[str] = (),
    host_rule: HostRule = no_host_rule,
) -> Workshop:
    """`zones`: host directories that agents write to; no compiler is taken from there. `host_rule`: for builds that
    fetch dependencies."""
    book, store = Book(home), ContentStore(home)

    def building_room(directory: Path) -> Walls:
        return room(directory, zone="build", home=home, settings=settings, redactor=redactor, report=report())

    def seen(entry: Entry) -> None:
        learn_values(entry.manifest, environ, redactor)
        if book.saw(entry.name, entry.digest):
            prune(book, entry.name, store.remove)

    return Workshop(
        home=home,
        registry=Registry(home, seen=seen),
        book=book,
        builder=Builder(home, walls=building_room, environ=environ, kept_out=zones, host_rule=host_rule),
        native=native,
        session_id=session_id,
        redactor=redactor,
        environ=environ,
        settings=settings,
        run_on=run_on,
    )
