"""Service: one Host behind one SDK server, in both eras, over any transport.

Takes a Host; gives the SDK's server with our handlers. Declared are tools and resources; prompts, completion, logging
and tasks are not. `running` keeps the list of tools watched and, at its end, ends every client's calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from golem_forge._version import __version__
from golem_forge.core.errors import error_name
from golem_forge.mcp.server.calls import Calls
from golem_forge.mcp.server.changes import Announcer
from golem_forge.mcp.server.connections import Clients
from golem_forge.mcp.server.host import Host
from golem_forge.mcp.server.listing import Listing
from golem_forge.mcp.server.resources import Resources

if TYPE_CHECKING:
    from golem_forge.mcp.server.sdk import CallNext, Context, ForgeServer, HandlerResult, types

NAME: Final = "golem-forge"
MOST_LISTENING: Final = 256
_log = logging.getLogger(__name__)


class Service:
    def __init__(self, host: Host) -> None:
        from golem_forge.mcp.server import sdk

        self.clients = Clients(host)
        self._gathered = host.gathered
        self._listing = Listing(host.offered, host.redactor)
        self._written: dict[str, tuple[object, dict[str, Any]]] = {}
        """Version → (the entries it was written from, the list on the wire)."""
        calls = Calls(self.clients, self._listing)
        resources = Resources(self.clients, calls, self._listing)
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
        from golem_forge.mcp.server.sdk import types

        entries = self._listing.entries()
        return types.ListToolsResult.model_validate({"tools": entries}, by_name=False)

    async def _list_from_memory(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A list that was already checked and written for this version is not checked and written again."""
        from golem_forge.mcp.server.sdk import connection_of, raw_params

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
    from golem_forge.mcp.server.sdk import MCPError, ValidationError, types

    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Exception as error:
        _log.exception("a request could not be served")
        raise MCPError(types.INTERNAL_ERROR, f"Internal error ({error_name(error)})") from None
