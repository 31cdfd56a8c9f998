"""A tool folder as a Tool of Forge: it enters the one path like every other and is judged like every other.

The planner makes it ready (builds, never runs), states what the call will touch and, where its content was never
agreed to, puts the trust card on the call's own card: one yes covers both. `run` then proves it (its tests) and runs
it. A Tool is bound to one digest: what runs is the snapshot of exactly the bytes that were judged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.call import Outcome
from golem_forge.core.decision import AnsweredBy
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.finished import Finished
from golem_forge.core.verdict import Status
from golem_forge.custom.book import Use
from golem_forge.custom.entry import Entry, Program
from golem_forge.custom.manifest.schema import input_schema
from golem_forge.custom.run_alias import why_not
from golem_forge.custom.running import Run, run_tool
from golem_forge.custom.running.arguments import passed
from golem_forge.custom.running.reach import Reach, must_be_testable, must_fit, reach_of
from golem_forge.custom.running.surroundings import declared_values
from golem_forge.custom.running.touching import Touched, is_reader, touched
from golem_forge.custom.trust.promotion import Readied, card_for, fetched, must_be_promotable, proven, readied
from golem_forge.custom.trust.standing import Standing, State, standing_of
from golem_forge.custom.workshop import Workshop
from golem_forge.events.clock import iso_now
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import Definition, Redirect, SourceKind, Tool

if TYPE_CHECKING:
    from golem_forge.custom.building.prepared import Prepared
    from golem_forge.custom.inside.calls import CallDesk
    from golem_forge.sandbox.walls.levels import Level, WallsReport

YOURS: Final = "Your tools"
"""The category of a tool that names none."""
ProgramOf = Callable[["Prepared", "Level"], Program]
"""What is started for a tool that is ready."""


def as_built(prepared: Prepared, level: Level) -> Program:
    return prepared.program(level)


def for_debugging(prepared: Prepared, level: Level) -> Program:
    """Its source, for a person who looks for a mistake (`forge tools run --debug`); in the same walls."""
    return prepared.debug_program(level)


def user_tool(
    shop: Workshop,
    entry: Entry,
    *,
    seconds: float | None = None,
    redirect: Redirect | None = None,
    program: ProgramOf = as_built,
) -> Tool:
    """`seconds`: instead of the manifest's timeout."""
    manifest = entry.manifest
    made = _UserTool(shop, entry, manifest.timeout if seconds is None else seconds, program)
    tool = Tool(
        entry.name,
        f"{manifest.description}\n\n{manifest.usage}" if manifest.usage else manifest.description,
        input_schema=input_schema(manifest),
        output_schema=dict(manifest.output_schema) if manifest.output_schema is not None else None,
        planner=made.plan,
        mode=manifest.mode,
        label=manifest.label,
        category=manifest.category or YOURS,
        source=SourceKind.CUSTOM,
        definition=made.definition,
        pin=made.pin,
        redirect=redirect,
        shadows=shop.shadows(entry.name),
        on_outcome=made.note,
    )
    tool.made_from = (os.path.realpath(entry.folder),)
    return tool


@dataclass(slots=True)
class _UserTool:
    shop: Workshop
    entry: Entry
    timeout: float
    program: ProgramOf
    diff: str = field(default="")
    """Against the version that was trusted last, once a plan has looked."""
    trusted: bool | None = field(default=None)
    """What the last look said; every plan looks, and is judged right after it. None: nobody has looked yet."""

    def definition(self) -> Definition:
        trusted = self.shop.trusts(self.entry) if self.trusted is None else self.trusted
        return Definition(digest=self.entry.digest, approved=trusted, diff=self.diff)

    def pin(self) -> None:
        """A person said yes to the card."""
        self.shop.trust(self.entry, who="person")
        self.trusted = True

    def note(self, outcome: Outcome) -> None:
        """Statistics, and how often these bytes were refused."""
        entry, decision = self.entry, outcome.decision
        self.shop.book.used(
            Use(
                name=entry.name,
                digest=entry.digest,
                status=outcome.status.value,
                duration_ms=outcome.duration_ms,
                session=self.shop.session_id,
                call=outcome.call.id,
                at=iso_now(),
                executed=outcome.executed,
            )
        )
        by_person = decision is not None and decision.answered_by is AnsweredBy.PERSON
        if outcome.status is Status.APPROVAL_DENIED and by_person and not self.shop.trusts(entry):
            self.shop.book.denied(entry.name, entry.digest)

    async def plan(self, args: dict[str, Any], ctx: ToolContext) -> Plan:
        shop, entry, manifest = self.shop, self.entry, self.entry.manifest
        reach = reach_of(manifest, ctx)
        report = await reach.walls.report()
        must_fit(report, manifest)
        standing = standing_of(shop, entry)
        self.trusted = standing.trusted
        if standing.state is State.RETIRED:
            raise ForgeError(why_not(entry.name, standing.why), status=Status.TOOL_NOT_FOUND, code="TOOL_NOT_FOUND")
        if standing.state is not State.ACTIVE:
            must_be_promotable(shop, entry)
        if not standing.tested:
            must_be_testable(report, manifest)
        declared_values(manifest, shop.environ, shop.redactor)
        ready = await readied(shop, entry)
        touch = touched(entry, args, reach, report.level)
        try:
            values = passed(manifest, args, paths=touch.paths)
            call = _Call(self, ready, reach, touch, standing, report, ctx)

            async def run() -> Finished:
                return await call.run(values)

            plan = Plan(
                run=run,
                effects=(*touch.effects, *(Effect(verb=Verb.NET, target=host) for host in ready.hosts)),
                targets=(f"digest {entry.digest}",),
                # What it calls runs under its slot, so one that calls others must not pass as a reader.
                read_only=is_reader(manifest, reach) and not ready.hosts and not manifest.calls,
                recheck=touch.recheck,
                close=touch.close,
            )
            if not standing.trusted:
                card = card_for(shop, ready)
                plan.unasked = f"custom tool '{entry.name}' is not trusted; run: forge tools activate {entry.name}"
                self.diff = card.diff
                plan.payload, plan.warnings = card.text, card.warnings
        except BaseException:
            touch.close()
            raise
        return plan


@dataclass(frozen=True, slots=True)
class _Call:
    """One approved call of a tool."""

    tool: _UserTool
    ready: Readied
    reach: Reach
    touch: Touched
    standing: Standing
    report: WallsReport
    ctx: ToolContext

    async def run(self, values: Any) -> Finished:
        shop, entry = self.tool.shop, self.tool.entry
        prepared = await fetched(shop, self.ready)
        if not self.standing.trusted and not shop.trusts(entry):  # only the mode agreed: that ends with the session
            shop.trust_here(entry)
            self.tool.trusted = True
        if not self.standing.tested:
            await proven(shop, entry, prepared, report=self.report)
        shop.registry.snapshot(entry)  # tests, a download and the gate took their time: it must still be whole
        run = Run(
            entry=entry,
            program=self.tool.program(prepared, self.report.level),
            passed=values,
            reach=self.reach,
            timeout=self.tool.timeout,
            environ=shop.environ,
            lifted=self.touch.lifted(self.ctx.path_rules()),
            desk=_desk(self.tool, self.ctx, self.report.level),
            run_on=shop.run_on,
        )
        return await run_tool(run, self.ctx)


def _desk(tool: _UserTool, ctx: ToolContext, level: Level) -> CallDesk | None:
    calls = tool.entry.manifest.calls
    if not calls:
        return None
    from golem_forge.custom.inside.calls import call_desk

    return call_desk(ctx, ctx.find, calls, time.time() + tool.timeout, level=level)
