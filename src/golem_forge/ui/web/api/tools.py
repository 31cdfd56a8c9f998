"""Tools: what a person can run, the state of user tools and servers, one tool in full, versions and statistics.

What `/tools`, `/mcp` and `forge tools list | show | log | diff | stats` say, as data. Runs, builds and asks nothing;
what changes something is in `user_tools` and `servers`. The catalog is read on the loop, folders and the store off it.
What is to be trusted is shown unredacted: a yes is to exactly that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from pydantic import Field

from golem_forge.agent.slash.manual import described_tool, ordered_manual_tools
from golem_forge.agent.tool_inventory import build_catalog, open_listing_workshop
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import closest_match, escape_control_chars
from golem_forge.policy.base import ApprovalBlocks, who_decides
from golem_forge.tools.catalog import Catalog, DefinitionFormat, tool_definition
from golem_forge.tools.forms import derive_fields
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Tool
from golem_forge.ui.web.api import user_tools
from golem_forge.ui.web.api.models import StatisticsModel, ToolDetail, ToolList, VersionDifference
from golem_forge.ui.web.api.operation import ApiCall, RequestedSession, operation, redacted_json, requested_session
from golem_forge.ui.web.api.servers import configured_servers, describe_servers, servers_of_runtime
from golem_forge.ui.web.wire import ApiModel, ApiRefusal
from golem_forge.usertools import overview
from golem_forge.usertools.store.statistics import ToolStats, tool_statistics
from golem_forge.usertools.tool import user_tool

_REFUSALS: Final = {404: "no such tool; names the nearest"}


class VersionsQuery(ApiModel, title="TwoVersions"):
    """Digests or their first digits, at least 6. None: what was trusted last, with what is there now."""

    before: str = Field(default="", max_length=100)
    after: str = Field(default="", max_length=100)


@operation("GET", "/api/sessions/{id}/tools", "list_tools", answer=ToolList, tag="tools")
async def list_tools(call: ApiCall) -> ToolList:
    """The tools a person can run, with the fields of their forms; their own tools and the MCP servers, with states."""
    subject = await requested_session(call)
    own = await run_in_thread(lambda: _user_tool_rows(subject))
    recorded = subject.runtime is None
    found = await run_in_thread(lambda: _recorded_tools(subject)) if recorded else await _live_tools(subject)
    folders = {each["name"] for each in own}
    found["quarantined"] = [each for each in found["quarantined"] if each["name"] not in folders]
    return ToolList.model_validate(subject.redact(found | {"user_tools": own}))


@operation("GET", "/api/sessions/{id}/tools/{name}", "show_tool", answer=ToolDetail, tag="tools", refusals=_REFUSALS)
async def show_tool(call: ApiCall) -> ToolDetail:
    """One tool: its definition and who decides about its calls; of the person's own also every file of it, its
    versions, its statistics, and what a yes to it would be given to."""
    subject, name = await requested_session(call), call.path["name"]
    looked = await look_up_tool(subject, name)
    found = await run_in_thread(lambda: full_tool_detail(subject, looked))
    if found is None:
        raise ApiRefusal(404, f"There is no tool '{escape_control_chars(name[:100])}' here{looked.hint}.")
    return ToolDetail.model_validate(found)


@operation(
    "GET",
    "/api/sessions/{id}/tools/{name}/difference",
    "compare_versions",
    query=VersionsQuery,
    answer=VersionDifference,
    tag="tools",
    refusals=_REFUSALS,
)
async def compare_versions(call: ApiCall) -> VersionDifference:
    """What changed in a tool of the person's between two versions, or since it was trusted last."""
    subject, name = await requested_session(call), call.path["name"]
    wanted = [digest for digest in (call.query.before, call.query.after) if digest]
    if call.query.after and not call.query.before:
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
    blocks: ApprovalBlocks
    hint: str
    """` (did you mean 'x'?)`, for a name that means nothing."""


async def look_up_tool(subject: RequestedSession, name: str) -> ToolLookup:
    await subject.refresh_tools()
    runtime = subject.runtime
    if runtime is not None:
        catalog, blocks = runtime.path.catalog, runtime.path.judge.blocks
    else:
        catalog, blocks = build_catalog(), ApprovalBlocks()
    tool = _find_tool(catalog, name)
    close = closest_match(name, catalog.names())
    return ToolLookup(
        name=tool.name if tool is not None else name,
        tool=tool,
        offered=runtime is not None and tool is not None and tool.name in catalog,
        aliases=tuple(alias for alias, meant in catalog.aliases().items() if tool is not None and meant == tool.name),
        blocks=blocks,
        hint=f" (did you mean '{close}'?)" if close else "",
    )


def _find_tool(catalog: Catalog, name: str) -> Tool | None:
    """Also one that stands aside: a person reaches it by its name."""
    found = catalog.get(name) or catalog.get(catalog.aliases().get(name, name))
    return found or next((tool for tool in catalog.hidden_tools() if tool.name == name), None)


def full_tool_detail(subject: RequestedSession, looked: ToolLookup) -> dict[str, Any] | None:
    """None: there is no such tool and never was."""
    name = looked.name
    with user_tools.workshop_of(subject) as workshop:
        entry = user_tools.entry_named(workshop, name)
        problem = user_tools.folder_problem(workshop, name) if looked.tool is None and entry is None else ""
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


def version_difference(subject: RequestedSession, name: str, wanted: Sequence[str]) -> dict[str, Any]:
    with user_tools.workshop_of(subject) as workshop:
        if not overview.is_known_tool(workshop, name):
            raise ApiRefusal(404, f"There is no tool '{escape_control_chars(name[:100])}' of yours, now or earlier.")
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
        "approval": who_decides(tool, looked.blocks),
        "definition": shape,
        "fields": fields,
        "server": tool.remote.server if tool.remote is not None else "",
    }


def _unusable_tool_facts(name: str) -> dict[str, Any]:
    texts = dict.fromkeys(("mode", "category", "description", "approval"), "")
    return {"name": name, "label": name, "source": "custom", **texts, "aliases": [], "definition": {}, "fields": []}


@operation("GET", "/api/sessions/{id}/statistics", "show_statistics", answer=StatisticsModel, tag="tools")
async def show_statistics(call: ApiCall) -> StatisticsModel:
    """The person's own tools, used or not: what `forge tools stats` shows."""
    subject = await requested_session(call)
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
