"""`forge init [DIR]`: a small program to start from. Three commented files, never over one that is there."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Final

from golem_forge.cli.command import fail, read_args
from golem_forge.core.text import display_path

HELP: Final = """usage: forge init [DIR]

Writes a small program into DIR (default: here; it is made if it does not exist):

  forge.yaml    the program: its model, zones, approval and limits
  main.worker   the worker that `forge run` starts
  tools.py      one example tool of its own

It does not change a file that exists. Next: read the files, run `forge trust`, run `forge`.
Exit: 0 done, 2 usage or a directory that cannot be written."""

_PROGRAM: Final = """\
# The program: what its workers share. Every key is optional; what is commented out shows a possible value.

entry: main.worker            # what `forge run` starts here
# model: anthropic:NAME       # provider:name, for workers that name none; `--model` and FORGE_MODEL come first

# The directories that workers may use. A worker file names the ones it needs and never gets more than this.
sandbox:
  zones:
    workspace: {path: ., mode: rw, approval: {write: ask, delete: ask}}

# Who answers when a call asks: interactive, strict, contained, plan, approve_all or auto_deny.
approval:
  mode: interactive

# Caps for everything one session does.
# budget: {max_tokens: 200000, max_requests: 100}

# Where workers are looked up by name, beside this directory itself.
# worker_paths: [workers]
"""

_WORKER: Final = """\
---
name: main
description: Answers questions about this directory and changes files in it when asked to.

# What it may use. `forge tools list` shows what there is.
toolsets:
  filesystem:                 # read, list, look, write, delete
  search:                     # list_dir, grep_files
  custom:                     # functions of a Python file, run in a process of their own
    module: ./tools.py
    tools: [count_words]
    approval: {default: ask, tools: {count_words: preApproved}}

# Where it may reach: zones of forge.yaml, by name. Without this block it has no file access at all.
sandbox:
  zones:
    - {name: workspace, mode: rw}

# max_iterations: 50          # requests to the model in one run
---
You help with the files in this directory. Read before you change anything, say what you did, and keep it short.
"""

_TOOLS: Final = '''\
"""Tools of this program. A function is a tool when a worker file lists it under `custom.tools`.

Its arguments and their descriptions come from the signature, its own description from the docstring. The code runs in
a separate process inside the worker's walls, only after `forge trust`, and is loaded anew when this file changes.
"""

from typing import Annotated


def count_words(text: Annotated[str, "The text to count in"]) -> dict[str, int]:
    """Count the words, lines and characters of a text."""
    return {"words": len(text.split()), "lines": len(text.splitlines()), "characters": len(text)}
'''

FILES: Final = {"forge.yaml": _PROGRAM, "main.worker": _WORKER, "tools.py": _TOOLS}


def run(words: list[str]) -> int:
    given = read_args("init", HELP, words, "dir?", dir=".").dir
    if not given:
        return fail("init", "the name of the directory is empty.", 2)
    directory = Path(given)
    written = 0
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            made = _write_new(directory / name, text)
            written += made
            print(f"{'wrote' if made else 'kept '} {display_path(directory / name)}")
    except OSError as error:
        return fail("init", f"{display_path(directory)} cannot be written: {error.strerror}.", 2)
    if not written:
        print("Nothing to do: all three files exist already.")
        return 0
    there = "" if directory == Path() else f" {_as_typed(directory)}"
    print(f"Next: read them, run `forge trust{there}` so that tools.py may run, then `forge run{there}`.")
    return 0


def _as_typed(directory: Path) -> str:
    """The path as a word of a shell."""
    shown = display_path(directory)
    home, rest = ("~/", shown[2:]) if shown.startswith("~/") and directory.is_absolute() else ("", shown)
    return home + shlex.quote(rest)


def _write_new(path: Path, text: str) -> bool:
    """Writes a new file. Returns False if the path exists, also as a dangling link."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return True
