"""`/rewind` (flow.md §3): back to an earlier message, by the journal's own means; files by the tool that undoes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.ui.change_data import change_set, edited, record

from golem_forge import tool
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.agent.recorded_sessions import replay
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.core.calls import Outcome, ToolCall
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.toolsets.undo import EVERYTHING_STANDS
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.trace import create_trace_formatter


def runtime_in(place: Path, seen: list[list[str]], **more: Any) -> WorkerRuntime:
    def answer(request: Any) -> str:
        said = [message.text for message in request.messages if getattr(message, "kind", "") == "input"]
        seen.append(said)
        return f"answer to {said[-1]}"

    model = FunctionScript(answer)
    return WorkerRuntime(directory=place, model=model, approval_mode="auto_deny", default_mode="chat", **more)


def statuses(runtime: WorkerRuntime) -> list[tuple[str | None, str]]:
    heard: list[tuple[str | None, str]] = []
    runtime.bus.on("status", lambda event: heard.append((event.wire.get("code"), str(event.wire["message"]))))
    return heard


async def test_the_conversation_goes_back_and_the_message_stands_in_the_line_again(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    async with runtime_in(tmp_path, seen) as runtime:
        heard = statuses(runtime)
        for text in ("one", "two", "three"):
            await runtime.turn(text)
        await runtime._commands.run("/rewind")  # type: ignore[union-attr]
        assert [line.split()[:2] for line in heard[-1][1].splitlines()[:3]] == [
            ["1", "one"],
            ["2", "two"],
            ["3", "three"],
        ]
        await runtime._commands.run("/rewind 2 conversation")  # type: ignore[union-attr]
        assert ("prefill", "two") in heard and "not rewound" in heard[-1][1]
        await runtime.turn("other")
        assert seen[-1] == ["one", "other"]
        assert [(each.turn, each.text) for each in await runtime.rewind_points()] == [(1, "one"), (4, "other")]
        session = runtime.session_id
        await runtime._commands.run("/rewind 2")  # type: ignore[union-attr]
        assert "There is no message 2" in heard[-1][1]

    async with runtime_in(tmp_path, seen, resume=session) as runtime:
        await runtime.turn("later")
        assert seen[-1] == ["one", "other", "later"]
        points = await runtime.rewind_points()
        assert [(each.turn, each.text) for each in points] == [(1, "one"), (4, "other"), (5, "later")]
        runtime.rewind(points[1])
        assert [(each.turn, each.text) for each in await runtime.rewind_points()] == [(1, "one")]
        await runtime.turn("again")
        assert [each.turn for each in await runtime.rewind_points()] == [1, 6]
        formatter = create_trace_formatter("normal")
        shown = "".join(plain_text(formatter.format(event)) for event in replay(runtime))
        assert "rewound to message 2 (conversation): two" in shown
        assert "rewound to message 4 (conversation): other" in shown


async def test_the_files_of_every_turn_from_there_on_go_back_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[ToolCall] = []
    async with runtime_in(tmp_path, []) as runtime:
        heard = statuses(runtime)
        rewound: list[Any] = []
        runtime.bus.on("rewound", lambda event: rewound.append(dict(event.wire)))
        for text in ("one", "two", "three"):
            await runtime.turn(text)
        session = runtime.session_id
        sets = [change_set(session, f"c{turn}", turn, edited(f"/workspace/{turn}")) for turn in (1, 2, 3)]
        record(runtime.home.path, *sets, change_set(session, "hand", 0, edited("/workspace/h")))
        states = [Status.SUCCESS, Status.APPROVAL_DENIED]

        async def call(asked: ToolCall) -> Outcome:
            calls.append(asked)
            return Outcome(call=asked, status=states[len(calls) - 1], tool=asked.name, error="Denied by the person.")

        monkeypatch.setattr(runtime.path, "call", call)
        await runtime._commands.run("/rewind 2")  # type: ignore[union-attr]
        assert [each.args for each in calls] == [{"turn": 3}, {"turn": 2}]
        assert "as they were, and so is the conversation" in heard[-1][1] and not rewound
        assert len(await runtime.rewind_points()) == 3
        states[:] = [Status.SUCCESS] * 9
        calls.clear()
        await runtime._commands.run("/rewind 2 files")  # type: ignore[union-attr]
        assert [each.args for each in calls] == [{"turn": 3}, {"turn": 2}]
        assert rewound == [{"turn": 2, "message": "two", "conversation": False, "files": True}]
        assert len(await runtime.rewind_points()) == 3 and all(code != "prefill" for code, _ in heard)


async def test_a_turn_that_stands_as_it_was_before_does_not_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the person undid its files one by one, or by hand."""
    async with runtime_in(tmp_path, []) as runtime:
        for text in ("one", "two"):
            await runtime.turn(text)
        record(runtime.home.path, change_set(runtime.session_id, "c2", 2, edited("/workspace/2")))

        async def call(asked: ToolCall) -> Outcome:
            return Outcome(call=asked, status=Status.EXECUTION_FAILED, tool=asked.name, error=EVERYTHING_STANDS)

        monkeypatch.setattr(runtime.path, "call", call)
        await runtime._commands.run("/rewind 1")  # type: ignore[union-attr]
        assert await runtime.rewind_points() == ()


async def test_it_is_refused_while_an_answer_is_on_its_way(tmp_path: Path) -> None:
    go, began = asyncio.Event(), asyncio.Event()

    async with runtime_in(tmp_path, []) as runtime:
        await runtime.turn("one")
        (point,) = await runtime.rewind_points()
        stream = runtime.model.stream  # type: ignore[union-attr]

        async def slow(request: Any) -> Any:
            began.set()
            await go.wait()
            async for piece in stream(request):
                yield piece

        runtime.model.stream = slow  # type: ignore[union-attr,method-assign]
        turn = asyncio.ensure_future(runtime.turn("two"))
        await began.wait()
        with pytest.raises(ForgeError, match="an answer is on its way"):
            runtime.rewind(point)
        go.set()
        await turn
        runtime.rewind(point)
        assert await runtime.rewind_points() == ()


async def test_another_model_during_a_turn_takes_over_with_the_next_request(tmp_path: Path) -> None:
    """Until the turn ends, nothing else changes the history that it answers."""
    (tmp_path / "other.yaml").write_text("turns: [{expect: looked, say: from the other}]\n")
    go, began = asyncio.Event(), asyncio.Event()

    @tool(needs_approval=False)
    async def look() -> str:
        """Look."""
        began.set()
        await go.wait()
        return "looked"

    model = FunctionScript(lambda request: Turn(calls=(TurnCall(tool="look"),)))
    runtime = WorkerRuntime(directory=tmp_path, model=model, tools=[look], default_mode="chat")
    async with runtime:
        heard = statuses(runtime)
        turn = asyncio.ensure_future(runtime.turn("one"))
        await began.wait()
        for line in ("/model scripted:other.yaml", "/clear", "/compact", "/rewind 1"):
            await runtime._commands.run(line)  # type: ignore[union-attr]
        assert all("answer is on its way" in text for _, text in heard[1:]) and len(heard) == 4, heard
        go.set()
        assert (await turn).response == "from the other"
        await runtime._commands.run("/clear")  # type: ignore[union-attr]
        assert runtime.history.messages == []


async def test_without_a_journal_turns_are_counted_from_the_history(tmp_path: Path) -> None:
    async with runtime_in(tmp_path, [], journal=False) as runtime:
        for text in ("one", "two"):
            await runtime.turn(text)
        assert [(each.turn, each.text) for each in await runtime.rewind_points()] == [(1, "one"), (2, "two")]
