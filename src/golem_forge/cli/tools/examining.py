"""`forge tools doctor`: why folders are no active tools, one line each; `--watch` goes on saying it while they change.

Tools that were never built are built or checked on the way, as far as that needs nothing from outside; none of their
code runs.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import complain, parser, print_json
from golem_forge.cli.tools.shop import open_shop
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from golem_forge.custom.diagnostic import Diagnostic
    from golem_forge.custom.workshop import Workshop

    Say = Callable[[Workshop, tuple[Diagnostic, ...]], None]

HELP: Final = """usage: forge tools doctor [--json] [--watch]

Says of every folder in ~/.forge/tools that is no active tool why it is not, with what to do about it. What was never
built is built or checked, without running it and without fetching anything.

  --json    [{tool, code, message, line?}, …] under `diagnostics`
  --watch   again after every change, until it is interrupted

Exit: 0 done, 2 usage or configuration."""
_VERB: Final = "doctor"


def run_doctor(words: list[str]) -> int:
    reader = parser(f"tools {_VERB}", HELP)
    reader.add_argument("--json", action="store_true")
    reader.add_argument("--watch", action="store_true")
    asked = reader.parse_args(words)
    from golem_forge.custom.trust.standing import skipped

    shop = open_shop()
    say = _say_json if asked.json else _say
    if asked.watch:
        asyncio.run(_watch(shop, say))
    else:
        asyncio.run(_examine(shop))
        say(shop, skipped(shop))
    return 0


async def _watch(shop: Workshop, say: Say) -> None:
    from golem_forge.custom.registry.watching import changes_of

    await _examine(shop)
    _say_at_once(shop, say)
    async for _ in changes_of(shop.registry):
        await _examine(shop)
        _say_at_once(shop, say)


def _say_at_once(shop: Workshop, say: Say) -> None:
    """Whoever reads it through a pipe waits for it as well."""
    from golem_forge.custom.trust.standing import skipped

    say(shop, skipped(shop))
    sys.stdout.flush()


async def _examine(shop: Workshop) -> None:
    """Whatever can be told without running anything is in the book afterwards."""
    from golem_forge.core.errors import ForgeError
    from golem_forge.custom.trust.promotion import BuildFailed, readied

    for entry in shop.registry.entries.values():
        if shop.book.standing(entry.name, entry.digest).built or shop.book.retired(entry.name):
            continue
        try:
            await readied(shop, entry)
        except BuildFailed:
            continue  # it is in the book, with the reason
        except ForgeError as error:
            complain(f"tools {_VERB}", f"tools were not built or checked: {error.message}")
            return


def _say_json(shop: Workshop, found: tuple[Diagnostic, ...]) -> None:
    faulty = {each.tool for each in found}
    active = [name for name in shop.registry.entries if name not in faulty]
    print_json({"active": active, "diagnostics": [each.to_json() for each in found]})


def _say(shop: Workshop, found: tuple[Diagnostic, ...]) -> None:
    faulty = {each.tool for each in found}
    active = sum(name not in faulty for name in shop.registry.entries)
    for each in found:
        first, *more = each.told.splitlines()
        print(visible(f"{each.tool}: {first}"))
        for line in more:
            print(visible(f"    {line}"))
    tools, folders = "tool is" if active == 1 else "tools are", "folder is" if len(found) == 1 else "folders are"
    print(visible(f"{active} {tools} active, {len(found)} {folders} not; {shop.shown_folder('')}"))
