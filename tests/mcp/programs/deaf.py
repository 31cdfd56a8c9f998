"""A server that asks and does not listen: when it is called, it sends request after request and reads nothing more.

`python deaf.py METHOD`: what it asks for. It stops after 20000 requests or a minute, whichever is first.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

METHOD = sys.argv[1]
MOST = 20_000
SECONDS = 60.0


def answer(ident: Any, result: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}), flush=True)


def ask_without_end() -> None:
    end = time.monotonic() + SECONDS
    for number in range(MOST):
        print(json.dumps({"jsonrpc": "2.0", "id": f"q{number}", "method": METHOD}))
        if time.monotonic() > end:
            return


for line in sys.stdin:
    message = json.loads(line)
    method, ident = message.get("method"), message.get("id")
    if method == "initialize":
        info = {"name": "deaf", "version": "1"}
        answer(ident, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        answer(ident, {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        ask_without_end()
        time.sleep(SECONDS)
