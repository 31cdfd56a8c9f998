"""Switching tools off and on. The folder stays, and so does the trust in it. Gives what became of it, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golem_forge.custom.diagnostic import Diagnostic
from golem_forge.custom.entry import Entry
from golem_forge.custom.trust.standing import State, standing_of

if TYPE_CHECKING:
    from golem_forge.custom.workshop import Workshop


def retire(shop: Workshop, name: str) -> str:
    """Raises BookError where it cannot be kept."""
    if shop.book.retired(name):
        return f"tool '{name}' was retired already"
    shop.book.retire(name)
    return f"tool '{name}' is retired; `forge tools restore {name}` brings it back"


def restore(shop: Workshop, name: str) -> str:
    """As it was: one that was active is, without a question. Raises BookError where it cannot be kept."""
    if not shop.book.restore(name):
        return f"tool '{name}' was not retired"
    found = shop.registry.look(name)
    why = standing_of(shop, found).why if isinstance(found, Entry) else found
    if why is None:
        return f"tool '{name}' is active"
    return f"tool '{name}' is restored, and not active: {why.code}: {why.message}"


def standing_line(shop: Workshop, name: str) -> str:
    """Whether the tool as it is now is offered, and what to do if it is not. May quote what others wrote."""
    found = shop.registry.look(name)
    if found is None:
        return "Its folder has no tool.yaml, so it is no tool."
    if isinstance(found, Diagnostic):
        return f"It is no usable tool as it is: {found.told}"
    state, trusted, _, _ = standing_of(shop, found)
    if state is State.ACTIVE:
        return "It is active: exactly these files were trusted before."
    if state is State.RETIRED:
        return f"It is retired; `forge tools restore {name}` switches it on."
    if trusted:
        return f"These files were trusted before, but they are only {state}; `forge tools activate {name}` goes on."
    return f"It is not active ({state}, untrusted); `forge tools activate {name}` shows what it is and asks."
