"""`forge mcp …`: the MCP servers this program uses, and serving its tools to MCP clients.

Only the module of the verb that runs is loaded; `list` and `show` start nothing and load nothing of the SDK.
Exit codes, for every verb: 0 done, 1 the thing failed, 2 usage or configuration, 3 denied, 4 no such thing.
"""

from __future__ import annotations

from typing import Final

from golem_forge.cli.command import fail, run_verb, usage_of
from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client.model import SERVER_NOT_FOUND

VERBS: Final = {
    "add": ("add", "write a server into forge.yaml, ask, connect, and show what it offers"),
    "remove": ("add", "take a server out again"),
    "list": ("list", "list the servers with their states; starts nothing"),
    "show": ("list", "show one server: config, state, tools, what is held back and why; starts nothing"),
    "approve": ("add", "agree to a server's config, to changed tools and to new ones"),
    "test": ("list", "connect to a server, list what it offers, measure the time, disconnect"),
    "reconnect": ("list", "connect to a server again and store what it offers now"),
    "login": ("add", "log in at a server that wants OAuth"),
    "logout": ("add", "forget that login"),
    "serve": ("serve", "serve this program's tools to any MCP client, over stdin and stdout or HTTP"),
    "token": ("serve", "tokens for `serve --http`: create, list, revoke"),
    "install": ("install", "print the config with which another product starts `forge mcp serve`"),
}
"""Verb → (module beside this one, what it does). Its function is `run_<verb>`."""


def run(words: list[str]) -> int:
    try:
        return run_verb("mcp", __name__, VERBS, words, usage())
    except ForgeError as error:
        if error.code != SERVER_NOT_FOUND:
            raise
        return fail(f"mcp {words[0]}", error.message, 4)


def usage() -> str:
    return usage_of("mcp", VERBS, "thing")
