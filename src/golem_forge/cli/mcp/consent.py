"""A person's yes to a server or to a tool's definition, at the command line, before anything of it is used.

`--yes` is their answer given beforehand. Where nobody can be asked and nothing was answered, the answer is no. Threat:
cards quote a stranger's config and definitions; nothing in them can steer the terminal, and keys typed before a card
was drawn do not answer it.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import ask_yes, can_ask
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.config.mcp.spec import ServerSpec
    from golem_forge.workers.mcp.known import Place

DENIED: Final = 3
BY_FLAG: Final = "command line (--yes)"
BY_PERSON: Final = "person"


class Answer(Enum):
    YES = "yes"
    NO = "no"
    NOBODY = "nobody"
    """Nobody could be asked."""


def ask(question: str, *, yes: bool) -> Answer:
    """`yes`: `--yes` was given."""
    if yes:
        return Answer.YES
    if not can_ask():
        return Answer.NOBODY
    return Answer.YES if ask_yes(f"{visible(question)} [y/N] ") else Answer.NO


def say(text: str) -> None:
    """What the question is about: on standard error, so that standard output stays the answer."""
    print(visible(text), file=sys.stderr)


def agree_to_start(place: Place, spec: ServerSpec, *, yes: bool) -> Answer:
    """Shows the card and asks; a yes is in the book afterwards. Raises BookError where it cannot be kept."""
    from golem_forge.mcp.client.trust.trust_book import server_card, server_diff

    if place.book.approved(spec):
        return Answer.YES
    say(server_card(spec))
    if diff := server_diff(place.book.approved_before(spec), spec):
        say(f"\nchanged since it was approved:\n{diff}")
    answer = ask(f"Start the MCP server '{spec.name}' from now on?", yes=yes)
    if answer is Answer.YES:
        place.book.approve_server(spec, BY_FLAG if yes else BY_PERSON)
    return answer
