"""The loopback that commands of one session share: real commands in it, and what they cannot do to it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.sandbox.conftest import PLAIN_USER, in_child
from tests.sandbox.walls.house import House, path_rule, ran

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.network import loopback
from golem_forge.sandbox.network.loopback import (
    LoopbackUnavailable,
    SessionLoopback,
    SessionLoopbacks,
    make_loopback,
    make_loopback_blocking,
)
from golem_forge.sandbox.process import child as _start  # noqa: F401 - loaded while it can be read
from golem_forge.sandbox.walls import walls as _walls  # noqa: F401
from golem_forge.sandbox.walls.bubblewrap import ripgrep_path
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.zones import ZoneSpec

NAMESPACE = "readlink /proc/self/ns/net"


@pytest.fixture
async def shared(house: House) -> AsyncIterator[SessionLoopback]:
    made = await make_loopback()
    yield made
    made.close()


async def test_commands_stand_in_the_same_namespace_and_not_in_the_hosts(house: House, shared: SessionLoopback) -> None:
    walls = house.walls()
    first, second = [(await ran(walls, NAMESPACE, loopback=shared)).text.strip() for _ in range(2)]
    alone = (await ran(walls, NAMESPACE)).text.strip()
    assert first == second == f"net:[{shared.number}]"
    assert alone not in (first, os.readlink("/proc/self/ns/net")) and first != os.readlink("/proc/self/ns/net")


async def test_no_descriptor_of_it_is_left_with_the_command_or_with_us(house: House, shared: SessionLoopback) -> None:
    def ours() -> list[str]:
        links = []
        for number in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink(f"/proc/self/fd/{number}"))
            except OSError:
                continue
        return sorted(link for link in links if link.startswith(("net:", "user:")))

    before = ours()
    result = await ran(house.walls(), "ls -l /proc/self/fd /proc/$$/fd /proc/2/fd; sleep 0", loopback=shared)
    assert "-> /" in result.text and "net:[" not in result.text and "user:[" not in result.text
    assert ours() == before


async def test_what_every_command_may_not_do_it_may_not_do_there_either(house: House, shared: SessionLoopback) -> None:
    script = (
        "grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status; unshare -Ur true; unshare -n true;"
        " for name in ipv4/ip_unprivileged_port_start core/somaxconn ipv4/ping_group_range; do"
        " echo 0 > /proc/sys/net/$name; done;"
        " nsenter --net=/proc/self/ns/net true; ip link set lo down; cat /proc/sys/net/core/somaxconn; ls /sys 2>&1"
    )
    result = await ran(house.walls(), script, loopback=shared)
    assert "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\n" in result.text
    assert result.text.count("unshare failed") == 2
    assert result.text.count("Read-only file system") == 3 or result.text.count("Permission denied") >= 3
    assert "reassociate" in result.text
    up = await ran(house.walls(), "cat /proc/net/if_inet6 /proc/net/fib_trie", loopback=shared)
    assert "127.0.0.1" in up.text


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as a plain user already")
def test_a_plain_user_joins_it_too() -> None:
    ripgrep_path()
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        house = House(Path(made), path="/usr/bin:/bin")
        for place in (made, *map(str, Path(made).rglob("*"))):
            os.chown(place, PLAIN_USER, PLAIN_USER)

        def scene() -> list[Any]:
            ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: who gives up root in place is closed to itself otherwise
            shared = make_loopback_blocking()
            text = house.run(f"id -u; {NAMESPACE}; echo 0 > /proc/sys/net/core/somaxconn", loopback=shared).text
            return [shared.number, text.splitlines()]

        number, lines = in_child(scene)
    assert lines[:2] == [str(PLAIN_USER), f"net:[{number}]"]
    assert "Permission denied" in lines[2] or "Read-only" in lines[2]


async def test_a_session_that_ended_is_not_joined(house: House) -> None:
    parts = SessionLoopbacks()
    made = await parts.get("key")
    assert made is not None and made is await parts.get("key") and made is not await parts.get("other")
    await parts.aclose()
    with pytest.raises(SandboxError, match="loopback is gone"):
        await ran(house.walls(), ":", loopback=made)
    assert await parts.get("key") is None and parts.find("key") is None


async def test_a_start_holds_descriptors_of_its_own(house: House) -> None:
    """Threat: the session ends while a command starts, and another session's namespace gets its numbers."""
    shared = await make_loopback()
    number, held = shared.number, shared.hold()
    shared.close()
    others = [await make_loopback() for _ in range(3)]
    try:
        process = await asyncio.create_subprocess_exec(
            *held.words, "/bin/sh", "-c", NAMESPACE, stdout=asyncio.subprocess.PIPE
        )
        assert (await process.communicate())[0].decode().strip() == f"net:[{number}]"
    finally:
        held.close()
        for each in others:
            each.close()


async def test_where_it_cannot_be_joined_the_reason_is_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "find_system_program", lambda name: None)
    with pytest.raises(LoopbackUnavailable, match="nsenter of util-linux is not installed"):
        await make_loopback()
    parts = SessionLoopbacks()
    assert await parts.get("key") is None
    assert parts.problem == "nsenter of util-linux is not installed"


async def test_a_program_that_fails_to_join_is_found_out(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An old kernel, or a profile: it is tried, not assumed."""
    refusing = tmp_path / "nsenter"
    refusing.write_text(
        "#!/bin/sh\necho 'nsenter: reassociate to namespace failed: Operation not permitted' >&2\nexit 1\n"
    )
    refusing.chmod(0o755)
    monkeypatch.setattr(loopback, "find_system_program", lambda name: str(refusing))
    loopback._tried_before.cache_clear()
    try:
        with pytest.raises(LoopbackUnavailable, match="Operation not permitted"):
            await make_loopback()
    finally:
        loopback._tried_before.cache_clear()


def test_a_variable_that_loads_code_keeps_a_command_out(house: House) -> None:
    walls = house.walls()
    assert walls.may_join({"PATH": "/usr/bin"})
    assert not walls.may_join({"GCONV_PATH": "/workspace/x"}) and not walls.may_join({"LD_PRELOAD": "/workspace/x"})


def test_only_the_same_zones_modes_and_rules_share_one(house: House) -> None:
    part = house.workspace / "part"
    part.mkdir()
    rw, ro = (
        ZoneSpec(name="workspace", path=house.workspace),
        ZoneSpec(name="workspace", path=house.workspace, mode="ro"),
    )
    whole = house.walls(rw).sharing_key()
    assert house.walls(rw).sharing_key() == whole
    assert house.walls(ro).sharing_key() != whole
    assert house.walls(ZoneSpec(name="workspace", path=part)).sharing_key() != whole
    assert house.walls(ZoneSpec(name="workspace", path=house.workspace, delete="blocked")).sharing_key() != whole
    hidden = path_rule("/workspace/part/**", Verdict.BLOCKED, Verb.READ, literal="/workspace/part")
    assert house.walls(rw, rules=lambda: (hidden,)).sharing_key() != whole


ANOTHER_FORGE = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from house import House, Job
from golem_forge.sandbox.network.loopback import make_loopback

async def main():
    shared = await make_loopback()
    job = Job(argv=("bash", "-c", "setsid sleep 987654 & echo up; wait"), loopback=shared)
    child = (await House(Path(sys.argv[2])).walls().start(job)).child
    while b"up" not in child.output.read():
        await asyncio.sleep(0.01)
    print("stands", shared.number, flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def test_a_forge_that_is_killed_leaves_nobody_in_it(house: House) -> None:
    words = [sys.executable, "-c", ANOTHER_FORGE, str(Path(__file__).parents[1] / "walls"), str(house.root)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forge:
        assert forge.stdout is not None
        said, number = forge.stdout.readline().split()
        assert said == "stands" and loopback._processes_in(int(number))
        forge.kill()
    end = time.monotonic() + PATIENCE
    while loopback._processes_in(int(number)):
        assert time.monotonic() < end
        time.sleep(0.02)


async def test_what_listens_is_named_whoever_opened_it(house: House, shared: SessionLoopback) -> None:
    script = (
        "import socket, sys, time; a = socket.create_server(('127.0.0.1', 4001));"
        " b = socket.create_server(('::1', 4002), family=socket.AF_INET6);"
        " c = socket.create_server(('0.0.0.0', 4003)); print('up', flush=True); time.sleep(3600)"
    )
    walls = house.walls()
    child = (await walls.start(Job(argv=("python3", "-c", script, "\x1b[31m\nname"), loopback=shared))).child
    try:
        while b"up" not in child.output.read():
            assert child.ending is None, child.output.read()
            await asyncio.sleep(0.01)
        found = await asyncio.to_thread(shared.listening)
        assert [(each.port, each.address) for each in found] == [(4001, "127.0.0.1"), (4002, "::1"), (4003, "0.0.0.0")]
        assert all("create_server" in each.command and each.since for each in found)
        for port in (4001, 4002, 4003):
            _, writer = await shared.connect(port)
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await shared.connect(4004)
    finally:
        await child.end()
    assert await asyncio.to_thread(shared.listening) == ()
