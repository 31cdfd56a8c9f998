"""The `web` toolset: one page of the web, fetched by Forge itself and given as text.

`create_webfetch_tool()` gives the tool for embedders. It needs no sandbox; the parameter is there because every
`create_<tool>_tool` has it.
"""

from __future__ import annotations

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.tools.toolset import ToolsetContext
from golem_forge.toolsets.web.webfetch import webfetch_tool


class WebToolset:
    name = "web"
    config = None

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        return [webfetch_tool()]


def create_webfetch_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return webfetch_tool(needs_approval)
