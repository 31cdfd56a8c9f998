"""An agent of openai-agents with Forge's tools: `python openai_agents_mcp.py "Close ticket 7."`

    pip install golem-forge[mcp] openai-agents
    forge trust                     # once, in this directory

`forge mcp serve` is an MCP server on standard input and output; the agent starts it. This library has no way to ask a
person in the middle of a call, so Forge denies what asks, and the model reads why. To let close_ticket run, say so
where Forge reads it: a rule of yours (`forge rules`), or `close_ticket: preApproved` in main.worker.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from agents import Agent, Runner
from agents.mcp import MCPServerStdio

HERE = Path(__file__).parent
FORGE = os.environ.get("FORGE", "forge")


async def main(task: str) -> None:
    serve = {"command": FORGE, "args": ["mcp", "serve", "-p", str(HERE)], "env": dict(os.environ)}
    # A call may wait for more than the five seconds that the library allows by default.
    async with MCPServerStdio(params=serve, client_session_timeout_seconds=120) as forge:
        agent = Agent(
            name="desk",
            instructions="You work at the help desk.",
            model=os.environ.get("MODEL", "gpt-5-mini"),
            mcp_servers=[forge],
        )
        print((await Runner.run(agent, task)).final_output)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Which tickets are open?"))
