"""Head and tail of a text that need not be in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from tests.tables import table

from golem_forge.core.text import FixedText, TextSource
from golem_forge.toolsets.exec.result import JoinedText, TextSlice, bound_output


class Kept(list[bytes]):
    def __call__(self, pieces: Iterable[bytes]) -> str:
        self.append(b"".join(pieces))
        return "out_0123456789ab"


def test_what_fits_is_not_kept() -> None:
    kept = Kept()
    shown = bound_output(FixedText("é".encode() * 10), 20, kept)
    assert (shown.text, shown.handle, kept) == ("é" * 10, "", [])


def test_lines_are_cut_whole_and_the_rest_is_counted() -> None:
    kept = Kept()
    text = b"".join(b"line %03d\n" % n for n in range(100))
    shown = bound_output(FixedText(text), 60, kept)
    assert shown.text == (
        "line 000\nline 001\nline 002\n"
        "[… 94 lines, 846 bytes left out; whole output: read_output handle=out_0123456789ab]\n"
        "line 097\nline 098\nline 099\n"
    )
    assert kept == [text]


@table("limit", [4, 5, 6, 7, 40, 1000])
def test_no_character_is_divided_and_the_limit_is_in_bytes(limit: int) -> None:
    shown = bound_output(FixedText(("é" * 40_000).encode()), limit, Kept())
    head, joint, tail = shown.text.split("\n")
    assert set(head) == set(tail) == {"é"}
    assert len(head.encode()) <= limit // 2 and len(tail.encode()) <= limit // 2
    left_out = int(re.search(r"(\d+) bytes left out", joint)[1])  # type: ignore[index]
    assert left_out + len((head + tail).encode()) == 80_000


def test_parts_and_joins_read_like_one_text() -> None:
    whole = JoinedText([FixedText(b"abc"), TextSlice(FixedText(b"xxdefxx"), 2, 5), FixedText(b""), FixedText(b"gh")])
    assert (whole.size, whole.read(), whole.read(2, 7), whole.read(8)) == (8, b"abcdefgh", b"cdefg", b"")
    assert b"".join(whole.pieces(1, 4)) == b"bcd"


@pytest.mark.parametrize("text", [FixedText(b"x" * 100), JoinedText([FixedText(b"x" * 60), FixedText(b"x" * 40)])])
def test_without_a_store_there_is_no_handle_to_name(text: TextSource) -> None:
    shown = bound_output(text, 10, lambda _: "")
    assert shown.text == "xxxxx\n[… 1 lines, 90 bytes left out]\nxxxxx"
    assert shown.cut and not shown.handle
