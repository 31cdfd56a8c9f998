"""A zone with `at_host_path: false`: nothing inside names its host path, and everything else is as in other walls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls import bubblewrap
from golem_forge.sandbox.walls.model import Streams
from golem_forge.sandbox.walls.restrictions import FEW
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import ZoneSpec

from .house import House, init

TABLES = "/proc/self/mountinfo /proc/self/mounts /proc/self/mountstats /proc/mounts /proc/*/mountinfo /proc/*/mounts"


@pytest.fixture
def apart(house: House) -> Walls:
    return house.walls(ZoneSpec(name="workspace", path=house.workspace, at_host_path=False))


def _not_rewritten(path: Path) -> str:
    """A part of the host path that no output rewrites."""
    return path.parent.name


def test_no_mount_table_names_the_host_path(house: House, apart: Walls) -> None:
    init(house.workspace)
    part = _not_rewritten(house.workspace)
    shown = house.run(f"cat {TABLES} 2>/dev/null | grep -c {part}", house.walls())
    assert int(shown.text) > 0, "what other walls show"

    ran = house.run(
        f"cat {TABLES} 2>/dev/null | grep {part}; (cat {TABLES} 2>/dev/null & wait) | grep {part};"
        f" setsid sh -c 'cat /proc/self/mountinfo' | grep {part};"
        f" cat /proc/self/maps /proc/self/fdinfo/* 2>/dev/null | grep {part}; pwd",
        apart,
    )

    assert ran.text == "/workspace\n"


def test_nothing_is_left_of_what_hides_it(house: House, apart: Walls) -> None:
    ran = house.run(
        "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; ls /proc/self/fd; umask;"
        " unshare -m true; unshare -U true; /usr/sbin/chroot /workspace true; python3 -c 'import os; os.chroot(\".\")'",
        apart,
    )
    plain = house.run("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; ls /proc/self/fd; umask", house.walls())

    assert ran.text.startswith(plain.text)
    assert "CapBnd:\t0000000000000000" in ran.text and "CapAmb:\t0000000000000000" in ran.text
    assert ran.text.count("Operation not permitted") == 4


def test_walls_hold_what_they_hold_elsewhere(house: House, apart: Walls) -> None:
    init(house.workspace)
    (house.workspace / "sub").mkdir()
    (house.workspace / "sub/.env").write_text("canary")
    (house.workspace / "forge.yaml").write_text("version: 1\n")

    ran = house.run(
        "cat sub/.env; rm -f sub/.env; mv sub other; mv forge.yaml x; echo y > forge.yaml; echo x > sub/new;"
        " cd sub && pwd && python3 -c 'import os; print(os.getcwd(), os.path.realpath(\"../sub\"))'; df . | tail -1",
        apart,
    )

    assert "canary" not in ran.text and ran.text.count("busy") >= 3, ran.text
    assert "/workspace/sub\n/workspace/sub /workspace/sub\n" in ran.text
    assert (house.workspace / "sub/.env").read_text() == "canary" and (house.workspace / "sub/new").exists()
    assert (house.workspace / "forge.yaml").read_text() == "version: 1\n"


def test_many_masks_hold_there_too(house: House, apart: Walls) -> None:
    (house.workspace / "certs").mkdir()
    for number in range(FEW + 200):
        (house.workspace / f"certs/{number}.pem").write_text("canary")

    ran = house.run("cat certs/*.pem; rm -f certs/1.pem; mv certs/2.pem certs/x; mv certs c; ls | head -1", apart)

    assert "canary" not in ran.text and ran.text.count("busy") == 3, ran.text[-300:]
    assert all((house.workspace / f"certs/{number}.pem").read_text() == "canary" for number in range(FEW + 200))


def test_a_directory_whose_name_is_strange(house: House, apart: Walls) -> None:
    strange = house.workspace / "a 'b' $c -x"
    strange.mkdir()
    assert house.run("pwd", apart, cwd="/workspace/a 'b' $c -x").text == "/workspace/a 'b' $c -x\n"


def test_a_terminal_has_it_too(house: House, apart: Walls) -> None:
    part = _not_rewritten(house.workspace)
    ran = house.run(f"grep -c {part} /proc/self/mountinfo; tty", apart, streams=Streams.TERMINAL)
    assert ran.text.replace("\r", "").startswith("0\n/dev/")


def test_a_variable_that_loads_code_hides_nothing(house: House, apart: Walls) -> None:
    """The stage that hides it has capabilities: nothing of the zone may run in it."""
    part = _not_rewritten(house.workspace)
    ran = house.run(f"grep -c {part} /proc/self/mountinfo", apart, env={"LD_PRELOAD": "/workspace/x.so"})
    assert int(ran.text.split()[-1]) > 0


def test_a_machine_without_the_programs_says_so(house: House, apart: Walls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_HIDING_STAGE", bubblewrap._HIDING_STAGE.replace("nsenter", "missing"))
    bubblewrap.can_hide_mount_table.cache_clear()
    try:
        assert any("mountinfo" in notice for notice in apart.notices)
        assert house.run("echo fine", apart).text == "fine\n"
    finally:
        bubblewrap.can_hide_mount_table.cache_clear()
    monkeypatch.undo()
    assert not any("mountinfo" in notice for notice in apart.notices)


def test_a_stage_that_fails_runs_nothing(house: House, apart: Walls, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bubblewrap.can_hide_mount_table()
    monkeypatch.setattr(bubblewrap, "_HIDING_CAPABILITIES", ())
    with pytest.raises(SandboxError) as refused:
        house.run("touch ran", apart)
    assert refused.value.code == "WALLS_UNAVAILABLE" and not os.path.exists(house.workspace / "ran")
