"""`/tools`, `/tool NAME …`, `/t NAME …`: what a person can run, and running it."""

from __future__ import annotations

from typing import Final

from golem_forge.core.slash import slash
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.workers.slash.host import Invocation
from golem_forge.workers.slash.manual import manual_tools
from golem_forge.workers.slash.running import run_tool
from golem_forge.workers.slash.table import columns
from golem_forge.workers.slash.tokens import CommandError

_OTHER: Final = "Other"
_SHORT: Final = 64
_NOT_OWN: Final = {SourceKind.NATIVE: "Forge's own", SourceKind.MCP: "MCP"}


async def list_tools(call: Invocation) -> str:
    """By category, the person's own first; then what cannot be offered, with the reason."""
    catalog = call.host.path.catalog
    groups: dict[str, list[Tool]] = {}
    for tool in manual_tools(catalog):
        groups.setdefault(_heading(tool), []).append(tool)
    own_last = sorted(groups, key=lambda heading: heading == _OTHER) if groups else []
    first = [heading for heading in own_last if not _is_forges(groups[heading])]
    parts = [
        f"{heading}\n" + columns(((slash(tool.name), in_short(tool)) for tool in groups[heading]), indent="  ")
        for heading in [*first, *(heading for heading in own_last if heading not in first)]
    ]
    if kept_out := catalog.quarantined():
        parts.append("Not offered\n" + columns(((each.name, each.reason) for each in kept_out), indent="  "))
    return "\n".join(parts) or "There is no tool that a person can run here."


async def run_named(call: Invocation) -> str:
    if not call.parsed.tokens:
        raise CommandError("Which tool? /tool NAME [--option value …]; /tools lists them")
    name, *rest = call.parsed.tokens
    if await run_tool(call.host, name.text, rest) is None:
        return "Nothing was run."
    return ""  # its result was shown as every result is


def _heading(tool: Tool) -> str:
    if tool.source in _NOT_OWN:
        return f"{_NOT_OWN[tool.source]}: {tool.category or _OTHER}"
    # Threat: a category that would put a stranger's tool among Forge's own.
    taken = any(tool.category.casefold().startswith(word.casefold()) for word in _NOT_OWN.values())
    return _OTHER if taken or not tool.category else tool.category


def _is_forges(tools: list[Tool]) -> bool:
    return tools[0].source in _NOT_OWN


def in_short(tool: Tool) -> str:
    """The first sentence of its description, as far as it fits beside a name."""
    lines = tool.description.strip().splitlines() or [""]
    sentence = lines[0].split(": ")[0].split(". ")[0].rstrip(".")
    return sentence if len(sentence) <= _SHORT else f"{sentence[: _SHORT - 1].rstrip()}…"
