"""A source of tools outside Forge: one tool module of a program, or one installed package.

`prepare` reads what is there right now and gives a Prepared: its digest and what a host needs to load it. Nothing is
imported. Refuses (SourceError) with the text a person reads: a file that is gone, a package that is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golem_forge.config.home import ForgeHome
from golem_forge.config.stamps import Stamp, stamp
from golem_forge.core.errors import ConfigError, ToolFailed
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.store import ContentStore, content_digest
from golem_forge.sandbox.walls.environment import EnvBlock, resolve
from golem_forge.sandbox.walls.job import HostDirectory, Job
from golem_forge.sandbox.walls.levels import Level
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.workers.blocks import CustomBlock, ExternalBlock
from golem_forge.workers.module_files import import_folders, scan_module
from golem_forge.workers.modules.external import ExternalError, Located, locate
from golem_forge.workers.modules.host import Loading
from golem_forge.workers.modules.host_context import zones_to_wire
from golem_forge.workers.modules.interpreter import SNAPSHOT, Interpreter, interpreter


class SourceError(Exception):
    """Why its tools cannot be had, in words for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every source of one worker shares."""

    root: Path
    """The program's."""
    home: ForgeHome
    walls: Walls
    redactor: Redactor | None

    def job(self, ready: Interpreter, env: EnvBlock | None, level: Level) -> Job:
        values = resolve(env, os.environ, self.redactor).values if env else {}
        return Job(
            argv=ready.argv,
            env=values,
            shown=ready.shown,
            limits=self.walls.limits,
            reads_only=level is Level.LANDLOCK,  # all that those walls can hold
        )

    def order(self, level: Level, roots: tuple[str, ...] = ()) -> dict[str, Any]:
        """What every `load` says: the zones, and that no program file but those of a snapshot is imported."""
        stands_at = {name: self.walls.stands_at(name, level) for name in self.walls.sandbox.zones}
        refused = [place for place in stands_at.values() if place]
        if level is not Level.FULL:
            refused.append(os.path.realpath(self.root))
        return {
            "zones": zones_to_wire(self.walls.sandbox, stands_at, read_only=level is Level.LANDLOCK),
            "refused": refused,
            "roots": list(roots),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    digest: str
    loading: Loading


@dataclass(slots=True, kw_only=True)
class ModuleSource:
    """`custom`: a Python file of the program with the program files it imports."""

    block: CustomBlock
    folder: Path
    """Of the worker file: `module` is relative to it."""
    around: Surroundings
    _files: Mapping[str, bytes] = field(default_factory=dict)
    _stamps: dict[Path, Stamp | None] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        return self.block.module

    def failed(self, why: str) -> str:
        """What a person reads when the module cannot be loaded."""
        return f"Failed to load custom tools from {self.shown}: {why}"

    def changed(self) -> bool:
        """By a look at every place where a file was, or could appear, that the module imports."""
        if not self._stamps:
            return True
        now = {path: stamp(path) for path in self._stamps}
        if now == self._stamps and all(each.settled for each in now.values() if each):
            return False
        before = self._files
        try:
            return self.read() != before
        except SourceError:
            return True

    def read(self) -> Mapping[str, bytes]:
        """The bytes that are there now."""
        try:
            scan = scan_module(self.around.root, self._file())
        except ConfigError as error:
            self._files, self._stamps = {}, {path: stamp(path) for path in (*self._stamps, self._file())}
            raise SourceError(self.failed("; ".join(error.problems))) from None
        looked = {*scan.looked, *(Path(os.path.realpath(path)) for path in scan.looked)}  # a link, and what it leads to
        self._files, self._stamps = scan.files, {path: stamp(path) for path in looked}
        return scan.files

    def digest(self) -> str:
        return content_digest(self._files)

    def paths(self) -> tuple[str, ...]:
        """Of the files its tools are made from, where they really are."""
        return tuple(os.path.realpath(self.around.root / name) for name in self._files)

    async def prepare(self) -> Prepared:
        """Of the files as they were last read."""
        around, files = self.around, self._files
        store = ContentStore(around.home)
        snapshot = store.put(files)
        level = await around.walls.level()
        real = str(snapshot.path.resolve())
        place = SNAPSHOT if level is Level.FULL else real
        ready = interpreter(level, forge_home=around.home.path).with_directory(HostDirectory(real, place))

        def job() -> Job:
            store.check(snapshot)
            return around.job(ready, self.block.env, level)

        order = {
            **around.order(level, (place,)),
            "file": os.path.join(place, next(iter(files))),
            "folders": [os.path.join(place, name) for name in import_folders(around.root, self._file())],
            "names": list(self.block.tools),
            "shown": self.shown,
        }
        return Prepared(digest=snapshot.digest, loading=Loading(order=order, job=job))

    def _file(self) -> Path:
        return self.folder / self.block.module


@dataclass(slots=True, kw_only=True)
class PackageSource:
    """`external`: an installed distribution. An update counts from the next session on; until then it is not used.

    Threat: a package that is installed as a link to its sources, where a model may write: approval was for other code.
    """

    block: ExternalBlock
    around: Surroundings

    @property
    def shown(self) -> str:
        return self.block.import_path or f"entry point '{self.block.entry_point}' of {self.block.package}"

    def failed(self, why: str) -> str:
        return f"Failed to load external tools from {self.shown}: {why}"

    def paths(self) -> tuple[str, ...]:
        """None that could count before the next session."""
        return ()

    async def prepare(self) -> Prepared:
        around = self.around
        try:
            found = locate(self.block)
        except ExternalError as error:
            raise SourceError(self.failed(str(error))) from None
        level = await around.walls.level()
        ready = interpreter(level, forge_home=around.home.path, further=(found.directory,), packages=found.packages)
        order = {
            **around.order(level, (found.directory, *found.packages)),
            "import": found.import_path,
            "names": list(self.block.tools),
            "shown": self.shown,
        }

        def job() -> Job:
            if _located(self.block) != found:
                raise ToolFailed(
                    f"the package '{self.block.package}' was changed; it is used again from a new session on"
                )
            return around.job(ready, self.block.env, level)

        return Prepared(digest=found.digest, loading=Loading(order=order, job=job))


def _located(block: ExternalBlock) -> Located | None:
    try:
        return locate(block)
    except (ExternalError, OSError):
        return None
