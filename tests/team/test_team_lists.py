"""What an operator reads in `forge ps`, `forge batch`, `forge log` and the runner's log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.team.background import Program, until, write_call

from golem_forge.cli.team.batch import Batch, BatchLine
from golem_forge.team.database import StoreUnavailable
from golem_forge.team.people import OwnerStore
from golem_forge.team.rows import NewSession, StoredSession
from golem_forge.ui.session_ui import INTERRUPTED


def register(program: Program, runner: str, *labels: str, slots: int = 1) -> None:
    program.store().runners.register(runner, host="h", pid=1, slots=slots, labels=labels, version="1", offers={})


def waits_for(program: Program, session: str) -> str:
    [row] = [row for row in json.loads(program.forge("ps", "--json")) if row["session"] == session]
    waits: str = row["waitsFor"]
    assert waits in program.forge("ps")
    return waits


def test_an_answered_session_waits_for_a_free_slot_and_not_for_an_answer(program: Program) -> None:
    program.play({"calls": [write_call("/work/a.txt", "x")]}, {"say": "done"})
    session = program.queue()
    runner = program.run_here()
    program.wait_for(session, "waiting")
    runner.stop()
    assert waits_for(program, session).startswith("write_file: ")
    store = program.store()
    [question] = store.questions.rows()
    store.questions.answer(question.id, {"approved": True}, "bob", "test")
    assert waits_for(program, session) == "a runner: there is none (answered)"
    register(program, "r1")
    assert waits_for(program, session) == "a free slot (answered)"
    assert store.find(session).shown_wait == "a free slot (answered)"  # as the page's list has it


def test_the_question_of_a_tool_of_ones_own_shows_the_arguments_in_every_list(program: Program) -> None:
    program.add_tools()
    worker = program.folder / "main.worker"
    worker.write_text(worker.read_text().replace("default: preApproved", "default: ask"))
    program.forge("trust", "--yes")
    program.play({"calls": [{"tool": "effect", "args": {"name": "paid", "wait": 0}}]}, {"say": "done"})
    session = program.queue()
    runner = program.run_here()
    program.wait_for(session, "waiting")
    runner.stop()
    asked = 'effect: { "name": "paid", "wait": 0, "gate": "" }'
    assert waits_for(program, session) == asked
    assert asked in program.forge("inbox")


def test_the_batch_counts_an_answered_session_as_one_that_waits_for_a_slot(program: Program) -> None:
    program.play({"calls": [write_call("/work/a.txt", "x")]}, {"say": "done"})
    (program.folder / "tasks.txt").write_text("one\n")
    said = program.home / "batch.log"
    assert program.ready is not None
    command = ["forge", "batch", "tasks.txt", "--no-runner"]
    batch = program.ready.start_with_log(command, said, cwd=program.folder, env=program.environ)
    try:
        runner = program.start_runner()
        until(
            lambda: "0 of 1 ended, 1 waits for an answer (`forge inbox`)\n" in said.read_text(), or_else=said.read_text
        )
        runner.kill()
        runner.wait()
        store = program.store()
        [question] = store.questions.rows()
        store.questions.answer(question.id, {"approved": True}, "bob", "test")
        told = "0 of 1 ended, 1 was answered and waits for a free slot\n"
        until(lambda: told in said.read_text(), or_else=said.read_text)
    finally:
        batch.kill()
        batch.wait()


def test_a_queued_session_says_whether_no_runner_has_its_label_or_they_are_full(program: Program) -> None:
    store = program.store()
    busy = store.queue(NewSession(facts={}, input="one", label="gpu"))
    assert waits_for(program, busy) == "a runner with the label gpu: there is none"
    register(program, "r1", "gpu")
    assert waits_for(program, busy) == "a runner with the label gpu"
    assert store.leases.claim("r1", ("gpu",)) is not None
    session = store.queue(NewSession(facts={}, input="two", label="gpu"))
    assert waits_for(program, session) == "a free slot: the runners with gpu are full"
    anywhere = store.queue(NewSession(facts={}, input="three"))
    assert waits_for(program, anywhere) == "a free slot: all runners are full"


def test_a_session_that_a_limit_keeps_says_which(program: Program) -> None:
    store = program.store()
    offers = {"limits": {"per_person": 1, "per_program": 1}}
    store.runners.register("r1", host="h", pid=1, slots=4, labels=(), version="1", offers=offers)
    store.queue(NewSession(facts={}, input="one", person="ada", program="p"))
    assert store.leases.claim("r1", ()) is not None
    second = store.queue(NewSession(facts={}, input="two", person="ada"))
    third = store.queue(NewSession(facts={}, input="three", person="bob", program="p"))
    assert waits_for(program, second) == "store.limits.per_person (1): 1 of ada run now"
    assert waits_for(program, third) == "store.limits.per_program (1): 1 of this program run now"


def test_a_batch_starts_the_lines_that_can_be_read_and_resumes_with_the_rest(program: Program) -> None:
    worker = (program.folder / "main.worker").read_text()
    (program.folder / "main.worker").write_text(worker.replace("name: main", "name: main\nmode: single"))
    program.forge("trust", "--yes")
    tasks = program.folder / "tasks.jsonl"
    lines = 'one\n{"input": "two"\n{"input": "three", "worker": "nobody"}\nfour\n'
    tasks.write_text(lines, encoding="utf-8-sig")  # a byte order mark is no part of the first line
    program.start_runner()
    said = program.forge("batch", "tasks.jsonl", "--priority", "3", "--no-runner", code=1)
    assert "line 2: is not a JSON object" in said
    assert "line 3: worker 'nobody' not found" in said
    store = program.store()
    ran = {(row.title, row.state, row.priority) for row in store.sessions()}
    assert ran == {("four", "finished", 3), ("one", "finished", 3)}, "in either order: both run at once"
    again = said.partition("2 lines were not started. Correct it in the file, then: forge ")[2].split()
    tasks.write_text('one\n{"input": "two"}\nthree\nfour\n')
    assert "finished" in program.forge(*again, "--no-runner")
    assert sorted(row.title for row in store.sessions()) == ["four", "one", "three", "two"]
    assert "no session of the batch 'none'" in program.forge("batch", "tasks.jsonl", "--resume", "none", code=4)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--background", "--no-runner", ""),
        ("run", "--background", "--no-runner", " \n"),
        ("run", "--background", "--no-runner", "--priority", "11", "go"),
        ("schedule", "add", "@daily", " "),
        ("schedule", "add", "@daily", "go", "--priority", "-11"),
    ],
)
def test_what_no_session_begins_with_is_refused_before_it_is_queued(program: Program, words: tuple[str, ...]) -> None:
    assert any(said in program.forge(*words, code=2) for said in ("the input is missing", "from -10 to 10"))
    store = program.store()
    assert (store.sessions(), store.schedules.all()) == ([], [])


def test_a_batch_that_is_resumed_runs_no_more_at_once(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("golem_forge.cli.team.batch.time.sleep", leave)
    store = OwnerStore(program.store(), "ada", "cli")
    lines = [(BatchLine(number=at, input=str(at)), NewSession(facts={}, input=str(at))) for at in (1, 2, 3)]
    assert Batch(store, "b", lines).run(1, None, as_json=False) == INTERRUPTED
    again = Batch(store, "b", lines)
    again.resume()
    assert again.run(1, None, as_json=False) == INTERRUPTED
    assert [row.state for row in store.sessions()] == ["queued"]


def test_a_batch_whose_quota_is_used_up_half_way_runs_what_it_started_and_resumes_with_the_rest(
    program: Program,
) -> None:
    worker = (program.folder / "main.worker").read_text()
    (program.folder / "main.worker").write_text(worker.replace("name: main", "name: main\nmode: single"))
    program.forge("trust", "--yes")
    (program.folder / "tasks").write_text("one\ntwo\nthree\nfour\nfive\n")
    program.start_runner()
    program.forge("projects", "quota", "all", "--sessions", "2")
    said = program.forge("batch", "tasks", "--no-runner", code=1)
    assert "line 3: The quota" in said and "line 4 and 1 more: The quota" in said
    store = program.store()
    assert sorted((row.title, row.state) for row in store.sessions()) == [("one", "finished"), ("two", "finished")]
    again = said.partition("3 lines were not started. When that is settled: forge ")[2].split()
    assert "The quota" in program.forge(*again, "--no-runner", code=1), "the lines that have a session keep it"
    program.forge("projects", "quota", "all")
    program.forge(*again, "--no-runner")
    assert sorted(row.title for row in store.sessions()) == ["five", "four", "one", "three", "two"]


def test_a_batch_outlives_a_store_that_is_away_while_it_queues(program: Program) -> None:
    class Away(OwnerStore):
        """Takes the second line, and does not say so; the third does not arrive."""

        asked = 0

        def queue(self, new: NewSession, session_id: str = "") -> str:
            self.asked += 1
            found = super().queue(new, session_id) if self.asked != 3 else ""
            if self.asked in (2, 3):
                raise StoreUnavailable("away")
            return found

        def sessions(self, **wanted: Any) -> list[StoredSession]:
            while lease := self.store.leases.claim("r1", ()):
                self.store.leases.end(lease, "finished")
            return super().sessions(**wanted)

    store = Away(program.store(), "ada", "cli")
    lines = [(BatchLine(number=at, input=str(at)), NewSession(facts={}, input=str(at))) for at in (1, 2, 3)]
    assert Batch(store, "b", lines).run(3, None, as_json=False) == 0
    assert sorted(row.state for row in store.sessions()) == ["finished"] * 3


def test_a_repository_that_is_not_there_is_named_in_every_list(program: Program, tmp_path: Path) -> None:
    missing = tmp_path / "repositories" / "lost-and-found.git"
    workspace = {"git": str(missing), "ref": "", "zone": "work"}
    session = program.queue(workspace=workspace)
    program.start_runner()
    error = program.wait_for(session, "failed").error
    assert "lost-and-found.git" in error
    assert str(tmp_path) not in error  # viewers read it: no host path
    [row] = json.loads(program.forge("ps", "--all", "--json"))
    assert row["error"] == error
    table = program.forge("ps", "--all")
    shown = next(cell for cell in table.splitlines()[1].split("  ") if cell.strip().startswith("git could not"))
    assert shown.endswith("…")
    cut = shown.strip()[:-1]
    assert error.startswith(cut) and error[len(cut)] in " :", "cut behind a word"
    assert error in " ".join(program.forge("attach", session[:12], code=1).split())
    until(lambda: f"session {session[:12]} failed: git could not" in program.logs(), or_else=program.logs)
    assert error in program.logs()


def test_ps_says_the_whole_reason_of_a_session_that_failed_just_now(program: Program) -> None:
    name = "a-script-with-a-name-that-no-column-of-a-table-has-room-for-at-eighty.yaml"
    program.forge("run", "--background", "--no-runner", "-m", f"scripted:{name}", "hello")
    (session,) = [row.id for row in program.store().sessions()]
    program.start_runner("--slots", "1")
    program.wait_for(session, "failed")
    assert "1 slot, labels" in program.logs()
    said = program.forge("ps")
    assert said.startswith("no session runs or waits") and f"! {session[:12]} failed " in said
    assert f"{name}: file not found" in said
    assert json.loads(program.forge("ps", "--json")) == []


def test_ps_says_why_the_last_turn_of_a_conversation_failed_until_one_ends_well(program: Program) -> None:
    program.play({"expect": "no such word"}, {"say": "hello"})
    program.start_runner()
    store = program.store()
    session = store.queue(
        NewSession(facts={"directory": str(program.folder)}, input="go", person="ada", door="test", mode="chat")
    )
    row = program.wait_for(session, "waiting")
    assert row.notice.startswith("The last turn failed: script.yaml:") and "expected 'no such word'" in row.notice
    assert f"! {session[:12]}: {row.notice}\n" in program.forge("ps")
    assert "the message is empty" in program.forge("send", session[:12], " ", code=2)
    assert store.arrived(session, 1) == [], "no turn begins with nothing"
    program.forge("send", session[:12], "again")
    until(lambda: not store.find(session).notice, or_else=lambda: (store.find(session), program.logs()))
    assert "! " not in program.forge("ps")


def test_the_log_of_the_store_names_the_session_and_says_which_call_waits(program: Program) -> None:
    program.add_tools()
    calls = [write_call("/work/a.txt", "x")]
    program.play(
        {"calls": [{"tool": "effect", "args": {"name": "n1", "gate": "seen"}}]}, {"calls": calls}, {"say": "done"}
    )
    session = program.queue()
    program.start_runner()
    until(program.effects)
    header, row = program.forge("log", "--store").splitlines()
    assert "SESSION" in header and session[:12] in row
    assert "running" in row, "and not that it may have run"
    program.open_gate("seen")
    program.wait_for(session, "waiting")
    done, asked = program.forge("log", "--store").splitlines()[1:]
    assert "success" in done
    assert "waits" in asked and "never started" not in asked
    [call] = json.loads(program.forge("log", "--store", "--status", "waits", "--json"))
    assert (call["tool"], call["status"], call["session"]) == ("write_file", "waits", session)
    assert "waits" in program.forge("log", "show", call["id"][:20])
    assert "waits" in program.forge("log", "--session", session[:12])
    assert "SESSION" not in program.forge("log", "--session", session[:12])
    assert "waits" in program.forge("log", "sessions", "--store")
    program.forge("stop", session[:12])
    program.wait_for(session, "stopped")
    assert "waits" not in program.forge("log", "--store")


@pytest.mark.walls
def test_a_command_that_was_left_running_is_said_to_have_ended_with_the_session(program: Program) -> None:
    worker = program.folder / "main.worker"
    worker.write_text(worker.read_text().replace("  filesystem: {}", "  exec: {walled: preApproved}"))
    program.forge("trust", "--yes")
    calls = [{"tool": "exec_command", "args": {"cmd": "sleep 300", "yield_time_ms": 0}}]
    program.play({"calls": calls}, {"say": "done"})
    session = program.queue()
    runner = program.run_here()
    program.wait_for(session, "finished")
    runner.stop()
    told = "1 command was ended with the session."
    assert f"! {session[:12]}: {told}\n" in program.forge("ps", "--all")
    assert told in program.forge("sessions", "show", session)
