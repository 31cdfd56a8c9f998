"""The part of the demo in which a model writes a program that calls tools, and keeps it as a tool."""

from __future__ import annotations

from examples.demo.stage import FORGE, Stage
from examples.demo.telling import Failed, command, expect, title

TASK = "Which notes have something to do?"
SCRIPT = "scripted:work.yaml"
TOOL = "first-lines"
BEFORE = """\
Four calls in one turn: the model writes a program. Each call inside is judged
and recorded like any other. Then the program becomes a tool, with a test that
answers the recorded calls again. Its code runs only after somebody said yes."""


def keep_a_program(stage: Stage) -> None:
    title("6. A program calls tools, and becomes one")
    print(BEFORE)
    here = stage.beside("programs")
    command(f'forge run --approval approve_all --model {SCRIPT} --trace normal --headless "{TASK}"')
    words = ("run", "--approval", "approve_all", "--model", SCRIPT, "--trace", "normal", "--headless", TASK)
    expect("the run of a program", here.run(FORGE, *words), 0)
    command(f"forge tools activate {TOOL} --yes")
    expect("forge tools activate", here.run(FORGE, "tools", "activate", TOOL, "--yes"), 0)
    command(f"forge call {TOOL} --word sell --approval approve_all")
    code, said = here.last_line(FORGE, "call", TOOL, "--word", "sell", "--approval", "approve_all")
    print(said)
    expect(f"forge call {TOOL}", code, 0)
    if "day3.txt" not in said:
        raise Failed(f"{TOOL} said {said!r}")
