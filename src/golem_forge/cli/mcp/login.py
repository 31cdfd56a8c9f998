"""`forge mcp login NAME` and `logout NAME`: OAuth at a server, once; sessions use and refresh it silently.

Only the person opens the page: it is printed, never opened. Tokens are printed nowhere.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from golem_forge.agent.mcp_status import read_inventory
from golem_forge.cli.args import DENIED, read_args
from golem_forge.cli.format import fail
from golem_forge.cli.mcp.approve import Consent, ask_to_start
from golem_forge.config.mcp_spec import AuthKind, ServerSpec, expand_text
from golem_forge.core.text import escape_control_chars
from golem_forge.mcp.client.oauth import login, logout

LOGIN_HELP: Final = """usage: forge mcp login NAME [--yes] [-p DIR]

Logs in at a server with `auth: oauth`: prints the page to open in a browser on this machine, and waits up to five
minutes for what the browser brings back.

  --yes              approve the server without a question, if it is not approved yet
  -p, --program DIR  the program in that directory instead of this one

Forge keeps the tokens in the system keyring, else in FORGE_HOME/state/oauth, where only you can read them.
Exit: 0 logged in, 1 it failed, 2 usage or configuration, 3 it is not approved, 4 no such server."""
LOGOUT_HELP: Final = """usage: forge mcp logout NAME [-p DIR]

Deletes the tokens and the registration of a login.

  -p, --program DIR  the program in that directory instead of this one

Exit: 0 done, 2 usage or configuration, 4 no such server, or there was no login."""


def run_login(words: list[str]) -> int:
    asked = read_args("mcp login", LOGIN_HELP, words, "NAME", "--yes", "-p,--program DIR", program=".")
    place = read_inventory(asked.program)
    spec = place.spec(asked.name)
    if spec.auth.kind is not AuthKind.OAUTH:
        why = "Forge starts it as a program; only a server with a url has a login"
        if spec.is_http:
            why = f"write `auth: oauth` for mcp.servers.{spec.name} in {spec.origin.partition(':')[0]}"
        return fail("mcp login", f"'{spec.name}' has no login: {why}", 2)
    answer = ask_to_start(place, spec, yes=asked.yes)
    if answer is not Consent.YES:
        nobody = f"Forge cannot ask you here. Read the text above, then run `forge mcp login {spec.name} --yes`."
        return fail("mcp login", nobody if answer is Consent.NOBODY else f"{spec.name} is not approved.", DENIED)
    asyncio.run(login(spec, place.home, show_url=_print_url, url=_address(spec)))
    print(f"logged in at {spec.name}; `forge mcp test {spec.name}` shows what it offers.")
    return 0


def run_logout(words: list[str]) -> int:
    asked = read_args("mcp logout", LOGOUT_HELP, words, "NAME", "-p,--program DIR", program=".")
    place = read_inventory(asked.program)
    spec = place.spec(asked.name)
    if not spec.is_http or not asyncio.run(logout(spec, place.home, url=_address(spec))):
        return fail("mcp logout", f"there was no login at '{spec.name}'.", 4)
    print(f"logged out of {spec.name}.")
    return 0


def _print_url(url: str) -> None:
    print(f"open this page in a browser on this machine:\n\n  {escape_control_chars(url)}\n", flush=True)


def _address(spec: ServerSpec) -> str:
    """With its variables put in. Raises ForgeError for one that is not set."""

    def no_zone(name: str) -> str:
        raise KeyError(name)

    return expand_text(spec.url, os.environ, zone=no_zone)
