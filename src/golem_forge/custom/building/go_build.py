"""A Go tool: from source to one static binary, in full walls, with the standard library from a shared cache.

Takes the snapshot and a working directory; leaves `out/<binary>` there. Refuses (Unusable) with the compiler's own
`file:line:` text. Modules are fetched in a step of their own, the only one with a network; nothing of the tool or of a
module is executed: no cgo, no generate, no toolexec, no version control.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.custom.building.go_cache import SECONDS, GoCache
from golem_forge.custom.building.go_module import BUILD_FLAGS, FIXED, MODULE, OFFLINE, Module, debug_module
from golem_forge.custom.building.steps import ROOM, failure_text, needs_full_walls, step
from golem_forge.custom.building.toolchains import ELF
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.entry import TOOL_DIR
from golem_forge.sandbox.walls.job import HostDirectory, Job

if TYPE_CHECKING:
    from golem_forge.custom.building.sources import Sources
    from golem_forge.custom.building.toolchains import Go
    from golem_forge.custom.registry.folder import FolderFiles
    from golem_forge.sandbox.walls.job import HostGrant
    from golem_forge.sandbox.walls.walls import Walls

_IN_FOLDER: Final = ("/bin/sh", "-c", f'cd {TOOL_DIR} && PATH=/nowhere && exec "$@"', "sh")
"""Go finds its own parts without PATH. What it would find there (git, a C compiler) could be made to run code of the
tool's: the settings of a repository name programs."""
_TEMPORARY: Final = "intermediate"
_CACHE: Final = "gocache"
_IMPORTS: Final = "{{if .Standard}}{{.ImportPath}}{{end}}"


class GoBuild:
    def __init__(self, go: Go, cache: GoCache, module: Module, walls: Walls, work: Path, snapshot: str) -> None:
        self._go = go
        self._cache = cache
        self._module = module
        self._walls = walls
        self._work = work
        self._tool = HostDirectory(snapshot, TOOL_DIR)

    async def run(self, binary: str, files: FolderFiles, sources: Sources, hosts: tuple[HostGrant, ...]) -> None:
        """Raises Unusable, SandboxError."""
        await needs_full_walls(self._walls)
        for name in ("out", _TEMPORARY, MODULE):
            (self._work / name).mkdir(mode=0o700)
        _put(self._work / MODULE, self._module)
        if self._module.fetches:
            await self._fetch(sources, hosts)
        self._cache.link_into(self._work / _CACHE)
        await self._cache.warm(self._cache.standard(await self._imports()))
        self._cache.link_into(self._work / _CACHE)
        said = await step(
            self._walls,
            self._job("build", *BUILD_FLAGS, *self._module.flags, "-o", f"{ROOM}/out/{binary}", "."),
            seconds=SECONDS,
        )
        if not said.ok:
            raise Unusable(Code.BUILD_FAILED, failure_text(said, "the Go compiler"))
        _check_binary(self._work / "out" / binary)
        self._keep_source_module(files)

    async def _fetch(self, sources: Sources, hosts: tuple[HostGrant, ...]) -> None:
        flags = [flag for flag in self._module.flags if flag.startswith("-modfile")]
        env = {**sources.env, "GOFLAGS": " ".join(("-modcacherw", *flags))}
        said = await step(
            self._walls, self._job("mod", "download", hosts=hosts, env=env, shown=sources.shown), seconds=SECONDS
        )
        if not said.ok:
            raise Unusable(Code.DEPENDENCIES_UNAVAILABLE, failure_text(said, "fetching Go modules"))

    async def _imports(self) -> list[str]:
        """Import paths that the source leads to. A source that cannot be read leads nowhere: its build says why."""
        said = await step(
            self._walls,
            self._job("list", "-e", "-deps", *BUILD_FLAGS, *self._module.flags, "-f", _IMPORTS, "."),
            seconds=SECONDS,
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
            argv=(*_IN_FOLDER, f"{self._go.inner}/bin/go", *words),
            env={
                **FIXED,
                **OFFLINE,
                "GOROOT": self._go.inner,
                "GOCACHE": f"{ROOM}/{_CACHE}",
                "GOPATH": f"{ROOM}/gopath",
                "GOMODCACHE": f"{ROOM}/{MODULE}/mod",
                "GOTMPDIR": f"{ROOM}/{_TEMPORARY}",
                **(env or {}),
            },
            hosts=hosts,
            shown=(self._tool, *self._go.shown, *self._cache.shown, *shown),
        )

    def _keep_source_module(self, files: FolderFiles) -> None:
        """Beside the binary, for whoever builds the same source again to look for a mistake."""
        os.rename(self._work / MODULE, self._work / "out" / MODULE)
        if overlay := debug_module(files, self._go).files.get("overlay.json"):
            (self._work / "out" / MODULE / "overlay.json").write_bytes(overlay)


def _put(place: Path, module: Module) -> None:
    for name, content in module.files.items():
        (place / name).write_bytes(content)


def _check_binary(path: Path) -> None:
    """A package that is no program is compiled, too, and leaves something else or nothing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise _no_program() from None
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode) or file.read(len(ELF)) != ELF:
            raise _no_program()


def _no_program() -> Unusable:
    return Unusable(Code.BUILD_FAILED, "the source makes no program: it must be `package main` with a func main()")
