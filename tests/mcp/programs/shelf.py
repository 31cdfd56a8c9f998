"""A server whose tools are what a file says now: `python shelf.py FILE`, a JSON list of `tools/list` entries.

It reads the file for every list and says so when it was edited, within a twentieth of a second. A call of any tool is
noted as a line `[name, arguments]` of FILE.calls and answered with the entry's own `answer` (a CallToolResult, which is
not listed), else with `<name> ran`. Plain JSON over stdio, legacy era; `SHELF_INSTRUCTIONS` are its words to a model.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

FILE = sys.argv[1]
_out = threading.Lock()


def send(message: dict[str, Any]) -> None:
    with _out:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        sys.stdout.flush()


def entries() -> list[Any]:
    with open(FILE, encoding="utf-8") as file:
        return list(json.load(file))


def stamp() -> tuple[int, int]:
    now = os.stat(FILE)
    return now.st_mtime_ns, now.st_ino


def watch() -> None:
    before, end = stamp(), time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.05)
        if before != (now := stamp()):
            before = now
            send({"method": "notifications/tools/list_changed"})


def listed(entry: Any) -> Any:
    return {key: value for key, value in entry.items() if key != "answer"} if isinstance(entry, dict) else entry


def call(name: str, args: dict[str, Any]) -> dict[str, Any]:
    with open(f"{FILE}.calls", "a", encoding="utf-8") as file:
        file.write(json.dumps([name, args]) + "\n")
    for entry in entries():
        if isinstance(entry, dict) and entry.get("name") == name and "answer" in entry:
            return dict(entry["answer"])
    return {"content": [{"type": "text", "text": f"{name} ran"}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            about = {"name": "shelf", "version": "1"}
            words = os.environ.get("SHELF_INSTRUCTIONS")
            ways = {"tools": {"listChanged": True}}
            said = {"protocolVersion": "2025-11-25", "capabilities": ways, "serverInfo": about}
            return {**said, "instructions": words} if words else said
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [listed(entry) for entry in entries()]}
        case "tools/call":
            return call(params["name"], params.get("arguments") or {})
    return None


def main() -> None:
    threading.Thread(target=watch, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        unknown = {"error": {"code": -32601, "message": "Method not found"}}
        send({"id": message["id"], **(unknown if result is None else {"result": result})})


if __name__ == "__main__":
    main()
