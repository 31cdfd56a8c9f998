"""Tools: what a person can run, the state of user tools and servers, one tool in full, versions and statistics.

What `/tools`, `/mcp` and `forge tools list | show | log | diff | stats` say, as data. Runs, builds and asks nothing;
what changes something is in `user_tools` and `servers`. The catalog is read on the loop, folders and the store off it.
What is to be trusted is shown unredacted: a yes is to exactly that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any, Final

from pydantic import Field

from golem_forge.agent.explain import evaluator_for
from golem_forge.agent.slash.invocation import described_tool, ordered_manual_tools
from golem_forge.agent.tool_inventory import build_catalog, open_listing_workshop
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import escape_control_chars, nearest_remark
from golem_forge.policy.base import ApprovalBlocks, who_decides
from golem_forge.tools.catalog import Catalog, DefinitionFormat, tool_definition
from golem_forge.tools.forms import derive_fields
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Tool
from golem_forge.ui.web.api import ApiModel, ApiRefusal, user_tools
from golem_forge.ui.web.api.operation import RequestedSession, operation, redacted_json
from golem_forge.ui.web.api.servers import ServerModel, configured_servers, describe_servers, servers_of_runtime
from golem_forge.usertools import overview
from golem_forge.usertools.catalog_sync import user_tool
from golem_forge.usertools.diagnostics import Diagnostic
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.store.statistics import ToolStats, tool_statistics
from golem_forge.usertools.workshop import Workshop

_REFUSALS: Final = {404: "no such tool; names the nearest"}


class ManualTool(ApiModel, title="ManualTool"):
    """A tool that a person may run, with the fields of its form."""

    name: str
    label: str
    description: str
    category: str = ""
    source: str
    """`native`, `custom` or `mcp`."""
    fields: list[dict[str, Any]]


class QuarantinedTool(ApiModel, title="Quarantine"):
    name: str
    source: str
    reason: str


class ToolList(ApiModel, title="ToolList"):
    tools: list[ManualTool]
    user_tools: list[user_tools.UserToolModel]
    servers: list[ServerModel]
    quarantined: list[QuarantinedTool]
    problems: list[str] = Field(default_factory=list)
    """Why something that belongs here could not be looked at."""


class ToolVersion(ApiModel, title="ToolVersion"):
    digest: str
    at: str
    first_at: str
    author: str
    restored: int
    trusted: bool
    current: bool


class UsageModel(ApiModel, title="Usage"):
    calls: int
    statuses: dict[str, int]
    ran: int
    success_rate: float | None
    last_used: str | None
    median_ms: float | None
    total_ms: float


class ToolStatisticsModel(UsageModel, title="ToolStatistics"):
    name: str
    good: int
    bad: int
    time_saved_ms: float | None = None
    """An estimate, only of tools made from a suggestion."""
    digests: dict[str, UsageModel]


class ToolDetail(ApiModel, title="ToolDetail"):
    name: str
    source: str
    mode: str
    """Who may call it: `llm`, `manual` or `both`."""
    label: str
    category: str
    description: str
    aliases: list[str]
    approval: str
    """Who decides about its calls, in one sentence."""
    offered: bool
    """Whether it is in this session's catalog."""
    definition: dict[str, Any]
    """Name, description and schemas, in MCP's shape."""
    fields: list[dict[str, Any]]
    server: str = ""
    """The MCP server it belongs to."""
    problem: str = ""
    """Why it is no usable tool as it is; then there is no definition."""
    own: user_tools.UserToolDetail | None = None
    versions: list[ToolVersion] = Field(default_factory=list)
    statistics: ToolStatisticsModel | None = None


class VersionDifference(ApiModel, title="Difference"):
    """From one version of a tool to another."""

    before: str
    after: str
    """Digests; empty: nothing, no version was trusted before."""
    reach: list[str]
    """What it may do, as far as that differs."""
    changes: str
    """Unified, for each file that differs."""
    warnings: list[str]


class CreationsModel(ApiModel, title="Creations"):
    """How far tools that came into being ever got; rates are shares of those that were made."""

    made: int
    built: int
    tested: int
    activated: int
    built_rate: float | None
    tested_rate: float | None
    activated_rate: float | None


class RefreshTimesModel(ApiModel, title="RefreshTimes"):
    count: int
    p50_ms: float | None = Field(alias="p50Ms")
    p95_ms: float | None = Field(alias="p95Ms")


class TotalsModel(ApiModel, title="Totals"):
    tools: int
    by_author: dict[str, int]
    by_state: dict[str, int]
    creations: CreationsModel
    reuse: float | None
    """Share of active tools that were called in at least two sessions."""
    time_saved_ms: float | None
    refresh: RefreshTimesModel


class StatisticsModel(ApiModel, title="Statistics"):
    totals: TotalsModel
    tools: list[ToolStatisticsModel]
    """The person's own, used or not, by name."""


class VersionsQuery(ApiModel, title="TwoVersions"):
    """Digests or their first digits, at least 6. None: what was trusted last, with what is there now."""

    before: str = Field(default="", max_length=100)
    after: str = Field(default="", max_length=100)


@operation("GET", "/api/sessions/{id}/tools", "list_tools", tag="tools")
async def list_tools(subject: RequestedSession) -> ToolList:
    """The tools a person can run, with the fields of their forms; their own tools and the MCP servers, with states."""
    own = await run_in_thread(lambda: _user_tool_rows(subject))
    recorded = subject.runtime is None
    found = await run_in_thread(lambda: _recorded_tools(subject)) if recorded else await _live_tools(subject)
    folders = {each["name"] for each in own}
    found["quarantined"] = [each for each in found["quarantined"] if each["name"] not in folders]
    return ToolList.model_validate(subject.redact(found | {"user_tools": own}))


@operation("GET", "/api/sessions/{id}/tools/{name}", "show_tool", tag="tools", refusals=_REFUSALS)
async def show_tool(subject: RequestedSession, name: str) -> ToolDetail:
    """One tool: its definition and who decides about its calls; of the person's own also every file of it, its
    versions, its statistics, and what a yes to it would be given to."""
    looked = await look_up_tool(subject, name)
    found = await run_in_thread(lambda: full_tool_detail(subject, looked))
    if found is None:
        raise ApiRefusal(404, f"There is no tool '{escape_control_chars(name[:100])}' here{looked.hint}.")
    return ToolDetail.model_validate(found)


@operation("GET", "/api/sessions/{id}/tools/{name}/difference", "compare_versions", tag="tools", refusals=_REFUSALS)
async def compare_versions(subject: RequestedSession, name: str, query: VersionsQuery) -> VersionDifference:
    """What changed in a tool of the person's between two versions, or since it was trusted last."""
    wanted = [digest for digest in (query.before, query.after) if digest]
    if query.after and not query.before:
        raise ApiRefusal(422, "Name the older version, too.", {"before": "missing"})
    return VersionDifference.model_validate(await run_in_thread(lambda: version_difference(subject, name, wanted)))


async def _live_tools(subject: RequestedSession) -> dict[str, Any]:
    await subject.refresh_tools()
    runtime = subject.live_runtime
    catalog = runtime.path.catalog
    tools, quarantined, servers = ordered_manual_tools(catalog), catalog.quarantined(), servers_of_runtime(runtime)
    described = await run_in_thread(lambda: [described_tool(tool) for tool in tools])
    return {
        "tools": described,
        "servers": await run_in_thread(lambda: describe_servers(servers)),
        "quarantined": [
            {"name": each.name, "source": each.source.value, "reason": each.reason} for each in quarantined
        ],
        "problems": [],
    }


def _recorded_tools(subject: RequestedSession) -> dict[str, Any]:
    """Nobody can run a tool in a session that does not run here."""
    servers: list[dict[str, Any]] = []
    problems: list[str] = []
    try:
        place = configured_servers(subject)
        servers = describe_servers([(each, None) for each in place.all()])
        problems = [place.book.problem] if place.book.problem else []
    except ConfigError as error:
        problems = [f"MCP servers cannot be shown: {problem}" for problem in error.problems]
    return {"tools": [], "servers": servers, "quarantined": [], "problems": problems}


def _user_tool_rows(subject: RequestedSession) -> list[dict[str, Any]]:
    with user_tools.workshop_of(subject) as workshop:
        return user_tools.user_tool_rows(workshop)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLookup:
    """What a session, or Forge itself where none runs, has under a name."""

    name: str
    tool: Tool | None
    offered: bool
    aliases: tuple[str, ...]
    approval: str
    """Who decides about its calls."""
    hint: str
    """` (did you mean 'x'?)`, for an unknown name."""


async def look_up_tool(subject: RequestedSession, name: str) -> ToolLookup:
    await subject.refresh_tools()
    runtime = subject.runtime
    catalog = runtime.path.catalog if runtime is not None else build_catalog()
    tool = _find_tool(catalog, name)
    approval = ""
    if tool is not None:
        nothing_said = who_decides(tool, ApprovalBlocks())
        approval = await evaluator_for(runtime).who_decides(tool) if runtime is not None else nothing_said
    return ToolLookup(
        name=tool.name if tool is not None else name,
        tool=tool,
        offered=runtime is not None and tool is not None and tool.name in catalog,
        aliases=tuple(alias for alias, meant in catalog.aliases().items() if tool is not None and meant == tool.name),
        approval=approval,
        hint=nearest_remark(name, catalog.names()),
    )


def _find_tool(catalog: Catalog, name: str) -> Tool | None:
    """Also one that stands aside: a person reaches it by its name."""
    found = catalog.get(name) or catalog.get(catalog.aliases().get(name, name))
    return found or next((tool for tool in catalog.hidden_tools() if tool.name == name), None)


def full_tool_detail(subject: RequestedSession, looked: ToolLookup) -> dict[str, Any] | None:
    """None: there is no such tool and never was."""
    name = looked.name
    with user_tools.workshop_of(subject) as workshop:
        found = workshop.registry.lookup(name)
        entry = found if isinstance(found, ToolEntry) else None
        problem = _folder_problem(workshop, name, found) if looked.tool is None and entry is None else ""
        tool = looked.tool if looked.tool is not None or entry is None else user_tool(workshop, entry)
        if tool is None and not problem:
            return None
        is_own = entry is not None or bool(problem)
        shown = _tool_facts(looked, tool) if tool is not None else _unusable_tool_facts(name)
        told: dict[str, Any] = subject.redact(
            shown
            | {
                "offered": looked.offered,
                "problem": problem,
                "versions": user_tools.version_rows(workshop, name) if is_own else [],
                "statistics": tool_statistics_row(tool_statistics(workshop.store, [name])[0]) if is_own else None,
            }
        )
        return told | {
            "own": unredacted_json(user_tools.user_tool_detail(workshop, entry)) if entry is not None else None
        }


def _folder_problem(workshop: Workshop, name: str, found: ToolEntry | Diagnostic | None) -> str:
    """Why a folder of that name is no tool; empty: there is none, or it is one."""
    if isinstance(found, Diagnostic):
        return found.text
    if found is not None or not overview.is_known_tool(workshop, name):
        return ""
    with suppress(OSError):
        if overview.tool_folder(workshop, name).is_dir():
            return "Its folder has no tool.yaml, so it is not a tool."
    return "Its folder is gone; undo brings it back."


def version_difference(subject: RequestedSession, name: str, wanted: Sequence[str]) -> dict[str, Any]:
    with user_tools.workshop_of(subject) as workshop:
        if not overview.is_known_tool(workshop, name):
            raise ApiRefusal(404, f"There is no user tool '{escape_control_chars(name[:100])}', now or earlier.")
        found = overview.compare_versions(workshop, name, wanted)
        difference = overview.diff_versions(name, found.old, found.new)
    shown: dict[str, Any] = {
        "before": found.before,
        "after": found.new.digest,
        "reach": difference.access,
        "changes": difference.changes,
        "warnings": difference.warnings,
    }
    return unredacted_json(shown)


def unredacted_json(value: dict[str, Any]) -> dict[str, Any]:
    """The person's own words and files, without redaction."""
    data: dict[str, Any] = redacted_json(value, lambda text: text)
    return data


def _tool_facts(looked: ToolLookup, tool: Tool) -> dict[str, Any]:
    try:
        shape, fields = tool_definition(tool, DefinitionFormat.MCP), derive_fields(tool.input_schema)
    except ForgeError:  # it is kept out of the catalog for that, with the reason
        shape, fields = {}, []
    return {
        "name": tool.name,
        "source": tool.source.value,
        "mode": tool.mode.value,
        "label": tool.label or tool.name,
        "category": tool.category or "",
        "description": tool.description,
        "aliases": looked.aliases,
        "approval": looked.approval or who_decides(tool, ApprovalBlocks()),
        "definition": shape,
        "fields": fields,
        "server": tool.remote.server if tool.remote is not None else "",
    }


def _unusable_tool_facts(name: str) -> dict[str, Any]:
    texts = dict.fromkeys(("mode", "category", "description", "approval"), "")
    return {"name": name, "label": name, "source": "custom", **texts, "aliases": [], "definition": {}, "fields": []}


@operation("GET", "/api/sessions/{id}/statistics", "show_statistics", tag="tools")
async def show_statistics(subject: RequestedSession) -> StatisticsModel:
    """The person's own tools, used or not: what `forge tools stats` shows."""
    return StatisticsModel.model_validate(subject.redact(await run_in_thread(lambda: _read_statistics(subject))))


def _read_statistics(subject: RequestedSession) -> dict[str, Any]:
    workshop = open_listing_workshop(subject.home)
    with closing(workshop.store):
        workshop.registry.refresh()
        totals, every = overview.usage_overview(workshop)
        return {"totals": totals.to_json(), "tools": [tool_statistics_row(each) for each in every]}


def tool_statistics_row(tool: ToolStats) -> dict[str, Any]:
    told = tool.to_json()
    del told["ratings"]
    return told | {"good": tool.good, "bad": tool.bad}
