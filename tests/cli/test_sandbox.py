"""`forge sandbox`: what it says about places outside of zones, and how it hands input and output on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE

from .conftest import Shell


@pytest.mark.parametrize(
    ("path", "shows", "read", "write"),
    [
        ("/usr/bin/env", "system, read-only", "allowed", "refused (outside)"),
        ("/usr/bin/no-such-program", "not there", "refused (outside)", "refused (outside)"),
        ("/etc/passwd", "system, read-only; a small file of the walls' own", "allowed", "refused (outside)"),
        ("/etc/shadow", "not there", "refused (outside)", "refused (outside)"),
        ("/tmp/x", "private, gone afterwards", "allowed", "allowed"),
        ("/var/lib/x", "not there", "refused (outside)", "refused (outside)"),
    ],
)
def test_explain_says_what_walls_show_outside_of_zones(
    in_process: Shell, path: str, shows: str, read: str, write: str
) -> None:
    said = in_process("sandbox", "explain", "--json", path).json
    assert said["walls"] == {"place": path, "shows": shows, "read": read, "write": write}
    assert said["tools"]["read"] == f"No access to '{path}'. Zones: /workspace (rw)"


def test_explain_says_what_a_command_would_see_in_a_zone(in_process: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        in_process.write(f"certs/{number}.pem", "canary")
    in_process.write("certs/index.txt", "")

    def walls(path: str) -> dict[str, str]:
        said: dict[str, str] = in_process("sandbox", "explain", "--json", path).json["walls"]
        return said

    assert walls("certs/7.pem")["shows"] == "hidden: there, empty and unreadable"
    assert walls("certs/7.pem")["read"] == "refused (secret)"
    assert walls("certs")["shows"] == "300 names in it are hidden: there, empty and unreadable"
    assert walls("certs")["read"] == "allowed" and "shows" not in walls("certs/index.txt")
    monkeypatch.setattr("golem_forge.sandbox.walls.planner.MOST_MASKS", 299)
    for said in walls("certs/index.txt").values():
        assert "300 secret names" in said and "walls can hide 299 (300 of them in /workspace/certs)" in said


def test_explain_knows_a_toolchain_and_hides_its_credentials(in_process: Shell) -> None:
    cargo = in_process.home / ".cargo"
    (cargo / "bin").mkdir(parents=True)
    (cargo / "bin" / "cargo").write_text("")
    (cargo / "credentials.toml").write_text("canary-4711")
    said = in_process("sandbox", "explain", "--json", str(cargo / "bin" / "cargo")).json["walls"]
    assert (said["shows"], said["read"]) == ("toolchain, read-only", "allowed")
    hidden = in_process("sandbox", "explain", "--json", str(cargo / "credentials.toml")).json["walls"]
    assert hidden["shows"].startswith("hidden")
    assert hidden["read"] == "refused (outside)"


def test_standard_input_cannot_be_opened_again_for_writing(shell: Shell, tmp_path: Path) -> None:
    given = tmp_path / "given.txt"
    given.write_text("mine\n")
    with given.open("rb") as source:
        done = subprocess.run(
            [
                shell.forge.forge,
                "sandbox",
                "exec",
                "--",
                "cat; echo evil > /proc/self/fd/0; echo evil >> /proc/self/fd/0",
            ],
            cwd=shell.project,
            env=shell.environ,
            stdin=source,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert done.stdout == "mine\n"
    assert given.read_text() == "mine\n"


def test_more_input_than_a_pipe_holds_arrives_whole_or_is_left_unread(shell: Shell) -> None:
    text = "a" * 999 + "\n"
    assert shell("sandbox", "exec", "--", "wc", "-c", stdin=text * 1000).out.strip() == "1000000"
    left = shell("sandbox", "exec", "--", "head", "-n", "1", stdin=text * 1000)
    assert (left.code, left.out) == (0, text)


def test_a_time_limit_is_told_and_bytes_that_are_no_text_pass_unchanged(shell: Shell) -> None:
    ended = shell("sandbox", "exec", "--timeout", "0.4", "--", "sleep", "20")
    assert (ended.code, "timed out after 0.4 s" in ended.err) == (124, True)
    words = ["forge", "sandbox", "exec", "--", r"printf 'a\377b'"]
    with shell.forge.start_with_input(words, cwd=shell.project, env=shell.environ) as printing:
        assert printing.communicate(timeout=PATIENCE) == (b"a\xffb", b"")
    plain = shell("sandbox", "exec", "--", "echo fine")
    assert (plain.out, plain.err) == ("fine\n", "")
