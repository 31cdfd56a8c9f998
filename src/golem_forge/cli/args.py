"""A group of sub-verbs, `forge tools …` or `forge mcp …`: finds the module of the named verb and passes the rest on.

Only that module is imported. Verbs are given as verb → (module in the group's package, what it does); the module's
function is `run_<verb>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

Verbs = Mapping[str, tuple[str, str]]


def run_verb(group: str, package: str, verbs: Verbs, words: list[str], usage: str) -> int:
    """`package`: where the modules of the group are, `golem_forge.cli.tools`."""
    verb, rest = (words[0], words[1:]) if words else ("", [])
    if verb in ("", "-h", "--help"):
        print(usage)
        return 0 if verb else 2
    if verb not in verbs:
        return _unknown(group, verbs, verb)
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


def _unknown(group: str, verbs: Verbs, verb: str) -> int:
    from golem_forge.cli.format import print_error
    from golem_forge.core.text import closest_match

    close = closest_match(verb, verbs)
    hint = f" (did you mean '{close}'?)" if close else ""
    print_error(group, f"unknown verb '{verb}'{hint}. `forge {group} --help` lists them.")
    return 2
