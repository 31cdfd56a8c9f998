"""Hooks around a session and its turns, and a hook that runs outside the walls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import calls
from tests.deadlines import LONG

from golem_forge.agent.model.interface import UserMessage
from golem_forge.storage.home import forge_home


@pytest.fixture
def hooks(own_home: Path) -> Callable[..., Path]:
    """`hooks("turn_end", "exit 2", …)` writes the person's config with one hook, whose program runs this text of a
    shell; gives the program's path."""

    def write(on: str, text: str, **more: Any) -> Path:
        program = own_home / "hook"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        forge_home().ensure()
        said = {"on": on, "run": str(program), "name": "mine", **more}
        forge_home().config.write_text(json.dumps({"hooks": [said]}))
        return program

    return write


def told(played: Any) -> list[dict[str, Any]]:
    return [dict(event.wire) for event in played.seen("hookRan")]


def notes(played: Any, request: int = -1) -> str:
    messages = played.script.requests[request].messages
    return "\n".join(each.text for each in messages if isinstance(each, UserMessage) and each.kind == "note")


@pytest.mark.parametrize("on", ["session_start", "turn_start"])
async def test_what_a_hook_says_before_a_turn_reaches_the_model_fenced(
    play: Any, hooks: Callable[..., Path], on: str
) -> None:
    hooks(on, 'grep -o \'"message": "[a-z ]*"\'', tell="model")
    played = await play(["one", "two"], turn="first words")
    assert '"message": "first words"' in notes(played) and " tool output ---" in notes(played)
    await played.runtime.turn("second words")
    assert ('"message": "second words"' in notes(played)) is (on == "turn_start")


@pytest.mark.parametrize("on", ["session_start", "turn_start"])
async def test_a_hook_denies_a_turn(play: Any, hooks: Callable[..., Path], on: str) -> None:
    hooks(on, """echo '{"verdict": "blocked", "reason": "out of hours"}'""")
    played = await play(["never said"])
    result = await played.runtime.turn("go")
    assert not result.success and "The hook 'mine' denied this turn: out of hours" in result.error
    assert played.script.requests == []


async def test_exit_code_2_before_a_turn_tells_the_model(play: Any, hooks: Callable[..., Path]) -> None:
    hooks("turn_start", "echo 'the build is red' >&2; exit 2")
    played = await play(["ok"], turn="go")
    assert "the build is red" in notes(played)


async def test_a_turn_end_that_always_complains_ends_after_its_rounds(play: Any, hooks: Callable[..., Path]) -> None:
    hooks("turn_end", "echo 'tests fail: 3' >&2; exit 2", max_rounds=2)
    played = await play(["done", "done again", "done at last", "next"])
    result = await played.runtime.turn("go")
    assert result.response == "done at last" and len(played.script.requests) == 3
    assert notes(played).count("tests fail: 3") == 2
    said = [event.wire["message"] for event in played.seen("status") if event.wire.get("code") == "HOOK"]
    assert said[-1] == "The hook 'mine' still complains after 2 rounds; the turn ends."
    assert len(told(played)) == 3


async def test_the_rounds_begin_anew_with_each_message_and_three_is_the_rule(
    play: Any, hooks: Callable[..., Path]
) -> None:
    hooks("turn_end", "echo no >&2; exit 2")
    played = await play(["x"] * 8)
    for _ in range(2):
        await played.runtime.turn("go")
    assert len(played.script.requests) == 8


async def test_a_turn_end_hook_knows_what_changed_and_is_content_when_it_is_mended(
    play: Any, hooks: Callable[..., Path]
) -> None:
    look = "cat >/dev/null; grep -q good $FORGE_DIRECTORY/new.txt"
    hooks("turn_end", f"{look} || {{ echo 'new.txt is not good' >&2; exit 2; }}")
    write = [calls(("write_file", {"path": "/workspace/new.txt", "content": word})) for word in ("bad", "good")]
    played = await play([write[0], "first", write[1], "second"])
    result = await played.runtime.turn("go")
    assert result.response == "second" and result.tool_call_count == 2
    assert [each["status"] for each in told(played)] == ["said", "ok"]
    assert {each.turn for each in played.runtime.changes()} == {1}


async def test_a_test_run_that_fails_goes_back_to_the_model_and_one_that_passes_does_not(
    play: Any, hooks: Callable[..., Path]
) -> None:
    program = hooks("turn_end", "echo '1 failed'; exit 1", tell="model", max_rounds=1)
    played = await play(["a", "b", "c"])
    await played.runtime.turn("go")
    assert len(played.script.requests) == 2 and "1 failed" in notes(played)
    program.write_text("#!/bin/sh\necho '1 passed'\n")
    await played.runtime.turn("go")
    assert len(played.script.requests) == 3


async def test_a_hook_that_fails_around_turns_is_told_once_and_ends_nothing(
    play: Any, hooks: Callable[..., Path]
) -> None:
    hooks("turn_start", "exit 5")
    played = await play(["a", "b"])
    for _ in range(2):
        assert (await played.runtime.turn("go")).success
    assert [each.get("line", "") for each in told(played)] == ["ended with exit code 5", ""]


async def test_the_end_of_a_session_is_told_with_what_it_changed(
    play: Any, hooks: Callable[..., Path], own_home: Path
) -> None:
    hooks("session_end", f"cat > {own_home}/told", walls="host")
    played = await play([calls(("write_file", {"path": "/workspace/new.txt", "content": "x"})), "all done"], run="go")
    await played.runtime.aclose()
    said = json.loads((own_home / "told").read_text())
    assert (said["on"], said["summary"], said["changed"]) == ("session_end", "all done", ["/workspace/new.txt"])
    assert said["hook_event_name"] == "SessionEnd" and said["session_id"] == said["session"]


async def test_a_question_runs_its_hook_beside_the_card(play: Any, hooks: Callable[..., Path], own_home: Path) -> None:
    hooks("question", f"cat > {own_home}/told.new; mv {own_home}/told.new {own_home}/told", walls="host")

    async def answer(request: Any) -> dict[str, Any]:
        async with asyncio.timeout(LONG):
            while not (own_home / "told").exists():  # the card is open meanwhile
                await asyncio.sleep(0.01)
        return {"approved": True}

    write = calls(("write_file", {"path": "/workspace/new.txt", "content": "x"}))
    played = await play([write, "ok"], approval="interactive", approval_callback=answer)
    await played.runtime.turn("go")
    said = json.loads((own_home / "told").read_text())
    assert said["card"]["tool"] == "write_file" and said["card"]["risk"] == "medium"


async def test_a_hook_outside_the_walls_starts_in_forge_home_without_credentials(
    play: Any, hooks: Callable[..., Path], own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "canary-0123456789")
    monkeypatch.setenv("DISPLAY", ":7")
    hooks("turn_end", f"pwd > {own_home}/told; env >> {own_home}/told", walls="host")
    await play(["ok"], turn="go")
    where, *rest = (own_home / "told").read_text().splitlines()
    assert where == str(forge_home().path) and f"HOME={own_home}" in rest and "DISPLAY=:7" in rest
    assert "canary" not in "".join(rest)


async def test_a_hook_outside_the_walls_never_starts_a_program_of_a_zone(play: Any, tmp_path: Path) -> None:
    program = tmp_path / "project" / "hook"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/pwn\n")
    program.chmod(0o755)
    link = tmp_path / "link"
    link.symlink_to(program)
    forge_home().ensure()
    for named in (program, link):
        said = {"on": "turn_end", "run": str(named), "walls": "host", "name": named.name}
        forge_home().config.write_text(json.dumps({"hooks": [said]}))
        played = await play(["ok"], turn="go")
        assert "lies in the zone /workspace" in told(played)[0]["reason"]
    assert not (tmp_path / "pwn").exists()


async def test_a_walled_hook_of_mine_is_not_taken_from_a_zone_either(play: Any, tmp_path: Path) -> None:
    program = tmp_path / "project" / "check"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    forge_home().ensure()
    forge_home().config.write_text(json.dumps({"hooks": [{"on": "before_call", "run": str(program)}]}))
    played = await play([calls(("list_files", {"path": "/workspace"})), "ok"], turn="go")
    ((status, text),) = played.script.results()
    assert status == "policy_denied" and "lies in the zone /workspace" in text
