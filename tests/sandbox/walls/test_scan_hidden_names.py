"""What one command does so that the next one's walls overlook something: it still finds everything masked."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.sandbox.walls import scan
from golem_forge.sandbox.walls.restrictions import MOST_MOUNTS
from golem_forge.sandbox.zones import AccessMode, ZoneSpec

from .house import House, init, path_rule

CANARY = "canary-content"


def _write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(CANARY)


def test_a_file_that_marks_a_virtual_environment_hides_nothing(house: House) -> None:
    init(house.workspace)
    init(house.workspace / "nested")
    _write(house.workspace, "sub/.env", "sub/lib/.env", "sub/bin/.env")
    walls = house.walls()

    house.run("touch .git/pyvenv.cfg sub/pyvenv.cfg nested/pyvenv.cfg", walls)
    ran = house.run(
        "echo evil >> .git/config; touch .git/hooks/x nested/.git/hooks/x; cat sub/.env sub/*/.env; rmdir sub/lib",
        walls,
    )

    assert CANARY not in ran.text and "Device or resource busy" in ran.text
    assert "evil" not in (house.workspace / ".git/config").read_text()
    assert not (house.workspace / ".git/hooks/x").exists() and not (house.workspace / "nested/.git/hooks/x").exists()


def test_what_is_masked_cannot_be_carried_where_no_scan_looks(house: House) -> None:
    _write(house.workspace, "sub/.env", "sub3/.aws/credentials", "real/x", "ruled/deep/y")
    (house.workspace / ".env").symlink_to("real/x")
    rules = (path_rule("/workspace/ruled/deep/y", Verdict.BLOCKED, Verb.READ),)
    walls = house.walls(rules=lambda: rules)

    moved = house.run(
        "mkdir -p a/b/c/d/e; mv sub node_modules; mv sub3 a/b/c/d/e/; mv real real2; mv ruled r;"
        " rm .env; touch sub/new sub3/new real/new ruled/deep/new && echo writable; true",
        walls,
    )
    ran = house.run("cat node_modules/.env a/b/c/d/e/sub3/.aws/* real2/x real/x r/deep/y; ls", walls)

    assert moved.text.endswith("writable\n") and moved.text.count("busy") == 4
    assert CANARY not in ran.text and {"sub", "sub3", "real", "ruled"} <= set(ran.text.split())


def test_a_link_made_anew_is_followed_anew(house: House) -> None:
    _write(house.workspace, "real/x", "real/y")
    (house.workspace / ".env").symlink_to("real/x")
    walls = house.walls()
    assert CANARY in house.run("cat real/y", walls).text

    house.run("ln -sfn real/y .env", walls)

    assert CANARY not in house.run("cat real/x real/y", walls).text


def test_past_the_budget_directories_are_read_only_and_masks_stay(house: House) -> None:
    _write(house.workspace, *(f"many/d{index}/.env" for index in range(MOST_MOUNTS + 5)), "few/.env")
    walls = house.walls()

    ran = house.run("cat many/*/.env few/.env; touch many/x; mv many m; touch few/x && echo open", walls)

    assert CANARY not in ran.text and ran.text.endswith("open\n")
    assert not (house.workspace / "many/x").exists() and not (house.workspace / "m").exists()
    assert walls.notices[-1].startswith("/workspace/many is read-only")


@pytest.mark.parametrize("mode", [AccessMode.RW, AccessMode.RO])
def test_a_socket_of_the_host_is_masked(house: House, mode: AccessMode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house.workspace)
    (house.workspace / "run").mkdir()
    daemon = socket.socket(socket.AF_UNIX)
    daemon.bind("run/s")
    daemon.listen(1)
    daemon.settimeout(PATIENCE)
    try:
        walls = house.walls(ZoneSpec(name="workspace", path=house.workspace, mode=mode))
        ran = house.run("python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('run/s')\"; mv run r", walls)
    finally:
        daemon.close()

    assert "PermissionError" in ran.text and not (house.workspace / "r").exists()


def test_a_commondir_is_gone_afterwards_and_reported(house: House) -> None:
    init(house.workspace)
    init(house.workspace / "lib")
    (house.workspace / "outside").write_text("kept")

    ran = house.run(
        "echo ../evil > .git/commondir; ln -s ../../outside lib/.git/commondir; git init -q new;"
        " echo .. > new/.git/commondir"
    )

    assert not os.path.lexists(house.workspace / ".git/commondir")
    assert not os.path.lexists(house.workspace / "lib/.git/commondir")
    assert (house.workspace / "outside").read_text() == "kept"
    told = "\n".join(one.text for one in ran.after.leftovers)
    assert "The command made /workspace/.git/commondir; Forge ignored it." in told
    assert "/workspace/lib/.git/commondir" in ran.after.protected_created
    assert "/workspace/new is a repository" in told and not os.path.lexists(house.workspace / "new/.git")


def test_a_commondir_that_was_there_stays(house: House) -> None:
    init(house.workspace)
    (house.workspace / ".git/commondir").write_text(".\n")

    ran = house.run("echo ../evil > .git/commondir")

    assert (house.workspace / ".git/commondir").read_text() == ".\n" and ran.after.protected_created == ()


def test_submodules_with_names_of_git_s_own_are_guarded(house: House) -> None:
    init(house.workspace)
    modules = [house.workspace / ".git/modules" / name for name in ("logs", "hooks", "objects", "deep/info")]
    for module in modules:
        module.parent.mkdir(parents=True, exist_ok=True)
        init(module, "--bare")
    settings = [(module / "config").read_text() for module in modules]
    walls = house.walls()

    each = "cd .git/modules; for m in logs hooks objects deep/info; do"
    house.run(f"touch .git/modules/HEAD .git/modules/deep/HEAD; {each} rm -f $m/HEAD; done", walls)
    house.run(f"{each} echo evil >> $m/config; touch $m/hooks/x; done", walls)

    assert [(module / "config").read_text() for module in modules] == settings
    assert not any((module / "hooks/x").exists() for module in modules)


def test_an_exchanged_link_at_the_root_is_reported(house: House) -> None:
    _write(house.workspace, "conf/envrc", "dot/settings.json", "conf/other")
    (house.workspace / ".envrc").symlink_to("conf/envrc")
    (house.workspace / ".vscode").symlink_to("dot")
    (house.workspace / ".profile").symlink_to("conf/other")

    ran = house.run("ln -sfn conf/new .envrc; rm .vscode; mkdir .vscode; cat .profile")

    assert ran.after.protected_created == ("/workspace/.envrc", "/workspace/.vscode")


def test_the_root_cannot_become_a_repository_and_others_are_judged(house: House) -> None:
    walls = house.walls()

    ran = house.run(
        "git init -q --bare /tmp/b; cp -r /tmp/b/* .; mkdir sub; echo x > sub/HEAD; echo .. > sub/commondir;"
        " cp -r /tmp/b plain",
        walls,
    )

    assert "HEAD" in ran.text and not (house.workspace / "HEAD").exists() and (house.workspace / "config").exists()
    assert ran.after.protected_created == ("/workspace/plain/HEAD",)
    assert [one.severity.value for one in ran.after.leftovers] == ["critical"]
    assert not (house.workspace / "sub/HEAD").exists()
    assert house.run("true", walls).after.protected_created == ()


def test_a_link_in_the_place_of_a_masked_path_is_no_way_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(house.workspace, "sub/.env")
    away = house.root / "away"
    away.mkdir()
    walls = house.walls()
    planned = walls._planner.planned

    def and_then_exchanged(job: Any) -> Any:
        made = planned(job)
        if not (house.workspace / "sub").is_symlink():
            (house.workspace / "sub").rename(house.workspace / "kept")
            (house.workspace / "sub").symlink_to(f"/oldroot{away}")
        return made

    monkeypatch.setattr(walls._planner, "planned", and_then_exchanged)

    ran = house.run("cat kept/.env sub/.env; ls", walls, reads_only=True)

    assert CANARY not in ran.text and os.listdir(away) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns the host's devices")
def test_a_device_of_the_host_has_its_mode_back(house: House) -> None:
    before = os.stat("/dev/full").st_mode

    ran = house.run("chmod 0667 /dev/full && echo changed; echo x > /dev/null && echo wrote", reads_only=True)

    assert ran.text.endswith("wrote\n") and os.stat("/dev/full").st_mode == before


def test_whether_everything_below_a_directory_is_known(house: House) -> None:
    _write(house.workspace, "a/b/x", "deep/1/2/3/4/x")
    walls = house.walls()

    assert walls.scan_complete("/workspace/a") and walls.scan_complete("a")
    assert walls.scan_complete("/workspace") and not walls.scan_complete("/")
    _write(house.workspace, "deep/1/2/3/4/5/.env", "a/node_modules/x", "a/node_modules/server.pem")
    assert walls.scan_complete("/workspace"), "every secret is masked, however deep"
    assert CANARY not in house.run("cat deep/1/2/3/4/5/.env a/node_modules/server.pem", walls).text
    assert not walls.scan_complete("/workspace/missing")


def test_a_directory_that_was_not_searched_is_not_known(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_ENTRIES", 1)
    _write(house.workspace, "a/b/x", "deep/1/2/3/4/5/x")
    walls = house.walls()

    assert walls.scan_complete("/workspace/a") and walls.scan_complete("/workspace"), "looked through now"
    _write(house.workspace, "deep/1/2/3/4/5/.env")
    assert not walls.scan_complete("/workspace")
    assert walls.scan_complete("/workspace", hidden=False)
    assert any("stopped at /workspace/deep/1/2/3/4" in notice for notice in walls.check_zones())
    assert CANARY not in house.run("cat deep/1/2/3/4/5/.env; ls -R deep", walls).text, "what was not searched is hidden"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns the device nodes")
def test_no_access_list_stays_on_a_device_of_the_host(house: House) -> None:
    script = "import os; os.setxattr('/dev/null', 'user.x', b'x')"
    assert "not supported" in house.run(f'python3 -c "{script}"').text
    assert os.listxattr("/dev/null") == []
