"""One host behind one SDK server, for both protocol generations and any transport.

Takes a ServingHost; gives the SDK's server with our handlers. Tools, resources, prompts, completion and logging are
declared; tasks are not. `running` watches the lists and ends every client's calls at its end. `Announcer` checks the
lists of tools and prompts twice a second (user tools change on disk, proxied ones in their servers) and notifies
clients within two seconds, only of changes they can see; a client that does not read delays nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from golem_forge._version import __version__
from golem_forge.core.errors import error_name
from golem_forge.mcp.server import sdk
from golem_forge.mcp.server.calls import CallHandler
from golem_forge.mcp.server.clients import ClientRegistry
from golem_forge.mcp.server.host import ServingHost
from golem_forge.mcp.server.prompts import PromptHandler
from golem_forge.mcp.server.resources import ResourceHandler
from golem_forge.mcp.server.sdk import (
    CallNext,
    Connection,
    Context,
    ForgeServer,
    HandlerResult,
    InMemorySubscriptionBus,
    MCPError,
    PromptsListChanged,
    ToolsListChanged,
    ValidationError,
    anyio,
    connection_of,
    raw_params,
    types,
)
from golem_forge.mcp.server.subscriptions import SubscriptionHandler
from golem_forge.mcp.server.tool_list import ExportedToolList

NAME: Final = "golem-forge"
_log = logging.getLogger(__name__)


class Service:
    def __init__(self, host: ServingHost) -> None:
        self.clients = ClientRegistry(host)
        self._gathered = host.gathered
        self._listing = ExportedToolList(host.offered, host.redactor)
        self._written: dict[str, tuple[object, dict[str, Any]]] = {}
        """Version → (the entries it was written from, the list on the wire)."""
        calls = CallHandler(self.clients, self._listing)
        resources = ResourceHandler(self.clients, calls, self._listing, host.calls, host.redactor)
        prompts = PromptHandler(self.clients, calls, host.calls, host.redactor)
        bus = sdk.InMemorySubscriptionBus()
        self._announcer = Announcer(self._listing, bus, prompts)
        self._subscriptions = SubscriptionHandler(self.clients, resources, host.calls, bus)
        self.server: ForgeServer = sdk.ForgeServer(
            NAME,
            version=__version__,
            title="Golem Forge",
            get_tool_input_schema=self._listing.schema,
            on_list_tools=self._list_tools,
            on_list_resources=resources.list_resources,
            on_list_resource_templates=resources.list_templates,
            on_read_resource=resources.read,
            on_subscribe_resource=self._subscriptions.subscribe,
            on_unsubscribe_resource=self._subscriptions.unsubscribe,
            on_subscriptions_listen=self._subscriptions.listen,
            on_list_prompts=prompts.list_prompts,
            on_get_prompt=prompts.get,
            on_completion=prompts.complete,
        )
        self.server.add_request_handler("logging/setLevel", sdk.types.SetLevelRequestParams, self._set_level)
        self.server.add_request_handler("tools/call", sdk.types.CallToolRequestParams, calls.call_tool)
        self.server.add_notification_handler(
            "notifications/initialized", sdk.types.NotificationParams, self._announcer.initialized
        )
        self.server.middleware += [_without_details, self._list_from_memory]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        watching = [loop.create_task(each) for each in (self._announcer.run(), self._subscriptions.run())]
        try:
            yield
        finally:
            for each in watching:
                each.cancel()
            self._subscriptions.close()
            await self.clients.aclose()

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.clients.client_of(ctx).log_level = params.level
        return types.EmptyResult()

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        entries = self._listing.entries()
        return types.ListToolsResult.model_validate({"tools": entries}, by_name=False)

    async def _list_from_memory(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A list that was already checked and written for this version is not checked and written again."""
        if ctx.method in _OF_SERVERS_TOO:
            await self._gathered()
        if ctx.method != "tools/list":
            return await call_next(ctx)
        if "cursor" in raw_params(ctx) or not connection_of(ctx).initialize_accepted:
            return await call_next(ctx)
        entries = self._listing.entries()
        known = self._written.get(ctx.protocol_version)
        if known is None or known[0] is not entries:
            written = await call_next(ctx)
            assert isinstance(written, dict)
            known = self._written[ctx.protocol_version] = (entries, written)
        return known[1]


_OF_SERVERS_TOO: Final = frozenset(
    {"tools/list", "prompts/list", "prompts/get", "resources/list", "completion/complete"}
)
"""What proxied servers take part in."""


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
    def __init__(self, listing: ExportedToolList, bus: InMemorySubscriptionBus, prompts: PromptHandler) -> None:
        self._listing = listing
        self._bus = bus
        self._prompts = prompts
        self._connections: set[Connection] = set()

    async def initialized(self, ctx: Context, params: types.NotificationParams) -> None:
        """A client of the handshake era is there to be told."""
        connection = connection_of(ctx)
        self._connections.add(connection)
        connection.exit_stack.callback(self._connections.discard, connection)

    async def run(self) -> None:
        known, prompts = self._listing.digest(), self._prompts.entries()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                present, asked = self._listing.digest(), self._prompts.entries()
            except Exception as error:  # a look that failed must not be the last one
                _log.warning("could not look for changed tools: %s", type(error).__name__)
                continue
            if present != known:
                known = present
                await self.announce(ToolsListChanged(), Connection.send_tool_list_changed)
            if asked != prompts:
                prompts = asked
                await self.announce(PromptsListChanged(), Connection.send_prompt_list_changed)

    async def announce(
        self, event: ToolsListChanged | PromptsListChanged, send: Callable[[Connection], Awaitable[None]]
    ) -> None:
        await self._bus.publish(event)
        await asyncio.gather(*(_notify(connection, send) for connection in list(self._connections)))


async def _notify(connection: Connection, send: Callable[[Connection], Awaitable[None]]) -> None:
    with anyio.move_on_after(_SEND_SECONDS):
        await send(connection)
