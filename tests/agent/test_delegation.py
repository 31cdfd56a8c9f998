"""Workers that call workers. workers.md §9, cases 34–39."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import calls

from golem_forge.agent.model.interface import Request
from golem_forge.agent.model.scripted import Turn
from golem_forge.agent.run_result import RunStatus
from golem_forge.agent.trust import trust_store
from golem_forge.core.calls import ToolCall
from golem_forge.events.runtime_ui import create_runtime_ui
from golem_forge.storage.home import forge_home

Play = Any


def program(folder: Path, forge: str = "", **workers: str) -> Path:
    """Worker files by name, each given as its front matter; zones `workspace` (rw) and `secret` (rw) exist."""
    for zone in ("secret", "work"):
        (folder / zone).mkdir(parents=True, exist_ok=True)
    (folder / "forge.yaml").write_text(
        f"sandbox:\n  zones:\n    workspace: {{path: work, mode: rw}}\n    secret: {{path: secret, mode: rw}}\n{forge}"
    )
    (folder / "workers").mkdir(exist_ok=True)
    for name, front in workers.items():
        place = folder / "main.worker" if name == "main" else folder / "workers" / f"{name}.worker"
        place.write_text(f"---\nname: {name}\n{front}---\nI am {name}.\n")
    return folder


ZONE = "sandbox: {zones: [{name: workspace, mode: rw}]}\n"
FILES = "toolsets: {filesystem: {}}\n"


def may_call(*names: str, more: str = "", approval: str = "") -> str:
    block = f"workers: {{allow: [{', '.join(names)}]{approval}}}"
    return f"toolsets: {{{block}{more}}}\n{ZONE}"


def who(request: Request) -> str:
    """Which worker asks: every worker's instructions name it."""
    return request.system.split("I am ", 1)[1].split(".", 1)[0]


def cast(**parts: list[Any]) -> Any:
    """One model for all workers: each plays its own turns, from the first again when it is called again."""
    left: dict[str, list[Any]] = {}

    def turn(request: Request) -> Turn | str:
        name = who(request)
        if len(request.messages) == 1:
            left[name] = list(parts[name])
        chosen = left[name].pop(0)
        return chosen(request) if callable(chosen) else chosen

    return [turn] * 60


async def test_a_child_answers_and_the_caller_reads_it(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=may_call("helper"), helper=f"description: Helps.\n{FILES}{ZONE}")
    (folder / "work" / "note.txt").write_text("forty-two\n")
    turns = cast(
        main=[calls(("helper", {"input": "what is in note.txt", "instructions": "Be short."})), "The answer is 42."],
        helper=[calls(("read_file", {"path": "note.txt"})), "forty-two"],
    )
    played = await play(turns, worker="main", directory=folder)
    result = await played.runtime.run("find out")
    assert result.response == "The answer is 42."
    told = played.script.results()[0]
    assert told[0] == "success"
    assert '"response":"forty-two"' in told[1] and '"workerName":"helper"' in told[1]
    child = next(request for request in played.script.requests if who(request) == "helper")
    assert "## Additional Instructions" in child.system and "Be short." in child.system
    assert child.messages[0].text == "what is in note.txt"


async def test_an_empty_answer_of_a_child_is_told_to_its_caller(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=may_call("helper"), helper=ZONE)
    turns = cast(main=[calls(("helper", {"input": "go"})), "It said nothing."], helper=[""])
    played = await play(turns, worker="main", directory=folder)
    assert (await played.runtime.run("go")).response == "It said nothing."
    (status, text) = played.script.results()[0]
    assert status == "success" and "the answer of scripted:function is empty" in text


async def test_w37_child_events_name_their_place_and_there_is_one_end(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=may_call("helper"), helper=f"mode: chat\n{FILES}{ZONE}")
    turns = cast(main=[calls(("helper", {"input": "x"})), "ok"], helper=[calls(("list_files", {})), "done"])
    played = await play(turns, run="go", worker="main", directory=folder)
    updates = [event.wire for event in played.seen("workerUpdate") if event.wire["name"] == "helper"]
    assert [each["status"] for each in updates] == ["running", "complete"]
    assert {each["depth"] for each in updates} == {1} and {each["parentId"] for each in updates} == {played.runtime.id}
    listing = next(event for event in played.seen("toolResult") if event.wire["toolName"] == "list_files")
    assert listing.worker_id == updates[0]["workerId"]
    assert len(played.seen("sessionEnd")) == 1 and not played.seen("inputPrompt")
    numbers = [event.seq for event in played.events if event.type not in ("streaming", "toolOutput", "toolProgress")]
    assert numbers == sorted(numbers) and len(set(numbers)) == len(numbers)


async def test_w34_circles_and_depth_are_refused_with_the_path(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=may_call("b", "main"), b=may_call("main"))
    turns = cast(
        main=[calls(("b", {"input": "x"}), ("main", {"input": "x"})), "ok"], b=[calls(("main", {"input": "y"})), "no"]
    )
    played = await play(turns, run="go", worker="main", directory=folder)
    refused = [event.wire for event in played.seen("toolResult") if event.wire["status"] == "policy_denied"]
    assert sorted(each["error"] for each in refused) == [
        "Circular delegation detected: main -> b -> main",
        "Circular delegation detected: main -> main",
    ]


async def test_w34_the_third_level_is_refused_at_depth_two(play: Play, tmp_path: Path) -> None:
    workers = {"main": may_call("a"), "a": may_call("b"), "b": may_call("c"), "c": ZONE}
    folder = program(tmp_path / "p", "delegation: {max_depth: 2}\n", **workers)
    down = {name: [calls((below, {"input": "x"})), "ok"] for name, below in (("main", "a"), ("a", "b"), ("b", "c"))}
    played = await play(cast(**down, c=["never"]), run="go", worker="main", directory=folder)
    refused = [event.wire["error"] for event in played.seen("toolResult") if event.wire["status"] == "policy_denied"]
    assert refused == ["Maximum delegation depth (2) exceeded. Current path: main -> a -> b"]


@pytest.mark.parametrize(
    ("zone", "code"),
    [("{name: secret}", "ZONE_ACCESS_DENIED"), ("{name: workspace, mode: rw}", "PERMISSION_ESCALATION")],
)
async def test_w35_a_child_reaches_no_further_than_its_caller(play: Play, tmp_path: Path, zone: str, code: str) -> None:
    main = "toolsets: {workers: {allow: [helper]}}\nsandbox: {zones: [{name: workspace, mode: ro}]}\n"
    folder = program(tmp_path / "p", main=main, helper=f"sandbox: {{zones: [{zone}]}}\n")
    played = await play([], worker="main", directory=folder)
    outcome = await played.runtime.path.call(ToolCall("helper", {"input": "x"}))
    assert (outcome.status.value, outcome.code) == ("sandbox_denied", code)
    assert not [event for event in played.seen("workerUpdate") if event.wire["name"] == "helper"]


@pytest.mark.parametrize(
    ("helper", "risk"),
    [
        (f"{FILES}{ZONE}", "low"),
        ("toolsets: {exec: {}}\nsandbox: {zones: [{name: workspace, mode: ro}]}\n", "low"),
        ("toolsets: {exec: {walled: preApproved}}\n" + ZONE, "medium"),
        ("toolsets: {shell: {rules: [{pattern: make, approval: preApproved}]}}\n" + ZONE, "medium"),
        ("toolsets: {filesystem: {}, user_tools: {}}\n", "medium"),
        (may_call("other"), "medium"),
    ],
)
async def test_starting_a_helper_is_as_risky_as_what_it_does_unasked(
    play: Play, tmp_path: Path, helper: str, risk: str
) -> None:
    folder = program(tmp_path / "p", main=may_call("helper"), helper=helper, other=ZONE)
    trust_store(forge_home()).give(folder)
    played = await play([], worker="main", directory=folder, approval="auto_deny")
    outcome = await played.runtime.path.call(ToolCall("helper", {"input": "x"}))
    assert (outcome.status.value, outcome.decision.risk.value) == ("approval_denied", risk)


async def test_w36_a_childs_question_comes_to_the_root_with_the_path(play: Play, tmp_path: Path) -> None:
    folder = program(
        tmp_path / "p",
        main=may_call("one", "two", approval=", approval: {default: preApproved}"),
        one=f"{FILES}{ZONE}",
        two=f"{FILES}{ZONE}",
    )
    (folder / ".forge").mkdir()
    trust_store(forge_home()).give(folder)
    write = ("write_file", {"path": "/workspace/a.txt", "content": "x"})
    turns = cast(
        main=[calls(("one", {"input": "write"})), calls(("two", {"input": "write"})), "ok"],
        one=[calls(write), "done"],
        two=[calls(write), "done"],
    )
    asked: list[Any] = []

    def ask(request: Any) -> dict[str, Any]:
        asked.append([link["name"] for link in request.worker_path])
        return {"approved": len(asked) == 1, "remember": "session"}

    played = await play(turns, run="go", worker="main", directory=folder, approval="interactive", approval_callback=ask)
    assert asked == [["main", "one"], ["main", "two"]], "an approval does not cover the same call of another worker"
    writes = [event.wire["status"] for event in played.seen("toolResult") if event.wire["toolName"] == "write_file"]
    assert writes == ["success", "approval_denied"]


async def test_w38_what_is_blocked_for_the_caller_is_blocked_below(play: Play, tmp_path: Path) -> None:
    main = "toolsets:\n  filesystem: {approval: {tools: {list_files: blocked}}}\n  workers: {allow: [helper]}\n" + ZONE
    folder = program(tmp_path / "p", main=main, helper=f"{FILES}{ZONE}")
    turns = cast(
        main=[calls(("helper", {"input": "x"})), "ok"],
        helper=[calls(("list_files", {}), ("file_exists", {"path": "a"})), "done"],
    )
    played = await play(turns, run="go", worker="main", directory=folder)
    statuses = {event.wire["toolName"]: event.wire["status"] for event in played.seen("toolResult")}
    assert statuses["list_files"] == "policy_denied" and statuses["file_exists"] == "success"


async def test_w39_no_more_children_at_once_than_allowed(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=may_call("helper"), helper=ZONE)
    eight = calls(*[("helper", {"input": f"task {n}"}) for n in range(8)])
    four_meet = Turn(say="done", until=asyncio.Barrier(4).wait)
    played = await play(cast(main=[eight, "ok"], helper=[four_meet]), worker="main", directory=folder)
    running, most = 0, 0

    def count(event: Any) -> None:
        nonlocal running, most
        if event.wire["name"] == "helper":
            running += 1 if event.wire["status"] == "running" else -1
            most = max(most, running)

    played.runtime.bus.on("workerUpdate", count)
    await played.runtime.run("go")
    assert most == 4
    assert [status for status, _ in played.script.results()] == ["success"] * 8


async def test_a_failed_child_is_a_failed_call(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=may_call("helper"), helper=f"max_iterations: 1\n{FILES}{ZONE}")
    turns = cast(main=[calls(("helper", {"input": "x"})), "ok"], helper=[calls(("list_files", {}))])
    played = await play(turns, worker="main", directory=folder)
    assert (await played.runtime.run("go")).response == "ok"
    status, text = played.script.results()[0]
    assert status == "execution_failed" and "Maximum iterations (1) exceeded" in text


async def test_references_in_a_typed_input_mean_its_own_parts(play: Play, tmp_path: Path) -> None:
    typed = "input_schema: {$defs: {n: {type: integer}}, properties: {n: {$ref: '#/$defs/n'}, in: {$ref: '#'}}}\n"
    folder = program(tmp_path / "p", main=may_call("helper"), helper=f"{typed}{ZONE}")
    wanted = [("helper", {"input": {"in": {"n": number}}}) for number in (1, "many")]
    played = await play(cast(main=[calls(*wanted), "ok"], helper=["done"]), run="go", worker="main", directory=folder)
    (good, wrong) = played.script.results()
    assert good[0] == "success" and wrong[0] == "input_invalid" and "input.in.n" in wrong[1], (good, wrong)


async def test_typed_input_is_checked_before_the_child_starts(play: Play, tmp_path: Path) -> None:
    typed = "input_schema: {type: object, properties: {n: {type: integer}}, required: [n]}\n"
    folder = program(tmp_path / "p", main=may_call("helper"), helper=f"{typed}{ZONE}")
    turns = cast(
        main=[calls(("helper", {"input": {"n": "x"}}), ("helper", {"input": {"n": 3}})), "ok"], helper=["three"]
    )
    played = await play(turns, run="go", worker="main", directory=folder)
    assert [status for status, _ in played.script.results()] == ["input_invalid", "success"]
    child = next(request for request in played.script.requests if who(request) == "helper")
    assert child.messages[0].text == '{"n": 3}'


async def test_one_branch_is_stopped_and_its_caller_goes_on(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=may_call("helper"), helper=ZONE)
    endless = Turn(say="word " * 100, chunks=100, until=asyncio.Event().wait)
    turns = cast(main=[calls(("helper", {"input": "x"})), "went on"], helper=[endless])
    played = await play(turns, worker="main", directory=folder)

    def stop(event: Any) -> None:
        helper = next(each.wire["workerId"] for each in played.seen("workerUpdate") if each.wire["name"] == "helper")
        asyncio.get_running_loop().call_soon(played.runtime.bus.emit, "interrupt", {"workerId": helper})

    played.runtime.bus.on("streaming", stop)
    create_runtime_ui(played.runtime.bus)
    result = await played.runtime.run("go")
    assert (result.status, result.response) == (RunStatus.COMPLETED, "went on")
    assert played.script.results()[0][0] == "interrupted"
    last = [event.wire for event in played.seen("workerUpdate") if event.wire["name"] == "helper"][-1]
    assert (last["status"], last["task"]) == ("error", "interrupted")


async def test_stop_at_a_childs_question_ends_the_turn_of_everybody(play: Play, tmp_path: Path) -> None:
    folder = program(tmp_path / "p", main=may_call("helper"), helper=f"{FILES}{ZONE}")
    turns = cast(
        main=[calls(("helper", {"input": "write"})), "never"],
        helper=[calls(("write_file", {"path": "a.txt", "content": "x"})), "never"],
    )

    def ask(request: Any) -> dict[str, Any]:
        return {"approved": True} if request.tool == "helper" else {"approved": False, "stop": True}

    played = await play(turns, worker="main", directory=folder, approval="interactive", approval_callback=ask)
    result = await played.runtime.run("go")
    assert result.status is RunStatus.INTERRUPTED
    assert [who(request) for request in played.script.requests] == ["main", "helper"]


@pytest.mark.parametrize(("worker", "expected"), [("main", "policy_denied"), ("other", "success")])
async def test_w38_a_callers_rule_binds_a_tool_that_hands_its_call_on(
    play: Play, tmp_path: Path, worker: str, expected: str
) -> None:
    """`exec_command` hands a patch on to `apply_patch`: `blocked` on either of them blocks, from above as well."""
    helper = f"toolsets: {{exec: {{}}, edit: {{}}}}\n{ZONE}"
    folder = program(tmp_path / "p", main=may_call("helper"), helper=helper)
    home = tmp_path / "home"
    home.mkdir()
    (home / "rules.yaml").write_text(
        f"rules:\n  - {{tool: exec_command, verdict: blocked, reason: not here, scope: {{worker: {worker}}}}}\n"
    )
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: a.txt\n+text\n*** End Patch\nEOF\n"
    turns = cast(
        main=[calls(("helper", {"input": "x"})), "ok"], helper=[calls(("exec_command", {"cmd": patch})), "done"]
    )
    played = await play(turns, run="go", worker="main", directory=folder, home=home)
    (status,) = [event.wire["status"] for event in played.seen("toolResult") if event.wire["toolName"] != "helper"]
    assert status == expected
    assert (folder / "work" / "a.txt").exists() == (expected == "success")
