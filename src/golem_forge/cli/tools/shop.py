"""What the verbs about the person's own tools work with: one Workshop without a session.

Nobody is asked through it; verbs that need a yes show the trust card themselves (`consent.agreed`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import complain
from golem_forge.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from golem_forge.config.home import ForgeHome
    from golem_forge.custom.diagnostic import Diagnostic
    from golem_forge.custom.entry import Entry
    from golem_forge.custom.workshop import Workshop
    from golem_forge.sandbox.walls.levels import WallsReport

NO_SUCH_TOOL: Final = 4


def open_shop(directory: Path | str = ".") -> Workshop:
    """The person's tools; walls as the program around this directory (or the person's config) sets them."""
    from golem_forge.config.home import forge_home
    from golem_forge.custom.workshop import open_workshop
    from golem_forge.workers.tree import known_secrets, read_program
    from golem_forge.workers.trust_cover import trust_store

    home = forge_home()
    program = read_program(directory, home, trust_store(home))
    shop = open_workshop(
        home,
        native=_native(),
        redactor=known_secrets(home),
        environ=os.environ,
        settings=program.walls,
        zones=[os.path.realpath(path) for path in (program.root, *(zone.path for zone in program.zones))],
    )
    shop.registry.refresh()
    return shop


def shop_to_look_at(home: ForgeHome) -> Workshop:
    """For verbs that start nothing: what the program here says does not matter to them."""
    from golem_forge.custom.workshop import open_workshop

    return open_workshop(home, native=_native(), environ=os.environ)


def _native() -> Mapping[str, str]:
    from golem_forge.workers.native_toolsets import TOOL_LIST

    return {tool.name: tool.description.partition("\n")[0] for tool in TOOL_LIST}


async def for_each(verb: str, entries: Iterable[Entry], do: Callable[[Entry], Awaitable[int]]) -> int:
    """One after another, whatever becomes of the others; gives the worst exit code."""
    from golem_forge.core.errors import ForgeError

    worst = 0
    for entry in entries:
        try:
            code = await do(entry)
        except ForgeError as error:
            complain(f"tools {verb}", error.message)
            code = 1
        worst = max(worst, code)
    return worst


def entry_of(shop: Workshop, verb: str, name: str) -> Entry | None:
    """The tool of this name; None: it was said on standard error why there is none."""
    from golem_forge.custom.entry import Entry
    from golem_forge.custom.names import NAME

    found = shop.registry.look(name)
    if isinstance(found, Entry):
        return found
    if found is not None:
        complain(f"tools {verb}", f"'{name}' is no usable tool: {found.told}")
        return None
    if NAME.fullmatch(name) and (shop.home.path / "tools" / name).is_dir():
        complain(f"tools {verb}", f"{shop.shown_folder(name)} has no tool.yaml, so it is no tool.")
        return None
    close = nearest(name, shop.registry.entries)
    hint = f" (did you mean '{close}'?)" if close else ""
    complain(f"tools {verb}", f"no tool '{name}' of yours{hint}. `forge tools list --source custom` shows them.")
    return None


def entries_of(shop: Workshop, verb: str, names: Sequence[str]) -> tuple[Entry, ...] | None:
    """All of them, each once; None: one is missing, and that was said. Nothing is done by halves for a misspelling."""
    found = [entry_of(shop, verb, name) for name in dict.fromkeys(names)]
    there = tuple(entry for entry in found if entry is not None)
    return there if len(there) == len(found) else None


def skipped(shop: Workshop) -> tuple[Diagnostic, ...]:
    """Why each folder that is not active is not, by name."""
    from golem_forge.custom.trust.standing import standing_of

    waiting = (standing_of(shop, entry).why for entry in shop.registry.entries.values())
    found = [*shop.registry.diagnostics, *(why for why in waiting if why is not None)]
    return tuple(sorted(found, key=lambda each: each.tool))


async def walls_report(shop: Workshop) -> WallsReport:
    """What this machine gives, tried once for all that a verb starts."""
    from golem_forge.sandbox.sandbox import Sandbox
    from golem_forge.sandbox.walls.walls import Walls

    return await Walls(Sandbox(), shop.settings, forge_home=shop.home.path, redactor=shop.redactor).report()
