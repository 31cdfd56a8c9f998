"""`forge audit`: who was let in or refused, who was asked and answered what, who changed people and rules; and whether
somebody changed that afterwards."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from golem_forge.cli.args import FAILED, USAGE, read_args
from golem_forge.cli.format import fail
from golem_forge.cli.team import fail_with, open_store, program_settings
from golem_forge.config.schema import time_span
from golem_forge.core.text import one_line
from golem_forge.team.audit import AuditHead, AuditRecord, exported, imported, verify_records
from golem_forge.team.database import TeamError
from golem_forge.team.people import TeamStore
from golem_forge.team.rows import program_id

HELP: Final = """usage: forge audit export [--since TIME] [--project DIR] [--format jsonl|csv]
       forge audit verify [FILE] [--head HASH]

  export   prints the records of the store, the oldest first: people, logins, refusals, questions, answers, edits and
           rule changes; each with its own hash and that of the record before it
  verify   checks these hashes, in the store or in a file that `export` made; says what was changed or left out

      --since TIME     a day (2026-03-01), a moment (2026-03-01T07:30:00Z), or so long ago (30d, 12h)
      --project DIR    only what was about sessions of this program
      --format F       jsonl (default), or csv
      --head HASH      verify: one record must have this hash, the last one that an earlier export or verify printed

Records are kept longer than sessions: `forge store prune` deletes those older than store.audit.retention (400d).
For admins, also at a team's address. Exit: 0 done, 1 verify found problems, 2 usage, 3 not an admin."""


def run_audit(words: list[str]) -> int:
    declared = ("VERB", "FILE?", "--since TIME", "--project DIR", "--format jsonl|csv", "--head HASH")
    given = read_args("audit", HELP, words, *declared)
    unfitting = (given.since, given.project, given.format) if given.verb == "verify" else (given.file, given.head)
    if given.verb not in ("export", "verify") or any(unfitting):
        print(HELP, file=sys.stderr)
        return USAGE
    try:
        if given.verb == "verify":
            return _verify(given.file or "", given.head or "")
        return _export(given)
    except TeamError as error:
        return fail_with("audit", error)
    except OSError as error:
        return fail("audit", f"{one_line(given.file or '')}: {error.strerror}", USAGE)


def _export(given: Any) -> int:
    store = open_store()
    if (since := _since(given.since or "", store)) is None:
        return fail("audit", "--since takes a day like 2026-03-01, or how long ago, like 30d", USAGE)
    program = _program(given.project) if given.project else ""
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


def _verify(file: str, wanted: str) -> int:
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
    """Seconds since 1970; None: it is no time."""
    if not given:
        return 0.0
    if (ago := time_span(given)) is not None:
        return store.now() - ago
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _program(given: str) -> str:
    """The id of the program around a directory of this machine; or that id itself."""
    if not os.path.isdir(given):
        return given
    return program_id(program_settings(directory=Path(given).absolute()).root)
