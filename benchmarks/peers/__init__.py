"""The libraries we are measured against, one file each.

A file gives coroutines `(function, stack) -> call`: they set the library up with the function as its tool `add` and
return what performs one call with ARGS, validated the way that library validates; what must be closed goes on the
stack. It also gives `define(functions)`: it makes tools of them up to the point where a model could be offered them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.harness import Call
from benchmarks.peers import fastmcp, langchain_core, mcp, openai_agents, pydantic_ai
from benchmarks.subject import Function

Setup = Callable[[Function, AsyncExitStack], Awaitable[Call]]
Define = Callable[[Sequence[Function]], object]

BARE_TOOLSET: Final = "pydantic-ai FunctionToolset"
TOOL_MANAGER: Final = "pydantic-ai ToolManager"
OPENAI_AGENTS: Final = "openai-agents FunctionTool"

CALLS: Final[dict[str, Setup]] = {
    BARE_TOOLSET: pydantic_ai.function_toolset,
    TOOL_MANAGER: pydantic_ai.tool_manager,
    OPENAI_AGENTS: openai_agents.function_tool,
    "fastmcp Tool.run": fastmcp.tool_run,
    "fastmcp Client in memory": fastmcp.client,
    "mcp MCPServer": mcp.server,
    "langchain-core StructuredTool": langchain_core.structured_tool,
}

DEFINITIONS: Final[dict[str, Define]] = {
    "pydantic-ai": pydantic_ai.define,
    "openai-agents": openai_agents.define,
    "fastmcp": fastmcp.define,
    "mcp": mcp.define,
    "langchain-core": langchain_core.define,
}
