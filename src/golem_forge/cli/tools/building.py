"""`forge tools build NAME…`: builds or checks, and says what the compiler says. No line of the tool's code runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from golem_forge.cli.tools.consent import DENIED, Answer, agreed_to_fetch
from golem_forge.cli.tools.with_consent import run_with_consent

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
    return run_with_consent(_VERB, HELP, words, _build)


async def _build(shop: Workshop, entry: Entry, answer: Answer) -> int:
    from golem_forge.custom.trust.promotion import fetched, readied

    ready = await readied(shop, entry)
    if ready.prepared is None:
        if not agreed_to_fetch(shop, _VERB, ready, answer):
            return DENIED
        await fetched(shop, ready)
    print(f"tool '{entry.name}' is built")
    return 0
