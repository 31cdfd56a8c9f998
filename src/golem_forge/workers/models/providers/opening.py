"""The clients of the providers, ready to be asked. Refuses (MODEL_LIBRARY_MISSING) where a provider's SDK is missing.

The SDKs' own retries are off, so that one try is one request on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import httpx2
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.profiles import ModelProfile

from golem_forge.workers.models.layer import ModelError
from golem_forge.workers.models.providers.model import PydanticAIModel

_CONNECT_SECONDS: Final = 10
_SILENCE_SECONDS: Final = 600
"""A reasoning model may be silent for minutes before its first word."""
_PROFILE: Final = ModelProfile(supports_inline_system_prompts=True)
"""Else the library tells some models that `<system>` inside a user turn has authority, which is where tool results go,
and rewrites such words in what people typed. Forge never sends a system message in the middle."""
_NO_KEY: Final = "no-key"
"""The OpenAI SDK insists on a key; servers that need none ignore it."""


def open_provider(provider: str, name: str, *, base_url: str, key: str) -> PydanticAIModel:
    http = httpx2.AsyncClient(timeout=httpx2.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS))
    try:
        return PydanticAIModel(provider, name, _OPENERS[provider](name, base_url, key, http), http=http, key=key)
    except ImportError as error:
        from golem_forge.workers.models.opening import INSTALL

        text = f"the library of provider {provider!r} is not installed ({error.name or 'see its cause'}): {INSTALL}"
        raise ModelError(text, code="MODEL_LIBRARY_MISSING") from error


def _anthropic(name: str, base_url: str, key: str, http: httpx2.AsyncClient) -> TheirModel:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(api_key=key, base_url=base_url, http_client=http, max_retries=0)
    return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client), profile=_PROFILE)


def _openai_client(base_url: str, key: str, http: httpx2.AsyncClient, *, official: bool) -> Any:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key=key or _NO_KEY, base_url=base_url, http_client=http, max_retries=0)
    if not official:
        # The SDK reads these from the environment; they are meant for OpenAI, not for whoever speaks its format.
        client.organization = client.project = None
        client._custom_headers = {}
    return client


def _openai(name: str, base_url: str, key: str, http: httpx2.AsyncClient) -> TheirModel:
    """The Responses API: newer models of OpenAI reason between tool calls there only."""
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = _openai_client(base_url, key, http, official=True)
    return OpenAIResponsesModel(name, provider=OpenAIProvider(openai_client=client), profile=_PROFILE)


def _openrouter(name: str, base_url: str, key: str, http: httpx2.AsyncClient) -> TheirModel:
    from pydantic_ai.models.openrouter import OpenRouterModel
    from pydantic_ai.providers.openrouter import OpenRouterProvider

    client = _openai_client(base_url, key, http, official=False)
    return OpenRouterModel(name, provider=OpenRouterProvider(openai_client=client), profile=_PROFILE)


def _ollama(name: str, base_url: str, key: str, http: httpx2.AsyncClient) -> TheirModel:
    from pydantic_ai.models.ollama import OllamaModel
    from pydantic_ai.providers.ollama import OllamaProvider

    client = _openai_client(base_url, key, http, official=False)
    return OllamaModel(name, provider=OllamaProvider(openai_client=client), profile=_PROFILE)


def _openai_compatible(name: str, base_url: str, key: str, http: httpx2.AsyncClient) -> TheirModel:
    """Chat Completions: the format that everybody else who says OpenAI-compatible means."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    client = _openai_client(base_url, key, http, official=False)
    provider = OpenAICompatibleProvider("openai-compatible", openai_client=client)
    return OpenAIChatModel(name, provider=provider, profile=_PROFILE)


def _google(name: str, base_url: str, key: str, http: httpx2.AsyncClient) -> TheirModel:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    provider = GoogleProvider(api_key=key, base_url=base_url, http_client=http)
    return GoogleModel(name, provider=provider, profile=_PROFILE)


_OPENERS: Final[dict[str, Callable[[str, str, str, httpx2.AsyncClient], TheirModel]]] = {
    "anthropic": _anthropic,
    "openai": _openai,
    "google": _google,
    "openrouter": _openrouter,
    "ollama": _ollama,
    "openai-compatible": _openai_compatible,
}
