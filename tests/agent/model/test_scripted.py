"""The scripted model: its file, its turns, its failures."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.dialogue import DiscardedAttempt, ask_with_retries
from golem_forge.agent.model.interface import (
    CallResult,
    Completed,
    Finish,
    ModelError,
    Request,
    ResultsMessage,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    UserMessage,
)
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall, open_script
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ConfigError


def script(tmp_path: Path, text: str, worker: str = "main") -> Any:
    (tmp_path / "s.yaml").write_text(text)
    return open_script("s.yaml", root=tmp_path, worker=worker)


def request(text: str = "hello", *more: Any) -> Request:
    return Request(system="S", messages=(UserMessage(text=text), *more))


async def told(model: Any, asked: Request) -> tuple[Completed, list[Any]]:
    shown: list[Any] = []

    async def no_sleep(seconds: float) -> None:
        shown.append(seconds)

    return await ask_with_retries(model, asked, show=shown.append, sleep=no_sleep), shown


async def test_turns_play_in_order_and_the_name_is_honest(tmp_path: Path) -> None:
    model = script(
        tmp_path,
        """
context_window: 8000
native_calls: false
turns:
  - think: Let me see.
    say: Reading it now.
    chunks: 3
    calls:
      - {tool: read_file, args: {path: /workspace/a}, id: c1}
      - {tool: add, args: '{"a": '}
    usage: {input: 10, output: 5, cached: 4}
  - expect: [content of a]
    say: Done.
""",
    )
    assert (model.name, model.context_window, model.calls_natively) == ("scripted:s.yaml", 8000, False)
    first, shown = await told(model, request())
    assert [type(each) for each in shown].count(TextDelta) == [type(each) for each in shown].count(ThinkingDelta) == 3
    assert "".join(each.text for each in shown if isinstance(each, TextDelta)) == first.message.text
    assert first.message.thinking == "Let me see."
    one, two = first.message.calls
    assert (one.id, one.name, one.args) == ("c1", "read_file", {"path": "/workspace/a"})
    assert two.id and two.args == '{"a": '
    assert first.usage == TokenUsage(input=10, output=5, cached=4)
    assert first.message.model == "scripted:s.yaml"
    result = CallResult(id="c1", name="read_file", status=Status.SUCCESS, text="the content of a is 1")
    second, _ = await told(model, request("hello", first.message, ResultsMessage(results=(result,))))
    assert second.message.text == "Done." and second.usage.input > 10
    with pytest.raises(ModelError, match="the script has only 2 turns"):
        await told(model, request())


async def test_an_expectation_not_met_fails_loudly_with_its_line(tmp_path: Path) -> None:
    model = script(tmp_path, "turns:\n  - say: a\n  - expect: needle\n    say: b\n")
    await told(model, request())
    with pytest.raises(ModelError, match=r"s\.yaml:3: expected 'needle' in the last message, which is 'hay'"):
        await told(model, request("hay"))


async def test_each_worker_has_its_own_turns(tmp_path: Path) -> None:
    text = "workers:\n  main:\n    - say: I am main\n  analyzer:\n    - say: I analyze\n"
    assert (await told(script(tmp_path, text), request()))[0].message.text == "I am main"
    assert (await told(script(tmp_path, text, "analyzer"), request()))[0].message.text == "I analyze"
    with pytest.raises(
        ConfigError, match=r"s\.yaml:1: workers: no turns for worker 'analyser'; did you mean 'analyzer'"
    ):
        script(tmp_path, text, "analyser")


async def test_a_failing_turn_is_retried_on_the_next_one(tmp_path: Path) -> None:
    model = script(
        tmp_path, "turns:\n  - {say: Half an, fail: {status: 503, retry_after: 7}}\n  - {fail: {}}\n  - say: Whole\n"
    )
    answer, shown = await told(model, request())
    assert answer.message.text == "Whole"
    first, second = [each for each in shown if isinstance(each, DiscardedAttempt)]
    assert first.streamed and first.wait == 7.0 and not second.streamed
    assert "answered 503" in first.reason and "broke off" in second.reason


async def test_a_refused_request_and_a_cut_answer(tmp_path: Path) -> None:
    model = script(tmp_path, "turns:\n  - {say: x, calls: [{tool: a}], finish: length}\n  - {fail: {status: 401}}\n")
    answer, _ = await told(model, request())
    assert answer.finish is Finish.LENGTH and answer.message.calls[0].problem
    with pytest.raises(ModelError, match="answered 401") as failed:
        await told(model, request())
    assert not failed.value.retryable


async def test_pauses_are_kept(tmp_path: Path) -> None:
    model = script(tmp_path, "turns:\n  - {say: abcd, chunks: 4, pause: 0.05}\n")
    began = time.monotonic()
    await told(model, request())
    assert time.monotonic() - began >= 0.2


async def test_the_last_piece_waits_for_its_gate(tmp_path: Path) -> None:
    model = script(
        tmp_path, "turns:\n  - {think: a, say: bcd, chunks: 3, until: go}\n  - {calls: [{tool: t}], until: go}\n"
    )
    stream = model.stream(request())
    got = [await anext(stream) for _ in range(4)]
    last = asyncio.ensure_future(anext(stream))
    done, _ = await asyncio.wait([last], timeout=0.1)
    assert [getattr(each, "text", "") for each in got] == ["", "a", "b", "c"] and not done
    (tmp_path / "go").touch()
    assert await last == TextDelta("d")
    assert [type(each) async for each in stream] == [Completed]
    answer, _ = await told(model, request())
    assert [call.name for call in answer.message.calls] == ["t"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("turns:\n  - until: ../x\n", r"turns\[0\]\.until: expected the name of a file"),
        ("turns:\n  - until: 3\n", r"turns\[0\]\.until: expected the name of a file"),
        ("turns:\n  - sya: x\n", r"s\.yaml:2: turns\[0\]\.sya: unknown key 'sya'; did you mean 'say'"),
        (
            "turns:\n  - say: x\n    calls:\n      - {args: {}}\n",
            r"s\.yaml:4: turns\[0\]\.calls\[0\]: 'tool' is missing",
        ),
        ("turns:\n  - {say: x, chunks: 0}\n", "chunks: expected a whole number, at least 1"),
        ("turns:\n  - {say: x, finish: lenght}\n", r"finish: expected one of stop, length, refused \('length'\?\)"),
        ("turns:\n  - {fail: {status: 200}}\n", "status: expected a whole number, at least 400"),
        ("turns:\n  - {expect: 3}\n", "expect: expected a text or a list of texts"),
        ("turns:\n  - {calls: [{tool: a, args: 3}]}\n", "args: expected a mapping, or raw JSON"),
        ("turns: []\nworkers: {}\n", "either `turns` or `workers`"),
        ("context_window: 5\n", "either `turns` or `workers`"),
        ("- say: x\n", "expected a mapping"),
    ],
)
def test_a_script_with_a_mistake_is_refused_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        script(tmp_path, text)


async def test_a_function_may_answer() -> None:
    def answer(asked: Request) -> Turn | str:
        last = asked.messages[-1]
        assert isinstance(last, UserMessage)
        return Turn(calls=(TurnCall(tool="add", args={"a": 1}),)) if last.text == "add" else f"You said {last.text}"

    model = FunctionScript(answer, context_window=500)
    assert model.name == "scripted:function" and model.context_window == 500
    assert (await told(model, request("hi")))[0].message.text == "You said hi"
    assert (await told(model, request("add")))[0].message.calls[0].name == "add"
    silent: Any = FunctionScript(lambda asked: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ModelError, match="the function must return a Turn or a text, not None"):
        await told(silent, request("hi"))


def test_a_strangers_program_names_no_script_outside_itself(tmp_path: Path) -> None:
    root = tmp_path / "program"
    root.mkdir()
    (tmp_path / "outside.yaml").write_text("turns: [{say: hi}]\n")
    (root / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    (root / "inside.yaml").write_text("turns: [{say: hi}]\n")
    assert open_script("inside.yaml", root=root, worker="main", confined=True).name == "scripted:inside.yaml"
    for name in ("../outside.yaml", "link.yaml", str(tmp_path / "outside.yaml")):
        with pytest.raises(ConfigError, match="outside the program"):
            open_script(name, root=root, worker="main", confined=True)
        assert open_script(name, root=root, worker="main").name == f"scripted:{name}"
