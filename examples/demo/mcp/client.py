"""Any MCP client can have this program's tools: this one starts `forge mcp serve`, lists them and calls one.

    python client.py          in this directory; the server `stock` must be approved (`forge mcp approve stock`)

The call needs approval, so the client is asked in the middle of it: Forge's question arrives as a form
(elicitation), and the answer here is yes, once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitResult

FORGE = Path(sys.executable).with_name("forge")


async def answer(context: Any, params: Any) -> ElicitResult:
    print("the server asks:", *params.message.splitlines(), sep="\n  | ")
    print("  the client answers yes, once", flush=True)
    return ElicitResult(action="accept", content={"approve": True, "remember": "once"})


async def main() -> None:
    serve = StdioServerParameters(command=str(FORGE), args=["mcp", "serve"], env=dict(os.environ))
    async with Client(stdio_client(serve), elicitation_callback=answer) as client:
        listed = await client.list_tools()
        print(f"{len(listed.tools)} tools, among them", ", ".join(t.name for t in listed.tools if "__" in t.name))
        result = await client.call_tool("stock__take", {"item": "plate", "number": 3})
        print("stock__take:", *(getattr(block, "text", "") for block in result.content))


if __name__ == "__main__":
    asyncio.run(main())
