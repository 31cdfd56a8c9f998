"""`forge log`: what was called and decided; a changed journal is found and its line named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from .conftest import Shell

READ = ("call", "read_file", "--args-json", '{"path": "a.txt"}')
WRITE = ("call", "write_file", "--args-json", '{"path": "a.txt", "content": "two words"}')


@pytest.fixture(scope="module")
def recording(tmp_path_factory, ready_forge):
    """A session with one read, one with a denied write, one with an approved write."""
    place = tmp_path_factory.mktemp("recording")
    shell = Shell(place / "home", place / "project", ready_forge)
    shell.home.mkdir()
    shell.project.mkdir()
    shell.write("a.txt", "one\n")
    assert shell(*READ).code == 0
    assert shell(*WRITE).code == 3
    assert shell(*WRITE, "--approval", "approve_all").code == 0
    return shell


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


def test_one_line_per_call_newest_last(recorded):
    ended = recorded("log")
    assert ended.code == 0
    lines = ended.out.splitlines()[1:]
    assert [line.split()[3] for line in lines] == ["success", "approval_denied", "success"]
    assert [line.split()[4] for line in lines] == ["read_file", "write_file", "write_file"]
    assert 'path=a.txt content="two words"' in lines[1]
    assert "answered by mode" in lines[2] and "zone /workspace" in lines[2]


def test_json_has_the_decision(recorded):
    calls = recorded("log", "--json").json
    assert [call["status"] for call in calls] == ["success", "approval_denied", "success"]
    assert calls[1]["decision"]["verdict"] == "ask" and calls[1]["args"]["content"] == "two words"
    assert calls[2]["decision"]["answeredBy"] == "mode"
    assert calls[0]["caller"] == "human" and calls[0]["session"] != calls[1]["session"]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--tool", "write_file"], 2),
        (["--status", "approval_denied"], 1),
        (["--status", "interrupted"], 0),
        (["--session", "last"], 1),
        (["--limit", "2"], 2),
        (["--tool", "nothing"], 0),
        (["--tool", "write_file", "--status", "success"], 1),
    ],
)
def test_filters(recorded, options, count):
    assert len(recorded("log", "--json", *options).json) == count


def test_session_by_the_beginning_of_its_id(recorded):
    first = journals(recorded)[0].stem
    (call,) = recorded("log", "--session", first[:8], "--json").json
    assert call["session"] == first
    ended = recorded("log", "--session", "zzz")
    assert ended.code == 4 and "forge log sessions" in ended.err


def test_show_one_call(recorded):
    call = recorded("log", "--json", "--session", "last").json[0]
    ended = recorded("log", "show", call["id"][:10])
    assert ended.code == 0
    assert call["id"] in ended.out and call["session"] in ended.out
    assert '"content": "two words"' in ended.out
    assert "finished" in ended.out and "answered by mode" in ended.out
    told = recorded("log", "show", call["id"], "--json").json
    assert told["records"][-1]["type"] == "finished" or any(r["type"] == "finished" for r in told["records"])
    assert {record.get("call", call["id"]) for record in told["records"]} == {call["id"]}


def test_show_what_is_not_there(recorded):
    ended = recorded("log", "show", "nope")
    assert ended.code == 4 and "forge log" in ended.err
    assert recorded("log", "show", "").code == 4


def test_sessions(recorded):
    found = recorded("log", "sessions", "--json").json
    assert [session["id"] for session in found] == [path.stem for path in journals(recorded)]
    assert {session["state"] for session in found} == {"closed"} and {session["calls"] for session in found} == {1}
    assert recorded("log", "sessions").out.count("closed") == 3


def test_looking_never_writes_to_a_journal(recorded):
    before = {path: path.read_bytes() for path in journals(recorded)}
    call = recorded("log", "--json").json[0]["id"]
    for words in ([], ["sessions"], ["verify"], ["show", call]):
        recorded("log", *words)
    assert {path: path.read_bytes() for path in journals(recorded)} == before


# verify


def test_verify_ok(recorded):
    ended = recorded("log", "verify")
    assert ended.code == 0 and ended.out.count("ok,") == 3
    assert recorded("log", "verify", "last").out.count("ok,") == 1


def _changed(lines):
    lines[1] = lines[1].replace(b"a.txt", b"b.txt", 1)
    return lines, 2


def _cut_from_the_middle(lines):
    del lines[1]
    return lines, 2


def _cut_at_the_end(lines):
    return lines[:-1], len(lines)


def _reordered(lines):
    lines[1], lines[2] = lines[2], lines[1]
    return lines, 2


def _inserted(lines):
    return [*lines[:2], lines[1], *lines[2:]], 3


def _garbage(lines):
    lines[2] = b"not a record\n"
    return lines, 3


@pytest.mark.parametrize(
    "tamper",
    [_changed, _cut_from_the_middle, _cut_at_the_end, _reordered, _inserted, _garbage],
    ids=lambda f: f.__name__,
)
def test_verify_names_the_line(recorded, tamper):
    path = journals(recorded)[-1]
    lines, number = tamper(path.read_bytes().splitlines(keepends=True))
    path.write_bytes(b"".join(lines))
    ended = recorded("log", "verify", path.stem)
    assert ended.code == 1
    assert f"sessions/{path.stem}.jsonl:{number}: " in ended.out, ended.out
    told = recorded("log", "verify", "--json")
    assert told.code == 1
    assert [each["ok"] for each in told.json].count(False) == 1


def test_verify_notices_a_deleted_journal(recorded):
    path = journals(recorded)[-1]
    path.unlink()
    ended = recorded("log", "verify")
    assert ended.code == 1 and f"{path.name}:1: the journal is missing" in ended.out
    assert recorded("log", "verify", path.stem[:10]).code == 1


def test_verify_an_unknown_session(recorded):
    assert recorded("log", "verify", "zzz").code == 4


# crashes

CRASH = """
import os, sys
from pathlib import Path
from golem_forge.events.journal import CallStart, Journal
from golem_forge.core.decisions import Decision
from golem_forge.core.decisions import Verdict
journal = Journal.create(Path(sys.argv[1]))
journal.propose("c0ffee01", "write_file", {"path": "x"}, "human", "default")
allowed = Decision(verdict=Verdict.PRE_APPROVED)
journal.begin(CallStart("c0ffee02", "write_file", {"path": "y"}, allowed, "human", "default"))
if len(sys.argv) > 2:
    print("up", flush=True)
    sys.stdin.read()
os._exit(9)
"""


def test_a_dead_sessions_open_calls_may_have_run(shell):
    subprocess.run([sys.executable, "-c", CRASH, str(shell.forge_home)], check=False)
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


def test_a_living_sessions_open_calls_are_running(shell):
    words = [sys.executable, "-c", CRASH, str(shell.forge_home), "stay"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        calls = {call["id"]: call["status"] for call in shell("log", "--json").json}
        sessions = shell("log", "sessions", "--json").json
        process.kill()
    assert calls["c0ffee02"] == "running"
    assert sessions[0]["state"] == "running"


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


@pytest.mark.parametrize(
    "words", [["--status", "fine"], ["--limit", "many"], ["show"], ["verify", "a", "b"], ["unknown"], ["sessions", "x"]]
)
def test_usage(shell, words):
    ended = shell("log", *words)
    assert ended.code == 2 and "--help" in ended.err


def test_help_names_the_exit_codes(shell):
    for words in (["--help"], ["show", "--help"]):
        ended = shell("log", *words)
        assert ended.code == 0 and "Exit: 0 done, 1 verify found problems" in ended.out
