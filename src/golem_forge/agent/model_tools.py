"""ModelTools: which of a worker's tools its model is sent, and which deferred ones it has loaded.

While definitions are few, all are sent. Forge's rare ones wait as soon as its own are many; when there are too many in
all, everything waits but Forge's own and the pinned ones (`always_load`), until the model searches for them
(`tool_search`, offered only then) or calls them. Forge's own are sent with the short words of `model_text`. Loaded
names are recorded in the journal by worker and restored when the session is resumed. The selection is cached until the
catalog, the policy or the configuration changes: a request costs what it sends, however many tools there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.model.interface import ToolOffer
from golem_forge.agent.session_state import SessionState
from golem_forge.config.approval_modes import ApprovalMode
from golem_forge.config.mcp_spec import McpSettings
from golem_forge.core.calls import Caller, Outcome
from golem_forge.core.decisions import Status
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.journal_records import join_records
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.tools.catalog import ToolNotFound, schema_problem
from golem_forge.tools.deferral import DeferralThreshold, ToolSplit, add_loaded, has_many_own, sources, split_tools
from golem_forge.tools.schema import model_schema
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.toolsets.model_text import RARE, RARE_IN_SMALL_CONTEXTS, model_text, short_schema
from golem_forge.toolsets.tool_search import TOOL_SEARCH, ToolSearchResult, create_tool_search_tool

if TYPE_CHECKING:
    from golem_forge.usertools.catalog_sync import UserTools

TOOLS_LOADED: Final = "toolsLoaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """What was worked out, and from what."""

    inputs: tuple[Any, ...]
    usable: Mapping[str, Tool]
    """Everything a model may call, except what could only be refused."""
    tools: ToolSplit
    may_wait: Mapping[str, Tool]
    """What waits, or would if there were too many tools."""
    search: Tool | None
    """None: nothing is deferred."""


class ModelTools:
    def __init__(self, orchestrator: Orchestrator, session_state: SessionState) -> None:
        self._orchestrator = orchestrator
        self._session_state = session_state
        self._threshold = DeferralThreshold()
        self._selection: _Selection | None = None
        self._offers: dict[str, tuple[Tool, ToolOffer]] = {}
        """By name, as long as the tool is the same and no secret was learned."""
        self._redactor_version = 0
        self.compact = False
        """The model has little room: fewer of Forge's own tools are sent, and the others wait to be found."""
        self.user_tools: UserTools | None = None
        """None: this worker sees none of the person's own tools."""
        self.loaded: tuple[str, ...] = ()
        """Names, in the order in which they were loaded."""

    def offers(self) -> tuple[ToolOffer, ...]:
        """What the next request carries."""
        selection = self.select()
        if selection.search is None:
            offered = self._orchestrator.catalog.offered(Caller.LLM)
            return tuple(self._offer(tool) for tool in offered if tool.name in selection.usable)
        sent = (*selection.tools.always, selection.search, *selection.tools.loaded(self.loaded))
        return tuple(self._offer(tool) for tool in sent if self._is_sound(tool))

    def schema_of(self, name: str) -> Mapping[str, Any]:
        """Of whatever a call by that name would reach, deferred or spelt otherwise; {}: it would reach nothing."""
        try:
            tool = self._orchestrator.catalog.resolve(name, Caller.LLM)
        except ToolNotFound:
            return {}
        return tool.input_schema if self._is_sound(tool) else {}

    def mark_called(self, outcomes: Iterable[Outcome]) -> None:
        """What a model calls is loaded: it goes on with it, and one that guessed the arguments needs the schema."""
        waiting = self.select().may_wait
        names = dict.fromkeys(each.tool for each in outcomes if each.status is not Status.TOOL_NOT_FOUND)
        self._load([waiting[name] for name in names if name in waiting])

    def restore(self, names: Iterable[str]) -> None:
        """Of an earlier run of this session; they are on record already."""
        self.loaded = tuple(names)

    def select(self) -> _Selection:
        judge = self._orchestrator.judge
        silent = judge.mode is ApprovalMode.AUTO_DENY and (judge.rules is None or judge.rules.is_empty())
        inputs = (self._orchestrator.catalog.version, judge.mode, silent, judge.blocks, self._settings, self.compact)
        if self._selection is None or not all(
            one is other or (isinstance(one, int) and one == other)
            for one, other in zip(self._selection.inputs, inputs, strict=True)
        ):
            self._selection = self._make_selection(inputs)
        return self._selection

    def _offer(self, tool: Tool) -> ToolOffer:
        """Threat: a module's docstring and a server's schema may hold what they were given in their environment."""
        redactor = self._session_state.redactor
        if redactor.version != self._redactor_version:
            self._offers, self._redactor_version = {}, redactor.version
        known = self._offers.get(tool.name)
        if known is None or known[0] is not tool:
            description, schema = redactor.redact_secrets(model_text(tool)), tool.input_schema
            if tool.source is not SourceKind.NATIVE:  # Forge's own names stay, whatever somebody's password is
                schema = redactor.without_secrets(schema)
            sent = short_schema(tool) or model_schema(schema)
            offer = ToolOffer(name=tool.name, description=description, schema=sent, full_schema=schema)
            known = tool, offer
            self._offers[tool.name] = known
        return known[1]

    @property
    def _settings(self) -> McpSettings:
        return self._session_state.program.mcp

    def _make_selection(self, inputs: tuple[Any, ...]) -> _Selection:
        path, catalog, settings = self._orchestrator, self._orchestrator.catalog, self._settings
        usable = path.usable_tools()
        every = tuple(usable.values())
        rare = (RARE_IN_SMALL_CONTEXTS if self.compact else RARE) if has_many_own(every) else ()
        many = tools = split_tools(every, settings.deferral, self._always_loaded, rare=rare)
        if not self._threshold.passed(every, settings.deferral):
            tools = split_tools(every, settings.deferral, self._always_loaded, rare=rare, only_rare=True)
        search = None
        if tools.waiting and TOOL_SEARCH not in catalog:
            # The same one as long as it says the same: loading a tool changes none of its words.
            own = [tool.name for tool in tools.waiting.values() if tool.source is SourceKind.NATIVE]
            made = create_tool_search_tool(self._find, sources(tools.waiting.values(), self._is_users), own)
            before = self._selection.search if self._selection is not None else None
            search = before if before is not None and before.description == made.description else made
            catalog.hide(search, by_models=True)
        elif self._selection is not None and self._selection.search is not None:
            catalog.unhide(TOOL_SEARCH)
        return _Selection(inputs=inputs, usable=usable, tools=tools, may_wait=many.waiting, search=search)

    def _find(self, query: str, limit: int) -> ToolSearchResult:
        while True:
            selection = self.select()
            found = self._orchestrator.catalog.find_among(query, limit, selection.usable)
            if all(self._is_sound(tool) for tool in found.tools):
                break  # else one that cannot be used is out of the catalog now, and the others move up
        self._load(found.tools)
        waiting = sources(selection.tools.waiting.values(), self._is_users)
        return ToolSearchResult(tools=found.tools, total=found.total, sources=waiting)

    def _is_sound(self, tool: Tool) -> bool:
        reason = schema_problem(tool)
        if reason:
            self._orchestrator.catalog.quarantine(tool.name, tool.source, reason)
        return not reason

    def _load(self, tools: Iterable[Tool]) -> None:
        selection = self.select()
        loaded = add_loaded(self.loaded, tools, selection.may_wait)
        if loaded == self.loaded:
            return
        self.loaded = loaded  # also where all are sent: what a model has used stays when there are too many one day
        if selection.search is not None and (journal := self._session_state.journal) is not None:
            journal.append(TOOLS_LOADED, {"workerId": self._orchestrator.scope.worker_id, "names": list(loaded)})

    def _is_users(self, tool: Tool) -> bool:
        return self.user_tools is not None and self.user_tools.offers(tool.name)

    def _always_loaded(self, server: str) -> tuple[str, ...]:
        spec = self._settings.servers.get(server)
        return spec.always_load if spec is not None else ()


def loaded_tools(records: Iterable[Mapping[str, Any]], worker_id: str) -> tuple[str, ...]:
    """What a journal says this worker had loaded last."""
    names: tuple[str, ...] = ()
    for record in join_records(records):
        if record.get("type") == TOOLS_LOADED and record.get("workerId") == worker_id:
            said = record.get("names")
            names = tuple(name for name in said if isinstance(name, str)) if isinstance(said, list) else ()
    return names
