"""What a tool of a served session asks its client, and clients that answer badly, too much or never."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import mcp_types as types
import pytest
from tests.deadlines import PATIENCE

from golem_forge.cli.mcp.serve import SessionHost
from golem_forge.core.errors import ToolFailed
from golem_forge.tools.context import ToolContext

from .conftest import MODES, Served, Serving

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of answers that are wrong
SECRET = "canary-secret-4711"
NAME = {"type": "object", "properties": {"name": {"type": "string", "default": SECRET, "description": SECRET}}}


def said(content: Any, **more: Any) -> Any:
    """As a client may send it, right or wrong."""
    return types.CreateMessageResult.model_construct(role="assistant", content=content, model="theirs", **more)


def add_asking(served: Served, asks: Callable[[ToolContext], Any]) -> None:
    """The tool `asking`: what it was answered, or why it was not."""

    async def execute(args: Any, ctx: ToolContext) -> str:
        try:
            return str(await asks(ctx))
        except ToolFailed as error:
            return f"failed: {error.message}"

    served.add("asking", execute)


@pytest.mark.parametrize("mode", MODES)
async def test_a_secret_that_a_tool_says_does_not_reach_the_client_or_its_model(serving: Serving, mode: str) -> None:
    asked: list[Any] = []

    async def form(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def model(context: Any, params: Any) -> Any:
        asked.append(params)
        return said(types.TextContent(type="text", text="fine"))

    async def both(ctx: ToolContext) -> str:
        name = (await ctx.ask(f"Is {SECRET} yours?", NAME)).values["name"]
        return f"{name} {(await ctx.sample(f'Tell {SECRET}', system=f'Keep {SECRET}')).text}"

    async with serving(hosted=SessionHost) as served:
        served.host.redactor.add_secret("TOKEN", SECRET)
        add_asking(served, both)
        async with served.client(mode, elicitation_callback=form, sampling_callback=model) as client:
            assert (await client.call_tool("asking", {})).content[0].text == "Ada fine"
    told = " ".join(each.model_dump_json() for each in asked)
    assert len(asked) == 2 and "yours?" in told and "Keep" in told
    assert SECRET not in told


async def test_a_bad_answer_of_a_clients_model_fails_that_question_alone(serving: Serving) -> None:
    of_no_kind, too_large = {"type": "hologram", "depth": 3}, {"type": "text", "text": "y" * 900_000}
    contents: list[Any] = []

    async def model(context: Any, params: Any) -> Any:
        return said(contents[-1])

    async with serving(hosted=SessionHost) as served:
        add_asking(served, lambda ctx: ctx.sample("Hello"))
        async with served.client("legacy", sampling_callback=model) as client:
            for content, why in ((of_no_kind, "gave no answer"), (None, "gave no answer"), (too_large, "too large")):
                contents.append(content)
                answered = (await client.call_tool("asking", {})).content[0].text
                assert answered.startswith("failed: ") and why in answered
                assert (await client.call_tool("free", {"x": 1})).structured_content == {"got": 1}


async def test_roots_are_addresses_of_files_and_bounded(serving: Serving) -> None:
    told: list[str] = []

    async def roots(context: Any) -> Any:
        return types.ListRootsResult.model_construct(roots=[types.Root.model_construct(uri=each) for each in told])

    async def addresses(ctx: ToolContext) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    async with serving(hosted=SessionHost) as served:
        add_asking(served, addresses)
        for given, seen in (
            (["file:///a b", "file:///x\n\x1b[31m"], "['file:///a%20b', 'file:///x%1B[31m']"),
            (["https://evil.example/"], "failed: The client did not list its roots."),
            ([""], "failed: The client did not list its roots."),
            ([f"file:///r{number}" for number in range(1000)], str([f"file:///r{number}" for number in range(100)])),
        ):
            told[:] = given
            async with served.client("legacy", list_roots_callback=roots) as client:
                assert (await client.call_tool("asking", {})).content[0].text == seen


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_question_that_is_never_answered_ends_with_its_call_or_its_client(
    serving: Serving, leaves: bool
) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def never(context: Any, params: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async def waits(ctx: ToolContext) -> Any:
        try:
            return await ctx.ask("Who?", NAME)
        finally:
            ended.set()

    async with serving(hosted=SessionHost) as served:
        add_asking(served, waits)
        async with asyncio.timeout(PATIENCE):
            async with served.client("legacy", elicitation_callback=never) as client:
                call = asyncio.create_task(client.call_tool("asking", {}))
                await asked.wait()
                if not leaves:
                    call.cancel()
                    await ended.wait()
                    assert (await client.call_tool("free", {"x": 1})).structured_content == {"got": 1}
            await ended.wait()
            call.cancel()
            while len(served.host.calls):
                await asyncio.sleep(0.05)
