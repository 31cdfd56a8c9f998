"""`forge tools update NAME [@COMMIT]`: a newer version of an imported tool, after its difference was shown.

A change like any other: the new files are a draft that asks again, the old ones stay a version. Nothing runs. Threat:
the new version is a stranger's; it is shown so that it cannot steer the terminal, before anything is replaced.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import ask_yes, can_ask, complain, homely, one_line, parser
from golem_forge.cli.tools.telling import DENIED, FAILED, NO_SUCH_TOOL, look_at_shop, refused, standing_line, wrong_use
from golem_forge.core.errors import ForgeError

if TYPE_CHECKING:
    from golem_forge.custom.registry.folder import FolderFiles
    from golem_forge.custom.sharing.lock import Locked
    from golem_forge.custom.sharing.updating import Update
    from golem_forge.custom.workshop import Workshop

HELP: Final = """usage: forge tools update NAME [@COMMIT] [--yes]

Fetches an imported tool again from where it came from: of a git repository the newest commit of its default branch,
or @COMMIT (a full commit id); of a folder or archive what is there now. Shows what would change, then asks.

  --yes     replace it without being asked

Nothing of it is executed. The tool is a draft then and asks again when it is used; `forge tools undo NAME` goes back.
Exit: 0 done or nothing new, 1 it failed, 2 usage, 3 not agreed, 4 no such tool."""


def run_update(words: list[str]) -> int:
    reader = parser("tools update", HELP)
    reader.add_argument("name")
    reader.add_argument("commit", nargs="?", metavar="@COMMIT")
    reader.add_argument("--yes", action="store_true")
    asked = reader.parse_args(words)

    from golem_forge.custom.sharing.lock import read_lock
    from golem_forge.custom.sharing.sources import pinned
    from golem_forge.custom.sharing.updating import prepare

    commit = ""
    if asked.commit is not None:
        try:
            commit = pinned(asked.commit.removeprefix("@"))
        except ForgeError as error:
            return wrong_use("update", error.message)
    shop = look_at_shop()
    try:
        record = read_lock(shop.home).get(asked.name)
        if record is None or shop.registry.look(asked.name) is None:
            return _nothing_to_update(shop, asked.name, record)
        update = prepare(asked.name, home=shop.home, commit=commit, environ=os.environ)
        if update.new.digest == update.old.digest:
            return _nothing_new(shop, update, record)
        return _update(shop, update, record, yes=asked.yes)
    except (ForgeError, OSError) as error:
        return refused("update", error)


def _nothing_to_update(shop: Workshop, name: str, record: Locked | None) -> int:
    from golem_forge.cli.tools.shop import entry_of

    if record is not None:
        complain("tools update", f"the folder of '{name}' is gone; `forge tools undo {name}` brings it back.")
    elif shop.registry.look(name) is not None:
        complain("tools update", f"tool '{name}' was not imported; there is nothing to update it from.")
        return FAILED
    else:
        entry_of(shop, "update", name)  # says so, with the nearest name
    return NO_SUCH_TOOL


def _nothing_new(shop: Workshop, update: Update, record: Locked) -> int:
    """The same files at another commit: only the record moves."""
    from dataclasses import replace

    from golem_forge.custom.sharing import lock
    from golem_forge.custom.sharing.importing import locked

    new = locked(update.imported, record.time)
    if new != record:
        from golem_forge.events.clock import iso_now

        lock.record(shop.home, replace(new, time=iso_now()))
    print(f"tool '{record.name}' is up to date{_at(update)}; no file changed.")
    return 0


def _update(shop: Workshop, update: Update, record: Locked, *, yes: bool) -> int:
    from golem_forge.cli.tools.comparing import show_difference
    from golem_forge.custom.sharing.updating import carry_out

    name = record.name
    print(f"tool '{name}' from {homely(update.imported.source)}")
    show_difference("update", name, update.old, update.new)
    if update.old.digest != record.digest:
        complain("tools update", f"'{name}' was edited since it was imported; that is replaced, and stays a version.")
    if not yes and not _agreed(update):
        return DENIED
    carry_out(update, home=shop.home, seen=partial(_kept, shop))
    _noted(shop, update)
    print(f"Updated tool '{name}' to {one_line(update.imported.version)}{_at(update)}; nothing of it was executed.")
    print(standing_line(shop, name))
    return 0


def _agreed(update: Update) -> bool:
    name, commit = update.imported.name, update.imported.commit
    if not can_ask():
        exactly = f"{name} @{commit}" if commit else name  # the default branch may have moved on by then
        complain(
            "tools update",
            "nobody can be asked here; nothing was changed. Read the difference above, then run "
            f"`forge tools update {exactly} --yes`.",
        )
        return False
    if ask_yes(f"Replace the files of '{name}' by these? [y/N] "):
        return True
    print("Nothing was changed.")
    return False


def _kept(shop: Workshop, name: str, old: FolderFiles) -> None:
    """What is replaced is a version first, also where it was edited until it was no tool any more."""
    from golem_forge.sandbox.store import ContentStore

    ContentStore(shop.home).put(old.files, executable=old.executable)
    shop.book.saw(name, old.digest)


def _noted(shop: Workshop, update: Update) -> None:
    from golem_forge.custom.book import Author, AuthorKind

    imported = update.imported
    shop.book.saw(imported.name, imported.digest, Author(AuthorKind.IMPORT, source=imported.source))
    shop.registry.refresh()


def _at(update: Update) -> str:
    return f" (commit {update.imported.commit})" if update.imported.commit else ""
