"""Changes: what one call changed in the zones, path by path, as data.

A ChangeSet is written when a call has ended (`sandbox/undo/log.py`) and read by everything that shows or undoes it. A
PathState names content by digest; the content itself is in the undo store. Paths are virtual; a name that is no UTF-8
keeps its bytes as surrogates, in JSON too: escape it before it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from golem_forge.core.lazy_dataclass import dataclass


class PathKind(StrEnum):
    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"
    SPECIAL = "special"
    """A FIFO, a socket or a device: nothing of it is kept, and no call's change has it. Undo may find it at a path."""


@dataclass(frozen=True, slots=True)
class PathState:
    """The state of a path. Two states are equal if the content, type and permissions are."""

    kind: PathKind
    mode: int = 0
    """Permission bits; 0 for links and for what is absent."""
    digest: str = ""
    """SHA-256 of a file's content; empty where it was not read (see `lost`)."""
    size: int = 0
    target: str = ""
    """The target of a symbolic link."""
    lost: str = ""
    """Why this state cannot be brought back: `40 MiB, above undo.max_file`; empty: it can."""

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"kind": self.kind.value}
        for name in ("mode", "digest", "size", "target", "lost"):
            if value := getattr(self, name):
                fields[name] = value
        return fields

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PathState:
        return cls(**{**data, "kind": PathKind(data["kind"])})


ABSENT = PathState(PathKind.ABSENT)


@dataclass(frozen=True, slots=True)
class PathChange:
    path: str
    """The virtual path, e.g. `/workspace/src/a.py`."""
    before: PathState
    after: PathState
    others: tuple[str, ...] = ()
    """Who else may have made this change, in words: `another command (c7)`, `somebody else: nothing of the command ran
    at that moment`. Undo shows such a path and does not preselect it."""
    added: int | None = None
    """Lines; None: not text, or too large to compare."""
    removed: int | None = None

    @property
    def in_git(self) -> bool:
        """Whether it is HEAD, a ref, the index or the stash of the zone's repository, and no file."""
        return self.path.split("/")[2:3] == [".git"]

    @property
    def is_file(self) -> bool:
        """Whether it is a file or link, which are what the counts include."""
        return not self.in_git and PathKind.DIRECTORY not in (self.before.kind, self.after.kind)

    @property
    def verb(self) -> str:
        if self.before.kind is PathKind.ABSENT:
            return "created"
        if self.after.kind is PathKind.ABSENT:
            return "deleted"
        return (
            "mode"
            if (self.before.digest, self.before.target, self.before.kind)
            == (
                self.after.digest,
                self.after.target,
                self.after.kind,
            )
            else "changed"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            **({"others": list(self.others)} if self.others else {}),
            **({"added": self.added, "removed": self.removed} if self.added is not None else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PathChange:
        return cls(
            data["path"],
            PathState.from_json(data["before"]),
            PathState.from_json(data["after"]),
            tuple(data.get("others", ())),
            data.get("added"),
            data.get("removed"),
        )


class RefChange(NamedTuple):
    name: str
    """The name of the ref: `refs/heads/main`, `HEAD`, `refs/stash`."""
    before: str
    """An object id, `ref: refs/heads/main`, of the stash all ids; empty: it was not there."""
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    session: str
    call: str
    """The id of the call, unique in a session."""
    tool: str
    worker: str = ""
    turn: int = 0
    """The number of the person's message that the call belongs to, from 1 on; 0 if the person called the
    tool by hand.
    """
    at: str = ""
    """The end of the call, as ISO 8601 in UTC."""
    what: str = ""
    """One line: the command's text, or the tool and its path."""
    changes: tuple[PathChange, ...] = ()
    problem: str = ""
    """Why some changes may be missing here; empty: it is complete."""
    undoes: tuple[str, ...] = ()
    """The ids of the calls that this call (`undo_changes`) took back."""

    @property
    def files(self) -> tuple[PathChange, ...]:
        """Files, links and directories, without git's own."""
        return tuple(one for one in self.changes if not one.in_git)

    @property
    def refs(self) -> tuple[RefChange, ...]:
        """HEAD, branches, tags and the stash. The index moves with them, and is not named."""
        names = ((one.path.split("/", 3)[3], one) for one in self.changes if one.in_git)
        return tuple(RefChange(name, one.before.target, one.after.target) for name, one in names if name != "index")

    @property
    def lines(self) -> tuple[int, int]:
        """(added, removed), of the files that are text."""
        return sum(one.added or 0 for one in self.files), sum(one.removed or 0 for one in self.files)

    def to_json(self) -> dict[str, Any]:
        return {
            "session": self.session,
            "call": self.call,
            "tool": self.tool,
            "worker": self.worker,
            "turn": self.turn,
            "at": self.at,
            "what": self.what,
            "changes": [one.to_json() for one in self.changes],
            "problem": self.problem,
            "undoes": list(self.undoes),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ChangeSet:
        known = {name: data.get(name, default) for name, default in (("worker", ""), ("turn", 0), ("at", ""))}
        return cls(
            session=data["session"],
            call=data["call"],
            tool=data["tool"],
            **known,
            what=data.get("what", ""),
            changes=tuple(map(PathChange.from_json, data.get("changes", ()))),
            problem=data.get("problem", ""),
            undoes=tuple(data.get("undoes", ())),
        )


def describe_changes(sets: Iterable[ChangeSet]) -> str:
    """`3 files (+12 −3)`: the line that ends a turn. Empty where nothing changed."""
    sets = tuple(sets)
    files = {one.path for each in sets for one in each.changes if one.is_file}
    if not files:
        return ""
    added, removed = (sum(each.lines[side] for each in sets) for side in (0, 1))
    lines = f" (+{added} −{removed})" if added or removed else ""
    return f"{len(files)} file{'s' if len(files) != 1 else ''}{lines}"
