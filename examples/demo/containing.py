"""The part of the demo in which an agent works without questions, and a person takes it back."""

from __future__ import annotations

from examples.demo.stage import FORGE, Stage
from examples.demo.telling import Failed, command, expect, title

TASK = "Add bread and tea, and remove the old list"
SCRIPT = "scripted:work.yaml"
BEFORE = """\
In the mode contained nobody is asked: the command stays inside the walls, and
what it could destroy is kept. It appends to a file and deletes a directory."""


def work_and_undo(stage: Stage) -> None:
    title("4. Work without questions, look at it, take it back")
    print(BEFORE)
    here = stage.beside("contained")
    files = [here.program / name for name in ("list.txt", "old/list.txt")]
    before = [file.read_text() for file in files]
    command(f'forge run --approval contained --model {SCRIPT} --headless "{TASK}"')
    words = ("run", "--approval", "contained", "--model", SCRIPT, "--headless", TASK)
    expect("the contained run", here.run(FORGE, *words), 0)
    if files[1].exists():
        raise Failed("the command did not run")
    command("forge changes")
    expect("forge changes", here.run(FORGE, "changes"), 0)
    command("forge undo --yes")
    expect("forge undo", here.run(FORGE, "undo", "--yes"), 0)
    if [file.read_text() for file in files] != before:
        raise Failed("undo did not bring everything back")
