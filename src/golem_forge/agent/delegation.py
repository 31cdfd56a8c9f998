"""Delegation: other workers as tools. Each takes an input and gives its one answer.

A plan refuses before anybody is asked: too deep, in a circle, zones the caller lacks, attachments it may not read. The
call holds no slot at the gate; the child's calls take their own. A worker never answers an approval: what a child asks
appears at the root with the path of workers that led to it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from golem_forge.agent.attachments import AttachmentStore, OfferedFile, check_attachments, read_zone_attachments
from golem_forge.agent.budget import Budget, Meter
from golem_forge.agent.files.roster import Roster
from golem_forge.agent.files.worker import Worker, WorkerBlocks
from golem_forge.agent.model.interface import Model
from golem_forge.agent.model.selection import choose_child_model
from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.agent.session_plan import plan_worker
from golem_forge.agent.session_state import SessionState
from golem_forge.agent.worker_manager import WorkerManager, WorkerRun, task_line
from golem_forge.config.program import ApprovalSettings
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import AtMost, Effect, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import sha256_hex
from golem_forge.core.lazy_dataclass import replace
from golem_forge.policy.base import ApprovalBlock
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import AccessMode
from golem_forge.tools.context import Plan, ProgramCalls, ToolContext
from golem_forge.tools.results import to_result
from golem_forge.tools.tool import Tool

_ENDED: Final = {
    RunStatus.COMPLETED: Status.SUCCESS,
    RunStatus.INTERRUPTED: Status.INTERRUPTED,
    RunStatus.TERMINATED: Status.INTERRUPTED,
}


def new_worker_manager(
    session_state: SessionState, roster: Roster, given: Mapping[str, Model] | None = None
) -> WorkerManager:
    """Builds the manager of a session with these workers. `given`: models made in Python, by name."""
    return WorkerManager(
        state=session_state,
        roster=roster,
        attachments=AttachmentStore(session_state.home.path, session_state.id),
        meter=Meter(),
        budget=Budget(session_state.program.run.budget),
        delegations=delegation_tools,
        given=given or {},
    )


def delegation_tools(manager: WorkerManager, caller: WorkerRun) -> list[Tool]:
    """One tool for each worker that `caller` may hand work to."""
    places = asyncio.Semaphore(manager.state.program.run.delegation.max_parallel)
    return [
        Tool(
            worker.name,
            worker.description or f"Hands a task to the worker '{worker.name}' and gives its answer.",
            input_schema=_schema(worker),
            planner=partial(_plan, manager, caller, worker, places),
            label=f"Ask {worker.name}",
            category="Workers",
            gated=False,
            mode="llm",
            code_digest=_digest(worker),
            always_load=True,  # a worker's file names them to be asked; none of them is one of many
        )
        for worker in manager.roster.delegates(caller.worker)
    ]


def _digest(worker: Worker) -> str:
    """Its whole file is what an approval was given for: one that reaches further is another tool."""
    return sha256_hex(repr(replace(worker, path=None, shown_path="", lines={})))


def _schema(worker: Worker) -> dict[str, Any]:
    typed = _below_input(dict(worker.input_schema)) if worker.input_schema else {"type": "string"}
    typed.setdefault("description", f"What '{worker.name}' is to do or work on.")
    return {
        "type": "object",
        "properties": {
            "input": typed,
            "instructions": {"type": "string", "description": "Additional instructions for this one task."},
            "attachments": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Files to hand over, by address: /zone/path.",
            },
        },
        "required": ["input"],
        "additionalProperties": False,
    }


def _below_input(part: Any) -> Any:
    """A schema as it stands in that of the tool: pointers of `$ref` begin at the root of the whole."""
    if isinstance(part, list):
        return [_below_input(each) for each in part]
    if not isinstance(part, dict) or "$id" in part:  # in a schema with an address of its own they begin there
        return part
    moved = {key: _below_input(value) for key, value in part.items()}
    reference = part.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        moved["$ref"] = f"#/properties/input{reference[1:]}"
    return moved


def _plan(
    manager: WorkerManager,
    caller: WorkerRun,
    worker: Worker,
    places: asyncio.Semaphore,
    args: dict[str, Any],
    ctx: ToolContext,
) -> Plan:
    _refuse_depth_and_circle(manager, caller, worker)
    limit, wider = _unasked_limit(manager, caller, worker)
    attached = read_zone_attachments(caller.scope.sandbox, args.get("attachments") or ())
    check_attachments(attached, worker.attachment_policy)
    given = args["input"]
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    if not text.strip() and not worker.allow_empty_input:
        raise ForgeError(f"'{worker.name}' takes no empty input", status=Status.INPUT_INVALID)
    read = (each.effect for each in attached if each.effect is not None)
    leaves = None
    if ctx.contains:  # its own calls are judged in the same mode
        leaves = (f"'{worker.name}' may do more by itself than this mode covers",) if wider else ()
    effects = (Effect(verb=Verb.SPAWN, target=worker.name, at_most=limit, leaves=leaves), *read)

    async def run() -> ToolCompletion:
        async with places:
            return await _run_child(manager, caller, worker, text, args.get("instructions", ""), attached, ctx.program)

    def close() -> None:
        for each in attached:
            each.close()

    return Plan(run=run, effects=effects, payload=text, close=close)


_WRITE_UNASKED: Final = frozenset({ApprovalMode.APPROVE_ALL, ApprovalMode.CONTAINED})


def _unasked_limit(manager: WorkerManager, caller: WorkerRun, worker: Worker) -> tuple[AtMost, bool]:
    """Returns the most that a sub-worker could do without a question, and whether its file or the program allows it.
    Its zones are opened and closed again, so that what it may reach is settled before anybody is asked. Raises
    ForgeError for zones that the caller lacks.
    """
    session_state = manager.state
    plan = plan_worker(session_state.program, session_state.home, worker)
    sandbox = plan.open_zones([], caller.scope.sandbox, caller.worker.name)
    try:
        asks = _asks_before_writing(plan.blocks, sandbox) and not _grants(session_state.program.approval)
    finally:
        sandbox.close()
    wider = not asks
    asks = asks and session_state.rules.is_empty() and session_state.controller.mode not in _WRITE_UNASKED
    return AtMost.READS if asks else AtMost.WRITES, wider


def _asks_before_writing(blocks: WorkerBlocks, sandbox: Sandbox) -> bool:
    """Whether nothing in its file lets it do more than read without a question. Tools of others decide
    for themselves.
    """
    if blocks.code or blocks.workers or blocks.user_tools or blocks.mcp or any(map(_grants, blocks.approval.values())):
        return False
    zones = (zone for zone in sandbox.zones.values() if zone.mode is AccessMode.RW)
    says = {verdict for zone in zones for verdict in (zone.write, zone.delete)}
    return Verdict.PRE_APPROVED not in says and f"'{Verdict.PRE_APPROVED}'" not in repr(blocks.native)


def _grants(said: ApprovalBlock | ApprovalSettings) -> bool:
    settings = [*said.tools.values(), *([said.default] if said.default else [])]
    return any(setting.value is Verdict.PRE_APPROVED for setting in settings)


def _refuse_depth_and_circle(manager: WorkerManager, caller: WorkerRun, worker: Worker) -> None:
    names = caller.scope.names
    if worker.name in names:
        path = " -> ".join((*names, worker.name))
        raise ForgeError(f"Circular delegation detected: {path}", status=Status.POLICY_DENIED, code="DELEGATION_CIRCLE")
    deepest = manager.state.program.run.delegation.max_depth
    if caller.scope.depth + 1 > deepest:
        raise ForgeError(
            f"Maximum delegation depth ({deepest}) exceeded. Current path: {' -> '.join(names)}",
            status=Status.POLICY_DENIED,
            code="DELEGATION_DEPTH",
        )


async def _run_child(
    manager: WorkerManager,
    caller: WorkerRun,
    worker: Worker,
    text: str,
    instructions: str,
    attached: tuple[OfferedFile, ...],
    program: ProgramCalls | None,
) -> ToolCompletion:
    """`program`: the one that called it, if one did."""
    if instructions:
        together = f"{worker.instructions}\n\n## Additional Instructions\n\n{instructions}"
        worker = replace(worker, instructions=together)
    model = choose_child_model(worker, caller.model_choice).model
    run = await manager.start(worker, model=model, caller=caller, task=task_line(text))
    run.scope.orchestrator.scope.program = program
    run.emit_update("running")
    result: RunResult | None = None
    try:
        assert run.loop is not None
        files = tuple(manager.attachments.keep(each, run.loop.dialogue.model) for each in attached)
        result = await run.loop.answer(text, files)
    finally:
        done = result is not None and result.status is RunStatus.COMPLETED
        stopped = result is None or _ENDED.get(result.status) is Status.INTERRUPTED
        run.emit_update("complete" if done else "error", "interrupted" if stopped else "")
        await manager.stop(run)
    return _finished(worker, result, stop_turn=run.loop.stopped)


def _finished(worker: Worker, result: RunResult, *, stop_turn: bool) -> ToolCompletion:
    value = {
        "success": result.status is RunStatus.COMPLETED,
        "response": result.response if result.status is RunStatus.COMPLETED else result.partial,
        "error": result.error or None,
        "workerName": worker.name,
        "toolCallCount": result.tool_call_count,
        "tokens": result.usage.total,
    }
    if result.warning:
        value["warning"] = result.warning
    status = _ENDED.get(result.status, Status.EXECUTION_FAILED)
    error = "" if status is Status.SUCCESS else f"'{worker.name}' {result.error or result.status.value}"
    return ToolCompletion(result=to_result(value), status=status, error=error, stop_turn=stop_turn)
