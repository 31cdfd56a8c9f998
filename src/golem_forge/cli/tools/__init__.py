"""`forge tools …`: the tools there are, and the whole life of the person's own. One module a verb; only that is loaded.

Exit codes, for every verb: 0 done, 1 the thing failed (a build, a test, drift), 2 usage or configuration, 3 denied,
4 no such tool.
"""

from __future__ import annotations

from typing import Final

from golem_forge.cli.verbs import run_verb, usage_of

VERBS: Final = {
    "list": ("listing", "every tool with its source and who may call it; what cannot be offered, with the reason"),
    "show": ("showing", "one tool: description, parameters, who decides about its calls; of yours also its folder"),
    "search": ("listing", "the tools that fit the words best"),
    "new": ("creating", "scaffold a tool of your own: Python, shell or Go"),
    "build": ("building", "build or check a tool; none of its code runs"),
    "test": ("testing", "run a tool's own tests in the strictest walls; --update keeps what it prints now"),
    "activate": ("activating", "build, show what it is, ask, test, and offer it from then on"),
    "retire": ("retiring", "switch a tool off, its folder stays"),
    "restore": ("retiring", "switch it on again"),
    "remove": ("removing", "take a tool's folder away; `undo` brings it back"),
    "run": ("running", "run one of your tools; --debug from its source"),
    "diff": ("history", "what changed since the tool was trusted last"),
    "log": ("history", "its versions, with time and author"),
    "undo": ("history", "back to the previous version, or to a named one"),
    "stats": ("statistics", "calls, success, time; what is not used"),
    "suggest": ("suggesting", "sequences of calls that could be one tool"),
    "export": ("exporting", "a tool as a folder, an archive or an Agent Skill"),
    "import": ("importing", "a tool from a folder, an archive or a git commit; nothing of it runs"),
    "browse": ("browsing", "what a collection of tools offers"),
    "update": ("updating", "another commit of an imported tool, with the difference"),
    "verify": ("verifying", "whether imported tools are what tools.lock says"),
    "doctor": ("examining", "why folders are no tools, one line each"),
}
"""Verb → (module beside this one, what it does). Its function is `run_<verb>`."""


def run(words: list[str]) -> int:
    return run_verb("tools", __name__, VERBS, words, usage())


def usage() -> str:
    return usage_of("tools", VERBS, "tool")
