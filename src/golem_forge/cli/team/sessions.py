"""`forge ps`, `forge stop`, `forge send`: what runs and what waits in the store, its end, and a message for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from golem_forge.cli.args import read_args
from golem_forge.cli.format import fail, print_columns, print_json
from golem_forge.cli.team import ID_SHOWN, fail_with, open_store
from golem_forge.core.text import one_line, shorten
from golem_forge.team.database import TeamError
from golem_forge.team.rows import ENDED, QUEUED, StoredSession

PS_HELP: Final = """usage: forge ps [--all] [--json]

Lists the sessions of the store that run or wait, the newest first. --all also lists those that have ended."""
STOP_HELP: Final = """usage: forge stop ID

Interrupts a session of the store and ends it. Calls that run are ended within a second, wherever the session runs."""
SEND_HELP: Final = """usage: forge send ID MESSAGE…

Queues a message for the next turn of a session of the store."""
_OPEN_STATES: Final = ("queued", "running", "waiting")
_WIDEST: Final = 40


def run_ps(words: list[str]) -> int:
    given = read_args("ps", PS_HELP, words, "--all", "--json")
    try:
        store = open_store()
        now = store.now()
        rows = store.sessions(states=() if given.all else _OPEN_STATES)
    except TeamError as error:
        return fail_with("ps", error)
    if given.json:
        print_json([_as_json(row, now) for row in rows])
        return 0
    if not rows:
        print("no session runs or waits; `forge run --background …` starts one" if not given.all else "no sessions yet")
        return 0

    def table() -> Iterator[tuple[str, ...]]:
        yield ("SESSION", "STATE", "WORKER", "PERSON", "RUNNER", "AGE", "COST", "WAITS FOR", "TITLE")
        for row in rows:
            yield tuple(one_line(cell) for cell in _cells(row, now))

    print_columns(table)
    for row in rows:
        if row.notice:
            print(f"! {row.id[:ID_SHOWN]}: {one_line(row.notice)}")
    return 0


def _cells(row: StoredSession, now: float) -> tuple[str, ...]:
    return (
        row.id[:ID_SHOWN],
        row.shown_state,
        row.worker or "-",
        row.person or "-",
        row.runner[:8] or "-",
        age(now - row.created),
        f"${row.cost:.4f}" if row.cost else "-",
        shorten(_waits_for(row), _WIDEST) or "-",
        shorten(row.title, _WIDEST),
    )


def _waits_for(row: StoredSession) -> str:
    if row.state == QUEUED:
        return f"a runner with {row.label}" if row.label else "a runner"
    return row.waits_for or row.error


def _as_json(row: StoredSession, now: float) -> dict[str, Any]:
    return {
        "session": row.id,
        "state": row.state,
        "held": bool(row.held),
        "worker": row.worker,
        "person": row.person,
        "runner": row.runner,
        "ageSeconds": round(now - row.created, 3),
        "cost": row.cost,
        "waitsFor": row.waits_for,
        "title": row.title,
        "result": row.result,
        "error": row.error,
        "notice": row.notice,
    }


def age(seconds: float) -> str:
    """`45s`, `12m`, `3h`, `2d`"""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def run_stop(words: list[str]) -> int:
    given = read_args("stop", STOP_HELP, words, "ID")
    try:
        store = open_store()
        row = store.find(given.id)
        before = store.stop(row.id)
        if before in ENDED:
            return fail("stop", f"session {row.id[:ID_SHOWN]} has ended already ({before})", 1)
        until = time.monotonic() + 10
        while store.find(row.id).state not in ENDED and time.monotonic() < until:
            time.sleep(0.05)
        state = store.find(row.id).state
    except TeamError as error:
        return fail_with("stop", error)
    print(f"{row.id[:ID_SHOWN]} {state if state in ENDED else 'is told to stop'}")
    return 0


def run_send(words: list[str]) -> int:
    given = read_args("send", SEND_HELP, words, "ID", "message:MESSAGE+")
    try:
        store = open_store()
        row = store.find(given.id)
        store.send(row.id, "message", {"text": " ".join(given.message)})
    except TeamError as error:
        return fail_with("send", error)
    print(f"{row.id[:ID_SHOWN]} gets it as its next message")
    return 0
