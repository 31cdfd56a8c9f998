"""What the verbs about the person's own tools work with: one Workshop without a session.

Nobody is asked through it; verbs that need a yes show the trust card themselves (`consent.agreed`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import complain
from golem_forge.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from golem_forge.custom.entry import Entry
    from golem_forge.custom.workshop import Workshop

NO_SUCH_TOOL: Final = 4


def open_shop(directory: Path | str = ".") -> Workshop:
    """The person's tools; walls as the program around this directory (or the person's config) sets them."""
    from golem_forge.config.home import forge_home
    from golem_forge.workers import own_shop

    return own_shop.open_shop(forge_home(), directory)


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
