"""An agent of pydantic-ai whose tools are the server's: its model calls what the orders say, one call a turn.

Run by the interpreter of tests/mcp/foreign.py; see clients/orders.md for what goes in and out.
"""

import asyncio
import json
import sys

from fastmcp.client import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StreamableHttpTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel


async def followed(orders: dict) -> dict:
    asked, tools, left = [], [], list(orders["calls"])

    async def answer(message, response_type, params, context):
        asked.append(message)
        return ElicitResult(**orders["answer"])

    async def model(messages, info):
        tools[:] = [tool.name for tool in info.function_tools]
        if not left:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*left.pop(0))])

    client = Client(
        StreamableHttpTransport(orders["url"], headers={"Authorization": f"Bearer {orders['token']}"}),
        mode=orders["era"],
        elicitation_handler=answer if orders.get("answer") else None,
    )
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
    return {"version": version, "tools": tools, "results": results, "asked": asked}


print(json.dumps([asyncio.run(followed(orders)) for orders in json.load(sys.stdin)]))
