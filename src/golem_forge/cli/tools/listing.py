"""`forge tools list` and `search QUERY`: the tools there are, without opening a session or running anything."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.plain import columns, complain, parser, print_json, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from golem_forge.cli.tools.seen import Seen
    from golem_forge.tools.catalog import Catalog, Quarantined
    from golem_forge.tools.tool import Tool

LIST_HELP: Final = """usage: forge tools list [--source native|custom|mcp] [--mode llm|manual|both] [--json]

Name, source, mode (who may call it) and first line of every tool; then your tool folders that are skipped, each with
the reason. Tools of MCP servers are those that the servers had when they were last asked; those of a program's own code
are told by name, as its worker file has them.

  --json    for programs

Nothing is run and no session is opened.
Exit: 0 done, 2 usage or configuration, 4 no such tool."""
SEARCH_HELP: Final = """usage: forge tools search QUERY… [--limit N] [--json]

The tools that fit the words best, best first.

  --json    for programs

Nothing is run and no session is opened.
Exit: 0 done, 2 usage or configuration, 4 no such tool."""

OF_THE_WORKER: Final = "the worker of this program has a choice of its own: `forge run --dry-run` shows it."
_SOURCES: Final = ("native", "custom", "mcp")
_MODES: Final = ("llm", "manual", "both")
_CUSTOM: Final = "custom"
_MCP: Final = "mcp"
_DESCRIPTION_WIDTH: Final = 100
_REASON_WIDTH: Final = 300


def run_list(words: list[str]) -> int:
    reader = parser("tools list", LIST_HELP)
    reader.add_argument("--json", action="store_true")
    reader.add_argument("--source", choices=_SOURCES)
    reader.add_argument("--mode", choices=_MODES)
    asked = reader.parse_args(words)
    from golem_forge.cli.tools.seen import look_around

    seen = look_around()
    complain_unread(seen)
    tools = seen.catalog.list(source=asked.source, mode=asked.mode)
    skipped = seen.skipped if asked.source in (None, _CUSTOM) else ()
    quarantined = [each for each in not_offered(seen) if asked.source in (None, str(each.source))]
    if asked.json:
        print_json(
            {
                "tools": [facts(seen.catalog, tool) for tool in tools],
                "skipped": [each.to_json() for each in skipped],
                "quarantined": [
                    {"name": each.name, "source": str(each.source), "reason": each.reason} for each in quarantined
                ],
                "program": [each._asdict() for each in seen.of_program],
            }
        )
        return 0
    if tools:
        print(_table(tools))
    elif not skipped and not quarantined:
        complain("tools", "no tool fits. `forge tools list` without options lists all of them.")
    if seen.of_program and asked.source in (None, _CUSTOM):
        print("\nof this program's worker (`forge tools show NAME` says more):")
        print(columns(seen.of_program, indent="  "))
    if quarantined:
        print("\nnot offered:" if any(each.source == _MCP for each in quarantined) else "\nnot offered until repaired:")
        print(columns(((each.name, str(each.source), each.reason) for each in quarantined), indent="  "))
    if skipped:
        print("\nskipped:" if tools or quarantined else "skipped:")
        rows = ((each.tool, each.code.value, shortened(_first(each.message), _REASON_WIDTH)) for each in skipped)
        print(columns(rows, indent="  "))
    if seen.has_entry:
        print(f"note: {OF_THE_WORKER}", file=sys.stderr)
    return 0


def run_search(words: list[str]) -> int:
    reader = parser("tools search", SEARCH_HELP)
    reader.add_argument("--json", action="store_true")
    reader.add_argument("query", metavar="QUERY", nargs="+")
    reader.add_argument("--limit", type=_positive, default=10)
    asked = reader.parse_args(words)
    from golem_forge.cli.tools.seen import look_around

    seen = look_around()
    complain_unread(seen)
    catalog = seen.catalog
    found = catalog.find(" ".join(asked.query), limit=asked.limit)
    if asked.json:
        print_json({"tools": [facts(catalog, tool) for tool in found.tools], "total": found.total})
    elif found.tools:
        print(_table(found.tools))
        if found.total > len(found.tools):
            print(f"… and {found.total - len(found.tools)} more; --limit shows them")
    else:
        complain("tools", "nothing fits. Try fewer or other words, or `forge tools list`.")
    return 0


def facts(catalog: Catalog, tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "source": tool.source.value,
        "mode": tool.mode.value,
        "label": tool.label,
        "category": tool.category,
        "description": tool.description,
        "aliases": [alias for alias, name in catalog.aliases().items() if name == tool.name],
    }


def complain_unread(seen: Seen) -> None:
    """What is shown is not all there is, and why."""
    for problem in seen.unread:
        complain("tools", f"tools of MCP servers are left out: {problem}")


def not_offered(seen: Seen) -> list[Quarantined]:
    """Tools whose definition is unusable; folders that are skipped say so with their own code."""
    folders = {each.tool for each in seen.skipped}
    return [each for each in seen.catalog.quarantined() if each.name not in folders]


def _positive(text: str) -> int:
    from argparse import ArgumentTypeError

    with contextlib.suppress(ValueError):
        if (number := int(text)) > 0:
            return number
    raise ArgumentTypeError(f"invalid _positive value: {text!r}")


def _table(tools: Iterable[Tool]) -> str:
    head = ("NAME", "SOURCE", "MODE", "DESCRIPTION")
    rows = ((tool.name, tool.source.value, tool.mode.value, _first(tool.description)) for tool in tools)
    return columns([head, *((*row[:3], shortened(row[3], _DESCRIPTION_WIDTH)) for row in rows)])


def _first(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""
