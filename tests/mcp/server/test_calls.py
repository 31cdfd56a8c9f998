"""Calls of foreign clients, in both eras: what runs, what does not, and what they are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult
from tests.deadlines import PATIENCE
from tests.mcp.pools import until

from golem_forge.core.results import ToolResult, from_mcp
from golem_forge.mcp.server import host
from golem_forge.mcp.server.calls import OUTCOME_KEY
from golem_forge.tools.context import ToolContext

from .conftest import MODES, Serving

pytestmark = pytest.mark.parametrize("mode", MODES)


def first_line(result: Any) -> str:
    return str(result.content[0].text.splitlines()[0])


async def test_a_call_runs_once_and_says_what_became_of_it(serving: Serving, mode: str) -> None:
    async with serving() as served, served.client(mode) as client:
        result = await client.call_tool("free", {"x": 3})
        assert result.structured_content == {"got": 3}
        assert not result.is_error
        told = result.meta[OUTCOME_KEY]
        assert told["status"] == "success" and told["callId"] and told["durationMs"] >= 0
        assert served.ran.calls == [("free", {"x": 3})]


async def test_kinds_survive_the_wire(serving: Serving, mode: str) -> None:
    value = {"kind": "file_content", "path": "/workspace/a.txt", "content": "hello\n", "total_lines": 1}
    made = ToolResult(value=value, text="L1: hello")

    async def execute(args: dict[str, Any]) -> ToolResult:
        return made

    async with serving() as served:
        served.add("shows", execute)
        async with served.client(mode) as client:
            result = await client.call_tool("shows", {})
        message = result.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"result_type"})
        message.pop("isError")
        message["_meta"] = {key: value for key, value in message["_meta"].items() if key.endswith("/result")}
        if not message["_meta"]:
            del message["_meta"]
        assert from_mcp(message) == made


async def test_progress_reaches_a_client_that_wants_it_and_only_that(serving: Serving, mode: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))

    async def stepwise(args: dict[str, Any], ctx: ToolContext) -> None:
        """Of two that come before the first is sent, only the second is."""
        for step in range(1, 5):
            ctx.report_progress(step, 4, f"step {step}")
            await until(lambda step=step: len(seen) == step)

    async with serving() as served, served.client(mode) as client:
        served.add("stepwise", stepwise)
        await client.call_tool("stepwise", {}, progress_callback=progress)
        assert [each[0] for each in seen] == [1, 2, 3, 4]
        assert seen[-1] == (4, 4, "step 4")
        assert not (await client.call_tool("slow", {"x": 1})).is_error
        assert len(seen) == 4


async def test_calls_run_side_by_side(serving: Serving, mode: str) -> None:
    met = asyncio.Barrier(3)

    async def meets(args: dict[str, Any]) -> str:
        async with asyncio.timeout(PATIENCE):
            await met.wait()
        return "met"

    async with serving() as served:
        served.add("meets", meets, read_only=True)
        async with served.client(mode) as client:
            results = await asyncio.gather(*(client.call_tool("meets", {}) for _ in range(3)))
        assert [result.content[0].text for result in results] == ["met"] * 3


async def test_a_call_that_its_client_cancels_ends_and_the_next_one_runs(serving: Serving, mode: str) -> None:
    async with serving() as served, served.client(mode) as client:
        call = asyncio.create_task(client.call_tool("slow", {"x": 600}))
        await until(lambda: len(served.host.calls) == 1)
        call.cancel()
        await until(lambda: len(served.host.calls) == 0)
        assert not (await client.call_tool("free", {"x": 1})).is_error


async def test_long_output_names_a_resource_that_only_this_client_can_read(serving: Serving, mode: str) -> None:
    async with serving() as served, served.client(mode) as client:
        result = await client.call_tool("long", {"x": 20_000})
        text = result.content[0].text
        assert len(text) < 40_000
        uri = next(word for word in text.split() if word.startswith("forge://output/"))
        assert [str(each.uri) for each in (await client.list_resources()).resources] == [uri]
        whole = (await client.read_resource(uri)).contents[0].text
        assert whole.splitlines() == [f"line {number}" for number in range(20_000)]
        async with served.client(mode, served.tokens.create("other")) as stranger:
            assert (await stranger.list_resources()).resources == []
            with pytest.raises(MCPError, match="not found"):
                await stranger.read_resource(uri)


async def test_an_unforeseen_error_tells_no_secrets(
    serving: Serving, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as served, served.client(mode) as client:

        def broken() -> None:
            raise OSError("/root/canary/path")

        monkeypatch.setattr(served.host, "admit", lambda facts: broken())
        with pytest.raises(MCPError) as error:
            await client.call_tool("free", {"x": 1})
        assert error.value.error.message == "Internal error (OSError)"


async def test_a_question_nobody_answers_in_time_is_no_yes(
    serving: Serving, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "ANSWER_SECONDS", 0.2)

    async def slow_person(context: Any, params: Any) -> ElicitResult:
        await asyncio.sleep(0.6)
        return ElicitResult(action="accept", content={"approve": True})

    async with serving() as served, served.client(mode, elicitation_callback=slow_person) as client:
        result = await client.call_tool("asks", {"x": 1})
        assert first_line(result) == "approval_denied: The question was not answered; the call was not run."
        assert served.ran.calls == []
