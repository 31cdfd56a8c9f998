"""What requests took and cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from golem_forge.agent.budget import (
    Budget,
    BudgetExceeded,
    Estimator,
    Meter,
    check_priced,
    cost_of,
    estimate_request,
    estimate_tokens,
    media_tokens,
)
from golem_forge.agent.model.interface import (
    AssistantMessage,
    CallResult,
    Request,
    RequestedCall,
    ResultsMessage,
    TokenUsage,
    ToolOffer,
    UserMessage,
)
from golem_forge.config.run_block import BudgetLimits, Price, PriceTier
from golem_forge.core.calls import MediaPart
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ConfigError
from golem_forge.events.model import to_wire


def test_cost_by_the_million_with_cached_input_at_its_own_price() -> None:
    usage = TokenUsage(input=1_000_000, output=100_000, cached=400_000)
    assert cost_of(usage, Price(input=3, output=15)) == pytest.approx(3 + 1.5)
    assert cost_of(usage, Price(input=3, output=15, cached=0.3)) == pytest.approx(0.6 * 3 + 0.4 * 0.3 + 1.5)
    assert cost_of(usage, Price(input=0, output=0)) == 0, "stated to be free"


def test_an_unknown_price_is_no_number() -> None:
    """W19."""
    assert cost_of(TokenUsage(input=5), None) is None
    meter = Meter()
    event = meter.updated(request_id="r", worker_id="w", usage=TokenUsage(input=5, output=1), price=None)
    wire = to_wire(event)
    assert wire["cost"] is None and wire["session"] == {"input": 5, "output": 1, "cached": 0, "cost": None}


def test_children_add_to_the_session() -> None:
    root = Meter()
    child = root.child()
    root.add(TokenUsage(input=10, output=1), 0.25)
    event = child.child().updated(
        request_id="r",
        worker_id="w",
        usage=TokenUsage(input=100, output=2, cached=50),
        price=Price(input=5000, output=0),
    )
    assert (event.input, event.cost) == (100, 0.5)
    assert event.session == {"input": 110, "output": 3, "cached": 50, "cost": 0.75}
    assert event.worker == {"input": 100, "output": 2, "cached": 50, "cost": 0.5}
    assert child.sums() == {"input": 100, "output": 2, "cached": 50, "cost": 0.5}
    assert root.requests == 2 and child.requests == 1


def test_a_sum_with_an_unpriced_request_is_not_half_a_sum() -> None:
    meter = Meter()
    assert meter.cost is None
    meter.add(TokenUsage(input=1), 0.5)
    assert meter.cost == 0.5
    meter.add(TokenUsage(input=1), None)
    assert meter.cost is None


def test_a_cap_in_money_needs_a_price() -> None:
    """W19: a load error that names `pricing`."""
    limits = BudgetLimits(max_cost_usd=1)
    check_priced(limits, "openai:x", lambda: Price(input=1, output=1))
    check_priced(BudgetLimits(max_tokens=5), "openai:x", lambda: None)
    with pytest.raises(ConfigError, match=r"^forge\.yaml:4: max_cost_usd.*'openai:x'.*`pricing"):
        check_priced(limits, "openai:x", lambda: None, where="forge.yaml:4")


def test_a_price_with_tiers_and_a_price_of_the_cache() -> None:
    more = Price(input=6, output=20, cached=0.6, cache_write=7)
    price = Price(input=3, output=10, cached=0.3, cache_write=4, above=(PriceTier(start=1000, price=more),))
    small = TokenUsage(input=1000, output=100, cached=300, cache_write=200)
    assert cost_of(small, price) == pytest.approx((500 * 3 + 300 * 0.3 + 200 * 4 + 100 * 10) / 1e6)
    large = TokenUsage(input=1001, output=100)
    assert cost_of(large, price) == pytest.approx((1001 * 6 + 100 * 20) / 1e6), "all of it costs what the tier says"


def test_a_cap_in_money_counts_what_the_cache_may_cost() -> None:
    """The whole input may be written to the provider's cache: that must fit too."""
    budget = Budget(BudgetLimits(max_cost_usd=0.001))
    budget.check_request(900, 0, Price(input=1, output=1))
    with pytest.raises(BudgetExceeded):
        budget.check_request(900, 0, Price(input=1, output=1, cache_write=1.25))


def test_estimates_grow_with_everything_that_is_sent() -> None:
    user = UserMessage(text="word " * 100)
    base = estimate_request(Request(system="", messages=(user,)))
    assert 100 <= base <= 200
    tool = ToolOffer(name="t", description="d" * 400, schema={"type": "object"})
    assert estimate_request(Request(system="s" * 400, messages=(user,), tools=(tool,))) > base + 200
    said = AssistantMessage(text="x" * 40, calls=(RequestedCall(id="1", name="t", args={"a": "y" * 400}),))
    result = ResultsMessage(results=(CallResult(id="1", name="t", status="success", text="z" * 4000),))  # type: ignore[arg-type]
    assert estimate_request(Request(system="", messages=(user, said, result))) > base + 1100
    assert estimate_tokens("") == 0 and estimate_tokens("\ud800") > 0


def picture(width: int, height: int, media_type: str = "image/png", size: int = 1000) -> MediaPart:
    return MediaPart(handle="out_1", media_type=media_type, size=size, width=width, height=height)


@pytest.mark.parametrize(
    ("part", "provider", "tokens"),
    [
        (picture(1000, 750), "anthropic", 1085),
        (picture(4000, 4000), "anthropic", 1600),
        (picture(64, 48), "openai", 85 + 170),
        (picture(1024, 1024), "openai", 85 + 4 * 170),
        (picture(1568, 100), "azure", 85 + 4 * 170),
        (picture(64, 48), "google", 1120),
        (picture(1560, 1560), "google", 9 * 258),
        (picture(0, 0), "google", 1600),
        (picture(0, 0, "application/pdf", 500_000), "", 10_000),
        (picture(0, 0, "audio/wav", 5_000_000), "google", 10_085),
    ],
)
def test_what_is_sent_besides_text_counts_by_the_rule_of_the_provider(
    part: MediaPart, provider: str, tokens: int
) -> None:
    assert media_tokens(part, provider) == tokens


def test_what_a_model_does_not_take_counts_as_its_line_of_text() -> None:
    result = CallResult(id="1", name="t", status=Status.SUCCESS, text="a line", media=(picture(1568, 1568),) * 5)
    request = Request(system="", messages=(ResultsMessage(results=(result,)),), media_tokens=lambda part: 0)
    assert estimate_request(request) < 20 < 5 * 1600 < estimate_request(replace(request, media_tokens=None))


class Told:
    """Counts how often it is written out as text."""

    times = 0

    def __str__(self) -> str:
        self.times += 1
        return "x" * 70


def test_an_estimator_counts_what_stays_once_and_never_differs_from_a_fresh_estimate() -> None:
    told = Told()
    tool = ToolOffer(name="t", description="d", schema={"type": "object", "title": told})
    said = AssistantMessage(text="hm", calls=(RequestedCall(id="1", name="t", args={"a": told}),))
    result = ResultsMessage(results=(CallResult(id="1", name="t", status=Status.SUCCESS, text="r" * 50),))
    grown = [UserMessage(text="hello"), said, result, UserMessage(text="more")]
    estimator = Estimator()
    for length in range(1, len(grown) + 1):
        request = Request(system="s", messages=tuple(grown[:length]), tools=(replace(tool),))
        counted = estimator.tokens(request)
        before = told.times
        assert estimator.tokens(request) == counted and told.times == before
        assert counted == estimate_request(request)
        told.times = before
    assert told.times == 2  # the schema once, the arguments once
    compacted = Request(system="s", messages=(UserMessage(text="short"),))
    assert estimator.tokens(compacted) == estimate_request(compacted)
