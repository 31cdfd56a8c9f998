"""What setup keeps: the model in a person's config.yaml, and a key for one address."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from golem_forge.agent.model import setup
from golem_forge.agent.model.interface import ModelError
from golem_forge.agent.model.selection import ModelKeys, open_model, usable_key
from golem_forge.config.run_block import ProviderSettings
from golem_forge.core.calls import MediaPart
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import replace
from golem_forge.events.redaction import Redactor
from golem_forge.storage.home import ForgeHome

KEY = "canary-key-0451"
NEAR = "https://api.test/v1"


@pytest.fixture
def home(tmp_path: Path) -> ForgeHome:
    (tmp_path / "home").mkdir()
    return ForgeHome(tmp_path / "home")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "model: ollama:x\n"),
        ("# mine\n", "# mine\nmodel: ollama:x\n"),
        ("model: openai:y  # was\nui: {}\n", "model: ollama:x  # was\nui: {}\n"),
        ("model: 'openai:y'\r\nui: {}\r\n", "model: ollama:x\r\nui: {}\r\n"),
        ("# top\nui: {}  # near\n", "# top\nmodel: ollama:x\nui: {}  # near\n"),
        ("{ui: {}}\n", "{ui: {}, model: 'ollama:x'}\n"),
        ("model:\n  - openai:a\n  - openai:b\nui: {}\n", "model: ollama:x\nui: {}\n"),
    ],
    ids=["new", "comment", "value", "crlf", "first", "flow", "list"],
)
def test_the_default_is_written_and_the_rest_stays(home: ForgeHome, before: str, after: str) -> None:
    home.config.write_bytes(before.encode())
    setup.save_default(home, "ollama:x")
    written = home.config.read_bytes().decode()
    assert written.replace('"', "'").replace("model: 'ollama:x'", "model: ollama:x") == after.replace(
        "model: 'ollama:x'", "model: ollama:x"
    )


def test_a_file_that_cannot_be_edited_is_left_as_it_is(home: ForgeHome, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.yaml").write_text("ui: {}\n")
    home.config.symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(ConfigError, match="is a link"):
        setup.save_choice(home, setup.ModelChoice(provider="anthropic", model="x", key=KEY))
    assert ModelKeys(home).address("anthropic") == "", "no key is stored for a choice that was not kept"


@pytest.mark.parametrize(
    "other", ["https://evil.test/v1", "http://api.test/v1", "https://api.test/v2", "https://api.test.evil.test/v1", ""]
)
def test_a_key_is_given_for_its_own_address_only(home: ForgeHome, other: str) -> None:
    keys = ModelKeys(home)
    assert keys.save("openai", NEAR, f"  {KEY}\n") == "file"
    assert keys.load("openai", "HTTPS://API.test/v1/") == KEY
    assert keys.load("openai", other) == "" and not keys.has("openai", other)
    assert keys.load("anthropic", NEAR) == ""
    index = home.path / "state" / "model_keys" / "index.json"
    index.write_text(json.dumps({"openai": "https://evil.test/v1"}))
    assert keys.load("openai", "https://evil.test/v1") == "", "the record itself says for whom it is"


def test_a_keyring_keeps_the_key_and_no_file_does(home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[tuple[str, str], str] = {}
    ring = SimpleNamespace(
        get_keyring=lambda: SimpleNamespace(priority=5),
        get_password=lambda service, name: kept.get((service, name)),
        set_password=lambda service, name, text: kept.update({(service, name): text}),
        delete_password=lambda service, name: kept.pop((service, name)),
    )
    monkeypatch.setitem(sys.modules, "keyring", ring)
    keys, redactor = ModelKeys(home), Redactor()
    assert keys.save("openai", NEAR, KEY) == "keyring" and keys.load("openai", NEAR) == KEY
    assert all(KEY not in file.read_text() for file in (home.path / "state" / "model_keys").iterdir())
    keys.learn_files(redactor)
    assert redactor.secrets == {}, "no keyring is asked for that"
    assert keys.forget("openai") and kept == {} and not keys.forget("openai")


def test_a_key_in_a_file_is_known_to_the_redactor(home: ForgeHome) -> None:
    ModelKeys(home).save("openai", NEAR, KEY)
    redactor = Redactor()
    ModelKeys(home).learn_files(redactor)
    assert KEY not in redactor.text(f"the key is {KEY}")


@pytest.mark.parametrize(
    "text", ["", "short", "two words here", "canary-key\nx-evil: 1", "canary-kéy-0451", "x" * 5000]
)
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ForgeError) as failed:
        usable_key(text)
    assert not text or text not in failed.value.message


@pytest.mark.parametrize("answer", [[], "x", {"data": "x"}, {"data": [1, {"id": 2}, {"id": "a b"}, {"id": "\x1b[2J"}]}])
def test_a_strange_list_gives_no_strange_names(answer: object) -> None:
    assert not setup.model_names(answer)
    assert setup.model_names({"models": [{"name": "a", "supportedGenerationMethods": 1}]}) == ["a"]


def test_names_of_every_shape_are_read_and_bounded() -> None:
    assert setup.model_names({"models": [{"name": "qwen3:8b"}, {"name": "models/gemini-x"}]}) == [
        "qwen3:8b",
        "gemini-x",
    ]
    embeds = {"name": "models/e", "supportedGenerationMethods": ["embedContent"]}
    assert setup.model_names({"models": [embeds]}) == []
    assert len(setup.model_names({"data": [{"id": f"m{at}"} for at in range(5000)]}) or []) == setup.MAX_NAMES


PLAIN = {"/v1/models": {"data": [{"id": "x"}]}}
FACTS = (
    ("openai-compatible", {"/v1/models": {"data": [{"id": "x", "max_model_len": 40_960}]}}, (40_960, False, True)),
    (
        "openai-compatible",
        PLAIN | {"/props": {"default_generation_settings": {"n_ctx": 8192}, "modalities": {"vision": True}}},
        (8192, True, True),
    ),
    (
        "openai-compatible",
        PLAIN
        | {"/api/v0/models": {"data": [{"id": "x", "type": "vlm", "loaded_context_length": 4096, "capabilities": []}]}},
        (4096, True, False),
    ),
    (
        "ollama",
        {
            "/api/ps": {"models": [{"name": "x", "context_length": 16_384}]},
            "/api/show": {"capabilities": ["completion", "vision"]},
        },
        (16_384, True, False),
    ),
    ("ollama", {"/api/show": {"parameters": "stop x\nnum_ctx   2048", "capabilities": ["tools"]}}, (2048, False, True)),
    ("vllm", PLAIN, (None, False, True)),
    (
        "openai-compatible",
        {"/v1/models": {"data": [{"id": "x", "max_model_len": -1}, 7]}, "/props": [1], "/api/v0/models": {"data": 1}},
        (None, False, True),
    ),
)


@pytest.mark.parametrize(("provider", "facts", "expected"), FACTS)
def test_a_server_says_what_its_model_can_do(wire: Any, provider: str, facts: Any, expected: Any) -> None:
    """Context, whether pictures of results are sent, and whether calls are native."""
    with wire.WireServer() as server:
        server.facts = facts
        settings = {provider: ProviderSettings(base_url=server.base_url(provider))}
        model: Any = open_model(f"{provider}:x", settings=settings, environ={}, script_root=Path("/nowhere"))
        assert (model.context_window, model.takes_in_results("image/png"), model.calls_natively) == expected
        shown = MediaPart(handle="out_1", media_type="image/png", size=9, width=64, height=48)
        assert bool(model.media_tokens(shown)) == expected[1], "a picture that is not sent counts nothing"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("localhost:8080", ["http://localhost:8080/v1", "http://localhost:8080"]),
        ("https://h/api/v1/", ["https://h/api/v1"]),
    ],
)
def test_an_address_is_read_as_people_type_it(typed: str, meant: list[str]) -> None:
    assert setup.possible_addresses(typed) == meant
    for wrong in ("", "ftp://x", "http://user:canary@h/v1", "a b"):
        with pytest.raises(ConfigError) as refused:
            setup.possible_addresses(wrong)
        assert "canary" not in str(refused.value)


async def test_another_address_is_asked_for_its_models_with_its_key(wire: Any, home: ForgeHome) -> None:
    with wire.WireServer([wire.WireTurn(say="OK")]) as server:
        server.models, server.key = ("qwen", "llama"), KEY
        with pytest.raises(ModelError, match="refused the key"):
            await setup.find_at(home, server.url, "", {})
        choice, names = await setup.find_at(home, server.url, KEY, {})
        assert (choice.base_url, names) == (f"{server.url}/v1", ["qwen", "llama"])
        tried = replace(choice, model="qwen")
        await setup.try_choice(home, tried, {})
        setup.save_choice(home, tried)
        settings = setup.person_settings(home)
        assert settings["openai-compatible"].base_url == choice.base_url
        opened = open_model(
            "openai-compatible:qwen", settings=settings, environ={}, script_root=Path(), stored=ModelKeys(home)
        )
        await opened.aclose()
    assert server.lists[-1].headers["authorization"] == f"Bearer {KEY}", "the stored key goes to its address"
