"""A session's reports as lines: usage and cost, walls, servers, tools, the session's start, plans, the worker tree, and
what a turn changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from golem_forge.core.text import cost_text, shorten, slash_command
from golem_forge.ui.render.lines import Line, Style, change_counts, finite_number, line, mappings_in, one_line, to_text
from golem_forge.ui.render.results import more_line

Fields = Mapping[str, Any]
_TOOLS_LISTED: Final = 6
_TOOLS_NAMED: Final = 4
_MAX_TOOL_NAME: Final = 24


class TurnChanges:
    """The files that the calls of one turn changed, for the line that ends it."""

    def __init__(self, commands: str = "/changes · /undo") -> None:
        self.commands = commands
        """What a person can type about them here."""
        self._clear()

    def _clear(self) -> None:
        self._paths: set[str] = set()
        self._unnamed = self._added = self._removed = 0

    def add(self, data: Fields) -> None:
        """A `filesChanged` event. What a person did by hand was shown with its result."""
        if finite_number(data.get("turn")) < 1:
            return
        files = mappings_in(data.get("files"))
        self._paths |= {to_text(one.get("path", "")) for one in files}
        self._unnamed += max(int(finite_number(data.get("count"))) - len(files), 0)
        self._added += int(finite_number(data.get("added")))
        self._removed += int(finite_number(data.get("removed")))

    def end_turn(self) -> str:
        """`changed 3 files (+12 −3) · /changes · /undo`; empty: nothing changed since the last turn ended."""
        count = len(self._paths) + self._unnamed
        lines = f" ({change_counts(self._added, self._removed)})" if self._added or self._removed else ""
        self._clear()
        return f"changed {count} file{'s' if count != 1 else ''}{lines} · {self.commands}" if count else ""


def form_ending(form: Fields, resolved: Fields) -> str:
    """Describes how a form was answered; for a choice of two, what was chosen."""
    action = one_line(resolved.get("action", ""))
    if not form.get("accept"):
        return f"form: {action}"
    chosen = form.get(action) if action in ("accept", "decline") else "not now"
    return f"→ {one_line(chosen or action)}"


def rewound_text(data: Fields) -> str:
    what = [name for name in ("conversation", "files") if data.get(name) is True]
    message = one_line(data.get("message", ""))
    return f"rewound to message {one_line(data.get('turn'))} ({' and '.join(what) or 'nothing'}): {message}"


def hook_lines(data: Fields) -> list[Line]:
    """A `hookRan` event: nothing, unless the person should hear of it."""
    text = hook_text(data)
    return [line(text, "warn" if data.get("status") == "failed" else "dim")] if text else []


def review_text(data: Fields) -> str:
    """Formats a `reviewed` event."""
    reason = one_line(data.get("reason") or "")
    said = f"reviewer {one_line(data.get('reviewer', ''))}: {one_line(data.get('answer', ''))}"
    return f"{said} ({reason})" if reason else said


def hook_text(data: Fields) -> str:
    said = one_line(data.get("line") or "")
    return f"hook {one_line(data.get('hook', ''))}: {said}" if said else ""


def usage_text(used: Fields) -> str:
    """`1,234 in (200 cached) · 56 out · $0.0123`: tokens and cost of a request or of a session."""
    cached = int(finite_number(used.get("cached")))
    read = f"{int(finite_number(used.get('input'))):,} in" + (f" ({cached:,} cached)" if cached else "")
    price = cost_text(used.get("cost"), used.get("prices"))
    return f"{read} · {int(finite_number(used.get('output'))):,} out · {price}"


def totals_line(session: Fields | None, *, calls: int, failed: int) -> Line:
    parts = [usage_text(session)] if session is not None else []
    parts.append(f"{calls} tool {'call' if calls == 1 else 'calls'}" + (f", {failed} failed" if failed else ""))
    return [("dim", f"total: {' · '.join(parts)}")]


def walls_lines(report: Fields) -> list[Line]:
    """The start-up line; without walls it is a warning."""
    level = one_line(report.get("level", ""))
    missing = report.get("missing")
    parts = [f"walls: {level}"]
    if missing and isinstance(missing, Sequence) and not isinstance(missing, str):
        parts.append(f"without {', '.join(one_line(one) for one in missing)}")
    parts += [one_line(report[name]) for name in ("cause", "fix") if report.get(name)]
    exits = report.get("exits")
    if exits and isinstance(exits, Sequence) and not isinstance(exits, str):
        parts.append(f"open for {', '.join(one_line(one) for one in exits)}")
    return [[("warn" if exits or level in ("none", "off") else "dim", "; ".join(parts))]]


def credential_line(data: Fields) -> Line:
    """`used GH_TOKEN: GET api.example.com/repos/me`."""
    method, host, path = (one_line(data.get(name, "")) for name in ("method", "host", "path"))
    return [("dim", f"used {one_line(data.get('variable', ''))}: {method} {host}{path}")]


def session_line(data: Fields) -> Line:
    zones = ", ".join(
        f"/{one_line(zone.get('name', ''))} {one_line(zone.get('mode', ''))}" for zone in mappings_in(data.get("zones"))
    )
    parts = [
        f"{one_line(data.get('worker', ''))} on {one_line(data.get('model') or 'no model')}",
        f"approval {one_line(data.get('approvalMode', ''))}",
        f"zones {zones}" if zones else "no zones",
        *(["resumed"] if data.get("resumed") else []),
    ]
    return [("dim", " · ".join(parts))]


def manual_tool_lines(tools: Sequence[Fields]) -> list[Line]:
    """Lists tools by category, `Other` last; many tools as one line, the person's own first."""
    if len(tools) <= _TOOLS_LISTED:
        by_category: dict[str, list[str]] = {}
        for tool in tools:
            by_category.setdefault(one_line(tool.get("category") or "Other"), []).append(
                slash_command(one_line(tool.get("name", "")))
            )
        categories = sorted(by_category, key=lambda name: name == "Other")
        return [[("dim", f"{name}: {' '.join(by_category[name])}")] for name in categories]
    names = [shorten(slash_command(one_line(tool.get("name", ""))), _MAX_TOOL_NAME) for tool in tools[:_TOOLS_NAMED]]
    return [[("dim", f"tools: {' '.join(names)} and {len(tools) - len(names)} more · /tools lists them")]]


def catalog_change_lines(data: Fields) -> list[Line]:
    rows: list[Line] = []
    for word in ("added", "changed", "removed"):
        names = data.get(word)
        if names and isinstance(names, (list, tuple)):
            rows.append([("dim", f"tools {word}: {', '.join(one_line(_name(name)) for name in names)}")])
    diagnostics = data.get("diagnostics")
    if isinstance(diagnostics, (list, tuple)):
        rows += [[("warn", one_line(_name(told)))] for told in diagnostics]
    return rows


def mcp_status_lines(data: Fields) -> list[Line]:
    error = data.get("error")
    text = f"server {one_line(data.get('server', ''))}: {one_line(data.get('state', ''))}"
    return [[("warn" if error else "dim", text + (f": {one_line(error)}" if error else ""))]]


def suggestion_lines(data: Fields) -> list[Line]:
    sequence = data.get("sequence")
    names = " → ".join(one_line(_name(one)) for one in sequence) if isinstance(sequence, (list, tuple)) else ""
    return [[("dim", f"seen {one_line(data.get('occurrences', ''))} times: {names}; it could be one tool")]]


def _name(value: Any) -> Any:
    return (value.get("name") or value.get("message") or value) if isinstance(value, Mapping) else value


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
_MAX_DEPTH: Final = 20
_MAX_WORKERS: Final = 100


def plan_lines(data: Mapping[str, Any]) -> list[Line]:
    """A `planUpdated` event, or a `plan.update` value."""
    rows: list[Line] = []
    if data.get("explanation"):
        rows.append([("dim", one_line(data["explanation"]))])
    for step in mappings_in(data.get("plan")):
        status = step.get("status")
        mark, style = _STEPS.get(status if isinstance(status, str) else "", ("[ ]", ""))
        rows.append([(style, mark), ("", f" {one_line(step.get('step', ''))}")])
    return rows


def worker_line(data: Mapping[str, Any], *, depth: int | None = None) -> Line:
    status = data.get("status")
    mark, style = _STATES.get(status if isinstance(status, str) else "", ("·", ""))
    level = int(finite_number(data.get("depth"))) if depth is None else depth
    task, model = data.get("task"), data.get("model")
    row: Line = [
        (style, "  " * max(0, min(level, _MAX_DEPTH)) + mark),
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
        if id(one) in seen or depth > _MAX_DEPTH:
            return
        seen.add(id(one))
        rows.append(worker_line(one, depth=depth))
        for child in children.get(_key(one.get("workerId")), ()):
            add(child, depth + 1)

    for root in children.get("", ()):
        add(root, 0)
    return [*rows[:_MAX_WORKERS], more_line(len(rows) - _MAX_WORKERS)] if len(rows) > _MAX_WORKERS else rows


def _key(value: Any) -> str:
    return value if isinstance(value, str) else ""
