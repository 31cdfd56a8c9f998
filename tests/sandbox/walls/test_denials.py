"""A denial needs evidence: an error text about a path that the plan refuses, a proxy's word, or a death by SIGSYS."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, within
from tests.tables import table

from golem_forge.config.sandbox_block import WallSettings
from golem_forge.config.yaml_file import parse_yaml
from golem_forge.core.effects import Verb
from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.denials import MOST_DENIALS, blocked_line, find_denials, way_line
from golem_forge.sandbox.walls.model import Level, PlannedZone, ProbeReport, RefusalReason, Restriction, WallPlan

WORK = PlannedZone(
    name="workspace",
    host="/srv/host/app",
    base="/srv/host/app",
    writable=True,
    restrictions=(
        Restriction(parts=(".git", "hooks"), why=RefusalReason.PROTECTED),
        Restriction(parts=(".git", "config"), why=RefusalReason.PROTECTED),
        Restriction(parts=(".env",), why=RefusalReason.SECRET, masked=True),
        Restriction(parts=("held back",), why=RefusalReason.RULE, masked=True),
        Restriction(parts=("frozen",), why=RefusalReason.RULE),
    ),
)
DOCS = PlannedZone(name="docs", host="/srv/docs", base="/srv/docs", writable=False)
PLAN = WallPlan(zones=(WORK, DOCS), cwd="/srv/host/app", private=("/tmp", "/home/forge"), readable=("/usr", "/bin"))


def facts(text: str, plan: WallPlan = PLAN, **ending: Any) -> list[tuple[str, str, str]]:
    return [(one["kind"], one["access"], one["target"]) for one in find_denials(plan, text, **ending)]


CONFIG = ("protected", "write", "/workspace/.git/config")
HOOK = ("protected", "write", "/workspace/.git/hooks/pre-commit")
ENV = ("secret", "read", "/workspace/.env")


@table(
    ("line", "expected"),
    [
        ("/bin/sh: 1: cannot create .git/config: Read-only file system", CONFIG),
        ("sh: 1: cannot create /workspace/.git/hooks/pre-commit: Permission denied", HOOK),
        ("zsh:1: read-only file system: .git/config", CONFIG),
        ("touch: cannot touch '.git/hooks/pre-commit': Read-only file system", HOOK),
        ("touch: cannot touch ‘.git/hooks/pre-commit’: Read-only file system", HOOK),
        ("cp: cannot create regular file '/srv/host/app/.git/config': Permission denied", CONFIG),
        ("rm: cannot remove '.git/config': Read-only file system", ("protected", "delete", CONFIG[2])),
        ("rm: cannot remove '.git/hooks': Device or resource busy", ("protected", "delete", "/workspace/.git/hooks")),
        ("mv: cannot move '.git/config' to 'x': Device or resource busy", CONFIG),
        ("Error: EBUSY: resource busy or locked, rename '.git/config' -> 'x'", CONFIG),
        ("fatal: cannot create directory at '/docs/x': Permission denied", ("path", "write", "/docs/x")),
        ("cat: .env: Permission denied", ENV),
        ("cat: ./src/../.env: Permission denied", ENV),
        ("\x1b[31mgrep: .env: Permission denied\x1b[0m", ENV),
        ("rg: /workspace/.env: Permission denied (os error 13)", ENV),
        ("OSError: [Errno 30] Read-only file system: '/workspace/.git/hooks/pre-commit'", HOOK),
        ("[Error: EROFS: read-only file system, open '.git/config'] {", CONFIG),
        ('Error: Read-only file system (os error 30) at path "/workspace/.git/config"', CONFIG),
        ("chmod: changing permissions of '.git/config': Read-only file system", CONFIG),
        ("touch: cannot touch '/usr/x': Read-only file system", ("path", "write", "/usr/x")),
        ("cat: 'held back': Permission denied", ("path", "read", "/workspace/held back")),
        ("tee: frozen/deep/x: Read-only file system", ("path", "write", "/workspace/frozen/deep/x")),
        ("touch: cannot touch '/docs/a': Read-only file system", ("path", "write", "/docs/a")),
    ],
)
def test_error_texts_that_name_a_refused_path(line: str, expected: tuple[str, str, str]) -> None:
    assert facts(f"first\n{line}\nlast\n") == [expected]


@table(
    "text",
    [
        "permission denied",
        "Permission denied\n",
        "script: permission denied\n",
        "ssh: Permission denied (publickey).",
        "bash: line 1: ./run.sh: Permission denied",
        "touch: cannot touch 'src/x': Read-only file system",
        "cat: /usr/share/doc: Permission denied",
        "cat: .git/config: No such file or directory",
        "I will not read .env and not write .git/config",
        "rm: cannot remove '/tmp/x': Operation not permitted",
        "open /workspace/.environment: permission denied",
        "docker: permission denied while trying to connect",
    ],
)
def test_texts_that_prove_nothing(text: str) -> None:
    assert facts(text, exit_code=1) == []


def test_relative_names_begin_at_the_working_directory() -> None:
    deep = WallPlan(zones=(WORK,), cwd="/workspace/sub")
    assert facts("cat: ../.env: Permission denied", deep) == [ENV]
    assert facts("cat: .env: Permission denied", deep) == []


def test_a_program_speaking_of_no_file_is_no_denial_in_a_read_only_zone() -> None:
    plan = WallPlan(zones=(DOCS,), cwd="/srv/docs")
    assert facts("ssh: Permission denied (publickey).\npermission denied\n", plan, exit_code=255) == []
    assert facts("touch: cannot touch 'a': Read-only file system", plan) == [("path", "write", "/docs/a")]


@table(
    ("line", "expected"),
    [
        ("sh: 1: cannot create /etc/made: Read-only file system", [("path", "write", "/etc/made")]),
        ("OSError: [Errno 30] Read-only file system: '/usr/made'", [("path", "write", "/usr/made")]),
        ("OSError: [Errno 30] Read-only file system: 'made'", [("path", "write", "/docs/made")]),
        ("sh: 1: cannot create my notes.txt: Read-only file system", [("path", "write", "/docs/notes.txt")]),
        ("psql: FATAL: permission denied for table users", []),
        ("ERROR:  permission denied to create database", []),
        ("bash: line 1: ./run.sh: Permission denied", []),
        ("PermissionError: [Errno 13] Permission denied: 'locked.txt'", []),
        ("cat: /root/x: Permission denied", [("path", "read", "/root/x")]),
    ],
)
def test_in_a_zone_that_is_a_read_only_mount_only_that_error_is_evidence(line: str, expected: list[Any]) -> None:
    """There every word could be the name of a refused path."""
    plan = WallPlan(zones=(DOCS,), cwd="/srv/docs", readable=("/usr",), mounted=True)
    assert facts(line, plan, exit_code=1) == expected


@pytest.mark.skipif(os.getuid() == 0 and not shutil.which("setpriv"), reason="root is refused nothing")
@pytest.mark.parametrize(
    "command",
    [
        "cat .env",
        "echo x > .git/config",
        "touch .git/hooks/pre-commit",
        "cp a .git/config",
        "mkdir .git/hooks/x",
        f"{sys.executable} -c \"open('.git/config', 'w')\"",
        f"{sys.executable} -c \"open('.env')\"",
    ],
)
def test_what_real_programs_say_about_real_refusals(tmp_path: Path, command: str) -> None:
    for name in (".git/hooks", "x"):
        (tmp_path / name).mkdir(parents=True)
    for name in (".env", ".git/config", "a"):
        (tmp_path / name).write_text("canary\n")
    (tmp_path / ".env").chmod(0)
    (tmp_path / ".git/config").chmod(0o444)
    (tmp_path / ".git/hooks").chmod(0o555)
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []
    ran = subprocess.run(
        [*drop, "bash", "-c", command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
    )
    zone = PlannedZone(
        name="workspace", host=str(tmp_path), base=str(tmp_path), writable=True, restrictions=WORK.restrictions
    )
    plan = WallPlan(zones=(zone,), cwd=str(tmp_path))
    assert ran.returncode != 0
    [denial] = find_denials(plan, ran.stderr, exit_code=ran.returncode)
    assert denial["kind"] == ("secret" if ".env" in command else "protected"), ran.stderr
    assert denial["target"].startswith("/workspace/.")


def test_the_proxys_word_is_evidence() -> None:
    refused = [
        {"host": "evil.test", "port": 443, "why": "not approved"},
        {"host": "db.test", "port": 5432, "why": "leads to a private address"},
        {"host": "::1", "port": 80, "why": "not approved"},
    ]
    one, two, three = find_denials(PLAN, "", refused_hosts=refused)
    assert (one["kind"], one["target"], one["access"], one["why"]) == (
        "host",
        "evil.test:443",
        "connect",
        "not approved",
    )
    assert "{host: evil.test, ports: [443], verdict: preApproved}" in one["widen"]
    assert "private: true" in two["widen"] and "private" not in one["widen"]
    assert three["target"] == "[::1]:80"


def test_a_death_by_sigsys_is_evidence_and_its_number_as_exit_code_is_not() -> None:
    [one] = find_denials(PLAN, "", signal_number=signal.SIGSYS)
    assert one["kind"] == "syscall"
    assert find_denials(PLAN, "", exit_code=159) == ()
    assert find_denials(PLAN, "bash: line 1: 7 Bad system call  ./x\n", exit_code=159)[0]["kind"] == "syscall"
    assert find_denials(PLAN, "Bad system call", signal_number=signal.SIGKILL) == ()


def test_the_line_a_model_reads() -> None:
    denials = find_denials(PLAN, "bash: line 1: .git/hooks/pre-commit: Read-only file system\n")
    assert blocked_line(denials) == "Blocked by the sandbox: write /workspace/.git/hooks/pre-commit (protected)."
    assert blocked_line(()) == ""
    many = find_denials(PLAN, "".join(f"touch: cannot touch '/docs/{n}': Read-only file system\n" for n in range(9)))
    assert blocked_line(many).endswith("write /docs/4 (read-only zone); and 4 more.")


def test_proposals_can_be_pasted() -> None:
    def widen(line: str) -> str:
        [one] = find_denials(PLAN, line)
        return str(one["widen"])

    assert "sandbox: {unprotect: [.git/hooks]}" in widen("x: .git/hooks/a: Read-only file system")
    assert "sandbox: {unprotect: [.git/config]}" in widen("x: .git/config: Read-only file system")
    secret = widen("cat: .env: Permission denied")
    rule = parse_yaml("rules:\n  " + secret.partition("`: ")[2], "rules.yaml").value["rules"][0]
    assert rule == {"path": "/workspace/.env", "access": ["read"], "verdict": "preApproved", "accept": ["secret_path"]}
    assert "sandbox: {zones: {docs: {mode: rw}}}" in widen("x: /docs/a: Read-only file system")
    assert "zones: {x: {path: /opt/x, mode: rw}}" in widen("x: /opt/x/y: Read-only file system")
    assert "zones: {zone-tmp: {path: /opt/Tmp, mode: rw}}" in widen("x: /opt/Tmp/y: Read-only file system")
    assert "sandbox: {read: [/opt/x]}" in widen("cat: /opt/x/y: Permission denied")
    for path in ("/usr/x", "/x", "/etc/ssh/y", "/home/z"):
        assert "a directory of your own" in widen(f"x: {path}: Read-only file system")
    assert "forge rules list" in widen("x: frozen: Read-only file system")
    assert "holds the zone /workspace" in widen("touch: cannot touch '../made': Read-only file system")


def test_a_zone_that_is_closed_although_its_mode_is_rw_gets_no_other_mode_proposed() -> None:
    zone = replace(WORK, writable=False, meant_writable=True)
    [one] = find_denials(WallPlan(zones=(zone,), cwd="/srv/host/app"), "touch: cannot touch 'a': Read-only file system")
    assert "mode: rw" not in one["widen"] and "forge doctor" in one["widen"]


def test_a_rule_is_proposed_for_the_path_that_rules_name() -> None:
    zone = replace(WORK, subpath=("packages", "app"))
    [one] = find_denials(WallPlan(zones=(zone,), cwd="/srv/host/app"), "cat: .env: Permission denied")
    assert one["target"] == "/workspace/.env"
    assert "{path: /workspace/packages/app/.env, " in one["widen"]


def test_a_socket_is_not_proposed_to_be_opened() -> None:
    sealed = Restriction(parts=("agent.sock",), why=RefusalReason.SEALED, masked=True)
    plan = WallPlan(zones=(replace(WORK, restrictions=(sealed,)),), cwd="/srv/host/app", mounted=True)
    [one] = find_denials(plan, "nc: agent.sock: Permission denied")
    assert (one["kind"], one["target"]) == ("path", "/workspace/agent.sock")
    assert one["why"].startswith("a socket or a FIFO ")
    assert "Nothing lifts this one" in one["widen"] and "rules.yaml" not in one["widen"]
    assert way_line([one]).startswith("Nothing lifts this one")  # no person can


def test_a_directory_shown_inside_a_private_one_can_be_read_and_not_changed() -> None:
    plan = WallPlan(private=("/tmp",), readable=("/tmp/tools",), mounted=True)
    assert plan.refusal("/tmp/x", Verb.WRITE) is None
    assert plan.refusal("/tmp/tools/x", Verb.READ) is None
    assert plan.refusal("/tmp/tools/x", Verb.WRITE) is not None


def test_each_once_and_at_most_twenty() -> None:
    assert len(facts("cat: .env: Permission denied\n" * 500)) == 1
    lines = "".join(f"touch: cannot touch '/docs/{n}': Read-only file system\n" for n in range(100))
    assert len(facts(lines)) == MOST_DENIALS


def test_names_cannot_forge_a_second_line() -> None:
    [one] = find_denials(PLAN, "touch: cannot touch '/docs/a\x1b]0;x\u202e': Read-only file system\n")
    assert "\x1b" not in one["target"] and "\u202e" not in one["target"]


def test_only_beginning_and_end_of_a_long_output_are_read() -> None:
    padding = "x" * 79 + "\n"
    far = padding * 5000
    error = "cat: .env: Permission denied\n"
    assert facts(error + far + far) == [ENV]
    assert facts(far + far + error) == [ENV]
    assert facts(far + error + far + far) == []


@table(
    "piece",
    [
        "permission denied ",
        "‘",
        "'permission denied\"`",
        "\n",
        "/a/permission denied: ",
        "x: 'permission denied",
        "(" * 50,
    ],
)
def test_hostile_output_is_read_in_time(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    with within(30):
        find_denials(PLAN, text)


def test_a_plan_is_asked_about_folded_absolute_paths_only() -> None:
    asked: list[str] = []

    class Spy:
        cwd = "/workspace"
        mounted = False

        def refusal(self, path: str, access: Verb) -> None:
            asked.append(path)

    find_denials(
        Spy(), "cat: a/../../b/./c: Permission denied\ncat: ~/x: Permission denied\ncat: //x//y: Permission denied\n"
    )
    assert asked
    assert all(path.startswith("/") and "//" not in path and "/." not in path and "~" not in path for path in asked)


def test_removing_what_the_walls_guard_is_a_denial(house: Any) -> None:
    (house.workspace / ".git").mkdir()
    (house.workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (house.workspace / ".git" / "config").write_text("[core]\n")
    ran = house.run("rm -f .git/config")
    assert "busy" in ran.text
    found = [(one["kind"], one["access"], one["target"]) for one in ran.after.denials]
    assert found == [("protected", "delete", "/workspace/.git/config")]
    assert (house.workspace / ".git" / "config").read_text() == "[core]\n"


@pytest.mark.skipif(landlock.landlock_abi() < 3, reason="this kernel has no Landlock, or an old one")
def test_a_directory_that_is_proposed_for_reading_can_be_read_once_it_is_typed_in(house: Any) -> None:
    """In read-only walls, which show everything and refuse; below the temporary directory all is a command's own."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    if not os.access(home, os.W_OK):
        pytest.skip("a directory of one's own, away from the temporary one")
    with tempfile.TemporaryDirectory(dir=home, prefix="shared things ") as outside:
        Path(outside, "a.txt").write_text("canary\n")
        report = ProbeReport(level=Level.LANDLOCK)
        ran = house.run(f"cat '{outside}/a.txt'", house.walls(report=report), reads_only=True)
        [denial] = ran.after.denials
        assert (denial["access"], denial["target"]) == ("read", f"{outside}/a.txt")
        typed = parse_yaml(denial["widen"].partition(": ")[2], "config.yaml").value["sandbox"]
        settings = WallSettings(read=tuple(typed["read"]))
        again = house.run(f"cat '{outside}/a.txt'", house.walls(report=report, settings=settings), reads_only=True)
        assert (again.text, again.after.denials) == ("canary\n", ())
