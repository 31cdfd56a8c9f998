"""Arguments of a verb, and groups of sub-verbs (`forge tools …`, `forge mcp …`).

A group's verbs are given as verb → (module in the group's package, what it does); the module's function is
`run_<verb>`. Only the module of the named verb is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from golem_forge.cli.format import did_you_mean, print_error
from golem_forge.core.text import escape_control_chars

if TYPE_CHECKING:
    from argparse import ArgumentParser

Verbs = Mapping[str, tuple[str, str]]


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


def run_verb(group: str, package: str, verbs: Verbs, words: list[str], usage: str) -> int:
    """`package`: where the modules of the group are, `golem_forge.cli.tools`."""
    verb, rest = (words[0], words[1:]) if words else ("", [])
    if verb in ("", "-h", "--help"):
        print(usage)
        return 0 if verb else 2
    if verb not in verbs:
        print_error(group, f"unknown verb '{verb}'{did_you_mean(verb, verbs)}. `forge {group} --help` lists them.")
        return 2
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
