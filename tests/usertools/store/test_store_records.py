"""The book: trust belongs to exact bytes, an agent's hand is never lost, and a lost file trusts nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.deadlines import LONG, PATIENCE, within

from golem_forge.core.errors import ForgeError
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import store as book_file
from golem_forge.usertools.diagnostics import DiagnosticCode
from golem_forge.usertools.store import ToolStore, ToolStoreError
from golem_forge.usertools.store.queries import Author, AuthorKind, UseRecord

ONE, TWO, THREE = ("sha256:" + digit * 64 for digit in "123")
AGENT = Author(AuthorKind.AGENT, "s1", "coder")
MANUAL = Author(AuthorKind.MANUAL)
IMPORT = Author(AuthorKind.IMPORT, source="git+https://example.test/tools@abc")


@pytest.fixture
def book(home: ForgeHome) -> Iterator[ToolStore]:
    opened = ToolStore(home)
    yield opened
    opened.close()


def path_of(home: ForgeHome) -> Path:
    return home.path / "state" / "custom.db"


def authors(book: ToolStore, name: str) -> list[str]:
    return [version.author.describe() for version in book.versions(name)]


def use(status: str = "success", *, name: str = "x", session: str = "s1", **more: object) -> UseRecord:
    return UseRecord(name=name, digest=ONE, status=status, duration_ms=5.0, session=session, **more)  # type: ignore[arg-type]


# trust


def test_trust_is_for_one_name_and_one_digest(book: ToolStore) -> None:
    book.trust("x", ONE, who="person")
    given = book.find_trust("x", ONE)
    assert given is not None and given.who == "person" and given.at and not given.shadow
    assert book.find_trust("x", TWO) is None
    assert book.find_trust("y", ONE) is None


def test_bytes_that_were_trusted_before_are_trusted_when_they_come_back(book: ToolStore, home: ForgeHome) -> None:
    book.trust("x", ONE, who="person")
    book.record_version("x", ONE)
    book.record_version("x", TWO)
    book.forget("x")
    assert ToolStore(home).find_trust("x", ONE) is not None
    assert book.last_trusted("x") == ONE


def test_the_last_trusted_is_the_one_trusted_last_even_if_the_clock_stands_still(book: ToolStore) -> None:
    assert book.last_trusted("x") == ""
    for digest in (TWO, ONE, THREE, ONE):
        book.trust("x", digest, who="person")
    assert book.last_trusted("x") == ONE
    assert book.all_trusted("x") == {ONE, TWO, THREE}


def test_agreeing_to_a_shadow_stays_when_trust_is_given_again(book: ToolStore) -> None:
    book.trust("read_file", ONE, who="person")
    given = book.find_trust("read_file", ONE)
    assert given is not None and not given.shadow
    book.trust("read_file", ONE, who="person", shadow=True)
    book.trust("read_file", ONE, who="command line (--yes)")
    given = book.find_trust("read_file", ONE)
    assert given is not None and given.shadow and given.who == "command line (--yes)"


def test_denials_are_counted_for_these_bytes_and_only_trust_clears_them(book: ToolStore) -> None:
    book.add_denial("x", ONE)
    book.add_denial("x", ONE)
    book.mark_tested("x", ONE)
    book.retire("x")
    book.forget("x")
    assert (book.denials("x", ONE), book.denials("x", TWO)) == (2, 0)
    assert book.find_trust("x", ONE) is None
    book.trust("x", ONE, who="person")
    assert book.denials("x", ONE) == 0


def test_trust_of_nothing_is_a_mistake(book: ToolStore) -> None:
    with pytest.raises(ValueError, match="one digest"):
        book.trust("x", "", who="person")


# how far it came


def test_building_and_testing_belong_to_a_digest(book: ToolStore) -> None:
    book.mark_built("x", ONE)
    assert book.build_status("x", ONE).built and not book.build_status("x", ONE).tested
    book.mark_tested("x", ONE)
    assert book.build_status("x", ONE).tested
    assert book.build_status("x", TWO) == book.build_status("never", ONE)


def test_failed_tests_leave_it_built_and_stay_failed_until_they_pass(book: ToolStore) -> None:
    book.mark_tested("x", ONE)
    book.mark_failed("x", ONE, DiagnosticCode.TESTS_FAILED, "1 of 3")
    book.mark_built("x", ONE)
    found = book.build_status("x", ONE)
    assert (found.built, found.tested, found.failure) == (True, False, (DiagnosticCode.TESTS_FAILED, "1 of 3"))
    book.mark_tested("x", ONE)
    assert book.build_status("x", ONE).failure is None


def test_what_no_longer_builds_is_neither_built_nor_tested_until_it_does(book: ToolStore) -> None:
    book.mark_tested("x", ONE)
    book.mark_failed("x", ONE, DiagnosticCode.TOOLCHAIN_MISSING, "no go here")
    assert (book.build_status("x", ONE).built, book.build_status("x", ONE).tested) == (False, False)
    book.mark_built("x", ONE)
    assert book.build_status("x", ONE).tested and book.build_status("x", ONE).failure is None


def test_a_compilers_endless_text_is_bounded(book: ToolStore) -> None:
    book.mark_failed("x", ONE, DiagnosticCode.BUILD_FAILED, "x" * 1_000_000 + "\udcff")
    failure = book.build_status("x", ONE).failure
    assert failure is not None and len(failure[1]) < 10_000


def test_retiring_hides_and_restoring_brings_back_what_was_reached(book: ToolStore) -> None:
    book.mark_tested("x", ONE)
    book.trust("x", ONE, who="person")
    book.retire("x")
    assert book.is_retired("x") and not book.is_retired("y")
    assert book.restore("x") is True
    assert not book.is_retired("x") and book.build_status("x", ONE).tested and book.find_trust("x", ONE)
    assert book.restore("x") is False
    assert book.restore("never") is False


def test_the_stamp_changes_with_decisions_of_any_process_and_not_with_uses(book: ToolStore, home: ForgeHome) -> None:
    other = ToolStore(home)
    before = book.stamp()
    book.record_use(use())
    book.record_refresh(1.0)
    assert book.stamp() == before
    for change in (
        lambda: other.trust("x", ONE, who="person"),
        lambda: other.mark_tested("x", ONE),
        lambda: other.mark_failed("x", ONE, DiagnosticCode.BUILD_FAILED, "m"),
        lambda: other.retire("x"),
        lambda: other.restore("x"),
        lambda: path_of(home).unlink(),
    ):
        change()
        after = book.stamp()
        assert after != before
        before = after


# versions and authors


def test_a_version_is_recorded_when_the_bytes_differ_from_the_newest(book: ToolStore) -> None:
    assert [book.record_version("x", digest) for digest in (ONE, ONE, TWO, THREE, TWO)] == [
        True,
        False,
        True,
        True,
        True,
    ]
    assert [version.digest for version in book.versions("x")] == [TWO, THREE, TWO, ONE]
    assert book.versions("y") == ()


def test_an_agents_write_is_the_author_of_the_next_version_and_of_no_further_one(book: ToolStore) -> None:
    book.record_version("x", ONE)
    book.record_agent_edit("x", "s1", "coder")
    assert book.is_agent_made("x")
    book.record_version("x", TWO)
    book.record_version("x", THREE)
    assert authors(book, "x") == ["manual", "agent (session s1, worker coder)", "manual"]
    assert book.is_agent_made("x") and not book.is_agent_made("y")


def test_bytes_that_come_back_keep_their_author(book: ToolStore) -> None:
    book.record_version("x", ONE, AGENT)
    book.record_version("x", TWO)
    book.record_version("x", ONE)
    assert book.versions("x")[0].author == AGENT


@pytest.mark.parametrize("author", [AGENT, MANUAL, IMPORT])
def test_who_created_it_wrote_its_first_version(book: ToolStore, author: Author) -> None:
    book.record_version("x", THREE)  # of an earlier tool of that name
    book.forget("x")
    book.record_creation("x", author)
    book.record_version("x", ONE)
    book.record_version("x", TWO)
    assert [version.author for version in book.versions("x")][:2] == [MANUAL, author]
    assert book.provenance("x") == author
    assert book.is_agent_made("x") is (author is AGENT)


def test_provenance_names_the_agent_that_wrote_to_a_persons_tool(book: ToolStore) -> None:
    book.record_version("x", ONE)
    assert book.provenance("x") == MANUAL
    book.record_agent_edit("x", "s1", "coder")
    assert book.provenance("x") == AGENT
    book.record_version("x", TWO)
    assert book.provenance("x") == AGENT
    assert book.provenance("never") == MANUAL


def test_forgetting_keeps_the_versions_and_an_agents_hand(book: ToolStore) -> None:
    book.record_version("x", ONE, AGENT)
    book.retire("x")
    book.forget("x")
    assert [version.digest for version in book.versions("x")] == [ONE]
    assert book.is_agent_made("x") and not book.is_retired("x")
    book.record_version("x", TWO)
    assert book.provenance("x") == MANUAL


def test_a_stranger_cannot_steer_the_terminal_through_a_source() -> None:
    shown = Author(AuthorKind.IMPORT, source="https://a\x1b[2J\nb\u202ec").describe()
    assert "\x1b" not in shown and "\n" not in shown and "\u202e" not in shown
    assert MANUAL.describe() == "manual"
    assert Author(AuthorKind.AGENT).describe() == "agent"
    assert len(Author(AuthorKind.IMPORT, source="a" * 10_000).describe()) < 400


def test_a_source_that_is_no_utf8_is_kept_readable(book: ToolStore) -> None:
    book.record_version("x", ONE, Author(AuthorKind.IMPORT, source="/tmp/\udcff"))
    assert book.versions("x")[0].author.source == "/tmp/?"


def test_odd_names_leave_no_trace_and_raise_nothing(book: ToolStore) -> None:
    for name in ("", "..", "a b", "a" * 65, "\udcff", ".forge-12.tmp"):
        book.record_agent_edit(name, "s1", "coder")
        assert not book.is_agent_made(name)
    assert book.rows("SELECT count(*) FROM tools") == [(0,)]
    book.record_use(use(name="\udcff"))
    book.record_version("\udcff", ONE)
    assert book.versions("\udcff") == ()
    with pytest.raises(ToolStoreError, match="a value cannot be kept"):
        book.trust("\udcff", ONE, who="person")


# ratings


def test_a_rating_is_offered_exactly_once_after_the_third_run(book: ToolStore, home: ForgeHome) -> None:
    offers = []
    for status in ("success", "approval_denied", "execution_failed", "input_invalid", "timeout", "success"):
        book.record_use(use(status))
        offers.append(book.claim_rating_offer("x"))
    assert offers == [False, False, False, False, True, False]
    assert not ToolStore(home).claim_rating_offer("x") and not book.claim_rating_offer("never")


def test_ratings_are_counted_and_notes_come_newest_first(book: ToolStore) -> None:
    book.rate("x", True, "quick")
    book.rate("x", False, "wrong\x1b[31m")
    book.rate("x", True)
    found = book.ratings("x")
    assert (found.good, found.bad) == (2, 1)
    assert found.notes == ("wrong\\x1b[31m", "quick")
    for number in range(300):
        book.rate("x", False, f"{number} " + "n" * 5_000)
    found = book.ratings("x")
    assert found.good + found.bad == 200 and len(found.notes) == 20
    assert found.notes[0].startswith("299 ") and max(map(len, found.notes)) <= 500


def test_who_has_rated_is_not_asked_to(book: ToolStore) -> None:
    book.rate("x", True, "")
    for _ in range(4):
        book.record_use(use())
    assert not book.claim_rating_offer("x")


# the file


def test_it_is_made_on_first_use_for_its_owner_alone(home: ForgeHome) -> None:
    book = ToolStore(home)
    assert not home.path.exists()
    old = os.umask(0)
    try:
        book.trust("x", ONE, who="person")
    finally:
        os.umask(old)
    files = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path_of(home).parent.iterdir()}
    assert files["custom.db"] == 0o600 and set(files.values()) == {0o600}
    assert stat.S_IMODE(path_of(home).parent.stat().st_mode) == 0o700


def test_a_file_that_others_may_read_is_closed_to_them(book: ToolStore, home: ForgeHome) -> None:
    book.trust("x", ONE, who="person")
    book.close()
    path_of(home).chmod(0o644)
    path_of(home).parent.chmod(0o755)
    assert book.find_trust("x", ONE)
    assert stat.S_IMODE(path_of(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(path_of(home).parent.stat().st_mode) == 0o700


def test_importing_it_and_what_runs_a_tool_loads_no_database() -> None:
    script = (
        "import sys, golem_forge.usertools.store, golem_forge.usertools.store.history, "
        "golem_forge.usertools.store.statistics, golem_forge.usertools.run.call_server, "
        "golem_forge.usertools.run.interpreter\n"
    )
    script += (
        "heavy = {'sqlite3', 'pydantic', 'ruamel.yaml', 'jsonschema_rs', 'tarfile', 'zipfile'} & set(sys.modules)\n"
    )
    script += "sys.exit(str(heavy) if heavy else 0)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stderr == ""


def garbage(path: Path) -> None:
    path.write_bytes(b"no database at all, sixteen bytes and more" * 100)


def half_a_page(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:700])


def scrambled_inside(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)


def other_tables(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE tools (colour TEXT)")
        other.commit()


def our_number_but_other_tables(path: Path) -> None:
    other_tables(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 1")


def a_link(path: Path) -> None:
    os.rename(path, path.with_name("elsewhere.db"))
    path.symlink_to("elsewhere.db")


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def lost(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "spoil",
    [garbage, half_a_page, scrambled_inside, other_tables, our_number_but_other_tables, a_link, a_directory, lost],
)
def test_a_spoilt_book_trusts_nothing_and_goes_on(
    book: ToolStore, home: ForgeHome, spoil: Callable[[Path], None]
) -> None:
    book.trust("x", ONE, who="person")
    book.mark_tested("x", ONE)
    book.close()
    spoil(path_of(home))
    assert book.find_trust("x", ONE) is None
    assert not book.build_status("x", ONE).tested
    book.trust("x", TWO, who="person")
    assert ToolStore(home).find_trust("x", TWO) is not None
    assert path_of(home).is_file() and not path_of(home).is_symlink()
    assert spoil is lost or os.path.lexists(f"{path_of(home)}.spoilt")


def test_it_can_be_spoilt_again_and_again(book: ToolStore, home: ForgeHome) -> None:
    for spoil in (a_directory, garbage, a_directory, garbage):
        book.trust("x", ONE, who="person")
        book.close()
        spoil(path_of(home))
        assert book.find_trust("x", ONE) is None


def test_a_book_of_a_newer_forge_is_left_alone_and_not_believed(book: ToolStore, home: ForgeHome) -> None:
    book.trust("x", ONE, who="person")
    book.close()
    with contextlib.closing(sqlite3.connect(path_of(home))) as other:
        other.execute("PRAGMA user_version = 99")
    before = path_of(home).read_bytes()
    assert book.find_trust("x", ONE) is None
    with pytest.raises(ToolStoreError, match="newer version of Forge"):
        book.trust("x", ONE, who="person")
    assert path_of(home).read_bytes() == before


def test_a_file_lost_under_an_open_book_is_noticed(book: ToolStore, home: ForgeHome) -> None:
    book.trust("x", ONE, who="person")
    path_of(home).unlink()
    assert book.find_trust("x", ONE) is None
    book.trust("x", TWO, who="person")
    assert ToolStore(home).find_trust("x", TWO) and not ToolStore(home).find_trust("x", ONE)


def test_a_log_left_behind_by_a_lost_book_brings_no_trust_back(book: ToolStore, home: ForgeHome) -> None:
    """Everything trusted is still in the `-wal` file here: the connection was never closed."""
    book.trust("x", ONE, who="person")
    wal = Path(f"{path_of(home)}-wal")
    kept = wal.read_bytes()
    assert ONE.encode() in kept
    path_of(home).unlink()
    book.close()
    wal.write_bytes(kept)
    assert ToolStore(home).find_trust("x", ONE) is None


def test_whoever_still_holds_a_replaced_book_harms_the_new_one_by_nothing(home: ForgeHome) -> None:
    """Closing a database removes the log beside its name, which by then is the other one's."""
    late, now = ToolStore(home), ToolStore(home)
    late.trust("x", ONE, who="person")
    os.rename(path_of(home), path_of(home).with_name("moved.db"))
    now.trust("x", TWO, who="person")
    late.close()
    now.trust("x", THREE, who="person")
    assert ToolStore(home).all_trusted("x") == {TWO, THREE}
    assert late.all_trusted("x") == {TWO, THREE}


def test_where_nothing_can_be_written_only_decisions_raise(home: ForgeHome) -> None:
    home.path.mkdir(parents=True)
    (home.path / "state").write_text("in the way")
    book = ToolStore(home)
    assert book.find_trust("x", ONE) is None and book.versions("x") == () and book.ratings("x").good == 0
    book.record_use(use())
    book.record_version("x", ONE)
    book.add_denial("x", ONE)
    book.mark_built("x", ONE)
    book.record_refresh(1)
    book.rate("x", True, "")
    for decide in (
        lambda: book.trust("x", ONE, who="person"),
        lambda: book.retire("x"),
        lambda: book.restore("x"),
        lambda: book.forget("x"),
    ):
        with pytest.raises(ForgeError, match="could not be written") as refused:
            decide()
        assert str(home.path) not in refused.value.message


def test_an_agents_hand_counts_even_if_it_could_not_be_noted(home: ForgeHome) -> None:
    home.path.mkdir(parents=True)
    (home.path / "state").write_text("in the way")
    book = ToolStore(home)
    book.record_agent_edit("x", "s1", "coder")
    book.record_creation("y", AGENT)
    assert book.is_agent_made("x") and book.is_agent_made("y") and book.provenance("x") == AGENT
    (home.path / "state").unlink()
    book.record_version("x", ONE)
    assert book.versions("x")[0].author == AGENT and ToolStore(home).is_agent_made("x")


def test_a_book_that_another_program_locks_fails_closed_and_soon(
    book: ToolStore, home: ForgeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_file, "_BUSY_S", 0.05)
    monkeypatch.setattr(book_file, "_NOTE_BUSY_S", LONG)
    book.trust("x", ONE, who="person")
    with contextlib.closing(sqlite3.connect(path_of(home), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with within(1):
            book.record_use(use())
            with pytest.raises(ToolStoreError, match="locked"):
                book.trust("x", TWO, who="person")
        assert book.find_trust("x", ONE) is not None
        other.execute("ROLLBACK")
    book.trust("x", TWO, who="person")
    assert book.find_trust("x", TWO)


def test_a_locked_book_holds_nobody_up_for_long_however_much_is_to_be_noted(
    book: ToolStore, home: ForgeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else of the session goes on while a note waits, an interrupt neither."""
    monkeypatch.setattr(book_file, "_GIVE_UP_S", LONG)
    book.record_version("x", ONE)
    with contextlib.closing(sqlite3.connect(path_of(home), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with within(1):
            for number in range(60):
                book.record_use(use())
                book.mark_built("x", f"sha256:{number}")
        other.execute("ROLLBACK")
    book.mark_built("x", ONE)
    assert book.build_status("x", ONE).built


# several at once

CHILD = """
import sys
from pathlib import Path
from golem_forge.storage import home as home_files
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import store
from golem_forge.usertools.store.queries import UseRecord
# On a busy machine a note would give up, and say so only in the log.
store._BUSY_S = store._NOTE_BUSY_S = home_files.LOCK_SECONDS = 25.0
book = store.ToolStore(ForgeHome(Path(sys.argv[1])))
who, count = sys.argv[2], int(sys.argv[3])
for number in range(count):
    book.trust("x", f"sha256:{who}{number}", who=who)
    book.record_use(UseRecord(name="x", digest=who, status="success", duration_ms=1.0, session=who))
    book.add_denial("x", "sha256:shared")
    print(number, flush=True)
"""


def child(home: ForgeHome, who: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(home.path), who, str(count)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("begin", [lambda path: None, garbage])
def test_two_processes_write_at_once_and_nothing_is_lost(home: ForgeHome, begin: Callable[[Path], None]) -> None:
    """Also when both find a spoilt file: one replaces it, the other takes the new one."""
    home.ensure("state")
    begin(path_of(home))
    children = [child(home, who, 60) for who in ("a", "b")]
    for each in children:
        assert each.communicate(timeout=PATIENCE)[0].splitlines()[-1] == "59"
    book = ToolStore(home)
    assert len(book.all_trusted("x")) == 120
    assert book.denials("x", "sha256:shared") == 120
    assert book.rows("SELECT count(*) FROM uses") == [(120,)]


def test_after_kill_9_everything_acknowledged_is_there(home: ForgeHome) -> None:
    for round_number in range(2):
        process = child(home, f"r{round_number}-", 100_000)
        assert process.stdout is not None
        for _ in range(10 + round_number * 7):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        last = [int(line) for line in process.communicate()[0].splitlines() if line]
        book = ToolStore(home)
        trusted = book.all_trusted("x")
        written = max([*last, 9 + round_number * 7])
        assert {f"sha256:r{round_number}-{number}" for number in range(written + 1)} <= trusted
        assert book.rows("PRAGMA integrity_check") == [("ok",)]
        book.close()
    assert not Path(f"{path_of(home)}.spoilt").exists()


def test_threads_share_one_book(book: ToolStore) -> None:
    def work(number: int) -> None:
        for turn in range(30):
            book.record_use(use(session=f"s{number}"))
            book.record_version(f"x{number}", f"sha256:{turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert book.rows("SELECT count(*) FROM uses") == [(120,)]
    assert [len(book.versions(f"x{number}")) for number in range(4)] == [30] * 4


def test_noting_a_use_is_a_few_statements_in_one_open_file(book: ToolStore) -> None:
    book.record_use(use())
    connection = book._file._connection
    assert connection is not None
    said: list[str] = []
    connection.set_trace_callback(said.append)
    for _ in range(10):
        book.record_use(use())
    connection.set_trace_callback(None)
    assert book._file._connection is connection
    assert 10 < len(said) <= 70, said
    assert not [each for each in said if "synchronous" in each], "a note waits for no disk"
    assert book.rows("PRAGMA journal_mode") == [("wal",)]
