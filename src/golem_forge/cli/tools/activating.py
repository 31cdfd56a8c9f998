"""`forge tools activate NAME…`: from a folder to a tool that is offered. Build, card, tests; a failing step ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import complain, parser
from golem_forge.cli.tools.consent import DENIED, Answer, agreed
from golem_forge.cli.tools.shop import NO_SUCH_TOOL, entries_of, for_each, open_shop, walls_report

if TYPE_CHECKING:
    from golem_forge.custom.entry import Entry
    from golem_forge.custom.workshop import Workshop

HELP: Final = """usage: forge tools activate NAME… [--yes]

Builds the tool (none of its code runs), shows what it is and may do, with every line of it or what changed since it was
trusted last, and asks. After a yes its tests run in the strictest walls; when all pass it is offered under its name.

  --yes     the answer to the card of exactly the tools that are named

Exit: 0 active, 1 it could not be built, its tests failed or are missing, 2 usage, 3 not agreed, 4 no such tool."""
_VERB: Final = "activate"


def run_activate(words: list[str]) -> int:
    reader = parser(f"tools {_VERB}", HELP)
    reader.add_argument("names", metavar="NAME", nargs="+")
    reader.add_argument("--yes", action="store_true")
    asked = reader.parse_args(words)
    shop = open_shop()
    entries = entries_of(shop, _VERB, asked.names)
    if entries is None:
        return NO_SUCH_TOOL
    import asyncio

    answer = Answer.of(asked.yes)
    return asyncio.run(for_each(_VERB, entries, lambda entry: _activate(shop, entry, answer)))


async def _activate(shop: Workshop, entry: Entry, answer: Answer) -> int:
    from golem_forge.custom.trust.promotion import fetched, must_be_promotable, proven, readied
    from golem_forge.custom.trust.standing import State, standing_of

    name, standing = entry.name, standing_of(shop, entry)
    if standing.state is State.RETIRED:
        complain(f"tools {_VERB}", f"'{name}' is retired. `forge tools restore {name}` switches it on again.")
        return 1
    if standing.state is not State.ACTIVE:
        must_be_promotable(shop, entry)
        ready = await readied(shop, entry)
        if not agreed(shop, _VERB, ready, answer):
            return DENIED
        prepared = await fetched(shop, ready)
        if not standing.tested:
            for result in await proven(shop, entry, prepared, report=await walls_report(shop)):
                print(result.line)
    print(f"tool '{name}' is active")
    return 0
