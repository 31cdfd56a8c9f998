"""A small server of the new era (2026-07-28) over stdio: plain JSON, no SDK, no handshake.

Tools: `echo {text}`, `ask {rounds?}` (wants a form answered inside its result), `again` (wants to be asked again three
times, without any question), `forever` (never stops asking), `grow` (adds a tool and says so in the listen stream),
`drop` (ends the listen stream), `rich` (a result full of things nobody knows). MODERN_LOG names a file that gets one
line for each message received. `modern.py dies-at-probe`: speaks only the old era and dies at the question for the new.
`modern.py resources`: has `note://one` too; who listens for it hears of it when its URI is echoed, and `drop` ends
every such stream.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
LISTEN_ID = "io.modelcontextprotocol/subscriptionId"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
RICH = {
    "resultType": "complete",
    "content": [
        {"type": "text", "text": "seen", "annotations": {"audience": ["user"], "unheard": 1}},
        {"type": "hologram", "depth": 3, "nothing": None},
    ],
    "structuredContent": {"a": None, "b": [1, 2.5]},
    "_meta": {"vendor/x": {"deep": None}},
    "surplus": [None],
}

_out = threading.Lock()
_extra: list[str] = []
_listening: Any = None
_watching: dict[Any, list[str]] = {}
"""Stream → the resources that it is for."""


def send(message: dict[str, Any]) -> None:
    with _out:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        sys.stdout.flush()


def done(**more: Any) -> dict[str, Any]:
    return {"resultType": "complete"} | more


def text(words: str) -> dict[str, Any]:
    return done(content=[{"type": "text", "text": words}])


def tools() -> list[dict[str, Any]]:
    names = ["echo", "ask", "again", "forever", "grow", "drop", "rich", *_extra]
    return [{"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}} for name in names]


def wants(state: str, asks: bool) -> dict[str, Any]:
    wanted: dict[str, Any] = {"resultType": "input_required", "requestState": state}
    if asks:
        params = {"mode": "form", "message": f"Question {state}", "requestedSchema": FORM}
        wanted["inputRequests"] = {f"q{state}": {"method": "elicitation/create", "params": params}}
    return wanted


def call(params: dict[str, Any]) -> dict[str, Any]:
    name, args = params["name"], params.get("arguments") or {}
    step = int(params.get("requestState") or 0)
    match name:
        case "echo":
            for stream, uris in _watching.items():
                for uri in uris:
                    if uri in args.get("text", ""):
                        tell("notifications/resources/updated", stream, uri=uri)
            return text(args.get("text", ""))
        case "ask":
            if step < int(args.get("rounds", 1)):
                return wants(str(step + 1), asks=True)
            return text(json.dumps(params.get("inputResponses")))
        case "again":
            return wants(str(step + 1), asks=False) if step < 3 else text("enough")
        case "forever":
            return wants(str(step + 1), asks=False)
        case "grow":
            _extra.append(f"grown{len(_extra)}")
            tell("notifications/tools/list_changed", _listening)
            return text("grew")
        case "drop":
            for stream in list(_watching) or [_listening]:
                _watching.pop(stream, None)
                send({"id": stream, "result": done()})
            return text("dropped")
        case "rich":
            return RICH
    raise LookupError(f"Unknown tool: {name}")


def tell(method: str, stream: Any, **params: Any) -> None:
    if stream is not None:
        send({"method": method, "params": params | {"_meta": {LISTEN_ID: stream}}})


def answer(method: str, params: dict[str, Any], ident: Any) -> dict[str, Any] | None:
    global _listening
    if MODE == "dies-at-probe" and method == "initialize":
        info = {"name": "old", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    match method:
        case "server/discover":
            if MODE == "dies-at-probe":
                os._exit(4)
            capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
            if MODE == "resources":
                capabilities["resources"] = {"subscribe": True}
            return done(supportedVersions=["2026-07-28"], capabilities=capabilities, ttlMs=0, cacheScope="public")
        case "tools/list":
            return done(tools=tools(), ttlMs=5000, cacheScope="public")
        case "tools/call":
            return call(params)
        case "resources/list":
            return done(resources=[{"uri": "note://one", "name": "one"}], ttlMs=5000, cacheScope="public")
        case "resources/read":
            words = {"uri": params["uri"], "mimeType": "text/plain", "text": f"the note {params['uri']}"}
            return done(contents=[words], ttlMs=0, cacheScope="public")
        case "subscriptions/listen":
            if uris := params["notifications"].get("resourceSubscriptions"):
                _watching[ident] = uris
            else:
                _listening = ident
            tell("notifications/subscriptions/acknowledged", ident, notifications=params["notifications"])
            return None
    raise NotImplementedError(f"Method not found: {method}")


def main() -> None:
    log = os.environ.get("MODERN_LOG")
    for line in sys.stdin:
        message = json.loads(line)
        if log:
            with open(log, "a", encoding="utf-8") as file:
                file.write(json.dumps(message | {"at": time.monotonic()}) + "\n")
        if "id" not in message or "method" not in message:
            continue
        try:
            result = answer(message["method"], message.get("params") or {}, message["id"])
        except LookupError as unknown:
            send({"id": message["id"], "error": {"code": -32602, "message": str(unknown.args[0])}})
        except NotImplementedError as unknown:
            send({"id": message["id"], "error": {"code": -32601, "message": str(unknown)}})
        else:
            if result is not None:
                send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
