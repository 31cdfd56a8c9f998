"""`forge tools suggest`: sequences of calls that agents made again and again, and that could be one tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import complain, parser, print_json
from golem_forge.cli.tools.telling import FAILED, look_at_shop, wrong_use

if TYPE_CHECKING:
    from golem_forge.custom.suggestions.suggestion import Suggestion
    from golem_forge.custom.workshop import Workshop

NO_SUCH_SUGGESTION: Final = 4
HELP: Final = """usage: forge tools suggest [--json]
       forge tools suggest --dismiss KEY | --restore KEY

Lists runs of 2 to 6 calls that models made one after another, with the same tools and arguments, at least 3 times in
at least 2 sessions of the last 30 days. What was the same each time stays, what differed is a parameter. Sessions
whose worker can make tools offer each of them once to the model; nothing is made without asking you.

  --dismiss  never suggest this sequence again
  --restore  suggest it again after all
  --json     for programs; `parameters` is what create_custom_tool takes

Nothing is run. Redacted values never appear.
Exit: 0 done, 1 it could not be kept, 2 usage, 4 no such suggestion."""


def run_suggest(words: list[str]) -> int:
    reader = parser("tools suggest", HELP)
    change = reader.add_mutually_exclusive_group()
    change.add_argument("--dismiss", metavar="KEY")
    change.add_argument("--restore", metavar="KEY")
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    if asked.json and (asked.dismiss or asked.restore):
        return wrong_use("suggest", "--json goes with the list only")
    shop = look_at_shop()
    if asked.restore is not None:
        return _restore(shop, asked.restore)
    found = suggestions(shop)
    if asked.dismiss is not None:
        return _dismiss(shop, asked.dismiss, found)
    if asked.json:
        print_json({"suggestions": [each.to_json() for each in found]})
    elif found:
        print("\n\n".join(_told(each) for each in found))
    else:
        complain("tools suggest", "nothing to suggest: no sequence of calls came up often enough in the last 30 days.")
    return 0


def suggestions(shop: Workshop) -> tuple[Suggestion, ...]:
    """What is known to be secret now is left out too, though no journal should hold it."""
    from golem_forge.custom.suggestions.kept import recent
    from golem_forge.custom.suggestions.looking import look
    from golem_forge.workers.tree import known_secrets

    redactor = known_secrets(shop.home)
    return look(shop.home, shop.book, recent(shop.home), native=shop.native, redact=redactor.value)


def _told(suggestion: Suggestion) -> str:
    from golem_forge.custom.suggestions.wording import lines_for_person

    key, name = suggestion.key, suggestion.name
    do = f"  `forge tools new {name}` begins one; `forge tools suggest --dismiss {key}` forgets it"
    return "\n".join([*lines_for_person(suggestion), do])


def _dismiss(shop: Workshop, key: str, found: tuple[Suggestion, ...]) -> int:
    from golem_forge.core.errors import ForgeError
    from golem_forge.custom.suggestions.memory import dismiss, dismissed

    if key not in {each.key for each in found}:
        if key in dismissed(shop.home):
            print(f"{key} was dismissed already")
            return 0
        return _no_such(key)
    try:
        dismiss(shop.home, key)
    except ForgeError as error:
        complain("tools suggest", error.message)
        return FAILED
    print(f"{key} will not be suggested again; `forge tools suggest --restore {key}` takes that back")
    return 0


def _restore(shop: Workshop, key: str) -> int:
    from golem_forge.core.errors import ForgeError
    from golem_forge.custom.suggestions.memory import undismiss

    try:
        if not undismiss(shop.home, key):
            return _no_such(key, "dismissed ")
    except ForgeError as error:
        complain("tools suggest", error.message)
        return FAILED
    print(f"{key} may be suggested again")
    return 0


def _no_such(key: str, what: str = "") -> int:
    complain("tools suggest", f"no {what}suggestion '{key[:100]}'. `forge tools suggest` lists them by their keys.")
    return NO_SUCH_SUGGESTION
