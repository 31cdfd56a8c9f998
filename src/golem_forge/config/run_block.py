"""The keys of forge.yaml and config.yaml about running workers: entry, models, limits, prices.

Takes the checked top level of one file, gives a `RunBlock` with the line of every value; `run_in_force` puts a
program's block over the person's, key by key. Threat: a stranger's program could send a person's key and text to an
address of its own or spend their money, so of an untrusted one `models`, `pricing` and a `budget` above the person's
own do not count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from golem_forge.config.modes import Setting
from golem_forge.config.overrides import is_override
from golem_forge.config.run_settings import (
    PROVIDER_NAMES,
    BudgetLimits,
    DelegationLimits,
    Price,
    ProviderSettings,
    RunSettings,
)
from golem_forge.config.shape import Check, Problems, Shape, list_of, map_of, positive, refuse, text
from golem_forge.config.walls import whole
from golem_forge.config.yaml_file import Path as Place
from golem_forge.config.yaml_file import YamlFile

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_ADDRESS: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


def _address(value: Any, path: Place, problems: Problems) -> Any:
    """What does not fit may hold credentials, so the text of the problem does not repeat it."""
    if isinstance(value, str) and _ADDRESS.fullmatch(value):
        return value
    problems.add(path, "expected an address like https://host/v1, without credentials")
    return ""


def _variable(value: Any, path: Place, problems: Problems) -> Any:
    """What stands there may be a key written out by mistake, so the text of the problem does not repeat it."""
    if isinstance(value, str) and _VARIABLE.fullmatch(value):
        return value
    problems.add(path, "expected the name of an environment variable that holds the key (never the key itself)")
    return ""


def _price(value: Any, path: Place, problems: Problems) -> Any:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
    return float(value) if usable else refuse(problems, path, value, "USD per million tokens, 0 or more")


BUDGET: Final = Shape(
    {
        "max_cost_usd": positive,
        "max_tokens": whole,
        "max_requests": whole,
        "max_tool_calls": whole,
        "max_seconds": positive,
    }
)
_PROVIDER: Final = Shape({"base_url": _address, "key_env": _variable})
RUN_KEYS: Final[dict[str, Check]] = {
    "entry": text,
    "model": text,
    "models": Shape(dict.fromkeys(PROVIDER_NAMES, _PROVIDER)),
    "worker_paths": list_of(text),
    "delegation": Shape({"max_depth": whole, "max_parallel": whole}),
    "budget": BUDGET,
    "pricing": map_of(Shape({"input": _price, "output": _price, "cached": _price}, required=("input", "output"))),
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


def distrusted_run(block: RunBlock, person: RunBlock | None, unused: list[str]) -> RunBlock:
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
        models=_only_overrides("models", block.models, unused),
        pricing=_only_overrides("pricing", block.pricing, unused),
        budget=kept,
    )


def _only_overrides(key: str, said: Mapping[str, Setting[Any]], unused: list[str]) -> dict[str, Setting[Any]]:
    unused += [f"{each.origin}: {key}.{name}" for name, each in said.items() if not is_override(each.origin)]
    return {name: each for name, each in said.items() if is_override(each.origin)}


def run_in_force(project: RunBlock | None, person: RunBlock | None) -> RunSettings:
    blocks = [block for block in (person, project) if block is not None]
    plain: dict[str, Any] = {}
    models: dict[str, ProviderSettings] = {}
    delegation: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    pricing: dict[str, Price] = {}
    origins: dict[str, str] = {}
    for block in blocks:
        plain |= block.plain
        for name, provider in block.models.items():
            models[name] = _over(models.get(name), provider.value)
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


def _over(below: ProviderSettings | None, above: ProviderSettings) -> ProviderSettings:
    said = {key: value for key, value in asdict(above).items() if value}
    return replace(below or ProviderSettings(), **said)
