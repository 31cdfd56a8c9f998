"""Schedules: sessions that start by the clock. `forge schedule`.

`Cron` reads the five fields of cron (numbers, names, ranges, lists, steps, `@daily` …) in a time zone and says when the
next tick is. `Schedules` keeps the rows. Every runner calls `start_due` in its sweep; the database's clock and one
unique row for each schedule and tick decide, so that two runners start a tick once and a clock that is set back starts
nothing twice. Of ticks that nobody was there for, only the latest is started. A tick is skipped while the session of
the last one has not ended; the row's `note` says so.

Changes of summer time: a schedule for every hour follows real hours. Any other one starts once for each time of day: at
the first of two, and as much later as the clocks skip for a time that does not exist on that day.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import one_line
from golem_forge.team.database import Database, StoreConnection, TeamError
from golem_forge.team.projects import MAY_START, role_in
from golem_forge.team.quotas import check_start
from golem_forge.team.rows import CHANNEL, ENDED, NewSession

DOOR: Final = "schedule"
MOST_SCHEDULES: Final = 1000
TICKS_KEPT_S: Final = 7 * 86400.0
_MAX_CRON: Final = 200
_NAME: Final = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NICKNAMES: Final = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_MONTHS: Final = ("", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    ("minute", 0, 59, ()), ("hour", 0, 23, ()), ("day of the month", 1, 31, ()), ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _WEEKDAYS),
)  # fmt: skip
_MOST_DAYS: Final = 9 * 366
"""29 February occurs at least once in this many days."""
_WINDOWS: Final = (3600.0, 86400.0, 32 * 86400.0, 367 * 86400.0, _MOST_DAYS * 86400.0)


# ---- cron


class Cron:
    """Five fields in a time zone. Raises TeamError (`SCHEDULE`) for what is not cron, and for what never comes."""

    def __init__(self, text: str, zone: tzinfo = UTC) -> None:
        shown = one_line(text)[:60]
        parts = _NICKNAMES.get(text.strip().lower(), text).split() if len(text) <= _MAX_CRON else []
        if len(parts) != len(_FIELDS):
            raise _not_cron(
                f"{shown!r} is not five fields (minute hour day-of-month month day-of-week) and not one of "
                f"{', '.join(_NICKNAMES)}"
            )
        fields = [_read_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)]
        self._minutes, self._hours, self._days, self._months = map(frozenset, fields[:4])
        self._weekdays = frozenset(day % 7 for day in fields[4])
        self._either_day = not parts[2].startswith("*") and not parts[4].startswith("*")
        self._every_hour = len(self._hours) == 24
        self._zone = zone
        if not any(self._is_on(date(2000, 1, 1) + timedelta(days=number)) for number in range(_MOST_DAYS)):
            raise _not_cron(f"{shown!r} names a day that never comes")

    def next(self, after: float) -> float:
        """The first tick later than this moment, both in seconds since 1970."""
        return self._next_minute(after) if self._every_hour else self._next_time(after)

    def latest(self, now: float, at_least: float) -> float:
        """The last tick that is not later than now; `at_least` is one that is not."""
        tick = next((each for span in _WINDOWS if (each := self.next(now - span)) <= now), at_least)
        tick = max(tick, at_least)
        while (following := self.next(tick)) <= now:
            tick = following
        return tick

    def _next_minute(self, after: float) -> float:
        moment = (after // 60 + 1) * 60
        while True:
            local = datetime.fromtimestamp(moment, self._zone)
            if not self._is_on(local.date()):
                moment += (60 - local.minute) * 60
            elif local.minute not in self._minutes:
                moment += 60
            else:
                return moment

    def _next_time(self, after: float) -> float:
        """Returns the next time. Adjacent days are checked too: where clocks skip midnight, a time of one day falls on
        the next.
        """
        first = datetime.fromtimestamp(after, self._zone).date() - timedelta(days=1)
        found: float | None = None
        number = 0
        while found is None or number <= 2:
            day = first + timedelta(days=number)
            if self._is_on(day):
                times = (
                    datetime(day.year, day.month, day.day, hour, minute, tzinfo=self._zone).timestamp()
                    for hour in self._hours
                    for minute in self._minutes
                )
                found = min((each for each in times if each > after and (found is None or each < found)), default=found)
            number += 1
        return found

    def _is_on(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        in_month, in_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return in_month or in_week if self._either_day else in_month and in_week


def _read_field(text: str, name: str, least: int, most: int, names: tuple[str, ...]) -> set[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        begin = least if span == "*" else _number(first, names)
        end = most if span == "*" or (slash and not dash) else _number(last, names) if dash else begin
        if names is _WEEKDAYS and begin and last in ("sun", "0"):
            end = 7
        every = _number(step, ()) if slash else 1
        if begin is None or end is None or not every or not least <= begin <= end <= most:
            words = f" or a name like {names[1]}" if names else ""
            raise _not_cron(
                f"{one_line(part)[:40]!r} is no {name}: use numbers from {least} to {most}{words}, "
                "ranges 1-5, lists 1,3 and steps */2"
            )
        found.update(range(begin, end + 1, every))
    return found


def _number(text: str, names: tuple[str, ...]) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 4:
        return int(text)
    return names.index(text) if text and text in names else None


def _not_cron(why: str) -> TeamError:
    return TeamError(f"the schedule cannot be read: {why}", "SCHEDULE")


def read_zone(name: str) -> tzinfo:
    """`UTC`, or a name like Europe/Berlin. Raises TeamError."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise TeamError(
            f"no time zone {one_line(name)[:60]!r} is known here: write it like Europe/Berlin, or UTC", "SCHEDULE"
        ) from None


# ---- rows


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    cron: str
    session: NewSession
    """The session that is queued at every tick."""
    name: str = ""
    """If empty, a name is generated."""
    timezone: str = "UTC"
    by_role: bool = False
    """A person of the team added it: it starts nothing once they may not start sessions any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule without fields that may hold host paths."""

    id: str
    name: str
    cron: str
    timezone: str
    person: str
    by_role: int
    """1 if a person of the team added it."""
    title: str
    worker: str
    label: str
    program: str
    created: float
    last_tick: float
    """0 if there was none yet."""
    next_tick: float
    last_session: str
    note: str
    """A notice about the last tick."""
    last_state: str
    """The state of the last session; empty if there was none, or it was pruned."""


_COLUMNS: Final = (
    "id", "name", "cron", "timezone", "person", "by_role", "title", "worker", "label", "program", "created",
    "last_tick", "next_tick", "last_session", "note",
)  # fmt: skip
_SELECTED: Final = (
    f"{', '.join(_COLUMNS)}, COALESCE((SELECT s.state FROM sessions s WHERE s.id = schedules.last_session), '')"
)


def _to_schedule(row: Iterable[Any]) -> Schedule:
    return Schedule(**dict(zip((*_COLUMNS, "last_state"), row, strict=True)))


class Schedules:
    def __init__(
        self,
        database: Database,
        queue: Callable[[StoreConnection, NewSession, str], None],
        redact: Callable[[str], str] = str,
    ) -> None:
        """`queue`: puts a session into the queue, within a transaction. `redact`: takes secrets out of what is kept."""
        self.database = database
        self._queue = queue
        self._redact = redact

    def add(self, new: NewSchedule) -> str:
        """Adds a schedule and returns its name. Raises TeamError."""
        name = new.name or new_id()[:8]
        if _NAME.fullmatch(name) is None:
            raise TeamError(
                f"{one_line(name)[:80]!r} cannot name a schedule: use up to 64 letters, digits, dots and dashes",
                "SCHEDULE",
            )
        cron = Cron(new.cron, read_zone(new.timezone))
        if new.session.mode != "single":
            raise TeamError(
                f"worker {one_line(new.session.worker)} is a conversation (mode: chat), which never ends by itself; a "
                "schedule needs a worker with mode: single",
                "SCHEDULE",
            )
        session = {each: getattr(new.session, each) for each in NewSession.__slots__}
        session |= {each: self._redact(session[each]) for each in ("title", "input")}
        values = {
            "id": new_id(),
            "name": name,
            "cron": " ".join(new.cron.split()),
            "timezone": new.timezone,
            "person": new.session.person,
            "by_role": int(new.by_role),
            "title": session["title"],
            "worker": new.session.worker,
            "label": new.session.label,
            "program": new.session.program,
            "session": json.dumps(session | {"facts": dict(new.session.facts)}),
        }
        with self.database.transaction() as connection:
            connection.lock("schedules")
            [there] = connection.execute("SELECT count(*) FROM schedules").fetchone()
            if there >= MOST_SCHEDULES:
                raise TeamError(f"the store has {there} schedules, and takes no more; remove some", "SCHEDULE")
            [now] = connection.execute("SELECT @now").fetchone()
            added = connection.execute(
                "INSERT INTO schedules (id, name, cron, timezone, person, by_role, title, worker, label, program, "
                "session, created, next_tick) VALUES (:id, :name, :cron, :timezone, :person, :by_role, :title, "
                ":worker, :label, :program, :session, :now, :next) ON CONFLICT DO NOTHING",
                {**values, "now": now, "next": cron.next(now)},
            ).rowcount
        if not added:
            raise TeamError(f"there is a schedule {name!r} already; `forge schedule remove {name}` first", "SCHEDULE")
        return name

    def all(self) -> list[Schedule]:
        """Returns the schedules, sorted by name."""
        rows = self.database.read(f"SELECT {_SELECTED} FROM schedules ORDER BY name")
        return [_to_schedule(row) for row in rows]

    def find(self, name: str) -> Schedule:
        for each in self.all():
            if each.name == name:
                return each
        raise no_schedule(name)

    def remove(self, name: str) -> None:
        """Sessions that it started go on. Raises TeamError where there is none."""
        found = self.find(name)
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM schedules WHERE id = :id", {"id": found.id})
            connection.execute("DELETE FROM ticks WHERE schedule = :id", {"id": found.id})
            connection.notify(CHANNEL, "")

    # ---- by the clock

    def start_due(self) -> list[str]:
        """Queues the sessions whose time has come. Gives a sentence for each tick that was skipped, for a log."""
        due = self.database.read("SELECT id FROM schedules WHERE next_tick <= @now ORDER BY next_tick LIMIT 100")
        told = (self._start(schedule_id) for (schedule_id,) in due)
        return [each for each in told if each]

    def _start(self, schedule_id: str) -> str:
        with self.database.transaction() as connection:
            row = connection.execute(
                f"SELECT session, @now, {_SELECTED} FROM schedules WHERE id = :id AND next_tick <= @now @update",
                {"id": schedule_id},
            ).fetchone()
            if row is None:
                return ""  # another runner was faster
            kept, now, *rest = row
            schedule = _to_schedule(rest)
            try:
                cron = Cron(schedule.cron, read_zone(schedule.timezone))
            except TeamError as error:  # another runner may know the zone
                return self._note(connection, schedule, error.message)
            tick = cron.latest(now, schedule.next_tick)
            problem = self._problem(connection, schedule)
            session_id = "" if problem else new_id()
            is_new = connection.execute(
                "INSERT INTO ticks (schedule, tick, session) VALUES (:id, :tick, :session) ON CONFLICT DO NOTHING",
                {"id": schedule.id, "tick": tick, "session": session_id},
            ).rowcount
            started = bool(is_new and session_id)
            if started:
                session = NewSession(**{**json.loads(kept), "person": schedule.person, "door": DOOR})
                self._queue(connection, session, session_id)
            said = f"skipped the tick of {moment(tick)}: {problem}" if problem else ""
            if started and tick > schedule.next_tick:
                missed = moment(schedule.next_tick)
                said = f"started only the latest tick, {moment(tick)}: no runner was there from {missed} on"
            connection.execute(
                "UPDATE schedules SET last_tick = :tick, next_tick = :next, last_session = :session, note = :note "
                "WHERE id = :id",
                {
                    "tick": tick,
                    "next": cron.next(now),
                    "session": session_id if started else schedule.last_session,
                    "note": said,
                    "id": schedule.id,
                },
            )
            connection.execute(
                "DELETE FROM ticks WHERE schedule = :id AND tick < :oldest",
                {"id": schedule.id, "oldest": tick - TICKS_KEPT_S},
            )
        return f"schedule {schedule.name} {said}" if said else ""

    def _problem(self, connection: StoreConnection, schedule: Schedule) -> str:
        """Returns why nothing may start now; empty if it may."""
        if schedule.last_state and schedule.last_state not in ENDED:
            return f"session {schedule.last_session[:12]} of an earlier tick has not ended"
        if schedule.by_role and role_in(connection, schedule.person, schedule.program) not in MAY_START:
            return f"{schedule.person} may not start sessions any more"
        try:
            check_start(connection, schedule.program, schedule.person)
        except TeamError as error:
            return error.message
        return ""

    def _note(self, connection: StoreConnection, schedule: Schedule, said: str) -> str:
        """Stores a note. Returns it only if it is new."""
        if schedule.note == said:
            return ""
        connection.execute("UPDATE schedules SET note = :note WHERE id = :id", {"note": said, "id": schedule.id})
        return f"schedule {schedule.name}: {said}"


def no_schedule(name: str) -> TeamError:
    return TeamError(f"no schedule {one_line(name)[:80]!r}; `forge schedule list` shows them", "SCHEDULE_NOT_FOUND")


def moment(seconds: float, timezone: str = "UTC") -> str:
    """Formats a time: `2026-03-01 07:00 UTC`."""
    return datetime.fromtimestamp(seconds, read_zone(timezone)).strftime("%Y-%m-%d %H:%M %Z")
