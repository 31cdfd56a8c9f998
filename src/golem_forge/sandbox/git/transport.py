"""Transport: git itself carries objects from a private copy (the shadow) to the user's repository, and judges them.

A push that Forge writes: `git pack-objects` reads the shadow's store inside read-only walls, over a skeleton
repository of Forge's own; its pack goes into the host's `git receive-pack`, which keeps it apart until every object is
checked and everything the new refs need is there. Which refs change, from what to what, Forge says. Index files are
listed and edited by git too, as copies.

Threat: the shadow's store is a directory that hostile commands write. A link in it leads nowhere else inside the walls,
a FIFO waits until the deadline, a forged index or pack of objects yields objects of other names, which nobody asked
for. Settings of the user's repository that would start a program are switched off by `-c`, which its includes cannot
undo.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import signal
import stat
import subprocess
import threading
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import IO, Final, NamedTuple

from golem_forge.core.regex import regex
from golem_forge.sandbox.git.directory import GitDir, is_object_id, own_name
from golem_forge.sandbox.git.formats import GitSetting, git_words
from golem_forge.sandbox.host import find_program, is_below
from golem_forge.sandbox.walls import layout
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.seccomp import Network, filter_program

_GIT_DIR: Final = "/git"
_SHADOW: Final = "/objects/shadow"
_REAL: Final = "/objects/real"
_ENVIRONMENT: Final = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_COMMITTER_NAME": "Golem Forge",
    "GIT_COMMITTER_EMAIL": "forge@localhost",
}
_QUIET: Final = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.alternateRefsCommand=", "core.pager=cat"),
    *("gc.auto=0", "maintenance.auto=false", "core.bigFileThreshold=16m", "core.packedGitWindowSize=64m"),
    *("core.splitIndex=false", "index.threads=1", "pack.threads=1", "advice.graftFileDeprecated=false"),
)
_PACKING: Final = (
    *("core.commitGraph=false", "core.multiPackIndex=false", "pack.useBitmaps=false", "pack.window=0"),
    *("pack.compression=1", "core.bigFileThreshold=16m", "pack.threads=1", "gc.auto=0", "core.splitIndex=false"),
)
"""No cache of the shadow's is believed. Deltas are not looked for: git stores what a commit brings without them too."""
_RECEIVING: Final = (
    *("receive.fsckObjects=true", "receive.unpackLimit=100", "receive.maxInputSize=16g", "receive.autogc=false"),
    *("receive.updateServerInfo=false", "receive.denyCurrentBranch=ignore", "receive.denyDeleteCurrent=ignore"),
    *("receive.denyDeletes=false", "receive.denyNonFastForwards=false", "receive.advertisePushOptions=false"),
)
_MEMORY: Final = 2 << 30
"""Of git's own: not on what it maps, for a user's packs may be large. A child in walls is another process than the one
that is started here: it sets the limit itself."""
_LIMIT: Final = f"ulimit -d {_MEMORY >> 10}"
_LARGE_INDEX: Final = 1 << 20
_EDIT: Final = ("update-index", "-z", "--index-info")
_LIST: Final = ("ls-files", "-v", "--stage", "-z")
_LIST_AND_PACK: Final = (
    f"{_LIMIT};"
    """ if "$0" "$@" {listing} </dev/null 2>/dev/null; then printf '\\0.\\0'; else printf '\\0!\\0'; fi >&2 &"""
    """ read go && "$0" "$@" {packing} 2>/dev/null; status=$?; wait; exit $status"""
)
_DONE: Final = b"\0.\0"
_FAILED: Final = b"\0!\0"
"""No line of a listing begins so."""
_LARGEST_LISTING: Final = 256 << 20
_WITHIN_S: Final = 60.0
_BYTES_PER_S: Final = 4 << 20
_BLOCK: Final = 512
_MOST_S: Final = 1800.0
"""All processes of one exchange together."""
_MOST_ERRORS: Final = 64 << 10
_MOST_SKIPPED: Final = 100
_FIRST_PARENT: Final = regex(rb"commit \d+\0tree [0-9a-f]+\nparent ([0-9a-f]+)\n")
_FSCK: Final = regex(rb"object ([0-9a-f]{40,64}): (\w+): ")
_KINDS: Final = ("blob", "commit", "tag", "tree")
_SHALLOW: Final = "shallow"
_INDEX: Final = "index"


class GitFailed(Exception):
    """Git refused, could not be started, or took too long. The text is git's own, on one line."""

    stated_name = "GitFailed"


class RefUpdate(NamedTuple):
    name: str
    old: str | None
    """None: there is none."""
    new: str | None
    """None: it is to go."""


class FoundObject(NamedTuple):
    object_id: str
    kind: str
    """`blob`, `commit`, `tag` or `tree`."""


class Transport:
    """Of one git directory: the user's, the shadow's store of objects, and a folder for files of our own."""

    def __init__(self, git_dir: str, store: str, folder: str, settings: Sequence[GitSetting]) -> None:
        """`git_dir`: on the host; `settings`: of the user's repository."""
        self.git_dir = git_dir.rstrip("/")
        self._store = store
        self._folder = folder
        self._skeleton = os.path.join(folder, "skeleton")
        said = {one.name: (one.value or "") for one in settings}
        self._sha256 = said.get("extensions.objectformat", "").casefold() == "sha256"
        self._partial = "extensions.partialclone" in said or any(name.endswith(".promisor") for name in said)
        self.null_id = "0" * (64 if self._sha256 else 40)
        self.empty_blob = _hash(self._sha256, b"blob 0\0").hex()
        self._git = ""
        self._index = b""
        self._inside: _Inside | None = None
        """That waits for what to pack."""
        self._listing: _Inside | None = None
        """The same, or one that packs or has packed."""
        self._begun: _Edit | None = None
        self._kept = contextlib.ExitStack()
        """Until the end of the exchange."""
        self._written: dict[str, bytes | None] = {}
        """Of the skeleton, but for an index."""
        self._writing = threading.Lock()
        self.parents: dict[str, str] = {}
        """First parents of commits that were carried over, as git said."""
        self.deadline: float | None = None
        """Of all processes of one exchange together, by `time.monotonic`. What is large may take long; what hangs
        ends."""

    # --- the push

    def push(self, updates: Sequence[RefUpdate], wanted: Sequence[str], known: Sequence[str]) -> dict[str, str]:
        """Set refs of the user's, and bring along `wanted` objects with all they need. `known`: ids that the user has,
        with all they need. Gives for each ref why it was not set; empty: it was. Raises GitFailed where nothing was
        taken over: the pack could not be made, or is not sound."""
        skipped: set[str] = set()
        while True:
            try:
                return self._pushed(updates, wanted, known, skipped)
            except _Unsound as unsound:
                # What the user has already may offend: an old bad `.gitmodules` would stop every later commit.
                more = self.found(unsound.objects - skipped).keys()
                if not more or len(skipped) > _MOST_SKIPPED:
                    raise GitFailed(unsound.words) from None
                skipped |= more

    def _pushed(
        self, updates: Sequence[RefUpdate], wanted: Sequence[str], known: Iterable[str], skipped: Collection[str]
    ) -> dict[str, str]:
        settings = list(_RECEIVING)
        commands = [f"{one.old or self.null_id} {one.new or self.null_id} {one.name}" for one in updates]
        capabilities = " report-status delete-refs quiet agent=forge"
        capabilities += " object-format=sha256" if self._sha256 else ""
        with contextlib.ExitStack() as stack:
            if skipped:
                listed = stack.enter_context(self._own_file("".join(f"{one}\n" for one in skipped).encode()))
                settings.append(f"receive.fsck.skipList={listed}")
            # In memory: it never waits to be heard, so the pack is made while it starts.
            errors, said_back = (stack.enter_context(_file_in_memory()) for _ in range(2))
            inside, self._inside = (self._inside, None) if wanted else (None, self._inside)  # it makes one pack
            source, given = inside.pack if inside is not None else _pipe()
            with source:
                receiving = self._start(
                    self._host_git("receive-pack", self.git_dir, settings=settings, within=False),
                    stdin=source,
                    stdout=said_back,
                    stderr=errors,
                )
            stack.callback(_end, receiving)
            stack.callback(_close, given)
            if inside is not None:
                stack.callback(_close, inside.orders[1])
            timer = stack.enter_context(_deadline(receiving, self._seconds()))
            commands[0] += f"\0{capabilities}"
            with contextlib.suppress(OSError):  # it ended, and says why
                for text in (command.encode("utf-8", "surrogateescape") for command in commands):
                    given.write(b"%04x" % (len(text) + 4) + text)
                given.write(b"0000")
                if any(one.new is not None for one in updates):
                    self._send_pack(wanted, known, given, inside)
                given.close()
            receiving.wait()
            report = _report(said_back)
            errors.seek(0)
            said = errors.read(_MOST_ERRORS)
        if timer.fired:
            raise GitFailed("it took too long")
        if report[:1] != [b"unpack ok"]:
            raise _Unsound(
                git_words(said) or "the pack could not be read", {one[1].decode() for one in _FSCK.finditer(said)}
            )
        results: dict[str, str] = {one.name: "it was not reported" for one in updates}
        for line in report[1:]:
            state, _, rest = line.decode("utf-8", "surrogateescape").partition(" ")
            name, _, why = rest.partition(" ")
            results[name] = "" if state == "ok" else (why or "refused")
        return results

    def update_refs(self, updates: Sequence[RefUpdate]) -> None:
        """Set refs of the user's to what the user has: nothing is brought along. All of them, or none. Raises
        GitFailed."""
        lines = (
            f"delete {one.name}\0{one.old or ''}\0"
            if one.new is None
            else f"update {one.name}\0{one.new}\0{one.old or self.null_id}\0"
            for one in updates
        )
        self._on_host("update-ref", "-m", "push", "--stdin", "-z", given="".join(lines).encode())

    def _send_pack(self, wanted: Sequence[str], known: Iterable[str], out: IO[bytes], inside: _Inside | None) -> None:
        """Raises GitFailed, and then `out` has got half a pack, which nobody takes."""
        out.flush()
        if not wanted:
            header = b"PACK\0\0\0\2\0\0\0\0"
            out.write(header + _hash(self._sha256, header))
            return
        revisions = "\n".join((*wanted, *(f"^{one}" for one in known), "")).encode()
        if inside is not None:
            inside.send(revisions, self._seconds())
        else:
            self._in_walls(self._packing_words(), given=revisions, out=out)

    def _packing_words(self) -> list[str]:
        return ["pack-objects", "--revs", "--stdout", "-q", *(["--exclude-promisor-objects"] if self._partial else [])]

    # --- questions about objects

    def connected(self, ids: Collection[str]) -> bool:
        """Whether the user's repository holds these objects and all that they need."""
        if not ids:
            return True
        given = "\n".join((*ids, "")).encode()
        try:
            self._on_host("rev-list", "--objects", "--stdin", "--not", "--all", "--quiet", given=given)
        except GitFailed:
            return False
        return True

    def found(self, names: Collection[str]) -> dict[str, FoundObject]:
        """What names mean in the user's repository: ids, or `<id>~1` for a parent. It lacks what is not in it."""
        found = {name: one for name in names if (one := self._found_loose(name)) is not None}
        others = [name for name in names if name not in found]
        if not others:
            return found
        given = "\n".join((*others, "")).encode()
        said = self._on_host("cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer", given=given)
        lines = (line.rpartition(" ") for line in said.decode("utf-8", "replace").splitlines())
        found |= {name: FoundObject(one, kind) for name, (one, _, kind) in zip(others, lines, strict=True)}
        return {name: one for name, one in found.items() if one.kind in _KINDS}

    def _found_loose(self, name: str) -> FoundObject | None:
        """The beginning of an object that just arrived says it without a process of git. The user's store is not
        writable from inside. None: ask git. Threat: the name comes from a listing made inside, and may be a path."""
        one, parent, _ = name.partition("~1")
        if not is_object_id(one):
            return None
        try:
            with open(os.path.join(self.git_dir, "objects", one[:2], one[2:]), "rb") as file:
                begins = zlib.decompressobj().decompress(file.read(_BLOCK), _BLOCK)
        except (OSError, zlib.error):
            return None
        if parent:
            first = _FIRST_PARENT.match(begins)
            return FoundObject(first[1].decode(), "commit") if first is not None else None
        return next((FoundObject(one, kind) for kind in _KINDS if begins.startswith(f"{kind} ".encode())), None)

    def is_ancestor(self, old: str, new: str) -> bool:
        """In the user's repository. False also where nobody can tell."""
        step = new
        while step != old and step in self.parents:
            step = self.parents[step]
        if step == old:
            return True
        try:
            self._on_host("merge-base", "--is-ancestor", old, new)
        except GitFailed:
            return False
        return True

    def holds(self, one: str) -> bool:
        """Whether the shadow has an object and all that it needs."""
        try:
            self._in_walls(["rev-list", "--objects", "--quiet", one], given=b"")
        except GitFailed:
            return False
        return True

    # --- index files

    def entries(self, index: bytes | None, paths: Collection[bytes] = ()) -> bytes:
        """What git lists of an index of the user's own: `<flag> <mode> <id> <stage>\\t<path>`, each ended by a NUL.
        `paths`: those of some are enough. Raises GitFailed."""
        if index is None:
            return b""
        with self._own_file(index) as path:
            return self._on_host(*_LIST, "--", *_path_words(paths), index=path)

    def entries_inside(self, index: bytes | None, parts: Mapping[str, bytes]) -> bytes:
        """The same of one that a command wrote, read inside walls. `parts`: the other files of a split index, by name.
        Raises GitFailed."""
        if index is None:
            return b""
        self._index = index
        listing = self._listing.listed(self._seconds()) if self._listing and self._listing.index is index else None
        if listing is not None:
            return listing
        self._write_skeleton(parts)
        return self._in_walls(_LIST, given=b"", index=index)

    def begin(self, index: bytes, parts: Mapping[str, bytes]) -> None:
        """Have git list an index that a command wrote, for `entries_inside`; the same walls serve the next pack. `end`
        ends it. Raises GitFailed, OSError."""
        self._write_skeleton(parts)
        with contextlib.ExitStack() as stack:
            argv, handed = self._walls(stack, index)
            inside = _Inside(index, _pipe(), _pipe(), _pipe())
            script = _LIST_AND_PACK.format(listing=" ".join(_LIST), packing=" ".join(self._packing_words()))
            try:
                inside.process = self._start(
                    [*argv, "/bin/sh", "-c", script, *self._git_inside()],
                    stdin=inside.orders[0],
                    stdout=inside.pack[1],
                    stderr=inside.heard[1],
                    descriptors=handed,
                )
            except GitFailed:
                inside.close()
                raise
            inside.orders[0].close()
            inside.heard[1].close()
        self._inside = self._listing = inside

    def end(self) -> None:
        """Nothing more is listed or packed in this exchange."""
        self.deadline = None
        listing, self._listing, self._inside = self._listing, None, None
        if listing is not None:
            listing.close()
        self._begun = None
        self._kept.close()

    def intended(self, paths: Iterable[bytes]) -> set[bytes]:
        """Which of these `git add -N` made, in the index that `entries_inside` was last asked about."""
        wanted = {*paths}
        words = ["ls-files", "--debug", "-z", "--", *_path_words(wanted)]
        said = self._in_walls(words, given=b"", index=self._index)
        return {name for name, facts in _INTENDED.findall(said) if int(facts, 16) & _INTENT_TO_ADD} & wanted

    def with_entries(self, index: bytes | None, lines: bytes, skipped: Iterable[bytes] = ()) -> bytes:
        """An index with other entries: lines as `update-index --index-info` takes them, ended by NULs. Equal ones keep
        their times and flags. `skipped`: paths that git is to take as unchanged without a look. Raises GitFailed."""
        with self._own_file(index) as path, self._edit(path, lines, skipped) as file:
            return file.read()

    def edited(self, path: str, index: bytes | None, lines: bytes, skipped: Iterable[bytes]) -> tuple[IO[bytes], str]:
        """The same for an index of the user's, by its path in the git directory. Gives the content, and the name of a
        file beside it which has it; `end` closes and removes them. Empty: there is none, because the user does not have
        the directory yet, as of a new worktree."""
        begun, self._begun = self._begun, None
        if begun is not None and begun.content is index and lines:
            with contextlib.suppress(OSError):  # it ended, and says why
                begun.lines.write(lines)
            _close(begun.lines)
            begun.done.result()
            return self._kept.enter_context(self._edit(begun.path, b"", skipped)), os.path.basename(begun.path)
        is_there = os.path.isdir(os.path.dirname(os.path.join(self.git_dir, path)))
        own = self._copy_beside(path, index) if is_there else self._kept.enter_context(self._own_file(index))
        file = self._kept.enter_context(self._edit(own, lines, skipped))
        return file, os.path.basename(own) if is_there else ""

    def _copy_beside(self, path: str, index: bytes | None) -> str:
        folder = os.path.join(self.git_dir, os.path.dirname(path))
        return self._kept.enter_context(self._own_file(index, folder))

    def begin_edit(self, path: str, index: bytes | None) -> None:
        """Have git read an index of the user's for `edited`, if it is large, while another process lists what is to
        change in it. `end` ends it. Raises OSError."""
        if index is None or len(index) <= _LARGE_INDEX:
            return
        own = self._copy_beside(path, index)
        source, lines = _pipe()
        beside = ThreadPoolExecutor(1)
        done = beside.submit(self._on_host, *_EDIT, given=source, index=own)
        beside.shutdown(wait=False)
        self._kept.callback(wait, [done])
        self._kept.callback(_close, lines)
        self._begun = _Edit(index, own, lines, done)

    def _edit(self, path: str, lines: bytes, skipped: Iterable[bytes]) -> IO[bytes]:
        if lines:
            self._on_host(*_EDIT, given=lines, index=path)
        if flagged := b"".join(one + b"\0" for one in skipped):
            self._on_host("update-index", "--skip-worktree", "-z", "--stdin", given=flagged, index=path)
        return open(path, "rb")

    @contextlib.contextmanager
    def _own_file(self, content: bytes | None, folder: str = "") -> Iterator[str]:
        """The path of a file that is gone afterwards; git may replace it. None: there is none at first."""
        path = os.path.join(folder or self._folder, own_name())
        try:
            if content is not None:
                with open(path, "wb") as file:
                    file.write(content)
            yield path
        finally:
            for name in (path, f"{path}.lock"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)

    # --- processes

    def _on_host(self, *words: str, given: bytes | IO[bytes] = b"", index: str = "") -> bytes:
        argv = self._host_git(*words)
        environ = {**_ENVIRONMENT, "GIT_INDEX_FILE": index} if index else _ENVIRONMENT
        return self._run(argv, given, environ=environ)

    def _host_git(self, *words: str, settings: Iterable[str] = (), within: bool = True) -> list[str]:
        options = [word for each in (*_QUIET, *settings) for word in ("-c", each)]
        where = [f"--git-dir={self.git_dir}"] if within else []
        return [self._found_git(), *options, *where, *words]

    def _found_git(self) -> str:
        """Looked for once: that takes half a millisecond, and one exchange starts six."""
        if not os.path.exists(self._git):
            self._git = find_program("git", kept_out=(os.path.dirname(self.git_dir),)) or ""
            if not self._git:
                raise GitFailed("there is no git on this machine")
        return self._git

    def _in_walls(
        self, words: Sequence[str], *, given: bytes, out: IO[bytes] | None = None, index: bytes | None = None
    ) -> bytes:
        self._write_skeleton({})
        with contextlib.ExitStack() as stack:
            argv, handed = self._walls(stack, index)
            return self._run(
                [*argv, "/bin/sh", "-c", f'{_LIMIT}; exec "$0" "$@"', *self._git_inside(), *words],
                given,
                out=out,
                descriptors=handed,
            )

    def _git_inside(self) -> list[str]:
        return [self._found_git(), *(word for each in _PACKING for word in ("-c", each)), f"--git-dir={_GIT_DIR}"]

    def _walls(self, stack: contextlib.ExitStack, index: bytes | None) -> tuple[list[str], list[int]]:
        """Words that start a program in walls, and descriptors that they need."""
        prefix = os.path.dirname(os.path.dirname(self._found_git()))
        places = {self._skeleton: _GIT_DIR, self._store: _SHADOW, f"{self.git_dir}/objects": _REAL}
        if not is_below(self._found_git(), "/usr"):
            places[prefix] = prefix
        places |= {path: path for path in alternate_stores(f"{self.git_dir}/objects")}
        handed = [stack.enter_context(_file_in_memory(filter_program(network=Network.NONE))).fileno()]
        copy: tuple[str, ...] = ()
        if index is not None:  # in memory: a file on disk takes 15 ms for that of 50,000 files
            handed.append(stack.enter_context(_file_in_memory(index)).fileno())
            copy = ("--ro-bind-data", str(handed[1]), f"{_GIT_DIR}/{_INDEX}")
        argv = [
            find_bwrap() or "bwrap",
            *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--die-with-parent"),
            *("--new-session", "--seccomp", str(handed[0]), "--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"),
            *(word for mount in layout.smallest_mounts() for word in mount.words),
            *(word for host, place in places.items() for word in ("--ro-bind", host, place)),
            *copy,
            *("--tmpfs", f"{_SHADOW}/info", "--remount-ro", "/", "--chdir", "/", "--"),
        ]
        return argv, handed

    def _run(
        self,
        argv: Sequence[str],
        given: bytes | IO[bytes],
        *,
        environ: Mapping[str, str] = _ENVIRONMENT,
        out: IO[bytes] | None = None,
        descriptors: Collection[int] = (),
    ) -> bytes:
        with contextlib.ExitStack() as stack:
            stdin = stack.enter_context(_file_in_memory(given) if isinstance(given, bytes) else given)
            written, errors = (stack.enter_context(_file_in_memory()) for _ in range(2))
            process = self._start(
                argv, environ=environ, stdin=stdin, stdout=out or written, stderr=errors, descriptors=descriptors
            )
            stack.callback(_end, process)
            with _deadline(process, self._seconds()) as timer:
                process.wait()
            errors.seek(0)
            if timer.fired:
                raise GitFailed("it took too long")
            if process.returncode:
                raise GitFailed(git_words(errors.read(_MOST_ERRORS)) or f"it ended with {process.returncode}")
            if written.seek(0, os.SEEK_END) > _LARGEST_LISTING:
                raise GitFailed("it wrote too much")
            written.seek(0)
            return written.read()

    def _start(
        self,
        argv: Sequence[str],
        *,
        stdin: IO[bytes] | int,
        stdout: IO[bytes] | int,
        stderr: IO[bytes],
        environ: Mapping[str, str] = _ENVIRONMENT,
        descriptors: Collection[int] = (),
    ) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(
                argv,
                cwd="/",
                env=environ,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=tuple(descriptors),
                start_new_session=True,
            )
        except OSError as error:
            raise GitFailed(os.strerror(error.errno or 0)) from None
        with contextlib.suppress(OSError):  # it ended already
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        return process

    def prepare(self, store: GitDir) -> None:
        """Before anything is carried over: takes out of the shadow's store what is neither a file nor a directory, for
        git would follow it or wait for it. Raises TooManyFiles."""
        size = 0
        for path, info in store.objects():
            if stat.S_ISREG(info.st_mode):
                size += info.st_blocks * _BLOCK
            else:
                store.clear(path)
        self.deadline = time.monotonic() + min(_MOST_S, _WITHIN_S + size / _BYTES_PER_S)

    def _seconds(self) -> float:
        return _WITHIN_S if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def _write_skeleton(self, more: Mapping[str, bytes]) -> None:
        """A repository without anything of its own: what is in it, git reads inside walls."""
        settings = f"[core]\n\trepositoryformatversion = {1 if self._sha256 or self._partial else 0}\n\tbare = true\n"
        if self._sha256 or self._partial:
            settings += "[extensions]\n"
        settings += "\tobjectformat = sha256\n" if self._sha256 else ""
        settings += '\tpartialclone = origin\n[remote "origin"]\n\tpromisor = true\n' if self._partial else ""
        files: dict[str, bytes | None] = {
            "HEAD": b"ref: refs/heads/none\n",
            "config": settings.encode(),
            _INDEX: b"",
            "objects/info/alternates": f"{_SHADOW}\n{_REAL}\n".encode(),
            _SHALLOW: None,
            **more,
        }
        with contextlib.suppress(OSError), open(os.path.join(self.git_dir, _SHALLOW), "rb") as shallow:
            files[_SHALLOW] = shallow.read()
        with self._writing:  # only what differs: git may be reading the rest
            for folder in ("refs", "objects/info") if not self._written else ():
                os.makedirs(os.path.join(self._skeleton, folder), mode=0o700, exist_ok=True)
            for name, content in files.items():
                path = os.path.join(self._skeleton, name)
                if name in self._written and self._written[name] == content:
                    continue
                if content is None:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
                else:
                    with open(path, "wb") as file:
                        file.write(content)
            self._written = {name: content for name, content in files.items() if name not in more}


_INTENDED: Final = regex(rb"([^\0]+)\0(?:[^\0]*?)flags: ([0-9a-f]+)\n")
_INTENT_TO_ADD: Final = 1 << 29
_MOST_WORDS: Final = 500
_LONGEST_WORDS: Final = 32 << 10


def _path_words(paths: Collection[bytes]) -> list[str]:
    """None, which stands for all paths, where they are too many for a command line."""
    few = len(paths) <= _MOST_WORDS and sum(map(len, paths)) <= _LONGEST_WORDS
    return [os.fsdecode(path) for path in paths] if few else []


class _Unsound(Exception):
    """`receive-pack` did not take the pack."""

    def __init__(self, words: str, objects: set[str]) -> None:
        self.words = words
        self.objects = objects


_LAST_WORDS_S: Final = 5.0


class _Inside:
    """Git in walls, which lists an index at once, and packs when it is told what. What goes wrong is left to who asks
    again: no words of git come from here."""

    def __init__(self, index: bytes, orders: _Pipe, pack: _Pipe, heard: _Pipe) -> None:
        self.index = index
        self.orders = orders
        self.pack = pack
        """Its reading end is for who takes the pack; what is written to the other end comes before it."""
        self.heard = heard
        self.process: subprocess.Popen[bytes] | None = None
        self._listed: bytes | None = None
        self._reading = threading.Lock()

    def listed(self, seconds: float) -> bytes | None:
        """None: git could not."""
        with self._reading:
            if self.process is not None and not self.heard[0].closed:
                with _deadline(self.process, seconds), self.heard[0] as file:
                    found = bytearray()
                    while not found.endswith((_DONE, _FAILED)) and len(found) < _LARGEST_LISTING:
                        if not (block := os.read(file.fileno(), 1 << 20)):
                            break
                        found += block
                self._listed = bytes(found[: -len(_DONE)]) if found.endswith(_DONE) else None
            return self._listed

    def send(self, revisions: bytes, seconds: float) -> None:
        """The pack goes its way. Raises GitFailed."""
        assert self.process is not None
        with _deadline(self.process, seconds) as timer:
            self.orders[1].write(b"pack\n" + revisions)
            self.orders[1].close()
            self.listed(seconds)  # it ends only after its list was read, whether or not anybody wants it
            if self.process.wait() or timer.fired:
                raise GitFailed("it took too long" if timer.fired else "no pack could be made")

    def close(self) -> None:
        for file in (*self.orders, *self.pack, *self.heard):
            _close(file)
        if self.process is not None:
            _end(self.process)


class _Edit(NamedTuple):
    """Git has an index of the user's, and waits for what is to change in it."""

    content: bytes
    path: str
    lines: IO[bytes]
    done: Future[bytes]


class _Deadline:
    fired = False


@contextlib.contextmanager
def _deadline(process: subprocess.Popen[bytes], seconds: float) -> Iterator[_Deadline]:
    """Ends a process and what it started. By TERM first: then `receive-pack` takes away what it kept apart."""
    state = _Deadline()

    def end() -> None:
        state.fired = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            if process.returncode is None:
                time.sleep(1)
                os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield state
    finally:
        timer.cancel()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Whose input is over ends by itself, and takes away what it kept apart; who does not is killed."""
    if process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORDS_S)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


_Pipe = tuple[IO[bytes], IO[bytes]]
"""The end to read from, and the end to write to."""


def _pipe() -> _Pipe:
    read_end, write_end = os.pipe()
    return os.fdopen(read_end, "rb"), os.fdopen(write_end, "wb")


def _close(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        file.close()


def _file_in_memory(content: bytes = b"") -> IO[bytes]:
    file = os.fdopen(os.memfd_create("forge-git"), "w+b")
    file.write(content)
    file.seek(0)
    return file


def _packets(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines of git's protocol, up to the flush. Raises ValueError."""
    while size := int(stream.read(4) or b"0", 16):
        yield stream.read(size - 4)


def _report(stream: IO[bytes]) -> list[bytes]:
    """What `receive-pack` says of each ref, after what it has, for which nobody asked."""
    stream.seek(0)
    try:
        for _ in _packets(stream):
            pass
        return [line.rstrip(b"\n") for line in _packets(stream)]
    except ValueError:
        return []


def _hash(sha256: bool, data: bytes) -> bytes:
    return hashlib.sha256(data).digest() if sha256 else hashlib.sha1(data, usedforsecurity=False).digest()


def alternate_stores(objects: str, depth: int = 5) -> Iterator[str]:
    """Other stores that the user's own one borrows from."""
    with contextlib.suppress(OSError), open(os.path.join(objects, "info/alternates"), encoding="utf-8") as file:
        for line in file.read().splitlines():
            path = os.path.normpath(os.path.join(objects, line))
            if line and not line.startswith("#") and os.path.isdir(path) and depth:
                yield path
                yield from alternate_stores(path, depth - 1)
