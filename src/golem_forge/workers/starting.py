"""Starting a root worker: from what was asked for to a worker in its place, ready to answer.

    program → workers → trust (asked where a person can be, after what is wrong was said) → model → place → what an
    earlier run left behind

Refuses before anything ran: ConfigError (a configuration that cannot be used), NotTrusted (it needs code of its own and
nobody trusts it), ModelError (no model, no key), and the errors of resuming. Nothing is left behind then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golem_forge.config.home import ForgeHome
from golem_forge.config.modes import ApprovalMode
from golem_forge.config.program import program_root
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.signal import InterruptSignal
from golem_forge.core.verdict import Status
from golem_forge.events.finding import LAST
from golem_forge.events.questions import RuntimeUI
from golem_forge.policy.asking import ApprovalCallback
from golem_forge.tools.tool import Tool
from golem_forge.workers.attachments import AttachmentStore
from golem_forge.workers.budget import Budget
from golem_forge.workers.crew import Crew, WorkerRun
from golem_forge.workers.delegation import delegation_tools
from golem_forge.workers.foreknown import check_before_trust
from golem_forge.workers.history import History
from golem_forge.workers.models.layer import Model, ModelError
from golem_forge.workers.models.names import choose_model, missing_key, no_model
from golem_forge.workers.models.usage import Meter
from golem_forge.workers.references import PATH_SUFFIXES
from golem_forge.workers.resuming import Resumed, native_definition, resume
from golem_forge.workers.session_facts import note_run
from golem_forge.workers.session_plan import SessionPlan, plan_again, plan_session
from golem_forge.workers.tree import SessionTree, TreeOptions, Voice, open_tree
from golem_forge.workers.trusting import NotTrusted, ask_for_trust
from golem_forge.workers.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What was asked for. None and empty mean: as the program and the environment say."""

    home: ForgeHome
    signal: InterruptSignal
    worker: Worker | Path | str | None = None
    directory: Path | str | None = None
    model: str | Model | None = None
    approval: ApprovalMode | str | None = None
    callback: ApprovalCallback | None = None
    overrides: Sequence[str] = ()
    resume: str = ""
    tools: Sequence[Tool | Callable[..., Any]] = ()
    journal: bool = True
    needs_model: bool = True
    """False: without a model it starts all the same, and tools can be called by hand; one that is named is opened
    while the person types."""
    expects_ui: bool = False
    """A UI that answers may attach later: what asks is not denied by the mode, but as long as nobody is there."""
    depth: int = 0
    """Of this worker, where it is started below another one."""

    @property
    def given_model(self) -> Model | None:
        """One that was made in Python."""
        return None if self.model is None or isinstance(self.model, str) else self.model

    @property
    def start_directory(self) -> Path:
        if self.directory is not None:
            return Path(self.directory)
        if isinstance(self.worker, Path) or (isinstance(self.worker, str) and self.worker.endswith(PATH_SUFFIXES)):
            return Path(self.worker).absolute().parent
        return Path.cwd()


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    tree: SessionTree
    crew: Crew
    run: WorkerRun
    resumed: Resumed | None
    notices: list[str] = field(default_factory=list)
    """What the person should know, one text each."""


class StartInterrupted(ForgeError):
    """By a person at the card that asks for trust, or while a module was imported. Nothing ran, nothing is left."""

    def __init__(self, reason: str) -> None:
        terminated = reason == "terminated"
        super().__init__(
            f"{'terminated' if terminated else 'interrupted'} before the worker could start",
            status=Status.INTERRUPTED,
            code="START_TERMINATED" if terminated else "START_INTERRUPTED",
        )


async def start(asked: Start, voice: Voice, ui: RuntimeUI) -> Started:
    resumed = _resumed(asked, voice) if asked.resume else None
    directory = Path(resumed.directory) if resumed else asked.start_directory
    options = TreeOptions(
        home=asked.home,
        approval=asked.approval,
        approval_callback=asked.callback,
        asks_uis=asked.callback is None and (ui.attached or asked.expects_ui),
        depth=asked.depth,
        journal=asked.journal,
        overrides=asked.overrides,
        signal=asked.signal,
    )
    wanted = asked.worker
    if resumed is not None and not isinstance(wanted, Worker):
        wanted = resumed.worker_reference
    try:
        plan = plan_session(directory, options.wanted, wanted)
        tree = open_tree(plan, options, voice=voice, reopened=resumed.journal if resumed else None)
    except BaseException:
        if resumed is not None:
            resumed.journal.close()
        raise
    try:
        if await _trusted_now(plan, tree):
            plan = plan_again(plan, directory, options.wanted, wanted)
            tree.program = plan.program
            tree.controller.mode = plan.mode.value
        if plan.waits_for_trust:
            raise NotTrusted(plan.program.root)
        return await _in_place(asked, tree, plan, resumed)
    except BaseException:
        tree.abandon()
        raise


def _resumed(asked: Start, voice: Voice) -> Resumed:
    root = program_root(asked.start_directory) if asked.resume == LAST else ""
    return resume(asked.home.path, asked.resume, root=root, redact=voice.redactor.value)


async def _trusted_now(plan: SessionPlan, tree: SessionTree) -> bool:
    """Asks the person, if one is there, to trust what trust would change anything for. Raises ConfigError first for
    what is wrong with it."""
    roster = plan.roster
    assert roster is not None
    if roster.trusted:
        return False
    check_before_trust(plan.program, roster, plan.home)
    something = plan.program.unused or roster.unused or roster.needs_code
    return bool(something and tree.ui.attached and await ask_for_trust(tree.ui, plan.trust, plan.program))


async def _in_place(asked: Start, tree: SessionTree, plan: SessionPlan, resumed: Resumed | None) -> Started:
    roster = plan.roster
    assert roster is not None
    notices: list[str] = []
    given = asked.given_model
    crew = Crew(
        tree=tree,
        roster=roster,
        attachments=AttachmentStore(asked.home.path, tree.id),
        meter=Meter(),
        budget=Budget(tree.program.run.budget),
        delegations=delegation_tools,
        given={given.name: given} if given else {},
    )
    worker_id = resumed.worker_id if resumed else new_id()
    history = History(tree.journal, worker_id, resumed.history if resumed else ())
    if resumed is not None:
        _go_on(resumed, crew)
    run = await crew.place(
        roster.root,
        model=given.name if given else _chosen_model(asked, tree, roster.root, resumed, notices),
        worker_id=worker_id,
        history=history,
        more_tools=asked.tools,
        model_later=not asked.needs_model,
    )
    if resumed is not None:
        spent = resumed.usage
        run.budget.restore(spent.usage, spent.requests, resumed.calls, spent.cost)  # the worker's own limits count too
        resumed.restore_into(tree, lambda worker, tool: _definition(run, worker, tool))
        run.station.deferring.restore(resumed.loaded)
        notices += [resumed.warning] if resumed.warning else []
    note_run(tree, run, roster)
    unused = [notice] if (notice := plan.program.notice_with(roster.unused)) else []
    told = [*unused, *notices, *roster.warnings, *run.notices]
    return Started(tree=tree, crew=crew, run=run, resumed=resumed, notices=told)


def _go_on(resumed: Resumed, crew: Crew) -> None:
    """What was spent is shown, and no id comes twice."""
    spent = resumed.usage
    crew.meter.restore(spent.usage, spent.requests, spent.cost)
    crew.tree.call_ids |= resumed.call_ids


def _definition(run: WorkerRun, worker: str, tool: str) -> str | None:
    """The digest of a tool as it is now; only the root worker's are known before others are called."""
    path = run.station.path
    found = path.catalog.get(tool) if worker == path.worker else None
    return found.definition_digest if found is not None else native_definition(worker, tool)


def _chosen_model(asked: Start, tree: SessionTree, worker: Worker, resumed: Resumed | None, notices: list[str]) -> str:
    """Empty where there is none and it can do without."""
    settings = tree.program.run
    flag = asked.model if isinstance(asked.model, str) else ""
    chosen = choose_model(
        flag=flag or (resumed.model if resumed else ""),
        environ=os.environ,
        worker=worker,
        program_model=settings.model,
        builtin=worker.path is None,
        settings=settings.models,
    )
    problem = (
        missing_key(chosen.model, settings.models, os.environ)
        if chosen.model
        else no_model(settings.models, os.environ)
    )
    if not problem:
        return chosen.model
    if asked.needs_model:
        raise ModelError(problem)
    notices.append(
        f"{problem}. Without a model tools that a person may call still work as slash commands; /tools lists them"
    )
    return ""
