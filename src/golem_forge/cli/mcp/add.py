"""`forge mcp add`, `remove`, `approve`, `login` and `logout`: which servers there are, and what a person grants each.

`add` writes a server's block into forge.yaml, shows the card, asks, connects and prints what the server offers. It
refuses a name that is taken anywhere, and zones that the program does not have or cannot use; then nothing is written.
Arguments raise CommandUsageError for what a file cannot say: both transports, an option of the other transport,
`KEY=VALUE` without `=`. `remove` takes the block out and forgets approval, pins and cached manifest.

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
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.files.roster import load_roster
from golem_forge.agent.files.toolset_blocks import worker_blocks
from golem_forge.agent.mcp_status import EditorServer, ServerInventory, offered_names, read_inventory
from golem_forge.agent.session_plan import is_home_without_program, zone_problems
from golem_forge.cli.command import BY_FLAG, BY_PERSON, DENIED, CommandUsageError, fail, read_args
from golem_forge.cli.mcp.list import NotConnected, connect, print_connected, print_not_connected, unseen_file
from golem_forge.config.mcp_blocks import MCP_JSON
from golem_forge.config.mcp_merge import add_server, remove_server
from golem_forge.config.mcp_spec import AuthKind, ServerSpec, ServerTrust, expand_text
from golem_forge.config.program import PROGRAM_FILE
from golem_forge.core.errors import ConfigError
from golem_forge.core.text import display_path, escape_control_chars, nearest_remark, one_line
from golem_forge.events.redaction import NO_CREDENTIAL, classify_name
from golem_forge.mcp.client.approval_text import server_card, server_diff
from golem_forge.mcp.client.model import HeldTool, RemoteTool, ServerToolList
from golem_forge.mcp.client.oauth import login, logout
from golem_forge.mcp.client.tool_list import all_entries, awaiting_approval, definition_to_approve, is_awaiting_approval
from golem_forge.ui.line_terminal import ask_yes, can_ask

if TYPE_CHECKING:
    from argparse import Namespace

ADD_HELP: Final = """usage: forge mcp add NAME URL [options]
       forge mcp add NAME [options] -- COMMAND ARGS…

Writes an MCP server into forge.yaml (comments stay), shows what it would get, asks, connects, and shows what it offers.

  --user                 write it into your own config.yaml, for every program
  --yes                  approve the server without a question
  --trust trusted        believe its annotations and use its instructions (default: untrusted)
  --allow GLOB           use only these of its tools; --deny GLOB: do not use these (repeat for more)
  --required             a session that cannot connect to it does not start
  --protocol legacy      do not try the newer protocol first

a program, started inside walls:
  --zone NAME[:ro|rw]    a zone it may see (default ro; repeat for more); ${zone:NAME} in ARGS becomes its path there
  --cwd ADDRESS          its working directory, as /zone/path (default: its first zone, else a private home)
  --env NAME=VALUE       a fixed variable; --pass-env NAME: copied from the environment of forge (repeat for more)
  --network HOST[:PORT]  it may reach only these hosts (repeat for more); --no-network: no host

a URL:
  --auth oauth           the server needs a login: forge mcp login NAME
  --bearer-env NAME      send the token that is in this environment variable
  --header NAME=VALUE    send this header with every request (repeat for more); Forge replaces ${NAME} when it sends it

  -p, --program DIR      the program in that directory instead of this one

examples:
  forge mcp add time -- uvx mcp-server-time
  forge mcp add git --zone workspace:rw -- uvx mcp-server-git --repository '${zone:workspace}'
  forge mcp add docs https://docs.example/mcp --auth oauth

Without a terminal and without --yes it stays `pending`. `forge mcp remove NAME` takes it out again.
Exit: 0 done, 1 it was written but does not answer, 2 usage or configuration, 3 it was written but you did not agree."""


def run_add(words: list[str]) -> int:
    cut = words.index("--") if "--" in words else len(words)
    declared = ("NAME", "URL?", "--user", "--yes", "-p,--program DIR", *_SERVER_OPTIONS)
    asked = read_args("mcp add", ADD_HELP, words[:cut], *declared, program=".")
    try:
        block = server_block(asked, asked.url, words[cut + 1 :])
    except CommandUsageError as error:
        return fail("mcp add", f"{error}; `forge mcp add --help` says more.", 2)
    place = read_inventory(asked.program)
    if refusal := _refusal(place, asked.name, block, user=asked.user):
        return fail("mcp add", refusal, 2)
    place, spec = _write_block(place, asked.name, block, user=asked.user, directory=asked.program)
    _print_notes(place, spec, block)
    return _start_server(place, spec, asked.program, yes=asked.yes)


def _refusal(place: ServerInventory, name: str, block: Mapping[str, Any], *, user: bool) -> str:
    """Returns why nothing is written; empty if it may be."""
    if there := place.program.mcp.servers.get(name):
        return f"a server '{name}' exists already ({there.origin}); choose another name, or remove it first."
    if user:
        return ""
    if is_home_without_program(place.program):
        return "a forge.yaml here would make your whole home a program; use --user, or go to a project's directory."
    zones = {zone.name: zone.mode for zone in place.program.zones}
    for zone, mode in block.get("zones", {}).items():
        if zone not in zones:
            return f"this program has no zone '{zone}'; its zones: {', '.join(sorted(zones)) or 'none'}."
        if mode == "rw" and zones[zone] == "ro":
            return f"zone '{zone}' is read-only; give it as {zone}:ro."
    problems = zone_problems(place.program, place.home) if block.get("zones") else []
    return f"no session can use the zones of this program. {problems[0]}" if problems else ""


def _write_block(
    place: ServerInventory, name: str, block: Mapping[str, Any], *, user: bool, directory: str
) -> tuple[ServerInventory, ServerSpec]:
    """Raises ConfigError, and leaves no trace then."""
    if user:
        place.home.ensure()
    file = place.home.config if user else place.program.root / PROGRAM_FILE
    was_there, was_trusted = os.path.lexists(file), place.program.trusted
    add_server(file, name, block)
    try:
        after = read_inventory(directory)
    except ConfigError:
        if was_there:
            remove_server(file, name)
        else:
            file.unlink(missing_ok=True)
        raise
    print(f"wrote {name} into {display_path(file)}")
    if was_trusted and not after.program.trusted:
        print("forge: forge.yaml changed, so the program is not trusted any more: read it, then run `forge trust`.")
    return after, after.spec(name)


def _print_notes(place: ServerInventory, spec: ServerSpec, block: Mapping[str, Any]) -> None:
    for key in ("env", "headers"):
        for name, value in block.get(key, {}).items():
            if classify_name(name) != NO_CREDENTIAL and "${" not in value:
                instead = "${NAME} takes it from the environment."
                _print_note(f"the value of {name} is in the file as you typed it; {instead}")
    if block.get("trust") == "trusted" and spec.trust is ServerTrust.UNTRUSTED:
        _print_note("`trust: trusted` counts once the program itself is trusted: read it, then run `forge trust`.")
    if found := unseen_file(place, spec):
        word, zone = found
        unseen = f"'{one_line(word)}' is in zone '{zone}', which this server does not see"
        _print_note(f"{unseen}; add --zone {zone} so that the server sees it.")


def _print_note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _start_server(place: ServerInventory, spec: ServerSpec, directory: str, *, yes: bool) -> int:
    if spec.problem:
        return fail("mcp add", f"'{spec.name}' cannot be used: {spec.problem}", 1)
    answer = ask_to_start(place, spec, yes=yes)
    if answer is not Consent.YES:
        print(f"{spec.name} is pending: `forge mcp approve {spec.name}` lets it start.")
        return DENIED if answer is Consent.NO else 0
    try:
        found = connect(directory, spec.name)
    except NotConnected as refused:
        print_not_connected("mcp add", refused)
        again = f"`forge mcp test {spec.name}` tries again, `remove` takes it out."
        return fail("mcp add", f"it stays in {spec.origin}: {again}", 1)
    print_connected(place, spec, found)
    _print_who_sees_it(place, spec)
    return 0


def _print_who_sees_it(place: ServerInventory, spec: ServerSpec) -> None:
    """A worker sees the servers that its block names; one without the block would never find this one."""
    try:
        worker = load_roster(place.program).root
        seen = worker_blocks(worker).mcp
    except ConfigError:
        return  # whoever starts it is told why it cannot be
    if seen is None or ("*" not in seen.servers and spec.name not in seen.servers):
        block = f"toolsets: {{mcp: {{servers: [{spec.name}]}}}}"
        _print_note(f"the worker '{worker.name}' does not see it yet; write into its file: {block}")


_SERVER_OPTIONS: Final = (
    *("--env PAIR…", "--pass-env NAME…", "--zone ZONE…", "--network HOST…", "--header PAIR…", "--allow GLOB…"),
    *("--deny GLOB…", "--no-network", "--cwd ADDRESS", "--auth none|oauth", "--bearer-env NAME"),
    *("--trust untrusted|trusted", "--protocol auto|legacy", "--required"),
)
_STDIO: Final = ("env", "pass_env", "zone", "cwd", "network", "no_network")
_HTTP: Final = ("header", "auth", "bearer_env")


def server_block(asked: Namespace, url: str | None, command: Sequence[str]) -> dict[str, Any]:
    """Returns the block with its keys in the order people read them. Raises CommandUsageError."""
    if url is not None and command:
        raise CommandUsageError("a server has either a URL or a COMMAND, not both")
    if url is None and not command:
        raise CommandUsageError("name a URL, or write the command after `--`: forge mcp add NAME -- COMMAND ARGS…")
    if url is not None and "://" not in url:
        raise CommandUsageError(f"'{url}' is not a URL; a command goes after `--`: forge mcp add NAME -- {url} …")
    kind, others = ("a server with a URL", _STDIO) if url is not None else ("a server that is started", _HTTP)
    for name in others:
        if getattr(asked, name):
            raise CommandUsageError(f"--{name.replace('_', '-')} has no effect for {kind}")
    block = _http_block(asked, url) if url is not None else _stdio_block(asked, command)
    if asked.trust:
        block["trust"] = asked.trust
    if asked.required:
        block["required"] = True
    if asked.allow or asked.deny:
        block["tools"] = {key: getattr(asked, key) for key in ("allow", "deny") if getattr(asked, key)}
    if asked.protocol:
        block["protocol"] = asked.protocol
    return block


def _stdio_block(asked: Namespace, command: Sequence[str]) -> dict[str, Any]:
    if asked.network and asked.no_network:
        raise CommandUsageError("--network and --no-network exclude each other")
    block: dict[str, Any] = {"command": command[0]}
    if command[1:]:
        block["args"] = list(command[1:])
    if asked.env:
        block["env"] = _pairs("--env", asked.env, "=")
    if asked.pass_env:
        block["pass_env"] = asked.pass_env
    if asked.cwd:
        block["cwd"] = asked.cwd
    if asked.zone:
        block["zones"] = dict(map(_zone, asked.zone))
    if asked.network or asked.no_network:
        block["network"] = asked.network or False
    return block


def _http_block(asked: Namespace, url: str) -> dict[str, Any]:
    if asked.auth and asked.bearer_env:
        raise CommandUsageError("--auth and --bearer-env exclude each other")
    block: dict[str, Any] = {"url": url}
    if asked.header:
        block["headers"] = _pairs("--header", asked.header, "=:")
    if asked.bearer_env:
        block["auth"] = {"bearer_env": asked.bearer_env}
    elif asked.auth:
        block["auth"] = asked.auth
    return block


def _pairs(option: str, words: Iterable[str], signs: str) -> dict[str, str]:
    """`KEY=VALUE`; headers also the way they are on the wire, `KEY: VALUE`."""
    pairs: dict[str, str] = {}
    for word in words:
        place = min((found for sign in signs if (found := word.find(sign)) > 0), default=-1)
        if place < 0:
            raise CommandUsageError(f"{option} needs NAME=VALUE")  # the word may be a secret: it is not repeated
        name, value = word[:place].strip(), word[place + 1 :]
        if name in pairs:
            raise CommandUsageError(f"{option} {name} was given twice")
        pairs[name] = value.strip() if word[place] == ":" else value
    return pairs


def _zone(word: str) -> tuple[str, str]:
    name, colon, mode = word.partition(":")
    if colon and mode not in ("ro", "rw"):
        raise CommandUsageError(f"--zone {word}: write NAME, NAME:ro or NAME:rw")
    return name, mode or "ro"


REMOVE_HELP: Final = """usage: forge mcp remove NAME [--user] [-p DIR]

Takes an MCP server out of forge.yaml (comments stay) and forgets its approval, its pins and what it offered.

  --user             take it out of your own config.yaml
  -p, --program DIR  the program in that directory instead of this one

Forge does not change .mcp.json, because other products read it too. To drop a server of that file, remove it there
yourself, or write `enabled: false` for it in forge.yaml.
Exit: 0 done, 2 usage or configuration, 4 no such server."""


def run_remove(words: list[str]) -> int:
    asked = read_args("mcp remove", REMOVE_HELP, words, "NAME", "--user", "-p,--program DIR", program=".")
    place = read_inventory(asked.program)
    if named := place.editor_servers(asked.name):
        for each in named:
            place.book.forget(each.scope, each.name)
            place.cache.forget(each.scope, each.name)
            print(f"forgot {each.name} of {each.origin}; the editor still has it in its own settings")
        return 0
    spec = place.spec(asked.name)
    file = place.home.config if asked.user else place.program.root / PROGRAM_FILE
    try:
        remove_server(file, spec.name)
    except ConfigError as error:
        elsewhere = f" It is configured in {spec.origin}." if spec.origin else ""
        hint = f" Remove it there yourself: other products read {MCP_JSON} too." if spec.origin == MCP_JSON else ""
        return fail("mcp remove", f"{'; '.join(error.problems)}.{elsewhere}{hint}", 4)
    place.book.forget(spec.scope, spec.name)
    place.cache.forget(spec.scope, spec.name)
    print(f"removed {spec.name} from {display_path(file)}")
    return 0


APPROVE_HELP: Final = """usage: forge mcp approve NAME [TOOL] [--yes] [-p DIR]

Shows the command or URL of a server and what it may use, and after a change the difference. Then it asks.
It asks once more for each tool whose definition changed (`drift`), with the difference, and for each new tool.
With TOOL (the server's name for it, or the name callers use) it asks only about that tool.

  --yes              agree without a question
  -p, --program DIR  the program in that directory instead of this one

Your yes counts for this configuration and these definitions; Forge asks again after any change.
Exit: 0 agreed or nothing to agree to, 1 it cannot be approved, 2 usage or configuration, 3 not agreed,
4 no such server or tool."""


def run_approve(words: list[str]) -> int:
    asked = read_args("mcp approve", APPROVE_HELP, words, "NAME", "TOOL?", "--yes", "-p,--program DIR", program=".")
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
