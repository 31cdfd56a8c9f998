"""Who may call which tool: execution modes against callers."""

from __future__ import annotations

from collections.abc import Iterable

from golem_forge.core.call import Caller
from golem_forge.tools.tool import Mode, Tool


def may_call(caller: Caller, mode: Mode) -> bool:
    """A person reaches manual tools, everybody else the ones offered to models."""
    return mode is not (Mode.LLM if caller == Caller.HUMAN else Mode.MANUAL)


def llm_tools(tools: Iterable[Tool]) -> list[Tool]:
    return [tool for tool in tools if may_call(Caller.LLM, tool.mode)]


def manual_tools(tools: Iterable[Tool]) -> list[Tool]:
    return [tool for tool in tools if is_manual_tool(tool)]


def is_manual_tool(tool: Tool) -> bool:
    return may_call(Caller.HUMAN, tool.mode)


get_llm_tools = llm_tools
get_manual_tools = manual_tools
"""The names that the design documents have for them."""
