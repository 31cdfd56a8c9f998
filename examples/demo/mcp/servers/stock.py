"""An MCP server in plain Python, without a library: two tools over a file of counts. `python3 stock.py FILE`.

It says `readOnlyHint` of one of them. Forge asks all the same, until forge.yaml says `trust: trusted`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ITEM = {"type": "string", "description": "What it is called"}
TOOLS = [
    {
        "name": "count",
        "description": "How many of an item are on the shelf.",
        "inputSchema": {"type": "object", "properties": {"item": ITEM}, "required": ["item"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "take",
        "description": "Take some of an item from the shelf.",
        "inputSchema": {
            "type": "object",
            "properties": {"item": ITEM, "number": {"type": "integer", "minimum": 1, "maximum": 10}},
            "required": ["item", "number"],
        },
    },
]


def call(name: str, args: dict[str, Any], file: Path) -> str:
    shelf: dict[str, int] = json.loads(file.read_text())
    item = args["item"]
    if name == "take":
        if shelf.get(item, 0) < args["number"]:
            raise LookupError(f"there are only {shelf.get(item, 0)} of {item}")
        shelf[item] -= args["number"]
        file.write_text(json.dumps(shelf))
    return f"{item}: {shelf.get(item, 0)} on the shelf"


def answer(method: str, params: dict[str, Any], file: Path) -> dict[str, Any] | None:
    match method:
        case "initialize":
            told = {"name": "stock", "version": "1.0"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": told}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            try:
                text, failed = call(params["name"], params["arguments"], file), False
            except LookupError as problem:
                text, failed = str(problem.args[0]), True
            return {"content": [{"type": "text", "text": text}], "isError": failed}
        case "ping":
            return {}
    return None


def main(file: Path) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked and "method" in asked:
            said = answer(asked["method"], asked.get("params", {}), file)
            unknown = {"code": -32601, "message": f"no such method: {asked['method']}"}
            end = {"error": unknown} if said is None else {"result": said}
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **end}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
