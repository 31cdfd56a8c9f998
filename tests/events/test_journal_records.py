"""Reading and verifying: every kind of tampering is found and named by its line; an accident is called an accident."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from golem_forge.events import journal_records
from golem_forge.events.journal import Journal, reopen
from golem_forge.events.journal_files import Anchor, JournalDamaged, anchor_path, read_anchor, seal_records
from golem_forge.events.journal_records import read, scan, verify

from .journals import small_session

Lines = list[bytes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return small_session(tmp_path)


def changed(lines: Lines) -> None:
    lines[4] = lines[4].replace(b"success", b"skipped")


def changed_with_its_hash(lines: Lines) -> None:
    previous = json.loads(lines[3])["hash"].encode()
    body = lines[4][: lines[4].rindex(b',"hash"')].replace(b"success", b"skipped")
    lines[4] = b'%b,"hash":"%b"}\n' % (body, sha256(previous + body).hexdigest().encode())


def cut(lines: Lines) -> None:
    del lines[4]


def cut_three(lines: Lines) -> None:
    del lines[4:7]


def swapped(lines: Lines) -> None:
    lines[4], lines[5] = lines[5], lines[4]


def moved_back(lines: Lines) -> None:
    lines.insert(9, lines.pop(4))


def inserted(lines: Lines) -> None:
    lines.insert(4, b'{"n":5,"ts":"t","type":"note","text":"forged","hash":"' + b"a" * 64 + b'"}\n')


def inserted_twin(lines: Lines) -> None:
    lines.insert(4, lines[2])


def garbage(lines: Lines) -> None:
    lines[4] = b"not a record\n"


def bad_hash(lines: Lines) -> None:
    lines[4] = lines[4][:-10] + b"zz" + lines[4][-8:]


@pytest.mark.parametrize(
    ("tamper", "line"),
    [
        (changed, 5),
        (changed_with_its_hash, 6),
        (cut, 5),
        (cut_three, 5),
        (swapped, 5),
        (moved_back, 5),
        (inserted, 5),
        (inserted_twin, 5),
        (garbage, 5),
        (bad_hash, 5),
    ],
)
def test_tampering_is_found_and_named(path: Path, tamper: Callable[[Lines], None], line: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    tamper(lines)
    path.write_bytes(b"".join(lines))
    anchor_path(path).unlink()
    checked = verify(path)
    assert not checked.ok
    assert checked.problems[0].line == line
    assert len(list(read(path))) >= 9


@pytest.mark.parametrize("tamper", [changed, cut, cut_three, inserted, inserted_twin, swapped])
def test_one_act_is_one_problem(path: Path, tamper: Callable[[Lines], None]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    tamper(lines)
    path.write_bytes(b"".join(lines))
    assert [problem.line for problem in scan(path).problems] == [5]


def test_every_single_byte_of_a_journal_counts(tmp_path: Path) -> None:
    path = small_session(tmp_path, calls=1)
    original = path.read_bytes()
    for place in range(0, len(original) - 1, 7):
        path.write_bytes(original[:place] + bytes([original[place] ^ 1]) + original[place + 1 :])
        number = original[:place].count(b"\n") + 1
        checked = verify(path)
        assert not checked.ok, place
        assert number in {problem.line for problem in checked.problems}, (place, checked.problems)


def test_a_whole_journal_is_ok(tmp_path: Path) -> None:
    checked = verify(small_session(tmp_path))
    assert (checked.ok, checked.lines, checked.problems, checked.notes) == (True, 14, [], [])


@pytest.mark.parametrize("kept", range(1, 14))
def test_a_tail_cut_off_by_whole_lines_is_found_by_the_anchor(path: Path, kept: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:kept]))
    checked = verify(path)
    assert [problem.line for problem in checked.problems] == [kept + 1]
    assert f"lines {kept + 1} to 14 are missing" in checked.problems[0].what


def test_without_an_anchor_a_cut_tail_is_at_least_not_closed(path: Path) -> None:
    anchor = read_anchor(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    anchor_path(path).unlink()
    checked = verify(path)
    assert checked.ok
    assert "not closed" in checked.notes[0]
    assert not verify(path, anchor).ok


def test_a_journal_written_anew_does_not_match_its_anchor(path: Path, tmp_path: Path) -> None:
    forged = small_session(tmp_path / "elsewhere", tool="write_file")
    path.write_bytes(forged.read_bytes())
    assert [problem.line for problem in verify(path).problems] == [14]


def test_a_journal_under_another_name_is_noticed(tmp_path: Path) -> None:
    path = small_session(tmp_path, "s1")
    path.rename(path.with_name("s2.jsonl"))
    assert "belongs to session s1" in verify(path.with_name("s2.jsonl")).problems[0].what


@pytest.mark.parametrize("left", [1, 30, -1])
def test_a_torn_last_line_is_torn_and_not_tampering(path: Path, left: int) -> None:
    anchor_path(path).unlink()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:left])
    checked = verify(path)
    assert (checked.ok, checked.lines) == (True, 13)
    assert "torn last line" in checked.notes[0]
    assert len(list(read(path))) == 13
    assert scan(path).torn == len(lines[-1][:left])


def test_a_torn_line_in_the_middle_is_tampering(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4][:20] + b"\n"
    path.write_bytes(b"".join(lines))
    assert verify(path).problems[0].line == 5


def test_a_live_session_is_in_use_and_neither_torn_nor_unclosed(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path)
    assert verify(journal.path).notes == ["in use"]
    journal.release()
    assert "not closed" in verify(journal.path).notes[0]


def test_an_empty_file_is_no_journal(path: Path) -> None:
    path.write_bytes(b"")
    anchor_path(path).unlink()
    assert not verify(path).ok


def forge(path: Path, *records: str) -> None:
    """Appends correctly chained lines, as someone who knows the format can."""
    found = scan(path)
    with path.open("ab") as file:
        file.write(seal_records(records, found.lines, found.hash)[0])


NOTE = '"ts":"t","type":"note","text":"forged"'
RESUMED, CLOSED = '"ts":"t","type":"resumed"', '"ts":"t","type":"closed"'


@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("added", [(NOTE,), (CLOSED,), (NOTE, CLOSED), (RESUMED, NOTE, CLOSED)], ids=len)
def test_what_is_added_after_the_end_is_found_however_well_chained(
    path: Path, added: tuple[str, ...], anchored: bool
) -> None:
    forge(path, *added)
    if not anchored:
        anchor_path(path).unlink()
    checked = verify(path)
    assert not checked.ok
    chained_only = added[0] == RESUMED and not anchored
    assert checked.problems[0].line == (14 + len(added) if chained_only else 15)


def test_a_session_with_something_after_its_end_is_not_resumed(tmp_path: Path) -> None:
    forge(small_session(tmp_path), NOTE)
    with pytest.raises(JournalDamaged, match="line 15"):
        reopen(tmp_path, "s1")


@pytest.mark.parametrize("left", [None, b"", b"garbage", b"[]", b'{"lines":"x","hash":""}', b"\xff\xfe"])
def test_a_closed_journal_without_a_readable_anchor_is_named(path: Path, left: bytes | None) -> None:
    if left is None:
        anchor_path(path).unlink()
    else:
        anchor_path(path).write_bytes(left)
    checked = verify(path)
    assert [problem.line for problem in checked.problems] == [14]
    assert ".head" in checked.problems[0].what


def test_a_session_closed_resumed_and_crashed_is_no_tampering(path: Path, tmp_path: Path) -> None:
    again = reopen(tmp_path, "s1").journal
    again.note("more")
    again.flush()
    assert verify(path).ok and verify(path).notes == ["in use"]
    again.release()
    checked = verify(path)
    assert checked.ok and "not closed" in checked.notes[0]
    anchor_path(path).unlink()
    assert verify(path).ok
    reopen(tmp_path, "s1").journal.close()
    assert (verify(path).ok, verify(path).notes) == (True, [])


def test_a_session_that_closes_while_it_is_verified_is_no_tampering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.create(tmp_path)

    def read_then_close(path: Path) -> Anchor | None:
        kept = read_anchor(path)
        journal.close()
        return kept

    monkeypatch.setattr(journal_records, "read_anchor", read_then_close)
    assert verify(journal.path).problems == []
