"""Results as lines: a `toolResult` by kind and display hint, its decision and notes; data as a table or tree.

The header is `✓ tool subject - summary (12 ms)`, `✓ tool (kind) (12 ms)` or `✗ tool subject - status: message`. A
call that did not succeed never has a check mark, whatever its value says. Takes any value and never raises.
Display limits say `display cut`; output that was cut for the caller says `output truncated, handle …`. Limits: 20 items
of a list, 30 keys of an object, 60 characters of a value, 20 rows, 30 columns of a cell; a tree stops at 200 lines and
8 levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from golem_forge.core.calls import Leftover, Severity, leftover_lines
from golem_forge.core.results import is_valid_kind
from golem_forge.core.text import duration, shorten
from golem_forge.tools.results import display_hints
from golem_forge.ui.render.lines import (
    DISPLAY_CUT,
    Line,
    Style,
    as_json,
    content_diff,
    diff_excerpt,
    diff_summary,
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
)
from golem_forge.ui.render.markup import code_lines, markdown_lines

MAX_TEXT: Final = 500
_HALF: Final = 10
"""Lines of a long text that are shown at each end."""
_MIN_LINES: Final = 5
"""A text with fewer line ends is cut by its characters."""
_MAX_WHOLE: Final = 2000
_REPLACED_WHOLE: Final = "The old content is not shown; it was replaced whole by:"
_SUCCESS: Final = "success"
ON_THE_CARD: Final = ("diff", "patch.result")
"""Kinds of results whose card already showed them."""
_META_KEYS: Final = ("kind", "summary", "mimeType", "display")
_MAX_DENIALS: Final = 5
_MAX_ERROR: Final = 2000
_SEVERITY_STYLES: Final[Mapping[Severity, Style]] = {
    Severity.NOTE: "dim",
    Severity.WARNING: "warn",
    Severity.CRITICAL: "fail",
}

Fields = Mapping[str, Any]


def result_lines(data: Fields, subject: str = "") -> list[Line]:
    """Header and body. `subject`: what the call is about. Of a `hidden` value nothing but what was left behind, unless
    the call failed."""
    hidden = display_hints(_value(data)).get("preferredView") == "hidden"
    if data.get("status") != _SUCCESS:
        return [*failure_lines(data, subject), *([] if hidden else body_lines(data)), *note_lines(data)]
    return leftover_rows(data) if hidden else [header_line(data, subject), *body_lines(data), *note_lines(data)]


def result_after_output(data: Fields, subject: str = "") -> list[Line]:
    """Formats the result of a call whose output was shown while it ran; a command's output is not repeated."""
    if _value(data).get("kind") != "exec.result":
        return result_lines(data, subject)
    return [*(failure_lines(data, subject) or [header_line(data, subject)]), *note_lines(data)]


def whole_result(data: Fields) -> list[Line]:
    """Header and `whole_value`, for a person who asked for all."""
    return [*(failure_lines(data) or [header_line(data)]), *indented(whole_value(data)), *note_lines(data)]


def whole_value(data: Fields) -> list[Line]:
    """The value as far as the event has it: at most 2000 lines, both ends."""
    value = _value(data)
    if value.get("kind") == "diff" and isinstance(value.get("modified"), str):
        original = value["original"] if isinstance(value.get("original"), str) else None
        if original is None and not value.get("isNew"):
            rows = [*lines_of(_REPLACED_WHOLE, "dim"), *prose_lines(value["modified"])]
        else:
            rows = styled_diff(content_diff(to_text(value.get("path", "")), original, value["modified"]))
    elif isinstance(value.get("diff"), str):
        rows = styled_diff(value["diff"])
    else:
        texts = [value[name] for name in ("output", "stdout", "stderr", "text", "content", "data") if name in value]
        shown = texts or ([data["value"]] if data.get("value") is not None else [])
        rows = [row for one in shown for row in prose_lines(one if isinstance(one, str) else as_json(one))]
    if (between := len(rows) - _MAX_WHOLE) > 0:
        half = _MAX_WHOLE // 2
        rows = [*rows[:half], [("dim", f"… {between:,} lines between"), ("dim", DISPLAY_CUT)], *rows[-half:]]
    return rows


def answered_result(data: Fields) -> list[Line]:
    """Formats the result of a call whose card the person saw; a change on the card is not repeated."""
    if data.get("status") != _SUCCESS or _value(data).get("kind") not in ON_THE_CARD:
        return whole_result(data)
    return [header_line(data, answer="answered"), *note_lines(data)]


def _change_of(value: Fields) -> str:
    """`/workspace/notes.txt +3 −1`; empty: it is no change of one file."""
    if value.get("kind") != "diff" or not isinstance(value.get("modified"), str):
        return ""
    original = value["original"] if isinstance(value.get("original"), str) else None
    change = diff_summary(original=original, modified=value["modified"], is_new=bool(value.get("isNew")))
    return f"{one_line(value.get('path', ''))} {change}"


def header_line(data: Fields, subject: str = "", answer: str = "") -> Line:
    """`subject`: what the call is about; `answer`: how the person answered its card."""
    value = _value(data)
    kind = value.get("kind")
    said = (short_summary(data, value) if subject or answer else "") or summary_of(value)
    if kind in ON_THE_CARD and (subject or answer):
        subject, said = said, ""  # it names the file
    about = f" {subject}" if subject else ""
    about += f" - {said}" if said else f" ({one_line(kind)})" if is_valid_kind(kind) and not subject else ""
    took = f"· {one_line(answer)} ({duration_text(data)})" if answer else f"({duration_text(data)})"
    return [("ok", "✓"), ("", f" {one_line(data.get('toolName', ''))}{about} "), ("dim", took)]


def short_summary(data: Fields, value: Fields) -> str:
    """Returns a short result of a call that is already named; empty if its summary is short enough."""
    if change := _change_of(value):
        return change
    if value.get("summary"):
        return ""
    if value.get("kind") == "file_content" and isinstance(value.get("content"), str):
        return _count(len(prose_lines(value["content"])), "line")
    if value.get("kind") == "file_list":
        return _count(int(finite_number(value.get("count"))), "entry", "entries")
    if names := entry_names(data):
        return _count(len(names), "entry", "entries")
    if found := path_facts(data):
        return found
    if worker_words(value) is not None:
        return _count(int(finite_number(value["data"]["toolCallCount"])), "call")
    return ""


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def failure_lines(data: Fields, subject: str = "") -> list[Line]:
    """One line for a call that did not succeed; nothing for one that did."""
    status = data.get("status")
    if status == _SUCCESS:
        return []
    error = data.get("error")
    about = f"{one_line(status)}: {shorten(one_line(error), _MAX_ERROR)}" if error else one_line(status)
    named = one_line(data.get("toolName", "")) + (f" {subject}" if subject else "")
    return [[("fail", "✗"), ("", f" {named} - {about}")]]


def duration_text(data: Fields) -> str:
    return duration(finite_number(data.get("durationMs")))


def text_body(text: str, style: Style = "") -> list[Line]:
    """Returns the first and last ten of many lines, with the number between; of a few long ones 500 characters and the
    number left out.
    """
    ends = text.count("\n", 0, -1)
    if ends > 2 * _HALF or (len(text) > MAX_TEXT and ends >= _MIN_LINES):
        return _both_ends(prose_lines(text, style))
    rows = prose_lines(text[:MAX_TEXT], style)
    if len(text) > MAX_TEXT:
        rows.append([("dim", f"... ({len(text) - MAX_TEXT} more chars)"), ("dim", DISPLAY_CUT)])
    return rows


def _both_ends(rows: list[Line]) -> list[Line]:
    between: Line = [("dim", f"… {len(rows) - 2 * _HALF:,} lines between"), ("dim", DISPLAY_CUT)]
    shown = rows if len(rows) <= 2 * _HALF + 1 else [*rows[:_HALF], between, *rows[-_HALF:]]
    return [[(style, shorten(text, MAX_TEXT)) for style, text in each] for each in shown]


# ---- the value


def _value(data: Fields) -> Fields:
    value = data.get("value")
    return value if isinstance(value, Mapping) else {}


def body_lines(data: Fields, pretty: Callable[[str, str, str], list[Line]] | None = None) -> list[Line]:
    """`pretty`: lays Markdown and code out, from text, view and language."""
    raw = data.get("value")
    if raw is None:
        return []
    value = _value(data)
    if not value:
        return indented(_default_lines(raw))
    hints = display_hints(value)
    view, content = hints.get("preferredView", ""), content_of(value)
    if pretty is not None and view in ("markdown", "code") and isinstance(content, str):
        rows = pretty(content, view, to_text(hints.get("language", "")))
    else:
        rows = _value_lines(value, view)
    if hints.get("collapsed") and rows:
        rows = [[("dim", f"... ({len(rows)} lines)"), ("dim", DISPLAY_CUT)]]
    height = int(hints.get("maxHeight", len(rows)))
    if height < len(rows):
        rows = [*rows[:height], [("dim", f"... ({len(rows) - height} more lines)"), ("dim", DISPLAY_CUT)]]
    return indented(rows)


def _value_lines(value: Fields, view: str) -> list[Line]:
    kind = value.get("kind")
    render = _KIND_RENDERERS.get(kind) if isinstance(kind, str) else None
    if render is not None and view in ("", "diff") and (rows := render(value)) is not None:
        return rows
    return _by_view(value, content_of(value), view)


def content_of(value: Fields) -> Any:
    """Returns the content to show: the data, the text, or every member that is no display hint."""
    for name in ("data", "content"):
        if name in value:
            return value[name]
    return {name: item for name, item in value.items() if name not in _META_KEYS}


def _by_view(value: Fields, data: Any, view: str) -> list[Line]:
    if view == "table" and is_table(data):
        return table_lines(data)
    if view == "image":
        return [[("dim", f"[image {one_line(value.get('mimeType') or 'of unknown type')}, not shown as text]")]]
    if view == "raw":
        return text_body(to_text(data))
    if view == "diff" and isinstance(data, str):
        return diff_excerpt(data)
    if isinstance(data, str) and view in ("", "text", "markdown", "code"):
        if view == "markdown":
            return _both_ends(markdown_lines(data))
        if view == "code":
            return _both_ends(code_lines(data, str(display_hints(value).get("language", ""))))
        return text_body(data)
    return _default_lines(data) if view != "tree" else tree_lines(data)


def _default_lines(data: Any) -> list[Line]:
    return text_body(data) if isinstance(data, str) else tree_lines(data)


# ---- kinds with a form of their own


def _diff_lines(value: Fields) -> list[Line] | None:
    path, modified, original = value.get("path"), value.get("modified"), value.get("original")
    if not isinstance(path, str) or not isinstance(modified, str):
        return None
    if not isinstance(original, str) and not value.get("isNew"):
        return []
    return diff_excerpt(content_diff(path, original if isinstance(original, str) else None, modified))


def _file_list_lines(value: Fields) -> list[Line] | None:
    files = value.get("files")
    return list_lines([file_name(file) for file in files]) if isinstance(files, (list, tuple)) else None


def found_lines(value: Fields) -> list[Line]:
    """Formats the results of a search: files, or lines with their place."""
    found = value.get("matches") if isinstance(value.get("matches"), (list, tuple)) else value.get("files")
    return [line(_found(one)) for one in found] if isinstance(found, (list, tuple)) else []


def _found(one: Any) -> Any:
    if isinstance(one, Mapping) and "number" in one:
        return f"{to_text(one.get('path', ''))}:{to_text(one['number'])}: {to_text(one.get('text', ''))}"
    return file_name(one)


def _search_lines(value: Fields) -> list[Line] | None:
    rows = found_lines(value)
    if not rows and not isinstance(value.get("files"), (list, tuple)):
        return None
    return [*rows[:MAX_ITEMS], more_line(len(rows) - MAX_ITEMS)] if len(rows) > MAX_ITEMS else rows


def _search_summary(value: Fields) -> str:
    matches = mappings_in(value.get("matches"))
    count = len(matches) if matches else int(finite_number(value.get("count")))
    if not count:
        return "nothing found"
    files = f" in {_count(len({to_text(one.get('path')) for one in matches}), 'file')}" if matches else ""
    first = "the first " if value.get("truncated") else ""
    return first + _count(count, "match" if matches else "file", "matches" if matches else "") + files


def entry_names(data: Fields) -> list[str]:
    """Returns the names directly below a directory from the text of `list_dir`, where each level is indented by two
    blanks.
    """
    content = _value(data).get("content")
    if data.get("toolName") != "list_dir" or not isinstance(content, str):
        return []
    rows = [row for row in content.split("\n")[1:] if row and not row.startswith((" ", "["))]
    return [one_line(row) for row in rows]


def path_facts(data: Fields) -> str:
    """Returns what `file_info` or `file_exists` found at a path in a few words: `file, 29 bytes`."""
    facts = content_of(_value(data))
    if data.get("toolName") not in ("file_info", "file_exists") or not isinstance(facts, Mapping):
        return ""
    if facts.get("exists") is False:
        return "nothing there"
    size = f", {_count(int(finite_number(facts['size'])), 'byte')}" if facts.get("size") is not None else ""
    return f"{one_line(facts.get('type', ''))}{size}"


def file_name(file: Any) -> Any:
    return (file.get("path") or file.get("name") or file) if isinstance(file, Mapping) else file


def _exec_lines(value: Fields) -> list[Line] | None:
    """The output of a command, as one text or as its two streams."""
    rows: list[Line] = []
    for name, style in (("output", ""), ("stdout", ""), ("stderr", "warn")):
        if isinstance(value.get(name), str):
            rows += text_body(value[name], style)  # type: ignore[arg-type]
    if "answer" in value:
        rows += [[("title", "answer")], *indented(tree_lines(value["answer"]))]
    return rows


def worker_words(value: Fields) -> str | None:
    """Returns a sub-worker's answer; None if the value is no worker's."""
    data = value.get("data")
    if not isinstance(data, Mapping) or not {"workerName", "response", "toolCallCount"} <= data.keys():
        return None
    warning = f"\n{data['warning']}" if isinstance(data.get("warning"), str) else ""
    return f"{data['response']}{warning}" if isinstance(data["response"], str) else None


def _worker_lines(value: Fields) -> list[Line] | None:
    words = worker_words(value)
    return None if words is None else text_body(words)


def calls_made(value: Fields) -> str:
    """`180 calls, 2 failed`: of a program's result; empty of any other."""
    counts = mappings_in(list(value["calls"].values())) if isinstance(value.get("calls"), Mapping) else []
    calls, failed = (sum(int(finite_number(one.get(name))) for one in counts) for name in ("calls", "failed"))
    if not calls:
        return ""
    return f"{calls} {'call' if calls == 1 else 'calls'}" + (f", {failed} failed" if failed else "")


def _undo_lines(value: Fields) -> list[Line] | None:
    """Formats what was restored, what was left alone and why, and what cannot be restored."""
    restored = value.get("restored")
    if not isinstance(restored, (list, tuple)):
        return None
    rows = list_lines([f"restored {to_text(path)}" for path in (*restored, *_texts_in(value.get("refs")))])
    for name, said in (("left", "left as it is"), ("lost", "cannot be brought back")):
        found = mappings_in(value.get(name))
        for one in found[:MAX_ITEMS]:
            why = f": {one_line(one['why'])}" if one.get("why") else ""
            rows.append([("warn", f"{said}: {one_line(one.get('path', ''))}{why}")])
        rows += [more_line(len(found) - MAX_ITEMS)] if len(found) > MAX_ITEMS else []
    return rows


def _texts_in(value: Any) -> list[str]:
    return [to_text(one) for one in value] if isinstance(value, (list, tuple)) else []


_KIND_RENDERERS: Final[Mapping[str, Callable[[Fields], list[Line] | None]]] = {
    "diff": _diff_lines,
    "file_list": _file_list_lines,
    "search.result": _search_lines,
    "json": _worker_lines,
    "exec.result": _exec_lines,
    "tool.output": _exec_lines,
    "tool.created": lambda _: [],  # its summary has said it
    "undo.result": _undo_lines,
    "patch.result": lambda value: diff_excerpt(value["diff"]) if isinstance(value.get("diff"), str) else None,
    "web.page": lambda value: text_body(value["text"]) if isinstance(value.get("text"), str) else None,
    "plan.update": lambda _: [],  # a `planUpdated` event has shown it
    "port.published": lambda value: (
        text_body(value["reached_by"]) if isinstance(value.get("reached_by"), str) else None
    ),
}
"""Kind → its lines; None: the value is not what the kind promises, and is shown like any other."""


def summary_of(value: Fields) -> str:
    summary = value.get("summary")
    if isinstance(summary, str) and summary:
        return shorten(one_line(summary), MAX_TEXT)
    kind, path = value.get("kind"), one_line(value.get("path", ""))
    if change := _change_of(value):
        return change
    if kind == "file_content" and path:
        return f"{path} ({one_line(value.get('size'))} bytes)"
    if kind == "file_list" and path:
        count = value.get("count")
        return f"{path} ({one_line(count)} {'entry' if count == 1 else 'entries'})"
    if kind == "undo.result" and isinstance(value.get("restored"), (list, tuple)):
        count, left = len(value["restored"]), len(mappings_in(value.get("left")))
        return f"{count} restored" + (f", {left} left as {'they are' if left > 1 else 'it is'}" if left else "")
    if kind == "search.result" and ("files" in value or "matches" in value):
        return _search_summary(value)
    if kind not in ("exec.result", "tool.output"):
        return ""
    if value.get("signal"):
        return f"signal {one_line(value['signal'])}"
    if value.get("exit_code") is not None:
        made = calls_made(value)
        return f"exit {one_line(value['exit_code'])}" + (f", {made}" if made else "")
    return f"runs on in session {one_line(value['session_id'])}" if "session_id" in value else ""


def note_lines(data: Fields) -> list[Line]:
    return [*way_rows(data), *leftover_rows(data), *limit_notes(data)]


def way_rows(data: Fields) -> list[Line]:
    """Formats what would have worked if a command failed because of its walls, as the model reads it."""
    ways = _value(data).get("ways")
    texts = [text for text in ways if isinstance(text, str)] if isinstance(ways, list | tuple) else []
    return indented([line(one_line(text), "warn") for text in texts])


def leftover_rows(data: Fields, least: Severity = Severity.NOTE) -> list[Line]:
    """Formats leftovers of a command that the person's programs would run or obey; `least`: the lowest
    severity shown.
    """
    order = list(Severity)
    found = [one for one in leftovers_of(data) if order.index(one[0]) >= order.index(least)]
    return indented([[(_SEVERITY_STYLES[severity], text)] for severity, text in found])


def leftovers_of(data: Fields) -> list[tuple[Severity, str]]:
    """Its lines, the gravest first, each with how grave it is."""
    created = data.get("protectedCreated")
    paths = [to_text(path) for path in created] if isinstance(created, (list, tuple)) else []
    lines = leftover_lines(paths, [Leftover.from_wire(one) for one in mappings_in(data.get("leftovers"))])
    return [(line.severity, line.text[:1].lower() + line.text[1:]) for line in lines]


def limit_notes(data: Fields) -> list[Line]:
    """Formats what was cut, the attached pictures and files, and what the walls refused."""
    rows: list[Line] = []
    if data.get("truncated"):
        handle = data.get("outputHandle")
        rows.append([("warn", "output truncated" + (f", handle {one_line(handle)}" if handle else ""))])
    rows += [[("dim", _media_text(part))] for part in mappings_in(data.get("media"))[:_MAX_MEDIA]]
    denials = mappings_in(data.get("denials"))
    for denial in denials[:_MAX_DENIALS]:
        about = " ".join(one_line(denial[name]) for name in ("access", "target") if denial.get(name))
        why = f" ({one_line(denial['why'])})" if denial.get("why") else ""
        rows.append([("warn", f"blocked by the sandbox: {about}{why}")])
        if denial.get("widen"):  # a person may put it into that file; the call is not made again by that
            rows.append([("dim", f"  to allow it: {one_line(denial['widen'])}")])
    if len(denials) > _MAX_DENIALS:
        rows.append(more_line(len(denials) - _MAX_DENIALS))
    return indented(rows)


_MAX_MEDIA: Final = 20


def _media_text(part: Fields) -> str:
    width, height = int(finite_number(part.get("width"))), int(finite_number(part.get("height")))
    pixels = f", {width} × {height}" if width and height else ""
    size = f"{int(finite_number(part.get('size'))):,} bytes"
    return f"{one_line(part.get('mediaType', ''))}{pixels}, {size}, handle {one_line(part.get('handle', ''))}"


def decision_lines(decision: Fields) -> list[Line]:
    """The verdict, which rule or tool decided, the risk, who answered, and the fingerprint."""
    by = decision.get("decidedBy")
    parts = [one_line(decision.get("verdict", "")) + (f" by {_decided_by(by)}" if isinstance(by, Mapping) else "")]
    parts.append(f"risk {one_line(decision.get('risk', ''))}")
    answered = decision.get("answeredBy")
    if answered and answered != "nobody":
        parts.append(f"answered by {one_line(answered)}")
    parts += [name for name in ("cached", "edited") if decision.get(name)]
    if decision.get("remembered"):
        parts.append(f"remembered: {one_line(decision['remembered'])}")
    if decision.get("fingerprint"):
        parts.append(f"fingerprint {one_line(decision['fingerprint'])}")
    return [[("dim", f"  decision: {' · '.join(parts)}")]]


def _decided_by(by: Fields) -> str:
    label = f"{one_line(by.get('source', ''))} {one_line(by.get('id', ''))}".strip()
    reason = f": {one_line(by['reason'])}" if by.get("reason") else ""
    place = f"{one_line(by['file'])}:{one_line(by.get('line', 0))}" if by.get("file") else ""
    return f"{label}{reason}" + (f" ({place})" if place else "")


MAX_ITEMS: Final = 20
MAX_KEYS: Final = 30
MAX_VALUE: Final = 60
MAX_ROWS: Final = 20
MAX_CELL: Final = 30
_MAX_TREE_LINES: Final = 200
_MAX_TREE_LEVELS: Final = 8
_GAP: Final = "  "


def more_line(count: int) -> Line:
    return [("dim", f"... and {count} more"), ("dim", DISPLAY_CUT)]


def is_table(data: Any) -> bool:
    """Whether the data is a list of objects with at least one column."""
    return isinstance(data, list) and bool(data) and all(isinstance(row, Mapping) for row in data) and bool(data[0])


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[Line]:
    """The columns of the first row; a cell is as wide as its column needs, at most 30."""
    names = list(rows[0])[:MAX_KEYS]
    cells = [[_cell(name) for name in names]]
    cells += [[_cell(row.get(name, "")) for name in names] for row in rows[:MAX_ROWS]]
    widths = [min(MAX_CELL, max(width_of(row[at]) for row in cells)) for at in range(len(names))]
    texts = [
        _GAP.join(fit_width(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    ]
    shown: list[Line] = [[("title" if index == 0 else "", text)] for index, text in enumerate(texts)]
    shown.insert(1, [("dim", _GAP.join("─" * width for width in widths))])
    if len(rows[0]) > MAX_KEYS:
        shown.append([("dim", f"... and {len(rows[0]) - MAX_KEYS} more columns"), ("dim", DISPLAY_CUT)])
    if len(rows) > MAX_ROWS:
        shown.append(more_line(len(rows) - MAX_ROWS))
    return shown


def tree_lines(value: Any) -> list[Line]:
    shown: list[Line] = []
    _add_tree_lines(shown, value, 0, "", frozenset())
    if len(shown) > _MAX_TREE_LINES:
        shown = [*shown[:_MAX_TREE_LINES], [("dim", "..."), ("dim", DISPLAY_CUT)]]
    return shown


def list_lines(items: Sequence[Any]) -> list[Line]:
    """Formats at most 20 items, one line each."""
    shown: list[Line] = [[("", one_line(item))] for item in items[:MAX_ITEMS]]
    return [*shown, more_line(len(items) - MAX_ITEMS)] if len(items) > MAX_ITEMS else shown


def _cell(value: Any) -> str:
    return one_line(value)[: MAX_CELL * 4]


def _add_tree_lines(shown: list[Line], value: Any, level: int, label: str, above: frozenset[int]) -> None:
    """Reads no more of the value than it shows: a small one may be endless to walk."""
    if len(shown) > _MAX_TREE_LINES:
        return
    indent = _GAP * level
    pairs = None if id(value) in above else _pairs(value)
    if not pairs:
        shown.append([("", f"{indent}{label}{_leaf('(cycle)' if id(value) in above else value)}")])
        return
    keyed = isinstance(value, Mapping)
    if level >= _MAX_TREE_LEVELS:
        size = f"({len(pairs)} {'keys' if keyed else 'items'})"
        shown.append([("", f"{indent}{label}"), ("dim", size), ("dim", DISPLAY_CUT)])
        return
    if label:
        shown.append([("", f"{indent}{label.rstrip()}")])
        level, indent = level + 1, indent + _GAP
    limit = MAX_KEYS if keyed else MAX_ITEMS
    for key, item in pairs[:limit]:
        mark = f"{shorten(one_line(key), MAX_VALUE)}: " if keyed else "- "
        _add_tree_lines(shown, item, level, mark, above | {id(value)})
    if len(pairs) > limit:
        shown.append([("dim", indent), *more_line(len(pairs) - limit)])


def _pairs(value: Any) -> list[tuple[Any, Any]] | None:
    """The members of an object or a list; None for everything else."""
    if isinstance(value, Mapping):
        try:
            return list(value.items())
        except Exception:  # a foreign mapping may raise while it is read
            return None
    return [("", item) for item in value] if isinstance(value, (list, tuple)) else None


def _leaf(value: Any) -> str:
    return shorten(one_line(to_text(value)[: MAX_VALUE * 4]), MAX_VALUE)
