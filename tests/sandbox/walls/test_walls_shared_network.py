"""A job that shares the host's network: a real server of the host is reached, and every other wall stands."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.model import Level, ProbeReport

LEVELS = [
    Level.FULL,
    pytest.param(Level.LANDLOCK, marks=pytest.mark.skipif(landlock.landlock_abi() < 3, reason="no Landlock here")),
]


@pytest.fixture
def port() -> Iterator[int]:
    """A server on the host's loopback that says one word to everybody."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connection.sendall(b"reached")
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.close()


@pytest.mark.parametrize("level", LEVELS)
def test_a_server_of_the_host_is_reached_only_by_whoever_shares_its_network(house, port: int, level: Level):
    walls = house.walls(report=ProbeReport(level=level))
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3"
    assert house.run(script, walls, reads_only=True, shares_network=True).text == "reached"
    alone = house.run(script, walls, reads_only=True)
    assert alone.code and "reached" not in alone.text


@pytest.mark.parametrize("level", LEVELS)
def test_the_other_walls_stand(house, level: Level):
    (house.workspace / ".env").write_text("canary")
    walls = house.walls(report=ProbeReport(level=level))
    script = (
        "cat .env; echo x > made; echo x > /usr/made; grep -E 'CapEff|NoNewPrivs' /proc/self/status; "
        "unshare -U true; mount -t tmpfs x /tmp; kill -0 1 && ls /proc | grep -c '^[0-9]'; "
        f"ls {house.root}/forge; strace true"
    )
    ran = house.run(script, walls, reads_only=True, shares_network=True)
    assert "canary" not in ran.text and not (house.workspace / "made").exists()
    assert "Operation not permitted" in ran.text
    if level is Level.FULL:
        assert "CapEff:\t0000000000000000" in ran.text and "NoNewPrivs:\t1" in ran.text


@pytest.mark.parametrize("level", LEVELS)
def test_kinds_of_sockets_beyond_the_network_are_refused(house, level: Level):
    walls = house.walls(report=ProbeReport(level=level))
    code = (
        "import socket\n"
        "for kind in (17, 38, 40):\n"
        "    try: socket.socket(kind, socket.SOCK_DGRAM); print(kind, 1)\n"
        "    except OSError: print(kind, 0)\n"
    )
    ran = house.run(f"python3 -I -S -c '{code}'", walls, reads_only=True, shares_network=True)
    assert ran.text == "17 0\n38 0\n40 0\n"


def test_names_are_found_as_the_host_finds_them(house):
    walls = house.walls()
    shared = house.run("cat /etc/hosts /etc/resolv.conf /etc/nsswitch.conf", walls, shares_network=True).text
    assert Path("/etc/hosts").read_text() in shared and "hosts: files dns" in shared
    if Path("/etc/resolv.conf").exists():
        assert Path("/etc/resolv.conf").read_text() in shared
    alone = house.run("cat /etc/hosts /etc/nsswitch.conf; ls /etc/resolv.conf", walls).text
    assert alone.startswith("127.0.0.1 localhost\n::1 localhost\n") and "files dns" not in alone
    assert "No such file" in alone
