"""Standing: how far a tool folder has come, and in one sentence why it is not offered.

    draft → built → tested → active        retired: off, whatever it was

State belongs to a name and a digest: another byte is another tool, and one that was trusted before is trusted still.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from golem_forge.core.slash import slash
from golem_forge.custom.book import Glance
from golem_forge.custom.diagnostic import Code, Diagnostic
from golem_forge.custom.entry import Entry
from golem_forge.custom.workshop import Workshop


class State(StrEnum):
    DRAFT = "draft"
    BUILT = "built"
    TESTED = "tested"
    ACTIVE = "active"
    RETIRED = "retired"


class Standing(NamedTuple):
    state: State
    trusted: bool
    tested: bool
    why: Diagnostic | None
    """Why it is not active; None if it is."""


_ACTIVE: Final = Standing(State.ACTIVE, trusted=True, tested=True, why=None)


def standing_of(shop: Workshop, entry: Entry) -> Standing:
    return _standing(shop, entry, shop.book.glance(entry.name, entry.digest))


def standings_of(shop: Workshop, entries: Iterable[Entry]) -> dict[str, Standing]:
    """By name; the book is asked once for all of them."""
    by_name = {entry.name: entry for entry in entries}
    glances = shop.book.glances({name: entry.digest for name, entry in by_name.items()})
    return {name: _standing(shop, entry, glances[name]) for name, entry in by_name.items()}


def skipped(shop: Workshop) -> tuple[Diagnostic, ...]:
    """Why each folder that is not active is not, by name."""
    waiting = (each.why for each in standings_of(shop, shop.registry.entries.values()).values())
    found = [*shop.registry.diagnostics, *(why for why in waiting if why is not None)]
    return tuple(sorted(found, key=lambda each: each.tool))


def _standing(shop: Workshop, entry: Entry, glance: Glance) -> Standing:
    trusted, known = shop.counts(entry, trusted=glance.trusted, shadow=glance.may_replace), glance.standing
    state = State.TESTED if known.tested else State.BUILT if known.built else State.DRAFT
    if glance.retired:
        return Standing(State.RETIRED, trusted, known.tested, _retired(entry.name))
    if trusted and known.tested:
        return _ACTIVE
    if known.failure is not None:
        code, message = known.failure
        return Standing(state, trusted, known.tested, Diagnostic(tool=entry.name, code=code, message=message))
    return Standing(state, trusted, known.tested, _not_active(shop, entry, glance))


def _retired(name: str) -> Diagnostic:
    return Diagnostic(
        tool=name, code=Code.RETIRED, message=f"switched off; `forge tools restore {name}` brings it back"
    )


def _not_active(shop: Workshop, entry: Entry, glance: Glance) -> Diagnostic:
    name, before = entry.name, glance.last_trusted
    # Trust that was given while no built-in tool had the name is no agreement to stand in for one.
    if shop.shadows(name) and not glance.last_may_replace:
        return Diagnostic(
            tool=name,
            code=Code.SHADOW_PENDING,
            message=f"replaces the built-in tool '{name}', which answers until that is approved; "
            f"`forge tools activate {name}` asks",
        )
    # While it is not active, /name means the built-in tool.
    how = (
        f"`forge tools activate {name}`"
        if shop.shadows(name)
        else f"run {slash(name)} or `forge tools activate {name}`"
    )
    if before and before != entry.digest:
        return Diagnostic(
            tool=name, code=Code.CHANGED, message=f"changed since it was trusted; {how} to see the change"
        )
    return Diagnostic(tool=name, code=Code.UNTRUSTED, message=f"not active; {how}")
