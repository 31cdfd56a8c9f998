"""The root worker of a session: start it, announce it, run one turn.

    program → workers → trust (asked where a person can answer, after problems were reported) → model → scope →
    state of an earlier run

`start_session` raises before anything ran: ConfigError (a configuration that cannot be used), NotTrusted (it needs code
that nobody trusts), ModelError (no model, no key), and the errors of resuming. Nothing is left behind then.

`run_turn` takes a user's input with its attachments and returns the root worker's answer. It raises nothing: an input
or a file that the worker does not take, a missing model and an interrupt are RunResults, and no request was made.
`receive_attachment` stores a file for a later input.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.attachments import OfferedFile, ReceivedFile, check_attachments, check_count
from golem_forge.agent.budget import cost_of, price_of
from golem_forge.agent.delegation import new_worker_manager
from golem_forge.agent.files.roster import Roster, check_preflight
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.files.worker_file import PATH_SUFFIXES
from golem_forge.agent.history import History, recap
from golem_forge.agent.loop import INTERRUPTED_TEXT, Loop
from golem_forge.agent.model.interface import Attachment, Model, ModelError
from golem_forge.agent.model.selection import ModelKeys, missing_key, no_model_message
from golem_forge.agent.prompt import input_problem
from golem_forge.agent.resume import OpenTurn, Resumed, native_definition, resume
from golem_forge.agent.run_result import RunInterrupted, RunResult, RunStatus, unless_interrupted
from golem_forge.agent.session_hooks import TurnHooks
from golem_forge.agent.session_plan import SessionPlan, plan_session, replan
from golem_forge.agent.session_state import (
    RunFacts,
    SessionBus,
    SessionOptions,
    SessionState,
    choose_root_model,
    open_session_state,
    record_run,
)
from golem_forge.agent.slash.invocation import manual_tools_event
from golem_forge.agent.trust import NotTrusted, ask_for_trust
from golem_forge.agent.user_tools import session_suggestions
from golem_forge.agent.worker_manager import WorkerManager, WorkerRun
from golem_forge.config.program import program_root
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.options import require
from golem_forge.core.signals import InterruptSignal
from golem_forge.events.index import LAST
from golem_forge.events.runtime_ui import RuntimeUI
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.factory import GivenTool


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions(SessionOptions):
    """`answers`: a UI that answers may attach later, so what asks is denied only as long as nobody is there. `depth`:
    of this worker, if it is started below another one."""

    home: ForgeHome
    signal: InterruptSignal
    worker: Worker | Path | str | None = None
    directory: Path | str | None = None
    model: str | Model | None = None
    resume: str = ""
    tools: Sequence[GivenTool] = ()
    needs_model: bool = True
    """False lets it start without a model, so that tools can be called by hand; a named model is opened while the
    person types.
    """

    @property
    def given_model(self) -> Model | None:
        """Returns the model if it was made in Python."""
        return None if self.model is None or isinstance(self.model, str) else self.model

    @property
    def start_directory(self) -> Path:
        if self.directory is not None:
            return Path(self.directory)
        if isinstance(self.worker, Path) or (isinstance(self.worker, str) and self.worker.endswith(PATH_SUFFIXES)):
            return Path(self.worker).absolute().parent
        return Path.cwd()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedSession:
    state: SessionState
    workers: WorkerManager
    run: WorkerRun
    resumed: Resumed | None
    notices: list[str] = field(default_factory=list)
    """Warnings for the person."""
    remarks: list[str] = field(default_factory=list)
    """Texts for the person that are no warnings."""
    hooks: TurnHooks | None = None
    """None if the session has no hooks."""


class StartInterrupted(ForgeError):
    """Raised if a person interrupted the trust card or the import of a module. Nothing ran, nothing is left."""

    def __init__(self, reason: str) -> None:
        terminated = reason == "terminated"
        super().__init__(
            f"{'terminated' if terminated else 'interrupted'} before the worker could start",
            status=Status.INTERRUPTED,
            code="START_TERMINATED" if terminated else "START_INTERRUPTED",
        )


async def start_session(asked: RuntimeOptions, session_bus: SessionBus, ui: RuntimeUI) -> StartedSession:
    resumed = None
    if asked.resume:
        root = program_root(asked.start_directory) if asked.resume == LAST else ""
        journals = None if isinstance(asked.journal, bool) else asked.journal
        redact = session_bus.redactor.value
        # A program that embeds the session is asked again; a person at a UI says what is next.
        asks_again = asked.approval_callback is not None
        resumed = resume(
            asked.home.path, asked.resume, root=root, redact=redact, journals=journals, asks_again=asks_again
        )
    directory = Path(resumed.directory) if resumed else asked.start_directory
    asked = replace(asked, answers=asked.answers or asked.approval_callback is not None or ui.attached)
    wanted = asked.worker
    if resumed is not None and not isinstance(wanted, Worker):
        wanted = resumed.worker_reference
    try:
        plan = plan_session(directory, asked, wanted)
        session_state = open_session_state(
            plan, asked, session_bus=session_bus, reopened=resumed.journal if resumed else None
        )
    except BaseException:
        if resumed is not None:
            resumed.journal.close()
        raise
    try:
        if await _ask_trust(plan, session_state):
            plan = replan(plan, directory, asked, wanted)
            session_state.use_program(plan.program)
            session_state.controller.mode = plan.mode.value
        if plan.waits_for_trust:
            raise NotTrusted(plan.program.root)
        return await _start_root(asked, session_state, plan, resumed)
    except BaseException:
        session_state.discard()
        raise


async def _ask_trust(plan: SessionPlan, session_state: SessionState) -> bool:
    """Asks the person, if one is there, to trust what trust would change anything for. Raises ConfigError first for
    what is wrong with it."""
    roster = plan.roster
    assert roster is not None
    if roster.trusted:
        return False
    check_preflight(plan.program, roster, plan.home)
    something = plan.program.unused or roster.unused or roster.needs_code
    return bool(
        something and session_state.ui.may_trust and await ask_for_trust(session_state.ui, plan.trust, plan.program)
    )


async def _start_root(
    asked: RuntimeOptions, session_state: SessionState, plan: SessionPlan, resumed: Resumed | None
) -> StartedSession:
    roster = plan.roster
    assert roster is not None
    notices: list[str] = []
    given = asked.given_model
    manager = new_worker_manager(session_state, roster, {given.name: given} if given else None)
    worker_id = resumed.worker_id if resumed else new_id()
    history = History(session_state.journal, worker_id, resumed.history if resumed else ())
    if resumed is not None:  # what was spent is shown, and no id comes twice
        spent, settings = resumed.usage, session_state.program.run
        if resumed.unpriced:  # somebody may have written the price since then
            prices = {name: price_of(name, settings.models, settings.pricing) for name, _ in resumed.unpriced}
            spent.price_later([cost_of(usage, prices[name]) for name, usage in resumed.unpriced])
        manager.meter.restore(spent.usage, spent.requests, spent.cost, spent.prices)
        session_state.call_ids |= resumed.call_ids
        session_state.turn = resumed.turns
    run = await manager.start(
        roster.root,
        model=given.name if given else _chosen_model(asked, session_state, roster.root, resumed, notices),
        worker_id=worker_id,
        history=history,
        more_tools=asked.tools,
        model_later=not asked.needs_model,
    )
    if resumed is not None:
        # The worker's own limits count too.
        run.budget.restore(spent.usage, spent.requests, resumed.calls, spent.known_cost)
        resumed.restore_into(session_state, lambda worker, tool: _current_definition(run, worker, tool))
        run.scope.model_tools.restore(resumed.loaded)
        notices += [resumed.warning] if resumed.warning else []
    _record_run(session_state, run, roster)
    unused = [notice] if (notice := plan.program.notice_with(roster.unused)) else []
    notices = [*unused, *notices, *roster.warnings, *run.notices]
    return StartedSession(
        state=session_state,
        workers=manager,
        run=run,
        resumed=resumed,
        notices=notices,
        remarks=_mode_remarks(plan),
        hooks=TurnHooks(run.scope, resumed=resumed is not None) if session_state.hooks is not None else None,
    )


def _mode_remarks(plan: SessionPlan) -> list[str]:
    """Returns a remark if the mode is the person's answer from an earlier session, which they may have forgotten."""
    kept_in, _, id = plan.mode.origin.rpartition(": ")
    if plan.mode.value is not ApprovalMode.CONTAINED or kept_in != plan.home.shown(plan.home.remembered):
        return []
    back = f"`forge rules revoke {id}` takes the answer back"
    return [f"Forge works on its own in this directory, as you chose; /mode changes it, {back}."]


def _current_definition(run: WorkerRun, worker: str, tool: str) -> str | None:
    """The digest of a tool as it is now; only the root worker's are known before others are called."""
    path = run.scope.orchestrator
    found = path.catalog.get(tool) if worker == path.worker else None
    return found.definition_digest if found is not None else native_definition(worker, tool)


def _chosen_model(
    asked: RuntimeOptions, session_state: SessionState, worker: Worker, resumed: Resumed | None, notices: list[str]
) -> str:
    """Empty where there is none and it can do without."""
    settings = session_state.program.run
    flag = (asked.model if isinstance(asked.model, str) else "") or (resumed.model if resumed else "")
    stored = ModelKeys(session_state.home)
    chosen = choose_root_model(session_state.program, worker, stored, flag)
    problem = no_model_message(settings.models, os.environ, stored)
    if chosen.model and not (problem := missing_key(chosen.model, settings.models, os.environ, stored)):
        return chosen.model
    if asked.needs_model:
        raise ModelError(problem)
    notices.append(f"{problem}. {TOOLS_WITHOUT_MODEL}" if chosen.model else f"{NO_MODEL_YET} {TOOLS_WITHOUT_MODEL}")
    return ""


NO_MODEL_YET: Final = "No model yet: `forge models setup` chooses one."
TOOLS_WITHOUT_MODEL: Final = "Tools work without it: /tools."
AttachmentInput = OfferedFile | Path | str | Mapping[str, Any]
"""A file that comes with an input; a mapping names one that `receive` has kept."""
_INPUTS_AHEAD: Final = 4
"""The files of so many inputs may be sent before the inputs that name them: in several windows somebody still types."""
EMPTY_INPUT: Final = (
    "the input is empty: give it as words, with --input or --file, or on standard input, in Python as the text of "
    "`run(text)` (a worker that needs none says `allow_empty_input: true`)"
)
NO_MODEL: Final = "no model: `/model provider:name` names one; meanwhile /tools lists what you can run by hand"


async def run_turn(
    session: StartedSession,
    signal: InterruptSignal,
    text: str,
    attachments: Sequence[AttachmentInput] = (),
    by: str = "",
    said: str | None = None,
) -> RunResult:
    """`said`: what of the text a person said, where others wrote a part of it; None: all of it."""
    require(isinstance(text, str), "the input of a worker", "a text (JSON, where it has an input_schema)", text)
    run = session.run
    try:
        loop = await unless_interrupted(signal, session.workers.wait_for_model(run))
        kept = _check_input(session, text, attachments)
        denied = await unless_interrupted(signal, session.hooks.begin_turn(text)) if loop and session.hooks else ""
    except ConfigError as error:
        return _refused_result(run, RunStatus.INVALID_CONFIG, str(error))
    except ModelError as error:
        return _refused_result(run, RunStatus.MODEL_UNAVAILABLE, error.message)
    except RunInterrupted as stopped:
        return RunResult(success=True, status=stopped.status, response=INTERRUPTED_TEXT, worker=run.worker.name)
    if loop is None:
        return _refused_result(run, RunStatus.MODEL_UNAVAILABLE, NO_MODEL)
    if denied:
        return _refused_result(run, RunStatus.FAILED, denied)
    message: dict[str, Any] = {"role": "user", "content": text} | ({"by": by} if by else {})
    if said is not None:
        message["said"] = said
    if kept:
        message["attachments"] = [{"name": each.name, "size": each.size} for each in kept]
    loop.dialogue.last_text = ""
    session.state.turn += 1
    if session.state.reviewer is not None:
        redact = session.state.redactor.redact_secrets
        session.state.reviewer.begin_turn(redact(text if said is None else said), "" if said is None else redact(text))
    run.scope.emit("message", {"message": message})
    run.emit_update("running", text)
    return await _end_turn(session, signal, loop, await loop.answer(text, kept))


async def continue_turn(session: StartedSession, signal: InterruptSignal, turn: OpenTurn) -> RunResult:
    """Continues a turn that another process began."""
    run = session.run
    try:
        loop = await unless_interrupted(signal, session.workers.wait_for_model(run))
    except ModelError as error:
        return _refused_result(run, RunStatus.MODEL_UNAVAILABLE, error.message)
    except RunInterrupted as stopped:
        return RunResult(success=True, status=stopped.status, response=INTERRUPTED_TEXT, worker=run.worker.name)
    if loop is None:
        return _refused_result(run, RunStatus.MODEL_UNAVAILABLE, NO_MODEL)
    loop.dialogue.last_text = ""
    run.emit_update("running")
    return await _end_turn(session, signal, loop, await loop.go_on(turn))


async def _end_turn(session: StartedSession, signal: InterruptSignal, loop: Loop, result: RunResult) -> RunResult:
    """Emits how a turn ended, once hooks have nothing more to send back."""
    run = session.run
    if session.hooks is not None:
        result = await _with_hooks(session.hooks, signal, loop, result)
    done = result.status is RunStatus.COMPLETED
    run.emit_update("complete" if done else "error", result.error or result.status.value)
    if result.error:
        run.scope.emit("status", {"type": "error", "message": result.error, "code": result.status.value})
    elif run.user_tools is not None and done:
        await session_suggestions(session.state).after_turn(run.scope)
    return result


async def _with_hooks(hooks: TurnHooks, signal: InterruptSignal, loop: Loop, result: RunResult) -> RunResult:
    """The last answer, after each that a hook at `turn_end` was not content with."""
    calls = result.tool_call_count
    try:
        while result.status is RunStatus.COMPLETED and (
            complaint := await unless_interrupted(signal, hooks.end_turn(result))
        ):
            result = await loop.answer_note(complaint)
            calls += result.tool_call_count
    except RunInterrupted:
        pass  # of a hook: the answer is there
    return replace(result, tool_call_count=calls)


def receive_attachment(session: StartedSession, name: str, data: bytes) -> ReceivedFile:
    """Raises AttachmentRefused if this worker takes no such file."""
    policy = session.run.worker.attachment_policy
    check_attachments((OfferedFile.of_bytes(name, data),), policy)
    return session.workers.attachments.receive(name, data, _INPUTS_AHEAD * policy.max_total_bytes)


def _check_input(session: StartedSession, text: str, attachments: Sequence[AttachmentInput]) -> tuple[Attachment, ...]:
    """Checks the input before any request. Raises ConfigError for an input or a file that this worker
    does not accept.
    """
    worker, loop, store = session.run.worker, session.run.loop, session.workers.attachments
    if not text.strip() and not worker.allow_empty_input:
        raise ConfigError(EMPTY_INPUT)
    if worker.input_schema is not None and (problem := input_problem(text, worker.input_schema)):
        raise ConfigError(problem)
    check_count(len(attachments), worker.attachment_policy)
    given = tuple(_as_offered_file(session, each) for each in attachments)
    check_attachments(given, worker.attachment_policy)
    if loop is None:
        return ()
    return tuple(store.keep(each, loop.dialogue.model) for each in given)


def _as_offered_file(session: StartedSession, each: AttachmentInput) -> OfferedFile:
    if isinstance(each, Mapping):
        return session.workers.attachments.offered(each)
    return each if isinstance(each, OfferedFile) else OfferedFile.of_file(Path(each))


def _refused_result(run: WorkerRun, status: RunStatus, problem: str) -> RunResult:
    run.scope.emit("status", {"type": "error", "message": problem, "code": status.value})
    return RunResult(success=False, status=status, error=problem, worker=run.worker.name)


def announce(started: StartedSession, mode: str) -> None:
    run = started.run
    zones = [{"name": zone.name, "mode": zone.mode.value} for zone in run.scope.sandbox.zones.values()]
    run.scope.emit(
        "sessionStarted",
        {
            "worker": run.worker.name,
            "model": run.model_name,
            "mode": mode,
            "approvalMode": started.state.controller.mode.value,
            "zones": zones,
            "resumed": started.resumed is not None,
        },
    )
    for notice in started.notices:
        run.scope.emit("status", {"type": "warning", "message": notice})
    for remark in started.remarks:
        run.scope.emit("status", {"type": "info", "message": remark})
    run.look_at_project()
    resumed = started.resumed
    if resumed is not None and resumed.open_turn is None and (said := recap(resumed.history)):
        run.scope.emit("status", {"type": "info", "message": said})
    run.scope.emit("manualToolsAvailable", manual_tools_event(run.scope.catalog))


def _record_run(session_state: SessionState, run: WorkerRun, roster: Roster) -> None:
    """Records what a resume needs to start this worker at the root again."""
    if session_state.journal is None:
        return
    worker, root = run.worker, str(session_state.program.root)
    facts = RunFacts(
        name=worker.name,
        worker_id=run.scope.id,
        directory=root,
        root=root,
        worker=str(worker.path) if worker.path is not None else worker.name,
        model=run.model_choice,
        mode=worker.mode or "",
        approval_mode=session_state.controller.mode.value,
        files=dict(roster.files),
    )
    record_run(session_state.journal, facts)
