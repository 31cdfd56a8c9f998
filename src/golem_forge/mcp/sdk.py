"""The official SDK as the client side uses it: the one place that imports it there.

It costs most of a second, so most modules use it as `golem_forge.mcp.lazy_sdk`, which loads it with the first server.
Nothing private of the SDK is named anywhere else: what the session does not offer openly is wrapped here. Everything
imported here is for others.
"""
# ruff: noqa: F401
# mypy: implicit-reexport

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import httpx2
from mcp.client._probe import negotiate_auto
from mcp.client._transport import Transport, TransportStreams
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
)
from mcp.client.auth.utils import extract_scope_from_www_auth, union_scopes
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared._httpx_utils import next_request_within_origin
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    ListRootsResult,
    Root,
    TextContent,
    jsonrpc_message_adapter,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError


def stamp(session: ClientSession, data: dict[str, Any], options: CallOptions) -> None:
    """Puts on a request what its era wants on every one: the version header, and in the new era the envelope.

    The session does this only inside its typed methods, which refuse a whole list for one sloppy entry and drop what
    they do not know; we send requests raw and check the answers ourselves.
    """
    session._stamp(data, options)
