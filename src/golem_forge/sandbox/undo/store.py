"""ZoneStore: what is known of one zone's files, and the contents that could be lost, in FORGE_HOME/undo/<zone>/.

`table.db` (SQLite) has an entry for every file, link and directory that is not kept by git, the open calls (spans) with
the first state of each path that changed since they began, and where each content is. `packs/<n>` hold the contents,
one behind the other; one sync for each capture. All processes with this home share it: whoever looks at the zone or
writes here holds `locked()`.

Threats: a process that is killed in the middle (a content is synced before an entry names it; what a dead process had
open stays in the table, and `dead_spans` finds it); a content that was changed on disk (`content` compares its digest).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Any, Final, NamedTuple

from golem_forge.core.changes import PathKind, PathState
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.sandbox.handles import Handle, Parts, call_libc
from golem_forge.sandbox.process.monitor import process_stat
from golem_forge.sandbox.zones import zone_key
from golem_forge.storage.home import make_private_dir

FOLDER: Final = "undo"
_PACK_BYTES: Final = 256 << 20
_WRITE_OUT_BYTES: Final = 4 << 20
"""The disk begins to write after so much, while more is read. First capture of 5,000 files of 20 kB: the
sync at its end waits 18 ms, without this 68 ms, of 690 ms."""
_BEGIN_WRITE_OUT: Final = 2
"""SYNC_FILE_RANGE_WRITE; it does not wait, and promises nothing."""
_BUSY: Final = "busy"
PENDING: Final = "restore"
"""The name of the fact that holds the steps of a restore that is not finished."""
_COMMIT: Final = "commit:"
"""What a commit's id follows where others have the digest of a content."""
_GOES_ON: Final = "goes on"
_UNUSED: Final = 0.25
_ASKED_SINGLY: Final = 50
_ASKED_AT_ONCE: Final = 500
"""Past so many questions in a row all digests are read at once."""
_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE entries (
    path BLOB PRIMARY KEY, parent BLOB, kind TEXT, mode INTEGER, size INTEGER, digest TEXT, target BLOB, lost TEXT,
    ctime INTEGER, inode INTEGER, device INTEGER, links INTEGER, made_by TEXT
) WITHOUT ROWID;
CREATE INDEX entries_by_parent ON entries (parent);
CREATE INDEX entries_by_inode ON entries (inode) WHERE links > 1;
CREATE INDEX entries_lost ON entries (path) WHERE lost <> '';
CREATE TABLE contents (digest TEXT PRIMARY KEY, pack INTEGER, start INTEGER, size INTEGER) WITHOUT ROWID;
CREATE TABLE spans (
    id INTEGER PRIMARY KEY, session TEXT, call TEXT, label TEXT, facts TEXT, pid INTEGER, started INTEGER
);
CREATE TABLE span_changes (span INTEGER, path BLOB, before TEXT, others TEXT, PRIMARY KEY (span, path)) WITHOUT ROWID;
CREATE TABLE kept (session TEXT, digest TEXT, at INTEGER, PRIMARY KEY (session, digest)) WITHOUT ROWID;
"""


class Stamp(NamedTuple):
    """By what a path is known to be unchanged. A time of change of 0 equals no file's: it must be read again."""

    ctime: int
    inode: int
    device: int
    links: int
    size: int
    mode: int


@dataclass(frozen=True, slots=True)
class PathEntry:
    state: PathState
    stamp: Stamp
    made_by: str = ""
    """The session whose call made a file that did not exist before; empty: somebody else did, or changed it since."""


@dataclass(frozen=True, slots=True)
class Span:
    """A call that runs, or a process of it that goes on."""

    id: int
    session: str
    call: str
    label: str
    """How others name it: `exec_command (c7)`."""
    facts: dict[str, Any]
    """What its ChangeSet says besides the changes."""
    goes_on: bool = False
    """The call has ended, and a process of it has not."""


def as_bytes(parts: Parts) -> bytes:
    return os.fsencode("/".join(parts))


def as_parts(path: bytes) -> Parts:
    return tuple(os.fsdecode(path).split("/")) if path else ()


def is_busy(folder: Path) -> bool:
    """Whether a call or a restore is open, perhaps of a process that is gone; asked without opening the table."""
    return (folder / _BUSY).exists()


def find_content(home: Path, digest: str) -> bytes | None:
    """A content that is kept for any zone of this home; None: it is not, or not any more."""
    for store in all_stores(home) if digest else ():
        with contextlib.closing(store):
            if (data := store.content(digest)) is not None:
                return data
    return None


def all_stores(home: Path) -> Iterator[ZoneStore]:
    """Of every zone for which something is kept; whoever takes one closes it."""
    try:
        folders = sorted(entry.path for entry in os.scandir(home / FOLDER) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for folder in folders:
        if os.path.exists(os.path.join(folder, "table.db")):
            with contextlib.suppress(OSError, sqlite3.Error):
                yield ZoneStore(Path(folder))


def changing_sessions(home: Path, host: str) -> set[str]:
    """The ids of sessions that changed something in the zone at this directory, and for which it is still kept."""
    folder = zone_folder(home, os.path.realpath(host))
    if not (folder / "table.db").exists():
        return set()
    with contextlib.suppress(OSError, sqlite3.Error), contextlib.closing(ZoneStore(folder)) as store:
        return set(store.sessions())
    return set()


def zone_folder(home: Path, host: str) -> Path:
    return home / FOLDER / zone_key(host)


class ZoneStore:
    def __init__(self, folder: Path) -> None:
        """Raises OSError and sqlite3.Error: then nothing can be kept."""
        self.folder = folder
        make_private_dir(folder.parent)
        make_private_dir(folder)
        make_private_dir(folder / "packs")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = Handle(os.open(folder / "lock", flags, 0o600))
        self._mutex = RLock()
        self._depth = 0
        self._pack: tuple[int, int] | None = None
        self._writing: tuple[int, int] | None = None
        """The pack that is written to, and its descriptor."""
        self._reading: tuple[int, Handle] | None = None
        """The pack that was last read, as long as the lock is held: then nobody puts another one in its place."""
        self._new: dict[str, tuple[int, int, int]] = {}
        """Kept since the lock was taken: pack, place and size."""
        self.new_bytes = 0
        self._known: set[str] | None = None
        self._asked = 0
        self._unused: list[Path] = []
        """Packs that go once the table no longer names them on disk, too."""
        with self.locked():
            try:
                self._db = self._opened()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError) and "already exists" not in str(error):
                    raise
                self._set_aside()
                self._db = self._opened()

    def _set_aside(self) -> None:
        """A table that is none any more: what it named cannot be undone, what comes can."""
        for name in ("table.db", "table.db-wal", "table.db-shm", "index"):
            with contextlib.suppress(OSError):
                os.replace(self.folder / name, self.folder / f"{name}.damaged")
        for pack in (self.folder / "packs").iterdir():
            pack.unlink(missing_ok=True)

    def _opened(self) -> sqlite3.Connection:
        path = self.folder / "table.db"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA synchronous=OFF")  # an empty table that a power cut takes is made again
        db.execute("PRAGMA journal_mode=WAL")
        if db.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            db.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version={_VERSION};COMMIT;")
        db.execute("PRAGMA synchronous=NORMAL")
        return db

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process and thread at a time; what is written inside is there as a whole or not at all."""
        with self._mutex:
            if self._depth:
                yield
                return
            fcntl.flock(self._lock.fd, fcntl.LOCK_EX)
            self._depth += 1
            begun = hasattr(self, "_db")
            try:
                if begun:
                    self._db.execute("BEGIN")
                yield
                if begun:
                    self._sync()
                    self._db.execute("COMMIT")
                    unused, self._unused = self._unused, []
                    for file in unused:
                        file.unlink(missing_ok=True)
            except BaseException:
                if begun and self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                with contextlib.suppress(OSError):
                    self._end_writing()
                self._forget_new()
                self._unused.clear()
                self._pack = None
                raise
            finally:
                self._depth -= 1
                self._reading = None
                fcntl.flock(self._lock.fd, fcntl.LOCK_UN)

    # --- facts about the zone

    def get(self, name: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else ""

    def set(self, name: str, value: str) -> None:
        if self.get(name) != value:
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    # --- entries

    def entry(self, parts: Parts) -> PathEntry | None:
        row = self._db.execute(_SELECT + " WHERE path = ?", (as_bytes(parts),)).fetchone()
        return _entry(row)[1] if row else None

    def entries_at(self, paths: Collection[bytes]) -> dict[bytes, PathEntry | None]:
        """Of each path."""
        found: dict[bytes, PathEntry | None] = dict.fromkeys(paths)
        wanted = iter(paths)
        while some := list(islice(wanted, _ASKED_AT_ONCE)):
            marks = ",".join("?" * len(some))
            found.update(map(_entry, self._db.execute(f"{_SELECT} WHERE path IN ({marks})", some)))
        return found

    def entries(self, start: bytes = b"") -> Iterator[tuple[bytes, PathEntry]]:
        """All, or those below a directory, whose path ends with `/`."""
        for row in self._db.execute(f"{_SELECT} WHERE path >= ? AND path < ?", (start, _behind(start))):
            yield _entry(row)

    def children(self, parts: Parts) -> list[bytes]:
        """The paths of entries directly in a directory."""
        return [row[0] for row in self._db.execute("SELECT path FROM entries WHERE parent = ?", (as_bytes(parts),))]

    def below(self, parts: Parts) -> list[bytes]:
        start = as_bytes(parts) + b"/" if parts else b""
        found = self._db.execute("SELECT path FROM entries WHERE path >= ? AND path < ?", (start, _behind(start)))
        return [row[0] for row in found]

    def names_of(self, device: int, inode: int) -> list[bytes]:
        """The paths of entries that are this very file."""
        found = self._db.execute(
            "SELECT path FROM entries WHERE inode = ? AND device = ? AND links > 1", (inode, device)
        )
        return [row[0] for row in found]

    def has_files_below(self, parts: Parts) -> bool:
        start = as_bytes(parts) + b"/"
        query = "SELECT 1 FROM entries WHERE path >= ? AND path < ? AND kind IN ('file', 'link') LIMIT 1"
        return self._db.execute(query, (start, _behind(start))).fetchone() is not None

    def put(self, entries: Iterable[tuple[bytes, PathEntry]]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    path,
                    path.rpartition(b"/")[0],
                    one.state.kind.value,
                    one.state.mode,
                    one.state.size,
                    one.state.digest,
                    os.fsencode(one.state.target),
                    one.state.lost,
                    *one.stamp[:4],
                    one.made_by,
                )
                for path, one in entries
            ),
        )

    def drop(self, paths: Iterable[bytes]) -> None:
        self._db.executemany("DELETE FROM entries WHERE path = ?", ((path,) for path in paths))

    def clear_entries(self) -> None:
        self._db.execute("DELETE FROM entries")

    def lost_entries(self) -> list[tuple[bytes, PathEntry]]:
        query = _SELECT + " WHERE lost <> ''"
        return [_entry(row) for row in self._db.execute(query)]

    def kept_bytes(self) -> int:
        return self.new_bytes + int(self._db.execute("SELECT COALESCE(SUM(size), 0) FROM contents").fetchone()[0])

    # --- contents

    def has(self, digest: str) -> bool:
        if digest in self._new:
            return True
        self._asked += 1
        if self._asked > _ASKED_SINGLY and self._known is None:
            self._known = {row[0] for row in self._db.execute("SELECT digest FROM contents")}
        if self._known is not None:
            return digest in self._known
        return self._db.execute("SELECT 1 FROM contents WHERE digest = ?", (digest,)).fetchone() is not None

    def keep(self, data: bytes) -> str:
        """Its digest. The content is on disk for good when `locked()` ends. Raises OSError."""
        digest = sha256(data).hexdigest()
        if not self.has(digest):
            self._append(digest, data)
        return digest

    def _append(self, digest: str, data: bytes) -> None:
        pack, end = self._open_pack()
        if self._writing is None or self._writing[0] != pack:
            self._end_writing()
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._writing = (pack, os.open(self.folder / "packs" / str(pack), flags, 0o600))
        done = 0
        while done < len(data):
            done += os.pwrite(self._writing[1], data[done:] if done else data, end + done)
        self._new[digest] = (pack, end, len(data))
        self.new_bytes += len(data)
        self._pack = (pack, end + len(data))
        if end // _WRITE_OUT_BYTES != self._pack[1] // _WRITE_OUT_BYTES:
            with contextlib.suppress(OSError):  # some file systems cannot
                call_libc("sync_file_range", self._writing[1], 0, 0, _BEGIN_WRITE_OUT)

    def content(self, digest: str) -> bytes | None:
        """None: it is not there any more, or is not what it was."""
        row = self._new.get(digest)
        row = row or self._db.execute("SELECT pack, start, size FROM contents WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            return None
        pack, start, size = row
        reading = self._reading
        if reading is None or reading[0] != pack:
            try:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                reading = (pack, Handle(os.open(self.folder / "packs" / str(pack), flags)))
            except OSError:
                return None
            if self._depth:
                self._reading = reading
        data = os.pread(reading[1].fd, size, start)
        return data if sha256(data).hexdigest() == digest else None

    def _open_pack(self) -> tuple[int, int]:
        if self._pack is None:
            row = self._db.execute(
                "SELECT pack, MAX(start + size) FROM contents GROUP BY pack ORDER BY pack DESC"
            ).fetchone()
            self._pack = (row[0], row[1]) if row else (1, 0)
        if self._pack[1] > _PACK_BYTES:
            self._pack = (self._pack[0] + 1, 0)
        return self._pack

    def _sync(self) -> None:
        self._end_writing()
        rows = ((digest, *place) for digest, place in self._new.items())
        self._db.executemany("INSERT OR REPLACE INTO contents VALUES (?, ?, ?, ?)", rows)
        self._forget_new()

    def _end_writing(self) -> None:
        """One sync for all that was written to a pack."""
        writing, self._writing = self._writing, None
        if writing is not None:
            try:
                os.fdatasync(writing[1])
            finally:
                os.close(writing[1])

    def _forget_new(self) -> None:
        self._new, self.new_bytes, self._known, self._asked = {}, 0, None, 0

    # --- spans

    def open_span(self, session: str, call: str, label: str, facts: dict[str, Any]) -> Span:
        values = (session, call, label, json.dumps(facts), *own_process())
        cursor = self._db.execute(
            "INSERT INTO spans (session, call, label, facts, pid, started) VALUES (?, ?, ?, ?, ?, ?)", values
        )
        self.mark_busy()
        return Span(cursor.lastrowid or 0, session, call, label, facts)

    def spans(self) -> list[Span]:
        return [span for span, _ in self._spans_with_owner()]

    def dead_spans(self) -> list[Span]:
        """Those of processes that are gone."""
        return [span for span, owner in self._spans_with_owner() if not is_alive(*owner)]

    def _spans_with_owner(self) -> list[tuple[Span, tuple[int, int]]]:
        rows = self._db.execute("SELECT id, session, call, label, facts, pid, started FROM spans")
        return [
            (Span(row[0], row[1], row[2], row[3], facts, facts.pop(_GOES_ON, False)), (row[5], row[6]))
            for row in rows
            for facts in (json.loads(row[4]),)
        ]

    def note_changes(self, changed: Iterable[tuple[bytes, PathState]], spans: Iterable[Span]) -> None:
        """`changed`: each path with the state before. Of each span the first one counts."""
        spans = tuple(spans)
        others = {span.id: json.dumps([one.label for one in spans if one.id != span.id]) for span in spans}
        self._db.executemany(
            "INSERT INTO span_changes VALUES (?, ?, ?, ?) ON CONFLICT (span, path) DO UPDATE SET others = "
            "CASE WHEN others = '[]' THEN excluded.others ELSE others END",
            (
                (span, path, text, labels)
                for path, before in changed
                for text in (json.dumps(before.to_json()),)
                for span, labels in others.items()
            ),
        )

    def span_changes(self, span: Span) -> list[tuple[bytes, PathState, tuple[str, ...]]]:
        rows = self._db.execute(
            "SELECT path, before, others FROM span_changes WHERE span = ? ORDER BY path", (span.id,)
        )
        return [
            (path, PathState.from_json(json.loads(before)), tuple(json.loads(others))) for path, before, others in rows
        ]

    def let_go_on(self, span: Span) -> None:
        """What changed so far is in a change set; a process of the call goes on."""
        self._clear_span(span)
        said = json.dumps({**span.facts, _GOES_ON: True})
        self._db.execute("UPDATE spans SET facts = ? WHERE id = ?", (said, span.id))

    def close_span(self, span: Span) -> None:
        self._clear_span(span)
        self._db.execute("DELETE FROM spans WHERE id = ?", (span.id,))
        self.mark_idle()

    def _clear_span(self, span: Span) -> None:
        self._db.execute("DELETE FROM span_changes WHERE span = ?", (span.id,))

    def abandon_span(self, span: Span) -> None:
        """Its end could not be recorded: it counts as one of a process that is gone."""
        self._db.execute("UPDATE spans SET pid = 0 WHERE id = ?", (span.id,))

    def last_alive(self) -> int:
        """When a process with an open call was last seen alive, in nanoseconds of the files' clock."""
        try:
            return (self.folder / _BUSY).stat().st_mtime_ns
        except OSError:
            return 0

    def mark_alive(self) -> None:
        with contextlib.suppress(OSError):
            os.utime(self.folder / _BUSY)

    def mark_busy(self) -> None:
        """Something is open that a killed process would leave behind (`is_busy`)."""
        os.close(os.open(self.folder / _BUSY, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))

    def mark_idle(self) -> None:
        """Nothing is, if no call is open."""
        if not self.spans() and not self.get(PENDING):
            (self.folder / _BUSY).unlink(missing_ok=True)

    # --- what is kept for whom

    def keep_for(self, session: str, digests: Iterable[str], at: int) -> None:
        """The contents that a session's change sets name; an empty one is that of a link, a directory or nothing."""
        self._db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", ((session, one, at) for one in digests))

    def keep_commits_for(self, session: str, ids: Iterable[str], at: int) -> None:
        """The commits that refs left, and that git has as long as we name them."""
        self.keep_for(session, (_COMMIT + one for one in ids), at)

    def sessions(self) -> dict[str, int]:
        """Session → when it last changed something."""
        return dict(self._db.execute("SELECT session, MAX(at) FROM kept GROUP BY session"))

    def forget_session(self, session: str) -> frozenset[str]:
        """The commits that are kept for no other."""
        rows = self._db.execute(
            "SELECT digest FROM kept WHERE session = ? AND digest LIKE ?"
            " AND digest NOT IN (SELECT digest FROM kept WHERE session <> ?)",
            (session, _COMMIT + "%", session),
        ).fetchall()
        self._db.execute("DELETE FROM kept WHERE session = ?", (session,))
        return frozenset(row[0].removeprefix(_COMMIT) for row in rows)

    def collect(self, *, every_byte: bool = False) -> int:
        """Removes contents that nothing names any more. Packs of which a quarter is unused are written anew, with
        `every_byte` all that have anything unused. Bytes that are still kept."""
        self._db.execute(
            "DELETE FROM contents WHERE digest NOT IN (SELECT digest FROM entries UNION SELECT digest FROM kept)"
            " AND NOT EXISTS (SELECT 1 FROM span_changes)"
        )
        used = {row[0] for row in self._db.execute("SELECT DISTINCT pack FROM contents")}
        self._pack = None
        for file in (self.folder / "packs").iterdir():
            if file.name.isdigit() and int(file.name) not in used:
                self._unused.append(file)
        self._compact(0 if every_byte else _UNUSED)
        return self.kept_bytes()

    def _compact(self, unused: float) -> None:
        """Moves what is left of packs with a larger part unused into a new one."""
        rows = self._db.execute("SELECT pack, SUM(size) FROM contents GROUP BY pack").fetchall()
        for pack, live in rows:
            file = self.folder / "packs" / str(pack)
            size = file.stat().st_size
            if size - live <= size * unused:
                continue
            left = self._db.execute("SELECT digest FROM contents WHERE pack = ?", (pack,)).fetchall()
            last = self._db.execute("SELECT MAX(pack) FROM contents").fetchone()[0]
            self._pack = (last + 1, 0)
            for (digest,) in left:
                data = self.content(digest)
                self._db.execute("DELETE FROM contents WHERE digest = ?", (digest,))
                if data is not None:
                    self._append(digest, data)
            self._sync()
            self._unused.append(file)


_SELECT: Final = (
    "SELECT path, kind, mode, size, digest, target, lost, ctime, inode, device, links, made_by FROM entries"
)


def _behind(start: bytes) -> bytes:
    """What sorts behind all paths that begin so; `start` ends with `/`, or is empty."""
    return start[:-1] + b"0" if start else b"\xff" * 9


def _entry(row: tuple[Any, ...]) -> tuple[bytes, PathEntry]:
    path, kind, mode, size, digest, target, lost, ctime, inode, device, links, made_by = row
    state = PathState(PathKind(kind), mode, digest, size, os.fsdecode(target), lost)
    return path, PathEntry(state, Stamp(ctime, inode, device, links, size, mode), made_by)


def own_process() -> tuple[int, int]:
    """By which others know whether this process lives: its id, and when it began."""
    me = process_stat(os.getpid())
    return os.getpid(), me.started if me else 0


def is_alive(pid: int, started: int) -> bool:
    if not pid:
        return False
    facts = process_stat(pid)
    return facts is not None and facts.alive and facts.started == started
