"""Which runs count, how often, and which of two that share steps: custom-tools.md §13."""

from __future__ import annotations

import random

import pytest
from tests.deadlines import within

from golem_forge.custom.suggestions.kept import Session
from golem_forge.custom.suggestions.mining import Found, mine
from golem_forge.custom.suggestions.steps import Segment, Step

NOW = "2026-05-01T00:00:00.000Z"


def row(letters: str, at: str = NOW) -> Segment:
    """A letter a step: `rgw`. A capital letter is the same tool with other arguments."""
    return tuple(
        Step((letter.lower(), "a" if letter.islower() else "b"), (f"s:{n}",), at, 1.0, f"{letters}{n}")
        for n, letter in enumerate(letters)
    )


def sessions(*told: str) -> list[Session]:
    """`"rgw rgw"` is a session of two turns."""
    return [Session(f"s{n}", tuple(row(turn) for turn in turns.split())) for n, turns in enumerate(told)]


def runs(found: tuple[Found, ...]) -> dict[str, int]:
    return {"".join(tool if key == "a" else tool.upper() for tool, key in each.run): len(each.seen) for each in found}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (["rgw rgw", "rgw rgw"], {"rgw": 4}),
        (["rgw", "rgw"], {}),
        (["rgw rgw rgw rgw"], {}),  # one session
        (["rgw rgw", "rgw"], {"rgw": 3}),
        (["rgw rgw", "rGw"], {}),  # other argument keys
        (["rg rg", "rg"], {"rg": 3}),
        (["abcdefg abcdefg", "abcdefg"], {"abcdef": 3}),  # six at most
        (["r w r", "g r w"], {}),  # a turn of one call is no run, and turns are apart
    ],
)
def test_the_rule(told: list[str], expected: dict[str, int]) -> None:
    assert runs(mine(sessions(*told))) == expected


def test_a_longer_run_wins_and_its_parts_count_only_outside_of_it() -> None:
    assert runs(mine(sessions("rgw rgw rg", "rgw"))) == {"rgw": 3}
    assert runs(mine(sessions("rgw rgw rg rg", "rgw rg"))) == {"rgw": 3, "rg": 3}


def test_repetition_in_one_turn_counts_each_time_as_the_run_itself() -> None:
    """Whatever else `abcabcabc` holds: bca, abca, cabca, …"""
    assert runs(mine(sessions("rgwrgw", "rgwrgw"))) == {"rgw": 4}
    assert runs(mine(sessions("rgwrgwrgw rgwrgwrgw", "rgwrgwrgw"))) == {"rgw": 9}
    assert runs(mine(sessions("rgwrgwrg rgwrgwrg", "rgwrgwrg"))) == {"rgw": 6, "rg": 3}
    assert runs(mine(sessions("rwrw rwrw", "rwrw"))) == {"rw": 6}


def test_there_and_back_is_a_run_of_its_own() -> None:
    assert runs(mine(sessions("rwr rwr", "rwr"))) == {"rwr": 3}


def test_one_step_over_and_over_is_at_most_a_pair() -> None:
    assert runs(mine(sessions("rrrrr rrrrr", "rrrrr"))) == {"rr": 6}
    assert runs(mine(sessions("rrw rrw", "rrw"))) == {"rrw": 3}


def test_of_two_that_share_steps_the_more_frequent_has_them() -> None:
    assert runs(mine(sessions("abx cbx cbx", "cbx ab ab ab ab"))) == {"cbx": 3, "ab": 5}


def test_calls_of_user_tools_part_a_run() -> None:
    told = sessions("rmgw rmgw", "rmgw")
    assert runs(mine(told, own={"m"})) == {"gw": 3}
    assert runs(mine(told)) == {"rmgw": 3}


def test_what_is_older_than_thirty_days_is_over() -> None:
    old = Session("old", (row("rgw", "2026-01-01T00:00:00.000Z"),) * 3)
    new = Session("new", (row("rgw"), row("rgw")))
    assert runs(mine([new, old], since="2026-04-01")) == {}
    assert runs(mine([new, old], since="2025-12-01")) == {"rgw": 5}


def test_the_key_is_the_same_from_session_to_session_and_only_for_that_run() -> None:
    (one,) = mine(sessions("rgw rgw", "rgw"))
    (same,) = mine(sessions("rgw rgw", "rgw rgw"))
    (other,) = mine(sessions("rgW rgW", "rgW"))
    assert one.key == same.key != other.key


def test_many_steps_do_not_take_long() -> None:
    chance = random.Random(7)
    told = [
        Session(f"s{n}", tuple(row("".join(chance.choices("abcdefgh", k=20))) for _ in range(4))) for n in range(250)
    ]
    with within(30):
        found = mine(told)
    taken = [step.call for each in found for seen in each.seen for step in seen.steps]
    assert len(found) <= 50 and taken
