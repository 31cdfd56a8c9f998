"""Which runs count, how often, and which of two that share steps: custom-tools.md §13."""

from __future__ import annotations

import random

from tests.deadlines import within
from tests.tables import table

from golem_forge.usertools.call_sequences import RepeatedSequence, Segment, SessionCalls, Step, find_repeated

NOW = "2026-05-01T00:00:00.000Z"


def row(letters: str, at: str = NOW) -> Segment:
    """A letter a step: `rgw`. A capital letter is the same tool with other arguments."""
    return tuple(
        Step((letter.lower(), "a" if letter.islower() else "b"), (f"s:{n}",), at, 1.0, f"{letters}{n}")
        for n, letter in enumerate(letters)
    )


def sessions(*told: str) -> list[SessionCalls]:
    """`"rgw rgw"` is a session of two turns."""
    return [SessionCalls(f"s{n}", tuple(row(turn) for turn in turns.split())) for n, turns in enumerate(told)]


def runs(found: tuple[RepeatedSequence, ...]) -> dict[str, int]:
    return {
        "".join(tool if key == "a" else tool.upper() for tool, key in each.sequence): len(each.occurrences)
        for each in found
    }


@table(
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
    assert runs(find_repeated(sessions(*told))) == expected


def test_a_longer_run_wins_and_its_parts_count_only_outside_of_it() -> None:
    assert runs(find_repeated(sessions("rgw rgw rg", "rgw"))) == {"rgw": 3}
    assert runs(find_repeated(sessions("rgw rgw rg rg", "rgw rg"))) == {"rgw": 3, "rg": 3}


def test_repetition_in_one_turn_counts_each_time_as_the_run_itself() -> None:
    """Whatever else `abcabcabc` holds: bca, abca, cabca, …"""
    assert runs(find_repeated(sessions("rgwrgw", "rgwrgw"))) == {"rgw": 4}
    assert runs(find_repeated(sessions("rgwrgwrgw rgwrgwrgw", "rgwrgwrgw"))) == {"rgw": 9}
    assert runs(find_repeated(sessions("rgwrgwrg rgwrgwrg", "rgwrgwrg"))) == {"rgw": 6, "rg": 3}
    assert runs(find_repeated(sessions("rwrw rwrw", "rwrw"))) == {"rw": 6}


def test_there_and_back_is_a_run_of_its_own() -> None:
    assert runs(find_repeated(sessions("rwr rwr", "rwr"))) == {"rwr": 3}


def test_one_step_over_and_over_is_at_most_a_pair() -> None:
    assert runs(find_repeated(sessions("rrrrr rrrrr", "rrrrr"))) == {"rr": 6}
    assert runs(find_repeated(sessions("rrw rrw", "rrw"))) == {"rrw": 3}


def test_of_two_that_share_steps_the_more_frequent_has_them() -> None:
    assert runs(find_repeated(sessions("abx cbx cbx", "cbx ab ab ab ab"))) == {"cbx": 3, "ab": 5}


def test_calls_of_user_tools_part_a_run() -> None:
    told = sessions("rmgw rmgw", "rmgw")
    assert runs(find_repeated(told, own={"m"})) == {"gw": 3}
    assert runs(find_repeated(told)) == {"rmgw": 3}


def test_what_is_older_than_thirty_days_is_over() -> None:
    old = SessionCalls("old", (row("rgw", "2026-01-01T00:00:00.000Z"),) * 3)
    new = SessionCalls("new", (row("rgw"), row("rgw")))
    assert runs(find_repeated([new, old], since="2026-04-01")) == {}
    assert runs(find_repeated([new, old], since="2025-12-01")) == {"rgw": 5}


def test_the_key_is_the_same_from_session_to_session_and_only_for_that_run() -> None:
    (one,) = find_repeated(sessions("rgw rgw", "rgw"))
    (same,) = find_repeated(sessions("rgw rgw", "rgw rgw"))
    (other,) = find_repeated(sessions("rgW rgW", "rgW"))
    assert one.key == same.key != other.key


def test_many_steps_do_not_take_long() -> None:
    chance = random.Random(7)
    told = [
        SessionCalls(f"s{n}", tuple(row("".join(chance.choices("abcdefgh", k=20))) for _ in range(4)))
        for n in range(250)
    ]
    with within(30):
        found = find_repeated(told)
    taken = [step.call for each in found for seen in each.occurrences for step in seen.steps]
    assert len(found) <= 50 and taken
