"""GitShadow: the `.git` that commands see is a private copy, and only data comes back from it.

Inside walls the zone's `.git` is a directory in the user's cache with its own HEAD, index, refs and logs. Objects
are shared; config, hooks, info and everything else of the user's `.git` are mounted read-only. `sync` runs before
and after each command, and now and then while one runs, and carries over what GitExchange lets through. Nothing
else is ever taken over, so a file that git obeys (`commondir`, `config.worktree`, a hook, a link at
`COMMIT_EDITMSG`) cannot be left in the user's repository by any command, not even for a moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from golem_forge.core.calls import Leftover, Severity
from golem_forge.core.errors import error_name
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.git import exchange
from golem_forge.sandbox.git.directory import GitDir, GitLocked, ObjectCheck, TooManyFiles
from golem_forge.sandbox.git.exchange import GitExchange, SyncPhase, SyncState
from golem_forge.sandbox.git.index import TrackedFiles, config_value
from golem_forge.sandbox.handles import DIRECTORY, Handle, Parts, best_opener
from golem_forge.sandbox.process.cleanup import remove_tree
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls.cache import kept_home
from golem_forge.sandbox.zones import Zone, zone_key
from golem_forge.storage.file_stamp import FileStamp, file_stamp
from golem_forge.storage.private_file import LockTimeout, locked, write_private

_MOST_SUBMODULES: Final = 8
"""Each takes five mounts; of more of them commands see a read-only git directory."""
_MOST_OTHERS: Final = 12
_DEEPEST_SUBMODULE: Final = 4
_UNSETTLED_NS: Final = 20_000_000
"""A directory that changed so short ago may change again within the same tick of the clock."""
_MOST_LOOKED_AT: Final = 200
_FORMAT: Final = 1
_OBJECTS: Final = "objects since "


@dataclass(frozen=True, slots=True)
class GitMount:
    """One thing of the person's `.git` that stands in the shadow."""

    path: str
    """Below `.git`."""
    directory: bool
    writable: bool = False
    missing: bool = False
    """An empty read-only one stands there instead."""


@dataclass(frozen=True, slots=True)
class ShadowPlan:
    """What stands at a zone's `.git` inside walls."""

    tree: str
    """A host directory, writable."""
    mounts: tuple[GitMount, ...]
    """In it, parents first."""


class GitShadow:
    def __init__(self, zone: Zone, cache: Path) -> None:
        """`cache`: the person's cache directory; the shadow is made in it when it is first needed."""
        self._zone = zone
        self._cache = cache
        self._names = ("golem-forge", "git", zone_key(zone.host))
        self._folder = os.path.join(os.path.realpath(cache), *self._names)
        self.tree = os.path.join(self._folder, "tree")
        """The host directory that stands at `.git` inside walls."""
        self.tracked = TrackedFiles(zone)
        self._tree_fd = -1
        self._dirs: dict[str, tuple[GitDir, GitDir]] = {}
        self._mounts: tuple[int, tuple[GitMount, ...]] = (-1, ())
        self._stands = False
        """Everything that mounts stand on was there at the last sync."""
        self._quiet: dict[str, int] | None = None
        """When the directories of both sides last changed, as of that sync."""
        self._state: tuple[SyncState, FileStamp] | None = None
        """The last one, and the stamp of the file that it was read from or written to. It stays when a sync fails
        halfway: what was carried over by then counts as carried over."""
        self._pending: list[Leftover] = []
        self._commands = 0
        """How many run, of those that this object knows."""
        self._moved: dict[str, dict[str, tuple[str | None, str | None]]] = {}

    def plan(self) -> ShadowPlan:
        """As things are now. Looks, and changes nothing."""
        return ShadowPlan(self.tree, self._mounted())

    def invalidate_mounts(self) -> None:
        """What was planned is no longer there: look again."""
        self._mounts = (-1, ())
        self._stands = False

    def _mounted(self) -> tuple[GitMount, ...]:
        top = self._real("").look("")
        changed = top.st_ctime_ns if top else 0
        if self._mounts[0] != changed:
            found: list[GitMount] = []
            for prefix in self._prefixes():
                found += self._mounts_of(prefix)
            settled = time.time_ns() - changed > _UNSETTLED_NS
            self._mounts = (changed if settled else -1, tuple(found))
        return self._mounts[1]

    def begin(self) -> None:
        """Before a command starts, which `sync(SyncPhase.ENDED)` ends. Raises WALLS_UNAVAILABLE."""
        self.prepare()
        self._commands += 1

    def prepare(self) -> None:
        """The shadow holds what the person's `.git` holds now. Raises WALLS_UNAVAILABLE."""
        if self._stands and self._is_quiet():
            return
        self._stands = False
        try:
            self._prepare()
        except SandboxError:
            raise
        except Exception:  # whatever commands made of the shadow, it is no reason to refuse the next one
            self._begin_afresh()
            try:
                self._prepare()
            except TooManyFiles:
                raise walls_unavailable(
                    "the repository has too many files in .git/refs or .git/logs",
                    "Run `git pack-refs --all` to pack its refs.",
                ) from None
            except (OSError, ValueError, GitLocked) as error:
                raise _unavailable(f"the private copy of .git could not be written ({error_name(error)})") from None

    def _prepare(self) -> None:
        self.open()
        self._pair("")[1].make_accessible()
        self.sync(SyncPhase.BETWEEN, begins=self._commands == 0)
        shadow = self._pair("")[1]
        for prefix in self._prefixes():
            shadow.make_folder(f"{prefix}refs/heads")
        for mount in self._mounted():
            _make_mount_point(shadow, mount)
        self._stands = True

    def _begin_afresh(self) -> None:
        """Threat: what a command leaves in the shadow (files where directories belong, a hundred thousand of them)
        makes every later start fail. The shadow is put aside, and a new one begins with what the person has."""
        self.close()
        with self._locked():
            aside = os.path.join(self._folder, "aside")
            remove_tree(aside)
            if os.path.lexists(aside):
                aside = f"{aside}-{os.urandom(4).hex()}"
            os.rename(self.tree, aside)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, "state.json"))
        self._state = self._quiet = None
        text = (
            "Commands left the private copy of .git so that it could not be read; what they did there since the last"
            " command was not carried over."
        )
        self._pending.append(Leftover(kind="git_files", severity=Severity.CRITICAL, text=text))

    def sync(self, when: SyncPhase, changed: Collection[Parts] = (), *, begins: bool = False) -> None:
        """Carry over what either side changed since the last time; `leftovers` tells of it. `changed`: what a command
        made or changed in the zone; `begins`: none runs now, and one is about to. Raises whatever a hostile shadow
        leads to."""
        if when is SyncPhase.ENDED:
            self._commands = max(0, self._commands - 1)
        if self._tree_fd < 0:
            return
        self.tracked.begin(changed)
        if not self._is_quiet():
            with self._locked():
                self._exchange(when, begins)
        elif when is SyncPhase.ENDED:  # objects may have come all the same: a file there changes no directory's time
            state = self._loaded()
            for prefix in self._prefixes():
                self._check_objects(prefix, state)
        if when is SyncPhase.ENDED:
            self.tracked.finish()
        self._pending += self.tracked.leftovers
        self.tracked.leftovers.clear()

    def remove_locks(self) -> None:
        """Lock files that commands left which were killed. Call it while no command runs."""
        if self._tree_fd >= 0:
            shadow = self._pair("")[1]
            for folder in ("", *[path for top in exchange.EXCHANGED_NAMES for path, _ in shadow.folders(top)]):
                for name in shadow.names(folder):
                    if name.endswith((".lock", ".tmp")):
                        shadow.clear(f"{folder}/{name}" if folder else name)

    def leftovers(self) -> tuple[Leftover, ...]:
        """What there is to tell since the last time somebody asked."""
        for prefix, moved in self._moved.items():
            if moved := {name: (old, new) for name, (old, new) in moved.items() if old != new}:
                self._pending.append(exchange.moved_refs(self._zone, prefix, moved))
        told, self._pending, self._moved = tuple(self._pending), [], {}
        return told

    def close(self) -> None:
        fd, self._tree_fd = self._tree_fd, -1
        self._dirs.clear()
        if fd >= 0:
            os.close(fd)

    __del__ = close

    def _exchange(self, when: SyncPhase, begins: bool) -> None:
        state = self._loaded()
        before = json.dumps(_state_members(state))
        shadow = self._pair("")[1]
        locked: list[str] = []
        postponed = False
        for prefix in self._prefixes():
            shadow.make_folder(f"{prefix}refs")
            if when is SyncPhase.BETWEEN:
                self._real(prefix).remove_stale()
            one = GitExchange(self._zone, prefix, self._pair(prefix), state, self.tracked)
            mounts = (mount.path for mount in self._mounted())
            standing = {path.removeprefix(prefix) for path in mounts if path.startswith(prefix)}
            one.run(standing, when)
            self._pending += one.leftovers
            if when is SyncPhase.ENDED:
                began = time.time_ns()
                self._check_objects(prefix, state)
                state.told[f"{_OBJECTS}{prefix}"] = began
            locked += one.locked_paths
            postponed = postponed or one.postponed
            moved = self._moved.setdefault(prefix, {})
            for name, (old, new) in one.moved.items():
                moved[name] = (moved.get(name, (old, new))[0], new)
        if locked and not state.told.get("locked"):
            text = f"Another git holds the lock of {', '.join(locked[:5])}: it is carried over with the next command."
            self._pending.append(Leftover(kind="git_files", severity=Severity.WARNING, text=text))
        state.told["locked"] = bool(locked)
        # Not while one runs: what it has stored so far would never be checked. And not where one is still "open": its
        # Forge was killed before the look at its end.
        if begins and not state.told.get("open"):
            state.told |= {f"{_OBJECTS}{prefix}": time.time_ns() for prefix in self._prefixes()}
        state.told["open"] = when is not SyncPhase.ENDED
        if json.dumps(_state_members(state)) != before:
            self._save(state)
        self._quiet = None if locked or postponed else self._folder_times()

    def _check_objects(self, prefix: str, state: SyncState) -> None:
        """Those that came since a look after an earlier command, or since this one began."""
        since = state.told.get(f"{_OBJECTS}{prefix}", 0)
        if since:
            host = os.path.join(self._zone.host, GIT_FILE, prefix)
            shown = self._zone.virtual((GIT_FILE, prefix.rstrip("/")) if prefix else (GIT_FILE,))
            self._pending += ObjectCheck(self._real(prefix), host, shown, since).run()

    def _mounts_of(self, prefix: str) -> Iterator[GitMount]:
        there = self._real(prefix).names()
        free = exchange.free_names(self._zone, prefix)
        for name in exchange.SHARED_FOLDERS:
            if name in there and stat.S_ISDIR(there[name].st_mode):
                yield GitMount(f"{prefix}{name}", directory=True, writable=True)
        for name, directory in (("config", False), ("hooks", True), ("info", True)):
            found = there.get(name)
            if found is not None and (stat.S_ISDIR(found.st_mode) if directory else stat.S_ISREG(found.st_mode)):
                if directory or name not in free:
                    yield GitMount(f"{prefix}{name}", directory=directory, writable=name in free)
            elif name not in free:
                yield GitMount(f"{prefix}{name}", directory=directory, missing=True)
        others = 0
        for name, found in sorted(there.items()):
            if exchange.is_ordinary_name(name) or name in ("config", "hooks", "info") or name in free:
                continue
            if (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)) and others < _MOST_OTHERS:
                others += 1
                yield GitMount(f"{prefix}{name}", directory=stat.S_ISDIR(found.st_mode))
        if not prefix:
            for path in self._submodules()[_MOST_SUBMODULES:]:
                yield GitMount(path, directory=True)

    def _prefixes(self) -> tuple[str, ...]:
        """The git directories that have a shadow: the repository's own and those of its first submodules."""
        return ("", *(f"{path}/" for path in self._submodules()[:_MOST_SUBMODULES]))

    def _submodules(self) -> list[str]:
        real = self._real("")
        found: list[str] = []
        waiting = [("modules", 0)]
        while waiting:
            here, depth = waiting.pop()
            names = real.names(here)
            if "HEAD" in names and "objects" in names:
                found.append(here)
                if "modules" in names:
                    waiting.append((f"{here}/modules", depth + 1))
            elif depth < _DEEPEST_SUBMODULE:
                waiting += [(f"{here}/{name}", depth + 1) for name, one in names.items() if stat.S_ISDIR(one.st_mode)]
        return sorted(found)

    def _pair(self, prefix: str) -> tuple[GitDir, GitDir]:
        if prefix not in self._dirs:
            parts = tuple(part for part in prefix.split("/") if part)
            self._dirs[prefix] = (self._real(prefix), GitDir(self._tree_fd, best_opener(), parts))
        return self._dirs[prefix]

    def _real(self, prefix: str) -> GitDir:
        if prefix in self._dirs:
            return self._dirs[prefix][0]
        parts = (GIT_FILE, *(part for part in prefix.split("/") if part))
        return GitDir(self._zone.root.fd, self._zone.opener, parts)

    # --- when there is something to do

    def _is_quiet(self) -> bool:
        """No directory of either side changed. Git replaces files by renaming, which a directory's time tells."""
        if self._quiet is None:
            return False
        try:
            return all(os.lstat(path).st_ctime_ns == changed for path, changed in self._quiet.items())
        except OSError:
            return False

    def _folder_times(self) -> dict[str, int] | None:
        """By host path. None: one of them changed just now, and may do so again within the same tick of the clock."""
        real, shadow = self._pair("")
        now = time.time_ns()
        times: dict[str, int] = {}
        for side, place in ((real, os.path.join(self._zone.host, GIT_FILE)), (shadow, self.tree)):
            top = side.look("")
            times[place] = top.st_ctime_ns if top else 0
            for folder in ("refs", "logs", "worktrees", "modules", *exchange.WRITABLE_FOLDERS[1:]):
                times |= {f"{place}/{path}": info.st_ctime_ns for path, info in side.folders(folder)}
        return None if any(now - each < _UNSETTLED_NS for each in times.values()) else times

    # --- the folder in the cache

    def open(self) -> None:
        """Make the folder in the cache, unless it is there. Raises SandboxError, OSError."""
        if self._tree_fd >= 0:
            return
        is_new = not os.path.isdir(self._folder)
        self._tree_fd = os.open(kept_home(self._cache, *self._names, "tree"), DIRECTORY)
        if is_new:
            _remove_abandoned(os.path.dirname(self._folder))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with locked(Path(self._folder, "lock")):
                yield
        except LockTimeout:
            raise _unavailable("another Forge keeps the private copy of .git locked") from None

    def _loaded(self) -> SyncState:
        """What was noted at the last sync, of this Forge or another one on the same zone."""
        path = os.path.join(self._folder, "state.json")
        stamp = file_stamp(path)
        if self._state is not None and stamp == self._state[1]:
            return self._state[0]
        state = SyncState()
        try:
            with open(path, "rb") as file:
                said = json.load(file)
            if said["format"] == _FORMAT and said["zone"] == [self._zone.host, *self._zone.root.identity()]:
                state.files = {
                    name: tuple(tuple(stamp) if stamp else None for stamp in stamps)  # type: ignore[misc]
                    for name, stamps in said["files"].items()
                }
                state.refs, state.told = said["refs"], said["told"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            state = SyncState()
        if not state.refs:  # new, or nothing that can be trusted: begin with an empty shadow
            shadow = self._pair("")[1]
            for name in shadow.names():
                shadow.clear(name)
        self._state = (state, stamp) if stamp is not None else None
        return state

    def _save(self, state: SyncState) -> None:
        said: dict[str, Any] = {"format": _FORMAT, "zone": [self._zone.host, *self._zone.root.identity()]}
        text = json.dumps(said | _state_members(state))
        path = Path(self._folder, "state.json")
        write_private(path, text.encode("utf-8", "surrogateescape"), durable=False)
        stamp = file_stamp(path)
        self._state = (state, stamp) if stamp is not None else None


def _remove_abandoned(folder: str) -> None:
    """Shadows of zones that are gone; a few at a time, when a new one is made."""
    parent = Handle(os.open(folder, DIRECTORY))
    every = GitDir(parent.fd, best_opener(), ())
    for name in islice(every.names(), _MOST_LOOKED_AT):
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
            if not os.path.isdir(json.loads(every.read(f"{name}/state.json") or b"{}")["zone"][0]):
                every.clear(name)


def why_no_shadow(zone: Zone) -> str:
    """Why commands get a read-only `.git` here; empty: they get a shadow. Only for a `.git` that is a directory."""
    real = GitDir(zone.root.fd, zone.opener, (GIT_FILE,))
    names = real.names()
    kinds = {"HEAD": stat.S_IFREG, "config": stat.S_IFREG, "objects": stat.S_IFDIR, "refs": stat.S_IFDIR}
    for name, kind in kinds.items():
        if name in names and stat.S_IFMT(names[name].st_mode) != kind:
            return f"its {name} is a link"
    if "reftable" in names or config_value(real, "extensions.refstorage") not in ("", "files"):
        return "it keeps its refs in another format than files"
    return ""


def has_repository(zone: Zone) -> bool:
    real = GitDir(zone.root.fd, zone.opener, (GIT_FILE,))
    return real.look("HEAD") is not None and real.look("objects") is not None


def _make_mount_point(shadow: GitDir, mount: GitMount) -> None:
    """The empty file or directory that a mount needs below it."""
    found = shadow.look(mount.path)
    if found is not None and stat.S_IFMT(found.st_mode) == (stat.S_IFDIR if mount.directory else stat.S_IFREG):
        return
    shadow.clear(mount.path)
    if mount.directory:
        shadow.make_folder(mount.path)
    else:
        shadow.replace(mount.path, b"")


def _state_members(state: SyncState) -> dict[str, Any]:
    return {"files": state.files, "refs": state.refs, "told": state.told}


def _unavailable(why: str) -> SandboxError:
    return walls_unavailable(why, "Try again; or remove golem-forge/git from your cache directory.")
