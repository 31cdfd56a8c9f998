"""`forge mcp serve` over stdio as a process of its own, with tools that print, run commands and ask."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from hosting import SessionHost

from golem_forge.agent.session import open_session
from golem_forge.mcp.server.service import serve_stdio
from golem_forge.tools.tool import Tool


async def prints(args: dict[str, Any]) -> str:
    print("stray words on stdout")
    os.write(1, b"and a stray write\n")
    os.system("echo from a child")
    return "printed"


async def asks(args: dict[str, Any]) -> str:
    return "ran"


def main() -> int:
    anything = {"type": "object"}
    tools = [
        Tool("prints", "Prints.", input_schema=anything, execute=prints, needs_approval=False),
        Tool("asks", "Asks.", input_schema=anything, execute=asks, needs_approval=True),
    ]
    return asyncio.run(serve_stdio(SessionHost(open_session(sys.argv[1], tools=tools))))


if __name__ == "__main__":
    os._exit(main())  # everything was ended in order; taking the interpreter apart would take longer than all of that
