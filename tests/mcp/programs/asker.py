"""A server that asks: its tool `ask {method, params}` puts that request to the client and gives back what it answered.

`python asker.py legacy|modern`. In the old era the request is sent during the call; in the new one it stands in the
call's result, and the call comes again with the answer. `ask` with `times` asks that often, one after the other;
`answer_first` (legacy) answers the call before the question is answered. `unbidden` asks a second after it answered.
ASKER_LOG gets the client's capabilities and every answer to a question that no call waits for, a line each.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

MODERN = sys.argv[1:2] == ["modern"]
_out = threading.Lock()
_answers: dict[str, Any] = {}
_answered = threading.Condition()
_count = 0


def send(message: dict[str, Any]) -> None:
    with _out:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        sys.stdout.flush()


def log(entry: Any) -> None:
    if path := os.environ.get("ASKER_LOG"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def request(method: str, params: dict[str, Any], within: float = 90) -> Any:
    global _count
    _count += 1
    ident = f"q{_count}"
    send({"id": ident, "method": method, "params": params})
    with _answered:
        _answered.wait_for(lambda: ident in _answers, within)
        return _answers.get(ident, "no answer")


def wait_for(path: str) -> None:
    """Until there is such a file."""
    while not os.path.exists(path):
        time.sleep(0.01)


def text(value: Any) -> dict[str, Any]:
    return complete({"content": [{"type": "text", "text": json.dumps(value)}]})


def complete(result: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"resultType": "complete", **more, **result} if MODERN else result


def call(params: dict[str, Any], ident: Any) -> dict[str, Any]:
    args = params.get("arguments") or {}
    wanted = {"method": args["method"], "params": args.get("params") or {}}
    if params["name"] == "unbidden":
        threading.Thread(target=lambda: (wait_for(args["until"]), log(request(**wanted))), daemon=True).start()
        return text("asked later")
    if not MODERN:
        if args.get("answer_first"):
            threading.Thread(target=lambda: log(request(**wanted)), daemon=True).start()
            wait_for(args["answer_first"])
            return text("was not waited for")
        return text([request(**wanted) for _ in range(args.get("times", 1))])
    state = json.loads(params.get("requestState") or "[]")
    if (answers := params.get("inputResponses")) is not None:
        state.append(answers["q"])
        if len(state) >= args.get("times", 1):
            return text(state)
    return {"resultType": "input_required", "inputRequests": {"q": wanted}, "requestState": json.dumps(state)}


def answer(method: str, params: dict[str, Any], ident: Any) -> dict[str, Any] | None:
    ways = {"tools": {}}
    info = {"name": "asker", "version": "1"}
    if method == "server/discover" and MODERN:
        log(params["_meta"]["io.modelcontextprotocol/clientCapabilities"])
        kept = {"ttlMs": 0, "cacheScope": "private"}
        return complete({"supportedVersions": ["2026-07-28"], "capabilities": ways, "serverInfo": info}, **kept)
    if method == "initialize" and not MODERN:
        log(params["capabilities"])
        return {"protocolVersion": "2025-11-25", "capabilities": ways, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"method": {"type": "string"}, "params": {"type": "object"}}}
        tools = [{"name": name, "description": "Asks.", "inputSchema": schema} for name in ("ask", "unbidden")]
        return complete({"tools": tools}, ttlMs=0, cacheScope="private")
    if method == "tools/call":
        return call(params, ident)
    return None


def handle(message: dict[str, Any]) -> None:
    result = answer(message["method"], message.get("params") or {}, message["id"])
    if result is None:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
    elif result:
        send({"id": message["id"], "result": result})


def main() -> None:
    end = time.monotonic() + 300
    for line in sys.stdin:
        message = json.loads(line)
        if "method" in message and "id" in message:
            threading.Thread(target=handle, args=(message,), daemon=True).start()
        elif "id" in message:
            with _answered:
                _answers[message["id"]] = message.get("result", {"error": message.get("error")})
                _answered.notify_all()
        if time.monotonic() > end:
            break


if __name__ == "__main__":
    main()
