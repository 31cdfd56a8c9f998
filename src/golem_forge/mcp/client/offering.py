"""ServerTools: what one worker sees of the servers' tools. Keeps its catalog in step with the pool.

Usable tools of the servers that the worker's block names are in the catalog; those that are held back are kept out of
it with the reason. `refresh` runs before every model request and every command of a person, and costs one comparison
when nothing changed. Names are worked out over all servers of the session, so that no worker's block and no order of
connecting gives a tool another name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from golem_forge.config.mcp.spec import ServerSpec, Trust
from golem_forge.core.errors import ForgeError
from golem_forge.core.visible import visible
from golem_forge.mcp.client.definitions.definition import HeldTool, Listing, RemoteTool
from golem_forge.mcp.client.definitions.names import tool_names
from golem_forge.mcp.client.state import State
from golem_forge.mcp.client.tool import is_offered, proxied_tool
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import SourceKind, Tool

if TYPE_CHECKING:
    from golem_forge.mcp.client.pool import Pool
    from golem_forge.mcp.client.trust.trust_book import TrustBook

ALL: Final = "*"
MOST_INSTRUCTIONS: Final = 2048
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    diagnostics: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.diagnostics)


OnPlaced = Callable[[Mapping[str, tuple[ServerSpec, RemoteTool]]], None]
"""Told the names that mean a server's tool from now on, for what the server's config says about approval."""


class ServerTools:
    def __init__(
        self,
        pool: Pool,
        book: TrustBook,
        servers: tuple[str, ...],
        catalog: Catalog,
        *,
        on_placed: OnPlaced = lambda names: None,
        warn: Callable[[str], None] = _log.warning,
    ) -> None:
        self._pool = pool
        self._book = book
        self._servers = servers
        self._catalog = catalog
        self._on_placed = on_placed
        self._warn = warn
        self._seen = -1
        self._placed: dict[str, _Placed] = {}
        """By name, what of ours is in the catalog."""
        self._kept_out: dict[str, str] = {}
        """By name, why."""
        self._spelt: dict[str, str] = {}
        """By raw spelling, the name it means."""
        catalog.why_missing = self.why_missing

    def sees(self, server: str) -> bool:
        """Whether this worker's block names it."""
        return ALL in self._servers or server in self._servers

    def server_of(self, name: str) -> str:
        """The server that a name would belong to, of those this worker sees; empty: none."""
        fitting = [server for server in self._pool.names() if name.startswith(f"{server}__") and self.sees(server)]
        return max(fitting, key=len, default="")

    def lists(self, name: str) -> bool | None:
        """Whether its server has a tool of that name, usable or held back; None: its list is not known, or no server
        that this worker sees would have it."""
        server = self.server_of(name)
        if not server or self._pool.listing(server) is None:
            return None
        return name in self._placed or name in self._kept_out

    def why_missing(self, name: str) -> str:
        """Of a name that means nothing now: what its server's state says; empty where it is there, or is none."""
        server = self.server_of(name)
        if not server or self._pool.listing(server) is not None:
            return ""
        status = self._pool.status(server)
        if status.state is State.PENDING:
            return status.error
        return f"the MCP server '{server}' is {status.state.value}{': ' if status.error else ''}{status.error}"

    async def settled(self, server: str) -> None:
        """Connected and listed. Raises ForgeError with what its state says."""
        await self._pool.settled(server)

    def instructions(self) -> tuple[tuple[str, str], ...]:
        """(server, its words to a model), of trusted servers only: anybody can write a server."""
        found = []
        for name in self._pool.names():
            manifest = self._pool.manifest(name) if self.sees(name) else None
            if manifest is not None and manifest.instructions and self._pool.specs[name].trust is Trust.TRUSTED:
                said = manifest.instructions.encode("utf-8", "replace")[:MOST_INSTRUCTIONS].decode("utf-8", "ignore")
                found.append((name, visible(said)))
        return tuple(found)

    @property
    def in_step(self) -> bool:
        """Right after a look at the pool, without another one: whether `refresh` would find nothing new."""
        return self._pool.version_seen == self._seen

    def refresh(self) -> Refreshed | None:
        """None: nothing is other than before."""
        version = self._pool.version
        if version == self._seen:
            return None
        self._seen = version
        listings = {name: listing for name in self._pool.names() if (listing := self._pool.listing(name)) is not None}
        names = tool_names(
            [one.identity for listing in listings.values() for one in listing.tools]
            + [held.identity for listing in listings.values() for held in listing.held]
        )
        there: dict[str, _Placed] = {}
        kept_out: dict[str, str] = {}
        for server, listing in listings.items():
            if self.sees(server):
                self._sort(self._pool.specs[server], listing, names, there, kept_out)
        news = self._put_in_force(there, kept_out)
        return news if news else None

    @staticmethod
    def _sort(
        spec: ServerSpec,
        listing: Listing,
        names: Mapping[tuple[str, str], str],
        there: dict[str, _Placed],
        kept_out: dict[str, str],
    ) -> None:
        for tool in listing.tools:
            if is_offered(spec, tool.name):
                there[names[tool.identity]] = _Placed(spec, tool)
        for held in listing.held:
            name = names[held.identity]
            if name not in there and is_offered(spec, held.identity[1]):  # a second entry of a name leaves the first
                kept_out[name] = why_held(held)

    def _put_in_force(self, there: dict[str, _Placed], kept_out: dict[str, str]) -> Refreshed:
        catalog, before = self._catalog, self._placed
        removed = [name for name in before if name not in there]
        for name in removed:
            catalog.remove(name)
        for name in self._kept_out.keys() - kept_out.keys():
            catalog.release(name)
        fresh = {name: placed for name, placed in there.items() if before.get(name) != placed}
        if fresh:  # before they can be called: what the config says of them counts from their first call on
            self._on_placed({name: (placed.spec, placed.tool) for name, placed in fresh.items()})
        for name, placed in fresh.items():
            catalog.add(self._tool(name, placed), replace=True)
        self._spell(there)
        for name, reason in kept_out.items():
            catalog.quarantine(name, SourceKind.MCP, reason)
        diagnostics = [f"{name}: {reason}" for name, reason in kept_out.items() if self._kept_out.get(name) != reason]
        self._placed, self._kept_out = there, kept_out
        return Refreshed(
            added=tuple(name for name in fresh if name not in before),
            changed=tuple(name for name in fresh if name in before),
            removed=tuple(removed),
            diagnostics=tuple(diagnostics),
        )

    def _spell(self, there: dict[str, _Placed]) -> None:
        """A model that knows a raw name (from a server's own texts) means that tool; what could mean two, neither."""
        spellings = _spellings(there)
        for raw in [raw for raw, name in self._spelt.items() if spellings.get(raw) != name]:
            self._catalog.remove_alias(raw)
        for raw, name in spellings.items():
            if self._spelt.get(raw) != name:
                self._catalog.add_alias(raw, name)
        self._spelt = spellings

    def _tool(self, name: str, placed: _Placed) -> Tool:
        return proxied_tool(self._pool, placed.spec, placed.tool, name, partial(self._accept, name, placed))

    def _accept(self, name: str, placed: _Placed) -> None:
        """The person's yes is for a call they saw: it runs, also where the book cannot keep what they agreed to."""
        try:
            self._book.accept(placed.spec.scope, placed.tool)
        except ForgeError as error:
            self._warn(f"'{name}' is agreed to in this session only: {error.message}")


@dataclass(frozen=True, slots=True)
class _Placed:
    spec: ServerSpec
    tool: RemoteTool

    @property
    def raw(self) -> str:
        """The name it would have if every name could be used as it is."""
        return f"{self.tool.server}__{self.tool.name}"


def _spellings(there: Mapping[str, _Placed]) -> dict[str, str]:
    found: dict[str, str] = {}
    met: set[str] = set()
    for name, placed in there.items():
        if placed.raw in found:
            met.add(placed.raw)
        found[placed.raw] = name
    return {raw: name for raw, name in found.items() if raw != name and raw not in met}


def why_held(held: HeldTool) -> str:
    """What a caller is told who names it."""
    return f"{held.reason.value}: {held.message}"
