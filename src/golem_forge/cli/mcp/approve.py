"""`forge mcp approve NAME [TOOL]`, `login NAME` and `logout NAME`: what a person grants a server.

What is approved (a server's config, changed definitions, new tools) is exactly what was shown: the config by its
digest, a tool by the definition on the screen. A server that says something else later is asked about again. `--yes` is
the answer given beforehand; where nobody can be asked and nothing was answered, the answer is no. `login` is OAuth,
once; sessions use and refresh it silently. Only the person opens the page: it is printed, never opened. Tokens are
printed nowhere.

Threat: cards quote a stranger's config and definitions. Nothing in them can steer the terminal, and keys typed before a
card was drawn do not answer it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from enum import Enum
from typing import Final

from golem_forge.agent.mcp_status import EditorServer, ServerInventory, offered_names, read_inventory
from golem_forge.cli.args import BY_FLAG, BY_PERSON, DENIED, read_args
from golem_forge.cli.format import fail
from golem_forge.cli.mcp.list import NotConnected, connect, print_not_connected
from golem_forge.config.mcp_spec import AuthKind, ServerSpec, expand_text
from golem_forge.core.text import escape_control_chars, nearest_remark, one_line
from golem_forge.mcp.client.approval_text import server_card, server_diff
from golem_forge.mcp.client.model import HeldTool, RemoteTool, ServerToolList
from golem_forge.mcp.client.oauth import login, logout
from golem_forge.mcp.client.tool_list import all_entries, awaiting_approval, definition_to_approve, is_awaiting_approval
from golem_forge.ui.line_terminal import ask_yes, can_ask

HELP: Final = """usage: forge mcp approve NAME [TOOL] [--yes] [-p DIR]

Shows the command or URL of a server and what it may use, and after a change the difference. Then it asks.
It asks once more for each tool whose definition changed (`drift`), with the difference, and for each new tool.
With TOOL (the server's name for it, or the name callers use) it asks only about that tool.

  --yes              agree without a question
  -p, --program DIR  the program in that directory instead of this one

Your yes counts for this configuration and these definitions; Forge asks again after any change.
Exit: 0 agreed or nothing to agree to, 1 it cannot be approved, 2 usage or configuration, 3 not agreed,
4 no such server or tool."""


def run_approve(words: list[str]) -> int:
    asked = read_args("mcp approve", HELP, words, "NAME", "TOOL?", "--yes", "-p,--program DIR", program=".")
    place = read_inventory(asked.program)
    if asked.tool is None and (named := place.editor_servers(asked.name)):
        return _approve_editor_servers(place, named, yes=asked.yes)
    spec = place.spec(asked.name)
    if spec.problem:
        return fail("mcp approve", f"'{spec.name}' cannot be used: {spec.problem}", 1)
    fresh = not place.book.approved(spec)
    if fresh and asked.tool is not None:  # a yes to a tool must not be one to a config that nobody looked at
        return fail(
            "mcp approve", f"'{spec.name}' itself waits for approval; run: forge mcp approve {spec.name}", DENIED
        )
    answer = ask_to_start(place, spec, yes=asked.yes)
    if answer is not Consent.YES:
        return _print_not_approved(answer, f"{spec.name} is not approved; it is not started.", [spec.name])
    if fresh:
        print(f"{spec.name} is approved with its current configuration.")
    if asked.tool is not None:
        return _one_tool(place, spec, asked.tool, asked.program, yes=asked.yes)
    return _all_tools(place, spec, fresh=fresh, yes=asked.yes)


def _approve_editor_servers(place: ServerInventory, named: list[EditorServer], *, yes: bool) -> int:
    for server in named:
        if server.approved:
            print(f"{server.name} of {server.origin} is approved.")
            continue
        print_card(server.card)
        if server.diff:
            print_card(f"\nchanged since it was approved:\n{server.diff}")
        question = f"Start the MCP server '{server.name}' in sessions of {server.origin} from now on?"
        answer = ask_consent(question, yes=yes)
        if answer is not Consent.YES:
            return _print_not_approved(answer, f"{server.name} is not approved; it is not started.", [server.name])
        place.book.approve_named(server.scope, server.name, server.named, BY_FLAG if yes else BY_PERSON)
        print(f"{server.name} is approved as {server.origin} names it now. Open sessions use it at their next message.")
    return 0


def _all_tools(place: ServerInventory, spec: ServerSpec, *, fresh: bool, yes: bool) -> int:
    listing = place.known(spec.name).listing
    at_stake = awaiting_approval(listing) if listing is not None else []
    refused: Consent | None = None
    for each in at_stake:
        answer = _ask_tool(place, spec, each, yes=yes)
        refused = answer if answer is not Consent.YES else refused
    if refused is not None:
        return _print_not_approved(refused, "some tools are not approved.", [spec.name])
    if fresh:
        print(f"Sessions start it when they need it; `forge mcp test {spec.name}` does now.")
    elif not at_stake:
        print(f"{spec.name} is approved, and nothing of it waits for approval.")
    return 0


def _one_tool(place: ServerInventory, spec: ServerSpec, wanted: str, directory: str, *, yes: bool) -> int:
    listing = place.known(spec.name).listing
    if listing is None:
        try:
            listing = connect(directory, spec.name).listing
        except NotConnected as refused:
            print_not_connected("mcp approve", refused)
            return 1
    found = _find(place, listing, wanted)
    if found is None:
        hint = nearest_remark(wanted, [one.name for one in all_entries(listing)])
        lists = f"`forge mcp show {spec.name}` lists them."
        return fail("mcp approve", f"{spec.name} has no tool '{wanted}'{hint}. {lists}", 4)
    if isinstance(found, HeldTool) and found.tool is None:
        return fail("mcp approve", f"'{found.name}' cannot be approved: {found.reason.value}: {found.message}", 1)
    if not is_awaiting_approval(found):
        print(one_line(f"{found.name} is approved already."))
        return 0
    answer = _ask_tool(place, spec, found, yes=yes)
    if answer is Consent.YES:
        return 0
    return _print_not_approved(answer, f"'{found.name}' is not approved.", [spec.name, found.name])


def _ask_tool(place: ServerInventory, spec: ServerSpec, one: HeldTool | RemoteTool, *, yes: bool) -> Consent:
    """Shows the change, or the whole of a new definition, and asks. Records a yes."""
    name = one_line(one.name)
    tool, text = definition_to_approve(one)
    print_card(f"\nThe tool '{name}' of {spec.name} {'changed' if isinstance(one, HeldTool) else 'is new'}:\n{text}")
    answer = ask_consent(f"Use '{name}' as it is now?", yes=yes)
    if answer is Consent.YES:
        place.book.pin(spec.scope, tool)
        print(f"{name} is approved with its current definition.")
    return answer


def _find(place: ServerInventory, listing: ServerToolList, wanted: str) -> HeldTool | RemoteTool | None:
    """Finds a tool by its own name, else by the one that callers use."""
    names = offered_names([each.listing for each in place.all() if each.spec.name != listing.server] + [listing])
    own = (one for one in all_entries(listing) if wanted in (one.name, one.identity[1]))
    others = (one for one in all_entries(listing) if names[one.identity] == wanted)
    return next(own, None) or next(others, None)


def _print_not_approved(answer: Consent, text: str, words: list[str]) -> int:
    if answer is Consent.NOBODY:
        again = shlex.join(["forge", "mcp", "approve", *words, "--yes"])
        text = f"Forge cannot ask you here. Read the text above, then run `{again}`."
    return fail("mcp approve", text, DENIED)


class Consent(Enum):
    YES = "yes"
    NO = "no"
    NOBODY = "nobody"
    """Nobody could be asked."""


def ask_consent(question: str, *, yes: bool) -> Consent:
    """Asks for consent. `yes`: `--yes` was given."""
    if yes:
        return Consent.YES
    if not can_ask():
        return Consent.NOBODY
    return Consent.YES if ask_yes(f"{escape_control_chars(question)} [y/N] ") else Consent.NO


def print_card(text: str) -> None:
    """Prints the card on standard error, so that standard output holds only the answer."""
    print(escape_control_chars(text), file=sys.stderr)


def ask_to_start(place: ServerInventory, spec: ServerSpec, *, yes: bool) -> Consent:
    """Shows the card and asks; records a yes. Raises ServerTrustError where it cannot be recorded."""
    if place.book.approved(spec):
        return Consent.YES
    print_card(server_card(spec))
    if diff := server_diff(place.book.approved_before(spec), spec):
        print_card(f"\nchanged since it was approved:\n{diff}")
    answer = ask_consent(f"Start the MCP server '{spec.name}' from now on?", yes=yes)
    if answer is Consent.YES:
        place.book.approve_server(spec, BY_FLAG if yes else BY_PERSON)
    return answer


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
    """Returns the address with its variables replaced. Raises ForgeError for one that is not set."""

    def no_zone(name: str) -> str:
        raise KeyError(name)

    return expand_text(spec.url, os.environ, zone=no_zone)
