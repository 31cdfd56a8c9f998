"""All of the person's tools at a glance: the totals, and what each was used. For `forge tools stats` and the chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golem_forge.custom.book.statistics import ToolStatistics, statistics
from golem_forge.custom.book.totals import Totals, totals
from golem_forge.custom.trust.standing import standings_of

if TYPE_CHECKING:
    from golem_forge.custom.workshop import Workshop


def overview(shop: Workshop) -> tuple[Totals, tuple[ToolStatistics, ...]]:
    """Of every tool that there is or that was ever used, by name."""
    entries = shop.registry.entries
    states = {name: str(standing.state) for name, standing in standings_of(shop, entries.values()).items()}
    used = {each.name for each in statistics(shop.book)}
    every = statistics(shop.book, used | set(entries)) if used or entries else ()
    return totals(shop.book, states), every
