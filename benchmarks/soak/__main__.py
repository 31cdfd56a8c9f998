"""The soak: runners, a PostgreSQL and several people for some minutes, while everything fails. `make soak`.

    python -m benchmarks.soak [--minutes N] [--seed N] [--store postgresql|sqlite] [--keep]

One runner lives through the whole run; two more are killed, stopped for 40 seconds, told to drain, started with a
clock that jumps by an hour, and started with a home on a file system of 24 MB that is filled. The database is restarted
and stopped. MCP servers die in a call. Meanwhile sessions make effects through tools of a module, a server, walled
commands and background commands; three processes race to answer their questions, and some sessions are stopped.

An effect is a line that the tool itself writes to a file. Afterwards the lines are compared with the journals, and the
program looks for what was left behind: processes, descriptors, temporary files, memory. It prints what it counted,
writes build/soak.json, and exits 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.team.postgres import programs

from benchmarks.soak.ledger import Ledger
from benchmarks.soak.machine import ROOT, Faults, Machine
from golem_forge.events.journal_records import scan
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.rows import ENDED
from golem_forge.team.store import Store

BACKLOG: Final = 24
SETTLE_S: Final = 240.0
POOLED_SOCKETS: Final = 14
"""Connections that a runner may keep between two uses."""
POOLED_FILES: Final = 8
"""The same with SQLite, where each has the store's file and its log open."""
WATCHED_ZONES: Final = 2
"""A directory that walled commands use is watched, as long as somebody uses it."""
CLEANED_S: Final = 60.0
"""Within that a runner has cleared up what its last sessions had open."""
GROWTH: Final = 1.10
"""The memory of the last third beside that of the second."""
GROWTH_MB: Final = 6.0


def run(soak: Machine, seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    empty = _database_bytes(soak)
    soak.start_answerers()
    soak.steady.start()
    for _ in range(10):
        soak.queue()
    _until(lambda: soak.open_sessions() == 0, SETTLE_S)  # every kind was there once: what is loaded is loaded
    before = _descriptors(soak.steady.pid)
    for runner in soak.mortal:
        runner.start()
    faults = Faults(soak)
    while time.monotonic() - began < seconds:
        faults.step()
        if (waiting := soak.open_sessions()) is not None:
            for _ in range(min(6, BACKLOG - waiting)):
                soak.queue()
        soak.sample()
        time.sleep(0.5)
    faults.end()
    for runner in soak.mortal:  # the last one in each home is as any other, and clears up
        runner.end(signal.SIGKILL)
        runner.start()
    settled = _until(lambda: soak.open_sessions() == 0, SETTLE_S)
    for _ in range(8):
        time.sleep(0.5)
        soak.sample()
    _until(lambda: not _more_descriptors(before, _descriptors(soak.steady.pid)), CLEANED_S)
    after = _descriptors(soak.steady.pid)
    load = _load_of_database(soak, empty)
    codes = _end_runners(soak)
    told = soak.end_answerers()
    ledger = Ledger()
    broken = [] if settled else [f"sessions that did not end: {soak.open_sessions()}"]
    broken += _check_journals(soak, ledger)
    broken += ledger.broken() + _check_answers(soak, told) + _check_left(soak, before, after, codes)
    counted = {name: getattr(ledger, name) for name in Ledger.__dataclass_fields__ if name != "reasons"}
    return {
        "seconds": round(time.monotonic() - began),
        **counted,
        **dict(sorted(soak.counts.items())),
        "other ends of calls": dict(ledger.reasons.most_common(12)),
        "descriptors": {"before": dict(before), "after": dict(after)},
        "memory by thirds (MB)": _thirds(soak.memory),
        **load,
        "broken": broken,
    }


def _database_bytes(soak: Machine) -> int:
    if soak.server is None:
        return (soak.folder / "store" / "sessions.db").stat().st_size
    with soak.store.database.transaction(write=False) as connection:
        return int(connection.execute("SELECT pg_database_size(current_database())").fetchone()[0])


def _load_of_database(soak: Machine, empty: int) -> dict[str, float]:
    """What the sessions keep there, and how many connections the runners at rest have."""
    load = {"database (KB a session)": round((_database_bytes(soak) - empty) / len(soak.played) / 1024, 1)}
    if soak.server is not None:
        with soak.store.database.transaction(write=False) as connection:
            [used] = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
        runners = 1 + len(soak.mortal)
        load["connections (a runner at rest)"] = round((used - len(soak.answerers)) / runners, 1)
    return load


def _end_runners(soak: Machine) -> dict[str, int | None]:
    runners = (soak.steady, *soak.mortal)
    for runner in runners:
        runner.end(signal.SIGTERM)
    codes: dict[str, int | None] = {}
    for runner in runners:
        assert runner.process is not None
        try:
            codes[runner.name] = runner.process.wait(timeout=90)
        except subprocess.TimeoutExpired:
            codes[runner.name] = None
    return codes


def _check_journals(soak: Machine, ledger: Ledger) -> list[str]:
    done = Counter((soak.program / "work" / "effects.txt").read_text().split())
    path = soak.folder / "journal.jsonl"
    damaged = []
    states: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    known: set[str] = set()
    for session, played in soak.played.items():
        try:
            row = soak.store.find(session)
        except TeamError:  # its queueing had no answer, and did not happen
            states["never queued"] += 1
            continue
        known.update(played.names)
        states[row.state] += 1
        if row.state == "failed":
            errors[row.error[:120]] += 1
        path.write_bytes(b"".join(line for _, line in soak.store.lines(session, limit=1_000_000)))
        records: list[dict[str, Any]] = []
        found = scan(path, take=records.append)
        is_damaged = bool(found.problems) or (row.lines and (found.lines, found.hash) != (row.lines, row.hash))
        if is_damaged:
            damaged.append(f"{session} ({row.state}, {row.lines} lines, found {found.lines}; {found.problems[:1]})")
        counted = ledger.broken()
        ledger.add_session(played, row.state, records, done)
        if is_damaged or row.state not in ENDED or ledger.broken() != counted:
            shutil.copy(path, path.with_name(f"{session}.jsonl"))
    ledger.add_lines(done, known)
    soak.counts.update({f"sessions {state}": count for state, count in states.items()})
    broken = [f"journals that do not verify: {', '.join(damaged)}"] if damaged else []
    broken += [f"sessions that failed ({count}): {error}" for error, count in errors.items()]
    del states["never queued"]
    return broken + [f"sessions {state}: {count}" for state, count in states.items() if state not in ENDED]


def _check_answers(soak: Machine, told: Counter[str]) -> list[str]:
    rows = soak.store.questions.rows
    answered = len(rows(state="answered", limit=1_000_000))
    answered += sum(bool(row.person) for row in rows(state="withdrawn", limit=1_000_000))  # came to nothing, and named
    soak.counts.update({"questions answered": answered, "answers too late": told["too late"]})
    if not told["counted"] <= answered <= told["counted"] + told["unknown"]:
        return [f"answers that counted: {told['counted']} (+ {told['unknown']} unknown) for {answered} questions"]
    return []


def _check_left(soak: Machine, before: Counter[str], after: Counter[str], codes: Mapping[str, int | None]) -> list[str]:
    broken = [f"the runner {name} ended with {code}" for name, code in codes.items() if code != 0]
    broken += _more_descriptors(before, after)
    own = {each.pid for each in soak.answerers}
    _until(lambda: not _processes(soak, own), 30.0)
    broken += [f"a process is left: {words}" for words in _processes(soak, own)]
    left = [path for path in (soak.folder / "tmp").rglob("*") if not path.is_dir()]
    left += soak.folder.glob("homes/*/state/running/*")
    soak.counts["temporary files left"] = len(left)
    broken += [f"a file is left: {path.relative_to(soak.folder)}" for path in left[:10]]
    thirds = _thirds(soak.memory)
    if thirds and thirds[2] > thirds[1] * GROWTH + GROWTH_MB:
        broken.append(f"the memory of the runner grows: {thirds} MB")
    return broken


def _more_descriptors(before: Counter[str], after: Counter[str]) -> list[str]:
    more = []
    for kind, count in after.items():
        is_store = "/sessions.db" in kind
        spare = POOLED_SOCKETS if kind == "socket" else POOLED_FILES if is_store else WATCHED_ZONES
        if count > before[kind] + spare:
            more.append(f"descriptors of the runner: {kind} {before[kind]} before, {count} after")
    return more


def _thirds(values: list[float]) -> list[float]:
    size = len(values) // 3
    return [round(statistics.median(values[at : at + size]), 1) for at in (0, size, 2 * size)] if size else []


def _descriptors(pid: int) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(entry)
            is_path = target.startswith("/")
            kinds[re.sub(r"[0-9a-f]{8,}|\d+", "N", target) if is_path else target.partition(":")[0]] += 1
    return kinds


def _processes(soak: Machine, but: set[int]) -> list[str]:
    """What runs below this process, other than the database: whatever lost its parent comes to us."""
    if soak.server is not None:
        but = but | soak.server.pids()
    found = []
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                waiting += [int(child) for child in (thread / "children").read_text().split() if int(child) not in but]
            if pid == os.getpid():
                continue
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                continue
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
    return found


def _until(look: Callable[[], Any], within: float) -> bool:
    deadline = time.monotonic() + within
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.25)
    return True


def answer_all(person: str) -> None:
    """Answers whatever is open until its input ends: most with yes. Says how many answers counted."""
    store = Store.open(os.environ["STORE_URL"], Path(os.environ["FORGE_HOME"]))
    chance = random.Random(person)
    told: Counter[str] = Counter()
    os.set_blocking(sys.stdin.fileno(), False)
    while sys.stdin.buffer.read(1) is None:
        try:
            for question in store.questions.rows(limit=50):
                try:
                    store.questions.answer(question.id, {"approved": chance.random() < 0.9}, person, "soak")
                    told["counted"] += 1
                except StoreUnavailable:
                    told["unknown"] += 1
                except TeamError:
                    told["too late"] += 1
        except TeamError:
            time.sleep(0.5)
        time.sleep(0.2)
    print(json.dumps(told))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--store", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--keep", action="store_true", help="leave the folder with journals and logs")
    parser.add_argument("--answer", metavar="PERSON", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer_all(options.answer)
        return 0
    if options.store == "postgresql" and programs() is None:
        print("PostgreSQL is not installed. Install the package `postgresql`, or use --store sqlite.", file=sys.stderr)
        return 2
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: a process that lost its parent becomes our child
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="forge-soak-"))
    print(f"soak: {options.minutes:g} minutes, seed {options.seed}, in {folder}", flush=True)
    soak = Machine(folder, options.seed, options.store)
    try:
        found = run(soak, options.minutes * 60)
    finally:
        soak.close()
    if not options.keep and not found["broken"]:
        shutil.rmtree(folder, ignore_errors=True)
    path = ROOT / "build" / "soak.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"seed": options.seed, "store": options.store, **found}, indent=1) + "\n")
    for name, value in found.items():
        if name != "broken":
            print(f"{name:>44}  {value}")
    for promise in found["broken"]:
        print(f"BROKEN: {promise}")
    print("written to build/soak.json")
    return 1 if found["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
