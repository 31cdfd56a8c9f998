"""Seals: for one call, for ten minutes, once."""

from __future__ import annotations

import pytest

from golem_forge.mcp.server.sealing import MOST_OPEN, VALID_SECONDS, NotSealed, Seals


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_opened_once_and_only_for_what_it_is_bound_to() -> None:
    seals: Seals[str] = Seals(lambda kept: None)
    state = seals.seal("call a", "kept")
    assert seals.open(state, "call b") is None
    assert Seals[str](lambda kept: None).open(state, "call a") is None
    assert seals.open(state, "call a") == "kept"
    assert seals.open(state, "call a") is None


def test_each_changed_character_breaks_it() -> None:
    seals: Seals[str] = Seals(lambda kept: None)
    state = seals.seal("call", "kept")
    for place, letter in enumerate(state):
        bent = state[:place] + ("a" if letter != "a" else "b") + state[place + 1 :]
        with pytest.raises(NotSealed):
            seals.open(bent, "call")
    for other in ("", ".", "é" * 4000, f"{state}-TAMPERED", state.partition(".")[0]):
        with pytest.raises(NotSealed):
            seals.open(other, "call")
    assert seals.open(state, "call") == "kept"


def test_time_ends_it_and_tells() -> None:
    clock, dropped = Clock(), list[str]()
    seals: Seals[str] = Seals(dropped.append, clock)
    state = seals.seal("call", "kept")
    clock.now += VALID_SECONDS - 1
    other = seals.seal("other", "fresh")
    clock.now += 1
    assert seals.open(state, "call") is None
    assert dropped == ["kept"]
    assert seals.open(other, "other") == "fresh"


def test_the_oldest_makes_room() -> None:
    dropped: list[int] = []
    seals: Seals[int] = Seals(dropped.append)
    states = [seals.seal(f"call {number}", number) for number in range(MOST_OPEN + 2)]
    assert dropped == [0, 1] and len(seals) == MOST_OPEN
    assert seals.open(states[0], "call 0") is None
    assert seals.open(states[2], "call 2") == 2
