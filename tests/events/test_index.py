"""The index: found quickly, rebuilt from the journals whenever it is not what it should be."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from golem_forge.events.index import SessionIndex
from golem_forge.events.journal import CallStart, Journal, reopen
from golem_forge.events.journal_files import anchor_path, is_locked
from golem_forge.events.journal_records import verify

from .journals import ALLOWED, ASKED, small_session


@pytest.fixture
def home(tmp_path: Path) -> Path:
    small_session(tmp_path, "aaa1", calls=3)
    with Journal.create(tmp_path, "bbb2") as journal:
        journal.propose("denied1", "shell", {"cmd": "ls"}, "human", "main/sub", parent="p")
        journal.decide("denied1", ASKED)
        journal.finish("denied1", "approval_denied", 0.0, "Denied by the user.")
        journal.begin(CallStart("open1", "shell", {"cmd": "ls"}, ALLOWED))
    return tmp_path


@pytest.fixture
def index(home: Path) -> SessionIndex:
    return SessionIndex(home)


def found(home: Path) -> list[tuple[str, str]]:
    return sorted((call.id, call.status) for call in SessionIndex(home).calls())


EVERYTHING = [("c0", "success"), ("c1", "success"), ("c2", "success"), ("denied1", "approval_denied"), ("open1", "")]


def test_sessions_and_calls(index: SessionIndex, home: Path) -> None:
    by_id = {session.id: session for session in index.sessions()}
    assert by_id.keys() == {"aaa1", "bbb2"}
    assert (by_id["aaa1"].lines, by_id["aaa1"].calls, by_id["aaa1"].closed) == (14, 3, True)
    assert [session.id for session in index.sessions(prefix="b")] == ["bbb2"]
    assert found(home) == EVERYTHING
    denied = index.calls(tool="shell", status="approval_denied")[0]
    assert (denied.session_id, denied.caller, denied.worker, denied.parent) == ("bbb2", "human", "main/sub", "p")
    assert denied.error == "Denied by the user."
    assert stat.S_IMODE((home / "index.db").stat().st_mode) == 0o600


def test_filters(index: SessionIndex) -> None:
    assert {call.id for call in index.calls(session="aa")} == {"c0", "c1", "c2"}
    assert {call.id for call in index.calls(session="%")} == set()
    assert len(index.calls(limit=2)) == 2
    assert index.calls(since="2999-01-01T00:00:00.000Z") == []
    assert len(index.calls(since="2000-01-01T00:00:00.000Z")) == 5
    newest_first = [call.proposed_at for call in index.calls()]
    assert newest_first == sorted(newest_first, reverse=True)


def test_one_call_by_prefix(index: SessionIndex) -> None:
    call = index.call("den")
    assert call is not None
    assert call.decision == ASKED.to_json()
    assert call.args == {"cmd": "ls"}
    assert index.call("nothing") is None
    with pytest.raises(ValueError, match="several calls start with 'c'"):
        index.call("c")


def test_what_is_new_is_read_and_what_is_deleted_goes(index: SessionIndex, home: Path) -> None:
    index.refresh()
    journal = reopen(home, "bbb2").journal
    journal.begin(CallStart("later", "read_file", {}, ALLOWED))
    assert dict(found(home))["open1"] == "interrupted"
    assert dict(found(home))["later"] == ""
    journal.finish("later", "success")
    assert dict(found(home))["later"] == "success"
    (home / "sessions" / "aaa1.jsonl").unlink()
    assert {call.session_id for call in index.calls()} == {"bbb2"}
    assert [session.id for session in index.sessions()] == ["bbb2"]


def test_a_file_that_was_replaced_is_read_from_its_beginning(index: SessionIndex, home: Path, tmp_path: Path) -> None:
    index.refresh()
    other = small_session(tmp_path / "elsewhere", "aaa1", calls=9)
    (home / "sessions" / "aaa1.jsonl").write_bytes(other.read_bytes())
    assert len(index.calls(session="aaa1")) == 9


def test_a_torn_line_is_left_for_later(home: Path) -> None:
    path = home / "sessions" / "aaa1.jsonl"
    with path.open("ab") as file:
        file.write(b'{"n":15,')
    assert len(SessionIndex(home).calls(session="aaa1")) == 3
    assert SessionIndex(home).sessions(prefix="aaa1")[0].lines == 14


def test_rebuilt_after_deletion(home: Path) -> None:
    assert found(home) == EVERYTHING
    (home / "index.db").unlink()
    assert found(home) == EVERYTHING
    assert (home / "index.db").exists()


@pytest.mark.parametrize("damage", ["garbage", "half", "schema", "version", "empty"])
def test_rebuilt_after_corruption(home: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    assert found(home) == EVERYTHING
    path = home / "index.db"
    if damage == "garbage":
        path.write_bytes(b"this is no database" * 500)
    elif damage == "half":
        path.write_bytes(path.read_bytes()[:6000])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TABLE calls" if damage == "schema" else "PRAGMA user_version = 99")
        connection.close()
    with caplog.at_level(logging.WARNING):
        assert found(home) == EVERYTHING
    if damage in ("garbage", "half", "schema"):
        assert "built anew" in caplog.text
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM calls").fetchone() == (5,)
    connection.close()


def test_a_locked_database_is_bypassed(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    SessionIndex(home).refresh()
    journal = reopen(home, "bbb2").journal
    journal.begin(CallStart("later", "read_file", {}, ALLOWED))
    holder = sqlite3.connect(home / "index.db")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with caplog.at_level(logging.WARNING):
            assert dict(found(home))["later"] == ""
    finally:
        holder.rollback()
        holder.close()
    assert "the journals are read instead" in caplog.text
    assert (home / "index.db").exists()


def test_a_database_that_cannot_be_opened_is_bypassed(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "index.db").mkdir()
    assert found(home) == EVERYTHING
    assert "the journals are read instead" in caplog.text


def test_a_home_without_sessions_has_none(tmp_path: Path) -> None:
    assert SessionIndex(tmp_path / "new").sessions() == []
    assert SessionIndex(tmp_path / "new").calls() == []


def test_the_index_remembers_how_long_a_journal_was(index: SessionIndex, home: Path) -> None:
    index.refresh()
    path = home / "sessions" / "aaa1.jsonl"
    anchor_path(path).unlink()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:9]))
    checked = verify(path, index.anchor("aaa1"))
    assert [problem.line for problem in checked.problems] == [10]


def test_a_new_version_of_the_index_still_remembers_how_long_a_journal_was(home: Path) -> None:
    SessionIndex(home).refresh()
    path = home / "sessions" / "aaa1.jsonl"
    anchor_path(path).unlink()
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:9]))
    with contextlib.closing(sqlite3.connect(home / "index.db")) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version - 1}")
    assert [problem.line for problem in verify(path, SessionIndex(home).anchor("aaa1")).problems] == [10]
    assert len(SessionIndex(home).calls(session="aaa1")) == 2


def test_what_is_no_journal_beside_them_keeps_nobody_from_finding_them(home: Path) -> None:
    """Threat: a pipe of that name would be read for ever; a link that leads nowhere, or to itself, ended the list."""
    folder = home / "sessions"
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "loop.jsonl").symlink_to(folder / "loop.jsonl")
    (folder / "zero.jsonl").symlink_to("/dev/zero")
    (folder / "folder.jsonl").mkdir()
    assert found(home) == EVERYTHING
    assert {session.id for session in SessionIndex(home).sessions()} == {"aaa1", "bbb2"}
    assert not is_locked(folder / "pipe.jsonl")
