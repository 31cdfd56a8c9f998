"""Models opened against the local wire server, one per SDK path that a provider takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.model.interface import Model
from golem_forge.agent.model.selection import open_model
from golem_forge.config.run_block import ProviderSettings

KEY = "canary-key-0451"
MODELS = {
    "anthropic": "anthropic:claude-sonnet-5-5",
    "openai": "openai:gpt-5",
    "openai-compatible": "openai-compatible:local",
}


@pytest.fixture(params=list(MODELS))
def provider(request: pytest.FixtureRequest) -> str:
    """Every test that takes it runs against Anthropic Messages, OpenAI Responses and Chat Completions."""
    return str(request.param)


@pytest.fixture
async def opened(provider: str) -> AsyncIterator[Callable[..., Model]]:
    """Opens the model of this provider against a server; further keys of `models: {<provider>: …}` by keyword."""
    models: list[Model] = []

    def open_(server: Any, **keys: Any) -> Model:
        settings = {provider: ProviderSettings(base_url=server.base_url(provider), key_env="WIRE_KEY", **keys)}
        models.append(
            open_model(MODELS[provider], settings=settings, environ={"WIRE_KEY": KEY}, script_root=Path("/nowhere"))
        )
        return models[-1]

    yield open_
    for model in models:
        await model.aclose()
