"""`forge mcp …`: the MCP servers this program uses, and serving its tools to MCP clients. One module a verb.

Only the verb that runs is loaded; `list` and `show` start nothing and load nothing of the SDK.
Exit codes, for every verb: 0 done, 1 the thing failed, 2 usage or configuration, 3 denied, 4 no such thing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

VERBS: Final = {
    "add": ("adding", "write a server into forge.yaml, ask, connect, and show what it offers"),
    "remove": ("removing", "take a server out again"),
    "list": ("listing", "the servers there are, each with its state; nothing is started"),
    "show": ("showing", "one server: config, state, tools; what is held back and why; nothing is started"),
    "approve": ("approving", "agree to a server's config, to changed tools and to new ones"),
    "test": ("connecting", "connect, list, time it, end"),
    "reconnect": ("connecting", "connect anew and keep what it offers now"),
    "login": ("login", "log in at a server that wants OAuth"),
    "logout": ("login", "forget that login"),
    "serve": ("serving", "this program's tools for any MCP client, over stdin and stdout or HTTP"),
    "token": ("tokens", "tokens for `serve --http`: create, list, revoke"),
    "install": ("installing", "the config that makes another product start `forge mcp serve`"),
}
"""Verb → (module beside this one, what it does). Its function is `run_<verb>`."""


def run(words: list[str]) -> int:
    verb, rest = (words[0], words[1:]) if words else ("", [])
    if verb in ("", "-h", "--help"):
        print(usage())
        return 0 if verb else 2
    if verb not in VERBS:
        return _unknown(verb)
    module = import_module(f"{__name__}.{VERBS[verb][0]}")
    return int(getattr(module, f"run_{verb}")(rest))


def usage() -> str:
    width = max(map(len, VERBS))
    lines = "\n".join(f"  {verb:<{width}}  {does}" for verb, (_, does) in VERBS.items())
    return (
        f"usage: forge mcp VERB …\n\n{lines}\n\n"
        "forge mcp VERB --help says more.\n"
        "Exit: 0 done, 1 it failed, 2 usage or configuration, 3 denied, 4 no such thing."
    )


def _unknown(verb: str) -> int:
    from golem_forge.cli.plain import complain
    from golem_forge.core.nearest import nearest

    close = nearest(verb, VERBS)
    hint = f" (did you mean '{close}'?)" if close else ""
    complain("mcp", f"unknown verb '{verb}'{hint}. `forge mcp --help` lists them.")
    return 2
