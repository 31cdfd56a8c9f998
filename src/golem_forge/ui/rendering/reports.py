"""Reports about a session: what it used, its walls, its servers, what it started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from golem_forge.core.slash import slash
from golem_forge.ui.rendering.lines import Line, mappings, number, one_line
from golem_forge.ui.rendering.structures import MOST_ITEMS, more

Fields = Mapping[str, Any]


def usage(used: Fields) -> str:
    """`1,234 in (200 cached) · 56 out · $0.0123`: tokens and cost of a request or of a session."""
    cached = int(number(used.get("cached")))
    read = f"{int(number(used.get('input'))):,} in" + (f" ({cached:,} cached)" if cached else "")
    return f"{read} · {int(number(used.get('output'))):,} out · {cost(used.get('cost'))}"


def cost(dollars: Any) -> str:
    if type(dollars) not in (int, float):
        return "cost unknown"
    amount = number(dollars)
    return f"${amount:.2f}" if amount >= 10 or amount == 0 else f"${amount:.4f}"


def totals(session: Fields | None, *, calls: int, failed: int) -> Line:
    parts = [usage(session)] if session is not None else []
    parts.append(f"{calls} tool {'call' if calls == 1 else 'calls'}" + (f", {failed} failed" if failed else ""))
    return [("dim", f"total: {' · '.join(parts)}")]


def walls(report: Fields) -> list[Line]:
    """The start-up line; without walls it is a warning."""
    level = one_line(report.get("level", ""))
    missing = report.get("missing")
    parts = [f"walls: {level}"]
    if missing and isinstance(missing, Sequence) and not isinstance(missing, str):
        parts.append(f"without {', '.join(one_line(one) for one in missing)}")
    parts += [one_line(report[name]) for name in ("cause", "fix") if report.get(name)]
    return [[("warn" if level in ("none", "off") else "dim", "; ".join(parts))]]


def session_started(data: Fields) -> Line:
    zones = ", ".join(
        f"/{one_line(zone.get('name', ''))} {one_line(zone.get('mode', ''))}" for zone in mappings(data.get("zones"))
    )
    parts = [
        f"{one_line(data.get('worker', ''))} on {one_line(data.get('model') or 'no model')}",
        f"approval {one_line(data.get('approvalMode', ''))}",
        f"zones {zones}" if zones else "no zones",
        *(["resumed"] if data.get("resumed") else []),
    ]
    return [("dim", " · ".join(parts))]


def manual_tools(tools: Sequence[Fields]) -> list[Line]:
    """By category, `Other` last."""
    by_category: dict[str, list[str]] = {}
    for tool in tools[:MOST_ITEMS]:
        by_category.setdefault(one_line(tool.get("category") or "Other"), []).append(
            slash(one_line(tool.get("name", "")))
        )
    categories = sorted(by_category, key=lambda name: name == "Other")
    rows: list[Line] = [[("dim", f"{name}: {' '.join(by_category[name])}")] for name in categories]
    return [*rows, more(len(tools) - MOST_ITEMS)] if len(tools) > MOST_ITEMS else rows


def catalog_changed(data: Fields) -> list[Line]:
    rows: list[Line] = []
    for word in ("added", "changed", "removed"):
        names = data.get(word)
        if names and isinstance(names, (list, tuple)):
            rows.append([("dim", f"tools {word}: {', '.join(one_line(_name(name)) for name in names)}")])
    diagnostics = data.get("diagnostics")
    if isinstance(diagnostics, (list, tuple)):
        rows += [[("warn", one_line(_name(told)))] for told in diagnostics]
    return rows


def mcp_status(data: Fields) -> list[Line]:
    error = data.get("error")
    text = f"server {one_line(data.get('server', ''))}: {one_line(data.get('state', ''))}"
    return [[("warn" if error else "dim", text + (f": {one_line(error)}" if error else ""))]]


def tool_suggested(data: Fields) -> list[Line]:
    sequence = data.get("sequence")
    names = " → ".join(one_line(_name(one)) for one in sequence) if isinstance(sequence, (list, tuple)) else ""
    return [[("dim", f"seen {one_line(data.get('occurrences', ''))} times: {names}; it could be one tool")]]


def _name(value: Any) -> Any:
    return (value.get("name") or value.get("message") or value) if isinstance(value, Mapping) else value
