"""An MCP server in plain Python, without a library: papers in a directory. `python3 papers.py DIRECTORY`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def tool(name: str, description: str, field: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("search", "Names of the papers that have a word.", "word"),
    tool("open", "The text of a paper.", "name"),
    tool("remove", "Remove a paper.", "name"),
    tool("publish", "Publish a paper.", "name"),
]


def call(name: str, args: dict[str, Any], library: Path) -> str:
    papers = {path.stem: path for path in sorted(library.glob("*.md"))}
    if name == "search":
        found = [title for title, path in papers.items() if args["word"].lower() in path.read_text().lower()]
        return ", ".join(found) or "no paper has this word"
    if args["name"] not in papers:
        raise LookupError(f"there is no paper {args['name']!r}")
    if name == "remove":
        papers[args["name"]].unlink()
        return "removed"
    return papers[args["name"]].read_text()


def answer(method: str, params: dict[str, Any], library: Path) -> dict[str, Any] | None:
    match method:
        case "initialize":
            told = {"name": "papers", "version": "1.0"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": told}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            try:
                text, failed = call(params["name"], params["arguments"], library), False
            except LookupError as problem:
                text, failed = str(problem.args[0]), True
            return {"content": [{"type": "text", "text": text}], "isError": failed}
        case "ping":
            return {}
    return None


def main(library: Path) -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked and "method" in asked:
            said = answer(asked["method"], asked.get("params", {}), library)
            unknown = {"code": -32601, "message": f"no such method: {asked['method']}"}
            end = {"error": unknown} if said is None else {"result": said}
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **end}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
