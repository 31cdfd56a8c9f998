"""A server with as many tools as its first argument says, fifty a page, over stdio: plain JSON, no SDK, legacy era.

Tools `shelve_book_0`, `shelve_book_1`, … answer with their own raw name; one more, `odd.name`, has to be renamed."""

from __future__ import annotations

import json
import sys
from typing import Any

COUNT = int(sys.argv[1])
PAGE = 50
NAMES = [f"shelve_book_{number}" for number in range(COUNT)] + ["odd.name"]


def tool(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"shelf": {"type": "string", "description": "Which shelf"}}}
    return {"name": name, "description": f"Puts a book in its place ({name}).", "inputSchema": schema}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "plenty", "version": "1"},
        }
    if method == "tools/list":
        first = int(params.get("cursor") or 0)
        page: dict[str, Any] = {"tools": [tool(name) for name in NAMES[first : first + PAGE]]}
        return page | ({"nextCursor": str(first + PAGE)} if first + PAGE < len(NAMES) else {})
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"did {params['name']}"}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    failed = {"error": {"code": -32601, "message": "Method not found"}}
    said = {"jsonrpc": "2.0", "id": message["id"], **({"result": result} if result is not None else failed)}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
