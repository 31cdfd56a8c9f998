"""Model selection: what `provider:name` means, who chooses it, whether it is allowed, its stored key, and opening it.

Choosing takes texts and settings and returns names; nothing is imported or opened. Raises ConfigError for a string
without a provider, an unknown provider, and a model that a worker's `compatible_models` leave out.

`open_model` takes `provider:name`, the program's settings, the environment and the stored keys, and returns a Model.
Raises ModelError for a missing key (naming its variable) and a missing library (naming what to install), ConfigError
for a script that cannot be read. This is the gateway to `providers`, which loads the provider libraries.

`ModelKeys` takes FORGE_HOME, answers from a small index whether a key is stored, and gives the key itself only for the
address for which it was stored. Keys live in the system keyring where there is one, else in FORGE_HOME/state/model_keys
in files of mode 0600. An environment variable wins over a stored key: the caller looks there first. Threat: a project's
forge.yaml may send a provider's requests to another address (`models.<provider>.base_url`). A key that is stored for
the provider's own address is never given for that one, whoever trusts the project.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from golem_forge.agent.files.worker import Worker
from golem_forge.agent.model.interface import Model, ModelError
from golem_forge.config.run_block import GenerationSettings, ProviderSettings
from golem_forge.core.errors import ConfigError, ForgeError, install_command
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import closest_match
from golem_forge.storage.home import CredentialFolder, ForgeHome

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor


MODEL_VARIABLE: Final = "FORGE_MODEL"
_FIRST: Final = 7
"""Number of providers that an error names."""
MAX_FALLBACKS: Final = 8
"""Maximum number of models that one setting may name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """`key_env` is the variable that holds the key unless `models` names another; empty: a key is not expected."""

    name: str
    key_env: str = ""
    default_model: str = ""
    """The built-in worker's model if only the key decides the provider; empty if never chosen that way."""
    base_url: str = ""
    """The default address; empty if `models` must set one, or see `by_account`."""
    by_account: bool = False
    """Its library finds address and credentials itself, as the provider's other programs do: a region, a login."""


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
        Provider(
            name="alibaba",
            key_env="ALIBABA_API_KEY",
            base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ),
        Provider(name="azure", key_env="AZURE_OPENAI_API_KEY"),
        Provider(name="bedrock", by_account=True),
        Provider(name="bedrock-mantle", key_env="AWS_BEARER_TOKEN_BEDROCK"),
        Provider(name="cerebras", key_env="CEREBRAS_API_KEY", base_url="https://api.cerebras.ai/v1"),
        Provider(name="cohere", key_env="CO_API_KEY", base_url="https://api.cohere.com"),
        Provider(name="crusoe", key_env="CRUSOE_API_KEY", base_url="https://api.inference.crusoecloud.com/v1"),
        Provider(name="deepseek", key_env="DEEPSEEK_API_KEY", base_url="https://api.deepseek.com"),
        Provider(name="fireworks", key_env="FIREWORKS_API_KEY", base_url="https://api.fireworks.ai/inference/v1"),
        Provider(name="google-cloud", by_account=True),
        Provider(name="groq", key_env="GROQ_API_KEY", base_url="https://api.groq.com/openai/v1"),
        Provider(name="heroku", key_env="HEROKU_INFERENCE_KEY", base_url="https://us.inference.heroku.com/v1"),
        Provider(name="huggingface", key_env="HF_TOKEN", base_url="https://router.huggingface.co/v1"),
        Provider(name="litellm", base_url="http://localhost:4000"),
        Provider(name="meta", key_env="META_API_KEY", base_url="https://api.meta.ai/v1"),
        Provider(name="mistral", key_env="MISTRAL_API_KEY", base_url="https://api.mistral.ai"),
        Provider(name="moonshotai", key_env="MOONSHOTAI_API_KEY", base_url="https://api.moonshot.ai/v1"),
        Provider(name="nebius", key_env="NEBIUS_API_KEY", base_url="https://api.studio.nebius.com/v1"),
        Provider(
            name="ovhcloud", key_env="OVHCLOUD_API_KEY", base_url="https://oai.endpoints.kepler.ai.cloud.ovh.net/v1"
        ),
        Provider(name="sambanova", key_env="SAMBANOVA_API_KEY", base_url="https://api.sambanova.ai/v1"),
        Provider(name="snowflake", key_env="SNOWFLAKE_TOKEN"),
        Provider(name="together", key_env="TOGETHER_API_KEY", base_url="https://api.together.xyz/v1"),
        Provider(name="vercel", key_env="VERCEL_AI_GATEWAY_API_KEY", base_url="https://ai-gateway.vercel.sh/v1"),
        Provider(name="vllm", base_url="http://localhost:8000/v1"),
        Provider(name="xai", key_env="XAI_API_KEY", base_url="https://api.x.ai/v1"),
        Provider(name="zai", key_env="ZAI_API_KEY", base_url="https://api.z.ai/api/paas/v4"),
    )
}
"""In the order in which a key in the environment selects one."""
OWN_SERVERS: Final = ("ollama", "openai-compatible", "vllm", "litellm")
"""Servers of somebody's own: which models they have, and what those can do, no list says."""
_OTHER_NAMES: Final = {
    **dict.fromkeys(("vertex", "google-vertex", "vertexai", "vertex_ai"), "google-cloud"),
    **dict.fromkeys(("gemini", "google-gla"), "google"),
    **dict.fromkeys(("aws", "amazon"), "bedrock"),
    **dict.fromkeys(("llamacpp", "llama.cpp", "lmstudio", "lm-studio"), "openai-compatible"),
    "claude": "anthropic",
    "grok": "xai",
    "together_ai": "together",
    "azure-openai": "azure",
}
"""Names that other programs use, for the error that suggests ours."""

NO_SETTINGS: Final = ProviderSettings()
NOTHING_SAID: Final = GenerationSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenModel:
    """`model` is empty when nobody said one; `no_model_message()` has the words for that."""

    model: str
    said_by: str
    """`--model`, `FORGE_MODEL`, `workers/a.worker:3`, `forge.yaml`, or the variable whose key decided."""


def split_model(model: str, *, where: str = "") -> tuple[str, str]:
    """`openrouter:openai/gpt-4o:free` → `("openrouter", "openai/gpt-4o:free")`."""
    provider, colon, name = model.partition(":")
    at = f"{where}: " if where else ""
    listed = f"{', '.join([*PROVIDERS][:_FIRST])}; `forge models` names the others"
    if not colon or not provider or not name.strip():
        raise ConfigError(f"{at}model {model!r} is not `provider:name`; providers: {listed}")
    if provider not in PROVIDERS:
        close = _OTHER_NAMES.get(provider.lower()) or closest_match(provider, PROVIDERS)
        hint = f"did you mean {close!r}? " if close else ""
        raise ConfigError(f"{at}unknown model provider {provider!r}; {hint}providers: {listed}")
    return provider, name


def split_models(model: str, *, where: str = "") -> tuple[str, ...]:
    """`a, b` → `("a", "b")`: the first answers, the next one after the tries of the one before failed. Every one is
    checked. Raises ConfigError."""
    names = tuple(dict.fromkeys(part.strip() for part in model.split(",")))
    if len(names) > MAX_FALLBACKS:
        raise ConfigError(f"{f'{where}: ' if where else ''}more than {MAX_FALLBACKS} models; name fewer")
    for name in names:
        split_model(name, where=where)
    return names


def choose_model(
    *,
    flag: str,
    environ: Mapping[str, str],
    worker: Worker,
    program_model: str,
    builtin: bool,
    settings: Mapping[str, ProviderSettings] | None = None,
    program_origin: str = "forge.yaml",
    stored: ModelKeys | None = None,
) -> ChosenModel:
    """The root worker's model: `--model`, `FORGE_MODEL`, the worker file, forge.yaml; last, for the built-in worker,
    the first provider whose key is set or stored. `program_origin`: where the program's was written."""
    said = (
        (ChosenModel(model=flag, said_by="--model"), "--model"),
        (ChosenModel(model=environ.get(MODEL_VARIABLE, ""), said_by=MODEL_VARIABLE), MODEL_VARIABLE),
        (ChosenModel(model=worker.model, said_by=worker.at("model")), f"{worker.at('model')}: model"),
        (ChosenModel(model=program_model, said_by="forge.yaml"), f"{program_origin}: model"),
    )
    for chosen, where in said:
        if chosen.model:
            split_models(chosen.model, where=where)
            return chosen
    if builtin:
        for model, variable in models_with_a_key(settings or {}, environ, stored).items():
            return ChosenModel(model=model, said_by=variable)
    return ChosenModel(model="", said_by="")


def choose_child_model(worker: Worker, caller_model: str) -> ChosenModel:
    """A sub-worker's own model, else its caller's; no flag and no variable reaches it."""
    if worker.model:
        split_models(worker.model, where=f"{worker.at('model')}: model")
        return ChosenModel(model=worker.model, said_by=worker.at("model"))
    return ChosenModel(model=caller_model, said_by="caller")


def no_model_message(
    settings: Mapping[str, ProviderSettings], environ: Mapping[str, str], stored: ModelKeys | None = None
) -> str:
    """Returns the error text for when `choose_model` found none, with what would work here."""
    words = (
        "no model is configured: `forge models setup` chooses one, or give `--model provider:name`, set `FORGE_MODEL`, "
        "or write `model:` in the worker file or forge.yaml"
    )
    usable = models_with_a_key(settings, environ, stored)
    if usable:
        (model, variable), *_ = usable.items()
        return f"{words} ({variable} is {'there' if variable == STORED_KEY else 'set'}: try `--model {model}`)"
    variables = ", ".join(key_variable(name, settings) for name, each in PROVIDERS.items() if each.default_model)
    return f"{words} (key variables: {variables})"


STORED_KEY: Final = "a stored key"
"""Shown in place of the variable if the person stored a key."""


def models_with_a_key(
    settings: Mapping[str, ProviderSettings], environ: Mapping[str, str], stored: ModelKeys | None = None
) -> dict[str, str]:
    """The default model of each provider whose key is set or stored → the variable that holds the key."""
    found: dict[str, str] = {}
    for name, each in PROVIDERS.items():
        if each.default_model:
            variable = key_variable(name, settings)
            if environ.get(variable):
                found[f"{name}:{each.default_model}"] = variable
            elif stored is not None and stored.has(name, provider_address(name, settings)):
                found[f"{name}:{each.default_model}"] = STORED_KEY
    return found


def check_compatible(worker: Worker, model: str) -> None:
    """Checks that the worker accepts every model of a list. Raises ConfigError."""
    globs = worker.compatible_models
    for name in model.split(",") if globs else ():
        if not any(fnmatchcase(name.strip().lower(), glob.lower()) for glob in globs):
            raise ConfigError(
                f"{worker.at('compatible_models')}: worker {worker.name!r} cannot use model {name.strip()!r}; "
                f"compatible_models: {', '.join(globs)}"
            )


def key_variable(provider: str, settings: Mapping[str, ProviderSettings]) -> str:
    return settings.get(provider, NO_SETTINGS).key_env or PROVIDERS[provider].key_env


def provider_address(provider: str, settings: Mapping[str, ProviderSettings]) -> str:
    """Returns the address of a provider; empty if none is set."""
    return settings.get(provider, NO_SETTINGS).base_url or PROVIDERS[provider].base_url


def needs_address(model: str, settings: Mapping[str, ProviderSettings]) -> bool:
    """Whether the provider needs an address and none is set."""
    provider, _ = split_model(model)
    known = provider_address(provider, settings) or PROVIDERS[provider].by_account or provider == "scripted"
    return not known


def missing_key(
    model: str,
    settings: Mapping[str, ProviderSettings],
    environ: Mapping[str, str],
    stored: ModelKeys | None = None,
) -> str:
    """Returns a text that names the missing variable; empty if nothing is missing. In a list, one model with a key is
    enough.
    """
    problems = [_missing_key_of(each, settings, environ, stored) for each in split_models(model)]
    return problems[0] if all(problems) else ""


def _missing_key_of(
    model: str,
    settings: Mapping[str, ProviderSettings],
    environ: Mapping[str, str],
    stored: ModelKeys | None,
) -> str:
    provider, _ = split_model(model)
    variable = key_variable(provider, settings)
    if not variable or environ.get(variable):
        return ""
    text = f"model {model!r} needs a key: set the environment variable {variable}"
    if stored is None or not PROVIDERS[provider].key_env:
        return text
    address = provider_address(provider, settings)
    if stored.has(provider, address):
        return ""
    if stored.address(provider):
        return f"{text} (the stored key of {provider} is for another address, so it is not sent to {address})"
    return f"{text}, or store one: forge models setup"


def open_model(
    model: str,
    *,
    settings: Mapping[str, ProviderSettings],
    environ: Mapping[str, str],
    script_root: Path,
    worker: str = "main",
    confined: bool = False,
    stored: ModelKeys | None = None,
    generation: GenerationSettings = NOTHING_SAID,
) -> Model:
    """`worker` names the part of a script that is played; scripts are looked up in `script_root`, and with `confined`
    (a stranger's program named it) they must be inside it. A script answers as it is written, whatever `generation`
    says; of a provider, what it does not take raises ConfigError."""
    provider, name = split_model(model)
    if provider == "scripted":
        from golem_forge.agent.model.scripted import open_script

        return open_script(name, root=script_root, worker=worker, confined=confined)
    if missing := missing_key(model, settings, environ, stored):
        raise ModelError(missing, code="MODEL_KEY_MISSING")
    base_url = provider_address(provider, settings)
    if needs_address(model, settings):
        example = f"models: {{{provider}: {{base_url: …}}}}"
        by_command = f"forge models set {model} --address URL"
        raise ConfigError(f"model {model!r} needs an address: `{by_command}`, or `{example}` in forge.yaml")

    try:
        from golem_forge.agent.model.providers import open_provider
    except ModuleNotFoundError as error:
        text = f"{error.name} is not installed; it comes with the extra `models`: {install_command('models')}"
        raise ModelError(text, code="MODEL_LIBRARY_MISSING") from None
    return open_provider(
        provider,
        name,
        base_url=base_url,
        key=key_of(provider, settings, environ, stored),
        settings=settings.get(provider, NO_SETTINGS),
        generation=generation,
    )


def key_of(
    provider: str,
    settings: Mapping[str, ProviderSettings],
    environ: Mapping[str, str],
    stored: ModelKeys | None = None,
) -> str:
    """The key that is sent: the variable's value, else the one stored for this address. Blocks where a keyring is
    asked. Raises ModelError where a stored key can no longer be read."""
    variable = key_variable(provider, settings)
    address = provider_address(provider, settings)
    key = environ.get(variable, "") if variable else ""
    if key or stored is None or not stored.has(provider, address):
        return key
    if key := stored.load(provider, address):
        return key
    text = f"the stored key of {provider} cannot be read; unlock your keyring, or store it again: forge models setup"
    raise ModelError(text, code="MODEL_KEY_MISSING")


_FOLDER: Final = ("state", "model_keys")
_KEY: Final = regex(r"[!-~]{8,4096}")
"""A valid key: characters of an HTTP header, and long enough to be redacted from texts."""


def normal_address(base_url: str) -> str:
    """Returns the one spelling of an address: scheme and host in lower case, no slash at the end."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/"), "", ""))


def usable_key(text: str) -> str:
    """The key without what pasting adds around it. Raises ForgeError, which does not repeat it."""
    key = text.strip()
    if not _KEY.fullmatch(key):
        raise ForgeError(
            "that is not a key: a key has at least 8 characters, only letters, digits and signs, and no space inside",
            code="KEY_UNUSABLE",
        )
    return key


class ModelKeys:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home
        self._records = CredentialFolder(home, *_FOLDER, again="store the keys again: forge models setup")

    def address(self, provider: str) -> str:
        """The address for which a key of this provider is stored; empty: none is."""
        if not self._home.path.joinpath(*_FOLDER).is_dir():
            return ""
        found = self._records.index().get(provider)
        return found if isinstance(found, str) else ""

    def has(self, provider: str, base_url: str) -> bool:
        """Whether a key is stored for this address. Opens no keyring."""
        return bool(base_url) and self.address(provider) == normal_address(base_url)

    def place(self, provider: str) -> str:
        """`keyring` or `file`; empty: no key is stored."""
        if not self.address(provider):
            return ""
        return "file" if self._records.has_file(self._name(provider)) else "keyring"

    def load(self, provider: str, base_url: str) -> str:
        """The key; empty: there is none for this address. Blocks: a keyring may ask its user."""
        if not self.has(provider, base_url):
            return ""
        record = self._records.load(self._name(provider)) or {}
        key = record.get("key")
        same = record.get("base_url") == normal_address(base_url)  # the index alone is not believed
        return key if same and isinstance(key, str) and _KEY.fullmatch(key) else ""

    def save(self, provider: str, base_url: str, key: str) -> str:
        """Returns the place, `keyring` or `file`. Blocks."""
        address = normal_address(base_url)
        record = {"provider": provider, "base_url": address, "key": usable_key(key)}
        self._records.save(provider, address, self._name(provider), record)
        return self.place(provider)

    def forget(self, provider: str) -> bool:
        """Removes the stored key. Returns False if there was none."""
        if not self.address(provider):
            return False
        self._records.forget(self._name(provider))
        self._records.remove_entry(provider)
        return True

    def learn_files(self, redactor: Redactor) -> None:
        """Teaches the Redactor the keys that are in files. Those in a keyring it learns when they are loaded."""
        if not self._home.path.joinpath(*_FOLDER).is_dir():
            return
        for provider, address in self._records.index().items():
            in_file = isinstance(address, str) and self._records.has_file(self._name(provider))
            if in_file and (key := self.load(provider, address)):
                redactor.add_secret("MODEL_KEY", key)

    def _name(self, provider: str) -> str:
        """The keyring belongs to the person and not to one FORGE_HOME, so the name says which home it is for."""
        return f"model-{provider}-{digest(str(self._home.path))[:12]}.json"
