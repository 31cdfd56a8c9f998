"""`forge tools …`: the tools there are, and the whole life of the person's own. One module a verb; only that is loaded.

Exit codes, for every verb: 0 done, 1 the thing failed (a build, a test, drift), 2 usage or configuration, 3 denied,
4 no such tool.
"""

from __future__ import annotations

from typing import Final

from golem_forge.cli.args import run_verb, usage_of

VERBS: Final = {
    "list": ("list", "every tool with its source and who may call it; what cannot be offered, with the reason"),
    "show": ("show", "one tool: description, parameters, who decides about its calls; of yours also its folder"),
    "search": ("list", "the tools that fit the words best"),
    "new": ("lifecycle", "scaffold a tool of your own: Python, shell or Go"),
    "build": ("lifecycle", "build or check a tool; none of its code runs"),
    "test": ("test", "run a tool's own tests in the strictest walls; --update keeps what it prints now"),
    "activate": ("lifecycle", "build, show what it is, ask, test, and offer it from then on"),
    "retire": ("lifecycle", "switch a tool off, its folder stays"),
    "restore": ("lifecycle", "switch it on again"),
    "remove": ("lifecycle", "take a tool's folder away; `undo` brings it back"),
    "run": ("run_tool", "run one of your tools; --debug from its source"),
    "diff": ("log", "what changed since the tool was trusted last"),
    "log": ("log", "its versions, with time and author"),
    "undo": ("log", "one version back, and another with every undo; or to a named one"),
    "stats": ("stats", "calls, success, time; what is not used"),
    "suggest": ("stats", "sequences of calls that could be one tool"),
    "export": ("share", "a tool as a folder, an archive or an Agent Skill"),
    "import": ("share", "a tool from a folder, an archive or a git commit; nothing of it runs"),
    "browse": ("share", "what a collection of tools offers"),
    "index": ("share", "write the list that makes a folder of tools a collection"),
    "update": ("share", "another commit of an imported tool, with the difference"),
    "verify": ("share", "whether imported tools are what tools.lock says"),
    "doctor": ("doctor", "why folders are no tools, one line each"),
}
"""Verb → (module beside this one, what it does). Its function is `run_<verb>`."""


def run(words: list[str]) -> int:
    return run_verb("tools", __name__, VERBS, words, usage())


def usage() -> str:
    return usage_of("tools", VERBS, "tool")
