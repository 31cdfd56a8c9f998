"""Sessions in the store beside the same in files: a call's records, commits, starts, throughput, and an inbox that is
full.

By default SQLite; FORGE_BENCH_STORE=postgresql://… measures that database instead: an empty one, its tables are made
there.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Block, Pace, chromium_path, race_blocks
from benchmarks.rows import Row, at_most, below, row
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.core.calls import ToolCall
from golem_forge.core.decisions import Decision, Verdict
from golem_forge.events.journal import CallStart
from golem_forge.team.database import open_database
from golem_forge.team.journal import CommitThread, StoredJournals
from golem_forge.team.people import Role, add_person
from golem_forge.team.rows import FINISHED, Append, Lease, NewSession
from golem_forge.team.runner import LeaseKeeper, own_folder
from golem_forge.team.schema import upgrade
from golem_forge.team.session_run import RunnerParts, SessionRun
from golem_forge.team.store import Store

SESSIONS = 100
MANY_SESSIONS = 500
RUNNERS = 2
SLOTS = 4
STARTS = 15
QUESTIONS = 10_000
FEW = 100
HARDLY_ANY = 10
LOOK_S = 0.1
"""A look takes the processors and the database from what is measured, so there are few."""
AT_REST_S = 7.0
"""Longer than a runner's sweep."""
PROGRAM = "model: scripted:script.yaml\nsandbox: {zones: {work: {path: ./work, mode: rw}}}\n"
WORKER = """---
name: main
sandbox: {zones: [{name: work, mode: rw}]}
toolsets: {filesystem: {}}
---
Do it.
"""
URL = os.environ.get("FORGE_BENCH_STORE", "sqlite")


async def rows(pace: Pace) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="forge-store-") as folder:
        base = Path(folder)
        program = _program(base / "shop")
        return [
            *await _records(base / "records", pace),
            *await _sessions(base / "sessions", program, pace),
            *_starts(base / "starts", program, pace),
            *await _throughput(base / "many", program, pace),
            *await _inbox(base / "inbox", program, pace),
        ]


def _program(folder: Path) -> Path:
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "a.txt").write_text("hello\n")
    (folder / "forge.yaml").write_text(PROGRAM)
    (folder / "main.worker").write_text(WORKER)
    read = {"calls": [{"tool": "read_file", "args": {"path": "/work/a.txt"}}]}
    (folder / "script.yaml").write_text(json.dumps({"turns": [read, read, read, {"say": "done"}]}))
    return folder


@contextmanager
def _store(home: Path) -> Iterator[Store]:
    home.mkdir()
    (home / "config.yaml").write_text(f"store: {{url: {'sqlite' if URL == 'sqlite' else 'env:FORGE_BENCH_STORE'}}}\n")
    if URL != "sqlite":
        database = open_database(URL, home)
        upgrade(database)
        database.close()
    store = Store.open(URL, home, create=True)
    try:
        yield store
    finally:
        store.close()


# ---- begun and finished of one call


async def _records(home: Path, pace: Pace) -> list[Row]:
    with _store(home) as store:
        lease = _lease(store, {})
        thread = CommitThread(store)
        journals = StoredJournals(store, thread, lease, home / "copies", lambda: time.monotonic() + 60, lambda _: None)
        journal = journals.create(lease.id, None)
        await journal.committed()
        decision = Decision(verdict=Verdict.PRE_APPROVED)
        count = pace.amount(200)
        number = 0

        async def ours(_material: object) -> None:
            nonlocal number
            for _ in range(count):
                number += 1
                call = ToolCall("write_file", {"path": "/work/a.txt"}, id=f"call{number}")
                journal.begin(CallStart(call.id, call.name, call.args, decision))
                await journal.committed()
                journal.finish(call.id, "success", 1.0)  # kept with the next one, or within 50 ms
            await journal.committed()

        await ours(None)
        by_hand = _by_hand(home / "hand.db", count, [line for _, line in store.lines(lease.id, journal.lines - 2)])
        seconds = await race_blocks({"ours": Block(run=ours), "hand": Block(run=by_hand)}, rounds=pace.rounds)
        thread.close()
        store.leases.end(lease, FINISHED)  # or a runner of a later part would take it
    return [
        row(
            "begun and finished of a call (ms)",
            seconds["ours"] / count * 1e3,
            peer=seconds["hand"] / count * 1e3,
            peer_name="two INSERTs by hand",
            goal=at_most(3),
        )
    ]


def _by_hand(path: Path, count: int, lines: list[bytes]) -> Callable[[object], None]:
    """The same bytes by two statements and two commits, in the same kind of database."""
    number = 0
    if URL.startswith("postgresql"):
        import psycopg

        connection: Any = psycopg.connect(URL, autocommit=True)
        connection.execute("DROP TABLE IF EXISTS forge_bench_lines")
        connection.execute("CREATE TABLE forge_bench_lines (n BIGINT PRIMARY KEY, line BYTEA)")
        insert = "INSERT INTO forge_bench_lines VALUES (%s, %s)"
    else:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE forge_bench_lines (n INTEGER PRIMARY KEY, line BLOB)")
        insert = "INSERT INTO forge_bench_lines VALUES (?, ?)"

    def run(_material: object) -> None:
        nonlocal number
        for _ in range(count):
            for line in lines:
                number += 1
                connection.execute(insert, (number, line))

    return run


def _lease(store: Store, facts: dict[str, Any]) -> Lease:
    session = store.queue(NewSession(facts=facts, input="go"))
    lease = store.leases.claim("bench", [], session_id=session)
    assert lease is not None
    return lease


# ---- whole sessions


async def _sessions(home: Path, program: Path, pace: Pace) -> list[Row]:
    count = pace.amount(SESSIONS)
    with _store(home) as store:
        thread = CommitThread(store)
        leases = LeaseKeeper(store, "bench", lambda *_: None, lambda _: None)
        parts = RunnerParts(
            store=store, commits=thread, leases=leases, home=home, copies=own_folder(home / "running"), hold_s=60
        )

        async def stored(_material: object) -> None:
            for _ in range(count):
                lease = _lease(store, {"directory": str(program)})
                leases.hold(lease.id, lease.epoch, time.monotonic())
                await SessionRun(parts, lease).run()
                assert (row_now := store.find(lease.id)).state == "finished", row_now

        async def filed(_material: object) -> None:
            for _ in range(count):
                async with WorkerRuntime(directory=program, home=home) as runtime:
                    assert (await runtime.run("go")).success

        seconds = await race_blocks({"store": Block(run=stored), "files": Block(run=filed)}, rounds=1)
        commits = await _commits(store, parts, leases, program)
        thread.close()
    return [
        row(
            "a session of three calls (ms)",
            seconds["store"] / count * 1e3,
            peer=seconds["files"] / count * 1e3,
            peer_name="the same with a file journal",
            goal=at_most(1 / 0.7),
        ),
        row("commits for a session of three calls that never waits", commits, goal=below(5.5)),
    ]


async def _commits(store: Store, parts: RunnerParts, leases: LeaseKeeper, program: Path) -> int:
    """From the claim to the end; the least of three, since a slow moment adds one."""
    original, counts = store.database.transaction, []
    for _ in range(3):
        session = store.queue(NewSession(facts={"directory": str(program)}, input="go"))
        number = 0

        def counted(*, write: bool = True, single: bool = False) -> Any:
            nonlocal number
            number += write
            return original(write=write, single=single)

        store.database.transaction = counted  # type: ignore[method-assign]
        try:
            lease = store.leases.claim("bench", [], session_id=session)
            assert lease is not None
            leases.hold(lease.id, lease.epoch, time.monotonic())
            await SessionRun(parts, lease).run()
            await asyncio.sleep(0.1)
        finally:
            store.database.transaction = original  # type: ignore[method-assign]
        counts.append(number)
    return min(counts)


# ---- runners as processes


@contextmanager
def _runners(store: Store, home: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Ready to take sessions."""
    before = len(store.runners.seen())
    words = [sys.executable, "-m", "golem_forge", "runner", "--slots", str(SLOTS)]
    environ = {**os.environ, "FORGE_HOME": str(home)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen(words, env=environ, cwd="/", **quiet) for _ in range(count)]  # type: ignore[call-overload]
    try:
        while len(store.runners.seen()) < before + count:
            time.sleep(0.05)
        yield started
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.wait(timeout=60)


def _starts(home: Path, program: Path, pace: Pace) -> list[Row]:
    """From the request of a person to the model's first answer, which a scripted model gives at once."""
    forge = [sys.executable, "-m", "golem_forge", "run", "go"]
    environ = {**os.environ, "FORGE_HOME": str(home)}
    ours, theirs = [], []
    with _store(home) as store, _runners(store, home, 1):
        for number in range(pace.amount(STARTS) + 2):  # the first two load what is loaded once
            before = _finished(store)
            began = time.time()
            session = store.queue(NewSession(facts={"directory": str(program)}, input="go"))
            _wait_for_finished(store, before + 1)
            stored = _first_answer([line for _, line in store.lines(session)]) - began
            began = time.time()
            subprocess.run(forge, cwd=program, env=environ, check=True, capture_output=True, stdin=subprocess.DEVNULL)
            newest = max((home / "sessions").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
            filed = _first_answer(newest.read_bytes().splitlines()) - began
            if number >= 2:
                ours.append(stored)
                theirs.append(filed)
    return [
        row(
            "queued to the first answer of the model, with an idle runner, p50 (ms)",
            median(ours) * 1e3,
            peer=median(theirs) * 1e3,
            peer_name="the same by forge run",
            goal=at_most(1.5),
        )
    ]


def _first_answer(lines: list[bytes]) -> float:
    for record in map(json.loads, lines):
        if record["type"] == "history" and record["message"]["role"] == "assistant":
            return datetime.fromisoformat(record["ts"]).timestamp()
    raise AssertionError("the model was not asked")


async def _throughput(home: Path, program: Path, pace: Pace) -> list[Row]:
    count = pace.amount(MANY_SESSIONS)
    with _store(home) as store, _runners(store, home, RUNNERS):
        for size in (2 * RUNNERS * SLOTS, count):  # the first ones load what is loaded once
            before = _finished(store)
            began = time.perf_counter()
            for _ in range(size):
                store.queue(NewSession(facts={"directory": str(program)}, input="go"))
            _wait_for_finished(store, before + size)
            stored = time.perf_counter() - began
    room = asyncio.Semaphore(RUNNERS * SLOTS)

    async def one() -> None:
        async with room, WorkerRuntime(directory=program, home=home) as runtime:
            assert (await runtime.run("go")).success

    await one()
    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    filed = time.perf_counter() - began
    return [
        row(
            f"{count} sessions of three calls on {RUNNERS} runners (ms a session)",
            stored / count * 1e3,
            peer=filed / count * 1e3,
            peer_name="the same in one process with file journals",
            goal=at_most(1 / 0.7),
        )
    ]


def _finished(store: Store) -> int:
    """How many there are in the whole store, which is one for all parts of this topic with PostgreSQL."""
    counted = store.counts()
    assert not {"failed", "stopped"} & counted.keys(), counted
    return int(counted.get(FINISHED, 0))


def _wait_for_finished(store: Store, sessions: int) -> None:
    while _finished(store) < sessions:
        time.sleep(LOOK_S)


# ---- a full inbox, and sessions that wait


async def _inbox(home: Path, program: Path, pace: Pace) -> list[Row]:
    many = pace.amount(QUESTIONS)
    seconds, memory = {}, {}
    with _store(home) as store:
        there = 0
        for count in (HARDLY_ANY, FEW, many):
            for number in range(there, count):
                _ask(store, number)
            there = max(there, count)
            if count != FEW:
                memory[count] = _resident(store, home)
            store.questions.rows(limit=FEW)
            began = time.perf_counter()
            for _ in range(20):
                assert len(store.questions.rows(limit=FEW)) == min(FEW, there)
            seconds[count] = (time.perf_counter() - began) / 20
        painted = await _first_paints(store, home, program, pace) if URL == "sqlite" else []
    return [
        row(
            f"the inbox over {many:,} open questions, its first {FEW} (ms)",
            seconds[many] * 1e3,
            peer=seconds[FEW] * 1e3,
            peer_name=f"over {FEW}",
            goal=at_most(3),
        ),
        *painted,
        row(
            f"memory of a runner with {many:,} parked sessions, more than with {HARDLY_ANY} (MB)",
            memory[many] - memory[HARDLY_ANY],
            goal=below(5),
        ),
    ]


async def _first_paints(full: Store, home: Path, program: Path, pace: Pace) -> list[Row]:
    """From the address until Chromium shows the first card, on the pages of two teams in turn."""
    browser = chromium_path()
    if browser is None:
        print("no Chromium here: the first paint of the team's page is not measured", file=sys.stderr)
        return []
    from playwright.async_api import async_playwright

    other = home.with_name("inbox-of-few")
    with _store(other) as few:
        for number in range(FEW):
            _ask(few, number)
        with _page(full, home, program) as (many_link, many_page), _page(few, other, program) as (few_link, few_page):
            async with async_playwright() as playwright:
                arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
                chromium = await playwright.chromium.launch(executable_path=browser, args=arguments)
                windows = {}
                for link, address in ((many_link, many_page), (few_link, few_page)):
                    windows[address] = await (await chromium.new_context()).new_page()
                    await windows[address].goto(link)
                    await windows[address].wait_for_selector("nav")
                times: dict[str, list[float]] = {address: [] for address in windows}
                for _ in range(pace.rounds):
                    for address, window in windows.items():
                        await window.goto("about:blank")
                        await window.goto(f"{address}#/inbox", wait_until="commit")
                        times[address].append(await window.evaluate(_FIRST_CARD))
                await chromium.close()
    return [
        row(
            f"the team's page over {pace.amount(QUESTIONS):,} open questions, until its first card is seen (ms)",
            median(times[many_page]),
            peer=median(times[few_page]),
            peer_name=f"over {FEW}",
            goal=at_most(1.5),
        )
    ]


_FIRST_CARD = """() => new Promise(seen => {
  const look = () => document.querySelector('.inbox-entry')?.getClientRects().length
    ? requestAnimationFrame(() => setTimeout(() => seen(performance.now()), 0))
    : requestAnimationFrame(look);
  look();
})"""
"""Milliseconds since the page was asked for."""


@contextmanager
def _page(store: Store, home: Path, program: Path) -> Iterator[tuple[str, str]]:
    """(a link that logs in, the address) of `forge web --team`."""
    token = add_person(store, "bench", Role.ADMIN)
    words = [sys.executable, "-m", "golem_forge", "web", "--team", "--no-open"]
    environ = {**os.environ, "FORGE_HOME": str(home)}
    server = subprocess.Popen(words, env=environ, cwd=program, text=True, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
        assert found is not None
        yield f"{found[0]}#code={token}", found[0]
    finally:
        server.terminate()
        server.wait(timeout=60)


def _resident(store: Store, home: Path) -> float:
    """Of a runner that has looked at the store: the median of three."""
    found = []
    for _ in range(3):
        with _runners(store, home, 1) as [runner]:
            time.sleep(AT_REST_S)
            status = Path(f"/proc/{runner.pid}/status").read_text()
            found.append(int(status.partition("VmRSS:")[2].split()[0]) / 1024)
    return median(found)


def _ask(store: Store, number: int) -> None:
    lease = _lease(store, {})
    wire = {"requestId": f"{number:032x}", "tool": "write_file", "risk": "medium", "effects": ["write /work/a.txt"]}
    store.questions.ask(lease, wire, kind="approval")
    line = Append(session=lease.id, epoch=lease.epoch, first=1, lines=(b'{"n":1}\n',))
    assert store.leases.park(lease, line, seen=1, waits_for="write_file")
