"""`forge mcp show NAME`: one server, whole, as it is known without starting it. Values that may be secrets stay out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import complain, one_line, parser, print_json, shortened
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.mcp.client.definitions.names import Identity
    from golem_forge.workers.mcp.known import Known

HELP: Final = """usage: forge mcp show NAME [--json] [-p DIR]

One MCP server: its configuration, its state, the negotiated protocol version, its tools under the name callers use and
under its own, whether each is pinned or new; what is held back, with the reason and, for `drift`, what changed.

  --json             for programs: what `list --json` has, and {config, configDiff, server, listedAt, instructions,
                     tools: [{name, tool, title, description, pin, offered, digest, annotations}],
                     held: [{name, tool, reason, message, diff}], prompts, resources, diagnostics}
  -p, --program DIR  the program in that directory instead of this one

Nothing is started: `forge mcp test NAME` asks the server itself. Values of variables and headers are never shown.
Exit: 0 done, 2 usage or configuration, 4 no such server."""

_INSTRUCTIONS_WIDTH: Final = 2048


def run_show(words: list[str]) -> int:
    reader = parser("mcp show", HELP)
    reader.add_argument("name", metavar="NAME")
    reader.add_argument("--json", action="store_true")
    reader.add_argument("-p", "--program", default=".")
    asked = reader.parse_args(words)
    from golem_forge.workers.mcp.known import look, names_of
    from golem_forge.workers.mcp.server_facts import whole_facts

    place = look(asked.program)
    known = place.known(asked.name)
    names = names_of(each.listing for each in place.all())
    if asked.json:
        print_json(whole_facts(known, names))
    else:
        _print(known, names)
        if place.book.problem:
            complain("mcp", place.book.problem)
    return 0


def _print(known: Known, names: Mapping[Identity, str]) -> None:
    from golem_forge.cli.mcp.telling import introduction, print_offer
    from golem_forge.events.clock import iso
    from golem_forge.mcp.client.trust.trust_book import server_card

    spec, manifest = known.spec, known.manifest
    print(visible(server_card(spec)))
    print(f"trust: {spec.trust.value}")
    print(f"approved: {'yes' if known.approved else 'no'}")
    if known.config_diff:
        print(f"changed since it was approved:\n{visible(known.config_diff)}")
    print(one_line(f"state: {known.state.value}{f' ({known.error})' if known.error else ''}"))
    if manifest is None or known.listing is None:
        return
    print(f"listed: {iso(manifest.fetched_at)}")
    print(f"server: {introduction(manifest)}")
    if manifest.instructions:
        print(one_line(f"instructions: {shortened(manifest.instructions, _INSTRUCTIONS_WIDTH)}"))
    print_offer(spec, manifest, known.listing, names)
