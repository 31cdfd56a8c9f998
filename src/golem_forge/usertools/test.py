"""A tool's own tests, run for real: each case starts fresh, in a private workspace, in the strictest walls there are.

`run_tests` takes an entry and its program, gives one CaseResult a case. Whatever the manifest asks for, there is no
network, no zone but `/workspace`, no variable but the case's own, and no tool to call: what a case recorded of calls is
answered as it was. Raises SandboxError where walls cannot be built: that is this machine's failure, not the tool's.
Threat: this may be the first time that the code runs; a cancel ends its whole process tree, and the time of one case
and of all cases is bounded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.config.sandbox_block import WallSettings, variable_problem
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import display_name
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.files import write_atomic
from golem_forge.sandbox.target import FileKind
from golem_forge.sandbox.walls.model import Job, Level, ProbeReport, ShownPath, Streams
from golem_forge.sandbox.walls.walls import WalledChild, Walls
from golem_forge.storage.home import READ_FLAGS, ForgeHome, create_private
from golem_forge.tools.inputs import SchemaInput
from golem_forge.usertools.expectations import (
    MOST_OUTPUT,
    CaseResult,
    CaseRun,
    PatternResult,
    case_name,
    ended_as_expected,
    find_problems,
    quote_value,
    search_pattern,
    workspace_parts,
)
from golem_forge.usertools.folder import TOOL_DIR, ProgramKind, ToolEntry, ToolProgram, program_directory, scratch_walls
from golem_forge.usertools.kept_program import read_recording
from golem_forge.usertools.manifest import Parameter, PathUse, TestCase, ToolManifest, input_schema
from golem_forge.usertools.run import ProcessInput, RunInfo, process_input, tool_environment
from golem_forge.usertools.run.call_server import ReplayingCallServer
from golem_forge.usertools.run.interpreter import WaitingInterpreter, python_job
from golem_forge.usertools.run.tool_values import Recording

TEST_ZONE: Final = "workspace"
MOST_CASES: Final = 200
WHOLE_RUN_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _TestRun:
    """What all cases of a run share."""

    entry: ToolEntry
    program: ToolProgram
    home: ForgeHome
    settings: WallSettings | None
    report: ProbeReport | None
    session_id: str
    until: float
    """The deadline on the monotonic clock."""


class _InvalidCase(Exception):
    """Raised for a case that cannot be run as written."""


async def run_tests(
    entry: ToolEntry,
    program_of: Callable[[Level], ToolProgram],
    *,
    home: ForgeHome,
    settings: WallSettings | None = None,
    report: ProbeReport | None = None,
    whole_run_s: float = WHOLE_RUN_S,
) -> tuple[CaseResult, ...]:
    run = _TestRun(
        entry=entry,
        program=program_of(Level.FULL),  # a scratch directory has these walls or none
        home=home,
        settings=settings,
        report=report,
        session_id=new_id(),
        until=time.monotonic() + whole_run_s,
    )
    results = []
    for index, case in enumerate(entry.manifest.tests):
        name = case_name(case.name, index)
        if index >= MOST_CASES:
            results.append(_not_run(name, f"was not run: at most {MOST_CASES} cases are"))
        elif time.monotonic() >= run.until:
            results.append(_not_run(name, f"was not run: all cases together may take {whole_run_s:g} seconds"))
        else:
            results.append(await _run_case(run, name, case))
    return tuple(results)


async def _run_case(run: _TestRun, name: str, case: TestCase) -> CaseResult:
    async with program_directory(run.home, "tests") as directory:
        try:
            _write_files(directory, case.files)
        except _InvalidCase as why:
            return _not_run(name, str(why))
        walls = scratch_walls(directory, zone=TEST_ZONE, home=run.home, settings=run.settings, report=run.report)
        with walls.sandbox:
            try:
                passed, only = _arguments(run.entry.manifest, case.arguments, walls)
                env = _environment(run, case) | passed.env
            except _InvalidCase as why:
                return _not_run(name, str(why))
            seconds = min(case.timeout, max(run.until - time.monotonic(), 0.1))
            try:
                seen = await _run_program(run, walls, case, replace(passed, env=env), only, seconds)
            except _InvalidCase as why:
                return _not_run(name, str(why))
            found = find_problems(case.expect, seen)
    stdout = None
    with contextlib.suppress(UnicodeDecodeError):
        stdout = None if seen.ending.code else seen.stdout.decode()
    return CaseResult(
        name=name,
        ok=not found,
        duration_ms=round(seen.ending.seconds * 1000),
        problems=found,
        stdout=stdout,
        as_expected=ended_as_expected(case.expect, seen),
    )


async def _run_program(
    run: _TestRun,
    walls: Walls,
    case: TestCase,
    passed: ProcessInput,
    only: tuple[ShownPath, ...] | None,
    seconds: float,
) -> CaseRun:
    program = run.program
    job = Job(
        argv=(*program.argv, *passed.argv),
        env=passed.env,
        only=only,
        streams=Streams.APART,
        limits=replace(walls.limits, timeout_s=seconds, output=MOST_OUTPUT),
        lifted=frozenset(f"/{TEST_ZONE}/{name}" for name in case.files),  # literal text of the case is nobody's secret
        stdin=passed.stdin,
        shown=program.shown,
    )
    async with contextlib.AsyncExitStack() as opened:
        if run.entry.manifest.calls:
            server = await opened.enter_async_context(ReplayingCallServer(run.home, _recording(run, case)))
            env = {**job.env, **server.env}
            job = replace(job, shown=(*job.shown, *server.shown), env=env, path_first=server.path)
        return await _wait_for_end(await _start_program(walls, job, program, passed), walls, case, seconds)


def _recording(run: _TestRun, case: TestCase) -> Recording | None:
    """Returns the recorded answers for the case's calls. Raises _InvalidCase."""
    if not case.calls:
        return None
    snapshot = next((each.host for each in run.program.shown if each.inner == TOOL_DIR), run.entry.folder)
    try:
        return read_recording(Path(snapshot), run.entry.manifest, case.calls)
    except ForgeError as error:
        raise _InvalidCase(error.message) from None


async def _start_program(walls: Walls, job: Job, program: ToolProgram, passed: ProcessInput) -> WalledChild:
    """Python as a call starts it, so that what holds in a test holds in a call."""
    if program.kind is not ProgramKind.PYTHON:
        return await walls.start(job)
    interpreter = await WaitingInterpreter.start(walls, python_job(replace(job, stdin=None), program, Level.FULL))
    return await interpreter.run(program.script, passed.argv, passed.stdin, job.path_first)


async def _wait_for_end(walled: WalledChild, walls: Walls, case: TestCase, seconds: float) -> CaseRun:
    child = walled.child
    try:
        ending = await child.wait()
    finally:
        await child.end()  # a cancel comes here, too, and its workspace goes only after the last process
    assert ending is not None
    zone = walls.sandbox.zones[TEST_ZONE]
    stdout, pattern = child.output.read(), case.expect.stdout_matches
    searched = PatternResult.NOT_FOUND
    if pattern is not None and not ending.code:
        searched = await search_pattern(pattern, stdout.decode("utf-8", "replace"))
    return CaseRun(
        ending=ending,
        timeout=seconds,
        stdout=stdout,
        stderr=child.errors.read() if child.errors is not None else b"",
        searched=searched,
        open=lambda parts: zone.opener(zone.root.fd, parts, READ_FLAGS),
    )


def _environment(run: _TestRun, case: TestCase) -> dict[str, str]:
    for name, value in case.env.items():
        if why := variable_problem(name):
            raise _InvalidCase(f"env: {display_name(name)} {why}")
        if "\0" in value:
            raise _InvalidCase(f"env: {name} contains NUL")
    place = RunInfo(
        workspace=f"/{TEST_ZONE}",
        tool_dir=run.program.tool_dir,
        session_id=run.session_id,
        call_id=new_id(),
        timeout=case.timeout,
    )
    return tool_environment(run.entry, place, case.env)


def _arguments(
    manifest: ToolManifest, given: Mapping[str, Any], walls: Walls
) -> tuple[ProcessInput, tuple[ShownPath, ...] | None]:
    """Checks the arguments by the same rules as a call's, so that a test cannot pass what no caller could. Also returns
    the parts of the workspace that the tool sees, if not all.
    """
    try:
        values = SchemaInput(input_schema(manifest)).check(dict(given)).values
        all_values = ((each, values.get(each.name, each.default)) for each in manifest.parameters)
        paths = [(each, value) for each, value in all_values if each.path is not None and value is not None]
        passed = process_input(manifest, values, paths=_inner_paths(paths, walls))
        return passed, _shown_paths(paths, walls) if manifest.only_paths else None
    except ForgeError as error:
        raise _InvalidCase(f"arguments: {display_name(error.message)}") from None


def _shown_paths(paths: Iterable[tuple[Parameter, Any]], walls: Walls) -> tuple[ShownPath, ...]:
    shown = []
    for parameter, value in paths:
        with walls.sandbox.target(value, Verb.READ) as target:
            directory, found = target.kind is FileKind.DIRECTORY, target.exists
        if parameter.path is PathUse.WRITE and not found:
            with walls.sandbox.target(value, Verb.WRITE) as missing:
                write_atomic(missing, b"")
        if found or parameter.path is PathUse.WRITE:
            shown.append(ShownPath(TEST_ZONE, target.parts, directory, parameter.path is PathUse.WRITE))
    return tuple(shown)


def _inner_paths(paths: Iterable[tuple[Parameter, Any]], walls: Walls) -> dict[str, str]:
    """Returns the path inside of each `path` argument: in the workspace, which has the same name on both sides."""
    inner = {}
    for parameter, value in paths:
        try:
            inner[parameter.name] = walls.sandbox.locate(value).virtual
        except SandboxError as error:
            raise _InvalidCase(f"arguments: {parameter.name}: {display_name(error.message)}") from None
    return inner


def _write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Writes the files of a case. Nothing has run yet, so nothing in the directory can lead elsewhere; the names are
    checked for that too.
    """
    for name, text in files.items():
        if not (parts := workspace_parts(name)):
            raise _InvalidCase(f"files: {quote_value(name)} is not the name of a file below the workspace")
        path = directory.joinpath(*parts)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with create_private(path) as file:
                file.write(text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise _InvalidCase(f"files: {quote_value(name)} cannot be put in place ({error.strerror})") from None


def _not_run(name: str, why: str) -> CaseResult:
    return CaseResult(name=name, ok=False, duration_ms=0, problems=(why,))
