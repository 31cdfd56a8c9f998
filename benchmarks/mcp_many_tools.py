"""A server with any number of tools over stdio, for `tools/list`: `mcp_many_tools.py fastmcp|mcp COUNT`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.subject import fresh_functions


def main(library: str, count: int) -> None:
    logging.disable(logging.INFO)
    functions = fresh_functions(count)
    if library == "fastmcp":
        from fastmcp import FastMCP
        from fastmcp.tools import Tool

        fast = FastMCP("bench")
        for function in functions:
            fast.add_tool(Tool.from_function(function))
        fast.run(show_banner=False)
    else:
        from mcp.server import MCPServer

        plain = MCPServer("bench")
        for function in functions:
            plain.add_tool(function)
        plain.run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
