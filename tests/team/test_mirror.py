"""Recorded sessions of a home go into the store, and come back as files, with the same bytes and hashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.team.background import Program

from golem_forge.events.index import SessionIndex
from golem_forge.events.journal import Journal
from golem_forge.events.journal_files import journal_path, list_journals
from golem_forge.events.journal_records import verify
from golem_forge.team.mirror import copy_sessions, mirror_all, mirrored, verify_sessions
from golem_forge.team.remote import RemoteStore
from golem_forge.team.rows import NewSession
from golem_forge.team.schema import pruning
from golem_forge.team.store import Store


def test_a_copied_session_keeps_its_bytes_and_verifies_when_it_comes_back(store: Store, tmp_path: Path) -> None:
    home = tmp_path / "home"
    closed, runs = Journal.create(home, "s-closed"), Journal.create(home, "s-runs")
    for number in range(3):
        closed.append("run", {"directory": f"/srv/{number}"})
        closed.append("note", {"text": "ü"})
    closed.close()
    assert {(each.session, bool(each.passed_over)) for each in copy_sessions(store, home, "ann")} == {
        ("s-closed", False),
        ("s-runs", True),
    }
    assert all(each.passed_over for each in copy_sessions(store, home, "ann"))
    row = store.find("s-closed")
    original = journal_path(home, "s-closed").read_bytes()
    assert (row.state, row.person, row.lines) == ("finished", "ann", original.count(b"\n"))
    for _ in range(2):  # the second time nothing is missing
        place = mirrored(store, tmp_path / "other", row)
        copy = journal_path(place, "s-closed")
        assert copy.read_bytes() == original
        assert verify(copy).ok
    copy.write_bytes(original.replace(b"srv", b"xrv"))
    copy.write_bytes(copy.read_bytes()[:-5])
    mirrored(store, tmp_path / "other", row)
    assert copy.read_bytes() == original
    runs.close()


def test_a_line_that_somebody_changed_or_cut_in_the_database_is_found(store: Store, tmp_path: Path) -> None:
    _whole, changed, cut, hole = names = [digit * 32 for digit in "1234"]
    for name in names:
        journal = Journal.create(tmp_path, name)
        for number in range(3):
            journal.append("note", {"text": f"bread {number}"})
        journal.close()
    assert [each.passed_over for each in copy_sessions(store, tmp_path, "ann")] == [""] * 4
    store.queue(NewSession(facts={}, input="has no journal yet"))
    assert [(row.id, found.ok) for row, found in verify_sessions(store)] == [(name, True) for name in names]
    line = dict(store.lines(changed))[3].replace(b"bread", b"beard")
    last = store.find(cut).lines
    with store.database.transaction() as connection, pruning(connection, store.database):
        connection.execute("DELETE FROM journal WHERE session = :id AND n = :last", {"id": cut, "last": last})
        connection.execute(
            "DELETE FROM journal WHERE session IN (:hole, :changed) AND n = 3", {"hole": hole, "changed": changed}
        )
        connection.execute(
            "INSERT INTO journal (session, n, line) VALUES (:id, 3, :line)", {"id": changed, "line": line}
        )
    found = {row.id: found for row, found in verify_sessions(store)}
    assert {name for name, each in found.items() if not each.ok} == {changed, cut, hole}
    assert found[changed].problems[0].line == 3
    assert "missing at the end" in found[cut].problems[0].what
    assert "line 3 of the journal" in found[hole].problems[0].what


def test_copies_of_pruned_sessions_go_when_the_copies_are_brought_up_to_date(store: Store, tmp_path: Path) -> None:
    home, laptop = tmp_path / "home", tmp_path / "laptop"
    names = [digit * 32 for digit in "12"]
    for name in names:
        Journal.create(home, name).close()
    assert [each.passed_over for each in copy_sessions(store, home, "ann")] == ["", ""]
    rows = store.sessions()
    place = mirror_all(store, laptop, rows, "")
    mirror_all(store, laptop, rows[:1], "")
    assert sorted(path.stem for path in list_journals(place)) == names, "an older one that the store has stays"
    with store.database.transaction() as connection:
        connection.execute("UPDATE sessions SET ended = 1 WHERE id = :id", {"id": names[0]})
        connection.execute("UPDATE sessions SET ended = @now WHERE id = :id", {"id": names[1]})
    assert store.prune(3600) == 1
    mirror_all(RemoteStore("http://127.0.0.1:1", "forge_x"), laptop, [], store.database.shown)
    assert len(list_journals(place)) == 2, "what a team's server says takes nothing away"
    mirror_all(store, laptop, store.sessions(), "")
    assert [path.stem for path in list_journals(place)] == names[1:]
    assert not [path for path in place.rglob("*") if path.name.startswith(names[0])]
    assert [each.id for each in SessionIndex(place).sessions()] == names[1:]
    with store.database.transaction() as connection, pruning(connection, store.database):
        connection.execute("DELETE FROM sessions WHERE id = :id", {"id": names[1]})
    mirror_all(store, laptop, [], "")
    assert [path.stem for path in list_journals(place)] == names[1:], "a restored store may lack it; the copy has it"


def test_whoever_prunes_keeps_no_copies_either(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = Program(tmp_path / "shop", tmp_path / "home", capture=capfd, tools=False)
    session = program.queue()
    program.store().stop(session, "ada", "test")
    Journal.create(program.home, "a" * 32).close()
    program.forge("store", "copy")
    program.forge("log", "sessions", "--store")
    assert list(program.home.glob("state/shared/*/*/*.jsonl"))
    with program.store().database.transaction() as connection:
        connection.execute("UPDATE sessions SET ended = 1")
    assert "2 sessions deleted" in program.forge("store", "prune")
    assert not list(program.home.glob("state/shared/*/*/*.jsonl"))
    program.close()
