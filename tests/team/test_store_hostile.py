"""What a hostile person, runner or database row tries against the store, on SQLite and on PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from golem_forge.cli.team import account_name
from golem_forge.cli.team.background import _runner_environ
from golem_forge.core.errors import ToolFailed
from golem_forge.events.journal_files import seal_records
from golem_forge.net.server_guard import secret_hash
from golem_forge.orchestrator import bound_output
from golem_forge.team import session_table
from golem_forge.team.database import TeamError, open_database
from golem_forge.team.journal import CommitThread, StoredJournals
from golem_forge.team.people import PersonStore, Role, add_person
from golem_forge.team.rows import AUTHOR_ONCE, FINISHED, Append, Lease, SessionEnding
from golem_forge.team.schedules import NewSchedule
from golem_forge.team.schema import PAGE, RUNNER
from golem_forge.team.session_table import is_private
from golem_forge.team.store import Store
from golem_forge.ui.web.team import TeamLogin

from .background import Program, until, write_call
from .test_store import R1, R2, card, claimed, new, run_out


def sealed(*records: str, after: int = 0) -> tuple[bytes, ...]:
    data, _, _ = seal_records(records, after, "")
    return tuple(line + b"\n" for line in data.splitlines())


def appended(lease: Lease, first: int = 1, count: int = 1, said: str = "x") -> Append:
    lines = sealed(*[f'"ts":"2026-01-01T00:00:00.000Z","type":"{said}"'] * count, after=first - 1)
    return Append(session=lease.id, epoch=lease.epoch, first=first, lines=lines)


BAD_TEXTS = ("nul\x00byte", "lone\ud800surrogate", "\udcff")


def test_text_that_a_database_cannot_keep_stops_no_session(store: Store) -> None:
    for number, bad in enumerate(BAD_TEXTS):
        session = store.queue(new(title=bad, input=bad, worker=bad, model=bad, person=bad, label="", batch=bad))
        lease = claimed(store, session_id=session)
        assert store.arrived(session, 0)[0].data == {"text": bad}
        asked = store.questions.ask(lease, card(f"q{number}", payload=bad, tool=bad, risk="high"), kind="approval")
        store.leases.hold(lease, True, bad)
        store.send(session, "message", {"text": bad}, bad, bad)
        store.questions.answer(asked.id, {"approved": False, "reason": bad}, bad, bad)
        store.accounts.refuse(bad, bad, bad, bad)
        store.stop(session, bad, bad)
        assert store.leases.end(lease, SessionEnding(state=FINISHED, result=bad, error=bad, model=bad))
        row = store.find(session)
        assert row.state == FINISHED
        assert row.result == bad.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def test_a_name_that_a_database_cannot_keep_is_one_that_is_not_there(store: Store) -> None:
    for bad in BAD_TEXTS:
        for look, code in (
            (lambda bad=bad: store.find(bad), "SESSION_NOT_FOUND"),
            (lambda bad=bad: store.stop(bad), "SESSION_NOT_FOUND"),
            (lambda bad=bad: store.send(bad, "message", {}), "SESSION_NOT_FOUND"),
            (lambda bad=bad: store.questions.find(bad), "QUESTION_NOT_FOUND"),
            (lambda bad=bad: store.questions.answer(bad, {"approved": True}), "QUESTION_NOT_FOUND"),
            (lambda bad=bad: store.accounts.remove_person(bad), "PERSON_NOT_FOUND"),
            (lambda bad=bad: store.accounts.remove_rule(bad), "RULE_NOT_FOUND"),
        ):
            with pytest.raises(TeamError) as refused:
                look()
            assert refused.value.code == code
        assert store.sessions(prefix=bad) == []
        assert store.questions.rows(session=bad) == []
        assert store.lines(bad) == []
        assert store.output(bad, bad) is None


NO_ANSWERS: tuple[Any, ...] = (
        {}, {"approved": "yes"}, {"approved": 1}, {"approved": True, "choice": "other"}, {"approved": True, "by": "x"},
        {"approved": True, "choice": ["x"]}, {"approved": True, "remember": "ever"}, {"approved": True, "args": "x"},
        {"approved": True, "stop": True}, {"approved": True, "remember": "always"}, {"action": "accept"},
)  # fmt: skip


def test_an_answer_that_cannot_be_one_is_refused_and_the_question_stays_open(store: Store) -> None:
    store.queue(new())
    lease = claimed(store)
    question = store.questions.ask(lease, card("q1", choices=[{"id": "a", "scope": "session"}]), kind="approval").id
    for answer in NO_ANSWERS:
        with pytest.raises(TeamError) as refused:
            store.questions.answer(question, answer, "ann", "api")
        assert refused.value.code == "ANSWER_INVALID", answer
        assert store.questions.find(question).state == "open", answer
        assert store.find(lease.id).arrivals == 1, answer
    store.questions.answer(question, {"approved": True, "choice": "a"}, "ann", "api")


def test_who_lost_the_session_cannot_touch_its_questions(store: Store) -> None:
    store.queue(new())
    old = claimed(store)
    first = store.questions.ask(old, card("q1"), kind="approval").id
    second = store.questions.ask(old, card("q2"), kind="approval").id
    run_out(store, old)
    claimed(store, R2)
    store.questions.answer(second, {"approved": True}, "ann", "cli")
    for act in (
        lambda: store.questions.withdraw(old, first),
        lambda: store.questions.withdraw_others(old, ()),
        lambda: store.questions.ask_again(old, second, card("q2", payload="another")),
    ):
        with pytest.raises(TeamError) as lost:
            act()
        assert lost.value.code == "LEASE_LOST"
    assert [store.questions.find(each).state for each in (first, second)] == ["open", "answered"]


def test_a_session_with_a_forged_id_cannot_be_written(store: Store) -> None:
    """A runner's role can write rows, and an id becomes the name of a file and of a channel."""
    for id in ("../../../tmp/x", "x; DROP TABLE people", "a" * 65, 'a"b', ""):
        with pytest.raises(Exception, match=r"(?i)check"), store.database.transaction() as connection:
            connection.execute(
                "INSERT INTO sessions (id, state, priority, created, updated) VALUES (:id, 'queued', 9, @now, @now)",
                {"id": id},
            )
    assert store.sessions() == []


def test_a_line_of_the_same_number_in_the_other_table_is_refused(store: Store) -> None:
    store.queue(new())
    lease = claimed(store)
    assert store.append([appended(lease, 1, 2)]) == {}
    forged = appended(lease, 2, 1, said="run")
    assert store.append([forged]) == {lease.id: "its journal was written by another process"}
    assert [n for n, _ in store.lines(lease.id)] == [1, 2]


def test_only_the_type_of_a_line_makes_it_private(store: Store) -> None:
    """A model's words at the beginning of a record must not hide it from those who may see the session."""

    def line(record: str) -> bytes:
        return seal_records([record], 0, "")[0]

    ts = '"ts":"2026-01-01T00:00:00.000Z"'
    assert is_private(line(f'{ts},"type":"run","root":"/srv"'))
    assert is_private(line(f'{ts},"type":"part","of":"run","text":"/srv"'))
    assert not is_private(line(f'{ts},"type":"event","data":{{"type":"run"}}'))
    assert not is_private(line(f'{ts},"type":"part","of":"event","text":"\\"type\\":\\"run\\""'))
    assert is_private(line(f'"root":"/srv","type":"run",{ts}'))  # in whatever order
    assert is_private(line(ts)) and is_private(b'{"n":1,"type":"ru')  # nobody knows


def test_a_message_has_a_bound(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_table, "_MAX_WORDS", 1000)
    session = store.queue(new())
    with pytest.raises(TeamError, match="too long"):
        store.send(session, "message", {"text": "x" * 1001})
    with pytest.raises(TeamError, match="too long"):
        store.queue(new(input="x" * 1001))
    lease = claimed(store)
    question = store.questions.ask(lease, card("q1", args={}), kind="approval").id
    with pytest.raises(TeamError, match="too long"):
        store.questions.answer(question, {"approved": True, "args": {"x": "x" * 1001}})
    assert store.find(session).arrivals == 1


def test_a_person_brings_no_settings_and_no_looser_mode_to_a_runner(store: Store) -> None:
    who = PersonStore(store, secret_hash(add_person(store, "olga", Role.OPERATOR)), "cli")
    for facts in (
        {"approval": "approve_all"}, {"overrides": ["approval.default=preApproved"]},
        {"model": "scripted:/etc/passwd"}, {"model": "scripted:a/../../b"},
        {"model": "scripted:a.yaml, scripted:/etc/passwd"},
    ):  # fmt: skip
        with pytest.raises(TeamError, match=r"runner|inside the program") as refused:
            who.queue(new(facts=facts))
        assert refused.value.code == "STORE_PERSON"
    assert store.sessions() == []
    who.queue(new(facts={"approval": "strict", "overrides": []}))


def test_a_script_that_a_person_names_is_no_file_outside_the_program(program: Program, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("turns: [{say: the secret}]")
    (program.folder / "link.yaml").symlink_to(tmp_path / "secret")
    program.forge("trust", "--yes")
    store = program.store()
    olga = PersonStore(store, secret_hash(add_person(store, "olga", Role.OPERATOR)), "cli")
    named = {"directory": str(program.folder), "model": "scripted:link.yaml"}
    by_olga, by_owner = olga.queue(new(facts=named)), store.queue(new(facts=named))
    program.run_here()
    assert program.wait_for(by_owner, "finished").result == "the secret"
    assert "link.yaml" in program.wait_for(by_olga, "failed").error


def test_known_secrets_become_no_row(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-7f3e9a1b5c2d4e6f8a0b"
    monkeypatch.setenv("SHOP_API_KEY", secret)
    session = store.queue(new(input=f"use {secret} there", title=f"use {secret}"))
    store.send(session, "message", {"text": f'and "{secret}"'})
    store.schedules.add(NewSchedule(cron="@daily", name="s", session=new(input=secret, title=secret)))
    lease = claimed(store)
    for number, answer in enumerate(({"approved": False, "reason": secret}, {"approved": True, "args": {"x": secret}})):
        question = store.questions.ask(lease, card(f"q{number}", args={"x": "y"}), kind="approval").id
        with contextlib.suppress(TeamError):
            store.questions.answer(question, answer, "ann", "cli")
    tables = ("sessions", "arrivals", "questions", "schedules")
    kept = repr([store.database.read(f"SELECT * FROM {table}") for table in tables])
    assert "SHOP_API_KEY" in kept
    assert secret not in kept
    assert [each.state for each in store.questions.rows()] == ["open"]


def test_a_clock_that_was_set_back_gives_no_dead_runner_an_hour(store: Store) -> None:
    store.runners.register(R1, host="h", pid=1, slots=1, labels=(), version="1", offers={})
    session = store.queue(new())
    lease = claimed(store)
    store.leases.shorten()
    until = store.find(session).lease_until
    with store.database.transaction() as connection:  # an hour ago
        connection.execute("UPDATE sessions SET lease_until = lease_until + 3600")
        connection.execute("UPDATE runners SET seen = seen + 3600")
    store.leases.shorten()
    row = store.find(session)
    assert until <= row.lease_until < until + 60
    assert (row.epoch, row.state) == (lease.epoch, "running")  # who lives goes on
    assert store.leases.renew(R1, {session: lease.epoch}) == {session: (False, 1)}
    assert store.runners.seen()[0]["silent"] > -1


def test_a_file_in_a_directory_of_others_changes_nothing_of_it_and_is_nobody_elses(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    Store.open(f"sqlite://{shared}/x.db", tmp_path, create=True).close()
    assert (shared.stat().st_mode & 0o777, (shared / "x.db").stat().st_mode & 0o777) == (0o755, 0o600)
    (shared / "x.db").chmod(0o640)
    with pytest.raises(TeamError, match="Other accounts of this machine can open the store's file"):
        Store.open(f"sqlite://{shared}/x.db", tmp_path)


def test_a_woken_session_has_no_new_room_for_outputs(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.queue(new())
    first = claimed(store)
    kept = tuple(("out_1", "w", piece, b"x" * 100) for piece in range(3))
    append = appended(first)
    store.append([Append(session=first.id, epoch=first.epoch, first=1, lines=append.lines, outputs=kept)])
    run_out(store, first)
    thread = CommitThread(store)
    journals = StoredJournals(store, thread, claimed(store, R2), tmp_path / "copies", lambda: 0.0, lambda why: None)
    writer = journals._writer_of()
    monkeypatch.setattr(bound_output, "MAX_SESSION_BYTES", 350)
    try:
        assert writer.kept_bytes == store.journals.output_bytes(first.id) == 300
        room = bound_output.OutputStore(tmp_path / "output", first.id, writer)
        assert room.keep("x" * 40, "w")
        with pytest.raises(ToolFailed, match="has no room for this one"):
            room.keep("x" * 40, "w")
    finally:
        writer.close()
        thread.close()


FORBIDDEN = [
    *(f"{verb} {table}" for table in ("journal", "journal_private", "outputs") for verb in ("DELETE FROM", "TRUNCATE")),
    *("UPDATE journal SET n = n", "UPDATE outputs SET data = ''", "ALTER TABLE journal DISABLE TRIGGER ALL"),
    *("UPDATE journal_private SET n = 7", "DELETE FROM audit", "UPDATE audit SET person = 'eve'", "TRUNCATE audit"),
    *("DROP TRIGGER journal_append_only ON journal", "DROP TABLE journal", "CREATE TABLE mine (a int)"),
    *("CREATE OR REPLACE FUNCTION forge_append_only() RETURNS trigger LANGUAGE sql AS ''", "CREATE SCHEMA mine"),
    *("SET session_replication_role = replica", "COPY journal TO PROGRAM 'id'", "SELECT pg_read_file('/etc/passwd')"),
    *("DELETE FROM sessions", "DELETE FROM arrivals", "UPDATE arrivals SET data = '{}'", "DELETE FROM questions"),
    *("UPDATE session_facts SET facts = '{}'", "DELETE FROM session_facts", "UPDATE meta SET value = '9'"),
    "DELETE FROM meta",
    "INSERT INTO pruned VALUES ('x', 1, '', 0)",
]
OF_RUNNERS = [
    *("UPDATE people SET role = 'admin'", "INSERT INTO people VALUES ('eve', 'admin', 'x', 0)", "DELETE FROM rules"),
    *("DELETE FROM people", "DELETE FROM revoked"),
]
OF_PAGES = [
    *("INSERT INTO journal VALUES ('x', 1, '')", "INSERT INTO outputs VALUES ('x', 'h', 'w', 0, '')"),
    "DELETE FROM runners",
]


def test_no_role_but_the_owners_changes_what_is_recorded(postgres_url: str, roles: Callable[[str], str]) -> None:
    for kind, more in ((RUNNER, OF_RUNNERS), (PAGE, OF_PAGES)):
        with psycopg.connect(roles(kind), autocommit=True) as connection:
            for statement in (*FORBIDDEN, *more):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
    database = open_database(postgres_url, Path("/nonexistent"))
    for statement in ("TRUNCATE journal", "TRUNCATE outputs", "TRUNCATE journal_private"):
        with pytest.raises(TeamError, match="append only"), database.transaction() as owner:
            owner.execute(statement)
    database.close()


def test_whoever_logs_in_again_and_again_pushes_nobody_else_out() -> None:
    login = TeamLogin()
    other = login.enter(secret_hash("other"))
    mine = [login.enter(secret_hash("mine")) for _ in range(300)]
    assert login.knows(other)
    assert login.knows(mine[-1])
    assert sum(map(login.knows, mine)) == 8


def test_a_runner_that_is_started_by_itself_inherits_no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("store: {token: env:MY_TOKEN}\n")
    for name, value in {"FORGE_HOME": str(tmp_path), "FORGE_TEAM_TOKEN": "t1", "MY_TOKEN": "t2", "KEPT": "k"}.items():
        monkeypatch.setenv(name, value)
    store = Store.open(f"sqlite://{tmp_path}/other.db", tmp_path, create=True)
    environ = _runner_environ(store.database)
    assert (environ["KEPT"], environ["FORGE_HOME"]) == ("k", str(tmp_path))
    assert environ["FORGE_RUNNER_STORE"] == f"sqlite://{tmp_path}/other.db"  # not the one that config.yaml names
    store.close()
    assert not {"FORGE_TEAM_TOKEN", "MY_TOKEN"} & environ.keys()


def test_the_name_in_the_record_is_the_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody-else")
    monkeypatch.setenv("USER", "somebody-else")
    assert account_name() == pwd.getpwuid(os.getuid()).pw_name


def test_four_eyes_is_not_got_around(program: Program) -> None:
    """By answering everything beforehand, by a choice that covers riskier calls, or by editing what one approves."""
    text = (program.folder / "forge.yaml").read_text()
    (program.folder / "forge.yaml").write_text(f"{text}approval: {{four_eyes: high}}\n")
    program.forge("trust", "--yes")
    program.play({"say": "x", "calls": [write_call("/work/a.txt", "one")]}, {"say": "done\x00\ud800"})
    beforehand, asked = program.queue(approval="approve_all"), program.queue()
    program.run_here()
    assert "four_eyes asks for a second person's answer" in program.wait_for(beforehand, "failed").error
    store = program.store()
    question = until(lambda: store.questions.rows(session=asked))[0]
    assert (question.risk, question.four_eyes) == ("medium", AUTHOR_ONCE)
    wide = next(each["id"] for each in question.wire["choices"] if each["id"] != "exact")
    for remembered in ({"choice": wide}, {"remember": "session"}):
        with pytest.raises(TeamError, match="approves this call once") as refused:
            store.questions.answer(question.id, {"approved": True, **remembered}, "ada", "cli")
        assert refused.value.code == "FOUR_EYES"
    assert not (program.folder / "work" / "a.txt").exists()
    store.questions.answer(question.id, {"approved": True}, "ada", "cli")
    assert program.wait_for(asked, "finished").result == "done\\x00\\ud800"


def test_who_edits_a_call_does_not_approve_it_and_contained_answers_nothing(program: Program) -> None:
    text = (program.folder / "forge.yaml").read_text()
    (program.folder / "forge.yaml").write_text(f"{text}approval: {{four_eyes: medium}}\n")
    program.forge("trust", "--yes")
    program.play({"say": "x", "calls": [write_call("/work/a.txt", "one")]}, {"say": "done"})
    session = program.queue(approval="contained")
    runner = program.run_here()
    store = program.store()
    first = until(lambda: store.questions.rows(session=session))[0]
    edited = {"approved": True, "args": {"path": "/work/b.txt", "content": "two"}}
    store.questions.answer(first.id, edited, "olga", "page")
    second = until(lambda: store.questions.rows(session=session))[0]
    assert second.wire["args"] == edited["args"]
    assert any('olga changed: path "/work/a.txt" → "/work/b.txt"' in each for each in second.wire["warnings"])
    for author in ("olga", "ada", ""):
        with pytest.raises(TeamError, match="asks for somebody else's answer"):
            store.questions.answer(second.id, {"approved": True}, author, "page")
    store.questions.answer(second.id, {"approved": True}, "ann", "cli")
    program.wait_for(session, "finished")
    assert [path.name for path in (program.folder / "work").iterdir()] == ["b.txt"]
    runner.stop()
    log = program.forge("log", "--session", session)
    assert "answered by ann (cli)" in log
    assert "olga (page)  changed  the arguments of question " in log
    assert "ada          said     go" in log


def test_a_page_of_lines_has_a_bound_in_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_table, "_PAGE_BYTES", 1000)
    lease = claimed(store, session_id=store.queue(new()))
    pieces = sealed(*[f'"type":"x","text":"{"y" * (2000 if number == 3 else 200)}"' for number in range(8)])
    assert store.append([Append(session=lease.id, epoch=lease.epoch, first=1, lines=pieces)]) == {}
    pages, found = [], 0
    while page := store.lines(lease.id, found):
        assert [n for n, _ in page] == list(range(found + 1, found + len(page) + 1))
        pages.append((len(page), sum(len(line) for _, line in page)))
        found = page[-1][0]
    assert found == 8 and len(pages) > 2
    assert [count for count, size in pages if size > 1000] == [1], "one line, however long it is"


def test_an_ended_session_takes_no_late_question_or_line(store: Store) -> None:
    store.queue(new())
    lease = claimed(store)
    store.append([appended(lease)])
    run_out(store, lease)
    assert store.stop(lease.id, "ann", "cli") == "running"
    assert store.append([appended(lease, 2)]) == {lease.id: "another runner has taken this session over"}
    with pytest.raises(TeamError, match="Another runner"):
        store.questions.ask(lease, card("q1"), kind="approval")
    assert not store.leases.end(lease, FINISHED)
    assert store.find(lease.id).state == "stopped"
