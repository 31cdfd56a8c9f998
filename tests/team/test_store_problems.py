"""What a person reads when the store cannot be used: one sentence that says what to do, exit 2, and no password."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests import known_walls
from tests.deadlines import PATIENCE
from tests.ready import ReadyForge
from tests.team.background import Program, until

from golem_forge.cli.main import main
from golem_forge.events.journal_files import seal_records
from golem_forge.sandbox.walls import probe
from golem_forge.team import database as databases
from golem_forge.team import schema
from golem_forge.team.database import StoreUnavailable
from golem_forge.team.people import OwnerStore, Role
from golem_forge.team.rows import Append, NewSession
from golem_forge.team.store import Store

from .postgres import PASSWORD, PostgresServer, SharedPostgres

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


def test_a_wrong_password_and_a_missing_database_are_told_on_every_verb(postgres: SharedPostgres, said: Said) -> None:
    for words in VERBS:
        text = said(postgres.url("postgres", password="wrong-one"), *words)
        assert "refused the user or password. Check store.url, PGPASSWORD and ~/.pgpass" in text
    text = said(postgres.url("postgres").replace(f":{PASSWORD}", ""), "ps")
    assert "wants a password, and none is given. Put it into store.url, PGPASSWORD or ~/.pgpass" in text
    for words in (*VERBS, ["store", "init"]):
        text = said(postgres.url("nowhere"), *words)
        assert "there is no such database. Create it, then `forge store init`" in text


@pytest.fixture
def strict_server(own_postgres: PostgresServer) -> PostgresServer:
    """A PostgreSQL of its own with TLS: `tls` is behind `hostssl`, `closed` has no line in pg_hba.conf."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    server, data = own_postgres, own_postgres.place / "data"
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    files = ["-keyout", str(data / "server.key"), "-out", str(data / "server.crt")]
    subprocess.run(["openssl", *request.split(), *files], check=True, capture_output=True)
    owner = data.stat()
    for name in ("server.key", "server.crt"):
        os.chown(data / name, owner.st_uid, owner.st_gid)
        (data / name).chmod(0o600)
    for name in ("tls", "closed"):
        server.execute(f"CREATE DATABASE {name}")
    server.execute("ALTER SYSTEM SET ssl = on")
    words = "127.0.0.1/32 scram-sha-256\n"
    (data / "pg_hba.conf").write_text(f"host postgres owner {words}hostssl tls owner {words}")
    server.stop()
    server.start()
    return server


def test_why_a_database_cannot_be_reached_is_told_in_a_few_words(strict_server: PostgresServer, said: Said) -> None:
    where, elsewhere = strict_server.url("tls"), f"postgresql://u:{PASSWORD}@"
    told = {
        f"{elsewhere}127.0.0.1:1/x": ("nothing listens there", "Start the database, or correct the host and port"),
        f"{elsewhere}no-such-host.invalid/x": ("the name of its host is not known", "Correct the host in store.url"),
        f"{where}?host=/nowhere": ("nothing listens there", "Start the database"),
        f"{where}?sslmode=verify-full&sslrootcert=/nowhere/ca.pem": ("sslrootcert", "Correct sslrootcert in store.url"),
        f"{where}?sslmode=disable": ("pg_hba.conf", "without TLS", "sslmode=require"),
        f"{strict_server.url('closed')}?sslmode=require": ("pg_hba.conf", "Add a line for", "closed"),
        strict_server.url("nowhere"): ("pg_hba.conf", "nowhere"),
    }
    for url, words in told.items():
        text = said(url, "ps")
        assert all(each in text for each in words) and "Error" not in text, (url, text)
        assert url not in text and "?" not in text
        assert ("without TLS" in text) == ("disable" in url)
    strict_server.stop()
    assert "nothing listens there. Start the database" in said(where, "ps")


@pytest.mark.parametrize("mark", ["@", "/", "#", "?", ":", "%"])
def test_a_password_that_breaks_the_address_is_not_shown(said: Said, mark: str) -> None:
    """libpq takes what stands behind an @ for the host, and repeats it."""
    text = said(f"postgresql://u:one{mark}{PASSWORD}{mark}two@no-such-host.invalid:1/x", "ps")
    assert "one" not in text.replace("none", "") and "two" not in text
    assert mark == ":" or "%" in text, "it says how such a character is written"


def test_an_unreachable_host_and_a_missing_extra_are_told(
    said: Said, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    for words in VERBS:
        assert "cannot be reached now" in said(f"postgresql://u:{PASSWORD}@127.0.0.1:1/x", *words)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for words in VERBS:
        assert "its library is missing. Run `pip install 'golem-forge[team]'`" in said(postgres_url, *words)


def test_a_server_that_answers_late_is_asked_a_second_time(
    postgres: SharedPostgres, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "CONNECT_S", 1)
    monkeypatch.setattr(databases, "CONNECT_AGAIN_S", PATIENCE)
    with socket.create_server(("127.0.0.1", 0)) as late, contextlib.ExitStack() as taken:

        def answer_the_second() -> None:
            taken.enter_context(late.accept()[0])
            taken.enter_context(joined(late.accept()[0], postgres.port))

        threading.Thread(target=answer_the_second, daemon=True).start()
        address = postgres_url.replace(f":{postgres.port}/", f":{late.getsockname()[1]}/")
        store = Store.open(address, tmp_path)
        assert store.sessions() == []
        store.close()


def test_a_server_that_never_answers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONNECT_S", "CONNECT_AGAIN_S"):
        monkeypatch.setattr(databases, name, 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://u:{PASSWORD}@127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(StoreUnavailable, match="no answer came within 15 seconds"):
            Store.open(address, tmp_path)


@contextlib.contextmanager
def joined(near: socket.socket, port: int) -> Iterator[None]:
    """What comes from either side goes to the other."""
    far = socket.create_connection(("127.0.0.1", port))

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece)

    for ends in ((near, far), (far, near)):
        threading.Thread(target=pass_on, args=ends, daemon=True).start()
    with near, far:
        yield


def test_tables_that_are_missing_old_or_new_are_told(
    said: Said, monkeypatch: pytest.MonkeyPatch, postgres: SharedPostgres, postgres_url: str, tmp_path: Path
) -> None:
    assert "has no tables yet. Run `forge store init`" in said(postgres.url("postgres"), "ps")
    for words in (["store", "status"], ["runner"]):
        text = said(postgres.url("postgres"), *words)
        assert "Run `forge store init`, for a team with --runner-role NAME and --page-role NAME" in text
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
    lease = store.leases.claim("one of tomorrow", (), session_id=session)
    assert lease is not None
    data, _, _ = seal_records([f'"type":"session","version":9,"sessionId":"{session}"'], 0, "")
    store.append([Append(session=session, epoch=lease.epoch, first=1, lines=(data,))])
    store.leases.give_back(lease)
    return session


def test_a_session_of_a_newer_version_is_left_for_a_runner_that_knows_it(
    postgres_url: str, tmp_path: Path, ready_forge: ReadyForge
) -> None:
    program = Program(tmp_path / "shop", tmp_path / "home", postgres_url, ready_forge, tools=False)
    try:
        session = newer_session(program.store(), directory=str(program.folder))
        runner = program.start_quick_runner(2)
        until(lambda: "recorded by a newer version of Forge" in program.logs())
        assert "Upgrade Forge here." in program.logs()
        assert program.store().find(session).state in ("running", "queued")
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(timeout=PATIENCE) == 0
    finally:
        program.close()


def test_no_process_and_no_log_shows_the_password(postgres_url: str, tmp_path: Path, ready_forge: ReadyForge) -> None:
    program = Program(tmp_path / "shop", tmp_path / "home", postgres_url, ready_forge, tools=False)
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
        for runner in program.store().runners.seen():
            os.kill(runner["pid"], signal.SIGTERM)
        until(lambda: not program.store().runners.seen())
    finally:
        program.close()


Doctor = Callable[[str], tuple[list[dict[str, Any]], int]]


@pytest.fixture
def doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tried_walls: Path
) -> Doctor:
    """What `forge doctor` says of the store at this address, and its exit code; empty: no store is configured."""
    home = tmp_path / "home"
    for folder in (home, tmp_path / "project"):
        folder.mkdir(mode=0o700)
    monkeypatch.setenv("FORGE_HOME", str(home))
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr(probe, "probe", probe.probe)  # what the next line replaces comes back
    known_walls.always(tried_walls)

    def run(url: str) -> tuple[list[dict[str, Any]], int]:
        (home / "config.yaml").write_text("store: {url: env:STORE_URL}\n" if url else "")
        monkeypatch.setenv("STORE_URL", url)
        code = main(["doctor", "--json"])
        out, err = capsys.readouterr()
        assert PASSWORD not in out + err and "wrong-one" not in out + err
        return [each for each in json.loads(out)["findings"] if each["about"] == "store"], code

    return run


def test_doctor_looks_at_the_store_its_version_and_its_runners(
    doctor: Doctor, store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [found], code = doctor(store_url)
    assert code == 0 and found["state"] == "ok" and store.database.shown in found["text"]
    assert f"version {schema.SCHEMA_VERSION}, as this Forge" in found["text"] and "no runner" in found["text"]
    store.queue(NewSession(facts={}, input="go"))
    _, idle = doctor(store_url)[0]
    assert idle["state"] == "note" and "1 session waits" in idle["text"] and "forge runner" in idle["fix"]
    store.runners.register("r1", host="elsewhere", pid=1, slots=1, labels=(), version="0.0.1", offers={})
    first, other = doctor(store_url)[0]
    assert "1 runner" in first["text"]
    assert other["state"] == "note" and "elsewhere has the version 0.0.1" in other["text"]
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
    [old], code = doctor(store_url)
    assert code == 1 and old["state"] == "problem" and store.database.shown in old["text"]
    assert "of an older version" in old["text"] and "forge store upgrade" in old["fix"]


def test_doctor_says_why_a_store_cannot_be_used(doctor: Doctor, postgres: SharedPostgres) -> None:
    said = {
        f"postgresql://u:{PASSWORD}@127.0.0.1:1/x": ("127.0.0.1:1/x) cannot be reached", "Start the database"),
        postgres.url("postgres", password="wrong-one"): ("refused the user or password", "Check store.url"),
        postgres.url("nowhere"): ("there is no such database", "Create it, then"),
        postgres.url("postgres"): ("has no tables yet", "forge store init"),
        "https://127.0.0.1:1": ("needs your token", "FORGE_TEAM_TOKEN"),
    }
    for url, (text, fix) in said.items():
        [found], code = doctor(url)
        assert code == 1 and found["state"] == "problem", url
        assert text in found["text"] and fix in found["fix"], found


def test_doctor_says_nothing_of_a_store_that_nobody_has(doctor: Doctor, tmp_path: Path) -> None:
    assert doctor("") == ([], 0)
    [found], _ = doctor("sqlite")
    assert found["state"] == "ok" and "first use" in found["text"]
    assert not (tmp_path / "home" / "state").exists(), "looking makes nothing"
    Store.open("sqlite", tmp_path / "home", create=True).close()
    [found], _ = doctor("")
    assert found["state"] == "ok" and "sessions.db" in found["text"]


@pytest.mark.long
def test_doctor_loads_nothing_of_a_store_that_nobody_has(tmp_path: Path) -> None:
    looks = (
        "import sys\nfrom golem_forge.cli import doctor\nhome = doctor.forge_home()\n"
        "program = doctor.load_program(doctor.Path.cwd(), home, trusted=lambda *_: False)\n"
        "print(list(doctor.check_store(program, home)))\n"
        "print([name for name in sys.modules if name.startswith(('golem_forge.team', 'psycopg'))])"
    )
    command = [sys.executable, "-c", looks]
    done = subprocess.run(
        command, cwd=tmp_path, env=_environ(tmp_path / "home"), capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n[]\n"


def test_pruning_with_the_role_of_runners_is_refused_in_one_sentence(said: Said, roles: Callable[[str], str]) -> None:
    text = said(roles("runner"), "store", "prune")
    assert "runner_of_" in text and "only the role that owns the tables deletes sessions" in text


def test_a_runner_with_a_role_that_is_not_a_runners_is_refused_before_it_starts(
    said: Said, roles: Callable[[str], str]
) -> None:
    text = said(roles("page"), "runner")
    assert "page_of_" in text and "lacks rights that a runner needs" in text and "runner " in text
    assert "It is the page's role" in text and "`forge store init --runner-role NAME`" in text
    bare = roles("bare")
    text = said(bare, "runner")
    assert "bare_of_" in text and "has no rights in this store" in text and "`forge store init --runner-role" in text
    assert "owner's address" not in text and "Use the role that owns" not in text
    assert "--page-role" in said(bare, "ps")


def test_a_page_with_the_role_of_runners_says_so_when_it_starts(
    roles: Callable[[str], str], tmp_path: Path, ready_forge: ReadyForge
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("store: {url: env:STORE_URL}\n")
    for kind, told in (("page", 0), ("runner", 1)):
        env = _environ(home) | {"STORE_URL": roles(kind)}
        server = ready_forge.start(["forge", "web", "--team", "--no-open"], cwd=tmp_path, env=env)
        assert "Forge for your team" in server.stdout.readline()
        server.terminate()
        _, err = server.communicate(timeout=PATIENCE)
        assert err.count("is the runners' role") == err.count("`forge store init --page-role NAME`") == told, err


def test_a_page_whose_password_does_not_work_any_more_tells_people_nothing_of_the_database(
    roles: Callable[[str], str], postgres: SharedPostgres, tmp_path: Path, ready_forge: ReadyForge
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("store: {url: env:STORE_URL}\n")
    address = roles("page")
    role, name = re.findall(r"//(.*?):.*/(.*)", address)[0]
    server = ready_forge.start(
        ["forge", "web", "--team", "--no-open"], cwd=tmp_path, env=_environ(home) | {"STORE_URL": address}
    )
    try:
        port = int(re.findall(r":(\d+)/", server.stdout.readline())[0])
        postgres.execute(f"ALTER ROLE {role} PASSWORD 'another'")
        postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
        for _ in range(3):  # the first ones find their connection broken, the next one the password refused
            connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/api/me", headers={"Authorization": "Bearer forge_x"})
            answer = connection.getresponse()
            said = answer.read().decode()
            assert answer.status == 503 and "The database of the team cannot be reached now" in said
            assert name not in said and "postgresql" not in said
            connection.close()
            time.sleep(1.1)  # one line a second goes to the log
    finally:
        server.terminate()
        _, err = server.communicate(timeout=PATIENCE)
    assert "refused the user or password. Check store.url" in err and PASSWORD not in err


def test_a_webhook_in_the_local_network_is_told_by_doctor_and_status(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "s")
    hooks = "notify: [{webhook: 'http://127.0.0.1:9/x', secret: env:HOOK_SECRET}, {webhook: env:NO, secret: env:NO}]\n"
    Path("forge.yaml").write_text(hooks)
    assert main(["trust", "--yes"]) == 0
    capsys.readouterr()
    found, code = doctor("sqlite")
    told = [each for each in found if each["state"] == "note"]
    assert code == 0 and len(told) == 2
    assert "private address" in told[1]["text"] and "allow_private: true" in told[1]["fix"]
    assert "the variable NO is not set" in told[0]["text"]
    assert main(["store", "status"]) == 0
    said = capsys.readouterr().out
    assert said.count("problem: ") == 2 and "private address" in said


def test_doctor_looks_at_a_teams_page_with_the_persons_token(tmp_path: Path, ready_forge: ReadyForge) -> None:
    home, laptop = tmp_path / "home", tmp_path / "laptop"
    home.mkdir(mode=0o700)
    laptop.mkdir(mode=0o700)
    store = Store.open("sqlite", home, create=True)
    token = OwnerStore(store, "root", "test").new_person("vera", Role.VIEWER)
    server = ready_forge.start(["forge", "web", "--team", "--no-open"], cwd=tmp_path, env=_environ(home))
    try:
        url = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert url

        def said(env: dict[str, str]) -> dict[str, Any]:
            (laptop / "config.yaml").write_text(f"store: {{url: '{url[0]}'}}\n")
            done = ready_forge("doctor", "--json", cwd=tmp_path, env=env, walls_known=True)
            [found] = [each for each in json.loads(done.stdout)["findings"] if each["about"] == "store"]
            assert isinstance(found, dict)
            return found

        found = said(_environ(laptop) | {"FORGE_TEAM_TOKEN": token})
        assert found["state"] == "ok" and f"{url[0]}: you are vera (viewer); no runner now" in found["text"]
        store.accounts.remove_person("vera")
        found = said(_environ(laptop) | {"FORGE_TEAM_TOKEN": token})
        assert found["state"] == "problem" and token not in json.dumps(found)
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)


def _environ(home: Path) -> dict[str, str]:
    return {**os.environ, "FORGE_HOME": str(home)}
