"""Servers that ask during a call, as real processes, in both eras: whose call it is, who may be asked, and when."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.signals import InterruptSignal
from golem_forge.mcp.client.hooks import ElicitationForm, FormAnswer, SamplingAnswer, SamplingRequest
from golem_forge.mcp.client.server_requests import list_roots
from golem_forge.tools.context import ToolContext

from .conftest import Ground
from .loop_time import LoopTime
from .pools import Rig, pooled, until

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
ONE_FIELD = {
    "message": "Which city?",
    "requestedSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def asker(ground: Ground, era: str = "legacy", **keys: Any) -> Any:
    return ground.spec("asker", "asker.py", era, env={"ASKER_LOG": "/workspace/asked"}, **keys)


async def answers(rig: Rig, method: str, params: Any, ctx: ToolContext | None = None, **more: Any) -> Any:
    done = await rig.call("asker", "ask", ctx, method=method, params=params, **more)
    return json.loads(done.result.text) if done.status is Status.SUCCESS else done.error


def noted(ground: Ground) -> list[Any]:
    file = ground.workspace / "asked"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@ERAS
async def test_a_form_is_asked_on_behalf_of_the_call_and_its_values_come_back(ground: Ground, era: str) -> None:
    asked: list[tuple[ElicitationForm, str]] = []

    async def ask(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        asked.append((form, ctx.worker))
        return FormAnswer(action="accept", values={"city": "Bern"})

    async with pooled(ground, asker(ground, era), ask_form=ask) as rig:
        said = await answers(rig, "elicitation/create", {"mode": "form", **ONE_FIELD}, ToolContext(worker="main/coder"))
    assert said == [{"action": "accept", "content": {"city": "Bern"}}]
    (form, worker) = asked[0]
    assert (form.server, form.message, worker) == ("asker", "Which city?", "main/coder")
    assert [field["name"] for field in form.fields] == ["city"]


@ERAS
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_refusing_and_dismissing_are_told_apart(ground: Ground, era: str, action: str) -> None:
    async def ask(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        return FormAnswer(action=action)

    async with pooled(ground, asker(ground, era), ask_form=ask) as rig:
        assert await answers(rig, "elicitation/create", {"mode": "form", **ONE_FIELD}) == [{"action": action}]


async def test_where_nobody_is_the_answer_is_cancel(ground: Ground) -> None:
    async with pooled(ground, asker(ground)) as rig:
        assert await answers(rig, "elicitation/create", ONE_FIELD) == [{"action": "cancel"}]


async def test_roots_are_the_zones_as_they_stand_inside_the_walls(ground: Ground) -> None:
    spec = asker(ground)
    async with pooled(ground, spec) as rig:
        said = await answers(rig, "roots/list", {})
        places = {zone: ground.walls(spec).mount_point(zone, await ground.walls(spec).level()) for zone in spec.zones}
    given = (await list_roots(spec, ground.hooks())).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert given["roots"] == [{"name": zone, "uri": f"file://{place}"} for zone, place in places.items()]
    assert said == [{"roots": [{"name": zone, "uri": f"file:///{zone}"} for zone in places]}], "as a caller reads it"
    assert set(places) == {"workspace", "programs"} and all(places.values())


async def test_a_server_over_http_has_no_roots() -> None:
    from golem_forge.config.mcp_spec import ServerSpec
    from golem_forge.mcp.client.hooks import Hooks
    from golem_forge.mcp.client.server_requests import ServerRequests

    spec = ServerSpec(
        name="far", scope="", origin="forge.yaml:1", url="https://far.test/mcp", zones={"workspace": "ro"}
    )
    context: Any = None
    assert (await ServerRequests(spec, Hooks(), tuple).roots(context)).model_dump()["roots"] == []


async def test_without_a_call_questions_are_errors_and_roots_are_answered(ground: Ground) -> None:
    asked: list[ElicitationForm] = []

    async def ask(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        asked.append(form)
        return FormAnswer(action="accept", values={"city": "Bern"})

    async with pooled(ground, asker(ground), ask_form=ask) as rig:
        for method, params in (
            ("elicitation/create", ONE_FIELD),
            ("sampling/createMessage", {"messages": [_words("hi")], "maxTokens": 5}),
            ("roots/list", {}),
        ):
            before = len(noted(ground))
            await rig.call("asker", "unbidden", method=method, params=params)
            await until(lambda before=before: len(noted(ground)) > before + (before == 0))
    elicited, sampled, roots = noted(ground)[1:]
    assert elicited["error"]["message"] == "elicitation is answered only during a call"
    assert sampled["error"]["message"] == "sampling is answered only during a call"
    assert roots["roots"] and not asked


async def test_the_clocks_stand_still_while_a_person_thinks(ground: Ground, loop_time: LoopTime) -> None:
    async def ask(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        loop_time.skip(100)
        await asyncio.sleep(0.1)
        return FormAnswer(action="decline")

    spec = asker(ground, idle_timeout=20, total_timeout=30)
    async with pooled(ground, spec, ask_form=ask) as rig:
        assert await answers(rig, "elicitation/create", ONE_FIELD) == [{"action": "decline"}]


@ERAS
async def test_an_interrupt_withdraws_the_question(ground: Ground, era: str) -> None:
    withdrawn = asyncio.Event()
    open_ = asyncio.Event()

    async def ask(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        open_.set()
        try:
            await asyncio.sleep(30)
        finally:
            withdrawn.set()
        return FormAnswer()

    signal = InterruptSignal()
    async with pooled(ground, asker(ground, era), ask_form=ask) as rig:
        await rig.pool.wait_connected("asker")
        question = {"mode": "form", **ONE_FIELD}
        call = asyncio.create_task(answers(rig, "elicitation/create", question, ToolContext(cancel=signal)))
        async with asyncio.timeout(20):
            await open_.wait()
            signal.interrupt()
            assert "interrupted" in await call
            await withdrawn.wait()


async def test_a_question_does_not_outlive_its_call(ground: Ground) -> None:
    withdrawn = asyncio.Event()

    async def ask(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        try:
            await asyncio.sleep(30)
        finally:
            withdrawn.set()
        return FormAnswer()

    async with pooled(ground, asker(ground), ask_form=ask) as rig, asyncio.timeout(20):
        said = await answers(rig, "elicitation/create", ONE_FIELD, answer_first=True)
        assert said == "was not waited for"
        await withdrawn.wait()


async def test_a_server_cannot_ask_without_end(ground: Ground) -> None:
    asked = 0

    async def ask(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        nonlocal asked
        asked += 1
        return FormAnswer(action="decline")

    async with pooled(ground, asker(ground), ask_form=ask) as rig:
        said = await answers(rig, "elicitation/create", ONE_FIELD, times=22)
    assert asked == 20
    assert [one.get("action", "error") for one in said] == ["decline"] * 20 + ["error"] * 2


@ERAS
async def test_sampling_goes_to_the_model_and_five_times_at_most(ground: Ground, era: str) -> None:
    asked: list[SamplingRequest] = []

    async def sample(request: SamplingRequest, ctx: ToolContext) -> SamplingAnswer:
        asked.append(request)
        return SamplingAnswer(text="four", model="test:one")

    params = {"messages": [_words("2+2?")], "maxTokens": 100_000, "systemPrompt": "Count."}
    async with pooled(ground, asker(ground, era), sample=sample) as rig:
        said = await answers(rig, "sampling/createMessage", params, times=6)
    answer = {"role": "assistant", "content": {"type": "text", "text": "four"}, "model": "test:one"}
    if era == "legacy":
        assert said[:5] == [{**answer, "stopReason": "endTurn"}] * 5
        assert said[5]["error"]["message"] == "more than 5 sampling requests during one call"
    else:  # a question inside a result has no error answer of its own: the call ends with it
        assert "more than 5 sampling requests during one call" in said
    assert len(asked) == 5 and asked[0].max_tokens == 4096
    assert (asked[0].server, asked[0].system_prompt, asked[0].verdict) == ("asker", "Count.", Verdict.ASK)
    assert list(asked[0].messages) == [{"role": "user", "content": {"type": "text", "text": "2+2?"}}]


async def test_a_refused_sampling_is_an_error_for_the_server(ground: Ground) -> None:
    async def sample(request: SamplingRequest, ctx: ToolContext) -> SamplingAnswer:
        return SamplingAnswer(refused="the person refused it")

    params = {"messages": [_words("hi")], "maxTokens": 5}
    async with pooled(ground, asker(ground), sample=sample) as rig:
        said = await answers(rig, "sampling/createMessage", params)
    assert said == [{"error": {"code": -1, "message": "User rejected sampling request: the person refused it"}}]


@ERAS
@pytest.mark.parametrize("verdict", list(Verdict))
async def test_blocked_sampling_is_not_declared(ground: Ground, era: str, verdict: Verdict) -> None:
    async with pooled(ground, asker(ground, era, sampling=verdict)) as rig:
        await rig.pool.wait_connected("asker")
        declared = noted(ground)[0]
    assert ("sampling" in declared) is (verdict is not Verdict.BLOCKED)
    assert "elicitation" in declared and "roots" in declared


def _words(text: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}
