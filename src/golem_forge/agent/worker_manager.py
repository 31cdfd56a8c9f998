"""WorkerManager: starts and stops the workers of a session. The root worker first, sub-workers when they are called.

Takes a Worker and its caller; returns a WorkerRun that can answer. Raises ForgeError for a child that would reach
further than its caller, and ConfigError for a worker that cannot be used as it is written.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.attachments import AttachmentStore
from golem_forge.agent.budget import ASSUMED_CONTEXT_WINDOW, COMPACT_CONTEXT, Budget, Meter, check_priced, price_of
from golem_forge.agent.dialogue import AnsweringModel, Dialogue
from golem_forge.agent.files.roster import Roster
from golem_forge.agent.files.toolset_blocks import approval_now, approval_of, native_names
from golem_forge.agent.files.worker import McpBlock, Worker
from golem_forge.agent.history import History
from golem_forge.agent.loop import Loop
from golem_forge.agent.mcp_servers import SessionServers, attach_servers
from golem_forge.agent.model.interface import Model, UserMessage
from golem_forge.agent.model.selection import (
    NO_SETTINGS,
    ModelKeys,
    check_compatible,
    key_variable,
    missing_key,
    open_model,
    provider_address,
    split_model,
    split_models,
)
from golem_forge.agent.model.text_calls import TextCallModel, XmlModel, takes_text_calls
from golem_forge.agent.prompt import STATUS_CODE, ProjectInstructions, PromptState, system_prompt
from golem_forge.agent.run_result import unless_interrupted
from golem_forge.agent.sampler import PersonPartner, sampler_for
from golem_forge.agent.session_plan import WorkerPlan, plan_worker
from golem_forge.agent.session_state import SessionState, has_logins, learn_declared, learn_logins, learn_secret
from golem_forge.agent.skills import OPEN_SKILL, SessionSkills
from golem_forge.agent.tool_inventory import build_catalog
from golem_forge.agent.trust import ask_for_trust
from golem_forge.agent.user_tools import (
    initial_notices,
    record_agent_writes,
    session_suggestions,
    session_workshop,
    user_tools_for,
    with_user_tools_zone,
)
from golem_forge.agent.worker_scope import (
    WorkerScope,
    check_program_block,
    open_scope,
    recover_edits,
)
from golem_forge.config.run_block import GenerationSettings, Price
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.tools.factory import GivenTool
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.client import ClientRequests, Partner

if TYPE_CHECKING:
    from golem_forge.agent.modules.module_tools import ModuleTools
    from golem_forge.usertools.catalog_sync import UserTools

NOT_TRUSTED_NOW: Final = (
    "not trusted, so the tools of the changed code stay out of use; `forge trust` in the program's directory brings "
    "them back, and so does undoing the change"
)


@dataclass(slots=True, kw_only=True)
class WorkerRun:
    """One worker of the session. Without a model it still has its tools."""

    scope: WorkerScope
    plan: WorkerPlan
    budget: Budget
    history: History
    model_name: str = ""
    """The model that answers."""
    fallbacks: tuple[str, ...] = ()
    """Models that answer if it fails, in order."""
    generation: GenerationSettings = field(default_factory=GenerationSettings)
    """Generation settings from the program, its file, the command line and the person."""
    loop: Loop | None = None
    single: bool = False
    """Whether it answers one input and ends, of a root; workers of others always do."""
    pending_model: asyncio.Future[Model] | None = None
    """A model that is being opened while the person types; `WorkerManager.wait_for_model` waits for it."""
    models: list[Model] = field(default_factory=list)
    """Every model opened for it, closed with it: a request may still run on one that was switched away from."""
    meter: Meter = field(default_factory=Meter)
    modules: ModuleTools | None = None
    user_tools: UserTools | None = None
    servers: SessionServers | None = None
    """None if its file names no MCP server."""
    caller: WorkerRun | None = None
    exposed: dict[str, list[str]] = field(default_factory=dict)
    """Block of its file → names of the tools it has from there."""
    notices: list[str] = field(default_factory=list)
    instructions: ProjectInstructions | None = None
    """The project's instruction files for a root worker; None for a sub-worker, or if the person turned them off."""
    skills: SessionSkills | None = None
    """The skills that a root worker may open; None for a sub-worker."""
    opens_skills: Tool | None = None
    """The tool that opens them, where it was added."""
    refresh_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its modules are looked at: a turn and a command may want to at the same time."""

    @property
    def worker(self) -> Worker:
        return self.scope.worker

    def look_at_project(self) -> None:
        """Reads the project's instructions and the skills again; tells the person what is new or changed."""
        for source in (self.skills, self.instructions):
            if source is not None and (text := source.refresh()):
                self.scope.emit("status", {"type": "info", "message": text, "code": STATUS_CODE})
        if self.skills is not None:
            self._offer_skills(self.skills)
            if self._opens_skills and (note := self.skills.note_for(self.history.messages)):
                self.history.add(UserMessage(text=note, kind="note"))

    def _offer_skills(self, skills: SessionSkills) -> None:
        """`open_skill` is there from the first skill on; a tool of that name that the program brings stays."""
        if skills.found.offered and OPEN_SKILL not in self.scope.catalog:
            self.opens_skills = skills.tool()
            self.scope.add_tools([self.opens_skills], {})

    @property
    def _opens_skills(self) -> bool:
        return self.scope.catalog.get(OPEN_SKILL) is self.opens_skills

    @property
    def project_blocks(self) -> tuple[str, ...]:
        """The blocks for the end of the system prompt."""
        sources = (self.skills if self._opens_skills else None, self.instructions)
        return tuple(source.block for source in sources if source is not None)

    @property
    def model_choice(self) -> str:
        """The models as a setting names them: `a`, or `a,b`."""
        return ",".join((self.model_name, *self.fallbacks))

    def emit_update(self, status: str, task: str = "") -> None:
        """`task`: empty means the one that its caller gave it."""
        *above, own = self.scope.lineage
        data: dict[str, Any] = {"workerId": own.id, "name": own.name, "task": task_line(task) or own.task}
        data |= {"status": status, "depth": own.depth}
        if above:
            data["parentId"] = above[-1].id
        self.scope.emit("workerUpdate", data | {"model": self.model_name})


def task_line(text: str) -> str:
    """The first line of an input, as cards and events show it."""
    return text.strip().splitlines()[0][:200] if text.strip() else ""


DelegationTools = Callable[["WorkerManager", WorkerRun], Iterable[Tool]]


@dataclass(slots=True, kw_only=True)
class WorkerManager:
    state: SessionState
    roster: Roster
    attachments: AttachmentStore
    meter: Meter
    budget: Budget
    """The budget of the whole session."""
    delegations: DelegationTools
    """Gives the tools by which a worker calls others (`agent.delegation`)."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    given: Mapping[str, Model] = field(default_factory=dict)
    """Models made in Python, by name; whoever made them closes them."""
    runs: dict[str, WorkerRun] = field(default_factory=dict)
    """All running workers, by worker id."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One card at a time asks for trust, whoever needs it."""
    _declined: str = ""
    """The digest of what the person did not want to trust."""

    async def start(
        self,
        worker: Worker,
        *,
        model: str = "",
        caller: WorkerRun | None = None,
        task: str = "",
        worker_id: str = "",
        history: History | None = None,
        more_tools: Iterable[GivenTool] = (),
        model_later: bool = False,
    ) -> WorkerRun:
        """`model`: empty means without one; tools can be called all the same. `model_later`: it is opened beside, since
        importing a provider's library takes longer than a person wants to wait for a prompt."""
        if caller is None:
            await self._learn_secrets()
        run = self._open_run(worker, caller, more_tools, task=task, worker_id=worker_id, history=history)
        try:
            run.generation = self._generation(worker, caller)
            if model:
                self._choose(run, model)
            await self._add_all_tools(run)
            if model:
                run.pending_model = run_in_thread(self._open_model, run, run.model_name)
                if not model_later:
                    await self.wait_for_model(run)
        except BaseException:
            await self._end(run)
            raise
        self.runs[run.scope.id] = run
        return run

    def start_dry(self, worker: Worker, caller: WorkerRun | None = None) -> WorkerRun:
        """Starts a worker in a dry session. Code, servers and user tools are left to `agent.explain`."""
        run = self._open_run(worker, caller)
        blocks, scope = run.plan.blocks, run.scope
        try:
            tools = self._near_tools(run)
            run.notices += scope.add_tools(tools, approval_of(run.worker, run.exposed))
            if blocks.mcp is not None and (blocks.mcp != McpBlock() or self.state.program.mcp.servers):
                run.servers = attach_servers(scope, blocks.mcp)
            check_program_block(scope, [])  # names of tools that are not placed yet mean nothing here
        except BaseException:
            scope.close()
            raise
        return run

    def _open_run(
        self,
        worker: Worker,
        caller: WorkerRun | None,
        more_tools: Iterable[GivenTool] = (),
        *,
        task: str = "",
        worker_id: str = "",
        history: History | None = None,
    ) -> WorkerRun:
        """A worker in its scope, with its native tools."""
        session_state = self.state
        notices: list[str] = []
        plan = plan_worker(session_state.program, session_state.home, worker)
        parent = caller.scope if caller is not None else None
        zones = plan.open_zones(notices, parent.sandbox if parent else None, parent.worker.name if parent else "")
        own = plan.blocks.user_tools
        sandbox = with_user_tools_zone(zones, own, session_state)
        if caller is None:
            notices += recover_edits(session_state, sandbox)
        scope = open_scope(
            session_state,
            worker,
            sandbox,
            build_catalog(more_tools, plan.native, plan.program.toolsets_off),
            parent=parent,
            task=task,
            worker_id=worker_id,
            on_effects=record_agent_writes(session_state, lambda: scope.orchestrator.worker) if own else None,
        )
        run = WorkerRun(
            scope=scope,
            plan=plan,
            budget=(caller.budget if caller else self.budget).child(worker.budget),
            history=history or History(session_state.journal, scope.id),
            meter=(caller.meter if caller else self.meter).child(),
            caller=caller,
            notices=notices,
        )
        if caller is None and session_state.program.instructions.project_files:
            run.instructions = ProjectInstructions(session_state.program.root, session_state.redactor.redact_secrets)
        if caller is None:
            run.skills = SessionSkills(
                session_state.home,
                session_state.program.root,
                project_files=session_state.program.instructions.project_files,
                clean=session_state.redactor.redact_secrets,
            )
        scope.orchestrator.resolve_stage.refresh_tools = partial(self.refresh, run)
        scope.orchestrator.scope.spend_call = run.budget.take_call
        session_state.parts.get(ClientRequests).set_worker(scope.orchestrator.worker, partial(self.partner, run))
        return run

    def partner(self, run: WorkerRun) -> Partner:
        """Returns the partner that the worker's tools ask while they run."""
        has_model = run.loop is not None or run.pending_model is not None
        sampler = sampler_for(run.scope, lambda: self.wait_for_model(run), lambda: run.model_name)
        return PersonPartner(run.scope, sampler if has_model else None)

    async def _learn_secrets(self) -> None:
        """Adds the secrets that any worker of the session declares to the redactor, also of workers that did not start
        yet.
        """
        session_state, workers = self.state, self.roster.workers
        learn_declared(session_state, (worker.toolsets for worker in workers))
        servers = session_state.program.mcp.servers.values()
        if has_logins(servers):
            await run_in_thread(lambda: learn_logins(servers, session_state.home, session_state.redactor))
        if not session_state.dry and any("user_tools" in worker.toolsets for worker in workers):
            session_workshop(session_state).registry.refresh()

    async def stop(self, run: WorkerRun) -> None:
        self.runs.pop(run.scope.id, None)
        await self._end(run)

    async def _end(self, run: WorkerRun) -> None:
        if run.modules is not None:
            await run.modules.aclose()
        if run.pending_model is not None:
            run.pending_model.cancel()
        for model in run.models:
            await model.aclose()
        run.budget.close()
        run.scope.close()

    async def wait_for_model(self, run: WorkerRun) -> Loop | None:
        """The loop on the run's model, once that is open; None for a run without one. Raises what opening raised."""
        if (pending := run.pending_model) is not None:
            try:
                model = await asyncio.shield(pending)  # an interrupt of the wait does not end the opening
            except ForgeError:
                if run.pending_model is pending:
                    run.pending_model = None  # said once; the next turn says that there is no model
                    raise
            else:
                if run.pending_model is pending:
                    run.pending_model = None
                    self._use(run, model)
        return run.loop

    def _drop_pending(self, run: WorkerRun) -> None:
        """The person chose another model than the one that is being opened: that one is only closed with the run."""
        pending, run.pending_model = run.pending_model, None

        def keep(opened: asyncio.Future[Model]) -> None:
            if not opened.cancelled() and opened.exception() is None and opened.result().name not in self.given:
                run.models.append(opened.result())

        if pending is not None:
            pending.add_done_callback(keep)

    def _choose(self, run: WorkerRun, choice: str) -> None:
        """Selects the first model of `a,b` that has its key; those after it become fallbacks. Raises ConfigError."""
        names = (choice,) if choice in self.given else split_models(choice)
        for name in names:
            self._check_model(run.worker, name)
        settings, stored = self.state.program.run.models, ModelKeys(self.state.home)
        while len(names) > 1 and (problem := missing_key(names[0], settings, self.environ, stored)):
            run.notices.append(f"{problem}. {names[1]} answers instead")
            names = names[1:]
        run.model_name, run.fallbacks = names[0], names[1:]

    def _check_model(self, worker: Worker, name: str) -> None:
        """Checks a model as far as possible without opening it. Raises ConfigError."""
        settings = self.state.program.run
        check_compatible(worker, name)
        check_priced(settings.budget, name, lambda: self._price_of(name), where=settings.origins.get("budget", ""))
        check_priced(worker.budget, name, lambda: self._price_of(name), where=worker.at("budget"))
        if name not in self.given:  # `key_env` may be called anything, so its name does not tell that its value is one
            variable = key_variable(split_model(name)[0], settings.models)
            learn_secret(self.state.redactor, variable, self.environ.get(variable, ""))

    def _generation(self, worker: Worker, caller: WorkerRun | None) -> GenerationSettings:
        """Returns the generation settings. A worker that uses its caller's model also inherits its settings, unless its
        file has its own.
        """
        settings = self.state.program.run
        inherits = caller is not None and not worker.model
        before = caller.generation if caller is not None and inherits else settings.model_settings
        return before.under(worker.model_settings).under(settings.typed_settings)

    def _open_model(self, run: WorkerRun, name: str) -> Model:
        settings, worker = self.state.program.run, run.worker
        model = self.given.get(name) or open_model(
            name,
            settings=settings.models,
            environ=self.environ,
            script_root=self.state.program.root,
            worker=worker.name,
            confined=not self.state.program.trusted or self.state.confined,
            stored=self._stored_key(name),
            generation=run.generation,
        )
        if worker.tool_format == "xml" or (worker.tool_format == "auto" and not model.calls_natively):
            model = XmlModel(model)
        if name in self.given:
            return model
        self._price_of(name)  # the list is read here, beside the libraries, and not on the event loop
        provider = split_model(name)[0]
        reads = takes_text_calls(provider, settings.models.get(provider, NO_SETTINGS).text_calls)
        return TextCallModel(model) if reads else model

    def _stored_key(self, name: str) -> ModelKeys:
        """The stored keys; the one that will be sent is known to the redactor first."""
        settings, stored = self.state.program.run.models, ModelKeys(self.state.home)
        provider = split_model(name)[0]
        if not self.environ.get(key_variable(provider, settings)):
            learn_secret(self.state.redactor, "MODEL_KEY", stored.load(provider, provider_address(provider, settings)))
        return stored

    def switch_model(self, run: WorkerRun, name: str, generation: GenerationSettings | None = None) -> None:
        """Another model, or the same with other settings, from the next request on; the history stays."""
        before = run.model_name, run.fallbacks, run.generation
        self._choose(run, run.model_choice if name == run.model_name else name)
        run.generation = generation or run.generation
        try:
            model = self._open_model(run, run.model_name)
        except BaseException:
            run.model_name, run.fallbacks, run.generation = before
            raise
        self._drop_pending(run)
        self._use(run, model)

    async def next_model(self, run: WorkerRun) -> AnsweringModel | None:
        """The next one of the list that can be opened; None: there is none."""
        while run.fallbacks:
            name, *rest = run.fallbacks
            run.fallbacks = tuple(rest)
            try:
                model = await run_in_thread(self._open_model, run, name)
            except ForgeError as error:
                run.scope.emit("status", {"type": "warning", "message": error.message, "code": "MODEL_FALLBACK"})
                continue
            if name not in self.given:
                run.models.append(model)
            run.model_name = name
            run.emit_update("running")
            return self._answering(run, model)
        return None

    def _answering(self, run: WorkerRun, model: Model) -> AnsweringModel:
        window = run.worker.max_context_tokens or model.context_window or ASSUMED_CONTEXT_WINDOW
        run.scope.model_tools.compact = window <= COMPACT_CONTEXT
        return AnsweringModel(model=model, price=self._price_of(run.model_name), context_limit=window)

    def _price_of(self, name: str) -> Price | None:
        settings = self.state.program.run
        return price_of(name, settings.models, settings.pricing, listed=name not in self.given)

    def _use(self, run: WorkerRun, model: Model) -> None:
        if run.model_name not in self.given:
            run.models.append(model)
        scope, worker = run.scope, run.worker
        answering = self._answering(run, model)
        if run.loop is not None and run.loop.busy:
            run.loop.dialogue.chosen = answering
            run.emit_update("running")
            return
        dialogue = Dialogue(
            scope=scope,
            model=model,
            history=run.history,
            budget=run.budget,
            meter=run.meter,
            price=answering.price,
            context_limit=answering.context_limit,
            system=lambda: system_prompt(worker.instructions, PromptState.of(scope), run.project_blocks),
            attachment=self.attachments.read,
            next_model=partial(self.next_model, run),
        )

        run.loop = Loop(
            dialogue=dialogue,
            before_turn=partial(self.before_request, run),
            is_single=lambda: run.single or scope.depth > 0,
        )

    async def _add_all_tools(self, run: WorkerRun) -> None:
        """Tools of modules and sub-workers, and what the worker's blocks say about all of them."""
        session_state, scope, blocks = self.state, run.scope, run.plan.blocks
        loaded = await self._load_modules(run) if run.plan.has_modules else []
        tools = [*loaded, *self._near_tools(run)]
        run.notices += scope.add_tools(tools, approval_of(run.worker, run.exposed))
        if blocks.user_tools is not None:
            run.user_tools = user_tools_for(scope, blocks.user_tools)
            run.notices += initial_notices(run.user_tools)
            session_suggestions(session_state).begin(scope)
        if blocks.mcp is not None:
            # Only a server that is `required` delays the first turn.
            run.servers = servers = attach_servers(scope, blocks.mcp)
            sampler = sampler_for(scope, lambda: self.wait_for_model(run), lambda: run.model_name)
            servers.set_sampler(scope.orchestrator.worker, sampler)
            await servers.refresh()
            await servers.pool.wait_required()
            servers.sync(scope)
        check_program_block(scope, run.notices)

    def _near_tools(self, run: WorkerRun) -> list[Tool]:
        """Returns the tools of its sub-workers. Records which block exposes them, and the native ones."""
        run.exposed |= native_names(run.plan.blocks)
        if run.plan.blocks.workers is None:
            return []
        delegations = list(self.delegations(self, run))
        run.exposed["workers"] = [tool.name for tool in delegations]
        return delegations

    async def add_module_tools(self, run: WorkerRun) -> None:
        """Loads modules and packages for a dry run that needs one of their tools. Raises ConfigError."""
        tools = await self._load_modules(run)
        run.notices += run.scope.add_tools(tools, approval_of(run.worker, run.exposed))

    async def _load_modules(self, run: WorkerRun) -> list[Tool]:
        from golem_forge.agent.modules.module_tools import ModuleTools

        session_state = self.state
        run.modules = ModuleTools(
            worker=run.worker,
            program=session_state.program,
            home=session_state.home,
            walls=run.scope.walls,
            redactor=session_state.redactor,
            trusted=partial(_trusted_with, session_state),
        )
        tools = await run.modules.load()
        run.exposed |= run.modules.exposed()
        return tools

    async def before_request(self, run: WorkerRun) -> None:
        if not run.history.messages or isinstance(run.history.messages[-1], UserMessage):
            run.look_at_project()  # once for an input: while it is worked on, the prompt stays the same
        await self.refresh(run)
        if run.user_tools is not None:
            await session_suggestions(self.state).before_request(run.scope, run.history)

    async def refresh(self, run: WorkerRun) -> None:
        """Puts tools that changed on disk in force; called before whatever may use them. Raises Interrupted."""
        run.scope.sync(run.user_tools)
        if run.servers is not None:
            await unless_interrupted(run.scope.signal, run.servers.refresh())
            run.servers.sync(run.scope)
        if run.modules is not None:
            await unless_interrupted(run.scope.signal, self._refresh(run, run.modules))

    def refresh_local(self, run: WorkerRun) -> None:
        """Refreshes what needs no waiting: the user tools, and the known tools of servers."""
        run.scope.sync(run.user_tools)
        if run.servers is not None:
            run.servers.sync(run.scope)

    async def _refresh(self, run: WorkerRun, modules: ModuleTools) -> None:
        async with run.refresh_lock:
            await self._sync_modules(run, modules)
            if modules.waits_for_trust and self.state.ui.may_trust and await self._ask_trust():
                await self._sync_modules(run, modules)

    async def _sync_modules(self, run: WorkerRun, modules: ModuleTools) -> None:
        changed = await modules.refresh(run.scope.catalog.names())
        if changed is None:
            return
        for name in changed.removed:
            run.scope.catalog.remove(name)
        run.exposed |= modules.exposed()
        approval, problems = approval_now(run.worker, run.exposed)
        run.scope.add_tools(changed.tools, approval)
        run.scope.emit_catalog_changed(changed, problems)

    async def _ask_trust(self) -> bool:
        """Asks the person about the program as it is now; about the same bytes only once."""
        session_state = self.state
        async with self._asking:
            try:
                snapshot = session_state.trust.snapshot(session_state.program.root)
            except ConfigError:  # nothing that can be shown, so nothing that can be trusted
                return False
            if snapshot.digest == self._declined:
                return False
            if session_state.trust.trusted(session_state.program.root):  # just now, by another card or `forge trust`
                return True
            if await ask_for_trust(session_state.ui, session_state.trust, session_state.program, snapshot):
                return True
            if not self._declined:
                session_state.ui.show_status(type="warning", message=NOT_TRUSTED_NOW)
            self._declined = snapshot.digest
            return False


def _trusted_with(session_state: SessionState, read: Mapping[str, bytes]) -> bool:
    """Whether the program on disk is trusted, and these bytes of its files are part of what is: swaps included."""
    root = session_state.program.root
    return session_state.trust.trusted(root) and session_state.trust.trusted_with(root, read)
