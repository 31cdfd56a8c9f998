"""The kill matrix: runners are killed at random moments while sessions make effects and ask. team.md case 2.

    python -m tests.team.kill_matrix [KILLS] [SESSIONS] [EFFECTS] [URL]      prints its counts

An effect is a line in a file. A call that the journal says succeeded has exactly one line; one that was told as "may
have run" has one or none; no line comes twice; every session ends; every journal is whole.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.deadlines import PATIENCE
from tests.team.background import Program, write_call

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.journal_reader import CallRecord, CallRecords, scan
from golem_forge.team.database import TeamError
from golem_forge.team.rows import ENDED
from golem_forge.team.store import Store

LEASE_S = 1.5


@dataclass(slots=True, kw_only=True)
class Counts:
    kills: int = 0
    sessions: int = 0
    calls: int = 0
    effects: int = 0
    lost: int = 0
    doubled: int = 0
    may_have_run: int = 0
    broken: int = 0
    open: int = 0


def script(session: int, effects: int) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for number in range(effects):
        calls: list[dict[str, Any]] = [{"tool": "effect", "args": {"name": f"s{session}-e{number}", "wait": 0.3}}]
        if number % 3 == 1:
            calls.append(write_call(f"/work/asked-{session}-{number}.txt", "x"))
        turns.append({"calls": calls})
    return [*turns, {"say": "done"}]


def run_matrix(program: Program, *, kills: int, sessions: int, effects: int, seed: int = 1) -> Counts:
    chance = random.Random(seed)
    ids = []
    for number in range(sessions):
        program.play(*script(number, effects), script=f"s{number}.yaml")
        ids.append(program.queue(f"session {number}", model=f"scripted:s{number}.yaml"))
    store = program.store()
    runners = [program.start_quick_runner(LEASE_S) for _ in range(2)]
    counts = Counts(sessions=sessions)
    next_kill, seen = 0.0, 0
    while sum(row.state in ENDED for row in store.sessions(limit=sessions)) < sessions:
        _answer_all(store)
        if counts.kills < kills:
            done = len(program.effects())
            if not next_kill and done > seen:  # calls run: in their midst, or soon after
                next_kill = time.monotonic() + chance.uniform(0.0, 0.8)
            elif next_kill and time.monotonic() > next_kill:
                busy = {row.runner for row in store.sessions(states=("running",))}
                pids = [each["pid"] for each in store.runners.seen() if each["id"] in busy]
                if able := [index for index, runner in enumerate(runners) if runner.pid in pids]:
                    index = chance.choice(able)
                    runners[index].kill()
                    runners[index].wait()
                    counts.kills += 1
                    runners[index] = program.start_quick_runner(LEASE_S)
                next_kill, seen = 0.0, done
        time.sleep(0.02)
    for runner in runners:
        runner.terminate()
        runner.wait(timeout=PATIENCE)
    _count(program, store, ids, counts)
    return counts


def _answer_all(store: Store) -> None:
    for question in store.questions.rows():
        try:
            store.questions.answer(question.id, {"approved": True}, "ada", "test")
        except TeamError:
            continue


def _count(program: Program, store: Store, ids: list[str], counts: Counts) -> None:
    done = Counter(program.effects())
    counts.effects = sum(done.values())
    counts.doubled = sum(number - 1 for number in done.values())
    for session in ids:
        counts.open += store.find(session).state != "finished"
        for call in _calls(program, store, session, counts):
            if call.tool != "effect":
                continue
            counts.calls += 1
            if call.status == "success":
                counts.lost += done[call.args["name"]] == 0
            elif "may have run" in call.error or "(signal 9)" in call.error:  # the watchdog of a busy machine
                counts.may_have_run += 1
            else:
                counts.broken += 1


def _calls(program: Program, store: Store, session: str, counts: Counts) -> list[CallRecord]:
    path = program.home / f"{session}.jsonl"
    path.write_bytes(b"".join(line for _, line in store.lines(session, limit=1_000_000)))
    records: list[dict[str, Any]] = []
    found = scan(path, take=records.append)
    counts.broken += bool(found.problems)
    return list(CallRecords.from_records(records).calls.values())


def main() -> None:
    kills, sessions, effects = (int(word) for word in (*sys.argv[1:4], "50", "20", "10")[:3])
    folder = Path(tempfile.mkdtemp(prefix="forge-kills-"))
    program = Program(folder / "shop", folder / "home", sys.argv[4] if len(sys.argv) > 4 else "sqlite")
    try:
        counts = run_matrix(program, kills=kills, sessions=sessions, effects=effects)
    finally:
        program.close()
    print(json.dumps({name: getattr(counts, name) for name in Counts.__slots__}))


if __name__ == "__main__":
    main()
