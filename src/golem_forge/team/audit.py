"""The audit of a store: who was let in or refused, who was asked and answered what, who changed people,
roles and rules.

`record` adds one record in the transaction of what it tells of: both are written, or neither is. Each record holds the
hash of the one before it, so that a record that was changed, cut or left out is found (`verify_records`). Records are
append only, for runners and the page by their roles too, and stay when sessions are pruned: they have a retention of
their own. Arguments and secrets are never in a record; an edit is told by the names of what was changed and a digest.

Threat: whoever is refused floods the audit so that nobody finds what they tried, or to fill the disk. Of each person,
door and action so many refusals are kept in an hour, the first ones (`REFUSALS_KEPT`); the last of them says so. Bad
tokens of nobody at the API do not hide refused sign-ins.
Threat: the owner of the tables can write all records anew. Keep the last hash, which `forge audit` prints, elsewhere:
`forge audit verify --head` compares.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from typing import Any, Final, NamedTuple

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.team.database import Database, StoreConnection, TeamError

REFUSED: Final = "refused"
LOGIN: Final = "login"
LOG_IN: Final = "log in"
"""The action of a refused login."""
REFUSALS_KEPT: Final = 50
"""Maximum recorded refusals of one person, door and action in an hour."""
NOT_LISTED: Final = "(and more: those of the next hour are not listed)"
_SHARE_S: Final = 3600.0
_MAX_DATA: Final = 4000
_MAX_TEXT: Final = 200
_PAGE: Final = 1000
_MOST_GAPS: Final = 100
_PRUNED: Final = "audit pruned"
"""Key in `meta`: number and hash of the last record that was deleted after its retention."""
COLUMNS: Final = ("n", "at", "kind", "person", "door", "program", "session", "data", "previous", "hash")
"""Columns of an export. `previous` is the hash of the record before; `hash` that of all the others, in this order, as
JSON.
"""


class Actor(NamedTuple):
    """The person who does something, and the interface that they use."""

    name: str = ""
    door: str = ""


NOBODY: Final = Actor()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    n: int
    at: str
    """ISO 8601 with milliseconds, UTC, by the database's clock."""
    kind: str
    person: str
    """Who did it; empty if unknown."""
    door: str
    program: str
    session: str
    data: Mapping[str, Any]
    previous: str
    hash: str

    def digest(self) -> str:
        return sha256(json.dumps([getattr(self, name) for name in COLUMNS[:-1]], sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """The last record there is; or the last that was deleted."""

    n: int = 0
    hash: str = ""


def record(
    connection: StoreConnection,
    kind: str,
    person: str,
    door: str,
    data: Mapping[str, Any],
    *,
    session: str = "",
    program: str = "",
) -> None:
    """The last statement of its transaction: whoever has the lock of the chain waits for no other row."""
    connection.lock("audit")
    head, now = _head(connection), connection.execute("SELECT @now").fetchone()[0]
    short = {name: value[:_MAX_TEXT] if isinstance(value, str) else value for name, value in data.items()}
    words = json.dumps(short, sort_keys=True)
    at = round(float(now), 3)
    made = AuditRecord(
        n=head.n + 1,
        at=_moment(at),
        kind=kind,
        person=person,
        door=door,
        program=program,
        session=session,
        data=json.loads(words) if len(words) <= _MAX_DATA else {"digest": sha256(words.encode()).hexdigest()},
        previous=head.hash,
        hash="",
    )
    values = made.to_dict() | {"at": at, "data": json.dumps(made.data, sort_keys=True), "hash": made.digest()}
    connection.execute(
        "INSERT INTO audit (n, at, kind, person, door, program, session, data, previous, hash) VALUES (:n, :at, :kind, "
        ":person, :door, :program, :session, :data, :previous, :hash)",
        values,
    )


def record_refusal(connection: StoreConnection, person: str, door: str, action: str, what: str, **where: str) -> None:
    """Records a refusal, up to the hourly limit of this person, door and action."""
    connection.lock("audit")
    rows = connection.execute(
        "SELECT data FROM audit WHERE person = :person AND door = :door AND kind = :kind AND at > @now - :age",
        {"person": person, "door": door, "kind": REFUSED, "age": _SHARE_S},
    ).fetchall()
    kept = sum(json.loads(data).get("action") == action for (data,) in rows)
    if kept < REFUSALS_KEPT:
        told = NOT_LISTED if kept == REFUSALS_KEPT - 1 else what
        record(connection, REFUSED, person, door, {"action": action, "what": told}, **where)


def answer_facts(question: str, kind: str, tool: str, risk: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the audit records of an answer: no argument and no text of a form."""
    told: dict[str, Any] = {"question": question, "tool": tool, "risk": risk}
    if kind != "approval":
        return told
    told |= {"approved": bool(answer.get("approved"))}
    told |= {name: answer[name] for name in ("choice", "remember") if isinstance(answer.get(name), str | bool)}
    if isinstance(args := answer.get("args"), Mapping):
        digest = sha256(json.dumps(dict(args), sort_keys=True, default=str).encode()).hexdigest()
        told |= {"edited": sorted(str(name)[:_MAX_TEXT] for name in args)[:20], "args": digest}
    return told


class AuditLog:
    def __init__(self, database: Database) -> None:
        self.database = database

    def records(
        self, *, after: int = 0, since: float = 0.0, program: str = "", kind: str = "", limit: int = _PAGE
    ) -> list[AuditRecord]:
        """Returns the records in order, after that number. `program`: only of that one."""
        only = " AND program = :program" if program else ""
        only += " AND kind = :kind" if kind else ""
        rows = self.database.read(
            "SELECT n, at, kind, person, door, program, session, data, previous, hash FROM audit WHERE n > :after AND "
            f"at >= :since{only} ORDER BY n LIMIT :limit",
            {"after": after, "since": since, "program": program, "kind": kind, "limit": limit},
        )
        return [_stored(row) for row in rows]

    def refusals(self, limit: int) -> list[dict[str, Any]]:
        """Returns the refusals, newest first."""
        rows = self.database.read(
            "SELECT at, person, door, data FROM audit WHERE kind = :kind ORDER BY n DESC LIMIT :limit",
            {"kind": REFUSED, "limit": limit},
        )
        return [{"at": at, "person": person, "door": door, **_words(data)} for at, person, door, data in rows]

    def pruned(self) -> AuditHead:
        """Returns where the chain begins."""
        with self.database.transaction(write=False) as connection:
            return _pruned(connection)

    def prune(self, connection: StoreConnection, retention_s: float, by: str, door: str) -> int:
        """Inside `pruning`: deletes what is older, from the beginning on; gives how many. The newest record stays, so
        that the chain goes on from it."""
        row = connection.execute(
            "SELECT n, hash FROM audit WHERE n = (SELECT max(n) FROM audit WHERE at < @now - :age AND n < (SELECT "
            "max(n) FROM audit))",
            {"age": retention_s},
        ).fetchone()
        if row is None:
            return 0
        deleted = connection.execute("DELETE FROM audit WHERE n <= :n", {"n": row[0]}).rowcount
        connection.execute(
            "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE "
            "SET value = excluded.value",
            {"key": _PRUNED, "value": f"{row[0]} {row[1]}"},
        )
        record(connection, "audit pruned", by, door, {"records": deleted, "last": int(row[0]), "hash": row[1]})
        return deleted


def verify_records(records: Iterable[AuditRecord], start: AuditHead | None = None) -> Iterator[tuple[int, str]]:
    """(number, what is wrong) of each record that was changed, or does not follow the one before it. `start`: the
    record before the first; None: any, as in an export. Only an export of one project leaves records out."""
    last, gaps, programs = start, list[tuple[int, str]](), set[str]()
    for each in records:
        programs.add(each.program)
        if each.digest() != each.hash:
            yield each.n, "its hash is not that of its words: it was changed"
        if last is not None and each.n <= last.n:
            yield each.n, f"it comes after number {last.n}"
        elif last is not None and each.n == last.n + 1:
            if each.previous != last.hash:
                yield each.n, "the record before it is another one: one of the two was changed"
        elif last is not None and len(gaps) < _MOST_GAPS:
            gaps.append((each.n, f"the records from {last.n + 1} to {each.n - 1} are missing"))
        last = AuditHead(n=each.n, hash=each.hash)
    if start is not None or "" in programs or len(programs) > 1:
        yield from gaps


def exported(records: Iterable[AuditRecord], format: str) -> Iterator[str]:
    """Yields lines of JSON or CSV."""
    if format == "csv":
        yield ",".join(COLUMNS) + "\n"
    for each in records:
        if format == "csv":
            line = io.StringIO()
            values = each.to_dict() | {"data": json.dumps(each.data, sort_keys=True)}
            csv.writer(line, lineterminator="\n").writerow(values.values())
            yield line.getvalue()
        else:
            yield json.dumps(each.to_dict()) + "\n"


def imported(lines: Iterable[str]) -> Iterator[AuditRecord]:
    """The records of an export. Raises TeamError for what is none."""
    text = iter(lines)
    first = next(text, "")
    is_csv = first.startswith("n,at,")
    rows = csv.reader(text) if is_csv else chain((first,) if first else (), text)
    count = 0
    try:
        for row in rows:
            if isinstance(row, str):
                yield record_from(json.loads(row))
            else:
                named = dict(zip(COLUMNS, row, strict=True))
                yield record_from(named | {"n": int(named["n"]), "data": json.loads(named["data"])})
            count += 1
    except (ValueError, TypeError, RecursionError, csv.Error):
        told = f"after {count} record{'' if count == 1 else 's'} comes something else"
        raise TeamError(f"this is no export of `forge audit export`: {told}", "AUDIT") from None


def record_from(given: Mapping[str, Any]) -> AuditRecord:
    """Reads a record. Raises ValueError."""
    texts = all(isinstance(given.get(name), str) for name in COLUMNS if name not in ("n", "data"))
    if not texts or type(given.get("n")) is not int or not isinstance(given.get("data"), dict):
        raise ValueError("not a record")
    return AuditRecord(**{name: given[name] for name in COLUMNS})


def _head(connection: StoreConnection) -> AuditHead:
    row = connection.execute("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1").fetchone()
    return AuditHead(n=int(row[0]), hash=row[1]) if row else _pruned(connection)


def _pruned(connection: StoreConnection) -> AuditHead:
    row = connection.execute("SELECT value FROM meta WHERE key = :key", {"key": _PRUNED}).fetchone()
    number, _, hash = row[0].partition(" ") if row else ("0", "", "")
    return AuditHead(n=int(number), hash=hash)


def _stored(row: tuple[Any, ...]) -> AuditRecord:
    n, at, kind, person, door, program, session, data, previous, hash = row
    return AuditRecord(
        n=int(n),
        at=_moment(float(at)),
        kind=kind,
        person=person,
        door=door,
        program=program,
        session=session,
        data=_words(data),
        previous=previous,
        hash=hash,
    )


def _words(data: str) -> dict[str, Any]:
    """Returns the data of a record; changed data that is no JSON object is returned as text, and its hash is wrong."""
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"action": "", "what": data}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
