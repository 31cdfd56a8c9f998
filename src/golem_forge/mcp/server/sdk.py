"""The official SDK as the server side uses it: the one place that imports it, with starlette's answers.

Imported inside the functions that need it: it costs most of a second. What the SDK keeps to itself and we need all the
same (the connection behind a request) is wrapped here and nowhere else. Everything imported here is for others.
"""
# ruff: noqa: F401
# mypy: implicit-reexport

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse

Context = ServerRequestContext[Any, Any]


class ForgeServer(Server[dict[str, Any]]):
    """Says what is true of us in both eras: the lists of tools and prompts may change, that of resources is a client's
    own and announced to nobody."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        told = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(told, experimental_capabilities, extensions)

    def get_capabilities(self, *args: Any, **kwargs: Any) -> types.ServerCapabilities:
        found = super().get_capabilities(*args, **kwargs)
        if found.resources is not None:
            found.resources.list_changed = False
        return found


def connection_of(ctx: Context) -> Connection:
    """The connection a request came over: it lives as long as the client stays (handshake era) or as the request."""
    return ctx.session._connection


def raw_params(ctx: Context) -> Mapping[str, Any]:
    return ctx.params or {}


def log_level(ctx: Context) -> str:
    """Returns the level from which this request wants log messages (2026-07-28); empty if it wants none."""
    meta = raw_params(ctx).get("_meta")
    level = meta.get(types.LOG_LEVEL_META_KEY) if isinstance(meta, Mapping) else None
    return level if isinstance(level, str) else ""


async def ask_client(ctx: Context, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """A sampling or roots request on the open request's own channel. Raises MCPError, ValidationError."""
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    if method == "roots/list":
        roots = await ctx.session.send_request(types.ListRootsRequest(), types.ListRootsResult, metadata=related)
        return roots.model_dump(by_alias=True, mode="json", exclude_none=True)
    asked = types.CreateMessageRequest(params=types.CreateMessageRequestParams.model_validate(params, by_name=False))
    answer = await ctx.session.send_request(asked, types.CreateMessageResult, metadata=related)
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


def progress_token(ctx: Context) -> str | int | None:
    """Returns the client's progress token; None if it wants no progress."""
    meta = raw_params(ctx).get("_meta")
    token = meta.get("progressToken") if isinstance(meta, Mapping) else None
    return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None
