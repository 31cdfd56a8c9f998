"""Mirrors: sessions of the store as files, and files as sessions of the store; the same lines and the same chain.

`mirrored` brings the journal of one session into a folder of this home and gives that folder: everything that reads
journals by path (`forge log`, `verify`, `sessions show`, export) reads it there, as a home of its own. Only what is
missing is fetched. A session that has ended also gets its anchor, from its row: a line that was cut from the database
is seen. `mirror_all` does so for a list of them, and deletes the copies of sessions that were pruned (`drop_pruned`);
`verify_sessions` checks every journal of the store in that way, one after the other.

`copy_sessions` puts the recorded sessions of this home into the store, with their outputs. They have ended there:
nobody goes on with them. A session that runs now, a damaged one and one that is there already are passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.recorded_sessions import delete_session
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.index import SessionIndex, SessionSummary
from golem_forge.events.journal_files import (
    Anchor,
    SessionInUse,
    SessionNotFound,
    is_locked,
    journal_path,
    list_journals,
    read_anchor,
    sessions_dir,
    write_anchor,
)
from golem_forge.events.journal_records import JournalProblem, Verification, verify
from golem_forge.orchestrator.bound_output import ARCHIVED_PIECE
from golem_forge.storage.home import make_private_dir, replacing
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.journal import check_line
from golem_forge.team.people import TeamStore
from golem_forge.team.rows import ENDED, FINISHED, STOPPED, WAS_PRUNED, RecordedSession, StoredSession
from golem_forge.team.store import Store

_FOLDER: Final = ("state", "shared")
_OUTPUT_INDEX: Final = "index.jsonl"
_TAIL_BYTES: Final = 4 * 1024 * 1024
_ALL: Final = 1_000_000


def mirror_home(address: str, home: Path) -> Path:
    """The folder of this store's copies. Another store has another one."""
    return home.joinpath(*_FOLDER, sha256(address.encode()).hexdigest()[:16])


def mirrored(store: Store | TeamStore, home: Path, row: StoredSession, address: str = "") -> Path:
    """Fetches what the copy of this session does not have; gives the folder to read it from. `address`: of a store
    without a database here. Raises TeamError: the whole journal holds host paths, which not everybody may see."""
    place = mirror_home(_name_of(store, address), home)
    make_private_dir(sessions_dir(place))
    path = journal_path(place, row.id)
    count = _lines_in_common(store, row.id, path)
    if not count or store.lines(row.id, count, limit=1, private=True):
        with replacing(path, durable=False) as file:  # two that look at once write the same file
            if count:
                with path.open("rb") as before:
                    shutil.copyfileobj(before, file)
            _fetch(store, row.id, count, file)
    if row.state in ENDED and row.lines:
        write_anchor(path, Anchor(row.lines, row.hash))
    return place


def mirror_all(store: Store | TeamStore, home: Path, rows: Iterable[StoredSession], address: str) -> Path:
    """Copies sessions like `mirrored`, for lists: a session that had ended when it was copied is not read again. Copies
    of pruned sessions are removed.
    """
    place = mirror_home(_name_of(store, address), home)
    make_private_dir(sessions_dir(place))
    rows = list(rows)
    drop_pruned(store, home, address, {row.id for row in rows})
    for row in rows:
        path = journal_path(place, row.id)
        if row.state not in ENDED or not path.exists() or read_anchor(path) != Anchor(row.lines, row.hash):
            mirrored(store, home, row, address)
    return place


def drop_pruned(store: Store | TeamStore, home: Path, address: str = "", known: Iterable[str] = ()) -> None:
    """Deletes copies of sessions that were deleted after their retention. `known`: the store has these. Raises
    TeamError.

    A store that was restored from a backup lacks sessions too: their copies are all that is left of them, and stay.
    Threat: a team's server that lies; what it says deletes nothing here."""
    if store.database is None:
        return
    place = mirror_home(_name_of(store, address), home)
    if copies := {path.stem for path in list_journals(place)} - set(known):
        for session_id in copies - {row.id for row in store.sessions(limit=_ALL)}:
            with contextlib.suppress(SessionNotFound, SessionInUse):  # another one deletes it
                if _was_pruned(store, session_id):
                    delete_session(place, session_id)


def _was_pruned(store: Store | TeamStore, session_id: str) -> bool:
    try:
        store.find(session_id)
    except StoreUnavailable:
        raise
    except TeamError as error:
        return WAS_PRUNED in error.message
    return False


def mirror_homes(home: Path) -> list[Path]:
    """The folders of all stores of which there are copies here."""
    return [each for each in sorted(home.joinpath(*_FOLDER).glob("*")) if sessions_dir(each).is_dir()]


def _name_of(store: Store | TeamStore, address: str) -> str:
    return store.database.shown if store.database is not None else address


def _fetch(store: Store | TeamStore, session_id: str, count: int, file: Any) -> None:
    while page := store.lines(session_id, count, private=True):
        for number, line in page:
            check_line(session_id, number, count + 1, line)
            file.write(line)
            count = number


def _lines_in_common(store: Store | TeamStore, session_id: str, path: Path) -> int:
    """The number of lines of the copy, if its last one is the store's line of that number; else 0: it is made anew."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            last = file.read().splitlines(keepends=True)[-1]
        number = int(json.loads(last)["n"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return 0
    found = store.lines(session_id, number - 1, limit=1, private=True)
    return number if found == [(number, last)] else 0


def verify_sessions(
    store: Store | TeamStore, address: str = "", rows: Iterable[StoredSession] | None = None
) -> Iterator[tuple[StoredSession, Verification]]:
    """Verifies those sessions, or every one that has a journal, and yields the results; fetches them anew, whatever
    copies there are. `address`: as for `mirrored`. Raises TeamError.
    """
    with tempfile.TemporaryDirectory(prefix="forge-verify-") as folder:
        for row in _every_row(store) if rows is None else rows:
            found = _verify_one(store, Path(folder), row, address)
            if not found.ok and row.state not in ENDED:  # it may have ended meanwhile
                row = store.find(row.id)
                found = _verify_one(store, Path(folder), row, address)
            if found.lines or row.lines:
                yield row, found


def _every_row(store: Store | TeamStore) -> Iterator[StoredSession]:
    for digit in "0123456789abcdef":  # so that not all rows are held at once
        yield from store.sessions(prefix=digit, limit=_ALL)


def _verify_one(store: Store | TeamStore, folder: Path, row: StoredSession, address: str) -> Verification:
    path = journal_path(mirror_home(_name_of(store, address), folder), row.id)
    try:
        mirrored(store, folder, row, address)
        return verify(path)
    except StoreUnavailable:
        raise
    except TeamError as error:
        if error.code in ("ROLE", "NOT_A_PERSON"):
            raise
        # a line is missing in the middle
        return Verification(ok=False, lines=1, problems=[JournalProblem(1, error.message)], notes=[])
    finally:
        path.unlink(missing_ok=True)


# ---- into the store


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    session: str
    lines: int
    passed_over: str = ""
    """Why it was not copied."""


def copy_sessions(store: Store, home: Path, person: str) -> Iterator[Copied]:
    """One after the other, the oldest first. Raises TeamError."""
    if not sessions_dir(home).is_dir():
        return
    index = SessionIndex(home)
    anchors = index.anchors()
    for summary in reversed(index.sessions(limit=_ALL)):
        path = journal_path(home, summary.id)
        if is_locked(path):
            yield Copied(session=summary.id, lines=0, passed_over="it runs now")
            continue
        found = verify(path, anchors.get(summary.id))
        if not found.ok:
            yield Copied(
                session=summary.id, lines=0, passed_over="its journal is damaged; `forge log verify` says where"
            )
            continue
        with path.open("rb") as file:
            lines = (line for line in file if line.endswith(b"\n"))
            added = store.add_recorded(_recorded(summary, person), lines, _outputs(home / "output" / summary.id))
        yield Copied(session=summary.id, lines=added, passed_over="" if added else "it is in the store already")


def _recorded(summary: SessionSummary, person: str) -> RecordedSession:
    return RecordedSession(
        id=summary.id,
        state=FINISHED if summary.closed else STOPPED,
        worker=summary.worker,
        model=summary.model,
        title=summary.input[:200],
        person=person,
        created=_seconds(summary.created),
        ended=_seconds(summary.updated),
    )


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text).timestamp()
    return 1.0


def _outputs(folder: Path) -> Iterator[tuple[str, str, int, bytes]]:
    """(handle, worker, number of the piece, its bytes) of what a session kept."""
    with contextlib.suppress(OSError, ValueError), (folder / _OUTPUT_INDEX).open(encoding="utf-8") as index:
        for line in index:
            entry = json.loads(line)
            handle, worker = str(entry["handle"]), str(entry["worker"])
            path = folder / handle
            if "/" not in handle and path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    for number, piece in enumerate(iter(partial(file.read, ARCHIVED_PIECE), b"")):
                        yield handle, worker, number, piece
