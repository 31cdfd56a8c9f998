"""Rings: how a process hears that another one changed the store. A ring may be lost; a sweep finds what it told.

SQLite: a thread looks at the file's version, 20 times a second (one page of a memory-mapped file). PostgreSQL: a
connection that listens. Both call `ring` on their thread, with the id of the session that it is about; empty: anything
may have changed, and SQLite never says more. What is said on `channels` (PostgreSQL only) is not a ring:
`heard(channel, what)` is given it. A set of channels may change while it is listened to; a change counts within half a
second.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from typing import Final, Protocol

from golem_forge.team.database import Database, PostgresDatabase, SqliteDatabase
from golem_forge.team.people import TeamStore
from golem_forge.team.rows import CHANNEL
from golem_forge.team.store import Store

_LOOK_S: Final = 0.05
_LOOK_REMOTE_S: Final = 0.5
_RETRY_S: Final = 1.0


class Rings(Protocol):
    def close(self) -> None: ...


Ring = Callable[[str], None]
Heard = Callable[[str, str], None]


def listen(store: Store | TeamStore, ring: Ring, channels: Collection[str] = (), heard: Heard | None = None) -> Rings:
    database: Database | None = store.database
    if database is None:  # the store of a team, through its page
        return _TimedRings(ring).start()
    if isinstance(database, SqliteDatabase):
        return _FileRings(database, ring).start()
    assert isinstance(database, PostgresDatabase)
    return _ListenRings(database, ring, channels, heard).start()


class _RingThread:
    """A thread that looks until it is closed."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forge-rings", daemon=True)

    def start(self) -> Rings:
        self._thread.start()
        return self

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=2)

    def _run(self) -> None:
        """Until `_closing` is set."""
        raise NotImplementedError


class _TimedRings(_RingThread):
    """Rings twice a second, whether or not anything changed."""

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_REMOTE_S):
            self._ring("")


class _FileRings(_RingThread):
    def __init__(self, database: SqliteDatabase, ring: Ring) -> None:
        super().__init__(ring)
        self._database = database

    def _run(self) -> None:
        connection = None
        before = -1
        while not self._closing.wait(_LOOK_S):
            try:
                connection = connection or self._database.connect()
                version = connection.version()
            except Exception:
                connection = None
                self._closing.wait(_RETRY_S)
                continue
            if version != before:
                before = version
                self._ring("")
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()


class _ListenRings(_RingThread):
    def __init__(self, database: PostgresDatabase, ring: Ring, channels: Collection[str], heard: Heard | None) -> None:
        super().__init__(ring)
        self._database = database
        self._channels = channels
        self._heard = heard

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                connection = self._database.connect()
                try:
                    connection.raw.execute(f"LISTEN {CHANNEL}")
                    known: frozenset[str] = frozenset()
                    self._ring("")  # what changed while nobody listened
                    while not self._closing.is_set():
                        wanted = frozenset(self._channels)
                        for channel in wanted - known:
                            connection.raw.execute(f"LISTEN {_quoted(channel)}")
                        for channel in known - wanted:
                            connection.raw.execute(f"UNLISTEN {_quoted(channel)}")
                        known = wanted
                        for notice in connection.raw.notifies(timeout=0.5, stop_after=1):
                            if notice.channel in known and self._heard is not None:
                                self._heard(notice.channel, notice.payload)
                            else:
                                self._ring(notice.payload)
                finally:
                    connection.close()
            except Exception:
                self._closing.wait(_RETRY_S)


def _quoted(channel: str) -> str:
    """Threat: the id of a session is part of it, and others write ids."""
    return '"' + channel.replace('"', '""') + '"'
