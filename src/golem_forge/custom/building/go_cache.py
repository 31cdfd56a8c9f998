"""GoCache: compiled packages of the standard library, shared by every build of one toolchain.

Only `warm` writes it, in walls that show no tool's source: it compiles what the standard library has under the given
import paths and nothing else. Builds of tools read it. Threat: a source that could break the compiler could otherwise
leave something behind that goes into every other tool. A build has a cache of its own, filled with links to this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.config.home import ForgeHome
from golem_forge.core.canonical import sha256_hex
from golem_forge.custom.building.go_module import BUILD_FLAGS, FIXED, GO_CACHE, OFFLINE
from golem_forge.custom.building.steps import ROOM, failure_text, step
from golem_forge.custom.building.toolchains import Go
from golem_forge.custom.building.waiting_lock import held
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.sandbox.walls.job import HostDirectory, Job

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import Walls

SECONDS: Final = 300.0
_STANDARD: Final = re.compile(r"[a-z][a-z0-9]*(?:/[a-z0-9][a-z0-9_]*){0,6}")
_INNER: Final = frozenset({"internal", "vendor", "unsafe", "cmd"})
_WARM: Final = "warm.json"


class GoCache:
    def __init__(self, home: ForgeHome, go: Go, walls: Callable[[Path], Walls]) -> None:
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
        return (HostDirectory(found, GO_CACHE),) if (found := self.directory) else ()

    def standard(self, named: Iterable[str]) -> frozenset[str]:
        """Of import paths that a source led to, those that are packages of this standard library."""
        return frozenset(
            path
            for path in named
            if _STANDARD.fullmatch(path)
            and _INNER.isdisjoint(path.split("/"))
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
                    os.symlink(os.path.join(GO_CACHE, below.name, name), below / name)

    async def warm(self, packages: frozenset[str]) -> None:
        """Compiles what is missing of these. Raises Unusable if the toolchain cannot even do that."""
        place = self._home.ensure("cache", "go", self._name)
        if self.directory and packages <= self._known(place):
            return
        async with held(place / ".lock"):
            known = self._known(place)
            if self.directory and packages <= known:
                return
            compiled = self._home.ensure("cache", "go", self._name, "compiled")
            # All that was ever asked for, since Go forgets what was not used for some days.
            wanted = sorted(packages | known)
            env = {**FIXED, **OFFLINE, "GOROOT": self._go.inner, "GOCACHE": ROOM, "GOPATH": "/tmp/go"}  # noqa: S108
            job = Job(
                argv=(f"{self._go.inner}/bin/go", "build", *BUILD_FLAGS, *wanted),
                env={**env, "GOMODCACHE": "/tmp/go/mod"},  # noqa: S108 - the walls' own
                shown=self._go.shown,
            )
            said = await step(self._walls(compiled), job, seconds=SECONDS)
            if not said.ok:
                raise Unusable(Code.BUILD_FAILED, failure_text(said, "compiling Go's standard library"))
            _write(place, wanted)

    @staticmethod
    def _known(place: Path) -> frozenset[str]:
        try:
            said = json.loads((place / _WARM).read_bytes())
        except (OSError, ValueError):
            return frozenset()
        return frozenset(each for each in said if isinstance(each, str)) if isinstance(said, list) else frozenset()


def _write(place: Path, packages: list[str]) -> None:
    new = place / f".{_WARM}-{secrets.token_hex(4)}"
    new.write_text(json.dumps(packages), encoding="utf-8")
    os.replace(new, place / _WARM)
