"""A real pydantic-ai agent on a real session of ours, and the other way round. Only the model's words are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, exceptions
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage
from tests.acceptance.mcp_bench import McpBench
from tests.deadlines import LONG

from golem_forge import ToolResult, ToolRouter, open_session, tool
from golem_forge.agent import mcp_servers
from golem_forge.core.decisions import Status
from golem_forge.mcp.bridges.parked import ParkedCalls
from golem_forge.mcp.bridges.pydantic_ai import ForgeToolset, from_toolset

PIXEL = b"\x89PNG not really"
Call = tuple[str, dict[str, Any], str]


def says(*turns: list[Call] | str) -> FunctionModel:
    """A model that plays these turns: calls as (tool, args, id), or words."""
    left = list(turns)

    def play(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = left.pop(0)
        if isinstance(turn, str):
            return ModelResponse(parts=[TextPart(turn)])
        return ModelResponse(parts=[ToolCallPart(name, args, tool_call_id=ident) for name, args, ident in turn])

    return FunctionModel(play)


class Bench:
    """Tools that count how often they ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tools(self) -> list[Any]:
        @tool(needs_approval=False)
        def look(item: str) -> str:
            """Look at an item."""
            self.ran.append(f"look {item}")
            return f"a {item}"

        @tool(needs_approval=True)
        def sell(item: str, count: int = 1) -> str:
            """Sell an item."""
            self.ran.append(f"sell {item} {count}")
            return f"sold {count}"

        @tool(needs_approval="blocked")
        def burn(item: str) -> str:
            """Burn an item."""
            self.ran.append("burn")
            return ""

        @tool(needs_approval=False, mode="manual")
        def secret() -> str:
            """For people only."""
            self.ran.append("secret")
            return ""

        @tool(needs_approval=False)
        def picture() -> ToolResult:
            """A picture."""
            image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
            text = {"type": "text", "text": "here"}
            return ToolResult({"kind": "text", "content": "here"}, text="here", content=(text, image))

        return [look, sell, burn, secret, picture]


@asynccontextmanager
async def desk(tmp_path: Path, bench: Bench, seconds: float = 600) -> AsyncIterator[Callable[..., Agent[None, Any]]]:
    parked = ParkedCalls(seconds)
    (tmp_path / "project").mkdir(exist_ok=True)
    opened = open_session(
        tmp_path / "project", tools=bench.tools(), toolsets={}, approval_callback=parked.ask, home=tmp_path / "home"
    )
    async with opened as session:

        def agent(*turns: list[Call] | str) -> Agent[None, Any]:
            return Agent(
                says(*turns), toolsets=[ForgeToolset(session, parked)], output_type=[str, DeferredToolRequests]
            )

        yield agent
        await parked.aclose()


async def resumed(agent: Agent[None, Any], first: Any, answers: DeferredToolResults | None = None) -> Any:
    """The run goes on with these answers to what it asked; without any, `a` is approved."""
    given = answers or DeferredToolResults(approvals={"a": True})
    return await agent.run(message_history=first.all_messages(), deferred_tool_results=given)


def returns(result: Any) -> list[tuple[str, Any]]:
    """(outcome, content) of every answer that the model got."""
    parts = [part for message in result.all_messages() if isinstance(message, ModelRequest) for part in message.parts]
    return [(part.outcome, part.content) for part in parts if part.part_kind == "tool-return"]


async def test_a_session_alone_is_enough(tmp_path: Path) -> None:
    """It asks by its own callback; where that parks, the call is parked; where there is none, it is denied."""
    parked, bench = ParkedCalls(), Bench()
    sale: list[list[Call] | str] = [[("sell", {"item": "mug"}, "1")], "done"]
    outputs = []
    for callback in ({"approved": True}, parked.ask, None):
        asked = (lambda request, answer=callback: answer) if isinstance(callback, dict) else callback
        async with open_session(tmp_path, tools=bench.tools(), toolsets={}, approval_callback=asked) as session:
            with (
                pytest.raises(ValueError, match="parks its calls elsewhere")
                if callback == parked.ask
                else nullcontext()
            ):
                ForgeToolset(session, ParkedCalls())
            agent = Agent(says(*sale), toolsets=[ForgeToolset(session)], output_type=[str, DeferredToolRequests])
            outputs.append(await agent.run("go"))
            await parked.aclose()
    assert len(bench.ran) == 1 and outputs[0].output == "done", "asked and sold"
    assert [call.tool_name for call in outputs[1].output.approvals] == ["sell"]
    assert "approval_denied" in str(returns(outputs[2]))


async def test_tools_of_servers_are_listed_before_the_first_call(
    tmp_path: Path, tried_walls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that can wait does; one that cannot has what is known of the servers."""
    monkeypatch.setattr(mcp_servers, "FIRST_LIST_SECONDS", LONG)
    bench = McpBench(tmp_path, tried_walls, None)
    bench.yaml({"echo": bench.ours("echo.py"), "absent": {"command": "/no/such/binary"}})
    bench.approve()
    async with open_session(bench.workspace, home=bench.home) as session:
        run = RunContext(deps=None, model=TestModel(), usage=RunUsage())
        assert "echo__echo" in await ForgeToolset(session).get_tools(run)
    async with open_session(bench.workspace, home=bench.home) as session:
        assert ToolRouter(session).list("mcp", query="echo__echo")
    listed = await asyncio.to_thread(lambda: ToolRouter(open_session(bench.workspace, home=bench.home)))
    definitions = await asyncio.to_thread(listed.tool_definitions)  # without an event loop
    assert "echo__echo" in [each["name"] for each in definitions]
    assert bench.nobody_left()


async def test_an_agent_calls_our_tools_and_hears_our_refusals(tmp_path: Path) -> None:
    bench = Bench()
    calls: list[Call] = [
        ("look", {"item": "mug"}, "1"),
        ("look", {"itm": "mug"}, "2"),
        ("burn", {"item": "mug"}, "3"),
    ]
    async with desk(tmp_path, bench) as agent:
        result = await agent(calls, "done").run("go")
    assert result.output == "done"
    assert bench.ran == ["look mug"]
    said = [str(content) for _, content in returns(result)]
    assert said[0] == "a mug"
    assert "input_invalid" in said[1] and "itm" in said[1]
    assert "policy_denied" in said[2]


async def test_what_models_may_not_call_is_not_there(tmp_path: Path) -> None:
    async with desk(tmp_path, Bench()) as agent:
        seen: list[str] = []

        def look(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            seen.extend(definition.name for definition in info.function_tools)
            return ModelResponse(parts=[TextPart("done")])

        await agent("unused").run("go", model=FunctionModel(look))
    assert {"look", "sell", "burn"} <= set(seen)
    assert "secret" not in seen


async def test_pictures_arrive_as_pictures(tmp_path: Path) -> None:
    async with desk(tmp_path, Bench()) as agent:
        result = await agent([("picture", {}, "1")], "done").run("go")
    [(_, content)] = returns(result)
    assert content[0] == "here"
    assert isinstance(content[1], BinaryContent) and content[1].data == b"hi"


async def test_a_parked_call_runs_once_when_it_comes_back_approved(tmp_path: Path) -> None:
    bench = Bench()
    async with desk(tmp_path, bench) as agent:
        first = await agent([("sell", {"item": "mug"}, "a")]).run("go")
        assert isinstance(first.output, DeferredToolRequests)
        shown = first.output.metadata["a"]
        assert shown["risk"] and shown["fingerprint"] and shown["args"] == {"item": "mug", "count": 1}
        assert bench.ran == []
        again = await resumed(agent("done"), first)
        assert again.output == "done"
        assert bench.ran == ["sell mug 1"]
        # The same answer sent a second time is an answer to nothing: it asks, and does not run.
        assert isinstance((await resumed(agent("done"), first)).output, DeferredToolRequests)
    assert bench.ran == ["sell mug 1"]


async def test_an_approval_of_a_call_that_was_never_asked_about_asks(tmp_path: Path) -> None:
    bench = Bench()
    async with desk(tmp_path, bench) as agent:
        first = await agent([("sell", {"item": "mug"}, "a")]).run("go")
    async with desk(tmp_path, bench) as agent:  # another session: nothing is parked here
        assert isinstance((await resumed(agent("done"), first)).output, DeferredToolRequests)
    assert bench.ran == []


async def test_other_arguments_than_those_asked_about_ask_again(tmp_path: Path) -> None:
    bench = Bench()
    async with desk(tmp_path, bench) as agent:
        first = await agent([("sell", {"item": "mug"}, "a")]).run("go")
        changed = DeferredToolResults(approvals={"a": ToolApproved(override_args={"item": "mug", "count": 500})})
        second = await resumed(agent("done"), first, changed)
        assert isinstance(second.output, DeferredToolRequests)
        assert second.output.metadata["a"]["args"]["count"] == 500
        assert second.output.metadata["a"]["fingerprint"] != first.output.metadata["a"]["fingerprint"]
    assert bench.ran == []


async def test_an_approval_of_another_fingerprint_asks_again(tmp_path: Path) -> None:
    bench = Bench()
    async with desk(tmp_path, bench) as agent:
        first = await agent([("sell", {"item": "mug"}, "a")]).run("go")
        forged = DeferredToolResults(approvals={"a": True}, metadata={"a": {"fingerprint": "0" * 64}})
        assert isinstance((await resumed(agent("done"), first, forged)).output, DeferredToolRequests)
    assert bench.ran == []


@pytest.mark.parametrize(("yes", "runs"), [(("a", "b"), 2), (("a",), 1), (("b",), 1), ((), 0)])
async def test_identical_calls_are_approved_each_for_itself(tmp_path: Path, yes: tuple[str, ...], runs: int) -> None:
    bench = Bench()
    async with desk(tmp_path, bench) as agent:
        both: list[Call] = [("sell", {"item": "mug"}, "a"), ("sell", {"item": "mug"}, "b")]
        first = await agent(both).run("go")
        assert len(first.output.approvals) == 2
        answers = DeferredToolResults(approvals={ident: ident in yes for ident in ("a", "b")})
        await resumed(agent("done"), first, answers)
    assert len(bench.ran) == runs


async def test_a_parked_call_expires(tmp_path: Path) -> None:
    bench = Bench()
    async with desk(tmp_path, bench, seconds=0.1) as agent:
        first = await agent([("sell", {"item": "mug"}, "a")]).run("go")
        await asyncio.sleep(0.3)
        assert isinstance((await resumed(agent("done"), first)).output, DeferredToolRequests)
    assert bench.ran == []


# The other way: their tools on our path


class Shop:
    def __init__(self) -> None:
        self.ran: list[str] = []

    def toolset(self) -> FunctionToolset[None]:
        made: FunctionToolset[None] = FunctionToolset()

        @made.tool_plain
        def price(item: str, count: int = 1) -> dict[str, int]:
            """The price of an item."""
            self.ran.append("price")
            return {"price": 3 * count}

        @made.tool
        def discount(ctx: RunContext[None], percent: int) -> str:
            if percent > 10 and not ctx.tool_call_approved:
                raise exceptions.ApprovalRequired
            self.ran.append(f"discount {percent}")
            return f"{percent} % off"

        @made.tool_plain(requires_approval=True)
        def close_shop() -> str:
            self.ran.append("close")
            return "closed"

        @made.tool_plain
        def broken(how: str) -> Any:
            match how:
                case "retry":
                    raise exceptions.ModelRetry("say it otherwise")
                case "fail":
                    raise exceptions.ToolFailed("it cannot be done")
                case "defer":
                    raise exceptions.CallDeferred
            return BinaryContent(PIXEL, media_type="image/png")

        return made


@asynccontextmanager
async def shop(tmp_path: Path, *answers: bool) -> AsyncIterator[tuple[Any, Shop, list[str]]]:
    """Their tools in a session whose person allows tools in general, and answers what is asked all the same."""
    ours, asked, left = Shop(), [], list(answers)
    (tmp_path / "project").mkdir()
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("approval: {default: preApproved}\n")

    def answer(request: Any) -> dict[str, Any]:
        asked.append(request.tool)
        return {"approved": left.pop(0)}

    toolset = ours.toolset()
    async with toolset:
        tools = await from_toolset(toolset)
        async with open_session(
            tmp_path / "project", tools=tools, toolsets={}, approval_callback=answer, home=home
        ) as session:
            yield session, ours, asked


async def test_their_tools_are_checked_and_run_as_ours(tmp_path: Path) -> None:
    async with shop(tmp_path) as (session, ours, _):
        good = await session.call("price", {"item": "mug", "count": 2})
        bad = await session.call("price", {"item": 7})
        unknown = await session.call("price", {"item": "mug", "cuont": 2})
    assert good.status is Status.SUCCESS and good.result.value["data"] == {"price": 6}
    assert bad.status is Status.INPUT_INVALID and "item" in bad.error
    assert unknown.status is Status.INPUT_INVALID
    assert ours.ran == ["price"]


async def test_their_tools_ask_unless_somebody_allowed_them(tmp_path: Path) -> None:
    ours, asked = Shop(), []

    def answer(request: Any) -> dict[str, Any]:
        asked.append(request.tool)
        return {"approved": False}

    (tmp_path / "project").mkdir()
    tools = await from_toolset(ours.toolset())
    opened = open_session(
        tmp_path / "project", tools=tools, toolsets={}, approval_callback=answer, home=tmp_path / "home"
    )
    async with opened as session:
        outcome = await session.call("price", {"item": "mug"})
    assert outcome.status is Status.APPROVAL_DENIED
    assert asked == ["price"] and ours.ran == []


async def test_their_approval_required_is_our_ask(tmp_path: Path) -> None:
    async with shop(tmp_path, True, False) as (session, ours, asked):
        small = await session.call("discount", {"percent": 5})
        yes = await session.call("discount", {"percent": 50})
        no = await session.call("discount", {"percent": 60})
    assert (small.status, yes.status, no.status) == (Status.SUCCESS, Status.SUCCESS, Status.APPROVAL_DENIED)
    assert yes.text == "50 % off"
    assert asked == ["discount", "discount"]
    assert ours.ran == ["discount 5", "discount 50"]


async def test_a_tool_marked_by_them_always_asks(tmp_path: Path) -> None:
    async with shop(tmp_path, False, True) as (session, ours, asked):
        no = await session.call("close_shop", {})
        yes = await session.call("close_shop", {})
    assert (no.status, yes.status) == (Status.APPROVAL_DENIED, Status.SUCCESS)
    assert asked == ["close_shop", "close_shop"] and ours.ran == ["close"]


@pytest.mark.parametrize(
    ("how", "words"), [("retry", "say it otherwise"), ("fail", "it cannot be done"), ("defer", "elsewhere")]
)
async def test_their_failures_are_outcomes(tmp_path: Path, how: str, words: str) -> None:
    async with shop(tmp_path) as (session, _, _):
        outcome = await session.call("broken", {"how": how})
    assert outcome.status is Status.EXECUTION_FAILED
    assert words in outcome.text


async def test_their_pictures_are_ours(tmp_path: Path) -> None:
    import base64

    async with shop(tmp_path) as (session, _, _):
        outcome = await session.call("broken", {"how": ""})
    assert outcome.ok
    [block] = outcome.result.content
    assert block["mimeType"] == "image/png" and base64.b64decode(block["data"]) == PIXEL
