"""A tool folder as a Tool of Forge, and `run_custom_tool`, which calls one by its name.

The planner makes the tool ready (builds, never runs), states what the call will touch and, where its content was never
agreed to, puts the trust card on the call's own card: one yes covers both. `run` then runs its tests, if they have yet
to pass, and the tool. A Tool is bound to one digest: what runs is the snapshot of exactly the bytes that were judged.

`run_custom_tool` redirects the call at resolve and does nothing else. Mode, schema, policy, fingerprint and statistics
are those of the tool that is meant; rules about `run_custom_tool` itself can only tighten. Through it a tool that is
not active yet is promoted.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from golem_forge.core.calls import Caller, Outcome, ToolCompletion
from golem_forge.core.decisions import AnsweredBy, Status
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.events.serialization import iso_now
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.files import delete
from golem_forge.sandbox.target import FileKind, Target
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.tool import Definition, Redirect, SourceKind, Tool
from golem_forge.usertools import trust
from golem_forge.usertools.build import PreparedTool
from golem_forge.usertools.folder import ToolEntry, ToolProgram
from golem_forge.usertools.manifest import input_schema
from golem_forge.usertools.native_tools import not_found, unavailable_message
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
from golem_forge.usertools.workshop import StepProgress, Workshop

DEFAULT_CATEGORY: Final = "Your tools"
"""The category of a tool that names none."""
ProgramChoice = Callable[[PreparedTool, Level], ToolProgram]
"""What is started for a tool that is ready: `PreparedTool.program` or `PreparedTool.debug_program`."""


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
    """What the last look said; every plan looks, and is judged right after it. None: nobody has looked yet."""

    def definition(self) -> Definition:
        trusted = self.workshop.trusts(self.entry) if self.trusted is None else self.trusted
        return Definition(digest=self.entry.digest, approved=trusted, diff=self.diff)

    def pin(self) -> None:
        """A person said yes to the card."""
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
    """Who waits for this call: a client hears of its own call only, all others are at the session."""
    if ctx.caller is not Caller.MCP:
        return None
    steps = count(1)
    return trust.report_lines(lambda text: ctx.report_progress(next(steps), None, text))


@dataclass(frozen=True, slots=True)
class _ApprovedCall:
    """One approved call of a tool."""

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
            lifted=self.planned.lifted(self.ctx.path_rules()),
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
        """Of the files that were made to be written, those that it left empty."""
        for target in made:
            with contextlib.suppress(SandboxError), self.access.sandbox.target(target.virtual, Verb.DELETE) as left:
                if left.kind is FileKind.FILE and left.stat is not None and left.stat.st_size == 0:
                    delete(left)
