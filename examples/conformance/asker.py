"""A small MCP server over stdio that asks: `ask {message, schema, key?}` puts a form to the person and says what came.

It speaks the revision 2026-07-28 alone, in plain JSON and without a package, so that it starts at once inside walls:
the question is in the result, and the call comes again with the answer. Forge asks its own client in that client's era.
"""

from __future__ import annotations

import json
import sys
from typing import Any

REVISION = "2026-07-28"
UNSUPPORTED_VERSION = -32022
_ASK = {
    "name": "ask",
    "description": "Ask the person a form.",
    "annotations": {"readOnlyHint": True},
    "inputSchema": {
        "type": "object",
        "properties": {"message": {"type": "string"}, "schema": {"type": "object"}, "key": {"type": "string"}},
        "required": ["message", "schema"],
    },
}
_SHARED = {"ttlMs": 60_000, "cacheScope": "private"}


class Refused(Exception):
    def __init__(self, code: int, message: str, **data: Any) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "server/discover":
            info = {"io.modelcontextprotocol/serverInfo": {"name": "asker", "version": "1"}}
            return {"supportedVersions": [REVISION], "capabilities": {"tools": {}}, "_meta": info, **_SHARED}
        case "tools/list":
            return {"tools": [_ASK], **_SHARED}
        case "tools/call":
            return asked(params, **params["arguments"])
        case "initialize":
            raise Refused(UNSUPPORTED_VERSION, "only the new era is spoken here", supported=[REVISION])
        case _:
            raise Refused(-32601, f"Method not found: {method}")


def asked(params: dict[str, Any], message: str, schema: dict[str, Any], key: str = "question") -> dict[str, Any]:
    said = params.get("inputResponses", {}).get(key)
    if said is None:
        form = {"mode": "form", "message": message, "requestedSchema": schema}
        return {
            "resultType": "input_required",
            "inputRequests": {key: {"method": "elicitation/create", "params": form}},
        }
    return {"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        try:
            reply = {"result": {"resultType": "complete", **answer(message["method"], message.get("params") or {})}}
        except Refused as refused:
            reply = {"error": refused.error}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


if __name__ == "__main__":
    main()
