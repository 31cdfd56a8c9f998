"""ModuleTools: the tools of one worker's `custom` and `external` blocks, loaded in hosts and kept up to date.

`load` gives Tools or raises ConfigError with every problem; while the program is untrusted it imports nothing and gives
none. `refresh`, called each turn, says what a changed module adds, changes or takes away: code that was changed is only
imported once `trusted` says so, and a module that no longer loads has no tools until it does. `aclose` ends all hosts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from operator import add
from pathlib import Path

from golem_forge.agent.files.block_schema import CustomBlock, ExternalBlock
from golem_forge.agent.files.toolset_blocks import worker_blocks
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.modules.host import HostPool, ModuleRefused, hosted_tool
from golem_forge.agent.modules.source import ModuleSource, PackageSource, SourceContext, SourceError
from golem_forge.config.program import Program
from golem_forge.config.schema import dotted_path
from golem_forge.config.yaml_file import YamlPath
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.events.redaction import Redactor
from golem_forge.policy.base import check_block
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.catalog import is_reserved
from golem_forge.tools.sources import CatalogChanges
from golem_forge.tools.tool import Tool


@dataclass(slots=True)
class _LoadedBlock:
    """One block and what is in force of it."""

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
        """None: nothing changed since the last refresh. `taken`: names of all tools there are, these included."""
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
        """Those in force."""
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
        """At the line of the key, or of what should contain it."""
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
    """What its block says of a tool that decides for itself, and that would not count."""
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
    """Which key of its block a problem is about."""
    if not isinstance(block, CustomBlock):
        return ""
    for key in ("tools", "prompts", "resources"):
        for index, name in enumerate(getattr(block, key)):
            if text.startswith((f"'{name}' in ", *(f"{kind} '{name}' not" for kind in ("Tool", "Prompt", "Resource")))):
                return f".{key}[{index}]"
    return ".module"
