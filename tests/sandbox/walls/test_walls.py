"""Walls narrowed for one call, with the network of the host, and around what could not be undone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.model import Level, ProbeReport, RefusalReason, StartDirectory, UncoveredPath
from golem_forge.sandbox.zones import AccessMode, ZoneRequest, ZoneSpec

from .house import House, init


def narrowed(house, walls, *requests):
    return walls.narrowed(walls.sandbox.restricted("tool", "main", requests))


def two_zones(house, **options):
    (house.root / "docs").mkdir()
    (house.root / "docs" / "a").write_text("doc")
    return house.walls(
        ZoneSpec(name="workspace", path=house.workspace), ZoneSpec(name="docs", path=house.root / "docs"), **options
    )


def test_a_zone_that_is_left_out_is_not_there(house):
    walls = two_zones(house)
    some = narrowed(house, walls, ZoneRequest(name="docs", mode=AccessMode.RO))
    ran = house.run("pwd; cat a; echo x > b; ls /workspace", some)
    assert ran.text.startswith("/docs\ndoc")
    assert "Read-only" in ran.text and "No such file" in ran.text
    assert not (house.root / "docs" / "b").exists()
    assert house.run("echo x > /docs/b; ls /workspace", walls).code == 0


def test_a_toolchain_in_a_zone_that_is_left_out_stays_hidden(house):
    """A directory of PATH in the workspace is shown as part of the zone, and not for being a toolchain."""
    own = house.workspace / "bin"
    own.mkdir()
    (own / "own").write_text("#!/bin/sh\necho mine\n")
    (own / "own").chmod(0o755)
    house.path = f"{own}:{house.path}"
    walls = two_zones(house)
    assert house.run("own", walls, zone_programs=True).text == "mine\n"
    some = narrowed(house, walls, ZoneRequest(name="docs"))
    assert house.run("own", some, zone_programs=True).code == 127


async def test_the_report_is_asked_for_once(house, monkeypatch):
    calls = []

    async def probe(**_: object) -> ProbeReport:
        calls.append(1)
        return ProbeReport(level=Level.FULL)

    monkeypatch.setattr("golem_forge.sandbox.walls.probe.probe_with_retry", probe)
    walls = two_zones(house, report=None)
    some = narrowed(house, walls, ZoneRequest(name="docs"))
    assert some.known_level is None
    assert await some.level() is Level.FULL is await walls.level()
    assert calls == [1] and some.known_level is Level.FULL


@pytest.mark.parametrize(
    "level",
    [
        Level.FULL,
        pytest.param(Level.LANDLOCK, marks=pytest.mark.skipif(landlock.landlock_abi() < 3, reason="no Landlock here")),
    ],
)
def test_where_a_job_without_zones_starts(house, level):
    walls = house.walls(report=ProbeReport(level=level))
    none = narrowed(house, walls)
    script = 'test "$PWD" = "$TMPDIR" && : > made && echo temporary'
    assert house.run(script, none, nowhere=StartDirectory.TEMPORARY).text == "temporary\n"
    assert "temporary" not in house.run(script, none).text


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


@pytest.fixture
def big(house: House) -> Path:
    (house.workspace / "data/deep").mkdir(parents=True)
    for name in ("data/deep/big.bin", "data/deep/other", "top.iso"):
        (house.workspace / name).write_text("kept")
    (house.workspace / "uploads").mkdir()
    (house.workspace / "uploads/a").write_text("kept")
    return house.workspace


NOT_KEPT = (
    ("workspace", UncoveredPath(("data", "deep", "big.bin"), "40 MiB")),
    ("workspace", UncoveredPath(("top.iso",), "11 GB")),
    ("workspace", UncoveredPath(("uploads",), "3 GB", directory=True)),
    ("workspace", UncoveredPath(("gone",), "1 GB")),
    ("elsewhere", UncoveredPath(("data",), "1 GB")),
)


def test_it_is_read_only_and_stays_where_it_is(house: House, big: Path) -> None:
    ran = house.run(
        "cat data/deep/big.bin uploads/a; echo; echo x > data/deep/big.bin; rm -f top.iso; echo x > uploads/b;"
        " mv data d; mv data/deep e; mv uploads u; rm -rf data; ln -sf /x top.iso; rm -rf uploads; ls",
        not_kept=NOT_KEPT,
    )

    assert ran.text.startswith("keptkept\n")
    assert (big / "data/deep/big.bin").read_text() == (big / "top.iso").read_text() == "kept"
    assert [path.name for path in (big / "uploads").iterdir()] == ["a"]
    assert not (big / "data/deep/other").exists()  # what was named by nobody is the command's to delete
    whys = {one["target"]: one["why"] for one in ran.after.denials}
    assert whys["/workspace/data/deep/big.bin"] == "it could not be undone: 40 MiB"
    assert whys["/workspace/uploads/b"] == "it could not be undone: 3 GB"


def test_without_it_the_same_command_may(house: House, big: Path) -> None:
    walls = house.walls()
    assert house.run("rm -rf data top.iso", walls, not_kept=NOT_KEPT).code != 0
    assert house.run("rm -rf data top.iso", walls).code == 0
    assert not (big / "data").exists()


def test_a_plan_is_made_anew_when_it_appears_or_goes(house: House, big: Path) -> None:
    walls = house.walls()
    gone = (("workspace", UncoveredPath(("new.bin",), "1 GB")),)
    assert house.run("echo made > new.bin", walls, not_kept=gone).code == 0
    assert house.run("echo x > new.bin", walls, not_kept=gone).code != 0
    (big / "new.bin").unlink()
    assert house.run("echo again > new.bin", walls, not_kept=gone).code == 0


def test_protected_names_in_it_stay_protected_and_secrets_hidden(house: House, big: Path) -> None:
    init(big / "data")
    (big / "data/.env").write_text("CANARY=1")
    ran = house.run(
        "cat data/.env; touch data/.git/hooks/x; touch data/deep/y; touch z",
        not_kept=(("workspace", UncoveredPath(("data",), "9 GB", directory=True)),),
    )
    assert "CANARY" not in ran.text
    assert not (big / "data/.git/hooks/x").exists() and not (big / "data/deep/y").exists() and (big / "z").exists()


def test_the_plan_names_the_reason(house: House, big: Path) -> None:
    from golem_forge.core.effects import Verb
    from golem_forge.sandbox.walls.model import Job

    planned = house.walls()._planner.planned(Job(argv=(), not_kept=NOT_KEPT))
    refusal = planned.plan.refusal("/workspace/uploads/a", Verb.WRITE)
    assert refusal is not None and (refusal.why, refusal.detail) == (RefusalReason.NOT_KEPT, "3 GB")
    assert planned.plan.refusal("/workspace/uploads/a", Verb.READ) is None
