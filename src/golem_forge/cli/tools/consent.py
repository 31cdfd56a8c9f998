"""The trust card at the command line: a person reads what a tool is, then says yes to exactly these bytes, or does not.

`--yes` is their answer given beforehand, for the tools they named and no others, and is recorded as such. Where nobody
can be asked and nothing was answered, nothing runs. Threat: the card quotes a stranger's files; nothing in it can steer
the terminal, and keys typed before it was drawn do not answer it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import ask_yes, can_ask, complain
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.custom.trust.promotion import Readied
    from golem_forge.custom.workshop import Workshop

DENIED: Final = 3
BY_FLAG: Final = "command line (--yes)"
BY_PERSON: Final = "person"


class Answer(StrEnum):
    """What the command line says to cards."""

    ASK = "ask"
    YES = "yes"

    @staticmethod
    def of(yes: bool) -> Answer:
        return Answer.YES if yes else Answer.ASK


def agreed(shop: Workshop, verb: str, ready: Readied, answer: Answer) -> bool:
    """Whether this content may run, and be built from its hosts. A yes is kept. Raises ForgeError if it cannot be."""
    entry = ready.entry
    if shop.trusts(entry):
        return not ready.hosts or agreed_to_fetch(shop, verb, ready, answer)
    from golem_forge.custom.trust.promotion import card_for

    print(visible(card_for(shop, ready).whole), file=sys.stderr)
    if answer is Answer.ASK:
        if not can_ask():
            _nobody_here(verb, entry.name)
            return False
        if not _yes(f"Trust '{entry.name}' with exactly these files? [y/N] "):
            shop.book.denied(entry.name, entry.digest)
            complain(f"tools {verb}", f"'{entry.name}' is not trusted; none of it ran.")
            return False
    shop.trust(entry, who=BY_FLAG if answer is Answer.YES else BY_PERSON)
    return True


def agreed_to_fetch(shop: Workshop, verb: str, ready: Readied, answer: Answer) -> bool:
    """Its dependencies come from outside; its runs do not reach these hosts."""
    name = ready.entry.name
    print(visible(f"'{name}' is built with packages from: {', '.join(ready.hosts)}"), file=sys.stderr)
    if answer is Answer.YES:
        return True
    if not can_ask():
        _nobody_here(verb, name)
        return False
    if _yes("Fetch them? [y/N] "):
        return True
    complain(f"tools {verb}", f"'{name}' was not built.")
    return False


def _nobody_here(verb: str, name: str) -> None:
    complain(
        f"tools {verb}", f"nobody can be asked here. Read the text above, then run `forge tools {verb} {name} --yes`."
    )


def _yes(question: str) -> bool:
    with _interruptible():
        return ask_yes(visible(question))


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Threat: a running loop only notes Ctrl-C for its next step, so the question would stand, and a later `y` would
    count. Here it ends the command."""
    import signal

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
