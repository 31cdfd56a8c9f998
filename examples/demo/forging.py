"""A worker forges a tool: toolmaker/ over a repository with a summer of history, from the third repetition to
the person who runs the new tool by hand. The first version fails its own test, and its code runs only after a yes."""

from __future__ import annotations

import shlex
import sys

from examples.demo.interrupting import records
from examples.demo.repository import is_git_there, make_history
from examples.demo.stage import FORGE, UNATTENDED, Stage
from examples.demo.telling import Failed, command, expect, title

TOOL = "git-summarize"
TASK = "What happened in the shop in July, August and September?"
YES = "Yes, please make it."
BY_HAND = f"/{TOOL} --since 2025-09-01"

BEFORE = f"""\
Another worker answers with two git commands a month. Before the third month it
asks whether to make a tool of them. It writes {TOOL}, whose own test
fails; it mends the source and tries again. The source is on the card before any
of it runs: first the whole, then what changed. At the end the person runs it."""
PERSON = f"""\
Answer its question with a sentence, and the cards with y: the script has words
for a yes only. When it has told you about September, type
  {BY_HAND}
and then /exit."""


def forge_a_tool(stage: Stage, person: bool) -> None:
    """Leaves the tool active in the stage's FORGE_HOME, unless a person would not have it."""
    title("5. The same steps a third time: the worker forges a tool")
    if not is_git_there():
        print("There is no git on this machine, so the demo leaves this out.")
        return
    print(BEFORE)
    here = stage.beside("toolmaker")
    make_history(here.program / "shop")
    command("forge trust --yes")
    code, said = here.last_line(FORGE, "trust", "--yes")
    print(said)
    expect("forge trust", code, 0)
    if person:
        print(f"\n{PERSON}")
        command(f'forge run --approval interactive "{TASK}"')
        code = here.run(FORGE, "run", "--approval", "interactive", TASK)
    else:
        command(f"python examples/demo/unattended.py {shlex.join((TASK, YES, BY_HAND))}")
        code = here.run(sys.executable, UNATTENDED, TASK, YES, BY_HAND)
    if person and code in (0, 130):  # left, perhaps before the end
        _tell_how_far(stage)
    else:
        expect("the worker that forges a tool", code, 0)
        _must_have_run(stage)


def _must_have_run(stage: Stage) -> None:
    runs = _runs(stage)
    if runs != ["execution_failed", "success", "success"]:
        raise Failed(f"the runs of {TOOL} ended so: {', '.join(runs) or 'there were none'}")


def _tell_how_far(stage: Stage) -> None:
    if "success" not in _runs(stage):
        print(f"\n{TOOL} did not come to run, so nobody can run it: a tool is offered once it is tested and allowed.")


def _runs(stage: Stage) -> list[str]:
    """How each run of the tool ended, in order, as the journal has it."""
    calls = {record["call"] for record in records(stage.home) if record.get("tool") == TOOL}
    ended = (record for record in records(stage.home) if record["type"] == "finished" and record["call"] in calls)
    return [str(record["status"]) for record in ended]


def show_the_tool(stage: Stage) -> None:
    """Its versions and who wrote them, if there is one."""
    if (stage.home / "tools" / TOOL).is_dir():
        command(f"forge tools log {TOOL}")
        expect("forge tools log", stage.run(FORGE, "tools", "log", TOOL), 0)
