"""The approval mode `contained` in whole sessions: who is in it, what a day asks, and that explanations say what a call
does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from golem_forge import open_session
from golem_forge.agent.explain import open_evaluator, plan_for_explain
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.session_changes import changes_text, undo_call
from golem_forge.agent.session_plan import SessionRequest, plan_session
from golem_forge.agent.trust import trust_store
from golem_forge.cli import changes as forge_changes
from golem_forge.cli.dry_run import preview
from golem_forge.cli.rules import run as forge_rules
from golem_forge.cli.run import parse_run_args
from golem_forge.cli.sandbox import run as forge_sandbox
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.changes import ChangeSelection
from golem_forge.core.decisions import AnsweredBy, Decision, Status, Verdict
from golem_forge.storage.home import forge_home

WORKER = "---\nname: main\ntoolsets: {%s}\nsandbox: {zones: [{name: workspace, mode: rw}]}\n---\nWork.\n"
COMMANDS = (
    *("ls -la", "git status", "grep -rn one .", "cat a.txt | wc -l"),
    *("touch new", "echo x >> notes.txt", "for f in *.txt; do wc -l $f; done", "rm -rf build", "ls *.txt"),
    *("FOO=1 make test", "cat <<E > f\nx\nE", "find . -name '*.pyc' -delete", "git commit -qam x", "git reset --hard"),
    *("chmod -R a+w .", "python3 -c 'print(1)'", "echo ls | sh", "mv a.txt c.txt", "make && ls"),
    *("git push", "pip install x && make", "npm install", "curl x | sh", "docker ps", "scp a.txt host:x"),
    *("sudo ls", "cat .env", "cat /etc/passwd", "crontab x", "forge run x", "echo x > .env", "rm -rf /"),
)
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("exec_command", {"cmd": cmd}) for cmd in COMMANDS),
    ("exec_command", {"cmd": "make", "network": ["a.test"]}),
    ("read_file", {"path": "b.txt"}),
    ("write_file", {"path": "made.txt", "content": "x"}),
    ("write_file", {"path": ".env", "content": "x"}),
    ("write_file", {"path": ".git/hooks/x", "content": "x"}),
    ("delete_file", {"path": "b.txt"}),
    ("apply_patch", {"input": "*** Begin Patch\n*** Add File: p.txt\n+p\n*** End Patch\n"}),
    ("save_memory", {"memory_id": "m", "content": "x"}),
    ("webfetch", {"url": "https://a.test/x"}),
)
UNASKED = {
    "contained": {*COMMANDS[:19], "read_file b.txt", "write_file made.txt", "delete_file b.txt", "apply_patch"},
    "interactive": {*COMMANDS[:4], "read_file b.txt"},
    "auto_deny": {*COMMANDS[:4], "read_file b.txt"},
    "strict": set(),
}
"""What runs without an answer; in `approve_all` everything does that is not blocked."""


@pytest.fixture
def project(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    for name in ("a.txt", "b.txt"):
        (root / name).write_text("one\n")
    (root / ".env").write_text("KEY=1\n")
    monkeypatch.chdir(root)
    return root


def said(decision: Decision | None) -> tuple[Any, ...]:
    if decision is None:
        return ()
    return (decision.verdict, decision.risk, decision.not_contained, decision.fingerprint)


@pytest.mark.parametrize("mode", ["auto_deny", "strict", "interactive", "contained", "approve_all"])
def test_an_explanation_says_what_a_call_does_and_its_card_too(
    project: Path,
    mode: str,
    asked: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_long: bool,
) -> None:
    for name in ("pip", "npm"):  # the real one would only take its time to fail
        (project / "bin").mkdir(exist_ok=True)
        (project / "bin" / name).write_text("#!/bin/sh\nexit 1\n")
        (project / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{project}/bin:/usr/bin:/bin")
    forge_home().ensure("tools")
    tried = CALLS if is_long or mode == "contained" else CALLS[1::3]
    told, cards = [], asked({"approved": False})
    explained: dict[str, tuple[Any, ...]] = {}

    async def look() -> None:
        async with open_evaluator(plan_for_explain(forge_home(), project, mode=ApprovalMode(mode))) as dry:
            for name, args in tried:
                judged = (await dry.tool_call(name, args)).judged
                told.append((said(judged.decision if judged else None), judged and judged.decision.runs_unasked))

    met: list[tuple[Any, Any]] = []
    shown: list[Any] = []

    async def work() -> None:
        how = {} if mode in ("auto_deny", "approve_all") else {"approval_callback": cards}
        async with open_session(project, approval=mode, **how) as session:
            for name, args in tried:
                before = len(cards)
                outcome = await session.call(name, args)
                met.append((said(outcome.decision), outcome.decision and outcome.executed))
                shown.append(cards[before].fingerprint if len(cards) > before else None)

    asyncio.run(look())
    named = [args.get("cmd") or f"{name} {args.get('path', '')}".strip() for name, args in tried]
    for call, (name, args) in list(zip(named, tried, strict=True))[:: 1 if is_long else 4]:
        code = forge_rules(["explain", "--json", "--mode", mode, name, json.dumps(args)])
        decision = json.loads(capsys.readouterr().out).get("decision") or {}
        explained[call] = (code, decision.get("verdict"), decision.get("fingerprint"))
    asyncio.run(work())
    for call, dry, (decision, ran), card in zip(named, told, met, shown, strict=True):
        assert dry[0] == decision, call
        if not decision:  # refused before anybody judges it
            assert (dry[1], ran, card) == (None, None, None), call
            assert call not in explained or explained[call][1] is None, call
            continue
        verdict = decision[0].value
        if call in explained:
            code = {"preApproved": 0, "ask": 3, "blocked": 4}[verdict]
            assert explained[call] == (code, verdict, decision[3]), call
        if mode == "approve_all":
            assert ran == (verdict != "blocked"), call
        else:
            assert ran == dry[1], call
        asks = mode not in ("auto_deny", "approve_all") and verdict == "ask" and not ran
        assert card == (decision[3] if asks else None), call
    if mode in UNASKED:
        assert {call for call, (_, ran) in zip(named, met, strict=True) if ran} == UNASKED[mode].intersection(named)


def test_the_verbs_name_the_reason(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forge_home().ensure()
    forge_home().config.write_text("approval: {mode: contained}\n")
    assert forge_rules(["explain", "--", "echo x > f"]) == 3
    assert "it would run: it stays inside the walls and can be undone" in capsys.readouterr().out
    assert forge_rules(["explain", "--", "git push"]) == 3
    assert "ask a person because `git push` needs the remote repository's host" in capsys.readouterr().out
    forge_rules(["explain", "--json", "--", "git push"])
    decision = json.loads(capsys.readouterr().out)["decision"]
    assert decision["notContained"] == [
        "`git push` needs the remote repository's host (with your credentials as a command of its own)"
    ]
    forge_sandbox(["explain", "a.txt"])
    assert "it can be undone (mode contained)" in capsys.readouterr().out


def dry_run(words: str = "") -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in preview(parse_run_args(["--dry-run", *words.split()]))["tools"]}


def test_the_dry_run_says_what_commands_and_edits_do(project: Path) -> None:
    asks = dry_run()
    assert asks["exec_command"]["why"] == "by command: proven read-only ones run, others ask"
    assert asks["write_file"]["then"] == "asks"
    inside = dry_run("--approval contained")
    assert inside["exec_command"]["why"] == "by command: what stays inside the walls and can be undone runs, others ask"
    assert inside["write_file"]["then"] == inside["apply_patch"]["then"] == "runs if undoable"
    assert inside["webfetch"]["then"] == "asks"
    (project / "forge.yaml").write_text("sandbox: {zones: {workspace: {path: ., approval: {write: ask}}}}\n")
    assert dry_run("--approval contained")["write_file"]["then"] == "asks"


def test_the_dry_run_knows_a_worker_whose_commands_run_in_walls(project: Path) -> None:
    (project / "main.worker").write_text(WORKER % "exec: {walled: preApproved}")
    trust = trust_store(forge_home())
    trust.give(project, trust.snapshot(project))
    assert dry_run()["exec_command"]["why"] == (
        "by command: in full walls those without a host or a danger run, others ask"
    )


def test_a_repository_that_is_not_trusted_cannot_choose_it(project: Path) -> None:
    (project / "forge.yaml").write_text("approval: {mode: contained}\n")
    wanted = SessionRequest(home=forge_home(), answers=True)
    plan = plan_session(project, wanted)
    assert plan.mode.value is ApprovalMode.INTERACTIVE
    assert any("approval.mode contained" in notice for notice in plan.notices)
    trust = trust_store(forge_home())
    trust.give(project, trust.snapshot(project))
    assert plan_session(project, wanted).mode.value is ApprovalMode.CONTAINED


def test_without_anybody_to_ask_only_the_command_line_chooses_it(project: Path) -> None:
    forge_home().ensure()
    forge_home().config.write_text("approval: {mode: contained}\n")
    alone = plan_session(project, SessionRequest(home=forge_home(), answers=False))
    assert alone.mode.value is ApprovalMode.AUTO_DENY and "nobody can be asked" in alone.mode.origin
    flag = SessionRequest(home=forge_home(), answers=False, approval=ApprovalMode.CONTAINED)
    assert plan_session(project, flag).mode.value is ApprovalMode.CONTAINED


async def test_ten_commands_and_a_push_are_one_question(project: Path, asked: Any) -> None:
    ask = asked({"approved": False})
    async with open_session(project, approval="contained", approval_callback=ask) as session:
        for number in range(10):
            outcome = await session.call("exec_command", {"cmd": f"echo {number} >> log.txt"})
            assert outcome.status is Status.SUCCESS, outcome.text
            assert outcome.decision is not None and outcome.decision.answered_by is AnsweredBy.CONTAINED
        assert (await session.call("exec_command", {"cmd": "git push --force"})).status is Status.APPROVAL_DENIED
    assert len(ask) == 1 and ask[0].why.startswith("asks because `git push` needs")


async def test_a_running_command_learns_no_letter_of_a_secret(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints a guess and waits; the model looks at what Forge shows of it, and at the whole when it has ended."""
    monkeypatch.setenv("GH_TOKEN", "ghp_Zq4711sesameOpenNow0815")
    seen, guesses = [], ("ghp_Zq4", "ghp_Zq5", "ghp_Zq4711sesameOpenNow081", "elephant")
    async with open_session(project, approval="contained", approval_callback=lambda _: {"approved": False}) as session:
        for number, guess in enumerate((*guesses, "ghp_Zq4711sesameOpenNow0815"), start=1):
            cmd = f"printf 'is it {guess}'; until [ -e go{number} ]; do sleep 0.02; done"
            outcome = await session.call("exec_command", {"cmd": cmd, "yield_time_ms": 0})
            shown = outcome.result.value["output"]
            while not shown:
                outcome = await session.call("write_stdin", {"session_id": number, "yield_time_ms": 50})
                shown = outcome.result.value["output"]
            (project / f"go{number}").touch()
            ended = await session.call("write_stdin", {"session_id": number, "yield_time_ms": 30_000})
            seen.append((shown, ended.result.value["output"]))
    assert seen == [*(("is it ", guess) for guess in guesses), ("is it ", "[secret GH_TOKEN]")]


async def test_where_walls_are_off_it_asks_and_says_why_once(project: Path, asked: Any) -> None:
    forge_home().ensure()
    forge_home().config.write_text("sandbox: {walls: off}\n")
    ask, told = asked({"approved": False}), list[str]()
    async with open_session(project, approval="contained", approval_callback=ask) as session:
        session.state.bus.on("status", lambda event: told.append(event.wire["message"]))
        for _ in range(2):
            outcome = await session.call("write_file", {"path": "x", "content": "x"})
            assert outcome.decision is not None and outcome.decision.verdict is Verdict.ASK
            await session.call("exec_command", {"cmd": "touch x"})
    assert len(ask) == 4
    assert told == [
        "The approval mode is contained, but walls are switched off. So Forge asks as in the mode interactive."
    ]


async def test_what_runs_in_a_directory_that_was_made_anew_can_be_undone(project: Path) -> None:
    """As when somebody clones a repository again while an earlier session is still open."""
    async with open_session(project, approval="contained", approval_callback=lambda _: {"approved": True}) as earlier:
        assert (await earlier.call("exec_command", {"cmd": "echo 1 > one"})).ok
        project.rename(project.with_name("old"))
        project.mkdir()
        (project / "thesis.txt").write_text("four years\n")
        async with open_session(project, approval="contained", approval_callback=lambda _: {"approved": True}) as made:
            assert (await made.call("exec_command", {"cmd": "rm thesis.txt; echo 2 > two"})).ok
            assert (await made.undo()).ok
    assert (project / "thesis.txt").read_text() == "four years\n" and not (project / "two").exists()


def test_what_cannot_be_taken_back_is_named(project: Path, asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """As after `npm install`: it filled a directory that nobody keeps, and spoke to the registry."""
    (project / "package.json").write_text("{}\n")
    install = "mkdir -p node_modules/x && echo 1 > node_modules/x/index.js && echo locked > package-lock.json"
    stays = "/workspace/node_modules (a tool can make it again); what was sent to registry.test:443"
    ask = asked({"approved": True})

    async def work() -> None:
        async with open_session(project, approval="contained", approval_callback=ask) as session:
            installed = await session.call("exec_command", {"cmd": install, "network": ["registry.test:443"]})
            assert installed.ok, installed.text
            (made,) = session.changes()
            assert (made.remade, made.reached) == (("/workspace/node_modules",), ("registry.test:443",))
            undone = await session.undo()
            assert undone.ok and ask[-1].payload == "delete /workspace/package-lock.json"
            assert list(ask[-1].warnings) == [f"not taken back: {stays}"]
            assert f"Not taken back: {stays}" in undone.text
            assert (await session.undo(redo=True)).ok and not ask[-1].warnings

    asyncio.run(work())
    assert forge_changes.run([]) == 0
    assert f"  not taken back: {stays}" in capsys.readouterr().out.splitlines()
    assert forge_changes.run(["--json"]) == 0
    told, *undos = json.loads(capsys.readouterr().out)
    assert (told["remade"], told["reached"]) == (["/workspace/node_modules"], ["registry.test:443"])
    assert [(each["remade"], each["reached"]) for each in undos] == [([], [])] * 2
    assert forge_changes.run_undo(["--yes"]) == 0
    shown = capsys.readouterr()
    assert f"  not taken back: {stays}" in (shown.out + shown.err).splitlines()
    assert (project / "node_modules/x/index.js").exists() and not (project / "package-lock.json").exists()


async def test_hosts_are_named_in_turns_that_changed_something(project: Path, asked: Any) -> None:
    write = ("write_file", {"path": "made.txt", "content": "x"})
    a, again, b = [("webfetch", {"url": f"https://{host}.test/{page}"}) for host, page in ("ax", "ay", "bx")]
    answers = [[a, again], [b], [write], [], [a], []]  # what is asked for together may end in any order
    model = FunctionScript(
        lambda _: Turn(say="ok", calls=tuple(TurnCall(tool=name, args=args) for name, args in answers.pop(0)))
    )
    ask = asked({"approved": True})
    async with WorkerRuntime(
        directory=project, model=model, approval_mode="contained", approval_callback=ask, default_mode="chat"
    ) as runtime:
        told: list[dict[str, Any]] = []
        runtime.bus.on("filesChanged", lambda event: told.append(event.wire))
        await runtime.turn("read, then write")
        await runtime.turn("read again")
        assert [(each.get("reached"), each["count"]) for each in told] == [
            (["a.test:443"], 0),
            (["b.test:443"], 0),
            (None, 1),
            (["a.test:443"], 0),
        ]
        made = runtime.changes()
        assert {each.turn for each in made} == {1}
        assert changes_text(made).splitlines()[-1] == "  not taken back: what was sent to a.test:443, b.test:443"
        outcome = await runtime.path.call(undo_call())
        assert outcome.ok and not (project / "made.txt").exists()
        assert list(ask[-1].warnings) == ["not taken back: what was sent to a.test:443, b.test:443"]
        write_call = next(each.call for each in made if each.changes)
        assert (await runtime.path.call(undo_call(redo=True))).ok
        assert (await runtime.path.call(undo_call(ChangeSelection(call=write_call)))).ok
        assert not ask[-1].warnings
        assert (await runtime.rewind_points())[0].turn == 1


@pytest.mark.parametrize("mode", ["contained", "interactive", "strict"])
async def test_an_undo_shows_its_card_each_time_and_nothing_is_remembered_from_it(
    project: Path, asked: Any, mode: str
) -> None:
    forge_home().ensure()
    allowed = {"path": "/workspace/**", "access": ["write", "delete"], "verdict": "preApproved"}
    forge_home().rules.write_text(json.dumps({"rules": [allowed]}))
    ask = asked({"approved": True, "remember": "session"})
    async with open_session(project, approval=mode, approval_callback=ask) as session:
        for _ in range(2):
            assert (await session.call("write_file", {"path": "made.txt", "content": "x"})).ok
            before = len(ask)
            outcome = await session.undo()
            assert outcome.ok and not (project / "made.txt").exists()
            (card,) = ask[before:]
            assert card.payload == "delete /workspace/made.txt" and card.choices == ()
            assert outcome.decision is not None
            assert (outcome.decision.answered_by, outcome.decision.remembered) == (AnsweredBy.PERSON, "")


def test_files_that_changed_after_they_were_shown_are_shown_again_first(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        async with open_session(project, approval="contained", approval_callback=lambda _: {"approved": False}) as made:
            assert (await made.call("exec_command", {"cmd": "echo two > a.txt; echo two > b.txt"})).ok

    def meanwhile(_: str) -> bool:
        (project / "a.txt").write_text("mine\n")
        return True

    asyncio.run(work())
    monkeypatch.setattr(forge_changes, "can_ask", lambda: True)
    monkeypatch.setattr(forge_changes, "ask_yes", meanwhile)
    assert forge_changes.run_undo([]) == 3
    assert "files changed since they were shown; run `forge undo` again" in capsys.readouterr().err
    assert (project / "a.txt").read_text() == "mine\n" and (project / "b.txt").read_text() == "two\n"
