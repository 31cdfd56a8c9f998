"""Changes as data: what one call changed in the zones, path by path; and the lines that differ between two texts. Pure.

A ChangeSet is written when a call has ended (`sandbox/undo/log.py`) and read by everything that shows or undoes it. A
PathState names content by digest; the content itself is in the undo store. Paths are virtual; a name that is no UTF-8
keeps its bytes as surrogates, in JSON too: escape it before it is shown.

Texts are compared as lines with their line ends. Threat: comparing can take quadratic time and worse, and an attacker
may have chosen both texts. So the common beginning and end are left out first, and above the amount of work the caller
sets, the rest is reported as one change: longer than necessary, but correct.

`file_diff` shows what changed in a file that a user trusted. Threats: the two texts may differ by a line end that only
some readers accept, which turns a comment into code; a file name with a line end in it would write rows of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import display_name

_CONTEXT: Final = 3
_MOST_NAMED: Final = 20


class LineChange(NamedTuple):
    """Lines `old_from:old_to` become `new_from:new_to` (counted from 0, ends not included)."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def line_changes(old: list[str], new: list[str], *, most_comparisons: int) -> list[LineChange]:
    """Beyond `most_comparisons` the differing middle is one change."""
    shortest = min(len(old), len(new))
    head = 0
    while head < shortest and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    if not old_middle and not new_middle:
        return []
    if not old_middle or not new_middle or len(old_middle) * len(new_middle) > most_comparisons:
        return [LineChange(head, len(old) - tail, head, len(new) - tail)]
    from difflib import SequenceMatcher  # 2 ms, and few calls compare texts

    opcodes = SequenceMatcher(None, old_middle, new_middle).get_opcodes()
    return [LineChange(head + a, head + b, head + c, head + d) for tag, a, b, c, d in opcodes if tag != "equal"]


def covers_all_changes(changes: Sequence[LineChange], old: list[str], new: list[str]) -> bool:
    """Whether nothing else differs: what stands between the changes, before and after them is the same in both."""
    old_at = new_at = 0
    for change in (*changes, LineChange(len(old), len(old), len(new), len(new))):
        if change.old_from < old_at or change.new_from < new_at:
            return False
        if old[old_at : change.old_from] != new[new_at : change.new_from]:
            return False
        old_at, new_at = change.old_to, change.new_to
    return True


def unified_hunks(old: list[str], new: list[str], changes: Sequence[LineChange]) -> Iterator[str]:
    """Rows that end with a line end; a line without one is followed by the row that says so, in the same text."""
    for group in _hunk_groups(changes):
        start, end = group[0], group[-1]
        before = min(_CONTEXT, start.old_from)
        after = min(_CONTEXT, len(old) - end.old_to)
        old_span = _span(start.old_from - before, end.old_to + after)
        new_span = _span(start.new_from - before, end.new_to + after)
        yield f"@@ -{old_span} +{new_span} @@\n"
        position = start.old_from - before
        for change in group:
            yield from (_row(" ", line) for line in old[position : change.old_from])
            yield from (_row("-", line) for line in old[change.old_from : change.old_to])
            yield from (_row("+", line) for line in new[change.new_from : change.new_to])
            position = change.old_to
        yield from (_row(" ", line) for line in old[position : end.old_to + after])


def _row(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _span(start: int, end: int) -> str:
    """Counted from 1; an empty span stands after the line before it."""
    count = end - start
    first = start + 1 if count else start
    return str(first) if count == 1 else f"{first},{count}"


def _hunk_groups(changes: Sequence[LineChange]) -> Iterator[list[LineChange]]:
    """Changes whose context would touch belong into one hunk."""
    group: list[LineChange] = []
    for change in changes:
        if group and change.old_from - group[-1].old_to > 2 * _CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


_MAX_COMPARISONS: Final = 250_000


def file_diff(name: str, old: str | None, new: str | None) -> Iterator[str]:
    """Yields the lines of a unified diff. None stands for a missing file. Lines end at LF only, so that a changed line
    end is shown.
    """
    shown = name.replace("\n", "\\n").replace("\t", "\\t")
    yield f"--- {'/dev/null' if old is None else f'a/{shown}'}"
    yield f"+++ {'/dev/null' if new is None else f'b/{shown}'}"
    before, after = _lines_with_ends(old), _lines_with_ends(new)
    changes = line_changes(before, after, most_comparisons=_MAX_COMPARISONS)
    yield from (row.removesuffix("\n") for row in unified_hunks(before, after, changes))


def _lines_with_ends(text: str | None) -> list[str]:
    return [] if not text else re.findall(r"[^\n]*\n|[^\n]+$", text)


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
    remade: tuple[str, ...] = ()
    """Directories that a tool can make again (`/workspace/node_modules`) and in which the call changed something.
    Nothing of them is kept, so undo leaves them as they are."""
    reached: tuple[str, ...] = ()
    """Hosts that the call could reach: `registry.npmjs.org:443`. What was sent there stays sent."""

    @property
    def changed_something(self) -> bool:
        """Whether it stands in a list of changes by itself; a call that only reached a host does not."""
        return bool(self.changes or self.remade or self.problem)

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
            **({"remade": list(self.remade)} if self.remade else {}),
            **({"reached": list(self.reached)} if self.reached else {}),
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
            remade=tuple(data.get("remade", ())),
            reached=tuple(data.get("reached", ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSelection:
    """A person's selection: a turn, a call or paths; empty means everything."""

    turn: int | None = None
    call: str = ""
    """The complete id."""
    paths: tuple[str, ...] = ()

    def of(self, sets: Iterable[ChangeSet]) -> tuple[ChangeSet, ...]:
        """Returns the selected change sets, with only the selected paths; a directory includes everything below it."""
        found = []
        for each in sets:
            if (self.turn is not None and each.turn != self.turn) or (self.call and each.call != self.call):
                continue
            if self.paths:
                changes = tuple(one for one in each.changes if is_below(one.path, self.paths))
                if not changes:
                    continue
                each = replace(each, changes=changes, remade=(), reached=())
            found.append(each)
        return tuple(found)

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments for the tool `undo_changes`."""
        given: dict[str, Any] = {"turn": self.turn} if self.turn is not None else {}
        given |= {"call": self.call} if self.call else {}
        return given | ({"paths": list(self.paths)} if self.paths else {})


EVERYTHING: Final = ChangeSelection()


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoSettings:
    """How much of what calls change is kept, and for how long."""

    keep: float = 30 * 86_400.0
    """Seconds for which a session's changes can be undone."""
    max_disk: int = 5 << 30
    """Maximum bytes for all sessions; the oldest are removed first."""
    max_file: int = 32 << 20
    """Maximum bytes of a file that is kept."""
    max_total: int = 2 << 30
    """Bytes for one zone, at most a tenth of the free disk."""


def is_below(path: str, places: Iterable[str]) -> bool:
    """Whether `path` is one of these places, or lies in one that is a directory. An empty place holds nothing."""
    return any(each and (path == each or path.startswith(f"{each.rstrip('/')}/")) for each in places)


def describe_changes(sets: Iterable[ChangeSet]) -> str:
    """`3 files (+12 −3)`: the line that ends a turn. Empty where nothing changed."""
    sets = tuple(sets)
    files = {one.path for each in sets for one in each.changes if one.is_file}
    if not files:
        return ""
    added, removed = (sum(each.lines[side] for each in sets) for side in (0, 1))
    lines = f" (+{added} −{removed})" if added or removed else ""
    return f"{len(files)} file{'s' if len(files) != 1 else ''}{lines}"


def describe_lasting(sets: Iterable[ChangeSet]) -> str:
    """What undo does not take back: `/workspace/node_modules (a tool can make it again); what was sent to a.test:443`.
    Empty if there is nothing."""
    sets = tuple(sets)
    directories, hosts = (
        [display_name(name) for name in dict.fromkeys(name for each in sets for name in getattr(each, kind))]
        for kind in ("remade", "reached")
    )
    said = [f"{name} (a tool can make it again)" for name in directories[:_MOST_NAMED]]
    said += [f"{len(directories) - _MOST_NAMED} more such directories"] if len(directories) > _MOST_NAMED else []
    if hosts:
        more = f" and {len(hosts) - _MOST_NAMED} more" if len(hosts) > _MOST_NAMED else ""
        said.append(f"what was sent to {', '.join(hosts[:_MOST_NAMED])}{more}")
    return "; ".join(said)
