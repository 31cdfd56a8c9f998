"""What a model costs: the person's `pricing`, nothing for a server on this machine, else a list that comes with Forge.

`price_of` takes `provider:name` and the settings, returns a Price or None (not known), and never raises. The list is
that of the library `genai-prices` as it was installed; nothing is fetched. `Price.source` says where a price is from.

This is the gateway to genai_prices: 60 ms at the first lookup, which happens where a model's library is loaded anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from golem_forge.agent.model.selection import OWN_SERVERS, provider_address, split_model
from golem_forge.config.run_block import Price, PriceTier, ProviderSettings
from golem_forge.core.errors import ConfigError

_log = logging.getLogger(__name__)
LOCAL: Final = Price(input=0.0, output=0.0, source="local")
_PASSES_ON: Final = "litellm"
"""A server of one's own that asks paid providers."""
_SAME_NAME: Final = (
    *("anthropic", "openai", "google", "openrouter", "azure", "cerebras", "cohere", "deepseek", "fireworks", "groq"),
    *("meta", "mistral", "moonshotai", "ovhcloud", "together", "zai"),
)
_LISTED: Final = {**{name: name for name in _SAME_NAME}, "bedrock": "aws", "google-cloud": "google", "xai": "x-ai"}
"""Ours → what the list calls it; others are found by their address."""
_UNPRICED: Final = ("scripted",)
_PARTS: Final = {"input": "input_mtok", "output": "output_mtok", "cached": "cache_read_mtok"}
_CACHE_WRITE: Final = "cache_write_mtok"


def price_of(
    model: str, settings: Mapping[str, ProviderSettings], pricing: Mapping[str, Price], *, listed: bool = True
) -> Price | None:
    """`listed`: whether the list is asked where `pricing` says nothing."""
    if model in pricing or not listed:
        return pricing.get(model)
    try:
        provider, name = split_model(model)
    except ConfigError:
        return None
    if provider in _UNPRICED:
        return None
    address = provider_address(provider, settings)
    if provider in OWN_SERVERS and provider != _PASSES_ON and is_this_machine(address):
        return LOCAL
    return _listed_price(_LISTED.get(provider, ""), name, address)


def is_this_machine(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=128)
def _listed_price(provider: str, name: str, address: str) -> Price | None:
    """`provider`: as the list calls it; empty: found by the address."""
    try:
        from genai_prices.data_snapshot import get_snapshot

        found, model = get_snapshot().find_provider_model(name, None, provider or None, None if provider else address)
        now = datetime.now(UTC)
        return _as_price(model.get_prices(now), _as_of(found.models, now.date()))
    except (ImportError, LookupError):
        return None
    except Exception:  # a list of another version; no price is better than no session
        _log.warning("the price list cannot be read", exc_info=True)
        return None


def _as_price(said: Any, as_of: str) -> Price | None:
    parts = {name: getattr(said, key, None) for name, key in _PARTS.items()}
    if parts["input"] is None or parts["output"] is None:
        return None
    write = getattr(said, _CACHE_WRITE, None)
    starts = sorted({tier.start for each in (*parts.values(), write) for tier in getattr(each, "tiers", ())})

    def at(start: int) -> dict[str, float | None]:
        known = {name: _amount(value, start) for name, value in parts.items()}
        return {**known, "cache_write": _amount(write, start)}

    tiers = tuple(PriceTier(start=start, price=Price(**at(start))) for start in starts)  # type: ignore[arg-type]
    return Price(**at(0), above=tiers, source=f"as of {as_of}" if as_of else "listed")  # type: ignore[arg-type]


def _amount(said: Any, start: int) -> float | None:
    """USD per million tokens of a request with more than `start` input tokens."""
    if said is None or isinstance(said, Decimal):
        return None if said is None else float(said)
    reached = [tier.price for tier in said.tiers if tier.start <= start] if start else []
    return float(reached[-1] if reached else said.base)


def _as_of(models: Iterable[Any], today: date) -> str:
    """The latest day on which a price of this provider began: the list is not older than that. It has no other date."""
    days = [
        day
        for model in models
        for each in (*(model.prices if isinstance(model.prices, list) else ()), *(model.price_variants or ()))
        if (day := getattr(each.constraint, "start_date", None)) is not None and day <= today
    ]
    return max(days).isoformat() if days else ""
