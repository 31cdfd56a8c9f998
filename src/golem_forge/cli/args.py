"""Arguments of a verb, and groups of sub-verbs (`forge tools …`, `forge mcp …`).

A group's verbs are given as verb → (module in the group's package, what it does); the module's function is
`run_<verb>`. Only the module of the named verb is imported.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from golem_forge.cli.format import fail
from golem_forge.core.text import escape_control_chars, nearest_remark

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _ActionsContainer

Declared = TypeVar("Declared", bound="_ActionsContainer")
_TYPES: Final = {"N": int, "S": float}

FAILED: Final = 1
USAGE: Final = 2
DENIED: Final = 3
NOT_FOUND: Final = 4
BY_FLAG: Final = "command line (--yes)"
BY_PERSON: Final = "person"
"""The recorded source of an approval."""

Verbs = Mapping[str, tuple[str, str]]


class CommandUsageError(Exception):
    """Raised for contradictory or invalid arguments."""


def parser(verb: str, text: str) -> ArgumentParser:
    """A parser whose help is `text`, written by hand: people read one page, not generated fragments of it."""
    from argparse import ArgumentParser, HelpFormatter

    def formatter(prog: str) -> HelpFormatter:
        return HelpFormatter(prog, width=120)  # asking for the terminal's width would load what nothing else here needs

    class Parser(ArgumentParser):
        def format_help(self) -> str:
            return text + "\n"

        def error(self, message: str) -> NoReturn:
            print(f"{self.prog}: {escape_control_chars(message)}. `{self.prog} --help` says more.", file=sys.stderr)
            raise SystemExit(2)

    return Parser(prog=f"forge {verb}", allow_abbrev=False, formatter_class=formatter)


def read_args(verb: str, text: str, words: list[str], *declared: str, **defaults: Any) -> Namespace:
    """Parses the arguments; ends the process with code 2 and a sentence if they are wrong."""
    reader = declare(parser(verb, text), *declared)
    reader.set_defaults(**defaults)
    return reader.parse_args(words)


def declare(reader: Declared, *declared: str) -> Declared:
    """Adds arguments to a parser or a group of one, each written as in a usage line:

    `NAME`, `NAME?`, `NAME*`, `NAME+` stand for themselves, and `names:NAME+` is kept as `names`; `--json` is a flag;
    `-p,--program DIR` takes a value (a whole number for `N`, seconds for `S`), `--mode a|b` one of these, and
    `--set PAIR…` any number of them.
    """
    for each in declared:
        names, _, value = each.partition(" ")
        if not names.startswith("-"):
            name, _, shown = names.rpartition(":")
            metavar = shown.rstrip("?*+")
            reader.add_argument(name or metavar.lower(), metavar=metavar, nargs=shown[len(metavar) :] or None)
        elif not value:
            reader.add_argument(*names.split(","), action="store_true")
        elif value.endswith("…"):
            reader.add_argument(*names.split(","), action="append", default=[])
        else:
            choices = value.split("|") if "|" in value else None
            reader.add_argument(*names.split(","), choices=choices, type=_TYPES.get(value, str))
    return reader


EXIT_OPTIONS: Final = ("--device NAME…", "--socket PATH…")


def exit_overrides(given: Namespace) -> list[str]:
    """`--device` and `--socket` as the overrides that they stand for."""
    sockets = [os.path.abspath(os.path.expanduser(path)) for path in given.socket]
    lists = {"devices": given.device, "sockets": sockets}
    return [f"sandbox.{key}={json.dumps(names)}" for key, names in lists.items() if names]


def run_verb(group: str, package: str, verbs: Verbs, words: list[str], usage: str) -> int:
    """`package`: where the modules of the group are, `golem_forge.cli.tools`."""
    verb, rest = (words[0], words[1:]) if words else ("", [])
    if verb in ("", "-h", "--help"):
        print(usage)
        return 0 if verb else 2
    if verb not in verbs:
        return fail(group, f"unknown verb '{verb}'{nearest_remark(verb, verbs)}. `forge {group} --help` lists them.", 2)
    module = import_module(f"{package}.{verbs[verb][0]}")
    return int(getattr(module, f"run_{verb.replace('-', '_')}")(rest))


def usage_of(group: str, verbs: Verbs, thing: str) -> str:
    """`thing`: what exit code 4 says there is none of."""
    width = max(map(len, verbs))
    lines = "\n".join(f"  {verb:<{width}}  {does}" for verb, (_, does) in verbs.items())
    return (
        f"usage: forge {group} VERB …\n\n{lines}\n\n"
        f"forge {group} VERB --help says more.\n"
        f"Exit: 0 done, 1 it failed, 2 usage or configuration, 3 denied, 4 no such {thing}."
    )
