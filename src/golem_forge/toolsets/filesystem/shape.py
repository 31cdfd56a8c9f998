"""What the file tools have in common: where they come from, their `path` argument, and the plan of one that reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from golem_forge._version import __version__
from golem_forge.core.effects import Verb
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import MAX_ARGUMENT_BYTES, NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.filesystem.reach import Reach

if TYPE_CHECKING:
    from pydantic import BaseModel

    from golem_forge.sandbox.target import Target

FilePlanner = Callable[[Reach, dict[str, Any], ToolContext], Plan]


def file_tool(
    name: str,
    description: str,
    *,
    label: str,
    arguments: Callable[[], type[BaseModel]],
    planner: FilePlanner,
    reach: Reach,
    needs_approval: NeedsApproval | None,
    always: Verb | None = None,
    max_argument_bytes: int = MAX_ARGUMENT_BYTES,
) -> Tool:
    return Tool(
        name,
        description,
        input_schema=arguments,
        planner=partial(planner, reach),
        needs_approval=needs_approval,
        label=label,
        category="Files",
        read_only=always is None,
        always=always,
        source=SourceKind.NATIVE,
        argument_aliases={"file_path": "path"},
        max_argument_bytes=max_argument_bytes,
        code_digest=__version__,
    )


def path_field(what: str) -> tuple[type[str], Any]:
    from pydantic import Field

    return str, Field(description=_path_text(what))


def optional_path_field(what: str, default: str) -> tuple[type[str], Any]:
    from pydantic import Field

    return str, Field(default=default, description=_path_text(what))


def _path_text(what: str) -> str:
    return f"{what}: /<zone>/…, or relative to the default zone."


def reading_plan(reach: Reach, target: Target, run: Callable[[], Any]) -> Plan:
    """A plan that looks at one target and changes nothing."""
    return Plan(run=run, effects=(reach.effect(target),), read_only=True, recheck=target.recheck, close=target.close)
