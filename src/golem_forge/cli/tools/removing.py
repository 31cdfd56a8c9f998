"""`forge tools remove NAME…`: takes a tool's folder away. It is a version first: `forge tools undo` brings it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import ask_yes, can_ask, complain, parser
from golem_forge.cli.tools.consent import DENIED
from golem_forge.cli.tools.shop import NO_SUCH_TOOL, entry_of, open_shop
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.custom.workshop import Workshop

HELP: Final = """usage: forge tools remove NAME… [--yes]

Takes the folder away after a question. Its versions are kept: `forge tools undo NAME` brings it back.

  --yes     without the question

Exit: 0 removed, 1 it could not be, 2 usage, 3 not agreed, 4 no such tool."""
_VERB: Final = "remove"


def run_remove(words: list[str]) -> int:
    reader = parser(f"tools {_VERB}", HELP)
    reader.add_argument("names", metavar="NAME", nargs="+")
    reader.add_argument("--yes", action="store_true")
    asked = reader.parse_args(words)
    shop, names = open_shop(), list(dict.fromkeys(asked.names))
    missing = [name for name in names if shop.registry.look(name) is None]
    for name in missing:
        entry_of(shop, _VERB, name)  # says so, with the nearest name
    if missing:
        return NO_SUCH_TOOL
    worst = 0
    for name in names:
        worst = max(worst, _remove(shop, name) if asked.yes or _agreed(shop, name) else DENIED)
    return worst


def _agreed(shop: Workshop, name: str) -> bool:
    folder = shop.shown_folder(name)
    if not can_ask():
        complain(f"tools {_VERB}", f"nobody can be asked here; `forge tools remove {name} --yes` removes {folder}.")
        return False
    if ask_yes(visible(f"Remove {folder}? `forge tools undo {name}` brings it back. [y/N] ")):
        return True
    complain(f"tools {_VERB}", f"'{name}' was left as it is.")
    return False


def _remove(shop: Workshop, name: str) -> int:
    from golem_forge.core.errors import ForgeError
    from golem_forge.custom.book.history import remove

    try:
        done = remove(home=shop.home, book=shop.book, name=name)
    except ForgeError as error:
        complain(f"tools {_VERB}", error.message)
        return 1
    if done.set_aside is not None:
        print(
            visible(
                f"tool '{name}' is removed; its files, which could not be a version: {shop.home.shown(done.set_aside)}"
            )
        )
    else:
        print(f"tool '{name}' is removed; `forge tools undo {name}` brings it back")
    return 0
