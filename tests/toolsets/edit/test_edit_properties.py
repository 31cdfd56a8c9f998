"""Properties: any edit of a file can be written as a patch and gives exactly that edit; any text parses or is refused.

Also what placing costs: a hundred chunks in ten thousand lines, and failures in files made to be slow.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deadlines import within
from tests.tables import table

from golem_forge.toolsets.edit.locate import LineIndex, PatchedText, locate_chunks
from golem_forge.toolsets.edit.patch import (
    Chunk,
    PatchFailed,
    PatchInvalid,
    UpdateFile,
    is_bare_patch,
    parse_patch,
    rebase_patch,
    split_patch_command,
)
from golem_forge.toolsets.file_access import unified_diff

LINE = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r\n"), max_size=8)
FEW_LINES = st.sampled_from(["", "a", "b", " a", "a ", "\ta", "“q”", '"q"', "@@", "*** End Patch", "+", "- x"])
LINES = st.lists(st.one_of(LINE, FEW_LINES), max_size=30)
MARKERS = ["*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Delete File: b", "*** Update File: c", "@@ x"]
OTHERS = ["@@", "*** Move to: d", "*** End of File", " a", "+b", "-c", "", "<<EOF", "EOF", "\r", " *** Add File:", "\t"]
WORDS = st.sampled_from([*MARKERS, *OTHERS])


def chunks_of(patch: str) -> tuple[Chunk, ...]:
    (operation,) = parse_patch(patch)
    assert isinstance(operation, UpdateFile)
    return operation.chunks


def applied(data: bytes, patch: str) -> bytes:
    text = PatchedText(data, "/w/a")
    return text.apply_edits(locate_chunks(chunks_of(patch), text).edits).data


def refusal(work: Callable[[], object]) -> str | None:
    try:
        work()
    except (PatchInvalid, PatchFailed) as error:
        return error.message
    return None


@st.composite
def edited(draw: st.DrawFn) -> tuple[list[str], list[str], str, str]:
    """(old lines, new lines, a patch that names every old line, line end)"""
    old = draw(LINES)
    new: list[str] = []
    body: list[str] = []
    for line in old:
        if draw(st.booleans()) and draw(st.booleans()):
            added = draw(st.lists(LINE, max_size=2))
            new += added
            body += [f"+{text}" for text in added]
        if draw(st.integers(0, 3)):
            new.append(line)
            body.append(f" {line}")
        else:
            body.append(f"-{line}")
    if draw(st.booleans()) or not body:
        new.append("last")
        body.append("+last")
    patch = "\n".join(("*** Begin Patch", "*** Update File: a", "@@", *body, "*** End of File", "*** End Patch"))
    return old, new, patch, draw(st.sampled_from(["\n", "\r\n"]))


@given(edited())
def test_a_patch_of_an_edit_gives_that_edit(case: tuple[list[str], list[str], str, str]) -> None:
    old, new, patch, end = case
    before = "".join(line + end for line in old).encode()
    ending = end if old else "\n"
    want = "".join(line + ending for line in new).encode()
    assert applied(before, patch) == want
    if len(old) > 1 and old[-1]:
        assert applied(before.removesuffix(end.encode()), patch) == want


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=40, unique=True), st.data())
def test_chunks_with_context_find_their_places(numbers: list[int], data: st.DataObject) -> None:
    """Every line is another one; a chunk of three lines around a change is enough, whatever blanks were lost."""
    lines = [f"    line {number}" for number in numbers]
    at = data.draw(st.integers(0, len(lines) - 1))
    drift = data.draw(st.sampled_from(["", "trailing", "indent"]))
    shown = [line + "  " if drift == "trailing" else line[4:] if drift == "indent" else line for line in lines]
    context = shown[max(0, at - 1) : at]
    after = shown[at + 1 : at + 2]
    new = "added" if drift == "indent" else "    added"
    body = [*(f" {line}" for line in context), f"-{shown[at]}", f"+{new}", *(f" {line}" for line in after)]
    patch = "\n".join(("*** Begin Patch", "*** Update File: a", "@@", *body, "*** End Patch"))
    want = [*lines[:at], "    added", *lines[at + 1 :]]
    assert applied("\n".join((*lines, "")).encode(), patch) == "\n".join((*want, "")).encode()


@given(st.one_of(st.text(), st.lists(st.one_of(WORDS, LINE)).map("\n".join)))
def test_any_text_parses_or_is_refused_in_words(text: str) -> None:
    for candidate in (text, f"*** Begin Patch\n{text}\n*** End Patch"):
        for padded in (False, True):
            said = refusal(lambda text=candidate, padded=padded: parse_patch(text, padded=padded))  # type: ignore[misc]
            assert said is None or said.startswith("Patch not applied; nothing was changed.\n")
        is_bare_patch(candidate)
        split_patch_command(candidate)
        rebase_patch(candidate, "sub")


@given(st.binary(max_size=200), st.lists(st.one_of(WORDS, LINE)).map("\n".join))
def test_any_file_is_patched_or_refused_in_words(data: bytes, body: str) -> None:
    def patched() -> None:
        operations = parse_patch(f"*** Begin Patch\n*** Update File: a\n{body}\n*** End Patch")
        text = PatchedText(data, "/w/a")
        for operation in operations:
            if isinstance(operation, UpdateFile):
                written = text.apply_edits(locate_chunks(operation.chunks, text).edits)
                assert not written.data or written.data.endswith((b"\n", b"\r")) or written.data == b"\xef\xbb\xbf"

    said = refusal(patched)
    assert said is None or said.startswith("Patch not applied; nothing was changed.\n")


def test_a_hundred_chunks_in_ten_thousand_lines_are_shown_without_comparing_both_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("difflib.SequenceMatcher", None)
    lines = [f"line {number} of this file" for number in range(10_000)]
    body = []
    for at in range(50, 10_000, 100):
        body += ["@@", f" {lines[at - 1]}", f"-{lines[at]}", f"+changed {at}", f" {lines[at + 1]}"]
    patch = "\n".join(("*** Begin Patch", "*** Update File: a", *body, "*** End Patch"))
    data = ("\n".join(lines) + "\n").encode()
    text = PatchedText(data, "/w/a")
    written = text.apply_edits(locate_chunks(chunks_of(patch), text).edits)
    shown = unified_diff("/w/a", data, written.data, changes=written.changes)
    assert written.data.count(b"changed") == 100
    assert shown.count("\n@@ ") == 100 and shown.count("\n-line ") == 100


@table("body", [" a\n" * 9000 + "-b\n", "-b\n" + " a\n" * 9000, " a\n" * 4000 + "-a b c\n" + " a\n" * 4000])
def test_files_made_to_be_slow_are_not(body: str) -> None:
    """Nothing but equal lines, and a chunk that almost fits everywhere: line by line it would take minutes."""
    data = b"a\n" * 20_000
    text = PatchedText(data, "/w/a")
    with within(10), pytest.raises(PatchFailed, match="these lines are not in /w/a"):
        locate_chunks(chunks_of(f"*** Begin Patch\n*** Update File: a\n@@\n{body}*** End Patch"), text)


class CountedLine(str):
    """A line that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedLine.compared += 1
        return str.__eq__(self, other)  # type: ignore[no-any-return]

    __hash__ = str.__hash__


def test_a_long_chunk_in_a_file_of_few_different_lines_compares_each_line_a_few_times() -> None:
    lines = ["a", "b"] * 4_000
    wanted = [*map(CountedLine, ["a", "b"] * 1_000), CountedLine("a"), CountedLine("a")]
    index = LineIndex([*lines, *wanted, "b"])
    CountedLine.compared = 0
    assert list(index.places(wanted, 0, len(index.lines))) == [8_000]
    assert list(index.places(wanted, 8_000, 10_002)) == [8_000]
    assert not list(index.places(wanted, 8_001, 10_003)) + list(index.places(wanted, 0, 10_001))
    assert list(index.places(wanted[:1_000], 7_000, 8_004)) == [7_000, 7_002, 7_004]
    assert CountedLine.compared < 20 * len(index.lines)
