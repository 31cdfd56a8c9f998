"""DriftCards: changed definitions of servers' tools are put before a person, and a yes pins them. No call waits here.

One card at a time for each server, and only as long as the definition on it is the one the server has: a card that is
no longer true is withdrawn, and its late answer counts for nothing. What a person refused is not asked about again in
this session. Threats: a server that changes a thousand tools and so leaves no room for any other question, and one that
takes its change back so that a yes pins what nobody offers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from golem_forge.core.errors import ForgeError
from golem_forge.core.visible import visible
from golem_forge.events.questions import RuntimeUI
from golem_forge.mcp.client.definitions.definition import HeldTool, Reason, RemoteTool
from golem_forge.mcp.client.pool import Pool
from golem_forge.mcp.client.trust.trust_book import TrustBook
from golem_forge.workers.mcp.cards import ask_about_drift


@dataclass(frozen=True, slots=True)
class _Open:
    tool: RemoteTool
    task: asyncio.Task[None]


class DriftCards:
    def __init__(self, ui: RuntimeUI, pool: Pool, book: TrustBook) -> None:
        self._ui = ui
        self._pool = pool
        self._book = book
        self._answered: set[tuple[str, str, str]] = set()
        """Definitions (scope, server, digest) that a person said yes or no to in this session."""
        self._open: dict[str, _Open] = {}
        """By server."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._seen: tuple[int, bool] | None = None
        """At the last look; every call looks, and nearly always finds the same."""

    def look(self) -> bool:
        """Raises the cards that are due, withdraws those that are not any more. True: nothing changed since the last
        look."""
        now = (self._pool.version, self._ui.attached)
        if now == self._seen:
            return True
        self._seen = now
        specs = self._pool.specs
        for server in [server for server in self._open if server not in specs]:
            self._withdraw(server)
        for server, spec in specs.items():
            drifted = self._drifted(server)
            if (shown := self._open.get(server)) is not None and shown.tool.digest not in drifted:
                self._withdraw(server)
            due = (held for digest, held in drifted.items() if (spec.scope, server, digest) not in self._answered)
            if server not in self._open and self._ui.attached and (held := next(due, None)) is not None:
                self._raise(spec.scope, held)
        return False

    def close(self) -> None:
        for server in tuple(self._open):
            self._withdraw(server)

    def _drifted(self, server: str) -> dict[str, HeldTool]:
        """By the digest of the definition there is now."""
        listing = self._pool.listing(server)
        held = listing.held if listing is not None else ()
        return {one.tool.digest: one for one in held if one.reason is Reason.DRIFT and one.tool is not None}

    def _raise(self, scope: str, held: HeldTool) -> None:
        assert held.tool is not None
        task = asyncio.create_task(self._ask(scope, held, held.tool))
        self._open[held.server] = _Open(held.tool, task)

    def _withdraw(self, server: str) -> None:
        task = self._open.pop(server).task
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        task.cancel()

    async def _ask(self, scope: str, held: HeldTool, tool: RemoteTool) -> None:
        agreed = await ask_about_drift(self._ui, held)
        self._open.pop(held.server, None)
        self._seen = None
        if agreed is None:
            return  # nobody answered: it is asked again at the next look that finds somebody
        self._answered.add((scope, held.server, tool.digest))
        if agreed and held.server in self._pool.specs and tool.digest in self._drifted(held.server):
            self._pin(scope, held, tool)
        self.look()

    def _pin(self, scope: str, held: HeldTool, tool: RemoteTool) -> None:
        """What could not be pinned stays held: the next session asks again."""
        try:
            self._book.pin(scope, tool)
        except ForgeError as error:
            what = f"the tool '{visible(held.name)}' of the MCP server '{held.server}' stays held back"
            self._ui.show_status(type="warning", message=f"{what}: {error.message}")
