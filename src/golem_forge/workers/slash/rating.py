"""`/rate NAME good|bad [note]`: what a person thinks of a tool of theirs, kept with it for `forge tools stats`."""

from __future__ import annotations

from typing import Final

from golem_forge.core.nearest import nearest
from golem_forge.core.visible import visible
from golem_forge.workers.slash.host import Invocation
from golem_forge.workers.slash.tokens import CommandError

_USAGE: Final = "/rate NAME good|bad [note], for example /rate git-summarize good saves me a look"
_WORDS: Final = {"good": True, "bad": False}


async def rate(call: Invocation) -> str:
    """Of any tool folder, also one that this worker does not see or that is off just now."""
    if len(call.args) < 2:
        raise CommandError(f"Which tool, and how is it? {_USAGE}")
    name, said, *note = call.args
    if said.lower() not in _WORDS:
        raise CommandError(f"'{visible(said[:40])}' is neither good nor bad: {_USAGE}")
    from golem_forge.custom.book import Book
    from golem_forge.custom.registry import Registry

    registry = Registry(call.host.home)
    if registry.look(name) is None:
        registry.refresh()
        close = nearest(name, registry.entries)
        hint = f" (did you mean '{close}'?)" if close else ""
        raise CommandError(f"There is no tool '{visible(name[:100])}' of yours{hint}")
    book = Book(call.host.home)
    try:
        book.rate(name, _WORDS[said.lower()], " ".join(note))
        kept = book.ratings(name)
    finally:
        book.close()
    if not kept.good + kept.bad:
        raise CommandError("The rating could not be kept: the record of user tools cannot be written")
    return f"{name}: {kept.good} good, {kept.bad} bad"
