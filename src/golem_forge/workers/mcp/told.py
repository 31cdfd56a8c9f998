"""A worker and its MCP servers: putting it in touch with them, and keeping its catalog in step.

Small on purpose: what talks to servers is loaded where a worker's file, or a person's config, names one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.policy.base import ApprovalBlock, check_block
from golem_forge.tools.tool import SourceKind
from golem_forge.workers.blocks import McpBlock
from golem_forge.workers.station import Station
from golem_forge.workers.toolset_blocks import check_servers

if TYPE_CHECKING:
    from golem_forge.mcp.client.offering import ServerTools
    from golem_forge.workers.mcp.servers import SessionServers


def servers_for(station: Station, block: McpBlock) -> SessionServers:
    """The session's servers, those of them that the block names put before this worker. Raises ConfigError."""
    from golem_forge.workers.mcp.servers import servers_of

    if problems := check_servers(block, station.tree.program):
        raise ConfigError(*problems)
    servers = servers_of(station.tree)
    station.server_tools = servers.tools_for(station, block.servers)
    station.path.look_for = partial(ask_its_server, station)
    return servers


def look_at_servers(station: Station) -> None:
    """Cheap where nothing changed; a worker without servers has nothing to look at."""
    if station.server_tools is None:
        return
    if (news := station.server_tools.refresh()) is not None:
        station.emit(
            "catalogChanged",
            {
                "added": list(news.added),
                "changed": list(news.changed),
                "removed": list(news.removed),
                "diagnostics": list(news.diagnostics),
            },
        )
    _check_names(station, station.server_tools)


def in_step_with_servers(station: Station) -> bool:
    """Asked where `SessionServers.refresh` has just found nothing new: whether this catalog has all that is older."""
    return station.server_tools is not None and station.server_tools.in_step


def _check_names(station: Station, tools: ServerTools) -> None:
    """A name that forge.yaml speaks of and its server does not have is told of, once."""
    from golem_forge.workers.mcp.servers import servers_of

    if not (unchecked := servers_of(station.tree).unchecked):
        return
    for name in [name for name in unchecked if tools.lists(name) is not None]:
        said = unchecked.pop(name)
        if not tools.lists(name):
            there = {tool.name: tool for tool in station.catalog.list(SourceKind.MCP)}
            _, (unknown,) = check_block(ApprovalBlock(tools={name: said}), there)
            station.emit("status", {"type": "warning", "message": unknown})


async def ask_its_server(station: Station, name: str) -> bool:
    """For a call of a tool that nobody has heard of: its server may simply not have been asked yet. True: it was."""
    tools = station.server_tools
    if tools is None or name in station.catalog or not (server := tools.server_of(name)):
        return False
    try:
        await tools.settled(server)
    except ForgeError:
        return False  # its state says why; the call is told that there is no such tool
    look_at_servers(station)
    return True
