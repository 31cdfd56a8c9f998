"""One call through the whole path: each stage gives its own status, and every call gets exactly one Outcome."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from golem_forge import Caller, Tool, ToolCall, ToolContext, ToolResult, tool


@tool(needs_approval=False)
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def outcome_of(path: Any, name: str, args: Any, caller: Caller = Caller.LLM) -> Any:
    return await path.call(ToolCall(name, args, caller))


async def test_a_call_runs_and_gives_its_value(make_path: Any) -> None:
    outcome = await outcome_of(make_path(add), "add", {"a": "2"})
    assert (outcome.status, outcome.args, outcome.text) == ("success", {"a": 2, "b": 1}, "3")
    assert outcome.result.value == {"kind": "json", "data": 3}
    assert outcome.decision.verdict == "preApproved"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"a": "x"}, "add: a: "),
        ({}, "add: a: "),
        ({"a": 1, "c": 2}, "add: unknown argument 'c'"),
        ({"a": math.nan}, "not JSON"),
        ({"a": math.inf}, "not JSON"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"a": {"x": [1] * 3}}, "add: a: "),
        ({1: 2}, "unknown argument '1'"),
        ({"a": 10**2000}, "too large"),
        ({"a": "9" * 2_000_000}, "the limit is 1048576"),
        ("{", "position 1"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[1]", "must be an object"),
        (17, "must be an object, got int"),
        ("[" * 100_000, "nested too deeply"),
        (b"\xff\xfe{", "not valid JSON"),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_bad_input_is_one_clear_outcome(make_path: Any, args: Any, says: str) -> None:
    path = make_path(add)
    outcome = await outcome_of(path, "add", args)
    assert outcome.status == "input_invalid"
    assert says in outcome.error
    assert len(outcome.error) < 3000
    assert not outcome.executed
    assert (await outcome_of(path, "add", {"a": 1})).ok, "the session goes on"


@pytest.mark.parametrize("name", [None, 5, ["add"]], ids=repr)
async def test_a_name_that_is_no_text_is_no_tool(make_path: Any, name: Any) -> None:
    outcome = await outcome_of(make_path(add), name, {"a": 1})
    assert (outcome.status, outcome.error) == ("tool_not_found", f"Unknown tool {str(name)!r}.")


async def test_deep_nesting_is_refused(make_path: Any) -> None:
    @tool(needs_approval=False)
    def take(data: Any) -> str:
        return "ok"

    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    outcome = await outcome_of(make_path(take), "take", {"data": deep})
    assert outcome.status == "input_invalid"
    assert "64 levels" in outcome.error


async def test_an_unknown_tool_gets_a_suggestion(make_path: Any) -> None:
    outcome = await outcome_of(make_path(add), "adx", {})
    assert outcome.status == "tool_not_found"
    assert "'add'" in outcome.error


class Weird:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Angry(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad wolf"), "ValueError: bad wolf"),
        (SystemExit(3), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (StopIteration("x"), "StopIteration"),
        (GeneratorExit(), "GeneratorExit"),
        (Angry(), "Angry"),
        (ValueError("x" * 100_000), "ValueError: xx"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("how", ["async", "sync", "inline"])
async def test_whatever_a_tool_raises_is_one_failed_call(
    make_path: Any, error: BaseException, text: str, how: str
) -> None:
    def fails() -> str:
        raise error

    async def fails_async() -> str:
        raise error

    function = fails_async if how == "async" else fails
    failing = tool(name="fails", needs_approval=False, inline=how == "inline")(function)
    path = make_path(failing, add)
    outcome = await outcome_of(path, "fails", {})
    assert outcome.status == "execution_failed"
    assert text in outcome.error
    assert len(outcome.error) < 3000
    assert (await outcome_of(path, "add", {"a": 1})).ok


@pytest.mark.parametrize(
    "value",
    [Weird(), object(), {1, 2}, b"\xff", {"x": Weird()}, math.nan, 10**5000, lambda: 1],
    ids=lambda value: type(value).__name__,
)
async def test_a_value_json_cannot_hold_never_crashes_the_path(make_path: Any, value: Any) -> None:
    @tool(needs_approval=False)
    def odd():  # type: ignore[no-untyped-def]
        return value

    path = make_path(odd, add)
    outcome = await outcome_of(path, "odd", {})
    assert outcome.status in ("success", "execution_failed")
    assert outcome.text
    assert (await outcome_of(path, "add", {"a": 1})).ok


async def test_models_and_literals_arrive_as_declared(make_path: Any) -> None:
    class Point(BaseModel):
        x: int

    @tool(needs_approval=False)
    def move(to: Point, how: Literal["fast", "slow"] = "slow") -> str:
        return f"{type(to).__name__} {to.x} {how}"

    # the annotation refers to a local class, so it is resolved by hand
    move.function.__annotations__["to"] = Point  # type: ignore[union-attr]
    path = make_path(move)
    outcome = await outcome_of(path, "move", {"to": {"x": "7"}})
    assert outcome.text == "Point 7 slow"
    assert outcome.args == {"to": {"x": 7}, "how": "slow"}
    bad = await outcome_of(path, "move", {"to": {"x": "z"}, "how": "never"})
    assert "to.x" in bad.error and "how" in bad.error


async def test_an_error_result_is_a_failure(make_path: Any) -> None:
    failing = Tool(
        "check", "Fails in an orderly way.", input_schema={"type": "object"}, needs_approval=False,
        execute=lambda args: ToolResult(value={"kind": "text", "content": "no"}, text="no", is_error=True),
    )  # fmt: skip
    outcome = await outcome_of(make_path(failing), "check", {})
    assert (outcome.status, outcome.error) == ("execution_failed", "no")


async def test_tools_call_tools_on_the_same_path(make_path: Any, asked: Any) -> None:
    runs: list[str] = []

    @tool
    def inner(x: int) -> int:
        runs.append("inner")
        return x + 1

    @tool(needs_approval=False)
    async def outer(*, ctx: ToolContext) -> str:
        outcome = await ctx.call("inner", {"x": 1})
        return f"{outcome.status}: {outcome.text}"

    yes = asked()
    assert (await outcome_of(make_path(inner, outer, ask=yes), "outer", {})).text == "success: 2"
    assert [request.tool for request in yes] == ["inner"]
    assert (await outcome_of(make_path(inner, outer), "outer", {})).text.startswith("approval_denied")
    assert runs == ["inner"]


async def test_a_tool_that_calls_itself_is_stopped(make_path: Any) -> None:
    depths = 0

    @tool(needs_approval=False)
    async def again(*, ctx: ToolContext) -> str:
        nonlocal depths
        depths += 1
        return (await ctx.call("again", {})).text

    outcome = await outcome_of(make_path(again), "again", {})
    assert "at most 5 levels deep" in outcome.text
    assert depths == 5


async def test_progress_reaches_the_bus(make_path: Any) -> None:
    from golem_forge import create_ui_event_bus

    @tool(needs_approval=False)
    def slow(*, ctx: ToolContext) -> str:
        ctx.report_progress(1, 2, "half")
        return "done"

    bus = create_ui_event_bus()
    seen: list[Any] = []
    bus.on("*", seen.append)
    await outcome_of(make_path(slow, bus=bus), "slow", {})
    await asyncio.sleep(0)
    assert [event.type for event in seen].count("toolProgress") == 1
    started, result = (next(e for e in seen if e.type == kind) for kind in ("toolStarted", "toolResult"))
    assert started.data.tool_name == "slow"
    assert result.data.status == "success"
    assert result.wire["decision"]["verdict"] == "preApproved"
