"""What the journals of the last weeks hold for mining, read once: a journal that has not changed is not read again.

Kept in FORGE_HOME/cache/suggestions.json (0600), safe to delete; what cannot be read there counts as not kept. Only
journals that still stand count, so a deleted session is gone from suggestions at once, and from the file the next time.
Bounds: 30 days, 500 sessions, 64 MiB of journals at a time, 20,000 steps; what is newest comes first.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from golem_forge.config.home import ForgeHome
from golem_forge.custom.suggestions.reading import JournalTail, TurnReader
from golem_forge.custom.suggestions.steps import Segment, step_from_json
from golem_forge.events.session_files import is_held, list_journals

DAYS: Final = 30
DAY_S: Final = 86_400
MOST_SESSIONS: Final = 500
MOST_STEPS: Final = 20_000
MOST_READ: Final = 64 << 20
"""Bytes of journals in one look. The first look at many old ones leaves some for the next."""
_VERSION: Final = 1
_FOLDER: Final = "cache"
_NAME: Final = "suggestions.json"
_LARGEST: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    size: int
    changed: int
    segments: tuple[Segment, ...]

    def to_json(self) -> list[Any]:
        return [self.size, self.changed, [[step.to_json() for step in segment] for segment in self.segments]]


def recent(home: ForgeHome, *, without: str = "", now: float | None = None) -> tuple[Session, ...]:
    """Newest first. `without`: the session that looks, which knows its own turns better."""
    since = (time.time() if now is None else now) - DAYS * DAY_S
    known = _load(home)
    there: dict[str, _Kept] = {}
    budget = MOST_READ
    for path, stat in _journals(home, since, without):
        kept = known.get(path.stem)
        if kept is None or (kept.size, kept.changed) != (stat.st_size, stat.st_mtime_ns):
            budget -= stat.st_size
            if budget < 0:
                continue
            kept = _Kept(stat.st_size, stat.st_mtime_ns, _segments(path))
        there[path.stem] = kept
    if there != {id: kept for id, kept in known.items() if id != without}:
        _save(home, there)
    return tuple(_bounded(there))


def _journals(home: ForgeHome, since: float, without: str) -> Iterable[tuple[Path, os.stat_result]]:
    for path in list_journals(home.path)[:MOST_SESSIONS]:
        with contextlib.suppress(OSError):
            stat = path.stat()
            if stat.st_mtime >= since and path.stem != without:
                yield path, stat


def _segments(path: Path) -> tuple[Segment, ...]:
    """A session that is still at work may be in the middle of a turn."""
    turns = TurnReader()
    try:
        for record in JournalTail(path).records():
            turns.add(record)
    except OSError:
        return ()
    return turns.answered() if is_held(path) else turns.all()


def _bounded(there: dict[str, _Kept]) -> Iterable[Session]:
    room = MOST_STEPS
    for id, kept in there.items():
        room -= sum(map(len, kept.segments))
        if room < 0:
            return
        if kept.segments:
            yield Session(id, kept.segments)


def _load(home: ForgeHome) -> dict[str, _Kept]:
    try:
        fd = os.open(home.path / _FOLDER / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            told = json.loads(file.read(_LARGEST))
        if told["version"] != _VERSION:
            return {}
        return {str(id): _kept(entry) for id, entry in told["sessions"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _kept(entry: Any) -> _Kept:
    size, changed, segments = entry
    return _Kept(int(size), int(changed), tuple(tuple(map(step_from_json, segment)) for segment in segments))


def _save(home: ForgeHome, there: dict[str, _Kept]) -> None:
    """All or nothing; whoever cannot write reads the journals again the next time."""
    text = json.dumps(
        {"version": _VERSION, "sessions": {id: kept.to_json() for id, kept in there.items()}}, separators=(",", ":")
    )
    with contextlib.suppress(OSError, UnicodeError):
        folder = home.ensure(_FOLDER)
        new = folder / f".{_NAME}-{os.getpid()}-{os.urandom(4).hex()}"
        try:
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(text.encode())
            os.replace(new, folder / _NAME)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
