"""What a server offers, as text: its tools under both names, what is held back and why, the rest counted.

Threat: every name and description here is a server's own words; nothing of it can steer a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import columns, one_line, shortened
from golem_forge.core.visible import visible
from golem_forge.mcp.client.tool import is_offered

if TYPE_CHECKING:
    from golem_forge.config.mcp.spec import ServerSpec
    from golem_forge.mcp.client.definitions.definition import Listing, RemoteTool
    from golem_forge.mcp.client.definitions.manifest import Manifest
    from golem_forge.mcp.client.definitions.names import Identity

_DESCRIPTION_WIDTH: Final = 80
_MOST_NAMES: Final = 20
NOT_OFFERED: Final = "not offered"


def introduction(manifest: Manifest) -> str:
    """`echo 1, protocol 2025-11-25`, in the server's own words."""
    own = " ".join(str(manifest.info[key]) for key in ("name", "version") if manifest.info.get(key))
    return one_line(shortened(", ".join(part for part in (own, f"protocol {manifest.protocol}") if part), 200))


def tool_rows(spec: ServerSpec, listing: Listing, names: Mapping[Identity, str]) -> list[tuple[str, str, str, str]]:
    """NAME, RAW, PIN, DESCRIPTION"""
    return [
        (names[tool.identity], tool.name, standing(spec, tool), shortened(_first(tool.description), _DESCRIPTION_WIDTH))
        for tool in listing.tools
    ]


def standing(spec: ServerSpec, tool: RemoteTool) -> str:
    """`pinned`, `new`, or that the config keeps it away."""
    return tool.familiarity.value if is_offered(spec, tool.name) else NOT_OFFERED


def print_offer(spec: ServerSpec, manifest: Manifest, listing: Listing, names: Mapping[Identity, str]) -> None:
    print_tools(spec, listing, names)
    for label, words in (("prompts", _prompts(manifest)), ("resources", "yes" if manifest.has_resources else "none")):
        print(f"{label}: {words}")
    for text in listing.diagnostics:
        print(one_line(f"note: {text}"))


def print_tools(spec: ServerSpec, listing: Listing, names: Mapping[Identity, str]) -> None:
    rows = tool_rows(spec, listing, names)
    print(f"tools: {len(rows) or 'none'}")
    if rows:
        print(columns([("NAME", "RAW", "PIN", "DESCRIPTION"), *rows], indent="  "))
    if listing.held:
        print(f"held back: {len(listing.held)}")
        for held in listing.held:
            print(f"  {one_line(held.name)}  {held.reason.value}: {one_line(held.message)}")
            for line in held.diff.splitlines():
                print(f"    {visible(line)}")


def _prompts(manifest: Manifest) -> str:
    from golem_forge.workers.mcp.server_facts import prompt_names

    names = prompt_names(manifest)
    if not names:
        return "none"
    shown = ", ".join(shortened(name, 60) for name in names[:_MOST_NAMES])
    more = f" … and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return one_line(f"{len(names)}: {shown}{more}")


def _first(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""
