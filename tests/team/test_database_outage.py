"""The database goes away in mid-turn, refusing, silent or locked: nothing runs unrecorded. team.md case 4."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg
from tests.deadlines import PATIENCE
from tests.ready import ReadyForge
from tests.team.background import Program, until

from .postgres import PASSWORD, PostgresServer

LEASE_S = 1.5
AWAY_S = 3.0
TURNS = 3


@contextmanager
def refusing(server: PostgresServer) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextmanager
def silent(server: PostgresServer) -> Iterator[None]:
    server.signal_all(signal.SIGSTOP)
    try:
        yield
    finally:
        server.signal_all(signal.SIGCONT)


@contextmanager
def locked_out(server: PostgresServer) -> Iterator[None]:
    """Somebody changes the password, and takes it back."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute("ALTER ROLE owner PASSWORD 'another'")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'owner'"
        )
        try:
            yield
        finally:
            connection.execute(f"ALTER ROLE owner PASSWORD '{PASSWORD}'")


IN_SHORT = ("refusing", "silent")
"""What a changed password says is in test_store_problems too."""
WAYS: dict[str, Callable[[PostgresServer], AbstractContextManager[None]]] = {
    "refusing": refusing, "silent": silent, "locked": locked_out,
}  # fmt: skip


def complaints(log: str) -> list[str]:
    return [line for line in log.splitlines() if "cannot be reached" in line or "refused the user" in line]


def is_content(log: str) -> bool:
    """Whether the runner said that the store answers again, after its last complaint."""
    told = complaints(log)
    return not told or "the store answers again" in log.rpartition(told[-1])[2]


def test_while_the_database_is_away_nothing_runs_unrecorded_and_the_session_goes_on(
    own_postgres: PostgresServer, own_postgres_url: str, tmp_path: Path, ready_forge: ReadyForge, is_long: bool
) -> None:
    """One session, whose calls wait for the test each time that the database goes away in another way."""
    program = Program(tmp_path / "shop", tmp_path / "home", own_postgres_url, ready_forge)
    ways = {name: away for name, away in WAYS.items() if is_long or name in IN_SHORT}

    def logs() -> list[str]:
        return [log.read_text() for log in program.home.glob("runner-*.log")]

    def complain_again(told: list[int]) -> bool:
        return all(len(complaints(log)) > before for log, before in zip(logs(), told, strict=True))

    try:
        names = [(way, f"{way}{number}") for way in ways for number in range(TURNS)]
        calls = [{"tool": "effect", "args": {"name": name, "wait": 0.3, "gate": gate}} for gate, name in names]
        program.play(*({"calls": [call]} for call in calls), {"say": "done"})
        session = program.queue()
        runners = [program.start_quick_runner(LEASE_S) for _ in range(2)]
        began = time.monotonic()
        for way, away in ways.items():
            until(lambda way=way: f"{way}0" in program.effects(), or_else=program.logs)
            told = [len(complaints(log)) for log in logs()]
            with away(own_postgres):
                before = program.effects()
                program.open_gate(way)
                time.sleep(AWAY_S)
                # One may have been recorded just before.
                assert len(program.effects()) <= len(before) + 1, "a call was started that nobody could record"
                if away is locked_out:
                    assert "refused the user or password" in program.forge("ps", code=2)
                if away is not silent:
                    until(lambda told=told: complain_again(told), or_else=program.logs)
        program.wait_for(session, "finished")
        done = Counter(program.effects())
        assert set(done.values()) == {1}
        records = [json.loads(line) for _, line in program.store().lines(session)]
        started = [each["call"] for each in records if each["type"] == "started"]
        assert len(started) == len(set(started))
        ended = {each["call"]: each for each in records if each["type"] == "finished"}
        assert set(started) <= set(ended)
        unclear = sum("may have run" in str(each.get("error", "")) for each in ended.values())
        assert len(done) + unclear >= len(names)
        until(lambda: all(map(is_content, logs())), or_else=program.logs)
        for log in logs():
            assert len(complaints(log)) <= time.monotonic() - began + 6, log
            assert PASSWORD not in log and "Traceback" not in log
        for runner in runners:
            runner.send_signal(signal.SIGTERM)
            assert runner.wait(timeout=PATIENCE) == 0
    finally:
        program.close()
