"""Activation: a tool folder becomes a tool that is offered, after a person agreed. What `forge tools activate` and the
button on the tools page do.

Build (none of its code runs), card, tests; a failing step ends it and raises ForgeError. The card is the caller's
business: `agreed` is given what would be trusted and says whether a person agreed to exactly that, and kept the yes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from golem_forge.core.errors import ForgeError
from golem_forge.custom.trust.promotion import Readied, fetched, must_be_promotable, proven, readied
from golem_forge.custom.trust.standing import State, standing_of

if TYPE_CHECKING:
    from golem_forge.custom.entry import Entry
    from golem_forge.custom.testing.report import CaseResult
    from golem_forge.custom.workshop import Workshop
    from golem_forge.sandbox.walls.levels import WallsReport

Agreed = Callable[[Readied], bool]


async def activate(shop: Workshop, entry: Entry, agreed: Agreed) -> tuple[CaseResult, ...] | None:
    """Its tests, as far as they had to run; None: not agreed, and nothing of it ran."""
    name, standing = entry.name, standing_of(shop, entry)
    if standing.state is State.RETIRED:
        raise ForgeError(f"'{name}' is retired. `forge tools restore {name}` switches it on again.", code="RETIRED")
    if standing.state is State.ACTIVE:
        return ()
    must_be_promotable(shop, entry)
    ready = await readied(shop, entry)
    if not agreed(ready):
        return None
    prepared = await fetched(shop, ready)
    return () if standing.tested else await proven(shop, entry, prepared, report=await walls_report(shop))


async def walls_report(shop: Workshop) -> WallsReport:
    """What this machine gives, tried once for all that is started."""
    from golem_forge.sandbox.sandbox import Sandbox
    from golem_forge.sandbox.walls.walls import Walls

    return await Walls(Sandbox(), shop.settings, forge_home=shop.home.path, redactor=shop.redactor).report()
