"""The environment of a Python script with dependencies: made by uv from wheels alone, in full walls.

Takes the snapshot and a working directory; leaves the environment in `out`. Refuses (Unusable) with uv's own words:
`dependencies_unavailable`. Nothing of a dependency is executed: no source is built, the environment's own Python is
never started, and bytecode is made by a Python that does not look into the environment (`-S`: no `.pth` file is read).
What a wheel may overwrite (`pyvenv.cfg`, `bin/python`) is believed by nobody: which interpreter walls must show is
known from before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from golem_forge.custom.building.steps import ROOM, Said, failure_text, needs_full_walls, step
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.entry import BUILD_DIR, TOOL_DIR
from golem_forge.sandbox.walls.job import HostDirectory, HostGrant, Job

if TYPE_CHECKING:
    from golem_forge.custom.building.interpreter import Interpreter
    from golem_forge.custom.building.sources import Sources
    from golem_forge.custom.building.toolchains import Uv
    from golem_forge.sandbox.walls.walls import Walls

SECONDS: Final = 300.0
_ENV: Final = {
    "UV_CACHE_DIR": f"{ROOM}/cache",
    "UV_NO_CONFIG": "1",
    "UV_NO_BUILD": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_NO_PROGRESS": "1",
    "UV_KEYRING_PROVIDER": "disabled",
    "VIRTUAL_ENV": f"{ROOM}/out",
    "NO_COLOR": "1",
}
_ALONE: Final = ("/bin/sh", "-c", 'PATH=/nowhere && exec "$@"', "sh")
"""It has to find no other program: not git, nor another Python."""
_NOISE: Final = ("Using ", "Creating virtual environment", "Activate with", "Resolved ", "Prepared ")


async def make_environment(
    uv: Uv,
    interpreter: Interpreter,
    walls: Walls,
    *,
    script: str,
    locked: bool,
    snapshot: str,
    sources: Sources,
    hosts: tuple[HostGrant, ...],
) -> None:
    """`script`: the entrypoint's name. Raises Unusable, SandboxError."""
    await needs_full_walls(walls)
    program = (*_ALONE, uv.inner, "--no-config")
    shown = (*uv.shown, *interpreter.shown)
    empty = Job(
        argv=(*program, "venv", "--no-project", "--python", interpreter.path, f"{ROOM}/out"), env=_ENV, shown=shown
    )
    _check(await step(walls, empty, seconds=SECONDS))
    filled = Job(
        argv=(
            *(*program, "sync", "--active", "--no-build", "--python", interpreter.path),
            *sources.flags,
            *(("--frozen",) if locked else ()),
            *(() if hosts else ("--offline",)),
            *("--script", f"{TOOL_DIR}/{script}"),
        ),
        env={**_ENV, **sources.env},
        hosts=hosts,
        shown=(HostDirectory(snapshot, TOOL_DIR), *shown, *sources.shown),
    )
    _check(await step(walls, filled, seconds=SECONDS))
    await _compile(walls, interpreter)


async def _compile(walls: Walls, interpreter: Interpreter) -> None:
    """Bytecode, since nothing can be written beside the sources later. What cannot be compiled is left as it is."""
    library = f"{ROOM}/out/lib/python{interpreter.version[0]}.{interpreter.version[1]}/site-packages"
    words = ("-m", "compileall", "-q", "-s", f"{ROOM}/out", "-p", BUILD_DIR, "--invalidation-mode", "unchecked-hash")
    job = Job(argv=(interpreter.path, "-I", "-S", *words, library), shown=interpreter.shown)
    await step(walls, job, seconds=SECONDS)


def _check(said: Said) -> None:
    if not said.ok:
        lines = [line for line in said.text.splitlines() if not line.startswith(_NOISE)]
        cleaned = replace(said, text="\n".join(lines))
        raise Unusable(Code.DEPENDENCIES_UNAVAILABLE, failure_text(cleaned, "uv"))
