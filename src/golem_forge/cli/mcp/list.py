"""`forge mcp list` and `forge mcp show NAME`: the configured servers with their state, and one server in full.

Nothing is started and nothing of the SDK is loaded. Values that may be secrets are not shown.

Threat: every name and description is a server's own text; nothing of it can steer a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from golem_forge.agent.mcp_status import (
    EditorServer,
    KnownServer,
    offered_names,
    prompt_names,
    read_inventory,
    server_details,
    server_summary,
)
from golem_forge.cli.args import read_args
from golem_forge.cli.format import print_error, print_json
from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.text import columns, escape_control_chars, one_line, shorten, shorten_prose
from golem_forge.events.serialization import iso_time
from golem_forge.mcp.client.approval_text import server_card
from golem_forge.mcp.client.model import Identity, RemoteTool, ServerManifest, ServerToolList
from golem_forge.mcp.client.tool_source import is_offered

LIST_HELP: Final = """usage: forge mcp list [--json] [-p DIR]

Every configured MCP server: its state, how many tools it offers, where it is configured. Servers come from forge.yaml
and .mcp.json of the program, and from your own config.yaml. Those that an editor named for its sessions stand at the
end.

  --json             for programs: {servers: [{name, state, error, transport, origin, approved, trust, required,
                     tools, held, protocol}], warnings, problem}; `tools` is null until Forge has asked the server
  -p, --program DIR  the program in that directory instead of this one

States: disabled (switched off), pending (waits for your approval, or has not answered yet), known (not running;
Forge remembers what it offered), failed (its configuration cannot be used). The command starts nothing.
Exit: 0 done, 2 usage or configuration."""

_ERROR_WIDTH: Final = 200


def run_list(words: list[str]) -> int:
    asked = read_args("mcp list", LIST_HELP, words, "--json", "-p,--program DIR", program=".")
    place = read_inventory(asked.program)
    found, named = place.all(), place.named_by_editors()
    problem, warnings = place.book.problem, place.program.mcp.warnings
    if asked.json:
        servers = [*map(server_summary, found), *(each.summary() for each in named)]
        print_json({"servers": servers, "warnings": list(warnings), "problem": problem or None})
        return 0
    if found or named:
        rows = [*map(_server_row, found), *map(_editor_row, named)]
        print(columns([("NAME", "STATE", "TOOLS", "HELD", "FROM", "NOTE"), *rows]))
    else:
        print_error("mcp", "no MCP server is configured here. `forge mcp add --help` says how to add one.")
    for warning in warnings:
        print(f"warning: {one_line(warning)}", file=sys.stderr)
    if problem:
        print_error("mcp", problem)
    return 0


def _server_row(known: KnownServer) -> tuple[str, ...]:
    name, listing, offered, held = known.spec.name, known.listing, "-", "-"
    if listing is not None and known.offered is not None:
        offered, held = str(known.offered), str(len(listing.held))
    note = shorten_prose(known.error, _ERROR_WIDTH)
    if not known.error and listing is not None and listing.held:
        note = f"tools are held back; run: forge mcp show {name}"
    return name, known.state.value, offered, held, known.spec.origin, note


def _editor_row(server: EditorServer) -> tuple[str, ...]:
    return server.name, server.state.value, "-", "-", server.origin, server.note


SHOW_HELP: Final = """usage: forge mcp show NAME [--json] [-p DIR]

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
    asked = read_args("mcp show", SHOW_HELP, words, "NAME", "--json", "-p,--program DIR", program=".")
    place = read_inventory(asked.program)
    if named := place.editor_servers(asked.name):
        for each in named:
            _print_editor_server(each, as_json=asked.json)
        return 0
    known = place.known(asked.name)
    names = offered_names(each.listing for each in place.all())
    if asked.json:
        print_json(server_details(known, names))
    else:
        _print_server(known, names)
        if place.book.problem:
            print_error("mcp", place.book.problem)
    return 0


def _print_editor_server(server: EditorServer, *, as_json: bool) -> None:
    if as_json:
        print_json(server.summary() | {"config": dict(server.named.described), "configDiff": server.diff or None})
        return
    print(escape_control_chars(server.card))
    print(f"approved: {'yes' if server.approved else 'no'}")
    if server.diff:
        print(f"changed since it was approved:\n{escape_control_chars(server.diff)}")
    print(one_line(f"state: {server.state.value} ({server.note})"))


def _print_server(known: KnownServer, names: Mapping[Identity, str]) -> None:
    spec, manifest = known.spec, known.manifest
    print(escape_control_chars(server_card(spec)))
    print(f"trust: {spec.trust.value}")
    print(f"approved: {'yes' if known.approved else 'no'}")
    if known.config_diff:
        print(f"changed since it was approved:\n{escape_control_chars(known.config_diff)}")
    print(one_line(f"state: {known.state.value}{f' ({known.error})' if known.error else ''}"))
    if manifest is None or known.listing is None:
        return
    print(f"listed: {iso_time(manifest.fetched_at)}")
    print(f"server: {introduction(manifest)}")
    if manifest.instructions:
        print(one_line(f"instructions: {shorten_prose(manifest.instructions, _INSTRUCTIONS_WIDTH)}"))
    print_offer(spec, manifest, known.listing, names)


_DESCRIPTION_WIDTH: Final = 80
_MOST_NAMES: Final = 20
NOT_OFFERED: Final = "not offered"


def introduction(manifest: ServerManifest) -> str:
    """`echo 1, protocol 2025-11-25`, in the server's own words."""
    own = " ".join(str(manifest.info[key]) for key in ("name", "version") if manifest.info.get(key))
    return one_line(shorten(", ".join(part for part in (own, f"protocol {manifest.protocol}") if part), 200))


def tool_row(spec: ServerSpec, tool: RemoteTool, name: str) -> tuple[str, str, str, str]:
    """NAME, RAW, PIN, DESCRIPTION"""
    pin = tool.familiarity.value if is_offered(spec, tool.name) else NOT_OFFERED
    return name, tool.name, pin, shorten_prose(_first_line(tool.description), _DESCRIPTION_WIDTH)


def print_offer(
    spec: ServerSpec, manifest: ServerManifest, listing: ServerToolList, names: Mapping[Identity, str]
) -> None:
    print_tools(spec, listing, names)
    print(f"prompts: {_prompts(manifest)}")
    print(f"resources: {'yes' if manifest.has_resources else 'none'}")
    for text in listing.diagnostics:
        print(one_line(f"note: {text}"))


def print_tools(spec: ServerSpec, listing: ServerToolList, names: Mapping[Identity, str]) -> None:
    rows = [tool_row(spec, tool, names[tool.identity]) for tool in listing.tools]
    print(f"tools: {len(rows) or 'none'}")
    if rows:
        print(columns([("NAME", "RAW", "PIN", "DESCRIPTION"), *rows], indent="  "))
    if listing.held:
        print(f"held back: {len(listing.held)}")
        for held in listing.held:
            print(f"  {one_line(held.name)}  {held.reason.value}: {one_line(held.message)}")
            for line in held.diff.splitlines():
                print(f"    {escape_control_chars(line)}")


def _prompts(manifest: ServerManifest) -> str:
    names = prompt_names(manifest)
    if not names:
        return "none"
    shown = ", ".join(shorten(name, 60) for name in names[:_MOST_NAMES])
    more = f" … and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return one_line(f"{len(names)}: {shown}{more}")


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""
