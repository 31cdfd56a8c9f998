"""A worker, its sub-worker, a question, an interrupt, a resume, undo, a forged tool, a program, MCP; without a key.

Run it with `make demo`. On a terminal it hands you the real `forge run` and you answer the questions; without one it
answers itself and says so, in twenty seconds. Exit: 0 if everything came out as it must, 1 if not, 130 if you stop it.
"""

from __future__ import annotations

import sys

from examples.demo.containing import work_and_undo
from examples.demo.forging import forge_a_tool, show_the_tool
from examples.demo.interrupting import Interrupt, interrupt_during, records
from examples.demo.programming import keep_a_program
from examples.demo.repository import is_git_there
from examples.demo.servers import use_and_serve
from examples.demo.stage import FORGE, UNATTENDED, Stage, set_up
from examples.demo.telling import Failed, command, expect, title

TASK = "Is the shop all right? Mend what is not."
GO_ON = "Go on, without the soak test."

OPENING = """\
Golem Forge: a demo. There is no model behind it: what the model "says" is
written down in the scripts below examples/demo, so it needs no key and no
network. All the rest is real: forge, its tools, walls, questions, servers and
journal. It plays in copies, in {place}, with
a FORGE_HOME there; nothing of yours is changed."""
NOBODY = "There is no terminal, so the demo answers the questions itself and says so."
PERSON = "You are asked once, with the diff: y allows it, n does not, ? tells the rest."
BEFORE_THE_RUN = """\
The worker runs the shop's tests and sends for its fixer, who asks before it
writes. Then comes a soak test of ten minutes; a second into that, the demo
presses Ctrl+C."""
CLOSING = """
That was all. To go on by yourself: copy examples/reviewer, put a real model into
its forge.yaml, then `forge trust` and `forge run` there. `forge tools new NAME`
makes a tool of your own, `forge mcp add` brings in a server. All of it is
.venv/bin/forge of this directory."""


def main() -> int:
    person = sys.stdin.isatty() and sys.stdout.isatty()
    with set_up() as stage:
        print(OPENING.format(place=stage.program.parent))
        if not person:
            print(NOBODY)
        trust(stage)
        work_until_interrupted(stage, person)
        resume(stage)
        work_and_undo(stage)
        forge_a_tool(stage, person)
        keep_a_program(stage)
        use_and_serve(stage, person)
        show_what_is_left(stage)
    print(CLOSING)
    return 0


def trust(stage: Stage) -> None:
    title("1. A program with code of its own is trusted first, or it does not start")
    command("forge trust --yes")
    code, said = stage.last_line(FORGE, "trust", "--yes")
    print(said)
    expect("forge trust", code, 0)


def work_until_interrupted(stage: Stage, person: bool) -> None:
    title("2. A worker, its sub-worker, a question, an interrupt")
    print(BEFORE_THE_RUN)
    if person:
        print(PERSON)
        command(f'forge run --approval interactive "{TASK}"')
        words = [FORGE, "run", "--approval", "interactive", TASK]
    else:
        command(f'python examples/demo/unattended.py "{TASK}"')
        words = [sys.executable, UNATTENDED, TASK]
    with stage.running(words) as process:
        interrupt = interrupt_during("soak_tests", process, stage.home)
    if interrupt is not None:
        _tell(interrupt)
        expect("the interrupted run", process.returncode, 130)
    elif person and process.returncode in (0, 130):  # left, or stopped, at the card
        print("\nIt ended before the soak test, so there was nothing to interrupt.")
    else:
        raise Failed(f"the run ended with {process.returncode} before the soak test")
    _check_the_change(stage, person)


def _tell(interrupt: Interrupt) -> None:
    print(f"\nThe demo pressed Ctrl+C, and {interrupt.seconds:.1f} s later the run had ended. Of the processes")
    print(f"it had started {interrupt.processes} were running; {interrupt.left} are left.")
    if interrupt.left:
        raise Failed(f"{interrupt.left} processes outlived the interrupt")


def _check_the_change(stage: Stage, person: bool) -> None:
    """The file is changed if and only if the journal says so; without a person it must be."""
    patches = {record["call"] for record in records(stage.home) if record.get("tool") == "apply_patch"}
    finished = (record for record in records(stage.home) if record["type"] == "finished" and record["call"] in patches)
    allowed = any(record["status"] == "success" for record in finished)
    changed = "round(price * 100)" in (stage.program / "shop" / "cart.py").read_text()
    if changed != allowed or not (changed or person):
        raise Failed(f"cart.py changed: {changed}; the change was allowed: {allowed}")


def resume(stage: Stage) -> None:
    title("3. The session is on disk, and goes on where it was")
    script = "scripted:scripts/resume.yaml"
    command(f'forge run --resume last --model {script} --trace normal "{GO_ON}"')
    code = stage.run(FORGE, "run", "--resume", "last", "--model", script, "--trace", "normal", GO_ON)
    expect("forge run --resume", code, 0)


def show_what_is_left(stage: Stage) -> None:
    title("8. What is left: the sessions, journals nobody altered, the tool, and what was allowed")
    command("forge sessions list")
    expect("forge sessions list", stage.run(FORGE, "sessions", "list"), 0)
    command("forge log verify")
    expect("forge log verify", stage.run(FORGE, "log", "verify"), 0)
    show_the_tool(stage)
    if is_git_there():
        command("git -C shop diff --stat")
        expect("git diff", stage.run("git", "--no-pager", "-C", "shop", "diff", "--stat"), 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as problem:
        print(f"demo: FAILED: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
