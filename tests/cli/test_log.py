"""`forge log`: what was called and decided; a changed journal is found and its line named."""

from __future__ import annotations

import csv
import json
import shutil
import time
from datetime import UTC, datetime, timedelta

import pytest

from golem_forge.agent.session_state import RunFacts, record_run
from golem_forge.cli.log import read_time
from golem_forge.cli.sessions import describe_decision
from golem_forge.events.journal import Journal

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


def test_looking_never_writes_to_a_journal(recorded):
    before = {path: path.read_bytes() for path in journals(recorded)}
    call = recorded("log", "--json").json[0]["id"]
    for words in ([], ["sessions"], ["verify"], ["show", call]):
        recorded("log", *words)
    assert {path: path.read_bytes() for path in journals(recorded)} == before


def test_show_prints_what_the_call_printed(recorded):
    read, denied, written = recorded("log", "--json").json
    assert "\nresult\n  one\n" in recorded("log", "show", read["id"]).out
    assert "+two words" in recorded("log", "show", written["id"]).out
    assert "\nresult\n" not in recorded("log", "show", denied["id"]).out  # it never ran


def test_denied_means_every_denial(recorded):
    assert recorded("call", "read_file", "--path", "/etc/passwd").code == 3
    found = recorded("log", "--status", "denied", "--json").json
    assert [call["status"] for call in found] == ["approval_denied", "sandbox_denied"]


def test_a_list_that_was_cut_says_so(recorded, monkeypatch):
    assert recorded("log").err == ""
    monkeypatch.setattr("golem_forge.cli.log.MAX_LISTED", 2)
    for words in ([], ["--json"], ["--csv"], ["--since", "1h"]):
        assert "the latest 2. There are older ones: --limit N" in recorded("log", *words).err, words
    assert recorded("log", "--limit", "2").err == ""  # the person chose


def test_a_long_reason_does_not_hide_who_answered():
    source = {"source": "floor", "id": "opaque", "reason": "long " * 40}
    decision = {"verdict": "ask", "decidedBy": source, "answeredBy": "person"}
    told = describe_decision(decision, 90)
    assert len(told) == 90 and told.endswith("…; answered by person")


# verify


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


# choosing: when, by whom, where

CALLS = (
    ("2026-11-10T23:59:59.999Z", "c1", "llm", "shop"),
    ("2026-11-11T00:00:00.000Z", "c2", "human", ""),
    ("2026-11-11T09:30:59.500Z", "c3", "mcp:laptop", "shop/inner"),
    ("2026-11-11T23:59:59.999Z", "c4", "tool", "shopping"),
)


@pytest.fixture
def four(shell, monkeypatch):
    """Four calls at their times, by their callers, each in a session of its own program."""
    monkeypatch.setenv("TZ", "UTC")
    for at, call, caller, place in CALLS:
        moment = datetime.fromisoformat(at).timestamp()
        monkeypatch.setattr("golem_forge.events.journal.time", lambda moment=moment: moment)
        with Journal.create(shell.forge_home, f"{call}session") as journal:
            if place:
                root = str(shell.home / place)
                record_run(journal, RunFacts(name="main", worker_id="w", directory=root, root=root))
            journal.propose(call, "=2+5", {"path": call}, caller, "main")
            journal.finish(call, "success", 1.0)
    return shell


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--since", "2026-11-11"], "c2 c3 c4"),
        (["--until", "2026-11-11"], "c1 c2 c3 c4"),
        (["--since", "2026-11-11", "--until", "2026-11-11"], "c2 c3 c4"),
        (["--until", "2026-11-10"], "c1"),
        (["--until", "2026-11-11 09:30"], "c1 c2 c3"),
        (["--until", "2026-11-11T09:30:58"], "c1 c2"),
        (["--since", "2026-11-11T09:30:59.5Z", "--until", "2026-11-11T11:30:59.5+02:00"], "c3"),
        (["--since", "2000w", "--until", "2026-11-11 00:00"], "c1 c2"),
        (["--until", "1d"], "c1 c2 c3 c4"),
        (["--since", "yesterday"], ""),
        (["--caller", "llm"], "c1"),
        (["--caller", "tool", "--since", "2026-11-11"], "c4"),
        (["--dir", "{home}/shop"], "c1 c3"),
        (["--dir", "{home}/shop/inner"], "c3"),
        (["--dir", "{home}"], "c1 c3 c4"),
        (["--dir", "{home}/shop", "--caller", "mcp"], "c3"),
        (["--since", "2026-11-11", "--limit", "1"], "c4"),
    ],
)
def test_calls_by_time_caller_and_directory(four, words, found):
    said = four("log", *(word.format(home=four.home) for word in words), "--json")
    assert (said.code, " ".join(call["id"] for call in said.json)) == (0, found)


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["--since", "soon"], 2, "--since: 'soon'"),
        (["--until", "2026-02-30"], 2, "--until: '2026-02-30'"),
        (["--since", ""], 2, "--since: ''"),
        (["--since", "12"], 2, "--since: '12'"),
        (["--since", "٣d"], 2, "--since"),
        (["--since", f"{'9' * 5000}d"], 2, "--since"),
        (["--until", "0001-01-01"], 2, ""),
        (["--since", "2026-11-12", "--until", "2026-11-11"], 2, "--since is later than --until"),
        (["--caller", "robot"], 2, "--caller: invalid choice: 'robot'"),
        (["--json", "--csv"], 2, "--csv"),
        (["--dir", "nowhere"], 4, "nowhere"),
        (["--dir", "~nobody-here"], 4, "nobody-here"),
        (["--dir", ""], 2, "--dir"),
        (["--session", ""], 2, "--session"),
        (["--session", "nobody", "--csv"], 4, "'nobody'"),
    ],
)
def test_what_cannot_be_chosen_by_is_named(four, words, code, named):
    said = four("log", *words)
    assert said.code == code and named in said.err and said.out == ""


def test_calls_of_which_no_directory_is_known_are_told_of(four):
    beside = "Single calls (`forge call`) do not record their directory; `forge log` without --dir lists them"
    said = four("log", "--dir", f"{four.home}/shop")
    assert (said.code, said.err) == (0, f"forge log: {beside}.\n") and "c2" not in said.out
    assert beside in four("log", "--dir", f"{four.home}/nowhere").err
    assert "c2" in four("log").out


def test_how_long_ago_counts_hours_and_not_what_clocks_were_set_to(monkeypatch):
    turned = datetime.now(UTC) - timedelta(hours=6)
    day, hour = turned.timetuple().tm_yday - 1, turned.hour
    monkeypatch.setenv("TZ", f"AAA0BBB-1,0/0,{day}/{hour + 1}")  # an hour was won six hours ago
    time.tzset()
    try:
        then, _ = read_time("--since", "12h")
        assert abs(datetime.now(UTC) - timedelta(hours=12) - then.astimezone(UTC)) < timedelta(minutes=5)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_spreadsheet_takes_no_cell_for_a_formula(shell):
    told = [
        "=1+1",
        "+1",
        "-1",
        "@x",
        "\uff1d1",
        "  =1",
        "a;=1",
        "a; -1",
        'plain, with "quotes"',
        "two\nlines\t=1",
        "\r=1",
    ]
    with Journal.create(shell.forge_home) as journal:
        for number, text in enumerate(told):
            journal.propose(f"c{number}", text, {"=k": text}, "human", "=w")
            journal.finish(f"c{number}", "success", 1.0)
    said = shell("log", "--csv")
    header, *rows = csv.reader(said.out.splitlines())
    assert len(rows) == len(told) and {len(row) for row in rows} == {len(header)}
    for row in rows:
        for cell in [part.lstrip() for whole in row for part in whole.split(";")]:
            assert not cell.startswith(("=", "+", "-", "@", "\uff1d", "\t", "\r")), cell
    assert [row[header.index("tool")] for row in rows][:4] == ["'=1+1", "'+1", "'-1", "'@x"]
    assert rows[8][header.index("tool")] == told[8]
    assert json.loads(rows[0][header.index("args")]) == {"=k": "=1+1"}


def test_last_is_the_latest_session_and_a_beginning_is_found_as_by_sessions(four):
    assert four("log", "--session", "last", "--json").json[0]["id"] == "c4"
    assert four("log", "--session", "c2", "--json").json[0]["session"] == "c2session"
    for verb in (["log", "--session"], ["log", "verify"], ["sessions", "show"]):
        several = four(*verb, "c")
        assert several.code == 4 and "several sessions start with 'c'" in several.err
    assert four("log", "verify", "").code == 4 == four("sessions", "show", "").code


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


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (lambda text: text.replace('"/workspace/a.txt"', '"/workspace/b.txt"'), "was changed"),
        (lambda text: "", "1 that the journal names is missing"),
        (lambda text: text + '{"hash":"0","set":{}}\n', "was changed"),
        (lambda text: text + '{"hash":"cut sh', None),
    ],
    ids=["changed", "taken out", "put in", "cut short by a crash"],
)
def test_verify_compares_the_change_log_with_the_journal(in_process, tamper, said):
    made = in_process("call", "write_file", "--path=a.txt", "--content=one", "--approval=approve_all")
    assert made.code == 0, made.err
    [log] = (in_process.forge_home / "sessions").glob("*.changes")
    assert in_process("log", "verify").code == 0
    log.write_text(tamper(log.read_text()))
    checked = in_process("log", "verify")
    assert checked.code == (0 if said is None else 1), checked.out
    assert said is None or (f"of {log.name}: " in checked.out and said in checked.out)


def test_an_undo_stands_in_the_log_of_what_it_took_back(in_process):
    assert in_process("call", "write_file", "--path=a.txt", "--content=one", "--approval=approve_all").code == 0
    assert in_process("undo", "--yes").code == 0
    checked = in_process("log", "verify")
    assert checked.code == 0, checked.out
