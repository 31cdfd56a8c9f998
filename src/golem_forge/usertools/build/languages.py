"""What a build does for each language: checks Python and shell sources, installs what Python tools need, compiles Go.

All steps run in full walls (`requirements.run_step`). Refuses with Unusable and the program's own words. Nothing of a
tool or of a dependency is executed.

Python: tools run in the Python that Forge itself was started with, without any of its packages. The real program is
used, not a virtual environment's link: started by that, it would look for that environment. `make_environment` lets uv
install wheels into `out`: no source is built, the environment's own Python is never started, and bytecode is made by a
Python that does not look into the environment (`-S`: no `.pth` file is read). What a wheel may overwrite (`pyvenv.cfg`,
`bin/python`) is not trusted: the interpreter that walls show is known from before.

The checks of sources say `file:line:`. Threat: a source made to exhaust the parser. It is parsed in a child with walls
and limits; the source comes by standard input, and the child is shown nothing else.

Go: `GoBuild` takes the snapshot and a working directory, and leaves one static binary as `out/<binary>` there. Modules
are fetched in a step of their own, the only one with a network. No cgo, no generate, no toolexec, no version control. A
folder is its own Go module, or gets a go.mod that only the compiler sees; the snapshot stays as it is, and what Go
wants to write it writes to copies.

`GoCache` holds compiled packages of the standard library for one toolchain. Only `warm` writes it, in walls that show
no tool's source. Threat: a source that breaks the compiler could otherwise leave something behind that goes into every
other tool. A build has a cache of its own, filled with links to this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Final

from golem_forge.core.json import sha256_hex
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.model import HostDirectory, HostGrant, Job
from golem_forge.sandbox.walls.toolchains import own_python_directory
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.home import ForgeHome, write_private
from golem_forge.usertools.build.requirements import (
    BUILD_ROOM,
    DependencySources,
    GoToolchain,
    StepResult,
    UvProgram,
    is_program,
    require_full_walls,
    run_step,
    step_failure_text,
)
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable
from golem_forge.usertools.folder import BUILD_DIR, TOOL_DIR, file_lock

if TYPE_CHECKING:
    from golem_forge.usertools.folder import FolderFiles

ISOLATED_FLAGS: Final = ("-E", "-s", "-S", "-B", "-X", "pycache_prefix=/forge/none")
"""No variables, no user site, no site-packages, and no bytecode beside the source is read or written, so that exactly
the shown source runs.
"""
ENVIRONMENT_FLAGS: Final = ("-E", "-s", "-B")
INSTALL_SECONDS: Final = 300.0
_UV_ENV: Final = {
    "UV_CACHE_DIR": f"{BUILD_ROOM}/cache",
    "UV_NO_CONFIG": "1",
    "UV_NO_BUILD": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_NO_PROGRESS": "1",
    "UV_KEYRING_PROVIDER": "disabled",
    "VIRTUAL_ENV": f"{BUILD_ROOM}/out",
    "NO_COLOR": "1",
}
_WITHOUT_PATH: Final = ("/bin/sh", "-c", 'PATH=/nowhere && exec "$@"', "sh")
"""Starts a program with a PATH on which it finds no other program, neither git nor another Python."""
_UV_NOISE: Final = ("Using ", "Creating virtual environment", "Activate with", "Resolved ", "Prepared ")
CHECK_SECONDS: Final = 10.0
_CHECK_MEMORY: Final = 1 << 30
_SHELL_LINE: Final = regex(r"^[^\s:]+: (?:line )?(\d+): ", re.M)
_CHECK_PROGRAM: Final = """\
import sys
name, source = sys.argv[1], sys.stdin.buffer.read()
try:
    compile(source, name, "exec", dont_inherit=True)
except SyntaxError as error:
    place = ":".join(str(part) for part in (name, error.lineno, error.offset) if part)
    shown = "\\n    " + error.text.strip()[:200] if error.text else ""
    sys.exit(f"{place}: {type(error).__name__}: {error.msg}{shown}")
except (ValueError, OverflowError, RecursionError, MemoryError) as error:
    sys.exit(f"{name}:1: {type(error).__name__}: {error}")
"""
MODULE_DIR: Final = ".module"
"""The directory of these files, in the building room and beside the binary, whose name begins with a letter."""
GO_CACHE_DIR: Final = "/forge/gocache"
BUILD_FLAGS: Final = ("-trimpath", "-buildvcs=false")
"""Without the second flag, `git` would run on whatever repository the folder pretends to be."""
GO_ENV: Final = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
    "GOENV": "off",
    "GOVCS": "*:off",
    "GOFLAGS": "",
    "GO111MODULE": "on",
    "GOTELEMETRY": "off",
}
GO_OFFLINE_ENV: Final = {"GOPROXY": "off", "GOSUMDB": "off"}
_COMMENT: Final = regex(r"//[^\n]*")
_REQUIRE_LINE: Final = regex(r"^\s*require\s*(?:\(\s*[^)\s]|[^\s(])", re.M)
GO_SECONDS: Final = 300.0
_STANDARD_PATH: Final = regex(r"[a-z][a-z0-9]*(?:/[a-z0-9][a-z0-9_]*){0,6}")
_NOT_IMPORTABLE: Final = frozenset({"internal", "vendor", "unsafe", "cmd"})
_WARM_FILE: Final = "warm.json"
_IN_TOOL_DIR: Final = ("/bin/sh", "-c", f'cd {TOOL_DIR} && PATH=/nowhere && exec "$@"', "sh")
"""Go finds its own parts without PATH. What it would find there (git, a C compiler) could be made to run code of the
tool's: the settings of a repository name programs."""
_TMP_DIR: Final = "intermediate"
_OWN_CACHE_DIR: Final = "gocache"
_IMPORT_FORMAT: Final = "{{if .Standard}}{{.ImportPath}}{{end}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonInterpreter:
    path: str
    shown: tuple[HostDirectory, ...]
    version: tuple[int, int, int]

    @property
    def identity(self) -> str:
        return f"{sys.implementation.name} {'.'.join(map(str, self.version))} {self.path}"


def own_interpreter(forge_home: Path) -> PythonInterpreter:
    """Raises Unusable where its directory must stay hidden."""
    directory, why = own_python_directory(forge_home)
    if why:
        problem = f"Python tools cannot run: the directory of this Python {why}. Install Forge with another Python."
        raise Unusable(DiagnosticCode.TOOLCHAIN_MISSING, problem)
    shown = (HostDirectory(directory, directory),) if directory else ()  # it stands where it was built to stand
    return PythonInterpreter(path=base_python(), shown=shown, version=sys.version_info[:3])


@cache
def platform_name() -> str:
    """Returns the platform that a binary or a wheel was made for."""
    return f"{sys.platform} {platform.machine()} {'-'.join(platform.libc_ver())}"


async def make_environment(
    uv: UvProgram,
    interpreter: PythonInterpreter,
    walls: Walls,
    *,
    script: str,
    locked: bool,
    snapshot: str,
    sources: DependencySources,
    hosts: tuple[HostGrant, ...],
) -> None:
    """`script`: the entrypoint's name. Raises Unusable, SandboxError."""
    await require_full_walls(walls)
    program = (*_WITHOUT_PATH, uv.inner, "--no-config")
    shown = (*uv.shown, *interpreter.shown)
    empty = Job(
        argv=(*program, "venv", "--no-project", "--python", interpreter.path, f"{BUILD_ROOM}/out"),
        env=_UV_ENV,
        shown=shown,
    )
    _check_installed(await run_step(walls, empty, seconds=INSTALL_SECONDS))
    filled = Job(
        argv=(
            *(*program, "sync", "--active", "--no-build", "--python", interpreter.path),
            *sources.flags,
            *(("--frozen",) if locked else ()),
            *(() if hosts else ("--offline",)),
            *("--script", f"{TOOL_DIR}/{script}"),
        ),
        env={**_UV_ENV, **sources.env},
        hosts=hosts,
        shown=(HostDirectory(snapshot, TOOL_DIR), *shown, *sources.shown),
    )
    _check_installed(await run_step(walls, filled, seconds=INSTALL_SECONDS))
    # Bytecode, since nothing can be written beside the sources later. What cannot be compiled is left as it is.
    library = f"{BUILD_ROOM}/out/lib/python{interpreter.version[0]}.{interpreter.version[1]}/site-packages"
    words = ("-q", "-s", f"{BUILD_ROOM}/out", "-p", BUILD_DIR, "--invalidation-mode", "unchecked-hash")
    argv = (interpreter.path, "-I", "-S", "-m", "compileall", *words, library)
    await run_step(walls, Job(argv=argv, shown=interpreter.shown), seconds=INSTALL_SECONDS)


def _check_installed(said: StepResult) -> None:
    if not said.ok:
        lines = [line for line in said.text.splitlines() if not line.startswith(_UV_NOISE)]
        cleaned = replace(said, text="\n".join(lines))
        raise Unusable(DiagnosticCode.DEPENDENCIES_UNAVAILABLE, step_failure_text(cleaned, "uv"))


async def check_python_source(walls: Walls, interpreter: PythonInterpreter, file: str, source: bytes) -> None:
    argv = (interpreter.path, "-I", "-S", "-B", "-W", "ignore", "-c", _CHECK_PROGRAM, file)
    await _check_source(walls, Job(argv=argv, stdin=source, reads_only=True, shown=interpreter.shown), file)


async def check_shell_source(walls: Walls, shell: str, file: str, source: bytes) -> None:
    await _check_source(walls, Job(argv=(shell, "-n"), stdin=source, reads_only=True), file)


async def _check_source(walls: Walls, job: Job, file: str) -> None:
    said = await run_step(walls, job, seconds=CHECK_SECONDS, memory=_CHECK_MEMORY)
    if not said.ok:
        text = step_failure_text(said, f"{file}: the check")
        raise Unusable(DiagnosticCode.BUILD_FAILED, _SHELL_LINE.sub(lambda match: f"{file}:{match[1]}: ", text))


class GoBuild:
    def __init__(
        self, go: GoToolchain, cache: GoCache, module: GoModule, walls: Walls, work: Path, snapshot: str
    ) -> None:
        self._go = go
        self._cache = cache
        self._module = module
        self._walls = walls
        self._work = work
        self._tool = HostDirectory(snapshot, TOOL_DIR)

    async def run(
        self,
        binary: str,
        files: FolderFiles,
        sources: DependencySources,
        hosts: tuple[HostGrant, ...],
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`report` is told each step that takes a while. Raises Unusable, SandboxError."""
        await require_full_walls(self._walls)
        for name in ("out", _TMP_DIR, MODULE_DIR):
            (self._work / name).mkdir(mode=0o700)
        for name, content in self._module.files.items():
            (self._work / MODULE_DIR / name).write_bytes(content)
        if self._module.fetches:
            report(f"fetching the Go modules of '{binary}' …")
            await self._fetch(sources, hosts)
        self._cache.link_into(self._work / _OWN_CACHE_DIR)
        packages = self._cache.standard(await self._imports())
        if not self._cache.has(packages):
            report("compiling what it uses of Go's standard library, once for this Go; this may take a minute …")
        await self._cache.warm(packages)
        report(f"compiling '{binary}' …")
        self._cache.link_into(self._work / _OWN_CACHE_DIR)
        said = await run_step(
            self._walls,
            self._job("build", *BUILD_FLAGS, *self._module.flags, "-o", f"{BUILD_ROOM}/out/{binary}", "."),
            seconds=GO_SECONDS,
        )
        if not said.ok:
            raise Unusable(DiagnosticCode.BUILD_FAILED, step_failure_text(said, "the Go compiler"))
        if not is_program(self._work / "out" / binary):  # a package that is no program is compiled, too
            why = "the source makes no program: it must be `package main` with a func main()"
            raise Unusable(DiagnosticCode.BUILD_FAILED, why)
        self._keep_source_module(files)

    async def _fetch(self, sources: DependencySources, hosts: tuple[HostGrant, ...]) -> None:
        flags = [flag for flag in self._module.flags if flag.startswith("-modfile")]
        env = {**sources.env, "GOFLAGS": " ".join(("-modcacherw", *flags))}
        said = await run_step(
            self._walls, self._job("mod", "download", hosts=hosts, env=env, shown=sources.shown), seconds=GO_SECONDS
        )
        if not said.ok:
            raise Unusable(DiagnosticCode.DEPENDENCIES_UNAVAILABLE, step_failure_text(said, "fetching Go modules"))

    async def _imports(self) -> list[str]:
        """Import paths that the source leads to. A source that cannot be read leads nowhere: its build says why."""
        said = await run_step(
            self._walls,
            self._job("list", "-e", "-deps", *BUILD_FLAGS, *self._module.flags, "-f", _IMPORT_FORMAT, "."),
            seconds=GO_SECONDS,
        )
        return said.text.split() if said.ok else []

    def _job(
        self,
        *words: str,
        hosts: tuple[HostGrant, ...] = (),
        env: dict[str, str] | None = None,
        shown: tuple[HostDirectory, ...] = (),
    ) -> Job:
        return Job(
            argv=(*_IN_TOOL_DIR, f"{self._go.inner}/bin/go", *words),
            env={
                **GO_ENV,
                **GO_OFFLINE_ENV,
                "GOROOT": self._go.inner,
                "GOCACHE": f"{BUILD_ROOM}/{_OWN_CACHE_DIR}",
                "GOPATH": f"{BUILD_ROOM}/gopath",
                "GOMODCACHE": f"{BUILD_ROOM}/{MODULE_DIR}/mod",
                "GOTMPDIR": f"{BUILD_ROOM}/{_TMP_DIR}",
                **(env or {}),
            },
            hosts=hosts,
            shown=(self._tool, *self._go.shown, *self._cache.shown, *shown),
        )

    def _keep_source_module(self, files: FolderFiles) -> None:
        """Beside the binary, for whoever builds the same source again to look for a mistake."""
        os.rename(self._work / MODULE_DIR, self._work / "out" / MODULE_DIR)
        if overlay := debug_module(files, self._go).files.get("overlay.json"):
            (self._work / "out" / MODULE_DIR / "overlay.json").write_bytes(overlay)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoModule:
    files: dict[str, bytes] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    fetches: bool = False
    """Whether it requires other modules and does not include them."""


def go_module(files: FolderFiles, go: GoToolchain, place: str = f"{BUILD_ROOM}/{MODULE_DIR}") -> GoModule:
    """Returns the Go module of a folder. `place`: the path of `GoModule.files` inside."""
    own = files.files.get("go.mod")
    if own is None:
        text = "module forge.local/tool\n" + (f"\ngo {go.language}\n" if go.language else "")
        overlay = {"Replace": {f"{TOOL_DIR}/go.mod": f"{place}/go.mod"}}
        return GoModule(
            files={"go.mod": text.encode(), "overlay.json": json.dumps(overlay).encode()},
            flags=("-mod=readonly", f"-overlay={place}/overlay.json"),
        )
    if any(name.startswith("vendor/") for name in files.files):
        return GoModule(flags=("-mod=vendor",))
    fetches = requires_modules(own)
    copies = {name: files.files[name] for name in ("go.mod", "go.sum") if name in files.files}
    return GoModule(
        files=copies, flags=(f"-mod={'mod' if fetches else 'readonly'}", f"-modfile={place}/go.mod"), fetches=fetches
    )


def requires_modules(go_mod: bytes) -> bool:
    return _REQUIRE_LINE.search(_COMMENT.sub("", go_mod.decode("utf-8", "replace"))) is not None


def debug_module(files: FolderFiles, go: GoToolchain) -> GoModule:
    """Returns the module as it is used beside a finished binary, where nothing can be written."""
    found = go_module(files, go, f"{BUILD_DIR}/{MODULE_DIR}")
    return replace(found, flags=tuple("-mod=readonly" if flag == "-mod=mod" else flag for flag in found.flags))


def debug_command(go: GoToolchain, binary: str, flags: Sequence[str], *, cached: bool) -> tuple[str, ...]:
    """Builds from source and runs that: `go run` would take the tool's folder for the working directory."""
    variables = {**GO_ENV, **GO_OFFLINE_ENV, "GOROOT": go.inner, "GOMODCACHE": f"{BUILD_DIR}/{MODULE_DIR}/mod"}
    said = " ".join(f"{name}={quote(value)}" for name, value in variables.items())
    linked = f'cp -rs {GO_CACHE_DIR}/. "$made/cache" && ' if cached else ""
    build = join((f"{go.inner}/bin/go", "build", *BUILD_FLAGS, *flags))
    script = (
        f'back=$PWD; made=$TMPDIR/forge-debug; mkdir -p "$made/cache" && {linked}cd {TOOL_DIR} && '
        f'{said} GOCACHE="$made/cache" GOPATH="$made/path" {build} -o "$made/{binary}" . && '
        f'cd "$back" && exec "$made/{binary}" "$@"'
    )
    return ("/bin/sh", "-c", script, binary)


class GoCache:
    def __init__(self, home: ForgeHome, go: GoToolchain, walls: Callable[[Path], Walls]) -> None:
        self._go = go
        self._walls = walls
        self._home = home
        self._name = sha256_hex(f"{go.version} {go.root}")[:16]

    @property
    def directory(self) -> str:
        """Its real directory; empty until something was compiled."""
        place = self._home.path / "cache" / "go" / self._name / "compiled"
        return os.path.realpath(place) if place.is_dir() else ""

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        return (HostDirectory(found, GO_CACHE_DIR),) if (found := self.directory) else ()

    def standard(self, named: Iterable[str]) -> frozenset[str]:
        """Returns the import paths that are packages of this standard library."""
        return frozenset(
            path
            for path in named
            if _STANDARD_PATH.fullmatch(path)
            and _NOT_IMPORTABLE.isdisjoint(path.split("/"))
            and os.path.isdir(os.path.join(self._go.root, "src", path))
        )

    def link_into(self, own: Path) -> None:
        """Fills a build's own cache with links to what is here, as both stand in its walls."""
        own.mkdir(mode=0o700, exist_ok=True)
        shared = self.directory
        if not shared:
            return
        for place, _, files in os.walk(shared):
            below = own / os.path.relpath(place, shared)
            below.mkdir(mode=0o700, exist_ok=True)
            for name in files if place != shared else ():  # at the top are notes of the cache about itself
                with contextlib.suppress(FileExistsError):
                    os.symlink(os.path.join(GO_CACHE_DIR, below.name, name), below / name)

    def has(self, packages: frozenset[str]) -> bool:
        """Whether all of these packages are compiled."""
        return bool(self.directory) and packages <= self._known(self._home.path / "cache" / "go" / self._name)

    async def warm(self, packages: frozenset[str]) -> None:
        """Compiles what is missing of these. Raises Unusable if the toolchain cannot even do that."""
        if self.has(packages):
            return
        place = self._home.ensure("cache", "go", self._name)
        async with file_lock(place / ".lock"):
            known = self._known(place)
            if self.directory and packages <= known:
                return
            compiled = self._home.ensure("cache", "go", self._name, "compiled")
            # All that was ever asked for, since Go forgets what was not used for some days.
            wanted = sorted(packages | known)
            env = {**GO_ENV, **GO_OFFLINE_ENV, "GOROOT": self._go.inner, "GOCACHE": BUILD_ROOM, "GOPATH": "/tmp/go"}  # noqa: S108
            job = Job(
                argv=(f"{self._go.inner}/bin/go", "build", *BUILD_FLAGS, *wanted),
                env={**env, "GOMODCACHE": "/tmp/go/mod"},  # noqa: S108 - the walls' own
                shown=self._go.shown,
            )
            said = await run_step(self._walls(compiled), job, seconds=GO_SECONDS)
            if not said.ok:
                raise Unusable(DiagnosticCode.BUILD_FAILED, step_failure_text(said, "compiling Go's standard library"))
            write_private(place / _WARM_FILE, json.dumps(wanted).encode(), durable=False)

    @staticmethod
    def _known(place: Path) -> frozenset[str]:
        try:
            said = json.loads((place / _WARM_FILE).read_bytes())
        except (OSError, ValueError):
            return frozenset()
        return frozenset(each for each in said if isinstance(each, str)) if isinstance(said, list) else frozenset()
