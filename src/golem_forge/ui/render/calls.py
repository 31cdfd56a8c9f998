"""A call in few lines: what it is about, its line when it starts, its result as far as a person reads it in passing.

`call_subject` names the file, the command or the pattern; of tools that it does not know, the arguments that differ
from the defaults. `brief_result` is one line that names the call and, where it helps, a few lines of what came out. The
rest is there on request (`whole_result`). Takes any value and never raises.
Threat: arguments are a model's words. A subject is one line with control characters escaped, and it is cut at its end:
the whole stands on the card, in the journal and behind Ctrl+O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import shorten
from golem_forge.tools.results import display_hints
from golem_forge.ui.render.lines import (
    DISPLAY_CUT,
    Line,
    as_json,
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
    note_lines,
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
