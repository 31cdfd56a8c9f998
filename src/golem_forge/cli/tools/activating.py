"""`forge tools activate NAME…`: from a folder to a tool that is offered. Build, card, tests; a failing step ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from golem_forge.cli.tools.consent import DENIED, Answer, agreed
from golem_forge.cli.tools.with_consent import run_with_consent

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
    return run_with_consent(_VERB, HELP, words, _activate)


async def _activate(shop: Workshop, entry: Entry, answer: Answer) -> int:
    from golem_forge.custom.trust.activating import activate

    results = await activate(shop, entry, lambda ready: agreed(shop, _VERB, ready, answer))
    if results is None:
        return DENIED
    for result in results:
        print(result.line)
    print(f"tool '{entry.name}' is active")
    return 0
