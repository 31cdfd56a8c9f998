"""Lines by counting give exactly what splitting gives, for any mixture of line ends."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from golem_forge.toolsets import file_access as numbered

_texts = st.lists(st.sampled_from(["a", "bc", "\n", "\r", "\r\n", "é", "\u2028", ""]), max_size=60).map("".join)


@given(_texts, st.integers(1, 70), st.integers(1, 20))
def test_counting_and_splitting_agree(text: str, first: int, limit: int) -> None:
    whole = numbered.split_lines(text)
    assert numbered.count_lines(text) == len(whole)
    assert numbered.lines_from_number(text, first, limit) == whole[first - 1 : first - 1 + limit]


def test_a_huge_file_of_short_lines_stays_cheap() -> None:
    text = "ab\n" * 400_000
    tracemalloc.start()

    assert numbered.count_lines(text) == 400_000
    assert numbered.lines_from_number(text, 399_999, 5) == ["ab\n", "ab\n"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 500_000
