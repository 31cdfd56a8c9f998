"""What the search tools have in common: they only look, inside zones, and may run beside others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from golem_forge._version import __version__
from golem_forge.tools.tool import NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.filesystem.reach import Reach
from golem_forge.toolsets.filesystem.shape import FilePlanner

if TYPE_CHECKING:
    from pydantic import BaseModel


def search_tool(
    name: str,
    description: str,
    *,
    label: str,
    arguments: Callable[[], type[BaseModel]],
    planner: FilePlanner,
    reach: Reach,
    needs_approval: NeedsApproval | None,
    argument_aliases: Mapping[str, str] | None = None,
) -> Tool:
    return Tool(
        name,
        description,
        input_schema=arguments,
        planner=partial(planner, reach),
        needs_approval=needs_approval,
        label=label,
        category="Search",
        read_only=True,
        source=SourceKind.NATIVE,
        argument_aliases=argument_aliases,
        code_digest=__version__,
    )
