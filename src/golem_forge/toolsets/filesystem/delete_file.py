"""delete_file: removes one file, or a link itself. Directories are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.target import Kind, Target
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.filesystem.reach import Reach
from golem_forge.toolsets.filesystem.shape import file_tool, path_field

if TYPE_CHECKING:
    from pydantic import BaseModel


def delete_file_tool(reach: Reach, needs_approval: NeedsApproval | None = None) -> Tool:
    return file_tool(
        "delete_file",
        "Delete one file, or a link itself (never what it leads to). Directories are not deleted.",
        label="Delete file",
        arguments=_arguments,
        planner=_plan,
        reach=reach,
        needs_approval=needs_approval,
        always=Verb.DELETE,
    )


def _arguments() -> type[BaseModel]:
    from pydantic import create_model

    return create_model("delete_file", path=path_field("The file or link"))


def _plan(reach: Reach, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = reach.target(args["path"], Verb.DELETE, ctx)
    return Plan(
        run=lambda: _delete(target),
        effects=(reach.effect(target),),
        recheck=target.recheck,
        close=target.close,
    )


def _delete(target: Target) -> str:
    what = "link" if target.kind is Kind.LINK else f"{files.stat(target).size} bytes"
    files.delete(target)
    return f"Deleted {target.virtual} ({what})"
