"""A source of tools outside Forge: one tool module of a program, or one installed package.

`prepare` reads what is there now and returns a HostStart: its digest and what a host needs to load it. Nothing is
imported. Raises SourceError with the text a person reads: a file that is gone, a package that is not installed.

`locate_package` finds the object of an `external` block without importing anything: its import path, the directories
that hold the package, and a digest over its version and files. Raises ExternalError.

`host_interpreter` is the Python that module hosts run in: Forge's own, with its installed packages, shown read-only
inside the walls. Packages stand at `/opt/forge/python/…`, so that no traceback names a place of the host; the
interpreter itself stands where it was built to stand. Where there are no mounts (levels landlock and off) everything is
used in its own place. Raises ToolFailed for an interpreter whose home must stay hidden.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import site
import sysconfig
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.files.block_schema import CustomBlock, ExternalBlock
from golem_forge.agent.modules.host import HostStart
from golem_forge.agent.modules.protocol import zones_to_wire
from golem_forge.agent.trust import import_folders, scan_module
from golem_forge.core.errors import ConfigError, ToolFailed
from golem_forge.core.json import as_json, digest
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import nearest_remark
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.environment import EnvBlock, resolve_env
from golem_forge.sandbox.walls.model import HostDirectory, Job, Level
from golem_forge.sandbox.walls.toolchains import ForbiddenDirectories, own_python_directory
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.content_store import ContentStore, content_digest
from golem_forge.storage.home import ForgeHome
from golem_forge.storage.private_file import FileStamp, file_stamp


class SourceError(Exception):
    """Why its tools cannot be had, in words for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What every source of one worker shares."""

    root: Path
    """The program's."""
    home: ForgeHome
    walls: Walls
    redactor: Redactor | None

    def job(self, ready: HostInterpreter, env: EnvBlock | None, level: Level) -> Job:
        values = resolve_env(env, os.environ, self.redactor).values if env else {}
        return Job(
            argv=ready.argv,
            env=values,
            shown=ready.shown,
            limits=self.walls.limits,
            reads_only=level is Level.LANDLOCK,  # all that those walls can hold
        )

    def order(self, level: Level, roots: tuple[str, ...] = ()) -> dict[str, Any]:
        """What every `load` says: the zones, and that no program file but those of a snapshot is imported."""
        stands_at = {name: self.walls.mount_point(name, level) for name in self.walls.sandbox.zones}
        refused = [place for place in stands_at.values() if place]
        if level is not Level.FULL:
            refused.append(os.path.realpath(self.root))
        return {
            "zones": zones_to_wire(self.walls.sandbox, stands_at, read_only=level is Level.LANDLOCK),
            "refused": refused,
            "roots": list(roots),
        }


@dataclass(slots=True, kw_only=True)
class ModuleSource:
    """`custom`: a Python file of the program with the program files it imports."""

    block: CustomBlock
    folder: Path
    """Of the worker file: `module` is relative to it."""
    context: SourceContext
    _files: Mapping[str, bytes] = field(default_factory=dict)
    _stamps: dict[Path, FileStamp | None] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        return self.block.module

    def failed(self, why: str) -> str:
        """What a person reads when the module cannot be loaded."""
        return f"Failed to load custom tools from {self.shown}: {why}"

    def changed(self) -> bool:
        """Checks every place where a file that the module imports was, or could appear."""
        if not self._stamps:
            return True
        now = {path: file_stamp(path) for path in self._stamps}
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
            scan = scan_module(self.context.root, self._file())
        except ConfigError as error:
            self._files, self._stamps = {}, {path: file_stamp(path) for path in (*self._stamps, self._file())}
            raise SourceError(self.failed("; ".join(error.problems))) from None
        # A link, and what it leads to.
        visited = {*scan.visited, *(Path(os.path.realpath(path)) for path in scan.visited)}
        self._files, self._stamps = scan.files, {path: file_stamp(path) for path in visited}
        return scan.files

    def digest(self) -> str:
        return content_digest(self._files)

    def paths(self) -> tuple[str, ...]:
        """Of the files its tools are made from, where they really are."""
        return tuple(os.path.realpath(self.context.root / name) for name in self._files)

    async def prepare(self) -> HostStart:
        """Of the files as they were last read."""
        around, files = self.context, self._files
        store = ContentStore(around.home)
        snapshot = store.put(files)
        level = await around.walls.level()
        real = str(snapshot.path.resolve())
        place = SNAPSHOT if level is Level.FULL else real
        ready = host_interpreter(level, forge_home=around.home.path).with_directory(HostDirectory(real, place))

        def job() -> Job:
            store.check(snapshot)
            return around.job(ready, self.block.env, level)

        order = {
            **around.order(level, (place,)),
            "file": os.path.join(place, next(iter(files))),
            "folders": [os.path.join(place, name) for name in import_folders(around.root, self._file())],
            "names": list(self.block.tools),
            "offers": {"prompts": list(self.block.prompts), "resources": list(self.block.resources)},
            "shown": self.shown,
        }
        return HostStart(digest=snapshot.digest, order=order, job=job)

    def _file(self) -> Path:
        return self.folder / self.block.module


@dataclass(slots=True, kw_only=True)
class PackageSource:
    """`external`: an installed distribution. An update counts from the next session on; until then it is not used.

    Threat: a package that is installed as a link to its sources, where a model may write: approval was for other code.
    """

    block: ExternalBlock
    context: SourceContext

    @property
    def shown(self) -> str:
        return self.block.import_path or f"entry point '{self.block.entry_point}' of {self.block.package}"

    def failed(self, why: str) -> str:
        return f"Failed to load external tools from {self.shown}: {why}"

    def paths(self) -> tuple[str, ...]:
        """None that could count before the next session."""
        return ()

    async def prepare(self) -> HostStart:
        around = self.context
        try:
            found = locate_package(self.block)
        except ExternalError as error:
            raise SourceError(self.failed(str(error))) from None
        level = await around.walls.level()
        ready = host_interpreter(
            level, forge_home=around.home.path, further=(found.directory,), packages=found.packages
        )
        order = {
            **around.order(level, (found.directory, *found.packages)),
            "import": found.import_path,
            "config": as_json(self.block.config),
            "names": list(self.block.tools),
            "shown": self.shown,
        }

        def job() -> Job:
            if _locate_or_none(self.block) != found:
                raise ToolFailed(f"the package '{self.block.package}' was changed; a new session uses it again")
            return around.job(ready, self.block.env, level)

        return HostStart(digest=found.digest, order=order, job=job)


def _locate_or_none(block: ExternalBlock) -> LocatedPackage | None:
    try:
        return locate_package(block)
    except (ExternalError, OSError):
        return None


ENTRY_POINT_GROUP: Final = "golem_forge.toolsets"
_MOST_FILES: Final = 2000


class ExternalError(Exception):
    """The text says what is missing and what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedPackage:
    import_path: str
    """`acme_tools.web:web_search_tools`."""
    directory: str
    """Where packages are installed, this one among them."""
    packages: tuple[str, ...]
    """Directories of packages that are installed as a link to their sources. Only they are shown, not what lies
    around them."""
    digest: str


def locate_package(block: ExternalBlock) -> LocatedPackage:
    try:
        distribution = metadata.distribution(block.package)
    except (metadata.PackageNotFoundError, ValueError):
        raise ExternalError(
            f"Package '{block.package}' is not installed where Forge is; install it there (pip install …)"
        ) from None
    path = _entry_point(distribution, block) if block.entry_point else _import_path(distribution, block)
    top = path.partition(":")[0].partition(".")[0]
    return LocatedPackage(
        import_path=path,
        directory=(installed := os.path.realpath(str(distribution.locate_file("")))),
        packages=tuple(path for path in _packages(top) if os.path.dirname(path) != installed),
        digest=_package_digest(distribution, path, top),
    )


def _entry_point(distribution: metadata.Distribution, block: ExternalBlock) -> str:
    points = {point.name: point.value for point in distribution.entry_points if point.group == ENTRY_POINT_GROUP}
    if block.entry_point in points:
        value = points[block.entry_point].partition("[")[0].strip()
        return value if ":" in value else f"{value}:{block.entry_point}"
    have = ", ".join(sorted(points)) or "none"
    hint = nearest_remark(block.entry_point, points)
    raise ExternalError(
        f"Package '{block.package}' has no entry point '{block.entry_point}'{hint} in group "
        f"{ENTRY_POINT_GROUP}. Found: {have}"
    )


def _import_path(distribution: metadata.Distribution, block: ExternalBlock) -> str:
    if ":" in block.import_path:
        return block.import_path
    return f"{_top_module(distribution, block)}:{block.import_path}"


def _top_module(distribution: metadata.Distribution, block: ExternalBlock) -> str:
    """What a bare name is an attribute of: the module named like the package, else the only one it brings."""
    listed = (distribution.read_text("top_level.txt") or "").split()
    if not listed:
        firsts = (file.parts[0] for file in distribution.files or () if file.suffix == ".py")
        listed = [name.removesuffix(".py") for name in firsts if not name.endswith((".dist-info", ".."))]
    names = list(dict.fromkeys(listed))
    likely = block.package.replace("-", "_").replace(".", "_")
    for name in names:
        if name.lower() == likely.lower():
            return name
    return names[0] if len(names) == 1 else likely


def _packages(top: str) -> list[str]:
    """The real directories of a package, wherever it is found."""
    try:
        spec = importlib.util.find_spec(top)  # of a top-level name: nothing is imported for it
    except (ImportError, ValueError):
        return []
    places = spec.submodule_search_locations if spec is not None else None
    return [os.path.realpath(place) for place in places or () if os.path.isdir(place)]


def _package_digest(distribution: metadata.Distribution, path: str, top: str) -> str:
    """Over version, entry and every Python file of the package: an update is a new definition."""
    files: dict[str, str] = {}
    found = [Path(package, file) for package in _packages(top) for file in sorted(Path(package).rglob("*.py"))]
    found = found or [Path(str(distribution.locate_file(f"{top}.py")))]
    for file in found[:_MOST_FILES]:
        if file.is_file():
            files[os.fspath(file)] = hashlib.sha256(file.read_bytes()).hexdigest()
    record = hashlib.sha256((distribution.read_text("RECORD") or "").encode()).hexdigest()
    return digest(
        {"v": 1, "version": distribution.version, "import": path, "record": record, "files": sorted(files.values())}
    )


_INNER: Final = "/opt/forge/python"
_OWN: Final = f"{_INNER}/forge"
_PACKAGES: Final = f"{_INNER}/packages"
SNAPSHOT: Final = "/opt/forge/module"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInterpreter:
    argv: tuple[str, ...]
    shown: tuple[HostDirectory, ...]

    def with_directory(self, directory: HostDirectory) -> HostInterpreter:
        return HostInterpreter(argv=self.argv, shown=(*self.shown, directory))


def host_interpreter(
    level: Level, *, forge_home: Path, further: Iterable[str] = (), packages: Iterable[str] = ()
) -> HostInterpreter:
    """`further`: where packages are installed besides Forge's own place; `packages`: single ones, each shown alone."""
    forbidden = ForbiddenDirectories(os.path.expanduser("~"), os.fspath(forge_home))
    base, why = own_python_directory(forge_home)
    if why:
        raise ToolFailed(f"Module tools cannot run: the directory of this Python {why}. Install Forge in another one.")
    package = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
    libraries = [path for path in _libraries(further) if not _why_forbidden(forbidden, path)]
    full = level is Level.FULL
    if not full:
        own_library = os.path.dirname(package)
        libraries = [own_library, *(path for path in libraries if path != own_library)]
    places = [HostDirectory(path, f"{_INNER}/{number}" if full else path) for number, path in enumerate(libraries)]
    own = HostDirectory(package, f"{_OWN}/{os.path.basename(package)}" if full else package)
    program = os.path.join(own.inner, "agent", "modules", "host_child.py")
    places += [HostDirectory(one, f"{_PACKAGES}/{os.path.basename(one)}") for one in packages if full]
    search = list(dict.fromkeys((os.path.dirname(own.inner), *map(_search_path, places))))
    return HostInterpreter(
        argv=(base_python(), "-I", "-S", "-B", program, *search),
        shown=(*((HostDirectory(base, base),) if base else ()), own, *places),
    )


def _search_path(place: HostDirectory) -> str:
    """What goes on Python's path for it."""
    return _PACKAGES if place.inner.startswith(f"{_PACKAGES}/") else place.inner


def _libraries(further: Iterable[str]) -> list[str]:
    paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if site.ENABLE_USER_SITE:
        paths.append(site.getusersitepackages())
    found = (os.path.realpath(path) for path in (*paths, *further) if os.path.isdir(path))
    return list(dict.fromkeys(found))


def _why_forbidden(forbidden: ForbiddenDirectories, path: str) -> str:
    return forbidden.why(path, path, os.stat(path))
