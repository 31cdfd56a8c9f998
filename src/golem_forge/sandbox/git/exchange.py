"""GitExchange: what is carried over between the user's git directory and its private copy (the shadow).

Takes both sides and what they held when they were last equal. What only the user changed goes into the shadow. What
only a command changed goes to the user: refs and every object by a push that git itself verifies (`transport`), the
index as a list of entries (`index`), and files that are on the list and whose content is valid: HEAD, messages, the
state of a stopped merge or rebase, new worktrees inside the zone. No file that names an object arrives before git has
found the object and all that it needs. What both changed stays the user's, and a command's ref is kept as
`refs/forge/…`. What git does not accept stays in the shadow and is told; nothing of the user's is deleted.

Threat: commands write while this runs. So the bytes that were judged are the bytes that are written, and a stamp is
taken before the content is read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

from golem_forge.core.calls import Leftover, Severity
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.sandbox.errors import one_line
from golem_forge.sandbox.git import directory, rules
from golem_forge.sandbox.git.directory import PACKED_REFS, GitDir, GitLocked, Stamp
from golem_forge.sandbox.git.index import Entry, IndexChange, compare_entries, read_entries
from golem_forge.sandbox.git.transport import GitFailed, RefUpdate, Transport
from golem_forge.sandbox.handles import Parts
from golem_forge.sandbox.protected import GIT_FILE, normal_name
from golem_forge.sandbox.zones import Zone

WRITABLE_FILE: Final = regex(
    r"[A-Z_]*HEAD|[A-Z_]+_MSG|[A-Z_]*EDITMSG|index|sharedindex\.[0-9a-f]{40,64}|MERGE_(?:MODE|RR)|AUTO_MERGE|BISECT_[A-Z_]+"
)
"""Files of a git directory that a command may change."""
WRITABLE_FOLDERS: Final = ("logs", *rules.SEQUENCER_FOLDERS)
"""Directories of plain files that a command may change."""
HOST_FOLDER: Final = "forge"
"""In the shadow: what of the user's git directory stands there read-only."""
OWN_FOLDERS: Final = ("objects", "lfs", HOST_FOLDER)
EXCHANGED_NAMES: Final = frozenset({"refs", PACKED_REFS, "modules", "worktrees", *WRITABLE_FOLDERS})
TRANSIENT_NAME: Final = regex(
    r".*\.lock|gc\.(?:pid|log)|packed-refs\.new|tmp.*|.*\.sw[px]|fsmonitor--daemon.*|description|branches"
)
"""What git and editors leave for a moment, or by habit; nobody needs to hear of it."""
_OF_A_WORKTREE: Final = ("gitdir", "commondir", "locked")
_OBEYED: Final = frozenset({"commondir", "config", "config.worktree", "gitdir", "hooks", "info"})
_A_HEAD: Final = regex(r"(?:worktrees/[^/]+/)?HEAD")
_AN_INDEX: Final = regex(r"(?:worktrees/[^/]+/)?index")
_ONE_WAY: Final = regex(r"(?:worktrees/[^/]+/)?(?:logs/(?!refs/stash$).*|sharedindex\..*)")
"""Copied into the shadow, never out of it: git on the user's side keeps its own."""
_STASH_LOG: Final = "logs/refs/stash"
_HEAD: Final = regex(rb"ref: (refs/heads/[^\n]+)\n?|[0-9a-f]{40}(?:[0-9a-f]{24})?\n?")
_NAMES_OBJECTS: Final = regex(
    r"(?:.*/)?(?:[A-Z_]*HEAD|AUTO_MERGE|BISECT_(?:EXPECTED_REV|ANCESTORS_OK)|refs/.*|logs/refs/stash|onto|orig[-_]head|stopped-sha"
    r"|autostash|squash-onto|amend|head|abort-safety|rewritten(?:-list|-pending)?|original-commit|git-rebase-todo(?:\.backup)?"
    r"|done|todo|update-refs)"
)
"""Files in which an object id is an object id, and not a word of a message."""
_ID: Final = regex(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40})(?![0-9a-f])")
_SCRATCH: Final = "patch-merge-index"
"""Of `git am`, which makes it anew."""
_MOST_BYTES: Final = 64 << 20
"""So much is carried over to the user in one exchange, besides objects and an index."""
_NO_REFS: Final = regex(r"refs/(?:replace|forge)/.*|refs/heads/HEAD|refs/[^/]+/-.*")
"""Replacements make git show other content than a commit has; a branch HEAD is taken for HEAD, and `-x` for an option;
the others are Forge's."""
_PINS: Final = "refs/forge/base/"
"""Commits that the shadow was given: the user's `git gc` must not take what commands may still build on."""
_MOST_PINS: Final = 200
_MOST_KNOWN: Final = 5000
_MOST_ALONE: Final = 16
_FEW_OBJECTS: Final = 200
_MOST_NAMED: Final = 8
_GIT_SAID: Final = "git said: "


class SyncPhase(StrEnum):
    """What is going on inside while both sides are compared."""

    RUNNING = "running"
    """A command is at work: what is missing may only be on its way, and an operation that it began is left to it."""
    BETWEEN = "between"
    """Before a command, or between two calls of a process that serves many."""
    ENDED = "ended"
    """A command has ended: what it left is final, and told."""


StampPair = tuple[Stamp | None, Stamp | None]
"""Of the user's file and of the shadow's."""


@dataclass(slots=True)
class SyncState:
    """What both sides held when they were last the same."""

    files: dict[str, StampPair] = field(default_factory=dict)
    refs: dict[str, dict[str, str]] = field(default_factory=dict)
    """By the prefix of the git directory below `.git`."""
    told: dict[str, Any] = field(default_factory=dict)
    """What was refused already, so that it is told once."""


class WorkTree(NamedTuple):
    """Where a work tree and the zone lie to each other; one of the two begins in the other."""

    lead: Parts = ()
    """The work tree begins here in the zone."""
    below: Parts = ()
    """The zone begins here in the work tree."""

    def in_zone(self, path: bytes) -> Parts | None:
        """A path of the work tree, in the zone; None: it lies outside."""
        parts = tuple(os.fsdecode(path).split("/"))
        if parts[: len(self.below)] != self.below:
            return None
        return (*self.lead, *parts[len(self.below) :])

    def of_zone(self, parts: Parts) -> bytes | None:
        """The other way round."""
        if parts[: len(self.lead)] != self.lead or len(parts) == len(self.lead):
            return None
        return os.fsencode("/".join((*self.below, *parts[len(self.lead) :])))


@dataclass(slots=True, kw_only=True)
class GitSides:
    """One git directory: the repository's own (`prefix` is empty) or that of a submodule (`modules/x/`)."""

    zone: Zone
    prefix: str
    real: GitDir
    shadow: GitDir
    store: GitDir
    """The shadow's objects."""
    base: GitDir
    """Copies of the user's index files as they were when both sides were last the same."""
    transport: Transport
    own: str = ""
    """Below `real`: the git directory of the work tree that the zone lies in. Not empty for a linked worktree."""
    trees: dict[str, WorkTree] = field(default_factory=dict)
    """By the path of an index."""
    weak_times: bool = False
    """The user's settings make git believe times that anybody can set."""

    _listed: dict[str, tuple[Stamp, bytes]] = field(default_factory=dict)

    def listed(self, path: str) -> bytes:
        """The entries of an index of the user's; kept while it does not change. Raises GitFailed."""
        stamp = self.real.stamp(path)
        if stamp is None:
            return b""
        known = self._listed.get(path)
        if known is None or known[0] != stamp:
            known = self._listed[path] = (stamp, self.transport.entries(self.real.read(path)))
        return known[1]

    def shown(self, path: str) -> str:
        whole = f"{self.prefix}{path}".rstrip("/")
        return self.zone.virtual((GIT_FILE, whole) if whole else ())


class _RefMove(NamedTuple):
    name: str
    update: RefUpdate
    put_back: bool = False
    """The user's value goes into the shadow afterwards."""
    told: str = ""


class _FileMove(NamedTuple):
    path: str
    content: bytes | None
    now: StampPair


class _IndexMove(NamedTuple):
    path: str
    theirs: bytes | None
    change: IndexChange
    lines: bytes
    now: StampPair


class GitExchange:
    def __init__(self, sides: GitSides, state: SyncState, *, skipped: Collection[Parts] = ()) -> None:
        """`skipped`: paths of the zone that commands cannot read, or do not see."""
        self._zone = sides.zone
        self._prefix = sides.prefix
        self._sides = sides
        self._real, self._shadow = sides.real, sides.shadow
        self._transport = sides.transport
        self._state = state
        self._skipped = skipped
        self.leftovers: list[Leftover] = []
        self.moved: dict[str, tuple[str | None, str | None]] = {}
        """Refs that were carried over to the user: what they were, and what they are."""
        self.gitlinks: set[Parts] = set()
        """Directories of the zone that commands added to an index as repositories of their own."""
        self.locked_paths: list[str] = []
        """What could not be written because another git has its lock, or changed it meanwhile."""
        self._bytes = _MOST_BYTES
        self._when = SyncPhase.ENDED
        self._leaves_zone = False
        """The command changed tracked files outside of the zone, which it cannot see."""
        self.postponed = False
        """Something was left for later: a command is at work, or git refused it."""

    def run(self, standing: Collection[str], when: SyncPhase) -> None:
        """`standing`: what mounts stand on in the shadow. Raises OSError, TooManyFiles."""
        self._when = when
        begun = [folder for folder in rules.SEQUENCER_FOLDERS if self._shadow.look(folder) is not None]
        if when is SyncPhase.RUNNING and any(self._real.look(folder) is None for folder in begun):
            self.postponed = True
            return
        files, indexes = self._compare_files()
        self._carry(self._compare_refs(), files, indexes)
        self._tell_of_others(standing)

    # --- what goes to the user, at once

    def _carry(self, moves: list[_RefMove], files: list[_FileMove], indexes: list[_IndexMove]) -> None:
        """Objects and refs first, then what names them, HEAD last."""
        held = {value for value in self._theirs.values() if directory.is_object_id(value)}
        plain = [move for move in moves if move.name.count("/") == 1]
        pushed = [move for move in moves if move not in plain]
        pushed += self._pin_moves(moves)
        named = {move.update.new for move in plain if move.update.new}
        for file in files:
            if file.content is not None and _NAMES_OBJECTS.fullmatch(file.path):
                named |= {one.decode() for one in _ID.findall(file.content)}
        named -= {*held, self._transport.null_id}
        staged = frozenset().union(*(index.change.objects for index in indexes))
        if len(staged) > _FEW_OBJECTS:
            staged = frozenset(self._transport.absent(staged))
        refused: dict[str, str] = {}
        if pushed or named or staged:
            self._transport.prepare(self._sides.store)
            tips = {move.update.new for move in pushed if move.update.new} - held
            refused = self._push(pushed, tips | named | staged, held)
        needed = named | staged
        lacking = not self._transport.connected(needed)
        if lacking:
            text = f"Git does not find all objects that files in {self._sides.shown('')} name; these stay inside."
            self._tell_once(f"{self._prefix}lacking", sorted(needed)[:20], "git_objects", Severity.CRITICAL, text)
        for move in plain:
            refused[move.name] = f"{_GIT_SAID}its objects are missing" if lacking else self._set_plain(move.update)
        self._state.refs[self._prefix] = self._settled_refs([*plain, *pushed], refused)
        for index in indexes:
            self._write_index(index, refused=lacking)
        for file in files:
            names_objects = _NAMES_OBJECTS.fullmatch(file.path) is not None
            unset = file.path == _STASH_LOG and bool(refused.get("refs/stash"))
            self._write_file(file, refused=unset or (lacking and names_objects))

    def _set_plain(self, update: RefUpdate) -> str:
        """Of a ref right below `refs` (the stash), which `receive-pack` does not take. Why it was not set."""
        try:
            if update.new is None:
                self._real.delete_ref(update.name, old=update.old)
            else:
                self._real.set_ref(update.name, update.new, old=update.old)
        except GitLocked:
            return "locked"
        return ""

    def _push(self, moves: list[_RefMove], wanted: set[str], held: Collection[str]) -> dict[str, str]:
        """Why each ref was not set, by its name on the user's side."""
        updates = [move.update for move in moves] or [self._nothing_moved(wanted)]
        known = [*held][:_MOST_KNOWN]
        try:
            return self._transport.push(updates, sorted(wanted), known)
        except GitFailed as failed:
            if len(updates) == 1 and wanted <= {updates[0].new}:
                return {updates[0].name: f"{_GIT_SAID}{failed}"}
        # Something in it is not sound, or not there. What is sound by itself still goes.
        results: dict[str, str] = {}
        for move in moves[:_MOST_ALONE]:
            alone = {move.update.new} if move.update.new and move.update.new not in held else set()
            try:
                results |= self._transport.push([move.update], sorted(alone), known)
            except GitFailed as failed:
                results[move.update.name] = f"{_GIT_SAID}{failed}"
        results |= {move.update.name: "too many at once" for move in moves[_MOST_ALONE:]}
        rest = wanted - {move.update.new for move in moves}
        if rest:
            with contextlib.suppress(GitFailed):
                self._transport.push([self._nothing_moved(rest)], sorted(rest), known)
        return results

    def _nothing_moved(self, wanted: Collection[str]) -> RefUpdate:
        """A ref that stays as it is, so that objects can go along. Forge's own one: git notes nothing of it for HEAD.
        Where there is none yet, one that the next command takes away."""
        for name, value in self._pinned.items():
            return RefUpdate(name, value, value)
        return RefUpdate(f"{_PINS}objects", None, min(wanted))

    def _settled_refs(self, moves: list[_RefMove], refused: dict[str, str]) -> dict[str, str]:
        kept = self._kept
        for move in moves:
            update, why = move.update, refused.get(move.update.name, "")
            if update.name.startswith(_PINS) or move.name != update.name:
                if not why and move.told:
                    self._tell("git_refs", Severity.WARNING, move.told, move.name)
                if move.put_back:
                    self._return_ref(move.name, kept)
                continue
            if not why:
                self.moved[move.name] = (update.old, update.new)
                if update.new is None:
                    kept.pop(move.name, None)
                else:
                    kept[move.name] = update.new
            elif not why.startswith(_GIT_SAID):
                self.locked_paths.append(move.name)
            else:
                self._refuse_ref(move, why, kept)
        return kept

    def _refuse_ref(self, move: _RefMove, why: str, kept: dict[str, str]) -> None:
        """Git does not accept what a ref leads to. It stays in the shadow, under another name once the command ended:
        later commands go on with what the user has."""
        self.postponed = True
        name, new = move.name, move.update.new
        if self._when is SyncPhase.RUNNING or new is None:
            return
        aside = f"refs/forge/refused/{name.removeprefix('refs/')}"
        text = f"Git does not accept what the command left at {_shown_ref(name)} ({why.removeprefix(_GIT_SAID)})"
        if self._transport.holds(new):
            with contextlib.suppress(GitLocked, OSError):
                self._shadow.set_ref(aside, new, old=self._shadow.ref(aside))
            text += f": yours stays, and `forge sandbox exec -- git log {aside}` shows the command's."
        else:
            text += ": its objects are missing. Yours stays."
        self._tell("git_refs", Severity.CRITICAL, text, name)
        self._return_ref(name, kept)

    def _return_ref(self, name: str, kept: dict[str, str]) -> None:
        their = self._theirs.get(name)
        with contextlib.suppress(GitLocked, OSError, ValueError):
            if their is None:
                self._shadow.delete_ref(name, old=self._shadow.ref(name))
                kept.pop(name, None)
            else:
                self._put_back(name, f"{their}\n".encode(), None)
                kept[name] = their

    def _pin_moves(self, moves: list[_RefMove]) -> list[_RefMove]:
        """Only before a command, or where something is pushed anyway: it takes git 10 ms."""
        if self._when is not SyncPhase.BETWEEN and not moves:
            return []
        tips = {name: value for name, value in self._theirs.items() if name.startswith(("refs/heads/", "refs/stash"))}
        tips |= {move.name: move.update.new for move in moves if move.name == move.update.name and move.update.new}
        head = (self._real.read("HEAD") or b"").decode("utf-8", "replace").strip()
        if len(tips) > _MOST_PINS:
            on = head.removeprefix("ref: ")
            tips = {name: value for name, value in tips.items() if name in (on, "refs/stash")}
        ids = {value for value in (*tips.values(), head) if directory.is_object_id(value)}
        pins = {f"{_PINS}{value}": value for value in ids}
        return [
            _RefMove(name, RefUpdate(name, self._pinned.get(name), pins.get(name)))
            for name in sorted({*pins, *self._pinned})
            if self._pinned.get(name) != pins.get(name)
        ]

    # --- files

    def _compare_files(self) -> tuple[list[_FileMove], list[_IndexMove]]:
        """What goes into the shadow is written; what goes to the user is judged and handed on."""
        theirs, ours = self._files(self._real), self._files(self._shadow)
        kept_back = self._unfinished()
        files: list[_FileMove] = []
        indexes: list[_IndexMove] = []
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
                compare = self._compare_index if path in self._sides.trees else self._compare_file
                move = compare(path, before, now)
            except GitLocked:
                self.locked_paths.append(name)
                continue
            if isinstance(move, _FileMove):
                files.append(move)
            elif isinstance(move, _IndexMove):
                indexes.append(move)
            else:
                self._note(path, move)
        return files, indexes

    def _compare_file(self, path: str, before: StampPair, now: StampPair) -> _IndexMove | _FileMove | StampPair:
        real, shadow = self._real, self._shadow
        theirs = real.read(path) if now[0] else None
        ours = shadow.read(path) if now[1] else None
        unreadable = theirs is None and (now[0] is not None or real.look(path) is not None)
        if theirs == ours or unreadable:  # what the user has there and nobody can read is not touched
            return now
        if _ONE_WAY.fullmatch(path) and now[0] == before[0]:
            return now
        if now[0] != before[0] or now[1] == before[1] or (ours is None and now[1] is not None):
            return self._returned(path, theirs, now)
        if why := self._objection(path, theirs, ours):
            kind = "git_head" if _A_HEAD.fullmatch(path) else "git_files"
            self._tell(kind, Severity.CRITICAL, why, path)
            return self._returned(path, theirs, now)
        self._bytes -= len(ours or b"")
        if self._bytes < 0:
            raise GitLocked(path)
        return _FileMove(path, ours, now)

    def _write_file(self, move: _FileMove, *, refused: bool) -> None:
        path, now = move.path, move.now
        target = _HEAD.fullmatch(move.content or b"") if _A_HEAD.fullmatch(path) else None
        branch = os.fsdecode(target[1]) if target is not None and target[1] else ""
        unborn = bool(branch) and self._real.ref(branch) is None and self._shadow.ref(branch) is not None
        if refused or unborn:
            self.postponed = True
            if self._when is SyncPhase.ENDED:
                self._note(path, self._returned(path, self._real.read(path), now))
            return
        # Git itself wrote to the log of the stash when its ref was set, which it compared.
        still = None if path == _STASH_LOG else lambda: self._real.stamp(path) == now[0]
        try:
            _write_side(self._real, path, move.content, now[1], still=still)
        except GitLocked:
            self.locked_paths.append(f"{self._prefix}{path}")
            return
        self._note(path, (self._real.stamp(path), now[1]))

    def _returned(self, path: str, theirs: bytes | None, now: StampPair) -> StampPair:
        """The shadow holds what the user has."""
        if path in self._sides.trees and theirs is not None:
            theirs = self._for_shadow(path, theirs)
        self._put_back(path, theirs, now[0])
        return now[0], self._shadow.stamp(path)

    def _note(self, path: str, stamps: StampPair) -> None:
        if stamps == (None, None):
            self._state.files.pop(f"{self._prefix}{path}", None)
        else:
            self._state.files[f"{self._prefix}{path}"] = stamps

    def _put_back(self, path: str, content: bytes | None, stamp: Stamp | None) -> None:
        """The shadow holds what the user has, whatever a command put in its way."""
        pieces = path.split("/")
        for length in range(1, len(pieces) + 1):
            found = self._shadow.look("/".join(pieces[:length]))
            expected = stat.S_ISREG if length == len(pieces) else stat.S_ISDIR
            if found is not None and not expected(found.st_mode):
                self._shadow.clear("/".join(pieces[:length]))
        _write_side(self._shadow, path, content, stamp)

    def _objection(self, path: str, theirs: bytes | None, ours: bytes | None) -> str:
        """Why what a command left at a path is not taken over; empty: it is."""
        shown = self._sides.shown(path)
        pieces = path.split("/")
        first, last = pieces[0], pieces[-1]
        if first == "worktrees" and not self._leads_here(pieces[1]):
            return f"The command changed {shown}, which belongs to a worktree outside of the zone; the old one stays."
        if first != "worktrees" and self._sides.own and path != _STASH_LOG:
            return f"The command changed {shown}, which belongs to a work tree outside of the zone; the old one stays."
        if _AN_INDEX.fullmatch(path) and path not in self._sides.trees:
            return f"The command changed {shown}, which belongs to a work tree outside of the zone; the old one stays."
        if ours is None:
            return f"The command removed {shown}; it was put back." if path in ("HEAD", "index") else ""
        if _A_HEAD.fullmatch(path):
            match = _HEAD.fullmatch(ours)
            if match is None or (match[1] is not None and not directory.is_ref_name(os.fsdecode(match[1]))):
                return f"The command wrote something to {shown} that names no branch and no commit; the old one stays."
            if self._leaves_zone and path == f"{self._sides.own}HEAD":
                return f"The command moved {shown} to where files outside of the zone differ; the old one stays."
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
                    f"A {what} stopped, and {why}: it stays inside the walls ({self._sides.shown(folder)}), and your"
                    " git does not know of it."
                )
                self._tell_once(key, why, "git_sequencer", Severity.CRITICAL, text)
            else:
                text = f"A {what} is not finished in {self._sides.shown('')}: see `git status`."
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
        """Whether a worktree lies in this zone, or the zone in it."""
        return f"worktrees/{worktree}/index" in self._sides.trees

    # --- the index

    def _compare_index(self, path: str, before: StampPair, now: StampPair) -> _IndexMove | _FileMove | StampPair:
        if now[1] is None:
            return self._compare_file(path, before, now)
        if now[1] == before[1]:
            return self._returned_index(path, now)
        theirs, ours = self._real.read(path) if now[0] else None, self._shadow.read(path)
        shown = self._sides.shown(path)
        if (theirs is None) != (now[0] is None):
            return now  # larger than anybody means an index to be: it stays what it is
        try:
            parts = {name: self._shadow.read(name) or b"" for name in self._shadow.names() if name.startswith("shared")}
            after = self._transport.entries_inside(ours, parts)
        except GitFailed as failed:
            text = f"The command wrote {shown} so that git cannot read it ({failed}); the old one stays."
            self._tell("git_files", Severity.CRITICAL, text, path)
            return self._returned_index(path, now)
        listed = self._sides.listed(path)
        if now[0] != before[0] and before[0] is not None:
            based = self._transport.entries(self._sides.base.read(_flat(path)))
            if based != listed:
                if based != after:
                    text = "You and the command both changed git's index: yours stays."
                    self._tell("git_index", Severity.WARNING, text, path)
                return self._returned_index(path, now)
        return self._index_move(path, theirs, (listed, after), now)

    def _index_move(
        self, path: str, theirs: bytes | None, entries: tuple[bytes, bytes], now: StampPair
    ) -> _IndexMove | StampPair:
        tree = self._sides.trees[path]
        null_id, empty = self._transport.null_id, self._transport.empty_blob
        change = compare_entries(*entries, null_id=null_id, empty=empty, expected=self._unseen(tree))
        self._tell_hidden(tree, change.hidden, _OVERLOOKED)
        if any(tree.in_zone(one) is None for one in change.paths):
            self._leaves_zone = True
            text = "The command changed tracked files that lie outside of the zone: git's index and your branch stay."
            self._tell("git_index", Severity.CRITICAL, text, path)
            return self._returned_index(path, now)
        lines = change.lines
        if change.maybe_intended and (intended := self._transport.intended(change.maybe_intended)):
            lines = change.lines_without(intended)
            self._tell_hidden(tree, sorted(intended), _INTENDED)
        if not lines:
            return self._settled_index(path, theirs, now)
        self.gitlinks |= {found for parts in change.gitlinks if (found := tree.in_zone(os.fsencode("/".join(parts))))}
        return _IndexMove(path, theirs, change, lines, now)

    def _write_index(self, move: _IndexMove, *, refused: bool) -> None:
        path, now, tree = move.path, move.now, self._sides.trees[move.path]
        if refused:
            self.postponed = True
            if self._when is SyncPhase.ENDED:
                self._note(path, self._returned_index(path, now))
            return
        sparse = [one for one in move.change.sparse if not self._is_there(tree, one)]
        self._tell_hidden(tree, [one for one in move.change.sparse if one not in sparse], _OVERLOOKED)
        try:
            content = self._transport.with_entries(move.theirs, move.lines, (*move.change.skipped, *sparse))
            # With the time of the old one: entries that were as young as it are still looked at.
            written = now[0][2] if now[0] else None
            self._real.replace(path, content, written=written, still=lambda: self._real.stamp(path) == now[0])
        except GitLocked:
            self.locked_paths.append(f"{self._prefix}{path}")
        except GitFailed as failed:
            text = f"Git does not accept the index that the command left ({failed}); the old one stays."
            self._tell("git_files", Severity.CRITICAL, text, path)
            self._note(path, self._returned_index(path, now))
        else:
            self._note(path, self._settled_index(path, content, (self._real.stamp(path), now[1])))

    def _returned_index(self, path: str, now: StampPair) -> StampPair:
        theirs = self._real.read(path) if now[0] else None
        returned = self._returned(path, theirs, now)
        return self._settled_index(path, theirs, returned)

    def _settled_index(self, path: str, theirs: bytes | None, now: StampPair) -> StampPair:
        if theirs is None:
            self._sides.base.remove(_flat(path))
        else:
            self._sides.base.replace(_flat(path), theirs)
        return now

    def _for_shadow(self, path: str, index: bytes) -> bytes:
        """Inside, git does not look at files that commands cannot read or see: else `git add -A` would fail for want of
        them, and `git status` would call them deleted."""
        tree = self._sides.trees[path]
        if not self._skipped and not tree.below:
            return index
        unseen = self._unseen(tree)
        with contextlib.suppress(GitFailed):
            entries = read_entries(self._transport.entries(index))
            skipped = [one.path for one in entries if one.stage == b"0" and unseen(one.path)]
            return self._transport.with_entries(index, b"", skipped) if skipped else index
        return index

    def _unseen(self, tree: WorkTree) -> Callable[[bytes], bool]:
        """Whether commands cannot read a path of a work tree, or do not see it."""
        paths = {one for parts in self._skipped if (one := tree.of_zone(parts)) is not None}
        folders = tuple(path + b"/" for path in paths)
        return lambda path: path in paths or path.startswith(folders) or tree.in_zone(path) is None

    def skip_again(self) -> None:
        """Other paths than before cannot be read inside: the shadow's index says so, unless a command changed it."""
        for path in self._sides.trees:
            now = self._real.stamp(path), self._shadow.stamp(path)
            if None not in now and self._state.files.get(f"{self._prefix}{path}") == now:
                self._note(path, self._returned_index(path, now))

    def look_at(self, changed: Collection[Parts]) -> None:
        """After a command: tell of changed files that the user told git not to look at; and where git believes times,
        have it read changed files again."""
        for path, tree in self._sides.trees.items():
            paths = {one for parts in changed if (one := tree.of_zone(parts)) is not None}
            stamp = self._real.stamp(path)
            if not paths or stamp is None:
                continue
            with contextlib.suppress(GitFailed, GitLocked):
                found = [one for one in read_entries(self._sides.listed(path)) if one.path in paths]
                self._tell_hidden(tree, [one.path for one in found if one.overlooked], _CHANGED)
                again = [one for one in found if not one.overlooked and one.stage == b"0"]
                if self._sides.weak_times and again:
                    self._read_again(path, again, stamp)

    def _read_again(self, path: str, entries: Iterable[Entry], stamp: Stamp) -> None:
        """The entries lose their times."""
        null_id = self._transport.null_id.encode()
        lines = (b"0 %s\t%s\0%s %s 0\t%s\0" % (null_id, one.path, one.mode, one.object_id, one.path) for one in entries)
        content = self._transport.with_entries(self._real.read(path), b"".join(lines))
        self._real.replace(path, content, still=lambda: self._real.stamp(path) == stamp)

    def _is_there(self, tree: WorkTree, path: bytes) -> bool:
        parts = tree.in_zone(path)
        return parts is not None and os.path.lexists(self._zone.real(parts))

    def _tell_hidden(self, tree: WorkTree, paths: Iterable[bytes], text: str) -> None:
        places = (tree.in_zone(path) or tuple(os.fsdecode(path).split("/")) for path in paths)
        if shown := [one_line(self._zone.virtual(parts)) for parts in places]:
            more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
            text = f"{text}: {', '.join(shown[:_MOST_NAMED])}{more}."
            severity = Severity.NOTE if text.startswith(_INTENDED) else Severity.WARNING
            self.leftovers.append(Leftover(kind="git_index", severity=severity, text=text, paths=tuple(shown[:20])))

    # --- refs

    def _compare_refs(self) -> list[_RefMove]:
        base = self._state.refs.get(self._prefix)
        if base is None and (packed := self._real.read(PACKED_REFS)) is not None:
            lines = packed.splitlines(keepends=True)
            kept_lines = [line for line in lines if f" {_PINS}".encode() not in line]
            self._shadow.replace(PACKED_REFS, b"".join(kept_lines))
        found, base = self._real.refs(), base or {}
        self._pinned = {name: value for name, value in found.items() if name.startswith(_PINS)}
        self._theirs = theirs = {name: value for name, value in found.items() if not name.startswith(_PINS)}
        ours = self._shadow.refs() if self._shadow_has_refs() else base
        ours = {name: value for name, value in ours.items() if not name.startswith("refs/forge/refused/")}
        self._kept = kept = dict(base)
        moves: list[_RefMove] = []
        gone = [name for name in base if name not in ours and theirs.get(name) == base[name]]
        if len(gone) > _MOST_NAMED and self._when is not SyncPhase.RUNNING:  # more than anybody is told of by name
            for name in gone:
                if directory.is_object_id(base[name]):
                    beside = f"refs/forge/was/{name.removeprefix('refs/')}"
                    moves.append(_RefMove(name, RefUpdate(beside, theirs.get(beside), base[name])))
            text = f"{len(gone)} refs that the command deleted in {self._sides.shown('')} are kept as refs/forge/was/…"
            self._tell("git_refs", Severity.WARNING, text, "refs")
        # Those that go come first: only then can a branch `a` take the place of `a/b`.
        for name in sorted({*theirs, *ours, *base}, key=lambda name: (name in ours, name)):
            their, our, old = theirs.get(name), ours.get(name), base.get(name)
            if our is None and old is not None and self._when is SyncPhase.RUNNING:
                self.postponed = True
                continue
            try:
                if their != our and (move := self._compare_ref(name, their, our, old)) is not None:
                    moves.append(move)
                    continue
            except GitLocked:
                self.locked_paths.append(name)
                continue
            except (OSError, ValueError):  # a name that no file can have, or beside one that stands in its way
                text = f"In {self._sides.shown('')} the ref {name[:120]} cannot be carried over."
                self._tell_once(f"{self._prefix}{name}", our, "git_refs", Severity.WARNING, text)
                continue
            if (their := theirs.get(name)) is None:
                kept.pop(name, None)
            else:
                kept[name] = their
        return moves

    def _compare_ref(self, name: str, their: str | None, our: str | None, old: str | None) -> _RefMove | None:
        """None: the shadow holds the user's value now."""
        why = _ref_objection(name, our)
        if our is None and self._is_on(name):
            why = f"the command deleted {_shown_ref(name)}, the branch that you are on; it was put back."
        if self._leaves_zone and self._is_on(name) and not why:
            beside = f"refs/forge/{name.removeprefix('refs/')}-{(our or '')[:12]}"
            text = f"{_shown_ref(name)} stays where it was; the command's is kept as {beside}."
            return _RefMove(name, RefUpdate(beside, self._theirs.get(beside), our), put_back=True, told=text)
        symbolic = any(value is not None and not directory.is_object_id(value) for value in (their, our))
        if our != old and their == old and not why:
            if not symbolic:
                return _RefMove(name, RefUpdate(name, their, our))
            if our is None:
                self._real.delete_ref(name, old=their)
                del self._theirs[name]
            else:
                self._real.set_ref(name, our, old=their)
                self._theirs[name] = our
            return None
        if our != old and their == old:
            self._tell("git_refs", Severity.CRITICAL, f"In {self._sides.shown('')} {why}", name)
        elif our != old and our is not None and not why and not symbolic:  # both moved it
            beside = f"refs/forge/{name.removeprefix('refs/')}-{our[:12]}"
            text = f"You and the command both moved {_shown_ref(name)}: yours stays, the command's is kept as {beside}."
            return _RefMove(name, RefUpdate(beside, self._theirs.get(beside), our), put_back=True, told=text)
        if their is None:
            self._shadow.delete_ref(name, old=our)
        else:
            self._put_back(name, f"{their}\n".encode(), None)
        return None

    def _is_on(self, branch: str) -> bool:
        """Whether the user is on a branch and the command did not go to another one. Git refuses to delete it then,
        so whoever did took the file away."""
        path = f"{self._sides.own}HEAD"
        said = (_HEAD.fullmatch(side.read(path) or b"") for side in (self._real, self._shadow))
        theirs, ours = (os.fsdecode(match[1] or b"") if match is not None else None for match in said)
        return theirs == branch and ours in (branch, None)

    def _shadow_has_refs(self) -> bool:
        """False: a command took the whole directory away, which is no deletion of each. It is put back."""
        found = self._shadow.look("refs")
        if found is not None and stat.S_ISDIR(found.st_mode):
            return True
        text = f"The command removed {self._sides.shown('refs')}; it was put back."
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
            text = f"The command put a link at {self._sides.shown(path)}; it was removed."
            self._tell("git_link", Severity.CRITICAL, text, path)
        free = free_names(self._zone, self._prefix)
        for name, info in self._shadow.names().items():
            if is_ordinary_name(name) or name in standing or name in free:
                continue
            obeyed = name.casefold() in _OBEYED
            severity = Severity.CRITICAL if obeyed else Severity.NOTE
            text = f"The command made {self._sides.shown(name)}; Forge ignored it."
            self._tell_once(f"{self._prefix}{name}", info.st_ino, "git_files", severity, text)
            if obeyed:  # else git would not work inside any more
                self._shadow.clear(name)

    # --- words

    def _tell(self, kind: str, severity: Severity, text: str, path: str) -> None:
        self.leftovers.append(
            Leftover(kind=kind, severity=severity, text=one_line(text), paths=(one_line(self._sides.shown(path)),))
        )

    def _tell_once(self, key: str, value: Any, kind: str, severity: Severity, text: str) -> None:
        if self._state.told.get(key) != value:
            self._state.told[key] = value
            self._tell(kind, severity, text, key.removeprefix(self._prefix))


_OVERLOOKED: Final = (
    "The command told git not to look at these files (skip-worktree or assume-unchanged); your git still does"
)
_CHANGED: Final = (
    "These files changed, and `git status` does not show it, because git was told not to look at them before"
)
_INTENDED: Final = "Only noted by `git add -N`, which your git does not hear of"


def moved_refs(sides: GitSides, moved: dict[str, tuple[str | None, str | None]]) -> Leftover:
    """One line about refs that commands moved, made or deleted."""
    words, lost = [], []
    for name, (old, new) in moved.items():
        if old is None:
            words.append(f"{_shown_ref(name)} made at {_short(new)}")
        elif new is None:
            words.append(f"{_shown_ref(name)} deleted (was {_short(old)})")
        else:
            words.append(f"{_shown_ref(name)} {_short(old)} → {_short(new)}")
        of_people = name.startswith(("refs/heads/", "refs/tags/"))
        if of_people and old and (new is None or len(words) > _MOST_NAMED or not sides.transport.is_ancestor(old, new)):
            lost.append(_shown_ref(name))
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    note = f"; commits of the old one are no longer in {', '.join(lost[:_MOST_NAMED])}" if lost else ""
    shown = sides.zone.virtual((GIT_FILE, sides.prefix.rstrip("/")) if sides.prefix else ())
    text = one_line(f"Git refs of {shown} moved: {', '.join(words[:_MOST_NAMED])}{more}{note}.")
    severity = Severity.WARNING if lost else Severity.NOTE
    return Leftover(kind="git_refs", severity=severity, text=text, paths=(one_line(f"{shown}/refs"),))


def free_names(zone: Zone, prefix: str) -> frozenset[str]:
    """What the program's author leaves writable in a git directory: `unprotect: [.git/config]`."""
    names = (normal_name(name).removeprefix(f"{GIT_FILE}/") for name in zone.unprotect)
    return frozenset(name.rpartition("/")[2] for name in names if bool(prefix) == name.startswith("modules/"))


def is_ordinary_name(name: str) -> bool:
    """What a git directory holds that is exchanged or shared, or there for a moment."""
    known = name in EXCHANGED_NAMES or name in OWN_FOLDERS
    return known or bool(WRITABLE_FILE.fullmatch(name) or TRANSIENT_NAME.fullmatch(name))


def _flat(path: str) -> str:
    return path.replace("/", "%")


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
    if _NO_REFS.fullmatch(name):
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
