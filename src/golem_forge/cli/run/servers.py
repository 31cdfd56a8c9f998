"""A worker's MCP servers in a dry run: their tools as cached manifests tell of them, and which are not known yet.

Nothing is started and nothing asked. Raises ConfigError for a block that names no server, as a session does.
"""

from __future__ import annotations

from golem_forge.cli.mcp.shelf import put_known_tools
from golem_forge.config.home import ForgeHome
from golem_forge.config.program import Program
from golem_forge.core.errors import ConfigError
from golem_forge.mcp.client.definitions.manifest_cache import ManifestCache
from golem_forge.mcp.client.trust.trust_book import TrustBook
from golem_forge.policy.base import ApprovalBlock
from golem_forge.tools.catalog import Catalog
from golem_forge.workers.blocks import McpBlock
from golem_forge.workers.mcp.known import Place
from golem_forge.workers.toolset_blocks import check_servers


def put_tools_of_servers(
    block: McpBlock, program: Program, home: ForgeHome, catalog: Catalog, notices: list[str]
) -> dict[str, ApprovalBlock]:
    """By name, what the servers' configs say about approval of what is in the catalog now."""
    if problems := check_servers(block, program):
        raise ConfigError(*problems)
    place = Place(home=home, program=program, book=TrustBook(home), cache=ManifestCache(home))
    for known in place.all():
        name, state = known.spec.name, known.state.value
        if block.sees(name) and known.spec.enabled and known.listing is None:
            notices.append(f"the tools of the MCP server '{name}' are not known here: {state}; {known.error}")
    return put_known_tools(place, catalog, block.servers)
