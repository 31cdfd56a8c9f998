"""Settings of a model as each provider's wire carries them: the body of a request at a local server, over the SDKs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.model.interface import Completed, ModelError, Request, UserMessage
from golem_forge.agent.model.selection import open_model
from golem_forge.config.run_block import GenerationSettings, ProviderSettings
from golem_forge.core.errors import ConfigError


def at(body: Any, path: str) -> Any:
    for part in path.split("."):
        body = body.get(part) if isinstance(body, dict) else None
    return body


async def sent(wire: Any, model: str, ends: tuple[str, ...] = (), **said: Any) -> dict[str, Any]:
    """The body of the request that a model with these settings makes."""
    provider = model.partition(":")[0]
    library = {"google": "google.genai", "bedrock": "boto3"}.get(provider)
    if library:
        pytest.importorskip(library)
    with wire.WireServer([wire.WireTurn(say="Hi.")]) as server, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "eu-west-1")
        base_url = server.url if provider == "bedrock" else server.base_url(provider)
        key_env = "" if provider == "bedrock" else "WIRE_KEY"
        settings = {provider: ProviderSettings(base_url=base_url, key_env=key_env)}
        opened = open_model(
            model,
            settings=settings,
            environ={"WIRE_KEY": "canary-key-1"},
            script_root=Path("/nowhere"),
            generation=GenerationSettings(**said),
        )
        try:
            request = Request(
                system="Be brief.",
                messages=(UserMessage(text="Hello"),),
                max_output_tokens=opened.max_output_tokens,
                stop=ends,
            )
            if provider == "bedrock":  # whose format the local server does not speak: it refuses
                with pytest.raises(ModelError):
                    [event async for event in opened.stream(request)]
            else:
                *_, last = [event async for event in opened.stream(request)]
                assert isinstance(last, Completed) and last.message.text == "Hi."
        finally:
            await opened.aclose()
    body: dict[str, Any] = server.requests[0].body
    return body


SONNET, OLD_SONNET = "anthropic:claude-sonnet-4-6", "anthropic:claude-sonnet-4-5"
GPT, GPT_CHAT, OWN = "openai:gpt-5", "openai:gpt-4o", "openai-compatible:local"
GEMINI, OLD_GEMINI = "google:gemini-3-pro-preview", "google:gemini-2.5-flash"
WIRES = (
    (OWN, {"effort": "high"}, {"reasoning_effort": "high"}),
    (OWN, {"temperature": 0.2, "top_p": 0.9, "max_output": 77}, {"temperature": 0.2, "top_p": 0.9}),
    (OWN, {"stop": ("END",), "max_output": 77}, {"stop": ["END"], "max_tokens": 77, "max_completion_tokens": None}),
    ("ollama:small", {"max_output": 77}, {"max_tokens": 77, "max_completion_tokens": None}),
    ("openai-compatible:openai/gpt-5", {"max_output": 77}, {"max_completion_tokens": 77, "max_tokens": None}),
    ("cerebras:gpt-oss-120b", {"effort": "high"}, {"reasoning_effort": "high"}),
    (
        f"bedrock:anthropic.{OLD_SONNET.partition(':')[2]}-v1:0",
        {"effort": "high"},
        {"inferenceConfig.maxTokens": 24_576, "additionalModelRequestFields.thinking.budget_tokens": 12_288},
    ),
    (
        f"bedrock:anthropic.{OLD_SONNET.partition(':')[2]}-v1:0",
        {"effort": "low", "max_output": 1500},
        {"inferenceConfig.maxTokens": 1500, "additionalModelRequestFields": None},
    ),
    ("openrouter:a/b", {"effort": "low", "temperature": 1.0}, {"reasoning.effort": "low", "temperature": 1.0}),
    (GPT, {"effort": "low", "max_output": 77}, {"reasoning.effort": "low", "max_output_tokens": 77}),
    (GPT_CHAT, {"temperature": 0.2, "top_p": 0.9}, {"temperature": 0.2, "top_p": 0.9}),
    (SONNET, {"effort": "high"}, {"thinking.type": "adaptive", "output_config.effort": "high"}),
    (SONNET, {"temperature": 0.2, "stop": ("END",), "max_output": 77}, {"temperature": 0.2, "max_tokens": 77}),
    (SONNET, {"stop": ("END",)}, {"stop_sequences": ["END"]}),
    (OLD_SONNET, {"effort": "medium"}, {"thinking.budget_tokens": 8192, "max_tokens": 16_384 + 8192}),
    (OLD_SONNET, {"effort": "high", "max_output": 4000}, {"thinking.budget_tokens": 2000, "max_tokens": 4000}),
    (OLD_SONNET, {"effort": "low", "max_output": 1500}, {"thinking": None, "max_tokens": 1500}),
    (OLD_GEMINI, {"effort": "low"}, {"generationConfig.thinkingConfig.thinking_budget": 2048}),
    (
        GEMINI,
        {"effort": "low", "temperature": 0.2, "top_p": 0.9, "max_output": 77, "stop": ("END",)},
        {
            "generationConfig.thinkingConfig.thinking_level": "LOW",
            "generationConfig.temperature": 0.2,
            "generationConfig.topP": 0.9,
            "generationConfig.maxOutputTokens": 77,
            "generationConfig.stopSequences": ["END"],
        },
    ),
)


@pytest.mark.parametrize(("model", "said", "expected"), WIRES)
async def test_each_setting_becomes_what_the_provider_calls_it(
    wire: Any, model: str, said: dict[str, Any], expected: dict[str, Any]
) -> None:
    body = await sent(wire, model, **said)
    assert {path: at(body, path) for path in expected} == expected, body


@pytest.mark.parametrize("model", [OWN, GPT, SONNET, GEMINI])
async def test_what_nobody_said_is_not_sent(wire: Any, model: str) -> None:
    body = str(await sent(wire, model)).lower()
    for word in ("effort", "temperature", "top_p", "topp", "'stop", "thinking"):
        assert word not in body, body


async def test_an_own_server_is_told_where_the_answer_ends_and_no_other_is(wire: Any) -> None:
    assert (await sent(wire, OWN, ("<result",), stop=("END",)))["stop"] == ["END", "<result"]
    assert (await sent(wire, OWN, ("<result",)))["stop"] == ["<result"]
    assert "stop_sequences" not in await sent(wire, SONNET, ("<result",))


@pytest.mark.parametrize(
    ("model", "said", "named"),
    [
        (GPT, {"stop": ("END",)}, "`stop`"),
        (GPT, {"temperature": 0.2, "top_p": 0.5}, "`temperature` and `top_p` while it reasons"),
        (GPT_CHAT, {"effort": "low"}, "`effort`"),
        (SONNET, {"effort": "low", "temperature": 0.2}, "`temperature` while it reasons"),
        ("anthropic:claude-opus-5", {"top_p": 0.2}, "`top_p`"),
        ("google:gemini-2.0-flash", {"effort": "low"}, "`effort`"),
    ],
)
async def test_what_a_model_does_not_take_is_an_error_that_names_it(
    wire: Any, model: str, said: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        await sent(wire, model, **said)
    text = str(refused.value)
    assert f"{model} does not take {named}" in text and f"/model {model} " in text and "=default" in text
