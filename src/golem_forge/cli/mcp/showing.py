"""`forge mcp show NAME`: one server, whole, as it is known without starting it. Values that may be secrets stay out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.plain import complain, one_line, parser, print_json, shortened
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.cli.mcp.known import Known
    from golem_forge.config.mcp.spec import ServerSpec
    from golem_forge.mcp.client.definitions.names import Identity

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
_WITH_VALUES: Final = ("env", "headers")


def run_show(words: list[str]) -> int:
    reader = parser("mcp show", HELP)
    reader.add_argument("name", metavar="NAME")
    reader.add_argument("--json", action="store_true")
    reader.add_argument("-p", "--program", default=".")
    asked = reader.parse_args(words)
    from golem_forge.cli.mcp.known import look, names_of

    place = look(asked.program)
    known = place.known(asked.name)
    names = names_of(each.listing for each in place.all())
    if asked.json:
        print_json(_facts(known, names))
    else:
        _print(known, names)
        if place.book.problem:
            complain("mcp", place.book.problem)
    return 0


def _facts(known: Known, names: Mapping[Identity, str]) -> dict[str, Any]:
    from golem_forge.cli.mcp.listing import facts
    from golem_forge.cli.mcp.telling import held_json, prompt_names, tools_json
    from golem_forge.events.clock import iso

    spec, manifest, listing = known.spec, known.manifest, known.listing
    return facts(known) | {
        "config": config_shown(spec),
        "configDiff": known.config_diff or None,
        "server": dict(manifest.info) if manifest is not None else None,
        "listedAt": iso(manifest.fetched_at) if manifest is not None else None,
        "instructions": manifest.instructions if manifest is not None else None,
        "tools": tools_json(spec, listing.tools, names) if listing is not None else None,
        "held": held_json(listing.held, names) if listing is not None else [],
        "prompts": prompt_names(manifest) if manifest is not None else None,
        "resources": manifest.has_resources if manifest is not None else None,
        "diagnostics": list(listing.diagnostics) if listing is not None else [],
    }


def config_shown(spec: ServerSpec) -> dict[str, Any]:
    """What is agreed to when it is approved. A value of a variable or header that is more than `${NAME}` is null."""
    from golem_forge.mcp.client.trust.server_card import agreed

    described = agreed(spec.described)
    for key in _WITH_VALUES:
        if key in described:
            described[key] = {name: value if isinstance(value, str) else None for name, value in described[key].items()}
    return described


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
