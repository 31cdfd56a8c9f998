"""The `code` toolset: `run_code`, a program that calls tools. What it does is in `usertools.program`, loaded when used.

Its own effects are reads: zones are read-only inside, there is no network, and `/tmp` is its own. So it needs no
approval and holds no slot at the gate; each call that it makes is judged, approved and scheduled by itself.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext, native_tool
from golem_forge.tools.tool import NeedsApproval, Tool

if TYPE_CHECKING:
    from pydantic import BaseModel

RUN_CODE: Final = "run_code"
DEFAULT_MAX_CALLS: Final = 200
MOST_MAX_CALLS: Final = 10_000
DEFAULT_TIMEOUT_MS: Final = 120_000
LONGEST_TIMEOUT_MS: Final = 3_600_000
LONGEST_CODE: Final = 256 * 1024
_DESCRIPTION: Final = (
    "Run a Python program that calls your tools as functions. Use it for loops, many calls, or to filter large "
    "results: one turn instead of many, and you read only what it prints or answers.\n"
    "  from forge_tools import read_file, grep_files, map, answer\n"
    "Every tool that you may call is a function of keyword arguments; those of an MCP server are "
    'forge_tools.SERVER.TOOL. search("words") finds tools that are not in your list, call("name", **args) calls any of '
    'them, help("name") prints parameters and result. Text results are str, others dict or list. A failed call raises '
    "ToolError, a denied one ToolDenied. map(function, items) makes many calls at once; answer(value) gives one "
    "structured value.\n"
    "Standard library only, no network. It may open files of the zones to read; to write, call a tool. Calls inside "
    "are judged and asked about like your own."
)


class CodeToolset:
    name = "code"

    @cached_property
    def config(self) -> type[BaseModel]:
        from pydantic import ConfigDict, Field, create_model

        calls = Field(default=DEFAULT_MAX_CALLS, ge=1, le=MOST_MAX_CALLS)
        return create_model("code", __config__=ConfigDict(extra="forbid", strict=True), max_calls=(int, calls))

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        config = ctx.config if ctx is not None else None
        return [create_run_code_tool(max_calls=config.max_calls if config is not None else DEFAULT_MAX_CALLS)]


def create_run_code_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None, *, max_calls: int = DEFAULT_MAX_CALLS
) -> Tool:
    """`sandbox` is not used: a program runs in the walls of its call; every `create_<tool>_tool` has it."""
    return native_tool(
        RUN_CODE,
        _DESCRIPTION,
        input_schema=_arguments,
        planner=partial(_plan, max_calls),
        needs_approval=needs_approval,
        label="Run program",
        category="Programs",
        gated=False,
    )


def _arguments() -> type[BaseModel]:
    from pydantic import Field, create_model

    code = Field(min_length=1, max_length=LONGEST_CODE, description="The program.")
    time = f"Its time in ms (default {DEFAULT_TIMEOUT_MS}); it stops while a question is open."
    timeout = Field(default=DEFAULT_TIMEOUT_MS, ge=100, le=LONGEST_TIMEOUT_MS, description=time)
    return create_model(RUN_CODE, code=(str, code), timeout_ms=(int, timeout))


async def _plan(max_calls: int, args: dict[str, Any], ctx: ToolContext) -> Plan:
    from golem_forge.usertools.program import plan_program

    return await plan_program(args, ctx, max_calls)
