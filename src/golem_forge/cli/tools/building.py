"""`forge tools build NAME…`: builds or checks, and says what the compiler says. No line of the tool's code runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import parser
from golem_forge.cli.tools.consent import DENIED, Answer, agreed_to_fetch
from golem_forge.cli.tools.shop import NO_SUCH_TOOL, entries_of, for_each, open_shop

if TYPE_CHECKING:
    from golem_forge.custom.entry import Entry
    from golem_forge.custom.workshop import Workshop

HELP: Final = """usage: forge tools build NAME… [--yes]

Compiles Go, checks the syntax of Python and shell, installs the packages a Python script names. It happens in the
strictest walls and runs none of the tool's code; packages that must be fetched are asked for, with their hosts.

  --yes     fetch them without being asked, for exactly the tools that are named

Exit: 0 built, 1 it failed, 2 usage, 3 not agreed to fetch, 4 no such tool."""
_VERB: Final = "build"


def run_build(words: list[str]) -> int:
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
    return asyncio.run(for_each(_VERB, entries, lambda entry: _build(shop, entry, answer)))


async def _build(shop: Workshop, entry: Entry, answer: Answer) -> int:
    from golem_forge.custom.trust.promotion import fetched, readied

    ready = await readied(shop, entry)
    if ready.prepared is None:
        if not agreed_to_fetch(shop, _VERB, ready, answer):
            return DENIED
        await fetched(shop, ready)
    print(f"tool '{entry.name}' is built")
    return 0
