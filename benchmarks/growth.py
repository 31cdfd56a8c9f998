"""What ten times the past, the rules or the tools cost: whole commands at 1 x and at 10 x, time and peak memory.

Each row has the figure at 10 x beside the one at 1 x: at most 12 times the time and 1.2 times the memory. The homes are
made with the product's own writers. `first`: the index of the journals, or the cache of rules and tools, has to be
made first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.harness import Pace
from benchmarks.registry import make_home
from benchmarks.rows import Row, at_most, row
from golem_forge.agent.history import History
from golem_forge.agent.model.interface import (
    AssistantMessage,
    CallResult,
    Message,
    RequestedCall,
    ResultsMessage,
    UserMessage,
)
from golem_forge.agent.session_state import RunFacts, record_run
from golem_forge.core.decisions import Decision, Status, Verdict, VerdictSource
from golem_forge.events.journal import CallStart, Journal
from golem_forge.events.serialization import Event, iso_now

TIMES = 10
TIME_GOAL = 12.0
MEMORY_GOAL = 1.2
SESSIONS, CALLS_OF_A_SESSION = 100, 10
RECORDS = 10_000
RULES = 500
TOOLS = 50
ROUNDS = 3
_LIVE_MESSAGES = 200
"""So many messages a worker's history grows to before it is compacted to the last few."""
_ZONE = VerdictSource(source="zone", verdict=Verdict.PRE_APPROVED, id="workspace", reason="reads are fine")
_ALLOWED = Decision(verdict=Verdict.PRE_APPROVED, sources=(_ZONE,), decided_by=_ZONE)
_TURN = "turns:\n  - say: I go on.\n"
_LAUNCHER = """
import json, os, subprocess, sys, time
start = time.perf_counter()
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
said = child.stderr.read()
_, status, used = os.wait4(child.pid, 0)
seconds, code = time.perf_counter() - start, os.waitstatus_to_exitcode(status)
print(json.dumps([seconds, used.ru_maxrss / 1024, code, said.decode()]))
"""
"""Linux counts the memory of whoever forked a process as the process's own until it runs its program, so it is forked
from one that is small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    name: str
    words: tuple[str, ...]
    make: Callable[[Path, int], None]
    """Fills a place (`project`, `home`) with so much."""
    anew: bool = False
    """Whether the index, and what is kept of rules and tools, is made anew at each run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    seconds: float
    megabytes: float


async def rows(pace: Pace) -> list[Row]:
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as folder:
        for make, amount in AT_ONE.items():
            small, large = (Path(folder, f"{make.__name__}-{times}") for times in (1, TIMES))
            once = pace.amount(amount)
            for place, count in ((small, once), (large, TIMES * once)):
                (place / "project").mkdir(parents=True)
                (place / "project" / "a.txt").write_text("one\n")
                (place / "project" / "turns.yaml").write_text(_TURN)
                make(place, count)
            for command in COMMANDS:
                if command.make is make:
                    found += _compared(command, small, large, TIMES * once)
    return found


def _compared(command: Command, small: Path, large: Path, count: int) -> Iterator[Row]:
    costs: dict[Path, list[Cost]] = {small: [], large: []}
    for number in range(ROUNDS + 1):
        for place in (small, large) if number % 2 else (large, small):
            cost = _run(command, place)
            if number:  # the first round warms up
                costs[place].append(cost)
    once, often = costs[small], costs[large]
    name = f"{command.name}, {count:,}"
    seconds = [median(cost.seconds for cost in each) * 1e3 for each in (often, once)]
    memory = [median(cost.megabytes for cost in each) for each in (often, once)]
    yield row(f"{name} (ms)", seconds[0], peer=seconds[1], peer_name="a tenth of it", goal=at_most(TIME_GOAL))
    yield row(f"{name} (MB)", memory[0], peer=memory[1], peer_name="a tenth of it", goal=at_most(MEMORY_GOAL))


def _run(command: Command, place: Path) -> Cost:
    home = place / "home"
    if command.anew:
        (home / "index.db").unlink(missing_ok=True)
        shutil.rmtree(home / "cache", ignore_errors=True)
    words = [sys.executable, "-S", "-E", "-c", _LAUNCHER]
    words += [sys.executable, "-m", "golem_forge", *command.words]
    environment = {**os.environ, "HOME": str(place), "FORGE_HOME": str(home)}
    ended = subprocess.run(words, cwd=place / "project", env=environment, check=True, capture_output=True)
    seconds, megabytes, code, said = json.loads(ended.stdout)
    if code:
        raise RuntimeError(f"forge {' '.join(command.words)} ended with {code}: {said}")
    return Cost(seconds=seconds, megabytes=megabytes)


def sessions(place: Path, count: int) -> None:
    for number in range(count):
        with Journal.create(place / "home") as journal:
            _begin(journal, place, f"Question {number}")
            for call in range(CALLS_OF_A_SESSION):
                _call(journal, f"c{number}-{call}")


def long_session(place: Path, count: int) -> None:
    """One session of at least `count` records: questions, calls, results, and compaction now and then."""
    with Journal.create(place / "home", "long") as journal:
        history = _begin(journal, place, "Look at every file.")
        number = 0
        while journal.lines < count:
            number += 1
            history.add(UserMessage(text=f"And file {number}?"))
            asked = RequestedCall(id=f"c{number}", name="read_file", args={"path": f"/workspace/{number}.txt"})
            history.add(AssistantMessage(text="I look.", calls=(asked,), model="scripted:turns.yaml"))
            _call(journal, asked.id)
            text = f"Line {number} of the file. " * 20
            result = CallResult(id=asked.id, name=asked.name, status=Status.SUCCESS, text=text)
            history.add(ResultsMessage(results=(result,)))
            if len(history.messages) >= _LIVE_MESSAGES:
                history.replace_all(
                    [*history.messages[:1], UserMessage(text="So far.", kind="summary"), *_last(history)]
                )


def _last(history: History) -> list[Message]:
    return history.messages[-9:]


def _begin(journal: Journal, place: Path, asked: str) -> History:
    project = str(place / "project")
    facts = RunFacts(name="default", worker_id="w1", directory=project, root=project, model="scripted:turns.yaml")
    record_run(journal, facts)
    history = History(journal, "w1")
    history.add(UserMessage(text=asked))
    return history


def _call(journal: Journal, call_id: str) -> None:
    args = {"path": f"/workspace/{call_id}.txt"}
    journal.begin(CallStart(call_id, "read_file", args, _ALLOWED, "llm", "default"))
    used = {"input": 100, "output": 10, "cached": 0, "cost": 0.0}
    journal.record_event(Event("usageUpdated", used, None, 0, iso_now(), worker_id="w1"))
    journal.finish(call_id, "success", 1.5, value={"kind": "text", "text": f"What {call_id} holds. " * 20})


def rules(place: Path, count: int) -> None:
    """Of every kind, each with an example that is checked when they are loaded."""
    patterns = (_PATTERNS[number % len(_PATTERNS)].format(number) for number in range(count))
    (place / "home").mkdir()
    (place / "home" / "rules.yaml").write_text(
        "version: 1\nrules:\n" + "".join(f"  - {{{pattern}, verdict: preApproved}}\n" for pattern in patterns)
    )


_PATTERNS = (
    "command: [program{0}, status], match: [program{0} status --short], not_match: [other status]",
    "command: [git, show, v{0}], match: [git show v{0}]",
    "path: /workspace/part{0}/**, access: [read], match: [/workspace/part{0}/a/b.txt]",
    "host: h{0}.example.com, match: [h{0}.example.com]",
    "tool: tool_{0}, args: {{count: {0}}}, match: [{{count: {0}}}]",
)


def tools(place: Path, count: int) -> None:
    make_home(place / "home", count)


AT_ONE = {sessions: SESSIONS, long_session: RECORDS, rules: RULES, tools: TOOLS}
"""What is made → how much of it at 1 x."""
COMMANDS = (
    Command(name="forge log verify, sessions", words=("log", "verify"), make=sessions),
    Command(name="forge sessions list, sessions", words=("sessions", "list"), make=sessions),
    Command(name="forge sessions list first, sessions", words=("sessions", "list"), make=sessions, anew=True),
    Command(name="forge log, records", words=("log",), make=long_session),
    Command(name="forge log first, records", words=("log",), make=long_session, anew=True),
    Command(name="forge log --limit, records", words=("log", "--limit", "1000000"), make=long_session),
    Command(name="forge log verify, records", words=("log", "verify"), make=long_session),
    Command(
        name="forge run --resume, records",
        words=("run", "--resume", "long", "-m", "scripted:turns.yaml", "-i", "go on"),
        make=long_session,
    ),
    Command(name="a call, rules", words=("call", "read_file", "--path", "a.txt"), make=rules),
    Command(name="a call first, rules", words=("call", "read_file", "--path", "a.txt"), make=rules, anew=True),
    Command(name="forge rules list, rules", words=("rules", "list"), make=rules),
    Command(name="forge tools list, user tools", words=("tools", "list"), make=tools),
)
