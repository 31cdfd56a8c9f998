"""How the person's own tools are used: each with its calls, success and times, and the totals. Changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import Call, operation
from golem_forge.ui.web.api.subject import Subject, subject_of
from golem_forge.ui.web.api.tool_answers import Statistics

if TYPE_CHECKING:
    from golem_forge.custom.book.statistics import ToolStatistics


@operation("GET", "/api/sessions/{id}/statistics", "show_statistics", answer=Statistics, tag="tools")
async def show_statistics(call: Call) -> Statistics:
    """The person's own tools, used or not: what `forge tools stats` shows."""
    subject = await subject_of(call)
    return Statistics.model_validate(subject.fit(await run_in_thread(lambda: _statistics(subject))))


def _statistics(subject: Subject) -> dict[str, Any]:
    from golem_forge.custom.overview import overview
    from golem_forge.workers.own_shop import shop_to_look_at

    shop = shop_to_look_at(subject.home)
    try:
        shop.registry.refresh()
        sums, every = overview(shop)
        return {"totals": sums.to_json(), "tools": [tool_statistics(each) for each in every]}
    finally:
        shop.book.close()


def tool_statistics(tool: ToolStatistics) -> dict[str, Any]:
    told = tool.to_json()
    del told["ratings"]
    return told | {"good": tool.good, "bad": tool.bad}
