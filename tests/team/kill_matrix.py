"""The kill matrix: runners are killed and frozen while sessions make effects and ask. team.md case 2.

    python -m tests.team.kill_matrix [KILLS] [SESSIONS] [EFFECTS] [URL]      prints its counts

An effect is a line in a file. A call that the journal says succeeded has exactly one line; one that was told as "may
have run" has one or none; no line comes twice; every session ends; every journal is whole.

Every second session delegates the same effect several times to a sub-worker, whose call asks. While the first of these
questions is open its runner is frozen for longer than its lease, and the question is answered. An answer is used, or
the journal names whoever gave it, and the call is asked again. The runner goes on afterwards.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.deadlines import PATIENCE
from tests.team.background import TOOLS, WORKER, Program, write_call

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.journal_records import CallRecord, CallRecords, scan
from golem_forge.events.serialization import iso_time
from golem_forge.team.database import TeamError
from golem_forge.team.rows import ANSWERED, ENDED, WITHDRAWN, QuestionRow
from golem_forge.team.session_run import ANSWER_DROPPED
from golem_forge.team.store import Store

LEASE_S = 1.5
DELEGATES = 2
"""Every second session has a sub-worker."""
ASKED = '''

def asked(name: str) -> str:
    """One line for each time it is run, for which somebody is asked."""
    return effect(name)
'''
HELPER = """\
---
name: helper
description: Does what the script says.
sandbox: {zones: [{name: work, mode: rw}]}
toolsets:
  custom: {module: ./tools.py, tools: [asked], approval: {default: ask}}
---
Do it.
"""


@dataclass(slots=True, kw_only=True)
class Counts:
    kills: int = 0
    freezes: int = 0
    sessions: int = 0
    calls: int = 0
    effects: int = 0
    lost: int = 0
    doubled: int = 0
    may_have_run: int = 0
    broken: int = 0
    open: int = 0
    answers: int = 0
    dropped: int = 0
    """Answers that a frozen or killed runner did not take up: the journal names them."""
    asked_again: int = 0
    """Questions of the same call that came after such an answer."""
    unused: int = 0
    """Answers of calls that did not run, and that nobody was told of or asked again."""


def write_program(program: Program) -> None:
    (program.folder / "tools.py").write_text(TOOLS + ASKED)
    allowed = WORKER.replace("toolsets:", "toolsets:\n  workers: {allow: [helper], approval: {default: preApproved}}")
    (program.folder / "main.worker").write_text(allowed)
    (program.folder / "helper.worker").write_text(HELPER)
    program.forge("trust", "--yes")


def write_script(program: Program, session: int, effects: int) -> str:
    """Gives the name of the session's model."""
    helper = [{"calls": [{"tool": "asked", "args": {"name": f"s{session}-asked"}}]}, {"say": "done"}]
    name = f"s{session}.yaml"
    workers = {"main": turns_of(session, effects), "helper": helper}
    (program.folder / name).write_text(json.dumps({"workers": workers}))
    return f"scripted:{name}"


def turns_of(session: int, effects: int) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for number in range(effects):
        calls: list[dict[str, Any]] = [{"tool": "effect", "args": {"name": f"s{session}-e{number}", "wait": 0.3}}]
        if number % 3 == 1:
            calls.append(write_call(f"/work/asked-{session}-{number}.txt", "x"))
        turns.append({"calls": calls})
        if session % DELEGATES == 0 and number % 3 == 0:
            turns.append({"calls": [{"tool": "helper", "args": {"input": "do it"}}]})
    return [*turns, {"say": "done"}]


def run_matrix(program: Program, *, kills: int, sessions: int, effects: int, seed: int = 1) -> Counts:
    chance = random.Random(seed)
    write_program(program)
    ids = [
        program.queue(f"session {number}", model=write_script(program, number, effects)) for number in range(sessions)
    ]
    store = program.store()
    runners = [program.start_quick_runner(LEASE_S) for _ in range(2)]
    counts = Counts(sessions=sessions)
    next_kill, seen = 0.0, 0
    freezer = Freezer(store, runners, chance)
    while sum(row.state in ENDED for row in store.sessions(limit=sessions)) < sessions:
        freezer.thaw()
        for question in store.questions.rows():
            if freezer.freeze(question):
                _answer(store, question)
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
    counts.freezes = len(freezer.sessions)
    for runner in runners:
        runner.send_signal(signal.SIGCONT)
        runner.terminate()
        runner.wait(timeout=PATIENCE)
    _count(program, store, ids, counts)
    return counts


class Freezer:
    """Freezes the runner of the first question of each sub-worker, one runner at a time."""

    def __init__(self, store: Store, runners: list[Any], chance: random.Random) -> None:
        self.sessions: set[str] = set()
        """Those whose runner was frozen."""
        self._store = store
        self._runners = runners
        self._chance = chance
        self._frozen: Any = None
        self._until: Callable[[], bool] = lambda: True

    def freeze(self, question: QuestionRow) -> bool:
        """Whether the question may be answered now. Some runners are frozen before the session is held."""
        if question.wire["tool"] != "asked" or question.session in self.sessions:
            return True
        session = self._store.find(question.session)
        pids = [each["pid"] for each in self._store.runners.seen() if each["id"] == session.runner]
        able = [runner for runner in self._runners if runner.pid in pids and runner.poll() is None]
        if self._frozen is not None or not able or not (session.held or self._chance.random() < 0.01):
            return False
        self._frozen = able[0]
        self._frozen.send_signal(signal.SIGSTOP)
        self.sessions.add(session.id)
        soon = time.monotonic() + LEASE_S * self._chance.uniform(1.1, 3.0)
        if self._chance.random() < 0.25:
            self._until = lambda: time.monotonic() > soon
        else:  # another runner has it; none can while this one is frozen in the midst of writing to SQLite
            late = soon + 10 * LEASE_S
            self._until = lambda: (
                time.monotonic() > (soon if self._store.find(session.id).epoch > session.epoch else late)
            )
        return True

    def thaw(self) -> None:
        if self._frozen is not None and self._until():
            self._frozen.send_signal(signal.SIGCONT)
            self._frozen = None


def _answer(store: Store, question: QuestionRow) -> None:
    with contextlib.suppress(TeamError):  # withdrawn meanwhile, or its runner is silent
        store.questions.answer(question.id, {"approved": True}, "ada", "test")


def _count(program: Program, store: Store, ids: list[str], counts: Counts) -> None:
    lines = Counter(program.effects())
    counts.effects = sum(lines.values())
    ran: Counter[str] = Counter()
    may_have_run: Counter[str] = Counter()
    for session in ids:
        counts.open += store.find(session).state != "finished"
        records = _records(program, store, session, counts)
        calls = CallRecords.from_records(records).calls
        for call in calls.values():
            counts.calls += call.tool == "effect"
            is_done, is_unclear = call.status == "success", _may_have_run(call)
            if call.tool in ("effect", "asked"):
                ran[call.args["name"]] += is_done
                may_have_run[call.args["name"]] += is_unclear
            counts.broken += call.tool == "effect" and not is_done and not is_unclear
        _count_answers(store, session, records, calls.values(), counts)
    counts.may_have_run = sum(may_have_run.values())
    counts.lost = sum((ran - lines).values())
    counts.doubled = sum((lines - ran - may_have_run).values())


def _may_have_run(call: CallRecord) -> bool:
    return "may have run" in call.error or "(signal 9)" in call.error  # the watchdog of a busy machine


def _count_answers(
    store: Store, session: str, records: list[dict[str, Any]], calls: Iterable[CallRecord], counts: Counts
) -> None:
    used = {call.id for call in calls if call.status == "success" or _may_have_run(call)}
    delegated = [call.finished_at for call in calls if call.tool == "helper" and call.status == "success"]
    told = sum(record.get("data", {}).get("code") == ANSWER_DROPPED for record in records)
    answered = store.questions.rows(session=session, state=ANSWERED)
    dropped = [row for row in store.questions.rows(session=session, state=WITHDRAWN) if row.person]
    again = 0
    for row in dropped:
        if any(each.asked > row.asked and each.wire["tool"] == row.wire["tool"] for each in (*answered, *dropped)):
            again += 1
        elif any(at > iso_time(row.answered) for at in delegated):
            counts.unused += 1
    counts.answers += len(answered) + len(dropped)
    counts.dropped += len(dropped)
    counts.asked_again += again
    counts.unused += sum(row.call not in used for row in answered) + max(0, len(dropped) - told)


def _records(program: Program, store: Store, session: str, counts: Counts) -> list[dict[str, Any]]:
    path = program.home / f"{session}.jsonl"
    path.write_bytes(b"".join(line for _, line in store.lines(session, limit=1_000_000)))
    records: list[dict[str, Any]] = []
    found = scan(path, take=records.append)
    counts.broken += bool(found.problems)
    return records


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
