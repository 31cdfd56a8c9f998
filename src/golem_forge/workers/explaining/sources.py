"""Sources: what a session has from its start and a look starts late: own tools, MCP servers, code of the program.

`look_for` puts into the catalog what could have a name, as a session does: the person's folders are read where one has
the name, a server that a person agreed to is asked where its cached list does not tell, modules are imported where the
program is trusted and nothing else has the name. `plan` gives the plan of an own tool without a build, a card or a
process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from golem_forge.sandbox.walls.levels import Level
from golem_forge.tools.tool import SourceKind
from golem_forge.workers.mcp.told import ask_its_server, look_at_servers
from golem_forge.workers.own_shop import has_tool_folder, has_tool_folders

if TYPE_CHECKING:
    from golem_forge.custom.offering import UserTools
    from golem_forge.orchestrator import Orchestrator
    from golem_forge.tools.context import ToolContext
    from golem_forge.tools.plan import Plan
    from golem_forge.tools.tool import Tool
    from golem_forge.workers.mcp.servers import SessionServers
    from golem_forge.workers.session_plan import WorkerPlan
    from golem_forge.workers.station import Station

_ABOUT_THEM: Final = ("create_custom_tool", "run_custom_tool")


@dataclass(slots=True)
class Late:
    """A station on a dry tree, and what is not in its catalog yet."""

    station: Station
    plan: WorkerPlan
    servers: SessionServers | None = None
    modules: Callable[[], Awaitable[None]] | None = None
    """Imports the program's modules and packages and admits their tools; None: there are none, or they are there."""
    dismiss: Callable[[], Awaitable[None]] | None = None
    """Ends what the worker started."""

    def __post_init__(self) -> None:
        if not self.plan.has_modules:
            self.modules = None
        if self.servers is not None:
            self.servers.pool.recall()
            look_at_servers(self.station)


class Sources:
    def __init__(self, path: Orchestrator, users: UserTools | None = None, late: Late | None = None) -> None:
        """`users`: the own tools that stand in the catalog already; `late`: None where everything does."""
        self._catalog = path.catalog
        self.users = users
        self._late = late

    async def look_for(self, name: str) -> None:
        """Raises ConfigError for a module that cannot be loaded: with it no session starts."""
        late = self._late
        if late is None:
            return
        own = late.plan.blocks.user_tools is not None and (name in _ABOUT_THEM or has_tool_folder(late.plan.home, name))
        if late.modules is not None and (own or self._is_exported(late, name)):
            await self._import_modules(late)  # first, as at a start: an own tool of that name is kept out then
        if own:
            self.place_own_tools()
        if self._is_there(name):
            return
        await ask_its_server(late.station, name)
        if late.modules is not None and not self._is_there(name):
            await self._import_modules(late)

    async def aclose(self) -> None:
        """Ends whatever was started for the look."""
        if self._late is not None:
            if self._late.dismiss is not None:
                await self._late.dismiss()
            await self._late.station.tree.parts.close()
            self.close()

    def close(self) -> None:
        """Where nothing was looked for, so that nothing was started."""
        if self._late is not None:
            station: Station | None = self._late.station
            while station is not None:
                station.close()
                station = station.parent
            self._late.station.tree.close()

    def place_own_tools(self) -> None:
        """Puts the person's own tools into the catalog, as the worker's block shows them."""
        late = self._late
        if late is None or self.users is not None or (block := late.plan.blocks.user_tools) is None:
            return
        from golem_forge.workers.user_tools import user_tools_for

        self.users = user_tools_for(late.station, block)
        self.users.refresh()

    def show_own_tools(self) -> None:
        """The same for a list: where there is no tool folder, nothing of `custom/` that costs time is loaded and
        nothing is written."""
        late = self._late
        if late is None or self.users is not None or (block := late.plan.blocks.user_tools) is None:
            return
        if has_tool_folders(late.plan.home):
            self.place_own_tools()
            return
        from golem_forge.custom.making.create_tool import shown_create_custom_tool
        from golem_forge.custom.run_alias import create_run_custom_tool

        if block.create:
            self._catalog.add(shown_create_custom_tool(), replace=True)
        self._catalog.add(create_run_custom_tool(lambda name, seconds: None, tuple), replace=True)

    async def plan(self, tool: Tool, values: dict[str, Any], ctx: ToolContext) -> Plan | None:
        """None: it is not one of the person's own tools. Raises what a session would: SandboxError, InputInvalid."""
        if self.users is None or tool.source is not SourceKind.CUSTOM or not self._is_own(tool):
            return None
        from golem_forge.custom.entry import Entry
        from golem_forge.custom.running.arguments import passed
        from golem_forge.custom.running.reach import reach_of
        from golem_forge.custom.running.touching import touched
        from golem_forge.tools.plan import Plan

        entry = self.users.shop.registry.look(tool.name)
        if not isinstance(entry, Entry):
            return None
        level = await ctx.walls.level() if ctx.walls is not None else Level.FULL
        touch = touched(entry, values, reach_of(entry.manifest, ctx), level)
        try:
            passed(entry.manifest, values, paths=touch.paths)
        except BaseException:
            touch.close()
            raise
        return Plan(run=_never, effects=touch.effects, targets=(f"digest {entry.digest}",), close=touch.close)

    def _is_own(self, tool: Tool) -> bool:
        """A session may have a tool of a module under the name of a folder; the folder is kept out then. One that is
        reached by `run_custom_tool` stands in no catalog."""
        if self.users is None:
            return False
        present = self._catalog.get(tool.name)
        return self.users.offers(tool.name) or present is None or present.source is SourceKind.NATIVE

    def _is_there(self, name: str) -> bool:
        catalog = self._catalog
        return catalog.aliases().get(name, name) in catalog or any(tool.name == name for tool in catalog.aside())

    @staticmethod
    def _is_exported(late: Late, name: str) -> bool:
        blocks = late.plan.blocks
        return any(name in block.tools for block in blocks.code)

    @staticmethod
    async def _import_modules(late: Late) -> None:
        load, late.modules = late.modules, None
        assert load is not None
        await load()


def _never() -> None:
    raise RuntimeError("a call that is only explained never runs")
