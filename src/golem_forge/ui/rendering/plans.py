"""Plans and workers: what is to be done, by whom, and how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from golem_forge.ui.rendering.lines import DISPLAY_CUT, Line, Style, mappings, number, one_line

_STEPS: Final[Mapping[Any, tuple[str, Style]]] = {
    "completed": ("[x]", "ok"),
    "in_progress": ("[>]", "title"),
    "pending": ("[ ]", ""),
}
_STATES: Final[Mapping[Any, tuple[str, Style]]] = {
    "pending": ("○", "dim"),
    "running": ("●", "title"),
    "complete": ("✓", "ok"),
    "error": ("✗", "fail"),
}
_MOST_LEVELS: Final = 20
_MOST_WORKERS: Final = 100


def plan(data: Mapping[str, Any]) -> list[Line]:
    """A `planUpdated` event, or a `plan.update` value."""
    rows: list[Line] = []
    if data.get("explanation"):
        rows.append([("dim", one_line(data["explanation"]))])
    for step in mappings(data.get("plan")):
        status = step.get("status")
        mark, style = _STEPS.get(status if isinstance(status, str) else "", ("[ ]", ""))
        rows.append([(style, mark), ("", f" {one_line(step.get('step', ''))}")])
    return rows


def worker(data: Mapping[str, Any], *, depth: int | None = None) -> Line:
    """One `workerUpdate`: state, name, task."""
    status = data.get("status")
    mark, style = _STATES.get(status if isinstance(status, str) else "", ("·", ""))
    level = int(number(data.get("depth"))) if depth is None else depth
    task, model = data.get("task"), data.get("model")
    row: Line = [
        (style, "  " * max(0, min(level, _MOST_LEVELS)) + mark),
        ("", f" {one_line(data.get('name', ''))}" + (f" - {one_line(task)}" if task else "")),
    ]
    return [*row, ("dim", f" ({one_line(model)})")] if model else row


def worker_tree(workers: Iterable[Mapping[str, Any]]) -> list[Line]:
    """The latest `workerUpdate` of each worker, children under their parents, in the order given."""
    all_workers = list(workers)
    known = {_key(one.get("workerId")) for one in all_workers}
    children: dict[str, list[Mapping[str, Any]]] = {}
    for one in all_workers:
        parent = _key(one.get("parentId"))
        children.setdefault(parent if parent in known else "", []).append(one)
    rows: list[Line] = []
    seen: set[int] = set()

    def add(one: Mapping[str, Any], depth: int) -> None:
        if id(one) in seen or depth > _MOST_LEVELS:
            return
        seen.add(id(one))
        rows.append(worker(one, depth=depth))
        for child in children.get(_key(one.get("workerId")), ()):
            add(child, depth + 1)

    for root in children.get("", ()):
        add(root, 0)
    if len(rows) > _MOST_WORKERS:
        rows = [*rows[:_MOST_WORKERS], [("dim", f"... and {len(rows) - _MOST_WORKERS} more"), ("dim", DISPLAY_CUT)]]
    return rows


def _key(value: Any) -> str:
    return value if isinstance(value, str) else ""
