"""`forge tools diff | log | undo`: the versions of one tool, also of one whose folder is gone or no longer a tool.

Nothing runs. `diff` and `log` change nothing; `undo` is itself a version, and what it replaces stays one.
"""

from __future__ import annotations

from typing import Final

from golem_forge.cli.args import NOT_FOUND, read_args
from golem_forge.cli.format import fail, print_error, print_json
from golem_forge.cli.tools.workshop import load_workshop, print_refusal, print_usage_error, status_line
from golem_forge.core.errors import ForgeError
from golem_forge.core.table import columns, local_time
from golem_forge.core.text import nearest_remark, one_line
from golem_forge.usertools.folder import FolderFiles
from golem_forge.usertools.overview import (
    compare_versions,
    diff_versions,
    is_known_tool,
    list_versions,
    short_digest,
    tool_folder,
    undo_version,
)
from golem_forge.usertools.store.history import VersionLogEntry
from golem_forge.usertools.workshop import Workshop

DIFF_HELP: Final = """usage: forge tools diff NAME [DIGEST [DIGEST]]

What changed in a tool of yours since it was trusted last: what it may do, then every file as a unified diff.
Of a tool that was never trusted everything is new.

  DIGEST           compare the tool with that version instead
  DIGEST DIGEST    compare two versions, the older one first; the folder may be gone

`forge tools log NAME` lists the versions; the first 6 hex digits of a digest are enough.
Exit: 0 done, 1 the files cannot be read, 2 usage, 4 no such tool."""

LOG_HELP: Final = """usage: forge tools log NAME [--json]

The versions a tool of yours has had, newest first: digest, time, author, and whether it is trusted. Every byte and
every exec bit makes another version; the last 50 are kept, and all that were trusted. Also of a deleted tool.
Exit: 0 done, 2 usage, 4 no such tool."""

UNDO_HELP: Final = """usage: forge tools undo NAME [DIGEST]

Brings back the version before, or the named one, also of a deleted tool. What is there now stays a version: another
`undo` goes back to it. A version that was trusted before is trusted still; any other asks when it is used.
Exit: 0 done, 1 it could not be brought back, 2 usage, 4 no such tool."""


def run_diff(words: list[str]) -> int:
    asked = read_args("tools diff", DIFF_HELP, words, "name", "digests*")
    if len(asked.digests) > 2:
        return print_usage_error("diff", "two versions can be compared, not more")
    workshop = load_workshop()
    if not is_known_tool(workshop, asked.name):
        return _print_unknown_tool(workshop, "diff", asked.name)
    try:
        return _diff(workshop, asked.name, asked.digests)
    except (ForgeError, OSError) as error:
        return print_refusal("diff", error)


def run_log(words: list[str]) -> int:
    asked = read_args("tools log", LOG_HELP, words, "name", "--json")
    workshop = load_workshop()
    if not is_known_tool(workshop, asked.name):
        return _print_unknown_tool(workshop, "log", asked.name)
    present = tool_folder(workshop, asked.name).exists()
    rows = list_versions(workshop, asked.name)
    if asked.json:
        print_json({"name": asked.name, "present": present, "versions": [row.to_json() for row in rows]})
        return 0
    if rows:
        print(columns([("DIGEST", "TIME", "STATE", "AUTHOR"), *map(_version_row, rows)]))
    if not present:
        print_error("tools log", f"its folder is gone; `forge tools undo {asked.name}` brings it back.")
    elif not any(row.current for row in rows):
        print_error("tools log", f"the folder as it is now is no version. {status_line(workshop, asked.name)}")
    return 0


def run_undo(words: list[str]) -> int:
    asked = read_args("tools undo", UNDO_HELP, words, "name", "digest?")
    if asked.digest == "":
        return print_usage_error("undo", "the digest is empty")
    workshop = load_workshop()
    if not is_known_tool(workshop, asked.name):
        return _print_unknown_tool(workshop, "undo", asked.name)
    try:
        done = undo_version(workshop, asked.name, asked.digest or "")
    except (ForgeError, OSError) as error:
        return print_refusal("undo", error)
    before, change = done.before, done.change
    if change.digest == before:
        print(f"tool '{asked.name}' is at version {short_digest(before)} already.")
        return 0
    left = f" (before: {short_digest(before)})" if before else ""
    print(f"tool '{asked.name}' is at version {short_digest(change.digest)} again{left}.")
    print(status_line(workshop, asked.name))
    if change.set_aside is not None:
        stands = workshop.home.shown(change.set_aside)
        print_error("tools undo", f"what was there could not be kept as a version; it stands in {stands} now.")
    return 0


def _diff(workshop: Workshop, name: str, digests: list[str]) -> int:
    found = compare_versions(workshop, name, digests)
    after = f"the folder now ({short_digest(found.new.digest)})"
    if found.after:
        after = f"version {short_digest(found.after)}"
    before = f"version {short_digest(found.before)}" if found.before else "nothing, no version was ever trusted"
    if found.before and not digests:
        before = f"{before}, trusted last,"
    if found.old.digest == found.new.digest:
        print(f"tool '{name}': no difference between {before} and {after}")
        return 0
    print(f"tool '{name}': from {before} to {after}")
    print_difference("diff", name, found.old, found.new)
    return 0


def _version_row(row: VersionLogEntry) -> tuple[str, str, str, str]:
    states = ["trusted" if row.trusted else "untrusted", *(["now"] if row.current else [])]
    if row.restored:
        states.append("came back once" if row.restored == 1 else f"came back {row.restored} times")
    return short_digest(row.digest), local_time(row.at), ", ".join(states), row.author.describe()


def _print_unknown_tool(workshop: Workshop, verb: str, name: str) -> int:
    hint = nearest_remark(name, workshop.registry.entries)
    return fail(
        f"tools {verb}",
        f"no tool '{name}' of yours, now or earlier{hint}. `forge tools list` shows them.",
        NOT_FOUND,
    )


def print_difference(verb: str, name: str, old: FolderFiles, new: FolderFiles) -> None:
    """What is printed cannot steer the terminal: it was made safe where the difference was worked out."""
    found = diff_versions(name, old, new)
    for line in found.access:
        print(one_line(line))
    print(found.changes)
    for warning in found.warnings:
        print_error(f"tools {verb}", f"warning: {warning}")
