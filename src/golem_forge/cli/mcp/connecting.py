"""`forge mcp test NAME` and `reconnect NAME`: an approved server is started, asked itself, and ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.mcp.unseen import unseen_file
from golem_forge.cli.plain import complain, one_line, parser, print_json

if TYPE_CHECKING:
    from golem_forge.cli.mcp.connection import Connected, NotConnected
    from golem_forge.config.mcp.spec import ServerSpec
    from golem_forge.workers.mcp.known import Place

TEST_HELP: Final = """usage: forge mcp test NAME [--json] [-p DIR]

Connects to one MCP server (starts it, inside its walls), lists what it offers, says how long that took, and ends it.

  --json             for programs: {server, ok, milliseconds, protocol, info, tools, held, error, stderr}
  -p, --program DIR  the program in that directory instead of this one

Exit: 0 it answers, 1 it does not: what its state says and the last lines of its stderr, 2 usage or configuration,
3 it is not approved, 4 no such server."""
RECONNECT_HELP: Final = """usage: forge mcp reconnect NAME [-p DIR]

Connects to one MCP server anew, whatever was known of it, keeps what it offers now, shows it, and ends the server. In
a running session `/mcp reconnect NAME` does that for the session's own connection.

  -p, --program DIR  the program in that directory instead of this one

Exit: 0 done, 1 it does not answer, 2 usage or configuration, 3 it is not approved, 4 no such server."""


def run_test(words: list[str]) -> int:
    reader = parser("mcp test", TEST_HELP)
    reader.add_argument("name", metavar="NAME")
    reader.add_argument("--json", action="store_true")
    reader.add_argument("-p", "--program", default=".")
    asked = reader.parse_args(words)
    return _connect("test", asked.program, asked.name, as_json=asked.json)


def run_reconnect(words: list[str]) -> int:
    reader = parser("mcp reconnect", RECONNECT_HELP)
    reader.add_argument("name", metavar="NAME")
    reader.add_argument("-p", "--program", default=".")
    asked = reader.parse_args(words)
    return _connect("reconnect", asked.program, asked.name, as_json=False)


def _connect(verb: str, directory: str, name: str, *, as_json: bool) -> int:
    from golem_forge.cli.mcp.connection import NotConnected, connected
    from golem_forge.cli.mcp.consent import DENIED
    from golem_forge.workers.mcp.known import look

    place = look(directory)
    spec = place.spec(name)
    try:
        found = connected(directory, name)
    except NotConnected as refused:
        if as_json:
            print_json({"server": name, "ok": False, "error": refused.text, "stderr": list(refused.stderr)})
        else:
            tell_failure(f"mcp {verb}", refused)
            _tell_unseen(place, spec)
        usable = spec.enabled and not spec.problem
        return DENIED if usable and not place.book.approved(spec) else 1
    if as_json:
        print_json(_facts(spec, found))
    else:
        tell_success(place, spec, found)
    return 0


def tell_success(place: Place, spec: ServerSpec, found: Connected) -> None:
    """How long it took and what it offers."""
    from golem_forge.cli.mcp.telling import introduction, print_offer
    from golem_forge.workers.mcp.known import names_of

    others = [each.listing for each in place.all() if each.spec.name != spec.name]
    print(f"{spec.name}: answers after {found.milliseconds} ms ({introduction(found.manifest)})")
    print_offer(spec, found.manifest, found.listing, names_of([*others, found.listing]))


def tell_failure(verb: str, refused: NotConnected) -> None:
    complain(verb, refused.text)
    if refused.stderr:
        print("the last lines of its stderr:", file=sys.stderr)
        for line in refused.stderr:
            print(f"  {one_line(line)}", file=sys.stderr)


def _tell_unseen(place: Place, spec: ServerSpec) -> None:
    """The likeliest reason of a program that finds its own file missing."""
    if place.book.approved(spec) and (found := unseen_file(place, spec)):
        word, zone = found
        print(
            f"note: '{one_line(word)}' is in zone '{zone}', which this server does not see; "
            f"`zones: {{{zone}: ro}}` under mcp.servers.{spec.name} of forge.yaml gives it to it.",
            file=sys.stderr,
        )


def _facts(spec: ServerSpec, found: Connected) -> dict[str, Any]:
    from golem_forge.mcp.client.tool import is_offered

    return {
        "server": spec.name,
        "ok": True,
        "milliseconds": found.milliseconds,
        "protocol": found.manifest.protocol,
        "info": dict(found.manifest.info),
        "tools": sum(is_offered(spec, tool.name) for tool in found.listing.tools),
        "held": len(found.listing.held),
    }
