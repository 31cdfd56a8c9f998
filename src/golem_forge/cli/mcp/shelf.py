"""Servers' tools as cached manifests have them, put into a catalog for people to look at. Nothing can be called.

The names, what is held back and the reasons are those of a session: the same code puts them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from golem_forge.mcp.client.offering import ServerTools
from golem_forge.mcp.client.state import ServerStatus
from golem_forge.mcp.client.tool import approval_block

if TYPE_CHECKING:
    from golem_forge.config.mcp.spec import ServerSpec
    from golem_forge.mcp.client.definitions.definition import Listing, RemoteTool
    from golem_forge.mcp.client.definitions.manifest import Manifest
    from golem_forge.mcp.client.pool import Pool
    from golem_forge.policy.base import ApprovalBlock
    from golem_forge.tools.catalog import Catalog
    from golem_forge.workers.mcp.known import Known, Place

EVERY: Final = ("*",)


@dataclass(frozen=True, slots=True)
class _Shelf:
    """The part of a Pool that is read, over what is known while nothing runs."""

    servers: Mapping[str, Known]
    version: int = 0

    @property
    def specs(self) -> Mapping[str, ServerSpec]:
        return {name: known.spec for name, known in self.servers.items()}

    def names(self) -> tuple[str, ...]:
        return tuple(self.servers)

    def listing(self, name: str) -> Listing | None:
        return self.servers[name].listing

    def manifest(self, name: str) -> Manifest | None:
        return self.servers[name].manifest

    def status(self, name: str) -> ServerStatus:
        known = self.servers[name]
        return ServerStatus(server=name, state=known.state, error=known.error, tools=known.offered)


def put_known_tools(place: Place, catalog: Catalog, servers: tuple[str, ...] = EVERY) -> dict[str, ApprovalBlock]:
    """By name, what the servers' configs say about approval. `servers`: what a worker's block names."""
    said: dict[str, ApprovalBlock] = {}

    def placed(names: Mapping[str, tuple[ServerSpec, RemoteTool]]) -> None:
        said.update({name: approval_block(spec, tool, name) for name, (spec, tool) in names.items()})

    shelf = _Shelf({known.spec.name: known for known in place.all()})
    ServerTools(cast("Pool", shelf), place.book, servers, catalog, on_placed=placed).refresh()
    return said
