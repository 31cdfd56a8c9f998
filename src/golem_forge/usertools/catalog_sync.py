"""UserTools: what one worker sees of the user tools. Keeps its catalog in sync with the folders and the store.

Active tools are in the catalog under their own names. Those that are not active are set aside, where a person (and,
for a tool that was trusted before it changed, a model that names it) still reaches them; the rest is kept out with the
reason. `refresh` runs before every model request and every command of a person; without changes it costs a few stats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from time import perf_counter

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import slash_command
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.usertools.create import create_create_custom_tool
from golem_forge.usertools.diagnostics import Diagnostic, DiagnosticCode
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.tool import RUN_TOOL_NAME, create_run_custom_tool, not_found, unavailable_message, user_tool
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UserToolChanges:
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    diagnostics: tuple[str, ...] = ()
    announcements: tuple[str, ...] = ()
    """For the person, each once per session."""
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _PendingChanges:
    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    diagnostics: list[str] = field(default_factory=list)
    placed: list[str] = field(default_factory=list)
    """What can be called from now on, offered or not."""
    new: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


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
        self._on_returned = on_returned
        self._seen: tuple[object, ...] = ()
        """What the registry and the store said when the catalog was last brought in step. Other workers of the session
        share both, so it does not count who noticed a change first."""
        self._statuses: dict[str, tuple[ToolEntry, ToolStatus]] = {}
        self._offered: dict[str, str] = {}
        """Name → digest of the tools of ours that are in the catalog."""
        self._known: dict[str, str] = {}
        """Name → digest of every other tool folder, and name → reason of what is no tool."""
        self._displaced: dict[str, Tool] = {}
        """Built-in tools that a tool of the user's stands in for."""
        self._announced: set[str] = set()
        self.announcements: tuple[str, ...] = ()
        """All there were until now."""
        for tool in self.own_tools():
            catalog.add(tool)

    def own_tools(self) -> tuple[Tool, ...]:
        run = create_run_custom_tool(self.find, self.names)
        return (create_create_custom_tool(self._workshop, self._catalog), run) if self._offer.create else (run,)

    @property
    def workshop(self) -> Workshop:
        return self._workshop

    def offers(self, name: str) -> bool:
        """Whether the catalog's tool of that name is one of the user's."""
        return name in self._offered

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

    def refresh(self) -> UserToolChanges | None:
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
        return self._update_catalog(entries, diagnostics)

    def _update_catalog(
        self, entries: Mapping[str, ToolEntry], diagnostics: tuple[Diagnostic, ...]
    ) -> UserToolChanges | None:
        pending = _PendingChanges()
        there = {name: entry for name, entry in entries.items() if self._offer.includes(name)}
        faults = {each.tool: each for each in diagnostics if self._offer.includes(each.tool)}
        for name in [name for name in (*self._offered, *self._known) if name not in there and name not in faults]:
            self._gone(name, pending)
        for entry, status in self._statuses_of(there):
            self._place(entry, status, pending)
        for fault in faults.values():
            self._keep_out(fault, pending)
        if pending.placed:
            self._on_placed(tuple(pending.placed))
        if pending == _PendingChanges():
            return None
        announced = _announcement_lines(pending.new)
        self.announcements += announced
        return UserToolChanges(
            added=tuple(pending.added),
            changed=tuple(pending.changed),
            removed=tuple(pending.removed),
            diagnostics=tuple(pending.diagnostics),
            announcements=announced,
            warnings=tuple(pending.warnings),
        )

    def _statuses_of(self, there: Mapping[str, ToolEntry]) -> Iterable[tuple[ToolEntry, ToolStatus]]:
        """While the store has not changed, only folders that changed are looked up in it."""
        before = self._statuses
        fresh = [entry for name, entry in there.items() if name not in before or before[name][0] is not entry]
        found = tool_statuses(self._workshop, fresh)
        new = {entry.name: (entry, found[entry.name]) for entry in fresh}
        self._statuses = {name: new.get(name) or before[name] for name in there}
        return self._statuses.values()

    def _place(self, entry: ToolEntry, status: ToolStatus, pending: _PendingChanges) -> None:
        name = entry.name
        if self._is_taken(name):
            self._keep_out(_name_conflict(name), pending)
        elif status.state is ToolState.ACTIVE:
            self._put_in(entry, self._catalog.get(name), pending)
        else:
            assert status.why is not None
            self._set_aside(entry, status, status.why, pending)

    def _put_in(self, entry: ToolEntry, present: Tool | None, pending: _PendingChanges) -> None:
        name, before = entry.name, self._offered.get(entry.name)
        if before == entry.digest:
            return
        if before is None and present is not None:
            self._displaced[name] = present
            pending.warnings.append(f"custom tool '{name}' replaces the built-in tool of that name")
        (pending.changed if before else pending.added).append(name)
        pending.placed.append(name)
        self._known.pop(name, None)
        self._offered[name] = entry.digest
        self._catalog.unhide(name)
        self._catalog.add(self._tool(entry), replace=True)

    def _set_aside(self, entry: ToolEntry, status: ToolStatus, why: Diagnostic, pending: _PendingChanges) -> None:
        name, mark = entry.name, f"{entry.digest} {why.code} {why.message}"
        if self._known.get(name) == mark:
            return
        self._out_of_catalog(name, pending)
        self._known[name] = mark
        if status.state is ToolState.RETIRED:
            self._catalog.unhide(name)
        else:
            # Bytes that were agreed to and are not active all the same failed: a model need not try them by name.
            self._catalog.hide(self._tool(entry), by_models=self._workshop.other_version_trusted(entry))
            if self._means_ours(name):
                pending.placed.append(name)
        through = f"; a model calls it through {RUN_TOOL_NAME} (tool_name: {name!r}), which asks the person first"
        hint = through if why.code is DiagnosticCode.UNTRUSTED else ""
        self._catalog.quarantine(name, SourceKind.CUSTOM, f"{why.code}: {why.message}{hint}")
        if why.code is not DiagnosticCode.UNTRUSTED:
            pending.diagnostics.append(_first_line(why))
        elif name not in self._announced and name not in self._workshop.created_names:
            self._announced.add(name)
            pending.new.append(name)

    def _keep_out(self, fault: Diagnostic, pending: _PendingChanges) -> None:
        name, mark = fault.tool, f"{fault.code} {fault.message}"
        if self._known.get(name) == mark:
            return
        self._out_of_catalog(name, pending)
        self._known[name] = mark
        self._catalog.unhide(name)
        keep_out = self._catalog.quarantine_duplicate if self._is_taken(name) else self._catalog.quarantine
        keep_out(name, SourceKind.CUSTOM, f"{fault.code}: {fault.message}")
        pending.diagnostics.append(_first_line(fault))

    def _gone(self, name: str, pending: _PendingChanges) -> None:
        self._out_of_catalog(name, pending)
        self._known.pop(name, None)
        self._catalog.unhide(name)
        self._catalog.release(name)

    def _out_of_catalog(self, name: str, pending: _PendingChanges) -> None:
        if self._offered.pop(name, None) is None:
            return
        pending.removed.append(name)
        self._catalog.remove(name)
        if (built_in := self._displaced.pop(name, None)) is not None:
            self._catalog.add(built_in)
            self._on_returned(name)

    def _is_taken(self, name: str) -> bool:
        """A tool that the worker was given otherwise (by a block of its file, by an embedder) has the name."""
        present = self._catalog.get(name)
        return present is not None and name not in self._offered and present.source is not SourceKind.NATIVE

    def _means_ours(self, name: str) -> bool:
        """Threat: a folder that nobody agreed to, with the name of a built-in tool. What the block says about approval
        must not be said of that one."""
        return name in self._offered or name not in self._catalog

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


def _first_line(why: Diagnostic) -> str:
    """Its first line: whoever made the call has read the rest, and `forge tools doctor` has it."""
    return f"{why.tool}: {why.code}: {why.message.partition(chr(10))[0]}"


def _announcement_lines(names: list[str]) -> tuple[str, ...]:
    if len(names) > MOST_ANNOUNCED:
        return (f"{len(names)} new tools are not active; `forge tools list` shows them",)
    return tuple(
        f"new tool '{name}' is not active; run {slash_command(name)} or forge tools activate {name}" for name in names
    )
