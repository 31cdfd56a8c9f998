"""`forge tools retire NAME…` and `restore NAME…`: a tool is switched off and on; its folder and its trust stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import parser
from golem_forge.cli.tools.shop import NO_SUCH_TOOL, entry_of, open_shop

if TYPE_CHECKING:
    from golem_forge.custom.workshop import Workshop

RETIRE_HELP: Final = """usage: forge tools retire NAME…

Switches tools off: they are not listed and nobody can call them. The folder stays, and so does the trust in it.

Exit: 0 done, 1 it could not be kept, 2 usage, 4 no such tool."""
RESTORE_HELP: Final = """usage: forge tools restore NAME…

Switches retired tools on again, as they were: one that was active is, without a question.

Exit: 0 done, 1 it could not be kept, 2 usage, 4 no such tool."""


def run_retire(words: list[str]) -> int:
    from golem_forge.custom.trust.switching import retire

    return _for_each("retire", RETIRE_HELP, words, retire)


def run_restore(words: list[str]) -> int:
    from golem_forge.custom.trust.switching import restore

    return _for_each("restore", RESTORE_HELP, words, restore)


def _for_each(verb: str, text: str, words: list[str], change: Callable[[Workshop, str], str]) -> int:
    reader = parser(f"tools {verb}", text)
    reader.add_argument("names", metavar="NAME", nargs="+")
    names = list(dict.fromkeys(reader.parse_args(words).names))
    shop = open_shop()
    missing = [name for name in names if not _is_there(shop, verb, name)]
    if missing:
        return NO_SUCH_TOOL
    for name in names:
        print(change(shop, name))
    return 0


def _is_there(shop: Workshop, verb: str, name: str) -> bool:
    """Also a folder that is no usable tool: whoever repairs it later may not want it offered."""
    return shop.registry.look(name) is not None or entry_of(shop, verb, name) is not None
