"""WorkerRuntime: a session with a root worker and its model, as `forge run` and embedders use it.

    runtime = WorkerRuntime(worker="main.worker", model="anthropic:claude-sonnet-4-5", approval_callback=ask)
    await runtime.initialize()
    result = await runtime.run("What is in this directory?")

The bus is there from the start, so that UIs attach before anything is read: the one that `ui_adapter` holds, the one
that is given, or one of its own. `initialize` reads the program, asks for trust where a person can be asked, and starts
the worker; from then until `aclose` the actions on the bus (`command`, `manualToolInvoke`, `interrupt`, answers) act.
It raises ConfigError (a configuration that cannot be used), NotTrusted, ModelError and StartInterrupted. After it
nothing that a model or a tool does raises.
"""

from __future__ import annotations

import inspect
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from golem_forge.agent.attachments import ReceivedFile
from golem_forge.agent.budget import Budget, Meter
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.files.worker_file import checked_worker
from golem_forge.agent.history import History, RewindPoint, rewind_points
from golem_forge.agent.model.interface import Model
from golem_forge.agent.resume import Resumed
from golem_forge.agent.root_worker import (
    AttachmentInput,
    RuntimeOptions,
    StartedSession,
    StartInterrupted,
    announce,
    continue_turn,
    receive_attachment,
    run_turn,
    start_session,
)
from golem_forge.agent.run_result import RunInterrupted, RunResult, RunStatus, unless_interrupted
from golem_forge.agent.session_changes import read_changes, undo_call
from golem_forge.agent.session_plan import home_of
from golem_forge.agent.session_state import SessionState, new_session_bus
from golem_forge.agent.slash.handler import SlashCommands
from golem_forge.agent.slash.invocation import OpenPage, OpenSession, conceal_secrets
from golem_forge.agent.worker_manager import WorkerRun
from golem_forge.config.program import Program
from golem_forge.config.run_block import DEFAULT_MODE, ApprovalMode, GenerationSettings
from golem_forge.core.calls import Outcome
from golem_forge.core.changes import ChangeSelection, ChangeSet
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.options import require, takes_options
from golem_forge.core.regex import regex
from golem_forge.core.signals import InterruptSignal
from golem_forge.core.text import shorten
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal, SessionJournals
from golem_forge.events.journal_records import read
from golem_forge.events.runtime_ui import RuntimeUI, create_runtime_ui
from golem_forge.events.serialization import Event
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.policy.approval_queue import ApprovalCallback
from golem_forge.policy.containment import walls_reason
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.rules.book import RuleBook
from golem_forge.policy.rules.files import remember_mode, remembered_mode
from golem_forge.sandbox.walls.model import Level
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.factory import GivenTool, as_tools
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.plan import SessionPlans, plan_as_task

if TYPE_CHECKING:
    from golem_forge.agent.mcp_servers import SessionServers
    from golem_forge.sandbox.sandbox import Sandbox
    from golem_forge.sandbox.walls.walls import Walls
    from golem_forge.usertools.catalog_sync import UserTools

DIRECTORY_QUESTION: Final[dict[str, Any]] = {
    "source": "Forge",
    "title": "How shall Forge work in this directory?",
    "message": "",
    "fields": [],
    "accept": "work on its own here; ask before anything leaves this directory or cannot be undone",
    "decline": "ask before each change",
}
_CHOICES: Final = {"accept": ApprovalMode.CONTAINED, "decline": ApprovalMode.INTERACTIVE}
_TERMINATED: Final = "terminated"


async def ask_directory_mode(runtime: WorkerRuntime) -> None:
    """Asks a person once for each directory: does Forge work on its own there, or ask before each change?

    It asks where neither the command line nor a file says in which approval mode sessions run, nothing is remembered,
    the walls are full and what is done can be undone. The answer is kept in remembered.yaml (`policy/rules/files.py`)
    and revoked like any other remembered answer. Whoever does not answer is asked again in the next session.

    Threat: a program or an editor that answers by itself. Only a UI that may trust code is asked, and what a program
    that nobody trusts writes about the mode is no answer.
    """
    root, home, ui = runtime.program.root, runtime.home, runtime.ui
    written = runtime.program.mode().origin != DEFAULT_MODE or runtime.controller.mode is not ApprovalMode.INTERACTIVE
    if written or not ui.may_trust or is_answered(home, root):
        return
    try:
        report = await unless_interrupted(runtime.signal, runtime.walls.report())
        covered = await unless_interrupted(runtime.signal, runtime.walls.coverage())
        if report.level is not Level.FULL or covered.problem or not covered.zones:
            return
        question = ui.request_form(DIRECTORY_QUESTION, worker_id=runtime.id)
        chosen = _CHOICES.get((await unless_interrupted(runtime.signal, question))["action"])
    except RunInterrupted:
        if runtime.signal.reason != _TERMINATED:
            runtime.signal.reset()
        return
    if chosen is None:
        return
    remember_mode(home, root, chosen)
    runtime.rules.expire()
    if chosen is ApprovalMode.CONTAINED:
        runtime.switch_approval(chosen, "this directory, also for later sessions")


def is_answered(home: ForgeHome, root: Path) -> bool:
    return remembered_mode(home, root) is not None


_MOST_REWOUND: Final = 200
_GO: Final = regex(r"\s*go[.!]?\s*", re.IGNORECASE)
"""The message by which a person starts the work in plan mode."""
OnEvent = Callable[[Event], object]
NO_QUESTIONS: Final = (
    "approval_mode={mode!r} needs somebody to ask, and {name} asks nothing: it only writes lines, because there is no "
    "terminal. Calls that need approval would be denied. Give approval_callback=…, or another approval_mode"
)


class WorkerRuntime:
    @takes_options("WorkerRuntime", at=1)
    def __init__(
        self,
        worker: Worker | Path | str | Mapping[str, Any] | None = None,
        *,
        directory: Path | str | None = None,
        model: str | Model | None = None,
        approval_mode: ApprovalMode | str | None = None,
        approval_callback: ApprovalCallback | None = None,
        ui_adapter: Any = None,
        bus: EventBus | None = None,
        interrupt_signal: InterruptSignal | None = None,
        depth: int = 0,
        on_event: OnEvent | None = None,
        home: Path | str | None = None,
        overrides: Sequence[str] = (),
        resume: str = "",
        tools: Iterable[GivenTool] = (),
        journal: bool | SessionJournals = True,
        needs_model: bool = True,
        default_mode: Literal["single", "chat"] = "single",
    ) -> None:
        """`worker`: a Worker or a mapping of its keys, a file, a name of the program's, or None: the program's entry,
        else the built-in one. As the only argument, without its name, a mapping is one of all options. Raises
        ConfigError for a Worker with values that no worker file could have.

        `ui_adapter`: a UI to start before and to stop after the worker: `initialize()`, `shutdown()` and the `bus` that
        it was made for, which becomes the session's; or a function that takes the bus and gives such a UI.
        `bus`: a bus that others hold already. Not together with a UI that has another one.
        `depth`: of this worker among others; below 0 (the root) it answers once, and delegation counts from there.
        `model`: a name, or a Model made in Python, which sub-workers without one of their own use too.
        `default_mode`: what holds where the worker file names none.
        `needs_model=False`: without a key the runtime still starts, and tools can be called by hand.
        """
        if isinstance(worker, (Worker, Mapping)):
            worker = checked_worker(worker)
        _check_options(worker, model, approval_callback, bus, interrupt_signal, on_event)
        if not isinstance(depth, int) or isinstance(depth, bool) or depth < 0:
            raise ValueError(f"WorkerRuntime: depth is 0 (the root) or a number above it, not {depth!r}")
        self.home = home_of(home)
        self.signal = InterruptSignal() if interrupt_signal is None else interrupt_signal
        self._session_bus = new_session_bus(self.home, _bus_of(ui_adapter, bus))
        self.bus: EventBus = self._session_bus.bus
        self.ui: RuntimeUI = create_runtime_ui(self.bus)
        self._adapter = ui_adapter
        self._depth = depth
        self._default_mode = default_mode
        self._asked = RuntimeOptions(
            home=self.home,
            signal=self.signal,
            worker=worker,
            directory=directory,
            model=model,
            approval=approval_mode,
            approval_callback=approval_callback,
            overrides=overrides,
            resume=resume,
            tools=as_tools(tools),
            journal=journal,
            needs_model=needs_model,
            depth=depth,
        )
        self._started: StartedSession | None = None
        self._before_plan = ApprovalMode.INTERACTIVE
        """The mode that holds again after plan mode."""
        self._ended = False
        """Whether the session is over, and not only this process's part of it."""
        self._commands: SlashCommands | None = None
        self._on_event = on_event
        self._forget: list[Callable[[], None]] = []
        self.open_page: OpenPage | None = None
        self.open_session: OpenSession | None = None
        """What `/web` does; set by whoever can serve a page."""
        self.uses_directory_mode = False
        """Whether the mode counts that the person chose for this directory, and they may be asked for it: set by the
        terminal and the page."""
        self._show_events()

    def _show_events(self) -> None:
        if self._on_event is not None and not self._forget:
            self._forget.append(self.bus.on("*", self._on_event))

    # ---- life

    async def initialize(self) -> None:
        """RuntimeError where the bus carries another session that runs."""
        if self._started is not None:
            return
        self.bus.serve(self._session_id(), self._session_bus.redactor.value)
        self._show_events()
        try:
            asked, warning = await self._open_adapter()
            asked = replace(asked, remembers=self.uses_directory_mode)
            started = await unless_interrupted(self.signal, self._start(asked))
        except BaseException as error:
            await self._undo_start()
            if isinstance(error, RunInterrupted):
                raise StartInterrupted(error.reason) from None
            raise
        if warning:
            started.notices.append(warning)
        self.bus.conceal = partial(conceal_secrets, self)
        announce(started, self.mode)
        self._commands = SlashCommands(self, leave=partial(self.interrupt, "exit"))
        self._forget.append(self.bus.on("interrupt", self._on_interrupt))

    async def _start(self, asked: RuntimeOptions) -> StartedSession:
        """Starts the session and stores it here, because the result of a coroutine that is cancelled at its end is
        lost.
        """
        self._started = await start_session(asked, self._session_bus, self.ui)
        return self._started

    async def _undo_start(self) -> None:
        if self._started is None:
            self.bus.release()
        else:  # cancelled at the moment in which it had started
            await self.aclose()

    def _session_id(self) -> str:
        """The one that the bus was made with, for its first session; for each other a new one."""
        return self.bus.session_id if self.bus.session_id and not self.bus.served else new_id()

    async def _open_adapter(self) -> tuple[RuntimeOptions, str]:
        """Initializes the UI. Returns the options with it, and a notice for its author."""
        asked, adapter = self._asked, self._adapter
        if adapter is None:
            return asked, ""
        if _makes_ui(adapter):
            adapter = self._adapter = adapter(self.bus)
            _bus_of(adapter, self.bus)
        await _done(adapter.initialize())
        if (callback := asked.approval_callback) is not None:
            return (replace(asked, approval_callback=None), "") if _share_keyboard(adapter, callback) else (asked, "")
        if self.ui.attached:
            return asked, ""
        name = getattr(adapter, "stated_name", type(adapter).__name__)
        if getattr(adapter, "answers", True):
            return replace(asked, answers=True), self.ui.warn_not_attached(f"the UI {name}")
        if asked.approval not in (ApprovalMode.INTERACTIVE, ApprovalMode.STRICT):
            return asked, ""
        warning = NO_QUESTIONS.format(mode=str(asked.approval), name=name)
        warnings.warn(warning, RuntimeWarning, stacklevel=3)
        return asked, warning

    async def run(self, text: str, attachments: Sequence[AttachmentInput] = ()) -> RunResult:
        """One input, one answer, and the end of this run of the session."""
        self._ready.run.single = True
        result = await self.turn(text, attachments)
        self.end(result)
        return result

    async def turn(
        self, text: str, attachments: Sequence[AttachmentInput] = (), *, by: str = "", said: str | None = None
    ) -> RunResult:
        """One input, one answer; the session goes on. A question that was open when another process died is asked again
        first. In plan mode the input `go` ends it and starts the work. `by`: who says it, where several people may.
        `said`: what of the text is their own word, where others wrote a part of it; a reviewer is told them apart."""
        await self.go_on()
        if self.controller.mode is ApprovalMode.PLAN and _GO.fullmatch(text):
            self.leave_plan("go")
            said, text = text, plan_as_task(self.path.parts.get(SessionPlans).get(self.path.worker))
        return await run_turn(self._ready, self.signal, text, attachments, by, said)

    async def go_on(self) -> RunResult | None:
        """Answers the turn that another process left open. None: there is none."""
        resumed = self._ready.resumed
        if resumed is None or (turn := resumed.open_turn) is None:
            return None
        resumed.open_turn = None
        return await continue_turn(self._ready, self.signal, turn)

    @property
    def only_waits(self) -> bool:
        """Whether a turn waits for answers to calls of the root worker, and nothing runs: it could go on elsewhere."""
        return self._ready.run.scope.orchestrator.only_waits and not self.tree.parts.busy

    def receive(self, name: str, data: bytes) -> ReceivedFile:
        """Keeps a file for an input to come that names it. AttachmentRefused if this worker takes no such file."""
        return receive_attachment(self._ready, name, data)

    def end(self, result: RunResult | None = None) -> None:
        """The one `sessionEnd` of this run of the session."""
        status = result.status if result is not None else RunStatus.COMPLETED
        stopped = status in (RunStatus.INTERRUPTED, RunStatus.TERMINATED)
        reason = "interrupted" if stopped else "completed" if status is RunStatus.COMPLETED else "error"
        self._ended = True
        self.ui.end_session(reason, (result.error if result else "") or None)

    async def aclose(self) -> None:
        if self._started is not None:
            if self._commands is not None:
                await self._commands.aclose()
            started, self._started = self._started, None
            if self._ended and started.hooks is not None:
                await started.hooks.end_session()
            self.bus.conceal = None
            await started.workers.stop(started.run)
            await started.state.aclose()
            self.bus.release()
        if self._adapter is not None and not _makes_ui(self._adapter):
            await _done(self._adapter.shutdown())
        while self._forget:
            self._forget.pop()()

    async def __aenter__(self) -> WorkerRuntime:
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ---- what it is

    def get_tools(self) -> list[Tool]:
        return list(self.path.catalog)

    def get_depth(self) -> int:
        return self._depth

    def is_root(self) -> bool:
        return self._depth == 0

    @property
    def mode(self) -> str:
        return "single" if self._depth else self.worker.mode or self._default_mode

    @property
    def tree(self) -> SessionState:
        return self._ready.state

    @property
    def notices(self) -> list[str]:
        """Warnings for the person at the start."""
        return self._ready.notices

    @property
    def resumed(self) -> Resumed | None:
        return self._ready.resumed

    @property
    def id(self) -> str:
        """The id of the root worker's run."""
        return self._active.scope.id

    @property
    def session_id(self) -> str:
        return self.tree.id

    @property
    def program(self) -> Program:
        return self.tree.program

    @property
    def rules(self) -> RuleBook:
        return self.tree.rules

    @property
    def controller(self) -> ApprovalController:
        return self.tree.controller

    @property
    def journal(self) -> Journal | None:
        return self.tree.journal

    @property
    def call_ids(self) -> set[str]:
        return self.tree.call_ids

    @property
    def meter(self) -> Meter:
        """The meter of the whole session."""
        return self._ready.workers.meter

    @property
    def context_used(self) -> int:
        loop = self._active.loop
        return loop.dialogue.context_used if loop else 0

    @property
    def context_limit(self) -> int:
        loop = self._active.loop
        return loop.dialogue.context_limit if loop else 0

    @property
    def skills_summary(self) -> str:
        """Number of offered skills, and the problems of the others; empty if there are none."""
        skills = self._active.skills
        return skills.found.summary if skills is not None else ""

    @property
    def path(self) -> Orchestrator:
        return self._active.scope.orchestrator

    @property
    def worker(self) -> Worker:
        return self._active.worker

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Every worker that can run here, the root first."""
        return self._ready.workers.roster.workers

    @property
    def history(self) -> History:
        return self._active.history

    @property
    def model(self) -> Model | None:
        loop = self._active.loop
        return loop.dialogue.model if loop else None

    @property
    def model_name(self) -> str:
        return self._active.model_name

    @property
    def user_tools(self) -> UserTools | None:
        """The root worker's view of the user tools; None if its file has no such block."""
        return self._active.user_tools

    @property
    def servers(self) -> SessionServers | None:
        """None if the root worker's file names no MCP server."""
        return self._active.servers

    @property
    def budget(self) -> Budget:
        """The budget of the whole session."""
        return self._ready.workers.budget

    @property
    def walls(self) -> Walls:
        return self._active.scope.walls

    @property
    def is_ready(self) -> bool:
        """Whether `initialize` was called and `aclose` was not."""
        return self._started is not None

    @property
    def _ready(self) -> StartedSession:
        if self._started is None:
            raise RuntimeError("the runtime is not started: `await runtime.initialize()` first")
        return self._started

    @property
    def _active(self) -> WorkerRun:
        return self._ready.run

    # ---- what commands do

    @property
    def generation(self) -> GenerationSettings:
        """The model's generation settings."""
        return self._active.generation

    def switch_model(self, name: str, generation: GenerationSettings | None = None) -> None:
        """Changes the model from the next request on. `generation`: None leaves it. Raises ConfigError
        or ModelError.
        """
        self._ready.workers.switch_model(self._active, name, generation)

    async def refresh(self) -> None:
        """Tool modules that were edited count from now on, for a person's own call too. Raises ForgeError."""
        try:
            await self._ready.workers.refresh(self._active)
        except RunInterrupted:
            raise ForgeError("Interrupted before it started.", status=Status.INTERRUPTED) from None

    def look_at_tools(self) -> None:
        """Applies what a person just approved, switched off or revoked about their tools and servers."""
        self._ready.workers.refresh_local(self._active)

    def switch_approval(self, mode: ApprovalMode, by: str) -> None:
        """Changes the approval mode from the next call on and emits an event. `by`: who changed it.
        Raises ForgeError.
        """
        controller, before = self.controller, self.controller.mode
        if mode is ApprovalMode.CONTAINED and self.program.approval.four_eyes is not None:
            raise ForgeError("With approval.four_eyes people answer: contained cannot be chosen here.")
        controller.switch(mode)
        if mode is before:
            return
        if mode is ApprovalMode.PLAN:
            self._before_plan = before
        for run in self._ready.workers.runs.values():
            run.scope.orchestrator.judge.switch(mode)
        kind = "warning" if mode is ApprovalMode.APPROVE_ALL else "info"
        text = f"Approval mode: {mode.value} (was {before.value}), set in {by}."
        report = self._ready.run.scope.walls.known_report
        if mode is ApprovalMode.CONTAINED and report is not None and (why := walls_reason(report)):
            text += f" But {why}, so Forge asks as in the mode interactive."
        if mode is ApprovalMode.PLAN:
            text += " Forge reads and proposes, and changes nothing; say `go` to start the work."
        self.ui.show_status(type=kind, message=text, code="APPROVAL_MODE", mode=mode.value)

    def leave_plan(self, by: str) -> None:
        """Back to the mode before; of a session that began in plan mode to one that asks, where somebody can answer."""
        try:
            self.switch_approval(self._before_plan, by)
        except ForgeError:
            self.switch_approval(ApprovalMode.AUTO_DENY, by)

    async def ask_directory_mode(self) -> None:
        """Asks for the mode once per directory, at its first session: see `ask_directory_mode`."""
        if self.uses_directory_mode and self._asked.approval is None and self._ready.resumed is None:
            await ask_directory_mode(self)

    async def compact_history(self, wish: str = "") -> tuple[int, int] | None:
        """Condenses the history now. Gives tokens before and after; None: there is nothing to condense. `wish`: what
        the summary must keep. Raises ForgeError, also while an answer is on its way."""
        loop = await self._ready.workers.wait_for_model(self._active)
        if loop is None:
            raise ForgeError("There is no model to write the summary; /model NAME chooses one.")
        self._check_idle("compact")
        try:
            done = await loop.dialogue.compact_now(wish)
        except RunInterrupted:
            raise ForgeError("Interrupted; the history did not change.", status=Status.INTERRUPTED) from None
        return (done.before, done.after) if done is not None else None

    def clear_history(self) -> None:
        """Raises ForgeError while an answer is on its way: it would be the answer to nothing."""
        self._check_idle("clear")
        self.history.clear()

    def _check_idle(self, command: str) -> None:
        if (loop := self._active.loop) is not None and loop.busy:
            raise ForgeError(f"An answer is on its way; wait for it, or stop it, then /{command} again.")

    # ---- what was changed

    def changes(self) -> tuple[ChangeSet, ...]:
        """Returns what calls of this session changed in the zones, oldest first."""
        return read_changes(self.home.path, self.session_id)

    async def undo(
        self,
        *,
        turn: int | None = None,
        call: str = "",
        paths: Sequence[str] = (),
        also: Sequence[str] = (),
        redo: bool = False,
    ) -> Outcome:
        """Takes it back, as a call of the person: of this turn, call or of these paths; without any, of the last turn
        that changed something. `also`: paths to take back although they were changed since or may be somebody else's
        work."""
        selected = ChangeSelection(turn=turn, call=call, paths=tuple(paths))
        return await self.path.call(undo_call(selected, also=also, redo=redo))

    async def rewind_points(self) -> tuple[RewindPoint, ...]:
        journal, messages, worker = self.journal, list(self.history.messages), self.history.worker_id
        if journal is None:
            return rewind_points(messages, (), worker)
        journal.flush()
        return await run_in_thread(lambda: rewind_points(messages, read(journal.path), worker))

    def check_can_rewind(self) -> None:
        loop = self._active.loop
        if (loop is not None and loop.busy) or self.path.runs_something:
            raise ForgeError("A call runs or an answer is on its way; wait for it, or stop it, then /rewind again.")

    def rewind(self, point: RewindPoint, *, conversation: bool = True, files: bool = False) -> None:
        """Back to before a message of the person, and told. `files`: what was changed since is undone already. Raises
        ForgeError, also while something runs."""
        self.check_can_rewind()
        if conversation:
            messages = self.history.messages
            if not (0 <= point.at < len(messages) and getattr(messages[point.at], "text", None) == point.text):
                raise ForgeError("The history changed meanwhile; /rewind lists what there is now.")
            self.history.replace_all(messages[: point.at])
        said = shorten(point.text, _MOST_REWOUND)
        data = {"turn": point.turn, "message": said, "conversation": conversation, "files": files}
        self.bus.emit("rewound", data, self.id)

    def sandbox_of(self, worker_id: str) -> Sandbox | None:
        """The zones of a worker that runs; None: no such worker runs here."""
        run = self._active if worker_id == self.id else self._ready.workers.runs.get(worker_id)
        return run.scope.orchestrator.sandbox if run is not None else None

    def interrupt(self, reason: str = "interrupted", worker_id: str = "") -> None:
        """Interrupts all workers, or one branch."""
        if not worker_id or worker_id == self._active.scope.id:
            self.signal.interrupt(reason)
        elif (run := self._ready.workers.runs.get(worker_id)) is not None:
            run.scope.signal.interrupt(reason)

    def _on_interrupt(self, event: Event) -> None:
        self.interrupt(str(event.wire.get("reason") or "interrupted"), str(event.wire.get("workerId") or ""))


def _check_options(worker: Any, model: Any, callback: Any, bus: Any, signal: Any, on_event: Any) -> None:
    """Checks types here: a wrong one would fail later, with an error that does not name the option."""
    who = "a Worker, a mapping of its keys, a file or a name"
    require(worker is None or isinstance(worker, (Worker, str, Path)), "WorkerRuntime: worker", who, worker)
    made = model is None or isinstance(model, str) or callable(getattr(model, "stream", None))
    which = "a name like 'anthropic:claude-sonnet-4-5' or a Model (FunctionScript(function) makes one)"
    require(made, "WorkerRuntime: model", which, model)
    answers = "a function that takes the request"
    require(callback is None or callable(callback), "WorkerRuntime: approval_callback", answers, callback)
    require(bus is None or isinstance(bus, EventBus), "WorkerRuntime: bus", "made by create_ui_event_bus()", bus)
    stops = signal is None or isinstance(signal, InterruptSignal)
    require(stops, "WorkerRuntime: interrupt_signal", "made by create_interrupt_signal()", signal)
    require(
        on_event is None or callable(on_event), "WorkerRuntime: on_event", "a function that takes the event", on_event
    )


def _makes_ui(adapter: Any) -> bool:
    """A class or a function: it takes the bus and gives the UI."""
    return isinstance(adapter, type) or (callable(adapter) and not hasattr(adapter, "initialize"))


def _bus_of(adapter: Any, given: EventBus | None) -> EventBus | None:
    """The bus that a UI holds, or the one that is given. Raises TypeError and ValueError for what cannot work."""
    if adapter is None or _makes_ui(adapter):
        return given
    for method in ("initialize", "shutdown"):
        if not callable(getattr(adapter, method, None)):
            raise TypeError(f"ui_adapter: a {type(adapter).__name__} has no `{method}()`; a UI has both, and `bus`")
    held = getattr(adapter, "bus", None)
    if held is None and given is not None:
        return given
    if not isinstance(held, EventBus):
        raise TypeError(
            f"ui_adapter: a {type(adapter).__name__} has no `bus`: keep the one that it is made for as `self.bus`, or "
            "give bus=… as well"
        )
    if given is not None and given is not held:
        raise ValueError("bus= is not the bus of ui_adapter: leave bus= out, or make the UI for that bus")
    return held


async def _done(result: Any) -> None:
    """Awaits the result if it is awaitable: a UI's method may be a plain function."""
    if inspect.isawaitable(result):
        await result


def _share_keyboard(adapter: Any, callback: ApprovalCallback) -> bool:
    """Whether this callback would read the very terminal that this UI reads: then the UI asks, by its card."""
    readers = (getattr(adapter, "keyboard", None), getattr(callback, "keyboard", None))
    try:
        names = [os.ttyname(reader()) for reader in readers if reader is not None]
    except (OSError, ValueError, AttributeError):  # no terminal
        return False
    return len(names) == len(readers) and names[0] == names[1]
