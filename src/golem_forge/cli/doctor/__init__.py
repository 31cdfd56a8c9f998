"""`forge doctor`: what works here, and what to do about the rest. Opens no session and changes nothing."""

from __future__ import annotations

from typing import Final

from golem_forge.cli.plain import columns, parser, print_json

HELP: Final = """usage: forge doctor [--json]

Looks at the version, FORGE_HOME, the program around this directory and its trust, the zones, the rules, the journal,
the tools, the MCP servers, and the optional parts. Each line is ok, a note, or a PROBLEM with what to do about it.

Exit: 0 everything that is needed works, 1 something does not, 2 usage."""


def run(words: list[str]) -> int:
    reader = parser("doctor", HELP)
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    from golem_forge.cli.doctor.findings import State
    from golem_forge.cli.doctor.looking import examine

    found = examine()
    healthy = all(each.state is not State.PROBLEM for each in found)
    if asked.json:
        print_json({"ok": healthy, "findings": [each.to_json() for each in found]})
    else:
        print(columns(line for each in found for line in each.lines()))
        print("\nEverything that is needed works." if healthy else "\nSomething that is needed does not work.")
    return 0 if healthy else 1
