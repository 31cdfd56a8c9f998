"""The `filesystem` toolset: read, list, look, write and delete inside the zones of a sandbox.

`create_<tool>_tool(sandbox)` gives one tool for embedders; without a sandbox it uses the one of each call's context.
`needs_approval` (also as `{"needs_approval": …}`) and `zone_approval` replace a zone's consent, never its `blocked` and
nothing that always asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from golem_forge.core.errors import ConfigError
from golem_forge.core.options import takes_options
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.tools.toolset import ToolsetContext
from golem_forge.toolsets.filesystem.delete_file import delete_file_tool
from golem_forge.toolsets.filesystem.list_files import list_files_tool
from golem_forge.toolsets.filesystem.look import file_exists_tool, file_info_tool
from golem_forge.toolsets.filesystem.reach import Reach, ZoneApproval, checked_overrides
from golem_forge.toolsets.filesystem.read_file import read_file_tool
from golem_forge.toolsets.filesystem.write_file import write_file_tool

_Options = Mapping[str, Any]
_BUILDERS = (read_file_tool, list_files_tool, file_exists_tool, file_info_tool, write_file_tool, delete_file_tool)


class FilesystemToolset:
    name = "filesystem"
    config = None

    @takes_options("FilesystemToolset", at=1)
    def __init__(
        self,
        sandbox: Sandbox | Mapping[str, Any] | None = None,
        *,
        zone_approval: ZoneApproval | None = None,
        zone_approval_config: ZoneApproval | None = None,
    ) -> None:
        """`zone_approval`: zone → `{"write": verdict, "delete": verdict}`; `zone_approval_config` is another name of
        it. All of it may be one mapping. Raises ConfigError for a zone, a verb or a verdict that does not exist."""
        assert not isinstance(sandbox, Mapping)
        if zone_approval is not None and zone_approval_config not in (None, zone_approval):
            raise ConfigError("zone_approval and zone_approval_config are the same option; give one of them")
        given = zone_approval if zone_approval is not None else zone_approval_config
        self._called = "zone_approval" if zone_approval is not None else "zone_approval_config"
        self._zone_approval = given or {}
        self._sandbox = Reach(sandbox).sandbox
        checked_overrides(sandbox, self._zone_approval, self._called)

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        """Raises ConfigError where the zones that it was told of are known only now, and are not there."""
        sandbox = self._sandbox or (ctx.sandbox if ctx else None)
        reach = Reach(sandbox, checked_overrides(sandbox, self._zone_approval, self._called))
        return [build(reach) for build in _BUILDERS]


def _own(needs_approval: NeedsApproval | _Options | None) -> NeedsApproval | None:
    assert not isinstance(needs_approval, Mapping)  # options were taken out of it
    return needs_approval


@takes_options("create_read_file_tool", at=1)
def create_read_file_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | _Options | None = None
) -> Tool:
    return read_file_tool(Reach(sandbox), _own(needs_approval))


@takes_options("create_list_files_tool", at=1)
def create_list_files_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | _Options | None = None
) -> Tool:
    return list_files_tool(Reach(sandbox), _own(needs_approval))


@takes_options("create_file_exists_tool", at=1)
def create_file_exists_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | _Options | None = None
) -> Tool:
    return file_exists_tool(Reach(sandbox), _own(needs_approval))


@takes_options("create_file_info_tool", at=1)
def create_file_info_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | _Options | None = None
) -> Tool:
    return file_info_tool(Reach(sandbox), _own(needs_approval))


@takes_options("create_write_file_tool", at=1)
def create_write_file_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | _Options | None = None
) -> Tool:
    return write_file_tool(Reach(sandbox), _own(needs_approval))


@takes_options("create_delete_file_tool", at=1)
def create_delete_file_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | _Options | None = None
) -> Tool:
    return delete_file_tool(Reach(sandbox), _own(needs_approval))
