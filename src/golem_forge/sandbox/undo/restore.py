"""Undo: which paths are brought back, to which states, the steps on disk, and the care of undo stores between calls.

`preview` says what an undo would do to each path and why it would leave one alone; `restore` does it. Changes of
several calls become one step for each path: from what stands there now to what stood there before the first of them.

    a path that is not what the last of these calls left    was edited since: left alone, unless `also` names it
    a path that is not what one of them left for the next   was edited between them: the same
    a FIFO, a socket or a device                            left alone, unless `also` names it
    a path that others may have changed                     shown, left alone, unless `also` names it
    a state that was not kept                               cannot be brought back

A restore is written to the store first, as a whole, and then done: many paths are looked at at once, and each step
compares what it replaces, removes or gives a mode with what was found there. A process that is killed in the middle
leaves the rest to `finish_restores`, which the next session calls (`recover`): a path is in its old state or in its new
one, and no path that somebody changed meanwhile is touched. Threat: links and directories that are exchanged while it
runs; every path is opened below the zone's handle, and a file takes its place by a rename.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Final, Self, TypeVar

from golem_forge.core.changes import (
    ABSENT,
    EVERYTHING,
    ChangeSelection,
    ChangeSet,
    PathChange,
    PathKind,
    PathState,
    UndoSettings,
    describe_lasting,
    file_diff,
    is_below,
)
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.events.journal_files import is_locked
from golem_forge.sandbox.files import temp_name
from golem_forge.sandbox.handles import CONTENT, ENTRY, LISTING, Handle, Parts, call_libc, read_regular
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.undo.git_state import INDEX, GitRefused
from golem_forge.sandbox.undo.log import UNDO_TOOL, UNDONE, SessionChangeLog, taken_back
from golem_forge.sandbox.undo.store import (
    FOLDER,
    PENDING,
    ZoneStore,
    all_stores,
    find_content,
    is_alive,
    is_busy,
    own_process,
    zone_folder,
)
from golem_forge.sandbox.undo.zone_files import OWN_NAME
from golem_forge.sandbox.undo.zone_history import ZoneHistory, forget_in_zone, outer_host, same_state, zone_history
from golem_forge.sandbox.zones import AccessMode

T = TypeVar("T")
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_SHOWN: Final = 1 << 20
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCHANGE: Final = 2
_AT_ONCE: Final = 100
"""Paths for which the store is locked once; others who wait for it have their turn in between."""
_REMOVING: Final = 4
EDITED: Final = "it was changed since"
EDITED_BETWEEN: Final = "somebody else changed it between these calls"
SPECIAL: Final = "a FIFO, a socket or a device stands there now"


class UndoAction(StrEnum):
    RESTORE = "restore"
    DELETE = "delete"
    CREATE = "create"
    MODE = "mode"


@dataclass(frozen=True, slots=True)
class UndoStep:
    path: str
    action: UndoAction
    now: PathState = ABSENT
    then: PathState = ABSENT
    """What it becomes."""
    selected: bool = True
    why: str = ""
    """Why it is not selected, or cannot be brought back."""
    diff: str = ""


@dataclass(frozen=True, slots=True)
class UndoPreview:
    steps: tuple[UndoStep, ...] = ()
    lost: tuple[UndoStep, ...] = ()
    """What cannot be brought back; `why` says why."""
    calls: tuple[str, ...] = ()
    """The ids of what would be taken back, oldest first."""
    lasting: str = ""
    """What of these calls, or of their turn, undo cannot take back, in words; empty: nothing."""

    @property
    def selected(self) -> tuple[UndoStep, ...]:
        return tuple(one for one in self.steps if one.selected)


class NothingToUndo(ForgeError):
    """No call matches; the text says what there is."""

    def __init__(self, text: str) -> None:
        super().__init__(text, code="NOTHING_TO_UNDO")


def choose_calls(sets: Sequence[ChangeSet], selected: ChangeSelection, *, redo: bool = False) -> tuple[ChangeSet, ...]:
    """The change sets that an undo of the selection is about, oldest first. `redo`: the last undo itself. Raises
    NothingToUndo."""
    undone = taken_back(sets)
    if redo:
        undos = [one for one in sets if one.tool == UNDO_TOOL and one.call not in undone and not _is_redo(one, sets)]
        if not undos:
            raise NothingToUndo("Nothing was undone in this session.")
        return tuple(one for one in sets if one.call == undos[-1].call)
    live = _not_undone(sets, undone)
    if selected.call:
        live = [one for one in live if one.call == selected.call]
    elif selected.turn is not None:
        live = [one for one in live if one.turn == selected.turn]
    if selected.paths:
        live = [one for one in live if any(is_below(change.path, selected.paths) for change in one.changes)]
    if not live:
        raise NothingToUndo(_what_there_is(sets, undone, selected))
    return tuple(live)


def _last_turns(sets: Sequence[ChangeSet]) -> Iterator[tuple[tuple[ChangeSet, ...], bool]]:
    """(what a turn changed, whether that was undone in part), the newest turn first, up to one that was not undone. A
    call that the person made by hand counts as a turn."""
    undone = taken_back(sets)
    live = _not_undone(sets, undone)
    while live:
        last = live[-1]
        turn = [one for one in live if (one.turn == last.turn if last.turn else one.call == last.call)]
        in_part = all(one.call in undone for one in turn)
        yield tuple(turn), in_part
        calls = {one.call for one in turn}
        live = [one for one in live if one.call not in calls] if in_part else []


def _not_undone(sets: Sequence[ChangeSet], undone: Mapping[str, str]) -> list[ChangeSet]:
    return [one for one in sets if one.tool != UNDO_TOOL and one.changes and undone.get(one.call) != UNDONE]


def _what_there_is(sets: Sequence[ChangeSet], undone: Mapping[str, str], selected: ChangeSelection) -> str:
    turn, call = selected.turn, selected.call
    turns = sorted({one.turn for one in _not_undone(sets, undone) if one.turn})
    what = f"call '{call}'" if call else f"turn {turn}" if turn is not None else "that"
    known = f" Turns that changed files: {', '.join(map(str, turns))}." if turns else " Nothing is left to undo."
    meant = [one for one in sets if (one.call == call if call else turn is not None and one.turn == turn)]
    lasting = f" Not taken back: {said}." if (said := describe_lasting(meant)) else ""
    return f"There is nothing to undo for {what} in this session.{lasting}{known}"


def _lasting(sets: Sequence[ChangeSet], chosen: Sequence[ChangeSet], *, whole_turn: bool) -> str:
    turns = {one.turn for one in chosen if one.turn} if whole_turn else set()
    calls = {one.call for one in chosen}
    return describe_lasting(one for one in sets if one.turn in turns or one.call in calls)


def _is_redo(one: ChangeSet, sets: Sequence[ChangeSet]) -> bool:
    return any(each.tool == UNDO_TOOL for each in sets if each.call in one.undoes)


def preview(
    home: Path,
    sandbox: Sandbox,
    session: str,
    selected: ChangeSelection = EVERYTHING,
    *,
    also: Collection[str] = (),
    redo: bool = False,
    settings: UndoSettings | None = None,
) -> UndoPreview:
    """Raises NothingToUndo. Where everything is selected: of the last turn that changed something; one that was undone
    in part is passed over if nothing of it is left to take back. `also`: paths to take although they are not selected
    by themselves."""
    sets = SessionChangeLog(home, session).read()
    settings = settings or UndoSettings()
    if selected != EVERYTHING or redo:
        chosen = choose_calls(sets, selected, redo=redo)
        found = _preview(sets, chosen, home, sandbox, settings, paths=selected.paths, also=also)
        if selected.paths or redo:
            return found
        return replace(found, lasting=_lasting(sets, chosen, whole_turn=not selected.call))
    last: UndoPreview | None = None
    for chosen, in_part in _last_turns(sets):
        found = _preview(sets, chosen, home, sandbox, settings, also=also)
        found = replace(found, lasting=_lasting(sets, chosen, whole_turn=True))
        if found.selected or not in_part:
            return found
        last = last or (found if found.steps else None)
    if last is None:
        raise NothingToUndo(_what_there_is(sets, taken_back(sets), selected))
    return last


def _preview(
    sets: Sequence[ChangeSet],
    chosen: Sequence[ChangeSet],
    home: Path,
    sandbox: Sandbox,
    settings: UndoSettings,
    *,
    paths: Collection[str] = (),
    also: Collection[str] = (),
) -> UndoPreview:
    steps: list[UndoStep] = []
    edited = _edited_between(sets, chosen)
    by_zone: dict[ZoneHistory, list[tuple[Parts, str, list[PathChange]]]] = {}
    for path, changes in _by_path(chosen).items():
        if paths and not is_below(path, paths):
            continue
        if (place := locate(path, home, sandbox, settings)) is not None:
            by_zone.setdefault(place[0], []).append((place[1], path, changes))
        else:
            why = "it lies in no zone of this session"
            steps.append(UndoStep(path, UndoAction.RESTORE, ABSENT, changes[0].before, selected=False, why=why))
    for history, all_of_it in by_zone.items():
        for some in _batches(all_of_it):
            with history.store.locked():
                stand = history.states([parts for parts, _, _ in some if parts[0] != GIT_FILE])
                for parts, path, changes in some:
                    now = stand[parts] if parts in stand else history.state(parts)
                    picked = is_below(path, also)
                    step = _step(path, changes, history, now, picked=picked, edited_between=path in edited)
                    steps += [step] if step is not None else []
    lost = tuple(one for one in steps if one.then.lost)
    found = tuple(_in_order(one for one in steps if not one.then.lost))
    return UndoPreview(found, lost, tuple(dict.fromkeys(one.call for one in chosen)))


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))


def _by_path(sets: Iterable[ChangeSet]) -> dict[str, list[PathChange]]:
    found: dict[str, list[PathChange]] = {}
    for one in sets:
        for change in one.changes:
            found.setdefault(change.path, []).append(change)
    return found


def _edited_between(sets: Iterable[ChangeSet], chosen: Iterable[ChangeSet]) -> set[str]:
    """Paths that neither a chosen call nor an undo left as the next chosen call found them."""
    calls = {one.call for one in chosen}
    left: dict[str, PathState] = {}
    found: set[str] = set()
    for each in sets:
        for change in each.changes:
            if each.call in calls:
                if not same_state(left.get(change.path, change.before), change.before):
                    found.add(change.path)
                left[change.path] = change.after
            elif each.tool == UNDO_TOOL and change.path in left:
                left[change.path] = change.after
    return found


def _step(
    path: str, changes: list[PathChange], history: ZoneHistory, now: PathState, *, picked: bool, edited_between: bool
) -> UndoStep | None:
    """None: there is nothing to do. `now`: what stands there."""
    then, left = changes[0].before, changes[-1].after
    others = tuple(dict.fromkeys(who for change in changes for who in change.others))
    if same_state(now, then):
        return None
    if then.digest and not then.lost and not history.store.has(then.digest):
        then = replace(then, lost="it is not kept any more (undo.keep, undo.max_disk)")
    if then.lost:
        return UndoStep(path, UndoAction.RESTORE, now, then, selected=False, why=then.lost)
    if now.kind is PathKind.SPECIAL:
        why = SPECIAL
    elif not same_state(now, left):
        why = EDITED
    elif others:
        why = f"it may be the work of {', '.join(others)}"
    else:
        why = EDITED_BETWEEN if edited_between else ""
    action = (
        UndoAction.DELETE
        if then.kind is PathKind.ABSENT
        else UndoAction.CREATE
        if now.kind is PathKind.ABSENT
        else UndoAction.MODE
        if (now.kind, now.digest, now.target) == (then.kind, then.digest, then.target)
        else UndoAction.RESTORE
    )
    diff = _diff(path, history, now, then)
    return UndoStep(path, action, now, then, selected=picked or not why, why=why, diff=diff)


def _diff(path: str, history: ZoneHistory, now: PathState, then: PathState) -> str:
    if PathKind.DIRECTORY in (now.kind, then.kind) or path.split("/")[2:3] == [GIT_FILE]:
        return ""
    old, new = (_shown(state, history.store.content(state.digest)) for state in (now, then))
    return "\n".join(file_diff(path.lstrip("/"), old, new)) + "\n" if old != new else ""


def _shown(state: PathState, content: bytes | None) -> str | None:
    """A side of a diff; None: there is no file."""
    if state.kind is PathKind.ABSENT:
        return None
    if state.kind is PathKind.LINK:
        return f"-> {state.target}\n"
    if content is None or len(content) > _MOST_SHOWN or b"\0" in content[:8192]:
        return f"({state.size:,} bytes, not shown)\n"
    return content.decode("utf-8", "replace")


def change_diff(home: Path, change: PathChange) -> str:
    """What one change changed, as a unified diff; empty for directories, modes and git's own."""
    if change.in_git or PathKind.DIRECTORY in (change.before.kind, change.after.kind):
        return ""
    old, new = (_shown(state, find_content(home, state.digest)) for state in (change.before, change.after))
    return "\n".join(file_diff(change.path.lstrip("/"), old, new)) + "\n" if old != new else ""


def _in_order(steps: Iterable[UndoStep]) -> Iterator[UndoStep]:
    """What goes away from the bottom up, what comes back from the top down."""
    steps = sorted(steps, key=lambda one: one.path)
    yield from reversed([one for one in steps if one.then.kind is PathKind.ABSENT])
    yield from (one for one in steps if one.then.kind is not PathKind.ABSENT)


def locate(path: str, home: Path, sandbox: Sandbox, settings: UndoSettings) -> tuple[ZoneHistory, Parts] | None:
    """The zone of a recorded path, if this sandbox has it, and the path in it."""
    _, name, *parts = path.split("/")
    zone = sandbox.zones.get(name)
    if zone is None:
        return None
    history = zone_history(zone, home, settings)
    with contextlib.suppress(OSError):
        history.open_store()
        return history, tuple(parts)
    return None


# --- on disk


def restore_all(
    home: Path, sandbox: Sandbox, steps: Sequence[UndoStep], settings: UndoSettings | None = None
) -> dict[str, str]:
    """The steps of a preview, whatever zones they are in. Path → why it was left alone. Raises OSError."""
    by_zone: dict[ZoneHistory, list[UndoStep]] = {}
    for step in steps:
        place = locate(step.path, home, sandbox, settings or UndoSettings())
        assert place is not None, "a preview selects no other"
        by_zone.setdefault(place[0], []).append(step)
    return {path: why for history, some in by_zone.items() for path, why in restore(history, some).items()}


def restore(history: ZoneHistory, steps: Sequence[UndoStep]) -> dict[str, str]:
    """Path → why it was left alone, for those that were. Everything else stands as the steps say. Raises OSError."""
    items: list[dict[str, object]] = [
        {"path": one.path, "now": one.now.to_json(), "then": one.then.to_json()} for one in steps
    ]
    with history.store.locked():
        said = {"owner": own_process(), "steps": items, "index": history.index_stamp()}
        history.store.set(PENDING, json.dumps(said))
        history.store.mark_busy()
    return _carry_out(history, items)


def finish_restores(history: ZoneHistory) -> tuple[str, ...]:
    """The paths of a restore that a crash cut short and that is finished now."""
    if not history.has_store:
        return ()
    with history.store.locked():
        pending = history.store.get(PENDING)
    if not pending:
        return ()
    said = json.loads(pending)
    items = said["steps"]
    if is_alive(*said["owner"]):  # it is being done
        return ()
    for parts in {tuple(item["path"].split("/")[2:-1]) for item in items}:
        _remove_temporary(history, parts)
    left = _carry_out(history, items, again=True, index=said.get("index", ""))
    return tuple(item["path"] for item in items if item["path"] not in left)


def _remove_temporary(history: ZoneHistory, parts: Parts) -> None:
    """What the killed process was about to rename."""
    with contextlib.suppress(OSError):
        directory = history.files.open(parts, LISTING)
        for name in os.listdir(directory.fd):
            if OWN_NAME.fullmatch(name):
                os.unlink(name, dir_fd=directory.fd)


def _carry_out(
    history: ZoneHistory, items: Iterable[dict[str, object]], *, again: bool = False, index: str = ""
) -> dict[str, str]:
    """`again`: a killed process did some of it. `index`: the stamp of git's index when it began."""
    left: dict[str, str] = {}
    modes: list[tuple[Parts, int]] = []
    in_git: list[tuple[str, PathState, PathState]] = []
    steps: list[tuple[str, Parts, PathState, PathState]] = []
    for item in items:
        path = str(item["path"])
        now, then = (PathState.from_json(item[side]) for side in ("now", "then"))  # type: ignore[arg-type]
        parts = tuple(path.split("/")[2:])
        if parts[0] == GIT_FILE:
            in_git.append(("/".join(parts), now, then))
        else:
            steps.append((path, parts, now, then))
    with _Removals() as removals:
        for some in _batches(steps):
            with history.store.locked():
                # By their times: whatever a step replaces or removes, it compares with what is found here.
                stand = history.states([parts for _, parts, _, _ in some], anew=False)
                for path, parts, now, then in some:
                    found = stand[parts]
                    if same_state(found, then):  # nothing compares this one
                        found = history.state(parts)
                    if same_state(found, then):
                        continue
                    if again and found.kind is then.kind is PathKind.DIRECTORY:  # made, and its mode was not set yet
                        modes.append((parts, then.mode))
                        continue
                    if not same_state(found, now):
                        left[path] = SPECIAL if found.kind is PathKind.SPECIAL else EDITED
                        continue
                    try:
                        _put(history, parts, found, then, removals)
                    except FileExistsError:
                        left[path] = EDITED
                        continue
                    except OSError as error:
                        left[path] = os.strerror(error.errno or 0).lower()
                        continue
                    if then.kind is PathKind.DIRECTORY:
                        modes.append((parts, then.mode))
            removals.start()
    for parts, mode in reversed(modes):  # now that everything in them is there
        with contextlib.suppress(OSError):
            directory = history.files.open(parts, LISTING)
            os.fchmod(directory.fd, mode)
    left |= _carry_out_git(history, in_git, index=index)
    history.files.sync()
    with history.store.locked():
        history.store.set(PENDING, "")
        history.store.mark_idle()
    return left


class _Removals:
    """Removes files that steps took out of the way, beside the steps that follow: the system lets a removal wait until
    what was just written to the file is on disk. They have names of ours meanwhile, and the restore counts as not
    finished before all are gone: after a kill `finish_restores` removes them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_REMOVING)
        self._asked: list[tuple[Handle, str]] = []
        self._begun: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._pool:
            self.finish()

    def add(self, directory: Handle, name: str) -> None:
        self._asked.append((directory, name))

    def start(self) -> None:
        """Those before them are gone then: each holds its directory open."""
        wait(self._begun)
        asked, self._asked = self._asked, []
        self._begun = [self._pool.submit(_remove_all, asked[first::_REMOVING]) for first in range(_REMOVING) if asked]

    def finish(self) -> None:
        _remove_all(self._asked)
        self._asked.clear()
        wait(self._begun)


def _remove_all(names: Iterable[tuple[Handle, str]]) -> None:
    for directory, name in names:
        with contextlib.suppress(OSError):  # somebody else did, or the directory is not ours any more
            os.unlink(name, dir_fd=directory.fd)


def _carry_out_git(
    history: ZoneHistory, steps: list[tuple[str, PathState, PathState]], *, index: str
) -> dict[str, str]:
    """After the files: the index is compared with them when it is written. `index`: of a restore that was cut short,
    the stamp it had; what the index is depends on refs, which may have moved already."""
    left: dict[str, str] = {}
    todo = []
    with history.store.locked():
        for path, now, then in steps:
            found = history.state(tuple(path.split("/")))
            if same_state(found, then):
                continue
            untouched = path == INDEX and index != "" and index == history.index_stamp()
            if same_state(found, now) or untouched:
                todo.append((path, found, then))
            else:
                left[f"/{history.name}/{path}"] = EDITED
        try:
            if todo:
                history.restore_git(todo)
        except GitRefused as error:
            left |= {f"/{history.name}/{path}": str(error) for path, _, _ in todo}
    return left


def _put(history: ZoneHistory, parts: Parts, found: PathState, then: PathState, removals: _Removals) -> None:
    """Raises FileExistsError where something else stands there than what was found, which stays then; OSError."""
    parent = history.files.open_parent(parts)
    name = parts[-1]
    if found.kind is PathKind.DIRECTORY and then.kind is not PathKind.DIRECTORY:
        removals.finish()
        os.rmdir(name, dir_fd=parent.fd)  # fails where something is in it: that was not ours
    if then.kind in (PathKind.ABSENT, PathKind.DIRECTORY):
        if found.kind not in (PathKind.ABSENT, PathKind.DIRECTORY):
            _take_away(parent, name, found, removals)
        if then.kind is PathKind.DIRECTORY and found.kind is not PathKind.DIRECTORY:
            os.mkdir(name, 0o700, dir_fd=parent.fd)
        return
    if found.kind is PathKind.FILE and then.kind is PathKind.FILE and found.digest == then.digest:
        if not _is_found(parent.fd, name, found):
            raise FileExistsError
        file = history.files.open(parts, ENTRY)
        os.chmod(f"/proc/self/fd/{file.fd}", then.mode)  # it may be unreadable now
        return
    temporary = temp_name()
    if then.kind is PathKind.LINK:
        os.symlink(then.target, temporary, dir_fd=parent.fd)
    else:
        data = history.store.content(then.digest)
        if data is None:
            raise OSError(2, "its content is not kept any more")
        file = Handle(os.open(temporary, _NEW_FILE, then.mode, dir_fd=parent.fd))
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file.fd, view) :]
            if stat.S_IMODE(os.fstat(file.fd).st_mode) != then.mode:
                os.fchmod(file.fd, then.mode)
        except OSError:  # the disk is full
            os.unlink(temporary, dir_fd=parent.fd)
            raise
    if found.kind in (PathKind.FILE, PathKind.LINK, PathKind.SPECIAL):
        _exchange(parent, temporary, name, found, removals)
    else:
        _rename_to_free_place(parent.fd, temporary, name)


def _take_away(directory: Handle, name: str, found: PathState, removals: _Removals) -> None:
    aside = temp_name()
    os.rename(name, aside, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    if not _is_found(directory.fd, aside, found):
        _rename_to_free_place(directory.fd, aside, name)
        raise FileExistsError
    removals.add(directory, aside)


def _exchange(directory: Handle, new: str, name: str, found: PathState, removals: _Removals) -> None:
    """Threat: the person saves the file between the look at it and this."""
    names = (directory.fd, os.fsencode(new), directory.fd, os.fsencode(name))
    try:
        call_libc("renameat2", *names, _RENAME_EXCHANGE)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL):  # this file system cannot
            os.unlink(new, dir_fd=directory.fd)
            raise
        os.rename(new, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
        return
    same = _is_found(directory.fd, new, found)
    if not same:
        call_libc("renameat2", *names, _RENAME_EXCHANGE)
    removals.add(directory, new)
    if not same:
        raise FileExistsError


def _is_found(directory: int, name: str, found: PathState) -> bool:
    """Whether this is what the look before it saw."""
    info = os.lstat(name, dir_fd=directory)
    if found.kind is PathKind.LINK:
        return stat.S_ISLNK(info.st_mode) and os.readlink(name, dir_fd=directory) == found.target
    if found.kind is PathKind.SPECIAL:
        return not any(test(info.st_mode) for test in (stat.S_ISREG, stat.S_ISLNK, stat.S_ISDIR))
    if not stat.S_ISREG(info.st_mode):
        return False
    if found.lost or info.st_size != found.size or not info.st_mode & 0o400:
        return info.st_size == found.size
    file = Handle(os.open(name, CONTENT, dir_fd=directory))
    return sha256(read_regular(file.fd, found.size + 1) or b"").hexdigest() == found.digest


def _rename_to_free_place(directory: int, old: str, new: str) -> None:
    """Raises FileExistsError. Threat: the person saves a file there while the undo is carried out."""
    try:
        call_libc("renameat2", directory, os.fsencode(old), directory, os.fsencode(new), _RENAME_NOREPLACE)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EINVAL):  # this file system cannot
            os.rename(old, new, src_dir_fd=directory, dst_dir_fd=directory)
            return
        os.unlink(old, dir_fd=directory)
        raise


# --- after a crash, and with age

_PRUNED: Final = "pruned"
_PRUNE_EVERY_S: Final = 3_600.0
CUT_SHORT: Final = "Forge was ended while it ran"


def recover(home: Path, sandbox: Sandbox, settings: UndoSettings) -> list[str]:
    """Finishes a restore that was cut short and closes calls whose process was killed: what they changed is in their
    session's log then, as of any other call. Touches no file that a restore does not name. Call it when a session
    begins, before anything else changes files. Gives what there is to tell, a line each."""
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
            facts = {**span.facts, **{name: tuple(span.facts.get(name, ())) for name in ("undoes", "reached")}}
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
    """Forgets sessions that are older than `undo.keep`, and the oldest ones beyond `undo.max_disk`, never one that
    runs. Touches no file of a zone. At most once an hour, unless `now` is given."""
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
                for session, at in store.sessions().items():
                    journal = home / "sessions" / f"{session}.jsonl"
                    if not journal.exists() or (clock - at > settings.keep and not is_locked(journal)):
                        forget_in_zone(store, session)
                    else:
                        ages.append((at, session, store))
                total += store.collect()
        for _, session, store in sorted(ages, key=lambda one: one[0]):
            if total <= settings.max_disk:
                return
            if not is_locked(home / "sessions" / f"{session}.jsonl"):
                with store.locked():
                    before = store.kept_bytes()
                    forget_in_zone(store, session)
                    total -= before - store.collect()


def forget_session(home: Path, session: str) -> None:
    """It was deleted: nothing that it changed can be undone any more."""
    SessionChangeLog(home, session).remove()
    for store in all_stores(home):
        with contextlib.closing(store), contextlib.suppress(OSError, sqlite3.Error), store.locked():
            forget_in_zone(store, session)
            store.collect(every_byte=True)


def _count(paths: object) -> str:
    count = len(paths)  # type: ignore[arg-type]
    return f"{count} path{'s' if count != 1 else ''}"
