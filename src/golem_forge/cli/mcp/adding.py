"""`forge mcp add NAME (URL | -- COMMAND ARGS…)`: writes the block, shows the card, asks, connects, shows the offer.

Whoever types the command still reads what the server would get before it is started. Refuses a name that is taken
anywhere, and zones that the program does not have; then nothing is written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.mcp.unseen import unseen_file
from golem_forge.cli.plain import complain, homely, one_line, parser

if TYPE_CHECKING:
    from golem_forge.config.mcp.spec import ServerSpec
    from golem_forge.workers.mcp.known import Place

HELP: Final = """usage: forge mcp add NAME URL [options]
       forge mcp add NAME [options] -- COMMAND ARGS…

Writes an MCP server into forge.yaml (comments stay), shows what it would get, asks, connects, and shows what it offers.

  --user                 into config.yaml of your own: a server for every program
  --yes                  agree to start it without being asked
  --trust trusted        its annotations and instructions count (default: untrusted)
  --allow GLOB           only these of its tools; --deny GLOB: not these (repeat for more)
  --required             a session that cannot connect to it does not start
  --protocol legacy      do not try the newer protocol first

a program, started inside walls:
  --zone NAME[:ro|rw]    a zone it may see (default ro; repeat for more); ${zone:NAME} in ARGS is where it stands there
  --cwd ADDRESS          where it starts, as /zone/path (default: its first zone, else a home of its own)
  --env NAME=VALUE       a fixed variable; --pass-env NAME: copied from the environment of forge (repeat for more)
  --network HOST[:PORT]  only these hosts (repeat for more); --no-network: none

a URL:
  --auth oauth           with a login: forge mcp login NAME
  --bearer-env NAME      with the token in that variable of the environment
  --header NAME=VALUE    a header of every request (repeat for more); ${NAME} is put in when it is sent

  -p, --program DIR      the program in that directory instead of this one

examples:
  forge mcp add time --no-network -- uvx mcp-server-time
  forge mcp add git --zone workspace:rw -- uvx mcp-server-git --repository '${zone:workspace}'
  forge mcp add docs https://docs.example/mcp --auth oauth

Without a terminal and without --yes it stays `pending`. `forge mcp remove NAME` takes it out again.
Exit: 0 done, 1 it was written but does not answer, 2 usage or configuration, 3 written, and you did not agree."""


def run_add(words: list[str]) -> int:
    from golem_forge.cli.mcp.words import WordsError, add_options, block_of

    cut = words.index("--") if "--" in words else len(words)
    reader = parser("mcp add", HELP)
    reader.add_argument("name", metavar="NAME")
    reader.add_argument("url", metavar="URL", nargs="?")
    reader.add_argument("--user", action="store_true")
    reader.add_argument("--yes", action="store_true")
    reader.add_argument("-p", "--program", default=".")
    add_options(reader)
    asked = reader.parse_args(words[:cut])
    try:
        block = block_of(asked, asked.url, words[cut + 1 :])
    except WordsError as error:
        complain("mcp add", f"{error}; `forge mcp add --help` says more.")
        return 2
    from golem_forge.workers.mcp.known import look

    place = look(asked.program)
    if refusal := _refusal(place, asked.name, block, user=asked.user):
        complain("mcp add", refusal)
        return 2
    place, spec = _written(place, asked.name, block, user=asked.user, directory=asked.program)
    _say_notes(place, spec, block)
    return _started(place, spec, asked.program, yes=asked.yes)


def _refusal(place: Place, name: str, block: Mapping[str, Any], *, user: bool) -> str:
    """Why nothing is written; empty if it may be."""
    from golem_forge.workers.surroundings import is_home_without_program

    if there := place.program.mcp.servers.get(name):
        return f"a server '{name}' is there already ({there.origin}); take another name, or remove it first."
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
    return ""


def _written(
    place: Place, name: str, block: Mapping[str, Any], *, user: bool, directory: str
) -> tuple[Place, ServerSpec]:
    """Raises ConfigError, and leaves no trace then."""
    from golem_forge.config.mcp.editing import add_server, remove_server
    from golem_forge.config.program import PROGRAM_FILE
    from golem_forge.core.errors import ConfigError
    from golem_forge.workers.mcp.known import look

    if user:
        place.home.ensure()
    file = place.home.config if user else place.program.root / PROGRAM_FILE
    was_there, was_trusted = os.path.lexists(file), place.program.trusted
    add_server(file, name, block)
    try:
        after = look(directory)
    except ConfigError:
        if was_there:
            remove_server(file, name)
        else:
            file.unlink(missing_ok=True)
        raise
    print(f"wrote {name} into {homely(file)}")
    if was_trusted and not after.program.trusted:
        print("forge: forge.yaml changed, so the program is not trusted any more: read it, then run `forge trust`.")
    return after, after.spec(name)


def _say_notes(place: Place, spec: ServerSpec, block: Mapping[str, Any]) -> None:
    from golem_forge.config.mcp.spec import Trust
    from golem_forge.events.credential_names import NOT, credential

    for key in ("env", "headers"):
        for name, value in block.get(key, {}).items():
            if credential(name) != NOT and "${" not in value:
                _note(f"the value of {name} is in the file as you typed it; ${{NAME}} takes it from the environment.")
    if block.get("trust") == "trusted" and spec.trust is Trust.UNTRUSTED:
        _note("`trust: trusted` counts once the program itself is trusted: read it, then run `forge trust`.")
    if found := unseen_file(place, spec):
        word, zone = found
        _note(f"'{one_line(word)}' is in zone '{zone}', which this server does not see; --zone {zone} gives it to it.")


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _started(place: Place, spec: ServerSpec, directory: str, *, yes: bool) -> int:
    from golem_forge.cli.mcp.connecting import tell_failure, tell_success
    from golem_forge.cli.mcp.connection import NotConnected, connected
    from golem_forge.cli.mcp.consent import DENIED, Answer, agree_to_start

    if spec.problem:
        complain("mcp add", f"'{spec.name}' cannot be used as it is written: {spec.problem}")
        return 1
    answer = agree_to_start(place, spec, yes=yes)
    if answer is not Answer.YES:
        print(f"{spec.name} is pending: `forge mcp approve {spec.name}` lets it start.")
        return DENIED if answer is Answer.NO else 0
    try:
        found = connected(directory, spec.name)
    except NotConnected as refused:
        tell_failure("mcp add", refused)
        complain(
            "mcp add", f"it stays in {spec.origin}: `forge mcp test {spec.name}` tries again, `remove` takes it out."
        )
        return 1
    tell_success(place, spec, found)
    _say_who_sees_it(place, spec)
    return 0


def _say_who_sees_it(place: Place, spec: ServerSpec) -> None:
    """A worker sees the servers that its block names; one without the block would never find this one."""
    from golem_forge.core.errors import ConfigError
    from golem_forge.workers.roster import load_roster
    from golem_forge.workers.toolset_blocks import worker_blocks

    try:
        worker = load_roster(place.program).root
        seen = worker_blocks(worker).mcp
    except ConfigError:
        return  # whoever starts it is told why it cannot be
    if seen is None or ("*" not in seen.servers and spec.name not in seen.servers):
        block = f"toolsets: {{mcp: {{servers: [{spec.name}]}}}}"
        _note(f"the worker '{worker.name}' does not see it yet; write into its file: {block}")
