"""What forge.yaml says about running workers: which one starts, on which model, with which limits.

Plain data; `config.program` fills it from the program's file over the person's own, key by key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MAIN_WORKER: Final = "main.worker"
PROVIDER_NAMES: Final = ("anthropic", "openai", "google", "openrouter", "ollama", "openai-compatible", "scripted")
"""What may stand before the first colon of a model string, in the order in which they are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """`models: {<provider>: …}`: another address, or another variable that holds the key."""

    base_url: str = ""
    key_env: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationLimits:
    max_depth: int = 5
    """The root worker is at depth 0."""
    max_parallel: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """None: no limit of this kind. In forge.yaml they hold for the whole tree of a session, in a worker file for it and
    everything below it."""

    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_requests: int | None = None
    max_tool_calls: int | None = None
    max_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """None: cached input costs what other input costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    entry: str = MAIN_WORKER
    model: str = ""
    models: Mapping[str, ProviderSettings] = field(default_factory=dict)
    worker_paths: tuple[str, ...] = ("workers",)
    delegation: DelegationLimits = field(default_factory=DelegationLimits)
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    pricing: Mapping[str, Price] = field(default_factory=dict)
    """By whole model string, `anthropic:claude-sonnet-4-5`."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Top-level key → where it was written (`forge.yaml:3`), for `/config` and for messages."""
