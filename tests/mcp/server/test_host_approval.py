"""Approval by a client's person: asked once, counted once, for this call of this client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp_types import ElicitResult
from tests.mcp.pools import until

from golem_forge.config.run_block import ApprovalMode
from golem_forge.tools.context import ToolContext

from .conftest import MODES, Serving
from .test_calls import first_line
from .wire import Wire


class Person:
    """Answers forms from a list; the last answer repeats."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.seen: list[Any] = []
        self._answers = answers

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.seen.append(params)
        return self._answers[min(len(self.seen), len(self._answers)) - 1]


def yes(**more: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"approve": True, **more})


NO = ElicitResult(action="decline")


@pytest.mark.parametrize("mode", MODES)
class TestAsked:
    async def test_no_runs_nothing(self, serving: Serving, mode: str) -> None:
        """Nor does a yes that does not say so."""
        answers = (NO, *(ElicitResult(action="accept", content=content) for content in ({"approve": False}, {})))
        async with serving() as served, served.client(mode, elicitation_callback=Person(*answers)) as client:
            for _ in answers:
                result = await client.call_tool("asks", {"x": 7})
                assert result.is_error and first_line(result) == "approval_denied: Denied by the user."
            assert served.ran.calls == []

    async def test_dismissed_runs_nothing_and_is_no_denial(self, serving: Serving, mode: str) -> None:
        person = Person(ElicitResult(action="cancel"), yes())
        async with serving() as served, served.client(mode, elicitation_callback=person) as client:
            result = await client.call_tool("asks", {"x": 7})
            assert first_line(result) == "approval_denied: The question was not answered; the call was not run."
            await client.call_tool("asks", {"x": 7})
            assert "Denied before" not in person.seen[1].message
            assert served.ran.calls == [("asks", {"x": 7})]

    async def test_a_write_kept_for_the_session_is_kept_for_nobody_else(self, serving: Serving, mode: str) -> None:
        """A choice that would make a rule would be everybody's."""
        anna, bert = Person(yes(remember="session")), Person(NO)
        async with serving() as served:
            other = served.tokens.create("bert")
            async with (
                served.client(mode, elicitation_callback=anna) as first,
                served.client(mode, other, elicitation_callback=bert) as second,
            ):
                await first.call_tool("delete_file", {"path": "/workspace/none.txt"})
                served.work.joinpath("b.txt").write_text("b")
                assert not (await first.call_tool("delete_file", {"path": "/workspace/b.txt"})).is_error
                served.work.joinpath("b.txt").write_text("b")
                assert (await second.call_tool("delete_file", {"path": "/workspace/b.txt"})).is_error
                assert served.work.joinpath("b.txt").exists()
                assert len(bert.seen) == 1

    async def test_a_tool_called_by_a_tool_asks_the_same_person(self, serving: Serving, mode: str) -> None:
        outer: list[str] = []

        async def calls(args: dict[str, Any], ctx: ToolContext) -> str:
            outer.append("in")
            inner = [await ctx.call("asks", {"x": number}) for number in (1, 2)]
            return " ".join(each.status.value for each in inner)

        person = Person(yes(), NO)
        async with serving() as served:
            served.add("calls", calls)
            async with served.client(mode, elicitation_callback=person) as client:
                result = await client.call_tool("calls", {})
        assert result.content[0].text == "success approval_denied"
        assert outer == ["in"]
        assert served.ran.calls == [("asks", {"x": 1})]

    @pytest.mark.parametrize(("how", "runs"), [(ApprovalMode.APPROVE_ALL, 1), (ApprovalMode.AUTO_DENY, 0)])
    async def test_modes_that_ask_nobody(self, serving: Serving, mode: str, how: ApprovalMode, runs: int) -> None:
        person = Person(yes())
        async with serving(mode=how) as served, served.client(mode, elicitation_callback=person) as client:
            await client.call_tool("asks", {"x": 1})
            assert len(served.ran.calls) == runs and person.seen == []


class TestSealed:
    """2026-07-28, spoken by hand: what a careless or hostile client may try."""

    async def test_the_state_is_good_once_for_this_call_of_this_client(self, serving: Serving) -> None:
        async with serving() as served:
            wire, other = Wire(served.url, served.token), Wire(served.url, served.tokens.create("other"))
            first = await wire.call("asks", {"x": 1})
            assert first["resultType"] == "input_required" and served.ran.calls == []
            state = first["requestState"]

            for who, args in ((wire, {"x": 2}), (other, {"x": 1})):
                again = await who.call("asks", args, state=state, answer={"approve": True})
                assert again["resultType"] == "input_required" and again["requestState"] != state
            assert served.ran.calls == []

            done = await wire.call("asks", {"x": 1}, state=state, answer={"approve": True})
            assert done["resultType"] == "complete" and served.ran.calls == [("asks", {"x": 1})]

            twice = await wire.call("asks", {"x": 1}, state=state, answer={"approve": True})
            assert twice["resultType"] == "input_required" and len(served.ran.calls) == 1

    async def test_a_bent_state_is_refused(self, serving: Serving) -> None:
        async with serving() as served:
            wire = Wire(served.url, served.token)
            state = (await wire.call("asks", {"x": 1}))["requestState"]
            for bent in (f"{state}-TAMPERED", "x", f"{state.split('.')[0]}.", "é" * 4000):
                given = {"requestState": bent, "inputResponses": {"forge": {"action": "accept", "content": {}}}}
                refused = await wire.message("tools/call", {"name": "asks", "arguments": {"x": 1}, **given})
                assert refused["error"]["code"] == -32602 and "requestState" in refused["error"]["message"]
            assert served.ran.calls == []

    async def test_coming_back_without_an_answer_asks_the_same_again(self, serving: Serving) -> None:
        async with serving() as served:
            wire = Wire(served.url, served.token)
            state = (await wire.call("asks", {"x": 1}))["requestState"]
            again = await wire.call("asks", {"x": 1}, state=state)
            assert again["resultType"] == "input_required" and served.ran.calls == []
            done = await wire.call("asks", {"x": 1}, state=again["requestState"], answer={"approve": True})
            assert done["resultType"] == "complete" and len(served.ran.calls) == 1

    async def test_two_at_once_with_one_state_run_once(self, serving: Serving) -> None:
        async with serving() as served:
            wire = Wire(served.url, served.token)
            state = (await wire.call("asks", {"x": 1}))["requestState"]
            came = await asyncio.gather(
                *(wire.call("asks", {"x": 1}, state=state, answer={"approve": True}) for _ in range(5))
            )
            assert sorted(each["resultType"] for each in came) == ["complete", *["input_required"] * 4]
            assert len(served.ran.calls) == 1

    async def test_identical_first_attempts_share_no_answer(self, serving: Serving) -> None:
        async with serving() as served:
            wire = Wire(served.url, served.token)
            came = await asyncio.gather(*(wire.call("asks", {"x": 1}) for _ in range(3)))
            assert len({each["requestState"] for each in came}) == 3
            await wire.call("asks", {"x": 1}, state=came[1]["requestState"], answer={"approve": True})
            assert len(served.ran.calls) == 1

    async def test_calls_nobody_comes_back_for_are_given_up(self, serving: Serving) -> None:
        async with serving() as served:
            wire = Wire(served.url, served.token)
            states = [(await wire.call("asks", {"x": number}))["requestState"] for number in range(34)]
            await until(lambda: len(served.host.calls) == 32)
            late = await wire.call("asks", {"x": 0}, state=states[0], answer={"approve": True})
            assert late["resultType"] == "input_required" and served.ran.calls == []
