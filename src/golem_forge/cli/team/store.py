"""`forge store` makes, checks, upgrades and prunes the database of shared sessions; `forge audit` says who was let in
or refused, who was asked and answered what, who changed people and rules, and whether somebody changed that afterwards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from golem_forge._version import __version__
from golem_forge.cli.command import FAILED, USAGE, fail, print_json, read_args
from golem_forge.cli.team import (
    DOOR,
    ID_SHOWN,
    account_name,
    database_address,
    open_store,
    own_store,
    program_settings,
    store_settings,
)
from golem_forge.config.store_block import NotifyHook, StoreSettings
from golem_forge.config.validation import time_span
from golem_forge.core.errors import ConfigError
from golem_forge.core.text import columns, one_line
from golem_forge.storage.home import forge_home
from golem_forge.team.audit import Actor, AuditHead, AuditRecord, exported, imported, verify_records
from golem_forge.team.database import SQLITE, Database, SqliteDatabase, TeamError, open_database
from golem_forge.team.mirror import copy_sessions, drop_pruned, verify_sessions
from golem_forge.team.people import TeamStore
from golem_forge.team.projects import no_project
from golem_forge.team.remote import RemoteStore
from golem_forge.team.rows import QUEUED, program_id
from golem_forge.team.schema import (
    PAGE,
    RUNNER,
    SCHEMA_VERSION,
    check_version,
    describe_server,
    grant_role,
    require_owner,
    upgrade,
)
from golem_forge.team.session_workspace import delete_refs
from golem_forge.team.store import Store
from golem_forge.team.webhooks import ALLOW_PRIVATE, PRIVATE, webhook_problems

HELP: Final = """usage: forge store init [--runner-role NAME] [--page-role NAME]
       forge store status [--json]
       forge store upgrade | verify | copy | prune

  init      makes the tables, where there are none
  status    version, counts, how long the oldest session waits, and the runners
  upgrade   moves the tables of an older version to this one
  verify    checks that nobody changed a journal of the store: after a restore, or from time to time
  copy      puts the sessions that this home has recorded into the store; their files stay
  prune     deletes sessions that ended longer ago than store.retention (90d), and their refs in git repositories;
            and records of the audit older than store.audit.retention (400d)

      --runner-role NAME   init, PostgreSQL: lets this role be used by `forge runner`; it adds to journals and changes
                           nothing there
      --page-role NAME     init, PostgreSQL: lets this role be used by `forge web --team`; it only reads journals
      --json               for programs (status)
      --set KEY.PATH=VALUE a value of config.yaml for this command, e.g. store.url=sqlite

With PostgreSQL, init, upgrade and prune need the role that owns the tables.
Exit: 0 done, 1 verify found problems, 2 usage or configuration, or the store cannot be used."""


def run_store(words: list[str]) -> int:
    declared = ("VERB", "--runner-role NAME", "--page-role NAME", "--json", "--set PAIR…")
    given = read_args("store", HELP, words, *declared)
    settings = store_settings(given.set)
    if given.verb in ("init", "upgrade"):
        return _init(open_database(database_address(settings), forge_home().path), given)
    store = own_store(settings)
    if given.verb == "status":
        return _status(store, settings.notify, given.json)
    if given.verb == "verify":
        return _verify(store)
    if given.verb == "copy":
        return _copy(store)
    if given.verb == "prune":
        return _prune(store, settings)
    print(HELP)
    return 2


def examine_store(settings: StoreSettings, home: Path) -> Iterator[tuple[str, str, str]]:
    """Yields findings for `forge doctor`: (`ok`, `note` or `problem`, what was found, what to do). Creates no file and
    no table.
    """
    try:
        yield from _examine(settings, home)
    except ConfigError as error:
        where = settings.origins.get("url", "store.url")
        yield from (("problem", *_advice(text, f"correct {where}")) for text in error.problems)
    except TeamError as error:
        yield "problem", *_advice(error.message, "start the database, or correct store.url")
    except OSError as error:
        yield "problem", f"the store's file cannot be read: {error.strerror}", "repair its permissions"
    for text in webhook_problems(settings.notify):
        yield "note", text, ALLOW_PRIVATE if PRIVATE in text else "correct it: a runner does not start with it"


def _examine(settings: StoreSettings, home: Path) -> Iterator[tuple[str, str, str]]:
    if settings.is_remote:
        team = open_store(settings)
        assert isinstance(team, RemoteStore)
        person, runners, queued = team.person, team.runners(), len(team.sessions(states=[QUEUED]))
        shown, about = team.shown, f"you are {one_line(person.name)} ({person.role.value})"
    else:
        database = open_database(settings.address(), home)
        shown = database.shown
        if isinstance(database, SqliteDatabase) and not os.path.exists(database.path):
            yield "ok", f"{shown}: Forge makes it on first use", ""
            return
        try:
            version = check_version(database)
            store = Store(database)
            runners, queued = store.runners.seen(), store.counts().get(QUEUED, 0)
        except TeamError as error:
            text = error.message if shown in error.message else f"{shown}: {error.message}"
            raise TeamError(text, error.code) from None
        finally:
            database.close()
        about = f"version {version}, as this Forge needs"
    alive = f"{len(runners)} runner{'' if len(runners) == 1 else 's'}" if runners else "no runner"
    yield "ok", f"{shown}: {about}; {alive} now", ""
    if queued and not runners:
        waits = "1 session waits" if queued == 1 else f"{queued} sessions wait"
        yield "note", f"{waits} in the queue, and no runner runs", "forge runner"
    for each in runners:
        if each.get("version", __version__) != __version__:
            text = f"the runner on {one_line(each['host'])} has the version {one_line(str(each['version']))}"
            yield (
                "note",
                f"{text}, this Forge {__version__}",
                "install the same version there and here, then start the runner again",
            )


def _advice(message: str, otherwise: str) -> tuple[str, str]:
    """(what is wrong, what to do): errors of the store end with a sentence that says it."""
    text, found, advice = message.rstrip(".").rpartition(". ")
    if found:
        return text, advice
    text, found, advice = message.rpartition(": set ")
    return (text, f"set {advice}") if found else (message.rstrip("."), otherwise)


def _init(database: Database, given: Any) -> int:
    before, now = upgrade(database)
    done = "made the tables" if before == 0 else f"upgraded from {before}" if before != now else "has its tables"
    print(f"{database.shown}: {done} (version {now})")
    roles = {RUNNER: given.runner_role, PAGE: given.page_role}
    for kind, role in roles.items():
        if role:
            grant_role(database, role, kind)
            users = "`forge runner`" if kind == RUNNER else "`forge web --team`"
            print(f"{users} can use the role {one_line(role)}")
    if before == 0 and database.kind != SQLITE and not all(roles.values()):
        print("Next: make a role for runners and one for the page (CREATE ROLE … LOGIN), then")
        print("      forge store init --runner-role NAME --page-role NAME")
    return 0


def _status(store: Store, notify: Sequence[NotifyHook], as_json: bool) -> int:
    role, problems = describe_server(store.database)
    problems += webhook_problems(notify)
    facts: dict[str, Any] = store.counts() | {"store": store.database.shown, "version": SCHEMA_VERSION}
    facts |= {"role": role} if role else {}
    runners, busy = store.runners.seen(), store.runners.busy_slots()
    if as_json:
        rows = [
            {name: each[name] for name in ("id", "host", "pid", "version", "slots", "labels")}
            | {"busy": busy.get(each["id"], 0), "draining": bool(each["draining"]), "silent": round(each["silent"], 1)}
            for each in runners
        ]
        print_json(facts | {"problems": problems, "runnerList": rows})
        return 0
    print("\n".join(f"{name}: {one_line(str(value))}" for name, value in facts.items()))
    print("".join(f"problem: {each}\n" for each in problems), end="")
    table = [("RUNNER", "HOST", "PID", "VERSION", "SLOTS", "SEEN", "LABELS")]
    for each in runners:
        slots = f"{busy.get(each['id'], 0)} of {each['slots']}"
        seen = "ends" if each["draining"] else f"{each['silent']:.0f}s ago"
        about = (each["id"][:ID_SHOWN], each["host"], str(each["pid"]), each["version"])
        table.append((*about, slots, seen, " ".join(each["labels"])))
    if runners:
        print("\n" + columns(table))
    return 0


def _verify(store: Store) -> int:
    sessions = lines = damaged = 0
    for row, found in verify_sessions(store):
        sessions, lines, damaged = sessions + 1, lines + found.lines, damaged + (not found.ok)
        for problem in found.problems:
            print(f"{row.id[:ID_SHOWN]}  line {problem.line}: {one_line(problem.what)}")
    state = f"{damaged} damaged" if damaged else "ok"
    print(f"{sessions} journal{'' if sessions == 1 else 's'}, {lines} lines: {state}")
    return 1 if damaged else 0


def _prune(store: Store, settings: StoreSettings) -> int:
    """The refs first: of a session that is deleted nobody knows any more where they were."""
    require_owner(store.database)
    for session_id, problem in delete_refs(store.ended_facts(ended_before_s=settings.retention), forge_home().path):
        print(f"{session_id[:ID_SHOWN]}  refs/forge/{session_id} stays: {one_line(problem)}")
    deleted = store.prune(settings.retention)
    print(f"{deleted} {'session' if deleted == 1 else 'sessions'} deleted")
    if records := store.prune_audit(settings.audit_retention, Actor(account_name(), DOOR)):
        print(f"{records} {'record' if records == 1 else 'records'} of the audit deleted")
    drop_pruned(store, forge_home().path)
    return 0


def _copy(store: Store) -> int:
    copied = 0
    for each in copy_sessions(store, forge_home().path, account_name()):
        copied += not each.passed_over
        if each.passed_over:
            print(f"{each.session[:ID_SHOWN]}  left out: {each.passed_over}")
        else:
            print(f"{each.session[:ID_SHOWN]}  {each.lines} lines")
    print(f"{copied} sessions copied to {store.database.shown}")
    return 0


AUDIT_HELP: Final = """usage: forge audit export [--since TIME] [--project P] [--format jsonl|csv]
       forge audit verify [FILE] [--head HASH]

  export   prints the records of the store, the oldest first: people, logins, refusals, questions, answers, edits and
           rule changes; each with its own hash and that of the record before it
  verify   checks these hashes, in the store or in a file that `export` made; says what was changed or left out

      --since TIME     a day (2026-03-01), a moment (2026-03-01T07:30:00Z), or so long ago (30d, 12h)
      --project P      only what was about this project: its name, or a directory of this machine
      --format F       jsonl (default), or csv
      --head HASH      verify: one record must have this hash, the last one that an earlier export or verify printed

Records are kept longer than sessions: `forge store prune` deletes those older than store.audit.retention (400d).
For admins, also at a team's address. Exit: 0 done, 1 verify found problems, 2 usage, 3 not an admin."""


def run_audit(words: list[str]) -> int:
    declared = ("VERB", "FILE?", "--since TIME", "--project P", "--format jsonl|csv", "--head HASH")
    given = read_args("audit", AUDIT_HELP, words, *declared)
    unfitting = (given.since, given.project, given.format) if given.verb == "verify" else (given.file, given.head)
    if given.verb not in ("export", "verify") or any(unfitting):
        print(AUDIT_HELP, file=sys.stderr)
        return USAGE
    if "" in (given.file, given.head):  # an unset variable must not pass for a check
        return fail("audit", "FILE and --head must not be empty", USAGE)
    try:
        if given.verb == "verify":
            return _verify_audit(given.file or "", given.head or "")
        return _export(given)
    except OSError as error:
        return fail("audit", f"{one_line(given.file or '')}: {error.strerror}", USAGE)


def _export(given: Any) -> int:
    store = open_store()
    if (since := _since(given.since or "", store)) is None:
        return fail("audit", "--since takes a day like 2026-03-01, or how long ago, like 30d", USAGE)
    program = _program(given.project, store) if given.project else ""
    count, head = 0, AuditHead()

    def noted() -> Iterator[AuditRecord]:
        nonlocal count, head
        for each in all_records(store, since, program):
            count, head = count + 1, AuditHead(n=each.n, hash=each.hash)
            yield each

    for line in exported(noted(), given.format or "jsonl"):
        sys.stdout.write(line)
    sys.stdout.flush()
    print(f"{_counted(count)}{_last(head)}", file=sys.stderr)
    return 0


def _verify_audit(file: str, wanted: str) -> int:
    count, head, found = 0, AuditHead(), not wanted

    def noted(records: Iterator[AuditRecord]) -> Iterator[AuditRecord]:
        nonlocal count, head, found
        for each in records:
            count, head, found = count + 1, AuditHead(n=each.n, hash=each.hash), found or each.hash == wanted
            yield each

    if file:
        with open(file, encoding="utf-8", newline="") as text:
            problems = list(verify_records(noted(imported(text))))
    else:
        store = open_store()
        begin = store.audit_begin()
        found = found or begin.hash == wanted
        problems = list(verify_records(noted(all_records(store)), begin))
    for number, what in problems:
        print(f"record {number}: {what}")
    if not found:
        print("no record has the hash of --head: it was cut off at the end, all were written anew, or it was pruned")
    bad = len(problems) + (not found)
    print(f"{_counted(count)}{_last(head)}: {f'{bad} problem' + ('' if bad == 1 else 's') if bad else 'ok'}")
    return FAILED if bad else 0


def all_records(store: TeamStore, since: float = 0.0, program: str = "") -> Iterator[AuditRecord]:
    after = 0
    while page := store.audit(after=after, since=since, program=program):
        after = page[-1].n
        yield from page


def _counted(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"


def _last(head: AuditHead) -> str:
    return f", the last one is {head.n} {head.hash}" if head.n else ""


def _since(given: str, store: TeamStore) -> float | None:
    """Returns seconds since 1970; None if it is no time."""
    if not given:
        return 0.0
    if (ago := time_span(given)) is not None:
        return store.now() - ago
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _program(given: str, store: TeamStore) -> str:
    """The id of a project: by its name, by a directory of this machine, or that id itself. Raises TeamError."""
    for each in store.projects():
        if given.casefold() == each.name.casefold() or given == each.id:
            return each.id
    if not os.path.isdir(given):
        raise no_project(given)
    return program_id(program_settings(directory=Path(given).absolute()).root)
