"""Stores for tests, on both databases: each test has a database of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from golem_forge.team.database import open_database
from golem_forge.team.schema import upgrade
from golem_forge.team.store import Store

from .postgres import PostgresServer, programs

_numbers = itertools.count()
TEMPLATE = "forge_template"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    server = PostgresServer()
    try:
        server.execute(f"CREATE DATABASE {TEMPLATE}")
        database = open_database(server.url(TEMPLATE), Path("/nonexistent"))
        upgrade(database)
        database.close()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of a database with the store's tables."""
    name = f"store_{next(_numbers)}"
    postgres.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    yield postgres.url(name)
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


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


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return url
    url = f"sqlite://{tmp_path}/store/sessions.db"
    database = open_database(url, tmp_path)
    upgrade(database)
    database.close()
    return url


@pytest.fixture
def store(store_url: str, tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(store_url, tmp_path)
    yield opened
    opened.close()
