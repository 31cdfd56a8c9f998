"""ModuleTools: the tools of one worker's `custom` and `external` blocks, loaded in module hosts and kept up to date.

`load` gives Tools or raises ConfigError with every problem; while the program is untrusted it imports nothing and gives
none. `refresh`, called each turn, says what a changed module adds, changes or takes away: changed code is imported only
once `trusted` says so, and a module that no longer loads has no tools until it does. `aclose` ends all hosts.

A source is one tool module of a program (ModuleSource) or one installed package (PackageSource). Its `prepare` reads
what is there now and returns a HostStart: its digest and what a host needs to load it. Nothing is imported. It raises
SourceError with the text a person reads: a file that is gone, a package that is not installed. Hosts run the
interpreter that `host_interpreter` gives.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import site
import sysconfig
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from importlib import metadata
from operator import add
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.files.toolset_blocks import worker_blocks
from golem_forge.agent.files.worker import CustomBlock, ExternalBlock, Worker
from golem_forge.agent.modules.host import HostPool, HostStart, ModuleRefused, hosted_tool
from golem_forge.agent.modules.protocol import zones_to_wire
from golem_forge.agent.trust import import_folders, scan_module
from golem_forge.config.program import Program
from golem_forge.config.validation import dotted_path
from golem_forge.config.yaml_file import YamlPath
from golem_forge.core.errors import ConfigError, ForgeError, ToolFailed
from golem_forge.core.json import as_json, digest
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import nearest_remark
from golem_forge.events.redaction import Redactor
from golem_forge.policy.base import check_block
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.environment import EnvBlock, resolve_env
from golem_forge.sandbox.walls.model import HostDirectory, Job, Level
from golem_forge.sandbox.walls.toolchains import ForbiddenDirectories, own_python_directory
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.content_store import ContentStore, content_digest
from golem_forge.storage.home import FileStamp, ForgeHome, file_stamp
from golem_forge.tools.catalog import CatalogChanges, is_reserved
from golem_forge.tools.tool import Tool


@dataclass(slots=True)
class _LoadedBlock:
    source: ModuleSource | PackageSource
    tools: dict[str, Tool] = field(default_factory=dict)
    digest: str = ""
    pool: HostPool | None = None
    waits_for_trust: bool = False
    unread: list[str] = field(default_factory=list)
    """Why it could not be read at the last refresh; said once."""


class ModuleTools:
    def __init__(
        self,
        *,
        worker: Worker,
        program: Program,
        home: ForgeHome,
        walls: Walls,
        redactor: Redactor | None,
        trusted: Callable[[Mapping[str, bytes]], bool],
    ) -> None:
        """`trusted`: whether the program is trusted with exactly these bytes of its files (name below the root)."""
        around = SourceContext(root=program.root, home=home, walls=walls, redactor=redactor)
        folder = worker.path.parent if worker.path is not None else program.root
        blocks = worker_blocks(worker)
        self._worker = worker
        self._trusted = trusted
        self._walls = walls
        self._blocks = [
            *(_LoadedBlock(ModuleSource(block=one, folder=Path(folder), context=around)) for one in blocks.custom),
            *(_LoadedBlock(PackageSource(block=one, context=around)) for one in blocks.external),
        ]
        self._retiring: set[asyncio.Task[None]] = set()
        self._pools: list[HostPool] = []

    async def load(self) -> list[Tool]:
        """Imports everything for the first time. Raises ConfigError."""
        problems: list[str] = []
        for block in self._blocks:
            if not self._readable(block, problems):
                continue
            try:
                await self._load_block(block)
            except SourceError as error:
                problems += _texts(block, error)
            problems += _ineffective_approvals(block)
        if problems:
            await self.aclose()
            raise ConfigError(*problems)
        return [tool for block in self._blocks for tool in block.tools.values()]

    def exposed(self) -> dict[str, list[str]]:
        """Block (`custom`, `custom[1]`, `external`) → names of its tools; a block that was not loaded is not there."""
        return {block.source.block.key: list(block.tools) for block in self._blocks if block.pool is not None}

    async def refresh(self, taken: Collection[str] = ()) -> CatalogChanges | None:
        """Loads changed modules again; None if nothing changed. `taken`: names of all tools, these included."""
        found = [seen for block in self._blocks if (seen := await self._check_block(block, taken)) is not None]
        return reduce(add, found) if found else None

    async def aclose(self) -> None:
        pools, self._pools = self._pools, []
        await asyncio.gather(*(pool.aclose() for pool in pools))

    @property
    def waits_for_trust(self) -> bool:
        """Whether a changed module waits for the program to be trusted anew; it has no tools until a refresh then."""
        return any(block.waits_for_trust for block in self._blocks)

    @property
    def pools(self) -> tuple[HostPool, ...]:
        """Returns the pools in use."""
        return tuple(block.pool for block in self._blocks if block.pool is not None)

    def _readable(self, block: _LoadedBlock, problems: list[str]) -> bool:
        """Whether its code may be imported: the bytes that were read are the trusted ones."""
        source = block.source
        try:
            read = source.read() if isinstance(source, ModuleSource) else {}
            block.waits_for_trust = not self._trusted(read)
        except SourceError as error:
            block.waits_for_trust = False  # there is nothing to trust, and nothing more to say until it changes
            problems.append(_with_origin(block, str(error)))
            return False
        return not block.waits_for_trust

    async def _check_block(self, block: _LoadedBlock, taken: Collection[str]) -> CatalogChanges | None:
        source = block.source
        if isinstance(source, PackageSource):
            if not block.waits_for_trust:
                return None
        elif not source.changed() and not block.waits_for_trust:
            return None
        waited = block.waits_for_trust
        problems: list[str] = []
        if not self._readable(block, problems):
            if (waited and block.waits_for_trust and not problems) or (problems and problems == block.unread):
                return None  # as before: nobody has trusted it yet, or it still cannot be read
            block.unread = problems
            text = f"{source.shown} was changed; its tools work again when you trust the program again (`forge trust`)"
            return self._withdraw(block, problems or [_with_origin(block, text)])
        if isinstance(source, ModuleSource) and block.pool is not None and source.digest() == block.digest:
            return None  # touched, or changed back
        before, block.unread = block.tools, []
        try:
            await self._load_block(block, frozenset(taken) - before.keys())
        except SourceError as error:
            return self._withdraw(block, _texts(block, error))
        if problems := _ineffective_approvals(block):
            return self._withdraw(block, problems)
        return CatalogChanges(
            tools=tuple(block.tools.values()),
            added=tuple(name for name in block.tools if name not in before),
            changed=tuple(name for name in block.tools if name in before),
            removed=tuple(name for name in before if name not in block.tools),
        )

    def _withdraw(self, block: _LoadedBlock, diagnostics: list[str]) -> CatalogChanges:
        removed = tuple(block.tools)
        self._retire(block)
        return CatalogChanges(removed=removed, diagnostics=tuple(diagnostics))

    async def _load_block(self, block: _LoadedBlock, taken: Collection[str] = ()) -> None:
        """Loads what was read last and puts it in force. Raises SourceError; what was in force still is then.

        Threat: a tool may be called otherwise than its export, so a changed module could take the name, and with it
        the approval, of another tool.
        """
        source = block.source
        pool: HostPool | None = None
        try:
            prepared = await source.prepare()
            pool = HostPool(self._walls, prepared)
            self._pools.append(pool)
            found = [hosted_tool(each, pool, prepared.digest) for each in await pool.load()]
            _check_reserved(source.block, found)
            tools = {tool.name: tool for tool in found}
            for tool in found:
                tool.made_from = source.paths()
            if len(tools) != len(found):
                raise ModuleRefused("two of its tools have the same name")
            if clash := next((name for name in tools if name in taken), ""):
                raise ModuleRefused(f"there is another tool named '{clash}'; rename one of them")
        except asyncio.CancelledError:
            block.waits_for_trust = True  # interrupted half-way: the next turn looks again
            await self._drop(pool)
            raise
        except (ModuleRefused, ForgeError, ValueError) as error:
            await self._drop(pool)
            if isinstance(error, ModuleRefused) and error.problems:
                raise SourceError(*(self._key_problem(block, *each) for each in error.problems)) from None
            complete = isinstance(error, ModuleRefused) and error.complete
            raise SourceError(str(error) if complete else source.failed(str(error))) from None
        self._retire(block)
        block.tools, block.digest, block.pool = tools, prepared.digest, pool

    def _key_problem(self, block: _LoadedBlock, place: tuple[str | int, ...], text: str) -> str:
        """Places a problem at the line of the key, or of the block that should contain it."""
        path: YamlPath = ("toolsets", block.source.block.key, "config", *place)
        above = (dotted_path(path[:end]) for end in range(len(path), 0, -1))
        known = next((key for key in above if key in self._worker.lines), "")
        return f"{self._worker.at(known)}: {dotted_path(path)}: {text}"

    async def _drop(self, pool: HostPool | None) -> None:
        if pool is not None:
            self._pools.remove(pool)
            await pool.aclose()

    def _retire(self, block: _LoadedBlock) -> None:
        """Calls that run keep their host; there will be no others."""
        pool, block.pool, block.tools, block.digest = block.pool, None, {}, ""
        if pool is not None:
            pool.withdraw()
            task = asyncio.get_running_loop().create_task(pool.retire())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)


def _check_reserved(block: CustomBlock | ExternalBlock, found: Iterable[Tool]) -> None:
    """Threat: a package whose tool takes a name of Forge's own. Only what a file lists as prompt or resource does."""
    offers = isinstance(block, CustomBlock) and bool(block.prompts or block.resources)
    for tool in found:
        word = tool.name.partition(":")[0]
        if is_reserved(tool.name) and not (offers and word in ("prompt", "resource", "complete")):
            raise ModuleRefused(
                f"a tool cannot be called '{tool.name}': names that begin with '{word}:' are reserved for Forge"
            )


def _ineffective_approvals(block: _LoadedBlock) -> list[str]:
    """Returns the block's approval settings that have no effect because the tool decides for itself."""
    key = block.source.block.key
    errors = check_block(block.source.block.approval, block.tools)[0]
    return [error.replace(": approval.", f": toolsets.{key}.approval.", 1).removeprefix(": ") for error in errors]


def _texts(block: _LoadedBlock, error: SourceError) -> list[str]:
    """Several were said of single keys, with their places."""
    given = [str(each) for each in error.args]
    return [
        each if f" toolsets.{block.source.block.key}.config" in each else _with_origin(block, each) for each in given
    ]


def _with_origin(block: _LoadedBlock, text: str) -> str:
    said = block.source.block
    return f"{said.origin}: toolsets.{said.key}{_key_below(said, text)}: {text}" if said.origin else text


def _key_below(block: CustomBlock | ExternalBlock, text: str) -> str:
    """Returns the key of the block that a problem is about."""
    if not isinstance(block, CustomBlock):
        return ""
    for key in ("tools", "prompts", "resources"):
        for index, name in enumerate(getattr(block, key)):
            if text.startswith((f"'{name}' in ", *(f"{kind} '{name}' not" for kind in ("Tool", "Prompt", "Resource")))):
                return f".{key}[{index}]"
    return ".module"


class SourceError(Exception):
    """Why its tools cannot be had, in words for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What all sources of one worker share."""

    root: Path
    """The program's directory."""
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
        """Returns the common part of every `load`: the zones, and that only program files of a snapshot may be
        imported.
        """
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
    """The folder of the worker file, to which `module` is relative."""
    context: SourceContext
    _files: Mapping[str, bytes] = field(default_factory=dict)
    _stamps: dict[Path, FileStamp | None] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        return self.block.module

    def failed(self, why: str) -> str:
        """Returns the error text for a module that cannot be loaded."""
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
        """Reads the present bytes of the files."""
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
        """Returns the real paths of the files that its tools are made from."""
        return tuple(os.path.realpath(self.context.root / name) for name in self._files)

    async def prepare(self) -> HostStart:
        """Prepares a host for the files as they were last read."""
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
        """Returns nothing: changes of a package count from the next session on."""
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
    """The object to import, e.g. `acme_tools.web:web_search_tools`."""
    directory: str
    """The directory in which this and other packages are installed."""
    packages: tuple[str, ...]
    """Directories of packages that are installed as a link to their sources. Only they are shown, not what lies
    around them."""
    digest: str


def locate_package(block: ExternalBlock) -> LocatedPackage:
    """The object of an `external` block, found without an import: its import path, the directories that hold the
    package, and a digest over its version and files. Raises ExternalError."""
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
    """Returns the module that has a bare name: the one named like the package, else the only one it brings."""
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
    """The Python that module hosts run in: Forge's own, with its installed packages, shown read-only inside the walls.
    Packages stand at `/opt/forge/python/…`, so that no traceback names a place of the host; the interpreter itself
    stands where it was built to stand. Where there are no mounts (levels landlock and off) everything is used in its
    own place. Raises ToolFailed for an interpreter whose home must stay hidden.

    `further`: where packages are installed besides Forge's own place; `packages`: single ones, each shown alone.
    """
    forbidden = ForbiddenDirectories(os.path.expanduser("~"), os.fspath(forge_home))
    base, why = own_python_directory(forge_home)
    if why:
        raise ToolFailed(f"Module tools cannot run: the directory of this Python {why}. Install Forge in another one.")
    package = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
    libraries = [path for path in _libraries(further) if not forbidden.why(path, path, os.stat(path))]
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
    """Returns the entry for Python's path."""
    return _PACKAGES if place.inner.startswith(f"{_PACKAGES}/") else place.inner


def _libraries(further: Iterable[str]) -> list[str]:
    paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if site.ENABLE_USER_SITE:
        paths.append(site.getusersitepackages())
    found = (os.path.realpath(path) for path in (*paths, *further) if os.path.isdir(path))
    return list(dict.fromkeys(found))
