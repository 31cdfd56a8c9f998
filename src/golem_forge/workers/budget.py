"""Budget: hard limits on a worker and everything below it. Asked before each request and each call; refuses with
BudgetExceeded, whose text says which limit and how much was used.

A child that has a limit of its own reserves it from its parent (never more than is left there) and gives back the rest
when it is closed; a child without one draws on its parent's. So children running side by side cannot together spend
what their parent does not have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from golem_forge.config.run_settings import BudgetLimits, Price
from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.workers.models.layer import Usage
from golem_forge.workers.models.pricing import check_priced, cost_of

__all__ = ["Budget", "BudgetExceeded", "Hold", "check_priced"]

Kind = Literal["max_cost_usd", "max_tokens", "max_requests", "max_tool_calls"]
_KINDS: Final[tuple[Kind, ...]] = ("max_cost_usd", "max_tokens", "max_requests", "max_tool_calls")
_SLACK: Final = 1e-9
"""Sums of money in floating point must not refuse the last cent."""
MIN_OUTPUT: Final = 16
"""A request that may answer with fewer tokens than this is not worth paying for its input."""


class BudgetExceeded(ForgeError):
    """Ends the run; the partial answer is kept."""

    def __init__(self, limit: str, allowed: float, used: float) -> None:
        text = f"budget exceeded: {limit} {_number(allowed)} (used {_number(used)})"
        super().__init__(text, status=Status.POLICY_DENIED, code="BUDGET_EXCEEDED")
        self.limit = limit


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
        self._limits: dict[Kind, float] = {}
        self._used: dict[Kind, float] = dict.fromkeys(_KINDS, 0)
        self._held: dict[Kind, float] = dict.fromkeys(_KINDS, 0)
        """Promised to children and to requests under way."""
        self._reserved: dict[Kind, float] = {}
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
        """For a sub-worker; `close` it at its end."""
        return Budget(limits, self)

    def close(self) -> None:
        """Gives what was reserved and not spent back to the parent. A second time does nothing."""
        for kind, left in self._reserved.items():
            self._above(kind)._held[kind] -= left
        self._reserved.clear()

    def restore(self, usage: Usage, requests: int, calls: int, cost: float | None) -> None:
        """What an earlier run of the session spent. Its time is not counted: nobody was at work in between."""
        self._spend("max_tokens", usage.total)
        self._spend("max_requests", requests)
        self._spend("max_tool_calls", calls)
        self._spend("max_cost_usd", cost or 0.0)

    # Requests

    def check_request(self, estimated_input: int, max_output: int, price: Price | None = None) -> None:
        """May a request start that takes so many tokens and gives at most so many?"""
        self.check_time()
        self._check("max_requests", 1)
        self._check("max_tokens", estimated_input + max_output)
        self._check("max_cost_usd", _worst(estimated_input, max_output, price))

    def fit_output(self, estimated_input: int, wanted: int, price: Price | None = None) -> int:
        """The most output, up to `wanted`, that a request may still ask for. Refuses where that is next to nothing."""
        fits = float(wanted)
        if (payer := self._payer("max_tokens")) is not None:
            fits = min(fits, payer._room("max_tokens") - estimated_input)
        if price is not None and price.output > 0 and (payer := self._payer("max_cost_usd")) is not None:
            left = payer._room("max_cost_usd") - _worst(estimated_input, 0, price)
            fits = min(fits, left * 1_000_000 / price.output)
        usable = max(int(fits), min(wanted, MIN_OUTPUT))
        self.check_request(estimated_input, usable, price)
        return usable

    @contextmanager
    def hold_request(self, estimated_input: int, max_output: int, price: Price | None = None) -> Iterator[Hold]:
        """`check_request`, and nobody else can spend the same money until the request is over. What a failed try took
        goes to `spend_request`, what the answer took to the `spend` of what this gives."""
        self.check_request(estimated_input, max_output, price)
        hold = Hold(self)
        hold._take("max_requests", 1)
        hold._take("max_tokens", estimated_input + max_output)
        hold._take("max_cost_usd", _worst(estimated_input, max_output, price))
        try:
            yield hold
        finally:
            hold._release()

    def spend_request(self, usage: Usage, cost: float | None) -> None:
        self._spend("max_requests", 1)
        self._spend("max_tokens", usage.total)
        self._spend("max_cost_usd", cost or 0.0)

    # Calls

    def check_call(self) -> None:
        self.check_time()
        self._check("max_tool_calls", 1)

    def spend_call(self) -> None:
        self._spend("max_tool_calls", 1)

    def take_call(self) -> None:
        """Both at once, for calls that start side by side."""
        self.check_call()
        self.spend_call()

    # Time

    @property
    def seconds_left(self) -> float | None:
        """Until the nearest deadline of this worker or of one above it; None: there is none."""
        left = [level._max_seconds - level._elapsed for level in self._levels() if level._max_seconds is not None]
        return max(0.0, min(left)) if left else None

    def check_time(self) -> None:
        for level in self._levels():
            if level._max_seconds is not None and level._elapsed >= level._max_seconds:
                raise BudgetExceeded("max_seconds", level._max_seconds, level._elapsed)

    @property
    def _elapsed(self) -> float:
        return self._clock() - self._started

    def standing(self) -> dict[str, tuple[float | None, float]]:
        """By the name of each limit: what it allows (None: no limit) and what was used of it."""
        standing: dict[str, tuple[float | None, float]] = {"max_seconds": (self._max_seconds, self._elapsed)}
        return standing | {kind: (self._limits.get(kind), self._used[kind]) for kind in _KINDS}

    def used(self, kind: Kind) -> float:
        """By this worker and everything below it."""
        return self._used[kind]

    # How it is kept

    def _levels(self) -> Iterator[Budget]:
        level: Budget | None = self
        while level is not None:
            yield level
            level = level.parent

    def _payer(self, kind: Kind) -> Budget | None:
        """The nearest budget with such a limit: what it allows is reserved from those above it, so it alone decides."""
        return next((level for level in self._levels() if kind in level._limits), None)

    def _above(self, kind: Kind) -> Budget:
        assert self.parent is not None, "only a child has a reservation"
        payer = self.parent._payer(kind)
        assert payer is not None, "a reservation is with a budget that has a limit"
        return payer

    def _room(self, kind: Kind) -> float:
        return self._limits[kind] - self._used[kind] - self._held[kind]

    def _check(self, kind: Kind, amount: float) -> None:
        payer = self._payer(kind)
        if payer is not None and amount > payer._room(kind) + _SLACK:
            raise BudgetExceeded(kind, payer._limits[kind], payer._used[kind])

    def _spend(self, kind: Kind, amount: float) -> None:
        self._used[kind] += amount
        if (left := self._reserved.get(kind)) is not None:
            taken = min(left, amount)
            self._reserved[kind] = left - taken
            self._above(kind)._held[kind] -= taken
        if self.parent is not None:
            self.parent._spend(kind, amount)


class Hold:
    """Money set aside for one request under way."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._taken: dict[Kind, float] = {}

    def spend(self, usage: Usage, cost: float | None) -> None:
        """What the request took; the rest is free again at once."""
        self._release()
        self._budget.spend_request(usage, cost)

    def check_again(self) -> None:
        """Before another try of the request: a failed one may have taken what was set aside for this one."""
        self._budget.check_time()
        for kind in self._taken:
            self._budget._check(kind, 0)

    def _take(self, kind: Kind, amount: float) -> None:
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


def _worst(estimated_input: int, max_output: int, price: Price | None) -> float:
    return cost_of(Usage(input=estimated_input, output=max_output), price) or 0.0


def _number(value: float) -> str:
    """`20000`, `0.5`, `0.0123`: as a person would have written it."""
    return f"{value:.4f}".rstrip("0").rstrip(".")
