"""Deferring: what one worker's model is sent of its tools, and what it has loaded of those that wait.

While definitions are few, all are sent. When they are too many, all but Forge's own and the pinned ones (`always_load`)
wait until they are searched for (`tool_search`, which is there only then) or called. Loaded names are kept in the
journal, by worker, and come back when the session is resumed. What is worked out holds until the catalog, the policy or
the config is other than before: a request costs what it sends, however many tools there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.mcp.spec import McpSettings
from golem_forge.config.modes import ApprovalMode
from golem_forge.core.call import Caller, Outcome
from golem_forge.core.verdict import Status
from golem_forge.events.long_records import joined
from golem_forge.policy.refusing import only_refuses
from golem_forge.tools.catalog_errors import ToolNotFound
from golem_forge.tools.deferral import Divided, Threshold, divided, loaded_with, sources
from golem_forge.tools.definition_check import schema_problem
from golem_forge.tools.modes import llm_tools
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.toolsets.tool_search import TOOL_SEARCH, Search, create_tool_search_tool
from golem_forge.workers.models.layer import ToolOffer

if TYPE_CHECKING:
    from golem_forge.custom.offering import UserTools
    from golem_forge.workers.station import Station

LOADED: Final = "toolsLoaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What was worked out, and from what."""

    of: tuple[Any, ...]
    usable: Mapping[str, Tool]
    """Everything a model may call, except what could only be refused."""
    tools: Divided
    search: Tool | None
    """None: nothing is deferred."""


class Deferring:
    def __init__(self, station: Station) -> None:
        self._station = station
        self._threshold = Threshold()
        self._seen: _Seen | None = None
        self._offers: dict[str, tuple[Tool, ToolOffer]] = {}
        """By name, as long as the tool is the same and no secret was learned."""
        self._clean_of = 0
        self.user_tools: UserTools | None = None
        """None: this worker sees none of the person's own tools."""
        self.loaded: tuple[str, ...] = ()
        """Names, in the order in which they were loaded."""

    def offers(self) -> tuple[ToolOffer, ...]:
        """What the next request carries."""
        seen = self.look()
        if seen.search is None:
            offered = self._station.catalog.offered(Caller.LLM)
            return tuple(self._offer(tool) for tool in offered if tool.name in seen.usable)
        sent = (*seen.tools.always, seen.search, *seen.tools.loaded(self.loaded))
        return tuple(self._offer(tool) for tool in sent if self._is_sound(tool))

    def schema_of(self, name: str) -> Mapping[str, Any]:
        """Of whatever a call by that name would reach, deferred or spelt otherwise; {}: it would reach nothing."""
        try:
            tool = self._station.catalog.resolve(name, Caller.LLM)
        except ToolNotFound:
            return {}
        return tool.input_schema if self._is_sound(tool) else {}

    def called(self, outcomes: Iterable[Outcome]) -> None:
        """What a model calls is loaded: it goes on with it, and one that guessed the arguments needs the schema."""
        waiting = self.look().tools.waiting
        names = dict.fromkeys(each.tool for each in outcomes if each.status is not Status.TOOL_NOT_FOUND)
        self._load([waiting[name] for name in names if name in waiting])

    def restore(self, names: Iterable[str]) -> None:
        """Of an earlier run of this session; they are on record already."""
        self.loaded = tuple(names)

    def look(self) -> _Seen:
        of = self._what_counts()
        if self._seen is None or not _same(self._seen.of, of):
            self._seen = self._work_out(of)
        return self._seen

    def _offer(self, tool: Tool) -> ToolOffer:
        """Threat: a module's docstring and a server's schema may hold what they were given in their environment."""
        redactor = self._station.tree.redactor
        if redactor.version != self._clean_of:
            self._offers, self._clean_of = {}, redactor.version
        known = self._offers.get(tool.name)
        if known is None or known[0] is not tool:
            description, schema = redactor.secrets_out(tool.description), tool.input_schema
            if tool.source is not SourceKind.NATIVE:  # Forge's own names stay, whatever somebody's password is
                schema = redactor.without_secrets(schema)
            known = tool, ToolOffer(name=tool.name, description=description, schema=schema)
            self._offers[tool.name] = known
        return known[1]

    def _what_counts(self) -> tuple[Any, ...]:
        judge = self._station.path.judge
        silent = judge.mode is ApprovalMode.AUTO_DENY and (judge.rules is None or judge.rules.silent())
        return self._station.catalog.version, judge.mode, silent, judge.blocks, self._settings

    @property
    def _settings(self) -> McpSettings:
        return self._station.tree.program.mcp

    def _work_out(self, of: tuple[Any, ...]) -> _Seen:
        station, settings = self._station, self._settings
        path, catalog = station.path, station.catalog
        usable = [tool for tool in llm_tools(catalog) if not only_refuses(path.judge, tool, path.sandbox)]
        tools = divided(usable, settings.deferral, self._always_loaded)
        search = None
        if tools.waiting and self._threshold.passed(usable, settings.deferral) and TOOL_SEARCH not in catalog:
            search = self._search_tool(tools)
            catalog.set_aside(search, by_models=True)
        elif self._seen is not None and self._seen.search is not None:
            catalog.no_longer_aside(TOOL_SEARCH)
        return _Seen(of=of, usable={tool.name: tool for tool in usable}, tools=tools, search=search)

    def _search_tool(self, tools: Divided) -> Tool:
        """The same one as long as it says the same: loading a tool changes none of its words."""
        made = create_tool_search_tool(self._find, sources(tools.waiting.values(), self._is_users))
        before = self._seen.search if self._seen is not None else None
        return before if before is not None and before.description == made.description else made

    def _find(self, query: str, limit: int) -> Search:
        while True:
            seen = self.look()
            found = self._station.catalog.find_among(query, limit, seen.usable)
            if all(self._is_sound(tool) for tool in found.tools):
                break  # else one that cannot be used is out of the catalog now, and the others move up
        self._load(found.tools)
        told = sources(seen.tools.waiting.values(), self._is_users)
        return Search(tools=found.tools, total=found.total, sources=told)

    def _is_sound(self, tool: Tool) -> bool:
        reason = schema_problem(tool)
        if reason:
            self._station.catalog.quarantine(tool.name, tool.source, reason)
        return not reason

    def _load(self, tools: Iterable[Tool]) -> None:
        seen = self.look()
        loaded = loaded_with(self.loaded, tools, seen.tools.waiting)
        if loaded == self.loaded:
            return
        self.loaded = loaded  # also where all are sent: what a model has used stays when there are too many one day
        if seen.search is not None and (journal := self._station.tree.journal) is not None:
            journal.append(LOADED, {"workerId": self._station.id, "names": list(loaded)})

    def _is_users(self, tool: Tool) -> bool:
        return self.user_tools is not None and self.user_tools.offers(tool.name)

    def _always_loaded(self, server: str) -> tuple[str, ...]:
        spec = self._settings.servers.get(server)
        return spec.always_load if spec is not None else ()


def loaded_tools(records: Iterable[Mapping[str, Any]], worker_id: str) -> tuple[str, ...]:
    """What a journal says this worker had loaded last."""
    names: tuple[str, ...] = ()
    for record in joined(records):
        if record.get("type") == LOADED and record.get("workerId") == worker_id:
            said = record.get("names")
            names = tuple(name for name in said if isinstance(name, str)) if isinstance(said, list) else ()
    return names


def _same(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    return all(one is other or (isinstance(one, int) and one == other) for one, other in zip(before, now, strict=True))
