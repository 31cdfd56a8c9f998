"""UserTools: what one worker sees of the user's tools. Keeps its catalog in step with the folders and the book.

Active tools are in the catalog under their own names; those that are not are set aside, where a person (and, for a tool
that was trusted before it changed, a model that names it) still reaches them; the rest is kept out with the reason.
`refresh` runs before every model request and every command of a person; when nothing changed it costs a few stats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from time import perf_counter

from golem_forge.core.slash import slash
from golem_forge.custom.diagnostic import Code, Diagnostic
from golem_forge.custom.entry import Entry
from golem_forge.custom.making.create_tool import create_create_custom_tool
from golem_forge.custom.run_alias import NAME as RUN
from golem_forge.custom.run_alias import create_run_custom_tool
from golem_forge.custom.tool import user_tool
from golem_forge.custom.trust.standing import Standing, State, standing_of, standings_of
from golem_forge.custom.workshop import Workshop
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import SourceKind, Tool

MOST_ANNOUNCED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The block `user_tools` of a worker."""

    tools: tuple[str, ...] = ("*",)
    """Globs of names."""
    create: bool = False

    def includes(self, name: str) -> bool:
        return "*" in self.tools or any(fnmatchcase(name, glob) for glob in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    diagnostics: tuple[str, ...] = ()
    announcements: tuple[str, ...] = ()
    """For the person, each once per session."""
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _News:
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
        shop: Workshop,
        offer: Offer,
        catalog: Catalog,
        *,
        on_placed: Callable[[tuple[str, ...]], None] = lambda names: None,
        on_returned: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`on_placed`: told the names that mean a tool of the user's from now on, for what the block says about
        approval; `on_returned`: told that a name means the built-in tool again."""
        self._shop = shop
        self._offer = offer
        self._catalog = catalog
        self._on_placed = on_placed
        self._on_returned = on_returned
        self._seen: tuple[object, ...] = ()
        """What the registry and the book said when the catalog was last brought in step. Other workers of the session
        share both, so it does not count who noticed a change first."""
        self._standings: dict[str, tuple[Entry, Standing]] = {}
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
        return (create_create_custom_tool(self._shop, self._catalog), run) if self._offer.create else (run,)

    @property
    def shop(self) -> Workshop:
        return self._shop

    def offers(self, name: str) -> bool:
        """Whether the catalog's tool of that name is one of the user's."""
        return name in self._offered

    def names(self) -> tuple[str, ...]:
        """Of the tools that can be run, active or not."""
        entries = self._shop.registry.entries
        glances = self._shop.book.glances(
            {name: entries[name].digest for name in entries if self._offer.includes(name)}
        )
        return tuple(name for name, glance in glances.items() if not glance.retired)

    def find(self, name: str, seconds: float | None = None) -> Tool | Diagnostic | None:
        """The tool of this name as it is at this moment, whether or not it is active."""
        if not self._offer.includes(name):
            return None
        found = self._shop.registry.look(name)
        if not isinstance(found, Entry):
            return found
        if self._is_taken(name):
            return _conflict(name)
        standing = standing_of(self._shop, found)
        if standing.state is State.RETIRED:
            return standing.why
        if self._means_ours(name):
            self._on_placed((name,))
        return user_tool(self._shop, found, seconds=seconds)

    def refresh(self) -> Refreshed | None:
        """None: nothing is other than before."""
        began = perf_counter()
        registry = self._shop.registry
        registry.refresh()
        self._shop.book.refresh_took((perf_counter() - began) * 1000)
        version, entries, diagnostics = self._shop.version(), registry.entries, registry.diagnostics
        before, self._seen = self._seen, (version, entries, diagnostics)
        if before and before[0] == version and before[1] is entries and before[2] is diagnostics:
            return None
        if not before or before[0] != version:
            self._standings = {}
        return self._in_step(entries, diagnostics)

    def _in_step(self, entries: Mapping[str, Entry], diagnostics: tuple[Diagnostic, ...]) -> Refreshed | None:
        news = _News()
        there = {name: entry for name, entry in entries.items() if self._offer.includes(name)}
        faults = {each.tool: each for each in diagnostics if self._offer.includes(each.tool)}
        for name in [name for name in (*self._offered, *self._known) if name not in there and name not in faults]:
            self._gone(name, news)
        for entry, standing in self._standings_of(there):
            self._place(entry, standing, news)
        for fault in faults.values():
            self._keep_out(fault, news)
        if news.placed:
            self._on_placed(tuple(news.placed))
        if news == _News():
            return None
        announced = _announcements(news.new)
        self.announcements += announced
        return Refreshed(
            added=tuple(news.added),
            changed=tuple(news.changed),
            removed=tuple(news.removed),
            diagnostics=tuple(news.diagnostics),
            announcements=announced,
            warnings=tuple(news.warnings),
        )

    def _standings_of(self, there: Mapping[str, Entry]) -> Iterable[tuple[Entry, Standing]]:
        """While the book says what it said, only folders that changed are looked up in it."""
        before = self._standings
        fresh = [entry for name, entry in there.items() if name not in before or before[name][0] is not entry]
        found = standings_of(self._shop, fresh)
        news = {entry.name: (entry, found[entry.name]) for entry in fresh}
        self._standings = {name: news.get(name) or before[name] for name in there}
        return self._standings.values()

    def _place(self, entry: Entry, standing: Standing, news: _News) -> None:
        name = entry.name
        if self._is_taken(name):
            self._keep_out(_conflict(name), news)
        elif standing.state is State.ACTIVE:
            self._put_in(entry, self._catalog.get(name), news)
        else:
            assert standing.why is not None
            self._set_aside(entry, standing, standing.why, news)

    def _put_in(self, entry: Entry, present: Tool | None, news: _News) -> None:
        name, before = entry.name, self._offered.get(entry.name)
        if before == entry.digest:
            return
        if before is None and present is not None:
            self._displaced[name] = present
            news.warnings.append(f"custom tool '{name}' replaces the built-in tool of that name")
        (news.changed if before else news.added).append(name)
        news.placed.append(name)
        self._known.pop(name, None)
        self._offered[name] = entry.digest
        self._catalog.no_longer_aside(name)
        self._catalog.add(self._tool(entry), replace=True)

    def _set_aside(self, entry: Entry, standing: Standing, why: Diagnostic, news: _News) -> None:
        name, mark = entry.name, f"{entry.digest} {why.code} {why.message}"
        if self._known.get(name) == mark:
            return
        self._out_of_catalog(name, news)
        self._known[name] = mark
        if standing.state is State.RETIRED:
            self._catalog.no_longer_aside(name)
        else:
            # Bytes that were agreed to and are not active all the same failed: a model need not try them by name.
            self._catalog.set_aside(self._tool(entry), by_models=self._shop.trusted_otherwise(entry))
            if self._means_ours(name):
                news.placed.append(name)
        through = f"; a model calls it through {RUN} (tool_name: {name!r}), which asks the person first"
        hint = through if why.code is Code.UNTRUSTED else ""
        self._catalog.quarantine(name, SourceKind.CUSTOM, f"{why.code}: {why.message}{hint}")
        if why.code is not Code.UNTRUSTED:
            news.diagnostics.append(_told(why))
        elif name not in self._announced and name not in self._shop.made_here:
            self._announced.add(name)
            news.new.append(name)

    def _keep_out(self, fault: Diagnostic, news: _News) -> None:
        name, mark = fault.tool, f"{fault.code} {fault.message}"
        if self._known.get(name) == mark:
            return
        self._out_of_catalog(name, news)
        self._known[name] = mark
        self._catalog.no_longer_aside(name)
        keep_out = self._catalog.quarantine_beside if self._is_taken(name) else self._catalog.quarantine
        keep_out(name, SourceKind.CUSTOM, f"{fault.code}: {fault.message}")
        news.diagnostics.append(_told(fault))

    def _gone(self, name: str, news: _News) -> None:
        self._out_of_catalog(name, news)
        self._known.pop(name, None)
        self._catalog.no_longer_aside(name)
        self._catalog.release(name)

    def _out_of_catalog(self, name: str, news: _News) -> None:
        if self._offered.pop(name, None) is None:
            return
        news.removed.append(name)
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

    def _tool(self, entry: Entry) -> Tool:
        """Fresh at every call: whoever edits a folder between two refreshes changes what is called, not what runs."""
        digest = entry.digest

        def redirect(args: dict[str, object]) -> tuple[Tool, dict[str, object]] | None:
            found = self._shop.registry.look(entry.name)
            if isinstance(found, Entry) and found.digest == digest:
                return None  # its plan asks the book
            return self._moved_on(entry.name), args

        return user_tool(self._shop, entry, redirect=redirect)

    def _moved_on(self, name: str) -> Tool:
        from golem_forge.core.errors import ForgeError
        from golem_forge.core.verdict import Status
        from golem_forge.custom.run_alias import why_not

        found = self.find(name)
        if isinstance(found, Tool):
            return found
        raise ForgeError(why_not(name, found, self.names()), status=Status.TOOL_NOT_FOUND, code="TOOL_NOT_FOUND")


_CONFLICT = "a block of this worker's file has a tool of that name; rename one of them"


def _conflict(name: str) -> Diagnostic:
    return Diagnostic(tool=name, code=Code.NAME_CONFLICT, message=_CONFLICT)


def _told(why: Diagnostic) -> str:
    """Its first line: whoever made the call has read the rest, and `forge tools doctor` has it."""
    return f"{why.tool}: {why.code}: {why.message.partition(chr(10))[0]}"


def _announcements(names: list[str]) -> tuple[str, ...]:
    if len(names) > MOST_ANNOUNCED:
        return (f"{len(names)} new tools are not active; `forge tools list` shows them",)
    return tuple(f"new tool '{name}' is not active; run {slash(name)} or forge tools activate {name}" for name in names)
