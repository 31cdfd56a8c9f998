"""Tool folders on disk: read as bytes with a digest, written and swapped as a whole; and private directories for runs.

`read_folder` takes a path and gives FolderFiles. Refuses (Unusable): `symlink` for any link, device, pipe or socket at
any depth, `too_large` for more than 200 files or 50 MiB, `unreadable` for what cannot be read or whose name cannot be
shown. Texts name files relative to the folder, never the host's paths. `find_entrypoint` names the program's file and
its kind, and executes nothing. A `ToolEntry` is a valid folder as it was last read. Threat: the author of a folder may
go on writing while it is read. Only the bytes held here are hashed, shown and stored.

`write_folder` writes new folders only. `stage_tool` writes checked files into a private folder below FORGE_HOME,
outside `tools`, and reads them back; `install` renames it to a free name, `exchange` swaps it with the folder that is
there. Threat: a process that may write at the target puts a link where a folder was just made. So every folder is held
open and nothing is named by more than its last part. Threat: a crash in the middle (no refresh sees a part).

`private_directory` and `program_directory` give a directory to builds, tests and sockets, `scratch_walls` walls around
one; `file_lock` excludes tasks and processes alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from enum import Enum, StrEnum
from functools import cached_property
from pathlib import Path
from typing import Final

from golem_forge.config.sandbox_block import WallSettings
from golem_forge.core.decisions import Verdict
from golem_forge.core.lazy_dataclass import WithCache, dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import display_name, escape_control_chars
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.handles import best_opener, call_libc
from golem_forge.sandbox.host import person_environ, safe_path
from golem_forge.sandbox.process import cleanup
from golem_forge.sandbox.protected import PROTECTED_NAMES
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import HostDirectory, Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.sandbox.zones import AccessMode, ZoneSpec, open_zone
from golem_forge.storage.content_store import (
    FileMark,
    Tree,
    TreeError,
    TreeFault,
    TreeLimits,
    content_facts,
    facts_digest,
    read_tree,
    unsettled,
)
from golem_forge.storage.home import CREATE_FLAGS, DIRECTORY_FLAGS, ForgeHome, open_lock, try_lock
from golem_forge.usertools.diagnostics import DiagnosticCode, SharingError, Unusable
from golem_forge.usertools.manifest import ToolManifest

_ABANDONED_S: Final = 7 * 24 * 3600.0
"""Longer than anything here is in use: a directory of that age was left by a Forge that was killed."""
_LOCKED_WITHIN_S: Final = 60.0
"""Seconds after which the maker of a directory has locked it."""
_REMOVED_WITHIN_S: Final = 0.3
_INNER: Final = "room"


def scratch_walls(
    directory: Path,
    *,
    zone: str,
    home: ForgeHome,
    settings: WallSettings | None = None,
    redactor: Redactor | None = None,
    report: ProbeReport | None = None,
) -> Walls:
    """Walls whose only zone is this directory, writable, at `/<zone>`. They cannot be switched off: code runs there
    that nobody has approved for more, so without full walls nothing starts. `report`: what is known of this machine
    already. Raises OSError if the directory cannot be opened."""
    spec = ZoneSpec(
        name=zone,
        path=directory,
        mode=AccessMode.RW,
        write=Verdict.PRE_APPROVED,
        delete=Verdict.PRE_APPROVED,
        # Nobody runs later what was written here, and placeholders would be files that nobody put there.
        unprotect=PROTECTED_NAMES,
        at_host_path=False,
    )
    sandbox = Sandbox((open_zone(spec, best_opener()),), zone, hidden=(os.path.realpath(home.path),))
    environ = person_environ()  # of a project's environment, which is no zone here, nothing is started either
    switched_off = report is not None and report.level is Level.OFF
    return Walls(
        sandbox,
        replace(settings or WallSettings(), off=False),
        forge_home=home.path,
        redactor=redactor,
        host=WallsHost(
            report=None if switched_off else report, environ={**environ, "PATH": safe_path(environ.get("PATH", ""))}
        ),
    )


@contextlib.contextmanager
def private_directory(home: ForgeHome, purpose: str) -> Iterator[Path]:
    """A new directory below FORGE_HOME/cache for its owner alone, removed afterwards, whatever was done to it."""
    with held_directory(home.ensure("cache", purpose), after_s=_ABANDONED_S) as (made, inner):
        try:
            yield inner
        finally:
            remove_tree(made)


@contextlib.asynccontextmanager
async def program_directory(home: ForgeHome, purpose: str) -> AsyncIterator[Path]:
    """Provides a directory for a program to write in. It may hold very much, so a thread removes it; a cancelled caller
    does not wait for that.
    """

    def removal() -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(None, remove_tree, made)

    with held_directory(home.ensure("cache", purpose), after_s=_ABANDONED_S) as (made, inner):
        try:
            yield inner
        except BaseException:
            await asyncio.wait((removal(),), timeout=_REMOVED_WITHIN_S)
            raise
        await asyncio.shield(removal())


@contextlib.contextmanager
def held_directory(parent: Path, *, after_s: float, prefix: str = "") -> Iterator[tuple[Path, Path]]:
    """Makes a locked temporary directory and yields it with its inner directory, which walls lock for themselves. After
    a crash nobody holds the lock, and the directory is removed after `after_s`.
    """
    remove_abandoned(parent, after_s=after_s, prefix=prefix)
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent.resolve()))
    handle = os.open(made, DIRECTORY_FLAGS)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: its age alone counts
            try_lock(handle)
        inner = made / _INNER
        inner.mkdir(mode=0o700)
        yield made, inner
    finally:
        os.close(handle)


def remove_abandoned(parent: Path, *, after_s: float, prefix: str = "") -> None:
    """Removes directories that a killed Forge left: old enough, or locked by nobody."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if age > after_s or (age > _LOCKED_WITHIN_S and _is_unlocked(entry.path)):
                    remove_tree(Path(entry.path))


def _is_unlocked(path: str) -> bool:
    with contextlib.suppress(OSError):
        handle = os.open(path, DIRECTORY_FLAGS)
        try:
            return try_lock(handle)
        finally:
            os.close(handle)
    return False


def remove_tree(directory: Path) -> None:
    """However deep it is, and also where a program took away its own right to change what it had made. Links are
    removed, not followed; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        if not directory.is_symlink():
            directory.chmod(0o700)
    cleanup.remove_tree(os.fspath(directory))


_POLL_S: Final = 0.02


@contextlib.asynccontextmanager
async def file_lock(file: Path) -> AsyncIterator[None]:
    """Waits as long as a build takes without blocking the event loop. Released when its holder is done, cancelled or
    gone."""
    handle = open_lock(file)
    try:
        while not try_lock(handle):  # noqa: ASYNC110 - nobody is told when a lock gets free
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)


TOOL_DIR = "/forge/tool"
"""Path of a tool's snapshot in full walls."""
BUILD_DIR = "/forge/build"
"""Path of the build result in full walls."""


@dataclass(frozen=True, slots=True)
class FileFact:
    path: str
    """The relative path, with `/`."""
    executable: bool
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEntry:
    name: str
    folder: Path
    manifest: ToolManifest
    digest: str
    """`sha256:` over every file of the folder."""
    files: tuple[FileFact, ...]

    @property
    def address(self) -> str:
        """The folder's path for a model."""
        return f"/user_tools/{self.name}"


class ProgramKind(StrEnum):
    PYTHON = "python"
    SHELL = "shell"
    GO = "go"
    EXECUTABLE = "executable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgram:
    """The program of a tool at one level of walls."""

    kind: ProgramKind
    argv: tuple[str, ...]
    """The program without the call's own arguments. Python: interpreter and flags; `script` says what it runs."""
    script: str = ""
    tool_dir: str = TOOL_DIR
    """FORGE_TOOL_DIR: in full walls `/forge/tool`, elsewhere the snapshot's own place."""
    shown: tuple[HostDirectory, ...] = ()
    """The snapshot, what was built from it, and an interpreter outside the system directories."""


FOLDER_LIMITS: Final = TreeLimits(files=200, total_bytes=50 << 20)

_VERSION_CONTROL: Final = (".git", ".hg", ".svn", ".jj")
_IGNORED: Final = regex(
    "|".join(
        (
            *map(re.escape, _VERSION_CONTROL),
            r"__pycache__|\.(mypy|ruff|pytest)_cache",
            r"\.idea|\.vscode",
            r".*~|.*\.sw[nop]|\..*\.sw[a-p]|#.*#|\.#.*",  # backups, vim's swap files, Emacs' autosaves and locks
            r".*___jb_(tmp|old)___|\.goutputstream-.*",
            r"\.DS_Store|\._.*|__MACOSX|Thumbs\.db|desktop\.ini|\.nfs.*|\.fuse_hidden.*",
        )
    ),
    re.DOTALL,
)


def is_ignored(name: str) -> bool:
    """Whether a file or folder of that name, without what is above it, is no part of a tool: left behind by an editor,
    version control or a desktop, it is not read, hashed, shown or stored. docs/guides/user-tools.md lists them. Threat:
    code behind an ignored name. It is in no snapshot, and only snapshots run: no entrypoint, import, package or
    bytecode is found there."""
    return _IGNORED.fullmatch(name) is not None


_FAULT_CODES: Final = {
    TreeFault.SPECIAL: DiagnosticCode.SYMLINK,
    TreeFault.LIMIT: DiagnosticCode.TOO_LARGE,
    TreeFault.UNREADABLE: DiagnosticCode.UNREADABLE,
}


@dataclass(frozen=True, slots=True)
class FolderFiles(WithCache):
    files: Mapping[str, bytes]
    """Content by relative path, with `/`."""
    executable: frozenset[str]
    folders: frozenset[str] = field(default=frozenset(), compare=False)
    """Empty ones too; they are no part of the digest."""

    def without_ignored(self) -> FolderFiles:
        """Returns the files that count when the folder is read from disk."""

        def counts(path: str) -> bool:
            return not any(map(is_ignored, path.split("/")))

        if all(map(counts, (*self.files, *self.folders))):
            return self
        return FolderFiles(
            {path: data for path, data in self.files.items() if counts(path)},
            frozenset(filter(counts, self.executable)),
            frozenset(filter(counts, self.folders)),
        )

    @cached_property
    def facts(self) -> tuple[FileFact, ...]:
        return tuple(FileFact(*fact) for fact in content_facts(self.files, self.executable))

    @cached_property
    def digest(self) -> str:
        """`sha256:` over the sorted list of (relative path, exec bit, size, SHA-256)."""
        return files_digest(self.facts)


class Validity(StrEnum):
    """How long a reading can be reused."""

    WHILE_MARKED = "while every mark is the same"
    MOMENT = "changed in the tick it was read in: a later change may bear the same marks"
    NOT = "could not be read, and may become readable without a new mark (a group, a mount)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReading:
    """The result of reading a folder, with what a later check needs to notice a change."""

    found: FolderFiles | Unusable
    marks: Mapping[str, FileMark]
    """The marks of each folder and file; the folder itself has the empty name."""
    validity: Validity


def files_digest(facts: tuple[FileFact, ...]) -> str:
    return facts_digest((fact.path, fact.executable, fact.size, fact.sha256) for fact in facts)


def read_folder(path: Path) -> FolderFiles:
    found = try_folder(path).found
    if isinstance(found, Unusable):
        raise found
    return found


def try_folder(path: Path) -> FolderReading:
    started = time.time_ns()
    try:
        tree = read_tree(path, FOLDER_LIMITS, ignored=is_ignored)
    except TreeError as error:
        problem = Unusable(_FAULT_CODES[error.fault], error.message)
        lasting = error.fault is not TreeFault.UNREADABLE and error.marks
        validity = validity_since(error.marks.values(), started) if lasting else Validity.NOT
        return FolderReading(found=problem, marks=error.marks, validity=validity)
    validity = validity_since(tree.marks.values(), started)
    return FolderReading(found=_check_file_names(tree), marks=tree.marks, validity=validity)


def validity_since(marks: Iterable[FileMark], started: int) -> Validity:
    return Validity.MOMENT if unsettled(marks, since=started) else Validity.WHILE_MARKED


def _check_file_names(tree: Tree) -> FolderFiles | Unusable:
    for name in (*sorted(tree.folders), *tree.files):
        if name != (shown := display_name(name)):
            why = f"{shown}: the name has characters that cannot be shown; rename it"
            return Unusable(DiagnosticCode.UNREADABLE, why)
    return FolderFiles(tree.files, frozenset(tree.executable), frozenset(tree.folders))


ELF: Final = b"\x7fELF"
_SCRIPT: Final = b"#!"
_KIND_BY_SUFFIX: Final = {".py": ProgramKind.PYTHON, ".sh": ProgramKind.SHELL, ".go": ProgramKind.GO}


def find_entrypoint(entrypoint: str, folder: FolderFiles) -> tuple[str, ProgramKind]:
    """The file behind the entrypoint (for `X` without such a file: `X.go`) and how it is run."""

    def unusable(code: DiagnosticCode, what: str) -> Unusable:
        return Unusable(code, f"tool.yaml: entrypoint: '{escape_control_chars(entrypoint)}' {what}")

    if entrypoint in ("", ".", "..") or "/" in entrypoint or "\0" in entrypoint:
        raise unusable(DiagnosticCode.ENTRYPOINT_INVALID, "must be the name of a file directly in the tool's folder")
    if is_ignored(entrypoint):
        why = "has a name that Forge ignores, because editors, version control and desktops leave such files; rename it"
        raise unusable(DiagnosticCode.ENTRYPOINT_INVALID, why)
    if entrypoint in folder.folders or any(name.startswith(f"{entrypoint}/") for name in folder.files):
        raise unusable(DiagnosticCode.ENTRYPOINT_INVALID, "is a directory; name a file")
    if entrypoint not in folder.files:
        if (source := f"{entrypoint}.go") in folder.files:
            return source, ProgramKind.GO
        raise unusable(DiagnosticCode.ENTRYPOINT_MISSING, "does not exist in the tool's folder")
    for ending, kind in _KIND_BY_SUFFIX.items():
        if entrypoint.endswith(ending):
            return entrypoint, kind
    if entrypoint not in folder.executable:
        raise unusable(DiagnosticCode.NOT_EXECUTABLE, "has no exec bit; set it with chmod u+x")
    if not folder.files[entrypoint].startswith((ELF, _SCRIPT)):
        raise unusable(DiagnosticCode.NOT_EXECUTABLE, "is not an ELF program or a script that starts with '#!'")
    return entrypoint, ProgramKind.EXECUTABLE


_EXECUTABLE_BITS: Final = 0o777
_FILE_BITS: Final = 0o666


class ReadableBy(Enum):
    """The bits that nobody gets; whoever is left, the umask decides."""

    OWNER = 0o077
    ANYBODY = 0


def write_folder(
    parent: int,
    folder: str,
    files: Mapping[str, bytes],
    executable: Collection[str],
    for_whom: ReadableBy = ReadableBy.OWNER,
) -> None:
    """Writes a folder; it is on disk when this returns. `parent`: a descriptor of the parent directory; `files`:
    content by path inside.
    """
    with contextlib.ExitStack() as held:
        folders = {"": _make_folder(held, parent, folder, for_whom)}
        for file, content in files.items():
            *above, name = file.split("/")
            inside = ""
            for part in above:
                outside, inside = inside, f"{inside}{part}/"
                if inside not in folders:
                    folders[inside] = _make_folder(held, folders[outside], part, for_whom)
            mode = (_EXECUTABLE_BITS if file in executable else _FILE_BITS) & ~for_whom.value
            handle = os.open(name, CREATE_FLAGS, mode, dir_fd=folders[inside])
            with open(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                _sync(handle, mode, for_whom)
        for each in folders.values():
            _sync(each, _EXECUTABLE_BITS & ~for_whom.value, for_whom)


def _make_folder(held: contextlib.ExitStack, parent: int, name: str, for_whom: ReadableBy) -> int:
    os.mkdir(name, _EXECUTABLE_BITS & ~for_whom.value, dir_fd=parent)
    handle = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    held.callback(os.close, handle)
    return handle


def _sync(handle: int, mode: int, for_whom: ReadableBy) -> None:
    if for_whom is ReadableBy.OWNER:  # the umask may have left the owner less
        os.fchmod(handle, mode)
    os.fsync(handle)


TOOLS_FOLDER: Final = "tools"
_STAGING_PREFIX: Final = ".staging-"
_STALE_S: Final = 24 * 3600
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextlib.contextmanager
def staging_folder(home: ForgeHome) -> Iterator[Path]:
    """A folder of the person's own below FORGE_HOME, gone afterwards. Removes what a killed import left behind."""
    for stale in home.ensure().glob(f"{_STAGING_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - stale.lstat().st_mtime > _STALE_S:
                shutil.rmtree(stale)
    folder = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=home.path))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def stage_tool(home: ForgeHome, name: str, files: FolderFiles) -> Iterator[Path]:
    """The complete folder, on disk and read back, ready to be renamed; without what is no part of a tool."""
    files = files.without_ignored()
    with staging_folder(home) as room:
        folder = room / name
        with _open_folder(room) as parent:
            write_folder(parent, name, files.files, files.executable)
        if read_folder(folder).digest != files.digest:
            raise SharingError("Forge could not write exactly these files; nothing was imported.")
        yield folder


def install(home: ForgeHome, name: str, folder: Path) -> None:
    """Renames a staged folder to `tools/<name>`."""
    check_name_free(home, name)
    try:
        os.rename(folder, home.ensure(TOOLS_FOLDER) / name)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise _name_taken(home, name) from None
        raise


def exchange(home: ForgeHome, name: str, folder: Path) -> None:
    """`tools/<name>` becomes the staged folder, and the staged folder what was there; no moment without either. What is
    no part of a tool (a repository, a swap file) stays at `tools/<name>`."""
    live = home.path / TOOLS_FOLDER / name
    try:
        _exchange_names(folder, live)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        _swap_in_steps(folder, live)
    with (
        contextlib.suppress(OSError),
        _open_folder(folder) as left,
    ):  # what was there may be no folder, or a link to one
        for each in filter(is_ignored, os.listdir(left)):
            if not os.path.lexists(live / each):
                with contextlib.suppress(OSError):
                    os.rename(each, live / each, src_dir_fd=left)


@contextlib.contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    handle = os.open(path, DIRECTORY_FLAGS)
    try:
        yield handle
    finally:
        os.close(handle)


def has_repository(folder: Path) -> bool:
    """Whether version control keeps something in it, which no version of the tool has."""
    for _, folders, files in os.walk(folder):
        if any(name in _VERSION_CONTROL for name in (*folders, *files)):
            return True
        folders[:] = [name for name in folders if not is_ignored(name)]
    return False


def check_name_free(home: ForgeHome, name: str) -> None:
    for present in os.listdir(home.ensure(TOOLS_FOLDER)):
        if present.casefold() == name.casefold():
            raise _name_taken(home, present)


def _name_taken(home: ForgeHome, name: str) -> SharingError:
    folder = home.shown(home.path / TOOLS_FOLDER / name)
    return SharingError(f"tool '{name}' already exists at {folder}; import it under another name with --as NAME")


def _exchange_names(one: Path, other: Path) -> None:
    """Exchanges two names in one step. Raises OSError EINVAL or ENOSYS if the file system or the kernel cannot."""
    call_libc("renameat2", _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)


def _swap_in_steps(one: Path, other: Path) -> None:
    aside = one.with_name(f"{one.name}.aside")
    os.rename(other, aside)
    try:
        os.rename(one, other)
    except BaseException:
        os.rename(aside, other)
        raise
    os.rename(aside, one)
