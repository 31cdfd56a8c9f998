"""fastmcp's client does what its orders say: connect in one era, list, call, answer forms. Prints what it saw as JSON.

Run by the interpreter of tests/mcp/foreign.py; see clients/orders.md for what goes in and out.
"""

import asyncio
import json
import sys

from fastmcp.client import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StreamableHttpTransport


async def followed(orders: dict) -> dict:
    asked = []

    async def answer(message, response_type, params, context):
        asked.append(message)
        return ElicitResult(**orders["answer"])

    client = Client(
        StreamableHttpTransport(orders["url"], headers={"Authorization": f"Bearer {orders['token']}"}),
        mode=orders["era"],
        elicitation_handler=answer if orders.get("answer") else None,
    )
    async with client:
        tools = [tool.name for tool in await client.list_tools()]
        results = []
        for name, args in orders["calls"]:
            result = await client.call_tool(name, args, raise_on_error=False)
            texts = [block.text for block in result.content if block.type == "text"]
            results.append({"isError": result.is_error, "text": "\n".join(texts)})
        return {"version": client.session.protocol_version, "tools": tools, "results": results, "asked": asked}


print(json.dumps([asyncio.run(followed(orders)) for orders in json.load(sys.stdin)]))
