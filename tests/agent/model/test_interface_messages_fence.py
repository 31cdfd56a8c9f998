"""Tool output that cannot pass for anything else."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from golem_forge.agent.model.interface import HOW_TO_READ, fenced, unfenced

_LINE = re.compile(r"--- [0-9a-f]{16} tool output ---")


@given(text=st.text(min_size=1) | st.builds(fenced, st.text(min_size=1)))
def test_the_content_cannot_close_its_fence_and_comes_back_whole(text: str) -> None:
    marked = fenced(text)
    first, _, rest = marked.partition("\n")
    assert _LINE.fullmatch(first)
    assert marked.count(first) == 2 and marked.endswith(f"\n{first}")
    assert rest[: -len(first) - 1] == text
    assert unfenced(marked) == text
    assert unfenced(f"{marked}\nThis exact call has failed 3 times.") == f"{text}\nThis exact call has failed 3 times."


def test_nothing_needs_no_fence_and_two_fences_differ() -> None:
    assert fenced("") == "" and unfenced("") == "" and unfenced("plain\ntext") == "plain\ntext"
    assert fenced("x") != fenced("x")
    assert _LINE.pattern.replace("[0-9a-f]{16}", "<16 random hex>") in HOW_TO_READ
