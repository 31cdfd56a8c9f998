"""Turns out of a journal: what is a turn, in which order, what parts a row. Written by the real writer of journals."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.decisions import Decision, Risk, Status, Verdict
from golem_forge.events.journal import CallStart, Journal
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import call_sequences
from golem_forge.usertools.call_sequences import JournalTail, TurnReader, recent_sessions

DECISION = Decision(verdict=Verdict.PRE_APPROVED, risk=Risk.LOW)


class Book:
    """A session's journal, filled as a worker's run fills it."""

    def __init__(self, home: ForgeHome) -> None:
        self.journal = Journal.create(home.path)
        self.path = self.journal.path
        self._n = 0

    def said(self, text: str, worker: str = "w") -> None:
        message = {"role": "user", "text": text, "attachments": [], "kind": "input"}
        self.journal.append("history", {"workerId": worker, "message": message})

    def answered(self, worker: str = "w", calls: tuple[Any, ...] = ()) -> None:
        message = {"role": "assistant", "text": "", "calls": list(calls)}
        self.journal.append("history", {"workerId": worker, "message": message})

    def call(
        self,
        tool: str,
        args: Any = None,
        status: str = Status.SUCCESS,
        caller: str = "llm",
        worker: str = "w",
        requested: str = "",
        id: str = "",
    ) -> str:
        self._n += 1
        id, args = id or f"c{self._n}", args or {}
        self.journal.begin(CallStart(id, tool, args, DECISION, caller, "main", "", requested or tool, worker_id=worker))
        if status:
            self.journal.finish(id, status, 2.5, "", "", {"kind": "text", "content": "x" * 100}, None)
        return id

    def close(self) -> None:
        self.journal.flush()
        self.journal.close()


def pair_in(home: ForgeHome) -> Book:
    """A session of one turn: `a`, then `b`."""
    book = Book(home)
    book.said("go")
    book.call("a"), book.call("b")
    book.close()
    return book


def turns_of(path: Path) -> TurnReader:
    turns = TurnReader()
    for record in JournalTail(path).records():
        turns.add(record)
    return turns


def rows(path: Path) -> list[str]:
    return ["".join(step.tool for step in segment) for segment in turns_of(path).all()]


def test_turns_are_apart_and_workers_have_their_own(home: ForgeHome) -> None:
    book = Book(home)
    book.said("one")
    book.call("a"), book.call("b")
    book.call("x", worker="child"), book.call("y", worker="child")
    book.call("c")
    book.said("two")
    book.call("a"), book.call("b")
    book.close()
    assert sorted(rows(book.path)) == ["ab", "abc", "xy"]


def test_failures_and_tools_about_tools_part_a_row_other_callers_do_not(home: ForgeHome) -> None:
    book = Book(home)
    book.said("go")
    book.call("a"), book.call("b"), book.call("c", status=Status.EXECUTION_FAILED), book.call("d"), book.call("e")
    book.call("mine", requested="run_custom_tool"), book.call("f"), book.call("g", caller="human"), book.call("h")
    book.call("i", caller="tool"), book.call("j"), book.call("create_custom_tool"), book.call("k"), book.call("l")
    book.call("m", status="")  # never ended
    book.close()
    assert rows(book.path) == ["ab", "de", "fhj", "kl"]


def test_the_order_is_the_models_and_only_what_it_gave_counts_as_its_arguments(home: ForgeHome) -> None:
    book = Book(home)
    book.said("go")
    asked = tuple({"id": id, "name": id, "args": {"q": 1} if id == "a" else {}} for id in "ab")
    book.answered(calls=asked)
    book.call("b", {"limit": 5}, id="b")
    book.call("a", {"q": 1, "limit": 100, "mode": "files"}, id="a")
    book.close()
    (segment,) = turns_of(book.path).all()
    assert [step.shape for step in segment] == [("a", "q"), ("b",)]
    assert [step.ms for step in segment] == [2.5, 2.5]


def test_a_turn_that_goes_on_is_not_over(home: ForgeHome) -> None:
    book, turns = Book(home), TurnReader()
    tail = JournalTail(book.path)

    def look() -> list[str]:
        book.journal.flush()
        for record in tail.records():
            turns.add(record)
        return ["".join(step.tool for step in segment) for segment in turns.answered()]

    book.said("one")
    book.call("a"), book.call("b")
    assert look() == []
    book.call("c")
    book.answered()
    assert look() == ["abc"]
    book.said("two")
    book.call("a"), book.call("b")
    assert look() == ["abc"]
    book.said("three")
    assert look() == ["abc", "ab"]
    book.close()


def test_values_are_marks_and_what_was_taken_out_is_equal_to_nothing(home: ForgeHome) -> None:
    book = Book(home)
    book.said("go")
    hidden = "[redacted 9 chars sha256:01234567]"
    book.call("a", {"p": "/workspace/canary", "t": f"Bearer {hidden}", "deep": {"k": ["[secret KEY]"]}, "n": None})
    book.call("b", {"p": "/workspace/canary", "i": 1, "f": 1.5, "l": ["x"], "o": {"x": 1}, "b": True})
    book.close()
    (session,) = recent_sessions(home)
    one, two = session.segments[0]
    assert dict(zip(one.shape[1:], one.marks, strict=True)) == {"deep": "x", "n": "z", "p": one.marks[2], "t": "x"}
    kinds = {name: mark.partition(":")[0] for name, mark in zip(two.shape[1:], two.marks, strict=True)}
    assert kinds == {"b": "b", "f": "n", "i": "i", "l": "as", "o": "o", "p": "s"}
    assert one.marks[2] == two.marks[-1]
    assert "canary" not in (home.path / "cache" / "suggestions.json").read_text()


def test_a_torn_or_foreign_line_is_passed_over(home: ForgeHome) -> None:
    book = pair_in(home)
    with book.path.open("ab") as file:
        file.write(b"not a record\n" + b'{"n":1,"type":"begun"' + b"\xff" * 50 + b"\n" + b'{"n":99,"ts":"","type":"beg')
    assert rows(book.path) == ["ab"]


def test_an_unchanged_journal_is_not_read_again(home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = call_sequences._segments
    monkeypatch.setattr(call_sequences, "_segments", lambda path: read.append(path.stem) or real(path))
    books = [pair_in(home), pair_in(home)]
    first = recent_sessions(home)
    assert len(first) == 2 and sorted(read) == sorted(book.journal.session_id for book in books)
    read.clear()
    assert set(recent_sessions(home)) == set(first) and read == []
    os.utime(books[0].path)
    assert set(recent_sessions(home)) == set(first) and read == [books[0].journal.session_id]
    cache = home.path / "cache" / "suggestions.json"
    assert cache.stat().st_mode & 0o777 == 0o600
    books[1].path.unlink()
    assert [each.id for each in recent_sessions(home)] == [books[0].journal.session_id]
    assert books[1].journal.session_id not in cache.read_text(), "a deleted session leaves nothing"
    assert recent_sessions(home, without=books[0].journal.session_id) == ()


@pytest.mark.parametrize(
    "spoilt", [b"", b"[]", b'{"version":1,"sessions":{"a":[1,2,[[["x"]]]]}}', b"\xff\xfe", b"[" * 9999]
)
def test_a_spoilt_cache_is_made_anew(home: ForgeHome, spoilt: bytes) -> None:
    book = pair_in(home)
    home.ensure("cache")
    cache = home.path / "cache" / "suggestions.json"
    cache.write_bytes(spoilt)
    assert len(recent_sessions(home)) == 1
    assert list(json.loads(cache.read_text())["sessions"]) == [book.journal.session_id]


def test_a_link_in_place_of_the_cache_is_neither_followed_nor_written_through(home: ForgeHome, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("mine")
    home.ensure("cache")
    (home.path / "cache" / "suggestions.json").symlink_to(other)
    pair_in(home)
    assert len(recent_sessions(home)) == 1 and other.read_text() == "mine"


def test_only_so_much_is_read_at_a_time_the_newest_first(home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    books = []
    for n in range(3):
        book = pair_in(home)
        os.utime(book.path, ns=(1, (call_sequences.time.time_ns() // 10**9 + n - 100) * 10**9))
        books.append(book.journal.session_id)
    monkeypatch.setattr(call_sequences, "MOST_JOURNAL_BYTES", book.path.stat().st_size)
    assert [each.id for each in recent_sessions(home)] == [books[2]]
    assert [each.id for each in recent_sessions(home)] == [books[2], books[1]], "the next look reads on"


def test_a_session_of_a_month_ago_is_not_looked_at(home: ForgeHome) -> None:
    pair_in(home)
    assert len(recent_sessions(home)) == 1
    assert recent_sessions(home, now=call_sequences.time.time() + 31 * 86_400) == ()


def test_of_a_very_long_session_the_newest_steps_stay(home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_sequences, "MOST_SESSION_STEPS", 4)
    book = Book(home)
    for tool in "abc":
        book.said("go")
        book.call(tool), book.call(tool)
    book.said("end")
    book.close()
    assert rows(book.path) == ["bb", "cc"]
