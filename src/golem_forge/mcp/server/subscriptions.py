"""Subscriptions: clients are told that a resource changed, and read it again.

Files in zones are looked at while anybody is subscribed, the program says it itself (`ctx.resource_updated`), servers
announce theirs. Whoever subscribes must be allowed to read. With the handshake protocol a connection subscribes URI by
URI; on 2026-07-28 a `subscriptions/listen` stream names them.

Threat: a client that subscribes without end, or that reads nothing: numbers are bounded, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from functools import partial
from typing import Final
from urllib.parse import unquote

from golem_forge.mcp.server.clients import Client, ClientRegistry
from golem_forge.mcp.server.host import ServedCalls
from golem_forge.mcp.server.resources import LONGEST_URI, MCP_URI, ZONE_URI, ResourceHandler, resource_not_found
from golem_forge.mcp.server.sdk import (
    Connection,
    Context,
    InMemorySubscriptionBus,
    ListenHandler,
    MCPError,
    ResourceUpdated,
    anyio,
    connection_of,
    types,
)

MOST_SUBSCRIBED: Final = 100
"""URIs of one connection, or of one stream."""
MOST_LISTENING: Final = 256
"""Streams of 2026-07-28 that are open at the same time."""
MOST_LISTENING_EACH: Final = 16
"""Of one client. Threat: one that takes them all."""
LOOK_SECONDS: Final = 0.5
_LOOK_SHARE: Final = 10
"""Looking at the files takes a tenth of the time at most."""
_SEND_SECONDS: Final = 1.0
_SUBSCRIBED_KEY: Final = "golem-forge/subscribed"
_log = logging.getLogger(__name__)


class SubscriptionHandler:
    """Who is told of which resource. With the handshake protocol a connection subscribes URI by URI; on 2026-07-28 a
    `subscriptions/listen` stream names them."""

    def __init__(
        self, clients: ClientRegistry, resources: ResourceHandler, host: ServedCalls, bus: InMemorySubscriptionBus
    ) -> None:
        self._clients = clients
        self._resources = resources
        self._host = host
        self._bus = bus
        self._listening = ListenHandler(bus, max_subscriptions=MOST_LISTENING)
        self._streams: Counter[Client] = Counter()
        """Client → how many streams it has open."""
        self._watched: dict[str, int] = {}
        """URI → how many are subscribed to it."""
        self._stamps: dict[str, object] = {}
        self._connections: set[Connection] = set()
        self._sending: set[asyncio.Task[None]] = set()

    async def subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        mine, uri = self._mine(ctx), params.uri
        if uri not in mine:
            _check_room(mine)
            if len(uri) > LONGEST_URI or not await self._resources.may_read(ctx, uri):
                raise resource_not_found(ctx, uri)
            _check_room(mine)  # others came in meanwhile, this one too, or the client left
            if uri not in mine and connection_of(ctx) in self._connections:
                mine.add(uri)
                self._watch(uri)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        mine = self._mine(ctx)
        if params.uri in mine:
            mine.discard(params.uri)
            self._unwatch(params.uri)
        return types.EmptyResult()

    async def listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Honours of the URIs that were asked for those that this client may read."""
        client = self._clients.client_of(ctx)
        if self._streams[client] >= MOST_LISTENING_EACH:
            raise MCPError(types.INTERNAL_ERROR, f"at most {MOST_LISTENING_EACH} streams can be open; close one")
        self._streams[client] += 1
        try:
            return await self._listen(ctx, params)
        finally:
            self._streams[client] -= 1
            self._streams += Counter()  # those that have none are forgotten

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        asked = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))[:MOST_SUBSCRIBED]
        allowed = [uri for uri in asked if len(uri) <= LONGEST_URI and await self._resources.may_read(ctx, uri)]
        params.notifications.resource_subscriptions = allowed
        for uri in allowed:
            self._watch(uri)
        try:
            return await self._listening(ctx, params)
        finally:
            for uri in allowed:
                self._unwatch(uri)

    async def run(self) -> None:
        """Looks at watched files, and tells of everything that changed: of each resource once in a while, however often
        somebody says so."""
        news: dict[str, None] = {}
        pause = LOOK_SECONDS

        def heard(uri: str) -> None:
            if uri in self._watched:
                news[uri] = None

        forget = self._host.updates.listen(heard)
        try:
            while True:
                await asyncio.sleep(pause)
                begun = time.monotonic()
                try:
                    await self._look(news)
                except Exception as error:  # a look that failed must not be the last one
                    _log.warning("could not look for changed resources: %s", type(error).__name__)
                pause = max(LOOK_SECONDS, _LOOK_SHARE * (time.monotonic() - begun))
        finally:
            forget()

    def close(self) -> None:
        """Every stream ends in order."""
        self._listening.close()

    async def _look(self, news: dict[str, None]) -> None:
        if self._watched:
            self._watch_servers()
            news.update(dict.fromkeys(await self._changed_files()))
        told = list(news)
        news.clear()
        for uri in told:
            await self._tell(uri)

    def _watch_servers(self) -> None:
        """A server that was connected anew is subscribed to anew."""
        pool = self._host.offers.access.pool
        for uri in self._watched if pool is not None else ():
            if pool is not None and uri.startswith(MCP_URI):
                pool.watch_resource(*_server_uri(uri), partial(self._host.updates.publish, uri))

    async def _tell(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri=uri))
        for connection in list(self._connections):
            if uri in connection.state.get(_SUBSCRIBED_KEY, ()):
                task = asyncio.get_running_loop().create_task(_send_updated(connection, uri))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    async def _changed_files(self) -> list[str]:
        """Looked at in a thread: there may be thousands, on a disk that hangs."""
        files = [uri for uri in self._watched if uri.startswith(ZONE_URI)]
        stamps = await asyncio.to_thread(lambda: {uri: self._stamp(uri) for uri in files}) if files else {}
        changed = [uri for uri in files if uri in self._stamps and stamps[uri] != self._stamps[uri]]
        self._stamps.update({uri: stamps[uri] for uri in changed})
        return changed

    def _stamp(self, uri: str) -> object:
        return self._host.offers.stamp("/" + unquote(uri.removeprefix(ZONE_URI)))

    def _mine(self, ctx: Context) -> set[str]:
        connection = connection_of(ctx)
        mine: set[str] | None = connection.state.get(_SUBSCRIBED_KEY)
        if mine is None:
            mine = connection.state[_SUBSCRIBED_KEY] = set()
            self._connections.add(connection)
            connection.exit_stack.callback(partial(self._left, connection, mine))
        return mine

    def _left(self, connection: Connection, mine: set[str]) -> None:
        self._connections.discard(connection)
        for uri in mine:
            self._unwatch(uri)

    def _watch(self, uri: str) -> None:
        self._watched[uri] = self._watched.get(uri, 0) + 1
        if uri.startswith(ZONE_URI) and uri not in self._stamps:
            self._stamps[uri] = self._stamp(uri)

    def _unwatch(self, uri: str) -> None:
        left = self._watched.get(uri, 0) - 1
        if left > 0:
            self._watched[uri] = left
        else:
            self._watched.pop(uri, None)
            self._stamps.pop(uri, None)
            pool = self._host.offers.access.pool
            if uri.startswith(MCP_URI) and pool is not None:
                pool.unwatch_resource(*_server_uri(uri))


def _check_room(mine: set[str]) -> None:
    if len(mine) >= MOST_SUBSCRIBED:
        raise MCPError(types.INVALID_PARAMS, f"at most {MOST_SUBSCRIBED} resources can be subscribed to; leave one")


def _server_uri(uri: str) -> tuple[str, str]:
    server, _, rest = uri.removeprefix(MCP_URI).partition("/")
    return unquote(server), unquote(rest)


async def _send_updated(connection: Connection, uri: str) -> None:
    with anyio.move_on_after(_SEND_SECONDS):
        await connection.notify("notifications/resources/updated", {"uri": uri})
