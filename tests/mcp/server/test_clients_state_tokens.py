"""Seals: for one call, for ten minutes, once."""

from __future__ import annotations

import pytest

from golem_forge.mcp.server.clients import MOST_OPEN, VALID_SECONDS, InvalidStateToken, StateTokens


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_opened_once_and_only_for_what_it_is_bound_to() -> None:
    seals: StateTokens[str] = StateTokens(lambda kept: None)
    state = seals.issue("call a", "kept")
    assert seals.redeem(state, "call b") is None
    assert StateTokens[str](lambda kept: None).redeem(state, "call a") is None
    assert seals.redeem(state, "call a") == "kept"
    assert seals.redeem(state, "call a") is None


def test_each_changed_character_breaks_it() -> None:
    seals: StateTokens[str] = StateTokens(lambda kept: None)
    state = seals.issue("call", "kept")
    for place, letter in enumerate(state):
        bent = state[:place] + ("a" if letter != "a" else "b") + state[place + 1 :]
        with pytest.raises(InvalidStateToken):
            seals.redeem(bent, "call")
    for other in ("", ".", "é" * 4000, f"{state}-TAMPERED", state.partition(".")[0]):
        with pytest.raises(InvalidStateToken):
            seals.redeem(other, "call")
    assert seals.redeem(state, "call") == "kept"


def test_time_ends_it_and_tells() -> None:
    clock, dropped = Clock(), list[str]()
    seals: StateTokens[str] = StateTokens(dropped.append, clock)
    state = seals.issue("call", "kept")
    clock.now += VALID_SECONDS - 1
    other = seals.issue("other", "fresh")
    clock.now += 1
    assert seals.redeem(state, "call") is None
    assert dropped == ["kept"]
    assert seals.redeem(other, "other") == "fresh"


def test_the_oldest_makes_room() -> None:
    dropped: list[int] = []
    seals: StateTokens[int] = StateTokens(dropped.append)
    states = [seals.issue(f"call {number}", number) for number in range(MOST_OPEN + 2)]
    assert dropped == [0, 1] and len(seals) == MOST_OPEN
    assert seals.redeem(states[0], "call 0") is None
    assert seals.redeem(states[2], "call 2") == 2
