"""`forge mcp token create NAME | list | revoke NAME`: who may use `forge mcp serve --http`.

A token is shown once, on standard output alone, so that it can be piped where it belongs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import columns, complain, parser, print_json

if TYPE_CHECKING:
    from golem_forge.mcp.server.tokens import TokenStore

HELP: Final = """usage: forge mcp token create NAME
       forge mcp token list [--json]
       forge mcp token revoke NAME

Tokens for `forge mcp serve --http`. `create` prints a new one, once: it is kept as a hash. Clients send it in the
header `Authorization: Bearer …`; their calls are in the journal as `mcp:NAME`. `revoke` ends it at once, also in
servers that run.

  --json   for programs: {tokens: [{name, created}]}

Exit: 0 done, 1 it failed (a name that is taken), 2 usage, 4 no such token."""

_ACTIONS: Final = ("create", "list", "revoke")


def run_token(words: list[str]) -> int:
    reader = parser("mcp token", HELP)
    reader.add_argument("action", choices=_ACTIONS)
    reader.add_argument("name", metavar="NAME", nargs="?")
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    if (asked.name is None) is not (asked.action == "list"):
        reader.error("list takes no NAME" if asked.name else f"{asked.action} needs a NAME")
    if asked.json and asked.action != "list":
        reader.error("--json is for list")
    from golem_forge.config.home import forge_home
    from golem_forge.mcp.server.tokens import TokenStore

    store = TokenStore(forge_home())
    if asked.action == "create":
        return _create(store, asked.name)
    if asked.action == "revoke":
        return _revoke(store, asked.name)
    return _list(store, as_json=asked.json)


def _create(store: TokenStore, name: str) -> int:
    secret = store.create(name)
    print(f"The token of '{name}', shown this once. Clients send it as `Authorization: Bearer …`:", file=sys.stderr)
    print(secret)
    return 0


def _revoke(store: TokenStore, name: str) -> int:
    from golem_forge.core.errors import ForgeError

    there = any(token.name == name for token in store.tokens())
    try:
        store.revoke(name)
    except ForgeError as error:
        if there:
            raise
        complain("mcp token", error.message)
        return 4
    print(f"revoked {name}.")
    return 0


def _list(store: TokenStore, *, as_json: bool) -> int:
    tokens = store.tokens()
    if as_json:
        print_json({"tokens": [{"name": token.name, "created": token.created} for token in tokens]})
    elif tokens:
        print(columns([("NAME", "CREATED"), *((token.name, token.created) for token in tokens)]))
    else:
        complain("mcp token", "there is no token. `forge mcp token create NAME` makes one.")
    return 0
