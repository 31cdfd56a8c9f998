"""Servers that ask during a call, as real processes, in both eras: whose call it is, who may be asked, and when."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.mcp.conftest import Ground
from tests.mcp.pools import Rig, logged, pooled, until

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.signals import InterruptSignal
from golem_forge.mcp.client.active_calls import ServerRequests, list_roots
from golem_forge.mcp.client.model import ElicitationForm, FormAnswer, Hooks, SamplingAnswer, SamplingRequest
from golem_forge.tools.context import ToolContext

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


class Undecided:
    """Somebody who never answers a form, and sees whether it is withdrawn."""

    def __init__(self) -> None:
        self.asked, self.withdrawn = asyncio.Event(), asyncio.Event()

    async def __call__(self, form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        self.asked.set()
        try:
            await asyncio.sleep(30)
        finally:
            self.withdrawn.set()
        return FormAnswer()


@ERAS
async def test_a_secret_typed_into_a_servers_form_is_taken_out_of_what_it_says_afterwards(
    ground: Ground, era: str
) -> None:
    async def person(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        return FormAnswer(action="accept", values={"pass": "canary-pass-1", "api_key": "canary-key-22", "city": "Rome"})

    properties: dict[str, Any] = {name: {"type": "string"} for name in ("pass", "api_key", "city")}
    properties["pass"]["format"] = "password"
    asked = {"message": "Log in", "requestedSchema": {"type": "object", "properties": properties}}
    rigs: list[Rig] = []

    def walls(spec: ServerSpec) -> Any:
        return ground.walls(spec, redactor=rigs[0].redactor)

    async with pooled(ground, asker(ground, era), ask_form=person, walls_for=walls) as rig:
        rigs.append(rig)
        [said] = await answers(rig, "elicitation/create", asked)
    assert said["content"] == {"pass": "[secret asker]", "api_key": "[secret asker]", "city": "Rome"}


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
            before = len(logged(ground, "asked"))
            over = ground.workspace / f"{method.partition('/')[0]}-over"
            await rig.call("asker", "unbidden", method=method, params=params, until=f"/workspace/{over.name}")
            over.touch()
            await until(lambda before=before: len(logged(ground, "asked")) > before + (before == 0))
    elicited, sampled, roots = logged(ground, "asked")[1:]
    assert elicited["error"]["message"] == "elicitation is answered only during a call"
    assert sampled["error"]["message"] == "sampling is answered only during a call"
    assert roots["roots"] and not asked


@ERAS
async def test_an_interrupt_withdraws_the_question(ground: Ground, era: str) -> None:
    person, signal = Undecided(), InterruptSignal()
    async with pooled(ground, asker(ground, era), ask_form=person) as rig, asyncio.timeout(PATIENCE):
        question = {"mode": "form", **ONE_FIELD}
        call = asyncio.create_task(answers(rig, "elicitation/create", question, ToolContext(cancel=signal)))
        await person.asked.wait()
        signal.interrupt()
        assert "interrupted" in await call
        await person.withdrawn.wait()


async def test_a_question_does_not_outlive_its_call(ground: Ground) -> None:
    person = Undecided()
    async with pooled(ground, asker(ground), ask_form=person) as rig, asyncio.timeout(PATIENCE):
        first = "/workspace/asked-for"  # it answers once there is such a file
        call = asyncio.create_task(answers(rig, "elicitation/create", ONE_FIELD, answer_first=first))
        await person.asked.wait()
        (ground.workspace / "asked-for").touch()
        assert await call == "was not waited for"
        await person.withdrawn.wait()


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


def _words(text: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}
