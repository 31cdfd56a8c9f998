"""Which model: what `provider:name` means, who may say it, and whether a worker and the environment allow it.

Takes texts and settings, gives names; nothing is imported or opened. Refuses, with ConfigError: a string without a
provider, a provider that does not exist, a model that a worker's `compatible_models` leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from golem_forge.config.run_settings import ProviderSettings
from golem_forge.core.errors import ConfigError
from golem_forge.core.nearest import nearest
from golem_forge.workers.worker import Worker

MODEL_VARIABLE: Final = "FORGE_MODEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """`key_env` is the variable that holds the key unless `models` names another; empty: a key is not expected."""

    name: str
    key_env: str = ""
    default_model: str = ""
    """What the built-in worker uses when only the key says which provider; empty: never chosen that way."""
    base_url: str = ""
    """Where requests go unless `models` says otherwise; empty: `models` must say."""


PROVIDERS: Final[Mapping[str, Provider]] = {
    provider.name: provider
    for provider in (
        Provider(
            name="anthropic",
            key_env="ANTHROPIC_API_KEY",
            default_model="claude-sonnet-5-5",
            base_url="https://api.anthropic.com",
        ),
        Provider(
            name="openai", key_env="OPENAI_API_KEY", default_model="gpt-6.1-sol", base_url="https://api.openai.com/v1"
        ),
        Provider(
            name="google",
            key_env="GOOGLE_API_KEY",
            default_model="gemini-4-argon",
            base_url="https://generativelanguage.googleapis.com",
        ),
        Provider(
            name="openrouter",
            key_env="OPENROUTER_API_KEY",
            default_model="anthropic/claude-sonnet-5.5",
            base_url="https://openrouter.ai/api/v1",
        ),
        Provider(name="ollama", base_url="http://localhost:11434/v1"),
        Provider(name="openai-compatible"),
        Provider(name="scripted"),
    )
}
"""In the order in which a key in the environment chooses one."""

NO_SETTINGS: Final = ProviderSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """`model` is empty when nobody said one; `no_model()` has the words for that."""

    model: str
    said_by: str
    """`--model`, `FORGE_MODEL`, `workers/a.worker:3`, `forge.yaml`, or the variable whose key decided."""


def split_model(model: str, *, where: str = "") -> tuple[str, str]:
    """`openrouter:openai/gpt-4o:free` → `("openrouter", "openai/gpt-4o:free")`."""
    provider, colon, name = model.partition(":")
    at = f"{where}: " if where else ""
    listed = ", ".join(PROVIDERS)
    if not colon or not provider or not name.strip():
        raise ConfigError(f"{at}model {model!r} is not `provider:name`; providers: {listed}")
    if provider not in PROVIDERS:
        close = nearest(provider, PROVIDERS)
        hint = f"did you mean {close!r}? " if close else ""
        raise ConfigError(f"{at}unknown model provider {provider!r}; {hint}providers: {listed}")
    return provider, name


def choose_model(
    *,
    flag: str,
    environ: Mapping[str, str],
    worker: Worker,
    program_model: str,
    builtin: bool,
    settings: Mapping[str, ProviderSettings] | None = None,
) -> Chosen:
    """The root worker's model: `--model`, `FORGE_MODEL`, the worker file, forge.yaml; last, for the built-in worker,
    the first provider whose key is set."""
    said = (
        Chosen(model=flag, said_by="--model"),
        Chosen(model=environ.get(MODEL_VARIABLE, ""), said_by=MODEL_VARIABLE),
        Chosen(model=worker.model, said_by=worker.at("model")),
        Chosen(model=program_model, said_by="forge.yaml"),
    )
    for chosen in said:
        if chosen.model:
            split_model(chosen.model, where=chosen.said_by)
            return chosen
    if builtin:
        for model, variable in models_with_a_key(settings or {}, environ).items():
            return Chosen(model=model, said_by=variable)
    return Chosen(model="", said_by="")


def choose_child_model(worker: Worker, caller_model: str) -> Chosen:
    """A sub-worker's own model, else its caller's; no flag and no variable reaches it."""
    if worker.model:
        split_model(worker.model, where=worker.at("model"))
        return Chosen(model=worker.model, said_by=worker.at("model"))
    return Chosen(model=caller_model, said_by="caller")


def no_model(settings: Mapping[str, ProviderSettings], environ: Mapping[str, str]) -> str:
    """What to tell a person when `choose_model` found none, with what would work here."""
    words = (
        "no model is configured: give `--model provider:name`, set `FORGE_MODEL`, or write `model:` in the worker file "
        "or forge.yaml"
    )
    usable = models_with_a_key(settings, environ)
    if usable:
        (model, variable), *_ = usable.items()
        return f"{words} ({variable} is set: try `--model {model}`)"
    variables = ", ".join(key_variable(name, settings) for name, each in PROVIDERS.items() if each.key_env)
    return f"{words} (key variables: {variables})"


def models_with_a_key(settings: Mapping[str, ProviderSettings], environ: Mapping[str, str]) -> dict[str, str]:
    """The default model of each provider whose key is set → the variable that holds the key."""
    variables = {name: key_variable(name, settings) for name, each in PROVIDERS.items() if each.default_model}
    return {
        f"{name}:{PROVIDERS[name].default_model}": variable
        for name, variable in variables.items()
        if variable and environ.get(variable)
    }


def check_compatible(worker: Worker, model: str) -> None:
    globs = worker.compatible_models
    if globs and not any(fnmatchcase(model.lower(), glob.lower()) for glob in globs):
        raise ConfigError(
            f"{worker.at('compatible_models')}: worker {worker.name!r} cannot use model {model!r}; "
            f"compatible_models: {', '.join(globs)}"
        )


def key_variable(provider: str, settings: Mapping[str, ProviderSettings]) -> str:
    return settings.get(provider, NO_SETTINGS).key_env or PROVIDERS[provider].key_env


def missing_key(model: str, settings: Mapping[str, ProviderSettings], environ: Mapping[str, str]) -> str:
    """What is missing, naming the variable; empty if nothing is."""
    provider, _ = split_model(model)
    variable = key_variable(provider, settings)
    if not variable or environ.get(variable):
        return ""
    return f"model {model!r} needs a key: set the environment variable {variable}"
