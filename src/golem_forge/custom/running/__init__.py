"""Running: one run of a user tool in its walls, from approved values to a Finished.

Takes a Run, in which everything was judged and approved; gives what became of it. Nothing that the tool does raises:
its time is up, it is cancelled, it writes without end, it is killed; all of that is a Finished, and what it said until
then is kept. Raises where nothing was started: ToolFailed (a variable that is not set), SandboxError (no walls).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from golem_forge.core.call import Caller
from golem_forge.core.finished import Finished
from golem_forge.custom.entry import Entry, Kind, Program
from golem_forge.custom.running.arguments import Passed
from golem_forge.custom.running.reach import Reach
from golem_forge.custom.running.surroundings import Place, declared_values, environment
from golem_forge.custom.running.touching import hosts_of
from golem_forge.sandbox.walls.job import HostDirectory, HostGrant, Job, Nowhere, Streams
from golem_forge.tools.context import ToolContext

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walled_child import WalledChild

_TIMEOUT: Final = "TIMEOUT"
_ENDED: Final = "ENDED"
Start = Callable[[], Awaitable["WalledChild"]]


class RunOn(Protocol):
    """How a `background` tool goes on after its call has answered; given by whoever has exec sessions."""

    def __call__(self, start: Start, ctx: ToolContext, seconds: float) -> Awaitable[Finished]: ...


class Desk(Protocol):
    """The way from inside a running tool to the tools it may call; `inside.calls.CallDesk` is one."""

    @property
    def shown(self) -> tuple[HostDirectory, ...]: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def path(self) -> tuple[str, ...]:
        """Where the command `forge` and the module `forge_tool` stand inside."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    entry: Entry
    program: Program
    passed: Passed
    reach: Reach
    timeout: float
    """Seconds, fractions too."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """What declared variables are copied from."""
    lifted: frozenset[str] = frozenset()
    """Masked paths that this call's approved effects name."""
    desk: AbstractAsyncContextManager[Desk] | None = None
    """For a tool with `calls`: open as long as it runs."""
    run_on: RunOn | None = None
    """For a `background` tool."""


async def run_tool(run: Run, ctx: ToolContext) -> Finished:
    if run.desk is None:
        return await _run(run, None, ctx)
    async with run.desk as desk:
        return await _run(run, desk, ctx)


async def _run(run: Run, desk: Desk | None, ctx: ToolContext) -> Finished:
    job = await _job(run, desk, ctx)
    # Called by another tool it ends with its call: a session would outlive whoever asked for it, and its time.
    if run.entry.manifest.background and run.run_on is not None and ctx.caller is not Caller.TOOL:
        merged = replace(job, streams=Streams.MERGED)  # one text, as a session is read
        return await run.run_on(lambda: start_program(run, merged, ctx), ctx, run.timeout)
    return await _watched(run, job, ctx)


async def start_program(run: Run, job: Job, ctx: ToolContext) -> WalledChild:
    """The one place that decides how a program is started: Python by an interpreter that may have been started ahead,
    anything else as it is. `job` has its arguments already."""
    if run.program.kind is not Kind.PYTHON:
        return await run.reach.walls.start(job)
    from golem_forge.custom.inside.interpreter import Order
    from golem_forge.custom.inside.interpreters import Interpreters

    interpreters = ctx.parts.get(Interpreters)
    interpreter = await interpreters.take(run.reach.walls, await _waiting_job(run, job))
    try:
        await interpreter.go(
            Order(script=run.program.script, argv=run.passed.argv, stdin=run.passed.stdin, search=job.path_first)
        )
    except BaseException:
        await interpreter.end()
        raise
    return interpreter.walled


async def _waiting_job(run: Run, job: Job) -> Job:
    from golem_forge.custom.inside.interpreter import python_job

    return python_job(replace(job, stdin=None), run.program, await run.reach.walls.level())


async def _prepare_next(run: Run, job: Job, ctx: ToolContext) -> None:
    """Walls that may write keep placeholders in their zones: nobody waits in such without a call."""
    if run.program.kind is Kind.PYTHON and job.reads_only:
        from golem_forge.custom.inside.interpreters import Interpreters

        ctx.parts.get(Interpreters).prepare(run.reach.walls, await _waiting_job(run, job))


async def _watched(run: Run, job: Job, ctx: ToolContext) -> Finished:
    import asyncio

    from golem_forge.custom.running.outcome import Ran, finished
    from golem_forge.tools.live_output import shown_live

    began = time.monotonic()
    walled = await start_program(run, job, ctx)
    child = walled.child
    assert child.errors is not None  # the streams were asked for apart
    try:
        async with shown_live(ctx, {"stdout": child.output, "stderr": child.errors}):
            ending = await child.wait(run.timeout) or await child.end(_TIMEOUT)
    except asyncio.CancelledError:
        ending = await child.end(_ENDED)
        if not ctx.cancel:  # the caller itself is gone: nobody is left to read it
            walled.tell_unread()
            raise
    ran = Ran(
        manifest=run.entry.manifest,
        ending=ending,
        out=child.output,
        err=child.errors,
        after=walled.aftermath(),
        seconds=time.monotonic() - began,
        timeout=run.timeout,
        reach=run.reach,
    )
    await _prepare_next(run, job, ctx)
    return await finished(ran, ctx)


async def _job(run: Run, desk: Desk | None, ctx: ToolContext) -> Job:
    manifest, program = run.entry.manifest, run.program
    declared = declared_values(manifest, run.environ, ctx.redactor)
    level = await run.reach.walls.level()
    place = Place(
        workspace=run.reach.workspace(level),
        tool_dir=program.tool_dir,
        session_id=ctx.session_id,
        call_id=ctx.call_id,
        timeout=run.timeout,
    )
    script = (program.script,) if program.kind is Kind.PYTHON else ()
    return Job(
        argv=(*program.argv, *script, *run.passed.argv),
        cwd=_cwd(run.reach),
        nowhere=Nowhere.TEMPORARY,
        env={**environment(run.entry, place, declared), **run.passed.env, **(desk.env if desk else {})},
        streams=Streams.APART,
        hosts=tuple(
            HostGrant(host, port, private=ctx.host_rule(host, port).private) for host, port in hosts_of(manifest)
        ),
        shares_network=manifest.network is True,
        lifted=run.lifted,
        reads_only=run.reach.reads_only,
        stdin=run.passed.stdin,
        path_first=desk.path if desk else (),
        shown=(*program.shown, *(desk.shown if desk else ())),
    )


def _cwd(reach: Reach) -> str:
    return f"/{reach.sandbox.default_zone}" if reach.sandbox.default_zone else ""
