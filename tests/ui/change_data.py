"""Change sets as the engine records them, for tests of what shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golem_forge.core.changes import ABSENT, ChangeSet, PathChange, PathKind, PathState
from golem_forge.sandbox.undo.log import SessionChangeLog


def a_file(content: str) -> PathState:
    return PathState(PathKind.FILE, mode=0o644, digest=content.ljust(64, "0"), size=len(content))


def created(path: str, added: int = 1) -> PathChange:
    return PathChange(path, ABSENT, a_file("new"), added=added, removed=0)


def edited(path: str, added: int = 1, removed: int = 1, **more: Any) -> PathChange:
    return PathChange(path, a_file("old"), a_file("new"), added=added, removed=removed, **more)


def change_set(session: str, call: str, turn: int, *changes: PathChange, **more: Any) -> ChangeSet:
    what = f"write_file {changes[0].path}" if changes else ""
    given = {"tool": "write_file", "what": what, "at": "2030-01-01T10:00:00Z", "worker": "main"} | more
    return ChangeSet(session=session, call=call, turn=turn, changes=changes, **given)


def record(home: Path, *sets: ChangeSet) -> None:
    for each in sets:
        SessionChangeLog(home, each.session).append(each)


def files_changed(turn: int, *changes: PathChange, call: str = "c1", **more: Any) -> dict[str, Any]:
    """The data of the event `filesChanged`."""
    return {
        "callId": call,
        "tool": "write_file",
        "turn": turn,
        "files": [
            {"path": one.path, "verb": one.verb, "added": one.added, "removed": one.removed, "selected": not one.others}
            for one in changes
        ],
        "count": len(changes),
        "added": sum(one.added or 0 for one in changes),
        "removed": sum(one.removed or 0 for one in changes),
        "logHash": "0" * 64,
        **more,
    }
