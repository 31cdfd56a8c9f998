"""Usage: what requests took, summed for a worker and for its whole session, and estimates of what one will take.

A worker's meter adds to its parent's, so the root's meter is the session's. A sum that holds a request of unknown price
has cost None: half a sum would read as the whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from golem_forge.events.types import UsageUpdated
from golem_forge.workers.messages import AssistantMessage, Message, UserMessage
from golem_forge.workers.models.layer import Request, Usage

ASSUMED_CONTEXT_WINDOW: Final = 128_000
"""For a model whose window nobody knows and whose worker sets no `max_context_tokens`."""
_BYTES_PER_TOKEN: Final = 3.5
"""English prose is nearer to 4 and code nearer to 3; an estimate that guards a limit errs on the high side."""
_PER_MESSAGE: Final = 4
_MOST_TOKENS: Final = 10**12
_PER_ATTACHMENT: Final = 1_600
"""What providers count for a larger image."""


@dataclass(slots=True)
class Meter:
    parent: Meter | None = None
    usage: Usage = field(default_factory=Usage)
    requests: int = 0
    _cost: float = 0.0
    _unpriced: bool = False

    @property
    def cost(self) -> float | None:
        return None if self._unpriced or not self.requests else self._cost

    @property
    def session(self) -> Meter:
        """The meter of the root worker."""
        return self if self.parent is None else self.parent.session

    def child(self) -> Meter:
        return Meter(parent=self)

    def add(self, usage: Usage, cost: float | None) -> None:
        self.usage += usage
        self.requests += 1
        self._cost += cost or 0.0
        self._unpriced = self._unpriced or cost is None
        if self.parent is not None:
            self.parent.add(usage, cost)

    def restore(self, usage: Usage, requests: int, cost: float | None) -> None:
        """What an earlier run of the session took; a cost of None means that it is not known."""
        self.usage, self.requests = usage, requests
        self._cost, self._unpriced = cost or 0.0, bool(requests) and cost is None

    def sums(self) -> dict[str, Any]:
        usage = self.usage
        return {"input": usage.input, "output": usage.output, "cached": usage.cached, "cost": self.cost}

    def updated(self, *, request_id: str, worker_id: str, usage: Usage, cost: float | None) -> UsageUpdated:
        """Adds one request and gives the event that says so."""
        self.add(usage, cost)
        return UsageUpdated(
            request_id=request_id,
            worker_id=worker_id,
            input=usage.input,
            output=usage.output,
            cached=usage.cached,
            cost=cost,
            session=self.session.sums(),
            worker=self.sums(),
        )


def plausible(usage: Usage) -> Usage:
    """Threat: a server that counts below zero would give money back to every budget above it."""
    counts = usage.input, usage.output, usage.cached
    if all(type(each) is int and 0 <= each <= _MOST_TOKENS for each in counts):
        return usage
    known = [min(max(int(each), 0), _MOST_TOKENS) if isinstance(each, int) else 0 for each in counts]
    return Usage(input=known[0], output=known[1], cached=known[2])


def estimate_tokens(text: str) -> int:
    return int(len(text.encode("utf-8", "surrogatepass")) / _BYTES_PER_TOKEN) + 1 if text else 0


def estimate_request(request: Request) -> int:
    """Input tokens of a request, before anybody counted them."""
    return Estimator().tokens(request)


class Estimator:
    """Estimates one request after the other. What was in the last one too is not counted again: a history grows at its
    end and schemas seldom change, so a turn late in a conversation takes hardly longer than an early one."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, int]] = {}
        """Counts by identity; the object is kept with its count, so that no other can come by its identity."""

    def tokens(self, request: Request) -> int:
        last, self._known = self._known, {}
        total = estimate_tokens(request.system)
        for offer in request.tools:
            total += estimate_tokens(offer.name + offer.description) + self._count(offer.schema, _schema_tokens, last)
        for message in request.messages:
            total += self._count(message, message_tokens, last)
        return total

    def _count(self, part: Any, count: Callable[[Any], int], last: dict[int, tuple[object, int]]) -> int:
        identity = id(part)
        known = last.get(identity) or (part, count(part))
        self._known[identity] = known
        return known[1]


def _schema_tokens(schema: Any) -> int:
    return estimate_tokens(_json(schema)) + _PER_MESSAGE


def message_tokens(message: Message) -> int:
    total = _PER_MESSAGE
    if isinstance(message, UserMessage):
        total += estimate_tokens(message.text)
        total += sum(
            int(attached.size / _BYTES_PER_TOKEN) if attached.media_type.startswith("text/") else _PER_ATTACHMENT
            for attached in message.attachments
        )
    elif isinstance(message, AssistantMessage):
        total += estimate_tokens(message.text) + estimate_tokens(message.thinking)
        total += sum(estimate_tokens(call.name + _json(call.args)) + _PER_MESSAGE for call in message.calls)
    else:
        total += estimate_tokens(message.note)
        total += sum(estimate_tokens(result.text) + _PER_MESSAGE for result in message.results)
    return total


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
