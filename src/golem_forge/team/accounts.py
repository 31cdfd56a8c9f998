"""Accounts: the people of a store, their tokens and logins, and the rules that admins made for all runners.

What changes here, and what was refused, is recorded in the audit in the same transaction. All methods of `Accounts`
block; they are called in threads. Who may call them is judged in `people.py`.

`StoreRules` has those rules as the judges of one runner's sessions read them. An admin makes one by an answer that
counts beyond its session. It names its author and counts on every runner: in all projects where its author is an admin
of all (or the store has no people), else in the project of the session. They are read before a runner takes sessions,
and again whenever the store rings or is swept, always in a thread; judging looks at what was read last. A rule that
cannot be read makes all of them unusable: it may forbid. Under four eyes a rule approves nothing in sessions of which
its author is an author, as they could not approve it by an answer.

`SessionRules` is what one session sees of them. A new rule is written by the session's own journal, in the commit that
records the decision or in one before: a runner that is killed loses neither or both.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from golem_forge.core.errors import ConfigError
from golem_forge.core.text import one_line
from golem_forge.policy.rules.files import RulesUnusable
from golem_forge.policy.rules.load import make_rule
from golem_forge.policy.rules.model import Rule, RuleFile, RuleOrigin, rule_id
from golem_forge.team.audit import LOG_IN, LOGIN, NOBODY, Actor, AuditLog, record, record_refusal
from golem_forge.team.database import Database, StoreConnection, TeamError
from golem_forge.team.projects import forget_person
from golem_forge.team.rows import CHANNEL

if TYPE_CHECKING:
    from golem_forge.team.journal import StoredJournals
    from golem_forge.team.store import Store

_PERSON: Final = ("name", "role", "token", "created", "expires", "issuer", "subject", "own_token")


SIGN_IN_DOOR: Final = "sign-in"
SIGNED_IN: Final = "oidc:"
"""Begins the key of somebody who signs in elsewhere, where others have the hash of a token: no hash begins so."""
_RESTORED: Final = "restored "
"""Prefix of the key of a removed person who may come back with the same name."""


class SignedIn(NamedTuple):
    """Somebody as a provider of OpenID Connect knows them."""

    issuer: str
    subject: str
    name: str
    """The provider's name for them; they may change it, so it is no key."""
    role: str
    """The role from their groups."""

    @property
    def key(self) -> str:
        return SIGNED_IN + sha256(json.dumps([self.issuer, self.subject]).encode()).hexdigest()


class Accounts:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.audit = AuditLog(database)

    # ---- people

    def add_person(self, name: str, role: str, token_hash: str, *, expires_in: float = 0.0, by: Actor = NOBODY) -> None:
        """`expires_in`: seconds; 0: the token does not expire. Raises TeamError for a name that is taken; one that
        differs by case alone is."""
        with self.database.transaction() as connection:
            added = connection.execute(
                f"INSERT INTO people (name, role, token, created, expires) VALUES (:name, :role, :token, @now, "
                f"{_expiry(expires_in)}) ON CONFLICT DO NOTHING",
                {"name": name, "role": role, "token": token_hash, "expires": expires_in},
            ).rowcount
            row = connection.execute(
                "SELECT name FROM people WHERE lower(name) = lower(:name)", {"name": name}
            ).fetchone()
            if added:
                record(connection, "person added", *by, {"name": name, "role": role, "days": expires_in / 86400})
        if not added:
            known = row[0] if row else name
            raise TeamError(
                f"there is a person {known!r} already; `forge people remove {known}` first, then add them again",
                "PERSON_EXISTS",
            )

    def people(self) -> list[dict[str, Any]]:
        """Returns the people by name; `token` is the hash of the token, or the key of a person who signs in elsewhere,
        who may have a token as `own_token`. `expired` marks an expired token.
        """
        rows = self.database.read(
            f"SELECT {', '.join(_PERSON)}, expires > 0 AND expires <= @now FROM people ORDER BY name"
        )
        return [dict(zip((*_PERSON, "expired"), (*row[:-1], bool(row[-1])), strict=True)) for row in rows]

    def rotate_token(self, name: str, token_hash: str, *, expires_in: float = 0.0, by: Actor = NOBODY) -> None:
        """Sets a new token; the old one stops working at once. Somebody who signs in elsewhere keeps their sign-in
        beside it. Raises TeamError."""
        with self.database.transaction() as connection:
            row = connection.execute(
                "SELECT token, issuer, own_token FROM people WHERE name = :name @update", {"name": name}
            )
            if (found := row.fetchone()) is None:
                raise _no_person(name)
            token, issuer, own_token = found
            _revoke(connection, own_token if issuer else token, name)
            column = "own_token" if issuer else "token"
            connection.execute(
                f"UPDATE people SET {column} = :token, expires = {_expiry(expires_in)} WHERE name = :name",
                {"token": token_hash, "expires": expires_in, "name": name},
            )
            connection.notify(CHANNEL, "")
            record(connection, "token rotated", *by, {"name": name, "days": expires_in / 86400})

    def remove_person(self, name: str, *, keep_admin: bool = False, by: Actor = NOBODY) -> None:
        """Removes a person; their token stops working at once. Raises TeamError for an unknown name. `keep_admin`: also
        for the last admin, since nobody could manage people at the team's address afterwards."""
        with self.database.transaction() as connection:
            connection.lock("people")  # two admins may remove each other at once
            rows = connection.execute("SELECT name FROM people WHERE role = 'admin'").fetchall()
            if keep_admin and rows == [(name,)]:
                raise TeamError(
                    f"{name} is the only admin. Add another one first: `forge people add NAME --role admin`.",
                    "STORE_ADMIN",
                )
            row = connection.execute("SELECT token, own_token FROM people WHERE name = :name", {"name": name})
            if (found := row.fetchone()) is None:
                raise _no_person(name)
            for each in found:
                _revoke(connection, each, name)
            connection.execute("DELETE FROM people WHERE name = :name", {"name": name})
            forget_person(connection, name)
            connection.notify(CHANNEL, "")
            record(connection, "person removed", *by, {"name": name})

    # ---- people who sign in elsewhere

    def sign_in(self, who: SignedIn) -> str:
        """Somebody whom a provider knows, with the role that their groups give them; gives their name here. Whoever is
        new gets the name that the provider says, or that name with a part of its own if somebody else has it. Raises
        TeamError `REMOVED` for one who was removed here."""
        with self.database.transaction() as connection:
            connection.lock("people")
            if connection.execute("SELECT 1 FROM revoked WHERE token = :key", {"key": who.key}).fetchone():
                raise TeamError("You were removed from this team. An admin can restore you.", "REMOVED")
            row = connection.execute("SELECT name, role FROM people WHERE token = :key", {"key": who.key}).fetchone()
            if row is not None and row[1] == who.role:
                return str(row[0])
            if row is not None:
                connection.execute(
                    "UPDATE people SET role = :role WHERE token = :key", {"role": who.role, "key": who.key}
                )
                connection.notify(CHANNEL, "")
                told = {"name": row[0], "role": who.role, "was": row[1]}
                record(connection, "role changed", row[0], SIGN_IN_DOOR, told)
                return str(row[0])
            # Threat: whoever can choose their name at the provider would be taken for somebody else of the record.
            names = (("people", "name"), ("revoked", "name"), ("sessions", "person"), ("rules", "person"))
            places = (*names, ("arrivals", "person"), ("questions", "person"), ("audit", "person"))
            looks = (f"SELECT 1 FROM {table} WHERE lower({column}) = lower(:name)" for table, column in places)
            taken = connection.execute(f"{' UNION ALL '.join(looks)} LIMIT 1", {"name": who.name}).fetchone()
            name = f"{who.name[:50]}-{who.key[-12:]}" if taken else who.name
            # Threat: an author of a session who comes back under another name could approve its calls.
            was = connection.execute("SELECT name FROM revoked WHERE token = :key", {"key": _RESTORED + who.key})
            if (before := was.fetchone()) is not None:
                connection.execute("DELETE FROM revoked WHERE token = :key", {"key": _RESTORED + who.key})
                has = connection.execute("SELECT 1 FROM people WHERE lower(name) = lower(:name)", {"name": before[0]})
                name = name if has.fetchone() else str(before[0])
            connection.execute(
                "INSERT INTO people (name, role, token, created, issuer, subject) VALUES (:name, :role, :key, @now, "
                ":issuer, :subject)",
                {"name": name, "role": who.role, "key": who.key, "issuer": who.issuer, "subject": who.subject},
            )
            told = {"name": name, "role": who.role, "issuer": who.issuer, "subject": who.subject}
            record(connection, "person added", name, SIGN_IN_DOOR, told)
        return name

    def restore_person(self, name: str, by: Actor = NOBODY) -> None:
        """Lets somebody in again who signs in elsewhere, with their name and the role that their groups give them; what
        they had in projects and groups here is gone. Raises TeamError."""
        with self.database.transaction() as connection:
            restored = connection.execute(
                "UPDATE revoked SET token = :mark || token WHERE name = :name AND substr(token, 1, :length) = :prefix",
                {"mark": _RESTORED, "name": name, "prefix": SIGNED_IN, "length": len(SIGNED_IN)},
            ).rowcount
            if restored:
                record(connection, "person restored", *by, {"name": name})
        if not restored:
            raise TeamError(
                f"nobody who signs in with OpenID Connect was removed as {name!r}; `forge people add` makes a token",
                "PERSON_NOT_FOUND",
            )

    def whose_was(self, token_hash: str) -> str:
        """The name of the person whose token this was, before it was removed, renewed or expired; empty: nobody's."""
        row = self.database.read_one(
            "SELECT name FROM revoked WHERE token = :token UNION SELECT name FROM people WHERE token = :token OR "
            "own_token = :token",
            {"token": token_hash},
        )
        return str(row[0]) if row else ""

    # ---- logins and refusals

    def log_in(self, person: str, door: str, how: str) -> None:
        with self.database.transaction() as connection:
            record(connection, LOGIN, person, door, {"how": how})

    def log_out(self, person: str, door: str, why: str) -> None:
        """The provider does not know somebody any more: their token ends with their login."""
        with self.database.transaction() as connection:
            row = connection.execute("SELECT own_token FROM people WHERE name = :name @update", {"name": person})
            if (found := row.fetchone()) is not None and found[0]:
                _revoke(connection, found[0], person)
                connection.execute("UPDATE people SET own_token = '', expires = 0 WHERE name = :name", {"name": person})
                connection.notify(CHANNEL, "")
            record(connection, "login ended", person, door, {"why": why})

    def refuse_login(self, whose: str, door: str, origin: str) -> None:
        """Somebody came with a token that is not valid, from that address. `whose`: as `whose_was` says."""
        how = "a token that was removed or renewed, or has expired" if whose else "a token that is not known"
        self.refuse(whose, door, LOG_IN, f"{how}, from {origin or 'an unknown address'}")

    def refuse(self, person: str, door: str, action: str, what: str, **where: str) -> None:
        """Records that somebody tried what they may not. `where`: `session` and `program`, if it was about one."""
        with self.database.transaction() as connection:
            record_refusal(connection, person, door, action, what, **where)

    def refusals(self, limit: int = 200) -> list[dict[str, Any]]:
        """Returns the refusals, newest first."""
        return self.audit.refusals(limit)

    # ---- rules of the store

    def add_rule(self, rule: Mapping[str, Any], person: str, project: str = "") -> str:
        """A rule that counts on every runner, in one project or in all; gives its id. The same words again are the same
        rule."""
        with self.database.transaction() as connection:
            insert_rules(connection, [(rule, person, project)])
        return _id_in_log(rule)

    def rules(self) -> list[dict[str, Any]]:
        """Oldest first: `id`, `rule`, `person` (its author), `created`, `project` (empty: all)."""
        names = ("id", "rule", "person", "created", "project")
        rows = self.database.read("SELECT id, rule, person, created, project FROM rules ORDER BY created, id")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        rules = [each | {"rule": json.loads(each["rule"])} for each in found]
        return [each | {"id": _id_in_log(each["rule"])} for each in rules]

    def remove_rule(self, rule_id: str, projects: Collection[str] | None = None, *, by: Actor = NOBODY) -> None:
        """Removes a rule by its id in the log or by that of its row. `projects`: only a rule of one of these."""
        with self.database.transaction() as connection:
            rows = connection.execute("SELECT id, rule, project FROM rules ORDER BY id").fetchall()
            known = [each for each in rows if projects is None or each[2] in projects]
            removed = [(row, where) for row, rule, where in known if rule_id in (row, _id_in_log(json.loads(rule)))]
            for row, _ in removed:
                connection.execute("DELETE FROM rules WHERE id = :id", {"id": row})
            connection.notify(CHANNEL, "")
            for _, where in removed:
                record(connection, "rule removed", *by, {"rule": rule_id}, program=where)
        if not removed:
            raise TeamError(f"no rule {rule_id!r} here; `forge rules list --store` shows them", "RULE_NOT_FOUND")


def _id_in_log(written: Mapping[str, Any]) -> str:
    """Returns the rule's id as decisions name it."""
    given = written.get("id")
    return given if isinstance(given, str) and given else rule_id(dict(written))


def insert_rules(connection: StoreConnection, rules: Iterable[tuple[Mapping[str, Any], str, str]]) -> None:
    """(rule, author, project) each, in a transaction of the caller's. By their ids, and the audit last: two that keep
    the same rules at once do not wait for each other in a circle."""
    rows: dict[str, tuple[Mapping[str, Any], str, str, str]] = {}
    for rule, person, project in rules:
        words = json.dumps(dict(rule), sort_keys=True)
        rows[sha256(f"{words}{project}".encode()).hexdigest()[:16]] = (rule, words, person, project)
    added = []
    for id, (_, words, person, project) in sorted(rows.items()):
        done = connection.execute(
            "INSERT INTO rules (id, rule, person, created, project) VALUES (:id, :rule, :person, @now, :project) "
            "ON CONFLICT DO NOTHING",
            {"id": id, "rule": words, "person": person, "project": project},
        )
        added += [id] if done.rowcount else []
    if rows:
        connection.notify(CHANNEL, "")
    for id in added:
        rule, words, person, project = rows[id]
        record(connection, "rule added", person, "", {"rule": _id_in_log(rule), "words": words}, program=project)


def _expiry(expires_in: float) -> str:
    return "@now + :expires" if expires_in else ":expires"


def _revoke(connection: StoreConnection, token_hash: str, name: str) -> None:
    """Revokes a token, if there is one, and keeps the name of its owner."""
    if token_hash:
        connection.execute(
            "INSERT INTO revoked (token, name, at) VALUES (:token, :name, @now) ON CONFLICT DO NOTHING",
            {"token": token_hash, "name": name},
        )


def _no_person(name: str) -> TeamError:
    return TeamError(f"no person {name!r}; `forge people list` shows them", "PERSON_NOT_FOUND")


class StoreRules:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._rules: dict[tuple[str, str], tuple[Rule, str]] = {}
        """(id, project) → the rule and its author; the project is empty for all of them."""
        self._files: dict[tuple[str, frozenset[str]], RuleFile] = {}
        """By the arguments of `content`."""
        self._admins: frozenset[str] | None = frozenset()
        """Of all projects; None: the store has no people."""
        self._problem: RulesUnusable | None = None
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, str], tuple[Rule, str]] = {}
        """Those that sessions of this runner made and that are not written yet."""

    def content(self, project: str, authors: frozenset[str] = frozenset()) -> RuleFile:
        """Returns the rules that count in a project; the same object while nothing changed. `authors`: whose rules
        do not count here. Raises RulesUnusable while a rule cannot be read.
        """
        if self._problem is not None:
            raise self._problem
        with self._lock:
            if (project, authors) not in self._files:
                fitting = {
                    rule.id: rule
                    for (_, of), (rule, author) in self._rules.items()
                    if of in ("", project) and author not in authors
                }
                self._files[project, authors] = RuleFile(tuple(fitting.values()))
            return self._files[project, authors]

    def scope(self, author: str, project: str) -> str:
        """Returns where a rule of this author counts: empty for everywhere, or the project of its session."""
        return "" if self._admins is None or author in self._admins else project

    def refresh(self) -> None:
        """Reads the rules again, in a thread. Raises StoreUnavailable; then the last ones count, and nothing new can be
        recorded.
        """
        rows, people = self._store.accounts.rules(), self._store.accounts.people()
        try:
            read = {
                (each["id"], each["project"]): (_rule(each["rule"], each["person"]), each["person"]) for each in rows
            }
        except ConfigError as error:
            self._problem = RulesUnusable(error)
            return
        with self._lock:
            self._admins = frozenset(each["name"] for each in people if each["role"] == "admin") if people else None
            rules = read | self._pending
            if rules != self._rules:
                self._rules, self._files = rules, {}
            self._problem = None

    def add(self, rule: Rule, author: str, project: str) -> None:
        """Adds a rule that counts here immediately."""
        with self._lock:
            self._pending[rule.id, project] = rule, author
            self._rules, self._files = self._rules | self._pending, {}

    def settle(self, rule: Rule, project: str) -> None:
        """Called when a rule is written, or never will be; from then on the store's content counts."""
        with self._lock:
            self._pending.pop((rule.id, project), None)


class SessionRules:
    def __init__(self, rules: StoreRules, journals: StoredJournals, project: str = "") -> None:
        self._rules = rules
        self._journals = journals
        self._project = project
        self.authors: frozenset[str] = frozenset()
        """Of the session, where it needs four eyes."""
        self._unwritten: deque[tuple[Rule, str]] = deque()

    @property
    def content(self) -> RuleFile:
        return self._rules.content(self._project, self.authors)

    def remember(self, rules: Iterable[Rule], author: str) -> None:
        """Counts here at once; the session's journal writes it."""
        journal = self._journals.journal
        assert journal is not None
        journal.writer.on_rules = self._settle
        project = self._rules.scope(author, self._project)
        for rule in rules:
            kept = _rule(rule.to_yaml(), author)
            self._rules.add(kept, author, project)
            self._unwritten.append((kept, project))
            journal.writer.add_rule(kept.to_yaml(), author, project)

    def _settle(self, count: int) -> None:
        """Settles written rules; called by the commit thread."""
        for _ in range(count):
            self._rules.settle(*self._unwritten.popleft())


def _rule(written: dict[str, object], author: str) -> Rule:
    """Reads a stored rule. Raises ConfigError."""
    return make_rule(dict(written), RuleOrigin.REMEMBERED, file=f"the store's rules, by {one_line(author) or 'nobody'}")


def rule_in_words(written: Mapping[str, object]) -> str:
    """Describes a rule for a person. One that this version cannot read is shown as JSON."""
    try:
        rule = _rule(dict(written), "")
    except ConfigError:
        return json.dumps(dict(written))[:500]
    return f"{rule.verdict.value}: {rule.describe()}"
