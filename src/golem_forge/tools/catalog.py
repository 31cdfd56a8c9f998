"""Catalog: every Tool a session can see, by unique name or alias, from three sources in a stable order.

`resolve` is on the path of every call: one dict lookup. Schemas are built when tools are offered to a model, not when
they are added; a tool whose definition turns out to be unusable is quarantined with the reason and the rest works. The
catalog refuses two tools of one name (CatalogError) and a name that does not exist for this caller (ToolNotFound).

A name that begins with a word of RESERVED and a colon (`prompt:daily`, `client:ask`) is never listed or found by a
search: Forge itself calls it on behalf of somebody, and only the callers named there reach it.

`tool_definitions` writes definitions the way models and clients read them: Anthropic, OpenAI and MCP formats. Keys come
in one fixed order and schemas as the tool declares them, so that equal tools give equal bytes: a changed byte costs a
model's prompt cache. Raises ToolDefinitionError for a tool that cannot be offered; `definition_problem` and
`schema_problem` test that before a model or a client sees the tool.

A `ToolSource` changes while a session runs: folders of user tools, MCP servers, tool modules. Its `refresh` returns
what changed for its worker, and `CatalogSync` applies that to the catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from heapq import nlargest
from typing import Any, Final, NamedTuple, Protocol

from golem_forge.core.calls import Caller
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import clip
from golem_forge.tools.schema import resolve_schema
from golem_forge.tools.search import SearchIndex, SearchResult
from golem_forge.tools.tool import Mode, SourceKind, Tool, may_call
from golem_forge.tools.validation import ToolDefinitionError

_SOURCE_ORDER: Final = {SourceKind.NATIVE: 0, SourceKind.CUSTOM: 1, SourceKind.MCP: 2}
_HUMAN: Final = Caller.HUMAN
Tools = list[Tool]
"""Inside Catalog the word `list` means its method."""
_ON_REQUEST: Final = frozenset({Caller.HUMAN, Caller.MCP})
RESERVED: Final[Mapping[str, frozenset[Caller]]] = {
    "prompt": _ON_REQUEST,
    "resource": _ON_REQUEST,
    "complete": _ON_REQUEST,
    "server": _ON_REQUEST,
    "client": frozenset({Caller.TOOL}),
    "git": frozenset({Caller.TOOL}),
}
"""First word of a reserved name → who reaches it: prompts and resources of the program, completion, what is passed on
to MCP servers, what a running tool asks its client, and what a running command has git do on the host."""


GIVE_WAY: Final = frozenset({"git_push", "git_fetch"})
"""Native tools that give way to any other of their name: programs had tools of these names first. Commands are handed
over to the native ones all the same."""


def is_reserved(name: str) -> bool:
    return name.partition(":")[0] in RESERVED and ":" in name


class Quarantined(NamedTuple):
    name: str
    source: SourceKind
    reason: str


class HiddenTool(NamedTuple):
    """A tool that is offered to nobody and can be called by its name all the same."""

    tool: Tool
    callable_by_models: bool
    """Whether a model that names it may call it; a person always may."""


class Catalog:
    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self.version = 0
        """Changes whenever anything a caller could see changes."""
        self.why_missing: Callable[[str], str] = lambda name: ""
        """Knows why a name may mean nothing now (a server that is not there); empty: it does not."""
        self._tools: dict[str, Tool] = {}
        self._for_people: dict[str, Tool] = {}
        self._for_models: dict[str, Tool] = {}
        self._aliases: dict[str, str] = {}
        self._quarantined: dict[str, Quarantined] = {}
        self._hidden: dict[str, HiddenTool] = {}
        self._reserved: dict[str, Tool] = {}
        self._native_places: dict[str, int] = {}
        self._cached: dict[Any, Any] = {}
        self._index = SearchIndex()
        self._indexed_version = 0
        for tool in tools:
            self.add(tool)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._ordered())

    # What is in it

    def add(self, tool: Tool, *, replace: bool = False) -> None:
        """Adds without looking at the schema. A name that is taken is an error unless `replace` says otherwise."""
        name = tool.name
        reserved = is_reserved(name)
        present = self._reserved.get(name) if reserved else self._tools.get(name)
        if name in GIVE_WAY and present is not None and present.source is SourceKind.NATIVE is not tool.source:
            present = None
        if present is not None and not replace:
            raise CatalogError(
                f"the name {name!r} is taken: a {present.source.value} tool has it, "
                f"and now a {tool.source.value} tool wants it; rename one of them"
            )
        if reserved:
            self._reserved[name] = tool
            self._changed()
            return
        if tool.source is SourceKind.NATIVE:
            self._native_places.setdefault(name, len(self._native_places))
        self._quarantined.pop(name, None)
        self._tools[name] = tool
        for names, caller in ((self._for_people, Caller.HUMAN), (self._for_models, Caller.LLM)):
            if may_call(caller, tool.mode):
                names[name] = tool
            else:
                names.pop(name, None)
        self._changed()

    def add_checked(self, tool: Tool, *, replace: bool = False) -> Quarantined | None:
        """Adds a tool whose definition was tried; one that cannot be offered is quarantined and returned as such."""
        if reason := definition_problem(tool):
            return self.quarantine(tool.name, tool.source, reason)
        self.add(tool, replace=replace)
        return None

    def remove(self, name: str) -> Tool | None:
        if is_reserved(name):
            self._changed()
            return self._reserved.pop(name, None)
        tool = self._tools.pop(name, None)
        if tool is not None:
            self._for_people.pop(name, None)
            self._for_models.pop(name, None)
            self._changed()
        return tool

    def add_alias(self, alias: str, name: str) -> None:
        """Another spelling of `name`. Never listed, and it gives way to a tool of that very name."""
        if self._aliases.get(alias, name) != name:
            raise CatalogError(
                f"the alias {alias!r} already means {self._aliases[alias]!r}; it cannot mean {name!r} too"
            )
        self._aliases[alias] = name
        self._changed()

    def remove_alias(self, alias: str) -> None:
        if self._aliases.pop(alias, None) is not None:
            self._changed()

    def quarantine(self, name: str, source: SourceKind | str, reason: str) -> Quarantined:
        """Keeps a name out, with the reason a caller is told. A tool of that name and source leaves the catalog."""
        entry = Quarantined(name, SourceKind(source), reason)
        present = self._tools.get(name)
        if present is not None and present.source is entry.source:
            self.remove(name)
        if self._quarantined.get(name) != entry:
            self._quarantined[name] = entry
            self._changed()
        return entry

    def quarantine_duplicate(self, name: str, source: SourceKind | str, reason: str) -> Quarantined:
        """Quarantines a second tool of that source with a name in use; the first tool stays."""
        entry = self._quarantined[name] = Quarantined(name, SourceKind(source), reason)
        self._changed()
        return entry

    def release(self, name: str) -> None:
        if self._quarantined.pop(name, None) is not None:
            self._changed()

    def hide(self, tool: Tool, *, by_models: bool) -> None:
        """Never listed or searched; a tool in the catalog of that name comes first."""
        self._hidden[tool.name] = HiddenTool(tool, by_models)

    def unhide(self, name: str) -> None:
        self._hidden.pop(name, None)

    # What can be asked of it

    def reserved(self, word: str) -> Tools:
        """Returns the tools named `word:…`, sorted by name."""
        return [tool for name, tool in sorted(self._reserved.items()) if name.startswith(f"{word}:")]

    def hidden_tools(self) -> Tools:
        return [one.tool for one in self._hidden.values()]

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self._ordered())

    def aliases(self) -> dict[str, str]:
        return dict(self._aliases)

    def quarantined(self) -> tuple[Quarantined, ...]:
        return tuple(sorted(self._quarantined.values()))

    def resolve(self, name: str, caller: Caller) -> Tool:
        """The tool this caller means, or ToolNotFound. Execution modes are enforced here."""
        names = self._for_people if caller == _HUMAN else self._for_models
        tool = names.get(name)
        return tool if tool is not None else self._by_alias(name, names, caller)

    def list(
        self,
        source: SourceKind | str | None = None,
        mode: Mode | str | None = None,
        category: str | None = None,
        query: str | None = None,
    ) -> Tools:
        """The tools that fit everything given, in catalog order; `query` is part of a name or description."""
        wanted = query.lower() if query else ""
        return [
            tool
            for tool in self._ordered()
            if (source is None or tool.source == source)
            and (mode is None or tool.mode == mode)
            and (category is None or tool.category == category)
            and (not wanted or wanted in tool.name.lower() or wanted in tool.description.lower())
        ]

    def offered(self, caller: Caller = Caller.LLM) -> tuple[Tool, ...]:
        """Returns the tools that this caller sees, with schemas built; quarantines tools whose schema
        cannot be used.
        """
        key = ("offered", caller == _HUMAN)
        if key not in self._cached:
            good = []
            for tool in [tool for tool in self._ordered() if may_call(caller, tool.mode)]:
                if reason := schema_problem(tool):
                    self.quarantine(tool.name, tool.source, reason)
                else:
                    good.append(tool)
            self._cached[key] = tuple(good)
        return self._cached[key]  # type: ignore[no-any-return]

    def definitions(self, shape: DefinitionFormat | str, caller: Caller = Caller.LLM) -> tuple[dict[str, Any], ...]:
        """The offered tools in one shape: the very same objects until something changes. Not to be modified."""
        tools = self.offered(caller)
        key = ("definitions", DefinitionFormat(shape), caller == _HUMAN)
        if key not in self._cached:
            self._cached[key] = tool_definitions(tools, shape)
        return self._cached[key]  # type: ignore[no-any-return]

    def search(self, query: str, limit: int = 10, caller: Caller | None = None) -> Tools:
        """The best matches, best first; only what `caller` may call when one is given."""
        return self.find(query, limit, caller).tools

    def find(self, query: str, limit: int = 10, caller: Caller | None = None) -> SearchResult:
        by_caller = self._for_people if caller == _HUMAN else self._for_models
        return self.find_among(query, limit, self._tools if caller is None else by_caller)

    def find_among(self, query: str, limit: int, tools: Mapping[str, Tool]) -> SearchResult:
        """Searches like `find`, but only in the given tools."""
        if self._indexed_version != self.version:
            self._index.update(self._tools)
            self._indexed_version = self.version
        return self._index.find(query, limit, tools)

    def _by_alias(self, name: str, names: dict[str, Tool], caller: Caller) -> Tool:
        if name in self._reserved and caller in RESERVED[name.partition(":")[0]]:
            return self._reserved[name]
        real = self._aliases.get(name)
        if real is not None and name not in self._tools and real in names:
            return names[real]
        if name not in self._tools and (hidden := self._hidden_for(name, person=names is self._for_people)):
            return hidden
        quarantined = self._quarantined.get(name)
        if quarantined is not None:
            raise ToolNotFound(name, reason=quarantined.reason)
        if reason := self.why_missing(name):
            raise ToolNotFound(name, reason=reason)
        raise ToolNotFound(name, names)

    def _hidden_for(self, name: str, *, person: bool) -> Tool | None:
        found = self._hidden.get(name)
        if found is None or not (person or found.callable_by_models):
            return None
        return found.tool if may_call(Caller.HUMAN if person else Caller.LLM, found.tool.mode) else None

    def _ordered(self) -> tuple[Tool, ...]:
        if "order" not in self._cached:
            self._cached["order"] = tuple(sorted(self._tools.values(), key=self._place))
        return self._cached["order"]  # type: ignore[no-any-return]

    def _place(self, tool: Tool) -> tuple[int, int, str]:
        native = tool.source is SourceKind.NATIVE
        return _SOURCE_ORDER[tool.source], self._native_places[tool.name] if native else 0, tool.name

    def _changed(self) -> None:
        self.version += 1
        self._cached.clear()


_MAX_SUGGESTIONS: Final = 3
_SIMILARITY_MARGIN: Final = 0.1
_MAX_COMPARED: Final = 100
_MAX_SHOWN: Final = 128


class CatalogError(Exception):
    """Two tools, or a tool and an alias, that cannot both have a name; the text says which and what to do."""

    stated_name = "CatalogError"


class ToolNotFound(ForgeError):
    """Raised if this caller has no such tool; `suggestions` are similar names that it may call."""

    stated_name = "ToolNotFound"

    def __init__(self, name: str, known: Iterable[str] = (), *, reason: str = "") -> None:
        self.suggestions = () if reason else closest_names(name, known)
        shown = clip(name, _MAX_SHOWN)
        if reason:
            message = f"Tool {shown!r} is not available: {reason}"
        elif self.suggestions:
            *others, last = map(repr, self.suggestions)
            either = f"{', '.join(others)} or {last}" if others else last
            message = f"Unknown tool {shown!r}. Did you mean {either}?"
        else:
            message = f"Unknown tool {shown!r}."
        super().__init__(message, status=Status.TOOL_NOT_FOUND, code="TOOL_NOT_FOUND")


def closest_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Up to three names that are about equally close to a misspelt one, best first."""
    from difflib import SequenceMatcher, get_close_matches

    spelled: dict[str, str] = {}
    for one in sorted(known):
        spelled.setdefault(one.lower().replace("-", "_"), one)
    wanted = name.lower().replace("-", "_")[:100]
    close = get_close_matches(wanted, _sharing_letters(wanted, spelled), n=_MAX_SUGGESTIONS, cutoff=0.6)
    ranked = sorted((-SequenceMatcher(None, one, wanted).ratio(), spelled[one]) for one in close)
    return tuple(known_name for distance, known_name in ranked if distance <= ranked[0][0] + _SIMILARITY_MARGIN)


def _sharing_letters(wanted: str, names: Iterable[str]) -> list[str]:
    """The few dozen names that share most three-letter pieces; comparing ten thousand in full takes half a second."""
    known = list(names)
    if len(known) <= _MAX_COMPARED:
        return known
    pieces = {wanted[place : place + 3] for place in range(max(len(wanted) - 2, 1))}
    shared = [(sum(piece in name for piece in pieces), name) for name in known]
    return [name for _, name in nlargest(_MAX_COMPARED, shared)]


class DefinitionFormat(StrEnum):
    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    MCP = "mcp"


def tool_definition(tool: Tool, shape: DefinitionFormat | str) -> dict[str, Any]:
    shape = DefinitionFormat(shape)
    if shape is DefinitionFormat.ANTHROPIC:
        return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
    if shape is DefinitionFormat.OPENAI:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
        return {"type": "function", "function": function}
    output = tool.output_schema
    return {
        "name": tool.name,
        **({"title": tool.label} if tool.label else {}),
        "description": tool.description,
        "inputSchema": tool.input_schema,
        # MCP knows structured content as objects only
        **({"outputSchema": output} if output is not None and output.get("type") == "object" else {}),
        **({"annotations": tool.annotations} if tool.annotations else {}),
    }


def tool_definitions(tools: Iterable[Tool], shape: DefinitionFormat | str) -> tuple[dict[str, Any], ...]:
    return tuple(tool_definition(tool, shape) for tool in tools)


_NAME: Final = regex(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SERVER_NAME: Final = regex(r"(?=.{1,128}\Z)[A-Za-z0-9_-]+?__[A-Za-z0-9_-]+")


def definition_problem(tool: Tool) -> str:
    """Why a tool cannot be in a catalog, or nothing: its name, then its schemas."""
    if is_reserved(tool.name):
        return schema_problem(tool)
    if tool.source is SourceKind.MCP and _SERVER_NAME.fullmatch(tool.name):
        return schema_problem(tool)
    if not _NAME.fullmatch(tool.name) or "__" in tool.name:
        return (
            f"entry_invalid: invalid tool name {tool.name[:100]!r}: use letters, digits, '-' and '_', "
            "starting with a letter, at most 64, no '__'"
        )
    return schema_problem(tool)


def schema_problem(tool: Tool) -> str:
    """Why a tool's schemas cannot be offered, or nothing. Builds them."""
    try:
        schema = tool.input_schema
        tool.output  # noqa: B018 - building it is the test
    except ToolDefinitionError as error:
        return f"schema_invalid: {error}"
    except Exception as error:  # a foreign annotation or model may raise anything when it is first read
        return f"schema_invalid: {error_name(error)}: {str(error)[:300]}"
    kind = (resolve_schema(schema, schema).schema if "$ref" in schema else schema).get("type")
    if kind != "object":
        return f"schema_invalid: the input schema must have type object, not {kind!r}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanges:
    """The result of a refresh: names of tools, and lines for the person."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    diagnostics: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    announcements: tuple[str, ...] = ()
    """Lines that are shown once per session."""
    tools: tuple[Tool, ...] = ()
    """The `added` and `changed` tools of a source that leaves adding them to its caller."""

    def __bool__(self) -> bool:
        return self != CatalogChanges()

    def __add__(self, other: CatalogChanges) -> CatalogChanges:
        return CatalogChanges(**{name: getattr(self, name) + getattr(other, name) for name in CatalogChanges.__slots__})


class ToolSource(Protocol):
    def refresh(self) -> CatalogChanges | None:
        """Updates the tools. Returns None if nothing changed since the last refresh."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTool:
    """A tool that a source offers for the catalog."""

    mark: object
    """The tool in the catalog is kept while the mark stays equal."""
    make: Callable[[], Tool]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOut:
    """A name that a source does not offer, with the reason."""

    mark: object
    """Nothing is reported or changed again while the mark stays equal."""
    reason: str
    """The error text for a caller that uses the name."""
    diagnostic: str = ""
    hide: Callable[[], tuple[Tool, bool]] | None = None
    """The tool that a person reaches by its name all the same, and whether a model does."""


class CatalogSync:
    """Applies the changes of one source to a catalog: adds, replaces and removes its tools, keeps names out with the
    reason a caller is told, and puts a built-in tool back when the tool that replaced it goes. Tools that left go
    first. `on_placed` is called before the new ones are added, so that what a config says of a tool counts from its
    first call on."""

    def __init__(
        self,
        catalog: Catalog,
        source: SourceKind,
        *,
        on_placed: Callable[[tuple[str, ...]], None] = lambda names: None,
        on_returned: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`on_placed`: called with the names that mean a tool of this source from now on; `on_returned`: with a name
        that means the built-in tool again."""
        self._catalog = catalog
        self._source = source
        self._on_placed = on_placed
        self._on_returned = on_returned
        self._placed: dict[str, object] = {}
        """Name → mark of the tools that are in the catalog."""
        self._kept_out: dict[str, object] = {}
        self._replaced: dict[str, Tool] = {}
        """Built-in tools that a tool of this source stands in for."""

    def has_placed(self, name: str) -> bool:
        """Whether the catalog's tool of that name is from this source."""
        return name in self._placed

    def has_kept_out(self, name: str) -> bool:
        return name in self._kept_out

    def update(self, tools: Mapping[str, SourceTool], kept_out: Mapping[str, KeptOut]) -> CatalogChanges | None:
        """`tools` and `kept_out` are all that there is of this source now."""
        catalog, before = self._catalog, self._placed
        removed = tuple(name for name in before if name not in tools)
        for name in removed:
            self._remove(name)
        for name in self._kept_out.keys() - kept_out.keys():
            catalog.unhide(name)
            catalog.release(name)
        fresh = [name for name, tool in tools.items() if name not in before or before[name] != tool.mark]
        refused = {name: out for name, out in kept_out.items() if self._kept_out.get(name) != out.mark}
        by_name = [name for name, out in refused.items() if out.hide is not None and name not in catalog]
        if fresh or by_name:
            self._on_placed((*fresh, *by_name))
        replaced = {name: tool for name in fresh if (tool := catalog.get(name)) and tool.source is SourceKind.NATIVE}
        for name in fresh:
            catalog.add(tools[name].make(), replace=True)
        for name, out in refused.items():
            self._keep_out(name, out)
        self._replaced |= replaced
        self._placed = {name: tool.mark for name, tool in tools.items()}
        self._kept_out = {name: out.mark for name, out in kept_out.items()}
        changes = CatalogChanges(
            added=tuple(name for name in fresh if name not in before),
            changed=tuple(name for name in fresh if name in before),
            removed=removed,
            diagnostics=tuple(out.diagnostic for out in refused.values() if out.diagnostic),
            warnings=tuple(
                f"{self._source.value} tool '{name}' replaces the built-in tool of that name" for name in replaced
            ),
        )
        return changes or None

    def _remove(self, name: str) -> None:
        self._catalog.remove(name)
        if (built_in := self._replaced.pop(name, None)) is not None:
            self._catalog.add(built_in)
            self._on_returned(name)

    def _keep_out(self, name: str, out: KeptOut) -> None:
        self._catalog.unhide(name)
        if out.hide is not None:
            tool, by_models = out.hide()
            self._catalog.hide(tool, by_models=by_models)
        # A tool of that name which is there now is not of this source, and stays.
        self._catalog.quarantine_duplicate(name, self._source, out.reason)
