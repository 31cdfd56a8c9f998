"""A PostgreSQL of our own: the distribution's programs, a temporary directory, a free port of the loopback.

`PostgresServer` starts one and ends it. PostgreSQL refuses to run as root; there it runs as `postgres` or `nobody`. It
ends with the process that started it, however that ends: a shell between the two waits for the end of its input.

`sharing` gives one to all processes of a test run, which lends databases: one that was emptied costs a fifth of a new
one.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psycopg
from tests.deadlines import PATIENCE
from tests.machine import alone, free_port

from golem_forge.team.database import open_database
from golem_forge.team.schema import upgrade

PASSWORD = "not-in-any-output"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "400",
    "autovacuum": "off",
}
_GUARD = '"$@" & server=$!; read -r _; kill -QUIT $server; wait $server'
_SHARED_GUARD = '"$@" & server=$!; flock 0; kill -QUIT $server; wait $server; rm -rf "$0"'
_TEMPLATE = "forge_template"
_STARTED: list[PostgresServer] = []


def programs() -> Path | None:
    """Where `initdb` and `postgres` are; None where they are not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


class PostgresAddress:
    """A server that others may use at the same time: nobody ends it from here."""

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self, database: str, user: str = "owner", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(sql)


class PostgresServer(PostgresAddress):
    def __init__(self, people: IO[str] | None = None, made: Path | None = None) -> None:
        """`people`: the server ends once nobody has this file locked any more, and takes its directory along. `made`:
        the data of a server that was never started, for a copy."""
        where = programs()
        assert where is not None
        self._programs = where
        self._people = people
        self._account: dict[str, Any] = {}
        self.place = Path(tempfile.mkdtemp(prefix="forge-pg-"))
        self.made = made or self.place / "made"
        if os.geteuid() == 0:
            account = _somebody()
            os.chown(self.place, account.pw_uid, account.pw_gid)
            self._account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        if made is None:
            self._make()
        self._run("cp", "-a", str(self.made), str(self.place / "data"))
        super().__init__(free_port())
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def _make(self) -> None:
        password = self.place / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        words = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}", "--username=owner"]
        initdb = str(self._programs / "initdb")
        self._run(initdb, "--no-sync", "--encoding=UTF8", "--locale=C", *words, str(self.made))

    def _run(self, *words: str) -> None:
        subprocess.run(words, check=True, capture_output=True, cwd="/", **self._account)

    def start(self) -> None:
        settings = _SETTINGS | {"port": str(self.port), "unix_socket_directories": str(self.place)}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        server = [str(self._programs / "postgres"), "-D", str(self.place / "data"), *words]
        with contextlib.ExitStack() as opened:
            watched = opened.enter_context(open(self._people.name)) if self._people is not None else None
            self._process = subprocess.Popen(
                ["sh", "-c", _GUARD if watched is None else _SHARED_GUARD, str(self.place), *server],
                stdin=watched or subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=watched is not None,  # a Ctrl+C is for the tests, who end in order and still need it
                **self._account,
            )
        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        """At once: whoever is connected is thrown out, and the port refuses."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(timeout=PATIENCE)
            self._process = None

    def signal_all(self, number: signal.Signals) -> None:
        """SIGSTOP: it is there, and says nothing."""
        main = int((self.place / "data" / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for pid in (main, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def pids(self) -> set[int]:
        """The process that guards the server; the server is below it."""
        return set() if self._process is None else {self._process.pid}

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.place, ignore_errors=True)


class SharedPostgres(PostgresAddress):
    """The server of all processes of a test run. Roles are the server's: each test names its own."""

    def __init__(self, port: int, made: str, meta: list[list[str]]) -> None:
        super().__init__(port)
        self.made = Path(made)
        self._meta = meta
        self._idle: list[str] = []
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def lend(self) -> Iterator[str]:
        """The address of a database that has the store's tables, as new."""
        if self._idle:
            name = self._idle.pop()
        else:
            name = f"store_{os.getpid()}_{next(self._numbers)}"
            self.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
        yield self.url(name)
        self._empty(name)
        self._idle.append(name)

    def _empty(self, name: str) -> None:
        """Also of those who are still connected."""
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            connection.execute(
                f"SELECT pg_terminate_backend(pid, {PATIENCE * 1000:.0f}) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("SET session_replication_role = replica")  # no trigger refuses
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            connection.execute("; ".join(f"DELETE FROM {table}" for (table,) in tables))
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO meta (key, value) VALUES (%s, %s)", self._meta)


@contextlib.contextmanager
def sharing(meeting: Path) -> Iterator[SharedPostgres]:
    """One for all processes that come to the same directory, `meeting`: the first starts it, it ends when the last has
    gone, however that was."""
    named = meeting / "postgres"
    with open(meeting / "postgres.people", "a") as people:
        fcntl.flock(people, fcntl.LOCK_SH)  # whoever comes while it ends waits for that
        with alone(meeting):
            if not named.exists() or not Path(json.loads(named.read_text())["made"]).exists():
                server = PostgresServer(people)
                _STARTED.append(server)
                server.execute(f"CREATE DATABASE {_TEMPLATE}")
                database = open_database(server.url(_TEMPLATE), meeting)
                upgrade(database)
                meta = database.read("SELECT key, value FROM meta")
                database.close()
                named.write_text(json.dumps({"port": server.port, "made": str(server.made), "meta": meta}))
        yield SharedPostgres(**json.loads(named.read_text()))


def _somebody() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("there is no account to run PostgreSQL under")
