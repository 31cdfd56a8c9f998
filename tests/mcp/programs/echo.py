"""A well-behaved small server over stdio: plain JSON, no SDK, ready in 20 ms. It speaks the legacy era (2025-11-25).

Tools: `echo {text}`, `add {a, b}` (structured), `fail` (isError), `env {name}`, `pid`, `sleep {seconds, progress?}`,
`append {path, text}` (an effect that can be counted), `stderr {text}`. Resources `note://one`, `note://blob`, a
template, and a prompt `greet {who}`, whose argument it completes. Who is subscribed to a resource hears of it when its
URI is echoed. ECHO_LOG names a file that gets one line for each message received; ECHO_LATE is how many seconds it
sleeps before it answers `initialize`; ECHO_GATE names a file without which it does not.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from typing import Any

_out = threading.Lock()
_cancelled: set[Any] = set()
_watched: set[str] = set()


def send(message: dict[str, Any]) -> None:
    with _out:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        sys.stdout.flush()


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]} | more


def shape(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_STRING, _NUMBER = {"type": "string"}, {"type": "number"}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "echo",
        "description": "Says it back.",
        "inputSchema": shape(text=_STRING),
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "add",
        "description": "Adds two numbers.",
        "inputSchema": shape(a=_NUMBER, b=_NUMBER),
        "outputSchema": shape(sum=_NUMBER),
    },
    {"name": "fail", "description": "Always fails.", "inputSchema": shape()},
    {"name": "env", "description": "One variable of its environment.", "inputSchema": shape(name=_STRING)},
    {"name": "pid", "description": "Its process id.", "inputSchema": shape()},
    {
        "name": "sleep",
        "description": "Waits; with `progress`, says so every tenth of a second, and five times at least.",
        "inputSchema": {
            "type": "object",
            "properties": {"seconds": _NUMBER, "progress": {"type": "boolean"}},
            "required": ["seconds"],
        },
    },
    {"name": "append", "description": "Appends a line to a file.", "inputSchema": shape(path=_STRING, text=_STRING)},
    {"name": "stderr", "description": "Writes to stderr.", "inputSchema": shape(text=_STRING)},
]


def call(name: str, args: dict[str, Any], ident: Any, token: Any) -> dict[str, Any]:
    match name:
        case "echo":
            for uri in [each for each in _watched if each in args["text"]]:
                send({"method": "notifications/resources/updated", "params": {"uri": uri}})
            return text(args["text"])
        case "add":
            total = args["a"] + args["b"]
            return text(str(total), structuredContent={"sum": total})
        case "fail":
            return text("it failed, as it always does", isError=True)
        case "env":
            return text(os.environ.get(args["name"], "(unset)"))
        case "pid":
            return text(str(os.getpid()))
        case "sleep":
            end = time.monotonic() + min(float(args["seconds"]), 60)
            step = 0
            least = 5 if args.get("progress") else 0  # also where this process stood still until the end
            while (time.monotonic() < end or step < least) and ident not in _cancelled:
                time.sleep(min(0.1, max(0.0, end - time.monotonic())))
                step += 1
                if args.get("progress") and token is not None:
                    params = {"progressToken": token, "progress": step, "message": f"step {step}"}
                    send({"method": "notifications/progress", "params": params})
            return text("slept")
        case "append":
            with open(args["path"], "a", encoding="utf-8") as file:
                file.write(args["text"] + "\n")
            return text("appended")
        case "stderr":
            print(args["text"], file=sys.stderr, flush=True)
            return text("written")
    raise LookupError(f"Unknown tool: {name}")


def answer(method: str, params: dict[str, Any], ident: Any) -> dict[str, Any]:
    match method:
        case "initialize":
            time.sleep(float(os.environ.get("ECHO_LATE", "0")))
            while (gate := os.environ.get("ECHO_GATE")) and not os.path.exists(gate):
                time.sleep(0.01)
            return {
                "protocolVersion": min(params.get("protocolVersion", "2025-11-25"), "2025-11-25"),
                "capabilities": {
                    "tools": {"listChanged": True},
                    "resources": {"subscribe": True},
                    "prompts": {},
                    "completions": {},
                },
                "serverInfo": {"name": "echo", "version": "1"},
                "instructions": "Says things back.",
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            token = params.get("_meta", {}).get("progressToken")
            return call(params["name"], params.get("arguments") or {}, ident, token)
        case "resources/list":
            return {"resources": [{"uri": "note://one", "name": "one"}, {"uri": "note://blob", "name": "blob"}]}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "note://{name}", "name": "note"}]}
        case "resources/read":
            if params["uri"] == "note://blob":
                blob = base64.b64encode(bytes(range(256))).decode()
                return {"contents": [{"uri": params["uri"], "mimeType": "application/octet-stream", "blob": blob}]}
            return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": f"the note {params['uri']}"}]}
        case "resources/subscribe" | "resources/unsubscribe":
            (_watched.add if method.endswith("/subscribe") else _watched.discard)(params["uri"])
            return {}
        case "completion/complete":
            return {"completion": {"values": [f"{params['argument']['value']}{end}" for end in ("da", "bert")]}}
        case "prompts/list":
            arguments = [{"name": "who", "description": "Whom to greet", "required": True}]
            return {"prompts": [{"name": "greet", "description": "A greeting", "arguments": arguments}]}
        case "prompts/get":
            words = f"Say hello to {params.get('arguments', {}).get('who', 'nobody')}."
            return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}
    raise NotImplementedError(f"Method not found: {method}")


def handle(message: dict[str, Any]) -> None:
    ident = message["id"]
    try:
        result = answer(message["method"], message.get("params") or {}, ident)
    except LookupError as unknown:
        send({"id": ident, "error": {"code": -32602, "message": str(unknown.args[0])}})
    except NotImplementedError as unknown:
        send({"id": ident, "error": {"code": -32601, "message": str(unknown)}})
    else:
        if ident not in _cancelled:
            send({"id": ident, "result": result})


def main() -> None:
    log = os.environ.get("ECHO_LOG")
    for line in sys.stdin:
        message = json.loads(line)
        if log:
            with open(log, "a", encoding="utf-8") as file:
                file.write(json.dumps(message) + "\n")
        if message.get("method") == "notifications/cancelled":
            _cancelled.add(message["params"]["requestId"])
        elif "id" in message and "method" in message:
            threading.Thread(target=handle, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
