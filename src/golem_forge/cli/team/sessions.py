"""`forge ps`, `forge stop`, `forge send`: what runs and what waits in the store, its end, and a message for it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from golem_forge.cli.args import read_args
from golem_forge.cli.format import fail, print_columns, print_json
from golem_forge.cli.team import ID_SHOWN, fail_with, open_store
from golem_forge.core.text import one_line, shorten, shorten_prose
from golem_forge.team.database import TeamError
from golem_forge.team.people import TeamStore
from golem_forge.team.projects import no_project
from golem_forge.team.rows import ENDED, FAILED, QUEUED, RUNNING, WAITING, StoredSession

PS_HELP: Final = """usage: forge ps [--all] [--project P] [--json]

Lists the sessions of the store that run or wait, the newest first, and says why sessions of the last hour failed. --all
also lists those that have ended.

      --project P   only sessions of this project; `forge projects list` shows them"""
STOP_HELP: Final = """usage: forge stop ID

Interrupts a session of the store and ends it. Calls that run are ended within a second, wherever the session runs."""
SEND_HELP: Final = """usage: forge send ID MESSAGE…

Queues a message for the next turn of a session of the store."""
_OPEN_STATES: Final = ("queued", "running", "waiting")
_WIDEST: Final = 40
_WIDEST_WAIT: Final = 60
_RECENT_S: Final = 3600
"""How long `forge ps` names a session that failed."""


def run_ps(words: list[str]) -> int:
    given = read_args("ps", PS_HELP, words, "--all", "--project P", "--json")
    try:
        store = open_store()
        now = store.now()
        rows = store.sessions(states=() if given.all else _OPEN_STATES)
        failed = [] if given.all else [row for row in store.sessions(states=(FAILED,)) if now - row.ended < _RECENT_S]
        names = {each.id: each.name for each in store.projects()}
        if given.project is not None:
            wanted = project_named(names, given.project)
            rows, failed = ([row for row in each if row.program == wanted] for each in (rows, failed))
        slots = Slots.read(store) if any(row.state == QUEUED or row.is_woken for row in rows) else Slots([], {})
    except TeamError as error:
        return fail_with("ps", error)
    if given.json:
        print_json([_as_json(row, slots, now) | {"project": names.get(row.program, "")} for row in rows])
        return 0
    if not rows:
        print("no session runs or waits; `forge run --background …` starts one" if not given.all else "no sessions yet")
        _print_failures(failed, now)
        return 0

    several = len({row.program for row in rows}) > 1

    def table() -> Iterator[tuple[str, ...]]:
        head = ("SESSION", "STATE", "WORKER", "PERSON", "RUNNER", "AGE", "COST", "WAITS FOR", "TITLE")
        yield (head[0], "PROJECT", *head[1:]) if several else head
        for row in rows:
            cells = tuple(one_line(cell) for cell in _cells(row, slots, now))
            yield (cells[0], one_line(names.get(row.program, "-")), *cells[1:]) if several else cells

    print_columns(table)
    print_notices(rows)
    _print_failures(failed, now)
    return 0


def _print_failures(rows: Iterable[StoredSession], now: float) -> None:
    """A session that fails at once is in no list of what runs: whoever started it looks here."""
    for row in rows:
        first, *more = row.error.splitlines() or ["no reason was given"]
        print(f"! {row.id[:ID_SHOWN]} failed {age(now - row.ended)} ago: {one_line(first)}")
        for line in more:
            print(f"! {row.id[:ID_SHOWN]}: {one_line(line)}")


def project_named(names: Mapping[str, str], wanted: str) -> str:
    """Its id. Raises TeamError."""
    for id, name in names.items():
        if name.casefold() == wanted.casefold():
            return id
    raise no_project(wanted)


def print_notices(rows: Iterable[StoredSession]) -> None:
    """What a table of sessions has no room for."""
    for row in rows:
        reason = row.error.splitlines() if len(row.error) > _WIDEST_WAIT else []
        for notice in (*reason, *row.notice.splitlines()):
            print(f"! {row.id[:ID_SHOWN]}: {one_line(notice)}")


def _cells(row: StoredSession, slots: Slots, now: float) -> tuple[str, ...]:
    return (
        row.id[:ID_SHOWN],
        row.shown_state,
        row.worker or "-",
        row.person or "-",
        row.runner[:8] or "-",
        age(now - row.created),
        f"${row.cost:.4f}" if row.cost else "-",
        shorten_prose(slots.waits_for(row) or row.error, _WIDEST_WAIT) or "-",
        shorten(row.title, _WIDEST),
    )


class Slots(NamedTuple):
    """Which runners there are, and which have no room: what keeps a session that could go on."""

    runners: list[dict[str, Any]]
    busy: Mapping[str, int]
    running: Sequence[StoredSession] = ()

    @classmethod
    def read(cls, store: TeamStore) -> Slots:
        runners = [each for each in store.runners() if not each.get("draining")]
        held = store.sessions(states=(RUNNING, WAITING)) if runners else []
        return cls(runners, Counter(row.runner for row in held if row.runner), [r for r in held if r.state == RUNNING])

    def waits_for(self, row: StoredSession) -> str:
        if row.state != QUEUED and not row.is_woken:
            return row.waits_for
        came = f" ({row.what_came})" if row.is_woken else ""
        fitting = [each for each in self.runners if row.label in ("", *each["labels"]) and _takes_project(each, row)]
        wanted = f"a runner with the label {row.label}" if row.label else "a runner"
        if not fitting:
            return f"{wanted}: there is none{came}"
        if all(self.busy.get(each["id"], 0) >= each["slots"] for each in fitting):
            full = f"the runners with {row.label} are full" if row.label else "all runners are full"
            return f"a free slot: {full}{came}"
        if all(limits := [self._limit(row, each) for each in fitting]):
            return f"{limits[0]}{came}"
        return row.shown_wait or wanted

    def _limit(self, row: StoredSession, runner: Mapping[str, Any]) -> str:
        """Which limit of this runner keeps the session; empty: none."""
        offers = runner.get("offers")
        limits = offers.get("limits") if isinstance(offers, Mapping) else None
        for name, column, whose in (("per_person", "person", row.person), ("per_program", "program", "this program")):
            most = limits.get(name) if isinstance(limits, Mapping) else None
            mine = getattr(row, column)
            count = sum(getattr(each, column) == mine for each in self.running) if mine else 0
            if isinstance(most, int) and 0 < most <= count:
                return f"store.limits.{name} ({most}): {count} of {whose} run now"
        return ""


def _takes_project(runner: Mapping[str, Any], row: StoredSession) -> bool:
    offers = runner.get("offers")
    projects = offers.get("projects") if isinstance(offers, Mapping) else None
    return not isinstance(projects, list) or not projects or row.program in projects


def _as_json(row: StoredSession, slots: Slots, now: float) -> dict[str, Any]:
    return {
        "session": row.id,
        "state": row.state,
        "held": bool(row.held),
        "worker": row.worker,
        "person": row.person,
        "runner": row.runner,
        "ageSeconds": round(now - row.created, 3),
        "cost": row.cost,
        "waitsFor": slots.waits_for(row),
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
