"""What forge.yaml and config.yaml say about running workers: entry, models, limits, prices.

`RunSettings` is plain data. `run_block` takes the checked top level of one file and gives a `RunBlock` with the line of
every value; `effective_run` puts a program's block over the user's, key by key. Threat: a stranger's program could send
a user's API key and text to an address of its own or spend their money, so of an untrusted program `models`, `pricing`
and a `budget` above the user's own do not count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from golem_forge.config.approval_modes import Setting
from golem_forge.config.sandbox_block import variable_holding, whole_number
from golem_forge.config.schema import Check, ConfigProblems, MappingSchema, list_of, map_of, positive, refuse, text
from golem_forge.config.yaml_file import YamlFile, YamlPath, is_override
from golem_forge.core.lazy_dataclass import dataclass, field, replace

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


_BASE_URL: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


def _base_url(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """What does not fit may hold credentials, so the text of the problem does not repeat it."""
    if isinstance(value, str) and _BASE_URL.fullmatch(value):
        return value
    problems.add(path, "expected an address like https://host/v1, without credentials")
    return ""


def _price(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
    return float(value) if usable else refuse(problems, path, value, "USD per million tokens, 0 or more")


BUDGET_CHECK: Final = MappingSchema(
    {
        "max_cost_usd": positive,
        "max_tokens": whole_number,
        "max_requests": whole_number,
        "max_tool_calls": whole_number,
        "max_seconds": positive,
    }
)
_PROVIDER: Final = MappingSchema({"base_url": _base_url, "key_env": variable_holding("key")})
RUN_KEYS: Final[dict[str, Check]] = {
    "entry": text,
    "model": text,
    "models": MappingSchema(dict.fromkeys(PROVIDER_NAMES, _PROVIDER)),
    "worker_paths": list_of(text),
    "delegation": MappingSchema({"max_depth": whole_number, "max_parallel": whole_number}),
    "budget": BUDGET_CHECK,
    "pricing": map_of(
        MappingSchema({"input": _price, "output": _price, "cached": _price}, required=("input", "output"))
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBlock:
    """One file's words about running workers."""

    plain: Mapping[str, Any] = field(default_factory=dict)
    """`entry`, `model` and `worker_paths`, where written."""
    models: Mapping[str, Setting[ProviderSettings]] = field(default_factory=dict)
    delegation: Mapping[str, Setting[int]] = field(default_factory=dict)
    budget: Mapping[str, Setting[float]] = field(default_factory=dict)
    pricing: Mapping[str, Setting[Price]] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


def run_block(file: YamlFile, values: Mapping[str, Any]) -> RunBlock:
    """From the checked top level; what did not pass the check is not there."""

    def settings(key: str, build: Any = lambda value: value) -> dict[str, Setting[Any]]:
        block: Mapping[str, Any] = values.get(key) or {}
        return {name: Setting(build(value), file.at((key, name))) for name, value in block.items()}

    plain = {key: values[key] for key in ("entry", "model") if key in values}
    if "worker_paths" in values:
        plain["worker_paths"] = tuple(values["worker_paths"])
    return RunBlock(
        plain=plain,
        models=settings("models", lambda block: ProviderSettings(**block)),
        delegation=settings("delegation"),
        budget=settings("budget"),
        pricing=settings("pricing", lambda block: Price(**{"input": 0.0, "output": 0.0, **block})),
        origins={key: file.at((key,)) for key in RUN_KEYS if key in values},
    )


def restrict_untrusted_run(block: RunBlock, person: RunBlock | None, unused: list[str]) -> RunBlock:
    """What of a stranger's block still counts, and what the command line said; the rest goes to `unused`."""
    own: Mapping[str, Setting[float]] = person.budget if person else {}
    kept: dict[str, Setting[float]] = {}
    for name, said in block.budget.items():
        most = own.get(name)
        if most is not None and said.value > most.value and not is_override(said.origin):
            unused.append(f"{said.origin}: budget.{name}: above your own")
        else:
            kept[name] = said
    return replace(
        block,
        models=_keep_overrides("models", block.models, unused),
        pricing=_keep_overrides("pricing", block.pricing, unused),
        budget=kept,
    )


def _keep_overrides(key: str, said: Mapping[str, Setting[Any]], unused: list[str]) -> dict[str, Setting[Any]]:
    unused += [f"{each.origin}: {key}.{name}" for name, each in said.items() if not is_override(each.origin)]
    return {name: each for name, each in said.items() if is_override(each.origin)}


def effective_run(project: RunBlock | None, person: RunBlock | None) -> RunSettings:
    plain: dict[str, Any] = {}
    models: dict[str, ProviderSettings] = {}
    delegation: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    pricing: dict[str, Price] = {}
    origins: dict[str, str] = {}
    for block in (person, project):
        if block is None:
            continue
        plain |= block.plain
        for name, provider in block.models.items():
            said = {key: value for key, value in asdict(provider.value).items() if value}
            models[name] = replace(models.get(name, ProviderSettings()), **said)
        delegation |= {name: said.value for name, said in block.delegation.items()}
        budget |= {name: said.value for name, said in block.budget.items()}
        pricing |= {name: said.value for name, said in block.pricing.items()}
        used = {"models": block.models, "pricing": block.pricing, "budget": block.budget}
        origins |= {key: origin for key, origin in block.origins.items() if used.get(key, True)}
    return RunSettings(
        **plain,
        models=models,
        delegation=DelegationLimits(**delegation),
        budget=BudgetLimits(**budget),
        pricing=pricing,
        origins=origins,
    )
