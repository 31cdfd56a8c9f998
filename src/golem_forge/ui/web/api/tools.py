"""Tools: what a person can run, the state of their own tools and of servers with the reasons, and one tool, whole.

What `/tools`, `/mcp` and `forge tools list | show | log | diff` say, as data. Nothing is run, built or asked here; what
changes something is in `tool_acts` and `servers`.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from golem_forge.core.errors import ConfigError
from golem_forge.core.visible import visible
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api import own_tools
from golem_forge.ui.web.api.operation import Call, operation
from golem_forge.ui.web.api.server_facts import known_here, place_of, told
from golem_forge.ui.web.api.subject import Subject, subject_of
from golem_forge.ui.web.api.tool_acts import activate_tool, deny_tool, restore_tool, retire_tool, undo_tool
from golem_forge.ui.web.api.tool_answers import Difference, ToolDetail, ToolList
from golem_forge.ui.web.api.tool_detail import difference_of, look_for, whole
from golem_forge.ui.web.wire import Model, Refused

__all__ = [
    "activate_tool",
    "compare_versions",
    "deny_tool",
    "list_tools",
    "restore_tool",
    "retire_tool",
    "show_tool",
    "undo_tool",
]

_REFUSALS: Final = {404: "no such tool; names the nearest"}


class TwoVersions(Model, title="TwoVersions"):
    """Digests or their first digits, at least 6. None: what was trusted last, with what is there now."""

    before: str = Field(default="", max_length=100)
    after: str = Field(default="", max_length=100)


@operation("GET", "/api/sessions/{id}/tools", "list_tools", answer=ToolList, tag="tools")
async def list_tools(call: Call) -> ToolList:
    """The tools a person can run, with the fields of their forms; their own tools and the MCP servers, with states."""
    subject = await subject_of(call)
    own = await run_in_thread(lambda: _own_rows(subject))
    if subject.runtime is None:
        found = await run_in_thread(lambda: _recorded(subject))
    else:
        found = await _live(subject)
    folders = {each["name"] for each in own}
    found["quarantined"] = [each for each in found["quarantined"] if each["name"] not in folders]
    return ToolList.model_validate(subject.fit(found | {"user_tools": own}))


@operation("GET", "/api/sessions/{id}/tools/{name}", "show_tool", answer=ToolDetail, tag="tools", refusals=_REFUSALS)
async def show_tool(call: Call) -> ToolDetail:
    """One tool: its definition and who decides about its calls; of the person's own also every file of it, its
    versions, its statistics, and what a yes to it would be given to."""
    subject, name = await subject_of(call), call.path["name"]
    looked = await look_for(subject, name)
    found = await run_in_thread(lambda: whole(subject, looked))
    if found is None:
        raise Refused(404, f"There is no tool '{visible(name[:100])}' here{looked.hint}.")
    return ToolDetail.model_validate(found)


@operation(
    "GET",
    "/api/sessions/{id}/tools/{name}/difference",
    "compare_versions",
    query=TwoVersions,
    answer=Difference,
    tag="tools",
    refusals=_REFUSALS,
)
async def compare_versions(call: Call) -> Difference:
    """What changed in a tool of the person's between two versions, or since it was trusted last."""
    subject, name = await subject_of(call), call.path["name"]
    wanted = [digest for digest in (call.query.before, call.query.after) if digest]
    if call.query.after and not call.query.before:
        raise Refused(422, "Name the older version, too.", {"before": "missing"})
    return Difference.model_validate(await run_in_thread(lambda: difference_of(subject, name, wanted)))


async def _live(subject: Subject) -> dict[str, Any]:
    from golem_forge.workers.slash.manual import described_tool, manual_tools

    await subject.look_at_tools()
    runtime = subject.live
    catalog = runtime.path.catalog
    tools, quarantined, servers = manual_tools(catalog), catalog.quarantined(), known_here(runtime)
    described = await run_in_thread(lambda: [described_tool(tool) for tool in tools])
    return {
        "tools": described,
        "servers": await run_in_thread(lambda: told(servers)),
        "quarantined": [
            {"name": each.name, "source": each.source.value, "reason": each.reason} for each in quarantined
        ],
        "problems": [],
    }


def _recorded(subject: Subject) -> dict[str, Any]:
    """Nobody can run a tool in a session that does not run here."""
    servers: list[dict[str, Any]] = []
    problems: list[str] = []
    try:
        place = place_of(subject)
        servers = told([(each, None) for each in place.all()])
        problems = [place.book.problem] if place.book.problem else []
    except ConfigError as error:
        problems = [f"MCP servers cannot be shown: {problem}" for problem in error.problems]
    return {"tools": [], "servers": servers, "quarantined": [], "problems": problems}


def _own_rows(subject: Subject) -> list[dict[str, Any]]:
    with own_tools.shop_of(subject) as shop:
        return own_tools.rows(shop)
