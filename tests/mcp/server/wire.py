"""Clients of a server over HTTP: the SDK's, and 2026-07-28 by hand, for what no well-behaved client sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from tests.deadlines import PATIENCE

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "by-hand", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}


@asynccontextmanager
async def sdk_client(
    url: str, token: str, mode: str, listening: asyncio.Event | None = None, **how: Any
) -> AsyncIterator[Any]:
    """The Python SDK's, in this process. `listening`: set as soon as its stream for notifications is open."""
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {token}"}

    async def opened(response: Any) -> None:
        if listening is not None and response.request.method == "GET":
            listening.set()

    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE, verify=False, event_hooks={"response": [opened]}) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **how) as client,
    ):
        yield client


class Wire:
    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
        }

    async def send(self, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
        """The result."""
        message = await self.message(method, params, **headers)
        assert "result" in message, message
        return message["result"]  # type: ignore[no-any-return]

    async def message(self, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        named = {"Mcp-Method": method} | ({"Mcp-Name": params["name"]} if "name" in params else {})
        async with httpx2.AsyncClient(timeout=PATIENCE, verify=False) as http:
            answer = await http.post(self.url, json=body, headers={**self.headers, **named, **headers})
        message: dict[str, Any] = answer.json()
        return message

    async def call(
        self, name: str, args: dict[str, Any], *, state: str = "", answer: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        params: dict[str, Any] = {"name": name, "arguments": args}
        if state:
            params["requestState"] = state
        if answer is not None:
            params["inputResponses"] = {"forge": {"action": "accept", "content": answer}}
        return await self.send("tools/call", params)
