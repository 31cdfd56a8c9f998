"""A PostgreSQL of our own: the distribution's programs, a temporary directory, a free port of the loopback.

`PostgresServer` starts one and ends it. PostgreSQL refuses to run as root; there it runs as `postgres` or `nobody`. It
ends with the process that started it, however that ends: a shell between the two waits for the end of its input.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
from tests.deadlines import PATIENCE
from tests.machine import free_port

PASSWORD = "not-in-any-output"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "150",
}
_GUARD = '"$@" & server=$!; read -r _; kill -QUIT $server; wait $server'


def programs() -> Path | None:
    """Where `initdb` and `postgres` are; None where they are not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


class PostgresServer:
    def __init__(self) -> None:
        where = programs()
        assert where is not None
        self._programs = where
        self._account: dict[str, Any] = {}
        self.place = Path(tempfile.mkdtemp(prefix="forge-pg-"))
        if os.geteuid() == 0:
            account = _somebody()
            os.chown(self.place, account.pw_uid, account.pw_gid)
            self._account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        password = self.place / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        words = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}", "--username=owner"]
        subprocess.run(
            [str(where / "initdb"), "--no-sync", "--encoding=UTF8", "--locale=C", *words, str(self.place / "data")],
            check=True,
            capture_output=True,
            cwd="/",
            **self._account,
        )
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self, database: str, user: str = "owner", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(sql)

    def start(self) -> None:
        settings = _SETTINGS | {"port": str(self.port), "unix_socket_directories": str(self.place)}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            ["sh", "-c", _GUARD, "sh", str(self._programs / "postgres"), "-D", str(self.place / "data"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
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


def _somebody() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("there is no account to run PostgreSQL under")
