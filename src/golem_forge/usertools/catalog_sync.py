"""UserTools: what one worker sees of the user tools. Keeps its catalog in sync with the folders and the store.

Active tools are in the catalog under their own names. Those that are not active are set aside, where a person (and,
for a tool that was trusted before it changed, a model that names it) still reaches them; the rest is kept out with the
reason. `refresh` runs before every model request and every command of a person; without changes it costs a few stats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from time import perf_counter

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import slash_command
from golem_forge.tools.catalog import Catalog, CatalogChanges, CatalogSync, KeptOut, SourceTool
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.usertools.create import create_create_custom_tool
from golem_forge.usertools.diagnostics import Diagnostic, DiagnosticCode
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.native_tools import (
    RUN_TOOL_NAME,
    create_run_custom_tool,
    not_found,
    unavailable_message,
)
from golem_forge.usertools.tool import user_tool
from golem_forge.usertools.trust import ToolState, ToolStatus, tool_status, tool_statuses
from golem_forge.usertools.workshop import Workshop

MOST_ANNOUNCED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSelection:
    """The block `user_tools` of a worker."""

    tools: tuple[str, ...] = ("*",)
    """Globs of names."""
    create: bool = False

    def includes(self, name: str) -> bool:
        return "*" in self.tools or any(fnmatchcase(name, glob) for glob in self.tools)


class UserTools:
    def __init__(
        self,
        workshop: Workshop,
        offer: ToolSelection,
        catalog: Catalog,
        *,
        on_placed: Callable[[tuple[str, ...]], None] = lambda names: None,
        on_returned: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`on_placed`: told the names that mean a tool of the user's from now on, for what the block says about
        approval; `on_returned`: told that a name means the built-in tool again."""
        self._workshop = workshop
        self._offer = offer
        self._catalog = catalog
        self._on_placed = on_placed
        self._sync = CatalogSync(catalog, SourceKind.CUSTOM, on_placed=on_placed, on_returned=on_returned)
        self._seen: tuple[object, ...] = ()
        """What the registry and the store said when the catalog was last brought in step. Other workers of the session
        share both, so it does not count who noticed a change first."""
        self._statuses: dict[str, tuple[ToolEntry, ToolStatus]] = {}
        self._announced: set[str] = set()
        self.announcements: tuple[str, ...] = ()
        """All there were until now."""
        for tool in self.own_tools():
            catalog.add(tool)

    def own_tools(self) -> tuple[Tool, ...]:
        run = create_run_custom_tool(self.find, self.names, self.find_trusted)
        return (create_create_custom_tool(self._workshop, self._catalog), run) if self._offer.create else (run,)

    @property
    def workshop(self) -> Workshop:
        return self._workshop

    def offers(self, name: str) -> bool:
        """Whether the catalog's tool of that name is one of the user's."""
        return self._sync.has_placed(name)

    def names(self) -> tuple[str, ...]:
        """Of the tools that can be run, active or not."""
        entries = self._workshop.registry.entries
        known = self._workshop.store.version_statuses(
            {name: entries[name].digest for name in entries if self._offer.includes(name)}
        )
        return tuple(name for name, each in known.items() if not each.retired)

    def find(self, name: str, seconds: float | None = None) -> Tool | Diagnostic | None:
        """The tool of this name as it is at this moment, whether or not it is active."""
        if not self._offer.includes(name):
            return None
        found = self._workshop.registry.lookup(name)
        if not isinstance(found, ToolEntry):
            return found
        if self._is_taken(name):
            return _name_conflict(name)
        status = tool_status(self._workshop, found)
        if status.state is ToolState.RETIRED:
            return status.why
        if self._means_ours(name):
            self._on_placed((name,))
        return user_tool(self._workshop, found, seconds=seconds)

    def find_trusted(self, name: str, seconds: float | None = None) -> Tool | Diagnostic | None:
        """The version of a tool that was trusted last, while its folder holds a change, or nothing that is a tool.
        Threat: bytes that nobody agreed to. It is the snapshot of exactly that digest, and its plan asks the store."""
        if not self._offer.includes(name) or self._workshop.registry.lookup(name) is None:
            return None
        if self._is_taken(name):
            return _name_conflict(name)
        digest = self._workshop.store.last_trusted(name)
        entry = self._workshop.registry.version_entry(name, digest) if digest else None
        if entry is None:
            return Diagnostic(tool=name, code=DiagnosticCode.UNTRUSTED, message="no version of it was trusted")
        status = tool_status(self._workshop, entry)
        return user_tool(self._workshop, entry, seconds=seconds) if status.why is None else status.why

    def refresh(self) -> CatalogChanges | None:
        """None: nothing is other than before."""
        began = perf_counter()
        registry = self._workshop.registry
        registry.refresh()
        self._workshop.store.record_refresh((perf_counter() - began) * 1000)
        version, entries, diagnostics = self._workshop.version(), registry.entries, registry.diagnostics
        before, self._seen = self._seen, (version, entries, diagnostics)
        if before and before[0] == version and before[1] is entries and before[2] is diagnostics:
            return None
        if not before or before[0] != version:
            self._statuses = {}
        tools: dict[str, SourceTool] = {}
        kept_out: dict[str, KeptOut] = {}
        for entry, status in self._statuses_of(
            {name: each for name, each in entries.items() if self._offer.includes(name)}
        ):
            if self._is_taken(entry.name):
                kept_out[entry.name] = _not_a_tool(_name_conflict(entry.name))
            elif status.why is None:
                tools[entry.name] = SourceTool(mark=entry.digest, make=partial(self._tool, entry))
            else:
                kept_out[entry.name] = self._inactive(entry, status.state, status.why)
        kept_out |= {each.tool: _not_a_tool(each) for each in diagnostics if self._offer.includes(each.tool)}
        changes = self._sync.update(tools, kept_out)
        if not (announced := self._announce_new()):
            return changes
        self.announcements += announced
        return replace(changes or CatalogChanges(), announcements=announced)

    def _statuses_of(self, there: Mapping[str, ToolEntry]) -> Iterable[tuple[ToolEntry, ToolStatus]]:
        """While the store has not changed, only folders that changed are looked up in it."""
        before = self._statuses
        fresh = [entry for name, entry in there.items() if name not in before or before[name][0] is not entry]
        found = tool_statuses(self._workshop, fresh)
        new = {entry.name: (entry, found[entry.name]) for entry in fresh}
        self._statuses = {name: new.get(name) or before[name] for name in there}
        return self._statuses.values()

    def _inactive(self, entry: ToolEntry, state: ToolState, why: Diagnostic) -> KeptOut:
        """A model need not try by name what was agreed to and is not active all the same: it failed."""

        def hidden() -> tuple[Tool, bool]:
            return self._tool(entry), self._workshop.other_version_trusted(entry)

        reason, untrusted = f"{why.code}: {why.message}", why.code is DiagnosticCode.UNTRUSTED
        if untrusted:
            reason += (
                f"; a model calls it through {RUN_TOOL_NAME} (tool_name: {entry.name!r}), which asks the person first"
            )
        if why.code is DiagnosticCode.CHANGED:
            reason += f"; {RUN_TOOL_NAME} with `version: trusted` runs the version that was trusted"
        return KeptOut(
            mark=(entry.digest, reason),
            reason=reason,
            diagnostic="" if untrusted else _first_line(why),
            hide=None if state is ToolState.RETIRED else hidden,
        )

    def _announce_new(self) -> tuple[str, ...]:
        """Lines about tools that nobody has agreed to yet, each tool once per session."""
        known = self._announced | self._workshop.created_names
        new = [
            name
            for name, (_, status) in self._statuses.items()
            if status.why is not None and status.why.code is DiagnosticCode.UNTRUSTED
            if name not in known and not self._is_taken(name)
        ]
        self._announced |= set(new)
        if len(new) > MOST_ANNOUNCED:
            return (f"{len(new)} new tools are not active; `forge tools list` shows them",)
        return tuple(
            f"new tool '{name}' is not active; run {slash_command(name)} or forge tools activate {name}" for name in new
        )

    def _is_taken(self, name: str) -> bool:
        """A tool that the worker was given otherwise (by a block of its file, by an embedder) has the name."""
        present = self._catalog.get(name)
        return present is not None and not self._sync.has_placed(name) and present.source is not SourceKind.NATIVE

    def _means_ours(self, name: str) -> bool:
        """Threat: a folder that nobody agreed to, with the name of a built-in tool. What the block says about approval
        must not be said of that one."""
        return self._sync.has_placed(name) or name not in self._catalog

    def _tool(self, entry: ToolEntry) -> Tool:
        """Fresh at every call: whoever edits a folder between two refreshes changes what is called, not what runs."""
        digest = entry.digest

        def redirect(args: dict[str, object]) -> tuple[Tool, dict[str, object]] | None:
            found = self._workshop.registry.lookup(entry.name)
            if isinstance(found, ToolEntry) and found.digest == digest:
                return None  # its plan asks the store
            return self._moved_on(entry.name), args

        return user_tool(self._workshop, entry, redirect=redirect)

    def _moved_on(self, name: str) -> Tool:
        found = self.find(name)
        if isinstance(found, Tool):
            return found
        raise not_found(unavailable_message(name, found, self.names()))


_CONFLICT_MESSAGE = "a block of this worker's file has a tool of that name; rename one of them"


def _name_conflict(name: str) -> Diagnostic:
    return Diagnostic(tool=name, code=DiagnosticCode.NAME_CONFLICT, message=_CONFLICT_MESSAGE)


def _not_a_tool(why: Diagnostic) -> KeptOut:
    reason = f"{why.code}: {why.message}"
    return KeptOut(mark=reason, reason=reason, diagnostic=_first_line(why))


def _first_line(why: Diagnostic) -> str:
    """Its first line: whoever made the call has read the rest, and `forge tools doctor` has it."""
    return f"{why.tool}: {why.code}: {why.message.partition(chr(10))[0]}"
