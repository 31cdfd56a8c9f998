"""What a person reads when the store cannot be used: one sentence that says what to do, exit 2, and no password."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ready import ReadyForge
from tests.team.background import Program, until

from golem_forge.cli.main import main
from golem_forge.events.journal_files import seal_records
from golem_forge.team import schema
from golem_forge.team.rows import Append, NewSession
from golem_forge.team.store import Store

from .postgres import PASSWORD, PostgresServer

Said = Callable[..., str]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """The one line that `forge WORD…` says with this store, in this process; its exit code is 2."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("store: {url: env:STORE_URL}\n")
    monkeypatch.setenv("FORGE_HOME", str(home))
    monkeypatch.chdir(tmp_path)

    def run(url: str, *words: str) -> str:
        monkeypatch.setenv("STORE_URL", url)
        assert main([*words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1, (out, err)
        assert PASSWORD not in err and "wrong-one" not in err
        return err

    return run


VERBS = (["ps"], ["inbox"], ["send", "x", "y"], ["stop", "x"], ["store", "status"], ["runner"])


def test_a_wrong_password_and_a_missing_database_are_told_on_every_verb(postgres: PostgresServer, said: Said) -> None:
    for words in VERBS:
        text = said(postgres.url("postgres", password="wrong-one"), *words)
        assert "refused the user or password. Check store.url" in text
    for words in (*VERBS, ["store", "init"]):
        text = said(postgres.url("nowhere"), *words)
        assert "there is no such database. Create it, then `forge store init`" in text


def test_an_unreachable_host_and_a_missing_extra_are_told(
    said: Said, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    for words in VERBS:
        assert "cannot be reached now" in said(f"postgresql://u:{PASSWORD}@127.0.0.1:1/x", *words)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for words in VERBS:
        assert "its library is missing. Run `pip install 'golem-forge[team]'`" in said(postgres_url, *words)


def test_tables_that_are_missing_old_or_new_are_told(
    said: Said, monkeypatch: pytest.MonkeyPatch, postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    assert "has no tables yet. Run `forge store init`" in said(postgres.url("postgres"), "ps")
    known = schema.SCHEMA_VERSION
    monkeypatch.setattr(schema, "SCHEMA_VERSION", known + 1)
    assert "of an older version" in said(postgres_url, "ps")
    assert "Run `forge store upgrade`" in said(postgres_url, "runner")
    monkeypatch.setattr(schema, "SCHEMA_VERSION", known - 1)
    for words in (["ps"], ["store", "upgrade"]):
        assert "of a newer version" in (text := said(postgres_url, *words))
        assert "Upgrade Forge here" in text


def test_an_address_with_a_password_in_a_file_is_refused_without_repeating_it(said: Said, tmp_path: Path) -> None:
    (tmp_path / "home" / "config.yaml").write_text(f"store: {{url: 'postgresql://u:{PASSWORD}@h/x'}}\n")
    assert "put the whole address into a variable" in said("", "ps")


def newer_session(store: Store, **facts: Any) -> str:
    session = store.queue(NewSession(facts=facts, input="go"))
    lease = store.claim("one of tomorrow", (), session_id=session)
    assert lease is not None
    data, _, _ = seal_records([f'"type":"session","version":9,"sessionId":"{session}"'], 0, "")
    store.append([Append(session=session, epoch=lease.epoch, first=1, lines=(data,))])
    store.give_back(lease)
    return session


def test_a_session_of_a_newer_version_is_left_for_a_runner_that_knows_it(
    postgres_url: str, tmp_path: Path, ready_forge: ReadyForge
) -> None:
    program = Program(tmp_path / "shop", tmp_path / "home", postgres_url, ready_forge)
    try:
        session = newer_session(program.store(), directory=str(program.folder))
        runner = program.start_quick_runner(2)
        until(lambda: "recorded by a newer version of Forge" in program.logs())
        assert "Upgrade Forge here." in program.logs()
        assert program.store().find(session).state in ("running", "queued")
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(timeout=20) == 0
    finally:
        program.close()


def test_no_process_and_no_log_shows_the_password(postgres_url: str, tmp_path: Path, ready_forge: ReadyForge) -> None:
    program = Program(tmp_path / "shop", tmp_path / "home", postgres_url, ready_forge)
    try:
        program.play({"say": "done"})
        text = program.forge("run", "--background", "go")
        session = program.store().sessions()[0].id
        program.wait_for(session, "finished")
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        texts = [text, shown, program.forge("store", "status"), program.forge("ps", "--all", "--json")]
        texts += [path.read_text(errors="replace") for path in program.home.rglob("*") if path.is_file()]
        texts += [line.decode() for _, line in program.store().lines(session)]
        assert not any(PASSWORD in each for each in texts)
        assert json.loads(texts[3])
        for runner in program.store().runners():
            os.kill(runner["pid"], signal.SIGTERM)
        until(lambda: not program.store().runners())
    finally:
        program.close()
