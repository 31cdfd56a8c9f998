"""Hostile servers do what they are there for, where the tests that lean on them would not notice: one that behaves
would prove nothing."""

from __future__ import annotations

from .conftest import PROGRAMS, PYTHON
from .talk import talking


def test_pages_are_all_different_and_end() -> None:
    names, cursor, pages = [], None, 0
    with talking([PYTHON, "-S", PROGRAMS / "hostile.py", "pages"]) as server:
        while cursor or not pages:
            page = server.ask("tools/list", {"cursor": cursor} if cursor else {})
            names += [tool["name"] for tool in page["tools"]]
            cursor, pages = page.get("nextCursor"), pages + 1

    assert pages == 25
    assert len(set(names)) == 2500


def test_garbage_comes_with_a_true_answer_and_a_false_one() -> None:
    with talking([PYTHON, "-S", PROGRAMS / "hostile.py", "garbage"]) as server:
        answers = [server.call("act"), server.answer(server.last)]

    assert [said["content"][0]["text"] for said in answers] == ["the answer", "another answer"]
