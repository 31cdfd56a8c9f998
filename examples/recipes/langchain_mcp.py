"""An agent of LangChain (on LangGraph) with Forge's tools: `python langchain_mcp.py "Close ticket 7."`

    pip install golem-forge         # in an environment of its own: langchain-mcp-adapters needs mcp 1, Forge mcp 2
    pip install langchain langchain-openai langchain-mcp-adapters
    forge trust                     # once, in this directory

`forge mcp serve` is an MCP server on standard input and output; the client starts it. A call that asks comes to
`ask_the_person` in the middle of the call, with Forge's own text of what would happen.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.types import ElicitResult

HERE = Path(__file__).parent
FORGE = os.environ.get("FORGE", "forge")


async def ask_the_person(mcp_context: Any, params: Any, context: Any) -> Any:
    print(params.message, flush=True)
    yes = (await asyncio.to_thread(input, "y allows it once: ")).strip() == "y"
    return ElicitResult(action="accept", content={"approve": yes, "remember": "once"})


async def main(task: str) -> None:
    args = ["mcp", "serve", "-p", str(HERE)]
    serve: Any = {"transport": "stdio", "command": FORGE, "args": args, "env": dict(os.environ)}
    client = MultiServerMCPClient({"forge": serve}, callbacks=Callbacks(on_elicitation=ask_the_person))
    # One session for the whole run: else each call starts a server of its own.
    async with client.session("forge") as session:
        tools = await load_mcp_tools(session)
        agent = create_agent(f"openai:{os.environ.get('MODEL', 'gpt-5-mini')}", tools)
        ended = await agent.ainvoke({"messages": [{"role": "user", "content": task}]})
        print(ended["messages"][-1].content)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Which tickets are open?"))
