"""A `toolResult` event as lines: a header that says how it went, then its value by kind and display hint.

`✓ tool - summary (12 ms)`, `✓ tool (kind) (12 ms)` or `✗ tool - status: message`. What did not succeed never has a
check mark, whatever its value says. Takes any value and never raises.
Display limits say `display cut`; output that was cut for the caller says `output truncated, handle …`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from golem_forge.core.leftovers import Leftover, Severity, leftover_lines
from golem_forge.tools.results import display_hints, is_valid_kind
from golem_forge.ui.rendering.diffs import content_diff, diff_summary, shown_diff
from golem_forge.ui.rendering.lines import (
    DISPLAY_CUT,
    Line,
    Style,
    indented,
    mappings,
    number,
    one_line,
    prose,
    shortened,
    words,
)
from golem_forge.ui.rendering.structures import is_table, listing, more, table, tree

MOST_TEXT: Final = 500
_SUCCESS: Final = "success"
_ABOUT: Final = ("kind", "summary", "mimeType", "display")
_FEW_MS: Final = 10_000
_MOST_DENIALS: Final = 5
_MOST_ERROR: Final = 2000
_SEVERITY_STYLES: Final[Mapping[Severity, Style]] = {
    Severity.NOTE: "dim",
    Severity.WARNING: "warn",
    Severity.CRITICAL: "fail",
}

Fields = Mapping[str, Any]


def result(data: Fields) -> list[Line]:
    """Header and body. Of a `hidden` value nothing but what was left behind, unless the call failed."""
    hidden = _view(data) == "hidden"
    if data.get("status") != _SUCCESS:
        return [*failure(data), *([] if hidden else _body(data)), *notes(data)]
    return left_behind(data) if hidden else [header(data), *_body(data), *notes(data)]


def result_after_output(data: Fields) -> list[Line]:
    """The same for a call whose output was shown as it came: a command's own is not shown again."""
    if _value(data).get("kind") != "exec.result":
        return result(data)
    return [*(failure(data) or [header(data)]), *notes(data)]


def header(data: Fields) -> Line:
    value = _value(data)
    kind = value.get("kind")
    said = summary_of(value)
    about = f" - {said}" if said else f" ({one_line(kind)})" if is_valid_kind(kind) else ""
    return [("ok", "✓"), ("", f" {one_line(data.get('toolName', ''))}{about} "), ("dim", f"({took(data)})")]


def failure(data: Fields) -> list[Line]:
    """One line for a call that did not succeed; nothing for one that did."""
    status = data.get("status")
    if status == _SUCCESS:
        return []
    error = data.get("error")
    told = f"{one_line(status)}: {shortened(one_line(error), _MOST_ERROR)}" if error else one_line(status)
    return [[("fail", "✗"), ("", f" {one_line(data.get('toolName', ''))} - {told}")]]


def took(data: Fields) -> str:
    ms = number(data.get("durationMs"))
    return f"{round(ms)} ms" if ms < _FEW_MS else f"{ms / 1000:.1f} s"


def text_body(text: str, style: Style = "") -> list[Line]:
    """500 characters, then how many more there are."""
    rows = prose(text[:MOST_TEXT], style)
    if len(text) > MOST_TEXT:
        rows.append([("dim", f"... ({len(text) - MOST_TEXT} more chars)"), ("dim", DISPLAY_CUT)])
    return rows


# ---- the value


def _value(data: Fields) -> Fields:
    value = data.get("value")
    return value if isinstance(value, Mapping) else {}


def _view(data: Fields) -> str:
    return display_hints(_value(data)).get("preferredView", "")


def _body(data: Fields) -> list[Line]:
    raw = data.get("value")
    if raw is None:
        return []
    value = _value(data)
    if not value:
        return indented(_free(raw))
    hints = display_hints(value)
    rows = _shown(value, hints.get("preferredView", ""))
    if hints.get("collapsed") and rows:
        rows = [[("dim", f"... ({len(rows)} lines)"), ("dim", DISPLAY_CUT)]]
    height = int(hints.get("maxHeight", len(rows)))
    if height < len(rows):
        rows = [*rows[:height], [("dim", f"... ({len(rows) - height} more lines)"), ("dim", DISPLAY_CUT)]]
    return indented(rows)


def _shown(value: Fields, view: str) -> list[Line]:
    kind = value.get("kind")
    own = _OWN_KINDS.get(kind) if isinstance(kind, str) else None
    if own is not None and view in ("", "diff"):
        rows = own(value)
        if rows is not None:
            return rows
    return _by_view(value, content_of(value), view)


def content_of(value: Fields) -> Any:
    """What there is to show: the data, the text, or every member that is not about showing."""
    for name in ("data", "content"):
        if name in value:
            return value[name]
    return {name: item for name, item in value.items() if name not in _ABOUT}


def _by_view(value: Fields, data: Any, view: str) -> list[Line]:
    if view == "table" and is_table(data):
        return table(data)
    if view == "image":
        return [[("dim", f"[image {one_line(value.get('mimeType') or 'of unknown type')}, not shown as text]")]]
    if view == "raw":
        return text_body(words(data))
    if view == "diff" and isinstance(data, str):
        return shown_diff(data)
    if isinstance(data, str) and view in ("", "text", "markdown", "code"):
        return _markdown(data) if view == "markdown" else text_body(data, "code" if view == "code" else "")
    return _free(data) if view != "tree" else tree(data)


def _free(data: Any) -> list[Line]:
    return text_body(data) if isinstance(data, str) else tree(data)


def _markdown(text: str) -> list[Line]:
    """As it is written, with headings and code in their own style."""
    rows = text_body(text)
    in_code = False
    for row in rows:
        style, shown = row[0]
        fence = shown.startswith("```")
        if not style:
            row[0] = ("code" if in_code or fence else "title" if shown.startswith("#") else "", shown)
        in_code = in_code != fence
    return rows


# ---- kinds with a form of their own


def _diff(value: Fields) -> list[Line] | None:
    path, modified, original = value.get("path"), value.get("modified"), value.get("original")
    if not isinstance(path, str) or not isinstance(modified, str):
        return None
    if not isinstance(original, str) and not value.get("isNew"):
        return []
    return shown_diff(content_diff(path, original if isinstance(original, str) else None, modified))


def _file_list(value: Fields) -> list[Line] | None:
    files = value.get("files")
    return listing([file_name(file) for file in files]) if isinstance(files, (list, tuple)) else None


def file_name(file: Any) -> Any:
    return (file.get("path") or file.get("name") or file) if isinstance(file, Mapping) else file


def _executed(value: Fields) -> list[Line] | None:
    """The output of a command, as one text or as its two streams."""
    rows: list[Line] = []
    for name, style in (("output", ""), ("stdout", ""), ("stderr", "warn")):
        if isinstance(value.get(name), str):
            rows += text_body(value[name], style)  # type: ignore[arg-type]
    return rows


def _patched(value: Fields) -> list[Line] | None:
    return shown_diff(value["diff"]) if isinstance(value.get("diff"), str) else None


def _page(value: Fields) -> list[Line] | None:
    return text_body(value["text"]) if isinstance(value.get("text"), str) else None


_OWN_KINDS: Final[Mapping[str, Callable[[Fields], list[Line] | None]]] = {
    "diff": _diff,
    "file_list": _file_list,
    "exec.result": _executed,
    "tool.output": _executed,
    "tool.created": lambda _: [],  # its summary has said it
    "patch.result": _patched,
    "web.page": _page,
    "plan.update": lambda _: [],  # a `planUpdated` event has shown it
}
"""Kind → its lines; None: the value is not what the kind promises, and is shown like any other."""


def summary_of(value: Fields) -> str:
    summary = value.get("summary")
    if isinstance(summary, str) and summary:
        return shortened(one_line(summary), MOST_TEXT)
    kind, path = value.get("kind"), one_line(value.get("path", ""))
    if kind == "diff" and isinstance(value.get("modified"), str):
        original = value.get("original")
        said = diff_summary(
            original=original if isinstance(original, str) else None,
            modified=value["modified"],
            is_new=bool(value.get("isNew")),
        )
        return f"{path} {said}"
    if kind == "file_content" and path:
        return f"{path} ({one_line(value.get('size'))} bytes)"
    if kind == "file_list" and path:
        count = value.get("count")
        return f"{path} ({one_line(count)} {'entry' if count == 1 else 'entries'})"
    if kind in ("exec.result", "tool.output"):
        return _ending(value)
    return ""


def _ending(value: Fields) -> str:
    if value.get("signal"):
        return f"signal {one_line(value['signal'])}"
    if value.get("exit_code") is not None:
        return f"exit {one_line(value['exit_code'])}"
    return f"runs on in session {one_line(value['session_id'])}" if "session_id" in value else ""


def notes(data: Fields) -> list[Line]:
    """What holds for the call besides its value."""
    return [*left_behind(data), *about_call(data)]


def left_behind(data: Fields, least: Severity = Severity.NOTE) -> list[Line]:
    """What the command left that the person's programs would run or obey; `least`: nothing milder than this."""
    order = list(Severity)
    found = [one for one in leftovers_of(data) if order.index(one[0]) >= order.index(least)]
    return indented([[(_SEVERITY_STYLES[severity], text)] for severity, text in found])


def leftovers_of(data: Fields) -> list[tuple[Severity, str]]:
    """Its lines, the gravest first, each with how grave it is."""
    created = data.get("protectedCreated")
    paths = [words(path) for path in created] if isinstance(created, (list, tuple)) else []
    lines = leftover_lines(paths, [Leftover.from_wire(one) for one in mappings(data.get("leftovers"))])
    return [(line.severity, line.text[:1].lower() + line.text[1:]) for line in lines]


def about_call(data: Fields) -> list[Line]:
    """What was cut and what the walls refused."""
    rows: list[Line] = []
    if data.get("truncated"):
        handle = data.get("outputHandle")
        rows.append([("warn", "output truncated" + (f", handle {one_line(handle)}" if handle else ""))])
    denials = mappings(data.get("denials"))
    for denial in denials[:_MOST_DENIALS]:
        rows.append([("warn", f"blocked by the sandbox: {_denied(denial)}")])
        if denial.get("widen"):  # a person may put it into that file; the call is not made again by that
            rows.append([("dim", f"  to allow it: {one_line(denial['widen'])}")])
    if len(denials) > _MOST_DENIALS:
        rows.append(more(len(denials) - _MOST_DENIALS))
    return indented(rows)


def _denied(denial: Fields) -> str:
    what = " ".join(one_line(denial[name]) for name in ("access", "target") if denial.get(name))
    return f"{what} ({one_line(denial['why'])})" if denial.get("why") else what
