"""Setting a model up on the page: the same as `forge models setup`, over the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.wire.server import WireServer, WireTurn

from golem_forge.agent.model import setup
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.web.api import settings

pytest_plugins = ("tests.ui.web.asking",)
KEY = "canary-key-0451-abcdef"


@pytest.fixture
def provider(forge_home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    settings._tries.clear()
    with WireServer(lambda request: WireTurn(say="OK.")) as server:
        server.key, server.models = KEY, ("claude-other", "claude-small")
        forge_home.config.write_text(f"models: {{anthropic: {{base_url: '{server.base_url('anthropic')}'}}}}\n")
        yield server


async def test_a_model_is_listed_tested_and_kept_and_the_key_never_comes_back(
    sessions: Any, forge_home: ForgeHome, provider: WireServer
) -> None:
    asked = await sessions()
    shown = await asked.ask("GET", "/api/models")
    assert [each["name"] for each in shown["providers"]] == ["anthropic", "openai", "google", "openrouter"]
    assert shown["providers"][0]["key"] == "none"
    source = {"provider": "anthropic", "key": KEY}
    offered = await asked.ask("POST", "/api/models/offered", source)
    assert offered == {"models": ["claude-other", "claude-small"]}
    wrong = {"provider": "anthropic", "key": "canary-wrong-key", "model": "claude-small"}
    refused = await asked.ask("POST", "/api/models", wrong, status=409)
    assert "refused the key" in refused["problem"] and "canary" not in json.dumps(refused)
    assert not (forge_home.path / "state" / "model_keys").exists() and "model:" not in forge_home.config.read_text()

    saved = await asked.ask("POST", "/api/models", {**source, "model": "claude-small", "session": asked.session})
    assert saved == {"model": "anthropic:claude-small", "key": "file"}
    assert "model: anthropic:claude-small\n" in forge_home.config.read_text()
    assert asked.runtime.model_name == "anthropic:claude-small", "the session that runs uses it"
    shown = await asked.ask("GET", "/api/models")
    assert shown["providers"][0]["key"] == "file" and KEY not in json.dumps(shown)
    assert KEY not in asked.runtime.journal.path.read_text()


async def test_a_key_that_cannot_be_used_is_not_repeated(
    sessions: Any, forge_home: ForgeHome, provider: WireServer, caplog: pytest.LogCaptureFixture
) -> None:
    asked = await sessions()
    for key in (f"{KEY}\nX-Evil: 1", f"{KEY} two", f"{KEY}\x1b[31m", KEY * 500, [KEY], {"value": KEY}, f"{KEY}é"):
        for path in ("/api/models/offered", "/api/models"):
            settings._tries.clear()
            response = await asked.client.post(
                path, json={"provider": "anthropic", "key": key, "model": "claude-small"}
            )
            assert response.status_code in (409, 422) and "canary" not in response.text, response.text
    assert "canary" not in repr(setup.ModelChoice(provider="anthropic", key=KEY))
    assert "canary" not in caplog.text and "canary" not in asked.runtime.journal.path.read_text()
    assert not (forge_home.path / "state" / "model_keys").exists()


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/v1", "https://elsewhere.test/v1"])
async def test_an_address_that_forge_did_not_find_is_refused(sessions: Any, provider: WireServer, address: str) -> None:
    asked = await sessions()
    body = {"provider": "openai-compatible", "address": address}
    refused = await asked.ask("POST", "/api/models/offered", body, status=422)
    assert "No model server was found there" in refused["problem"]


async def test_a_server_of_this_machine_is_found_and_used(
    sessions: Any, forge_home: ForgeHome, provider: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.key = ""
    port = int(provider.url.rpartition(":")[2])
    monkeypatch.setattr(setup, "LOCAL_PORTS", (("vLLM", port, "/v1/models"), ("LM Studio", 9, "/v1/models")))
    asked = await sessions()
    [found] = (await asked.ask("GET", "/api/models"))["local"]
    assert (found["title"], found["models"]) == ("vLLM", ["claude-other", "claude-small"])
    body = {"provider": "openai-compatible", "address": found["address"], "model": "claude-other"}
    saved = await asked.ask("POST", "/api/models", {**body, "session": asked.session})
    assert saved["model"] == asked.runtime.model_name == "openai-compatible:claude-other"
    assert f"base_url: {found['address']}" in forge_home.config.read_text()


async def test_tries_are_bounded(sessions: Any, provider: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_TRIES_PER_MINUTE", 3)
    asked = await sessions()
    source = {"provider": "anthropic", "key": KEY}
    for _ in range(3):
        await asked.ask("POST", "/api/models/offered", source)
    refused = await asked.ask("POST", "/api/models/offered", source, status=429)
    assert "wait a minute" in refused["problem"]
