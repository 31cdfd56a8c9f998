"""Budgets: hard limits, shared by children without being spent twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_forge.agent.budget import Budget, BudgetExceeded
from golem_forge.agent.model.interface import TokenUsage
from golem_forge.config.run_block import BudgetLimits, Price


def used(budget: Budget) -> float:
    return budget.limits_and_usage()["max_tokens"][1]


def test_a_request_must_fit_with_its_largest_answer() -> None:
    """W19: the text of the spec."""
    budget = Budget(BudgetLimits(max_tokens=20_000))
    budget.check_request(15_000, 5_000)
    budget.spend_request(TokenUsage(input=15_000, output=4_850), None)
    with pytest.raises(BudgetExceeded) as refused:
        budget.check_request(100, 100)
    assert str(refused.value) == "budget exceeded: max_tokens 20000 (used 19850)"
    assert refused.value.code == "BUDGET_EXCEEDED"


def test_requests_calls_and_money() -> None:
    budget = Budget(BudgetLimits(max_requests=1, max_tool_calls=2, max_cost_usd=0.5))
    price = Price(input=1, output=10)
    with pytest.raises(BudgetExceeded, match=r"max_cost_usd 0\.5 \(used 0\)"):
        budget.check_request(0, 50_001, price)
    budget.check_request(0, 50_000, price)
    budget.spend_request(TokenUsage(output=1000), 0.0125)
    with pytest.raises(BudgetExceeded, match=r"max_requests 1 \(used 1\)"):
        budget.check_request(1, 1, price)
    budget.take_call()
    budget.take_call()
    with pytest.raises(BudgetExceeded, match=r"max_tool_calls 2 \(used 2\)"):
        budget.take_call()


def test_a_small_amount_of_money_is_told_whole() -> None:
    budget = Budget(BudgetLimits(max_cost_usd=0.00002))
    budget.spend_request(TokenUsage(input=10), 0.0000123)
    with pytest.raises(BudgetExceeded, match=r"max_cost_usd 0\.00002 \(used 0\.0000123\)"):
        budget.check_request(10, 0, Price(input=1, output=1))


def test_no_limits_refuse_nothing() -> None:
    budget = Budget()
    budget.check_request(10**9, 10**9)
    budget.take_call()
    assert budget.seconds_left is None


def test_a_small_budget_asks_for_shorter_answers_before_it_refuses() -> None:
    budget = Budget(BudgetLimits(max_tokens=1000, max_cost_usd=0.01))
    assert budget.fit_output(100, 8000) == 900
    assert budget.fit_output(100, 8000, Price(input=0, output=20)) == 500
    budget.spend_request(TokenUsage(input=980), 0.0)
    with pytest.raises(BudgetExceeded, match="max_tokens 1000"):
        budget.fit_output(10, 8000)


def test_time_ends_at_the_nearest_deadline() -> None:
    now = 100.0
    parent = Budget(BudgetLimits(max_seconds=10), clock=lambda: now)
    now = 104.0
    child = parent.child(BudgetLimits(max_seconds=30))
    assert child.seconds_left == 6.0
    child.take_call()
    now = 110.5
    assert child.seconds_left == 0.0
    with pytest.raises(BudgetExceeded, match=r"max_seconds 10 \(used 10\.5\)"):
        child.take_call()


def test_a_child_reserves_and_returns_the_rest() -> None:
    parent = Budget(BudgetLimits(max_tokens=1000))
    child = parent.child(BudgetLimits(max_tokens=600))
    with pytest.raises(BudgetExceeded):
        parent.check_request(401, 0)
    child.check_request(600, 0)
    child.spend_request(TokenUsage(input=100), None)
    assert used(parent) == 100
    with pytest.raises(BudgetExceeded, match=r"max_tokens 600 \(used 100\)"):
        child.check_request(501, 0)
    child.close()
    child.close()
    parent.check_request(900, 0)
    with pytest.raises(BudgetExceeded):
        parent.check_request(901, 0)


def test_a_child_gets_no_more_than_its_parent_has_left() -> None:
    parent = Budget(BudgetLimits(max_tokens=1000, max_tool_calls=3))
    parent.spend_request(TokenUsage(input=700), None)
    child = parent.child(BudgetLimits(max_tokens=600))
    with pytest.raises(BudgetExceeded):
        child.check_request(301, 0)
    grandchild = child.child()
    for _ in range(3):
        grandchild.take_call()
    with pytest.raises(BudgetExceeded, match=r"max_tool_calls 3 \(used 3\)"):
        grandchild.take_call()


def test_requests_side_by_side_cannot_spend_the_same_tokens() -> None:
    parent = Budget(BudgetLimits(max_tokens=1000))
    one, two = parent.child(), parent.child()
    with one.hold_request(500, 200) as held:
        with pytest.raises(BudgetExceeded), two.hold_request(200, 200):
            pytest.fail("it does not fit")
        held.spend(TokenUsage(input=480, output=20), None)
        two.check_request(400, 100)
    two.check_request(400, 100)
    with pytest.raises(BudgetExceeded), two.hold_request(400, 101):
        pytest.fail("it does not fit")


def test_a_request_that_fails_gives_its_hold_back() -> None:
    budget = Budget(BudgetLimits(max_tokens=1000, max_requests=2))
    with pytest.raises(RuntimeError), budget.hold_request(900, 100):
        raise RuntimeError("the request failed")
    budget.check_request(900, 100)


@given(
    limit=st.integers(1, 1000),
    children=st.lists(st.tuples(st.one_of(st.none(), st.integers(1, 500)), st.lists(st.integers(1, 200))), max_size=5),
)
def test_whatever_children_do_the_limit_holds(limit: int, children: list[tuple[int | None, list[int]]]) -> None:
    parent = Budget(BudgetLimits(max_tokens=limit))
    opened = [parent.child(BudgetLimits(max_tokens=own)) for own, _ in children]
    for step in range(max((len(wanted) for _, wanted in children), default=0)):
        for child, (_, wanted) in zip(opened, children, strict=True):
            if step < len(wanted):
                try:
                    with child.hold_request(wanted[step], 0) as held:
                        held.spend(TokenUsage(input=wanted[step]), None)
                except BudgetExceeded:
                    continue
    for child in opened:
        child.close()
    spent = used(parent)
    assert spent == sum(map(used, opened)) <= limit
    if spent < limit:
        parent.check_request(int(limit - spent), 0)
    with pytest.raises(BudgetExceeded):
        parent.check_request(int(limit - spent) + 1, 0)
