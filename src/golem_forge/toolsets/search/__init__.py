"""The `search` toolset: `list_dir` shows what is there, `grep_files` where something is written.

`create_<tool>_tool(sandbox)` gives one tool for embedders; without a sandbox it uses the one of each call's context.
"""

from __future__ import annotations

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.factory import ToolsetContext
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.file_access import FileAccess
from golem_forge.toolsets.search.grep_files import GREP_FILES
from golem_forge.toolsets.search.list_dir import LIST_DIR


class SearchToolset:
    name = "search"
    config = None

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        access = FileAccess(self._sandbox or (ctx.sandbox if ctx else None))
        return [LIST_DIR.create(access), GREP_FILES.create(access)]


def create_list_dir_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return LIST_DIR.create(FileAccess(sandbox), needs_approval)


def create_grep_files_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return GREP_FILES.create(FileAccess(sandbox), needs_approval)
