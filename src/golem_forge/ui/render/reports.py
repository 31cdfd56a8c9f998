"""Calls and reports of a session as lines: what a trace shows in passing, in few lines each.

Calls: `call_subject` names the file, the command or the pattern; of tools that it does not know, the arguments that
differ from the defaults. `brief_result` is one line that names the call and, where it helps, a few lines of what came
out. The rest is there on request (`whole_result`). Takes any value and never raises.
Threat: arguments are a model's words. A subject is one line with control characters escaped, and it is cut at its end:
the whole stands on the card, in the journal and behind Ctrl+O.

Reports: usage and cost, walls, servers, tools, the session's start, plans, the worker tree, and what a turn changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import cost_text, shorten, slash_command
from golem_forge.tools.results import display_hints
from golem_forge.ui.render.lines import (
    DISPLAY_CUT,
    Line,
    Style,
    as_json,
    change_counts,
    finite_number,
    fit_width,
    indented,
    line,
    lines_of,
    mappings_in,
    one_line,
    prose_lines,
    styled_diff,
    to_text,
    width_of,
    wrapped_lines,
)
from golem_forge.ui.render.results import (
    ON_THE_CARD,
    Fields,
    body_lines,
    content_of,
    duration_text,
    entry_names,
    failure_lines,
    found_lines,
    header_line,
    leftover_rows,
    more_line,
    note_lines,
    path_facts,
    worker_words,
)

RUN_CODE: Final = "run_code"
_MAX_CODE_LINES: Final = 12
_MAX_ARGUMENT: Final = 60
_MAX_ARGUMENTS: Final = 6
_MAX_SUBJECT: Final = 100
_LEAST_SUBJECT: Final = 24
_PATCHED: Final = regex(r"(?m)^\*\*\* (?:Add|Update|Delete) File: (.+)$")
_MOST_LINES: Final = 4
"""Maximum lines of a result without display hints."""
_OUTPUT_LINES: Final = 2
_FAILURE_LINES: Final = 8
_CHANGED_LINES: Final = 4
_FOUND_LINES: Final = 2
_MAX_ROW: Final = 200
_OUTPUTS: Final = ("exec.result", "tool.output")

PrettyText = Callable[[str, str, str], list[Line]]
"""(text, `markdown` or `code`, language) → its lines."""


@dataclass(slots=True, kw_only=True)
class CallDisplay:
    """How one UI shows calls."""

    defaults: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Tool → its arguments with their defaults, as far as the session has told them."""
    brief: bool = False
    pretty: PrettyText | None = None
    """Lays Markdown and code out; None: they are shown as they are written."""

    def learn(self, tools: Any) -> None:
        """Stores the defaults from a `manualToolsAvailable` event."""
        for tool in mappings_in(tools):
            fields = mappings_in(tool.get("fields"))
            usual = {to_text(one.get("name")): one.get("default") for one in fields}
            self.defaults[to_text(tool.get("name", ""))] = usual


# ---- what it is about


def call_subject(tool: Any, args: Any, defaults: Mapping[str, Any] | None = None) -> str:
    """One line: `cart.py`, `ls -la`, `"TODO" in src`; of other tools `branch="main"`. May be empty."""
    if not isinstance(args, Mapping) or not args:
        return ""
    name = _SUBJECTS.get(tool) if isinstance(tool, str) else None
    said = shorten(one_line(name(args)), _MAX_SUBJECT) if name is not None else ""
    return said or ("" if tool == RUN_CODE else _short_arguments(args, defaults or {}))


def _text(*names: str) -> Callable[[Fields], str]:
    return lambda args: next((args[name] for name in names if isinstance(args.get(name), str)), "")


def _lines_read(args: Fields) -> str:
    path, first, count = _path(args), int(finite_number(args.get("offset"))), int(finite_number(args.get("limit")))
    if first <= 1 and (not count or count >= _WHOLE_FILE):
        return path
    return f"{path}:{max(first, 1)}-{max(first, 1) + count - 1}" if count else f"{path}:{first}-"


def _searched(args: Fields) -> str:
    where = " ".join(one for one in (_path(args), to_text(args.get("include") or "")) if one not in ("", "."))
    return f'"{to_text(args.get("pattern", ""))}"' + (f" in {where}" if where else "")


def _command(args: Fields) -> str:
    folder = to_text(args.get("workdir") or "")
    return _text("cmd", "command")(args) + (f" (in {folder})" if folder else "")


def _patched(args: Fields) -> str:
    files = _PATCHED.findall(_text("input", "patch")(args))
    return f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else "".join(files)


def _planned(args: Fields) -> str:
    steps = mappings_in(args.get("plan"))
    done = sum(step.get("status") == "completed" for step in steps)
    return f"{done} of {len(steps)} steps done" if steps else ""


def _undone(args: Fields) -> str:
    """`the last turn`, `turn 2`, `a.txt and 2 more in turn 2`, `the last undo`."""
    named = [args[name] for name in ("paths", "also") if isinstance(args.get(name), (list, tuple))]
    paths = [to_text(path) for each in named for path in each]
    turn, call = args.get("turn"), to_text(args.get("call") or "")
    where = "the last undo" if args.get("redo") else f"call {call}" if call else f"turn {to_text(turn)}" if turn else ""
    some = f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else "".join(paths)
    said = " in ".join(part for part in (some, where) if part) or "the last turn"
    return f"{said} of session {to_text(args['session'])}" if args.get("session") else said


_WHOLE_FILE: Final = 2000
_path: Final = _text("path")
_SUBJECTS: Final[Mapping[str, Callable[[Fields], str]]] = {
    "read_file": _lines_read,
    **dict.fromkeys(("write_file", "delete_file", "list_files", "list_dir", "file_exists", "file_info"), _path),
    "grep_files": _searched,
    "apply_patch": _patched,
    **dict.fromkeys(("exec_command", "shell"), _command),
    "webfetch": _text("url"),
    "update_plan": _planned,
    "tool_search": _text("query"),
    "undo_changes": _undone,
    **dict.fromkeys(("create_custom_tool", "run_custom_tool"), _text("name")),
}
"""Native tools, whose arguments are known: nobody else's tool can have such a name."""


def _short_arguments(args: Fields, defaults: Mapping[str, Any]) -> str:
    said = [(name, value) for name, value in args.items() if not _is_default(name, value, defaults)]
    shown = []
    for name, value in said[:_MAX_ARGUMENTS]:
        text = f'"{one_line(value)}"' if isinstance(value, str) else one_line(value)
        shown.append(f"{one_line(name)}={shorten(text, _MAX_ARGUMENT)}")
    return " ".join([*shown, *(["…"] if len(said) > _MAX_ARGUMENTS else [])])


def _is_default(name: Any, value: Any, defaults: Mapping[str, Any]) -> bool:
    usual = defaults.get(name, ...)
    return usual is not ... and (value == usual if usual is not None else value in (None, "", []))


# ---- the start


def call_line(data: Fields, how: CallDisplay | None = None) -> Line:
    """`▸ read_file cart.py`, `▸ git_push (Push to Remote) branch="main"`."""
    tool, label, caller = data.get("toolName", ""), data.get("label"), data.get("caller")
    named = one_line(tool) + (f" ({one_line(label)})" if label and tool not in _SUBJECTS else "")
    by = f" [{one_line(caller)}]" if caller and caller != "llm" else ""
    subject = call_subject(tool, data.get("args"), how.defaults.get(to_text(tool)) if how else None)
    return [("title", "▸"), ("", f" {named}{by}"), ("dim", f" {subject}" if subject else "")]


def argument_lines(data: Fields) -> list[Line]:
    return lines_of(as_json(data.get("args")), "dim", "  ")


def program_lines(data: Fields) -> list[Line]:
    """The first lines of a program that is about to run; none of any other call."""
    args = data.get("args")
    code = args.get("code") if isinstance(args, Mapping) and data.get("toolName") == RUN_CODE else None
    if not isinstance(code, str):
        return []
    lines = code.strip("\n").splitlines()
    more = [line(f"… {len(lines) - _MAX_CODE_LINES} more lines", "dim", "  │ ")] if len(lines) > _MAX_CODE_LINES else []
    return [*(line(each, "code", "  │ ") for each in lines[:_MAX_CODE_LINES]), *more]


def progress_line(data: Fields, tool: str) -> Line:
    total = data.get("total")
    done = f"{finite_number(data.get('progress')):g}" + (f"/{finite_number(total):g}" if total is not None else "")
    message = data.get("message")
    return [("dim", f"  {one_line(tool)} {done}" + (f" {one_line(message)}" if message else ""))]


# ---- the result


def brief_result(
    data: Fields, how: CallDisplay, width: int, answer: str = "", *, asked_for: bool = False
) -> list[Line]:
    """The line of the call and at most a few below it. `answer`: how the person answered its card. `asked_for`: the
    person made the call, so they see what came out of it."""
    value = data.get("value")
    value = value if isinstance(value, Mapping) else {}
    hints = display_hints(value)
    subject = call_subject(data.get("toolName"), data.get("args"), how.defaults.get(to_text(data.get("toolName", ""))))
    if data.get("status") != "success":
        head = failure_lines(data, _fitting(subject, data, width))
        rows = _output_rows(value) if value.get("kind") in _OUTPUTS else _unindented(data)
        rows = [] if hints.get("preferredView") == "hidden" else indented(_last(rows, _FAILURE_LINES))
        return [*wrapped_lines(head, width), *rows, *note_lines(data)]
    if hints.get("preferredView") == "hidden" and not answer:
        return leftover_rows(data)
    head = [header_line(data, _fitting(subject, data, width), answer)]
    whole = hints.get("preferredView") or (asked_for and not (answer and value.get("kind") in ON_THE_CARD))
    rows = body_lines(data, how.pretty) if whole else _one_row_each(indented(_brief_body(data, value, answer)), width)
    return [*wrapped_lines(head, width), *rows, *note_lines(data)]


def _one_row_each(rows: list[Line], width: int) -> list[Line]:
    """Lines of a single span are cut at the margin; few short ones of data stand on one."""
    texts = [row[0][1] for row in rows if len(row) == 1 and row[0][0] == ""]
    joined = "  " + " · ".join(text.strip() for text in texts)
    if 1 < len(texts) == len(rows) and all(_MEMBER.match(text) for text in texts) and width_of(joined) < width:
        return [[("dim", joined)]]
    return [
        [(style, fit_width(text, width - 1).rstrip()) for style, text in row] if len(row) == 1 else row for row in rows
    ]


_MEMBER: Final = regex(r"  \w{1,30}: \S")
"""`exists: true`, of an object without further levels."""


def _fitting(subject: str, data: Fields, width: int) -> str:
    """Cut so that the line stays one line, where that leaves enough of it."""
    rest = width_of(one_line(data.get("toolName", ""))) + len(duration_text(data)) + _LEAST_SUBJECT
    return shorten(subject, max(width - rest, _LEAST_SUBJECT))


def _brief_body(data: Fields, value: Fields, answer: str) -> list[Line]:
    match value.get("kind"):
        case "file_content" | "file_list":
            return []
        case "diff" | "patch.result":
            return [] if answer else _few_changes(data)
        case "search.result":
            return _first(found_lines(value), _FOUND_LINES)
        case kind if kind in _OUTPUTS:
            return _last(_output_rows(value), _OUTPUT_LINES)
    if names := entry_names(data):
        return [line("  ".join(names), "dim")]
    if path_facts(data):
        return []
    content = worker_words(value) or (content_of(value) if value else data.get("value"))
    return _first(_rows(content) if isinstance(content, str) else _unindented(data), _MOST_LINES)


def _output_rows(value: Fields) -> list[Line]:
    rows = [row for name in ("output", "stdout") for row in _rows(value.get(name))]
    rows += [[("warn", text)] for row in _rows(value.get("stderr")) for _, text in row]
    return [*rows, *_rows(as_json(value["answer"]))] if "answer" in value else rows


def _rows(text: Any) -> list[Line]:
    """Every line, the blank ones at the end left out; none longer than a few rows of a terminal."""
    lines = prose_lines(text.rstrip()) if isinstance(text, str) else []
    return [[(style, shorten(part, _MAX_ROW)) for style, part in row] for row in lines]


def _unindented(data: Fields) -> list[Line]:
    return [[(row[0][0], row[0][1][2:]), *row[1:]] if row else row for row in body_lines(data)]


def _few_changes(data: Fields) -> list[Line]:
    """The changed lines, where they are few; else the header's counts have to do."""
    value = data["value"]
    diff = value.get("diff")
    rows = styled_diff(diff) if isinstance(diff, str) else _unindented(data)
    changed = [row for row in rows if row and row[0][0] in ("add", "del")]
    return changed if len(changed) <= _CHANGED_LINES else []


def _first(rows: list[Line], most: int) -> list[Line]:
    if len(rows) <= most + 1:
        return rows
    return [*rows[:most], [("dim", f"… {len(rows) - most:,} more lines"), ("dim", DISPLAY_CUT)]]


def _last(rows: list[Line], most: int) -> list[Line]:
    """Returns the last rows, since the end of the output shows how a command ended."""
    if len(rows) <= most + 1:
        return rows
    return [[("dim", f"… {len(rows) - most:,} lines before"), ("dim", DISPLAY_CUT)], *rows[-most:]]


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
