"""A `toolResult` as a page shows it: a form (`text`, `diff`, `table`, …) with what that form needs, by kind and hint.

The rules of the terminal's results with the limits of a browser: text 64 KiB, lists 500, tables 200 rows of 30 columns,
trees 2,000 nodes. What is left out sets `cut`; output that was cut for the caller is told in `notes`. Takes any value
and never raises. Strings are as the tool gave them (the page escapes them); HTML stands in `html` and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from golem_forge.tools.results import display_hints, is_valid_kind
from golem_forge.ui.rendering.diffs import amounts, content_diff, counted
from golem_forge.ui.rendering.lines import plain_text, words
from golem_forge.ui.rendering.results import (
    about_call,
    content_of,
    failure,
    file_name,
    leftovers_of,
    summary_of,
    took,
)
from golem_forge.ui.rendering.structures import is_table
from golem_forge.ui.web.showing.bounds import Limits, bounded, shortened_middle
from golem_forge.ui.web.showing.code import highlighted, language, language_of
from golem_forge.ui.web.showing.markdown import to_html

MOST_TEXT: Final = 1 << 16
MOST_ITEMS: Final = 500
MOST_ROWS: Final = 200
MOST_COLUMNS: Final = 30
MOST_CELL: Final = 200
MOST_DIFF: Final = 1 << 18
MOST_IMAGE: Final = 2 << 20
_MOST_COMPARED: Final = 2 << 20
"""Characters of both sides: comparing more would hold up the session."""
_ABOUT: Final = Limits(text=4_000, items=100, nodes=2_000, total=1 << 17)
_TREE: Final = Limits(text=2_000, items=MOST_ITEMS, nodes=2_000, total=1 << 18)
_CELL: Final = Limits(text=MOST_CELL, items=20, nodes=100, total=2_000)
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]*={0,2}\s*")

View = dict[str, Any]
Fields = Mapping[str, Any]


def result_view(data: Fields) -> View:
    """`summary`, `took`, `form` and what belongs to it, `collapsed`, `maxHeight`, `cut`, `notes`, `leftovers`."""
    about, _ = bounded(dict(data), _ABOUT)  # small: everything about the call is told by this copy
    value = data.get("value")
    value = value if isinstance(value, Mapping) else {} if value is None else {"content": value}
    small = about.get("value")
    small = small if isinstance(small, Mapping) else {}
    hints = display_hints(small)
    view = hints.get("preferredView", "")
    body = {"form": "hidden"} if view == "hidden" else _body(value, view, hints.get("language", ""))
    height = hints.get("maxHeight")
    return {
        "summary": _summary(about, small, body),
        "kind": small["kind"] if is_valid_kind(small.get("kind")) else "",
        "took": took(about),
        "cut": False,
        **body,
        "collapsed": bool(hints.get("collapsed")),
        "maxHeight": max(1, int(min(height, 10_000))) if height is not None else None,
        "notes": [note.strip() for note in plain_text(about_call(about)).splitlines()],
        "leftovers": [{"severity": severity.value, "text": text} for severity, text in leftovers_of(about)],
    }


def diff_view(diff: str, path: str = "") -> View:
    """A unified diff in the form `diff`; a long one without its middle lines."""
    added, removed = counted(diff)
    shown, cut = _middle_lines(diff)
    return {"form": "diff", "diff": shown, "path": path, "added": added, "removed": removed, "cut": cut}


def change_view(path: str, original: str | None, modified: str, *, is_new: bool) -> View:
    """The change of one file, compared here. −1: nobody knows."""
    if original is None and not is_new:
        return {**diff_view("", path), "added": -1, "removed": -1}
    if len(original or "") + len(modified) > _MOST_COMPARED:
        return {**diff_view("", path), "added": -1, "removed": -1, "cut": True}
    return diff_view(content_diff(path, None if is_new else original, modified), path)


# ---- by kind and hint


def _body(value: Fields, view: str, hinted: str) -> View:
    if not value:
        return _text("")
    kind = value.get("kind")
    own = _OWN_KINDS.get(kind) if isinstance(kind, str) else None
    if own is not None and view in ("", "diff"):
        shown = own(value)
        if shown is not None:
            return shown
    return _by_view(value, content_of(value), view, hinted)


def _by_view(value: Fields, data: Any, view: str, hinted: str) -> View:
    if view == "table" and is_table(data):
        return _table(data)
    if view == "image" and (image := _image(value, data)):
        return image
    if view == "raw":
        return _text(data if isinstance(data, str) else words(bounded(data, _TREE)[0]))
    if isinstance(data, str):
        return _string(data, view, hinted)
    tree, cut = bounded(data, _TREE)
    return {"form": "tree", "data": tree, "cut": cut}


def _string(text: str, view: str, hinted: str) -> View:
    if view == "diff":
        return diff_view(text)
    if view == "markdown":
        shown, cut = shortened_middle(text, MOST_TEXT)
        return {"form": "markdown", "html": to_html(shown), "cut": cut}
    if view == "code":
        return _code(text, language(hinted))
    return _text(text)


def _text(text: str) -> View:
    shown, cut = shortened_middle(text, MOST_TEXT)
    return {"form": "text", "text": shown, "cut": cut}


def _code(text: str, name: str) -> View:
    shown, cut = shortened_middle(text, MOST_TEXT)
    return {"form": "code", "text": shown, "html": highlighted(shown, name), "language": name, "cut": cut}


def _table(rows: list[Mapping[Any, Any]]) -> View:
    names = list(islice(rows[0], MOST_COLUMNS))
    return {
        "form": "table",
        "columns": [_cell(name) for name in names],
        "rows": [[_cell(row.get(name, "")) for name in names] for row in rows[:MOST_ROWS]],
        "count": len(rows),
        "cut": len(rows) > MOST_ROWS or len(rows[0]) > MOST_COLUMNS,
    }


def _cell(value: Any) -> str:
    text = words(value if isinstance(value, str) else bounded(value, _CELL)[0])
    return text if len(text) <= MOST_CELL else text[: MOST_CELL - 1] + "…"


def _image(value: Fields, data: Any) -> View | None:
    """Pictures that hold nothing but pixels. Threat: SVG is a document with scripts and links; it is never one here."""
    if not isinstance(data, str) or len(data) > MOST_IMAGE * 4 // 3 + 100:
        return None
    kind, inside = str(value.get("mimeType") or "").lower(), data
    if data.startswith("data:"):
        head, _, inside = data.partition(",")
        kind = head.removeprefix("data:").removesuffix(";base64").lower()
    if kind not in _IMAGES or not _BASE64.fullmatch(inside):
        return None
    return {"form": "image", "src": f"data:{kind};base64,{''.join(inside.split())}"}


# ---- kinds with a form of their own


def _diff(value: Fields) -> View | None:
    path, modified, original = value.get("path"), value.get("modified"), value.get("original")
    if not isinstance(path, str) or not isinstance(modified, str):
        return None
    original = original if isinstance(original, str) else None
    return change_view(path[:1000], original, modified, is_new=bool(value.get("isNew")))


def _patched(value: Fields) -> View | None:
    return diff_view(value["diff"]) if isinstance(value.get("diff"), str) else None


def _file(value: Fields) -> View | None:
    path, content = value.get("path"), value.get("content")
    if not isinstance(path, str) or not isinstance(content, str):
        return None
    name = language_of(path)
    return _code(content, name) if name else _text(content)


def _files(value: Fields) -> View | None:
    files = value.get("files")
    if not isinstance(files, (list, tuple)):
        return None
    shown = [_cell(file_name(file)) if not isinstance(file, str) else file[:1000] for file in files[:MOST_ITEMS]]
    count = value.get("count")
    count = count if type(count) is int and len(files) <= count < 1 << 53 else len(files)
    return {"form": "files", "files": shown, "count": count, "cut": len(files) > MOST_ITEMS}


def _executed(value: Fields) -> View | None:
    parts: list[View] = []
    cut = False
    for name in ("output", "stdout", "stderr"):
        if isinstance(value.get(name), str) and value[name]:
            text, shortened = shortened_middle(value[name], MOST_TEXT)
            parts.append({"stream": name, "text": text})
            cut = cut or shortened
    return {"form": "output", "parts": parts, "cut": cut}


_OWN_KINDS: Final[Mapping[str, Callable[[Fields], View | None]]] = {
    "diff": _diff,
    "patch.result": _patched,
    "file_content": _file,
    "file_list": _files,
    "exec.result": _executed,
    "tool.output": _executed,
    "tool.created": lambda _: _text(""),  # its summary has said it
    "plan.update": lambda _: _text(""),  # a `planUpdated` event has shown it
    "web.page": lambda value: _text(value["text"]) if isinstance(value.get("text"), str) else None,
}
"""Kind → its view; None: the value is not what the kind promises, and is shown like any other."""


def _summary(about: Fields, value: Fields, body: View) -> str:
    """What stands behind the tool's name: how it failed, or what its value says of itself."""
    if told := plain_text(failure(about)).strip():
        return told.split(" - ", 1)[-1]
    if value.get("kind") == "diff" and body["form"] == "diff" and not value.get("summary"):
        return f"{body['path']} {_changed(value, body)}"
    return summary_of(value)


def _changed(value: Fields, body: View) -> str:
    if value.get("isNew"):
        return "new file"
    return amounts(body["added"], body["removed"]) if body["diff"] or body["added"] else "no changes"


def _middle_lines(diff: str) -> tuple[str, bool]:
    """Head and tail in whole lines, with a line between that says how many are missing."""
    if len(diff) <= MOST_DIFF:
        return diff, False
    half = MOST_DIFF // 2
    head, tail = diff[: diff.rfind("\n", 0, half) + 1], diff[diff.find("\n", len(diff) - half) + 1 :]
    if not head or len(tail) > half:
        return shortened_middle(diff, MOST_DIFF)[0], True
    left = diff.count("\n") - head.count("\n") - tail.count("\n")
    return f"{head}# … {left:,} lines between, display cut …\n{tail}", True
