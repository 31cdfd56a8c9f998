"""GitExchange: what is carried over between the user's git directory and its private copy (the shadow).

Takes both sides and what they held when they were last equal. What only the user changed goes into the shadow. What
only a command changed goes to the user: refs and objects by a push that git verifies (`refs`), the index as a list of
entries (`index`), and files that are on the list here and whose content is valid: HEAD, messages, a stopped merge or
rebase, new worktrees inside the zone. No file that names an object arrives before git has found the object
and all that it needs. What both changed stays the user's. Nothing of the user's is deleted.

Threat: commands write while this runs. So the bytes that were judged are the bytes that are written, and a stamp is
taken before the content is read.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from golem_forge.core.calls import Severity
from golem_forge.core.errors import error_name
from golem_forge.core.regex import regex
from golem_forge.sandbox.git import directory, rules
from golem_forge.sandbox.git.directory import PACKED_REFS, GitDir, GitLocked, Stamp
from golem_forge.sandbox.git.index import IndexExchange, IndexMove
from golem_forge.sandbox.git.refs import HEAD_CONTENT, STASH_LOG, RefExchange, name_beside
from golem_forge.sandbox.git.sides import MOST_NAMED, StampPair, Sync, SyncPhase, write_side
from golem_forge.sandbox.git.transport import GitFailed
from golem_forge.sandbox.protected import GIT_FILE, normal_name
from golem_forge.sandbox.zones import Zone

WRITABLE_FILE: Final = regex(
    r"[A-Z_]*HEAD|[A-Z_]+_MSG|[A-Z_]*EDITMSG|index|sharedindex\.[0-9a-f]{40,64}|MERGE_MODE|AUTO_MERGE|BISECT_[A-Z_]+"
)
"""Files of a git directory that a command may change. Threat: MERGE_RR has git copy any file into `rr-cache`."""
WRITABLE_FOLDERS: Final = ("logs", *rules.SEQUENCER_FOLDERS)
"""Directories of plain files that a command may change."""
HOST_FOLDER: Final = "forge"
"""In the shadow: what of the user's git directory stands there read-only."""
OWN_FOLDERS: Final = ("objects", "lfs", HOST_FOLDER)
EXCHANGED_NAMES: Final = frozenset({"refs", PACKED_REFS, "modules", "worktrees", *WRITABLE_FOLDERS})
TRANSIENT_NAME: Final = regex(
    r"MERGE_RR|\.forge-.*|.*\.lock|gc\.(?:pid|log)|packed-refs\.new|tmp.*|.*\.sw[px]|fsmonitor--daemon.*|description|branches"
)
"""What git and editors leave for a moment, or by habit; nobody needs to hear of it."""
_OF_A_WORKTREE: Final = ("gitdir", "commondir", "locked")
_OBEYED: Final = frozenset({"commondir", "config", "config.worktree", "gitdir", "hooks", "info"})
_A_HEAD: Final = regex(r"(?:worktrees/[^/]+/)?HEAD")
_AN_INDEX: Final = regex(r"(?:worktrees/[^/]+/)?index")
_ONE_WAY: Final = regex(r"(?:worktrees/[^/]+/)?(?:logs/(?!refs/stash$).*|sharedindex\..*)")
"""Copied into the shadow, never out of it: git on the user's side keeps its own."""
_STASH_LINES: Final = regex(rb"(?:[0-9a-f]{40,64} [0-9a-f]{40,64} [^\n\0]* <[^\n\0]*> \d+ [+-]\d{4}(?:\t[^\n\0]*)?\n)*")
_STASHED: Final = regex(rb"^[0-9a-f]+ ([0-9a-f]{40,64}) ", re.MULTILINE)
_KEPT_IDS: Final = regex(r"logs/refs/stash|(?:worktrees/[^/]+/)?rebase-(?:merge|apply)/autostash|worktrees/[^/]+/HEAD")
"""Files in which the user's git keeps what nothing else may name: what a command takes out of them is kept as a ref."""
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
_MOST_ALONE: Final = 50
"""Stashes of a command that are kept as refs where the user stashed too. Threat: it can name any number."""


class _FileMove(NamedTuple):
    path: str
    content: bytes | None
    now: StampPair
    overruled: frozenset[str] = frozenset()
    """The other way: the user's goes into the shadow, once these objects that only the command's names are kept."""


_Move = TypeVar("_Move", _FileMove, IndexMove)


class GitExchange:
    def __init__(self, sync: Sync) -> None:
        self._sync = sync
        self._sides = sync.sides
        self._zone = sync.sides.zone
        self._real, self._shadow = sync.sides.real, sync.sides.shadow
        self._transport = sync.sides.transport
        self._refs = RefExchange(sync)
        self._index = IndexExchange(sync)
        self._bytes = _MOST_BYTES

    def run(self, standing: Collection[str]) -> None:
        """`standing`: what mounts stand on in the shadow. Raises OSError, TooManyFiles."""
        begun = [folder for folder in rules.SEQUENCER_FOLDERS if self._shadow.look(folder) is not None]
        if self._sync.when is SyncPhase.RUNNING and any(self._real.look(folder) is None for folder in begun):
            self._sync.postponed = True
            return
        changed = self._changed()
        of_index = {path: changed[path] for path in self._sides.trees if path in changed and changed[path][1][1]}
        indexes: list[IndexMove] = []

        @functools.cache
        def staged() -> frozenset[str]:
            indexes.extend(self._compared(of_index, self._index.compare))
            return frozenset().union(*(move.objects for move in indexes))

        self._index.begin(of_index)
        if any(tree.below for tree in self._sides.trees.values()):
            staged()  # first: where it changed files outside of the zone, HEAD and the branch stay
        others = {path: each for path, each in changed.items() if path not in of_index}
        compared = list(self._compared(others, self._compare_file))
        files = [file for file in compared if not file.overruled]
        back = [file for file in compared if file.overruled]
        stash = next((file for file in files if file.path == STASH_LOG), None)
        carried = self._refs.carry(
            self._named_in(files),
            staged,
            dropped=self._dropped(files),
            overruled={
                one: name_beside("stash" if file.path == STASH_LOG else "HEAD", one)
                for file in back
                for one in file.overruled
            },
            log=stash and (stash.content, stash.now[0]),
        )
        for file in back:
            if carried.unkept:
                self._sync.postponed = True
            else:
                with contextlib.suppress(GitLocked):
                    self._sync.note(file.path, self._returned(file.path, file.content, file.now))
        for move in indexes:
            self._index.write(move, refused=carried.lacking)
        for file in files:
            lacks = carried.lacking and _NAMES_OBJECTS.fullmatch(file.path) is not None
            lacks = lacks or (carried.unkept and _KEPT_IDS.fullmatch(file.path) is not None)
            if file is not stash:
                self._write_file(file, refused=lacks, taken_back=carried.taken_back)
            elif carried.stash_stays:
                self._sync.postponed = True
            else:
                self._sync.note(STASH_LOG, (self._real.stamp(STASH_LOG), file.now[1]))
        self._tell_of_others(standing)

    def _dropped(self, files: Iterable[_FileMove]) -> set[str]:
        """Objects that only a file of the user's named, which a command took out of it."""
        dropped: set[str] = set()
        for file in files:
            if _KEPT_IDS.fullmatch(file.path):
                named = _STASHED if file.path == STASH_LOG else _ID
                gone = {*named.findall(self._real.read(file.path) or b"")} - {*named.findall(file.content or b"")}
                dropped |= {one.decode() for one in gone}
        return dropped - {self._transport.null_id}

    def _named_in(self, files: Iterable[_FileMove]) -> set[str]:
        """Objects that files name which are to go to the user."""
        naming = (file.content or b"" for file in files if _NAMES_OBJECTS.fullmatch(file.path))
        return {one.decode() for content in naming for one in _ID.findall(content)} - {self._transport.null_id}

    def _changed(self) -> dict[str, tuple[StampPair, StampPair]]:
        """The stamps of what differs from the last time: those of then, and those of now."""
        theirs, ours = self._files(self._real), self._files(self._shadow)
        kept_back = self._unfinished()
        found: dict[str, tuple[StampPair, StampPair]] = {}
        for path in sorted({*theirs, *ours, *self._known()}, key=lambda path: (path == "HEAD", path)):
            before = self._sync.state.files.get(f"{self._sides.prefix}{path}", (None, None))
            now = theirs.get(path), ours.get(path)
            if now == before or path.startswith(kept_back):
                continue
            on_its_way = (now[1] is None and before[1] is not None) or path == STASH_LOG
            if on_its_way and self._sync.when is SyncPhase.RUNNING:
                self._sync.postponed = True
            else:
                found[path] = before, now
        return found

    def _compared(
        self,
        changed: Mapping[str, tuple[StampPair, StampPair]],
        compare: Callable[[str, StampPair, StampPair], _Move | StampPair | None],
    ) -> Iterator[_Move]:
        """What goes into the shadow is written; what goes to the user is judged and handed on."""
        for path, (before, now) in changed.items():
            try:
                move = compare(path, before, now)
            except GitLocked:
                self._sync.retry(path)
                continue
            except (OSError, ValueError, GitFailed) as error:  # one file; the others go on
                self._sync.postponed = True
                text = f"{self._sides.shown(path)} of the command could not be carried over ({error_name(error)})."
                self._sync.tell_once(path, now[1], "git_files", Severity.WARNING, text)
                continue
            if isinstance(move, (_FileMove, IndexMove)):
                yield move
            elif move is not None:
                self._sync.note(path, move)

    def _compare_file(self, path: str, before: StampPair, now: StampPair) -> _FileMove | StampPair | None:
        real, shadow = self._real, self._shadow
        theirs = real.read(path) if now[0] else None
        ours = shadow.read(path) if now[1] else None
        unreadable = theirs is None and (now[0] is not None or real.look(path) is not None)
        if theirs == ours or unreadable:  # what the user has there and nobody can read is not touched
            return now
        if _ONE_WAY.fullmatch(path) and now[0] == before[0]:
            return now
        if now[0] != before[0] or now[1] == before[1] or (ours is None and now[1] is not None):
            if now[1] != before[1] and ours is not None and (alone := _named_alone(path, theirs, ours)):
                return _FileMove(path, theirs, now, alone)
            return self._returned(path, theirs, now)
        if why := self._objection(path, theirs, ours):
            kind = "git_head" if _A_HEAD.fullmatch(path) else "git_files"
            self._sync.tell(kind, Severity.CRITICAL, why, path)
            return self._returned(path, theirs, now)
        self._bytes -= len(ours or b"")
        if self._bytes < 0:
            raise GitLocked(path)
        return _FileMove(path, ours, now)

    def _write_file(self, move: _FileMove, *, refused: bool, taken_back: Collection[str]) -> None:
        path, now = move.path, move.now
        target = HEAD_CONTENT.fullmatch(move.content or b"") if _A_HEAD.fullmatch(path) else None
        branch = os.fsdecode(target[1]) if target is not None and target[1] else ""
        unborn = bool(branch) and self._real.ref(branch) is None and self._shadow.ref(branch) is not None
        if refused or unborn or branch in taken_back:
            self._sync.postponed = True
            if self._sync.when is SyncPhase.ENDED:
                with contextlib.suppress(GitLocked):
                    self._sync.note(path, self._returned(path, self._real.read(path), now))
            return
        try:
            write_side(self._real, path, move.content, now[1], still=lambda: self._real.stamp(path) == now[0])
        except GitLocked:
            self._sync.retry(path)
            return
        self._sync.note(path, (self._real.stamp(path), now[1]))

    def _returned(self, path: str, theirs: bytes | None, now: StampPair) -> StampPair:
        """The shadow holds what the user has."""
        if path in self._sides.trees:
            return self._index.returned(path, now)
        self._sync.put_back(path, theirs, now[0], seen=now[1])
        return now[0], self._shadow.stamp(path)

    def _objection(self, path: str, theirs: bytes | None, ours: bytes | None) -> str:
        """Why what a command left at a path is not taken over; empty: it is."""
        shown = self._sides.shown(path)
        pieces = path.split("/")
        first, last = pieces[0], pieces[-1]
        if first == "worktrees":
            of_another = not self._leads_here(pieces[1])
        else:
            of_another = bool(self._sides.own) and path != STASH_LOG
        if of_another or (_AN_INDEX.fullmatch(path) and path not in self._sides.trees):
            return f"The command changed {shown}, which belongs to a work tree outside of the zone; the old one stays."
        if ours is None:
            return f"The command removed {shown}; it was put back." if path in ("HEAD", "index") else ""
        if _A_HEAD.fullmatch(path):
            match = HEAD_CONTENT.fullmatch(ours)
            if match is None or (match[1] is not None and not directory.is_ref_name(os.fsdecode(match[1]))):
                return f"The command wrote something to {shown} that names no branch and no commit; the old one stays."
            if self._sync.leaves_zone and path == f"{self._sides.own}HEAD":
                return f"The command moved {shown} to where files outside of the zone differ; the old one stays."
        elif not {*pieces[:-1]}.isdisjoint(rules.SEQUENCER_FOLDERS):
            if why := rules.sequencer_objection(last, ours):
                return f"The command wrote {shown}, and {why}; Forge ignored it."
        elif path == STASH_LOG:
            if _STASH_LINES.fullmatch(ours) is None:
                return f"The command wrote {shown}, and it is no list of stashes; the old one stays."
        elif path in free_names(self._zone, self._sides.prefix):
            return ""
        elif why := rules.state_objection(path.split("/", 2)[-1] if first == "worktrees" else path, ours):
            return f"The command wrote {shown}, and {why}; the old one stays."
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
            if self._shadow.look(folder) is None:
                self._sync.state.told.pop(f"{self._sides.prefix}{folder}", None)
                continue
            names = {name: found for name, found in self._shadow.names(folder).items() if name != _SCRATCH}
            why = next((why for name in names if (why := self._sequencer_objection(folder, name))), "")
            if why:
                kept.append(f"{folder}/")
            if self._sync.when is not SyncPhase.ENDED:
                continue
            what = "cherry-pick or revert" if folder == "sequencer" else "rebase"
            if why:
                text = (
                    f"A {what} stopped, and {why}: it stays inside the walls ({self._sides.shown(folder)}), and your"
                    " git does not know of it."
                )
                self._sync.tell_once(folder, why, "git_sequencer", Severity.CRITICAL, text)
            else:
                text = f"A {what} is not finished in {self._sides.shown('')}: see `git status`."
                state = [sorted((name, found.st_size, found.st_mtime_ns) for name, found in names.items())]
                self._sync.tell_once(folder, repr(state), "git_sequencer", Severity.WARNING, text)
        return tuple(kept)

    def _sequencer_objection(self, folder: str, name: str) -> str:
        path = f"{folder}/{name}"
        ours = self._shadow.read(path)
        return "" if ours is not None and ours == self._real.read(path) else rules.sequencer_objection(name, ours)

    def _files(self, side: GitDir) -> dict[str, Stamp]:
        """What is carried over by content; refs are not among it. Of worktrees elsewhere too: what only they reach must
        not look like garbage to a `git gc`."""
        free = free_names(self._zone, self._sides.prefix) - {"hooks", "info"}
        found = {
            name: directory.stamp_of(info)
            for name, info in side.names().items()
            if stat.S_ISREG(info.st_mode) and (WRITABLE_FILE.fullmatch(name) or name in free)
        }
        for folder in (*WRITABLE_FOLDERS, *(() if self._sides.prefix else ("worktrees",))):
            for path, info in side.files(folder):
                wanted = stat.S_ISREG(info.st_mode) and not path.endswith((".lock", ".tmp", f"/{_SCRATCH}"))
                if wanted and (folder != "worktrees" or _is_of_a_worktree(path)):
                    found[path] = directory.stamp_of(info)
        return found

    def _known(self) -> Iterator[str]:
        for name in self._sync.state.files:
            if name.startswith(self._sides.prefix) and (self._sides.prefix or not name.startswith("modules/")):
                yield name.removeprefix(self._sides.prefix)

    def _leads_here(self, worktree: str) -> bool:
        """Whether a worktree lies in this zone, or the zone in it."""
        return f"worktrees/{worktree}/index" in self._sides.trees

    def _tell_of_others(self, standing: Collection[str]) -> None:
        links = [path for path, info in self._shadow.files("") if stat.S_ISLNK(info.st_mode)]
        for path in links:
            self._shadow.remove(path)
        for path in links[:MOST_NAMED]:
            text = f"The command put a link at {self._sides.shown(path)}; it was removed."
            self._sync.tell("git_link", Severity.CRITICAL, text, path)
        free = free_names(self._zone, self._sides.prefix)
        for name, info in self._shadow.names().items():
            if is_ordinary_name(name) or name in standing or name in free:
                continue
            obeyed = name.casefold() in _OBEYED
            severity = Severity.CRITICAL if obeyed else Severity.NOTE
            text = f"The command made {self._sides.shown(name)}; Forge ignored it."
            self._sync.tell_once(name, info.st_ino, "git_files", severity, text)
            if obeyed:  # else git would not work inside any more
                self._shadow.clear(name)


def _named_alone(path: str, theirs: bytes | None, ours: bytes) -> frozenset[str]:
    """Objects that only the command's list of stashes may name, or its HEAD that is on no branch."""
    if path == STASH_LOG and _STASH_LINES.fullmatch(ours):
        named = _STASHED.findall(ours)[-_MOST_ALONE:]
    elif _A_HEAD.fullmatch(path) and (head := HEAD_CONTENT.fullmatch(ours)) is not None and not head[1]:
        named = [ours.strip()]
    else:
        return frozenset()
    return frozenset(one.decode() for one in named if one not in (theirs or b""))


def free_names(zone: Zone, prefix: str) -> frozenset[str]:
    """What the program's author leaves writable in a git directory: `unprotect: [.git/config]`."""
    names = (normal_name(name).removeprefix(f"{GIT_FILE}/") for name in zone.unprotect)
    return frozenset(name.rpartition("/")[2] for name in names if bool(prefix) == name.startswith("modules/"))


def is_ordinary_name(name: str) -> bool:
    """What a git directory holds that is exchanged or shared, or there for a moment."""
    known = name in EXCHANGED_NAMES or name in OWN_FOLDERS
    return known or bool(WRITABLE_FILE.fullmatch(name) or TRANSIENT_NAME.fullmatch(name))


def _is_of_a_worktree(path: str) -> bool:
    """Whether a file below `worktrees/<name>` is carried over."""
    rest = path.split("/")[2:]
    if len(rest) == 1:
        return rest[0] in _OF_A_WORKTREE or WRITABLE_FILE.fullmatch(rest[0]) is not None
    return bool(rest) and rest[0] in (*WRITABLE_FOLDERS, "refs")
