"""`forge tools diff | log | undo`: the versions of one tool, also of one whose folder is gone or no longer a tool.

Nothing runs. `diff` and `log` change nothing; `undo` is itself a version, and what it replaces stays one.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from golem_forge.cli.args import NOT_FOUND, read_args
from golem_forge.cli.format import fail, print_error, print_json
from golem_forge.cli.tools.workshop import load_workshop, print_refusal, print_usage_error, status_line
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import columns, local_time, nearest_remark, one_line, shorten
from golem_forge.ui.line_terminal import ask_yes, can_ask
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

Shows what changed in a user tool since you last trusted it: what it may do, then every file as a unified diff.
If you never trusted the tool, everything is new.

  DIGEST           compare the tool with that version instead
  DIGEST DIGEST    compare two versions, the older one first; the folder may be gone

`forge tools log NAME` lists the versions; the first 6 hex digits of a digest are enough.
Exit: 0 done, 1 the files cannot be read, 2 usage, 4 no such tool."""

LOG_HELP: Final = """usage: forge tools log NAME [--json]

Lists the versions of a user tool, newest first: digest, the version in its tool.yaml, time, author, and whether it is
trusted. A change of any byte or exec bit makes a new version. Forge keeps the last 50 versions and all trusted ones,
also of a deleted tool.
Exit: 0 done, 2 usage, 4 no such tool."""

UNDO_HELP: Final = """usage: forge tools undo NAME [DIGEST] [--yes]

Brings back the previous version, or the version DIGEST; also of a deleted tool. Another `undo` goes one more step back.
Forge keeps the current files as a version: `forge tools undo NAME DIGEST` returns to them. A version that you trusted
before is still trusted. Forge asks before it brings back any other version, because that tool is then off until
`forge tools activate`.

  --yes     bring it back without a question

Exit: 0 done, 1 it could not be brought back, 2 usage, 3 not agreed, 4 no such tool."""


_VERSION_WIDTH: Final = 20


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
        print(columns([("DIGEST", "VERSION", "TIME", "STATE", "AUTHOR"), *map(_version_row, rows)]))
    if not present:
        print_error("tools log", f"its folder is gone; `forge tools undo {asked.name}` brings it back.")
    elif not any(row.current for row in rows):
        print_error("tools log", f"the current folder is not a stored version. {status_line(workshop, asked.name)}")
    return 0


def run_undo(words: list[str]) -> int:
    asked = read_args("tools undo", UNDO_HELP, words, "name", "digest?", "--yes")
    if asked.digest == "":
        return print_usage_error("undo", "the digest is empty")
    workshop = load_workshop()
    if not is_known_tool(workshop, asked.name):
        return _print_unknown_tool(workshop, "undo", asked.name)
    try:
        agreed = partial(_ask_untrusted, workshop, asked.name, asked.yes)
        done = undo_version(workshop, asked.name, asked.digest or "", agreed)
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
        print_error("tools undo", f"Forge could not store the earlier files as a version; they are in {stands} now.")
    return 0


def _ask_untrusted(workshop: Workshop, name: str, yes: bool, current: str, digest: str) -> bool:
    """Whether a version may come back that nobody trusts. Without a terminal that takes a `--yes` where it would end a
    tool that is in use; where none is, nothing is lost."""
    store = workshop.store
    if yes or store.find_trust(name, digest) is not None:
        return True
    version = short_digest(digest)
    if can_ask():
        off = f"it is off until `forge tools activate {name}`"
        return ask_yes(f"Version {version} of '{name}' is not trusted: {off}. Bring it back? [y/N] ")
    if not current or store.find_trust(name, current) is None:
        return True
    again = f"`forge tools undo {name} {version} --yes` brings it back."
    print_error("tools undo", f"version {version} is not trusted, and Forge cannot ask you here; {again}")
    return False


def _diff(workshop: Workshop, name: str, digests: list[str]) -> int:
    found = compare_versions(workshop, name, digests)
    after = f"the folder now ({short_digest(found.new.digest)})"
    if found.after:
        after = f"version {short_digest(found.after)}"
    before = f"version {short_digest(found.before)}" if found.before else "nothing (no version was ever trusted)"
    if found.before and not digests:
        before = f"{before}, trusted last,"
    if found.old.digest == found.new.digest:
        print(f"tool '{name}': no difference between {before} and {after}")
        return 0
    print(f"tool '{name}': from {before} to {after}")
    print_difference("diff", name, found.old, found.new)
    return 0


def _version_row(row: VersionLogEntry) -> tuple[str, str, str, str, str]:
    states = ["trusted" if row.trusted else "untrusted", *(["now"] if row.current else [])]
    if row.restored:
        states.append("restored once" if row.restored == 1 else f"restored {row.restored} times")
    version = shorten(one_line(row.version), _VERSION_WIDTH) or "-"
    return short_digest(row.digest), version, local_time(row.at), ", ".join(states), row.author.describe()


def _print_unknown_tool(workshop: Workshop, verb: str, name: str) -> int:
    hint = nearest_remark(name, workshop.registry.entries)
    return fail(
        f"tools {verb}",
        f"no user tool '{name}', now or earlier{hint}. `forge tools list` shows them.",
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
