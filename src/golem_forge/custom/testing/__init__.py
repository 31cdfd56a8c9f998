"""A tool's own tests, run for real: each case starts fresh, in a private workspace, in the strictest walls there are.

`run_tests` takes an entry and what is executed for it, gives one CaseResult a case. Whatever the manifest asks for,
there is no network, no zone but `/workspace`, no variable but the case's own, and no tool to call. Raises SandboxError
where walls cannot be built: that is this machine's failure, not the tool's. Threat: this may be the first time that the
code runs; a cancel ends its whole tree, and one slow or loud case after the other is bounded, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.custom.entry import Entry, Kind, Program
from golem_forge.custom.manifest import Manifest, TestCase
from golem_forge.custom.rooms import filled_directory, room
from golem_forge.custom.running.surroundings import Place as Surroundings
from golem_forge.custom.running.surroundings import environment
from golem_forge.custom.testing.checks import MOST_OUTPUT, Seen, ended_as_expected, inside, problems
from golem_forge.custom.testing.pattern import Search, search
from golem_forge.custom.testing.report import CaseResult, case_name, on_one_line, quoted
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls.environment import refused_name
from golem_forge.sandbox.walls.job import Job, Streams
from golem_forge.sandbox.walls.levels import Level

if TYPE_CHECKING:
    from golem_forge.config.home import ForgeHome
    from golem_forge.custom.running.arguments import Passed
    from golem_forge.events.redaction import Redactor
    from golem_forge.sandbox.walls.levels import WallsReport
    from golem_forge.sandbox.walls.settings import WallSettings
    from golem_forge.sandbox.walls.walled_child import WalledChild
    from golem_forge.sandbox.walls.walls import Walls

ZONE: Final = "workspace"
MOST_CASES: Final = 200
WHOLE_RUN_S: Final = 600.0
_LOOK: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """What all cases of a run have in common."""

    entry: Entry
    program: Program
    home: ForgeHome
    settings: WallSettings | None
    report: WallsReport | None
    redactor: Redactor | None
    session_id: str
    until: float
    """On the monotonic clock."""


class _Unfit(Exception):
    """A case that cannot be run as it is written."""


async def run_tests(
    entry: Entry,
    program_of: Callable[[Level], Program],
    *,
    home: ForgeHome,
    settings: WallSettings | None = None,
    report: WallsReport | None = None,
    redactor: Redactor | None = None,
    session_id: str = "",
    whole_run_s: float = WHOLE_RUN_S,
) -> tuple[CaseResult, ...]:
    ground = _Ground(
        entry=entry,
        program=program_of(Level.FULL),  # a room has these walls or none
        home=home,
        settings=settings,
        report=report,
        redactor=redactor,
        session_id=session_id or new_id(),
        until=time.monotonic() + whole_run_s,
    )
    results = []
    for index, case in enumerate(entry.manifest.tests):
        name = case_name(case.name, index)
        if index >= MOST_CASES:
            results.append(_unrun(name, f"was not run: at most {MOST_CASES} cases are"))
        elif time.monotonic() >= ground.until:
            results.append(_unrun(name, f"was not run: all cases together may take {whole_run_s:g} seconds"))
        else:
            results.append(await _run_case(ground, name, case))
    return tuple(results)


async def _run_case(ground: _Ground, name: str, case: TestCase) -> CaseResult:
    async with filled_directory(ground.home, "tests") as directory:
        try:
            _fill(directory, case.files)
        except _Unfit as why:
            return _unrun(name, str(why))
        walls = room(
            directory,
            zone=ZONE,
            home=ground.home,
            settings=ground.settings,
            redactor=ground.redactor,
            report=ground.report,
        )
        with walls.sandbox:
            try:
                passed = _arguments(ground.entry.manifest, case.arguments, walls)
                env = _environment(ground, case) | passed.env
            except _Unfit as why:
                return _unrun(name, str(why))
            seconds = min(case.timeout, max(ground.until - time.monotonic(), 0.1))
            seen = await _seen(ground, walls, case, passed, env, seconds)
            found = problems(case.expect, seen)
    return CaseResult(
        name=name,
        ok=not found,
        duration_ms=round(seen.ending.seconds * 1000),
        problems=found,
        stdout=_as_text(seen.stdout) if not seen.ending.code else None,
        as_expected=ended_as_expected(case.expect, seen),
    )


async def _seen(
    ground: _Ground, walls: Walls, case: TestCase, passed: Passed, env: dict[str, str], seconds: float
) -> Seen:
    program = ground.program
    job = Job(
        argv=(*program.argv, *passed.argv),
        env=env,
        streams=Streams.APART,
        limits=replace(walls.limits, timeout_s=seconds, output=MOST_OUTPUT),
        lifted=frozenset(f"/{ZONE}/{name}" for name in case.files),  # literal text of the case is nobody's secret
        stdin=passed.stdin,
        shown=program.shown,
    )
    if not ground.entry.manifest.calls:
        return await _watched(await _started(walls, job, program, passed), walls, case, seconds)
    from golem_forge.custom.inside.calls import RefusingDesk

    async with RefusingDesk(ground.home) as desk:
        job = replace(job, shown=(*job.shown, *desk.shown), env={**job.env, **desk.env}, path_first=desk.path)
        return await _watched(await _started(walls, job, program, passed), walls, case, seconds)


async def _started(walls: Walls, job: Job, program: Program, passed: Passed) -> WalledChild:
    """Python as a call starts it, so that what holds in a test holds in a call."""
    if program.kind is not Kind.PYTHON:
        return await walls.start(job)
    from golem_forge.custom.inside.interpreter import Interpreter, Order, python_job

    interpreter = await Interpreter.start(walls, python_job(replace(job, stdin=None), program, Level.FULL))
    try:
        await interpreter.go(Order(script=program.script, argv=passed.argv, stdin=passed.stdin, search=job.path_first))
    except BaseException:
        await interpreter.end()
        raise
    return interpreter.walled


async def _watched(walled: WalledChild, walls: Walls, case: TestCase, seconds: float) -> Seen:
    child = walled.child
    try:
        ending = await child.wait()
    finally:
        await child.end()  # a cancel comes here, too, and its workspace goes only after the last process
    assert ending is not None
    zone = walls.sandbox.zones[ZONE]
    stdout, pattern = child.output.read(), case.expect.stdout_matches
    searched = Search.NOT_FOUND
    if pattern is not None and not ending.code:
        searched = await search(pattern, stdout.decode("utf-8", "replace"))
    return Seen(
        ending=ending,
        timeout=seconds,
        stdout=stdout,
        stderr=child.errors.read() if child.errors is not None else b"",
        searched=searched,
        open=lambda parts: zone.opener(zone.root.fd, parts, _LOOK),
    )


def _environment(ground: _Ground, case: TestCase) -> dict[str, str]:
    for name, value in case.env.items():
        if why := refused_name(name):
            raise _Unfit(f"env: {on_one_line(name)} {why}")
        if "\0" in value:
            raise _Unfit(f"env: {name} contains NUL")
    place = Surroundings(
        workspace=f"/{ZONE}",
        tool_dir=ground.program.tool_dir,
        session_id=ground.session_id,
        call_id=new_id(),
        timeout=case.timeout,
    )
    return environment(ground.entry, place, case.env)


def _arguments(manifest: Manifest, given: Mapping[str, Any], walls: Walls) -> Passed:
    """By the same rules as a call's, so that a test cannot pass what no caller could."""
    from golem_forge.custom.manifest.schema import input_schema
    from golem_forge.custom.running.arguments import passed
    from golem_forge.tools.inputs import SchemaInput

    try:
        values = SchemaInput(input_schema(manifest)).check(dict(given)).values
        return passed(manifest, values, paths=_inner_paths(manifest, values, walls))
    except ForgeError as error:
        raise _Unfit(f"arguments: {on_one_line(error.message)}") from None


def _inner_paths(manifest: Manifest, values: Mapping[str, Any], walls: Walls) -> dict[str, str]:
    """Where the file of each `path` argument stands: in the workspace, which has the same name on both sides."""
    inner = {}
    for parameter in manifest.parameters:
        if parameter.path is None:
            continue
        value = values.get(parameter.name, parameter.default if parameter.has_default else None)
        if value is not None:
            try:
                inner[parameter.name] = walls.sandbox.locate(value).virtual
            except SandboxError as error:
                raise _Unfit(f"arguments: {parameter.name}: {on_one_line(error.message)}") from None
    return inner


def _fill(directory: Path, files: Mapping[str, str]) -> None:
    """Nothing has run yet, so nothing in the directory can lead elsewhere; the names themselves must not either."""
    for name, text in files.items():
        if not (parts := inside(name)):
            raise _Unfit(f"files: {quoted(name)} is no name of a file below the workspace")
        path = directory.joinpath(*parts)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, _NEW, 0o600), "wb") as file:
                file.write(text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise _Unfit(f"files: {quoted(name)} cannot be put in place ({error.strerror})") from None


def _as_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _unrun(name: str, why: str) -> CaseResult:
    return CaseResult(name=name, ok=False, duration_ms=0, problems=(why,))
