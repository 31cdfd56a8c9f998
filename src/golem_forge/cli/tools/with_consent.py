"""Verbs that a person agrees to, tool by tool: `forge tools VERB NAME… [--yes]`. One wrong name: nothing is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golem_forge.cli.plain import parser
from golem_forge.cli.tools.consent import Answer
from golem_forge.cli.tools.shop import NO_SUCH_TOOL, entries_of, for_each, open_shop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from golem_forge.custom.entry import Entry
    from golem_forge.custom.workshop import Workshop


def run_with_consent(
    verb: str, usage: str, words: list[str], act: Callable[[Workshop, Entry, Answer], Awaitable[int]]
) -> int:
    """The worst exit code of all `act`s."""
    reader = parser(f"tools {verb}", usage)
    reader.add_argument("names", metavar="NAME", nargs="+")
    reader.add_argument("--yes", action="store_true")
    asked = reader.parse_args(words)
    shop = open_shop()
    entries = entries_of(shop, verb, asked.names)
    if entries is None:
        return NO_SUCH_TOOL
    import asyncio

    answer = Answer.of(asked.yes)
    return asyncio.run(for_each(verb, entries, lambda entry: act(shop, entry, answer)))
