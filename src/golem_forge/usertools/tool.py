"""A tool folder as a Tool of Forge, and `run_custom_tool`, which calls one by its name.

The planner makes the tool ready (builds, never runs), states what the call will touch and, where its content was never
agreed to, puts the trust card on the call's own card: one yes covers both. `run` then runs its tests, if they have yet
to pass, and the tool. A Tool is bound to one digest: what runs is the snapshot of exactly the bytes that were judged.

`run_custom_tool` redirects the call at resolve and does nothing else. Mode, schema, policy, fingerprint and statistics
are those of the tool that is meant; rules about `run_custom_tool` itself can only tighten. Through it a tool that is
not active yet is promoted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import Outcome, ToolCompletion
from golem_forge.core.decisions import AnsweredBy, Status
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.events.serialization import iso_now
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.tool import Definition, Mode, Redirect, SourceKind, Tool
from golem_forge.tools.validation import InputInvalid
from golem_forge.usertools.diagnostics import Diagnostic
from golem_forge.usertools.folder import ToolEntry, ToolProgram
from golem_forge.usertools.manifest import LONGEST_TIMEOUT_S, input_schema
from golem_forge.usertools.run import ToolRun, declared_values, process_input, run_tool
from golem_forge.usertools.run.access import (
    PlannedAccess,
    ToolAccess,
    check_testable,
    check_walls,
    is_read_only,
    plan_access,
    tool_access,
)
from golem_forge.usertools.store.records import UseRecord
from golem_forge.usertools.trust import (
    ReadyTool,
    ToolState,
    ToolStatus,
    check_promotable,
    fetch_and_build,
    make_ready,
    make_trust_card,
    run_required_tests,
    tool_status,
)
from golem_forge.usertools.workshop import Workshop

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.model import Level, ProbeReport
    from golem_forge.usertools.build import PreparedTool

DEFAULT_CATEGORY: Final = "Your tools"
"""The category of a tool that names none."""
ProgramChoice = Callable[["PreparedTool", "Level"], ToolProgram]
"""What is started for a tool that is ready."""


def built_program(prepared: PreparedTool, level: Level) -> ToolProgram:
    return prepared.program(level)


def debug_program(prepared: PreparedTool, level: Level) -> ToolProgram:
    """Its source, for a person who looks for a mistake (`forge tools run --debug`); in the same walls."""
    return prepared.debug_program(level)


def user_tool(
    workshop: Workshop,
    entry: ToolEntry,
    *,
    seconds: float | None = None,
    redirect: Redirect | None = None,
    program: ProgramChoice = built_program,
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
        status = tool_status(workshop, entry)
        self.trusted = status.trusted
        if status.state is ToolState.RETIRED:
            raise not_found(unavailable_message(entry.name, status.why))
        if status.state is not ToolState.ACTIVE:
            check_promotable(workshop, entry)
        if not status.tested:
            check_testable(report, manifest)
        declared_values(manifest, workshop.environ, workshop.redactor)
        ready = await make_ready(workshop, entry)
        planned = plan_access(entry, args, access, report.level)
        try:
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
                card = make_trust_card(workshop, ready)
                plan.unasked = f"custom tool '{entry.name}' is not trusted; run: forge tools activate {entry.name}"
                self.diff = card.diff
                plan.payload, plan.warnings = card.text, card.warnings
        except BaseException:
            planned.close()
            raise
        return plan


@dataclass(frozen=True, slots=True)
class _ApprovedCall:
    """One approved call of a tool."""

    tool: _UserTool
    ready: ReadyTool
    access: ToolAccess
    planned: PlannedAccess
    status: ToolStatus
    report: ProbeReport
    ctx: ToolContext

    async def run(self, values: Any) -> ToolCompletion:
        workshop, entry = self.tool.workshop, self.tool.entry
        prepared = await fetch_and_build(workshop, self.ready)
        if not self.status.trusted and not workshop.trusts(entry):  # only the mode agreed: that ends with the session
            workshop.trust_for_session(entry)
            self.tool.trusted = True
        if not self.status.tested:
            await run_required_tests(workshop, entry, prepared, report=self.report)
        workshop.registry.snapshot(entry)  # tests, a download and the gate took their time: it must still be whole
        server = None
        if calls := entry.manifest.calls:
            from golem_forge.usertools.run.call_server import make_call_server

            deadline = time.time() + self.tool.timeout
            server = make_call_server(self.ctx, self.ctx.find, calls, deadline, level=self.report.level)
        run = ToolRun(
            entry=entry,
            program=self.tool.program(prepared, self.report.level),
            input=values,
            access=self.access,
            timeout=self.tool.timeout,
            environ=workshop.environ,
            lifted=self.planned.lifted(self.ctx.path_rules()),
            call_server=server,
            background_runner=workshop.background_runner,
        )
        return await run_tool(run, self.ctx)


RUN_TOOL_NAME: Final = "run_custom_tool"
FindTool = Callable[[str, float | None], "Tool | Diagnostic | None"]
"""(name, seconds or None) → the tool as it is now, why it cannot be run, or None: there is no such tool."""
AvailableNames = Callable[[], "tuple[str, ...]"]

_RUN_TOOL_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "tool_name": {"type": "string", "description": "Name of the custom tool"},
        "arguments": {"type": "object", "description": "The tool's own parameters, by name", "default": {}},
        "timeout": {"type": "number", "description": "Seconds; absent, 0 or negative: what the tool's manifest says"},
    },
    "required": ["tool_name"],
    "additionalProperties": False,
}


def create_run_custom_tool(find: FindTool, available: AvailableNames) -> Tool:
    def redirect(args: dict[str, Any]) -> tuple[Tool, dict[str, Any]]:
        name, given, seconds = _read_arguments(args)
        found = find(name, seconds)
        if isinstance(found, Tool):
            return found, given
        raise not_found(unavailable_message(name, found, available()))

    return Tool(
        RUN_TOOL_NAME,
        "Run a custom tool by its name: also one that was just created or changed and is not active yet. It is then "
        "built, shown to the person, tested, and offered under its own name from that moment on.",
        input_schema=_RUN_TOOL_SCHEMA,
        execute=_not_executed,
        redirect=redirect,
        mode=Mode.BOTH,
        source=SourceKind.NATIVE,
        category="Custom tools",
        effects=(),
    )


def _read_arguments(args: dict[str, Any]) -> tuple[str, dict[str, Any], float | None]:
    if unexpected := [str(name) for name in args if name not in _RUN_TOOL_SCHEMA["properties"]]:
        names = ", ".join(unexpected)
        raise InputInvalid(f'{RUN_TOOL_NAME}: put tool parameters inside "arguments"; unexpected: {names[:500]}')
    name, given, seconds = args.get("tool_name"), args.get("arguments", {}), args.get("timeout")
    if not isinstance(name, str) or not name:
        raise InputInvalid(
            f"{RUN_TOOL_NAME}: tool_name: missing required parameter", fields=(("tool_name", "is required"),)
        )
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise InputInvalid(f"{RUN_TOOL_NAME}: arguments: must be an object, got {type(given).__name__}")
    if seconds is None:
        return name, given, None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds != seconds:
        raise InputInvalid(f"{RUN_TOOL_NAME}: timeout: must be a number of seconds")
    if seconds > LONGEST_TIMEOUT_S:
        raise InputInvalid(f"{RUN_TOOL_NAME}: timeout: must be at most {LONGEST_TIMEOUT_S:g} seconds, got {seconds:g}")
    return name, given, float(seconds) if seconds > 0 else None


def not_found(message: str) -> ForgeError:
    return ForgeError(message, status=Status.TOOL_NOT_FOUND, code="TOOL_NOT_FOUND")


def unavailable_message(name: str, found: Diagnostic | None, available: tuple[str, ...] = ()) -> str:
    """`available`: what could be named instead of one that is not there."""
    shown = name[:128]
    if found is not None:
        return f"custom tool '{shown}' is not available: {found.code}: {found.message}"
    if available:
        return f"custom tool '{shown}' not found. Available tools: {', '.join(available)}"
    none = "No custom tools are currently available. Use create_custom_tool to create one"
    return f"custom tool '{shown}' not found. {none}"


def _not_executed(args: dict[str, Any]) -> str:
    raise AssertionError("its calls are handed on")
