import json
import sys

ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
COUNT = {"name": "count", "description": "How many of an item there are.", "inputSchema": ITEM}
WRITE = {"name": "restock", "description": "Order an item.", "inputSchema": ITEM}
TOOLS = [{**COUNT, "annotations": {"readOnlyHint": True}}, {**WRITE, "annotations": {"destructiveHint": True}}]

for line in sys.stdin:
    asked = json.loads(line)
    params, said = asked.get("params", {}), None
    if asked["method"] == "initialize":
        said = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "shelf", "version": "1.0"}}
        said["capabilities"] = {"tools": {}}
    elif asked["method"] == "tools/list":
        said = {"tools": TOOLS}
    elif asked["method"] == "tools/call":
        number = {"mug": 7, "plate": 12}.get(params["arguments"]["item"], 0)
        said = {"content": [{"type": "text", "text": str(number)}]}
    if "id" in asked:
        end = {"result": said} if said else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **end}), flush=True)
