"""The `filesystem` toolset: read, list, look, write and delete inside the zones of a sandbox.

`create_<tool>_tool(sandbox)` gives one tool for embedders; without a sandbox it uses the one of each call's context.
`needs_approval` and `zone_approval` replace a zone's consent, never its `blocked` and nothing that always asks.
"""

from __future__ import annotations

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.tools.toolset import ToolsetContext
from golem_forge.toolsets.filesystem.delete_file import delete_file_tool
from golem_forge.toolsets.filesystem.list_files import list_files_tool
from golem_forge.toolsets.filesystem.look import file_exists_tool, file_info_tool
from golem_forge.toolsets.filesystem.reach import Reach, ZoneApproval, checked_overrides
from golem_forge.toolsets.filesystem.read_file import read_file_tool
from golem_forge.toolsets.filesystem.write_file import write_file_tool

_BUILDERS = (read_file_tool, list_files_tool, file_exists_tool, file_info_tool, write_file_tool, delete_file_tool)


class FilesystemToolset:
    name = "filesystem"
    config = None

    def __init__(self, sandbox: Sandbox | None = None, *, zone_approval: ZoneApproval | None = None) -> None:
        self._sandbox = sandbox
        self._overrides = checked_overrides(sandbox, zone_approval or {})

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        reach = Reach(self._sandbox or (ctx.sandbox if ctx else None), self._overrides)
        return [build(reach) for build in _BUILDERS]


def create_read_file_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return read_file_tool(Reach(sandbox), needs_approval)


def create_list_files_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return list_files_tool(Reach(sandbox), needs_approval)


def create_file_exists_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return file_exists_tool(Reach(sandbox), needs_approval)


def create_file_info_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return file_info_tool(Reach(sandbox), needs_approval)


def create_write_file_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return write_file_tool(Reach(sandbox), needs_approval)


def create_delete_file_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return delete_file_tool(Reach(sandbox), needs_approval)
