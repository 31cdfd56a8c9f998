"""Python tools: the interpreter, environments with dependencies, and syntax checks of Python and shell sources.

Tools run in the Python that Forge itself was started with, without any of its packages. The real program is used, not
a virtual environment's link: started by that, it would look for that environment.

`make_environment` lets uv install wheels into `out`, in full walls; refuses (Unusable, `dependencies_unavailable`)
with uv's own words. Nothing of a dependency is executed: no source is built, the environment's own Python is never
started, and bytecode is made by a Python that does not look into the environment (`-S`: no `.pth` file is read). What
a wheel may overwrite (`pyvenv.cfg`, `bin/python`) is not trusted: the interpreter that walls show is known from
before.

The checks raise Unusable (`build_failed`) with `file:line:`. Threat: a source made to exhaust the parser. It is parsed
in a child with walls and limits; the source comes by standard input, and the child is shown nothing else.
"""

from __future__ import annotations

import platform
import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.model import HostDirectory, HostGrant, Job
from golem_forge.sandbox.walls.toolchains import own_python_directory
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.usertools.build.dependencies import DependencySources
from golem_forge.usertools.build.toolchain import (
    BUILD_ROOM,
    StepResult,
    UvProgram,
    require_full_walls,
    run_step,
    step_failure_text,
)
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable
from golem_forge.usertools.folder import BUILD_DIR, TOOL_DIR

ISOLATED_FLAGS: Final = ("-E", "-s", "-S", "-B", "-X", "pycache_prefix=/forge/none")
"""No variables, no user site, no site-packages, and no bytecode beside the source is read or written, so that exactly
the shown source runs.
"""
ENVIRONMENT_FLAGS: Final = ("-E", "-s", "-B")


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
