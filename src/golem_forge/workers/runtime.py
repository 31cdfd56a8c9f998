"""WorkerRuntime: a root worker, ready to run. What `forge run` and embedders use.

    runtime = WorkerRuntime(worker="main.worker", model="anthropic:claude-sonnet-4-5", approval_callback=ask)
    await runtime.initialize()
    result = await runtime.run("What is in this directory?")

The bus is there from the start, so that UIs attach before anything is read; `initialize` reads the program, asks for
trust where a person can be asked, and puts the worker in its place. It refuses with ConfigError (a configuration that
cannot be used), NotTrusted, ModelError and StartInterrupted; after it nothing a model or a tool does raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from golem_forge.config.modes import ApprovalMode
from golem_forge.config.program import Program
from golem_forge.core.errors import ForgeError
from golem_forge.core.signal import InterruptSignal
from golem_forge.core.verdict import Status
from golem_forge.events.bus import EventBus
from golem_forge.events.envelope import Event
from golem_forge.events.journal import Journal
from golem_forge.events.questions import RuntimeUI, create_runtime_ui
from golem_forge.orchestrator import Orchestrator
from golem_forge.policy.controller import ApprovalCallback, ApprovalController
from golem_forge.policy.rules import RuleBook
from golem_forge.tools.tool import Tool
from golem_forge.workers.announcing import announce
from golem_forge.workers.attachments import Received
from golem_forge.workers.concealing import concealed
from golem_forge.workers.crew import WorkerRun
from golem_forge.workers.history import History
from golem_forge.workers.interrupting import Interrupted, unless_interrupted
from golem_forge.workers.models.layer import Model
from golem_forge.workers.models.usage import Meter
from golem_forge.workers.resuming import Resumed
from golem_forge.workers.run_result import RunResult, RunStatus
from golem_forge.workers.slash.host import OpenPage
from golem_forge.workers.starting import Start, Started, StartInterrupted, start
from golem_forge.workers.tree import SessionTree, home_of, new_voice
from golem_forge.workers.turn import Offered, receive, take_turn
from golem_forge.workers.worker import Worker

if TYPE_CHECKING:
    from golem_forge.custom.offering import UserTools
    from golem_forge.sandbox.walls.walls import Walls
    from golem_forge.workers.budget import Budget
    from golem_forge.workers.mcp.servers import SessionServers

OnEvent = Callable[[Event], None]


class WorkerRuntime:
    def __init__(
        self,
        worker: Worker | Path | str | None = None,
        *,
        directory: Path | str | None = None,
        model: str | Model | None = None,
        approval_mode: ApprovalMode | str | None = None,
        approval_callback: ApprovalCallback | None = None,
        ui_adapter: Any = None,
        interrupt_signal: InterruptSignal | None = None,
        depth: int = 0,
        on_event: OnEvent | None = None,
        home: Path | str | None = None,
        overrides: Sequence[str] = (),
        resume: str = "",
        tools: Iterable[Tool | Callable[..., Any]] = (),
        journal: bool = True,
        needs_model: bool = True,
        default_mode: Literal["single", "chat"] = "single",
    ) -> None:
        """`worker`: a Worker, a file, a name of the program's, or None: the program's entry, else the built-in one.

        `ui_adapter`: a UI to start before and to stop after the worker; it must have been made for `runtime.bus`, or
        be a function that takes the bus and gives such a UI.
        `model`: a name, or a Model made in Python, which sub-workers without one of their own use too.
        `default_mode`: what holds where the worker file names none.
        `needs_model=False`: without a key the runtime still starts, and tools can be called by hand.
        """
        self.home = home_of(home)
        self.signal = InterruptSignal() if interrupt_signal is None else interrupt_signal
        self._voice = new_voice(self.home)
        self.bus: EventBus = self._voice.bus
        self.ui: RuntimeUI = create_runtime_ui(self.bus)
        self._adapter = ui_adapter
        self._depth = depth
        self._default_mode = default_mode
        self._asked = Start(
            home=self.home,
            signal=self.signal,
            worker=worker,
            directory=directory,
            model=model,
            approval=approval_mode,
            callback=approval_callback,
            overrides=overrides,
            resume=resume,
            tools=tuple(tools),
            journal=journal,
            needs_model=needs_model,
        )
        self._started: Started | None = None
        self.open_page: OpenPage | None = None
        """What `/web` does; set by whoever can serve a page."""
        if on_event is not None:
            self.bus.on("*", on_event)

    # ---- life

    async def initialize(self) -> None:
        if self._adapter is not None:
            if callable(self._adapter):
                self._adapter = self._adapter(self.bus)
            await self._adapter.initialize()
        try:
            self._started = await unless_interrupted(self.signal, start(self._asked, self._voice, self.ui))
        except Interrupted as stopped:
            raise StartInterrupted(stopped.reason) from None
        self.bus.conceal = partial(concealed, self)
        announce(self._started, self.mode)
        self.bus.on("interrupt", self._on_interrupt)

    async def run(self, text: str, attachments: Sequence[Offered] = ()) -> RunResult:
        """One input, one answer, and the end of this run of the session."""
        result = await self.turn(text, attachments)
        self.end(result)
        return result

    async def turn(self, text: str, attachments: Sequence[Offered] = ()) -> RunResult:
        """One input, one answer; the session goes on."""
        return await take_turn(self._ready, self.signal, text, attachments)

    def receive(self, name: str, data: bytes) -> Received:
        """Keeps a file for an input to come that names it. AttachmentRefused if this worker takes no such file."""
        return receive(self._ready, name, data)

    def end(self, result: RunResult | None = None) -> None:
        """The one `sessionEnd` of this run of the session."""
        status = result.status if result is not None else RunStatus.COMPLETED
        stopped = status in (RunStatus.INTERRUPTED, RunStatus.TERMINATED)
        reason = "interrupted" if stopped else "completed" if status is RunStatus.COMPLETED else "error"
        self.ui.end_session(reason, (result.error if result else "") or None)

    async def aclose(self) -> None:
        if self._started is not None:
            started, self._started = self._started, None
            self.bus.conceal = None
            await started.crew.dismiss(started.run)
            await started.tree.aclose()
        if self._adapter is not None:
            await self._adapter.shutdown()

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
        return self.worker.mode or self._default_mode

    @property
    def tree(self) -> SessionTree:
        return self._ready.tree

    @property
    def notices(self) -> list[str]:
        """What the person should know at the start."""
        return self._ready.notices

    @property
    def resumed(self) -> Resumed | None:
        return self._ready.resumed

    @property
    def id(self) -> str:
        """Of the root worker's run."""
        return self._active.station.id

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
        """Of the whole session."""
        return self._ready.crew.meter

    @property
    def context_used(self) -> int:
        loop = self._active.loop
        return loop.dialogue.context_used if loop else 0

    @property
    def context_limit(self) -> int:
        loop = self._active.loop
        return loop.dialogue.context_limit if loop else 0

    @property
    def path(self) -> Orchestrator:
        return self._active.station.path

    @property
    def worker(self) -> Worker:
        return self._active.worker

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Every worker that can run here, the root first."""
        return self._ready.crew.roster.workers

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
        """What the root worker sees of the person's own tools; None: its file has no such block."""
        return self._active.user_tools

    @property
    def servers(self) -> SessionServers | None:
        """None: the root worker's file names no MCP server."""
        return self._active.servers

    @property
    def budget(self) -> Budget:
        """Of the whole session."""
        return self._ready.crew.budget

    @property
    def walls(self) -> Walls:
        return self._active.station.walls

    @property
    def is_ready(self) -> bool:
        """Between `initialize` and `aclose`."""
        return self._started is not None

    @property
    def _ready(self) -> Started:
        if self._started is None:
            raise RuntimeError("the runtime is not started: `await runtime.initialize()` first")
        return self._started

    @property
    def _active(self) -> WorkerRun:
        return self._ready.run

    # ---- what commands do

    def switch_model(self, name: str) -> None:
        """From the next request on. Raises ConfigError or ModelError."""
        self._ready.crew.equip_with_model(self._active, name)

    async def refresh(self) -> None:
        """Tool modules that were edited count from now on, for a person's own call too. Raises ForgeError."""
        try:
            await self._ready.crew.refresh(self._active)
        except Interrupted:
            raise ForgeError("Interrupted before it started.", status=Status.INTERRUPTED) from None

    def look_at_tools(self) -> None:
        """What a person just agreed to, switched off or took back about their tools and servers counts from now on."""
        self._ready.crew.look(self._active)

    def switch_approval(self, mode: ApprovalMode, by: str) -> None:
        """Of this session, from the next call on; told to whoever watches. `by`: who says so. Raises ForgeError."""
        controller, before = self.controller, self.controller.mode
        controller.switch(mode)
        if mode is before:
            return
        for run in self._ready.crew.runs.values():
            run.station.path.judge.switch(mode)
        kind = "warning" if mode is ApprovalMode.APPROVE_ALL else "info"
        text = f"Approval mode: {mode.value} (was {before.value}), set in {by}."
        self.ui.show_status(type=kind, message=text, code="APPROVAL_MODE")

    def clear_history(self) -> None:
        self.history.clear()

    def interrupt(self, reason: str = "interrupted", worker_id: str = "") -> None:
        """The whole tree, or one branch of it."""
        if not worker_id or worker_id == self._active.station.id:
            self.signal.interrupt(reason)
        elif (run := self._ready.crew.runs.get(worker_id)) is not None:
            run.station.signal.interrupt(reason)

    def _on_interrupt(self, event: Event) -> None:
        self.interrupt(str(event.wire.get("reason") or "interrupted"), str(event.wire.get("workerId") or ""))
