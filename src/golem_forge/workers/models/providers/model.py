"""PydanticAIModel: one model of a provider, asked through the library. Takes our requests, gives our events.

An answer that the provider pauses is continued, a bounded number of times. Raises ModelError and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, cast

import httpx2
from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.settings import ModelSettings

from golem_forge.workers.models.flood import Flood
from golem_forge.workers.models.layer import ModelError, ModelEvent, Request, Usage, UsageSoFar
from golem_forge.workers.models.media import takes
from golem_forge.workers.models.providers.failing import model_error
from golem_forge.workers.models.providers.receiving import completed, content, delta, ended, joined, usage
from golem_forge.workers.models.providers.sending import parameters, translated

_DEFAULT_OUTPUT: Final = 16_384
_SMALL_OUTPUT: Final = 4_096
"""For Anthropic models whose limit is not known (all of them allow this), and for local ones."""
_LOCAL: Final = ("ollama", "openai-compatible")
"""Often served with a window of 8k or less, of which a larger answer would leave nothing for the question."""
_MAX_CONTINUATIONS: Final = 10


class PydanticAIModel:
    def __init__(self, provider: str, name: str, inner: TheirModel, *, http: httpx2.AsyncClient, key: str) -> None:
        self.name = f"{provider}:{name}"
        self._provider = provider
        self._inner = inner
        self._http = http
        self._key = key

    @property
    def context_window(self) -> int | None:
        return self._inner.context_window

    @property
    def max_output_tokens(self) -> int:
        if self._provider in _LOCAL:
            return _SMALL_OUTPUT
        if self._provider != "anthropic":
            return _DEFAULT_OUTPUT
        known: Any = self._inner.profile.get("anthropic_max_output_tokens")
        return min(known, _DEFAULT_OUTPUT) if isinstance(known, int) else _SMALL_OUTPUT

    @property
    def calls_natively(self) -> bool:
        return bool(self._inner.profile.get("supports_tools", True))

    def takes(self, media_type: str) -> bool:
        return takes(self._provider, media_type)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        try:
            offered = parameters(request)
            messages = self._inner.prepare_messages(translated(request, self._provider), offered)
            settings = self._settings(request)
            whole: theirs.ModelResponse | None = None
            flood = Flood(self.name)
            for _ in range(_MAX_CONTINUATIONS):
                async with model_request_stream(
                    self._inner, messages, model_settings=settings, model_request_parameters=offered
                ) as stream:
                    counted = Usage()
                    async for event in stream:
                        flood.add(content(event))
                        if piece := delta(event):
                            yield piece
                        if (so_far := usage(stream.usage)) != counted:
                            counted = so_far
                            yield UsageSoFar(usage=counted)
                    whole = joined(whole, ended(stream, self.name))
                if whole.state != "suspended":
                    yield completed(whole, request, provider=self._provider, model=self.name)
                    return
                # The provider paused a long answer; it goes on when it is sent its own beginning.
                await asyncio.sleep(self._inner.continuation_delay(whole) or 0)
                messages = [*messages, whole]
            raise ModelError(f"{self.name} paused its answer {_MAX_CONTINUATIONS} times without an end")
        except ModelError:
            raise
        except Exception as error:
            raise model_error(error, name=self.name, key=self._key) from error

    def _settings(self, request: Request) -> ModelSettings:
        settings: Any = ModelSettings()
        if request.max_output_tokens is not None:
            settings["max_tokens"] = request.max_output_tokens
        elif self._provider == "anthropic":  # the API requires a number; others have their own maximum
            settings["max_tokens"] = self.max_output_tokens
        if self._provider == "anthropic":
            settings["cache"] = True  # the loop sends the same beginning again and again
        if self._provider == "openai":
            settings["openai_store"] = False  # the history is ours; the provider need not keep a second one
        return cast(ModelSettings, settings)
