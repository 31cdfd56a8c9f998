"""Tools whose source changes while a session runs: folders of user tools, MCP servers, tool modules.

A `ToolSource` looks at its source in `refresh` and returns what that changed for its worker. `CatalogSync` applies a
change to a catalog: it adds, replaces and removes the tools of one source, keeps names out with the reason a caller is
told, and puts a built-in tool back when the tool that replaced it goes. Tools that left go first. `on_placed` is called
before the new ones are added, so that what a config says of a tool counts from its first call on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import SourceKind, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanges:
    """What one refresh changed: names of tools, and lines for the person."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    diagnostics: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    announcements: tuple[str, ...] = ()
    """Each once per session."""
    tools: tuple[Tool, ...] = ()
    """Those of `added` and `changed`, from a source that leaves adding them to its caller."""

    def __bool__(self) -> bool:
        return self != CatalogChanges()

    def __add__(self, other: CatalogChanges) -> CatalogChanges:
        return CatalogChanges(**{name: getattr(self, name) + getattr(other, name) for name in CatalogChanges.__slots__})


class ToolSource(Protocol):
    def refresh(self) -> CatalogChanges | None:
        """None: nothing changed since the last refresh."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTool:
    """A tool that belongs in the catalog."""

    mark: object
    """While it is equal, the tool in the catalog stays."""
    make: Callable[[], Tool]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOut:
    """A name that is not offered."""

    mark: object
    """While it is equal, nothing is said or changed again."""
    reason: str
    """What a caller is told who names it."""
    diagnostic: str = ""
    hide: Callable[[], tuple[Tool, bool]] | None = None
    """The tool that a person reaches by its name all the same, and whether a model does."""


class CatalogSync:
    def __init__(
        self,
        catalog: Catalog,
        source: SourceKind,
        *,
        on_placed: Callable[[tuple[str, ...]], None] = lambda names: None,
        on_returned: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`on_placed`: called with the names that mean a tool of this source from now on; `on_returned`: with a name
        that means the built-in tool again."""
        self._catalog = catalog
        self._source = source
        self._on_placed = on_placed
        self._on_returned = on_returned
        self._placed: dict[str, object] = {}
        """Name → mark of the tools that are in the catalog."""
        self._kept_out: dict[str, object] = {}
        self._replaced: dict[str, Tool] = {}
        """Built-in tools that a tool of this source stands in for."""

    def has_placed(self, name: str) -> bool:
        """Whether the catalog's tool of that name is from this source."""
        return name in self._placed

    def has_kept_out(self, name: str) -> bool:
        return name in self._kept_out

    def update(self, tools: Mapping[str, SourceTool], kept_out: Mapping[str, KeptOut]) -> CatalogChanges | None:
        """`tools` and `kept_out` are all that there is of this source now."""
        catalog, before = self._catalog, self._placed
        removed = tuple(name for name in before if name not in tools)
        for name in removed:
            self._remove(name)
        for name in self._kept_out.keys() - kept_out.keys():
            catalog.unhide(name)
            catalog.release(name)
        fresh = [name for name, tool in tools.items() if name not in before or before[name] != tool.mark]
        refused = {name: out for name, out in kept_out.items() if self._kept_out.get(name) != out.mark}
        by_name = [name for name, out in refused.items() if out.hide is not None and name not in catalog]
        if fresh or by_name:
            self._on_placed((*fresh, *by_name))
        replaced = {name: tool for name in fresh if (tool := catalog.get(name)) and tool.source is SourceKind.NATIVE}
        for name in fresh:
            catalog.add(tools[name].make(), replace=True)
        for name, out in refused.items():
            self._keep_out(name, out)
        self._replaced |= replaced
        self._placed = {name: tool.mark for name, tool in tools.items()}
        self._kept_out = {name: out.mark for name, out in kept_out.items()}
        changes = CatalogChanges(
            added=tuple(name for name in fresh if name not in before),
            changed=tuple(name for name in fresh if name in before),
            removed=removed,
            diagnostics=tuple(out.diagnostic for out in refused.values() if out.diagnostic),
            warnings=tuple(
                f"{self._source.value} tool '{name}' replaces the built-in tool of that name" for name in replaced
            ),
        )
        return changes or None

    def _remove(self, name: str) -> None:
        self._catalog.remove(name)
        if (built_in := self._replaced.pop(name, None)) is not None:
            self._catalog.add(built_in)
            self._on_returned(name)

    def _keep_out(self, name: str, out: KeptOut) -> None:
        self._catalog.unhide(name)
        if out.hide is not None:
            tool, by_models = out.hide()
            self._catalog.hide(tool, by_models=by_models)
        # A tool of that name which is there now is not of this source, and stays.
        self._catalog.quarantine_duplicate(name, self._source, out.reason)
