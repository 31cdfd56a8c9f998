"""What `forge rules explain`, `sandbox explain`, `rules check`, the dry run and the rules page say of a command is what
becomes of a call of it: verdict, risk, who decides, and the fingerprint that an approval would be for."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from golem_forge import open_session
from golem_forge.agent.explain import DryEvaluator, evaluator_for, open_evaluator, plan_for_explain
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.session import entry_session
from golem_forge.agent.trust import trust_store
from golem_forge.cli.dry_run import preview
from golem_forge.cli.rules import run as forge_rules
from golem_forge.cli.run import parse_run_args
from golem_forge.cli.sandbox import run as forge_sandbox
from golem_forge.config.trust import TrustStore
from golem_forge.core.calls import Caller, Outcome
from golem_forge.core.decisions import Status, Verdict
from golem_forge.storage.home import forge_home

COMMANDS = [
    line
    for line in Path(__file__).with_name("commands.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("# ")
]
FEW = COMMANDS[::18]
RULES = """\
version: 1
rules:
  - {command: [make], verdict: preApproved}
  - {command: [git, push], verdict: blocked, reason: releases are made by people}
  - {command: [grep], verdict: ask}
  - {command: [cat], verdict: preApproved}
  - {command: [rm, -rf, missing], exact: true, accept: [rm_force], verdict: preApproved}
  - {path: "/workspace/b.txt", access: [read], verdict: blocked, reason: not for machines}
  - {command: [ls], scope: {worker: elsewhere}, verdict: blocked, reason: another worker's}
"""
WORKER = "---\nname: main\ntoolsets: {%s}\nsandbox: {zones: [{name: workspace, mode: rw}]}\n---\nWork.\n"


@pytest.fixture
def project(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "x").write_text("outside\n")
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / ".git").mkdir()
    for name in ("a.txt", "b.txt", "with blank.txt", "src/m.py"):
        (root / name).write_text("one\ntwo\n")
    (root / ".env").write_text("KEY=1\n")
    (root / "tool.sh").write_text("#!/bin/sh\n")
    (root / "tool.sh").chmod(0o755)
    (root / "link-inside").symlink_to("a.txt")
    (root / "link-outside").symlink_to("/etc/hostname")
    (root / "link-directory").symlink_to("src")
    monkeypatch.chdir(root)
    return root


def trusted(project: Path, **files: str) -> None:
    for name, text in files.items():
        (project / name.replace("_", ".")).write_text(text)
    trust: TrustStore = trust_store(forge_home())
    trust.give(project, trust.snapshot(project))


def said(verdict: Verdict | None, decision: Any) -> tuple[Any, ...]:
    """Of a call that is judged: everything a person is told about it."""
    if decision is None:
        return (verdict,)
    by = decision.decided_by
    return (verdict, decision.risk, by and (by.source, by.id, by.reason, by.line), decision.fingerprint)


def became(outcome: Outcome) -> tuple[Any, ...]:
    decision = outcome.decision
    if decision is None:
        refused = outcome.status in (Status.SANDBOX_DENIED, Status.POLICY_DENIED)
        return said(Verdict.BLOCKED if refused else None, None)
    assert (decision.verdict is Verdict.ASK) == (outcome.status is Status.APPROVAL_DENIED), outcome
    assert (decision.verdict is Verdict.BLOCKED) == (outcome.status is Status.POLICY_DENIED), outcome
    assert (decision.verdict is Verdict.PRE_APPROVED) == outcome.executed, outcome
    return said(decision.verdict, decision)


async def explained(dry: DryEvaluator, commands: list[str]) -> dict[str, tuple[Any, ...]]:
    found = {}
    for text in commands:
        one = await dry.command(text)
        found[text] = said(one.verdict, one.judged.decision if one.judged is not None else None)
    return found


async def agree(project: Path, commands: list[str]) -> dict[str, Verdict | None]:
    """Explains every command, then calls it where nobody is asked. Gives the verdicts."""
    forge_home().ensure("tools")
    async with open_evaluator(plan_for_explain(forge_home(), project)) as dry:
        told = await explained(dry, commands)
    met = {}
    async with entry_session(project, approval="auto_deny") as session:
        for at in range(0, len(commands), 8):
            calls = [session.call("exec_command", {"cmd": text}, caller=Caller.HUMAN) for text in commands[at : at + 8]]
            outcomes = await asyncio.gather(*calls)
            met |= {text: became(outcome) for text, outcome in zip(commands[at:], outcomes, strict=False)}
    assert told == met
    return {text: each[0] for text, each in met.items()}


def on_paper(verbs: Any, words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What a verb prints as JSON."""
    verbs(words)
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    return shown


async def test_hundreds_of_commands_in_a_bare_directory(project: Path, is_long: bool) -> None:
    """All of them with `--long`, else an eighth."""
    reads = ("ls -1", "rg foo", "grep -rn x .", "diff a b", "cd src && ls")
    asks = ("make", "cat /etc/passwd", "echo $HOME", "rm -rf x", "cd ..; cat x")
    assert len(set(COMMANDS)) > 400 and {*reads, *asks, "rm -rf /"} <= set(COMMANDS)
    some = COMMANDS if is_long else COMMANDS[::8]
    verdicts = await agree(project, list(dict.fromkeys((*some, *reads, *asks, "rm -rf /"))))
    assert {verdicts[text] for text in reads} == {Verdict.PRE_APPROVED}
    assert {verdicts[text] for text in asks} == {Verdict.ASK}
    assert verdicts["rm -rf /"] is Verdict.BLOCKED


async def test_where_rules_speak(project: Path) -> None:
    forge_home().ensure()
    forge_home().rules.write_text(RULES)
    (project / "Makefile").write_text("all:\n\ttrue\ntest:\n\ttrue\n")
    spoken_of = ["make", "git push", "grep one a.txt", "cat b.txt", "ls", "cat .env", "rm -rf missing"]
    verdicts = await agree(project, [*FEW, *spoken_of])
    assert verdicts["make"] is verdicts["ls"] is verdicts["rm -rf missing"] is Verdict.PRE_APPROVED
    assert verdicts["git push"] is verdicts["cat b.txt"] is Verdict.BLOCKED
    assert verdicts["grep one a.txt"] is Verdict.ASK


@pytest.fixture
def zone_first(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "bin").mkdir()
    for name in ("ls", "cat", "rg", "git", "grep"):
        (project / "bin" / name).write_text("#!/bin/sh\necho mine\n")
        (project / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}")


async def test_with_a_directory_of_a_zone_first_on_the_path(project: Path, zone_first: None) -> None:
    await agree(project, ["ls", "cat a.txt", "rg one", "git status", "grep one a.txt", "wc a.txt", "/bin/ls", *FEW])


async def test_in_a_program_whose_worker_has_toolsets_of_its_own(project: Path) -> None:
    trusted(project, main_worker=WORKER % "exec: {walled: preApproved}")
    harmless = ["touch new", "mkdir d", "true", "rm -rf x", "echo $HOME", "cat /etc/passwd", "sleep 0", "ls > out"]
    verdicts = await agree(project, harmless)
    assert verdicts["touch new"] is Verdict.PRE_APPROVED and verdicts["rm -rf x"] is Verdict.ASK


async def test_where_a_worker_runs_no_commands_that_is_said(project: Path) -> None:
    trusted(project, main_worker=WORKER % "filesystem: {}")
    assert await agree(project, ["ls", "rm -rf /"]) == {"ls": None, "rm -rf /": None}


async def test_without_walls(project: Path) -> None:
    forge_home().ensure()
    forge_home().config.write_text("sandbox: {walls: off}\n")
    verdicts = await agree(project, [*FEW, "ls", "make"])
    assert verdicts["ls"] is Verdict.ASK


def test_every_verb_that_explains_says_the_same(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (*FEW[::6], "rg foo", "diff a b", "git status", "rm -rf /"):
        rules = on_paper(forge_rules, ["explain", "--json", "--", text], capsys)
        sandbox = on_paper(forge_sandbox, ["explain", "--json", "--", text], capsys)
        assert sandbox["verdict"] == (rules["verdict"] or "none"), text
        case = {"call": text, "verdict": rules["verdict"] or "ask"}
        (project / "cases.yaml").write_text(json.dumps([case]))
        assert forge_rules(["check", "--cases", "cases.yaml"]) == (0 if rules["verdict"] else 1), text
        capsys.readouterr()
    foreseen = preview(parse_run_args(["--dry-run"]))
    assert next(tool["verdict"] for tool in foreseen["tools"] if tool["name"] == "exec_command") == "by target"


async def test_the_rules_page_of_a_session_that_runs(project: Path) -> None:
    runtime = WorkerRuntime(directory=project, approval_mode="auto_deny", needs_model=False)
    async with runtime:
        told = await explained(evaluator_for(runtime), FEW)
        async with open_evaluator(plan_for_explain(forge_home(), project)) as dry:
            assert told == await explained(dry, FEW)


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "a.txt"}),
    ("read_file", {"path": ".env"}),
    ("read_file", {"path": "/etc/passwd"}),
    ("read_file", {"path": 7}),
    ("write_file", {"path": "n.txt", "content": "x"}),
    ("write_file", {"path": "/user_tools/x/tool.yaml", "content": "x"}),
    ("delete_file", {"path": "a.txt"}),
    ("list_files", {"path": "."}),
    ("file_exists", {"path": "a.txt"}),
    ("grep_files", {"pattern": "one"}),
    ("update_plan", {"plan": [{"step": "x", "status": "pending"}]}),
    ("webfetch", {"url": "https://example.com/"}),
    ("apply_patch", {"input": "*** Begin Patch\n*** Add File: z\n+x\n*** End Patch\n"}),
    ("exec_command", {"cmd": "apply_patch <<'E'\n*** Begin Patch\n*** Add File: z\n+x\n*** End Patch\nE"}),
    ("exec_command", {"cmd": "ls", "network": ["example.com"]}),
    ("exec_command", {"cmd": "ls", "workdir": "missing"}),
    ("exec_command", {"cmd": "ls", "workdir": "src"}),
    ("save_memory", {"id": "x", "content": "y"}),
    ("nothing_like_it", {}),
]


async def test_calls_of_other_tools_in_a_home_that_is_not_there_yet(project: Path) -> None:
    async with open_evaluator(plan_for_explain(forge_home(), project), about=str(CALLS)) as dry:
        told = []
        for name, args in CALLS:
            one = await dry.tool_call(name, args)
            told.append((name, args, said(one.verdict, one.judged.decision if one.judged is not None else None)[:3]))
    assert not forge_home().path.exists()
    async with open_session(project) as session:
        met = [(name, args, became(await session.call(name, args, caller="human"))[:3]) for name, args in CALLS]
    assert told == met
