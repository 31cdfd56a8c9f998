"""What is done with undo stores between calls: after a crash, with age, and when a session is deleted.

`recover` finishes a restore that was cut short and closes calls whose process was killed: what they changed is in their
session's log then, as of any other call. `prune` forgets sessions that are older than `undo.keep`, and the oldest ones
beyond `undo.max_disk`, never one that runs. Neither touches a file of a zone that a restore does not name.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Final

from golem_forge.config.sandbox_block import UndoSettings
from golem_forge.core.changes import ChangeSet
from golem_forge.events.journal_files import is_locked
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.undo.log import SessionChangeLog
from golem_forge.sandbox.undo.restore import finish_restores
from golem_forge.sandbox.undo.store import FOLDER, ZoneStore, all_stores, is_busy, zone_folder
from golem_forge.sandbox.undo.zone_history import outer_host, zone_history
from golem_forge.sandbox.zones import AccessMode

_PRUNED: Final = "pruned"
_PRUNE_EVERY_S: Final = 3_600.0
CUT_SHORT: Final = "Forge was ended while it ran"


def recover(home: Path, sandbox: Sandbox, settings: UndoSettings) -> list[str]:
    """Call it when a session begins, before anything else changes files. What there is to tell, a line each."""
    said: list[str] = []
    for zone in sandbox.zones.values():
        if zone.mode is not AccessMode.RW or not is_busy(zone_folder(home, outer_host(zone))):
            continue
        history = zone_history(zone, home, settings)
        with contextlib.suppress(OSError, sqlite3.Error):
            if finished := finish_restores(history):
                said.append(
                    f"An undo in /{zone.name} was cut short and is finished now: {_count(finished)}. "
                    "`forge undo --redo` takes it back."
                )
        for span, made in history.recover():
            facts = {**span.facts, "undoes": tuple(span.facts.get("undoes", ()))}
            changes = ChangeSet(**facts, changes=tuple(made), problem=CUT_SHORT)
            with contextlib.suppress(OSError):
                SessionChangeLog(home, span.session).append(changes)
            if made:
                redo = " --redo" if facts["undoes"] else ""  # what an undo did is taken back by a redo
                said.append(
                    f"{span.label} of session {span.session[:12]} was cut short after it changed {_count(made)}: "
                    f"`forge changes {span.session[:12]}` shows them, `forge undo {span.session[:12]}{redo}` takes "
                    "them back."
                )
    return said


def prune(home: Path, settings: UndoSettings, *, now: float | None = None) -> None:
    """At most once an hour, unless `now` is given."""
    stamp = home / FOLDER / _PRUNED
    clock = time.time() if now is None else now
    with contextlib.suppress(OSError):
        if now is None and clock - stamp.stat().st_mtime < _PRUNE_EVERY_S:
            return
    with contextlib.suppress(OSError):
        stamp.touch(mode=0o600)
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(contextlib.closing(one)) for one in all_stores(home)]
        total = 0
        ages: list[tuple[int, str, ZoneStore]] = []
        for store in stores:
            with store.locked():
                for session, (at, _) in store.sessions().items():
                    journal = home / "sessions" / f"{session}.jsonl"
                    if not journal.exists() or (clock - at > settings.keep and not is_locked(journal)):
                        store.forget_session(session)
                    else:
                        ages.append((at, session, store))
                total += store.collect()
        for _, session, store in sorted(ages, key=lambda one: one[0]):
            if total <= settings.max_disk:
                return
            if not is_locked(home / "sessions" / f"{session}.jsonl"):
                with store.locked():
                    before = store.kept_bytes()
                    store.forget_session(session)
                    total -= before - store.collect()


def forget_session(home: Path, session: str) -> None:
    """It was deleted: nothing that it changed can be undone any more."""
    SessionChangeLog(home, session).remove()
    for store in all_stores(home):
        with contextlib.closing(store), contextlib.suppress(OSError, sqlite3.Error), store.locked():
            store.forget_session(session)
            store.collect(every_byte=True)


def _count(paths: object) -> str:
    count = len(paths)  # type: ignore[arg-type]
    return f"{count} path{'s' if count != 1 else ''}"
