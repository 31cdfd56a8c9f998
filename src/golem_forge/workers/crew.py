"""Crew: puts workers in their places. The root worker at the start, sub-workers when they are called.

Takes a Worker and who calls it; gives a WorkerRun that can answer. Refuses (ForgeError) a child that would reach
further than its caller, and (ConfigError) a worker that cannot be used as it is written.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Tool
from golem_forge.workers.attachments import AttachmentStore
from golem_forge.workers.blocks import McpBlock
from golem_forge.workers.budget import Budget, check_priced
from golem_forge.workers.declared_secrets import has_logins, learn_declared, learn_logins
from golem_forge.workers.dialogue import Dialogue
from golem_forge.workers.history import History
from golem_forge.workers.interrupting import unless_interrupted
from golem_forge.workers.loop import Loop
from golem_forge.workers.mcp.told import look_at_servers, servers_for
from golem_forge.workers.models.layer import Model
from golem_forge.workers.models.names import check_compatible, key_variable, split_model
from golem_forge.workers.models.opening import open_model
from golem_forge.workers.models.usage import ASSUMED_CONTEXT_WINDOW, Meter
from golem_forge.workers.native_toolsets import TOOLSETS
from golem_forge.workers.prompting import PromptState, system_prompt
from golem_forge.workers.roster import Roster
from golem_forge.workers.session_plan import WorkerPlan, plan_worker
from golem_forge.workers.station import Station, check_program_block, mend_edits, open_station
from golem_forge.workers.suggesting import suggesting_in
from golem_forge.workers.toolset_blocks import approval_now, approval_of, native_tools
from golem_forge.workers.tree import SessionTree
from golem_forge.workers.trusting import ask_for_trust
from golem_forge.workers.user_tools import noting_writes, opening_notices, told, user_tools_for, with_zone, workshop_of
from golem_forge.workers.worker import Worker

if TYPE_CHECKING:
    from golem_forge.custom.offering import UserTools
    from golem_forge.workers.mcp.servers import SessionServers
    from golem_forge.workers.modules.module_tools import ModuleTools, Refreshed

NOT_TRUSTED_NOW: Final = (
    "not trusted, so the tools of the changed code stay out of use; `forge trust` in the program's directory brings "
    "them back, and so does undoing the change"
)


@dataclass(slots=True, kw_only=True)
class WorkerRun:
    """One worker at its station. Without a model it still has its tools."""

    station: Station
    plan: WorkerPlan
    budget: Budget
    history: History
    model_name: str = ""
    loop: Loop | None = None
    opening: asyncio.Future[Model] | None = None
    """A model that is being opened while the person types; `Crew.have_model` waits for it."""
    models: list[Model] = field(default_factory=list)
    """Every model opened for it, closed with it: a turn may still run on one that was switched away from."""
    meter: Meter = field(default_factory=Meter)
    modules: ModuleTools | None = None
    user_tools: UserTools | None = None
    servers: SessionServers | None = None
    """None: its file names no MCP server."""
    caller: WorkerRun | None = None
    exposed: dict[str, list[str]] = field(default_factory=dict)
    """Block of its file → names of the tools it has from there."""
    notices: list[str] = field(default_factory=list)
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its modules are looked at: a turn and a command may want to at the same time."""

    @property
    def worker(self) -> Worker:
        return self.station.worker


Delegations = Callable[["Crew", WorkerRun], Iterable[Tool]]


@dataclass(slots=True, kw_only=True)
class Crew:
    tree: SessionTree
    roster: Roster
    attachments: AttachmentStore
    meter: Meter
    budget: Budget
    """Of the whole session."""
    delegations: Delegations
    """Gives the tools by which a worker calls others (`workers.delegation`)."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    given: Mapping[str, Model] = field(default_factory=dict)
    """Models made in Python, by name; whoever made them closes them."""
    runs: dict[str, WorkerRun] = field(default_factory=dict)
    """Everybody who is at work, by worker id."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One card at a time asks for trust, whoever needs it."""
    _declined: str = ""
    """The digest of what the person did not want to trust."""

    async def place(
        self,
        worker: Worker,
        *,
        model: str = "",
        caller: WorkerRun | None = None,
        task: str = "",
        worker_id: str = "",
        history: History | None = None,
        more_tools: Iterable[Tool | Callable[..., Any]] = (),
        model_later: bool = False,
    ) -> WorkerRun:
        """`model`: empty means without one; tools can be called all the same. `model_later`: it is opened beside, since
        importing a provider's library takes longer than a person wants to wait for a prompt."""
        if caller is None:
            await self._learn_secrets()
        run = self._stand(worker, caller, more_tools, task=task, worker_id=worker_id, history=history)
        run.model_name = model
        try:
            await self._equip(run)
            if model:
                self._check_model(worker, model)
                run.opening = run_in_thread(partial(self._opened, worker, model))
                if not model_later:
                    await self.have_model(run)
        except BaseException:
            await self._end(run)
            raise
        self.runs[run.station.id] = run
        return run

    def place_for_look(self, worker: Worker, caller: WorkerRun | None = None) -> WorkerRun:
        """On a dry tree: the same place, with what is there without starting anything. What would start code, servers
        or the book of own tools is left to whoever looks (`explaining.sources`)."""
        run = self._stand(worker, caller)
        blocks, station = run.plan.blocks, run.station
        try:
            tools = self._near_tools(run)
            run.notices += station.admit(tools, approval_of(run.worker, run.exposed))
            if blocks.mcp is not None and (blocks.mcp != McpBlock() or self.tree.program.mcp.servers):
                run.servers = servers_for(station, blocks.mcp)
            check_program_block(station, [])  # names of tools that are not placed yet mean nothing here
        except BaseException:
            station.close()
            raise
        return run

    def _stand(
        self,
        worker: Worker,
        caller: WorkerRun | None,
        more_tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        task: str = "",
        worker_id: str = "",
        history: History | None = None,
    ) -> WorkerRun:
        """A worker at its station, with its native tools."""
        tree = self.tree
        notices: list[str] = []
        plan = plan_worker(tree.program, tree.home, worker)
        parent = caller.station if caller is not None else None
        zones = plan.open_zones(notices, parent.sandbox if parent else None, parent.worker.name if parent else "")
        own = plan.blocks.user_tools
        sandbox = with_zone(zones, own, tree)
        if caller is None:
            notices += mend_edits(tree, sandbox)
        station = open_station(
            tree,
            worker,
            sandbox,
            tools=more_tools,
            toolsets=plan.native,
            parent=parent,
            task=task,
            worker_id=worker_id,
            on_effects=noting_writes(tree, lambda: station.path.worker) if own is not None else None,
        )
        run = WorkerRun(
            station=station,
            plan=plan,
            budget=(caller.budget if caller else self.budget).child(worker.budget),
            history=history or History(tree.journal, station.id),
            meter=(caller.meter if caller else self.meter).child(),
            caller=caller,
            notices=notices,
        )
        station.path.look_again = partial(self.refresh, run)
        return run

    async def _learn_secrets(self) -> None:
        """What any worker of the session declares; one that may be called is named before it starts."""
        tree, workers = self.tree, self.roster.workers
        learn_declared(tree, (worker.toolsets for worker in workers))
        servers = tree.program.mcp.servers.values()
        if has_logins(servers):
            await run_in_thread(lambda: learn_logins(servers, tree.home, tree.redactor))
        if not tree.dry and any("user_tools" in worker.toolsets for worker in workers):
            workshop_of(tree).registry.refresh()

    async def dismiss(self, run: WorkerRun) -> None:
        self.runs.pop(run.station.id, None)
        await self._end(run)

    async def _end(self, run: WorkerRun) -> None:
        if run.modules is not None:
            await run.modules.aclose()
        if run.opening is not None:
            run.opening.cancel()
        for model in run.models:
            await model.aclose()
        run.budget.close()
        run.station.close()

    async def have_model(self, run: WorkerRun) -> Loop | None:
        """The loop on the run's model, once that is open; None for a run without one. Raises what opening raised."""
        if run.opening is not None:
            try:
                model = await asyncio.shield(run.opening)  # an interrupt of the wait does not end the opening
            except ForgeError:
                run.opening = None  # said once; the next turn says that there is no model
                raise
            if run.opening is not None:
                run.opening = None
                self._use(run, model)
        return run.loop

    def _check_model(self, worker: Worker, name: str) -> None:
        """What can be said without opening it. Raises ConfigError."""
        settings = self.tree.program.run
        check_compatible(worker, name)
        check_priced(settings.budget, name, settings.pricing, where=settings.origins.get("budget", ""))
        check_priced(worker.budget, name, settings.pricing, where=worker.at("budget"))
        self._keep_key_secret(name)

    def _opened(self, worker: Worker, name: str) -> Model:
        settings = self.tree.program.run
        model = self.given.get(name) or open_model(
            name,
            settings=settings.models,
            environ=self.environ,
            script_root=self.tree.program.root,
            worker=worker.name,
            confined=not self.tree.program.trusted,
        )
        if worker.tool_format == "native" or (worker.tool_format == "auto" and model.calls_natively):
            return model
        from golem_forge.workers.xml_calls.model import XmlModel

        return XmlModel(model)

    def _keep_key_secret(self, name: str) -> None:
        """`key_env` may be called anything, so its name does not tell that its value is one."""
        if name in self.given:
            return
        variable = key_variable(split_model(name)[0], self.tree.program.run.models)
        key = self.environ.get(variable, "")
        if key and key not in self.tree.redactor.secrets:
            self.tree.redactor.add_secret(variable, key)

    def equip_with_model(self, run: WorkerRun, name: str) -> None:
        """Another model from the next request on; the history stays."""
        self._check_model(run.worker, name)
        model = self._opened(run.worker, name)
        run.model_name = name
        self._use(run, model)

    def _use(self, run: WorkerRun, model: Model) -> None:
        if run.model_name not in self.given:
            run.models.append(model)
        run.loop = self._loop(run, model)

    async def _equip(self, run: WorkerRun) -> None:
        """Tools of modules and sub-workers, and what the worker's blocks say about all of them."""
        tree, station, blocks = self.tree, run.station, run.plan.blocks
        loaded = await self._load_modules(run) if run.plan.has_modules else []
        tools = [*loaded, *self._near_tools(run)]
        run.notices += station.admit(tools, approval_of(run.worker, run.exposed))
        if blocks.user_tools is not None:
            run.user_tools = user_tools_for(station, blocks.user_tools)
            run.notices += opening_notices(run.user_tools)
            suggesting_in(tree).begin(station)
        if blocks.mcp is not None:
            await self._connect(run, blocks.mcp)
        check_program_block(station, run.notices)

    def _near_tools(self, run: WorkerRun) -> list[Tool]:
        """Those of its sub-workers. Notes which block exposes them, and the native ones."""
        built = native_tools(run.plan.blocks, TOOLSETS)
        run.exposed |= {key: [tool.name for tool in tools] for key, tools in built.items()}
        if run.plan.blocks.workers is None:
            return []
        delegations = list(self.delegations(self, run))
        run.exposed["workers"] = [tool.name for tool in delegations]
        return delegations

    async def admit_modules(self, run: WorkerRun) -> None:
        """For a look that needs a tool of theirs: what a start does with modules and packages. Raises ConfigError."""
        tools = await self._load_modules(run)
        run.notices += run.station.admit(tools, approval_of(run.worker, run.exposed))

    async def _load_modules(self, run: WorkerRun) -> list[Tool]:
        from golem_forge.workers.modules.module_tools import ModuleTools

        tree = self.tree
        run.modules = ModuleTools(
            worker=run.worker,
            program=tree.program,
            home=tree.home,
            walls=run.station.walls,
            redactor=tree.redactor,
            trusted=partial(_trusted_with, tree),
        )
        tools = await run.modules.load()
        run.exposed |= run.modules.exposed()
        return tools

    async def _connect(self, run: WorkerRun, block: McpBlock) -> None:
        """Only a server that is `required` delays the first turn."""
        from golem_forge.workers.mcp.sampling import sampler_for

        run.servers = servers = servers_for(run.station, block)
        servers.asks_with(run.station.path.worker, sampler_for(self, run))
        await servers.refresh()
        await servers.pool.required_ready()
        look_at_servers(run.station)

    def _loop(self, run: WorkerRun, model: Model) -> Loop:
        station, worker = run.station, run.worker
        window = worker.max_context_tokens or model.context_window or ASSUMED_CONTEXT_WINDOW
        dialogue = Dialogue(
            station=station,
            model=model,
            history=run.history,
            budget=run.budget,
            meter=run.meter,
            price=self.tree.program.run.pricing.get(run.model_name),
            context_limit=window,
            system=lambda: system_prompt(worker.instructions, PromptState.of(station)),
            attachment=self.attachments.read,
        )

        return Loop(dialogue=dialogue, before_turn=partial(self._before_request, run))

    async def _before_request(self, run: WorkerRun) -> None:
        await self.refresh(run)
        if run.user_tools is not None:
            await suggesting_in(self.tree).before_request(run.station, run.history)

    async def refresh(self, run: WorkerRun) -> None:
        """Puts tools that changed on disk in force; called before whatever may use them. Raises Interrupted."""
        self._look_at_own(run)
        if run.servers is not None:
            await unless_interrupted(run.station.signal, run.servers.refresh())
            look_at_servers(run.station)
        if run.modules is not None:
            await unless_interrupted(run.station.signal, self._refresh(run, run.modules))

    def look(self, run: WorkerRun) -> None:
        """As far as nobody has to be waited for: the person's own tools, and what is known of servers' tools."""
        self._look_at_own(run)
        look_at_servers(run.station)

    @staticmethod
    def _look_at_own(run: WorkerRun) -> None:
        if run.user_tools is not None and (news := run.user_tools.refresh()) is not None:
            told(run.station, news)

    async def _refresh(self, run: WorkerRun, modules: ModuleTools) -> None:
        async with run.looking:
            await self._look(run, modules)
            if modules.waits_for_trust and self.tree.ui.attached and await self._trusted_now():
                await self._look(run, modules)

    async def _look(self, run: WorkerRun, modules: ModuleTools) -> None:
        changed = await modules.refresh(run.station.catalog.names())
        if changed is not None:
            self._put_in_force(run, modules, changed)

    async def _trusted_now(self) -> bool:
        """Asks the person about the program as it is now; about the same bytes only once."""
        tree = self.tree
        async with self._asking:
            try:
                snapshot = tree.trust.snapshot(tree.program.root)
            except ConfigError:  # nothing that can be shown, so nothing that can be trusted
                return False
            if snapshot.digest == self._declined:
                return False
            if tree.trust.trusted(tree.program.root):  # since a moment: by another worker's card, or `forge trust`
                return True
            if await ask_for_trust(tree.ui, tree.trust, tree.program, snapshot):
                return True
            if not self._declined:
                tree.ui.show_status(type="warning", message=NOT_TRUSTED_NOW)
            self._declined = snapshot.digest
            return False

    @staticmethod
    def _put_in_force(run: WorkerRun, modules: ModuleTools, changed: Refreshed) -> None:
        station = run.station
        for name in changed.removed:
            station.catalog.remove(name)
        run.exposed |= modules.exposed()
        approval, problems = approval_now(run.worker, run.exposed)
        station.admit(changed.tools, approval)
        station.emit(
            "catalogChanged",
            {
                "added": list(changed.added),
                "changed": list(changed.changed),
                "removed": list(changed.removed),
                "diagnostics": [*changed.diagnostics, *problems],
            },
        )


def _trusted_with(tree: SessionTree, read: Mapping[str, bytes]) -> bool:
    """Whether the program on disk is trusted, and these bytes of its files are part of what is: swaps included."""
    root = tree.program.root
    return tree.trust.trusted(root) and tree.trust.trusted_with(root, read)
