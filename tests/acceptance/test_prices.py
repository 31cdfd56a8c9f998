"""What a session costs, seen from outside: without a price typed by anybody, and with a limit that holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.ui.acp.editor import Editor
from tests.wire.server import WireCall, WireServer, WireTurn

Desks = Callable[..., Any]
MODEL = "anthropic:claude-sonnet-4-5"
"""3 USD per million input tokens, 15 output, 0.30 cached, on the list."""
LOOK = WireTurn(calls=(WireCall(name="list_dir", args={}),), input=100_000, output=1000, cached=50_000)
BOTH = (50_000 * 3 + 50_000 * 0.3 + 1000 * 15 + 10_000 * 3) / 1e6


def place_for(desk: Desks, server: WireServer, provider: str = "anthropic", more: str = "", **environ: str) -> Any:
    place = desk({}, ANTHROPIC_API_KEY="canary-key-1", **environ)
    place.home.mkdir()
    text = f"models: {{{provider}: {{base_url: '{server.base_url(provider)}'}}}}\n{more}"
    (place.home / "config.yaml").write_text(text)
    return place


def test_a_session_has_a_cost_without_any_price_typed(desk: Desks) -> None:
    with WireServer([LOOK, WireTurn(say="Nothing here.", input=10_000, output=0)]) as server:
        place = place_for(desk, server)
        ran = place.forge("run", "-m", MODEL, "look")
        assert ran.code == 0, ran.err
        assert f"${BOTH:.4f}" in ran.err and "cost unknown" not in ran.err
    [listed] = json.loads(place.forge("sessions", "list", "--json").out)
    assert listed["cost"] == pytest.approx(BOTH)
    table = place.forge("sessions", "list").out
    assert "COST" in table and f"${BOTH:.4f}" in table
    [last, *_] = [each for each in reversed(place.records()) if each.get("event") == "usageUpdated"]
    assert last["data"]["session"]["prices"].startswith("as of 20")


def test_an_editor_is_told_the_cost(desk: Desks) -> None:
    with WireServer([LOOK, WireTurn(say="Nothing here.", input=10_000, output=0)]) as server:
        place = place_for(desk, server, more=f"model: {MODEL}\n")
        with Editor(place) as editor:
            session = editor.request("session/new", cwd=str(place.root), mcpServers=[])["sessionId"]
            editor.prompt(session, "look")
            told = editor.updates("usage_update")[-1]
    assert told["cost"] == {"amount": pytest.approx(BOTH), "currency": "USD"}


def test_your_own_price_wins(desk: Desks) -> None:
    with WireServer([WireTurn(say="Hi.", input=1_000_000, output=0)]) as server:
        place = place_for(desk, server, more=f"pricing: {{'{MODEL}': {{input: 7, output: 1}}}}\n")
        ran = place.forge("run", "-m", MODEL, "hi")
    assert ran.code == 0 and "$7.0000" in ran.err


def test_a_price_that_is_written_later_counts_for_what_was_spent_before(desk: Desks) -> None:
    """In the list, in the sum of a resumed session, and for its limit in money."""
    model = "anthropic:of-tomorrow"
    with WireServer(lambda request: WireTurn(say="Hi.", input=1000, output=100)) as server:
        place = place_for(desk, server)
        assert "cost unknown" in place.forge("run", "-m", model, "hi").err
        config = place.home / "config.yaml"
        config.write_text(f"{config.read_text()}pricing: {{'{model}': {{input: 100, output: 1000}}}}\n")
        assert "$0.2000" in place.forge("sessions", "list").out
        assert "$0.4000" in place.forge("run", "-m", model, "--resume", "last", "again").err
        stopped = place.forge("run", "-m", model, "--resume", "last", "--max-cost", "0.3", "again")
    assert stopped.code == 4 and "max_cost_usd 0.3 (used 0.4)" in stopped.err and len(server.requests) == 2


def test_a_model_on_this_machine_costs_nothing_and_says_local(desk: Desks) -> None:
    with WireServer([WireTurn(say="Hi.")]) as server:
        place = place_for(desk, server, "openai-compatible")
        ran = place.forge("run", "--max-cost", "0.01", "-m", "openai-compatible:qwen", "hi")
    assert ran.code == 0 and "100 in · 10 out · local" in ran.err, ran.err
    assert " local " in place.forge("sessions", "list").out
    assert json.loads(place.forge("sessions", "list", "--json").out)[0]["cost"] == 0


def test_max_cost_stops_before_the_request_that_could_cross_it(desk: Desks) -> None:
    """Each request costs 0.18 USD, and could cost twice that. The second one is asked for no more output than there is
    money for; a third one is not sent, because the provider counted far more tokens than Forge had estimated."""
    with WireServer(lambda request: LOOK) as server:
        place = place_for(desk, server)
        ran = place.forge("run", "-m", MODEL, "--max-cost", "0.6", "look")
    assert ran.code == 4, ran.err
    assert "budget exceeded: max_cost_usd 0.6 (used 0.36)" in ran.err
    assert len(server.requests) == 2
    assert server.requests[1].body["max_tokens"] < server.requests[0].body["max_tokens"]


def test_a_limit_in_money_needs_a_price_that_somebody_knows(desk: Desks) -> None:
    with WireServer([]) as server:
        place = place_for(desk, server)
        ran = place.forge("run", "-m", "anthropic:no-such-model", "--max-cost", "1", "hi")
    assert ran.code == 2 and "pricing" in ran.err and server.requests == []
