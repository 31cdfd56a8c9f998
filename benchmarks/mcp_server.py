"""The server that every client of the MCP benchmarks talks to: `add`, written with the SDK as most servers are.

mcp_server.py         over stdio
mcp_server.py PORT    over HTTP, on the loopback
"""

from __future__ import annotations

import logging
import sys

from mcp.server import MCPServer

server = MCPServer("bench")


@server.tool()
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


if __name__ == "__main__":
    logging.disable(logging.INFO)
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
