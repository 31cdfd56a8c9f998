"""`forge tools …`: the tools there are, and the whole life of the person's own. Only the module of the verb
that runs is loaded.

Exit codes, for every verb: 0 done, 1 the thing failed (a build, a test, drift), 2 usage or configuration, 3 denied,
4 no such tool.
"""

from __future__ import annotations

from typing import Final

from golem_forge.cli.command import run_verb, usage_of

VERBS: Final = {
    "list": (
        "list",
        "list every tool with its source and who may call it; list what Forge cannot offer, with the reason",
    ),
    "show": (
        "show",
        "show one tool: description, parameters, who decides about its calls; for a user tool also its folder",
    ),
    "search": ("list", "find the tools that fit the words best"),
    "new": ("lifecycle", "make a user tool to start from, in Python, shell or Go"),
    "build": ("lifecycle", "build or check a tool; none of its code runs"),
    "test": ("test", "run a tool's own tests in the strictest walls; --update keeps what it prints now"),
    "activate": ("lifecycle", "build a tool, show it, ask you, test it, and offer it from then on"),
    "retire": ("lifecycle", "switch a tool off, its folder stays"),
    "restore": ("lifecycle", "switch it on again"),
    "remove": ("lifecycle", "take a tool's folder away; `undo` brings it back"),
    "run": ("test", "run one of your user tools; --debug runs its source"),
    "diff": ("lifecycle", "show what changed since you last trusted the tool"),
    "log": ("lifecycle", "list the versions of a tool with time and author"),
    "undo": ("lifecycle", "go back one version with every undo, or go to a named version"),
    "stats": ("stats", "count calls, success and time; list unused tools"),
    "suggest": ("stats", "list sequences of calls that could become one tool"),
    "export": ("share", "write a tool as a folder, an archive or an Agent Skill"),
    "import": ("share", "take a tool from a folder, an archive or a git commit; none of its code runs"),
    "browse": ("share", "list the tools of a collection"),
    "index": ("share", "write the list that makes a folder of tools a collection"),
    "update": ("share", "fetch an imported tool again and show what changed"),
    "verify": ("share", "check that imported tools are what tools.lock says"),
    "doctor": ("test", "say why a folder is not an active tool, one line each"),
}
"""Verb → (module beside this one, what it does). Its function is `run_<verb>`."""


def run(words: list[str]) -> int:
    return run_verb("tools", __name__, VERBS, words, usage())


def usage() -> str:
    return usage_of("tools", VERBS, "tool")
