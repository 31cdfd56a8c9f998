"""The tables of the store, and how a database comes to have them.

`upgrade` makes what is missing and moves an older schema to this one, a step at a time, in one transaction.
`check_version` refuses a database that is older (`forge store upgrade` mends it) or newer (this version of Forge is
too old for it). Journals are append only: a trigger refuses to change or delete a line, and `pruning` is the only way
around it, for the owner alone. `grant_role` gives a role of PostgreSQL what runners need, or what the page of a team
needs, and nothing that changes what is recorded.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Final

from golem_forge.core.regex import regex
from golem_forge.team.audit import REFUSED, record
from golem_forge.team.database import (
    APPEND_ONLY,
    SQLITE,
    Database,
    PostgresConnection,
    StoreConnection,
    TeamError,
)
from golem_forge.team.dispatch import SCHEMA_KEY, install
from golem_forge.team.projects import ensure_project

_TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 64
        AND ltrim(id, '0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-') = ''),
    state TEXT NOT NULL,
    held INTEGER NOT NULL DEFAULT 0,
    worker TEXT NOT NULL DEFAULT '',
    title TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    mode TEXT NOT NULL DEFAULT '',
    person TEXT NOT NULL DEFAULT '',
    program TEXT NOT NULL DEFAULT '',
    label TEXT NOT NULL DEFAULT '',
    batch TEXT NOT NULL DEFAULT '',
    priority INTEGER NOT NULL DEFAULT 0,
    runner TEXT NOT NULL DEFAULT '',
    epoch BIGINT NOT NULL DEFAULT 0,
    lease_until DOUBLE PRECISION NOT NULL DEFAULT 0,
    wake INTEGER NOT NULL DEFAULT 0,
    stop INTEGER NOT NULL DEFAULT 0,
    arrivals BIGINT NOT NULL DEFAULT 0,
    waits_for TEXT NOT NULL DEFAULT '',
    result TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    cost DOUBLE PRECISION NOT NULL DEFAULT 0,
    lines BIGINT NOT NULL DEFAULT 0,
    hash TEXT NOT NULL DEFAULT '',
    created DOUBLE PRECISION NOT NULL,
    updated DOUBLE PRECISION NOT NULL,
    ended DOUBLE PRECISION NOT NULL DEFAULT 0,
    notice TEXT NOT NULL DEFAULT ''
);
CREATE INDEX sessions_by_state ON sessions (state, priority, created);
CREATE INDEX sessions_by_lease ON sessions (lease_until) WHERE state = 'running';
CREATE TABLE session_facts (session TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE, facts TEXT NOT NULL);
CREATE TABLE journal (session TEXT NOT NULL, n BIGINT NOT NULL, line BYTES NOT NULL, PRIMARY KEY (session, n));
CREATE TABLE journal_private (session TEXT NOT NULL, n BIGINT NOT NULL, line BYTES NOT NULL, PRIMARY KEY (session, n));
CREATE TABLE outputs (
    session TEXT NOT NULL, handle TEXT NOT NULL, worker TEXT NOT NULL, piece INTEGER NOT NULL, data BYTES NOT NULL,
    PRIMARY KEY (session, handle, piece)
);
CREATE TABLE arrivals (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    person TEXT NOT NULL DEFAULT '',
    door TEXT NOT NULL DEFAULT '',
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session, number)
);
CREATE TABLE questions (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    call TEXT NOT NULL DEFAULT '',
    worker TEXT NOT NULL DEFAULT '',
    risk TEXT NOT NULL DEFAULT '',
    title TEXT NOT NULL DEFAULT '',
    wire TEXT NOT NULL,
    state TEXT NOT NULL,
    asked DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION NOT NULL DEFAULT 0,
    four_eyes INTEGER NOT NULL DEFAULT 0,
    answer TEXT NOT NULL DEFAULT '',
    person TEXT NOT NULL DEFAULT '',
    door TEXT NOT NULL DEFAULT '',
    answered DOUBLE PRECISION NOT NULL DEFAULT 0
);
CREATE INDEX questions_open ON questions (asked) WHERE state = 'open';
CREATE INDEX questions_by_expiry ON questions (expires) WHERE state = 'open' AND expires > 0;
CREATE INDEX questions_by_session ON questions (session, state);
CREATE TABLE runners (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    slots INTEGER NOT NULL,
    labels TEXT NOT NULL,
    version TEXT NOT NULL,
    offers TEXT NOT NULL,
    started DOUBLE PRECISION NOT NULL,
    seen DOUBLE PRECISION NOT NULL,
    draining INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE people (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, token TEXT NOT NULL UNIQUE, created DOUBLE PRECISION NOT NULL
);
CREATE UNIQUE INDEX people_by_name ON people (lower(name));
CREATE TABLE refusals (
    at DOUBLE PRECISION NOT NULL, person TEXT NOT NULL, door TEXT NOT NULL, action TEXT NOT NULL, what TEXT NOT NULL
);
CREATE TABLE rules (
    id TEXT PRIMARY KEY, rule TEXT NOT NULL, person TEXT NOT NULL, created DOUBLE PRECISION NOT NULL
);
CREATE TABLE schedules (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, cron TEXT NOT NULL, timezone TEXT NOT NULL, person TEXT NOT NULL,
    by_role INTEGER NOT NULL DEFAULT 0, title TEXT NOT NULL, worker TEXT NOT NULL, label TEXT NOT NULL,
    session TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, last_tick DOUBLE PRECISION NOT NULL DEFAULT 0,
    next_tick DOUBLE PRECISION NOT NULL, last_session TEXT NOT NULL DEFAULT '', note TEXT NOT NULL DEFAULT ''
);
CREATE TABLE ticks (
    schedule TEXT NOT NULL, tick DOUBLE PRECISION NOT NULL, session TEXT NOT NULL, PRIMARY KEY (schedule, tick)
);
CREATE TABLE deliveries (
    id TEXT PRIMARY KEY, hook TEXT NOT NULL, body TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
    first_try DOUBLE PRECISION NOT NULL DEFAULT 0, next_try DOUBLE PRECISION NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL DEFAULT 'waiting'
);
CREATE INDEX deliveries_due ON deliveries (next_try) WHERE state = 'waiting';
CREATE TABLE pruned (
    session TEXT PRIMARY KEY, lines BIGINT NOT NULL, hash TEXT NOT NULL, at DOUBLE PRECISION NOT NULL
);
"""
_PROJECT_TABLES: Final = """
CREATE TABLE projects (id TEXT PRIMARY KEY, name TEXT NOT NULL, created DOUBLE PRECISION NOT NULL);
CREATE UNIQUE INDEX projects_by_name ON projects (lower(name));
CREATE TABLE project_roles (
    project TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE, subject TEXT NOT NULL, role TEXT NOT NULL,
    PRIMARY KEY (project, subject)
);
CREATE TABLE group_members (name TEXT NOT NULL, person TEXT NOT NULL, PRIMARY KEY (name, person));
ALTER TABLE rules ADD COLUMN project TEXT NOT NULL DEFAULT '';
ALTER TABLE schedules ADD COLUMN program TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_by_program ON sessions (program, created)
"""
_AUDIT_TABLES: Final = """
CREATE TABLE audit (
    n BIGINT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, kind TEXT NOT NULL, person TEXT NOT NULL, door TEXT NOT NULL,
    program TEXT NOT NULL, session TEXT NOT NULL, data TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE INDEX audit_by_person ON audit (person, kind, at);
CREATE TABLE revoked (token TEXT PRIMARY KEY, name TEXT NOT NULL, at DOUBLE PRECISION NOT NULL);
ALTER TABLE people ADD COLUMN expires DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE people ADD COLUMN issuer TEXT NOT NULL DEFAULT '';
ALTER TABLE people ADD COLUMN subject TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX people_by_subject ON people (issuer, subject) WHERE issuer <> ''
"""
_INBOX_TABLES: Final = """
ALTER TABLE questions ADD COLUMN tool TEXT NOT NULL DEFAULT '';
ALTER TABLE questions ADD COLUMN same TEXT NOT NULL DEFAULT '';
CREATE INDEX questions_alike ON questions (same) WHERE state = 'open' AND same <> ''
"""
_QUOTA_TABLES: Final = """
CREATE TABLE quotas (
    project TEXT NOT NULL, person TEXT NOT NULL, cost DOUBLE PRECISION NOT NULL, sessions BIGINT NOT NULL,
    PRIMARY KEY (project, person)
);
CREATE TABLE spent (
    day BIGINT NOT NULL, session TEXT NOT NULL, program TEXT NOT NULL, person TEXT NOT NULL,
    cost DOUBLE PRECISION NOT NULL, held DOUBLE PRECISION NOT NULL, PRIMARY KEY (day, session)
)
"""
_SECRET_TABLES: Final = """
CREATE TABLE secrets (
    project TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE, name TEXT NOT NULL, sealed TEXT NOT NULL,
    person TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, PRIMARY KEY (project, name)
)
"""
_SECOND_KEY: Final = """
ALTER TABLE people ADD COLUMN own_token TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX people_by_own_token ON people (own_token) WHERE own_token <> ''
"""
_TABLE_NAMES: Final = regex(r"CREATE TABLE (\w+)")
_APPEND_ONLY: Final = ("journal", "journal_private", "outputs")
_AUDIT: Final = ("audit",)
_PRUNING: Final = "pruning"
RUNNER: Final = "runner"
PAGE: Final = "page"
OWNER: Final = "owner"
"""With RUNNER and PAGE: the kinds of a PostgreSQL role."""
_ALL_RIGHTS: Final = "SELECT, INSERT, UPDATE, DELETE"
_KEPT: Final = {
    **dict.fromkeys(("sessions", "questions"), "SELECT, INSERT, UPDATE"),
    **dict.fromkeys(("arrivals", "session_facts"), "SELECT, INSERT"),
}
_RIGHTS: Final = {
    RUNNER: {
        **_KEPT,
        **dict.fromkeys((*_APPEND_ONLY, *_AUDIT, "rules", "projects"), "SELECT, INSERT"),
        **dict.fromkeys(
            ("meta", "people", "pruned", "revoked", "project_roles", "group_members", "quotas", "secrets"), "SELECT"
        ),
    },
    PAGE: {
        **_KEPT,
        **dict.fromkeys(_AUDIT, "SELECT, INSERT"),
        **dict.fromkeys((*_APPEND_ONLY, "meta", "pruned", "runners", "spent"), "SELECT"),
    },
}
"""Rights of each kind of role on a table, if not all. A runner adds to journals; a rule that it adds is what an admin
answered to its question; the owner and the admins decide about people. The page records no call. Neither deletes a
session, nor changes what somebody said to it, nor what the audit says.
"""
_GRANTED: Final = {RUNNER: "runner role ", PAGE: "page role "}
"""Prefix in `meta` of the name of a role that was granted these rights; `upgrade` grants them for new tables."""


def _statements(database: Database) -> Iterator[str]:
    binary = "BLOB" if database.kind == SQLITE else "BYTEA"
    for statement in _TABLES.replace("BYTES", binary).split(";"):
        if statement.strip():
            yield statement
    if database.kind != SQLITE:
        yield (
            "CREATE FUNCTION forge_append_only() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, "
            "pg_temp AS $$ BEGIN "
            f"IF current_setting('forge.{_PRUNING}', true) = 'on' AND pg_has_role(current_user, "
            "(SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'MEMBER') "
            f"THEN RETURN OLD; END IF; RAISE EXCEPTION '{APPEND_ONLY}'; END $$"
        )
    yield from _append_only_triggers(database, _APPEND_ONLY)


def _append_only_triggers(database: Database, tables: tuple[str, ...]) -> Iterator[str]:
    for table in tables:
        if database.kind == SQLITE:
            for verb in ("UPDATE", "DELETE"):
                yield (
                    f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                    f"WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = '{_PRUNING}') "
                    f"BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY}'); END"
                )
            continue
        yield (
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION forge_append_only()"
        )
        yield (
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION forge_append_only()"
        )


def _add_projects(connection: StoreConnection, database: Database) -> None:
    """Projects and roles in them. The programs that are there become projects, named by their directories."""
    for statement in _PROJECT_TABLES.split(";"):
        connection.execute(statement)
    for schedule, kept in connection.execute("SELECT id, session FROM schedules").fetchall():
        program = str(json.loads(kept).get("program") or "")
        connection.execute(
            "UPDATE schedules SET program = :program WHERE id = :id", {"program": program, "id": schedule}
        )
    programs = connection.execute(
        "SELECT s.program, max(f.facts) FROM sessions s LEFT JOIN session_facts f ON f.session = s.id "
        "WHERE s.program <> '' GROUP BY s.program ORDER BY min(s.created)"
    ).fetchall()
    for program, facts in programs:
        ensure_project(connection, program, PurePath(json.loads(facts or "{}").get("directory") or "").name)


def _add_audit(connection: StoreConnection, database: Database) -> None:
    """The audit, where refusals are from now on; tokens that expire; people who sign in elsewhere."""
    for statement in (*_AUDIT_TABLES.split(";"), *_append_only_triggers(database, _AUDIT)):
        connection.execute(statement)
    rows = connection.execute("SELECT at, person, door, action, what FROM refusals ORDER BY at").fetchall()
    for at, person, door, action, what in rows:
        record(connection, REFUSED, person, door, {"action": action, "what": what, "was at": at})
    connection.execute("DROP TABLE refusals")


def _add_inbox(connection: StoreConnection, database: Database) -> None:
    """Adds the columns by which an inbox is filtered. Questions that are already open match no other."""
    for statement in _INBOX_TABLES.split(";"):
        connection.execute(statement)
    for id, wire in connection.execute("SELECT id, wire FROM questions WHERE state = 'open'").fetchall():
        tool = str(json.loads(wire).get("tool") or "")
        connection.execute("UPDATE questions SET tool = :tool WHERE id = :id", {"tool": tool, "id": id})


def _add_quotas(connection: StoreConnection, database: Database) -> None:
    for statement in _QUOTA_TABLES.split(";"):
        connection.execute(statement)


def _add_secrets(connection: StoreConnection, database: Database) -> None:
    """Sealed for runners: neither the page nor the database can open one."""
    connection.execute(_SECRET_TABLES)


def _add_own_tokens(connection: StoreConnection, database: Database) -> None:
    """Whoever signs in elsewhere may have a token too, for the command line."""
    for statement in _SECOND_KEY.split(";"):
        connection.execute(statement)


_STEPS: Final[tuple[Callable[[StoreConnection, Database], None], ...]] = (
    _add_projects,
    _add_audit,
    _add_inbox,
    _add_quotas,
    _add_secrets,
    _add_own_tokens,
)
"""The migrations from each version to the next; the first begins at version 1, the tables above."""
_DROPPED: Final = frozenset({"refusals"})
SCHEMA_VERSION: Final = 1 + len(_STEPS)


def version_of(connection: StoreConnection, database: Database) -> int:
    """Returns the schema version; 0 if there are no tables."""
    if database.kind == SQLITE:
        there = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'").fetchone()
    else:
        there = connection.execute("SELECT 1 WHERE to_regclass('meta') IS NOT NULL").fetchone()
    if there is None:
        return 0
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    return int(row[0]) if row else 0


def upgrade(database: Database) -> tuple[int, int]:
    """(the version before, the version now). Raises TeamError for a database of a newer Forge."""
    with database.transaction() as connection:
        connection.lock("schema")  # two machines may be set up at once
        before = version_of(connection, database)
        if before > SCHEMA_VERSION:
            raise _newer(before)
        if before == 0:
            for statement in _statements(database):
                connection.execute(statement)
        for step in _STEPS[max(before, 1) - 1 : SCHEMA_VERSION - 1]:
            step(connection, database)
        if before != SCHEMA_VERSION:  # else nothing is written: whoever watches the file would be woken
            connection.execute(
                "INSERT INTO meta (key, value) VALUES ('schema', :version) ON CONFLICT (key) DO UPDATE SET value = "
                "excluded.value",
                {"version": str(SCHEMA_VERSION)},
            )
        if isinstance(connection, PostgresConnection):
            _install_dispatch(connection)
            for kind, role in _granted_roles(connection):
                _grant(connection, role, kind)
    return before, SCHEMA_VERSION


def grant_role(database: Database, role: str, kind: str) -> None:
    """Lets this role of PostgreSQL be a runner's or the page's (`RUNNER`, `PAGE`), and nothing else from then on.

    Raises TeamError for one that is not there, or owns the tables.
    """
    with database.transaction() as connection:
        if not isinstance(connection, PostgresConnection):
            raise TeamError(f"--{kind}-role is for a store in PostgreSQL; a SQLite file belongs to one account.")
        row = connection.execute(
            "SELECT pg_has_role(oid, (SELECT relowner FROM pg_class WHERE oid = to_regclass('journal')), 'MEMBER') "
            "FROM pg_roles WHERE rolname = :role",
            {"role": role},
        ).fetchone()
        if row is None:
            raise TeamError(f"There is no role {role!r} in PostgreSQL. Make it with CREATE ROLE … LOGIN, then repeat.")
        if row[0]:
            whose = "Runners need" if kind == RUNNER else "The page needs"
            raise TeamError(f"The role {role!r} owns the tables, or is a superuser. {whose} a role of their own.")
        for each, mark in _GRANTED.items():
            if each == kind:
                words = "INSERT INTO meta (key, value) VALUES (:key, '1') ON CONFLICT (key) DO NOTHING"
            else:
                words = "DELETE FROM meta WHERE key = :key"
            connection.execute(words, {"key": mark + role})
        _grant(connection, role, kind)


def _granted_roles(connection: StoreConnection) -> list[tuple[str, str]]:
    """(what for, name) of each role that is still there."""
    rows = connection.execute("SELECT key FROM meta").fetchall()
    there = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles").fetchall()}
    found = [
        (kind, key.removeprefix(mark)) for (key,) in rows for kind, mark in _GRANTED.items() if key[: len(mark)] == mark
    ]
    return [(kind, role) for kind, role in found if role in there]


def own_role(database: Database) -> tuple[str, str]:
    """(the role of this connection, `owner`, `runner`, `page` or nothing); empty with SQLite."""
    with database.transaction(write=False) as connection:
        return _own_role(connection) if isinstance(connection, PostgresConnection) else ("", "")


def _own_role(connection: PostgresConnection) -> tuple[str, str]:
    name, owns = connection.execute(
        "SELECT current_user, pg_has_role((SELECT relowner FROM pg_class WHERE oid = to_regclass('journal')), 'MEMBER')"
    ).fetchone()
    return name, OWNER if owns else next((kind for kind, role in _granted_roles(connection) if role == name), "")


def describe_server(database: Database) -> tuple[str, list[str]]:
    """(who this connection is to PostgreSQL, what is wrong with the server's settings); empty with SQLite."""
    with database.transaction(write=False) as connection:
        if not isinstance(connection, PostgresConnection):
            return "", []
        name, kind = _own_role(connection)
        fsync, pages = connection.execute(
            "SELECT current_setting('fsync'), current_setting('full_page_writes')"
        ).fetchone()
    lost = "a crash of the database's machine can lose what was recorded, and a call would run twice. Set it to on."
    settings = {"fsync": fsync, "full_page_writes": pages}
    problems = [f"{key} is off in PostgreSQL: {lost}" for key, value in settings.items() if value == "off"]
    return f"{name} ({kind or 'no role of this store'})", problems


def require_owner(database: Database) -> None:
    """Checks the role before sessions are deleted. Raises TeamError for another role, which might see nothing to delete
    and report success.
    """
    name, kind = own_role(database)
    if name and kind != OWNER:
        raise TeamError(
            f"{name!r} is not that role, and only the role that owns the tables deletes sessions. Name it in "
            "store.url, e.g. by --set store.url=env:NAME.",
            "STORE_ROLE",
        )


def require_runner(database: Database) -> None:
    """Checks the role before a runner starts. Raises TeamError if it lacks a right that its work needs."""
    needed = (
        f"('{table}', '{right}')"
        for table in _TABLE_NAMES.findall(_TABLES + _PROJECT_TABLES + _AUDIT_TABLES + _QUOTA_TABLES + _SECRET_TABLES)
        if table not in _DROPPED
        for right in _RIGHTS[RUNNER].get(table, _ALL_RIGHTS).split(", ")
    )
    with database.transaction(write=False) as connection:
        if not isinstance(connection, PostgresConnection):
            return
        lacks = connection.execute(
            f"SELECT name FROM (VALUES {', '.join(needed)}) AS needed (name, verb) "
            "WHERE NOT has_table_privilege(name, verb)"
        ).fetchone()
        name, kind = _own_role(connection) if lacks else ("", "")
    if lacks:
        what = "It is the page's role. " if kind == PAGE else ""
        raise TeamError(
            f"The role {name!r} lacks rights that a runner needs ({lacks[0]}). {what}Name the runners' role in "
            "store.url; whoever owns the tables makes one with `forge store init --runner-role NAME`.",
            "STORE_ROLE",
        )


def _grant(connection: PostgresConnection, role: str, kind: str) -> None:
    quoted = '"' + role.replace('"', '""') + '"'
    tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
    schema = '"' + connection.execute("SELECT current_schema()").fetchone()[0].replace('"', '""') + '"'
    connection.raw.execute(f"GRANT USAGE ON SCHEMA {schema} TO {quoted}")
    connection.raw.execute(f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {quoted}")
    for (table,) in tables:
        rights = _RIGHTS[kind].get(table, _ALL_RIGHTS)
        connection.raw.execute(f'REVOKE ALL ON "{table}" FROM {quoted}')
        connection.raw.execute(f'GRANT {rights} ON "{table}" TO {quoted}')


def _install_dispatch(connection: PostgresConnection) -> None:
    row = connection.execute("SELECT value FROM meta WHERE key = :key", {"key": SCHEMA_KEY}).fetchone()
    connection.execute(
        "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        {"key": SCHEMA_KEY, "value": install(connection, row[0] if row else "")},
    )


def check_version(database: Database) -> int:
    """The version of the tables. Raises TeamError where it is not the one that this Forge needs."""
    try:
        with database.transaction(write=False) as connection:
            found = version_of(connection, database)
    except TeamError as error:
        if error.code != "STORE_ROLE":
            raise
        (name,) = database.read_one("SELECT current_user")
        raise TeamError(
            f"The role {name!r} has no rights in this store. Whoever owns the tables gives them with `forge store init "
            "--runner-role NAME` to the role of runners, and with --page-role NAME to that of the page.",
            "STORE_ROLE",
        ) from None
    if found == 0:
        roles = "" if database.kind == SQLITE else ", for a team with --runner-role NAME and --page-role NAME"
        raise TeamError(f"The store has no tables yet. Run `forge store init`{roles}.", "STORE_SCHEMA")
    if found < SCHEMA_VERSION:
        raise TeamError(
            f"The store's tables are of an older version ({found}, this Forge needs {SCHEMA_VERSION}). "
            "Run `forge store upgrade`.",
            "STORE_SCHEMA",
        )
    if found > SCHEMA_VERSION:
        raise _newer(found)
    return found


def _newer(found: int) -> TeamError:
    return TeamError(
        f"The store's tables are of a newer version ({found}, this Forge knows {SCHEMA_VERSION}). Upgrade Forge here.",
        "STORE_SCHEMA",
    )


@contextlib.contextmanager
def pruning(connection: StoreConnection, database: Database) -> Iterator[None]:
    """Inside, lines of a journal can be deleted; with PostgreSQL by the owner of the tables alone."""
    if database.kind == SQLITE:
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (:key, '1')", {"key": _PRUNING})
        try:
            yield
        finally:
            connection.execute("DELETE FROM meta WHERE key = :key", {"key": _PRUNING})
        return
    connection.execute(f"SET LOCAL forge.{_PRUNING} = 'on'")
    yield
