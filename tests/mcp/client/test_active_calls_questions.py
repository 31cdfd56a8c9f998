"""Whose question it is: asked where its call was made, and never of one client about the call of another."""

from __future__ import annotations

import asyncio
import json
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
from tests.mcp.conftest import Ground
from tests.mcp.pools import Rig, pooled

from golem_forge.mcp.client.active_calls import (
    ActiveCall,
    RequestRefused,
    answering_client,
    call_for_question,
    call_in_progress,
)
from golem_forge.mcp.client.model import ElicitationForm, FormAnswer
from golem_forge.tools.context import ToolContext

_who: ContextVar[str] = ContextVar("who", default="nobody")
ASK = {
    "method": "elicitation/create",
    "params": {
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]},
    },
}


def flight_for(client: object) -> ActiveCall:
    def made() -> ActiveCall:
        answering_client.set(client)
        return ActiveCall(ToolContext(), "tool")

    return copy_context().run(made)


def test_of_several_calls_of_one_client_the_latest() -> None:
    client = object()
    first, second = flight_for(client), flight_for(client)
    assert call_for_question(()) is None
    assert call_for_question((first, second)) is second


def test_of_calls_of_two_clients_the_one_it_arrives_in_or_none() -> None:
    first, second = flight_for("ada"), flight_for("bob")
    with pytest.raises(RequestRefused, match="several clients"):
        call_for_question((first, second))
    with call_in_progress(first):
        assert call_for_question((first, second)) is first


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_question_is_asked_in_the_context_of_its_call(ground: Ground, era: str) -> None:
    """Not in that of the call which happened to open the connection."""

    async def ask(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        return FormAnswer(action="accept", values={"who": f"{_who.get()} of {ctx.worker}"})

    async def calls_as(rig: Rig, name: str) -> Any:
        _who.set(name)
        done = await rig.call("asker", "ask", ToolContext(worker="main/coder"), **ASK)
        return json.loads(done.result.text)[0]["content"]["who"]

    async with pooled(ground, ground.spec("asker", "asker.py", era), ask_form=ask) as rig:
        said = [await asyncio.create_task(calls_as(rig, name)) for name in ("ada", "bob")]
    assert said == ["ada of main/coder", "bob of main/coder"]
