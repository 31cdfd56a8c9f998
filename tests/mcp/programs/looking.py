"""A server that tells how it was started and spoken to, for tests of configuration. Legacy era, plain JSON.

`look {at}` gives one of: argv, cwd, born, methods (those it received), capabilities (the client's), env:NAME (how long
that variable is), write:PATH, reach:PORT (of this machine). `wait {seconds, progress}` is only slow. With the argument
`--slow=SECONDS` it takes that long before its first answer.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

BORN = time.time_ns()
SEEN: list[str] = []
CLIENT: dict[str, Any] = {}
READER = {"readOnlyHint": True}
TOOLS = [
    {"name": "look", "description": "Tells.", "inputSchema": {"type": "object"}, "annotations": READER},
    {"name": "wait", "description": "Is slow.", "inputSchema": {"type": "object"}},
]


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def look(at: str) -> Any:
    kind, _, rest = at.partition(":")
    if kind == "env":
        return len(os.environ[rest]) if rest in os.environ else -1
    if kind == "write":
        try:
            with open(rest, "w", encoding="utf-8") as file:
                file.write("x")
        except OSError as error:
            return type(error).__name__
        return "written"
    if kind == "reach":
        try:
            socket.create_connection(("127.0.0.1", int(rest)), timeout=90).close()
        except OSError:
            return "no way"
        return "reached"
    return {"argv": sys.argv[1:], "cwd": os.getcwd(), "born": BORN, "methods": SEEN, "capabilities": CLIENT}[kind]


def wait(seconds: float, token: Any) -> str:
    for step in range(int(min(seconds, 20) * 10)):
        time.sleep(0.1)
        if token is not None:
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
    return "waited"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        CLIENT.update(params["capabilities"])
        about = {"name": "looking", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        args = params.get("arguments", {})
        if params["name"] == "look":
            said = look(args["at"])
        else:
            said = wait(args["seconds"], params.get("_meta", {}).get("progressToken") if args.get("progress") else None)
        return {"content": [{"type": "text", "text": json.dumps(said)}]}
    return {} if method == "ping" else None


def main() -> None:
    for word in sys.argv[1:]:
        if word.startswith("--slow="):
            time.sleep(float(word.removeprefix("--slow=")))
    for line in sys.stdin:
        message = json.loads(line)
        SEEN.append(message.get("method", ""))
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        unknown = {"error": {"code": -32601, "message": "Method not found"}}
        send({"id": message["id"], **(unknown if result is None else {"result": result})})


if __name__ == "__main__":
    main()
