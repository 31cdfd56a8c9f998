"""An MCP server over stdin and stdout whose tools are whatever the file in its first argument says at that moment."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": min(params.get("protocolVersion", "2025-11-25"), "2025-11-25"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "changing", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": json.loads(Path(sys.argv[1]).read_text())}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params") or {})
        said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
