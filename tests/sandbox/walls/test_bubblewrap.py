"""Level full with real bubblewrap: what is visible, what can be written, and what a failed start says."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from golem_forge.config.sandbox_block import ResourceLimits, WallSettings
from golem_forge.core.decisions import Verdict
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls import bubblewrap, planner
from golem_forge.sandbox.walls.model import Job, Level, LevelResult, ProbeReport, Streams
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.sandbox.zones import AccessMode, ZoneSpec

from .house import House

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory to another user")


def test_writes_reach_rw_zones_and_nothing_else(house: House) -> None:
    (house.root / "docs").mkdir()
    (house.root / "docs/d.txt").write_text("doc")
    walls = house.walls(
        ZoneSpec(name="workspace", path=house.workspace),
        ZoneSpec(name="docs", path=house.root / "docs", mode=AccessMode.RO),
    )
    other = house.root / "home"

    ran = house.run(
        f"cat /docs/d.txt; for d in . /usr /etc / /docs {other} /proc/sys/kernel /dev /opt; do"
        " (echo x > $d/new) 2>/dev/null && echo wrote $d; done; echo x > /tmp/t && echo x > ~/t && echo private",
        walls,
    )

    assert ran.text == "docwrote .\nprivate\n"
    assert not list(other.iterdir()) and not (house.root / "docs/new").exists()


@pytest.mark.parametrize(("write", "delete"), [(Verdict.BLOCKED, None), (None, Verdict.BLOCKED)])
def test_a_zone_where_nobody_ever_consents_is_read_only(house: House, write: Any, delete: Any) -> None:
    walls = house.walls(ZoneSpec(name="workspace", path=house.workspace, write=write, delete=delete))

    ran = house.run("touch x", walls)

    assert ran.code != 0 and not (house.workspace / "x").exists()
    assert [one["target"] for one in ran.after.denials] == ["/workspace/x"]


def test_a_job_that_only_reads_gets_read_only_zones(house: House) -> None:
    assert house.run("touch x", reads_only=True).code != 0
    assert not list(house.workspace.iterdir())


def test_only_what_was_declared_is_visible(house: House) -> None:
    (house.root / "home/.profile").write_text("own")
    (house.root / "beside").mkdir()

    ran = house.run(
        f"ls /; echo -; ls -A {house.root}; ls -A ~; ls /run /var /sys; cat /etc/shadow; whoami; cat /etc/passwd"
    )

    top, _, rest = ran.text.partition("-\n")
    libraries = {"lib", "lib32", "lib64", "libx32"}
    others = {"bin", "sbin", "usr", "etc", "proc", "dev", "tmp", "home", "opt", "nix", "workspace", house.root.parts[1]}
    assert set(top.split()) <= libraries | others
    assert rest.splitlines()[:2] == ["workspace", "work"]
    assert rest.count("No such file or directory") == 4
    assert "forge:x:" in rest and "\nforge\n" in rest


def test_no_capability_no_privilege_no_other_process(house: House) -> None:
    ran = house.run(
        "grep -E '^(CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; ls -d /proc/[0-9]* | wc -l;"
        f" cat /proc/{os.getpid()}/environ; unshare -U true; mount -t tmpfs x /tmp; hostname; ls -A /sys"
    )

    facts = dict(line.split(":\t") for line in ran.text.splitlines()[:5])
    assert {facts[name].strip("0") for name in ("CapEff", "CapPrm", "CapBnd")} == {""}
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    assert int(ran.text.splitlines()[5]) < 8
    assert ran.text.count("No such file") == 2 and "unshare" in ran.text and "mount:" in ran.text
    assert "\nforge\n" in ran.text


def test_there_is_no_network(house: House) -> None:
    ran = house.run(
        "(exec 3<>/dev/tcp/1.1.1.1/53) 2>&1; getent hosts example.com || echo no name; cat /proc/net/dev | wc -l;"
        " ls /var/run/docker.sock /run/docker.sock"
    )

    assert "Network is unreachable" in ran.text and "no name" in ran.text and "\n3\n" in ran.text
    assert ran.text.count("No such file") == 2


def test_the_environment_is_the_child_s_own(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary-value-1234")

    ran = house.run("env; cat /proc/1/environ /proc/1/cmdline | tr '\\0' '\\n'; ls /proc/self/fd", env={"GIVEN": "yes"})

    assert "canary-value-1234" not in ran.text
    assert ran.text.count("GIVEN=yes") == 2
    names = {line.partition("=")[0] for line in ran.text.partition("/usr/bin/bwrap")[0].splitlines() if "=" in line}
    assert names == {"GIVEN", "HOME", "LANG", "PATH", "PWD", "SHLVL", "TMPDIR", "_"}
    assert ran.text.split()[-4:] == ["0", "1", "2", "3"]


def test_the_arguments_of_the_backend_cannot_be_read_inside(house: House) -> None:
    (house.workspace / "hidden.pem").write_text("x")

    ran = house.run("for f in /proc/1/fd/*; do timeout 1 cat $f | tr '\\0' ' '; done 2>/dev/null; true")

    assert "hidden.pem" not in ran.text and "--ro-bind" not in ran.text


def test_output_names_zones_by_address(house: House) -> None:
    (house.workspace / "a.txt").write_text("content")
    host = str(house.workspace)

    ran = house.run(
        f"pwd; cat /workspace/a.txt; echo {host}/x; cat /proc/self/mountinfo;"
        f" printf '{host[:9]}'; sleep 0.2; echo '{host[9:]}/y'"
    )

    assert ran.text.startswith("/workspace\ncontent/workspace/x\n")
    assert ran.text.endswith("/workspace/y\n")
    assert host not in ran.text


def test_output_names_zones_by_address_behind_the_root_of_a_process(house: House) -> None:
    (house.workspace / "a.txt").write_text("content")
    host = str(house.workspace)

    ran = house.run(
        f"ls /proc/self/root{host}/a.txt /proc/$$/root{host}/a.txt /usr/..{host}/a.txt; ls -d /proc/self/cwd/a.txt;"
        f" cat /proc/self/root{host}/none; readlink /proc/self/cwd; printf /proc/self/root; sleep 0.2; echo {host}/y"
    )

    assert "/proc/self/root/workspace/a.txt\n" in ran.text and "/proc/self/cwd/a.txt\n" in ran.text
    assert ran.text.endswith("/workspace\n/proc/self/root/workspace/y\n")
    assert host not in ran.text


def test_a_zone_may_stand_at_its_address_only(house: House) -> None:
    walls = house.walls(ZoneSpec(name="workspace", path=house.workspace, at_host_path=False))

    ran = house.run(f"pwd; echo x > a; ls {house.workspace}", walls)

    assert ran.text.splitlines()[0] == "/workspace" and ran.code != 0
    assert (house.workspace / "a").exists()
    assert walls.mount_point("workspace") == "/workspace"


def test_other_spellings_of_a_zone_lead_there_too(house: House) -> None:
    (house.root / "spelled").symlink_to("workspace")
    walls = house.walls(ZoneSpec(name="workspace", path=house.root / "spelled"))

    ran = house.run(f"echo x > {house.root}/spelled/a; cat {house.workspace}/a; echo {house.root}/spelled/a", walls)

    assert ran.text == "x\n/workspace/a\n"


def test_secrets_of_the_session_are_taken_out_of_output(house: House) -> None:
    redactor = Redactor()
    redactor.add_secret("KEY", "canary-secret-99")
    walls = house.walls(redactor=redactor)

    ran = house.run("printf canary-sec; sleep 0.1; echo ret-99", walls)

    assert ran.text == "[secret KEY]\n"
    assert list(redactor.paths) == []


def test_private_directories_are_sized_and_gone_afterwards(house: House) -> None:
    before = set(os.listdir("/tmp"))

    ran = house.run("df -m --output=size /tmp ~ /dev/shm | tr -d ' \\n'; touch /dev/x; echo made > /tmp/made-inside")

    assert ran.text.startswith("1M-blocks512512256")
    assert not any("made-inside" in name for name in set(os.listdir("/tmp")) - before)


def test_the_working_directory_is_the_job_s(house: House) -> None:
    (house.workspace / "src").mkdir()
    (house.workspace / "file").touch()

    assert house.run("pwd", cwd="/workspace/src").text == "/workspace/src\n"
    assert house.run("pwd", cwd="src").text == "/workspace/src\n"
    for cwd, code in (("file", "NOT_A_DIRECTORY"), ("none", "NOT_FOUND"), ("/nowhere", "ZONE_ACCESS_DENIED")):
        with pytest.raises(SandboxError) as refused:
            house.run("touch ran", cwd=cwd)
        assert refused.value.code == code
    assert not (house.workspace / "ran").exists()


def test_without_zones_a_child_starts_in_an_empty_private_directory(house: House) -> None:
    sandbox = Sandbox(has_block=False)
    walls = house.walls(sandbox=sandbox)

    ran = house.run("ls -A; touch x && echo wrote; ls /workspace", walls)

    assert ran.text.startswith("wrote\n") and "No such file or directory" in ran.text and ran.code != 0


def test_user_tools_are_never_mounted(house: House) -> None:
    (house.root / "forge/tools/mine").mkdir(parents=True)
    sandbox = house.sandbox().with_user_tools(house.root / "forge/tools")
    walls = house.walls(sandbox=sandbox)

    ran = house.run(f"ls /user_tools; ls {house.root}/forge", walls)

    assert ran.text.count("No such file or directory") == 2
    with pytest.raises(SandboxError, match="No access"):
        house.run("true", walls, cwd="/user_tools")


def test_declared_directories_are_readable_without_their_secrets(house: House) -> None:
    shared = house.root / "shared"
    (shared / "deep").mkdir(parents=True)
    (shared / "deep/.env").write_text("canary")
    (shared / "readable").write_text("seen")
    walls = house.walls(settings=WallSettings(read=(str(shared),)))

    ran = house.run(f"cat {shared}/readable; cat {shared}/deep/.env; touch {shared}/x", walls)

    assert ran.text.startswith("seen") and "canary" not in ran.text and not (shared / "x").exists()


def test_git_commits_carry_the_person_s_name(house: House) -> None:
    (house.root / "home/.gitconfig").write_text(
        '[user]\n\tname = Ada "Q" # author\n\temail = ada@example.test\n[alias]\n\tst = status\n'
    )
    walls = house.walls(ZoneSpec(name="workspace", path=house.workspace, unprotect=(".git/hooks", ".git/config")))

    ran = house.run(
        "git init -q . && touch a && git add a && git commit -qm one && git log --format='%an <%ae>'; cat ~/.gitconfig",
        walls,
    )

    assert ran.text.startswith("Ada Q <ada@example.test>\n") and "alias" not in ran.text


def test_limits_hold_inside(house: House) -> None:
    walls = house.walls(settings=WallSettings(limits=ResourceLimits(file_size=1 << 20, open_files=64, cpu_s=7)))

    ran = house.run(
        "ulimit -n; ulimit -t; ulimit -c; head -c 3000000 /dev/zero > big; echo survived; stat -c %s big", walls
    )

    assert ran.text.split()[:3] == ["64", "7", "0"]
    assert "survived" in ran.text and ran.text.endswith("1048576\n")


def test_standard_input_and_a_stream_for_errors(house: House) -> None:
    ran = house.run("cat; echo wrong >&2", stdin=b"given", streams=Streams.APART)

    assert (ran.code, ran.text) == (0, "given")
    assert ran.after.denials == ran.after.protected_created == ()


def test_a_terminal_has_job_control(house: House) -> None:
    ran = house.run(
        "tty >/dev/null; test -t 0 && echo terminal; ps -o tpgid= -p $$ | tr -d ' '; echo $$", streams=Streams.TERMINAL
    )

    lines = ran.text.split()
    assert lines[0] == "terminal" and int(lines[1]) > 0


@as_root
def test_root_does_not_write_into_another_user_s_zone(house: House) -> None:
    os.chown(house.workspace, 12345, 12345)

    with pytest.raises(SandboxError) as refused:
        house.run("touch ran")

    assert refused.value.code == "WALLS_UNAVAILABLE" and "run as that user" in refused.value.message
    assert house.run("echo read", reads_only=True).text == "read\n"


def test_a_directory_put_in_the_zone_s_place_is_not_entered(house: House) -> None:
    walls = house.walls()
    house.workspace.rename(house.root / "moved")
    house.workspace.mkdir()

    with pytest.raises(SandboxError) as refused:
        house.run("touch ran", walls)

    assert refused.value.code == "WALLS_UNAVAILABLE"
    assert not list(house.workspace.iterdir()) and not list((house.root / "moved").iterdir())


def test_a_backend_that_fails_is_not_a_denial(house: House) -> None:
    fake = house.root / "bwrap"
    fake.write_text(f'#!/bin/sh\necho "bwrap: Can\'t mkdir {house.workspace}/.git: Permission denied" >&2\nexit 1\n')
    fake.chmod(0o755)

    with pytest.raises(SandboxError) as refused:
        house.run("touch ran", house.walls(bwrap=str(fake)))

    assert refused.value.code == "WALLS_UNAVAILABLE" and refused.value.status.value == "execution_failed"
    assert "Can't mkdir /workspace/.git: Permission denied" in refused.value.message
    assert str(house.root) not in refused.value.message and not (house.workspace / "ran").exists()


def test_no_walls_no_process(house: House) -> None:
    tried = LevelResult(level=Level.FULL, cause="user namespaces are off", fix="Switch them on.")
    walls = house.walls(report=ProbeReport(level=Level.NONE, tried=(tried,)))

    with pytest.raises(SandboxError, match=r"user namespaces are off.*Switch them on\."):
        house.run("touch ran", walls)

    assert not list(house.workspace.iterdir())


class TestBackend:
    def test_only_a_file_of_root_that_nobody_else_can_write(self, tmp_path: Path) -> None:
        planted = tmp_path / "bwrap"
        planted.write_text("#!/bin/sh\n")
        for mode in (0o777, 0o775, 0o755, 0o644):
            planted.chmod(mode)
            found = bubblewrap.find_bwrap((str(tmp_path),))
            safe = mode == 0o755 and not tmp_path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            assert found == (str(planted) if safe and os.geteuid() == 0 else None)

    @as_root
    def test_not_of_another_user_nor_behind_a_link(self, tmp_path: Path) -> None:
        planted = tmp_path / "bwrap"
        planted.write_text("#!/bin/sh\n")
        planted.chmod(0o755)
        os.chown(planted, 12345, 12345)
        assert bubblewrap.find_bwrap((str(tmp_path),)) is None
        planted.unlink()
        planted.symlink_to("/usr/bin/true")
        assert bubblewrap.find_bwrap((str(tmp_path),)) is None

    def test_never_from_path(self, house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for directory in (house.workspace, tmp_path):
            (directory / "bwrap").write_text("#!/bin/sh\necho planted\n")
            (directory / "bwrap").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.chdir(house.workspace)

        assert house.run("echo real").text == "real\n"
        found = bubblewrap.find_bwrap()
        assert found is not None and os.path.dirname(found) in ("/usr/bin", "/usr/local/bin", "/bin")


def test_what_is_exchanged_while_walls_are_built_is_not_bound(house: House) -> None:
    """A child of other walls swaps a directory for a link between the plan and the mount."""
    outside = house.root / "outside"
    (outside / ".vscode").mkdir(parents=True)
    (house.workspace / "a/.vscode").mkdir(parents=True)
    swapping = house.root / "bwrap"
    swapping.write_text(
        f'#!/bin/sh\nif [ "$1" = --args ]; then cd {house.workspace} && mv a b && ln -s {outside} a; fi\n'
        f'exec {bubblewrap.find_bwrap()} "$@"\n'
    )
    swapping.chmod(0o755)

    with pytest.raises(SandboxError) as refused:
        house.run("touch a/x", house.walls(bwrap=str(swapping)))

    assert refused.value.code == "WALLS_UNAVAILABLE" and str(house.root) not in refused.value.message
    assert os.listdir(outside) == [".vscode"]


def test_a_backend_that_cannot_bind_by_handle_binds_by_path(house: House) -> None:
    old = house.root / "bwrap"
    old.write_text(f'#!/bin/sh\n[ "$1" = --help ] && exit 0\nexec {bubblewrap.find_bwrap()} "$@"\n')
    old.chmod(0o755)
    (house.workspace / "a/.vscode").mkdir(parents=True)
    (house.workspace / ".env").write_text("canary")

    ran = house.run("touch a/x && echo wrote; touch a/.vscode/x; cat .env", house.walls(bwrap=str(old)))

    assert ran.text.startswith("wrote\n") and "canary" not in ran.text
    assert os.listdir(house.workspace / "a/.vscode") == []


def test_a_layout_that_is_out_of_date_is_made_anew(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    (house.workspace / ".vscode").mkdir()
    walls = house.walls()
    house.run("true", walls)
    made = planner.Planner.planned
    stale = [walls._planner.planned(Job(argv=()))]
    (house.workspace / ".vscode").rmdir()
    monkeypatch.setattr(planner.Planner, "planned", lambda self, job: stale.pop() if stale else made(self, job))

    assert house.run("echo fine", walls).text == "fine\n"


@pytest.mark.parametrize("level", [Level.LANDLOCK, Level.OFF])
def test_the_lower_levels_run_through_the_same_door(house: House, level: Level) -> None:
    (house.workspace / "a.txt").write_text("content")
    (house.workspace / ".env").write_text("canary")
    walls = house.walls(report=ProbeReport(level=level))

    ran = house.run("cat a.txt; pwd; cat .env; touch x", walls, reads_only=True)

    assert ran.text.startswith("content/workspace\n")
    assert ("canary" in ran.text) is (level is Level.OFF)
    assert (house.workspace / "x").exists() is (level is Level.OFF)
    assert walls.mount_point("workspace", level) == str(house.workspace)


def test_read_only_walls_refuse_what_may_write(house: House) -> None:
    with pytest.raises(SandboxError) as refused:
        house.run("make", house.walls(report=ProbeReport(level=Level.LANDLOCK)))

    assert refused.value.code == "WALLS_UNAVAILABLE"


def test_what_is_found_out_is_told_once_before_the_first_child(house: House) -> None:
    told: list[Level] = []
    walls = house.walls()
    walls.on_report(lambda report: told.append(report.level))

    house.run("true", walls)
    house.run("true", walls)

    assert told == [Level.FULL]


def test_walls_switched_off_are_not_probed(house: House) -> None:
    walls = house.walls(settings=WallSettings(off=True), report=None)

    assert house.run("echo free", walls).text == "free\n"


def test_explaining_a_path(house: House) -> None:
    (house.workspace / ".vscode").mkdir()
    (house.workspace / ".env").touch()
    walls = house.walls()

    paths = ("src/a", "/workspace/.vscode/x", f"{house.workspace}/.env")
    plain, protected, secret = map(walls.explain, paths)

    assert (plain.read, plain.write, plain.inner) == (None, None, f"{house.workspace}/src/a")
    assert protected.read is None and protected.write is not None and protected.write.why == "protected"
    assert secret.virtual == "/workspace/.env" and secret.read is not None and secret.read.why == "secret"


def test_notices_for_the_person(house: House) -> None:
    (house.root / ".git/objects").mkdir(parents=True)
    (house.root / ".git/HEAD").touch()
    walls = house.walls()

    assert any("git repository whose root is above it" in notice for notice in walls.notices), "it holds their home"
    (house.workspace / ".git").symlink_to("/x")
    assert any("is a link" in notice for notice in walls.check_zones())


@pytest.mark.skipif(
    not os.path.realpath(sys.base_prefix).startswith(str(Path.home()) + "/"),
    reason="needs an interpreter of a version manager in the home directory",
)
def test_a_virtual_environment_of_the_host_works_inside_and_the_other_way_round(house: House) -> None:
    venv = house.workspace / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    next(venv.glob("lib/python3*/site-packages")).joinpath("installed.py").write_text("word = 'found'\n")
    (venv / "bin" / "script").write_text(f"#!{venv}/bin/python\nimport installed\nprint(installed.word)\n")
    (venv / "bin" / "script").chmod(0o755)
    sandbox = house.sandbox()
    walls = Walls(sandbox, forge_home=house.root / "forge", host=WallsHost(report=ProbeReport(level=Level.FULL)))

    ran = house.run(
        ".venv/bin/python -c 'print(1)'; .venv/bin/script;"
        " .venv/bin/python -m venv --without-pip made; ls -A ~/..; ls -A $(dirname $PYENV_ROOT)",
        walls,
    )

    assert ran.text.startswith("1\nfound\n")
    shown = set(ran.text.splitlines()[3:])
    assert not {".bashrc", ".profile", ".ssh", ".bash_history"} & shown
    made = subprocess.run([str(house.workspace / "made/bin/python"), "-c", "print(2)"], capture_output=True, text=True)
    assert made.stdout == "2\n"
