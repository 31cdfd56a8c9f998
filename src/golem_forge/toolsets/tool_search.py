"""What a model is sent of the tools, and `tool_search`, which finds the others and loads them for its next request.

Forge's own tools are sent with a short text and words for parameters. A tool's own description and schema are for
people, for MCP clients and for `tool_search`; calls are checked against that schema. Every request of a session carries
the texts below, so every word here is paid for in each of them (`make bench --only wire` counts). A tool that is not
listed is sent with its own words. The texts leave out what the system prompt says once: how zones are addressed, and
that output is data.

Deferral decides which definitions a model is sent when there are too many for every request. It takes the tools a model
may use, in catalog order, and what the config says; gives those that are always sent and those that wait to be found. A
deferred tool is not sent and is callable all the same. What is sent grows at its end only, so that the bytes before it,
which a provider has cached, stay equal; the two moments when it cannot are told here.

`tool_search` is there only while something is deferred, so it belongs to no toolset: `agent.prompt` makes one for a
worker and says where to look. What it finds is what a call would reach: there is one catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Annotated, Any, Final, NamedTuple

from golem_forge.config.mcp_spec import DeferralSettings
from golem_forge.core.json import compact_json
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.lazy_module import pydantic, pydantic_core
from golem_forge.tools.catalog import schema_problem
from golem_forge.tools.factory import native_tool
from golem_forge.tools.schema import bare_schema
from golem_forge.tools.tool import SourceKind, Tool

MAX_LOADED: Final = 100
MAX_LOADED_TOKENS: Final = 32_000
"""Threat: a server whose schemas are huge would fill the context with a few searches."""
_MANY_OWN: Final = 1_500
"""Tokens of Forge's own definitions, as they are written: more than a few toolsets together."""
_BYTES_PER_TOKEN: Final = 4
FORGE_TOOLS: Final = "Forge"
"""The source name of Forge's own tools."""
_USER_TOOLS: Final = "user tools"
_PROGRAM_TOOLS: Final = "program tools"
"""The source name of in-process tools, and of those of modules and packages."""

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
    """The tools that are always sent, and those that may be deferred; both in catalog order."""

    always: tuple[Tool, ...]
    waiting: Mapping[str, Tool]
    """Deferred tools by name."""

    def loaded(self, names: Iterable[str]) -> tuple[Tool, ...]:
        """Returns the tools in the order of the names; a tool that is gone is left out until it comes back."""
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
    """Returns the number of tools by source (servers by name, `mcp github`; then the program's, the
    person's own last).
    """
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
    """The matches, best first; they are loaded."""
    total: int
    sources: Mapping[str, int]
    """The searched sources, shown if a query finds nothing."""


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
    """Lists the sources; names only Forge's own tools, so that the text stays short and holds nothing that servers
    wrote.
    """
    named = [", ".join(own)] if own else []
    others = ((name, count) for name, count in sources.items() if not (own and name == FORGE_TOOLS))
    named += [f"{name}: {count} {'tool' if count == 1 else 'tools'}" for name, count in others]
    more = len(named) - _MAX_SOURCES
    return "; ".join(named[:_MAX_SOURCES] + ([f"{more} more sources"] if more > 0 else []))


def _arguments() -> type[pydantic.BaseModel]:
    def says_something(query: str) -> str:
        if not query.strip():
            raise pydantic_core.PydanticCustomError(
                "query", "must not be empty: say what the tool should do, or its name"
            )
        return query

    text = "What the tool should do, in a few words, or its name."
    return pydantic.create_model(
        TOOL_SEARCH,
        __config__=pydantic.ConfigDict(extra="forbid"),
        query=(
            Annotated[str, pydantic.AfterValidator(says_something)],
            pydantic.Field(max_length=_MAX_QUERY, description=text),
        ),
        limit=(int, pydantic.Field(default=_DEFAULT_FOUND, ge=1, le=_MAX_FOUND, description="How many tools at most.")),
    )


class ToolText(NamedTuple):
    text: str
    """The description; empty means the tool's own."""
    parameters: Mapping[str, str] = {}
    """Descriptions of parameters whose name is not enough."""


_FROM_END: Final = "first line (1); -9: the last 9"
"""With a number that nobody wants: small models fill in what a description names."""
_PATCH: Final = """\
Change files by a patch; all of it is applied, or nothing. The form:
*** Begin Patch
*** Add File: new.py
+line
*** Delete File: old.py
*** Update File: a.py
*** Move to: b.py
@@ def f():
 context
-old line
+new line
*** End Patch
`Move to` is optional. `@@` names a line above the change; every chunk after the first needs it. Context (about 3 lines)
and `-` lines must be exactly as in the file."""

MODEL_TEXTS: Final[Mapping[str, ToolText]] = {
    "read_file": ToolText(
        "Read a text file as lines `L<n>: text`; the last line says where to go on. Or look at a picture or PDF.",
        {"offset": _FROM_END, "limit": "lines, default 2000"},
    ),
    "list_files": ToolText("List one directory."),
    "file_exists": ToolText("Tell whether a path exists, and what it is."),
    "file_info": ToolText("Size, time, mode, media type, lines and SHA-256 of a file."),
    "write_file": ToolText("Create a file, or replace all of one that you have read: what you leave out is lost."),
    "delete_file": ToolText("Delete one file or link."),
    "exec_command": ToolText(
        "Run a shell script in the walls. What still runs after `yield_time_ms` goes on as a session for write_stdin.",
        {
            "tty": "a terminal with open input",
            "yield_time_ms": "default 10000",
            "timeout_ms": "default 1800000",
            "network": "hosts it needs: host or host:port",
            "justification": "one sentence for the person who is asked",
            "prefix_rule": "leading words of a rule you suggest",
        },
    ),
    "write_stdin": ToolText(
        "Type into a session of exec_command (with tty), signal it, or read its new output.",
        {"chars": "empty: only read; \\u0003 is Ctrl-C"},
    ),
    "apply_patch": ToolText(_PATCH),
    "list_dir": ToolText("List a directory tree; `/` lists the zones.", {"depth": "default 2"}),
    "grep_files": ToolText(
        "Search files by regular expression; mode `lines` gives `path:number: text`.",
        {"include": "glob: *.py, src/**/*.ts"},
    ),
    "update_plan": ToolText("Show your plan: every step each time, at most one in_progress."),
    "webfetch": ToolText(
        "Fetch a web page as text.", {"start_index": "where to go on in a long page", "raw": "the HTML source"}
    ),
    "read_output": ToolText(
        "Read the rest of an output, by the handle out_… in its result.",
        {"offset": _FROM_END, "grep": "only lines that match", "context": "lines around a match"},
    ),
    "tool_search": ToolText(""),
}

RARE: Final = frozenset(
    (
        "list_files",
        "file_exists",
        "file_info",
        "list_mcp_resources",
        "list_mcp_resource_templates",
        "read_mcp_resource",
        "get_memory",
        "save_memory",
        "create_custom_tool",
        "run_custom_tool",
        "git_push",
        "git_fetch",
        "publish_port",
    )
)
"""Forge's own tools that are deferred to `tool_search` if there are many: seldom used, or replaceable by another one
(`list_dir`, `exec_command`). They stay callable by name.
"""

RARE_IN_SMALL_CONTEXTS: Final = RARE | {
    *("run_code", "write_stdin", "update_plan", "webfetch", "delete_file", "read_output"),
}
"""Tools that are deferred for a model with a small context; the rest reads, searches, edits and runs commands.
`read_output`: an output that was cut names it with its handle, and before there is one small models make handles up."""


_OUTSIDE: Final = " `outside` runs one exact command without walls, if the person agrees."


def model_text(tool: Tool) -> str:
    if not _is_listed(tool):
        return tool.description
    more = _OUTSIDE if "outside" in tool.input_schema.get("properties", ()) else ""
    return (MODEL_TEXTS[tool.name].text or tool.description) + more


def short_schema(tool: Tool) -> dict[str, Any] | None:
    """Types, names and choices, with the words above; None: the tool is sent with its own schema."""
    if not _is_listed(tool):
        return None
    return _reworded(bare_schema(tool.input_schema), MODEL_TEXTS[tool.name].parameters)


def _reworded(part: dict[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """`words` are those of its properties; no other descriptions stay."""
    short = {keyword: value for keyword, value in part.items() if keyword != "description"}
    if properties := short.get("properties"):
        short["properties"] = {
            name: {**_reworded(child, {}), **({"description": words[name]} if name in words else {})}
            for name, child in properties.items()
        }
    if isinstance(items := short.get("items"), dict):
        short["items"] = _reworded(items, {})
    return short


def _is_listed(tool: Tool) -> bool:
    return tool.source is SourceKind.NATIVE and tool.name in MODEL_TEXTS
