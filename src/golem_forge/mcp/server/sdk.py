"""The official SDK as the server side uses it: the one place that imports it, starlette and uvicorn.

Imported inside the functions that need it: it costs most of a second. What the SDK keeps to itself and we need all the
same (the connection behind a request) is wrapped here and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import anyio
import mcp_types as types
import uvicorn
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS, is_version_at_least
from pydantic import TypeAdapter, ValidationError
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = [
    "MODERN_PROTOCOL_VERSIONS",
    "ASGIApp",
    "AccessToken",
    "AuthenticatedUser",
    "CORSMiddleware",
    "CallNext",
    "Connection",
    "Context",
    "ForgeServer",
    "HandlerResult",
    "IdleTimeoutProtocol",
    "InMemorySubscriptionBus",
    "ListenHandler",
    "MCPError",
    "MemoryObjectReceiveStream",
    "MemoryObjectSendStream",
    "Message",
    "PlainTextResponse",
    "QuietMcpServer",
    "Receive",
    "Response",
    "Scope",
    "Send",
    "ServerMessageMetadata",
    "ServerRequestContext",
    "ServerSession",
    "SessionMessage",
    "StreamableHTTPSessionManager",
    "ToolsListChanged",
    "TypeAdapter",
    "ValidationError",
    "anyio",
    "connection_of",
    "is_version_at_least",
    "progress_token",
    "raw_params",
    "types",
    "uvicorn",
]

Context = ServerRequestContext[Any, Any]
MOST_CONNECTIONS: Final = 512
"""Half of the files that a process may usually have open."""
IDLE_CHECK_SECONDS: Final = 10.0


class ForgeServer(Server[dict[str, Any]]):
    """Says what is true of us in both eras: the list of tools may change, resources cannot be subscribed to."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        told = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(told, experimental_capabilities, extensions)

    def get_capabilities(self, *args: Any, **kwargs: Any) -> types.ServerCapabilities:
        found = super().get_capabilities(*args, **kwargs)
        if found.resources is not None:
            found.resources = types.ResourcesCapability(subscribe=False, list_changed=False)
        return found


class QuietMcpServer(uvicorn.Server):
    """Leaves the signals to us: uvicorn would raise them again once it has ended, and our exit code is 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class IdleTimeoutProtocol(H11Protocol):
    """A connection that asks for nothing between two looks is closed, and so is one that comes when there are too many.

    Threat: anybody on this machine, token or not, who opens connections and says nothing until no others fit.
    """

    _idle_since: object = None
    """The last request that was answered when we looked, none at first; while one is being answered: something else."""
    _next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._next_look = self.loop.call_later(IDLE_CHECK_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        busy = self.cycle is not None and not self.cycle.response_complete
        if not busy and self.cycle is self._idle_since:
            self.transport.abort()
            return
        self._idle_since = self if busy else self.cycle
        self._next_look = self.loop.call_later(IDLE_CHECK_SECONDS, self._look)


def connection_of(ctx: Context) -> Connection:
    """The connection a request came over: it lives as long as the client stays (handshake era) or as the request."""
    return ctx.session._connection


def raw_params(ctx: Context) -> Mapping[str, Any]:
    return ctx.params or {}


def progress_token(ctx: Context) -> str | int | None:
    """What the client wants its progress under; None: it wants none."""
    meta = raw_params(ctx).get("_meta")
    token = meta.get("progressToken") if isinstance(meta, Mapping) else None
    return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None
