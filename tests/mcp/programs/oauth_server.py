"""An authorization server and a protected MCP endpoint, each on its own loopback port, by the SDK's own handlers.

`async with authorization() as world`: `world.url` is the endpoint. It answers 200 to whoever brings a token that counts
and 401 to everybody else; `world.tokens` may be shortened, revoked and counted from outside.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes, create_protected_resource_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.deadlines import PATIENCE


@dataclass
class World:
    """The provider behind the SDK's handlers, and what a test looks at."""

    issuer: str = ""
    url: str = ""
    lifetime: int = 3600
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    refreshes: dict[str, RefreshToken] = field(default_factory=dict)
    refreshed: int = 0
    refuse: bool = False
    """The person behind the browser says no."""
    wanted_scope: str = ""
    """The endpoint wants this one too."""
    seen: list[dict[str, str]] = field(default_factory=list)
    """Headers of the requests to the endpoint."""

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.refuse:
            return construct_redirect_uri(str(params.redirect_uri), error="access_denied", state=params.state)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issued(client.client_id or "", authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refreshes.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.refreshed += 1
        return self._issued(client.client_id or "", scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.tokens.pop(token.token, None)

    def _issued(self, client: str, scopes: list[str]) -> OAuthToken:
        access, refresh = f"canary-access-{secrets.token_hex(8)}", f"canary-refresh-{secrets.token_hex(8)}"
        self.tokens[access] = AccessToken(token=access, client_id=client, scopes=scopes)
        self.refreshes[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.lifetime, scope=" ".join(scopes) or None
        )

    async def endpoint(self, request: Request) -> Response:
        self.seen.append(dict(request.headers))
        token = self.tokens.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        place = self.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        if token is None:
            return Response(status_code=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{place}"'})
        if self.wanted_scope and self.wanted_scope not in token.scopes:
            wants = f'Bearer error="insufficient_scope", scope="{self.wanted_scope}", resource_metadata="{place}"'
            return Response(status_code=403, headers={"WWW-Authenticate": wants})
        return JSONResponse({"jsonrpc": "2.0", "id": 1, "result": {}})


@asynccontextmanager
async def authorization() -> AsyncIterator[World]:
    world = World()
    auth_socket, resource_socket = _listening(), _listening()
    world.issuer = f"http://127.0.0.1:{auth_socket.getsockname()[1]}"
    world.url = f"http://127.0.0.1:{resource_socket.getsockname()[1]}/mcp"
    options = ClientRegistrationOptions(enabled=True, valid_scopes=["read", "write"], default_scopes=["read"])
    auth = create_auth_routes(world, AnyHttpUrl(world.issuer), client_registration_options=options)
    metadata = create_protected_resource_routes(
        AnyHttpUrl(world.url), [AnyHttpUrl(world.issuer)], scopes_supported=["read"]
    )
    endpoint = Route("/mcp", world.endpoint, methods=["POST"])
    async with (
        _served(Starlette(routes=auth), auth_socket),
        _served(Starlette(routes=[*metadata, endpoint]), resource_socket),
    ):
        yield world


def _listening() -> socket.socket:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    return listening


@asynccontextmanager
async def _served(app: Starlette, place: socket.socket) -> AsyncIterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
    server.capture_signals = nullcontext  # type: ignore[method-assign]
    task = asyncio.create_task(server.serve(sockets=[place]))
    async with asyncio.timeout(PATIENCE):
        while not server.started:
            await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        async with asyncio.timeout(PATIENCE):
            await task
