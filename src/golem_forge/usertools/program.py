"""A program of `run_code`: planned, run in read-only walls, and served the tool calls that it makes.

`plan_program` refuses, before anybody is asked, a program inside another tool's call and a machine without full walls;
its effects are reads of the worker's zones. The run starts Forge's own Python in walls in which every zone is
read-only, with the socket through which it calls tools (`ProgramCallServer`). Its time stops while a question about one
of its calls is open. The result is what it printed, what it gave to `answer`, and a line for each tool it called.

Threat: a model wrote the text, and a page or a file may have told it what to write. The program gets nothing that a
walled command would not get, and every effect of it is a call that the path judges. Forge never runs it a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.core.calls import Caller, ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.effects import AtMost, Effect, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import safe_json
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import escape_control_chars
from golem_forge.orchestrator.bound_output import VALUE_LIMIT
from golem_forge.sandbox.errors import walls_unavailable
from golem_forge.sandbox.process.monitor import ENDED
from golem_forge.sandbox.walls.model import Job, Level, ProbeReport, StartDirectory, Streams
from golem_forge.sandbox.walls.walls import WalledChild
from golem_forge.storage.home import create_private, forge_home
from golem_forge.tools.catalog import is_reserved
from golem_forge.tools.context import Plan, ProgramCalls, ToolContext
from golem_forge.tools.live_output import wait_to_end
from golem_forge.tools.tool import Tool
from golem_forge.usertools.build.languages import ISOLATED_FLAGS, own_interpreter
from golem_forge.usertools.diagnostics import Unusable
from golem_forge.usertools.folder import ProgramKind, ToolProgram
from golem_forge.usertools.manifest import ToolManifest
from golem_forge.usertools.native_tools import RUN_CODE
from golem_forge.usertools.run.access import ASK_DOCTOR, ToolAccess, tool_access, zone_effect
from golem_forge.usertools.run.call_server import (
    CallRequest,
    LookupRequest,
    SessionCallServer,
    refusal_answer,
)
from golem_forge.usertools.run.interpreter import CALL_DIRECTORY, InterpreterPool, python_job
from golem_forge.usertools.run.output import FinishedRun, finish_run

PROGRAM_FILE: Final = "program.py"
NO_ANSWER: Final = object()
_MOST_COUNTED: Final = 100
_DENIALS: Final = frozenset({Status.APPROVAL_DENIED, Status.POLICY_DENIED, Status.SANDBOX_DENIED})


@dataclass(slots=True)
class CallCount:
    calls: int = 0
    failed: int = 0
    denied: int = 0
    """How many of the failed ones were denied."""


class ProgramCallServer(SessionCallServer):
    """The socket of one running program, which may call what its worker's model may. Each request is a call on the one
    path, with the program's own call as its parent.

    Refused, and recorded: more than `max_calls`, and a name that only Forge itself calls (`client:…`). Modes, blocks
    and zones are the path's business: a manual tool is not found and a blocked one is denied, whoever names it. A
    person who ends the turn at one of its questions ends the program (`stopped`). It counts what was called, and keeps
    the last value given to `answer`.
    """

    def __init__(self, ctx: ToolContext, code: str, max_calls: int) -> None:
        super().__init__(ctx, Level.FULL, max_calls)
        self.counts: dict[str, CallCount] = {}
        """By tool, in the order of their first calls."""
        self.given: Any = NO_ANSWER
        self.stopped = asyncio.Event()
        """A person ended the turn."""
        self._code = code

    def prepare(self, directory: Path) -> None:
        with create_private(directory / PROGRAM_FILE) as file:
            file.write(self._code.encode("utf-8", "surrogatepass"))

    def visible_tools(self) -> Mapping[str, Tool]:
        return {name: tool for name, tool in super().visible_tools().items() if name != RUN_CODE}

    async def find_tool(self, name: str) -> Tool | None:
        return None if is_reserved(name) or name == RUN_CODE else await self.ctx.find(name)

    def search_tools(self, query: str, limit: int) -> Sequence[Tool]:
        offered = self.ctx.offered
        found = offered.search_tools(query, limit + 1) if offered is not None else ()
        return [tool for tool in found if tool.name != RUN_CODE][:limit]

    async def look_up(self, request: LookupRequest) -> dict[str, Any]:
        if request.op != "answer":
            return await super().look_up(request)
        if request.size > VALUE_LIMIT:
            why = f"an answer has at most {VALUE_LIMIT // 1024} KiB; print what is longer"
            return refusal_answer(Status.INPUT_INVALID, why)
        self.given = safe_json(request.said.get("answer"))[0]  # Python also reads NaN and lone surrogates
        return {"status": Status.SUCCESS.value}

    async def answer(self, request: CallRequest, number: int) -> dict[str, Any]:
        why = ""
        if number > self.most_calls:
            why = f"a program may make at most {self.most_calls} calls"
        elif is_reserved(request.name):
            why = f"'{request.name}' is no tool"
        try:
            args = await self.arguments(request)
        except ValueError as error:
            return refusal_answer(Status.INPUT_INVALID, f"{request.name}: {error}")
        outcome = await self.ctx.call(request.name, args, refuse=why, whole=request.wants_value)
        self._count(outcome.tool, outcome.status)
        if outcome.stop_turn:
            self.stopped.set()
        return await self.answer_of(outcome, request)

    def _count(self, tool: str, status: Status) -> None:
        known = tool if tool in self.counts or len(self.counts) < _MOST_COUNTED else "others"
        count = self.counts.setdefault(known, CallCount())
        count.calls += 1
        if status is not Status.SUCCESS:
            count.failed += 1
            count.denied += status in _DENIALS


_MANIFEST: Final = ToolManifest(
    name=RUN_CODE, description="A program that calls tools.", version="1", entrypoint=PROGRAM_FILE
)
"""The permissions of a run: no network, no variable, every zone read-only."""
_WRITE_BY_TOOLS: Final = "Zones are read-only inside a program; to write there, call a tool, like write_file."


async def plan_program(args: dict[str, Any], ctx: ToolContext, max_calls: int) -> Plan:
    if ctx.caller is Caller.TOOL:
        text = f"{RUN_CODE} cannot be called from inside a program or another tool; call the tools themselves."
        raise ForgeError(text, status=Status.POLICY_DENIED, code="NESTED_PROGRAM")
    access = tool_access(_MANIFEST, ctx)
    _check_walls(await access.walls.report())
    code, seconds = args["code"], args["timeout_ms"] / 1000

    async def run() -> ToolCompletion:
        return await _run(code, seconds, access, ctx, max_calls)

    starts = Effect(verb=Verb.EXEC, target="a Python program that only reads", proven=True, at_most=AtMost.READS)
    return Plan(run=run, effects=(starts, *map(zone_effect, access.zones)), payload=code, read_only=True)


def _check_walls(report: ProbeReport) -> None:
    if report.level is not Level.FULL:
        cause = report.cause or f"this machine has walls of level {report.level.value}"
        raise walls_unavailable(f"a program needs full walls, and {cause}", report.fix or ASK_DOCTOR)


async def _run(code: str, seconds: float, access: ToolAccess, ctx: ToolContext, max_calls: int) -> ToolCompletion:
    program = ctx.program = ProgramCalls()
    server = ProgramCallServer(ctx, code, max_calls)
    began = time.monotonic()
    async with server:
        walled = await _start(server, access, ctx)
        async with _ended_by(server, walled):
            ending = await wait_to_end(walled, ctx, seconds)
    assert walled.child.errors is not None
    ran = FinishedRun(
        manifest=_MANIFEST,
        ending=ending,
        out=walled.child.output,
        err=walled.child.errors,
        after=walled.aftermath(),
        seconds=time.monotonic() - began - program.asked_s,
        timeout=seconds,
    )
    return _with_calls(await finish_run(ran, ctx), server)


async def _start(server: ProgramCallServer, access: ToolAccess, ctx: ToolContext) -> WalledChild:
    try:
        python = own_interpreter(ctx.home or forge_home().path)
    except Unusable as problem:
        raise ForgeError(str(problem), status=Status.EXECUTION_FAILED, code="NO_PYTHON") from None
    script = f"{CALL_DIRECTORY}/{PROGRAM_FILE}"
    started = ToolProgram(
        kind=ProgramKind.PYTHON, argv=(python.path, *ISOLATED_FLAGS), script=script, shown=python.shown
    )
    workspace = access.workspace(Level.FULL)
    job = Job(
        argv=(*started.argv, script),
        cwd=f"/{access.sandbox.default_zone}" if access.sandbox.default_zone else "",
        nowhere=StartDirectory.TEMPORARY,
        env={**({"FORGE_WORKSPACE": workspace} if workspace else {}), **server.env},
        streams=Streams.APART,
        limits=replace(access.walls.limits, timeout_s=None),
        reads_only=True,
        path_first=server.path,
        shown=(*started.shown, *server.shown),
    )
    interpreter = await ctx.parts.get(InterpreterPool).take(access.walls, python_job(job, started, Level.FULL))
    return await interpreter.run(script, search=server.path)


@contextlib.asynccontextmanager
async def _ended_by(server: ProgramCallServer, walled: WalledChild) -> AsyncIterator[None]:
    """The program ends when a person ends the turn."""

    async def end() -> None:
        await server.stopped.wait()
        await walled.child.end(ENDED)

    ending = asyncio.ensure_future(end())
    try:
        yield
    finally:
        ending.cancel()


def _with_calls(completion: ToolCompletion, server: ProgramCallServer) -> ToolCompletion:
    """Adds the program's answer and its calls to the result."""
    result, counts = completion.result, server.counts
    lines: list[str] = []
    if server.given is not NO_ANSWER:
        result.value["answer"] = server.given
        lines.append(f"Answer: {json.dumps(server.given, ensure_ascii=False)}")
    if counts:
        result.value["calls"] = {
            name: {"calls": each.calls, "failed": each.failed, "denied": each.denied} for name, each in counts.items()
        }
        lines += [_count_line(name, each) for name, each in counts.items()]
    if completion.status is Status.SANDBOX_DENIED:
        lines.append(_WRITE_BY_TOOLS)
    if lines:
        before = result.text + ("" if result.text.endswith("\n") or not result.text else "\n")
        result.text = before + "\n".join(lines)
    if blocks := server.handles.blocks_of(server.given):
        result.content = ({"type": "text", "text": result.text}, *blocks)
    completion.stop_turn = server.stopped.is_set()
    return completion


def _count_line(name: str, count: CallCount) -> str:
    failed = f", {count.failed} failed" if count.failed else ""
    denied = f" ({count.denied} denied)" if count.denied else ""
    calls = "1 call" if count.calls == 1 else f"{count.calls} calls"
    return f"[{escape_control_chars(name)}: {calls}{failed}{denied}]"
