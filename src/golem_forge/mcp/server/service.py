"""One host behind one SDK server, for both protocol generations and any transport.

Takes a ServingHost; gives the SDK's server with our handlers. Tools and resources are declared; prompts, completion,
logging and tasks are not. `running` watches the tool list and ends every client's calls at its end. `Announcer` checks
the list twice a second (user tools change on disk, proxied ones in their servers) and notifies clients within two
seconds, only of changes they can see; a client that does not read delays nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from golem_forge._version import __version__
from golem_forge.core.errors import error_name
from golem_forge.mcp.server import sdk
from golem_forge.mcp.server.calls import CallHandler
from golem_forge.mcp.server.clients import ClientRegistry
from golem_forge.mcp.server.host import ServingHost
from golem_forge.mcp.server.resources import ResourceHandler
from golem_forge.mcp.server.sdk import (
    CallNext,
    Connection,
    Context,
    ForgeServer,
    HandlerResult,
    InMemorySubscriptionBus,
    MCPError,
    ToolsListChanged,
    ValidationError,
    anyio,
    connection_of,
    raw_params,
    types,
)
from golem_forge.mcp.server.tool_list import ExportedToolList

NAME: Final = "golem-forge"
MOST_LISTENING: Final = 256
_log = logging.getLogger(__name__)


class Service:
    def __init__(self, host: ServingHost) -> None:
        self.clients = ClientRegistry(host)
        self._gathered = host.gathered
        self._listing = ExportedToolList(host.offered, host.redactor)
        self._written: dict[str, tuple[object, dict[str, Any]]] = {}
        """Version → (the entries it was written from, the list on the wire)."""
        calls = CallHandler(self.clients, self._listing)
        resources = ResourceHandler(self.clients, calls, self._listing)
        bus = sdk.InMemorySubscriptionBus()
        self._announcer = Announcer(self._listing, bus)
        self._listening = sdk.ListenHandler(bus, max_subscriptions=MOST_LISTENING)
        self.server: ForgeServer = sdk.ForgeServer(
            NAME,
            version=__version__,
            title="Golem Forge",
            get_tool_input_schema=self._listing.schema,
            on_list_tools=self._list_tools,
            on_list_resources=resources.list_resources,
            on_list_resource_templates=resources.list_templates,
            on_read_resource=resources.read,
            on_subscriptions_listen=self._listening,
        )
        self.server.add_request_handler("tools/call", sdk.types.CallToolRequestParams, calls.call_tool)
        self.server.add_notification_handler(
            "notifications/initialized", sdk.types.NotificationParams, self._announcer.initialized
        )
        self.server.middleware += [_without_details, self._list_from_memory]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        watching = asyncio.get_running_loop().create_task(self._announcer.run())
        try:
            yield
        finally:
            watching.cancel()
            self._listening.close()
            await self.clients.aclose()

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        entries = self._listing.entries()
        return types.ListToolsResult.model_validate({"tools": entries}, by_name=False)

    async def _list_from_memory(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A list that was already checked and written for this version is not checked and written again."""
        if ctx.method != "tools/list":
            return await call_next(ctx)
        await self._gathered()
        if "cursor" in raw_params(ctx) or not connection_of(ctx).initialize_accepted:
            return await call_next(ctx)
        entries = self._listing.entries()
        known = self._written.get(ctx.protocol_version)
        if known is None or known[0] is not entries:
            written = await call_next(ctx)
            assert isinstance(written, dict)
            known = self._written[ctx.protocol_version] = (entries, written)
        return known[1]


async def _without_details(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Threat: the text of an unforeseen error may hold a host path or worse, and the SDK would send it."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Exception as error:
        _log.exception("a request could not be served")
        raise MCPError(types.INTERNAL_ERROR, f"Internal error ({error_name(error)})") from None


CHECK_SECONDS: Final = 0.5
_SEND_SECONDS: Final = 1.0


class Announcer:
    def __init__(self, listing: ExportedToolList, bus: InMemorySubscriptionBus) -> None:
        self._listing = listing
        self._bus = bus
        self._connections: set[Connection] = set()

    async def initialized(self, ctx: Context, params: types.NotificationParams) -> None:
        """A client of the handshake era is there to be told."""
        connection = connection_of(ctx)
        self._connections.add(connection)
        connection.exit_stack.callback(self._connections.discard, connection)

    async def run(self) -> None:
        known = self._listing.digest()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                present = self._listing.digest()
            except Exception as error:  # a look that failed must not be the last one
                _log.warning("could not look for changed tools: %s", type(error).__name__)
                continue
            if present != known:
                known = present
                await self.announce()

    async def announce(self) -> None:
        await self._bus.publish(ToolsListChanged())
        await asyncio.gather(*(_notify(connection) for connection in list(self._connections)))


async def _notify(connection: Connection) -> None:
    with anyio.move_on_after(_SEND_SECONDS):
        await connection.send_tool_list_changed()
