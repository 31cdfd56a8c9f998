"""A worker, its sub-worker, a question, an interrupt and a resume, in ten seconds and without a key.

Run it with `make demo`. On a terminal it hands you the real `forge run` and you answer the question; without one it
answers itself and says so. Exit: 0 if everything came out as it must, 1 if not, 130 if you stopped it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from examples.demo.interrupting import Interrupt, interrupt_during, records
from examples.demo.stage import FORGE, Stage, set_up

UNATTENDED = Path(__file__).with_name("unattended.py")
TASK = "Is the shop all right? Mend what is not."
GO_ON = "Go on, without the soak test."

OPENING = """\
Golem Forge: a demo. There is no model behind it: what the model "says" is
written down in examples/repair/scripts, so it needs no key and no network.
All the rest is real: forge, its tools, walls, questions and journal. It plays
in a copy, {place}; nothing of yours is changed."""
NOBODY = "There is no terminal, so the demo answers the question itself and says so."
PERSON = "You are asked once, with the diff: y allows it, n does not, ? tells the rest."
BEFORE_THE_RUN = """\
The worker runs the shop's tests and sends for its fixer, who asks before it
writes. Then comes a soak test of ten minutes; a second into that, the demo
presses Ctrl+C."""
CLOSING = """
That was all. To go on by yourself: copy examples/repair, put a real model into
its forge.yaml, then `forge trust` and `forge run` there."""


class Failed(Exception):
    """Something did not come out as it must."""


def main() -> int:
    person = sys.stdin.isatty() and sys.stdout.isatty()
    with set_up() as stage:
        print(OPENING.format(place=stage.program))
        if not person:
            print(NOBODY)
        trust(stage)
        work_until_interrupted(stage, person)
        resume(stage)
        show_what_is_left(stage)
    print(CLOSING)
    return 0


def trust(stage: Stage) -> None:
    _title("1. A program with code of its own is trusted first, or it does not start")
    _command("forge trust --yes")
    code, said = stage.last_line(FORGE, "trust", "--yes")
    print(said)
    _expect("forge trust", code, 0)


def work_until_interrupted(stage: Stage, person: bool) -> None:
    _title("2. A worker, its sub-worker, a question, an interrupt")
    print(BEFORE_THE_RUN)
    if person:
        print(PERSON)
        _command(f'forge run "{TASK}"')
        command = [FORGE, "run", TASK]
    else:
        _command(f'python examples/demo/unattended.py "{TASK}"')
        command = [sys.executable, str(UNATTENDED), TASK]
    with stage.running(command) as process:
        interrupt = interrupt_during("soak_tests", process, stage.home)
    if interrupt is not None:
        _tell(interrupt)
        _expect("the interrupted run", process.returncode, 130)
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
    _title("3. The session is on disk, and goes on where it was")
    script = "scripted:scripts/resume.yaml"
    _command(f'forge run --resume last --model {script} --trace normal "{GO_ON}"')
    code = stage.run(FORGE, "run", "--resume", "last", "--model", script, "--trace", "normal", GO_ON)
    _expect("forge run --resume", code, 0)


def show_what_is_left(stage: Stage) -> None:
    _title("4. What is left: one session, a journal nobody altered, and what was allowed")
    _command("forge sessions list")
    _expect("forge sessions list", stage.run(FORGE, "sessions", "list"), 0)
    _command("forge log verify")
    _expect("forge log verify", stage.run(FORGE, "log", "verify"), 0)
    if shutil.which("git"):
        _command("git -C shop diff --stat")
        _expect("git diff", stage.run("git", "--no-pager", "-C", "shop", "diff", "--stat"), 0)


def _title(text: str) -> None:
    print(f"\n── {text}")


def _command(text: str) -> None:
    print(f"\n$ {text}")


def _expect(what: str, code: int, wanted: int) -> None:
    if code != wanted:
        raise Failed(f"{what} ended with {code}, not with {wanted}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as problem:
        print(f"demo: FAILED: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
