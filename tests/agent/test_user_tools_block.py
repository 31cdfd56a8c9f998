"""`toolsets: {user_tools: …}`: every key of the block changes what a worker sees; folders count at every turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import WORKSPACE, calls

from golem_forge.agent.files.worker import Worker, WorkerSandbox
from golem_forge.agent.session import open_session

Play = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "forge-home"


def folder(home: Path, name: str, source: str = "echo made\n", more: str = "") -> Path:
    made = home / "tools" / name
    made.mkdir(parents=True, exist_ok=True)
    (made / "tool.yaml").write_text(
        f"name: {name}\ndescription: says {name}\nversion: 1.0.0\nentrypoint: {name}.sh\n{more}"
    )
    (made / f"{name}.sh").write_text(source)
    return made


def worker(sandbox: WorkerSandbox | None = WORKSPACE, **block: Any) -> Worker:
    return Worker(name="main", toolsets={"filesystem": {}, "user_tools": block}, sandbox=sandbox)


def names(played: Any) -> set[str]:
    return {tool.name for tool in played.runtime.get_tools()}


async def activated(play: Play, home: Path, *tools: str) -> None:
    run_each = calls(*(("run_custom_tool", {"tool_name": name}) for name in tools))
    yes = {"approval": "interactive", "approval_callback": lambda request: {"approved": True}}
    played = await play([run_each, "ok"], turn="go", home=home, worker=worker(), **yes)
    assert [status for status, _ in played.script.results()] == ["success"] * len(tools)
    await played.runtime.aclose()


async def test_tools_globs_choose_what_a_worker_sees(play: Play, home: Path) -> None:
    folder(home, "git-log")
    folder(home, "notes")
    await activated(play, home, "git-log", "notes")
    assert {"git-log", "notes"} <= names(await play([], home=home, worker=worker()))
    played = await play(
        [calls(("notes", {}), ("run_custom_tool", {"tool_name": "notes"})), "ok"],
        home=home,
        worker=worker(tools=["git-*"]),
    )
    assert names(played) & {"git-log", "notes"} == {"git-log"}
    await played.runtime.turn("go")
    (first, _), (second, text) = played.script.results()
    assert (first, second) == ("tool_not_found", "tool_not_found")
    assert text.endswith("custom tool 'notes' not found. Available tools: git-log")


async def test_a_worker_without_the_block_sees_none(play: Play, home: Path) -> None:
    folder(home, "notes")
    await activated(play, home, "notes")
    plain = Worker(name="main", toolsets={"filesystem": {}}, sandbox=WORKSPACE)
    played = await play([calls(("read_file", {"path": "/user_tools/notes/tool.yaml"})), "ok"], home=home, worker=plain)
    assert not names(played) & {"notes", "run_custom_tool", "create_custom_tool"}
    await played.runtime.turn("go")
    assert "custom_tool" not in played.script.requests[0].system
    [(status, text)] = played.script.results()
    assert status == "sandbox_denied" and "No access to '/user_tools/notes/tool.yaml'" in text


async def test_create_false_hides_the_tool_and_the_zone(play: Play, home: Path) -> None:
    read = calls(("read_file", {"path": "/user_tools/notes/tool.yaml"}))
    folder(home, "notes")
    may = await play([read, "ok"], home=home, worker=worker(create=True))
    may_not = await play([read, "ok"], home=home, worker=worker(create=False))
    assert names(may) - names(may_not) == {"create_custom_tool"}
    for played in (may, may_not):
        await played.runtime.turn("go")
    assert may.script.results()[0][0] == "success"
    assert may_not.script.results()[0][0] == "sandbox_denied"
    paragraph = may.script.requests[0].system.partition("## Tools of the person's own")[2]
    assert "run_custom_tool" in paragraph and len(paragraph) / 4 <= 200
    assert "## Tools of the person's own" not in may_not.script.requests[0].system


async def test_a_worker_that_makes_tools_needs_no_other_zone(play: Play, home: Path) -> None:
    played = await play(
        [calls(("list_files", {"path": "/user_tools"}), ("read_file", {"path": "/workspace/x"})), "ok"],
        turn="go",
        home=home,
        worker=worker(sandbox=None),
    )
    assert [status for status, _ in played.script.results()] == ["success", "sandbox_denied"]


APPROVALS: list[tuple[dict[str, Any], str, int]] = [
    ({"default": "preApproved"}, "success", 0),
    ({"tools": {"notes": "preApproved"}}, "success", 0),
    ({"default": "preApproved", "tools": {"notes": "ask"}}, "success", 1),
    ({"tools": {"notes": "blocked"}}, "policy_denied", 0),
    ({}, "success", 1),
]


async def test_the_blocks_approval_counts_for_its_tools(play: Play, home: Path, asked: Any) -> None:
    folder(home, "notes")
    await activated(play, home, "notes")
    for approval, status, cards in APPROVALS:
        ask = asked()
        played = await play(
            [calls(("notes", {})), "ok"],
            turn="go",
            home=home,
            worker=worker(approval=approval),
            approval="interactive",
            approval_callback=ask,
        )
        assert (played.script.results()[0][0], len(ask)) == (status, cards), approval


async def test_what_the_block_blocks_is_not_promoted_either(play: Play, home: Path) -> None:
    folder(home, "notes", "touch ran; echo ran\n", "zones: {workspace: rw}\n")
    played = await play(
        [calls(("run_custom_tool", {"tool_name": "notes"})), "ok"],
        turn="go",
        home=home,
        worker=worker(approval={"tools": {"notes": "blocked"}}),
    )
    assert played.script.results()[0][0] == "policy_denied"
    assert not (played.runtime.program.root / "ran").exists()


async def test_a_folder_that_appears_between_two_requests_is_there_at_the_next(play: Play, home: Path) -> None:
    def appears(request: Any) -> Any:
        folder(home, "late")
        return calls(("run_custom_tool", {"tool_name": "late"}))

    def by_its_name(request: Any) -> Any:
        assert "late" in str(request.tools)
        return calls(("late", {}))

    played = await play(["ok", appears, by_its_name, "ok"], turn="hello", home=home, worker=worker())
    assert "late" not in names(played)
    await played.runtime.turn("go")
    assert "late" in names(played)
    [(status, text)] = played.script.results()
    assert status == "success" and "\nmade\n" in text
    changed = [event.wire for event in played.seen("catalogChanged")]
    assert [one["added"] for one in changed if one["added"]] == [["late"]]


async def test_new_tools_are_announced_once_a_session(play: Play, home: Path) -> None:
    folder(home, "notes")
    played = await play(["ok", "ok"], turn="one", home=home, worker=worker())
    await played.runtime.turn("two")
    said = [event.wire["message"] for event in played.seen("status") if "not active" in event.wire["message"]]
    assert said == ["new tool 'notes' is not active; run /notes or forge tools activate notes"]


async def test_many_new_tools_are_announced_in_one_line(play: Play, home: Path) -> None:
    for number in range(12):
        folder(home, f"t{number}")
    played = await play([], home=home, worker=worker())
    said = [event.wire["message"] for event in played.seen("status") if "not active" in event.wire["message"]]
    assert said == ["12 new tools are not active; `forge tools list` shows them"]


async def test_a_model_that_names_an_untrusted_tool_is_told_how_to_run_it(play: Play, home: Path) -> None:
    folder(home, "notes")
    yes = {"approval": "interactive", "approval_callback": lambda request: {"approved": True}}
    through = calls(("run_custom_tool", {"tool_name": "notes"}))
    played = await play([calls(("notes", {})), "ok", through, "ok"], turn="go", home=home, worker=worker(), **yes)
    [(status, text)] = played.script.results()
    assert status == "tool_not_found" and "run_custom_tool (tool_name: 'notes')" in text
    await played.runtime.turn("as it says")
    assert [status for status, _ in played.script.results()] == ["success"]


async def test_every_file_tool_points_from_the_folder_as_people_know_it_to_the_zone(tmp_path: Path, home: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: {}/x/n.txt\n+hi\n*** End Patch\n"
    given = {
        "read_file": {"path": "{}/x/n.txt"},
        "write_file": {"path": "{}/x/n.txt", "content": "n"},
        "delete_file": {"path": "{}/x/n.txt"},
        "list_files": {"path": "{}/x"},
        "list_dir": {"path": "{}/x"},
        "file_info": {"path": "{}/x"},
        "file_exists": {"path": "{}/x"},
        "grep_files": {"pattern": "n", "path": "{}/x"},
        "apply_patch": {"input": patch},
        "exec_command": {"cmd": "ls", "workdir": "{}/x"},
    }
    place = tmp_path / "here"
    place.mkdir()
    async with open_session(place, home=home, approval="approve_all") as session:
        for spelt in ("~/.forge/tools", "$HOME/.forge/tools", "/root/.forge/tools"):
            for name, args in given.items():
                outcome = await session.call(name, {key: text.replace("{}", spelt) for key, text in args.items()})
                assert not outcome.ok and "use '/user_tools/x" in outcome.text, (name, outcome.text)
        created = await session.call("write_file", {"path": f"{home}/tools/x/n.txt", "content": "n"})
        assert created.ok and created.text.startswith("Created /user_tools/x/n.txt")
    assert not list(place.iterdir())
