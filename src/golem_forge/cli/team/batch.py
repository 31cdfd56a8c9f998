"""`forge batch FILE` starts a background session for each line of a file; `forge schedule` starts them by the clock.

A line of a batch is the input of a session; a line that begins with `{` is an object `{input, worker, workspace}`. A
line that cannot be started is named, and the others start. The command waits until all have ended, then prints a table
of their results; whoever leaves it leaves them running. Sessions know their batch and the digest of their line, so that
`--resume` starts only lines that have none.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.trust import NotTrusted
from golem_forge.cli.command import fail, print_columns, print_json, read_args
from golem_forge.cli.run import RunArgs
from golem_forge.cli.team import ID_SHOWN, fail_start, open_store, store_settings
from golem_forge.cli.team.background import ensure_runner, new_session, remote_session
from golem_forge.cli.team.sessions import print_notices
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import columns, escape_control_chars, nearest_hint, one_line, shorten, shorten_prose
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.people import TeamStore
from golem_forge.team.rows import ENDED, FINISHED, QUEUED, RUNNING, WAITING, NewSession, StoredSession
from golem_forge.team.schedules import Cron, NewSchedule, Schedule, moment
from golem_forge.team.session_workspace import NO_WORKSPACE
from golem_forge.team.workspace import Workspace, read_workspace
from golem_forge.ui.session_ui import INTERRUPTED

HELP: Final = """usage: forge batch FILE [--parallel N] [--resume BATCH]

Queues one session for each line of FILE (`-`: standard input) and waits until all have ended. A line is the input. A
line that begins with { is a JSON object: {"input": "…", "worker": "NAME", "workspace": {"git": "…", "ref": "…"}}. Then
it prints a table of the results. Ctrl-C leaves the sessions running.

      --parallel N          so many at once; those that wait for an answer do not count (default: all)
      --resume BATCH        start only the lines of FILE that have no session in this batch: those that could not be
                            read, or that Ctrl-C left; a session that failed is not started again
  -p, --program DIR         the program of that directory
  -m, --model PROVIDER:NAME the model of all sessions
  -a, --approval MODE       interactive, strict, contained, plan, approve_all or auto_deny
      --set KEY.PATH=VALUE  a value of forge.yaml for all sessions (repeat for more)
      --label L             only runners with this label take them
      --priority N          from -10 (last) to 10 (first) among those that wait for a runner (default: 0)
      --no-runner           start no runner on this machine
      --json                the results as JSON

Exit: 0 all finished, 1 some did not or could not be started, 2 usage or configuration, 130 left by Ctrl-C."""
_KEYS: Final = ("input", "worker", "workspace")
_MOST_BYTES: Final = 32 << 20
_MOST_LINES: Final = 10_000
_LOOK_S: Final = 0.2
_WIDEST: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    number: int
    input: str
    worker: str = ""
    workspace: Workspace | None = None

    @property
    def digest(self) -> str:
        """The digest of its content, by which a session is found again."""
        return sha256(repr((self.input, self.worker, self.workspace)).encode()).hexdigest()[:12]


def run_batch(words: list[str]) -> int:
    given = read_args(
        "batch",
        HELP,
        words,
        *("FILE", "--parallel N", "-p,--program DIR", "-m,--model NAME", "-a,--approval MODE", "--set PAIR…"),
        *("--label L", "--priority N", "--resume BATCH", "--no-runner", "--json"),
    )
    if given.parallel is not None and given.parallel < 1:
        return fail("batch", "--parallel takes a number from 1 on", 2)
    if given.resume == "":  # an unset variable must not start every line anew
        return fail("batch", "--resume takes the id of a batch", 2)
    asked = RunArgs(
        directory=Path(given.program or Path.cwd()),
        model=given.model,
        approval=given.approval,
        overrides=given.set,
        label=given.label or "",
        priority=given.priority or 0,
        background=True,
    )
    try:
        lines, problems = read_lines(_text_of(given.file), Path.cwd())
        settings = store_settings(asked.overrides, asked.directory)
        store = open_store(settings)
        queued = _sessions(lines, problems, asked, elsewhere=settings.is_remote)
        batch = Batch(store, given.resume or new_id()[:ID_SHOWN], queued)
        if given.resume:
            batch.resume()
        for problem in problems:
            print(f"forge batch: {escape_control_chars(problem)}", file=sys.stderr)
        label = None if given.no_runner or settings.is_remote else queued[0][1].label
        code = batch.run(given.parallel or len(lines), label, as_json=given.json)
        left = len(problems) + len(batch.refused)
        if left and code != INTERRUPTED:
            when = "When that is settled:" if batch.refused else "Correct it in the file, then:"
            again = f"{when} forge batch {given.file} --resume {batch.id}"
            print(f"{left} {'line was' if left == 1 else 'lines were'} not started. {again}", file=sys.stderr)
        return code or (1 if left else 0)
    except (ConfigError, NotTrusted, ForgeError) as error:
        return fail_start("batch", error)


def _text_of(name: str) -> str:
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror})") from None
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{name}: a batch is at most {_MOST_BYTES >> 20} MiB long")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: is not text in UTF-8") from None


def read_lines(text: str, folder: Path) -> tuple[list[BatchLine], list[str]]:
    """(the lines that can be read, what is wrong with each of the others). Raises ConfigError where none can be.
    `folder`: where a relative path of a workspace begins."""
    found: list[BatchLine] = []
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(_read_line(number, line.strip(), folder))
        except ConfigError as error:
            problems.append("; ".join(error.problems))
    if not found:
        raise ConfigError(*(problems or ["the file has no line: write one input a line"]))
    if len(found) > _MOST_LINES:
        raise ConfigError(f"a batch has at most {_MOST_LINES} sessions, this one {len(found)}")
    return found, problems


def _read_line(number: int, line: str, folder: Path) -> BatchLine:
    if not line.startswith("{"):
        return BatchLine(number=number, input=line)
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ConfigError(f"line {number}: is not a JSON object; a line that begins with {{ must be one") from None
    problems = [
        f"line {number}: unknown key {one_line(str(key))!r}{nearest_hint(key, _KEYS)}"
        for key in value
        if key not in _KEYS
    ]
    if not isinstance(value.get("input"), str) or not value["input"].strip():
        problems.append(f"line {number}: `input` is missing, or is not text")
    if not isinstance(value.get("worker", ""), str):
        problems.append(f"line {number}: `worker` is not the name of a worker")
    workspace = NO_WORKSPACE if "workspace" in value else None
    if value.get("workspace") is not None:
        try:
            workspace = read_workspace(value["workspace"], where=f"line {number}: workspace", folder=folder)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return BatchLine(number=number, input=value["input"], worker=value.get("worker", ""), workspace=workspace)


def _sessions(
    lines: list[BatchLine], problems: list[str], asked: RunArgs, *, elsewhere: bool
) -> list[tuple[BatchLine, NewSession]]:
    """Returns the sessions to queue; each worker is checked once. A line whose worker or workspace cannot be started is
    added to `problems`. Raises what a start would refuse, if no line could start. `elsewhere`: a team's server checks
    them.
    """
    known: dict[tuple[str, Workspace | None], NewSession | ConfigError] = {}
    sessions = []
    for line in lines:
        key = (line.worker, line.workspace)
        if key not in known:
            known[key] = _session(replace(asked, worker=line.worker or None, workspace=line.workspace), line, elsewhere)
        new = known[key]
        if isinstance(new, ConfigError):
            said = "; ".join(new.problems)
            problems.append(said if said.startswith("line ") else f"line {line.number}: {said}")
        else:
            sessions.append((line, replace(new, input=line.input, title=shorten(one_line(line.input), 200))))
    if not sessions:
        raise next(each for each in known.values() if isinstance(each, ConfigError))
    return sessions


def _session(asked: RunArgs, line: BatchLine, elsewhere: bool) -> NewSession | ConfigError:
    one = replace(asked, input=line.input)
    try:
        new = remote_session(one) if elsewhere else new_session(one, in_batch=True)
    except ConfigError as error:
        return error
    if new.mode == "single":
        return new
    words = f"line {line.number}: worker {new.worker} is a conversation (mode: chat), which never ends by itself"
    return ConfigError(f"{words}; a batch needs workers with mode: single")


class Batch:
    def __init__(self, store: TeamStore, id: str, sessions: list[tuple[BatchLine, NewSession]]) -> None:
        self.id = id
        self._store = store
        self._lines = [line for line, _ in sessions]
        self._waiting = [(line, replace(new, batch=f"{id}.{line.digest}")) for line, new in sessions]
        self._ids: dict[int, str] = {}
        """By the number of the line."""
        self.refused: list[tuple[BatchLine, TeamError]] = []
        """Lines that the store did not take."""
        self._told = ""

    def resume(self) -> None:
        """Lines that have a session keep it. Raises TeamError where there is no such batch."""
        rows = self._store.sessions(batch=self.id, limit=_MOST_LINES)
        if not rows:
            raise TeamError(f"no session of the batch {one_line(self.id)!r} is in the store", "SESSION_NOT_FOUND")
        self._take(rows)

    def _take(self, rows: Iterable[StoredSession]) -> None:
        """Lines whose session is among these and no other line's do not wait any more."""
        known, started = set(self._ids.values()), dict[str, list[str]]()
        for row in rows:
            if row.id not in known:
                started.setdefault(row.batch.rpartition(".")[2], []).append(row.id)
        left = []
        for line, new in self._waiting:
            if started.get(line.digest):
                self._ids[line.number] = started[line.digest].pop()
            else:
                left.append((line, new))
        self._waiting = left

    def run(self, parallel: int, label: str | None, *, as_json: bool) -> int:
        """`label`: of the runner that is started if none is there; None: none is started."""
        try:
            self._queue(parallel, self._rows() if self._ids else {})
            if not self._ids:  # none was taken at all
                raise self.refused[0][1]
            if label is not None and (note := ensure_runner(self._store, label)):
                print(note, file=sys.stderr)
            while True:
                rows = self._rows()
                self._take(rows.values())
                if not self._waiting and all(row.state in ENDED for row in rows.values()):
                    break
                self._queue(parallel, rows)
                self._tell(rows)
                time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            count = len(self._waiting) + len(self.refused)
            left = f"; {count} lines were not queued (--resume {self.id})" if count else ""
            print(f"\nThe sessions go on in the background{left}. `forge ps` shows them.", file=sys.stderr)
            return INTERRUPTED
        found = [(line, rows[self._ids[line.number]]) for line in self._lines if line.number in self._ids]
        if as_json:
            print_json([_line_json(line, row) for line, row in found])
        else:
            print_columns(lambda: _table(found))
            print_notices([row for _, row in found])
        return 0 if all(row.state == FINISHED for _, row in found) else 1

    def _queue(self, parallel: int, rows: Mapping[str, StoredSession]) -> None:
        busy = sum(row.state in (QUEUED, RUNNING) or bool(row.held) for row in rows.values())
        while self._waiting and busy < parallel:
            line, new = self._waiting[0]
            try:
                self._ids[line.number] = self._store.queue(new)
            except StoreUnavailable as error:
                if not self._ids:
                    raise
                self._say(error.message)
                return  # the rows will tell whether it was queued
            except TeamError as error:
                self._refuse(line, error)
                continue
            del self._waiting[0]
            busy += 1

    def _refuse(self, line: BatchLine, error: TeamError) -> None:
        """The others go on. After two refusals with the same words no further line of that worker is tried: a quota
        that is used up refuses all of them."""
        key = (line.worker, line.workspace, error.message)
        again = any((each.worker, each.workspace, why.message) == key for each, why in self.refused)
        alike = (each for each, _ in self._waiting if again and (each.worker, each.workspace) == key[:2])
        lines = [line, *(each for each in alike if each is not line)]
        self.refused += [(each, error) for each in lines]
        gone = {each.number for each in lines}
        self._waiting = [each for each in self._waiting if each[0].number not in gone]
        more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
        self._say(f"forge batch: line {line.number}{more}: {escape_control_chars(error.message)}")

    def _rows(self) -> dict[str, StoredSession]:
        while True:
            try:
                return {row.id: row for row in self._store.sessions(batch=self.id, limit=_MOST_LINES)}
            except StoreUnavailable as error:
                self._say(error.message)
                time.sleep(1.0)

    def _tell(self, rows: Mapping[str, StoredSession]) -> None:
        ended = sum(row.state in ENDED for row in rows.values())
        woken = sum(row.is_woken for row in rows.values())
        asking = sum(row.state == WAITING for row in rows.values()) - woken
        wait = f", {asking} {'waits' if asking == 1 else 'wait'} for an answer (`forge inbox`)" if asking else ""
        if woken:
            wait += f", {woken} {'was answered and waits' if woken == 1 else 'were answered and wait'} for a free slot"
        self._say(f"{ended} of {len(self._lines)} ended{wait}")

    def _say(self, text: str) -> None:
        if text != self._told:
            self._told = text
            print(text, file=sys.stderr, flush=True)


def _table(found: list[tuple[BatchLine, StoredSession]]) -> Iterator[tuple[str, ...]]:
    yield ("LINE", "SESSION", "STATE", "COST", "INPUT", "RESULT")
    for line, row in found:
        yield (
            str(line.number),
            row.id[:ID_SHOWN],
            row.state,
            f"${row.cost:.4f}" if row.cost else "-",
            shorten(one_line(line.input), _WIDEST // 2),
            shorten_prose(one_line(row.error or row.result), _WIDEST),
        )


def _line_json(line: BatchLine, row: StoredSession) -> dict[str, Any]:
    return {
        "line": line.number,
        "session": row.id,
        "state": row.state,
        "worker": row.worker,
        "input": line.input,
        "result": row.result,
        "error": row.error,
        "notice": row.notice,
        "cost": row.cost,
    }


SCHEDULE_HELP: Final = """usage: forge schedule add CRON TASK… [--name NAME] [--timezone ZONE]
       forge schedule list [--json]
       forge schedule remove NAME

  add     from now on a runner starts a session with this task whenever CRON says so
  list    all schedules: when each one starts next, its last session, and why a tick was skipped
  remove  starts no more; sessions that run go on

CRON is five fields: minute, hour, day of the month, month, day of the week ("30 7 * * mon-fri"), or @hourly, @daily,
@weekly, @monthly, @yearly. Times are UTC, or those of --timezone.

      --name NAME           how `list` and `remove` call it
      --timezone ZONE       like Europe/Berlin
      --worker NAME         the worker that does it (default: the entry of the program)
  -p, --program DIR         the program of that directory
  -m, --model PROVIDER:NAME the model
  -a, --approval MODE       interactive, strict, contained, plan, approve_all or auto_deny
      --set KEY.PATH=VALUE  a value of forge.yaml for its sessions (repeat for more)
      --label L             only runners with this label take them
      --priority N          from -10 (last) to 10 (first) among those that wait for a runner
      --workspace GIT[@REF] each session works in a clone of its own of this repository (address or path)
      --json                for programs (list)

A tick is skipped while the session of an earlier tick has not ended. After a time without a runner only the latest
tick is started."""
_VERBS: Final = {"add": "add CRON TASK…", "list": "list [--json]", "remove": "remove NAME"}
_ADD_ONLY: Final = (
    *("name", "timezone", "worker", "program", "model", "approval", "set", "label", "priority", "workspace"),
)


def run_schedule(words: list[str]) -> int:
    given = read_args(
        *("schedule", SCHEDULE_HELP, words),
        *("VERB", "rest:WORD*", "--name NAME", "--timezone ZONE", "--worker NAME", "-p,--program DIR"),
        *("-m,--model NAME", "-a,--approval MODE", "--set PAIR…", "--label L", "--priority N", "--workspace GIT"),
        "--json",
    )
    if problem := _usage_problem(given):
        return fail("schedule", f"{problem}. `forge schedule --help` says more.", 2)
    try:
        if given.verb == "add":
            _add(given)
        elif given.verb == "list":
            _list(open_store(), given.json)
        else:
            open_store().remove_schedule(given.rest[0])
            print(f"{one_line(given.rest[0])} starts no more sessions")
    except (ConfigError, NotTrusted, ForgeError) as error:
        return fail_start("schedule", error)
    return 0


def _usage_problem(given: Any) -> str:
    verb, number = given.verb, len(given.rest)
    if verb not in _VERBS:
        return f"unknown verb {one_line(verb)!r}; use {', '.join(_VERBS)}"
    if not {"add": number > 1, "list": number == 0, "remove": number == 1}[verb]:
        return f"write it as `forge schedule {_VERBS[verb]}`"
    unfit = [name for name in _ADD_ONLY if getattr(given, name)] if verb != "add" else []
    return f"--{unfit[0]} belongs to `add`" if unfit else ""


def _add(given: Any) -> None:
    asked = RunArgs(
        directory=Path(given.program or Path.cwd()),
        worker=given.worker,
        input=" ".join(given.rest[1:]),
        model=given.model,
        approval=given.approval,
        overrides=given.set,
        label=given.label or "",
        priority=given.priority or 0,
        workspace=given.workspace,
        background=True,
    )
    Cron(given.rest[0])  # a mistake in it is told before anything else is looked at
    settings = store_settings(asked.overrides, asked.directory)
    store = open_store(settings)
    name = store.add_schedule(
        NewSchedule(
            cron=given.rest[0],
            session=remote_session(asked) if settings.is_remote else new_session(asked, in_batch=True),
            name=given.name or "",
            timezone=given.timezone or "UTC",
        )
    )
    added = next(each for each in store.schedules() if each.name == name)
    print(f"{name} starts next at {_moment(added.next_tick, added.timezone)}")
    print("It starts while a runner runs for this store; `forge runner` is one that stays.")


def _list(store: TeamStore, as_json: bool) -> None:
    found = store.schedules()
    if as_json:
        print_json([_schedule_json(each) for each in found])
        return
    if not found:
        print("no schedules yet; `forge schedule add CRON TASK…` adds one")
        return
    rows = [("NAME", "CRON", "NEXT", "LAST SESSION", "PERSON", "TASK", "NOTE")]
    for each in found:
        last = f"{each.last_session[:ID_SHOWN]} {each.last_state}".strip() or "-"
        task, ticks = shorten(one_line(each.title), 40), _moment(each.next_tick, each.timezone)
        rows.append((each.name, each.cron, ticks, last, each.person or "-", task, each.note or "-"))
    print(columns(rows))
    if not store.runners():
        print("\nNo runner runs now, so nothing starts. `forge runner` starts one here.")


def _moment(seconds: float, timezone: str) -> str:
    try:
        return moment(seconds, timezone)
    except TeamError:  # a zone that only the runners' machines know
        return moment(seconds)


def _schedule_json(row: Schedule) -> dict[str, Any]:
    return {
        "name": row.name,
        "cron": row.cron,
        "timezone": row.timezone,
        "person": row.person,
        "worker": row.worker,
        "label": row.label,
        "task": row.title,
        "createdAt": row.created,
        "nextTick": row.next_tick,
        "lastTick": row.last_tick or None,
        "lastSession": row.last_session,
        "lastState": row.last_state,
        "note": row.note,
    }
