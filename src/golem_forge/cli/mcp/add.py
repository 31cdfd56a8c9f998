"""`forge mcp add NAME (URL | -- COMMAND ARGS…)` and `forge mcp remove NAME`: edit a server's block in forge.yaml.

`add` writes the block, shows the card, asks, connects and prints what the server offers. It refuses a name that is
taken anywhere, and zones that the program does not have or cannot use; then nothing is written. Arguments raise
CommandUsageError for what a file cannot say: both transports, an option of the other transport, `KEY=VALUE` without
`=`. `remove` takes the block out and forgets approval, pins and cached manifest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.files.roster import load_roster
from golem_forge.agent.files.toolset_blocks import worker_blocks
from golem_forge.agent.mcp_status import ServerInventory, read_inventory
from golem_forge.agent.worker_zones import is_home_without_program, zone_problems
from golem_forge.cli.args import DENIED, CommandUsageError, read_args
from golem_forge.cli.format import fail
from golem_forge.cli.mcp.approve import Consent, ask_to_start
from golem_forge.cli.mcp.list import NotConnected, connect, print_connected, print_not_connected, unseen_file
from golem_forge.config.mcp_blocks import MCP_JSON
from golem_forge.config.mcp_merge import add_server, remove_server
from golem_forge.config.mcp_spec import ServerSpec, ServerTrust
from golem_forge.config.program import PROGRAM_FILE
from golem_forge.core.errors import ConfigError
from golem_forge.core.text import display_path, one_line
from golem_forge.events.redaction import NO_CREDENTIAL, classify_name

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
