"""The pages of a PDF that read_file shows as pictures."""

from __future__ import annotations

import pytest

from golem_forge.toolsets.pdf_child import pages_of_lines


@pytest.mark.parametrize(
    ("offset", "limit", "pages"),
    [(1, 1, [0]), (3, 2, [0, 1]), (-1, 1, [2]), (-9, 3, [0]), (-1000, 3, [0]), (-1000, 4, [0, 1])],
)
def test_pages_are_those_of_the_lines_that_are_shown(offset: int, limit: int, pages: list[int]) -> None:
    assert pages_of_lines(["a\n" * 3] * 3, offset, limit) == pages
