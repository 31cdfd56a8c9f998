"""PostgreSQL, as tests of ordinary projects use it: started inside by one call, or the one of the host by its port."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.machine import free_port
from tests.sandbox.conftest import PLAIN_USER, in_child
from tests.sandbox.walls.house import House, ran

from golem_forge.agent.session import entry_session
from golem_forge.core.decisions import Status
from golem_forge.sandbox.network.loopback import make_loopback
from golem_forge.sandbox.process import child as _start  # noqa: F401
from golem_forge.sandbox.walls import walls as _walls  # noqa: F401
from golem_forge.sandbox.walls.bubblewrap import find_bwrap, ripgrep_path
from golem_forge.sandbox.walls.model import Job

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
pytestmark = [
    pytest.mark.skipif(not PROGRAMS, reason="PostgreSQL is not installed"),
    pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap"),
    pytest.mark.long,
]
SETTINGS = "-c listen_addresses=localhost -c unix_socket_directories= -c fsync=off"
INITIALISE = "--auth=trust --username=tester --no-sync --no-locale --encoding=UTF8"


@pytest.fixture
def place() -> Iterator[Path]:
    """Below /tmp itself: what pytest makes is closed to others."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        os.chmod(made, 0o755)
        yield Path(made)


def test_a_database_of_one_call_answers_the_next(place: Path) -> None:
    """As a plain user: PostgreSQL refuses to run as root."""
    ripgrep_path()
    house = House(place, path="/usr/bin:/bin")
    for each in (place, *place.rglob("*")):
        if os.geteuid() == 0:
            os.chown(each, PLAIN_USER, PLAIN_USER)
    programs = PROGRAMS[-1].parent
    start = f"{programs}/initdb -D data {INITIALISE} && exec {programs}/postgres -D data -p 5432 {SETTINGS}"
    ask = "until psql -h localhost -U tester -d postgres -Atc 'select 6 * 7'; do :; done"

    async def scene() -> str:
        shared, walls = await make_loopback(), house.walls()
        server = await walls.start(Job(argv=("bash", "-c", start), loopback=shared))
        try:
            answer = await asyncio.wait_for(ran(walls, ask, loopback=shared), PATIENCE)
        finally:
            await server.child.end()
        return answer.text.splitlines()[-1]

    def as_plain_user() -> str:
        ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: who gives up root in place is closed to itself otherwise
        return asyncio.run(scene())

    assert in_child(as_plain_user) == "42"


@pytest.fixture
def hosts_port(place: Path) -> Iterator[int]:
    port = free_port()
    programs = PROGRAMS[-1].parent
    who: dict[str, Any] = {}
    if os.geteuid() == 0:
        os.chown(place, PLAIN_USER, PLAIN_USER)
        who = {"user": PLAIN_USER, "group": PLAIN_USER, "extra_groups": []}
    plain: dict[str, Any] = {"cwd": place, "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, **who}
    initialise = [f"{programs}/initdb", "-D", "data", *INITIALISE.split()]
    subprocess.run(initialise, check=True, capture_output=True, timeout=PATIENCE, **plain)
    words = [f"{programs}/postgres", "-D", "data", "-p", str(port), *SETTINGS.split()]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, **plain) as server:
        try:
            end = time.monotonic() + PATIENCE
            while subprocess.run([f"{programs}/pg_isready", "-qh", "127.0.0.1", "-p", str(port)]).returncode:
                assert time.monotonic() < end and server.poll() is None
                time.sleep(0.05)
            yield port
        finally:
            server.terminate()


async def test_the_database_of_the_host_answers_a_call_that_names_it(
    hosts_port: int, tmp_path: Path, own_home: Path
) -> None:
    if shutil.which("psql", path="/usr/bin:/bin") is None:
        pytest.skip("psql is not installed")
    ask = f"psql -h localhost -p {hosts_port} -U tester -d postgres -Atc 'select 6 * 7'"
    async with entry_session(tmp_path, approval="approve_all") as session:
        named = {"cmd": ask, "yield_time_ms": 30_000, "network": [f"localhost:{hosts_port}"]}
        answered = await session.call("exec_command", named)
        assert answered.result.value["output"] == "42\n", answered.result.text
        without = await session.call("exec_command", {"cmd": ask, "yield_time_ms": 30_000})
        assert without.status is Status.EXECUTION_FAILED
        assert f"a call with localhost:{hosts_port} in 'network'." in without.result.text
