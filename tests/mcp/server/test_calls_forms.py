"""A form of a proxied server goes to the client whose call it is, in both eras; else it is `cancel`."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import ElicitResult

from golem_forge.core.errors import ToolFailed
from golem_forge.mcp.client.model import ElicitationForm
from golem_forge.tools.context import ToolContext

from .conftest import MODES, Served, Serving
from .wire import Wire

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
}


def place(served: Served, *forms: ElicitationForm) -> list[str]:
    """A tool that asks as the pool would on behalf of a server."""
    entered: list[str] = []

    async def proxied(args: dict[str, Any], ctx: ToolContext) -> str:
        entered.append(ctx.call_id)
        answers = [await served.host.calls.ask_form(form, ctx) for form in forms]
        if not answers:
            raise ToolFailed("nothing asked")
        return "; ".join(f"{answer.action} {dict(answer.values)}" for answer in answers)

    served.add("demo__asks", proxied)
    return entered


@pytest.mark.parametrize("mode", MODES)
async def test_answered_while_it_runs_and_run_once(serving: Serving, mode: str) -> None:
    asked: list[Any] = []

    async def person(context: Any, params: Any) -> ElicitResult:
        asked.append(params)
        if len(asked) == 1:
            return ElicitResult(action="accept", content={"name": "Ada", "age": 36})
        return ElicitResult(action="decline")

    async with serving() as served, served.client(mode, elicitation_callback=person) as client:
        first = ElicitationForm(server="demo", message="Who?", schema=SCHEMA)
        entered = place(served, first, ElicitationForm(server="demo", message="Sure?", schema=SCHEMA))
        result = await client.call_tool("demo__asks", {})
        assert result.content[0].text == "accept {'name': 'Ada', 'age': 36}; decline {}"
        assert [each.message for each in asked] == ["demo: Who?", "demo: Sure?"]
        assert asked[0].requested_schema == SCHEMA
        assert len(entered) == 1


async def test_2026_07_28_is_asked_under_the_servers_own_name_for_the_question(serving: Serving) -> None:
    async with serving() as served:
        place(served, ElicitationForm(server="demo", message="Who?", schema=SCHEMA, key="who"))
        wire = Wire(served.url, served.token)
        first = await wire.send("tools/call", {"name": "demo__asks", "arguments": {}})
        assert list(first["inputRequests"]) == ["who"]
        given = {"requestState": first["requestState"], "inputResponses": {"who": {"action": "decline"}}}
        done = await wire.send("tools/call", {"name": "demo__asks", "arguments": {}, **given})
        assert done["content"][0]["text"] == "decline {}"


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_cannot_answer_cancels(serving: Serving, mode: str) -> None:
    async with serving() as served, served.client(mode) as client:
        place(served, ElicitationForm(server="demo", message="Who?", schema=SCHEMA))
        assert (await client.call_tool("demo__asks", {})).content[0].text == "cancel {}"


async def test_no_call_nobody_to_ask(serving: Serving) -> None:
    async with serving() as served:
        answer = await served.host.calls.ask_form(
            ElicitationForm(server="demo", message="Who?"), ToolContext(call_id="none")
        )
        assert answer.action == "cancel"
