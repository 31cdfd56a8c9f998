"""Usage, prices, cost and budgets of a worker and everything below it.

`Meter` sums the usage of a worker and adds it to its parent's, so the root's meter is the session's. A model without a
price costs None, never 0, and a sum that contains such a request is None. Reasoning is part of the output that
providers count. `Estimator` estimates the tokens of a request before it is sent.

`price_of` takes `provider:name` and the settings, returns a Price or None (not known), and never raises: the person's
`pricing`, nothing for a server on this machine, else the list of the library `genai-prices` as it was installed;
nothing is fetched. `Price.source` says where a price is from. This is the gateway to genai_prices: 60 ms at the first
lookup, which happens where a model's library is loaded anyway.

`Budget` enforces hard limits. It is asked before each request and each call and raises BudgetExceeded, which names the
limit and how much was used. A child with a limit of its own reserves it from its parent (never more than is left) and
returns the rest when it is closed; a child without one draws on its parent's. So children that run in parallel cannot
together spend more than their parent has.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from ipaddress import ip_address
from math import ceil
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

from golem_forge.agent.model.interface import (
    AssistantMessage,
    Message,
    Request,
    ResultsMessage,
    TokenUsage,
    UserMessage,
)
from golem_forge.agent.model.selection import OWN_SERVERS, provider_address, split_model
from golem_forge.config.run_block import BudgetLimits, Price, PriceTier, ProviderSettings
from golem_forge.core.calls import MediaPart
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.images import MAX_SIDE
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.events.model import UsageUpdated

LimitKind = Literal["max_cost_usd", "max_tokens", "max_requests", "max_tool_calls"]
_KINDS: Final[tuple[LimitKind, ...]] = ("max_cost_usd", "max_tokens", "max_requests", "max_tool_calls")
_SLACK: Final = 1e-9
"""Sums of money in floating point must not refuse the last cent."""
MIN_OUTPUT: Final = 16
"""A request that may answer with fewer tokens than this is not worth paying for its input."""


class BudgetExceeded(ForgeError):
    """Raised when a limit is reached; it ends the run, and the partial answer is kept."""

    def __init__(self, limit: str, allowed: float, used: float) -> None:
        text = f"budget exceeded: {limit} {_number(allowed)} (used {_number(used)})"
        super().__init__(text, status=Status.POLICY_DENIED, code="BUDGET_EXCEEDED")
        self.limit = limit


class SpendingGate(Protocol):
    """Money that sessions share: how much of it a request may take. Asked before each request of a session."""

    async def hold(self, least: float | None, wanted: float) -> float | None:
        """Sets aside up to `wanted`, not less than `least`; None: nothing is bounded. `least` None: the price of the
        model is not known. Raises ForgeError."""
        ...

    async def settle(self, held: float, cost: float) -> None: ...


class Budget:
    def __init__(
        self,
        limits: BudgetLimits | None = None,
        parent: Budget | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = limits or BudgetLimits()
        self.parent = parent
        self._clock: Callable[[], float] = clock if parent is None else parent._clock
        self._started = self._clock()
        self._max_seconds = limits.max_seconds
        self._limits: dict[LimitKind, float] = {}
        self._used: dict[LimitKind, float] = dict.fromkeys(_KINDS, 0)
        self._held: dict[LimitKind, float] = dict.fromkeys(_KINDS, 0)
        """Promised to children and to requests under way."""
        self._reserved: dict[LimitKind, float] = {}
        """What is left of this budget's own reservation with its parent."""
        for kind in _KINDS:
            limit: float | None = getattr(limits, kind)
            if limit is None:
                continue
            payer = parent._payer(kind) if parent is not None else None
            if payer is not None:
                limit = min(limit, max(0, payer._room(kind)))
                payer._held[kind] += limit
                self._reserved[kind] = limit
            self._limits[kind] = limit

    def child(self, limits: BudgetLimits | None = None) -> Budget:
        """Returns the budget of a sub-worker; `close` it at its end."""
        return Budget(limits, self)

    def close(self) -> None:
        """Gives what was reserved and not spent back to the parent. A second time does nothing."""
        for kind, left in self._reserved.items():
            self._above(kind)._held[kind] -= left
        self._reserved.clear()

    def restore(self, usage: TokenUsage, requests: int, calls: int, cost: float | None) -> None:
        """Adds what an earlier run of the session spent. Its time does not count, because nothing ran in between."""
        self.spend_request(usage, cost, requests)
        self._spend("max_tool_calls", calls)

    # Requests

    def check_request(self, estimated_input: int, max_output: int, price: Price | None = None) -> None:
        """May a request start that takes so many tokens and gives at most so many?"""
        self.check_time()
        self._check("max_requests", 1)
        self._check("max_tokens", estimated_input + max_output)
        self._check("max_cost_usd", worst_cost(estimated_input, max_output, price))

    def fit_output(self, estimated_input: int, wanted: int, price: Price | None = None) -> int:
        """The most output, up to `wanted`, that a request may still ask for. Refuses where that is next to nothing."""
        fits = float(wanted)
        if (payer := self._payer("max_tokens")) is not None:
            fits = min(fits, payer._room("max_tokens") - estimated_input)
        output = price.at(estimated_input).output if price is not None else 0.0
        if output > 0 and (payer := self._payer("max_cost_usd")) is not None:
            left = payer._room("max_cost_usd") - worst_cost(estimated_input, 0, price)
            fits = min(fits, left * 1_000_000 / output)
        usable = max(int(fits), min(wanted, MIN_OUTPUT))
        self.check_request(estimated_input, usable, price)
        return usable

    @contextmanager
    def hold_request(self, estimated_input: int, max_output: int, price: Price | None = None) -> Iterator[BudgetHold]:
        """`check_request`, and nobody else can spend the same money until the request is over. What a failed try took
        goes to `spend_request`, what the answer took to the `spend` of what this gives."""
        self.check_request(estimated_input, max_output, price)
        hold = BudgetHold(self)
        hold._take("max_requests", 1)
        hold._take("max_tokens", estimated_input + max_output)
        hold._take("max_cost_usd", worst_cost(estimated_input, max_output, price))
        try:
            yield hold
        finally:
            hold._release()

    def spend_request(self, usage: TokenUsage, cost: float | None, requests: int = 1) -> None:
        self._spend("max_requests", requests)
        self._spend("max_tokens", usage.total)
        self._spend("max_cost_usd", cost or 0.0)

    # Calls

    def take_call(self) -> None:
        """Checks and spends at once: calls start side by side."""
        self.check_time()
        self._check("max_tool_calls", 1)
        self._spend("max_tool_calls", 1)

    # Time

    @property
    def seconds_left(self) -> float | None:
        """Returns the seconds until the nearest deadline of this worker or of one above it; None if there is none."""
        left = [level._max_seconds - level._elapsed for level in self._levels() if level._max_seconds is not None]
        return max(0.0, min(left)) if left else None

    def check_time(self) -> None:
        for level in self._levels():
            if level._max_seconds is not None and level._elapsed >= level._max_seconds:
                raise BudgetExceeded("max_seconds", level._max_seconds, level._elapsed)

    @property
    def _elapsed(self) -> float:
        return self._clock() - self._started

    def limits_and_usage(self) -> dict[str, tuple[float | None, float]]:
        """Returns for each limit the allowed amount (None: no limit) and the amount used."""
        standing: dict[str, tuple[float | None, float]] = {"max_seconds": (self._max_seconds, self._elapsed)}
        return standing | {kind: (self._limits.get(kind), self._used[kind]) for kind in _KINDS}

    # How it is kept

    def _levels(self) -> Iterator[Budget]:
        level: Budget | None = self
        while level is not None:
            yield level
            level = level.parent

    def _payer(self, kind: LimitKind) -> Budget | None:
        """The nearest budget with such a limit: what it allows is reserved from those above it, so it alone decides."""
        return next((level for level in self._levels() if kind in level._limits), None)

    def _above(self, kind: LimitKind) -> Budget:
        assert self.parent is not None, "only a child has a reservation"
        payer = self.parent._payer(kind)
        assert payer is not None, "a reservation is with a budget that has a limit"
        return payer

    def _room(self, kind: LimitKind) -> float:
        return self._limits[kind] - self._used[kind] - self._held[kind]

    def _check(self, kind: LimitKind, amount: float) -> None:
        payer = self._payer(kind)
        if payer is not None and amount > payer._room(kind) + _SLACK:
            raise BudgetExceeded(kind, payer._limits[kind], payer._used[kind])

    def _spend(self, kind: LimitKind, amount: float) -> None:
        self._used[kind] += amount
        if (left := self._reserved.get(kind)) is not None:
            taken = min(left, amount)
            self._reserved[kind] = left - taken
            self._above(kind)._held[kind] -= taken
        if self.parent is not None:
            self.parent._spend(kind, amount)


class BudgetHold:
    """Money reserved for one running request."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._taken: dict[LimitKind, float] = {}

    def spend(self, usage: TokenUsage, cost: float | None) -> None:
        """Records what the request cost and frees the rest."""
        self._release()
        self._budget.spend_request(usage, cost)

    def check_again(self) -> None:
        """Checks the limits before a retry; a failed attempt may have used what was reserved."""
        self._budget.check_time()
        for kind in self._taken:
            self._budget._check(kind, 0)

    def _take(self, kind: LimitKind, amount: float) -> None:
        payer = self._budget._payer(kind)
        if payer is not None:
            payer._held[kind] += amount
            self._taken[kind] = amount

    def _release(self) -> None:
        for kind, amount in self._taken.items():
            payer = self._budget._payer(kind)
            assert payer is not None, "held with a budget that has a limit"
            payer._held[kind] -= amount
        self._taken.clear()


def worst_cost(estimated_input: int, max_output: int, price: Price | None) -> float:
    """Returns the highest possible cost of a request. All input may be new to the provider's cache, which some charge
    for.
    """
    if price is None:
        return 0.0
    written = estimated_input if (price.at(estimated_input).cache_write or 0.0) > price.at(estimated_input).input else 0
    return cost_of(TokenUsage(input=estimated_input, output=max_output, cache_write=written), price) or 0.0


def _number(value: float) -> str:
    """`20000`, `0.5`, `0.00002`: as a person would have written it."""
    if value >= 1:
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return format(Decimal(f"{value:.4g}"), "f")


_TOKENS_PER_PRICE: Final = 1_000_000


def cost_of(usage: TokenUsage, price: Price | None) -> float | None:
    """Returns the cost in USD; None if the price is unknown."""
    if price is None:
        return None
    price = price.at(usage.input)
    cached_price = price.input if price.cached is None else price.cached
    write_price = price.input if price.cache_write is None else price.cache_write
    fresh = max(0, usage.input - usage.cached - usage.cache_write)
    read = fresh * price.input + usage.cached * cached_price + usage.cache_write * write_price
    return (read + usage.output * price.output) / _TOKENS_PER_PRICE


def check_priced(limits: BudgetLimits, model: str, find_price: Callable[[], Price | None], *, where: str = "") -> None:
    """ConfigError for a cap in USD over a model whose price nobody knows: such a cap would never hold."""
    if limits.max_cost_usd is None or find_price() is not None:
        return
    at = f"{where}: " if where else ""
    raise ConfigError(
        f"{at}max_cost_usd is set, but the price of model {model!r} is not known; add to forge.yaml "
        f'`pricing: {{"{model}": {{input: …, output: …}}}}` (USD per million tokens)'
    )


ASSUMED_CONTEXT_WINDOW: Final = 128_000
"""Used for a model with an unknown window if the worker sets no `max_context_tokens`."""
COMPACT_CONTEXT: Final = 16_384
"""Tokens. Up to this context a model gets the compact prompt and fewer definitions: a seventh of it would be gone."""
_BYTES_PER_TOKEN: Final = 3.5
"""English prose is nearer to 4 and code nearer to 3; an estimate that guards a limit errs on the high side."""
_PER_MESSAGE: Final = 4
_MOST_TOKENS: Final = 10**12
_PER_ATTACHMENT: Final = 1_600
"""Tokens that providers count for a larger image."""
_PIXELS_PER_TOKEN: Final = 750
_PER_PICTURE: Final = 85
_PER_TILE: Final = 170
_COUNT_BY_TILES: Final = ("openai", "azure", "bedrock-mantle")
_GOOGLE: Final = ("google", "google-cloud")
_PER_PICTURE_OF_GOOGLE: Final = 1_120
_PER_TILE_OF_GOOGLE: Final = 258
_BYTES_PER_PAGE_TOKEN: Final = 50
"""For PDF files, whose pages count as text and as pictures."""
_BYTES_PER_SOUND_TOKEN: Final = {"audio/wav": 500, "audio/flac": 250}
_BYTES_PER_PACKED_SOUND_TOKEN: Final = 125
"""32 tokens a second, of which a sound at a low rate has the most for its bytes."""


@dataclass(slots=True)
class Meter:
    parent: Meter | None = None
    usage: TokenUsage = field(default_factory=TokenUsage)
    requests: int = 0
    prices: str = ""
    """The source of the prices, shown to a person; empty if the person set them."""
    _cost: float = 0.0
    _unpriced: bool = False

    @property
    def cost(self) -> float | None:
        return None if self._unpriced or not self.requests else self._cost

    @property
    def known_cost(self) -> float:
        """The cost of those requests whose price is known."""
        return self._cost

    def price_later(self, costs: Sequence[float | None]) -> None:
        """Adds what the requests cost that had no price at the time. One without a price leaves the sum unknown."""
        self._cost += sum(each or 0.0 for each in costs)
        self._unpriced = None in costs

    @property
    def session(self) -> Meter:
        """Returns the meter of the root worker."""
        return self if self.parent is None else self.parent.session

    def child(self) -> Meter:
        return Meter(parent=self)

    def add(self, usage: TokenUsage, cost: float | None, source: str = "") -> None:
        """Adds a request's usage and cost. `source`: of the price."""
        self.usage += usage
        self.requests += 1
        self._cost += cost or 0.0
        self._unpriced = self._unpriced or cost is None
        if source and source not in self.prices.split(", "):
            self.prices = f"{self.prices}, {source}".lstrip(", ")
        if self.parent is not None:
            self.parent.add(usage, cost, source)

    def restore(self, usage: TokenUsage, requests: int, cost: float | None, prices: str = "") -> None:
        """Sets the usage of an earlier run of the session; a cost of None means that it is unknown."""
        self.usage, self.requests, self.prices = usage, requests, prices
        self._cost, self._unpriced = cost or 0.0, bool(requests) and cost is None

    def sums(self) -> dict[str, Any]:
        usage = self.usage
        sums = {"input": usage.input, "output": usage.output, "cached": usage.cached, "cost": self.cost}
        return sums | {"prices": self.prices} if self.prices else sums

    def updated(self, *, request_id: str, worker_id: str, usage: TokenUsage, price: Price | None) -> UsageUpdated:
        """Adds one request and gives the event that says so."""
        cost = cost_of(usage, price)
        self.add(usage, cost, price.source if price is not None else "")
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


def clamp_usage(usage: TokenUsage) -> TokenUsage:
    """Threat: a server that counts below zero would give money back to every budget above it."""
    counts = usage.input, usage.output, usage.cached, usage.cache_write
    if all(type(each) is int and 0 <= each <= _MOST_TOKENS for each in counts):
        return usage
    known = [min(max(int(each), 0), _MOST_TOKENS) if isinstance(each, int) else 0 for each in counts]
    return TokenUsage(input=known[0], output=known[1], cached=known[2], cache_write=known[3])


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
            total += self._count(message, _text_tokens, last)
            total += _media_of(message, request.media_tokens or media_tokens)
        return total

    def _count(self, part: Any, count: Callable[[Any], int], last: dict[int, tuple[object, int]]) -> int:
        identity = id(part)
        known = last.get(identity) or (part, count(part))
        self._known[identity] = known
        return known[1]


def _schema_tokens(schema: Any) -> int:
    return estimate_tokens(_json(schema)) + _PER_MESSAGE


def message_tokens(message: Message, count_media: Callable[[MediaPart], int] | None = None) -> int:
    """`count_media`: of the model that is asked; see `media_tokens`."""
    return _text_tokens(message) + _media_of(message, count_media or media_tokens)


def _media_of(message: Message, count: Callable[[MediaPart], int]) -> int:
    if not isinstance(message, ResultsMessage):
        return 0
    return sum(count(part) for result in message.results for part in result.media)


def _text_tokens(message: Message) -> int:
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


def media_tokens(part: MediaPart, provider: str = "") -> int:
    """Estimates what a provider counts for a part that is sent: a picture by OpenAI's tiles, by Google's, or by its
    area, always after it is made smaller; a document by its size, which stands for its pages; a sound by its length.
    """
    if part.media_type.startswith("audio/"):
        return part.size // _BYTES_PER_SOUND_TOKEN.get(part.media_type, _BYTES_PER_PACKED_SOUND_TOKEN) + _PER_PICTURE
    if not part.media_type.startswith("image/"):
        return max(_PER_ATTACHMENT, part.size // _BYTES_PER_PAGE_TOKEN)
    if not part.width:
        return _PER_ATTACHMENT
    smaller = min(1.0, MAX_SIDE / max(part.width, part.height))
    width, height = part.width * smaller, part.height * smaller
    if provider in _COUNT_BY_TILES:
        smaller = min(1.0, 768 / min(width, height))
        return _PER_PICTURE + _PER_TILE * ceil(width * smaller / 512) * ceil(height * smaller / 512)
    if provider in _GOOGLE:
        return max(_PER_PICTURE_OF_GOOGLE, _PER_TILE_OF_GOOGLE * ceil(width / 768) * ceil(height / 768))
    return min(_PER_ATTACHMENT, int(width * height) // _PIXELS_PER_TOKEN + _PER_PICTURE)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


_log = logging.getLogger(__name__)
LOCAL: Final = Price(input=0.0, output=0.0, source="local")
_PASSES_ON: Final = "litellm"
"""A server of one's own that asks paid providers."""
_SAME_NAME: Final = (
    *("anthropic", "openai", "google", "openrouter", "azure", "cerebras", "cohere", "deepseek", "fireworks", "groq"),
    *("meta", "mistral", "moonshotai", "ovhcloud", "together", "zai"),
)
_LISTED: Final = {**{name: name for name in _SAME_NAME}, "bedrock": "aws", "google-cloud": "google", "xai": "x-ai"}
"""Ours → what the list calls it; others are found by their address."""
_UNPRICED: Final = ("scripted",)
_PARTS: Final = {"input": "input_mtok", "output": "output_mtok", "cached": "cache_read_mtok"}
_CACHE_WRITE: Final = "cache_write_mtok"


def price_of(
    model: str, settings: Mapping[str, ProviderSettings], pricing: Mapping[str, Price], *, listed: bool = True
) -> Price | None:
    """`listed`: whether the list is asked where `pricing` says nothing."""
    if model in pricing or not listed:
        return pricing.get(model)
    try:
        provider, name = split_model(model)
    except ConfigError:
        return None
    if provider in _UNPRICED:
        return None
    address = provider_address(provider, settings)
    if provider in OWN_SERVERS and provider != _PASSES_ON and is_this_machine(address):
        return LOCAL
    return _listed_price(_LISTED.get(provider, ""), name, address)


def is_this_machine(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=128)
def _listed_price(provider: str, name: str, address: str) -> Price | None:
    """`provider`: as the list calls it; empty: found by the address."""
    try:
        from genai_prices.data_snapshot import get_snapshot

        found, model = get_snapshot().find_provider_model(name, None, provider or None, None if provider else address)
        now = datetime.now(UTC)
        return _as_price(model.get_prices(now), _as_of(found.models, now.date()))
    except (ImportError, LookupError):
        return None
    except Exception:  # a list of another version; no price is better than no session
        _log.warning("the price list cannot be read", exc_info=True)
        return None


def _as_price(said: Any, as_of: str) -> Price | None:
    parts = {name: getattr(said, key, None) for name, key in _PARTS.items()}
    if parts["input"] is None or parts["output"] is None:
        return None
    write = getattr(said, _CACHE_WRITE, None)
    starts = sorted({tier.start for each in (*parts.values(), write) for tier in getattr(each, "tiers", ())})

    def at(start: int) -> dict[str, float | None]:
        known = {name: _amount(value, start) for name, value in parts.items()}
        return {**known, "cache_write": _amount(write, start)}

    tiers = tuple(PriceTier(start=start, price=Price(**at(start))) for start in starts)  # type: ignore[arg-type]
    return Price(**at(0), above=tiers, source=f"as of {as_of}" if as_of else "listed")  # type: ignore[arg-type]


def _amount(said: Any, start: int) -> float | None:
    """USD per million tokens of a request with more than `start` input tokens."""
    if said is None or isinstance(said, Decimal):
        return None if said is None else float(said)
    reached = [tier.price for tier in said.tiers if tier.start <= start] if start else []
    return float(reached[-1] if reached else said.base)


def _as_of(models: Iterable[Any], today: date) -> str:
    """The latest day on which a price of this provider began: the list is not older than that. It has no other date."""
    days = [
        day
        for model in models
        for each in (*(model.prices if isinstance(model.prices, list) else ()), *(model.price_variants or ()))
        if (day := getattr(each.constraint, "start_date", None)) is not None and day <= today
    ]
    return max(days).isoformat() if days else ""
