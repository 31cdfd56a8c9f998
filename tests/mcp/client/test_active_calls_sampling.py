"""What a server may ask of the worker's model: bounded, without tools, without anything of others."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.decisions import Verdict
from golem_forge.mcp import sdk
from golem_forge.mcp.client.active_calls import ActiveCall, ServerRequests
from golem_forge.mcp.client.model import Hooks, SamplingAnswer, SamplingRequest
from golem_forge.tools.context import ToolContext

CONTEXT: Any = None


def words(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text, **more}}


async def sampled(seen: list[SamplingRequest], verdict: Verdict = Verdict.ASK, **params: Any) -> Any:
    async def sample(request: SamplingRequest, ctx: ToolContext) -> SamplingAnswer:
        seen.append(request)
        return SamplingAnswer(text="ok", model="test:one")

    spec = ServerSpec(name="asker", scope="", origin="forge.yaml:1", command="x", sampling=verdict)
    flight = ActiveCall(ToolContext(), "tool")
    given = {"messages": [words()], "maxTokens": 10, **params}
    requests = ServerRequests(spec, Hooks(sample=sample), lambda: [flight])
    assert requests.sampling is not None
    return await requests.sampling(CONTEXT, sdk.CreateMessageRequestParams.model_validate(given))


async def test_what_the_server_says_is_all_that_is_passed_on() -> None:
    seen: list[SamplingRequest] = []
    said = await sampled(
        seen,
        messages=[words("one", _meta={"hidden": "canary"}), {"role": "assistant", "content": words()["content"]}],
        systemPrompt="Be brief.",
        includeContext="allServers",
        metadata={"provider": "canary"},
        temperature=0.5,
        stopSequences=["END"],
    )
    assert (said.role, said.content.text, said.model) == ("assistant", "ok", "test:one")
    (request,) = seen
    assert [message["role"] for message in request.messages] == ["user", "assistant"]
    assert (request.system_prompt, request.temperature, request.stop_sequences) == ("Be brief.", 0.5, ("END",))
    assert "canary" not in repr(request)


@table(("asked", "given"), [(1, 1), (4096, 4096), (4097, 4096), (10**9, 4096)])
async def test_tokens_are_bounded(asked: int, given: int) -> None:
    seen: list[SamplingRequest] = []
    await sampled(seen, maxTokens=asked)
    assert seen[0].max_tokens == given


@table(
    ("params", "says"),
    [
        ({"tools": [{"name": "x", "inputSchema": {"type": "object"}}]}, "tools are not offered"),
        ({"toolChoice": {"mode": "auto"}}, "tools are not offered"),
        ({"messages": [words("x" * 300_000)]}, "messages: larger than 256 KiB"),
        ({"systemPrompt": "x" * 300_000}, "messages: larger than 256 KiB"),
        ({"messages": [words()] * 201}, "messages: must be 1 to 200"),
        ({"messages": []}, "messages: must be 1 to 200"),
        ({"maxTokens": 0}, "maxTokens"),
        ({"temperature": 7}, "temperature"),
        ({"stopSequences": ["x"] * 17}, "stopSequences"),
        (
            {"messages": [{"role": "assistant", "content": {"type": "tool_use", "id": "1", "name": "x", "input": {}}}]},
            "only text, images and audio",
        ),
    ],
)
async def test_what_is_too_much_is_refused_and_nobody_is_asked(params: dict[str, Any], says: str) -> None:
    seen: list[SamplingRequest] = []
    said = await sampled(seen, **params)
    assert isinstance(said, sdk.ErrorData) and says in said.message and seen == []


async def test_the_config_goes_along_for_whoever_shows_the_card() -> None:
    seen: list[SamplingRequest] = []
    await sampled(seen, Verdict.PRE_APPROVED)
    assert seen[0].verdict is Verdict.PRE_APPROVED


async def test_each_call_has_its_own_five() -> None:
    async def sample(request: SamplingRequest, ctx: ToolContext) -> SamplingAnswer:
        return SamplingAnswer(text=ctx.call_id, model="test:one")

    spec = ServerSpec(name="asker", scope="", origin="forge.yaml:1", command="x")
    flights = [ActiveCall(ToolContext(call_id="first"), "tool")]
    requests = ServerRequests(spec, Hooks(sample=sample), lambda: flights)
    params = sdk.CreateMessageRequestParams.model_validate({"messages": [words()], "maxTokens": 5})
    assert requests.sampling is not None
    said: list[Any] = [await requests.sampling(CONTEXT, params) for _ in range(6)]
    assert isinstance(said[5], sdk.ErrorData) and said[4].content.text == "first"
    flights.append(ActiveCall(ToolContext(call_id="second"), "tool"))
    answer: Any = await requests.sampling(CONTEXT, params)
    assert answer.content.text == "second"
