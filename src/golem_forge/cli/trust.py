"""`forge trust [DIR]`: a person reads what a program's files say and agrees to exactly these bytes.

Threat: the files come from strangers, and agreeing lets them loosen what is asked. Everything that trust covers is
shown before the question, nothing in it can steer the terminal, and what is recorded is what was shown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from golem_forge.agent.files.roster import load_roster, preflight_problems
from golem_forge.agent.session_plan import read_program
from golem_forge.agent.trust import covered_files, trust_store
from golem_forge.cli.command import declare, fail, parser
from golem_forge.config.program import find_root
from golem_forge.config.trust import TrustSnapshot, TrustStore
from golem_forge.core.errors import ConfigError
from golem_forge.core.text import count_control_chars, display_path, escape_control_chars, one_line
from golem_forge.storage.home import forge_home
from golem_forge.ui.line_terminal import ask_yes

HELP: Final = """usage: forge trust [DIR] [--yes | --show | --withdraw]

Shows the files that decide what the program in DIR (default: here) may allow and run: its forge.yaml, everything in
.forge, the front matter of its workers, their tool modules and what these import. If you trusted the program before, it
shows what changed since then. Then it asks.

  --yes        agree without a question
  --show       show and do not ask: the files if they are trusted, else what changed
  --withdraw   end the trust

When any byte of these files changes, the trust ends until you give it again.
Exit: 0 done, 2 usage or unreadable files, 3 not agreed, 4 nothing to trust here."""


def run(words: list[str]) -> int:
    reader = declare(parser("trust", HELP), "dir?")
    reader.set_defaults(dir=".")
    declare(reader.add_mutually_exclusive_group(), "--yes", "--show", "--withdraw")
    asked = reader.parse_args(words)

    if not asked.dir:
        return fail("trust", "the name of the directory is empty.", 2)
    store = trust_store(forge_home())
    directory = Path(asked.dir)
    alone = os.path.lexists(directory / ".forge") or bool(covered_files(directory))
    root = find_root(directory) or (directory.resolve() if alone else None)
    if asked.withdraw:
        withdrawn = store.withdraw(root or directory.resolve())
        shown = display_path(root or directory.resolve())
        print(f"{shown} is not trusted any more." if withdrawn else f"{shown} was not trusted.")
        return 0
    if not directory.is_dir():
        return fail("trust", f"{display_path(directory)} is not a directory; name the directory of a program.", 2)
    if root is None:
        nothing = "there is no forge.yaml in it or above it, no worker and no .forge."
        return fail("trust", f"nothing to trust in {display_path(asked.dir)}: {nothing}", 4)
    snapshot = store.snapshot(root)
    if store.trusted(root):
        if asked.show:
            _show_files(snapshot)
        print(f"{display_path(root)} is trusted. Nothing changed since then.")
        return 0
    if store.was_given(root):
        print(f"changed since {display_path(root)} was trusted:\n")
        print(escape_control_chars(store.changes(root, snapshot)) + "\n")
    else:
        _show_files(snapshot)
    for problem in _start_problems(root):
        print(f"warning: {escape_control_chars(problem)}", file=sys.stderr)
    if asked.show:
        print(f"{display_path(root)} is not trusted. `forge trust` asks for it.")
        return 0
    return _agree(store, root, snapshot, yes=asked.yes)


def _start_problems(root: Path) -> Sequence[str]:
    """Why a session would not start, trusted or not: whoever agrees should not look for the reason there."""
    home = forge_home()
    try:
        program = read_program(root, home, trust_store(home))
        return preflight_problems(program, load_roster(program), home)
    except ConfigError as error:
        return error.problems


def _show_files(snapshot: TrustSnapshot) -> None:
    for name, text in snapshot.files.items():
        print(f"── {one_line(name)} " + "─" * 20)
        print(escape_control_chars(text.rstrip("\n")) + "\n")
        if hidden := count_control_chars(text):
            print(f"! {hidden} control or invisible characters are shown as escapes\n")


def _agree(store: TrustStore, root: Path, snapshot: TrustSnapshot, *, yes: bool) -> int:
    if not yes:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            return fail("trust", "Forge cannot ask you here. Read the text above, then run `forge trust --yes`.", 3)
        if not ask_yes(f"Trust {display_path(root)} with exactly these files? [y/N] "):
            print("Not trusted. Nothing was changed.")
            return 3
    store.give(root, snapshot)
    if not store.trusted(root):
        again = "Run it again and read the difference."
        return fail("trust", f"the files changed meanwhile, so they are not trusted. {again}", 3)
    count = len(snapshot.files)
    print(f"{display_path(root)} is trusted: {count} {'file' if count == 1 else 'files'}.")
    return 0
