"""2026-07-28 over HTTP by hand, without the SDK's client: for what no well-behaved client sends."""

from __future__ import annotations

from typing import Any

import httpx2
from tests.deadlines import PATIENCE

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "by-hand", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}


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
