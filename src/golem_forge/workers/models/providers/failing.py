"""The library's errors as ours, with the provider's words where it has some. Threat: a key in an error text."""

from __future__ import annotations

from typing import Any, Final, cast

import httpx2
from pydantic_ai import exceptions

from golem_forge.workers.models.layer import ModelError

_MAX_SAID: Final = 300


def model_error(error: Exception, *, name: str, key: str) -> ModelError:
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else 0
    code = "CONTEXT_EXCEEDED" if isinstance(error, exceptions.ModelContextWindowExceededError) else ""
    if isinstance(error, exceptions.ModelAPIError):
        said = _short(_provider_words(error) or type(error).__name__, key)
        refused = isinstance(error, (exceptions.ModelRequestRejectedError, exceptions.ModelQuotaExceededError))
        retryable = status in (408, 429) or status >= 500 if status else not refused
        what = f"answered {status}" if status else "failed"
        return ModelError(f"{name} {what}: {said}", retryable=retryable, retry_after=error.retry_after, code=code)
    if isinstance(error, (httpx2.TransportError, httpx2.StreamError, OSError)):
        return ModelError(f"{name}: the connection failed ({type(error).__name__})", retryable=True)
    if isinstance(error, exceptions.AgentRunError | exceptions.UserError):
        return ModelError(f"{name} cannot be asked this: {_short(str(error), key)}")
    # What a foreign exception says may hold anything; its type says enough to look further.
    return ModelError(f"{name}: the request failed inside the model library ({type(error).__name__})")


def _short(said: str, key: str) -> str:
    """Without the key, and cut between words: half of another secret would be known to nobody's redaction."""
    if key:
        said = said.replace(key, "[redacted]")
    if len(said) <= _MAX_SAID:
        return said
    return f"{said[:_MAX_SAID].rpartition(' ')[0]} …"


def _provider_words(error: exceptions.ModelAPIError) -> str:
    found: Any = error.body
    while isinstance(found, dict) and not isinstance(found.get("message"), str):
        found = found.get("error")
    text = found["message"] if isinstance(found, dict) else found if isinstance(found, str) else ""
    if not text and not isinstance(error, exceptions.ModelHTTPError):
        text = error.message
    return cast(str, text)
