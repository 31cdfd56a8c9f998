"""An agent of pydantic-ai with Forge's tools: `python pydantic_ai_mcp.py "Close ticket 7."`

    pip install golem-forge[mcp] 'pydantic-ai-slim[mcp,openai]'
    forge trust                     # once, in this directory

`forge mcp serve` is an MCP server on standard input and output; the agent starts it. A call that asks comes to
`ask_the_person` in the middle of the call, with Forge's own text of what would happen. Without MCP, in one process,
`golem_forge.mcp.bridges.pydantic_ai.ForgeToolset` does the same.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from fastmcp.client import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

HERE = Path(__file__).parent
FORGE = os.environ.get("FORGE", "forge")


async def ask_the_person(message: str, response_type: Any, params: Any, context: Any) -> Any:
    print(message, flush=True)
    yes = (await asyncio.to_thread(input, "y allows it once: ")).strip() == "y"
    return ElicitResult(action="accept", content={"approve": yes, "remember": "once"})


async def main(task: str) -> None:
    serve = StdioTransport(FORGE, ["mcp", "serve", "-p", str(HERE)], env=dict(os.environ))
    # "legacy": in the newer protocol the question arrives, too, but pydantic-ai warns that it never would.
    client = Client(serve, mode="legacy", elicitation_handler=ask_the_person)
    # "failed": the model reads why a call was denied, instead of being told to try again.
    tools = MCPToolset(client, tool_error_behavior="failed")
    model = f"openai:{os.environ.get('MODEL', 'gpt-5-mini')}"
    agent = Agent(model, instructions="You work at the help desk.", toolsets=[tools])
    async with agent:
        print((await agent.run(task)).output)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Which tickets are open?"))
