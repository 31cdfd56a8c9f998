"""Prices: the person's own, nothing on this machine, else the list that comes with Forge."""

from __future__ import annotations

import sys

import pytest

from golem_forge.agent import budget
from golem_forge.agent.budget import LOCAL, is_this_machine, price_of
from golem_forge.agent.model.selection import PROVIDERS
from golem_forge.config.run_block import Price, ProviderSettings

REMOTE = {"openai-compatible": ProviderSettings(base_url="https://gpu.example.com/v1")}
GROQ = {"openai-compatible": ProviderSettings(base_url="https://api.groq.com/openai/v1")}


@pytest.mark.parametrize("provider", [each for each in PROVIDERS.values() if each.default_model], ids=lambda p: p.name)
def test_the_default_model_of_every_provider_is_priced_with_a_date(provider: object) -> None:
    price = price_of(f"{provider.name}:{provider.default_model}", {}, {})  # type: ignore[attr-defined]
    assert price is not None and price.output > price.input > 0
    assert price.source.startswith("as of 20") and len(price.source) == len("as of 2026-10-14")


def test_tiers_and_the_price_of_the_cache_are_read() -> None:
    price = price_of("anthropic:claude-sonnet-4-5", {}, {})
    assert price is not None and (price.input, price.output, price.cached, price.cache_write) == (3, 15, 0.3, 3.75)
    [tier] = price.above
    assert (tier.start, tier.price.input, tier.price.output) == (200_000, 6, 22.5)


def test_your_own_price_wins() -> None:
    mine = Price(input=1, output=2)
    for model in ("anthropic:claude-sonnet-4-5", "ollama:x", "nobody:knows"):
        assert price_of(model, {}, {model: mine}) is mine


def test_a_model_on_this_machine_costs_nothing_and_says_so() -> None:
    assert price_of("ollama:qwen", {}, {}) is LOCAL and LOCAL.source == "local"
    here = {"openai-compatible": ProviderSettings(base_url="http://127.0.0.1:8080/v1")}
    assert price_of("openai-compatible:qwen", here, {}) is LOCAL


@pytest.mark.parametrize(
    "model", ["openai:no-such-model", "openai-compatible:qwen", "scripted:a.yaml", "no-provider", "nobody:x"]
)
def test_where_nobody_knows_there_is_no_price(model: str) -> None:
    assert price_of(model, REMOTE, {}) is None


def test_a_server_that_the_list_knows_by_its_address_is_priced() -> None:
    price = price_of("openai-compatible:llama-3.3-70b-versatile", GROQ, {})
    assert price is not None and price.input > 0


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("http://localhost:1234/v1", True),
        ("http://[::1]:1234/v1", True),
        ("http://127.8.0.1/v1", True),
        ("http://192.168.0.5/v1", False),
        ("http://localhost.example.com/v1", False),
        ("", False),
    ],
)
def test_what_counts_as_this_machine(address: str, here: bool) -> None:
    """A server elsewhere may pass requests on to somebody who is paid."""
    assert is_this_machine(address) is here


def test_without_the_library_there_is_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    budget._listed_price.cache_clear()
    assert price_of("openai:gpt-5", {}, {}) is None
    budget._listed_price.cache_clear()
