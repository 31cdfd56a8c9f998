"""What is known of the configured servers without starting any: the config, the book of trust, the cached manifests.

`look` reads the program around a directory (ConfigError if it cannot be used); `Place.known` gives one server's state
as it would be at the start of a session, `known_in` as it is in one. Nothing is connected to and nothing of the SDK is
loaded. Threat: manifests are a server's own words, so definitions are checked and held against the pins here as
everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.config.program import Program
from golem_forge.core.errors import ForgeError
from golem_forge.core.nearest import nearest
from golem_forge.mcp.client.definitions.definition import Listing
from golem_forge.mcp.client.definitions.manifest import Manifest
from golem_forge.mcp.client.definitions.manifest_cache import ManifestCache
from golem_forge.mcp.client.definitions.names import Identity, tool_names
from golem_forge.mcp.client.state import SERVER_NOT_FOUND, State
from golem_forge.mcp.client.tool import is_offered
from golem_forge.mcp.client.trust.trust_book import TrustBook, server_diff

if TYPE_CHECKING:
    from golem_forge.workers.mcp.servers import SessionServers


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One server, as far as it is known."""

    spec: ServerSpec
    state: State
    error: str = ""
    approved: bool
    config_diff: str = ""
    """What changed in its config since it was approved; empty: nothing, or it never was."""
    manifest: Manifest | None = None
    listing: Listing | None = None
    """Held against the pins. None: it was never listed, or that was more than a day ago."""

    @property
    def offered(self) -> int | None:
        """How many tools a session would offer; None: not known."""
        return None if self.listing is None else sum(is_offered(self.spec, tool.name) for tool in self.listing.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A program's servers and what a person agreed to about them."""

    home: ForgeHome
    program: Program
    book: TrustBook
    cache: ManifestCache

    def spec(self, name: str) -> ServerSpec:
        """Raises ForgeError (`SERVER_NOT_FOUND`)."""
        servers = self.program.mcp.servers
        if name in servers:
            return servers[name]
        close = nearest(name, servers)
        hint = f" (did you mean '{close}'?)" if close else ""
        raise ForgeError(f"no MCP server '{name}'{hint}. `forge mcp list` shows them.", code=SERVER_NOT_FOUND)

    def known(self, name: str) -> Known:
        """Raises ForgeError (`SERVER_NOT_FOUND`)."""
        spec = self.spec(name)
        approved = self.book.approved(spec)
        state, error, diff, manifest = self._standing(spec, approved)
        return Known(
            spec=spec,
            state=state,
            error=error,
            approved=approved,
            config_diff=diff,
            manifest=manifest,
            listing=self.listing(spec, manifest) if manifest is not None else None,
        )

    def all(self) -> list[Known]:
        """By name."""
        return [self.known(name) for name in self.program.mcp.servers]

    def listing(self, spec: ServerSpec, manifest: Manifest) -> Listing:
        from golem_forge.mcp.client.definitions.listing import check_entries
        from golem_forge.mcp.client.trust.pins import held_against

        return held_against(check_entries(spec.name, manifest.tools, manifest.diagnostics), self.book, spec.scope)

    def _standing(self, spec: ServerSpec, approved: bool) -> tuple[State, str, str, Manifest | None]:
        if not spec.enabled:
            return State.DISABLED, "", "", None
        if spec.problem:
            return State.FAILED, spec.problem, "", None
        if not approved:
            diff = server_diff(self.book.approved_before(spec), spec)
            why = "its config changed since it was approved; " if diff else ""
            return State.PENDING, f"{why}run: forge mcp approve {spec.name}", diff, None
        found = self.cache.load(spec, time.time())
        if found is None:
            return State.KNOWN, f"what it offers is not known yet; run: forge mcp test {spec.name}", "", None
        return State.KNOWN, "", "", found[0]


def look(directory: Path | str = ".", home: ForgeHome | None = None) -> Place:
    """Raises ConfigError."""
    from golem_forge.workers.tree import read_program
    from golem_forge.workers.trust_cover import trust_store

    home = home or forge_home()
    program = read_program(directory, home, trust_store(home))
    return Place(home=home, program=program, book=TrustBook(home), cache=ManifestCache(home))


def names_of(listings: Iterable[Listing | None]) -> Mapping[Identity, str]:
    """What callers call the tools: worked out over all servers, as a session does."""
    present = [listing for listing in listings if listing is not None]
    return tool_names(
        [tool.identity for listing in present for tool in listing.tools]
        + [held.identity for listing in present for held in listing.held]
    )


def known_in(servers: SessionServers, name: str) -> Known:
    """Of a session that runs: as its pool has it. Raises ForgeError (`SERVER_NOT_FOUND`)."""
    pool, book = servers.pool, servers.book
    status = pool.status(name)
    spec = pool.specs[name]
    approved = book.approved(spec)
    return Known(
        spec=spec,
        state=status.state,
        error=status.error,
        approved=approved,
        config_diff="" if approved else server_diff(book.approved_before(spec), spec),
        manifest=pool.manifest(name),
        listing=pool.listing(name),
    )
