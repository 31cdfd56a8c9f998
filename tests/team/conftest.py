"""Stores for tests, on both databases: each test has a database of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.ready import ReadyForge

from golem_forge.team.database import open_database
from golem_forge.team.schema import PAGE, RUNNER, grant_role, upgrade
from golem_forge.team.store import Store

from .background import Program
from .postgres import PASSWORD, PostgresServer, SharedPostgres, programs, sharing


@pytest.fixture(scope="session")
def postgres(meeting: Path) -> Iterator[SharedPostgres]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with sharing(meeting) as server:
        yield server


@pytest.fixture
def own_postgres(postgres: SharedPostgres) -> Iterator[PostgresServer]:
    """One that the test may stop, or make roles and databases in as it likes."""
    server = PostgresServer(made=postgres.made)
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres: SharedPostgres) -> Iterator[str]:
    """The address of a database with the store's tables."""
    with postgres.lend() as url:
        yield url


@pytest.fixture
def own_postgres_url(own_postgres: PostgresServer) -> str:
    """The same, at a server of its own."""
    own_postgres.execute("CREATE DATABASE store")
    url = own_postgres.url("store")
    database = open_database(url, Path("/nonexistent"))
    upgrade(database)
    database.close()
    return url


@pytest.fixture
def roles(postgres: SharedPostgres, postgres_url: str) -> Iterator[Callable[[str], str]]:
    """The address of the test's database with a new role for that: `runner`, `page`, or another word for one without
    any rights."""
    database = open_database(postgres_url, Path("/nonexistent"))
    name = postgres_url.rpartition("/")[2]
    made: list[str] = []

    def address(kind: str) -> str:
        role = f"{kind}_of_{name}"
        postgres.execute(f"CREATE ROLE {quoted(role)} LOGIN PASSWORD '{PASSWORD}'")
        made.append(role)
        if kind in (RUNNER, PAGE):
            grant_role(database, role, kind)
        return postgres.url(name, quote(role))

    yield address
    database.close()
    for role in made:
        postgres.execute(f"DROP OWNED BY {quoted(role)}; DROP ROLE {quoted(role)}", name)


def quoted(role: str) -> str:
    return '"' + role.replace('"', '""') + '"'


def on_stores(names: str, rows: Sequence[Any], on_postgresql: Sequence[Any]) -> pytest.MarkDecorator:
    """As `parametrize`, for tests of `store` whose rows differ in what people may, not in SQL: every row on SQLite, and
    on PostgreSQL those that go through each statement there once."""
    assert on_postgresql and all(row in rows for row in on_postgresql)
    chosen = [*(("sqlite", row) for row in rows), *(("postgresql", row) for row in on_postgresql)]
    return pytest.mark.parametrize(
        f"store_url, {names}",
        [(kind, *row) if isinstance(row, tuple) else (kind, row) for kind, row in chosen],
        indirect=["store_url"],
    )


@pytest.fixture(scope="session")
def new_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of SQLite in which nothing is."""
    path = tmp_path_factory.mktemp("store") / "sessions.db"
    database = open_database(f"sqlite://{path}", path)
    upgrade(database)
    database.close()
    return path


@pytest.fixture
def sqlite_url(new_file: Path, tmp_path: Path) -> str:
    (tmp_path / "store").mkdir(mode=0o700)
    shutil.copy(new_file, tmp_path / "store")
    return f"sqlite://{tmp_path}/store/{new_file.name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue("postgres_url" if request.param == "postgresql" else "sqlite_url")
    return url


@pytest.fixture
def store(store_url: str, tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(store_url, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def program(tmp_path: Path, ready_forge: ReadyForge, capfd: pytest.CaptureFixture[str]) -> Iterator[Program]:
    """A program and its home, with a store on SQLite and without tools of its own."""
    made = Program(tmp_path / "shop", tmp_path / "home", ready=ready_forge, capture=capfd, tools=False)
    yield made
    made.close()
