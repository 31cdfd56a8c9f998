"""list_files: one directory, one level. `/` lists the zones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.effects import Verb
from golem_forge.core.result import ToolResult
from golem_forge.sandbox import files
from golem_forge.sandbox.target import Kind
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.filesystem.reach import Reach
from golem_forge.toolsets.filesystem.shape import file_tool, optional_path_field, reading_plan

if TYPE_CHECKING:
    from pydantic import BaseModel

    from golem_forge.sandbox.target import Target

SUFFIXES: Final = {Kind.FILE: "", Kind.DIRECTORY: "/", Kind.LINK: "@", Kind.OTHER: "?"}
_MOST_SHOWN: Final = 1000
_DESCRIPTION: Final = (
    "List one directory, one level deep: `/` after directories, `@` after links, `?` after anything else that is no "
    "file. The path `/` lists the zones."
)


def list_files_tool(reach: Reach, needs_approval: NeedsApproval | None = None) -> Tool:
    return file_tool(
        "list_files",
        _DESCRIPTION,
        label="List files",
        arguments=_arguments,
        planner=_plan,
        reach=reach,
        needs_approval=needs_approval,
    )


def _arguments() -> type[BaseModel]:
    from pydantic import create_model

    return create_model("list_files", path=optional_path_field("The directory", "."))


def _plan(reach: Reach, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = reach.target(args.get("path", "."), Verb.READ, ctx)
    target.must_exist()
    return reading_plan(reach, target, lambda: _list(target))


def _list(target: Target) -> ToolResult:
    names = _zones(target) if target.zone is None else _entries(target)
    shown = names[:_MOST_SHOWN]
    count = len(names)
    lines = list(shown)
    if count > len(shown):
        lines.append(f"[… {count - len(shown)} more; use list_dir]")
    lines.append(f"{'1 entry' if count == 1 else f'{count} entries'} in {target.virtual}")
    value = {
        "kind": "file_list",
        "path": target.virtual,
        "files": shown,
        "count": count,
        "truncated": count > len(shown),
    }
    return ToolResult(value=value, text="\n".join(lines))


def _zones(target: Target) -> list[str]:
    return [f"{name}/ ({target.zones[name].mode})" for name in sorted(target.zones)]


def _entries(target: Target) -> list[str]:
    return [entry.name + SUFFIXES[entry.kind] for entry in files.list_dir(target)]
