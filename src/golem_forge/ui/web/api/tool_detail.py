"""One tool, whole: what the catalog says of it, who decides about its calls, and of the person's own all there is.

`look_for` is asked on the loop, the catalog being the session's; `whole` and `difference_of` read folders and the book,
off it. What is to be trusted is shown as it is, without anything taken out: a yes is to exactly that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from golem_forge.core.errors import ForgeError
from golem_forge.core.nearest import nearest
from golem_forge.core.visible import visible
from golem_forge.ui.web.api import own_tools
from golem_forge.ui.web.api.statistics import tool_statistics
from golem_forge.ui.web.api.subject import Subject, fit
from golem_forge.ui.web.wire import Refused

if TYPE_CHECKING:
    from golem_forge.policy.base import ApprovalBlocks
    from golem_forge.tools.catalog import Catalog
    from golem_forge.tools.tool import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What a session, or Forge itself where none runs, has under a name."""

    name: str
    tool: Tool | None
    offered: bool
    aliases: tuple[str, ...]
    blocks: ApprovalBlocks
    hint: str
    """` (did you mean 'x'?)`, for a name that means nothing."""


async def look_for(subject: Subject, name: str) -> Looked:
    from golem_forge.policy.base import ApprovalBlocks

    await subject.look_at_tools()
    runtime = subject.runtime
    if runtime is not None:
        catalog, blocks = runtime.path.catalog, runtime.path.judge.blocks
    else:
        from golem_forge.workers.catalog import build_catalog

        catalog, blocks = build_catalog(), ApprovalBlocks()
    tool = _found(catalog, name)
    close = nearest(name, catalog.names())
    return Looked(
        name=tool.name if tool is not None else name,
        tool=tool,
        offered=runtime is not None and tool is not None and tool.name in catalog,
        aliases=tuple(alias for alias, meant in catalog.aliases().items() if tool is not None and meant == tool.name),
        blocks=blocks,
        hint=f" (did you mean '{close}'?)" if close else "",
    )


def _found(catalog: Catalog, name: str) -> Tool | None:
    """Also one that stands aside: a person reaches it by its name."""
    found = catalog.get(name) or catalog.get(catalog.aliases().get(name, name))
    return found or next((tool for tool in catalog.aside() if tool.name == name), None)


def whole(subject: Subject, looked: Looked) -> dict[str, Any] | None:
    """None: there is no such tool and never was."""
    from golem_forge.custom.book.statistics import statistics
    from golem_forge.custom.tool import user_tool

    name = looked.name
    with own_tools.shop_of(subject) as shop:
        entry = own_tools.entry_named(shop, name)
        problem = own_tools.fault_of(shop, name) if looked.tool is None and entry is None else ""
        tool = looked.tool if looked.tool is not None or entry is None else user_tool(shop, entry)
        if tool is None and not problem:
            return None
        is_own = entry is not None or bool(problem)
        shown = _facts(looked, tool) if tool is not None else _nothing(name)
        told: dict[str, Any] = subject.fit(
            shown
            | {
                "offered": looked.offered,
                "problem": problem,
                "versions": own_tools.past(shop, name) if is_own else [],
                "statistics": tool_statistics(statistics(shop.book, [name])[0]) if is_own else None,
            }
        )
        return told | {"own": as_it_is(own_tools.detail(shop, entry)) if entry is not None else None}


def difference_of(subject: Subject, name: str, wanted: Sequence[str]) -> dict[str, Any]:
    from golem_forge.custom.versions import compare, difference, is_known

    with own_tools.shop_of(subject) as shop:
        if not is_known(shop, name):
            raise Refused(404, f"There is no tool '{visible(name[:100])}' of yours, now or earlier.")
        found = compare(shop, name, wanted)
        told = difference(name, found.old, found.new)
    shown: dict[str, Any] = as_it_is(
        {
            "before": found.before,
            "after": found.new.digest,
            "reach": told.reach,
            "changes": told.changes,
            "warnings": told.warnings,
        }
    )
    return shown


def as_it_is(value: Any) -> Any:
    """The person's own words and files: nothing is taken out of them."""
    return fit(value, lambda text: text)


def _facts(looked: Looked, tool: Tool) -> dict[str, Any]:
    from golem_forge.policy.who_decides import who_decides
    from golem_forge.tools.definitions import Shape, definition
    from golem_forge.tools.fields import derive_fields

    try:
        shape, fields = definition(tool, Shape.MCP), derive_fields(tool.input_schema)
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


def _nothing(name: str) -> dict[str, Any]:
    texts = dict.fromkeys(("mode", "category", "description", "approval"), "")
    return {"name": name, "label": name, "source": "custom", **texts, "aliases": [], "definition": {}, "fields": []}
