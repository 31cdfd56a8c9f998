"""`forge schedule`: background sessions that start by the clock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.trust import NotTrusted
from golem_forge.cli.args import read_args
from golem_forge.cli.format import fail, print_columns, print_json
from golem_forge.cli.run import RunArgs
from golem_forge.cli.team import ID_SHOWN, fail_with, open_store, store_settings
from golem_forge.cli.team.background import new_session, remote_session
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.text import escape_control_chars, one_line, shorten
from golem_forge.team.database import TeamError
from golem_forge.team.people import TeamStore
from golem_forge.team.schedules import Cron, NewSchedule, Schedule, moment
from golem_forge.ui.session_ui import exit_code_for

HELP: Final = """usage: forge schedule add CRON TASK… [--name NAME] [--timezone ZONE]
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
    "name",
    "timezone",
    "worker",
    "program",
    "model",
    "approval",
    "set",
    "label",
    "priority",
    "workspace",
)


def run_schedule(words: list[str]) -> int:
    given = read_args(
        *("schedule", HELP, words),
        *("VERB", "rest:WORD*", "--name NAME", "--timezone ZONE", "--worker NAME", "-p,--program DIR"),
        *(
            "-m,--model NAME",
            "-a,--approval MODE",
            "--set PAIR…",
            "--label L",
            "--priority N",
            "--workspace GIT",
            "--json",
        ),
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
    except TeamError as error:
        return fail_with("schedule", error)
    except (ConfigError, NotTrusted, ForgeError) as error:
        for problem in error.problems if isinstance(error, ConfigError) else (str(error),):
            print(f"forge schedule: {escape_control_chars(problem)}", file=sys.stderr)
        return exit_code_for(error)
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
        print_json([_as_json(each) for each in found])
        return
    if not found:
        print("no schedules yet; `forge schedule add CRON TASK…` adds one")
        return

    def table() -> Iterator[tuple[str, ...]]:
        yield ("NAME", "CRON", "NEXT", "LAST SESSION", "PERSON", "TASK", "NOTE")
        for each in found:
            yield (
                each.name,
                each.cron,
                _moment(each.next_tick, each.timezone),
                f"{each.last_session[:ID_SHOWN]} {each.last_state}".strip() or "-",
                each.person or "-",
                shorten(one_line(each.title), 40),
                each.note or "-",
            )

    print_columns(table)
    if not store.runners():
        print("\nNo runner runs now, so nothing starts. `forge runner` starts one here.")


def _moment(seconds: float, timezone: str) -> str:
    try:
        return moment(seconds, timezone)
    except TeamError:  # a zone that only the runners' machines know
        return moment(seconds)


def _as_json(row: Schedule) -> dict[str, Any]:
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
