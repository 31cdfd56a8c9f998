"""A person who lets somebody else answer small questions first (hooks.md §2, §3)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Script, calls
from tests.ready import ReadyForge
from tests.team.background import Program, write_call

from golem_forge import open_session, tool
from golem_forge.agent.model.scripted import FunctionScript
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.trust import trust_store
from golem_forge.cli.hooks import run_review as forge_review
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import forge_home

WRITE = ("write_file", {"path": "/workspace/new.txt", "content": "x\n"})
COMMAND = ("exec_command", {"cmd": "touch made"})


class Place:
    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.home = home

    def reviewer(self, text: str, **more: Any) -> Path:
        """A program of the person's that says this; and their config.yaml that names it."""
        program = self.home / "review"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        self.own({"reviewer": {"run": str(program), **more}})
        return program

    def own(self, approval: dict[str, Any], **more: Any) -> None:
        forge_home().ensure()
        forge_home().config.write_text(json.dumps({"approval": approval, **more}))

    def rules(self, *rules: dict[str, Any]) -> None:
        forge_home().ensure()
        forge_home().rules.write_text(json.dumps({"version": 1, "rules": list(rules)}))

    def session(self, ask: Any, approval: str = "interactive", **options: Any) -> Any:
        return open_session(self.root, approval=approval, approval_callback=ask, **options)


@pytest.fixture
def place(project: Path, own_home: Path) -> Place:
    return Place(project, own_home)


def reviews(session: Any) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in session.journal.path.read_text().splitlines()]
    return [each["data"] for each in records if each.get("event") == "reviewed"]


async def test_a_reviewers_yes_is_recorded_as_its_own_and_nothing_is_remembered(
    place: Place, asked: Callable[..., Any]
) -> None:
    place.reviewer("echo approve")
    ask = asked({"approved": False})
    async with place.session(ask) as session:
        for _ in range(2):
            outcome = await session.call(*WRITE)
            decision = outcome.decision
            assert outcome.ok and (decision.answered_by, decision.answered_as) == ("reviewer", "review")
            assert decision.remembered == ""
        assert list(ask) == [] and [each["answer"] for each in reviews(session)] == ["approve", "approve"]
        assert session.path.judge.grants() == {} and session.state.controller.memory.grants() == {}
        decided = [json.loads(line) for line in session.journal.path.read_text().splitlines()]
        assert {each["decision"]["answeredBy"] for each in decided if "decision" in each} == {"reviewer"}


async def test_a_reviewers_no_has_its_reason(place: Place, asked: Callable[..., Any]) -> None:
    place.reviewer("echo 'deny: nobody asked for that'")
    ask = asked({"approved": True})
    async with place.session(ask) as session:
        outcome = await session.call(*WRITE)
        assert outcome.status is Status.APPROVAL_DENIED
        assert outcome.error == "Denied by the reviewer 'review': nobody asked for that"
        assert list(ask) == [] and outcome.decision.answered_by == "reviewer"


UNCLEAR = [
    ("echo 'unsure: never seen'", "never seen"),
    ("echo yes", "cannot be read"),
    ("echo approve; echo approve", "cannot be read"),
    ("echo 'approve it'", "cannot be read"),
    ("""echo '{"answer": "APPROVED"}'""", "cannot be read"),
    ("exit 3", "exit code 3"),
    ("echo approve; exit 1", "exit code 1"),
    ("kill -9 $$", "signal 9"),
    ("head -c 9000000 /dev/zero", "printed more than"),
]


async def test_whatever_is_no_clear_answer_goes_to_the_person_with_its_words(
    place: Place, asked: Callable[..., Any]
) -> None:
    program = place.reviewer("exit 1")
    ask = asked({"approved": True})
    async with place.session(ask) as session:
        for number, (text, why) in enumerate(UNCLEAR, 1):
            program.write_text(f"#!/bin/sh\n{text}\n")
            outcome = await session.call(*WRITE)
            assert outcome.ok and outcome.decision.answered_by == "person", text
            assert len(ask) == number
            (said,) = [each for each in ask[-1].warnings if each.startswith("The reviewer 'review' said unsure")]
            assert why in said


async def test_a_reviewer_that_hangs_is_ended(
    place: Place, asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.policy.reviewer.SECONDS", 0.5)
    place.reviewer("sleep 600")
    ask = asked({"approved": True})
    async with place.session(ask) as session:
        assert (await session.call(*WRITE)).decision.answered_by == "person"
        assert "took longer than 0.5 s" in ask[0].warnings[-1]


# ---- 6: a yes to everything


async def test_a_reviewer_that_says_yes_to_everything_is_not_asked_what_is_not_its_to_answer(
    place: Place, asked: Callable[..., Any]
) -> None:
    place.reviewer("echo approve", up_to="high")
    (place.root / ".env").write_text("KEY=1\n")
    place.rules(
        {"command": ["make"], "verdict": "ask"},
        {"path": "/workspace/locked/**", "access": ["write"], "verdict": "blocked", "reason": "locked"},
    )

    @tool(needs_approval=True)
    def unknown(word: str) -> str:
        """Nobody knows what it touches."""
        return word

    ask = asked({"approved": False})
    async with place.session(ask, tools=[unknown]) as session:

        async def answered_by(name: str, args: dict[str, Any]) -> str:
            return (await session.call(name, args)).decision.answered_by.value

        assert await answered_by(*COMMAND) == "reviewer"
        assert await answered_by("unknown", {"word": "x"}) == "reviewer", "high, and its bound is high"
        assert await answered_by("exec_command", {"cmd": "rm -rf build"}) == "person", "a danger"
        assert await answered_by("exec_command", {"cmd": "echo x > y"}) == "person", "opaque"
        assert await answered_by("exec_command", {"cmd": "cat .env"}) == "person", "a secret"
        assert await answered_by("write_file", {"path": "/workspace/.git/hooks/x", "content": ""}) == "person"
        assert await answered_by("exec_command", {"cmd": "make all"}) == "person", "a rule written by hand asks"
        blocked = await session.call("write_file", {"path": "/workspace/locked/x", "content": ""})
        assert blocked.status is Status.POLICY_DENIED and not (place.root / "locked").exists()
        assert len(reviews(session)) == 2


async def test_a_reviewer_never_answers_for_a_command_outside_the_walls(
    place: Place, asked: Callable[..., Any], tmp_path: Path
) -> None:
    """Not even one whose bound is the highest risk there is: the yes must be a person's own."""
    program = place.reviewer("echo approve", up_to="high")
    place.own({"reviewer": {"run": str(program), "up_to": "high"}}, sandbox={"outside": "ask"})
    call = {"cmd": f"touch {tmp_path}/outside", "outside": True, "reason": "it must leave"}
    ask = asked({"approved": False})
    async with place.session(ask) as session:
        denied = await session.call("exec_command", call)
        assert denied.status is Status.APPROVAL_DENIED and denied.decision.answered_by == "person"
        assert len(ask) == 1 and reviews(session) == []
    async with place.session(None) as session:  # and where nobody is there, nobody answers in their place
        denied = await session.call("exec_command", call)
        assert denied.status is Status.APPROVAL_DENIED and reviews(session) == []
    assert not (tmp_path / "outside").exists()


async def test_a_risk_above_its_bound_asks(place: Place, asked: Callable[..., Any]) -> None:
    place.reviewer("echo approve", up_to="low")
    ask = asked({"approved": True})
    async with place.session(ask) as session:
        assert (await session.call(*WRITE)).decision.answered_by == "person"
        assert reviews(session) == []


@pytest.mark.parametrize("written", ["zone", "tools", "default", "walled"])
async def test_an_ask_that_i_wrote_is_mine(place: Place, asked: Callable[..., Any], written: str) -> None:
    program = place.reviewer("echo approve")
    reviewer = {"reviewer": {"run": str(program)}}
    zones = {"sandbox": {"zones": {"workspace": {"path": str(place.root), "mode": "rw", "approval": {"write": "ask"}}}}}

    @tool
    def mine(word: str) -> str:
        """Has no verdict of its own."""
        return word

    options: dict[str, Any] = {}
    calls: list[tuple[str, dict[str, Any]]] = [WRITE, COMMAND]
    if written == "zone":
        place.own(reviewer, **zones)
    elif written == "tools":
        place.own({**reviewer, "tools": {"write_file": "ask", "exec_command": "ask"}})
    elif written == "default":
        place.own({"reviewer": {"run": str(program), "up_to": "high"}, "default": "ask"})
        options, calls = {"tools": [mine]}, [("mine", {"word": "x"})]
    else:
        options, calls = {"toolsets": {"exec": {"walled": "ask"}}}, [COMMAND]
    ask = asked({"approved": True})
    async with place.session(ask, **options) as session:
        for call in calls:
            assert (await session.call(*call)).decision.answered_by == "person", call
        assert reviews(session) == []


async def test_a_hooks_ask_and_the_mode_strict_are_not_for_a_reviewer(place: Place, asked: Callable[..., Any]) -> None:
    program = place.reviewer("echo approve")
    hook = {"on": "before_call", "tools": ["write_file"], "run": """echo '{"verdict": "ask", "reason": "look"}'"""}
    place.own({"reviewer": {"run": str(program)}}, hooks=[hook])
    ask = asked({"approved": True})
    async with place.session(ask) as session:
        assert (await session.call(*WRITE)).decision.answered_by == "person"
        assert (await session.call(*COMMAND)).decision.answered_by == "reviewer"
    async with place.session(ask, "strict") as session:
        assert (await session.call(*COMMAND)).decision.answered_by == "person"


async def test_four_eyes_never_counts_a_reviewer(place: Place, asked: Callable[..., Any]) -> None:
    program = place.reviewer("echo approve")
    for level in ("medium", "critical"):
        place.own({"reviewer": {"run": str(program)}, "four_eyes": level})
        for mode in ("interactive", "contained"):
            async with place.session(asked({"approved": True}), mode) as session:
                assert (await session.call(*WRITE)).decision.answered_by == "person"


async def test_modes_that_ask_nobody_ask_no_reviewer(place: Place) -> None:
    place.reviewer("echo approve")
    async with open_session(place.root, approval="auto_deny") as session:
        assert (await session.call(*WRITE)).status is Status.APPROVAL_DENIED
    async with open_session(place.root, approval="approve_all") as session:
        assert (await session.call(*WRITE)).decision.answered_by == "mode"
        assert reviews(session) == []


async def test_what_a_contained_call_may_do_needs_no_reviewer_and_the_rest_asks_it(
    place: Place, asked: Callable[..., Any]
) -> None:
    place.reviewer("echo 'unsure: it leaves'", up_to="high")
    ask = asked({"approved": False})
    async with place.session(ask, "contained") as session:
        assert (await session.call(*WRITE)).decision.answered_by == "contained"
        await session.call("exec_command", {"cmd": "git push"})
        assert [each["reason"] for each in reviews(session)] == ["it leaves"] and len(ask) == 1


async def test_a_rule_written_while_it_thinks_counts(place: Place, asked: Callable[..., Any]) -> None:
    place.reviewer("echo approve")
    ask = asked({"approved": False})
    for verdict, by in (("blocked", "nobody"), ("ask", "person")):
        place.rules()
        async with place.session(ask) as session:
            session.path.judge.rules._clock = lambda: 0.0  # it answers before the files are due to be looked at
            reviewer = session.state.reviewer
            review = reviewer.review

            async def slow(*given: Any, review: Any = review, verdict: str = verdict) -> Any:
                said = await review(*given)
                place.rules({"command": ["touch"], "verdict": verdict, "reason": "just now"})
                return said

            reviewer.review = slow
            outcome = await session.call(*COMMAND)
            assert not outcome.executed and outcome.decision.answered_by == by, outcome
    assert not (place.root / "made").exists()


async def test_its_budget_is_its_own(place: Place, asked: Callable[..., Any]) -> None:
    place.reviewer("echo approve", budget={"max_requests": 1})
    ask = asked({"approved": True})
    async with place.session(ask) as session:
        by = [(await session.call(*WRITE)).decision.answered_by.value for _ in range(2)]
        assert by == ["reviewer", "person"] and "budget of 1 requests is spent" in ask[0].warnings[-1]


async def test_it_is_told_the_card_and_can_change_nothing(place: Place, asked: Callable[..., Any]) -> None:
    place.reviewer("cat; touch made-by-reviewer /workspace/made-by-reviewer 2>/dev/null")
    ask = asked({"approved": True})
    async with place.session(ask) as session:
        await session.call("read_file", {"path": "/workspace/none"})
        session.state.reviewer.begin_turn("please write")
        await session.call("list_files", {"path": "/workspace"})
        review = session.state.reviewer._ask_program
        heard: list[Any] = []

        async def listen(told: Any, processes: Any) -> Any:
            heard.append(json.loads(json.dumps(told)))
            return await review(told, processes)

        session.state.reviewer._ask_program = listen
        await session.call(*WRITE)
    (told,) = heard
    assert told["message"] == "please write" and [each["tool"] for each in told["calls"]] == ["list_files"]
    assert told["card"]["tool"] == "write_file" and "+x" in told["card"]["diff"]
    assert not {"requestId", "fingerprint", "choices"} & told["card"].keys()
    assert " tool output ---" in told["calls"][0]["output"]
    assert sorted(each.name for each in place.root.iterdir()) == ["new.txt"]


# ---- a program cannot bring one, and a model has no tools


async def test_a_program_cannot_bring_a_reviewer_trusted_or_not(place: Place, asked: Callable[..., Any]) -> None:
    (place.root / "forge.yaml").write_text("approval: {reviewer: {run: /bin/true}}\n")
    ask = asked({"approved": True})
    for _ in range(2):
        async with place.session(ask) as session:
            assert session.state.reviewer is None
            assert any("approval.reviewer is ignored" in each for each in session.notices)
        trust_store(forge_home()).give(place.root)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"run": "review"}, "absolute path"),
        ({"run": "/x", "model": "a:b"}, "not both"),
        ({}, ""),
        ({"model": "nope"}, "provider:name"),
        ({"run": "/x", "up_to": "critical"}, "one of low, medium, high"),
        ({"run": "/x", "budget": {"max_cost_usd": 1}}, "has no effect on a program"),
        ({"model": "scripted:x", "budget": {"max_cost_usd": 1}}, "price of model"),
    ],
)
def test_what_is_wrong_with_a_reviewer_is_said(
    place: Place, asked: Callable[..., Any], said: dict[str, Any], problem: str
) -> None:
    place.own({"reviewer": said})
    if not problem:
        session = place.session(asked())
        assert session.state.reviewer is None
        session.close()
        return
    with pytest.raises(ConfigError, match=problem):
        place.session(asked())


async def test_a_model_answers_one_request_without_tools(
    place: Place, asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Any] = []
    answers = ["Approve: asked for", "deny: no", "I think so"]

    def answer(request: Any) -> str:
        requests.append(request)
        return answers[len(requests) - 1]

    monkeypatch.setattr("golem_forge.agent.review.open_model", lambda *_, **__: FunctionScript(answer))
    place.own({"reviewer": {"model": "scripted:review.yaml"}})
    ask = asked({"approved": False})
    async with place.session(ask) as session:
        by = [(await session.call(*WRITE)).decision for _ in answers]
    assert [each.answered_by.value for each in by] == ["reviewer", "reviewer", "person"]
    assert by[0].answered_as == "scripted:review.yaml"
    assert all(not request.tools for request in requests)


# ---- 7: killed between its yes and the run


KILLED = """
import asyncio, os, signal, sys
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.orchestrator.record import Recorder

started, moment = Recorder.started, sys.argv[1]


def killed(self, state):
    assert state.decision.answered_by == "reviewer"
    if moment == "after":
        started(self, state)
    os.kill(os.getpid(), signal.SIGKILL)


async def main():
    asks = {"approval_callback": lambda request: {}}
    async with WorkerRuntime(directory=".", model="scripted:s.yaml", **asks) as made:
        Recorder.started = killed
        await made.turn("go")


asyncio.run(main())
"""


@pytest.mark.parametrize(("moment", "told"), [("before", "Created"), ("after", "may have run")])
async def test_killed_between_its_yes_and_the_run_nothing_runs_twice(
    place: Place, asked: Callable[..., Any], ready_forge: ReadyForge, moment: str, told: str
) -> None:
    place.reviewer("echo approve")
    write = {"tool": "write_file", "args": {"path": "/workspace/new.txt", "content": "x"}}
    (place.root / "s.yaml").write_text(json.dumps({"turns": [{"calls": [write]}]}))
    program = place.home / "killed.py"
    program.write_text(KILLED)
    done = await asyncio.to_thread(ready_forge.program, str(program), moment, cwd=place.root, env=os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (place.root / "new.txt").exists()
    # A call that had not begun is judged anew, and runs; one that may have run is not made again.
    script = Script(["I see."] * (moment == "before") + [calls((WRITE[0], WRITE[1])), "done"])
    resumed = WorkerRuntime(
        directory=place.root, model=script.model, resume="last", approval_callback=asked({"approved": False})
    )
    async with resumed:
        assert (await resumed.turn("go on")).response == "done"
        texts = [result.text for message in script.requests[0].messages for result in getattr(message, "results", ())]
        assert len(texts) == 1 and told in texts[0]
        records = [json.loads(line) for line in resumed.journal.path.read_text().splitlines()]
    starts = [record["call"] for record in records if record["type"] in ("started", "begun")]
    assert len(starts) == len(set(starts)) == 2, "the model's second call is another call"


# ---- 8: a background session


def test_a_background_session_waits_only_for_what_its_reviewer_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = Program(tmp_path / "shop", tmp_path / "home", capture=capfd, tools=False)
    try:
        (program.folder / "forge.yaml").write_text(
            "model: scripted:script.yaml\nsandbox: {zones: {work: {path: ./work, mode: rw}}}\n"
        )
        program.forge("trust", "--yes")
        review = tmp_path / "review"
        review.write_text(
            "#!/usr/bin/env python3\nimport json, sys\npath = json.load(sys.stdin)['card']['args']['path']\n"
            "print('unsure: b is not mine' if 'b.txt' in path else 'approve')\n"
        )
        review.chmod(0o755)
        with (program.home / "config.yaml").open("a") as file:
            file.write(f"approval: {{reviewer: {{run: {review}}}}}\n")
        names = ("a", "b", "c")
        program.play(*({"calls": [write_call(f"/work/{name}.txt", name)]} for name in names), {"say": "written"})
        session, store = program.queue("write the files"), program.store()
        runner = program.run_here()
        program.wait_for(session, "waiting")
        runner.stop()
        (question,) = store.questions.rows()
        shown = program.forge("inbox", question.id[:12])
        assert "write /work/b.txt" in shown and "The reviewer 'review' said unsure: b is not mine" in shown
        assert not (program.folder / "work" / "b.txt").exists()
        program.forge("inbox", "answer", question.id[:12], "--approve")
        runner = program.run_here()
        program.wait_for(session, "finished")
        runner.stop()
        assert sorted(path.name for path in (program.folder / "work").iterdir()) == [f"{name}.txt" for name in names]
        assert "answered by reviewer review" in program.forge("log", "--session", session[:12])
    finally:
        program.close()


# ---- before it is switched on


async def _answered(place: Place, *answers: bool) -> None:
    """A session in which a person at a UI answered a question for each."""
    turns: list[Any] = []
    for number, _ in enumerate(answers):
        turns += [calls(("write_file", {"path": f"/workspace/{number}.txt", "content": "x"})), "done"]
    script, said = Script(turns), iter(answers)
    runtime = WorkerRuntime(directory=place.root, model=script.model, approval_mode="interactive")
    runtime.ui.attach("test", may_trust=False)
    runtime.bus.on(
        "approvalRequired",
        lambda event: asyncio.get_running_loop().call_soon(
            runtime.bus.emit, "approvalResponse", {"requestId": event.wire["requestId"], "approved": next(said)}
        ),
    )
    async with runtime:
        for number, _ in enumerate(answers):
            await runtime.turn(f"write {number}.txt")


async def test_replay_compares_a_reviewer_with_my_own_answers(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await _answered(place, True, True, False, False)
    monkeypatch.chdir(place.root)
    says = "{'0': 'approve', '1': 'deny: no', '2': 'approve: why not', '3': 'unsure'}"
    program = place.home / "review"
    program.write_text(
        "#!/usr/bin/env python3\nimport json, sys\ntold = json.load(sys.stdin)\n"
        "name = told['card']['args']['path'].rpartition('/')[2]\n"
        f"assert told['message'] == 'write ' + name\nprint({says}[name[0]])\n"
    )
    program.chmod(0o755)

    async def replay(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(forge_review, ["replay", *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    code, _, err = await replay()
    assert code == 2 and "no reviewer" in err
    code, out, _ = await replay("--reviewer", str(program))
    assert code == 1
    counts = {line.split(None, 1)[1]: line.split()[0] for line in out.splitlines()[1:6]}
    assert counts == {
        "not its to answer": "0",
        "it agrees with you": "1",
        "it would have asked you": "1",
        "it would have denied what you approved": "1",
        "it would have approved what you denied": "1",
    }
    assert "why not" in out
    code, out, _ = await replay("--reviewer", str(program), "--json", "--limit", "2")
    assert [each["result"] for each in json.loads(out)] == [
        "it would have approved what you denied",
        "it would have asked you",
    ]
    place.own({"reviewer": {"run": str(program), "up_to": "low"}})
    code, out, _ = await replay()
    assert code == 0 and "4  not its to answer" in out
    for since in ("soon", "0d", "999999999999d", f"{'9' * 5000}s"):
        assert (await replay("--since", since))[0] == 2
    assert not list(place.root.glob("[23].txt"))
