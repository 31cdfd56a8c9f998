"""`forge call` of a command sees it to its end: a one-shot call has no session that could be read later."""

from __future__ import annotations

import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.deadlines import PATIENCE, ever_longer, within

from golem_forge.cli.main import main

from .conftest import Ended, Shell

APPROVED = ("--approval", "approve_all")


def call(script: str, *more: str) -> list[str]:
    return ["call", "exec_command", "--cmd", script, "--yield_time_ms", "100", *APPROVED, *more]


def followed(shell: Shell, then: str) -> Ended:
    """Of a command that says `one`, and goes on so once that was shown: it outlives the first wait, however long that
    takes."""
    script = f"echo one; until test -e go-on; do sleep 0.02; done; {then}"
    (shell.project / "go-on").unlink(missing_ok=True)
    running = shell.forge.start(["forge", *call(script)], cwd=shell.project, env=shell.environ)
    first = running.stdout.readline()
    (shell.project / "go-on").touch()
    out, err = running.communicate(timeout=PATIENCE)
    assert "Traceback" not in err, err
    return Ended(running.returncode, first + out, err)


def test_a_command_that_outlives_the_first_wait_is_followed_to_its_end(shell: Shell) -> None:
    done = followed(shell, "echo two > made; echo two; exit 3")
    assert done.code == 1
    assert re.fullmatch(r"one\ntwo\nWall time: \d+\.\d+ s\nExited: code 3\n", done.out)
    assert "execution_failed: Exited: code 3" in done.err
    assert (shell.project / "made").read_text() == "two\n"


def test_json_is_the_last_outcome_with_the_whole_output(in_process: Shell) -> None:
    said = in_process(*call("echo one; sleep 0.6; echo two", "--json")).json
    assert (said["status"], said["tool"], said["args"]["cmd"]) == (
        "success",
        "exec_command",
        "echo one; sleep 0.6; echo two",
    )
    assert said["value"]["output"] == "one\ntwo\n"
    assert said["value"]["exit_code"] == 0
    assert "session_id" not in said["value"]
    assert said["decision"]["answeredBy"] == "mode"


def test_a_switch_may_be_given_a_value(in_process: Shell) -> None:
    script = "if test -t 1; then echo True; else echo False; fi"
    for words, tty in (("--tty true", "True"), ("--tty=yes", "True"), ("--tty 0", "False"), ("--no-tty", "False")):
        done = in_process("call", "exec_command", "--cmd", script, *APPROVED, *words.split())
        assert (done.code, tty in done.out) == (0, True), words


def test_its_time_limit_holds_also_in_a_terminal_without_a_keyboard(in_process: Shell) -> None:
    for seconds in ever_longer(0.75):
        done = in_process(*call("echo begun; sleep 60", "--timeout_ms", str(int(seconds * 1000)), "--tty"))
        assert done.code == 124
        assert f"Timed out after {seconds:g} s" in done.out
        assert done.err.count("keyboard") == 1
        if "begun" in done.out:
            return
    raise AssertionError(done)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 143, marks=pytest.mark.long)],
)
def test_output_comes_while_it_runs_and_a_signal_ends_it(shell: Shell, number: signal.Signals, code: int) -> None:
    script = "echo early; sleep 0.4; echo late; sleep 60; echo never"
    running = shell.forge.start(["forge", *call(script)], cwd=shell.project, env=shell.environ)
    assert [running.stdout.readline(), running.stdout.readline()] == ["early\n", "late\n"]
    assert running.poll() is None
    with within(1):
        running.send_signal(number)
        out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == code
    assert "never" not in out
    assert "interrupted" in err
    assert "not closed" not in shell("log", "verify").out


def test_a_strict_session_still_tells_how_it_ended(shell: Shell) -> None:
    shell.write_home("rules.yaml", "version: 1\nrules:\n  - {tool: write_stdin, verdict: blocked, reason: not here}\n")
    done = followed(shell, "exit 3")
    assert done.code == 1
    assert done.out.startswith("one\n")
    assert "execution_failed: Exited: code 3" in done.err


def test_what_was_refused_is_said_although_the_command_succeeded(in_process: Shell) -> None:
    (in_process.project / ".git" / "hooks").mkdir(parents=True)
    (in_process.project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    done = in_process("call", "exec_command", "--cmd", "touch .git/hooks/pre-commit; true", *APPROVED)
    assert done.code == 0
    assert "forge: note: Blocked by the sandbox: write /workspace/.git/hooks/pre-commit (protected)." in done.err
    assert "Blocked by the sandbox" not in done.out


def test_a_failure_to_reach_a_host_says_that_the_network_is_off(in_process: Shell) -> None:
    script = "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80))'"
    failed = in_process("call", "exec_command", "--cmd", script, *APPROVED)
    assert "Exited: code 1\nThe network is off inside; name hosts in 'network'.\nOutput (" in failed.out
    other = in_process("call", "exec_command", "--cmd", "echo Could not resolve host; true", *APPROVED)
    assert "network is off" not in other.out


def test_what_comes_later_is_read_on_the_one_path(shell: Shell) -> None:
    """Recorded like every call; what a rule keeps from being read is not shown."""
    assert followed(shell, "echo two").out.startswith("one\ntwo\n")
    calls = shell("log", "--json").json
    assert calls[0]["tool"] == "exec_command"
    polls = [each for each in calls if each["tool"] == "write_stdin"]
    assert (
        polls and {each["status"] for each in polls} == {"success"} and {each["caller"] for each in polls} == {"human"}
    )
    shell.write_home("rules.yaml", "version: 1\nrules:\n  - {tool: write_stdin, verdict: blocked, reason: not here}\n")
    unread = followed(shell, "echo two > made; echo two")
    assert unread.code == 0 and "two" not in unread.out and (shell.project / "made").exists()
    assert [each["status"] for each in shell("log", "--json", "--session", "last").json] == ["success", "policy_denied"]


def test_secrets_in_what_comes_later_are_not_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "canary-4711-value")
    done = followed(shell, "echo canary-4711-''value")
    assert "canary-4711-value" not in done.out and "[secret CANARY_API_KEY]" in done.out


def test_a_command_runs_in_a_thread_of_a_program_that_ignores_interrupts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As one that a shell started in the background: nothing has to be restored, and only the main thread could."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(main, ["--version"]).result() == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().out.startswith("forge ")
