"""GitShadow: the `.git` that commands see is a private copy, and only data comes back from it.

Inside walls the git directory is a directory in the user's cache with its own HEAD, index, refs, logs and objects. The
user's objects stand in it read-only, and the copy borrows from them; so do config, hooks, info and everything else.
Nothing of the user's own is writable from inside. `sync` runs before and after each command, and now and then while
one runs, and carries over what GitExchange lets through and git verifies. So a file that git obeys (`commondir`,
`config.worktree`, a hook, a link at `COMMIT_EDITMSG`) cannot be left in the user's repository by any command, not even
for a moment, and no forged object, pack or cache of git's is ever where the user's git finds it.

A repository outside of the zone has a shadow too: that of a linked worktree, and that of a zone below the root of a
work tree. It stands where the repository is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from golem_forge.core.calls import Leftover, Severity
from golem_forge.core.errors import error_name
from golem_forge.core.regex import regex
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.git import exchange, rules
from golem_forge.sandbox.git.directory import MOST_INSIDE, UNSETTLED_NS, GitDir, GitLocked, TooManyFiles
from golem_forge.sandbox.git.exchange import GitExchange
from golem_forge.sandbox.git.formats import GitSetting, read_config
from golem_forge.sandbox.git.index import IndexExchange, entries_at
from golem_forge.sandbox.git.refs import moved_refs
from golem_forge.sandbox.git.repository import Repository
from golem_forge.sandbox.git.sides import GitSides, Sync, SyncPhase, SyncState, WorkTree
from golem_forge.sandbox.git.transport import GitFailed, Transport
from golem_forge.sandbox.handles import DIRECTORY, Handle, Parts, best_opener
from golem_forge.sandbox.process.cleanup import remove_tree
from golem_forge.sandbox.process.monitor import with_mount
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls.cache import kept_home
from golem_forge.sandbox.walls.model import GitMount, ShadowPlan
from golem_forge.sandbox.zones import Zone, zone_key
from golem_forge.storage.home import FileStamp, LockTimeout, file_stamp, locked, write_private

_MOST_SUBMODULES: Final = 8
"""Each takes seven mounts; of more of them commands see a read-only git directory."""
_MOST_OTHERS: Final = 12
_DEEPEST_SUBMODULE: Final = 4
_MOST_LOOKED_AT: Final = 200
_FORMAT: Final = 2
_ALTERNATES: Final = f"../{exchange.HOST_FOLDER}/objects\n".encode()
_LARGEST_STORE: Final = 256 << 20
_MOST_STORED: Final = 5_000
_FEW_ANSWERS: Final = 20
"""Of objects that the user's repository has too; then they are taken out of the shadow."""
_LOCKED_S: Final = 120.0
"""So long another Forge may carry over a large commit, or stand still, before a command is refused."""
_DYING_S: Final = 5.0
_ASK_EVERY_S: Final = 0.01
_OFF: Final = ("false", "no", "off", "0")
_LFS: Final = "lfs/objects"
_LFS_FILE: Final = regex(r"lfs/objects/([0-9a-f]{2})/([0-9a-f]{2})/(?=\1\2)[0-9a-f]{64}")
_MOST_LFS: Final = 8 << 30
"""Bytes that are read in one exchange."""
_SKIPPED: Final = f"{exchange.HOST_FOLDER}/skipped"
_LOCKED: Final = f"{exchange.HOST_FOLDER}/locked"
"""With `_SKIPPED`: keys of `SyncState.told` that are the name of no file in a git directory."""


class GitShadow:
    def __init__(
        self, zone: Zone, repository: Repository, cache: Path, personal: Mapping[str, str] | None = None
    ) -> None:
        """`cache`: the user's cache directory; the shadow is made in it when it is first needed. `personal`: settings
        that the user has for all repositories."""
        self._personal = {name: value.casefold() for name, value in (personal or {}).items()}
        self._zone = zone
        self.repository = repository
        self._cache = cache
        self._names = ("golem-forge", "git", zone_key(zone.host))
        self._folder = os.path.join(os.path.realpath(cache), *self._names)
        self.tree = os.path.join(self._folder, "tree")
        """The host directory that stands at `.git` inside walls."""
        self._outside = None if repository.in_zone else Handle(os.open(repository.git_dir, DIRECTORY))
        self._folder_fd: Handle | None = None
        self._sides: dict[str, GitSides] = {}
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
        self._gitlinks: set[Parts] = set()
        self._skipped: frozenset[Parts] = frozenset()
        self._busy = threading.RLock()
        """Commands that run side by side have one shadow; git works for each of them in a thread."""

    def plan(self, *, writable: bool = True) -> ShadowPlan:
        """As things are now. Looks, and changes nothing."""
        outside = "" if self.repository.in_zone else self.repository.git_dir
        return ShadowPlan(self.tree, self._mounted(), outside, writable)

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
            settled = time.time_ns() - changed > UNSETTLED_NS
            self._mounts = (changed if settled else -1, tuple(found))
        return self._mounts[1]

    def is_ready(self) -> bool:
        """Whether `prepare` has nothing to do: neither side changed. About a dozen calls of `lstat`."""
        return self._stands and self._is_quiet()

    def begin(self) -> None:
        """A command starts, which `sync(SyncPhase.ENDED)` ends; the shadow was prepared for it."""
        self._commands += 1

    def prepare(self, *, repair: bool = False) -> None:
        """The shadow holds what the user's git directory holds now. `repair`: an earlier command was killed, and none
        runs. Raises WALLS_UNAVAILABLE."""
        with self._busy:
            self._stands = False
            if repair:
                self.open()
                self._wait_until_unused()
                self.repair()
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
                except (OSError, ValueError, GitLocked, GitFailed) as error:
                    raise _unavailable(f"the private copy of .git could not be written ({error_name(error)})") from None

    def _wait_until_unused(self) -> None:
        """Of a Forge that was killed: the kernel ends its command, but not at once, and git may make a lock until then.
        Processes in walls have the shadow in their mount table."""
        deadline = time.monotonic() + _DYING_S
        while with_mount(f"{self._names[-1]}/tree") and time.monotonic() < deadline:
            time.sleep(_ASK_EVERY_S)

    def _prepare(self) -> None:
        self.open()
        self._side("").shadow.make_accessible()
        self.sync(SyncPhase.BETWEEN, begins=self._commands == 0)
        shadow = self._side("").shadow
        for prefix in self._prefixes():
            shadow.make_folder(f"{prefix}refs/heads")
            store = self._side(prefix).store
            for folder in ("info", "pack"):
                store.make_folder(folder)
            if store.read("info/alternates") != _ALTERNATES:
                store.replace("info/alternates", _ALTERNATES)
        if self.repository.below:
            self._write_info()
        for mount in self._mounted():
            if not mount.path.endswith("objects/info"):
                _make_mount_point(shadow, mount)
        self._stands = True

    def _write_info(self) -> None:
        """Of a zone below the root of a work tree: the user's own, and that commands have only this part."""
        kept_home(self._cache, *self._names, "info")
        assert self._folder_fd is not None
        info = GitDir(self._folder_fd.fd, best_opener(), ("info",))
        pattern = "".join(f"\\{char}" if char in "\\*?[" else char for char in "/".join(self.repository.below))
        files = {name: self._real("").read(f"info/{name}") for name in ("exclude", "attributes")}
        files["sparse-checkout"] = f"/{pattern}/\n".encode("utf-8", "surrogateescape")
        for name, content in files.items():
            if content is not None and info.read(name) != content:
                info.replace(name, content)

    def _begin_afresh(self) -> None:
        """Threat: what a command leaves in the shadow (files where directories belong, a hundred thousand of them)
        makes every later start fail. The shadow is put aside, and a new one begins with what the user has."""
        self.close()
        with self._locked():
            aside = os.path.join(self._folder, "aside")
            remove_tree(aside)
            if os.path.lexists(aside):
                aside = f"{aside}-{os.urandom(4).hex()}"
            os.mkdir(aside, 0o700)
            for name in ("tree", "stores"):
                os.rename(os.path.join(self._folder, name), os.path.join(aside, name))
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
        with self._busy:
            if when is SyncPhase.ENDED:
                self._commands = max(0, self._commands - 1)
            if self._folder_fd is None:
                return
            try:
                if not self._is_quiet():
                    with self._locked():
                        self._exchange(when, begins)
            finally:  # whatever a command did to make the exchange fail, what it hid is told
                for prefix in self._prefixes() if when is SyncPhase.ENDED and changed else ():
                    sync = Sync(self._side(prefix), SyncState(), when)
                    IndexExchange(sync).look_at(changed)
                    self._pending += sync.leftovers

    def carry(self) -> None:
        """Carry over now what a running command did, or one that ended while git was busy. Nothing where no command ran
        yet. What cannot be carried over now is left to the next command, which tells of it."""
        if not os.path.exists(os.path.join(self._folder, "state.json")) or self.is_ready():
            return
        with contextlib.suppress(Exception):  # a hostile shadow
            self.sync(SyncPhase.RUNNING)

    def skip(self, paths: Collection[Parts]) -> None:
        """Paths of the zone that the next command cannot read: inside, git takes the tracked ones as unchanged. Call it
        after `begin`; it waits while git is at work, of this Forge or another. Raises WALLS_UNAVAILABLE."""
        with self._busy:
            began, quiet = time.time_ns(), self._is_quiet()
            with self._locked():
                self._skipped = frozenset(paths)
                state = self._loaded()
                for prefix in self._prefixes():
                    IndexExchange(Sync(self._side(prefix), state, SyncPhase.BETWEEN, self._skipped)).skip_again()
                state.told[_SKIPPED] = sorted("/".join(parts) for parts in paths)
                self._save(state)
            self._quiet = self._folder_times(began) if quiet else None

    def skips(self, paths: Collection[Parts]) -> bool:
        """Whether that was said already."""
        said = self._state[0].told.get(_SKIPPED, []) if self._state is not None else []
        return bool(said == sorted("/".join(parts) for parts in paths))

    def repair(self) -> None:
        """What commands left that were killed: locks, halves of objects. Call it while no command runs."""
        with self._busy:
            if self._folder_fd is None:
                return
            shadow = self._side("").shadow
            for folder in ("", *[path for top in exchange.EXCHANGED_NAMES for path, _ in shadow.folders(top)]):
                for name in shadow.names(folder):
                    if name.endswith((".lock", ".tmp")):
                        shadow.clear(f"{folder}/{name}" if folder else name)
            for side in self._sides.values():
                found = list(side.store.objects())
                side.crowded = len(found) > _MOST_STORED or sum(info.st_size for _, info in found) > _LARGEST_STORE
                for path, _ in found:
                    if path.rpartition("/")[2].startswith("tmp_") or path.endswith(".lock"):
                        side.store.clear(path)

    def leftovers(self) -> tuple[Leftover, ...]:
        """What there is to tell since the last time somebody asked."""
        with self._busy:
            for prefix, moved in self._moved.items():
                if moved := {name: (old, new) for name, (old, new) in moved.items() if old != new}:
                    self._pending.append(moved_refs(self._side(prefix), moved))
            told, self._pending, self._moved = tuple(self._pending), [], {}
            return told

    def new_gitlinks(self) -> tuple[Parts, ...]:
        """Directories that commands added to an index as repositories of their own, since somebody last asked."""
        found, self._gitlinks = tuple(self._gitlinks), set()
        return found

    def tracks(self) -> Callable[[Parts], bool]:
        """Whether git tracks a path of the zone. The index is read at the first question; the first answers are looked
        for in it, for a table of 50,000 paths takes 30 ms to make."""
        side = self._side("")
        index = f"{self.repository.own}index"
        tree = WorkTree(below=self.repository.below)
        answers = 0
        listing = b""
        paths: set[bytes] = set()

        def is_tracked(parts: Parts) -> bool:
            nonlocal answers, listing, paths
            if not answers:
                with contextlib.suppress(GitFailed):
                    listing = side.listed(index)
            answers += 1
            path = tree.of_zone(parts)
            if answers < _FEW_ANSWERS:
                return path is not None and any(entries_at(listing, (path,)))
            paths = paths or {line[line.find(b"\t") + 1 :] for line in listing.split(b"\0")}
            return path in paths

        return is_tracked

    def mend_clones(self, changed: Collection[Parts]) -> None:
        """`git clone .` inside makes a repository that borrows objects by a path that is only there. It gets the path
        of the user's own store, which holds on both sides."""
        places = {self.repository.git_dir, f"{self._zone.virtual(())}/{GIT_FILE}"}
        for parts in changed:
            if parts[-3:] != ("objects", "info", "alternates") or parts[0] == GIT_FILE:
                continue
            info = GitDir(self._zone.root.fd, self._zone.opener, parts[:-1])
            lines = (info.read(parts[-1]) or b"").decode("utf-8", "surrogateescape").splitlines()
            mended = [self._mended(line, places) for line in lines]
            if mended != lines:
                info.replace(parts[-1], "\n".join((*mended, "")).encode("utf-8", "surrogateescape"))

    def _mended(self, line: str, places: Collection[str]) -> str:
        end = f"/{exchange.HOST_FOLDER}/objects"
        place = next((one for one in places if line.startswith(f"{one}/") and line.endswith(end)), None)
        return line if place is None else f"{self.repository.git_dir}{line[len(place) : -len(end)]}/objects"

    def close(self) -> None:
        self._sides.clear()
        self._folder_fd = None

    def _exchange(self, when: SyncPhase, begins: bool) -> None:
        began = time.time_ns()
        state = self._loaded()
        before = json.dumps(_state_members(state))
        shadow = self._side("").shadow
        locked: list[str] = []
        postponed = False
        for prefix in self._prefixes():
            shadow.make_folder(f"{prefix}refs")
            side = self._side(prefix)
            if when is SyncPhase.BETWEEN:
                side.real.remove_stale()
            side.trees = self._work_trees(prefix)
            one = Sync(side, state, when, self._skipped)
            mounts = (mount.path for mount in self._mounted())
            standing = {path.removeprefix(prefix) for path in mounts if path.startswith(prefix)}
            try:
                GitExchange(one).run(standing)
            finally:
                side.transport.end()
            if when is not SyncPhase.RUNNING:
                self._pending += _carry_lfs(side, state)
            self._pending += one.leftovers
            self._gitlinks |= one.gitlinks
            locked += one.locked_paths
            postponed = postponed or one.postponed
            moved = self._moved.setdefault(prefix, {})
            for name, (old, new) in one.moved.items():
                moved[name] = (moved.get(name, (old, new))[0], new)
            settled = not (one.locked_paths or one.postponed)
            if begins and side.crowded and settled and not _has_own_refs(side, state):
                # What it holds, the user's repository has too, but for what nothing names.
                for name in side.store.names().keys() - {"info"}:
                    side.store.clear(name)
                side.crowded = False
        if locked and not state.told.get(_LOCKED):
            text = f"Another git holds the lock of {', '.join(locked[:5])}: it is carried over with the next command."
            self._pending.append(Leftover(kind="git_files", severity=Severity.WARNING, text=text))
        state.told[_LOCKED] = bool(locked)
        if json.dumps(_state_members(state)) != before:
            self._save(state)
        self._quiet = None if locked or postponed else self._folder_times(began)

    def _mounts_of(self, prefix: str) -> Iterator[GitMount]:
        there = self._real(prefix).names()
        free = exchange.free_names(self._zone, prefix)
        store = self._store_path(prefix)
        yield GitMount(f"{prefix}objects", host=store, directory=True, writable=True)
        yield GitMount(f"{prefix}objects/info", host=f"{store}/info", directory=True)
        for name in ("objects", "lfs"):
            if name in there and stat.S_ISDIR(there[name].st_mode):
                yield GitMount(f"{prefix}{exchange.HOST_FOLDER}/{name}", real=f"{prefix}{name}", directory=True)
        if self.repository.below:
            yield GitMount("info", host=os.path.join(self._folder, "info"), directory=True)
        for name, directory in (("config", False), ("hooks", True), ("info", True)):
            if name == "info" and self.repository.below:
                continue
            found = there.get(name)
            if found is not None and (stat.S_ISDIR(found.st_mode) if directory else stat.S_ISREG(found.st_mode)):
                path = f"{prefix}{name}"
                if directory or name not in free:
                    yield GitMount(path, real=path, directory=directory, writable=name in free)
            elif name not in free:
                yield GitMount(f"{prefix}{name}", directory=directory, missing=True)
        others = 0
        for name, found in sorted(there.items()):
            ours = exchange.is_ordinary_name(name) and not (name == "modules" and not self.repository.in_zone)
            if ours or name in ("config", "hooks", "info") or name in free:
                continue
            if (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)) and others < _MOST_OTHERS:
                others += 1
                yield GitMount(f"{prefix}{name}", real=f"{prefix}{name}", directory=stat.S_ISDIR(found.st_mode))
        if not prefix:
            for path in self._submodules()[_MOST_SUBMODULES:]:
                yield GitMount(path, real=path, directory=True)

    def _prefixes(self) -> tuple[str, ...]:
        """The git directories that have a shadow: the repository's own and those of its first submodules."""
        return ("", *(f"{path}/" for path in self._submodules()[:_MOST_SUBMODULES]))

    def _submodules(self) -> list[str]:
        real = self._real("")
        found: list[str] = []
        waiting = [("modules", 0)] if self.repository.in_zone else []
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

    def _work_trees(self, prefix: str) -> dict[str, WorkTree]:
        """Of each index whose work tree and zone lie in each other."""
        side, git_dir = self._sides[prefix], os.path.join(self.repository.git_dir, prefix)
        if prefix:
            value = next((one.value for one in _settings(side.real) if one.name == "core.worktree"), None)
            parts = self._in_zone(os.path.join(git_dir, value)) if value else None
            return {} if parts is None else {"index": WorkTree(lead=parts)}
        found = {f"{self.repository.own}index": WorkTree(below=self.repository.below)}
        for name in {*side.real.names("worktrees"), *side.shadow.names("worktrees")}:
            path = f"worktrees/{name}/gitdir"
            said = side.real.read(path) or side.shadow.read(path)
            place = os.path.join(git_dir, "worktrees", name, os.fsdecode(said or b"").strip())
            parts = self._in_zone(os.path.dirname(place))
            here = bool(parts) and rules.passes_no_link(self._zone, parts or ())
            if said is not None and parts and here and f"worktrees/{name}/" != self.repository.own:
                found[f"worktrees/{name}/index"] = WorkTree(lead=parts)
        return found

    def _in_zone(self, path: str) -> Parts | None:
        return self._zone.inside([part for part in os.path.normpath(path).split("/") if part])

    def _side(self, prefix: str) -> GitSides:
        if prefix not in self._sides:
            if self._folder_fd is None:
                self.open()
            assert self._folder_fd is not None
            folder = self._folder_fd.fd
            parts = tuple(part for part in prefix.split("/") if part)
            real = self._real(prefix)
            settings = _settings(real)
            said = {**self._personal, **{one.name: (one.value or "true").casefold() for one in settings}}
            store = self._store_path(prefix)
            kept_home(self._cache, *self._names, *os.path.relpath(store, self._folder).split("/"))
            kept_home(self._cache, *self._names, "base", os.path.basename(store))
            git_dir = os.path.join(self.repository.git_dir, prefix)
            opener = best_opener()
            self._sides[prefix] = GitSides(
                zone=self._zone,
                prefix=prefix,
                real=real,
                shadow=GitDir(folder, opener, ("tree", *parts), most=MOST_INSIDE),
                store=GitDir(folder, opener, ("stores", os.path.basename(store))),
                base=GitDir(folder, opener, ("base", os.path.basename(store))),
                transport=Transport(git_dir, store, self._folder, settings),
                own=self.repository.own if not prefix else "",
                sparse=said.get("core.sparsecheckout", "false") not in _OFF,
                weak_times=said.get("core.trustctime") in _OFF or said.get("core.checkstat") == "minimal",
            )
            self._sides[prefix].trees = self._work_trees(prefix)
        return self._sides[prefix]

    def _store_path(self, prefix: str) -> str:
        """Not in the tree: a command could put a link in its place."""
        name = hashlib.sha256(prefix.encode()).hexdigest()[:24] if prefix else "root"
        return os.path.join(self._folder, "stores", name)

    def _real(self, prefix: str) -> GitDir:
        if prefix in self._sides:
            return self._sides[prefix].real
        parts = tuple(part for part in prefix.split("/") if part)
        if self._outside is not None:
            return GitDir(self._outside.fd, best_opener(), parts)
        return GitDir(self._zone.root.fd, self._zone.opener, (GIT_FILE, *parts))

    # --- when there is something to do

    def _is_quiet(self) -> bool:
        """No directory of either side changed. Git replaces files by renaming, which a directory's time tells."""
        if self._quiet is None:
            return False
        try:
            return all(os.lstat(path).st_ctime_ns == changed for path, changed in self._quiet.items())
        except OSError:
            return False

    def _folder_times(self, since: int) -> dict[str, int] | None:
        """By host path. None: one of them changed after `since`, when somebody began to compare both sides, or within
        the same tick of the clock. Threat: what a command commits meanwhile counts as carried over, and never is."""
        both = self._side("")
        times: dict[str, int] = {}
        for side, place in ((both.real, self.repository.git_dir), (both.shadow, self.tree)):
            top = side.look("")
            times[place] = top.st_ctime_ns if top else 0
            for folder in ("refs", "logs", "worktrees", "modules", *exchange.WRITABLE_FOLDERS[1:]):
                times |= {f"{place}/{path}": info.st_ctime_ns for path, info in side.folders(folder)}
        return None if any(since - each < UNSETTLED_NS for each in times.values()) else times

    # --- the folder in the cache

    def open(self) -> None:
        """Make the folder in the cache, unless it is there. Raises SandboxError, OSError."""
        if self._folder_fd is not None:
            return
        is_new = not os.path.isdir(self._folder)
        for name in ("tree", "stores", "base"):
            kept_home(self._cache, *self._names, name)
        self._folder_fd = Handle(os.open(self._folder, DIRECTORY))
        if is_new:
            _remove_abandoned(os.path.dirname(self._folder))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with locked(Path(self._folder, "lock"), seconds=_LOCKED_S):
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
            if said["format"] == _FORMAT and said["zone"] == self._identity():
                state.files = {
                    name: tuple(tuple(stamp) if stamp else None for stamp in stamps)  # type: ignore[misc]
                    for name, stamps in said["files"].items()
                }
                state.refs, state.told = said["refs"], said["told"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            state = SyncState()
        if not state.refs:  # new, or nothing that can be trusted: begin with an empty shadow
            for side in (self._side("").shadow, *(self._side(prefix).store for prefix in self._prefixes())):
                for name in side.names():
                    side.clear(name)
        self._state = (state, stamp) if stamp is not None else None
        return state

    def _save(self, state: SyncState) -> None:
        said: dict[str, Any] = {"format": _FORMAT, "zone": self._identity()}
        text = json.dumps(said | _state_members(state))
        path = Path(self._folder, "state.json")
        write_private(path, text.encode("utf-8", "surrogateescape"), durable=False)
        stamp = file_stamp(path)
        self._state = (state, stamp) if stamp is not None else None

    def _identity(self) -> list[Any]:
        return [self._zone.host, *self._zone.root.identity(), self.repository.git_dir]


def _remove_abandoned(folder: str) -> None:
    """Shadows of zones that are gone; a few at a time, when a new one is made."""
    parent = Handle(os.open(folder, DIRECTORY))
    every = GitDir(parent.fd, best_opener(), ())
    for name in islice(every.names(), _MOST_LOOKED_AT):
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
            if not os.path.isdir(json.loads(every.read(f"{name}/state.json") or b"{}")["zone"][0]):
                every.clear(name)


def why_no_shadow(repository: Repository) -> str:
    """Why commands get a read-only git directory here; empty: they get a shadow."""
    try:
        folder = Handle(os.open(repository.git_dir, DIRECTORY))
    except OSError:
        return "it cannot be opened"
    real = GitDir(folder.fd, best_opener(), ())
    names = real.names()
    kinds = {"HEAD": stat.S_IFREG, "config": stat.S_IFREG, "objects": stat.S_IFDIR, "refs": stat.S_IFDIR}
    for name, kind in kinds.items():
        if name in names and stat.S_IFMT(names[name].st_mode) != kind:
            return f"its {name} is a link"
    storage = next((one.value or "" for one in _settings(real) if one.name == "extensions.refstorage"), "files")
    if "reftable" in names or storage.casefold() != "files":
        return "it keeps its refs in another format than files"
    return ""


def _has_own_refs(side: GitSides, state: SyncState) -> bool:
    """Whether refs stay in the shadow that the user does not have."""
    refs = side.shadow.refs()
    return bool(side.shadow.too_deep) or not refs.items() <= state.refs[side.prefix].items()


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


def _settings(git: GitDir) -> list[GitSetting]:
    found: list[GitSetting] = []
    for name in ("config", "config.worktree"):
        with contextlib.suppress(ValueError):
            found += read_config((git.read(name) or b"").decode("utf-8", "surrogateescape"))
    return found


def _carry_lfs(side: GitSides, state: SyncState) -> Iterator[Leftover]:
    """Files of git-lfs are called after their SHA-256, which is computed on the way."""
    left = _MOST_LFS
    for path, info in side.shadow.files(_LFS):
        known = state.told.get(f"{side.prefix}{path}") == info.st_ctime_ns
        if known or not stat.S_ISREG(info.st_mode) or not _LFS_FILE.fullmatch(path) or side.real.look(path) is not None:
            continue
        left -= info.st_size
        if left < 0:
            return
        if not side.shadow.copy_verified(path, side.real, path.rpartition("/")[2]):
            state.told[f"{side.prefix}{path}"] = info.st_ctime_ns
            text = f"{side.shown(path)} of the command has another content than its name says; it stays inside."
            yield Leftover(kind="git_objects", severity=Severity.CRITICAL, text=text)
