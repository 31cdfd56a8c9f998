"""User tools in a worker's catalog: a tool folder as a Tool of Forge, and what one worker sees of them all.

The planner makes the tool ready (builds, never runs), states what the call will touch and, where its content was never
agreed to, puts the trust card on the call's own card: one yes covers both. `run` then runs its tests, if they have yet
to pass, and the tool. A Tool is bound to one digest: what runs is the snapshot of exactly the bytes that were judged.

`run_custom_tool` calls a tool by its name: it redirects the call at resolve and does nothing else. Mode, schema,
policy, fingerprint and statistics are those of the tool that is meant; rules about `run_custom_tool` itself can only
tighten. Through it a tool that is not active yet is promoted.

`UserTools` keeps a worker's catalog in sync with the folders and the store. Active tools are in the catalog under their
own names. Those that are not active are set aside, where a person (and, for a tool that was trusted before it changed,
a model that names it) still reaches them; the rest is kept out with the reason. `refresh` runs before every model
request and every command of a person; without changes it costs a few stats.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any, Final

from golem_forge.core.calls import Caller, Outcome, ToolCompletion
from golem_forge.core.decisions import AnsweredBy, Status
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.text import slash_command
from golem_forge.events.serialization import iso_now
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.files import delete
from golem_forge.sandbox.target import FileKind, Target
from golem_forge.sandbox.walls.model import Level, ProbeReport, lifted_paths
from golem_forge.tools.catalog import Catalog, CatalogChanges, CatalogSync, KeptOut, SourceTool
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.tool import Definition, Redirect, SourceKind, Tool
from golem_forge.usertools import trust
from golem_forge.usertools.build import PreparedTool
from golem_forge.usertools.create import create_create_custom_tool
from golem_forge.usertools.diagnostics import Diagnostic, DiagnosticCode
from golem_forge.usertools.folder import ToolEntry, ToolProgram
from golem_forge.usertools.manifest import input_schema
from golem_forge.usertools.native_tools import (
    RUN_TOOL_NAME,
    create_run_custom_tool,
    not_found,
    unavailable_message,
)
from golem_forge.usertools.run import ToolRun, declared_values, process_input, run_tool
from golem_forge.usertools.run.access import (
    PlannedAccess,
    ToolAccess,
    check_testable,
    check_walls,
    contain,
    is_read_only,
    plan_access,
    tool_access,
)
from golem_forge.usertools.run.call_server import ToolCallServer
from golem_forge.usertools.store.queries import UseRecord
from golem_forge.usertools.trust import ToolState, ToolStatus, tool_status, tool_statuses
from golem_forge.usertools.workshop import StepProgress, Workshop

DEFAULT_CATEGORY: Final = "Your tools"
"""The category of a tool that names none."""
ProgramChoice = Callable[[PreparedTool, Level], ToolProgram]
"""Selects the program of a ready tool: `PreparedTool.program` or `PreparedTool.debug_program`."""


def user_tool(
    workshop: Workshop,
    entry: ToolEntry,
    *,
    seconds: float | None = None,
    redirect: Redirect | None = None,
    program: ProgramChoice = PreparedTool.program,
) -> Tool:
    """`seconds`: instead of the manifest's timeout."""
    manifest = entry.manifest
    made = _UserTool(workshop, entry, manifest.timeout if seconds is None else seconds, program)
    tool = Tool(
        entry.name,
        f"{manifest.description}\n\n{manifest.usage}" if manifest.usage else manifest.description,
        input_schema=input_schema(manifest),
        output_schema=dict(manifest.output_schema) if manifest.output_schema is not None else None,
        planner=made.plan,
        mode=manifest.mode,
        label=manifest.label,
        category=manifest.category or DEFAULT_CATEGORY,
        source=SourceKind.CUSTOM,
        definition=made.definition,
        pin=made.pin,
        redirect=redirect,
        shadows=workshop.shadows(entry.name),
        on_outcome=made.record_outcome,
    )
    tool.made_from = (os.path.realpath(entry.folder),)
    return tool


@dataclass(slots=True)
class _UserTool:
    workshop: Workshop
    entry: ToolEntry
    timeout: float
    program: ProgramChoice
    diff: str = field(default="")
    """Against the version that was trusted last, once a plan has looked."""
    trusted: bool | None = field(default=None)
    """The result of the last trust check; every plan checks and is judged right after it. None before
    the first check.
    """

    def definition(self) -> Definition:
        trusted = self.workshop.trusts(self.entry) if self.trusted is None else self.trusted
        return Definition(digest=self.entry.digest, approved=trusted, diff=self.diff)

    def pin(self) -> None:
        """Stores the trust after a person said yes to the card."""
        self.workshop.trust(self.entry, who="person")
        self.trusted = True

    def record_outcome(self, outcome: Outcome) -> None:
        """Statistics, and how often these bytes were refused."""
        entry, decision = self.entry, outcome.decision
        self.workshop.store.record_use(
            UseRecord(
                name=entry.name,
                digest=entry.digest,
                status=outcome.status.value,
                duration_ms=outcome.duration_ms,
                session=self.workshop.session_id,
                call=outcome.call.id,
                at=iso_now(),
                executed=outcome.executed,
            )
        )
        by_person = decision is not None and decision.answered_by is AnsweredBy.PERSON
        if outcome.status is Status.APPROVAL_DENIED and by_person and not self.workshop.trusts(entry):
            self.workshop.store.add_denial(entry.name, entry.digest)

    async def plan(self, args: dict[str, Any], ctx: ToolContext) -> Plan:
        workshop, entry, manifest = self.workshop, self.entry, self.entry.manifest
        access = tool_access(manifest, ctx)
        report = await access.walls.report()
        check_walls(report, manifest)
        status = trust.tool_status(workshop, entry)
        self.trusted = status.trusted
        if status.state is trust.ToolState.RETIRED:
            raise not_found(unavailable_message(entry.name, status.why))
        if status.state is not trust.ToolState.ACTIVE:
            trust.check_promotable(workshop, entry)
        if not status.tested:
            check_testable(report, manifest)
        declared_values(manifest, workshop.environ, workshop.redactor)
        ready = await trust.make_ready(workshop, entry, _step_report(workshop, ctx))
        planned = plan_access(entry, args, access, report.level)
        try:
            await contain(planned, manifest, access, ctx)
            values = process_input(manifest, args, paths=planned.paths)
            call = _ApprovedCall(self, ready, access, planned, status, report, ctx)

            async def run() -> ToolCompletion:
                return await call.run(values)

            plan = Plan(
                run=run,
                effects=(*planned.effects, *(Effect(verb=Verb.NET, target=host) for host in ready.hosts)),
                targets=(f"digest {entry.digest}",),
                # What it calls runs under its slot, so one that calls others must not pass as a reader.
                read_only=is_read_only(manifest, access) and not ready.hosts and not manifest.calls,
                recheck=planned.recheck,
                close=planned.close,
            )
            if not status.trusted:
                card = trust.make_trust_card(workshop, ready)
                plan.unasked = f"custom tool '{entry.name}' is not trusted; run: forge tools activate {entry.name}"
                self.diff = card.diff
                plan.payload, plan.warnings = card.text, card.warnings
        except BaseException:
            planned.close()
            raise
        return plan


def _step_report(workshop: Workshop, ctx: ToolContext) -> StepProgress | None:
    """Returns a progress reporter for an MCP client, which hears only of its own call; None for callers
    in the session.
    """
    if ctx.caller is not Caller.MCP:
        return None
    steps = count(1)
    return trust.report_lines(lambda text: ctx.report_progress(next(steps), None, text))


@dataclass(frozen=True, slots=True)
class _ApprovedCall:
    tool: _UserTool
    ready: trust.ReadyTool
    access: ToolAccess
    planned: PlannedAccess
    status: trust.ToolStatus
    report: ProbeReport
    ctx: ToolContext

    async def run(self, values: Any) -> ToolCompletion:
        workshop, entry = self.tool.workshop, self.tool.entry
        prepared = await trust.fetch_and_build(workshop, self.ready, _step_report(workshop, self.ctx))
        if not self.status.trusted and not workshop.trusts(entry):  # only the mode agreed: that ends with the session
            workshop.trust_for_session(entry)
            self.tool.trusted = True
        if not self.status.tested:
            await trust.run_required_tests(workshop, entry, prepared, report=self.report)
        workshop.registry.snapshot(entry)  # tests, a download and the gate took their time: it must still be whole
        server = None
        if calls := entry.manifest.calls:
            deadline = time.time() + self.tool.timeout
            server = ToolCallServer(self.ctx, self.ctx.find, calls, deadline, self.report.level)
        run = ToolRun(
            entry=entry,
            program=self.tool.program(prepared, self.report.level),
            input=values,
            access=self.access,
            timeout=self.tool.timeout,
            environ=workshop.environ,
            lifted=lifted_paths(self.planned.effects, self.ctx.path_rules()),
            only=self.planned.only,
            not_kept=self.planned.not_kept(self.ctx),
            call_server=server,
            background_runner=workshop.background_runner,
        )
        made = self.planned.make_missing()
        try:
            return await run_tool(run, self.ctx)
        finally:
            if not entry.manifest.background:  # it may still write
                self._remove_unused(made)

    def _remove_unused(self, made: tuple[Target, ...]) -> None:
        """Removes files that were created for writing and that the tool left empty."""
        for target in made:
            with contextlib.suppress(SandboxError), self.access.sandbox.target(target.virtual, Verb.DELETE) as left:
                if left.kind is FileKind.FILE and left.stat is not None and left.stat.st_size == 0:
                    delete(left)


MOST_ANNOUNCED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSelection:
    """The block `user_tools` of a worker."""

    tools: tuple[str, ...] = ("*",)
    """Globs of tool names."""
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
        """Returns the names of the tools that can be run, active or not."""
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
        """Updates the catalog; None if nothing changed."""
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
                tools[entry.name] = SourceTool(mark=entry.digest, make=partial(self.make_tool, entry))
            else:
                kept_out[entry.name] = self._inactive(entry, status.state, status.why)
        kept_out |= {each.tool: _not_a_tool(each) for each in diagnostics if self._offer.includes(each.tool)}
        changes = self._sync.update(tools, kept_out)
        if not (announced := self._announce_new()):
            return changes
        self.announcements += announced
        return replace(changes or CatalogChanges(), announcements=announced)

    def _statuses_of(self, there: Mapping[str, ToolEntry]) -> Iterable[tuple[ToolEntry, ToolStatus]]:
        """Returns the statuses; while the store has not changed, only changed folders are looked up in it."""
        before = self._statuses
        fresh = [entry for name, entry in there.items() if name not in before or before[name][0] is not entry]
        found = tool_statuses(self._workshop, fresh)
        new = {entry.name: (entry, found[entry.name]) for entry in fresh}
        self._statuses = {name: new.get(name) or before[name] for name in there}
        return self._statuses.values()

    def _inactive(self, entry: ToolEntry, state: ToolState, why: Diagnostic) -> KeptOut:
        """A model need not try by name what was agreed to and is not active all the same: it failed."""

        def hidden() -> tuple[Tool, bool]:
            return self.make_tool(entry), self._workshop.other_version_trusted(entry)

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

    def make_tool(self, entry: ToolEntry) -> Tool:
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
