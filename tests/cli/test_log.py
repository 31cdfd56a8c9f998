"""`forge log`: what was called and decided; a changed journal is found and its line named."""

from __future__ import annotations

import json
import shutil

import pytest

from .conftest import new_shell

READ = ("call", "read_file", "--args-json", '{"path": "a.txt"}')
WRITE = ("call", "write_file", "--args-json", '{"path": "a.txt", "content": "two words"}')


@pytest.fixture(scope="module")
def recording(tmp_path_factory, ready_forge):
    """A session with one read, one with a denied write, one with an approved write."""
    shell = new_shell(tmp_path_factory.mktemp("recording"), ready_forge)
    shell.write("a.txt", "one\n")
    assert shell(*READ).code == 0
    assert shell(*WRITE).code == 3
    assert shell(*WRITE, "--approval", "approve_all").code == 0
    return shell


@pytest.fixture
def shell(in_process):
    return in_process


@pytest.fixture
def recorded(shell, recording):
    """A copy of it: some tests spoil what is recorded."""
    shutil.copytree(recording.home, shell.home, dirs_exist_ok=True)
    shutil.copytree(recording.project, shell.project, dirs_exist_ok=True)
    return shell


def journals(shell):
    return sorted((shell.forge_home / "sessions").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)


def test_nothing_yet_creates_nothing(shell):
    for words in ([], ["sessions"], ["verify"]):
        ended = shell("log", *words)
        assert ended.code == 0 and "yet" in ended.err
    assert shell("log", "show", "abc").code == 4
    assert not shell.forge_home.exists()


def test_session_by_the_beginning_of_its_id(recorded):
    first = journals(recorded)[0].stem
    (call,) = recorded("log", "--session", first[:8], "--json").json
    assert call["session"] == first


def test_a_denied_call_has_its_decision_and_a_tool_that_was_not_called_has_nothing(recorded):
    denied = recorded("log", "--json").json[1]
    assert (denied["status"], denied["decision"]["verdict"]) == ("approval_denied", "ask")
    assert denied["args"]["content"] == "two words"
    assert recorded("log", "--tool", "nothing", "--json").json == []


def test_looking_never_writes_to_a_journal(recorded):
    before = {path: path.read_bytes() for path in journals(recorded)}
    call = recorded("log", "--json").json[0]["id"]
    for words in ([], ["sessions"], ["verify"], ["show", call]):
        recorded("log", *words)
    assert {path: path.read_bytes() for path in journals(recorded)} == before


# verify


def test_verify_names_the_line(recorded):
    path = journals(recorded)[-1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    ended = recorded("log", "verify", path.stem)
    assert ended.code == 1
    assert f"sessions/{path.stem}.jsonl:{len(lines)}: " in ended.out, ended.out
    told = recorded("log", "verify", "--json")
    assert told.code == 1
    assert [each["ok"] for each in told.json].count(False) == 1


def test_verify_notices_a_deleted_journal(recorded):
    path = journals(recorded)[-1]
    path.unlink()
    ended = recorded("log", "verify")
    assert ended.code == 1 and f"{path.name}:1: the journal is missing" in ended.out
    assert recorded("log", "verify", path.stem[:10]).code == 1


# crashes

SESSION = """
import sys
from pathlib import Path
from golem_forge.core.decisions import Decision, Verdict
from golem_forge.events.journal import CallStart, Journal
journal = Journal.create(Path(sys.argv[1]))
journal.propose("c0ffee01", "write_file", {"path": "x"}, "human", "default")
allowed = Decision(verdict=Verdict.PRE_APPROVED)
journal.begin(CallStart("c0ffee02", "write_file", {"path": "y"}, allowed, "human", "default"))
print("up", flush=True)
sys.stdin.read()
"""


def test_open_calls_are_running_while_their_session_lives_and_may_have_run_afterwards(shell, ready_forge, tmp_path):
    (tmp_path / "session.py").write_text(SESSION)
    words = ["python", str(tmp_path / "session.py"), str(shell.forge_home)]
    with ready_forge.start_with_input(words, cwd=shell.project, env=shell.environ) as living:
        assert living.stdout.readline() == b"up\n"
        calls = {call["id"]: call["status"] for call in shell("log", "--json").json}
        sessions = shell("log", "sessions", "--json").json
        living.kill()
    assert calls["c0ffee02"] == "running"
    assert sessions[0]["state"] == "running"

    calls = {call["id"]: call["status"] for call in shell("log", "--json").json}
    assert calls == {"c0ffee01": "never_started", "c0ffee02": "may_have_run"}
    plain = shell("log").out
    assert "may have run" in plain and "never started" in plain
    (one,) = shell("log", "--status", "may_have_run", "--json").json
    assert one["id"] == "c0ffee02"
    assert "not closed" in shell("log", "sessions").out
    verified = shell("log", "verify")
    assert verified.code == 0 and "not closed" in verified.out
    assert "may have run" in shell("log", "show", "c0ffee02").out


# safety and usage


def test_nothing_recorded_steers_the_terminal(shell):
    shell("call", "read_file", "--args-json", json.dumps({"path": "\x1b[2J\u202ex"}))
    for words in ([], ["show", shell("log", "--json").json[0]["id"]]):
        out = shell("log", *words).out
        assert "\x1b" not in out and "\u202e" not in out


def test_text_that_is_not_unicode_does_not_break_the_log(shell):
    shell("call", "read_file", "--args-json", '{"path": "\\ud800"}')
    assert shell("log").code == 0
    assert shell("log", "--json").json[0]["args"]["path"] == "\ud800"


@pytest.mark.parametrize("words", [["--limit", "many"], ["verify", "a", "b"]])
def test_usage(shell, words):
    ended = shell("log", *words)
    assert ended.code == 2 and "--help" in ended.err
