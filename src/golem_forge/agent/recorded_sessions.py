"""Recorded sessions: exported as text, listed, given a title, replayed, deleted.

`forge sessions list` and `/sessions` show the same table; the index may have journals to read, so listing can take a
moment. Nothing but a title and a deletion changes anything: no list, export or replay calls a tool, emits an event or
writes a record.

    for event in replay("last"):
        print(event.type, event.data)
    bus.replay(replay(runtime))

`replay` works on closed, crashed and running sessions. It raises SessionNotFound or SessionAmbiguous, and ForgeError at
a record that is not an event.

A title is what a person called a session, else the first words of its first message. `rename_session` keeps it in
`<id>.title` beside the journal: the chain of records stays as it is, and a running session can be named too.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.budget import cost_of, price_of
from golem_forge.agent.model.interface import TokenUsage
from golem_forge.config.run_block import RunSettings
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.json import compact_json, valid_unicode
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.regex import regex
from golem_forge.core.text import (
    cost_text,
    display_path,
    duration,
    escape_control_chars_in_prose,
    local_minute,
    one_line,
    shorten,
    shorten_middle,
)
from golem_forge.events.index import SessionIndex, SessionSummary, find_session
from golem_forge.events.journal_files import (
    SessionNotFound,
    anchor_path,
    is_locked,
    journal_path,
    open_locked,
    sessions_dir,
)
from golem_forge.events.journal_records import events_after, read
from golem_forge.events.serialization import Event
from golem_forge.storage.home import ForgeHome, forge_home, read_private, write_private

FORMATS: Final = ("markdown", "json")
SUFFIXES: Final = {".md": "markdown", ".markdown": "markdown", ".json": "json"}
MEDIA_TYPES: Final = {"markdown": "text/markdown", "json": "application/json"}
_MAX_SHOWN: Final = 4_000
"""Maximum characters of a tool's arguments and of its result in Markdown; JSON has all."""
_FENCES: Final = regex(r"`{3,}")
_TEXT_KEYS: Final = ("content", "text", "output", "stdout")
"""Keys that hold the text of a result, depending on its kind."""

Clean = Callable[[str], str]


def format_of(name: str) -> str:
    """Returns the format by the suffix of a file's name: `json` for .json, else `markdown`."""
    dot = name.rfind(".")
    return SUFFIXES.get(name[dot:].lower(), "markdown") if dot >= 0 else "markdown"


def export_session(
    session: SessionSummary, title: str, events: Iterable[Event], format: str, clean: Clean = str
) -> Iterator[str]:
    """One text in pieces, so that a long session needs no memory: Markdown for people, or one JSON document for
    programs. `format`: one of FORMATS. The journal is redacted already; `clean` redacts once more, for secrets that
    became known later.

    Threat: every text in it comes from a model, a tool or a file. In Markdown such a text stands in a quotation or
    inside a fence that is longer than any in it, so it cannot pass for a heading of the export.
    """
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


TABLE_HEAD: Final = ("SESSION", "STARTED", "LAST", "STATE", "WORKER", "MODEL", "COST", "DIRECTORY", "TITLE")
MAX_LISTED: Final = 20
MAX_TITLE: Final = 200
_MAX_TITLE_BYTES: Final = 4 * MAX_TITLE
_TITLE_SUFFIX: Final = ".title"
_HERE: Final = "."
_ID_SHOWN: Final = 12
_DAY: Final = len("2026-11-15")
_WIDTH: Final = 100
_GAP: Final = 2
_GAPS: Final = _GAP * (len(TABLE_HEAD) - 1)
_COST: Final = TABLE_HEAD.index("COST")
_NONE: Final = "-"
_NARROWEST: Final = {4: 6, 5: 10, 7: 9, 8: 12}
"""Column → the width to which it may be cut so that a row fits."""
_CUT_AT_START: Final = frozenset({5, 7})
"""Models and directories: their ends tell one from another."""


def listed_sessions(home: Path, *, everything: bool = False, limit: int = MAX_LISTED) -> list[SessionSummary]:
    """`everything`: those in which no model was asked anything, too (single calls, starts that failed)."""
    index = SessionIndex(home)
    return (index.sessions(limit=limit) if everything else index.conversations(limit=limit))[::-1]


def spent_by_worker(
    journal: Path, root: tuple[str, str], settings: RunSettings
) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the usage by worker and model. A request without a known price then is priced as of now. `root`: name and
    model of the root worker, for what no record names."""
    names: dict[str, tuple[str, str]] = {}
    spent: dict[tuple[str, str], dict[str, Any]] = {}
    for event in replay(journal):
        wire = event.wire
        if event.type == "workerUpdate":
            names[str(wire.get("workerId"))] = (str(wire.get("name", "")), str(wire.get("model", "")))
        elif event.type == "usageUpdated":
            who = names.get(str(wire.get("workerId")), root)
            one = spent.setdefault(who, {"input": 0, "cached": 0, "output": 0, "cost": 0.0})
            for name in ("input", "cached", "output"):
                one[name] += wire.get(name) or 0
            price = price_of(who[1], settings.models, settings.pricing)
            counted = {name: wire.get(name) or 0 for name in ("input", "output", "cached")}
            cost = wire.get("cost") if wire.get("cost") is not None else cost_of(TokenUsage(**counted), price)
            one["cost"] = None if cost is None or one["cost"] is None else one["cost"] + cost
            one["prices"] = price.source if price is not None else ""
    return spent


def priced_sessions(
    home: Path, sessions: Sequence[SessionSummary], settings: Callable[[], RunSettings]
) -> list[SessionSummary]:
    """The same sessions; one whose cost was not known has it if its prices are known by now. `settings` is asked only
    where such a one is listed."""
    waiting = [each for each in sessions if each.cost is None and each.talked and each.model]
    if all(each.model.startswith("scripted:") for each in waiting):
        return list(sessions)
    try:
        known = settings()
    except ConfigError:  # a list needs no configuration
        return list(sessions)
    return [_priced(home, each, known) if each in waiting else each for each in sessions]


def _priced(home: Path, session: SessionSummary, settings: RunSettings) -> SessionSummary:
    if price_of(session.model, settings.models, settings.pricing) is None:
        return session
    try:
        spent = spent_by_worker(journal_path(home, session.id), (session.worker, session.model), settings).values()
    except (OSError, ForgeError):  # it was deleted meanwhile
        return session
    if not spent or any(one["cost"] is None for one in spent):
        return session
    prices = ", ".join(sorted({one["prices"] for one in spent} - {""}))
    return replace(session, cost=sum(one["cost"] for one in spent), prices=prices)


def session_state(home: Path, session: SessionSummary) -> str:
    if is_locked(journal_path(home, session.id)):
        return "running"
    return "closed" if session.closed else "not closed"


def session_titles(home: Path) -> dict[str, str]:
    """Returns the titles that people gave, by session id. An unreadable file gives none."""
    given = {}
    for path in sessions_dir(home).glob(f"*{_TITLE_SUFFIX}"):
        try:
            text = read_private(path, _MAX_TITLE_BYTES).decode()
        except (OSError, ValueError):
            continue
        if title := _clean_title(text):
            given[path.stem] = title
    return given


def session_title(session: SessionSummary, given: Mapping[str, str]) -> str:
    """`given`: as `session_titles` gives them. Empty while nothing was said."""
    return given.get(session.id) or session.input


def rename_session(home: Path, session_id: str, title: str) -> str:
    """Keeps the title and returns it as it is shown; an empty one takes the old one back. Raises SessionNotFound."""
    journal = journal_path(home, session_id)
    if not journal.is_file():
        raise SessionNotFound(session_id)
    path, clean = journal.with_suffix(_TITLE_SUFFIX), _clean_title(title)
    if clean:
        write_private(path, clean.encode())
    else:
        path.unlink(missing_ok=True)
    return clean


def _clean_title(text: str) -> str:
    """One line of visible characters, cut at the bound. Threat: a title is drawn in terminals and on pages."""
    return shorten(one_line(valid_unicode(" ".join(text[: 10 * MAX_TITLE].split()))), MAX_TITLE)


def session_row(session: SessionSummary, state: str, root: Path | str, title: str = "") -> tuple[str, ...]:
    """`root`: the program that asks; its own directory is `.`, and what `last` means is the last of those."""
    return (
        session.id[:_ID_SHOWN],
        local_minute(session.created),
        _last(local_minute(session.created), local_minute(session.updated)),
        state,
        session.worker or "-",
        session.model or "-",
        cost_text(session.cost, session.prices) if session.cost is not None else "-",
        _HERE if session.root == str(root) else display_path(session.root) or "-",
        title or session.input,
    )


def session_table(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows below their head, in cells of which each row fits a terminal of 100 columns: the widest give way. There
    is no column of costs where none is known."""
    table = [tuple(one_line(cell) for cell in row) for row in (TABLE_HEAD, *rows)]
    costs = any(row[_COST] != _NONE for row in table[1:])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    room = _WIDTH if costs else _WIDTH + widths[_COST] + _GAP
    while sum(widths) + _GAPS > room:
        wide = [at for at, least in _NARROWEST.items() if widths[at] > least]
        if not wide:
            break
        widths[max(wide, key=lambda at: widths[at])] -= 1
    return [
        tuple(
            _cut(cell, width, at)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            if costs or at != _COST
        )
        for row in table
    ]


def _last(started: str, last: str) -> str:
    """Returns the last time; without its date if it is the same day."""
    return last[_DAY + 1 :] if started[:_DAY] == last[:_DAY] else last[_DAY - 5 :]


def _cut(cell: str, width: int, column: int) -> str:
    if len(cell) > width and column in _CUT_AT_START:
        return f"…{cell[len(cell) - width + 1 :]}"
    return shorten(cell, width)


def replay(
    session: Any, *, home: ForgeHome | Path | str | None = None, after: int = 0, limit: int | None = None
) -> Iterator[Event]:
    """The events with a number above `after`, in order; at most `limit`.

    `session`: the path of a journal, an id or the beginning of one, `last`, or a Session or WorkerRuntime that runs.
    `home`: where ids are looked for, instead of FORGE_HOME.
    """
    return _recorded_events(_journal_of(session, home), after, limit)


def replay_thoughts(session: Any, *, home: ForgeHome | Path | str | None = None) -> dict[int, list[tuple[str, str]]]:
    """Number of an event → what models thought right after it: the id of the worker, and its words. No event has them;
    they are part of the history."""
    found: dict[int, list[tuple[str, str]]] = {}
    last = 0
    for record in read(_journal_of(session, home)):
        last = record.get("seq") or last
        message = record.get("message") if record.get("type") == "history" else None
        if isinstance(message, dict) and (thinking := message.get("thinking")):
            found.setdefault(last, []).append((str(record.get("workerId", "")), str(thinking)))
    return found


def _journal_of(session: Any, home: ForgeHome | Path | str | None) -> Path:
    """Returns the path of a session's journal. Raises TypeError for anything that names no session."""
    if (book := getattr(session, "journal", None)) is not None:
        book.flush()
        session = book.path
    if not isinstance(session, (str, Path)):
        raise TypeError(
            f"replay takes the path of a journal, a session's id or a session with a journal, not {session!r}"
        )
    if isinstance(session, Path) or session.endswith(".jsonl"):
        path = Path(session)
        if not path.is_file():
            raise SessionNotFound(str(session))
        return path
    folder = home.path if isinstance(home, ForgeHome) else Path(home) if home is not None else forge_home().path
    path = journal_path(folder, session)
    return path if path.is_file() else journal_path(folder, find_session(folder, session).id)


def _recorded_events(path: Path, after: int, limit: int | None) -> Iterator[Event]:
    seen = after
    try:
        for event in events_after(path, after, limit):
            seen = event.seq
            yield event
    except (KeyError, TypeError, AttributeError):
        raise ForgeError(
            f"session {path.stem}: the line after event {seen} is not a record of Forge; "
            f"`forge log verify {path.stem[:12]}` names the line",
            code="JOURNAL_DAMAGED",
        ) from None


def delete_session(home: Path, session_id: str) -> None:
    """Removes journal, `.head`, `.title`, `.files`, stored outputs, undo states and the index entry. Raises
    SessionNotFound, and SessionInUse while a process writes the session. The journal goes last and stays locked until
    then, so an interrupted deletion can be repeated and nobody resumes half a session."""
    journal = journal_path(home, session_id)
    lock = open_locked(journal, session_id)
    try:
        _remove(journal.with_suffix(".files"))
        _remove(home / "output" / session_id)
        head = anchor_path(journal)
        title = journal.with_suffix(_TITLE_SUFFIX)
        for path in (title, head, *head.parent.glob(f".{head.name}-*.tmp"), head.with_suffix(".head.new"), journal):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise ForgeError(f"session {session_id} could not be deleted completely: {error.strerror}") from error
    finally:
        os.close(lock)
    if (home / "undo").exists():
        from golem_forge.sandbox.undo.restore import forget_session  # loads SQLite

        forget_session(home, session_id)
    SessionIndex(home).refresh()


def _remove(path: Path) -> None:
    """A directory with all in it. A link is removed, never followed."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
