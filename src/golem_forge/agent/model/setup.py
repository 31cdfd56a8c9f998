"""Setting a model up: which keys and local servers there are, what a provider offers, one test request, the choice.

Takes FORGE_HOME and what the person answered; the questions themselves are asked by `forge models setup` and by the
page. `save_choice` writes the model into the person's own config.yaml (comments stay) and stores the key. Only the
person's own configuration counts here: a project cannot name the address to which a new key goes. `try_model` sends one
small request over the provider code that sessions use. Raises ModelError in words that say what to do, ConfigError for
a config.yaml that cannot be edited.

`find_local_servers` gives who listens on this machine at the usual ports (Ollama, LM Studio, llama.cpp, vLLM).
`read_facts` asks the server that gets a model's requests for the context length and the abilities of that model; what
it does not say stays unknown. Neither raises; both block, for a bounded time.

Threat: any process of this machine may listen on the port of a local server, and what it or a provider answers is text
of others. Discovery asks the loopback address alone, redirects are not followed, answers are bounded, a name that is
not printable or too long is left out, and a number that makes no sense counts as not said. Error texts carry no key.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from golem_forge.agent.model.interface import Completed, ModelError, Request, UserMessage
from golem_forge.agent.model.selection import (
    NO_SETTINGS,
    PROVIDERS,
    ModelKeys,
    key_of,
    key_variable,
    normal_address,
    open_model,
    provider_address,
    split_model,
    split_models,
    usable_key,
)
from golem_forge.config.program import load_program
from golem_forge.config.run_block import ProviderSettings, base_url
from golem_forge.config.validation import ConfigProblems
from golem_forge.config.yaml_edit import put_entry, read_existing, replace_existing, set_text
from golem_forge.config.yaml_file import YamlFile, parse_yaml
from golem_forge.core.errors import ConfigError, missing_library
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.storage.home import JSON_FILE_ERRORS, ForgeHome, read_json, write_private

LOCAL_HOST: Final = "127.0.0.1"
LOCAL_PORTS: Final = (
    ("Ollama", 11434, "/api/tags"),
    ("LM Studio", 1234, "/v1/models"),
    ("llama.cpp", 8080, "/v1/models"),
    ("vLLM", 8000, "/v1/models"),
)
"""Usual local servers: name, port, and the path that lists their models."""
MAX_NAMES: Final = 500
MAX_ANSWER: Final = 8 << 20
_PROBE_SECONDS: Final = 0.5
_FACTS_SECONDS: Final = 2.0
"""Timeout for all questions about one model."""
_NAME: Final = regex(r"[\w.:/@+-]{1,200}")
_LEAST_CONTEXT: Final = 512
_MOST_CONTEXT: Final = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    title: str
    provider: str
    base_url: str
    models: tuple[str, ...]


def find_local_servers() -> list[LocalServer]:
    """Model servers on the usual ports of this machine, all asked at once. Blocks for half a second at most."""
    with ThreadPoolExecutor(max(1, len(LOCAL_PORTS))) as pool:
        found = list(pool.map(_local_models, (f"http://{LOCAL_HOST}:{port}{path}" for _, port, path in LOCAL_PORTS)))
    servers = []
    for (title, port, _), names in zip(LOCAL_PORTS, found, strict=True):
        if names is not None:
            provider = "ollama" if title == "Ollama" else "openai-compatible"
            base_url = PROVIDERS[provider].base_url or f"http://{LOCAL_HOST}:{port}/v1"
            servers.append(LocalServer(title=title, provider=provider, base_url=base_url, models=tuple(names)))
    return servers


def _local_models(url: str) -> list[str] | None:
    """Returns the models of a local server; None if nothing there lists models."""
    return model_names(_ask(url, seconds=_PROBE_SECONDS))


def _ask(url: str, *, seconds: float, key: str = "", body: Any = None) -> Any:
    """The JSON that a server answers; None: it does not."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"accept": "application/json", "content-type": "application/json"}
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=seconds)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request("GET" if sent is None else "POST", parts.path, sent, headers)
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER + 1) if answer.status == http.client.OK else b""
            return json.loads(text) if 0 < len(text) <= MAX_ANSWER else None
        finally:
            connection.close()
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None


def model_names(answer: Any) -> list[str] | None:
    """Reads a list of models in the usual shapes, `{data: [{id}]}` and `{models: [{name}]}`; None for another shape."""
    said = answer if isinstance(answer, dict) else {}
    listed = next((said[key] for key in ("data", "models") if isinstance(said.get(key), list)), None)
    if listed is None:
        return None
    names: list[str] = []
    for each in listed[:MAX_NAMES]:
        if not isinstance(each, dict):
            continue
        methods = each.get("supportedGenerationMethods")  # Google's list has models that cannot converse
        if isinstance(methods, list) and "generateContent" not in methods:
            continue
        name = each.get("id") or each.get("name")
        if isinstance(name, str) and _NAME.fullmatch(name := name.removeprefix("models/")):
            names.append(name)
    return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server reports about a model; None where it does not say."""

    context: int | None = None
    sees: bool | None = None
    calls_tools: bool | None = None


def read_facts(provider: str, base_url: str, name: str, key: str = "") -> ServerFacts:
    """Every question goes to the address that gets the requests; the last ones are not asked once all is known."""
    address = base_url.rstrip("/")
    root = address.removesuffix("/v1")
    end = time.monotonic() + _FACTS_SECONDS
    found = ServerFacts()
    asked = _ollama_facts if provider == "ollama" else _compatible_facts
    for url, body, read in asked(address, root, name):
        left = end - time.monotonic()
        if left <= 0 or None not in (found.context, found.sees, found.calls_tools):
            break
        said = read(_ask(url, seconds=left, key=key, body=body), name)
        found = ServerFacts(
            context=found.context if found.context is not None else said.context,
            sees=found.sees if found.sees is not None else said.sees,
            calls_tools=found.calls_tools if found.calls_tools is not None else said.calls_tools,
        )
    return found


def _ollama_facts(address: str, root: str, name: str) -> Iterator[tuple[str, Any, Any]]:
    yield f"{root}/api/ps", None, _ollama_loaded
    yield f"{root}/api/show", {"model": name}, _ollama_shown


def _compatible_facts(address: str, root: str, name: str) -> Iterator[tuple[str, Any, Any]]:
    yield f"{address}/models", None, _listed
    yield f"{root}/props", None, _llama_props
    yield f"{root}/api/v0/models", None, _studio_listed


def _ollama_loaded(answer: Any, name: str) -> ServerFacts:
    """The context with which a model runs now: Ollama cuts what is longer, without a word."""
    return ServerFacts(context=_context(_entry(answer, "models", name).get("context_length")))


def _ollama_shown(answer: Any, name: str) -> ServerFacts:
    said = answer if isinstance(answer, dict) else {}
    set_to = regex(r"(?m)^num_ctx\s+(\d{1,9})\s*$").search(str(said.get("parameters", ""))[:10_000])
    able = said.get("capabilities")
    known = able if isinstance(able, list) else None
    return ServerFacts(
        context=_context(int(set_to[1])) if set_to else None,
        sees=None if known is None else "vision" in known,
        calls_tools=None if known is None else "tools" in known,
    )


def _listed(answer: Any, name: str) -> ServerFacts:
    """vLLM says `max_model_len`; others have other words for it. How long a model was trained says nothing of how long
    its server lets it be."""
    entry = _entry(answer, "data", name)
    lengths = (entry.get(key) for key in ("max_model_len", "context_length", "context_window", "max_context_length"))
    return ServerFacts(context=next((length for each in lengths if (length := _context(each))), None))


def _llama_props(answer: Any, name: str) -> ServerFacts:
    said = answer if isinstance(answer, dict) else {}
    settings, able = said.get("default_generation_settings"), said.get("modalities")
    return ServerFacts(
        context=_context(settings.get("n_ctx") if isinstance(settings, dict) else None),
        sees=bool(able.get("vision")) if isinstance(able, dict) else None,
    )


def _studio_listed(answer: Any, name: str) -> ServerFacts:
    """Reads an entry of LM Studio's own list."""
    entry = _entry(answer, "data", name)
    kind, able = entry.get("type"), entry.get("capabilities")
    return ServerFacts(
        context=_context(entry.get("loaded_context_length")),
        sees=kind == "vlm" if isinstance(kind, str) else None,
        calls_tools="tool_use" in able if isinstance(able, list) else None,
    )


def _entry(answer: Any, key: str, name: str) -> dict[str, Any]:
    """Returns the entry of this model in a list; empty if it is not listed."""
    listed = answer.get(key) if isinstance(answer, dict) else None
    entries = [each for each in listed[:MAX_NAMES] if isinstance(each, dict)] if isinstance(listed, list) else []
    named = (each for each in entries if name in (each.get("id"), each.get("name"), each.get("model")))
    return next(named, {})


def _context(said: Any) -> int | None:
    whole = isinstance(said, int) and not isinstance(said, bool)
    return said if whole and _LEAST_CONTEXT <= said <= _MOST_CONTEXT else None


TITLES: Final = {"anthropic": "Anthropic", "openai": "OpenAI", "google": "Google", "openrouter": "OpenRouter"}
"""Providers that setup offers by name, each with a key."""
KEY_PAGES: Final = {
    "anthropic": "https://console.anthropic.com/settings/keys",
    "openai": "https://platform.openai.com/api-keys",
    "google": "https://aistudio.google.com/apikey",
    "openrouter": "https://openrouter.ai/settings/keys",
}
_ALWAYS_SHOWN: Final = ("ollama", "openai-compatible")
_SETUP_KEY: Final = "FORGE_SETUP_KEY"
"""Stands for the variable of a key that is tried before it is stored, where the provider has none."""
_LIST_SECONDS: Final = 20.0
_TEST_SECONDS: Final = 60.0
_TEST_TOKENS: Final = 512
_LONGEST_ADDRESS: Final = 500
_OPENAI_CHAT: Final = regex(r"(gpt|o\d|chatgpt|codex)(?!.*(audio|tts|transcribe|realtime|image|embed|search|instruct))")
"""OpenAI's list has models that cannot converse; these can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderState:
    name: str
    key: str
    """Where its key is: `environment`, `keyring`, `file`, `none`; `not needed` if none is expected."""
    variable: str
    address: str
    """The address for requests; empty if none is set."""
    default_model: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """A person's choice. `base_url`: of a local server; empty means the provider's own address. `key`: empty if none
    was pasted.
    """

    provider: str
    model: str = ""
    """The model's name without the provider."""
    base_url: str = ""
    key: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}"


def provider_title(provider: str) -> str:
    return {**TITLES, "ollama": "Ollama", "openai-compatible": "the local server"}.get(provider, provider)


def person_settings(home: ForgeHome) -> Mapping[str, ProviderSettings]:
    """`models` of the person's own config.yaml; no project is read."""
    return load_program(home.path, home, trusted=lambda root: False).run.models


def provider_states(
    settings: Mapping[str, ProviderSettings], environ: Mapping[str, str], stored: ModelKeys
) -> list[ProviderState]:
    """Returns the providers that are offered by name, and those that somebody set up."""
    found = []
    for name, provider in PROVIDERS.items():
        if name == "scripted":
            continue
        variable, address = key_variable(name, settings), provider_address(name, settings)
        key, note = "none" if variable else "not needed", ""
        if variable and environ.get(variable):
            key = "environment"
        elif stored.has(name, address):
            key = stored.place(name)
        elif stored.address(name):
            note = f"the stored key is for {stored.address(name)} and is not sent elsewhere"
        if not (provider.default_model or name in _ALWAYS_SHOWN or name in settings) and key in ("none", "not needed"):
            continue
        found.append(
            ProviderState(
                name=name,
                key=key,
                variable=variable,
                address=address,
                default_model=provider.default_model,
                note=note,
            )
        )
    return found


def possible_addresses(typed: str) -> list[str]:
    """Returns the addresses that a person may have meant: `localhost:8080` is http://localhost:8080/v1, or that without
    /v1. Raises ConfigError.
    """
    address = typed.strip().rstrip("/")
    address = address if "://" in address else f"http://{address}"
    problems = ConfigProblems(YamlFile("the address", {}, {}))
    base_url(address, (), problems)
    if problems.found or len(address) > _LONGEST_ADDRESS:
        raise ConfigError("that is no address: write it like http://localhost:8080/v1, without credentials")
    return [address] if urlsplit(address).path else [f"{address}/v1", address]


async def find_at(home: ForgeHome, typed: str, key: str, environ: Mapping[str, str]) -> tuple[ModelChoice, list[str]]:
    """Asks a server of somebody's own for its models. Gives the address that answered, and the names; a server that
    lists none gives no names. Raises ModelError where nobody answers or the key is refused, ConfigError."""
    refused: ModelError | None = None
    for address in possible_addresses(typed):
        choice = ModelChoice(provider="openai-compatible", base_url=address, key=key)
        try:
            return choice, await list_models(home, choice, environ)
        except ModelError as error:
            if error.code in ("MODEL_UNREACHABLE", "MODEL_LIBRARY_MISSING", "MODEL_KEY_REFUSED"):
                raise
            refused = refused or error
    assert refused is not None
    if refused.http_status in (0, 404, 405):  # it is there, and lists nothing
        return choice, []
    raise refused


async def list_models(home: ForgeHome, choice: ModelChoice, environ: Mapping[str, str]) -> list[str]:
    """Returns the provider's models, its default first. Raises ModelError."""
    provider, settings = choice.provider, _settings_for(home, choice)
    address = provider_address(provider, settings)
    key = usable_key(choice.key) if choice.key else ""
    key = key or await asyncio.to_thread(key_of, provider, settings, environ, ModelKeys(home))
    if not key and PROVIDERS[provider].key_env:
        raise ModelError(f"{provider_title(provider)} needs a key to list its models", code="MODEL_KEY_MISSING")
    names = model_names(await _get_json(provider, address, key))
    if names is None:
        raise ModelError(f"{provider_title(provider)} sent no list of models; type the model's name")
    if provider == "openai":
        names = [name for name in names if _OPENAI_CHAT.match(name)] or names
    default = PROVIDERS[provider].default_model
    return [default, *(name for name in names if name != default)] if default in names else names


async def _get_json(provider: str, address: str, key: str) -> Any:
    try:
        import httpx2

        from golem_forge.net.tls import client_tls
    except ModuleNotFoundError as error:
        raise ModelError(missing_library(error), code="MODEL_LIBRARY_MISSING") from None
    url, headers = f"{address.rstrip('/')}/models", {"authorization": f"Bearer {key}"} if key else {}
    if provider == "anthropic":
        url = f"{address.rstrip('/')}/v1/models?limit=200"
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    elif provider == "google":
        url, headers = f"{address.rstrip('/')}/v1beta/models?pageSize=200", {"x-goog-api-key": key}
    try:
        async with (
            asyncio.timeout(_LIST_SECONDS),
            httpx2.AsyncClient(timeout=_LIST_SECONDS, verify=client_tls()) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            if answer.status_code != http.client.OK:
                raise _list_refused(provider, answer.status_code)
            data = bytearray()
            async for piece in answer.aiter_bytes():
                data += piece
                if len(data) > MAX_ANSWER:
                    raise ModelError(f"{provider_title(provider)} sent a list that is too long; type the model's name")
        return json.loads(bytes(data))
    except (httpx2.HTTPError, OSError, TimeoutError) as error:
        raise _unreachable(provider, address, type(error).__name__) from None
    except (ValueError, RecursionError):
        raise ModelError(f"{provider_title(provider)} sent no list of models; type the model's name") from None


def _list_refused(provider: str, status: int) -> ModelError:
    if status in (400, 401, 403) and (status != 400 or provider == "google"):
        return _key_refused(provider, status)
    return ModelError(f"{provider_title(provider)} does not list its models ({status})", http_status=status)


def _key_refused(provider: str, status: int) -> ModelError:
    page = f", or make a new one at {KEY_PAGES[provider]}" if provider in KEY_PAGES else ""
    text = f"{provider_title(provider)} refused the key ({status}). Check that you copied all of it{page}"
    return ModelError(text, http_status=401, code="MODEL_KEY_REFUSED")


def _unreachable(provider: str, address: str, why: str) -> ModelError:
    text = f"{provider_title(provider)} cannot be reached at {normal_address(address)} ({why})"
    return ModelError(f"{text}. Check your network and proxy, or start the server", code="MODEL_UNREACHABLE")


async def try_model(
    model: str,
    *,
    settings: Mapping[str, ProviderSettings],
    environ: Mapping[str, str],
    stored: ModelKeys | None,
    script_root: Path = Path(),
) -> None:
    """One small request. Raises ModelError that says whether the key, the network or the model's name is wrong."""
    provider, name = split_model(model)
    quick = {**settings, provider: replace(settings.get(provider, NO_SETTINGS), request_timeout=_TEST_SECONDS)}
    opened = await asyncio.to_thread(
        lambda: open_model(model, settings=quick, environ=environ, script_root=script_root, stored=stored)
    )
    request = Request(
        system="", messages=(UserMessage(text="Reply with the word OK."),), max_output_tokens=_TEST_TOKENS
    )
    try:
        async with asyncio.timeout(_TEST_SECONDS):
            async for event in opened.stream(request):
                if isinstance(event, Completed):
                    return
    except TimeoutError:
        raise ModelError(
            f"{model} did not answer within {_TEST_SECONDS:.0f} seconds", code="MODEL_UNREACHABLE"
        ) from None
    except ModelError as error:
        raise _plain_failure(error, provider, name, provider_address(provider, settings)) from None
    finally:
        await opened.aclose()


def _plain_failure(error: ModelError, provider: str, name: str, address: str) -> ModelError:
    status = error.http_status
    wrong_key = provider == "google" and status == 400 and "key" in error.message.lower()
    if status in (401, 403) or wrong_key:
        return _key_refused(provider, status)
    if status == 404:
        text = f"{provider_title(provider)} does not know the model {name!r}. `forge models setup` lists what it has"
        return ModelError(text, http_status=status, code="MODEL_UNKNOWN")
    if not status and error.retryable:
        return _unreachable(provider, address, error.message.partition(": ")[2] or "no answer")
    return error


async def try_choice(home: ForgeHome, choice: ModelChoice, environ: Mapping[str, str]) -> None:
    """Tries a choice that is not saved yet. Raises ModelError."""
    settings = _settings_for(home, choice)
    if choice.key:
        variable = key_variable(choice.provider, settings) or _SETUP_KEY
        own = replace(settings.get(choice.provider, NO_SETTINGS), key_env=variable)
        settings, environ = {**settings, choice.provider: own}, {**environ, variable: usable_key(choice.key)}
    await try_model(choice.name, settings=settings, environ=environ, stored=ModelKeys(home))


def save_choice(home: ForgeHome, choice: ModelChoice) -> str:
    """Makes it the person's default. Returns where the key is: `keyring`, `file`, or empty where none was given.
    Nothing is written if config.yaml cannot be edited. Blocks."""
    split_model(choice.name)
    data = read_existing(home.config)
    text = data.decode("utf-8-sig")
    before = parse_yaml(data, home.config.name).value if data else {}
    if choice.base_url and choice.base_url != provider_address(choice.provider, person_settings(home)):
        own = (before.get("models") or {}).get(choice.provider) or {}
        block = {**own, "base_url": choice.base_url}
        text = put_entry(text, ("models",), choice.provider, block, _reads(("models", choice.provider), block))
    text = set_text(text, "model", choice.name, _reads(("model",), choice.name))
    address = choice.base_url or provider_address(choice.provider, person_settings(home))
    place = ModelKeys(home).save(choice.provider, address, choice.key) if choice.key else ""
    replace_existing(home.config, data, text)
    return place


def save_default(home: ForgeHome, model: str) -> None:
    """`a` or `a,b`: the person's default, written into their config.yaml. Raises ConfigError."""
    split_models(model)
    data = read_existing(home.config)
    replace_existing(home.config, data, set_text(data.decode("utf-8-sig"), "model", model, _reads(("model",), model)))


def _reads(path: Sequence[str], expected: Any) -> Any:
    """Checks that the edited text says what was meant."""

    def check(text: str) -> None:
        found: Any = parse_yaml(text, "config.yaml").value
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if found != expected:
            raise ConfigError("config.yaml: Forge cannot edit this file; write `model:` into it by hand")

    return check


def _settings_for(home: ForgeHome, choice: ModelChoice) -> Mapping[str, ProviderSettings]:
    settings = person_settings(home)
    if not choice.base_url:
        return settings
    own = settings.get(choice.provider, NO_SETTINGS)
    return {**settings, choice.provider: replace(own, base_url=choice.base_url)}


_LATER: Final = ("state", "setup.json")


def wants_setup(home: ForgeHome) -> bool:
    """Whether to offer the setup of a model; False if the person wants only tools for now."""
    try:
        return bool(read_json(home.path.joinpath(*_LATER), 4096).get("model") != "later")
    except JSON_FILE_ERRORS:
        return True


def remember_later(home: ForgeHome) -> None:
    write_private(home.ensure(_LATER[0]) / _LATER[1], json.dumps({"model": "later"}).encode())
