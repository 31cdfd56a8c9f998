"""Calls that are cancelled, crash or hang end with their host and harm nobody else (W11)."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tests.agent.modules.conftest import until
from tests.deadlines import within

from golem_forge.agent.modules.host import MAX_HOSTS
from golem_forge.core.decisions import Status
from golem_forge.core.signals import InterruptSignal

CODE = """
    import os, signal, subprocess, time
    from pathlib import Path
    from golem_forge import tool

    calls = 0

    @tool(read_only=True)
    def spin() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "98765"], start_new_session=True)
        Path("/data/spinning").touch()
        while True:
            pass

    @tool(read_only=True)
    def wait(name: str) -> str:
        Path(f"/data/{name}").touch()
        while not Path("/data/go").exists():
            time.sleep(0.01)
        return name

    @tool(read_only=True, timeout=0.2)
    def late() -> None:
        time.sleep(60)

    def crash() -> None:
        print("last words", flush=True)
        os._exit(3)

    def count() -> int:
        global calls
        calls += 1
        return calls
"""
NAMES = ("spin", "wait", "late", "crash", "count")


def gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_w11_a_busy_loop_is_cancelled_alone(place: Any, call: Any) -> None:
    place.write("tools.py", CODE)
    data = place.root / "data"
    path = await place.opened(*NAMES)
    (pool,) = place.made[0].pools
    beside = asyncio.create_task(call(path, "wait", name="beside"))
    await until((data / "beside").exists)
    (other,) = pool.hosts
    path.signal, before = InterruptSignal(), path.signal  # only the next call is told
    spinning = asyncio.create_task(call(path, "spin"))
    await until((data / "spinning").exists)
    (host,) = [each for each in pool.hosts if each is not other]
    pid = host.pid
    with within(1):
        path.signal.interrupt()
        outcome = await spinning
    assert outcome.status is Status.INTERRUPTED and outcome.executed
    with within(1):
        await until(lambda: gone(pid))
    path.signal = before
    (data / "go").touch()
    assert (await beside).text == "beside"
    assert other.alive and (await call(path, "count")).text == "1"


async def test_w11_a_crash_and_a_timeout_are_one_failed_call_each_and_an_idle_host_is_let_go(
    place: Any, call: Any
) -> None:
    place.write("tools.py", CODE)
    path = await place.opened(*NAMES)
    (pool,) = place.made[0].pools
    assert [(await call(path, "count")).text for _ in range(2)] == ["1", "2"]  # one host, kept
    crashed = await call(path, "crash")
    assert (crashed.status, crashed.code) == (Status.EXECUTION_FAILED, "MODULE_HOST_ENDED")
    assert "exit code 3" in crashed.error and "last words" in crashed.error
    assert (await call(path, "count")).text == "1"

    with within(1.5):
        outcome = await call(path, "late")
    assert outcome.status is Status.TIMEOUT
    pool._idle.idle_seconds = 0.2
    assert (await call(path, "count")).text == "1"
    last = pool.hosts[0].pid
    await until(lambda: not pool.hosts and gone(last))
    assert (await call(path, "count")).text == "1", "module globals are each host's own"


async def test_parallel_calls_get_at_most_four_hosts_and_all_end_with_the_session(place: Any, call: Any) -> None:
    place.write("tools.py", CODE)
    data = place.root / "data"
    path = await place.opened(*NAMES)
    (pool,) = place.made[0].pools
    names = [f"call{number}" for number in range(MAX_HOSTS + 2)]
    running = [asyncio.create_task(call(path, "wait", name=name)) for name in names]
    await until(lambda: len([name for name in names if (data / name).exists()]) == MAX_HOSTS)
    assert len(pool.hosts) == MAX_HOSTS
    pids = [host.pid for host in pool.hosts]
    assert len(set(pids)) == MAX_HOSTS and not any(gone(pid) for pid in pids)
    (data / "go").touch()
    assert [outcome.text for outcome in await asyncio.gather(*running)] == names
    assert len(pool.hosts) == MAX_HOSTS
    await place.made[0].aclose()
    with within(1):
        await until(lambda: all(gone(pid) for pid in pids))


async def test_walls_that_would_be_others_now_are_built_anew(place: Any, call: Any) -> None:
    place.write(
        "tools.py",
        """
        def read() -> str:
            with open("/data/.env") as file:
                return file.read()

        def look() -> str:
            return "looked"
        """,
    )
    path = await place.opened("read", "look")
    (pool,) = place.made[0].pools
    assert (await call(path, "look")).text == "looked"
    (first,) = pool.hosts
    (place.root / "data/ordinary.txt").write_text("x")
    assert (await call(path, "look")).text == "looked" and pool.hosts == (first,)
    (place.root / "data/.env").write_text("TOKEN=canary-in-env")
    refused = await call(path, "read")
    assert refused.status is Status.EXECUTION_FAILED
    assert refused.error.startswith("PermissionError") and "canary" not in refused.text
    assert [(each["kind"], each["target"]) for each in refused.denials] == [("secret", "/data/.env")]
    assert first not in pool.hosts and gone(first.pid)
    assert os.path.exists(place.root / "data/.env")
