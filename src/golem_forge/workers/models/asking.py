"""Asking a model: up to four tries, waits between them, and nothing left on screen of a failed one.

Takes a model and a request, shows what streams in, gives the Completed response. Raises ModelError when the request
cannot succeed or the tries are used up. Cancelling it at any point closes the connection and leaves nothing running.
"""

from __future__ import annotations

import asyncio
import random as _random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from golem_forge.workers.models.flood import Flood
from golem_forge.workers.models.layer import (
    Completed,
    Model,
    ModelError,
    ModelEvent,
    Request,
    TextDelta,
    ThinkingDelta,
    Usage,
    UsageSoFar,
)
from golem_forge.workers.models.usage import plausible

TRIES: Final = 4
MAX_WAIT: Final = 60.0
"""Seconds of `Retry-After` that are waited for; a provider that asks for more is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """A try failed and another one follows, or none does and the error is raised. What it streamed is withdrawn."""

    reason: str
    streamed: bool
    """Whether text or thinking had been shown."""
    usage: Usage
    """What the provider had counted for it by then: it is paid for all the same."""
    wait: float | None
    """Seconds until the next try; None: there is none."""


Show = Callable[[ModelEvent | Discarded], None]


async def ask(
    model: Model,
    request: Request,
    *,
    show: Show,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    random: Callable[[], float] = _random.random,
) -> Completed:
    """`random` gives numbers in [0, 1). Everything but the Completed of the last try goes to `show`."""
    for number in range(1, TRIES + 1):
        one = _Try(show)
        try:
            return await one.run(model, request)
        except ModelError as error:
            wait = _wait(error, number, random) if error.retryable and number < TRIES else None
            if one.streamed or one.usage.total or wait is not None:
                show(Discarded(reason=error.message, streamed=one.streamed, usage=one.usage, wait=wait))
            if wait is None:
                raise _final(error, number) from error
        await sleep(wait)
    raise AssertionError("the last try returns or raises")


class _Try:
    def __init__(self, show: Show) -> None:
        self._show = show
        self.streamed = False
        self.usage = Usage()

    async def run(self, model: Model, request: Request) -> Completed:
        completed: Completed | None = None
        flood = Flood(model.name)
        # Closed here and now, not by the garbage collector: a cancelled request must not keep its connection.
        async with aclosing(cast(Any, model.stream(request))) as events:
            async for event in events:
                if isinstance(event, Completed):
                    completed = replace(event, usage=plausible(event.usage))
                    continue
                if isinstance(event, (TextDelta, ThinkingDelta)):
                    flood.add(event.text)
                    self.streamed = True
                elif isinstance(event, UsageSoFar):
                    event = UsageSoFar(usage=plausible(event.usage))
                    self.usage = event.usage
                self._show(event)
        if completed is None:
            raise ModelError(f"{model.name}: the response broke off before its end", retryable=True)
        return completed


def _wait(error: ModelError, number: int, random: Callable[[], float]) -> float | None:
    """Seconds before the next try; None where the provider wants more patience than we have."""
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= MAX_WAIT else None
    base: float = 2 ** (number - 1)
    return base * (0.5 + random())


def _final(error: ModelError, number: int) -> ModelError:
    text = error.message
    if error.retryable and error.retry_after is not None and error.retry_after > MAX_WAIT:
        text += f"; the provider asks to wait {error.retry_after:.0f} s, more than the {MAX_WAIT:.0f} s waited for"
    elif number > 1:
        text += f" (after {number} tries)"
    return ModelError(text, retryable=error.retryable, retry_after=error.retry_after, code=error.code)
