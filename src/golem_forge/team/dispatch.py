"""Dispatch: the runners of a store, and how each hears of work, by rings for any change and by jobs in PostgreSQL.

`RunnerTable` has the rows of the runners, each with its slots and labels, seen every few seconds (`LeaseTable.renew`).
Its methods block; they are called in threads.

Neither a ring nor a job decides anything: the session's row does. A ring may be lost, and a job may be one too many;
the sweep of any runner finds what nobody told (`LeaseTable.ring_forgotten`).

`listen` starts the rings. SQLite: a thread looks at the file's version, 20 times a second (one page of a memory-mapped
file). PostgreSQL: a connection that listens. Both call `ring` on their thread, with the id of the session that it is
about; empty: anything may have changed, and SQLite never says more. What is said on `channels` (PostgreSQL only) is not
a ring: `heard(channel, what)` is given it. A set of channels may change while it is listened to; a change counts within
half a second.

When a session is queued or woken, the same transaction defers a job of procrastinate that names it (`JobQueue`): the
label is the queue, the session's id the queueing lock, so that one job waits for it at most. Every runner is a worker
on the queues of its labels, with as many jobs at once as it has slots (`DispatchThread`). A job asks the runner to
claim that session, and lasts as long as the session runs there; then it is deleted. A database that goes away ends the
worker, not the sessions: the thread starts another one when the database is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from golem_forge.team.database import Database, PostgresConnection, PostgresDatabase, SqliteDatabase, complaints
from golem_forge.team.rows import CHANNEL

if TYPE_CHECKING:
    from golem_forge.team.people import TeamStore
    from golem_forge.team.store import Store

# ---- runners

RUNNER_GONE_S: Final = 30.0
"""A runner that was not seen for so long is not counted any more."""


class RunnerTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def register(
        self,
        runner: str,
        *,
        host: str,
        pid: int,
        slots: int,
        labels: Sequence[str],
        version: str,
        offers: Mapping[str, Any],
    ) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM runners WHERE seen < @now - 86400")
            connection.execute(
                "INSERT INTO runners (id, host, pid, slots, labels, version, offers, started, seen) VALUES (:id, "
                ":host, :pid, :slots, :labels, :version, :offers, @now, @now)",
                {
                    "id": runner,
                    "host": host,
                    "pid": pid,
                    "slots": slots,
                    "labels": json.dumps(list(labels)),
                    "version": version,
                    "offers": json.dumps(dict(offers)),
                },
            )

    def unregister(self, runner: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM runners WHERE id = :id", {"id": runner})

    def drain(self, runner: str, draining: bool = True) -> None:
        """Marks that this runner takes no new sessions; `draining` False undoes that."""
        with self._database.transaction() as connection:
            values = {"id": runner, "draining": int(draining)}
            connection.execute("UPDATE runners SET draining = :draining WHERE id = :id", values)

    def seen(self) -> list[dict[str, Any]]:
        """Returns the runners that were seen lately."""
        rows = self._database.read(
            f"SELECT id, host, pid, slots, labels, version, offers, draining, @now - seen FROM runners "
            f"WHERE seen > @now - {RUNNER_GONE_S} ORDER BY started"
        )
        names = ("id", "host", "pid", "slots", "labels", "version", "offers", "draining", "silent")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [each | {"labels": json.loads(each["labels"]), "offers": json.loads(each["offers"])} for each in found]

    def busy_slots(self) -> dict[str, int]:
        """Returns how many sessions each runner holds."""
        rows = self._database.read(
            "SELECT runner, count(*) FROM sessions WHERE state IN ('running', 'waiting') AND runner <> '' "
            "GROUP BY runner"
        )
        return {str(runner): int(number) for runner, number in rows}


# ---- rings

_LOOK_S: Final = 0.05
_LOOK_REMOTE_S: Final = 0.5


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
    """A thread that polls until it is closed."""

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
        """Polls until `_closing` is set."""
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


# ---- jobs

TASK: Final = "forge.session"
SCHEMA_KEY: Final = "procrastinate"
"""Key in the store's `meta`: the last of procrastinate's migrations that the database has."""
_LONGEST_LABEL: Final = 24
_RETRY_S: Final = 1.0
_CLEAN_S: Final = 30.0
_POLL_S: Final = 2.0
_AGAIN_S: Final = 0.05
_CLOSE_S: Final = 5.0
_QUIET: Final = ("procrastinate", "psycopg.pool")


def queue_name(label: str) -> str:
    """Returns the queue of a label. It becomes part of a channel's name, which PostgreSQL limits to 63 bytes."""
    if not label:
        return "any"
    if label.isascii() and len(label) <= _LONGEST_LABEL:
        return f"label {label}"
    return f"digest {sha256(label.encode()).hexdigest()[:_LONGEST_LABEL]}"


# ---- tables of jobs


def install(connection: PostgresConnection, applied: str) -> str:
    """Makes procrastinate's tables, or brings them to the installed version; gives the name of its last migration.

    `applied`: what this gave the last time; empty: there are no tables yet.
    """
    folder = _sql_folder()
    migrations = sorted(each.name for each in (folder / "migrations").glob("*.sql"))
    if not applied:
        connection.raw.execute((folder / "schema.sql").read_text("utf-8"))
    for name in migrations:
        if applied and name > applied:
            connection.raw.execute((folder / "migrations" / name).read_text("utf-8"))
    return max(applied, migrations[-1])


def _sql_folder() -> Path:
    found = find_spec("procrastinate")
    assert found is not None, "looked for when the database was opened"
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "sql"


# ---- deferring jobs


class JobQueue:
    """Defers jobs inside the transactions of others."""

    def __init__(self) -> None:
        self._app: Any = None

    def defer(self, connection: PostgresConnection, session_id: str, label: str, priority: int) -> None:
        """Rings for this session when the transaction is committed, unless a job waits for it already."""
        import procrastinate
        from procrastinate.exceptions import AlreadyEnqueued, ConnectorException

        if self._app is None:
            _be_quiet()
            self._app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())
        job = self._app.configure_task(
            TASK,
            queue=queue_name(label),
            queueing_lock=session_id,
            priority=priority,
            connection=connection.raw,
        )
        try:
            with connection.raw.transaction():  # a savepoint: what is refused here spoils nothing else
                job.defer(session=session_id)
        except AlreadyEnqueued:
            return
        except ConnectorException as error:
            raise error.__cause__ or error from None


# ---- taking jobs


class DispatchThread:
    """`attend(session)` is awaited on the loop that made this: it claims the session and returns when it left."""

    def __init__(
        self,
        database: PostgresDatabase,
        labels: Sequence[str],
        slots: int,
        attend: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        self._database = database
        self._queues = [queue_name(label) for label in dict.fromkeys(("", *labels))]
        self._slots = slots
        self._attend = attend
        self._runner_loop = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forge-dispatch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Takes no more jobs. Sessions that run go on. Blocks for some seconds at most."""
        self._closing.set()
        loop, work = self._loop, self._work
        if loop is not None and work is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(work.cancel)
        self._thread.join(timeout=_CLOSE_S)

    def _run(self) -> None:
        _be_quiet()
        while not self._closing.is_set():
            try:
                asyncio.run(self._serve())
            except (asyncio.CancelledError, RuntimeError):
                return
            except Exception as error:  # the database is away
                cause = error.__cause__
                told = self._database.unavailable(cause) if isinstance(cause, Exception) else None
                complaints.tell("no new sessions come here", told or error)
            self._closing.wait(_RETRY_S)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda loop, context: None)  # a job's end that found no database
        self._work = asyncio.current_task()
        if self._closing.is_set():
            return
        import procrastinate

        class Connector(procrastinate.PsycopgConnector):
            async def listen_notify(self, on_notification: Any, channels: Any) -> None:
                await super().listen_notify(_told_twice(on_notification), channels)

        connector = Connector(
            conninfo=self._database.url,
            kwargs=self._database.options(),
            min_size=1,
            max_size=4,
            timeout=10.0,
        )
        app = procrastinate.App(connector=connector)
        app.task(name=TASK, queue=queue_name(""))(self._job)
        async with app.open_async():
            cleaning = asyncio.create_task(self._clean(app.job_manager))
            try:
                await app.run_worker_async(
                    queues=self._queues,
                    concurrency=self._slots,
                    delete_jobs="always",
                    install_signal_handlers=False,
                    fetch_job_polling_interval=_POLL_S,
                    shutdown_graceful_timeout=0.1,
                )
            finally:
                cleaning.cancel()

    async def _job(self, session: str) -> None:
        """A job that is ended here (the worker stops) does not end its session."""
        done = asyncio.run_coroutine_threadsafe(self._attend(session), self._runner_loop)
        await asyncio.shield(asyncio.wrap_future(done))

    async def _clean(self, manager: Any) -> None:
        """Deletes the jobs of workers that died. Their sessions are found by their leases."""
        from procrastinate.exceptions import ConnectorException
        from procrastinate.jobs import Status

        while True:
            await asyncio.sleep(_CLEAN_S)
            with contextlib.suppress(ConnectorException):
                await manager.prune_stalled_workers(_CLEAN_S)
                for job in await manager.get_stalled_jobs(task_name=TASK):
                    with contextlib.suppress(ConnectorException):  # another runner was quicker
                        await manager.finish_job(job, Status.ABORTED, delete_job=True)


def _told_twice(on_notification: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """procrastinate forgets a notification that comes while it fetches: the last of a burst would wait for its poll."""
    again: list[asyncio.TimerHandle] = []
    tasks: set[asyncio.Future[None]] = set()

    async def tell(*, channel: str, payload: str) -> None:
        def repeat() -> None:
            task = asyncio.ensure_future(on_notification(channel=channel, payload=payload))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        for timer in again:
            timer.cancel()
        again[:] = [asyncio.get_running_loop().call_later(_AGAIN_S, repeat)]
        await on_notification(channel=channel, payload=payload)

    return tell


def _be_quiet() -> None:
    """Their warnings come with tracebacks and for each try; `DispatchThread` says what there is to say."""
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
