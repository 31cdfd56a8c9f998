"""GitExchange: what is carried over between the user's git directory and its private copy (the shadow).

Takes both sides and what they held when they were last equal. What only the user changed goes into the shadow. What
only a command changed goes into the user's directory if it is on the list and its content is valid: HEAD, the
index, refs, logs, messages, the state of a stopped merge or rebase, new worktrees inside the zone. What both
changed stays the user's, and a command's ref is kept as `refs/forge/…`. Threat: commands write while this runs. So
the bytes that were judged are the bytes that are written, and a stamp is taken before the content is read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from typing import Any, Final

from golem_forge.core.calls import Leftover, Severity
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.sandbox.errors import one_line
from golem_forge.sandbox.git import directory, rules
from golem_forge.sandbox.git.directory import PACKED_REFS, GitDir, GitLocked, Stamp
from golem_forge.sandbox.git.index import TrackedFiles
from golem_forge.sandbox.protected import GIT_FILE, normal_name
from golem_forge.sandbox.zones import Zone

WRITABLE_FILE: Final = regex(
    r"[A-Z_]*HEAD|[A-Z_]+_MSG|[A-Z_]*EDITMSG|index|sharedindex\.[0-9a-f]{40,64}|MERGE_(?:MODE|RR)|AUTO_MERGE|BISECT_[A-Z_]+"
)
"""Files of a git directory that a command may change."""
WRITABLE_FOLDERS: Final = ("logs", *rules.SEQUENCER_FOLDERS)
"""Directories of plain files that a command may change."""
SHARED_FOLDERS: Final = ("objects", "lfs")
"""Content by its hash: written in place."""
EXCHANGED_NAMES: Final = frozenset({"refs", PACKED_REFS, "modules", "worktrees", *WRITABLE_FOLDERS})
TRANSIENT_NAME: Final = regex(
    r".*\.lock|gc\.(?:pid|log)|packed-refs\.new|tmp.*|.*\.sw[px]|fsmonitor--daemon.*|description|branches"
)
"""What git and editors leave for a moment, or by habit; nobody needs to hear of it."""
_OF_A_WORKTREE: Final = ("gitdir", "commondir", "locked")
_OBEYED: Final = frozenset({"commondir", "config", "config.worktree", "gitdir", "hooks", "info"})
_A_HEAD: Final = regex(r"(?:worktrees/[^/]+/)?HEAD")
_HEAD: Final = regex(rb"ref: (refs/heads/[^\n]+)\n?|[0-9a-f]{40}(?:[0-9a-f]{24})?\n?")
_SCRATCH: Final = "patch-merge-index"
"""Of `git am`, which makes it anew."""
_MOST_BYTES: Final = 64 << 20
"""So much is carried over to the person in one exchange, besides an index."""
_NO_REFS: Final = ("refs/replace/", "refs/forge/")
"""Replacements make git show other content than a commit has; the other ones are Forge's."""
_MOST_NAMED: Final = 8


class SyncPhase(StrEnum):
    """What is going on inside while both sides are compared."""

    RUNNING = "running"
    """A command is at work: what is missing may only be on its way, and an operation that it began is left to it."""
    BETWEEN = "between"
    """Before a command, or between two calls of a process that serves many."""
    ENDED = "ended"
    """A command has ended: what it left is final, and told."""


StampPair = tuple[Stamp | None, Stamp | None]
"""Of the person's file and of the shadow's."""


@dataclass(slots=True)
class SyncState:
    """What both sides held when they were last the same."""

    files: dict[str, StampPair] = field(default_factory=dict)
    refs: dict[str, dict[str, str]] = field(default_factory=dict)
    """By the prefix of the git directory below `.git`."""
    told: dict[str, Any] = field(default_factory=dict)
    """What was refused already, so that it is told once."""


class GitExchange:
    """Of one git directory: the zone's `.git` (`prefix` is empty) or that of a submodule (`modules/x/`)."""

    def __init__(
        self, zone: Zone, prefix: str, sides: tuple[GitDir, GitDir], state: SyncState, tracked: TrackedFiles
    ) -> None:
        self._zone = zone
        self._prefix = prefix
        self._real, self._shadow = sides
        self._state = state
        self._tracked = tracked
        self.leftovers: list[Leftover] = []
        self.moved: dict[str, tuple[str | None, str | None]] = {}
        """Refs that were carried over to the person: what they were, and what they are."""
        self.locked_paths: list[str] = []
        """What could not be written because another git has its lock, or changed it meanwhile."""
        self._bytes = _MOST_BYTES
        self._when = SyncPhase.ENDED
        self.postponed = False
        """Something was left for later, because a command is at work."""

    def run(self, standing: Collection[str], when: SyncPhase) -> None:
        """`standing`: what mounts stand on in the shadow. Raises OSError, TooManyFiles."""
        self._when = when
        begun = [folder for folder in rules.SEQUENCER_FOLDERS if self._shadow.look(folder) is not None]
        if when is SyncPhase.RUNNING and any(self._real.look(folder) is None for folder in begun):
            self.postponed = True
            return
        self._exchange_refs()
        self._exchange_files()
        self._tell_of_others(standing)

    # --- files

    def _exchange_files(self) -> None:
        theirs, ours = self._files(self._real), self._files(self._shadow)
        kept_back = self._unfinished()
        for path in sorted({*theirs, *ours, *self._known()}, key=lambda path: (path == "HEAD", path)):
            name = f"{self._prefix}{path}"
            before = self._state.files.get(name, (None, None))
            now = theirs.get(path), ours.get(path)
            if now == before or path.startswith(kept_back):
                continue
            if now[1] is None and before[1] is not None and self._when is SyncPhase.RUNNING:
                self.postponed = True
                continue
            try:
                now = self._exchange_file(path, before, now)
            except GitLocked:
                self.locked_paths.append(name)
                continue
            if now == (None, None):
                self._state.files.pop(name, None)
            else:
                self._state.files[name] = now

    def _exchange_file(self, path: str, before: StampPair, now: StampPair) -> StampPair:
        """What the two sides hold afterwards."""
        real, shadow = self._real, self._shadow
        theirs = real.read(path) if now[0] else None
        ours = shadow.read(path) if now[1] else None
        unreadable = theirs is None and (now[0] is not None or real.look(path) is not None)
        if theirs == ours or unreadable:  # what the person has there and nobody can read is not touched
            return now
        if now[0] != before[0] or now[1] == before[1] or (ours is None and now[1] is not None):
            if path == "index" and before[0] is not None and now[1] != before[1]:
                self._tell(
                    "git_index", Severity.WARNING, "You and the command both changed git's index: yours stays.", path
                )
            self._put_back(path, theirs, now[0])
            return now[0], shadow.stamp(path)
        if path.rpartition("/")[2] == "index" and ours is not None:
            ours, why = self._tracked.judged(f"{self._prefix}{path}", theirs, ours)
        else:
            why = self._objection(path, theirs, ours)
        if why:
            kind = "git_head" if _A_HEAD.fullmatch(path) else "git_files"
            self._tell(kind, Severity.CRITICAL, why, path)
            self._put_back(path, theirs, now[0])
            return now[0], shadow.stamp(path)
        if ours is not None and not path.endswith("index"):
            self._bytes -= len(ours)
            if self._bytes < 0:
                raise GitLocked(path)
        _write_side(real, path, ours, now[1], still=lambda: real.stamp(path) == now[0])
        return real.stamp(path), now[1]

    def _put_back(self, path: str, content: bytes | None, stamp: Stamp | None) -> None:
        """The shadow holds what the person has, whatever a command put in its way."""
        pieces = path.split("/")
        for length in range(1, len(pieces) + 1):
            found = self._shadow.look("/".join(pieces[:length]))
            expected = stat.S_ISREG if length == len(pieces) else stat.S_ISDIR
            if found is not None and not expected(found.st_mode):
                self._shadow.clear("/".join(pieces[:length]))
        _write_side(self._shadow, path, content, stamp)

    def _objection(self, path: str, theirs: bytes | None, ours: bytes | None) -> str:
        """Why what a command left at a path is not taken over; empty: it is."""
        shown = self._shown(path)
        pieces = path.split("/")
        first, last = pieces[0], pieces[-1]
        if first == "worktrees" and not self._leads_here(pieces[1]):
            return f"The command changed {shown}, which belongs to a worktree outside of the zone; the old one stays."
        if ours is None:
            return f"The command removed {shown}; it was put back." if path in ("HEAD", "index") else ""
        if _A_HEAD.fullmatch(path):
            match = _HEAD.fullmatch(ours)
            if match is None or (match[1] is not None and not directory.is_ref_name(os.fsdecode(match[1]))):
                return f"The command wrote something to {shown} that names no branch and no commit; the old one stays."
        if not {*pieces[:-1]}.isdisjoint(rules.SEQUENCER_FOLDERS) and (why := rules.sequencer_objection(last, ours)):
            return f"The command wrote {shown}, and {why}; Forge ignored it."
        if first == "worktrees" and path.count("/") == 2 and last in ("gitdir", "commondir"):
            said = os.fsdecode(ours).strip()
            fits = said == "../.." if last == "commondir" else said.endswith("/.git")
            if theirs is not None or not fits:
                return f"The command wrote {shown}, which would lead git elsewhere; Forge ignored it."
        return ""

    def _unfinished(self) -> tuple[str, ...]:
        """The directories of stopped operations whose state stays in the shadow: going on would run something that
        nobody was shown. Told of, with all other stopped ones, when a command has ended."""
        kept = []
        for folder in rules.SEQUENCER_FOLDERS:
            key = f"{self._prefix}{folder}"
            if self._shadow.look(folder) is None:
                self._state.told.pop(key, None)
                continue
            names = {name: found for name, found in self._shadow.names(folder).items() if name != _SCRATCH}
            why = next((why for name in names if (why := self._sequencer_objection(folder, name))), "")
            if why:
                kept.append(f"{folder}/")
            if self._when is not SyncPhase.ENDED:
                continue
            what = "cherry-pick or revert" if folder == "sequencer" else "rebase"
            if why:
                text = (
                    f"A {what} stopped, and {why}: it stays inside the walls ({self._shown(folder)}), and your git does"
                    " not know of it."
                )
                self._tell_once(key, why, "git_sequencer", Severity.CRITICAL, text)
            else:
                text = f"A {what} is not finished in {self._shown('')}: see `git status`."
                state = [sorted((name, found.st_size, found.st_mtime_ns) for name, found in names.items())]
                self._tell_once(key, repr(state), "git_sequencer", Severity.WARNING, text)
        return tuple(kept)

    def _sequencer_objection(self, folder: str, name: str) -> str:
        path = f"{folder}/{name}"
        ours = self._shadow.read(path)
        return "" if ours is not None and ours == self._real.read(path) else rules.sequencer_objection(name, ours)

    def _files(self, side: GitDir) -> dict[str, Stamp]:
        """What is carried over by content; refs are not among it. Of worktrees elsewhere too: what only they reach must
        not look like garbage to a `git gc`."""
        free = free_names(self._zone, self._prefix) - {"hooks", "info"}
        found = {
            name: directory.stamp_of(info)
            for name, info in side.names().items()
            if stat.S_ISREG(info.st_mode) and (WRITABLE_FILE.fullmatch(name) or name in free)
        }
        for folder in (*WRITABLE_FOLDERS, *(() if self._prefix else ("worktrees",))):
            for path, info in side.files(folder):
                wanted = stat.S_ISREG(info.st_mode) and not path.endswith((".lock", ".tmp", f"/{_SCRATCH}"))
                if wanted and (folder != "worktrees" or _is_of_a_worktree(path)):
                    found[path] = directory.stamp_of(info)
        return found

    def _known(self) -> Iterator[str]:
        for name in self._state.files:
            if name.startswith(self._prefix) and (self._prefix or not name.startswith("modules/")):
                yield name.removeprefix(self._prefix)

    def _leads_here(self, worktree: str) -> bool:
        """Whether a worktree lies in this zone. Its `gitdir` may be relative to where it stands."""
        path = f"worktrees/{worktree}/gitdir"
        said = self._real.read(path) or self._shadow.read(path)
        if said is None:
            return True
        place = os.path.join(self._zone.host, GIT_FILE, "worktrees", worktree, os.fsdecode(said).strip())
        return os.path.normpath(place).startswith(self._zone.host.rstrip("/") + "/")

    # --- refs

    def _exchange_refs(self) -> None:
        base = self._state.refs.get(self._prefix)
        if base is None and (packed := self._real.read(PACKED_REFS)) is not None:
            self._shadow.replace(PACKED_REFS, packed)
        theirs, base = self._real.refs(), base or {}
        ours = self._shadow.refs() if self._shadow_has_refs() else base
        kept = dict(base)
        gone = [name for name in base if name not in ours and theirs.get(name) == base[name]]
        if len(gone) > _MOST_NAMED and self._when is not SyncPhase.RUNNING:  # more than anybody is told of by name
            for name in gone:
                if directory.is_object_id(base[name]):
                    with contextlib.suppress(GitLocked):
                        beside = f"refs/forge/was/{name.removeprefix('refs/')}"
                        self._real.set_ref(beside, base[name], old=theirs.get(beside))
            text = f"{len(gone)} refs that the command deleted in {self._shown('')} are kept as refs/forge/was/…"
            self._tell("git_refs", Severity.WARNING, text, "refs")
        # Those that go come first: only then can a branch `a` take the place of `a/b`.
        for name in sorted({*theirs, *ours, *base}, key=lambda name: (name in ours, name)):
            their, our, old = theirs.get(name), ours.get(name), base.get(name)
            if our is None and old is not None and self._when is SyncPhase.RUNNING:
                self.postponed = True
                continue
            try:
                if their != our:
                    their = self._exchange_ref(name, their, our, old)
            except GitLocked:
                self.locked_paths.append(name)
                continue
            except (OSError, ValueError):  # a name that no file can have, or beside one that stands in its way
                text = f"In {self._shown('')} the ref {name[:120]} cannot be carried over."
                self._tell_once(f"{self._prefix}{name}", our, "git_refs", Severity.WARNING, text)
                continue
            if their is None:
                kept.pop(name, None)
            else:
                kept[name] = their
        self._state.refs[self._prefix] = kept

    def _exchange_ref(self, name: str, their: str | None, our: str | None, old: str | None) -> str | None:
        """What both sides hold afterwards."""
        why = _ref_objection(name, our)
        if our is None and self._is_on(name):
            why = f"the command deleted {_shown_ref(name)}, the branch that you are on; it was put back."
        if our != old and their == old and not why:
            if our is None:
                self._real.delete_ref(name, old=their)
            else:
                self._real.set_ref(name, our, old=their)
            self.moved[name] = (their, our)
            return our
        if our != old and their == old:
            self._tell("git_refs", Severity.CRITICAL, f"In {self._shown('')} {why}", name)
        elif our != old and our is not None and not why:  # both moved it
            beside = f"refs/forge/{name.removeprefix('refs/')}-{our[:12]}"
            self._real.set_ref(beside, our, old=self._real.ref(beside))
            text = f"You and the command both moved {_shown_ref(name)}: yours stays, the command's is kept as {beside}."
            self._tell("git_refs", Severity.WARNING, text, name)
        if their is None:
            self._shadow.delete_ref(name, old=our)
        else:
            self._put_back(name, f"{their}\n".encode(), None)
        return their

    def _is_on(self, branch: str) -> bool:
        """Whether the person is on a branch and the command did not go to another one. Git refuses to delete it then,
        so whoever did took the file away."""
        said = (_HEAD.fullmatch(side.read("HEAD") or b"") for side in (self._real, self._shadow))
        theirs, ours = (os.fsdecode(match[1] or b"") if match is not None else None for match in said)
        return theirs == branch and ours in (branch, None)

    def _shadow_has_refs(self) -> bool:
        """False: a command took the whole directory away, which is no deletion of each. It is put back."""
        found = self._shadow.look("refs")
        if found is not None and stat.S_ISDIR(found.st_mode):
            return True
        text = f"The command removed {self._shown('refs')}; it was put back."
        self._tell("git_refs", Severity.CRITICAL, text, "refs")
        self._shadow.clear("refs")
        self._shadow.make_folder("refs")
        self._shadow.clear(PACKED_REFS)
        for name, value in self._state.refs.get(self._prefix, {}).items():
            with contextlib.suppress(GitLocked, OSError):
                self._shadow.set_ref(name, value, old=None)
        return False

    # --- what else a command left in the shadow

    def _tell_of_others(self, standing: Collection[str]) -> None:
        links = [path for path, info in self._shadow.files("") if stat.S_ISLNK(info.st_mode)]
        for path in links:
            self._shadow.remove(path)
        for path in links[:_MOST_NAMED]:
            text = f"The command put a link at {self._shown(path)}; it was removed."
            self._tell("git_link", Severity.CRITICAL, text, path)
        free = free_names(self._zone, self._prefix)
        for name, info in self._shadow.names().items():
            if is_ordinary_name(name) or name in standing or name in free:
                continue
            obeyed = name.casefold() in _OBEYED
            severity = Severity.CRITICAL if obeyed else Severity.NOTE
            text = f"The command made {self._shown(name)}; Forge ignored it."
            self._tell_once(f"{self._prefix}{name}", info.st_ino, "git_files", severity, text)
            if obeyed:  # else git would not work inside any more
                self._shadow.clear(name)

    # --- words

    def _shown(self, path: str) -> str:
        whole = f"{self._prefix}{path}".rstrip("/")
        return self._zone.virtual((GIT_FILE, whole) if whole else ())

    def _tell(self, kind: str, severity: Severity, text: str, path: str) -> None:
        self.leftovers.append(
            Leftover(kind=kind, severity=severity, text=one_line(text), paths=(one_line(self._shown(path)),))
        )

    def _tell_once(self, key: str, value: Any, kind: str, severity: Severity, text: str) -> None:
        if self._state.told.get(key) != value:
            self._state.told[key] = value
            self._tell(kind, severity, text, key.removeprefix(self._prefix))


def moved_refs(zone: Zone, prefix: str, moved: dict[str, tuple[str | None, str | None]]) -> Leftover:
    """One line about refs that commands moved, made or deleted."""
    words, lost = [], []
    git_dir = os.path.join(zone.host, GIT_FILE, prefix)
    for name, (old, new) in moved.items():
        if old is None:
            words.append(f"{_shown_ref(name)} made at {_short(new)}")
        elif new is None:
            words.append(f"{_shown_ref(name)} deleted (was {_short(old)})")
        else:
            words.append(f"{_shown_ref(name)} {_short(old)} → {_short(new)}")
        of_people = name.startswith(("refs/heads/", "refs/tags/"))
        if (
            of_people
            and old
            and (new is None or len(words) > _MOST_NAMED or not directory.is_ancestor(git_dir, old, new))
        ):
            lost.append(_shown_ref(name))
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    note = f"; commits of the old one are no longer in {', '.join(lost[:_MOST_NAMED])}" if lost else ""
    shown = zone.virtual((GIT_FILE, prefix.rstrip("/")) if prefix else ())
    text = one_line(f"Git refs of {shown} moved: {', '.join(words[:_MOST_NAMED])}{more}{note}.")
    severity = Severity.WARNING if lost else Severity.NOTE
    return Leftover(kind="git_refs", severity=severity, text=text, paths=(one_line(f"{shown}/refs"),))


def free_names(zone: Zone, prefix: str) -> frozenset[str]:
    """What the program's author leaves writable in a git directory: `unprotect: [.git/config]`."""
    names = (normal_name(name).removeprefix(f"{GIT_FILE}/") for name in zone.unprotect)
    return frozenset(name.rpartition("/")[2] for name in names if bool(prefix) == name.startswith("modules/"))


def is_ordinary_name(name: str) -> bool:
    """What a git directory holds that is exchanged or shared, or there for a moment."""
    known = name in EXCHANGED_NAMES or name in SHARED_FOLDERS
    return known or bool(WRITABLE_FILE.fullmatch(name) or TRANSIENT_NAME.fullmatch(name))


def _is_of_a_worktree(path: str) -> bool:
    """Whether a file below `worktrees/<name>` is carried over."""
    rest = path.split("/")[2:]
    if len(rest) == 1:
        return rest[0] in _OF_A_WORKTREE or WRITABLE_FILE.fullmatch(rest[0]) is not None
    return bool(rest) and rest[0] in (*WRITABLE_FOLDERS, "refs")


def _write_side(
    side: GitDir, path: str, content: bytes | None, stamp: Stamp | None, still: Callable[[], bool] | None = None
) -> None:
    """`stamp`: of the file that the content was read from, whose time it keeps; `still`: see `GitDir.replace`."""
    if content is None:
        side.remove(path, still=still)
        return
    found = side.look(path)
    mode = stat.S_IMODE(found.st_mode) & 0o666 if found is not None else 0
    side.replace(path, content, mode=mode or 0o644, written=stamp[2] if stamp else None, still=still)


def _ref_objection(name: str, value: str | None) -> str:
    """Why a ref that a command set is not taken over."""
    if not directory.is_ref_name(name):
        return f"the command made a ref with a name that git does not allow ({name[:80]}); Forge ignored it."
    if name.startswith(_NO_REFS):
        return f"the command changed {name[:120]}, which would change what git shows; Forge ignored it."
    if value is None or directory.is_object_id(value):
        return ""
    target = value.removeprefix("ref: ")
    if name.startswith("refs/remotes/") and target.startswith("refs/remotes/") and directory.is_ref_name(target):
        return ""
    return f"the command wrote something to {name[:120]} that is no commit; Forge ignored it."


def _shown_ref(name: str) -> str:
    """As people say it: `main`, `tag v1`."""
    for start, word in (("refs/heads/", ""), ("refs/tags/", "tag "), ("refs/remotes/", "")):
        if name.startswith(start):
            return word + name.removeprefix(start)
    return name


def _short(value: str | None) -> str:
    return value[:7] if value and directory.is_object_id(value) else (value or "nothing")
