"""The state of a tool, and the steps from a folder to a tool that is offered.

    draft → built → tested → active        retired: switched off, whatever it was

State belongs to a name and a digest: another byte is another tool, and one that was trusted before is trusted still.
`tool_status` gives the state and, in one sentence, why a tool is not offered.

    make_ready           builds (or checks) the snapshot; none of the tool's code runs
    the trust card       source or diff, permissions, tests (on the one path, or `forge tools activate`)
    run_required_tests   its tests, in the strictest walls; with trust: active

A failing step ends the promotion, raises ForgeError and is kept in the store. `activate_tool` never prompts: the
caller shows the card and its callback says whether a person agreed to exactly that. Retiring keeps the folder and the
trust.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import slash_command
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import ProbeReport
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.content_store import Snapshot
from golem_forge.usertools.build import PreparedTool
from golem_forge.usertools.create import find_identical, find_similar
from golem_forge.usertools.diagnostics import Diagnostic, DiagnosticCode, Unusable
from golem_forge.usertools.expectations import CaseResult, failed_tests_text
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.manifest import MANIFEST_FILE, is_real_test
from golem_forge.usertools.store.queries import VersionStatus
from golem_forge.usertools.test import run_tests
from golem_forge.usertools.trust_card import ToolFacts, TrustCard, trust_card
from golem_forge.usertools.workshop import StepProgress, Workshop


class ToolState(StrEnum):
    DRAFT = "draft"
    BUILT = "built"
    TESTED = "tested"
    ACTIVE = "active"
    RETIRED = "retired"


class ToolStatus(NamedTuple):
    state: ToolState
    trusted: bool
    tested: bool
    why: Diagnostic | None
    """Why it is not active; None if it is."""


_ACTIVE: Final = ToolStatus(ToolState.ACTIVE, trusted=True, tested=True, why=None)


def tool_status(workshop: Workshop, entry: ToolEntry) -> ToolStatus:
    return _make_status(workshop, entry, workshop.store.version_status(entry.name, entry.digest))


def tool_statuses(workshop: Workshop, entries: Iterable[ToolEntry]) -> dict[str, ToolStatus]:
    """Returns the statuses by name, with one query for all of them."""
    by_name = {entry.name: entry for entry in entries}
    known = workshop.store.version_statuses({name: entry.digest for name, entry in by_name.items()})
    return {name: _make_status(workshop, entry, known[name]) for name, entry in by_name.items()}


def inactive_tools(workshop: Workshop) -> tuple[Diagnostic, ...]:
    """Why each folder that is not active is not, by name."""
    waiting = (each.why for each in tool_statuses(workshop, workshop.registry.entries.values()).values())
    found = [*workshop.registry.diagnostics, *(why for why in waiting if why is not None)]
    return tuple(sorted(found, key=lambda each: each.tool))


def _make_status(workshop: Workshop, entry: ToolEntry, version: VersionStatus) -> ToolStatus:
    trusted = workshop.is_trusted(entry, trusted=version.trusted, shadow=version.may_replace)
    built = version.build_status
    state = ToolState.TESTED if built.tested else ToolState.BUILT if built.built else ToolState.DRAFT
    if version.retired:
        state = ToolState.RETIRED
        why = DiagnosticCode.RETIRED, f"switched off; `forge tools restore {entry.name}` brings it back"
    elif trusted and built.tested:
        return _ACTIVE
    else:
        why = built.failure or _why_inactive(workshop, entry, version)
    return ToolStatus(state, trusted, built.tested, Diagnostic(tool=entry.name, code=why[0], message=why[1]))


def _why_inactive(workshop: Workshop, entry: ToolEntry, version: VersionStatus) -> tuple[DiagnosticCode, str]:
    name, before = entry.name, version.last_trusted
    how = f"`forge tools activate {name}`"
    # Trust that was given while no built-in tool had the name is no agreement to stand in for one.
    if workshop.shadows(name) and not version.last_may_replace:
        waiting = f"replaces the built-in tool '{name}', which answers until you approve it"
        return DiagnosticCode.SHADOW_PENDING, f"{waiting}; {how} asks"
    if not workshop.shadows(name):  # else /name means the built-in tool while this one is not active
        how = f"run {slash_command(name)} or {how}"
    if before and before != entry.digest:
        return DiagnosticCode.CHANGED, f"changed since it was trusted; {how} to see the change"
    return DiagnosticCode.UNTRUSTED, f"not active; {how}"


MOST_OUTPUT = 4096
_BUILD_FAILURES = frozenset({DiagnosticCode.BUILD_FAILED, DiagnosticCode.DEPENDENCIES_UNAVAILABLE})
"""Diagnostics of an attempted build; the others mean that there is nothing to try."""


@dataclass(slots=True, kw_only=True)
class ReadyTool:
    """A tool as far as it comes without anybody's consent."""

    entry: ToolEntry
    snapshot: Snapshot
    prepared: PreparedTool | None
    """None if its dependencies must be fetched first, which asks."""
    hosts: tuple[str, ...] = ()
    """The hosts to fetch them from."""


class BuildFailed(ForgeError):
    def __init__(self, name: str, cause: Unusable) -> None:
        text, status = f"custom tool '{name}' failed to build:\n{cause.message}", Status.EXECUTION_FAILED
        if cause.diagnostic_code is not DiagnosticCode.BUILD_FAILED:
            text = f"custom tool '{name}' is not available: {cause.diagnostic_code}: {cause.message}"
        if cause.diagnostic_code not in _BUILD_FAILURES:  # known, and not runnable here
            status = Status.TOOL_NOT_FOUND
        super().__init__(text, status=status, code=cause.code)
        self.cause = cause


def check_promotable(workshop: Workshop, entry: ToolEntry) -> None:
    """Checks that a tool made by an agent has a test, and that no other tool is identical. Raises ForgeError."""
    if not any(map(is_real_test, entry.manifest.tests)) and workshop.store.is_agent_made(entry.name):
        empty = "; a test without `expect` is none" if entry.manifest.tests else ""
        raise ForgeError(
            f"custom tool '{entry.name}' needs at least one test in tool.yaml before it can be activated{empty}",
            code="NEEDS_TEST",
        )
    if same := identical_tool(workshop, entry.name, workshop.registry.files(entry).files):
        raise ForgeError(
            f"custom tool '{entry.name}' is identical to custom tool '{same}'; change or remove one of them",
            code="IDENTICAL",
        )


_SECONDS_BETWEEN_LINES: Final = 10


def report_lines(tell: Callable[[str], None]) -> StepProgress:
    """Returns a reporter that writes lines: one when a step begins, and one every 10 seconds while it goes on."""
    told = 0

    def report(text: str, seconds: int | None) -> None:
        nonlocal told
        if seconds == 0:
            told = 0
            tell(text)
        elif seconds is not None and seconds >= told + _SECONDS_BETWEEN_LINES:
            told = seconds
            tell(f"{text} ({seconds} s)")

    return report


@asynccontextmanager
async def _counting_seconds(report: StepProgress) -> AsyncIterator[Callable[[str], None]]:
    """Gives what is called as each step begins. From then on `report` hears of the step every second."""
    step, began = "", 0.0

    def begin(text: str) -> None:
        nonlocal step, began
        step, began = text, time.monotonic()
        report(text, 0)

    async def count() -> None:
        while True:
            await asyncio.sleep(1)
            if step and (seconds := int(time.monotonic() - began)):
                report(step, seconds)

    counting = asyncio.create_task(count())
    try:
        yield begin
    finally:
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        if step:
            report(step, None)


async def make_ready(workshop: Workshop, entry: ToolEntry, report: StepProgress | None = None) -> ReadyTool:
    """Builds what can be built offline. `report`: who is told what takes a while; else whoever is at the workshop.
    Raises BuildFailed."""
    try:
        snapshot = workshop.registry.snapshot(entry)
        if (known := workshop.prepared.get(entry.digest)) is not None and known.is_there():
            return ReadyTool(entry=entry, snapshot=snapshot, prepared=known)
        files = workshop.registry.files(entry)
        prepared = workshop.builder.find_prepared(entry, snapshot, files)
        if prepared is None:
            needs = workshop.builder.needs(entry, files)
            if needs.hosts and not needs.cached:
                return ReadyTool(entry=entry, snapshot=snapshot, prepared=None, hosts=needs.hosts)
            async with _counting_seconds(report or _at_workshop(workshop)) as begin:
                prepared = await workshop.builder.build(entry, snapshot, files, report=begin)
            workshop.changes += 1
        workshop.store.mark_built(entry.name, entry.digest)  # what an earlier build left may be new to the store
    except Unusable as cause:
        raise _record_failure(workshop, entry, cause) from None
    workshop.keep_prepared(entry.digest, prepared)
    return ReadyTool(entry=entry, snapshot=snapshot, prepared=prepared)


async def fetch_and_build(workshop: Workshop, ready: ReadyTool, report: StepProgress | None = None) -> PreparedTool:
    """The build with the hosts that were approved for it. Raises BuildFailed."""
    if ready.prepared is None:
        entry, builder = ready.entry, workshop.builder
        try:
            files = workshop.registry.files(entry)
            async with _counting_seconds(report or _at_workshop(workshop)) as begin:
                ready.prepared = await builder.build(entry, ready.snapshot, files, hosts=ready.hosts, report=begin)
        except Unusable as cause:
            raise _record_failure(workshop, ready.entry, cause) from None
        workshop.store.mark_built(ready.entry.name, ready.entry.digest)
    return ready.prepared


def _at_workshop(workshop: Workshop) -> StepProgress:
    return workshop.on_step or report_lines(partial(workshop.report, "info"))


async def run_required_tests(
    workshop: Workshop, entry: ToolEntry, prepared: PreparedTool, *, report: ProbeReport | None
) -> tuple[CaseResult, ...]:
    """Runs its tests; the state follows. Only after the person said yes. Raises TestsFailed."""
    results = await run_tests(entry, prepared.program, home=workshop.home, settings=workshop.settings, report=report)
    workshop.changes += 1
    if not all(one.ok for one in results):
        error = TestsFailed(entry.name, results)
        workshop.store.mark_failed(entry.name, entry.digest, DiagnosticCode.TESTS_FAILED, error.message[:MOST_OUTPUT])
        raise error
    workshop.store.mark_tested(entry.name, entry.digest)
    return results


class TestsFailed(ForgeError):
    __test__ = False

    def __init__(self, name: str, results: tuple[CaseResult, ...]) -> None:
        super().__init__(failed_tests_text(name, results), code="TESTS_FAILED")
        self.results = results


def make_trust_card(workshop: Workshop, ready: ReadyTool) -> TrustCard:
    entry, store = ready.entry, workshop.store
    before = store.last_trusted(entry.name)
    return trust_card(
        entry,
        workshop.registry.files(entry),
        ToolFacts(
            provenance=store.provenance(entry.name).describe(),
            folder_shown=workshop.display_folder(entry.name),
            build_hosts=ready.hosts,
            similar=similar_tools(workshop, entry.name, entry.manifest.description),
            shadows=workshop.shadows(entry.name),
            denied=store.denials(entry.name, entry.digest),
        ),
        workshop.registry.version_files(before) if before and before != entry.digest else None,
    )


def similar_tools(workshop: Workshop, name: str, description: str) -> tuple[str, ...]:
    own = {each.name: each.manifest.description for each in workshop.registry.entries.values()}
    return find_similar(name, description, {**workshop.native, **own})


def identical_tool(workshop: Workshop, name: str, files: Mapping[str, bytes]) -> str:
    """Returns the tool that has the same files apart from its name; empty if none. Only folders whose other files are
    identical are opened.
    """
    sources = sorted(sha256(data).hexdigest() for file, data in files.items() if file != MANIFEST_FILE)
    candidates = (
        each
        for each in workshop.registry.entries.values()
        if sorted(fact.sha256 for fact in each.files if fact.path != MANIFEST_FILE) == sources
    )
    return find_identical(files, name, ((each.name, workshop.registry.files(each).files) for each in candidates))


def _record_failure(workshop: Workshop, entry: ToolEntry, cause: Unusable) -> BuildFailed:
    workshop.store.mark_failed(entry.name, entry.digest, cause.diagnostic_code, cause.message[:MOST_OUTPUT])
    workshop.changes += 1
    return BuildFailed(entry.name, cause)


ConsentCallback = Callable[[ReadyTool], bool]


async def activate_tool(workshop: Workshop, entry: ToolEntry, agreed: ConsentCallback) -> tuple[CaseResult, ...] | None:
    """Its tests, as far as they had to run; None: not agreed, and nothing of it ran."""
    name, status = entry.name, tool_status(workshop, entry)
    if status.state is ToolState.RETIRED:
        raise ForgeError(f"'{name}' is retired. `forge tools restore {name}` switches it on again.", code="RETIRED")
    if status.state is ToolState.ACTIVE:
        return ()
    check_promotable(workshop, entry)
    ready = await make_ready(workshop, entry)
    if not agreed(ready):
        return None
    prepared = await fetch_and_build(workshop, ready)
    if status.tested:
        return ()
    return await run_required_tests(workshop, entry, prepared, report=await walls_report(workshop))


async def walls_report(workshop: Workshop) -> ProbeReport:
    """Returns the walls of this machine, tested once for everything that is started."""
    return await Walls(Sandbox(), workshop.settings, forge_home=workshop.home.path, redactor=workshop.redactor).report()


def retire_tool(workshop: Workshop, name: str) -> str:
    """Raises ToolStoreError where it cannot be kept."""
    if workshop.store.is_retired(name):
        return f"tool '{name}' was retired already"
    workshop.store.retire(name)
    return f"tool '{name}' is retired; `forge tools restore {name}` brings it back"


def restore_tool(workshop: Workshop, name: str) -> str:
    """Restores a retired tool; one that was active becomes active again without a question. Raises ToolStoreError if it
    cannot be stored.
    """
    if not workshop.store.restore(name):
        return f"tool '{name}' was not retired"
    found = workshop.registry.lookup(name)
    why = tool_status(workshop, found).why if isinstance(found, ToolEntry) else found
    if why is None:
        return f"tool '{name}' is active"
    return f"tool '{name}' is restored, and not active: {why.code}: {why.message}"


def status_line(workshop: Workshop, name: str) -> str:
    """Whether the tool as it is now is offered, and what to do if it is not. May quote what others wrote."""
    found = workshop.registry.lookup(name)
    if found is None:
        return "Its folder has no tool.yaml, so it is not a tool."
    if isinstance(found, Diagnostic):
        return f"It is not a usable tool: {found.text}"
    state, trusted, _, _ = tool_status(workshop, found)
    if state is ToolState.ACTIVE:
        return "It is active: exactly these files were trusted before."
    if state is ToolState.RETIRED:
        return f"It is retired; `forge tools restore {name}` switches it on."
    if trusted:
        return f"You trusted these files before, but it is only {state}; `forge tools activate {name}` goes on."
    return f"It is not active ({state}, untrusted); `forge tools activate {name}` shows what it is and asks."
