"""What a request costs. Prices come from `pricing` alone, so a cost is never older than what a person wrote down.

A model without a price has cost None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from golem_forge.config.run_settings import BudgetLimits, Price
from golem_forge.core.errors import ConfigError
from golem_forge.workers.models.layer import Usage

_PER: Final = 1_000_000


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """In USD."""
    if price is None:
        return None
    cached_price = price.input if price.cached is None else price.cached
    fresh = max(0, usage.input - usage.cached)
    return (fresh * price.input + usage.cached * cached_price + usage.output * price.output) / _PER


def check_priced(limits: BudgetLimits, model: str, pricing: Mapping[str, Price], *, where: str = "") -> None:
    """ConfigError for a cap in USD over a model whose price nobody stated: such a cap would never hold."""
    if limits.max_cost_usd is None or model in pricing:
        return
    at = f"{where}: " if where else ""
    raise ConfigError(
        f"{at}max_cost_usd is set, but the price of model {model!r} is not known; add to forge.yaml "
        f'`pricing: {{"{model}": {{input: …, output: …}}}}` (USD per million tokens)'
    )
