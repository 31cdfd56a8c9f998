"""A recorded session as one text: Markdown for people, or one JSON document for programs.

Takes the recorded events and what the index knows of the session; gives the text in pieces, so that a long session
needs no memory. Runs nothing and records nothing. The journal is redacted already; `clean` redacts once more, for
secrets that became known later.

Threat: every text in it comes from a model, a tool or a file. In Markdown such a text stands in a quotation or inside a
fence that is longer than any in it, so it cannot pass for a heading of the export.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from golem_forge.core.json import compact_json, valid_unicode
from golem_forge.core.regex import regex
from golem_forge.core.text import duration, escape_control_chars_in_prose, local_minute, one_line, shorten_middle
from golem_forge.events.index import SessionSummary
from golem_forge.events.serialization import Event

FORMATS: Final = ("markdown", "json")
SUFFIXES: Final = {".md": "markdown", ".markdown": "markdown", ".json": "json"}
MEDIA_TYPES: Final = {"markdown": "text/markdown", "json": "application/json"}
_MAX_SHOWN: Final = 4_000
"""So many characters of a tool's arguments and of its result stand in Markdown; JSON has all."""
_FENCES: Final = regex(r"`{3,}")
_TEXT_KEYS: Final = ("content", "text", "output", "stdout")
"""Where a result keeps its text, by its kind."""

Clean = Callable[[str], str]


def format_of(name: str) -> str:
    """By the suffix of a file's name: `json` for .json, else `markdown`."""
    dot = name.rfind(".")
    return SUFFIXES.get(name[dot:].lower(), "markdown") if dot >= 0 else "markdown"


def export_session(
    session: SessionSummary, title: str, events: Iterable[Event], format: str, clean: Clean = str
) -> Iterator[str]:
    """`format`: one of FORMATS."""
    pieces = _json_pieces if format == "json" else _markdown_pieces
    for piece in pieces(session, title, events):
        yield valid_unicode(clean(piece))


def _json_pieces(session: SessionSummary, title: str, events: Iterable[Event]) -> Iterator[str]:
    facts = {
        "id": session.id,
        "title": title,
        "created": session.created,
        "updated": session.updated,
        "worker": session.worker,
        "model": session.model,
    }
    yield f'{json.dumps(facts)[:-1]}, "events": ['
    between = "\n"
    for event in events:
        yield f"{between}{event.to_json()}"
        between = ",\n"
    yield "\n]}\n"


def _markdown_pieces(session: SessionSummary, title: str, events: Iterable[Event]) -> Iterator[str]:
    yield f"# {_inline(title or 'Session')}\n\n"
    yield f"- Session: `{session.id}`\n- Started: {local_minute(session.created)}\n"
    if session.worker:
        yield f"- Worker: {_inline(session.worker)}\n- Model: {_inline(session.model or 'none')}\n"
    names: dict[str, str] = {}
    for event in events:
        write = _SECTIONS.get(event.type)
        if event.type == "workerUpdate":
            names[str(event.wire.get("workerId", ""))] = str(event.wire.get("name", ""))
        elif write is not None and (section := write(event.wire, names.get(event.worker_id) or session.worker)):
            yield f"\n{section}\n"


def _message(wire: Mapping[str, Any], worker: str) -> str:
    message = wire.get("message")
    if not isinstance(message, Mapping):
        return ""
    role, said = message.get("role"), _visible(str(message.get("content", "")))
    if role not in ("user", "assistant") or not said.strip():
        return ""
    by = f" {_inline(str(message['by']))}" if message.get("by") else ""
    who = f"Person{by}" if role == "user" else f"Worker {_inline(worker or 'main')}"
    return f"## {who}\n\n{_quoted(said)}"


def _tool_result(wire: Mapping[str, Any], worker: str) -> str:
    took = wire.get("durationMs")
    time = f", {duration(took)}" if isinstance(took, int | float) else ""
    by = " by the person" if wire.get("caller") == "human" else ""
    parts = [f"### Call{by}: {_inline(str(wire.get('toolName', '')))} ({_inline(str(wire.get('status', '')))}{time})"]
    if args := wire.get("args"):
        parts.append(_fenced(_pretty(args), "json"))
    if error := wire.get("error"):
        words = error.get("message", "") if isinstance(error, Mapping) else error
        parts.append(_quoted(_visible(str(words))))
    elif text := _result_text(wire.get("value")):
        parts.append(_fenced(text))
    return "\n\n".join(parts)


def _compacted(wire: Mapping[str, Any], worker: str) -> str:
    return f"*The history was condensed: {wire.get('before', 0)} tokens before, {wire.get('after', 0)} after.*"


def _status(wire: Mapping[str, Any], worker: str) -> str:
    return _quoted(f"Error: {_visible(str(wire.get('message', '')))}") if wire.get("type") == "error" else ""


_SECTIONS: Final[Mapping[str, Callable[[Mapping[str, Any], str], str]]] = {
    "message": _message,
    "toolResult": _tool_result,
    "contextCompacted": _compacted,
    "status": _status,
}


def _result_text(value: Any) -> str:
    if isinstance(value, Mapping):
        texts = [value[key] for key in _TEXT_KEYS if isinstance(value.get(key), str)]
        return str(texts[0]) if texts else _pretty(value)
    return value if isinstance(value, str) else "" if value is None else _pretty(value)


def _pretty(value: Any) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return compact_json(str(value))


def _fenced(text: str, language: str = "") -> str:
    shown = _visible(shorten_middle(text, _MAX_SHOWN, "\n… (cut; the JSON export has all) …\n")).rstrip("\n")
    longest = max((len(found.group()) for found in _FENCES.finditer(shown)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _inline(text: str) -> str:
    return one_line(text).replace("`", "'").replace("<", "&lt;")


def _visible(text: str) -> str:
    return escape_control_chars_in_prose(text)
