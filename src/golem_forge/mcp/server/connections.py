"""Which client a request is of: the connection it came over (handshake era), else the token, else the one at the pipe.

Takes the request's context, gives the Client, made at its first request. A client goes when its connection closes, its
token is revoked or the server ends, and everything it had under way goes with it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from golem_forge.mcp.server.clients import Client
from golem_forge.mcp.server.host import ClientFacts, Host

if TYPE_CHECKING:
    from golem_forge.mcp.server.sdk import Context

_STATE: Final = "golem-forge/client"
AT_THE_PIPE: Final = ""


class Clients:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._by_token: dict[str, Client] = {}
        self._connected: dict[Client, str] = {}
        """Those of the handshake era → the token they came with."""

    def of(self, ctx: Context) -> Client:
        from golem_forge.mcp.server.sdk import MODERN_PROTOCOL_VERSIONS, connection_of

        token, name = _credential(ctx)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            if token not in self._by_token:
                self._by_token[token] = self._admitted(name)
            return self._by_token[token]
        connection = connection_of(ctx)
        client: Client | None = connection.state.get(_STATE)
        if client is None:
            client = connection.state[_STATE] = self._admitted(name)
            self._connected[client] = token
            connection.exit_stack.push_async_callback(self._left, client)
        return client

    async def revoked(self, token: str) -> None:
        """What the holder of this token had under way ends; whoever comes with it again is refused at the door."""
        gone = [client for client, came_with in self._connected.items() if came_with == token]
        if (modern := self._by_token.pop(token, None)) is not None:
            gone.append(modern)
        await asyncio.gather(*(self._left(client) for client in gone))

    async def aclose(self) -> None:
        everyone = [*self._by_token.values(), *self._connected]
        self._by_token.clear()
        await asyncio.gather(*(self._left(client) for client in everyone))

    def _admitted(self, name: str) -> Client:
        return Client(self._host, self._host.admit(ClientFacts(caller_name=name)))

    async def _left(self, client: Client) -> None:
        self._connected.pop(client, None)
        await client.aclose()


def _credential(ctx: Context) -> tuple[str, str]:
    """(id of the token, its name), as the door noted them; both empty over a pipe."""
    from golem_forge.mcp.server.sdk import AuthenticatedUser

    scope = getattr(ctx.request, "scope", None)
    user = scope.get("user") if scope is not None else None
    if not isinstance(user, AuthenticatedUser):
        return AT_THE_PIPE, ""
    return user.access_token.client_id, user.access_token.subject or ""
