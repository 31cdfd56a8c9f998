"""Sessions that outlive their process: parking, waking, death of a runner, drain, stop. team.md §3, §4."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.ready import ReadyForge
from tests.team.background import TOOLS, Program, until, write_call
from tests.team.kill_matrix import LEASE_S, run_matrix

from golem_forge.events.journal_records import scan
from golem_forge.orchestrator.bound_output import OutputStore
from golem_forge.team.database import TeamError
from golem_forge.team.journal import CommitThread, SessionWriter
from golem_forge.team.rows import Lease, NewSession
from golem_forge.team.schema import SCHEMA_VERSION, pruning
from golem_forge.team.store import Store


def _effects(count: int) -> list[dict[str, Any]]:
    """A turn for each: n0, n1, … From n1 on they wait until the test has acted, and opened the gate."""
    calls = [{"tool": "effect", "args": {"name": f"n{at}", "gate": "acted" if at else ""}} for at in range(count)]
    return [{"calls": [call]} for call in calls]


def journal_is_whole(store: Store, session: str, folder: Path) -> list[str]:
    """Writes the lines to a file, checks the chain, gives the lines."""
    lines = store.lines(session)
    path = folder / f"{session}.jsonl"
    path.write_bytes(b"".join(line for _, line in lines))
    found = scan(path)
    assert not found.problems
    row = store.find(session)
    assert (found.lines, found.hash) == (row.lines, row.hash)
    return [line.decode() for _, line in lines]


def test_a_question_is_answered_from_another_process_and_the_session_finishes(program: Program, tmp_path: Path) -> None:
    program.capture = None
    program.play({"say": "I write.", "calls": [write_call("/work/a.txt", "hello")]}, {"say": "written"})
    said = program.forge("run", "--background", "write the file")
    store = program.store()
    [session] = [row.id for row in store.sessions()]
    assert session[:12] in said
    program.wait_for(session, "waiting")
    [question] = store.questions.rows()
    assert "write /work/a.txt" in program.forge("inbox")
    program.forge("inbox", "answer", question.id[:12], "--approve")
    row = program.wait_for(session, "finished")
    assert row.result == "written"
    assert (program.folder / "work" / "a.txt").read_text() == "hello"
    assert "answered already" in program.forge("inbox", "answer", question.id, "--deny", code=1)
    lines = journal_is_whole(store, session, tmp_path)
    assert "answered by" in program.forge("log", "--session", session[:12])
    assert "ok" in program.forge("log", "verify", session)
    assert "written" in program.forge("sessions", "show", session)
    assert "no session" in program.forge("sessions", "delete", session, "--yes", code=4)
    assert sum('"type":"started"' in line for line in lines) == 1
    assert any('"type":"parked"' in line for line in lines)
    for runner in store.runners.seen():
        os.kill(runner["pid"], signal.SIGTERM)
    until(lambda: not store.runners.seen())


def test_without_a_runner_nothing_runs_and_an_answer_waits_for_one(program: Program) -> None:
    sessions = []
    for number in range(2):  # each its own file: a file that another one wrote would ask again
        script = f"s{number}.yaml"
        program.play({"calls": [write_call(f"/work/a{number}.txt", "x")]}, {"say": "done"}, script=script)
        sessions.append(program.queue(model=f"scripted:{script}"))
    runner = program.run_here()
    for session in sessions:
        program.wait_for(session, "waiting")
    runner.stop()
    store = program.store()
    questions = store.questions.rows()
    assert len(questions) == 2
    store.questions.answer(questions[0].id, {"approved": True}, "bob", "test")
    assert [store.find(session).state for session in sessions] == ["waiting"] * 2
    program.run_here()
    program.wait_for(questions[0].session, "finished")
    assert [row.id for row in store.sessions(states=("waiting",))] == [questions[1].session]


def test_a_changed_file_asks_again_with_its_new_diff(program: Program) -> None:
    target = program.folder / "work" / "a.txt"
    target.write_text("one\n")
    program.play({"calls": [write_call("/work/a.txt", "two\n")]}, {"say": "done"})
    session = program.queue()
    runner = program.run_here()
    program.wait_for(session, "waiting")
    store = program.store()
    [question] = store.questions.rows()
    runner.stop()
    target.write_text("three\n")
    store.questions.answer(question.id, {"approved": True}, "bob", "test")
    program.run_here()
    changed = until(lambda: [each for each in store.questions.rows() if each.id != question.id])
    assert "-three" in changed[0].wire["diff"]
    assert target.read_text() == "three\n"
    store.questions.answer(changed[0].id, {"approved": True}, "bob", "test")
    program.wait_for(session, "finished")
    assert target.read_text() == "two\n"


def test_a_call_whose_arguments_held_a_secret_is_not_run_after_parking(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "canary-7391-value"
    monkeypatch.setenv("SHOP_API_TOKEN", secret)
    program.play({"calls": [write_call("/work/key.txt", f"key {secret}")]}, {"say": "done"})
    session = program.queue()
    program.run_here()
    program.wait_for(session, "waiting")
    store = program.store()
    [question] = store.questions.rows()
    store.questions.answer(question.id, {"approved": True}, "bob", "test")
    program.wait_for(session, "finished")
    assert not (program.folder / "work" / "key.txt").exists()
    lines = [line for _, line in store.lines(session)]
    assert any(b"its arguments held a secret and were not kept; propose it again" in line for line in lines)
    assert not any(secret.encode() in line for line in lines)


def test_a_runner_that_is_killed_is_succeeded_and_what_it_began_is_not_repeated(
    program: Program, tmp_path: Path
) -> None:
    program.add_tools()
    call = {"tool": "effect", "args": {"name": "slow", "wait": 60}}
    program.play({"calls": [call]}, {"calls": [{"tool": "effect", "args": {"name": "next"}}]}, {"say": "done"})
    session = program.queue()
    first = program.start_runner()
    until(lambda: program.effects() == ["slow"])
    first.kill()
    program.end_leases()
    program.start_runner()
    program.wait_for(session, "finished")
    assert program.effects() == ["slow", "next"]
    lines = journal_is_whole(program.store(), session, tmp_path)
    assert any("may have run before the crash" in line for line in lines)
    told = "A runner ended in the middle of these calls, so they may have run: effect."
    assert f"! {session[:12]}: {told}\n" in program.forge("ps", "--all")
    [row] = json.loads(program.forge("ps", "--all", "--json"))
    assert row["notice"] == told


def test_a_stopped_runner_loses_its_session_and_starts_nothing_more(program: Program) -> None:
    program.add_tools()
    program.play(*_effects(6), {"say": "done"})
    session = program.queue()
    first = program.start_quick_runner(LEASE_S)
    until(lambda: len(program.effects()) > 1)  # any: on a slow machine a lease may end in a call, which is not repeated
    first.send_signal(signal.SIGSTOP)
    program.open_gate("acted")  # its call ends while the runner is stopped
    program.start_quick_runner(sweep_s=0.2)
    program.wait_for(session, "finished")
    done = program.effects()
    first.send_signal(signal.SIGCONT)
    until(lambda: "left this runner" in program.logs())
    time.sleep(0.4)  # more than a call takes
    assert program.effects() == done
    assert len(done) == len(set(done))


_LOADS_BEHIND_A_GATE = """\
import fcntl
import os
import time

alive = open("/work/loading", "w")
fcntl.flock(alive, fcntl.LOCK_EX)
while not os.path.exists("/work/open"):
    time.sleep(0.01)
"""


def test_a_runner_that_was_frozen_while_a_session_started_gives_it_back(program: Program) -> None:
    """The watchdog has ended the process of the session's module: the program itself is as good as before."""
    program.add_tools()
    (program.folder / "tools.py").write_text(_LOADS_BEHIND_A_GATE + TOOLS)
    program.forge("trust", "--yes")
    program.play(*_effects(1), {"say": "done"})
    session = program.queue()
    first = program.start_quick_runner(LEASE_S)
    loading = program.folder / "work" / "loading"
    until(lambda: loading.exists() and not _is_unlocked(loading), or_else=program.logs)
    first.send_signal(signal.SIGSTOP)
    until(lambda: _is_unlocked(loading))
    program.open_gate("open")
    first.send_signal(signal.SIGCONT)
    assert program.wait_for(session, "finished", "failed").state == "finished"
    assert len(program.effects()) == 1


def _is_unlocked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_an_answer_that_a_frozen_runner_did_not_take_up_is_named_and_the_call_is_asked_again(program: Program) -> None:
    """The question of a sub-worker keeps its runner: nobody else could go on with it."""
    text = (program.folder / "main.worker").read_text()
    (program.folder / "main.worker").write_text(text.replace("toolsets:", "toolsets:\n  workers: {allow: [helper]}"))
    (program.folder / "helper.worker").write_text(text.replace("name: main", "name: helper"))
    write = {"calls": [write_call("/work/a.txt", "one")]}
    turns = [{"calls": [{"tool": "helper", "args": {"input": "write it"}}]}]
    turns += [{"expect": "ann (cli) approved 'write_file: write /work/a.txt', but the runner had stopped", **write}]
    script = {"workers": {"main": [*turns, {"say": "done"}], "helper": [write, {"say": "written"}]}}
    (program.folder / "script.yaml").write_text(json.dumps(script))
    program.forge("trust", "--yes")
    session, store = program.queue(), program.store()
    first = program.start_runner()
    handed = until(lambda: store.questions.rows(session=session), or_else=program.logs)[0]
    store.questions.answer(handed.id, {"approved": True}, "ann", "cli")
    question = until(lambda: store.questions.rows(session=session), or_else=program.logs)[0]
    until(lambda: store.find(session).shown_state == "waiting (held)", or_else=program.logs)
    first.send_signal(signal.SIGSTOP)
    assert store.questions.answer(question.id, {"approved": True}, "ann", "cli").state == "answered"
    program.end_leases()
    program.start_runner()
    again = until(lambda: [each for each in store.questions.rows(session=session) if each.id != question.id],
                  or_else=program.logs)[0]  # fmt: skip
    assert not (program.folder / "work" / "a.txt").exists()
    dropped = store.questions.find(question.id)
    assert (dropped.state, dropped.person) == ("withdrawn", "ann")
    assert "ann (cli) approved 'write_file: write /work/a.txt'" in store.find(session).notice
    store.questions.answer(again.id, {"approved": True}, "ann", "cli")
    first.send_signal(signal.SIGCONT)
    program.wait_for(session, "finished")
    assert (program.folder / "work" / "a.txt").read_text() == "one"
    log = program.forge("log", "--session", session)
    assert "answered by ann (cli)" in log
    assert "ann (cli) approved 'write_file: write /work/a.txt', but the runner had stopped: it did not run" in log


def test_an_answer_to_a_question_that_its_runner_did_not_come_to_record_is_named(program: Program) -> None:
    """The row of a question is there a moment before the line of the journal: a runner is killed between the two."""
    session, store = program.queue(), program.store()
    killed = store.leases.claim("r1", ())
    assert killed is not None
    wire = {"tool": "write_file", "effects": ["write /work/a.txt"], "risk": "high", "toolCallId": "c"}
    for question in ("answered", "open"):
        store.questions.ask(killed, {**wire, "requestId": question}, kind="approval")
    store.questions.answer("answered", {"approved": True}, "ann", "cli")
    program.end_leases()
    runner = program.run_here()
    program.wait_for(session, "finished")
    runner.stop()
    [open_one, dropped] = sorted(store.questions.rows(session=session, state="withdrawn"), key=lambda each: each.person)
    assert (open_one.id, dropped.id, dropped.person) == ("open", "answered", "ann")
    said = "ann (cli) approved 'write_file: write /work/a.txt', but the runner had stopped: it did not run"
    assert said in program.forge("log", "--session", session)


@pytest.mark.walls
def test_a_program_that_waits_for_an_answer_is_held_and_goes_on_where_it_was(program: Program) -> None:
    """A program is a running call: its session cannot be parked, keeps its slot, and nothing of it runs twice."""
    program.add_tools()
    worker = program.folder / "main.worker"
    worker.write_text(worker.read_text().replace("  filesystem: {}\n", "  filesystem: {}\n  code: {}\n"))
    program.forge("trust", "--yes")
    code = """
from forge_tools import effect, write_file
effect(name="before")
print(write_file(path="/work/a.txt", content="hello")["path"])
effect(name="after")
"""
    program.play({"calls": [{"tool": "run_code", "args": {"code": code}}]}, {"say": "done"})
    session = program.queue()
    program.start_runner()
    program.wait_for(session, "waiting")
    store = program.store()
    assert until(lambda: store.find(session).shown_state == "waiting (held)")
    assert "waiting (held)" in program.forge("ps") and program.effects() == ["before"]
    [question] = store.questions.rows()
    assert question.wire["tool"] == "write_file"
    store.questions.answer(question.id, {"approved": True}, "bob", "test")
    program.wait_for(session, "finished")
    assert program.effects() == ["before", "after"] and (program.folder / "work/a.txt").read_text() == "hello"
    assert not any(b'"type":"parked"' in line for _, line in store.lines(session))


def test_an_answer_for_a_silent_runner_is_refused(program: Program) -> None:
    store = program.store()
    session = program.queue()
    lease = store.leases.claim("r1", ())
    assert lease is not None
    store.leases.hold(lease, True, "a question")
    wire = {"requestId": "q1", "tool": "write_file", "risk": "high", "toolCallId": "c"}
    store.questions.ask(lease, wire, kind="approval")
    with store.database.transaction() as connection:
        connection.execute("UPDATE sessions SET lease_until = 1")
    with pytest.raises(TeamError, match="The runner that asks this is silent"):
        store.questions.answer("q1", {"approved": True}, "ann", "cli")
    assert store.questions.rows(session=session)[0].state == "open"


def test_a_runner_takes_nothing_and_ends_once_the_store_was_upgraded(program: Program) -> None:
    runner = program.start_quick_runner(sweep_s=0.2)
    until(lambda: "4 slots" in program.logs())
    store = program.store()
    with store.database.transaction() as connection:
        connection.execute("UPDATE meta SET value = :newer WHERE key = 'schema'", {"newer": str(SCHEMA_VERSION + 1)})
    session = store.queue(NewSession(facts={"directory": str(program.folder)}, input="go"))
    assert store.leases.claim("r1", ()) is None
    until(lambda: runner.poll() is not None, or_else=program.logs)
    assert "The store's tables are of a newer version" in program.logs()
    assert "This runner ends" in program.logs()
    assert store.find(session).state == "queued"


def test_term_drains_and_another_runner_goes_on(program: Program) -> None:
    program.add_tools()
    program.play(*_effects(6), {"say": "done"})
    session, store = program.queue(), program.store()
    first = program.start_runner()
    until(lambda: "n1" in program.effects())
    first.send_signal(signal.SIGTERM)
    until(lambda: [each for each in store.runners.seen() if each["draining"]])
    program.open_gate("acted")
    assert first.wait(timeout=PATIENCE) == 0
    assert store.find(session).state == "queued"
    program.start_runner()
    program.wait_for(session, "finished")
    assert program.effects() == [f"n{number}" for number in range(6)]


def test_stop_ends_a_running_and_a_waiting_session(program: Program) -> None:
    program.add_tools()
    program.play({"calls": [{"tool": "effect", "args": {"name": "slow", "wait": 60}}]}, {"say": "done"})
    running = program.queue()
    program.start_runner()
    until(lambda: program.effects() == ["slow"])
    program.forge("stop", running[:12])
    program.wait_for(running, "stopped")
    program.play({"calls": [write_call("/work/a.txt", "x")]}, {"say": "done"})
    waiting = program.queue()
    program.wait_for(waiting, "waiting")
    program.forge("stop", waiting)
    program.wait_for(waiting, "stopped")
    store = program.store()
    assert store.questions.rows() == []
    assert program.forge("store", "verify").endswith("lines: ok\n")
    assert "0 of 4" in program.forge("store", "status")
    elsewhere = program.queue(directory="/srv/nowhere/shop")
    row = program.wait_for(elsewhere, "failed")
    assert row.error.startswith("the directory 'shop' of its program is not on")
    assert "/srv/nowhere" not in row.error


def test_a_message_is_taken_up_after_the_turn(program: Program) -> None:
    program.play(
        {"calls": [write_call("/work/a.txt", "x")]}, {"say": "first"}, {"say": "second", "expect": ["and then"]}
    )
    session = program.queue()
    program.run_here()
    program.wait_for(session, "waiting")
    store = program.store()
    store.send(session, "message", {"text": "and then this"}, "ada", "test")
    until(lambda: store.find(session).state == "waiting")
    [question] = store.questions.rows()
    store.questions.answer(question.id, {"approved": False, "reason": "no"}, "bob", "test")
    assert program.wait_for(session, "finished", "failed").result == "second"
    assert not (program.folder / "work" / "a.txt").exists()


def test_runners_that_are_killed_and_frozen_at_random_moments_lose_and_double_nothing(
    program: Program, is_long: bool
) -> None:
    sessions, effects = (3, 6) if is_long else (2, 4)
    counts = run_matrix(program, kills=sessions, sessions=sessions, effects=effects)
    assert counts.kills > 0
    assert (counts.lost, counts.doubled, counts.broken, counts.open, counts.unused) == (0, 0, 0, 0, 0)
    assert counts.calls == sessions * effects


def test_another_connection_does_not_drop_the_locks_of_the_first(tmp_path: Path, ready_forge: ReadyForge) -> None:
    """A second process that closes the file while ours is open must not take its write-ahead log away."""
    store = Store.open("sqlite", tmp_path, create=True)
    store.queue(NewSession(facts={}, input="one"))
    Store.open("sqlite", tmp_path).sessions()  # another connection in this process
    (tmp_path / "look.py").write_text(
        "from pathlib import Path\nfrom golem_forge.team.store import Store\n"
        f"store = Store.open('sqlite', Path({str(tmp_path)!r}))\nprint(len(store.sessions()))\nstore.close()\n"
    )

    def count_elsewhere() -> int:
        done = ready_forge.program("look.py", cwd=tmp_path, env=os.environ)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert count_elsewhere() == 1
    store.queue(NewSession(facts={}, input="two"))
    assert count_elsewhere() == 2


def test_a_long_output_is_kept_in_the_store_and_read_on_another_machine(program: Program) -> None:
    program.add_tools()
    program.play(
        {"calls": [{"tool": "talk", "args": {"lines": 60_000}}]},
        {"calls": [write_call("/work/a.txt", "x")]},
        {"say": "done"},
    )
    session = program.queue()
    runner = program.run_here()
    program.wait_for(session, "waiting")
    runner.stop()
    store = program.store()
    with store.database.transaction(write=False) as connection:
        rows = connection.execute("SELECT handle, worker, length(data) FROM outputs ORDER BY piece").fetchall()
    assert len(rows) > 1, "an output of several pieces"
    shutil.rmtree(program.home / "output")  # as on a machine that never saw it
    commits = CommitThread(store)
    lease = Lease(session=store.find(session), facts={})
    writer = SessionWriter(commits, lease, program.home / "copy.jsonl", lambda: 0.0, lambda why: None)
    found = OutputStore(program.home / "output", session, writer).find(rows[0][0], "main")
    assert found is not None
    assert "line 1\n" in found.path.read_text()


def test_an_edit_that_is_not_valid_asks_again_and_a_valid_one_counts(program: Program) -> None:
    program.play({"calls": [write_call("/work/a.txt", "x")]}, {"say": "done"})
    session = program.queue()
    program.run_here()
    program.wait_for(session, "waiting")
    store = program.store()
    [question] = store.questions.rows()
    store.questions.answer(question.id, {"approved": True, "args": {"path": 7, "content": "y"}}, "bob", "test")
    [again] = until(lambda: [each for each in store.questions.rows() if each.wire["warnings"]])
    assert again.id == question.id
    store.questions.answer(again.id, {"approved": True, "args": {"path": "/work/b.txt", "content": "y"}}, "bob", "test")
    program.wait_for(session, "finished")
    assert (program.folder / "work" / "b.txt").read_text() == "y"
    assert not (program.folder / "work" / "a.txt").exists()


def test_the_log_knows_background_sessions_and_checks_them(program: Program) -> None:
    program.play({"calls": [{"tool": "list_files", "args": {"path": "/work"}}]}, {"say": "done"})
    program.forge("log", "--session", "abcd", code=4)
    program.forge("log", "verify", "abcd", code=4)
    session = program.queue()
    runner = program.run_here()
    program.wait_for(session, "finished")
    runner.stop()
    (call,) = json.loads(program.forge("log", "--store", "--json"))
    assert (call["session"], call["tool"], call["status"]) == (session, "list_files", "success")
    assert session[:12] in program.forge("log", "sessions", "--store")
    assert call["id"] in program.forge("log", "show", call["id"][:20])
    for words in ((), ("all",), (session[:8],)):
        assert f"{session[:12]}  ok" in program.forge("log", "verify", *words)
    store = program.store()
    with store.database.transaction() as connection, pruning(connection, store.database):
        connection.execute("DELETE FROM journal WHERE session = :id AND n = 5", {"id": session})
    for words in ((), (session[:8],)):  # the copy that was looked at is whole; what counts is the store
        assert "NOT ok" in program.forge("log", "verify", *words, code=1)
    assert store.prune(-1) == 1
    program.forge("log", "verify", "abcd", code=4)
    assert "deleted after its retention; its journal had" in program.forge("log", "verify", session[:8], code=4)


def test_a_session_waits_for_a_runner_of_its_own_account_on_its_machine(program: Program) -> None:
    """A runner of another account may not read the directory: it would take the session and fail it. The page queues
    sessions for any runner of a machine, and earlier versions did."""
    program.forge("run", "--background", "--no-runner", "go")
    store, host = program.store(), socket.gethostname()
    [queued] = store.sessions()
    other = ("", f"host:{host}", f"host:{host}:{os.getuid() + 1}")
    assert store.leases.claim("r of another account", other) is None
    of_any = store.queue(NewSession(facts={"directory": str(program.folder)}, input="go", label=f"host:{host}"))
    program.run_here()
    for session in (queued.id, of_any):
        program.wait_for(session, "finished")
