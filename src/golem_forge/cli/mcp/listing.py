"""`forge mcp list`: the servers there are, each with its state. Nothing is started and nothing of the SDK is loaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import columns, complain, one_line, parser, print_json, shortened

if TYPE_CHECKING:
    from golem_forge.workers.mcp.known import Known

HELP: Final = """usage: forge mcp list [--json] [-p DIR]

Every configured MCP server: its state, how many tools it offers, where it is configured. Servers come from forge.yaml
and .mcp.json of the program, and from config.yaml of your own.

  --json             for programs: {servers: [{name, state, error, transport, origin, approved, trust, required,
                     tools, held, protocol}], warnings, problem}; `tools` is null where it was not asked yet
  -p, --program DIR  the program in that directory instead of this one

States: disabled (switched off), pending (waits for your approval), known (not running; what it offers was kept when it
was last asked), failed (cannot be used as configured). Nothing is started.
Exit: 0 done, 2 usage or configuration."""

_ERROR_WIDTH: Final = 200


def run_list(words: list[str]) -> int:
    reader = parser("mcp list", HELP)
    reader.add_argument("--json", action="store_true")
    reader.add_argument("-p", "--program", default=".")
    asked = reader.parse_args(words)
    from golem_forge.workers.mcp.known import look
    from golem_forge.workers.mcp.server_facts import facts

    place = look(asked.program)
    found = place.all()
    problem, warnings = place.book.problem, place.program.mcp.warnings
    if asked.json:
        print_json({"servers": [facts(each) for each in found], "warnings": list(warnings), "problem": problem or None})
        return 0
    if found:
        rows = [(each.spec.name, each.state.value, *_numbers(each), each.spec.origin, _note(each)) for each in found]
        print(columns([("NAME", "STATE", "TOOLS", "HELD", "FROM", "NOTE"), *rows]))
    else:
        complain("mcp", "no MCP server is configured here. `forge mcp add --help` says how to add one.")
    for warning in warnings:
        print(f"warning: {one_line(warning)}", file=sys.stderr)
    if problem:
        complain("mcp", problem)
    return 0


def _numbers(known: Known) -> tuple[str, str]:
    if known.listing is None or known.offered is None:
        return "-", "-"
    return str(known.offered), str(len(known.listing.held))


def _note(known: Known) -> str:
    if not known.error and known.listing is not None and known.listing.held:
        return f"tools are held back; run: forge mcp show {known.spec.name}"
    return shortened(known.error, _ERROR_WIDTH)
