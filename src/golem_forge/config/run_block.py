"""What forge.yaml and config.yaml say about running workers: entry, models, limits, prices, approval mode, reviewer;
and which of it counts from an untrusted program.

`RunSettings` is plain data; `effective_run` puts a program's layer over the user's, key by key. Threat: a stranger's
program could send a user's API key and text to an address of its own or spend their money, so of an untrusted program
`models`, `pricing` and a `budget` above the user's own do not count. An approval mode is chosen by the command line,
the person or a trusted program; a stranger only makes it stricter.

`approval.reviewer`: who answers small questions before a person does.

    approval:
      reviewer: {run: /home/me/bin/review, up_to: medium}
      reviewer: {model: "provider:name", up_to: high, budget: {max_requests: 100, max_cost_usd: 0.5}}

Only the person names one, in their own config.yaml or on the command line. Threat: a program that brings its own
reviewer would approve its own calls. So nothing of forge.yaml counts here, and neither do the addresses and prices of
models that a program writes, trusted or not.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal

from golem_forge.config.sandbox_block import variable_holding, whole_number
from golem_forge.config.validation import (
    VERDICT_CHECK,
    Check,
    ConfigLayer,
    ConfigProblems,
    MappingSchema,
    Setting,
    flag,
    list_of,
    map_of,
    one_of,
    positive,
    refuse,
    text,
)
from golem_forge.config.yaml_file import YamlFile, YamlPath, is_override
from golem_forge.core.decisions import Risk, Verdict
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex


class ApprovalMode(StrEnum):
    """Who answers when a call asks."""

    INTERACTIVE = "interactive"
    STRICT = "strict"
    CONTAINED = "contained"
    PLAN = "plan"
    APPROVE_ALL = "approve_all"
    AUTO_DENY = "auto_deny"


MODE_MEANINGS: Final = {
    ApprovalMode.INTERACTIVE: "Forge asks you about each call that needs approval, unless you chose to remember it.",
    ApprovalMode.STRICT: "Forge asks you before every call that has an effect; rules in files allow nothing.",
    ApprovalMode.CONTAINED: "Forge works on its own inside the walls. It asks before anything leaves them or cannot be "
    "undone.",
    ApprovalMode.PLAN: "Forge reads and proposes, and changes nothing. Say `go`, and it starts the work.",
    ApprovalMode.APPROVE_ALL: "Calls that need approval run without a question. What is blocked stays blocked.",
    ApprovalMode.AUTO_DENY: "Forge denies each call that needs approval, unless you chose to remember it.",
}
"""Descriptions for people who choose one."""

DEFAULT_MODE: Final = "default"
"""The origin of a mode that nobody set."""
_STRICTNESS: Final = (
    ApprovalMode.APPROVE_ALL,
    ApprovalMode.CONTAINED,
    ApprovalMode.INTERACTIVE,
    ApprovalMode.STRICT,
    ApprovalMode.AUTO_DENY,
    ApprovalMode.PLAN,
)


def is_stricter_mode(one: ApprovalMode, other: ApprovalMode) -> bool:
    return _STRICTNESS.index(one) > _STRICTNESS.index(other)


def choose_mode(
    flag: ApprovalMode | None,
    user: Setting[ApprovalMode] | None,
    project: Setting[ApprovalMode] | None,
    *,
    project_trusted: bool,
) -> Setting[ApprovalMode]:
    """Command line, user config, program, `interactive`. An untrusted program counts only where it is stricter."""
    if flag is not None:
        return Setting(flag, "--approval")
    if user is not None:
        return user
    if project is not None and (project_trusted or is_stricter_mode(project.value, ApprovalMode.INTERACTIVE)):
        return project
    return Setting(ApprovalMode.INTERACTIVE, DEFAULT_MODE)


APPROVAL_KEYS: Final[dict[str, Check]] = {"default": VERDICT_CHECK, "tools": map_of(VERDICT_CHECK)}
_APPROVAL: Final = MappingSchema(APPROVAL_KEYS)


def approval_settings(value: Any, path: YamlPath, problems: ConfigProblems) -> dict[str, Any]:
    """A check: `default`, where it is written, and `tools` by name as Settings with the line of each."""
    checked = _APPROVAL(value, path, problems)
    return verdict_settings(problems.file, checked if isinstance(checked, dict) else {}, path)


def verdict_settings(file: YamlFile, block: dict[str, Any], path: YamlPath) -> dict[str, Any]:
    """Converts a checked block to settings with their origins."""

    def setting(word: str, *where: str) -> Setting[Verdict]:
        return Setting(Verdict(word), file.at((*path, *where)))

    made: dict[str, Any] = {
        "tools": {name: setting(word, "tools", name) for name, word in block.get("tools", {}).items()}
    }
    return made | ({"default": setting(block["default"], "default")} if "default" in block else {})


MAIN_WORKER: Final = "main.worker"
PROVIDER_NAMES: Final = (
    *("anthropic", "openai", "google", "openrouter", "ollama", "openai-compatible", "scripted"),
    *("alibaba", "azure", "bedrock", "bedrock-mantle", "cerebras", "cohere", "crusoe", "deepseek", "fireworks"),
    *("google-cloud", "groq", "heroku", "huggingface", "litellm", "meta", "mistral", "moonshotai", "nebius"),
    *("ovhcloud", "sambanova", "snowflake", "together", "vercel", "vllm", "xai", "zai"),
)
"""Providers, the part of a model string before its first colon, in the order in which they are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """`models: {<provider>: …}`: another address, another variable that holds the key, other patience."""

    base_url: str = ""
    key_env: str = ""
    text_calls: bool | None = None
    """Whether a call that a model writes as its answer is taken as one; None: of servers of one's own only."""
    media: tuple[str, ...] | None = None
    """Media of tool results that are sent unchanged: `image`, `pdf`, `audio`; None means those that the provider is
    known to accept.
    """
    request_timeout: float = 600.0
    """Seconds of silence after which a request has failed. A reasoning model may be silent for minutes before its
    first word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSettings:
    """`model_settings`: how a model answers, in words that every provider has another name for. None: not said."""

    effort: Literal["low", "medium", "high"] | None = None
    """How much a model reasons."""
    temperature: float | None = None
    top_p: float | None = None
    max_output: int | None = None
    """Maximum tokens of one answer."""
    stop: tuple[str, ...] | None = None
    """Texts at which the answer ends."""

    @property
    def said(self) -> dict[str, Any]:
        return {name: value for name in GENERATION_KEYS if (value := getattr(self, name)) is not None}

    def under(self, other: GenerationSettings) -> GenerationSettings:
        """Returns these settings with those of the other on top."""
        return replace(self, **other.said)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationLimits:
    max_depth: int = 5
    """The root worker is at depth 0."""
    max_parallel: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """None means no limit of this kind. In forge.yaml they hold for all workers of a session, in a worker file for it
    and everything below it.
    """

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
    """None if cached input costs as much as other input."""
    cache_write: float | None = None
    """Price of input that the provider writes to its cache; None if it costs as much as other input."""
    above: tuple[PriceTier, ...] = ()
    """Other prices for requests with much input, by rising start."""
    source: str = ""
    """The source shown to a person (`local`, `as of 2026-10-14`); empty if the person set it."""

    def at(self, input_tokens: int) -> Price:
        """Returns the price for a request with this much input."""
        reached = [tier.price for tier in self.above if input_tokens > tier.start]
        return reached[-1] if reached else self


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTier:
    start: int
    """Input tokens; a request with more of them costs `price`, all of it."""
    price: Price


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    entry: str = MAIN_WORKER
    model: str = ""
    models: Mapping[str, ProviderSettings] = field(default_factory=dict)
    model_settings: GenerationSettings = field(default_factory=GenerationSettings)
    typed_settings: GenerationSettings = field(default_factory=GenerationSettings)
    """The part of `model_settings` that was said with `--set`: it comes before what a worker file says."""
    worker_paths: tuple[str, ...] = ("workers",)
    delegation: DelegationLimits = field(default_factory=DelegationLimits)
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    pricing: Mapping[str, Price] = field(default_factory=dict)
    """Prices by the complete model string, `anthropic:claude-sonnet-4-5`."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Top-level key → where it was written (`forge.yaml:3`), for `/config` and for messages."""


_BASE_URL: Final = regex(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


def base_url(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """Checks an address. The error does not repeat it, because it may hold credentials."""
    if isinstance(value, str) and _BASE_URL.fullmatch(value):
        return value
    problems.add(path, "expected an address like https://host/v1, without credentials")
    return ""


def _price(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
    return float(value) if usable else refuse(problems, path, value, "USD per million tokens, 0 or more")


def model_choice(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """`a`, or a list `[a, b]`, which reads as `a,b`: the next one answers when the one before failed."""
    if isinstance(value, list) and value and all(isinstance(each, str) and each.strip() for each in value):
        return ",".join(each.strip() for each in value)
    return text(value, path, problems) if not isinstance(value, list) else refuse(problems, path, value, _MODEL)


_MODEL: Final = "`provider:name`, or a list of them"
BUDGET_CHECK: Final = MappingSchema(
    {
        "max_cost_usd": positive,
        "max_tokens": whole_number,
        "max_requests": whole_number,
        "max_tool_calls": whole_number,
        "max_seconds": positive,
    }
)


def _between(least: float, most: float) -> Check:
    def check_number(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        usable = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
        return float(value) if usable else refuse(problems, path, value, f"a number from {least:g} to {most:g}")

    return check_number


def _stop_texts(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    said = [value] if isinstance(value, str) else value
    usable = isinstance(said, list) and 0 < len(said) <= _MAX_STOPS
    if not usable or not all(isinstance(each, str) and 0 < len(each) <= _LONGEST_STOP for each in said):
        return refuse(problems, path, value, f"one to {_MAX_STOPS} texts of at most {_LONGEST_STOP} characters")
    return tuple(said)


_MAX_STOPS: Final = 4
_LONGEST_STOP: Final = 200
GENERATION_KEYS: Final[dict[str, Check]] = {
    "effort": one_of("low", "medium", "high"),
    "temperature": _between(0, 2),
    "top_p": _between(0, 1),
    "max_output": whole_number,
    "stop": _stop_texts,
}
GENERATION_CHECK: Final = MappingSchema(GENERATION_KEYS)
MEDIA_KINDS: Final = ("image", "pdf", "audio")


def media_kinds(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    read = list_of(one_of(*MEDIA_KINDS))(value, path, problems)
    return tuple(read) if isinstance(read, list) else None


_PROVIDER: Final = MappingSchema(
    {"base_url": base_url, "key_env": variable_holding("key"), "request_timeout": positive, "text_calls": flag}
    | {"media": media_kinds}
)
RUN_KEYS: Final[dict[str, Check]] = {
    "entry": text,
    "model": model_choice,
    "models": MappingSchema(dict.fromkeys(PROVIDER_NAMES, _PROVIDER)),
    "model_settings": GENERATION_CHECK,
    "worker_paths": list_of(text),
    "delegation": MappingSchema({"max_depth": whole_number, "max_parallel": whole_number}),
    "budget": BUDGET_CHECK,
    "pricing": map_of(
        MappingSchema({"input": _price, "output": _price, "cached": _price}, required=("input", "output"))
    ),
}


def restrict_untrusted_run(project: ConfigLayer, person: ConfigLayer, unused: list[str]) -> dict[str, Any]:
    """The blocks of a stranger as far as they count, and what the command line said; the rest goes to `unused`."""
    own = person.block("budget")
    budget: dict[str, float] = {}
    for name, value in project.block("budget").items():
        origin = project.at("budget", name)
        if name in own and value > own[name] and not is_override(origin):
            unused.append(f"{origin}: budget.{name}: above your own")
        else:
            budget[name] = value
    kept: dict[str, Any] = {"budget": budget}
    for key in ("models", "pricing"):
        said = {name: (block, project.at(key, name)) for name, block in project.block(key).items()}
        kept[key] = {name: block for name, (block, origin) in said.items() if is_override(origin)}
        unused += [f"{origin}: {key}.{name}" for name, (_, origin) in said.items() if not is_override(origin)]
    return kept


def effective_run(project: ConfigLayer, person: ConfigLayer) -> RunSettings:
    plain: dict[str, Any] = {}
    models: dict[str, ProviderSettings] = {}
    generation: dict[str, Any] = {}
    delegation: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    pricing: dict[str, Price] = {}
    origins: dict[str, str] = {}
    for layer in (person, project):
        plain |= {key: layer.values[key] for key in ("entry", "model") if key in layer.values}
        if "worker_paths" in layer.values:
            plain["worker_paths"] = tuple(layer.values["worker_paths"])
        for name, said in layer.block("models").items():
            models[name] = replace(models.get(name, ProviderSettings()), **said)
        generation |= layer.block("model_settings")
        delegation |= layer.block("delegation")
        budget |= layer.block("budget")
        pricing |= {name: Price(**said) for name, said in layer.block("pricing").items()}
        empty = [key for key in ("models", "model_settings", "pricing", "budget") if not layer.block(key)]
        origins |= {key: layer.at(key) for key in RUN_KEYS if key in layer.values and key not in empty}
    typed = {
        name: value
        for name, value in project.block("model_settings").items()
        if is_override(project.at("model_settings", name))
    }
    return RunSettings(
        **plain,
        models=models,
        model_settings=GenerationSettings(**generation),
        typed_settings=GenerationSettings(**typed),
        delegation=DelegationLimits(**delegation),
        budget=BudgetLimits(**budget),
        pricing=pricing,
        origins=origins,
    )


_PATH: Final = ("approval", "reviewer")
UP_TO: Final = ("low", "medium", "high")
REVIEWER_CHECK: Final[Check] = MappingSchema(
    {
        "run": text,
        "model": text,
        "up_to": one_of(*UP_TO),
        "budget": MappingSchema({"max_requests": whole_number, "max_cost_usd": positive}),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewerSettings:
    run: tuple[str, ...] = ()
    """A program by its absolute path, and its arguments."""
    model: str = ""
    """Or a model, `provider:name`."""
    up_to: Risk = Risk.MEDIUM
    max_requests: int = 200
    """Maximum requests in one session."""
    max_cost_usd: float | None = None
    models: Mapping[str, ProviderSettings] = field(default_factory=dict)
    """The person's provider settings; those of a program do not count."""
    pricing: Mapping[str, Price] = field(default_factory=dict)
    origin: str = ""

    @property
    def name(self) -> str:
        """The name on cards and in records."""
        return os.path.basename(self.run[0]) if self.run else self.model


def check_reviewer(values: dict[str, Any], problems: ConfigProblems) -> None:
    approval = values.get("approval")
    said = approval.get("reviewer") if isinstance(approval, dict) else None
    if not isinstance(said, dict) or not said:
        return
    if ("run" in said) is ("model" in said):
        problems.add(_PATH, "name either `run`, a program, or `model`, and not both")
    elif "run" in said:
        try:
            words = shlex.split(os.path.expanduser(said["run"]))
        except ValueError:
            words = []
        if not words or not os.path.isabs(words[0]):
            problems.add((*_PATH, "run"), "begins with the absolute path of a program")
        if "max_cost_usd" in said.get("budget", {}):
            problems.add((*_PATH, "budget", "max_cost_usd"), "has no effect on a program; it belongs to `model`")
    elif ":" not in said["model"]:
        problems.add((*_PATH, "model"), "expected `provider:name`")


def effective_reviewer(project: ConfigLayer, person: ConfigLayer) -> ReviewerSettings | None:
    """Returns the reviewer of the command line, else the person's own."""
    for layer, counts in ((project, is_override(project.at(*_PATH))), (person, True)):
        if not counts or layer.setting(*_PATH) is None:
            continue
        said = layer.block(*_PATH)
        if not said:
            return None  # switched off, by whoever may
        own = effective_run(ConfigLayer(mcp=person.mcp), person)
        return ReviewerSettings(
            run=tuple(shlex.split(os.path.expanduser(said.get("run", "")))),
            model=said.get("model", ""),
            up_to=Risk(said.get("up_to", "medium")),
            **said.get("budget", {}),
            models=own.models,
            pricing=own.pricing,
            origin=layer.at(*_PATH),
        )
    return None


def reviewer_notice(project: ConfigLayer) -> str:
    """Returns a notice about a program that names a reviewer."""
    if project.setting(*_PATH) is None or is_override(project.at(*_PATH)):
        return ""
    where = project.at(*_PATH)
    return f"{where}: approval.reviewer is ignored: only your own config.yaml or the command line can name one."
