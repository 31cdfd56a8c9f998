"""The MCP server of `forge mcp serve`: one host behind one SDK server, for both protocol generations, and its stdio.

Takes a ServingHost; gives the SDK's server with our handlers. Tools, resources, prompts, completion and logging are
declared; tasks are not. `running` watches the lists and ends every client's calls at its end. `Announcer` checks the
lists of tools and prompts twice a second (user tools change on disk, proxied ones in their servers) and notifies
clients within two seconds, only of changes they can see; a client that does not read delays nobody.

`SubscriptionHandler` tells clients that a resource changed, and they read it again. Files in zones are looked at while
anybody is subscribed, the program says it itself (`ctx.resource_updated`), servers announce theirs. Whoever subscribes
must be allowed to read. Threat: a client that subscribes without end, or that reads nothing: numbers are bounded, and
nobody waits for it.

`serve_stdio` serves one client over stdin and stdout (`http` serves many), one line for each message and nothing else
on stdout: while it serves, descriptor 1 leads to stderr and 0 to nothing, so a stray print or a child cannot break a
frame. The end of stdin, SIGTERM and SIGINT end every call and every child; the exit code is 0. A line over 4 MiB is
refused. Threat: a client that sends and never reads; while too many answers wait for it, no more of what it sends is
taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from golem_forge._version import __version__
from golem_forge.core.errors import error_name
from golem_forge.core.signals import stop_on_termination
from golem_forge.mcp.server import sdk
from golem_forge.mcp.server.calls import CallHandler
from golem_forge.mcp.server.clients import Client, ClientRegistry, ExportedToolList
from golem_forge.mcp.server.host import ServedCalls, ServingHost
from golem_forge.mcp.server.resources import (
    LONGEST_URI,
    MCP_URI,
    ZONE_URI,
    PromptHandler,
    ResourceHandler,
    resource_not_found,
)
from golem_forge.mcp.server.sdk import (
    CallNext,
    Connection,
    Context,
    ForgeServer,
    HandlerResult,
    InMemorySubscriptionBus,
    ListenHandler,
    MCPError,
    MemoryObjectReceiveStream,
    MemoryObjectSendStream,
    PromptsListChanged,
    ResourceUpdated,
    SessionMessage,
    ToolsListChanged,
    ValidationError,
    anyio,
    connection_of,
    raw_params,
    types,
)
from golem_forge.net.stdio import StdioDescriptors, hung_up, own_pipes, write_whole
from golem_forge.tools.threads import run_in_thread

MOST_SUBSCRIBED: Final = 100
"""Maximum URIs of one connection or stream."""
MOST_LISTENING: Final = 256
"""Streams of 2026-07-28 that are open at the same time."""
MOST_LISTENING_EACH: Final = 16
"""Maximum streams of one client. Threat: one that takes them all."""
LOOK_SECONDS: Final = 0.5
_LOOK_SHARE: Final = 10
"""Looking at the files takes a tenth of the time at most."""
_SEND_SECONDS: Final = 1.0
_SUBSCRIBED_KEY: Final = "golem-forge/subscribed"
_log = logging.getLogger(__name__)
MOST_LINE_BYTES: Final = 4 << 20
_CHUNK: Final = 1 << 16
_FLUSH_SECONDS: Final = 0.3
MOST_UNREAD: Final = 256
"""Messages that wait to be written; more than a client can have calls under way."""
_BACKPRESSURE_CHECK_SECONDS: Final = 0.02


class SubscriptionHandler:
    """Tracks which client is notified of which resource. With the handshake protocol a connection subscribes URI by
    URI; on 2026-07-28 a `subscriptions/listen` stream names them.
    """

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
        """Ends every stream in order."""
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
                task = asyncio.get_running_loop().create_task(
                    _notify(connection, lambda each: each.notify("notifications/resources/updated", {"uri": uri}))
                )
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
            connection.exit_stack.callback(self._left, connection, mine)
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


NAME: Final = "golem-forge"


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
"""Methods in which proxied servers take part."""


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


async def serve_stdio(host: ServingHost) -> int:
    """Serves until stdin ends or a signal comes."""
    service = Service(host)
    told_to_end = anyio.CancelScope()
    with own_pipes() as used, stop_on_termination(told_to_end.cancel):
        try:
            with told_to_end:
                async with anyio.create_task_group() as together, service.running(), _messages(used) as (read, write):
                    await service.server.run(read, write, service.server.create_initialization_options())
                    together.cancel_scope.cancel()
        finally:  # a second signal does not cut this short
            with anyio.CancelScope(shield=True):
                await host.aclose()
    return 0


@contextlib.asynccontextmanager
async def _messages(
    pipes: StdioDescriptors,
) -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    to_us, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_us = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.get_running_loop().create_task(_read_lines(pipes.read, to_us, write.clone()))
    writing = asyncio.get_running_loop().create_task(_write_lines(pipes.write, from_us))
    try:
        yield read, write
    finally:
        write.close()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({writing}, timeout=_FLUSH_SECONDS)  # a client that does not read is not waited for
        reading.cancel()
        writing.cancel()


async def _read_lines(
    descriptor: int,
    to_us: MemoryObjectSendStream[SessionMessage | Exception],
    to_client: MemoryObjectSendStream[SessionMessage],
) -> None:
    async def refuse(why: str) -> None:
        error = types.ErrorData(code=types.PARSE_ERROR, message=why)
        await to_client.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=error)))

    async def hand_over(line: bytes) -> None:
        if len(line) > MOST_LINE_BYTES:
            await refuse(f"a message may have {MOST_LINE_BYTES >> 20} MiB")
        elif line.strip():
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                await refuse("not a JSON-RPC message")
            else:
                await to_us.send(SessionMessage(message))

    async def has_room() -> bool:
        """Waits until the client reads; False if it has hung up."""
        while to_client.statistics().tasks_waiting_send > MOST_UNREAD:
            if hung_up(descriptor):
                return False
            await anyio.sleep(_BACKPRESSURE_CHECK_SECONDS)
        return True

    held = b""
    async with to_us, to_client:
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            while chunk := await run_in_thread(lambda: os.read(descriptor, _CHUNK)):
                *lines, held = (held + chunk).split(b"\n")
                for line in lines:
                    if not await has_room():
                        return
                    await hand_over(line)
                held = held[: MOST_LINE_BYTES + 1]  # what is too long is known to be, without its rest


async def _write_lines(descriptor: int, from_us: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with from_us:
        async for message in from_us:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            try:
                await run_in_thread(write_whole, descriptor, line)
            except OSError:
                return
