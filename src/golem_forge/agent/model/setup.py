"""Setting a model up: which keys and local servers there are, what a provider offers, one test request, the choice.

Takes FORGE_HOME and what the person answered; the questions themselves are asked by `forge models setup` and by the
page. `save_choice` writes the model into the person's own config.yaml (comments stay) and stores the key. Only the
person's own configuration counts here: a project cannot name the address to which a new key goes. `try_model` sends one
small request over the provider code that sessions use. Raises ModelError in words that say what to do, ConfigError for
a config.yaml that cannot be edited.

Threat: any process of this machine may listen on the port of a local server, and a provider's list is text of others.
Only the loopback address is asked, redirects are not followed, answers are bounded, and a name that is not printable
or too long is left out. Error texts carry no key.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.messages import UserMessage
from golem_forge.agent.model.interface import Completed, ModelError, Request
from golem_forge.agent.model.keys import ModelKeys, normal_address, usable_key
from golem_forge.agent.model.selection import (
    NO_SETTINGS,
    PROVIDERS,
    key_of,
    key_variable,
    open_model,
    provider_address,
    split_model,
    split_models,
)
from golem_forge.config.program import load_program
from golem_forge.config.run_block import ProviderSettings
from golem_forge.config.yaml_edit import put_entry, read_existing, replace_existing, set_text
from golem_forge.config.yaml_file import parse_yaml
from golem_forge.core.errors import ConfigError, missing_library
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.storage.home import ForgeHome
from golem_forge.storage.private_file import JSON_FILE_ERRORS, read_json, write_private

TITLES: Final = {"anthropic": "Anthropic", "openai": "OpenAI", "google": "Google", "openrouter": "OpenRouter"}
"""Providers that setup offers by name, each with a key."""
KEY_PAGES: Final = {
    "anthropic": "https://console.anthropic.com/settings/keys",
    "openai": "https://platform.openai.com/api-keys",
    "google": "https://aistudio.google.com/apikey",
    "openrouter": "https://openrouter.ai/settings/keys",
}
LOCAL_HOST: Final = "127.0.0.1"
LOCAL_PORTS: Final = (
    ("Ollama", 11434, "/api/tags"),
    ("LM Studio", 1234, "/v1/models"),
    ("llama.cpp", 8080, "/v1/models"),
    ("vLLM", 8000, "/v1/models"),
)
"""Who usually listens there, and what lists its models."""
MAX_NAMES: Final = 500
_PROBE_SECONDS: Final = 0.5
_LIST_SECONDS: Final = 20.0
_TEST_SECONDS: Final = 60.0
_TEST_TOKENS: Final = 512
_MAX_LIST_BYTES: Final = 8 << 20
_NAME: Final = regex(r"[\w.:/@+-]{1,200}")
_OPENAI_CHAT: Final = regex(r"(gpt|o\d|chatgpt|codex)(?!.*(audio|tts|transcribe|realtime|image|embed|search|instruct))")
"""OpenAI's list has models that cannot converse; these can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderState:
    name: str
    key: str
    """Where its key is: `environment`, `keyring`, `file`, `none`; `not needed` where none is expected."""
    variable: str
    address: str
    """Where its requests go; empty: nobody said."""
    default_model: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    title: str
    provider: str
    base_url: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """What a person chose. `base_url`: of a local server; empty: the provider's own address. `key`: empty where none
    was pasted."""

    provider: str
    model: str = ""
    """Without the provider."""
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


def find_local_servers() -> list[LocalServer]:
    """Model servers on the usual ports of this machine, all asked at once. Blocks for half a second at most."""
    with ThreadPoolExecutor(max(1, len(LOCAL_PORTS))) as pool:
        found = list(pool.map(lambda each: _local_models(each[1], each[2]), LOCAL_PORTS))
    servers = []
    for (title, port, _), names in zip(LOCAL_PORTS, found, strict=True):
        if names is not None:
            provider = "ollama" if title == "Ollama" else "openai-compatible"
            base_url = PROVIDERS[provider].base_url or f"http://{LOCAL_HOST}:{port}/v1"
            servers.append(LocalServer(title=title, provider=provider, base_url=base_url, models=tuple(names)))
    return servers


def _local_models(port: int, path: str) -> list[str] | None:
    """None: nobody listens there who lists models."""
    connection = http.client.HTTPConnection(LOCAL_HOST, port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", path, headers={"accept": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            return None
        text = answer.read(_MAX_LIST_BYTES + 1)
        return _model_names(json.loads(text)) if len(text) <= _MAX_LIST_BYTES else None
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _model_names(answer: Any) -> list[str] | None:
    """Of the shapes in use, `{data: [{id}]}` and `{models: [{name}]}`; None: it is none of them."""
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


async def list_models(home: ForgeHome, choice: ModelChoice, environ: Mapping[str, str]) -> list[str]:
    """What the provider says it has, its default first. Raises ModelError."""
    provider, settings = choice.provider, _settings_for(home, choice)
    base_url = provider_address(provider, settings)
    key = usable_key(choice.key) if choice.key else ""
    key = key or await asyncio.to_thread(key_of, provider, settings, environ, ModelKeys(home))
    if not key and PROVIDERS[provider].key_env:
        raise ModelError(f"{provider_title(provider)} needs a key to list its models", code="MODEL_KEY_MISSING")
    names = _model_names(await _get_json(provider, base_url, key))
    if names is None:
        raise ModelError(f"{provider_title(provider)} sent no list of models; type the model's name")
    if provider == "openai":
        names = [name for name in names if _OPENAI_CHAT.match(name)] or names
    default = PROVIDERS[provider].default_model
    return [default, *(name for name in names if name != default)] if default in names else names


async def _get_json(provider: str, base_url: str, key: str) -> Any:
    try:
        import httpx2
    except ModuleNotFoundError as error:
        raise ModelError(missing_library(error), code="MODEL_LIBRARY_MISSING") from None
    url, headers = f"{base_url.rstrip('/')}/models", {"authorization": f"Bearer {key}"} if key else {}
    if provider == "anthropic":
        url = f"{base_url.rstrip('/')}/v1/models?limit=200"
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    elif provider == "google":
        url, headers = f"{base_url.rstrip('/')}/v1beta/models?pageSize=200", {"x-goog-api-key": key}
    try:
        async with (
            asyncio.timeout(_LIST_SECONDS),
            httpx2.AsyncClient(timeout=_LIST_SECONDS) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            if answer.status_code != http.client.OK:
                raise _list_refused(provider, answer.status_code)
            data = bytearray()
            async for piece in answer.aiter_bytes():
                data += piece
                if len(data) > _MAX_LIST_BYTES:
                    raise ModelError(f"{provider_title(provider)} sent a list that is too long; type the model's name")
        return json.loads(bytes(data))
    except (httpx2.HTTPError, OSError, TimeoutError) as error:
        raise _unreachable(provider, base_url, type(error).__name__) from None
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


def _unreachable(provider: str, base_url: str, why: str) -> ModelError:
    text = f"{provider_title(provider)} cannot be reached at {normal_address(base_url)} ({why})"
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
        environ = {**environ, key_variable(choice.provider, settings): usable_key(choice.key)}
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
    """False: the person said that they want only tools for now."""
    try:
        return bool(read_json(home.path.joinpath(*_LATER), 4096).get("model") != "later")
    except JSON_FILE_ERRORS:
        return True


def remember_later(home: ForgeHome) -> None:
    write_private(home.ensure(_LATER[0]) / _LATER[1], json.dumps({"model": "later"}).encode())
