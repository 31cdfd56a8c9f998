"""Events as pages get them: `{"event", "view"}`, both bounded to what fits one frame, and the frames. Never raises.

The event is the envelope with long texts and lists cut in the middle; the view is what the server prepared: HTML of
Markdown, a result by its form (`text`, `diff`, `table`, …), a diff. `view.cut` says that this is not all; then `GET
…/events/{seq}` (or `…/questions/{requestId}`) gives the whole. Limits of a result: text 64 KiB, lists 500, tables 200
rows of 30 columns, trees 2,000 nodes. Strings are as the tool gave them (the page escapes them); HTML stands in `html`
and nowhere else.

`bounded_json` gives pure JSON (NaN, bytes, cycles and foreign objects become text), keeps head and tail, and counts
what it leaves out. Its cost depends on what it gives, not on what it is given.

A frame is one JSON object on the socket to a page. An event is encoded once for all pages, and off the loop when it is
long, so that it delays neither the session nor another page.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from golem_forge.core.json import MAX_INTEGER_BITS, valid_unicode
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.results import is_valid_kind
from golem_forge.core.text import shorten, shorten_middle
from golem_forge.events.serialization import Event, encode_json
from golem_forge.tools.results import display_hints
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.render.card import card_view
from golem_forge.ui.render.lines import as_json, change_counts, content_diff, count_changes, plain_text, to_text
from golem_forge.ui.render.reports import call_subject
from golem_forge.ui.render.results import (
    ON_THE_CARD,
    content_of,
    duration_text,
    failure_lines,
    file_name,
    found_lines,
    is_table,
    leftovers_of,
    limit_notes,
    short_summary,
    summary_of,
    way_rows,
    worker_words,
)
from golem_forge.ui.web.markdown import highlight, language_name, language_of_file, to_html

MAX_STRING: Final = 1 << 16
MAX_FRAME: Final = 1 << 19
"""Bytes of JSON that an event may take; its view may take as many again."""
_TEXT_FACTOR: Final = 4
_MIN_TEXT: Final = 16
_MIN_ITEMS: Final = 3
_FEW: Final = 60
_MARKER_KEY: Final = "…"
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimits:
    text: int = MAX_STRING
    items: int = 500
    nodes: int = 20_000
    levels: int = 60
    total: int = MAX_FRAME


EVENT_LIMITS: Final = SizeLimits()


def bounded_json(value: Any, limits: SizeLimits = EVENT_LIMITS) -> tuple[Any, bool]:
    """(the value within the limits, whether something was left out). Never raises."""
    while True:
        walk = _BoundedCopy(limits)
        try:
            return walk.copy(value, 0), walk.cut
        except _TooManyBytes as too_much:
            limits = _tighter(limits, nodes=isinstance(too_much, _TooManyNodes))


def both_ends(text: str, limit: int) -> tuple[str, bool]:
    """Returns at most about `limit` characters, the first and the last, with the number between; and whether it was
    shortened.
    """
    between = len(text) - limit // 2 * 2
    return valid_unicode(shorten_middle(text, limit, f"\n… {between:,} characters …\n")), len(text) > limit


class _TooManyBytes(Exception): ...


class _TooManyNodes(_TooManyBytes): ...


def _tighter(limits: SizeLimits, *, nodes: bool) -> SizeLimits:
    """Tightens the limits, for too many `nodes` or else too many bytes; in the second case texts get shorter before
    anything is left out.
    """
    if limits.text == _MIN_TEXT and limits.items == _MIN_ITEMS and limits.levels == _MIN_ITEMS:
        return replace(limits, nodes=limits.nodes * 2, total=limits.total * 2)  # the budget is for less than the least
    if nodes:
        return replace(limits, items=max(limits.items // 4, _MIN_ITEMS), levels=max(limits.levels // 2, _MIN_ITEMS))
    return replace(
        limits,
        text=max(limits.text // _TEXT_FACTOR, _MIN_TEXT),
        items=max(limits.items // 2, _MIN_ITEMS),
        levels=limits.levels if limits.items > _FEW else max(limits.levels // 2, _MIN_ITEMS),
    )


class _BoundedCopy:
    def __init__(self, limits: SizeLimits) -> None:
        self.cut = False
        self._limits = limits
        self._left = limits.total
        self._nodes = limits.nodes
        self._above: set[int] = set()

    def copy(self, value: Any, level: int) -> Any:
        self._nodes -= 1
        if self._nodes < 0:
            raise _TooManyNodes
        if isinstance(value, str):
            return self._text(value, self._limits.text)
        if value is None or value is True or value is False:
            return self._count(value, 5)
        if isinstance(value, int):
            if value.bit_length() <= MAX_INTEGER_BITS:
                return self._count(int(value), 8 + value.bit_length() // 3)
            return self._emit_text(f"(integer of {value.bit_length()} bits)")
        if isinstance(value, float):
            return self._count(float(value), 24) if value - value == 0.0 else self._emit_text(str(float(value)))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._emit_text(f"({len(value)} bytes)")
        return self._container(value, level)

    def _container(self, value: Any, level: int) -> Any:
        if id(value) in self._above:
            return self._emit_text("(cycle)")
        if not isinstance(value, (Mapping, list, tuple)):
            return self._emit_text(f"({type(value).__name__})")
        if level >= self._limits.levels:
            self.cut = True
            return self._emit_text(f"({len(value)} members, nested too deep)")
        self._above.add(id(value))
        self._count(None, 0)  # its brackets
        try:
            if isinstance(value, Mapping):
                return self._object(value, level)
            return [self.copy(item, level + 1) for item in self._items(value)]
        except _TooManyBytes:
            raise
        except Exception:  # a foreign mapping may raise while it is read
            return self._emit_text(f"({type(value).__name__})")
        finally:
            self._above.discard(id(value))

    def _object(self, value: Mapping[Any, Any], level: int) -> dict[str, Any]:
        small: dict[str, Any] = {}
        for key in islice(value, self._limits.items):
            name = self._text(key if isinstance(key, str) else str(self.copy(key, level + 1)), 200)
            small[name] = self.copy(value[key], level + 1)
        if (left := len(value) - self._limits.items) > 0:
            self.cut = True
            small[_MARKER_KEY] = self._emit_text(f"… {left:,} more …")
        return small

    def _items(self, value: list[Any] | tuple[Any, ...]) -> Iterator[Any]:
        most = self._limits.items
        if len(value) <= most:
            yield from value
            return
        self.cut = True
        half = max(most // 2, 1)
        yield from value[:half]
        yield f"… {len(value) - 2 * half:,} more …"
        yield from value[-half:]

    def _text(self, text: str, limit: int) -> str:
        shown, cut = both_ends(text, limit)
        self.cut = self.cut or cut
        return self._emit_text(shown)

    def _emit_text(self, text: str) -> str:
        if text.isascii() and text.isprintable():
            return self._count(text, len(text) + 2 + text.count('"') + text.count("\\"))
        return self._count(text, len(encode_json(text)))

    def _count(self, value: _Value, size: int) -> _Value:
        self._left -= size + 2
        if self._left < 0:
            raise _TooManyBytes
        return value


MAX_TEXT: Final = 1 << 16
MAX_ITEMS: Final = 500
MAX_ROWS: Final = 200
MAX_COLUMNS: Final = 30
MAX_CELL: Final = 200
MAX_DIFF: Final = 1 << 18
MAX_IMAGE: Final = 2 << 20
_MAX_COMPARED: Final = 2 << 20
"""Characters of both sides: comparing more would hold up the session."""
_META_LIMITS: Final = SizeLimits(text=4_000, items=100, nodes=2_000, total=1 << 17)
_TREE_LIMITS: Final = SizeLimits(text=2_000, items=MAX_ITEMS, nodes=2_000, total=1 << 18)
_CELL_LIMITS: Final = SizeLimits(text=MAX_CELL, items=20, nodes=100, total=2_000)
_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64: Final = regex(r"[A-Za-z0-9+/\s]*={0,2}\s*")

Fields = Mapping[str, Any]


def result_view(data: Fields) -> View:
    """`subject`, `summary`, `took`, `form` and what belongs to it, `collapsed`, `hinted`, `maxHeight`, `cut`, `notes`,
    `leftovers`."""
    about, _ = bounded_json(dict(data), _META_LIMITS)  # small: everything about the call is told by this copy
    value = data.get("value")
    value = value if isinstance(value, Mapping) else {} if value is None else {"content": value}
    small = about.get("value")
    small = small if isinstance(small, Mapping) else {}
    hints = display_hints(small)
    view = hints.get("preferredView", "")
    body = {"form": "hidden"} if view == "hidden" else _body(value, view, hints.get("language", ""))
    height = hints.get("maxHeight")
    subject = call_subject(about.get("toolName"), about.get("args"))
    return {
        "subject": "" if small.get("kind") in ON_THE_CARD and about.get("status") == "success" else subject,
        "summary": _summary(about, small, body, subject),
        "kind": small["kind"] if is_valid_kind(small.get("kind")) else "",
        "took": duration_text(about),
        "cut": False,
        **body,
        "collapsed": bool(hints.get("collapsed")),
        "hinted": bool(view),
        "maxHeight": max(1, int(min(height, 10_000))) if height is not None else None,
        "notes": [note.strip() for note in plain_text(limit_notes(about)).splitlines()],
        "leftovers": [{"severity": severity.value, "text": text} for severity, text in leftovers_of(about)],
    }


def diff_view(diff: str, path: str = "") -> View:
    """A unified diff in the form `diff`; a long one without its middle lines."""
    added, removed = count_changes(diff)
    shown, cut = _cut_middle_lines(diff)
    return {"form": "diff", "diff": shown, "path": path, "added": added, "removed": removed, "cut": cut}


def change_view(path: str, original: str | None, modified: str, *, is_new: bool) -> View:
    """The change of one file, compared here. −1: nobody knows."""
    if original is None and not is_new:
        return {**diff_view("", path), "added": -1, "removed": -1}
    if len(original or "") + len(modified) > _MAX_COMPARED:
        return {**diff_view("", path), "added": -1, "removed": -1, "cut": True}
    return diff_view(content_diff(path, None if is_new else original, modified), path)


# ---- by kind and hint


def _body(value: Fields, view: str, hinted: str) -> View:
    if not value:
        return _text_view("")
    kind = value.get("kind")
    make = _KIND_VIEWS.get(kind) if isinstance(kind, str) else None
    if make is not None and view in ("", "diff") and (shown := make(value)) is not None:
        return shown
    return _by_view(value, content_of(value), view, hinted)


def _by_view(value: Fields, data: Any, view: str, hinted: str) -> View:
    if view == "table" and is_table(data):
        return _table_view(data)
    if view == "image" and (image := _image_view(value, data)):
        return image
    if view == "raw":
        return _text_view(data if isinstance(data, str) else to_text(bounded_json(data, _TREE_LIMITS)[0]))
    if not isinstance(data, str):
        tree, cut = bounded_json(data, _TREE_LIMITS)
        return {"form": "tree", "data": tree, "cut": cut}
    if view == "diff":
        return diff_view(data)
    if view == "markdown":
        shown, cut = both_ends(data, MAX_TEXT)
        return {"form": "markdown", "html": to_html(shown), "cut": cut}
    return _code_view(data, language_name(hinted)) if view == "code" else _text_view(data)


def _text_view(text: str) -> View:
    shown, cut = both_ends(text, MAX_TEXT)
    return {"form": "text", "text": shown, "cut": cut}


def _code_view(text: str, name: str) -> View:
    shown, cut = both_ends(text, MAX_TEXT)
    return {"form": "code", "text": shown, "html": highlight(shown, name), "language": name, "cut": cut}


def _table_view(rows: list[Mapping[Any, Any]]) -> View:
    names = list(islice(rows[0], MAX_COLUMNS))
    return {
        "form": "table",
        "columns": [_cell(name) for name in names],
        "rows": [[_cell(row.get(name, "")) for name in names] for row in rows[:MAX_ROWS]],
        "count": len(rows),
        "cut": len(rows) > MAX_ROWS or len(rows[0]) > MAX_COLUMNS,
    }


def _cell(value: Any) -> str:
    return shorten(to_text(value if isinstance(value, str) else bounded_json(value, _CELL_LIMITS)[0]), MAX_CELL)


def _image_view(value: Fields, data: Any) -> View | None:
    """Pictures that hold nothing but pixels. Threat: SVG is a document with scripts and links; it is never one here."""
    if not isinstance(data, str) or len(data) > MAX_IMAGE * 4 // 3 + 100:
        return None
    kind, inside = str(value.get("mimeType") or "").lower(), data
    if data.startswith("data:"):
        head, _, inside = data.partition(",")
        kind = head.removeprefix("data:").removesuffix(";base64").lower()
    if kind not in _IMAGE_TYPES or not _BASE64.fullmatch(inside):
        return None
    return {"form": "image", "src": f"data:{kind};base64,{''.join(inside.split())}"}


# ---- kinds with a form of their own


def _diff_kind_view(value: Fields) -> View | None:
    whole = isinstance(value.get("path"), str) and isinstance(value.get("modified"), str)
    return _diff_content_view(value) if whole else None


def _file_view(value: Fields) -> View | None:
    path, content = value.get("path"), value.get("content")
    if not isinstance(path, str) or not isinstance(content, str):
        return None
    name = language_of_file(path)
    return _code_view(content, name) if name else _text_view(content)


def _files_view(value: Fields) -> View | None:
    files = value.get("files")
    if not isinstance(files, (list, tuple)):
        return None
    shown = [_cell(file_name(file)) if not isinstance(file, str) else file[:1000] for file in files[:MAX_ITEMS]]
    count = value.get("count")
    count = count if type(count) is int and len(files) <= count < 1 << 53 else len(files)
    return {"form": "files", "files": shown, "count": count, "cut": len(files) > MAX_ITEMS}


def _search_view(value: Fields) -> View | None:
    found = value.get("matches") if isinstance(value.get("matches"), (list, tuple)) else value.get("files")
    if not isinstance(found, (list, tuple)):
        return None
    return _text_view("".join(plain_text(found_lines(value)))) if found else _text_view("")


def _worker_view(value: Fields) -> View | None:
    words = worker_words(value)
    if words is None:
        return None
    shown, cut = both_ends(words, MAX_TEXT)
    return {"form": "markdown", "html": to_html(shown), "cut": cut}


def _exec_view(value: Fields) -> View | None:
    parts: list[View] = []
    cut = False
    for name in ("output", "stdout", "stderr"):
        if isinstance(value.get(name), str) and value[name]:
            text, shortened = both_ends(value[name], MAX_TEXT)
            parts.append({"stream": name, "text": text})
            cut = cut or shortened
    if "answer" in value:
        text, shortened = both_ends(as_json(value["answer"]), MAX_TEXT)
        parts.append({"stream": "answer", "text": text})
        cut = cut or shortened
    if noted := plain_text(way_rows({"value": value})).strip():
        parts.append({"stream": "note", "text": noted})
    return {"form": "output", "parts": parts, "cut": cut}


def _link_view(value: Fields) -> View | None:
    """A link to a published port. Threat: any tool can give a value of this kind, so it leads to an address of 127/8
    and nowhere else; not to 127.0.0.1, where this very page is."""
    url, said = value.get("url"), value.get("reached_by")
    if not isinstance(url, str) or not isinstance(said, str) or not _PUBLISHED.fullmatch(url):
        return None
    return {**_text_view(said), "form": "link", "url": url}


_PUBLISHED: Final = regex(r"http://127\.(?!0\.)\d{1,3}\.\d{1,3}\.\d{1,3}:\d{1,5}/", re.ASCII)

_KIND_VIEWS: Final[Mapping[str, Callable[[Fields], View | None]]] = {
    "diff": _diff_kind_view,
    "patch.result": lambda value: diff_view(value["diff"]) if isinstance(value.get("diff"), str) else None,
    "file_content": _file_view,
    "file_list": _files_view,
    "search.result": _search_view,
    "json": _worker_view,
    "exec.result": _exec_view,
    "tool.output": _exec_view,
    "tool.created": lambda _: _text_view(""),  # its summary has said it
    "plan.update": lambda _: _text_view(""),  # a `planUpdated` event has shown it
    "web.page": lambda value: _text_view(value["text"]) if isinstance(value.get("text"), str) else None,
    "port.published": _link_view,
}
"""Kind → its view; None: the value is not what the kind promises, and is shown like any other."""


def _summary(about: Fields, value: Fields, body: View, subject: str) -> str:
    """Returns the text after the tool's name and `subject`: how it failed, or its result."""
    if told := plain_text(failure_lines(about)).strip():
        return told.split(" - ", 1)[-1]
    if value.get("kind") == "diff" and body["form"] == "diff" and not value.get("summary"):
        counts = change_counts(body["added"], body["removed"]) if body["diff"] or body["added"] else "no changes"
        return f"{body['path']} {'new file' if value.get('isNew') else counts}"
    return (short_summary(about, value) if subject else "") or summary_of(value)


def _cut_middle_lines(diff: str) -> tuple[str, bool]:
    """Head and tail in whole lines, with a line between that says how many are missing."""
    if len(diff) <= MAX_DIFF:
        return diff, False
    half = MAX_DIFF // 2
    head, tail = diff[: diff.rfind("\n", 0, half) + 1], diff[diff.find("\n", len(diff) - half) + 1 :]
    if not head or len(tail) > half:
        return both_ends(diff, MAX_DIFF)[0], True
    left = diff.count("\n") - head.count("\n") - tail.count("\n")
    return f"{head}# … {left:,} lines between, display cut …\n{tail}", True


MAX_MESSAGE: Final = 150_000
_log = logging.getLogger(__name__)

View = dict[str, Any]


def event_with_view(event: Event) -> dict[str, Any]:
    try:
        wire: Mapping[str, Any] = event.wire
    except Exception:
        wire = {}
    data, cut = bounded_json(wire)
    envelope = {
        "type": event.type,
        "seq": event.seq,
        "ts": event.ts,
        "sessionId": event.session_id,
        "workerId": event.worker_id,
        "data": data,
    }
    return {"event": envelope, "view": _view(event, cut=cut)}


def _view(event: Event, *, cut: bool) -> View:
    make = _VIEWS.get(event.type)
    view: View = {}
    if make is not None:
        try:
            view = make(event.wire)
        except Exception as error:  # whatever it was, the event itself is still shown
            _log.error("an event %r could not be prepared: %s", event.type, type(error).__name__)
    if cut and ("form" in view or "html" in view):
        return {**view, "shortened": True}  # its own `cut` tells of the result, this one of the event's data
    return {**view, "cut": True} if cut else view


def _message_view(data: Fields) -> View:
    message = data.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, str) or message is None or message.get("role") == "user":
        return {}
    text, cut = both_ends(content, MAX_MESSAGE)
    return {"html": to_html(text), **({"cut": True} if cut else {})}


def _diff_content_view(data: Fields) -> View:
    path, original, modified = data.get("path"), data.get("original"), data.get("modified")
    return change_view(
        path[:1000] if isinstance(path, str) else "",
        original if isinstance(original, str) else None,
        modified if isinstance(modified, str) else "",
        is_new=bool(data.get("isNew")),
    )


def _approval_view(data: Fields) -> View:
    """`card`: the sections to draw. Long texts are not in it, but named by the member of `data` that holds them."""
    card, cut = bounded_json(card_view(data))
    return {"cut": cut, "card": card}


def _started_view(data: Fields) -> View:
    about, _ = bounded_json(dict(data), _META_LIMITS)
    return {"subject": call_subject(about.get("toolName"), about.get("args"))}


_VIEWS: Final[Mapping[str, Callable[[Fields], View]]] = {
    "toolStarted": _started_view,
    "message": _message_view,
    "toolResult": result_view,
    "diffContent": _diff_content_view,
    "approvalRequired": _approval_view,
}


_MAX_GREETING: Final = 900_000
"""Characters of the events in one greeting; of workers and servers beyond it the oldest are left out."""
_MANY_PER_SESSION: Final = frozenset({"workerUpdate", "usageUpdated", "planUpdated", "mcpStatus"})


def frame_text(kind: str, **members: Any) -> str:
    return encode_json({"kind": kind, **members}).decode()


def shown_text(event: Event, **more: bool) -> str:
    return frame_text("event", **shown_members(event), **more)


def hello_text(session: Mapping[str, Any], seq: int, standing: Iterable[Event], **more: bool) -> str:
    room = _MAX_GREETING
    fitting: list[tuple[int, str]] = []
    for event in sorted(standing, key=lambda event: (event.type in _MANY_PER_SESSION, -event.seq)):
        text = encode_json(shown_members(event)).decode()
        if len(text) <= room:
            room -= len(text)
            fitting.append((event.seq, text))
    head = frame_text("hello", session=session, seq=seq, **more)
    return f'{head[:-1]},"standing":[{",".join(text for _, text in sorted(fitting))}]}}'


def answer_text(action_id: str, problem: str = "", fields: Mapping[str, str] | None = None) -> str:
    more = {"problem": problem, "fields": fields}
    return frame_text("answer", id=action_id, ok=not problem, **{name: said for name, said in more.items() if said})


def bye_text(reason: str, session: str = "") -> str:
    """Returns the last frame. `session`: the id under which it goes on."""
    return frame_text("bye", reason=reason, **({"session": session} if session else {}))


PONG: Final = '{"kind":"pong"}'


class Frame:
    """One event that is sent to any number of pages."""

    __slots__ = ("_event", "_making", "_short", "_text", "weight")

    def __init__(self, event: Event) -> None:
        self._event: Event | None = event
        self._short = is_short(event.wire)
        self.weight = 0 if self._short else characters_in(event.wire)
        """Characters that are kept for whoever has not been sent it; a short one does not count."""
        self._text = ""
        self._making: asyncio.Future[str] | None = None

    async def text(self) -> str:
        if self._text:
            return self._text
        if self._making is None:
            event = self._event
            assert event is not None
            if self._short:
                return self._keep(shown_text(event))
            self._making = run_in_thread(lambda: shown_text(event))
        return self._keep(await asyncio.shield(self._making))

    def _keep(self, text: str) -> str:
        self._text = text
        self._event = self._making = None  # what it was made of may be long
        return text


def shown_members(event: Event) -> dict[str, Any]:
    """Returns the members `event` and `view` of a frame."""
    try:
        return dict(event_with_view(event))
    except Exception as error:  # a record of somebody else's making must not end the page that looks at it
        _log.warning("event %s of type %r cannot be shown: %s", event.seq, event.type[:80], type(error).__name__)
        return {"event": {**event.to_dict(), "data": {}}, "view": {"cut": True}}


_SHORT_MAX_CHARACTERS: Final = 4096
_SHORT_MAX_PARTS: Final = 200
_PART_CHARACTERS: Final = 16


def is_short(value: Any) -> bool:
    """Few parts, little text. Looks at no more than that."""
    room, parts = _SHORT_MAX_CHARACTERS, 0
    open_parts = [value]
    while open_parts:
        part = open_parts.pop()
        parts += 1
        if isinstance(part, str):
            room -= len(part)
        elif isinstance(part, Mapping | list | tuple):
            parts += len(part)
            if parts <= _SHORT_MAX_PARTS:
                open_parts += part.values() if isinstance(part, Mapping) else part
        if room < 0 or parts > _SHORT_MAX_PARTS:
            return False
    return True


def characters_in(value: object) -> int:
    total, parts = 0, [value]
    while parts:
        part = parts.pop()
        total += len(part) if isinstance(part, str) else _PART_CHARACTERS
        if isinstance(part, Mapping):
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
    return total
