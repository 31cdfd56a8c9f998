"""`forge tools diff | log | undo`: the versions of one tool. Also of one whose folder is gone or no longer a tool.

Nothing runs. `diff` and `log` change nothing; `undo` is itself a version, and what it replaces stays one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import columns, complain, parser, print_json
from golem_forge.cli.tools.telling import NO_SUCH_TOOL, look_at_shop, refused, standing_line, wrong_use
from golem_forge.core.errors import ForgeError
from golem_forge.core.nearest import nearest

if TYPE_CHECKING:
    from golem_forge.custom.book.history import LogRow
    from golem_forge.custom.workshop import Workshop

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
    reader = parser("tools diff", DIFF_HELP)
    reader.add_argument("name")
    reader.add_argument("digests", nargs="*")
    asked = reader.parse_args(words)
    if len(asked.digests) > 2:
        return wrong_use("diff", "two versions can be compared, not more")
    from golem_forge.custom.versions import is_known

    shop = look_at_shop()
    if not is_known(shop, asked.name):
        return _unknown(shop, "diff", asked.name)
    try:
        return _diff(shop, asked.name, asked.digests)
    except (ForgeError, OSError) as error:
        return refused("diff", error)


def run_log(words: list[str]) -> int:
    reader = parser("tools log", LOG_HELP)
    reader.add_argument("name")
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    from golem_forge.custom.versions import folder_of, is_known, versions

    shop = look_at_shop()
    if not is_known(shop, asked.name):
        return _unknown(shop, "log", asked.name)
    present = folder_of(shop, asked.name).exists()
    rows = versions(shop, asked.name)
    if asked.json:
        print_json({"name": asked.name, "present": present, "versions": [row.to_json() for row in rows]})
        return 0
    if rows:
        print(columns([("DIGEST", "TIME", "STATE", "AUTHOR"), *map(_cells, rows)]))
    if not present:
        complain("tools log", f"its folder is gone; `forge tools undo {asked.name}` brings it back.")
    elif not any(row.current for row in rows):
        complain("tools log", f"the folder as it is now is no version. {standing_line(shop, asked.name)}")
    return 0


def run_undo(words: list[str]) -> int:
    reader = parser("tools undo", UNDO_HELP)
    reader.add_argument("name")
    reader.add_argument("digest", nargs="?")
    asked = reader.parse_args(words)
    if asked.digest == "":
        return wrong_use("undo", "the digest is empty")
    from golem_forge.custom.versions import is_known, short, undone

    shop = look_at_shop()
    if not is_known(shop, asked.name):
        return _unknown(shop, "undo", asked.name)
    try:
        done = undone(shop, asked.name, asked.digest or "")
    except (ForgeError, OSError) as error:
        return refused("undo", error)
    before, change = done.before, done.change
    if change.digest == before:
        print(f"tool '{asked.name}' is at version {short(before)} already.")
        return 0
    left = f" (before: {short(before)})" if before else ""
    print(f"tool '{asked.name}' is at version {short(change.digest)} again{left}.")
    print(standing_line(shop, asked.name))
    if change.set_aside is not None:
        stands = shop.home.shown(change.set_aside)
        complain("tools undo", f"what was there could not be kept as a version; it stands in {stands} now.")
    return 0


def _diff(shop: Workshop, name: str, digests: list[str]) -> int:
    from golem_forge.cli.tools.comparing import show_difference
    from golem_forge.custom.versions import compare, short

    found = compare(shop, name, digests)
    after = f"version {short(found.after)}" if found.after else f"the folder now ({short(found.new.digest)})"
    before = f"version {short(found.before)}" if found.before else "nothing, no version was ever trusted"
    if found.before and not digests:
        before = f"{before}, trusted last,"
    if found.old.digest == found.new.digest:
        print(f"tool '{name}': no difference between {before} and {after}")
        return 0
    print(f"tool '{name}': from {before} to {after}")
    show_difference("diff", name, found.old, found.new)
    return 0


def _cells(row: LogRow) -> tuple[str, str, str, str]:
    from golem_forge.cli.log.states import local_time
    from golem_forge.custom.versions import short

    states = ["trusted" if row.trusted else "untrusted", *(["now"] if row.current else [])]
    if row.restored:
        states.append("came back once" if row.restored == 1 else f"came back {row.restored} times")
    return short(row.digest), local_time(row.at), ", ".join(states), row.author.describe()


def _unknown(shop: Workshop, verb: str, name: str) -> int:
    close = nearest(name, shop.registry.entries)
    hint = f" (did you mean '{close}'?)" if close else ""
    complain(f"tools {verb}", f"no tool '{name}' of yours, now or earlier{hint}. `forge tools list` shows them.")
    return NO_SUCH_TOOL
