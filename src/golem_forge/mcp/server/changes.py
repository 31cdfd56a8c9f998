"""Tells every client that the list of tools has changed, within two seconds, in both eras.

Looks twice a second: user tools change on disk, proxied ones in their servers, and both end up in one catalog. Told
only when a client could see the difference. A client that does not read delays nobody.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from golem_forge.mcp.server.listing import Listing

if TYPE_CHECKING:
    from golem_forge.mcp.server.sdk import Connection, Context, InMemorySubscriptionBus, types

LOOK_SECONDS: Final = 0.5
_SEND_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


class Announcer:
    def __init__(self, listing: Listing, bus: InMemorySubscriptionBus) -> None:
        self._listing = listing
        self._bus = bus
        self._connections: set[Connection] = set()

    async def initialized(self, ctx: Context, params: types.NotificationParams) -> None:
        """A client of the handshake era is there to be told."""
        from golem_forge.mcp.server.sdk import connection_of

        connection = connection_of(ctx)
        self._connections.add(connection)
        connection.exit_stack.callback(self._connections.discard, connection)

    async def run(self) -> None:
        known = self._listing.digest()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                present = self._listing.digest()
            except Exception as error:  # a look that failed must not be the last one
                _log.warning("could not look for changed tools: %s", type(error).__name__)
                continue
            if present != known:
                known = present
                await self.announce()

    async def announce(self) -> None:
        from golem_forge.mcp.server.sdk import ToolsListChanged

        await self._bus.publish(ToolsListChanged())
        await asyncio.gather(*(_tell(connection) for connection in list(self._connections)))


async def _tell(connection: Connection) -> None:
    from golem_forge.mcp.server.sdk import anyio

    with anyio.move_on_after(_SEND_SECONDS):
        await connection.send_tool_list_changed()
