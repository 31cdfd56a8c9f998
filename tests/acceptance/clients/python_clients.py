"""Two clients do what their orders say: `by: fastmcp` is its client; `by: pydantic-ai` is an agent whose tools are the
server's and whose model calls what the orders say, one call a turn. Prints what they saw as JSON.

One program for both, because importing them takes longer than all that they do. Run by the interpreter of
tests/mcp/foreign.py; see clients/orders.md for what goes in and out.
"""

import asyncio
import json
import sys

from fastmcp.client import Client
from fastmcp.client.transports import StreamableHttpTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel


async def by_fastmcp(client: Client, calls: list) -> dict:
    async with client:
        tools = [tool.name for tool in await client.list_tools()]
        results = []
        for name, args in calls:
            result = await client.call_tool(name, args, raise_on_error=False)
            texts = [block.text for block in result.content if block.type == "text"]
            results.append({"isError": result.is_error, "text": "\n".join(texts)})
        return {"version": client.session.protocol_version, "tools": tools, "results": results}


async def by_pydantic_ai(client: Client, calls: list) -> dict:
    tools, left = [], list(calls)

    async def model(messages, info):
        tools[:] = [tool.name for tool in info.function_tools]
        return ModelResponse(parts=[ToolCallPart(*left.pop(0)) if left else TextPart("done")])

    toolset = MCPToolset(client, tool_error_behavior="failed")
    async with toolset:
        run = await Agent(FunctionModel(model), toolsets=[toolset]).run("go")
        version = client.session.protocol_version
    returned = [part for message in run.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    results = [
        {
            "isError": part.outcome != "success",
            "text": part.content if isinstance(part.content, str) else json.dumps(part.content),
        }
        for part in returned
    ]
    return {"version": version, "tools": tools, "results": results}


CLIENTS = {"fastmcp": by_fastmcp, "pydantic-ai": by_pydantic_ai}


async def followed(orders: dict) -> dict:
    transport = StreamableHttpTransport(orders["url"], headers={"Authorization": f"Bearer {orders['token']}"})
    return await CLIENTS[orders["by"]](Client(transport, mode=orders["era"]), orders["calls"])


print(json.dumps([asyncio.run(followed(orders)) for orders in json.load(sys.stdin)]))
