"""Resuming (workers.md §11, approval.md §8): nothing is repeated, everything requested has its result, approvals hold.

Processes are real and killed with SIGKILL; an effect is counted by the lines of a file.
"""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.deadlines import PATIENCE

from golem_forge import FunctionScript, ToolCall, Worker, create_ui_event_bus, tool
from golem_forge.agent.history import History, recap
from golem_forge.agent.model.interface import AssistantMessage, RequestedCall, ResultsMessage, UserMessage, unfenced
from golem_forge.agent.recorded_sessions import replay
from golem_forge.agent.resume import SESSION_STOPPED, NothingToResume, resume
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.session_state import (
    KeptApproval,
    RunFacts,
    file_digest,
    kept_approvals,
    kept_recorder,
    record_revoked,
    record_run,
    restore_approvals,
)
from golem_forge.core.decisions import Status
from golem_forge.events.index import SessionIndex
from golem_forge.events.journal import Journal
from golem_forge.events.journal_files import JournalDamaged, SessionAmbiguous, SessionInUse, SessionNotFound
from golem_forge.events.journal_records import events_after, read, verify
from golem_forge.events.redaction import Redactor
from golem_forge.events.serialization import iso_now
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.risk import ANY_WALLED
from golem_forge.policy.rules.book import RuleBook
from golem_forge.storage.home import ForgeHome, forge_home
from golem_forge.tools.context import SessionParts
from golem_forge.toolsets.plan import SessionPlans, create_update_plan_tool


def facts(place: Path, **more: Any) -> RunFacts:
    return RunFacts(
        **{"name": "main", "worker_id": "w1", "directory": str(place), "root": str(place), "model": "scripted:a"} | more
    )


def begun(home: Path, session_id: str = "s1", **more: Any) -> Journal:
    journal = Journal.create(home, session_id)
    record_run(journal, facts(home, **more))
    return journal


def asking(*calls: str) -> AssistantMessage:
    return AssistantMessage(calls=tuple(RequestedCall(id=each, name="count", args={"what": each}) for each in calls))


CRASHING = """
    import asyncio, os, sys, time
    from pathlib import Path
    from golem_forge import ToolCall, create_ui_event_bus, tool
    from golem_forge.events.journal import Journal
    from golem_forge.orchestrator import Orchestrator
    from golem_forge.storage.home import ForgeHome
    from golem_forge.policy.controller import ApprovalController
    from golem_forge.agent.history import History
    from golem_forge.agent.model.interface import AssistantMessage, RequestedCall, UserMessage
    from golem_forge.agent.session_state import RunFacts, record_run

    home, effects = Path(sys.argv[1]), Path(sys.argv[2])

    @tool(needs_approval=False)
    def count(what: str) -> str:
        with effects.open("a") as file:
            file.write(what + "\\n")
        if what == "slow":
            print("ready", flush=True)
            time.sleep(60)
        return f"counted {what}"

    async def main():
        journal = Journal.create(home, "s1")
        record_run(journal, RunFacts(name="main", worker_id="w1", directory=str(home), root=str(home)))
        bus = create_ui_event_bus("s1", recorder=journal.record_event, commit=journal.flush)
        path = Orchestrator([count], approval=ApprovalController("auto_deny"), journal=journal, bus=bus,
                            id="s1", worker="main", worker_id="w1", home=ForgeHome(home))
        history = History(journal, "w1")
        history.add(UserMessage(text="count, please"))
        calls = [("c1", "quick"), ("c2", "slow"), ("c3", "later")]
        history.add(AssistantMessage(text="I count.", calls=tuple(
            RequestedCall(id=id, name="count", args={"what": what}) for id, what in calls)))
        await path.batch([ToolCall("count", {"what": what}, id=id) for id, what in calls], mode="sequential")

    asyncio.run(main())
"""


@pytest.fixture
def python(tmp_path: Path, ready_forge: Any) -> Callable[..., Any]:
    """`python(text, *words)`: a program in a process of its own, as `subprocess.Popen` gives it."""

    def start(text: str, *words: Path) -> Any:
        (tmp_path / "program.py").write_text(textwrap.dedent(text))
        command = ["python", str(tmp_path / "program.py"), *map(str, words)]
        return ready_forge.start(command, cwd=tmp_path, env=os.environ)

    return start


@pytest.fixture
def killed(tmp_path: Path, python: Callable[..., Any]) -> tuple[Path, Path]:
    """(home, effects) of a session that was killed while its second call of three ran."""
    home, effects = tmp_path / "forge", tmp_path / "effects"
    with python(CRASHING, home, effects) as process:
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        with pytest.raises(SessionInUse, match="session is in use"):
            resume(home, "s1")
        process.kill()
    assert process.returncode == -signal.SIGKILL
    return home, effects


async def test_w42_a_killed_call_may_have_run_and_is_not_repeated(killed: tuple[Path, Path]) -> None:
    home, effects = killed
    resumed = resume(home, "s1")
    assert effects.read_text() == "quick\nslow\n", "resuming runs nothing"
    user, asked, results = resumed.history
    assert user == UserMessage(text="count, please")
    assert isinstance(asked, AssistantMessage) and isinstance(results, ResultsMessage)
    assert [(each.id, each.status.value, unfenced(each.text)) for each in results.results] == [
        ("c1", "success", "counted quick"),
        ("c2", "interrupted", "may have run before the crash"),
        ("c3", "interrupted", "interrupted before it started"),
    ]
    assert results.note == SESSION_STOPPED
    assert [call.id for call in resumed.interrupted] == ["c2", "c3"]

    @tool(needs_approval=False)
    def count(what: str) -> str:
        with effects.open("a") as file:
            file.write(what + "\n")
        return f"counted {what}"

    bus = create_ui_event_bus("s1")
    bus.record_with(resumed.journal.record_event, resumed.journal.flush, seq=resumed.seq)
    before = resumed.seq
    path = Orchestrator(
        [count],
        approval=ApprovalController("auto_deny"),
        journal=resumed.journal,
        bus=bus,
        id="s1",
        home=ForgeHome(home),
    )
    outcome = await path.call(ToolCall("count", {"what": "next"}))
    assert outcome.ok and effects.read_text() == "quick\nslow\nnext\n", "the next turn works"
    resumed.journal.close()
    assert verify(resumed.journal.path).ok
    numbers = [event.seq for event in events_after(resumed.journal.path)]
    assert numbers == list(range(1, len(numbers) + 1)) and numbers[-1] == before + 2, "numbering goes on without a gap"


def test_resuming_again_finds_the_same(killed: tuple[Path, Path]) -> None:
    home, effects = killed
    first = resume(home, "s1")
    first.journal.release()
    again = resume(home, "s1")
    assert again.history == first.history and again.interrupted == ()
    again.journal.close()
    third = resume(home, "last")
    assert third.history == first.history
    third.journal.close()
    assert effects.read_text() == "quick\nslow\n"
    assert sum(record["type"] == "history" for record in read(third.journal.path)) == 3, "completed once"


def test_w43_changed_worker_files_are_named(tmp_path: Path) -> None:
    for name, text in {"main.worker": "a", "workers/b.worker": "b", "workers/c.worker": "c"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    files = {name: file_digest(tmp_path / name) for name in ("main.worker", "workers/b.worker", "workers/c.worker")}
    begun(tmp_path / "forge", root=str(tmp_path), files=files).close()
    unchanged = resume(tmp_path / "forge", "s1")
    assert unchanged.warning == "" and unchanged.changed == ()
    unchanged.journal.close()
    (tmp_path / "main.worker").write_text("a2")
    (tmp_path / "workers/c.worker").unlink()
    changed = resume(tmp_path / "forge", "s1")
    assert changed.warning == "changed since this session ran, used in their new form: main.worker, workers/c.worker"
    changed.journal.close()


def test_the_last_run_counts_and_its_host_path_survives_the_redactor(tmp_path: Path) -> None:
    redactor = Redactor()
    redactor.add_path(str(tmp_path), "/workspace")
    journal = Journal.create(tmp_path, "s1", redact=redactor.value)
    record_run(journal, facts(tmp_path, model="scripted:a"))
    record_run(journal, facts(tmp_path, model="scripted:b", worker=str(tmp_path / "main.worker")))
    journal.close()
    resumed = resume(tmp_path, "s1")
    assert (resumed.model, resumed.directory, resumed.worker_id) == ("scripted:b", str(tmp_path), "w1")
    assert resumed.worker_reference == tmp_path / "main.worker"
    resumed.journal.close()
    assert str(tmp_path) not in "".join(event.to_json() for event in replay("s1", home=tmp_path))


# What a person types


def test_id_prefix_and_last(tmp_path: Path) -> None:
    for session_id in ("abc1", "abc2", "b1"):
        journal = begun(tmp_path, session_id)
        History(journal, "w1").add(UserMessage(text="Hello"))
        journal.close()
    Journal.create(tmp_path, "call1").close()
    for typed, found in {"abc1": "abc1", "b": "b1", "last": "b1"}.items():
        resumed = resume(tmp_path, typed)
        assert resumed.session_id == found
        resumed.journal.close()
        ended = iso_now()
        while iso_now() == ended:
            pass
    with pytest.raises(SessionAmbiguous, match="several sessions start with 'abc'"):
        resume(tmp_path, "abc")
    for unknown in ("zz", ""):
        with pytest.raises(SessionNotFound, match="forge sessions list"):
            resume(tmp_path, unknown)


def test_last_is_nobody_while_there_is_no_conversation_and_looking_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound):
        resume(tmp_path / "forge", "last")
    assert not (tmp_path / "forge").exists()
    Journal.create(tmp_path, "call1").close()
    with pytest.raises(SessionNotFound):
        resume(tmp_path, "last")


def test_a_session_of_single_calls_cannot_be_resumed_and_is_left_alone(tmp_path: Path) -> None:
    path = Journal.create(tmp_path, "call1").path
    before = path.read_bytes()
    with pytest.raises(NothingToResume, match="no conversation"):
        resume(tmp_path, "call1")
    assert path.read_bytes() == before


def test_a_changed_journal_is_not_continued(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    History(journal, "w1").add(UserMessage(text="pay 10"))
    journal.close()
    journal.path.write_bytes(journal.path.read_bytes().replace(b"pay 10", b"pay 99"))
    with pytest.raises(JournalDamaged):
        resume(tmp_path, "s1")
    with pytest.raises(JournalDamaged):  # and it is not left locked
        resume(tmp_path, "s1")


# What comes back


def test_calls_that_never_reached_the_path(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    cut = RequestedCall(id="c2", name="count", args="{", problem="response was cut at the token limit")
    message = AssistantMessage(calls=(*asking("c1").calls, cut))
    History(journal, "w1").add(message)
    journal.release()
    resumed = resume(tmp_path, "s1")
    results = resumed.history[-1]
    assert isinstance(results, ResultsMessage)
    assert [(each.status, each.text) for each in results.results] == [
        (Status.INTERRUPTED, "interrupted before it started"),
        (Status.INPUT_INVALID, "response was cut at the token limit"),
    ]
    resumed.journal.close()


def test_failed_and_long_results_are_told(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    History(journal, "w1").add(asking("c1", "c2", "c3"))
    for call in ("c1", "c2", "c3"):
        journal.propose(call, "count", {})
    journal.start("c1", "count", {})
    journal.finish("c1", "execution_failed", 1.0, "Exited: code 3", value={"kind": "text", "content": "partial"})
    journal.finish("c2", "success", 1.0, output_handle="out_7", value={"kind": "text", "content": "x" * 150_000})
    journal.finish("c3", "approval_denied", 0.0, "Denied by the user.")
    journal.release()
    resumed = resume(tmp_path, "s1")
    results = resumed.history[-1]
    assert isinstance(results, ResultsMessage)
    failed, long, denied = results.results
    assert failed.text.startswith("--- "), "what a tool said is fenced"
    assert (failed.status, unfenced(failed.text)) == (Status.EXECUTION_FAILED, "Exited: code 3\npartial")
    assert long.output_handle == "out_7" and long.text.endswith(
        "[… 50000 characters left out read_output handle=out_7]"
    )
    assert (denied.status, denied.text) == (Status.APPROVAL_DENIED, "Denied by the user.")
    resumed.journal.close()


async def test_plans_and_usage(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    bus = create_ui_event_bus("s1", recorder=journal.record_event, commit=journal.flush)
    for worker in ("main", "main/helper"):
        path = Orchestrator(
            [create_update_plan_tool()],
            approval=ApprovalController("auto_deny"),
            journal=journal,
            bus=bus,
            worker=worker,
            worker_id="w1",
            home=ForgeHome(tmp_path),
        )
        for status in ("pending", "completed"):
            steps = [{"step": f"of {worker}", "status": status}]
            assert (await path.call(ToolCall("update_plan", {"plan": steps}))).ok
        assert not (await path.call(ToolCall("update_plan", {"plan": []}))).ok
    for cost in (0.25, 0.5):
        used = {"requestId": "r", "workerId": "w1", "input": 10, "output": 2, "cached": 1, "cost": cost, "session": {}}
        bus.emit("usageUpdated", used)
    journal.close()
    resumed = resume(tmp_path, "s1")
    tree = Tree()
    resumed.restore_into(cast(Any, tree))
    plans = tree.parts.get(SessionPlans)
    assert plans.get("main") == [{"step": "of main", "status": "completed"}]
    assert plans.get("main/helper") == [{"step": "of main/helper", "status": "completed"}]
    assert (resumed.usage.requests, resumed.usage.usage.input, resumed.usage.usage.cached) == (2, 20, 2)
    assert resumed.usage.cost == 0.75 and resumed.calls == 6
    resumed.journal.close()


def test_a_request_of_unknown_price_makes_the_sum_unknown(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    bus = create_ui_event_bus("s1", recorder=journal.record_event)
    for cost in (0.25, None):
        used = {"requestId": "r", "workerId": "w1", "input": 1, "output": 2, "cached": 0, "cost": cost, "session": {}}
        bus.emit("usageUpdated", used)
    journal.close()
    resumed = resume(tmp_path, "s1")
    assert resumed.usage.cost is None and resumed.usage.usage.total == 6
    resumed.journal.close()


# Approvals


class Tree:
    """What a resumed session is put back into."""

    def __init__(self, ask: Any = None) -> None:
        self.parts = SessionParts()
        self.controller = ApprovalController("interactive" if ask else "auto_deny", ask)
        self.rules = RuleBook(forge_home())
        self.grants: dict[str, set[str]] = {}

    def restore(self, kept: Sequence[KeptApproval], definition: str | None) -> Sequence[KeptApproval]:
        """`definition`: of every tool, as it is now."""
        return restore_approvals(
            kept, lambda *_: definition, controller=self.controller, rules=self.rules, grants=self.grants
        )


def choose(label: str) -> Any:
    def answer(request: Any) -> dict[str, Any]:
        for choice in request.choices:
            if label in choice.id and choice.scope == "session":
                return {"approved": True, "choice": choice.id}
        raise AssertionError([choice.id for choice in request.choices])

    return answer


def risky_tool(description: str = "Does it.") -> Any:
    @tool(description=description)
    def risky(what: str = "") -> str:
        return "done"

    return risky


async def kept_by(tmp_path: Path, choice: str, made: Any) -> tuple[KeptApproval, ...]:
    """What a person kept for the session by this choice, as a resumed session reads it."""
    journal, tree = begun(tmp_path), Tree(choose(choice))
    path = Orchestrator(
        [made],
        approval=tree.controller,
        rules=tree.rules,
        journal=journal,
        grants=tree.grants,
        on_kept=kept_recorder(journal),
        home=ForgeHome(tmp_path),
    )
    assert (await path.call(ToolCall("risky", {"what": "a"}))).ok
    journal.close()
    resumed = resume(tmp_path, "s1")
    resumed.journal.close()
    return resumed.approvals


async def asks(tree: Tree, made: Any, what: str, tmp_path: Path) -> bool:
    path = Orchestrator(
        [made], approval=tree.controller, rules=tree.rules, grants=tree.grants, home=ForgeHome(tmp_path)
    )
    return (await path.call(ToolCall("risky", {"what": what}))).status is Status.APPROVAL_DENIED


async def test_an_exact_call_is_still_approved_and_nothing_else(tmp_path: Path) -> None:
    made = risky_tool()
    kept = await kept_by(tmp_path, "exact", made)
    assert [each.kind for each in kept] == ["exact"]
    tree = Tree()
    assert tree.restore(kept, made.definition_digest)
    assert not await asks(tree, made, "a", tmp_path)
    assert await asks(tree, made, "b", tmp_path)
    assert await asks(tree, risky_tool("Does something else."), "a", tmp_path), "a changed tool is a new tool"


async def test_a_rule_comes_back_only_for_the_tool_it_was_given_for(tmp_path: Path) -> None:
    made = risky_tool()
    kept = await kept_by(tmp_path, "tool", made)
    assert [each.kind for each in kept] == ["rule"]
    for definition, holds in ((made.definition_digest, True), ("other", False), (None, False)):
        tree = Tree()
        assert bool(tree.restore(kept, definition)) is holds
        assert await asks(tree, made, "anything", tmp_path) is not holds


async def test_a_rule_whose_words_were_redacted_stays_away(tmp_path: Path) -> None:
    (kept,) = await kept_by(tmp_path, "tool", risky_tool())
    changed = {**kept.rule, "tool": "other"}
    forged = KeptApproval(kind="rule", worker="main", tool="risky", definition="d", key=kept.key, rule=changed)
    broken = KeptApproval(kind="rule", worker="main", tool="risky", definition="d", key=kept.key, rule={"tool": 7})
    assert not Tree().restore((forged, broken), "d")


def test_grants_of_processes_end_with_them_and_revoked_ones_stay_revoked(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    keep = kept_recorder(journal)
    who = {"worker": "main", "tool": "exec_command", "definition": "d"}
    keep("grant", {**who, "grant": ANY_WALLED})
    keep("grant", {**who, "worker": "main/b", "grant": ANY_WALLED})
    keep("grant", {**who, "tool": "write_stdin", "grant": "input to session 1"})
    keep("exact", {**who, "tool": "write_stdin", "fingerprint": "f" * 64, "what": "write_stdin 1"})
    keep("exact", {**who, "fingerprint": "e" * 64, "what": "exec_command 1"})
    record_revoked(journal, "exact", "e" * 64)
    record_revoked(journal, "grant", ANY_WALLED, worker="main/b")
    journal.close()
    tree = Tree()
    kept = kept_approvals(read(journal.path))
    assert len(kept) == 3
    tree.restore(kept, "d")
    assert tree.grants == {"main": {ANY_WALLED}} and tree.controller.memory.grants() == {}


def test_without_definitions_only_native_tools_are_known(tmp_path: Path) -> None:
    from golem_forge.toolsets import TOOLKIT

    journal = begun(tmp_path)
    keep = kept_recorder(journal)
    native = TOOLKIT["exec_command"].definition_digest
    keep("grant", {"worker": "main", "tool": "exec_command", "definition": native, "grant": ANY_WALLED})
    keep("grant", {"worker": "main", "tool": "mine", "definition": "d", "grant": ANY_WALLED})
    keep("exact", {"worker": "main", "tool": "mine", "definition": "d", "fingerprint": "f" * 64, "what": "mine 1"})
    journal.close()
    resumed, tree = resume(tmp_path, "s1"), Tree()
    assert [each.tool for each in resumed.restore_into(cast(Any, tree))] == ["exec_command", "mine"]
    assert tree.grants == {"main": {ANY_WALLED}} and tree.controller.memory.granted("f" * 64)
    resumed.journal.close()


async def test_grants_are_shared_by_the_workers_of_a_session(tmp_path: Path) -> None:
    grants: dict[str, set[str]] = {}
    paths = [
        Orchestrator([], approval=ApprovalController("auto_deny"), grants=grants, home=ForgeHome(tmp_path))
        for _ in range(2)
    ]
    paths[0].judge.grant("main", ANY_WALLED)
    assert grants == {"main": {ANY_WALLED}} and paths[1].judge._grants is grants


# Replay


def test_replay_causes_no_event_and_no_record(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    bus = create_ui_event_bus("s1", recorder=journal.record_event)
    for number in range(5):
        bus.emit("status", {"type": "info", "message": str(number)})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    events = list(replay("s1", home=tmp_path))
    assert [event.seq for event in events] == [1, 2, 3, 4, 5]
    assert [event.seq for event in replay("s1", home=tmp_path, after=2, limit=2)] == [3, 4]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == before
    journal.close()
    with pytest.raises(SessionNotFound):
        replay("nope", home=tmp_path)


def test_the_index_finds_conversations(tmp_path: Path) -> None:
    journal = begun(tmp_path, "r1")
    History(journal, "w1").add(UserMessage(text="x" * (2 << 20)))  # written in parts
    journal.close()
    begun(tmp_path, "r2").close()
    Journal.create(tmp_path, "c1").close()
    (run,) = SessionIndex(tmp_path).conversations()
    assert (run.id, run.worker, run.model, run.root) == ("r1", "main", "scripted:a", str(tmp_path))
    assert os.path.isfile(tmp_path / "index.db")


def test_a_recap_is_the_last_exchange_and_how_many_there_were() -> None:
    assert recap([]) == recap([UserMessage(text="summary", kind="summary")]) == ""
    first = [UserMessage(text="Hello"), asking("c1"), ResultsMessage(results=())]
    assert recap(first) == "1 turn so far. The last one:\n> Hello\n(there was no answer yet)"
    answer = AssistantMessage(text="one\ntwo\n" + "3" * 500 + "\nfour\nfive")
    note = UserMessage(text="not a person's", kind="note")
    said = recap([*first, UserMessage(text="And\nnow?"), AssistantMessage(text="Let me see."), note, answer])
    shown = ["> And", "> now?", "one", "two", "3" * 159 + "…", "four", "…"]
    assert said.splitlines() == ["2 turns so far. The last one:", *shown]


async def test_resuming_shows_a_recap_once_and_adds_no_message(play: Any) -> None:
    first = await play(["Hi there."], run="Say hello")
    await first.runtime.aclose()
    again = await play(["Bye."], resume="last")
    (said,) = [each for each in again.seen("status") if each.wire["type"] == "info"]
    assert said.wire["message"] == "1 turn so far. The last one:\n> Say hello\nHi there."
    assert again.seen("message") == [] and len(again.runtime.history.messages) == 2


async def test_last_is_the_last_one_in_this_directory(play: Any, tmp_path: Path) -> None:
    ids = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        played = await play(["Yes."], directory=tmp_path / name)
        await played.runtime.run(name)
        ids.append(played.runtime.session_id)
        await played.runtime.aclose()
    refused = await play([], directory=tmp_path / "one")
    assert (await refused.runtime.run("x", [tmp_path / "missing.txt"])).status.value == "invalid_config"
    await refused.runtime.aclose()
    elsewhere = await play([], directory=tmp_path, resume="last")
    assert elsewhere.runtime.session_id == ids[1] and elsewhere.runtime.program.root == tmp_path / "two"
    here = await play([], directory=tmp_path / "one", resume="last")
    assert here.runtime.session_id == ids[0]


DYING = """
import asyncio, os, sys
from golem_forge import FunctionScript, Turn, TurnCall, Worker, WorkerRuntime, tool

@tool(needs_approval=True)
def sell(item: str) -> str:
    return f"sold {item}"

async def main():
    calls = (TurnCall(tool="sell", args={"item": "mug"}),)
    async with WorkerRuntime(
        Worker(name="desk"), directory=sys.argv[1], home=sys.argv[2], tools=[sell],
        model=FunctionScript(lambda request: Turn(calls=calls)), approval_callback=lambda request: os._exit(3),
    ) as runtime:
        await runtime.turn("sell a mug")

asyncio.run(main())
"""


async def test_a_question_that_was_open_when_the_embedding_process_died_is_asked_again(
    tmp_path: Path, python: Callable[..., Any]
) -> None:
    (project := tmp_path / "project").mkdir()
    home = tmp_path / "home"
    with python(DYING, project, home) as died:
        _, said = died.communicate(timeout=PATIENCE)
    assert died.returncode == 3, said
    sold: list[str] = []
    asked: list[Any] = []

    @tool(needs_approval=True)
    def sell(item: str) -> str:
        sold.append(item)
        return f"sold {item}"

    def answer(request: Any) -> dict[str, bool]:
        asked.append(request.args)
        return {"approved": True}

    def says(request: Any) -> str:
        return f"{len(request.messages)} messages"

    async with WorkerRuntime(
        Worker(name="desk"),
        directory=project,
        home=home,
        tools=[sell],
        model=FunctionScript(says),
        approval_callback=answer,
        resume="last",
    ) as runtime:
        assert asked == [], "nothing runs before somebody says so"
        result = await runtime.go_on()
        assert result is not None and result.success and asked == [{"item": "mug"}] and sold == ["mug"]
        assert await runtime.go_on() is None
        assert (await runtime.turn("and now?")).response == "5 messages"
    async with WorkerRuntime(
        Worker(name="desk"), directory=project, home=home, tools=[sell], model=FunctionScript(says), resume="last"
    ) as runtime:
        assert await runtime.go_on() is None and sold == ["mug"], "it is made once"
