"""`tool_search`: finds tools that a model was not sent, and loads them for its next request; and which tools wait so.

`split_tools` takes the tools a model may use, in catalog order, and what the config says; it gives those that are
always sent and those that may be deferred when definitions are too many for every request (`DeferralThreshold`). A
deferred tool is not sent and is callable all the same. What is sent grows at its end only, so that the bytes before it,
which a provider has cached, stay equal; the exceptions are in `DeferralThreshold` and `add_loaded`.

The tool is there only while something is deferred, so it belongs to no toolset: `agent.prompt` makes one for a worker
and says where to look. What it finds is what a call would reach: there is one catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final

from golem_forge.config.mcp_spec import DeferralSettings
from golem_forge.core.json import compact_json
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.tools.catalog import schema_problem
from golem_forge.tools.factory import native_tool
from golem_forge.tools.tool import SourceKind, Tool

if TYPE_CHECKING:
    from pydantic import BaseModel

MAX_LOADED: Final = 100
MAX_LOADED_TOKENS: Final = 32_000
"""Threat: a server whose schemas are huge would fill the context with a few searches."""
_MANY_OWN: Final = 1_500
"""Tokens of Forge's own definitions, as they are written: more than a few toolsets together."""
_BYTES_PER_TOKEN: Final = 4
FORGE_TOOLS: Final = "Forge"
"""The source of Forge's own tools."""
_USER_TOOLS: Final = "user tools"
_PROGRAM_TOOLS: Final = "program tools"
"""In-process tools, and those of modules and packages."""

IsUserTool = Callable[[Tool], bool]
"""Whether a custom tool is one of the person's own, not one that a worker's file or an embedder brings."""
AlwaysLoaded = Callable[[str], tuple[str, ...]]
"""Server → globs of raw names that its config wants sent always."""


def definition_tokens(tool: Tool) -> float:
    """Bytes ÷ 4 of its definition as JSON; nothing for one that cannot be offered."""
    if schema_problem(tool):
        return 0
    written = compact_json({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema})
    return len(written.encode("utf-8", "replace")) / _BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSplit:
    """What is sent always, and what may be deferred; both in catalog order."""

    always: tuple[Tool, ...]
    waiting: Mapping[str, Tool]
    """By name."""

    def loaded(self, names: Iterable[str]) -> tuple[Tool, ...]:
        """In the order of the names; one that is gone is left out, and is there again when it comes back."""
        return tuple(self.waiting[name] for name in names if name in self.waiting)


def split_tools(
    tools: Iterable[Tool],
    settings: DeferralSettings,
    always_loaded: AlwaysLoaded,
    *,
    rare: Collection[str] = (),
    only_rare: bool = False,
) -> ToolSplit:
    """`rare`: names of Forge's own tools that may wait too. `only_rare`: nothing else waits."""
    always: list[Tool] = []
    waiting: dict[str, Tool] = {}
    for tool in tools:
        # Forge's own are always sent, and so is what stands in the place of one.
        own = tool.source is SourceKind.NATIVE
        fixed = (tool.name not in rare if own else only_rare) or tool.shadows or tool.always_load
        if fixed or _is_wanted(tool, settings.always_load, always_loaded):
            always.append(tool)
        else:
            waiting[tool.name] = tool
    return ToolSplit(always=tuple(always), waiting=waiting)


def _is_wanted(tool: Tool, globs: tuple[str, ...], always_loaded: AlwaysLoaded) -> bool:
    remote = tool.remote
    names = (tool.name,) if remote is None else (tool.name, f"{remote.server}__{remote.tool}")
    if any(fnmatchcase(name, glob) for name in names for glob in globs):
        return True
    return remote is not None and any(fnmatchcase(remote.tool, glob) for glob in always_loaded(remote.server))


def has_many_own(tools: Iterable[Tool]) -> bool:
    """Whether Forge's own tools are so many that the rare ones among them wait."""
    return _exceeds([tool for tool in tools if tool.source is SourceKind.NATIVE], float("inf"), _MANY_OWN)


class DeferralThreshold:
    """Whether definitions are too many. Once they are, they count as too many until they would fit into half of each
    limit: a catalog that moves around a limit must not change the bytes of every other request."""

    def __init__(self) -> None:
        self._passed = False
        self._settings: DeferralSettings | None = None

    def passed(self, tools: Sequence[Tool], settings: DeferralSettings) -> bool:
        if settings != self._settings:
            self._settings, self._passed = settings, False
        share = 0.5 if self._passed else 1.0
        self._passed = _exceeds(tools, settings.above * share, settings.tokens * share)
        return self._passed


def _exceeds(tools: Sequence[Tool], most: float, most_tokens: float) -> bool:
    if len(tools) > most:  # without a look at them: five thousand schemas are not built to be counted
        return True
    total = 0.0
    for tool in tools:
        total += definition_tokens(tool)
        if total > most_tokens:
            return True
    return False


def add_loaded(before: Sequence[str], found: Iterable[Tool], waiting: Mapping[str, Tool]) -> tuple[str, ...]:
    """The loaded names once `found` are loaded too, at the end. Where that would be too much, the oldest go, down to
    half of what may be loaded, so that it is long until they have to go again."""
    new: dict[str, Tool] = {}
    tokens = 0.0
    for tool in found:
        if tool.name in waiting and tool.name not in before and tool.name not in new:
            cost = definition_tokens(tool)
            if len(new) < MAX_LOADED // 2 and tokens + cost <= MAX_LOADED_TOKENS:
                new[tool.name] = tool
                tokens += cost
    kept = {name: definition_tokens(waiting[name]) if name in waiting else 0.0 for name in before}
    if len(kept) + len(new) > MAX_LOADED or sum(kept.values()) + tokens > MAX_LOADED_TOKENS:
        while kept and (len(kept) + len(new) > MAX_LOADED // 2 or sum(kept.values()) + tokens > MAX_LOADED_TOKENS / 2):
            del kept[next(iter(kept))]
    return tuple(chain(kept, new))


def sources(tools: Iterable[Tool], is_users: IsUserTool) -> dict[str, int]:
    """Where tools come from (servers by name, `mcp github`; then the program's, the person's own last), and how many
    from each."""
    counted: dict[str, int] = {}
    for tool in tools:
        if tool.source is SourceKind.MCP:
            source = f"mcp {tool.remote.server if tool.remote is not None else tool.name.partition('__')[0]}"
        elif tool.source is SourceKind.NATIVE:
            source = FORGE_TOOLS
        else:
            source = _USER_TOOLS if is_users(tool) else _PROGRAM_TOOLS
        counted[source] = counted.get(source, 0) + 1
    last = (_PROGRAM_TOOLS, _USER_TOOLS)
    return dict(sorted(counted.items(), key=lambda each: (last.index(each[0]) + 1 if each[0] in last else 0, each[0])))


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
