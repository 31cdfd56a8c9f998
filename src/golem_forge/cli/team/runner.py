"""`forge runner`: runs sessions of the store, in the foreground, until TERM."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import sys
from typing import Final

from golem_forge.cli.command import USAGE, fail, read_args
from golem_forge.cli.team import own_store, program_settings
from golem_forge.cli.team.background import host_label, machine_label
from golem_forge.core.text import one_line
from golem_forge.events.telemetry import open_metrics
from golem_forge.storage.home import forge_home
from golem_forge.team.runner import Runner, RunnerOptions
from golem_forge.team.schema import require_runner
from golem_forge.team.webhooks import read_webhooks

HELP: Final = """usage: forge runner [--slots N] [--label L]… [--project P]… [--idle S]

Takes sessions from the store and runs them, several at a time. It runs in the foreground. TERM or Ctrl-C lets running
calls end within 60 seconds, gives the rest back to the queue and takes no new work. A second one interrupts them.

      --slots N     so many sessions at once (store.runner.slots, by default 4)
      --label L     also take sessions that ask for this label (repeat for more)
      --project P   only take sessions of this project (repeat for more); `forge projects list` shows them
      --idle S      end after S seconds without work
      --set KEY.PATH=VALUE
                    a value of config.yaml for this runner, e.g. store.url=sqlite"""


def run_runner(words: list[str]) -> int:
    given = read_args("runner", HELP, words, "--slots N", "--label L…", "--project P…", "--idle S", "--set PAIR…")
    if given.slots is not None and given.slots < 1:
        return fail("runner", "--slots takes a number from 1 on", USAGE)
    if given.idle is not None and not 0 <= given.idle < math.inf:
        return fail("runner", "--idle takes seconds", USAGE)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s forge runner: %(message)s", stream=sys.stderr)
    program = program_settings(given.set)
    settings = program.store
    store = own_store(settings)
    require_runner(store.database)
    projects = [store.projects.find(each).id for each in given.project]
    options = RunnerOptions(
        slots=given.slots or settings.slots,
        labels=(host_label(), machine_label(), *settings.labels, *given.label),
        projects=projects,
        limits={"per_person": settings.per_person, "per_program": settings.per_program},
        hold_s=settings.hold,
        idle_s=given.idle or 0.0,
        metrics=open_metrics(program.otel),
        webhooks=read_webhooks(settings.notify),
        page=settings.page,
    )
    try:
        return asyncio.run(_run(Runner(store, forge_home().path, options)))
    finally:
        store.close()


async def _run(runner: Runner) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runner.drain)
    options = runner.options
    what = f"{options.slots} slot{'s' if options.slots != 1 else ''}, labels: {' '.join(map(one_line, options.labels))}"
    print(f"runner {runner.id[:12]} on {runner.store.database.shown}, {what}", file=sys.stderr)
    await runner.run()
    print(f"runner {runner.id[:12]} has ended", file=sys.stderr)
    return 0
