"""The crash matrix: `forge run` is killed with SIGKILL wherever it may be, and the session goes on (W42, W43).

No effect is repeated, every call left open is told as what it is, the next turn works, the log is whole, and no process
is left. The effects are counted where nobody who is killed can lie about them: one line in a file for each.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.conftest import marked
from tests.deadlines import PATIENCE, ROOM

MAIN = """\
---
name: main
toolsets:
  filesystem:
  custom: {module: ./tools.py, tools: [effect], approval: {default: preApproved}}
  workers: {allow: [helper], approval: {default: preApproved}}
sandbox: {zones: [{name: workspace, mode: rw}]}
---
Do it.
"""
HELPER = """\
---
name: helper
toolsets:
  custom: {module: ../tools.py, tools: [slow_effect], approval: {default: preApproved}}
sandbox: {zones: [{name: workspace, mode: rw}]}
---
Help.
"""
FORGE_YAML = "sandbox: {zones: {workspace: {path: ., mode: rw, approval: {write: ask, delete: ask}}}}\n"
TOOLS = '''\
import os
import subprocess
import time


def effect(number: int) -> int:
    """One line for each time it is run."""
    with open("/workspace/effects.txt", "a") as file:
        file.write(f"{number}\\n")
    return number


def slow_effect(number: int, marker: str) -> int:
    """The same, and then it hangs together with a process of its own."""
    effect(number)
    subprocess.run(["sh", "-c", f": {marker}; sleep 600"])
    return number
'''
MAY_HAVE_RUN = "may have run before the crash"
NEVER_RAN = "interrupted before it started"
CALLS = 200
GO_ON = "turns: [{expect: go on, say: I went on.}]\n"


@pytest.fixture
def program(desk: Callable[..., Any], marker: str) -> Any:
    """In a directory whose name is the marker: everything that is started for it names it."""
    files = {"forge.yaml": FORGE_YAML, "main.worker": MAIN, "workers/helper.worker": HELPER, "tools.py": TOOLS}
    made = desk({**files, "next.yaml": GO_ON, "effects.txt": ""}, name=marker)
    made.trust()
    return made


def effects(program: Any) -> list[int]:
    return [int(line) for line in (program.root / "effects.txt").read_text().splitlines()]


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)


def go_on(program: Any, *words: str) -> Any:
    """Resumes the session; the same one, which verifies before and after."""
    assert len(program.journals) == 1
    ran = program.forge("run", "--resume", "last", "-m", "scripted:next.yaml", "-i", "go on", *words)
    assert (ran.code, ran.out) == (0, "I went on.\n"), ran.err
    assert len(program.journals) == 1, "the same session"
    verified = program.forge("log", "verify")
    assert verified.code == 0, verified.out + verified.err
    return ran


def test_w43_killed_while_the_model_speaks(program: Any, marker: str) -> None:
    """(a) What it had said is lost, what it was asked is not. One process holds a session; changed files are named."""
    program.write(**{"s.yaml": "turns: [{say: Half of a long answer, chunks: 40, until: never}]\n"})
    process = program.start("run", "-m", "scripted:s.yaml", "-i", "begin", "--json")
    assert any('"streaming"' in line for line in process.stdout)
    second = program.forge("run", "--resume", "last", "-m", "scripted:next.yaml", "-i", "go on")
    assert (second.code, second.out) == (1, "") and "session is in use" in second.err
    kill(process)
    assert marked(marker, 1 + ROOM) == []
    program.write(**{"main.worker": MAIN.replace("Do it.", "Do it well.")})
    ran = go_on(program)
    assert "used in their new form: main.worker" in ran.err
    assert [(each["role"], each["text"]) for each in program.history()] == [
        ("user", "begin"),
        ("user", "go on"),
        ("assistant", "I went on."),
    ]


def test_killed_while_an_approval_is_open(program: Any, marker: str, terminal: Callable[..., Any]) -> None:
    """(b) On a terminal: the question is withdrawn, nothing was done, and nothing counts as answered."""
    program.write(
        **{"s.yaml": "turns: [{calls: [{tool: write_file, args: {path: /workspace/new.txt, content: x}}]}]\n"}
    )
    with terminal(program, "run", "-m", "scripted:s.yaml", "-i", "begin") as screen:
        screen.wait_for("new.txt")
        screen.wait_for("Approve?")
        screen.process.kill(signal.SIGKILL)
        screen.wait_end()
    assert marked(marker, 1 + ROOM) == []
    go_on(program)
    [call] = program.calls()
    assert (call.starts, call.status, call.error) == (0, "interrupted", NEVER_RAN)
    assert not (program.root / "new.txt").exists()
    answers = [each["data"] for each in program.records() if each.get("event") == "approvalResolved"]
    assert [(each["approved"], each["by"]) for each in answers] == [(False, "interrupt")]
    [told] = [each["results"] for each in program.history() if each["role"] == "results"]
    assert [(each["status"], each["text"]) for each in told] == [("interrupted", NEVER_RAN)]


def test_w42_killed_while_a_tool_of_a_sub_worker_runs(
    program: Any, marker: str, wire: Any, until: Callable[..., Any]
) -> None:
    """(c) It may have run, and is not run again; the model is told so, here over a real wire."""
    program.write(
        **{
            "s.yaml": "workers:\n"
            "  main: [{calls: [{tool: effect, args: {number: 1}}, {tool: helper, args: {input: hang}}]}]\n"
            f"  helper: [{{calls: [{{tool: slow_effect, args: {{number: 2, marker: {marker}}}}}]}}]\n"
        }
    )
    process = program.start("run", "-m", "scripted:s.yaml", "-i", "begin")
    until(lambda: 2 in effects(program) and marked(f": {marker}", 0), "the effect of the slow tool")
    kill(process)
    assert marked(marker, 1 + ROOM) == [], "the hosts and what they started went with it"
    with wire.WireServer([wire.WireTurn(say="I went on.")]) as server:
        (program.home / "config.yaml").write_text(
            f"models: {{openai-compatible: {{base_url: '{server.base_url('openai')}'}}}}\n"
        )
        ran = program.forge("run", "--resume", "last", "-m", "openai-compatible:wire", "-i", "go on")
    assert (ran.code, ran.out) == (0, "I went on.\n"), ran.err
    assert effects(program) == [1, 2]
    assert [(call.worker, call.tool, call.starts, call.status, call.error) for call in program.calls()] == [
        ("main", "effect", 1, "success", ""),
        ("main", "helper", 1, "interrupted", MAY_HAVE_RUN),
        ("main/helper", "slow_effect", 1, "interrupted", MAY_HAVE_RUN),
    ]
    done, maybe = [each["content"] for each in server.requests[0].body["messages"] if each["role"] == "tool"]
    assert "tool output" in done and maybe == MAY_HAVE_RUN
    assert program.forge("log", "verify").code == 0


PROGRAMMER = """\
---
name: main
toolsets:
  code:
  custom: {module: ./tools.py, tools: [effect, slow_effect], approval: {default: preApproved}}
sandbox: {zones: [{name: workspace, mode: rw}]}
---
Do it.
"""
PROGRAM = """\
from forge_tools import effect, slow_effect
for number in range(1, 40):
    effect(number=number)
slow_effect(number=40, marker="MARKER")
effect(number=41)
"""


def test_killed_while_a_program_calls_tools(program: Any, marker: str, until: Callable[..., Any]) -> None:
    """The program is not run again; the model is told which of its calls happened."""
    turn = {"calls": [{"tool": "run_code", "args": {"code": PROGRAM.replace("MARKER", marker)}}]}
    program.write(**{"main.worker": PROGRAMMER, "s.yaml": json.dumps({"turns": [turn]})})
    program.trust()
    process = program.start("run", "-m", "scripted:s.yaml", "-i", "begin", "--json")
    until(lambda: len(effects(program)) == 40, "its last call but one")
    kill(process)
    assert marked(marker, 1 + ROOM) == []
    go_on(program)
    assert effects(program) == list(range(1, 41))
    (results,) = [each["results"] for each in program.history() if each["role"] == "results"]
    assert results[0]["status"] == "interrupted"
    assert results[0]["text"] == (
        f"{MAY_HAVE_RUN}. Calls that it made before that: effect: 39 done; slow_effect: 1 {MAY_HAVE_RUN}"
    )


def test_killed_again_and_again_while_the_journal_is_written(
    desk: Callable[..., Any], marker: str, is_long: bool
) -> None:
    """(d) Among hundreds of calls that change a file, and while it resumes; one line is torn besides. Each time the
    same session goes on, and no effect happens twice."""
    worker = "---\nname: main\ntoolsets: {edit: }\nsandbox: {zones: [{name: workspace, mode: rw}]}\n---\nDo it.\n"
    program = desk({"main.worker": worker, "next.yaml": GO_ON, "effects.txt": "0\n"}, name=marker)
    moments = random.Random(4)
    rounds = 8 if is_long else 4
    for number in range(rounds):
        first = 1 + number * CALLS
        calls = [{"tool": "apply_patch", "args": {"input": _patch(first + at)}} for at in range(CALLS)]
        turns = [{"calls": calls[at : at + 4]} for at in range(0, CALLS, 4)]
        turns.append({"say": "It does not end by itself.", "until": "never"})
        program.write(**{"s.yaml": json.dumps({"turns": turns})})
        resume = ("--resume", "last") if number else ()
        process = program.start(
            "run", "-m", "scripted:s.yaml", "-i", f"round {number}", "-a", "approve_all", "-t", "quiet", *resume
        )
        if number % 3 == 2:
            _wait_until_it_resumes(process, program)
        else:
            _wait_for_effect(process, program, first)
            time.sleep(moments.uniform(0, 0.15))
        assert process.poll() is None, "killed while it works"
        kill(process)
        if number == 1:
            _tear_last_line(program.journals[0])
    go_on(program)
    counted = Counter(effects(program))
    assert len(counted) > rounds // 2 and set(counted.values()) == {1}, "no effect happened twice"
    for call in program.calls():
        happened = counted[_patched(call.args["input"])]
        if call.error == MAY_HAVE_RUN:
            assert (call.starts, call.status) == (1, "interrupted")
        elif call.error == NEVER_RAN:
            assert (happened, call.starts, call.status) == (0, 0, "interrupted")
        else:
            assert (happened, call.starts, call.status) == (1, 1, "success")
    results = [each["id"] for message in program.history() for each in message.get("results", ())]
    asked = [each["id"] for message in program.history() for each in message.get("calls", ())]
    assert sorted(results) == sorted(asked), "every call has one result"
    assert marked(marker, 1 + ROOM) == []


def _patch(number: int) -> str:
    return f"*** Begin Patch\n*** Update File: effects.txt\n@@\n 0\n+{number}\n*** End Patch"


def _patched(patch: str) -> int:
    return int(patch.split("+")[1].split()[0])


def _wait_for_effect(process: subprocess.Popen[str], program: Any, number: int) -> None:
    end = time.monotonic() + PATIENCE
    while number not in effects(program):
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.005)


def _wait_until_it_resumes(process: subprocess.Popen[str], program: Any) -> None:
    size, end = program.journals[0].stat().st_size, time.monotonic() + PATIENCE
    while program.journals[0].stat().st_size == size:
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.001)


def _tear_last_line(journal: Path) -> None:
    """As a machine that stops in the middle of a write leaves it. The line is no `started`: that one is on disk whole
    before its call begins."""
    data = journal.read_bytes()
    whole = data[: data.rindex(b"\n") + 1]
    last = whole[whole[:-1].rindex(b"\n") + 1 :]
    if b'"type":"started"' not in last:
        journal.write_bytes(whole[: len(whole) - len(last) // 2])
