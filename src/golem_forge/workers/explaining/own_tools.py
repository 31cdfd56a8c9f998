"""The person's own tools, to be judged and never run: what a call would touch is in its tool.yaml and its arguments.

Gives plans without a build, a card or a process: the walls are taken to be full, as `forge sandbox explain` takes them.
Folders are read only where a call names one, so that explaining anything else writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from golem_forge.config.home import ForgeHome
    from golem_forge.custom.offering import UserTools
    from golem_forge.custom.workshop import Workshop
    from golem_forge.tools.catalog import Catalog
    from golem_forge.tools.context import ToolContext
    from golem_forge.tools.plan import Plan
    from golem_forge.tools.tool import Tool

_ABOUT_THEM: Final = ("create_custom_tool", "run_custom_tool")


class OwnTools:
    def __init__(self, catalog: Catalog, home: ForgeHome, placed: UserTools | None = None) -> None:
        """`placed`: those of a session, which stand in the catalog already."""
        self._catalog = catalog
        self._home = home
        self._placed = placed
        self._shop: Workshop | None = placed.shop if placed is not None else None
        self._added = placed is not None

    def look_for(self, name: str) -> None:
        """Puts them into the catalog, if this name could be one of them."""
        if self._added or (name not in _ABOUT_THEM and not self._has_folder(name)):
            return
        from golem_forge.custom.offering import Offer, UserTools
        from golem_forge.workers.own_shop import shop_to_look_at

        self._added = True
        self._shop = shop_to_look_at(self._home)
        UserTools(self._shop, Offer(create=True), self._catalog).refresh()

    def plan(self, tool: Tool, values: dict[str, Any], ctx: ToolContext) -> Plan | None:
        """None: it is not one of them. Raises what a session would: SandboxError, InputInvalid."""
        from golem_forge.tools.tool import SourceKind

        if self._shop is None or tool.source is not SourceKind.CUSTOM or not self._is_one(tool):
            return None
        from golem_forge.custom.entry import Entry
        from golem_forge.custom.running.arguments import passed
        from golem_forge.custom.running.reach import reach_of
        from golem_forge.custom.running.touching import touched
        from golem_forge.sandbox.walls.levels import Level
        from golem_forge.tools.plan import Plan

        entry = self._shop.registry.look(tool.name)
        if not isinstance(entry, Entry):
            return None
        touch = touched(entry, values, reach_of(entry.manifest, ctx), Level.FULL)
        try:
            passed(entry.manifest, values, paths=touch.paths)
        except BaseException:
            touch.close()
            raise
        return Plan(run=_never, effects=touch.effects, targets=(f"digest {entry.digest}",), close=touch.close)

    def _is_one(self, tool: Tool) -> bool:
        """A session may have a tool of a module under the name of a folder; the folder is kept out then."""
        if self._placed is None:
            return True
        return self._placed.offers(tool.name) or any(each is tool for each in self._catalog.aside())

    def _has_folder(self, name: str) -> bool:
        from golem_forge.custom.names import name_problem

        return not name_problem(name) and (self._home.path / "tools" / name).is_dir()


def _never() -> None:
    raise RuntimeError("a call that is only explained never runs")
