"""`tool_search`: finds tools that a model was not sent, and loads them for its next request.

It is there only while something is deferred, so it belongs to no toolset: `agent.model_tools` makes one for a worker
and says where to look. What it finds is what a call would reach: there is one catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.tools.deferral import FORGE_TOOLS
from golem_forge.tools.factory import native_tool
from golem_forge.tools.tool import Tool

if TYPE_CHECKING:
    from pydantic import BaseModel

TOOL_SEARCH: Final = "tool_search"
_MAX_FOUND: Final = 20
_DEFAULT_FOUND: Final = 5
_MAX_QUERY: Final = 500
_MAX_SOURCES: Final = 40
_DESCRIPTION: Final = "Find and load a tool that is not in your list, by name or by what it does. There are: {sources}."


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearchResult:
    tools: Sequence[Tool]
    """Best first; they are loaded."""
    total: int
    sources: Mapping[str, int]
    """What there is to search, for a query that finds nothing."""


FindTools = Callable[[str, int], ToolSearchResult]


def create_tool_search_tool(find: FindTools, sources: Mapping[str, int], own: Sequence[str] = ()) -> Tool:
    """`find`: (query, limit) → what was found and loaded; `sources`: what there is to search, and how many tools;
    `own`: names of Forge's own among them."""

    def search(args: dict[str, Any]) -> dict[str, Any]:
        found = find(args["query"], args.get("limit", _DEFAULT_FOUND))
        shown: dict[str, Any] = {
            "tools": [
                {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
                for tool in found.tools
            ],
            "total": found.total,
        }
        if not found.tools:
            shown["sources"] = [{"source": name, "tools": count} for name, count in found.sources.items()]
        return shown

    return native_tool(
        TOOL_SEARCH,
        _DESCRIPTION.format(sources=_format_sources(sources, own)),
        input_schema=_arguments,
        execute=search,
        label="Search tools",
        category="Tools",
        effects=(),
        read_only=True,
        inline=True,
    )


def _format_sources(sources: Mapping[str, int], own: Sequence[str]) -> str:
    """No tools but Forge's own: the text must stay short, and what servers write has no place in it."""
    named = [", ".join(own)] if own else []
    others = ((name, count) for name, count in sources.items() if not (own and name == FORGE_TOOLS))
    named += [f"{name}: {count} {'tool' if count == 1 else 'tools'}" for name, count in others]
    more = len(named) - _MAX_SOURCES
    return "; ".join(named[:_MAX_SOURCES] + ([f"{more} more sources"] if more > 0 else []))


def _arguments() -> type[BaseModel]:
    from pydantic import AfterValidator, ConfigDict, Field, create_model
    from pydantic_core import PydanticCustomError

    def says_something(query: str) -> str:
        if not query.strip():
            raise PydanticCustomError("query", "must not be empty: say what the tool should do, or its name")
        return query

    text = "What the tool should do, in a few words, or its name."
    return create_model(
        TOOL_SEARCH,
        __config__=ConfigDict(extra="forbid"),
        query=(Annotated[str, AfterValidator(says_something)], Field(max_length=_MAX_QUERY, description=text)),
        limit=(int, Field(default=_DEFAULT_FOUND, ge=1, le=_MAX_FOUND, description="How many tools at most.")),
    )
