"""When a failed connection is tried again."""

from __future__ import annotations

from tests.tables import table

from golem_forge.mcp.client.connection import BACKOFF_CAP_S, MAX_ATTEMPTS, Backoff, backoff_ceiling


def test_the_wait_doubles_from_half_a_second_to_thirty() -> None:
    assert [backoff_ceiling(n) for n in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff_ceiling(10_000) == BACKOFF_CAP_S


def test_five_attempts_have_four_waits_between_them() -> None:
    backoff = Backoff(draw=lambda: 1.0)
    assert [backoff.failed() for _ in range(MAX_ATTEMPTS)] == [0.5, 1, 2, 4, None]
    backoff.reset()
    assert backoff.failed() == 0.5


@table("drawn", [0.0, 0.25, 1.0])
def test_full_jitter_takes_any_part_of_the_wait(drawn: float) -> None:
    assert Backoff(draw=lambda: drawn).failed() == drawn * 0.5
