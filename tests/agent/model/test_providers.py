"""Every provider by its name: where its request goes at a local server, over the SDK that people get, with its key."""

from __future__ import annotations

import importlib.util
import json
import os
import pkgutil
import sys
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.model.interface import Completed, ModelError, Request, UserMessage
from golem_forge.agent.model.selection import PROVIDERS, open_model, split_model
from golem_forge.config.run_block import ProviderSettings
from golem_forge.core.errors import ConfigError

from .conftest import KEY

CHAT = "/v1/chat/completions"
PATHS = {name: CHAT for name in PROVIDERS if name != "scripted"} | {
    "anthropic": "/v1/messages",
    "openai": "/v1/responses",
    "meta": "/v1/responses",
    "google": "/v1/models/x:streamGenerateContent",
    "google-cloud": "/v1beta1/publishers/google/models/x:streamGenerateContent",
    "bedrock": "/model/x/converse-stream",
    "cohere": "/v2/chat",
    "azure": "/openai/v1/chat/completions",
    "bedrock-mantle": "/openai/v1/responses",
}
MODELS = {"openrouter": "a/x", "bedrock-mantle": "openai.gpt-5.4"}
LIBRARIES = {"google": "google.genai", "google-cloud": "google.genai", "bedrock": "boto3"} | {
    "cohere": "cohere",
    "mistral": "mistralai",
}
"""Of providers with a library beside those that the tests always have."""
AT_ROOT = ("anthropic", "google", "google-cloud", "bedrock", "cohere", "mistral", "azure")
"""Their addresses end with the host."""
NOT_ANSWERED = ("bedrock", "cohere")
"""The local server does not speak their formats; it refuses, and what arrived is looked at."""
LEFT_OUT = {
    "gateway": "a login of its own",
    "github": "left by the library",
    "github-copilot": "a subscription's login",
    "openai-chatgpt": "a subscription's login",
    "openai-codex": "a subscription's login",
    "openai-decisions": "no conversation",
    "system-one": "no conversation",
    "typesafe": "no conversation",
    "elevenlabs": "speech",
    "sentence-transformers": "embeddings",
    "voyageai": "embeddings",
}


ALIKE = [name for name, path in PATHS.items() if path == CHAT and name not in (*LIBRARIES, *AT_ROOT, *MODELS)]
"""They differ in nothing but their name, their address and the variable of their key."""


@pytest.mark.parametrize(
    "provider", [pytest.param(name, marks=[pytest.mark.long] if name in ALIKE[2:] else []) for name in PATHS]
)
async def test_a_request_goes_where_the_provider_expects_it(
    wire: Any, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if provider in LIBRARIES:
        pytest.importorskip(LIBRARIES[provider])
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.setenv(name, "eu-west-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with wire.WireServer(lambda request: wire.WireTurn(say="Hi.")) as server:
        base_url = server.url if provider in AT_ROOT else f"{server.url}/v1"
        by_account = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "canary"} if provider == "bedrock" else {}
        for name, value in by_account.items():
            monkeypatch.setenv(name, value)
        settings = {provider: ProviderSettings(base_url=base_url, key_env="" if by_account else "WIRE_KEY")}
        model = open_model(
            f"{provider}:{MODELS.get(provider, 'x')}",
            settings=settings,
            environ={"WIRE_KEY": KEY},
            script_root=Path("/nowhere"),
        )
        try:
            request = Request(system="Be brief.", messages=(UserMessage(text="Hello <you>"),), max_output_tokens=50)
            if provider in NOT_ANSWERED:
                with pytest.raises(ModelError):
                    [event async for event in model.stream(request)]
            else:
                *_, last = [event async for event in model.stream(request)]
                assert isinstance(last, Completed) and last.message.text == "Hi."
        finally:
            await model.aclose()
    [sent] = server.requests
    assert sent.path == PATHS[provider]
    assert any(KEY in value for value in sent.headers.values())
    assert "Hello <you>" in json.dumps(sent.body) and "Be brief." in json.dumps(sent.body)


def test_the_table_has_every_provider_of_the_library_that_converses() -> None:
    found = importlib.util.find_spec("pydantic_ai.providers")
    assert found is not None and found.submodule_search_locations is not None
    modules = (each.name for each in pkgutil.iter_modules(found.submodule_search_locations))
    names = {name.replace("_", "-") for name in modules if not name.startswith("_")}
    assert names - LEFT_OUT.keys() == PROVIDERS.keys() - {"scripted"}


@pytest.mark.parametrize(
    ("said", "ours"), [("vertex:x", "google-cloud"), ("gemini:x", "google"), ("lmstudio:x", "openai-compatible")]
)
def test_the_name_of_another_program_is_answered_with_ours(said: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{ours}'"):
        split_model(said)


@pytest.mark.parametrize(
    ("model", "library", "says"),
    [
        ("openrouter:x", "openai", "must be prefixed"),
        ("bedrock:x", "boto3", "AWS_DEFAULT_REGION"),
        ("google-cloud:x", "google.genai", "GOOGLE_CLOUD_PROJECT"),
        ("azure:x", "openai", "needs an address: `forge models set azure:x"),
    ],
)
def test_what_is_missing_is_named(
    model: str, library: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    for name in [each for each in os.environ if each.startswith(("AWS_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    keys = {"OPENROUTER_API_KEY": KEY, "AZURE_OPENAI_API_KEY": KEY}
    with pytest.raises((ConfigError, ModelError), match=says):
        open_model(model, settings={}, environ=keys, script_root=Path("/nowhere"))


def test_a_provider_whose_library_is_an_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("boto3", "pydantic_ai.providers.bedrock", "pydantic_ai.models.bedrock"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ModelError, match=r"golem-forge\[models,bedrock\]"):
        open_model("bedrock:x", settings={}, environ={}, script_root=Path("/nowhere"))
