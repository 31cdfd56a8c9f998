"""Which devices and sockets a config gives, which it never gives, and what a command that misses one is told."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.config.sandbox_block import WallSettings
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.exits import NO_EXITS, Exits, exit_denials, find_exits
from golem_forge.sandbox.walls.layout import RawArguments, system_mounts
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls, WallsHost


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        yield path


def found(sockets: tuple[str, ...] = (), devices: tuple[str, ...] = (), **zones: str) -> tuple[Exits, tuple[str, ...]]:
    return find_exits(WallSettings(sockets=sockets, devices=devices), zones, "/nowhere/forge-home")


def test_a_socket_stands_where_it_was_named_and_where_it_is(listening: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.sock"
    link.symlink_to(listening)
    exits, told = found((str(link),))
    assert told == () and exits.sockets[0].host == str(listening)
    assert exits.sockets[0].places == (str(link), str(listening))
    assert exits.describe() == (f"socket {link}",)
    assert list(exits.targets()) == [f"socket {link}"]
    assert str(link) in exits.no_walls_because


@table("kind", ["missing", "file", "directory"])
def test_what_is_no_socket_is_told(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    if kind == "file":
        path.touch()
    elif kind == "directory":
        path.mkdir()
    exits, told = found((str(path),))
    assert not exits
    assert told == (f"sandbox.sockets: {path} is not {'there' if kind == 'missing' else 'a Unix socket'}",)


def test_a_socket_that_a_zone_or_forge_holds_is_not_shown(listening: Path, tmp_path: Path) -> None:
    exits, told = found((str(listening),), workspace=str(tmp_path))
    assert not exits and "lies in the zone /workspace" in told[0]
    settings = WallSettings(sockets=(str(listening),))
    exits, told = find_exits(settings, {}, str(tmp_path))
    assert not exits and "one of Forge's own" in told[0]


def test_a_link_out_of_a_zone_counts_as_in_it(listening: Path, tmp_path: Path) -> None:
    zone = tmp_path / "zone"
    zone.mkdir()
    (zone / "s").symlink_to(listening)
    assert not found((str(zone / "s"),), workspace=str(zone))[0]


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("/dev/tty", "is a terminal"),
        ("/dev/shm", "is a directory"),
        ("/dev/no-such-device", "is not there"),
    ],
)
def test_devices_that_no_config_gives(device: str, why: str) -> None:
    if device == "/dev/shm" and not os.path.isdir(device):
        pytest.skip("this machine has no /dev/shm")
    exits, told = found(devices=(device,))
    assert not exits and told and why in told[0]


def test_a_plain_device_is_given_and_nobody_knows_what_it_does() -> None:
    exits, told = found(devices=("/dev/null",))
    assert exits.devices == ("/dev/null",) and told == ()
    assert list(exits.leaves()) == ["it can use the device /dev/null"]
    assert exits.no_walls_because == "", "a device is no way to somebody who acts outside"


def test_read_only_walls_say_that_they_show_none(listening: Path, tmp_path: Path) -> None:
    walls = Walls(
        Sandbox(has_block=False),
        WallSettings(sockets=(str(listening),)),
        forge_home=tmp_path / "forge",
        host=WallsHost(report=ProbeReport(level=Level.LANDLOCK)),
    )
    assert any(f"commands cannot use socket {listening}: that needs full walls" in each for each in walls.notices)


def missed(text: str, shown: Exits = NO_EXITS, *, sockets: tuple[str, ...] = (), groups: str = "") -> list[str]:
    kinds = dict.fromkeys(sockets, "socket")
    denials = exit_denials(
        text,
        shown,
        {"XDG_RUNTIME_DIR": "/run/user/7"},
        kind=lambda path: kinds.get(path, ""),
        nodes=lambda group: ["/dev/x"] if group in groups.split() else [],
    )
    return [f"{one['access']} {one['target']}" for one in denials]


DOCKER = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"


@table(
    ("text", "expected"),
    [
        (DOCKER, ["connect /run/docker.sock"]),
        ("failed to connect to the docker API at unix:///x", ["connect /run/docker.sock"]),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", ["use nvidia"]),
        ("RuntimeError: No CUDA GPUs are available", ["use nvidia"]),
        ("Could not access KVM kernel module: No such file or directory", ["use kvm"]),
        (
            "psql: could not connect: /run/pg/.s.PGSQL.5432: No such file",
            ["connect /run/pg/.s.PGSQL.5432"],
        ),
        ("I like /run/pg/.s.PGSQL.5432 very much", []),
        ("all is well", []),
    ],
)
def test_what_a_program_says_that_misses_something(text: str, expected: list[str]) -> None:
    sockets = ("/run/docker.sock", "/run/pg/.s.PGSQL.5432")
    assert missed(f"line\n{text}\nline", sockets=sockets, groups="nvidia kvm") == expected


def test_nothing_is_told_that_this_host_has_not() -> None:
    assert missed(f"{DOCKER}\nNo CUDA GPUs are available\n") == []


def test_nothing_is_told_that_the_walls_show(listening: Path) -> None:
    shown = Exits(named=("nvidia",), devices=("/dev/nvidia0",))
    assert missed("No CUDA GPUs are available", shown, groups="nvidia") == []


def test_a_rootless_daemon_is_found_where_the_person_has_it() -> None:
    assert missed(DOCKER, sockets=("/run/user/7/docker.sock",)) == ["connect /run/user/7/docker.sock"]


def test_no_path_elsewhere_is_looked_up() -> None:
    looked: list[str] = []
    text = "No such file: /home/me/x.sock /dev/sdx /run/a/b.sock"
    assert list(exit_denials(text, NO_EXITS, {}, kind=lambda path: looked.append(path) or "", nodes=lambda _: [])) == []
    assert looked == ["/dev/sdx", "/run/a/b.sock"]


def test_a_flood_of_names_is_bounded() -> None:
    looked: list[str] = []
    text = "\n".join(f"cannot open /run/{number}" for number in range(5000))
    list(exit_denials(text, NO_EXITS, {}, kind=lambda path: looked.append(path) or "", nodes=lambda _: []))
    assert len(looked) <= 20


def test_cuda_may_name_its_threads_and_nobody_writes_a_setting_of_the_machine() -> None:
    """The kernel's view of processes is read-only, but for a driver that does not start without writing there."""
    device = Exits(named=("nvidia",), devices=("/dev/nvidia0",))
    words = [mount.words for mount in system_mounts(uid=0, gid=0, exits=device) if isinstance(mount, RawArguments)]
    assert ("--remount-ro", "/proc") not in words and ("--remount-ro", "/proc/1") in words
    closed = {each[1] for each in words if each[0] == "--ro-bind"}
    of_machine = {str(path) for path in Path("/proc").iterdir() if not path.name.isdigit() and not path.is_symlink()}
    assert {path for path in of_machine if os.path.isdir(path)} <= closed
    assert {path for path in of_machine if os.path.isfile(path) and os.stat(path).st_mode & 0o222} <= closed
    plain = [mount.words for mount in system_mounts(uid=0, gid=0) if isinstance(mount, RawArguments)]
    assert ("--remount-ro", "/proc") in plain
