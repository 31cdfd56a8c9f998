"""Recorded sessions of a home go into the store, and come back as files, with the same bytes and hashes."""

from __future__ import annotations

from pathlib import Path

from golem_forge.events.journal import Journal
from golem_forge.events.journal_files import journal_path
from golem_forge.events.journal_reader import verify
from golem_forge.team.mirror import copy_sessions, mirrored, verify_sessions
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
