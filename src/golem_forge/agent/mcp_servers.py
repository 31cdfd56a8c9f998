"""SessionServers: the MCP servers of one session, in one pool for all workers, and the questions they put to a person.

Takes the program's configuration, and takes it again when one of its files was edited. `attach_servers` connects a
worker to the servers that its block names. A person is asked before a server starts for the first time and when a
tool's definition changed. Every server ends with the session.

Each question is an ordinary card for whoever watches the session; where nobody can answer, the answer is no. No call
waits for a card. This module is imported only where a worker file or the user's configuration names a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.files.toolset_blocks import check_servers
from golem_forge.agent.files.worker import McpBlock
from golem_forge.agent.session_plan import (
    DEFAULT_WORKER,
    open_program_zones,
    read_program,
    server_tool_approvals,
    zone_specs,
)
from golem_forge.agent.session_state import SessionState, has_logins, learn_logins, learn_servers
from golem_forge.agent.worker_scope import WorkerScope
from golem_forge.config.mcp_merge import zone_containing
from golem_forge.config.mcp_spec import McpSettings, ServerSpec
from golem_forge.config.program import PROGRAM_FILE
from golem_forge.config.sandbox_block import ZoneEntry
from golem_forge.core.calls import Caller
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import escape_control_chars
from golem_forge.events.open_questions import NOBODY
from golem_forge.events.runtime_ui import RuntimeUI
from golem_forge.events.serialization import iso_time
from golem_forge.mcp.client.manifest import ManifestCache, ReadOnlyManifestCache
from golem_forge.mcp.client.model import (
    ElicitationForm,
    FormAnswer,
    HeldTool,
    HoldReason,
    Hooks,
    RemoteTool,
    SamplingAnswer,
    SamplingRequest,
    ServerState,
    ServerStatus,
)
from golem_forge.mcp.client.pool import Pool
from golem_forge.mcp.client.resources import ServerAccess, passing_tools
from golem_forge.mcp.client.tool_source import ServerTools, approval_block
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.policy.base import ApprovalBlock, check_block
from golem_forge.policy.rules.book import host_rule_for
from golem_forge.sandbox.host import person_environ
from golem_forge.sandbox.walls.model import PathRule
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.sandbox.zones import AccessMode, ZoneRequest, worker_zones
from golem_forge.storage.home import file_stamp
from golem_forge.tools.context import ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import SourceKind

MCP_JSON: Final = ".mcp.json"
FIRST_LIST_SECONDS: Final = 5.0
"""Seconds that the first list of tools waits for servers whose tools are not known yet."""
AskForm = Callable[[ElicitationForm, ToolContext], Awaitable[FormAnswer]]
Sampler = Callable[[SamplingRequest], Awaitable[SamplingAnswer]]
"""Asks the model of one worker."""


class SessionServers:
    def __init__(self, session_state: SessionState) -> None:
        self._session_state = session_state
        self._scopes: dict[str, WorkerScope] = {}
        """By worker path: on whose behalf a server may ask."""
        self._samplers: dict[str, Sampler] = {}
        self._walls: dict[tuple[str, str], Walls] = {}
        """By server and the digest of its config."""
        self.form_asker: AskForm = self._ask_person
        """Who is asked what servers want to know: whoever watches the session, or the client whose call it is."""
        self.unchecked = server_tool_approvals(session_state.program)
        """What forge.yaml says about tools of servers whose lists nobody has seen yet, by name."""
        self._named: Mapping[str, ServerSpec] = {}
        """Servers of this session alone, which its editor named."""
        self._started = False
        self._waited_for: set[str] = set()
        root = session_state.program.root
        self._config = tuple(map(str, (root / PROGRAM_FILE, root / MCP_JSON, session_state.home.config)))
        self._files = self._stamps()
        self.book = ServerTrustStore(session_state.home)
        self.pool = Pool(
            session_state.program.mcp.servers,
            home=session_state.home,
            redactor=session_state.redactor,
            environ=person_environ(),
            hooks=Hooks(
                ask_form=lambda form, ctx: self.form_asker(form, ctx),
                sample=self._sample,
                approve_server=lambda spec, card, diff: ask_to_start(session_state.ui, spec, card, diff),
                can_ask=lambda: session_state.ui.may_trust,
                tell=self._tell,
                walls_for=self._walls_for,
                host_rule=host_rule_for(session_state.rules, str(session_state.program.root), DEFAULT_WORKER),
            ),
            book=self.book,
            cache=ReadOnlyManifestCache(session_state.home) if session_state.dry else ManifestCache(session_state.home),
            session_id=session_state.id,
        )
        self._drift_cards = DriftCards(session_state.ui, self.pool, self.book)
        session_state.parts.get(ServerAccess).set_pool(self.pool)

    # ---- workers

    def tools_for(self, scope: WorkerScope, servers: tuple[str, ...]) -> ServerTools:
        """Returns a worker's tools of these servers. `servers`: the names in the worker's block."""
        self._scopes[scope.orchestrator.worker] = scope
        self._session_state.parts.get(ServerAccess).grant(scope.orchestrator.worker, servers)

        def placed(names: Any) -> None:
            scope.add_tools((), {name: approval_block(spec, tool, name) for name, (spec, tool) in names.items()})

        return ServerTools(self.pool, self.book, servers, scope.catalog, on_placed=placed, warn=self._warn)

    def sync(self, scope: WorkerScope) -> None:
        """Updates the worker's catalog from the lists of its servers. Cheap where nothing changed."""
        if scope.server_tools is None:
            return
        scope.sync(scope.server_tools)
        self._warn_unknown_names(scope, scope.server_tools)

    def _warn_unknown_names(self, scope: WorkerScope, tools: ServerTools) -> None:
        """Warns once about each tool that forge.yaml names and its server does not have."""
        for name in [name for name in self.unchecked if tools.lists(name) is not None]:
            said = self.unchecked.pop(name)
            if not tools.lists(name):
                there = {tool.name: tool for tool in scope.catalog.list(SourceKind.MCP)}
                _, (unknown,) = check_block(ApprovalBlock(tools={name: said}), there)
                scope.emit("status", {"type": "warning", "message": unknown})

    async def load_server_of(self, scope: WorkerScope, name: str, caller: Caller) -> bool:
        """Waits for the server that a tool which is not in the catalog belongs to by its name, and puts what the server
        lists in the catalog. False: no server of this worker would have it. Raises ForgeError with what the server's
        state says. A model waits only for a list that nobody knows yet: of the others it was offered all there is."""
        tools = scope.server_tools
        if tools is None or name in scope.catalog or not (server := tools.server_of(name)):
            return False
        if caller is not Caller.LLM or self.pool.listing(server) is None:
            await tools.wait_connected(server)
        self.sync(scope)
        return True

    async def wait_listed(self, scope: WorkerScope) -> None:
        """Waits a moment, once for each, for servers of this worker that connect for the first time, then updates its
        catalog. One that fails or is late keeps no other from being listed: its state says why."""
        tools, pool = scope.server_tools, self.pool
        if tools is None:
            return

        async def listed(name: str) -> None:
            with contextlib.suppress(ForgeError):
                await tools.wait_connected(name)

        unlisted = [name for name in pool.names() if tools.sees(name) and pool.listing(name) is None]
        new = [name for name in unlisted if pool.status(name).state is ServerState.CONNECTING]
        asked = [asyncio.create_task(listed(name)) for name in new if name not in self._waited_for]
        self._waited_for.update(new)
        if asked:
            _, late = await asyncio.wait(asked, timeout=FIRST_LIST_SECONDS)
            for each in late:
                each.cancel()
        self.sync(scope)

    def set_sampler(self, worker: str, sampler: Sampler) -> None:
        """Sets how the model of a worker is asked on behalf of a server."""
        self._samplers[worker] = sampler

    def begin(self) -> None:
        """Starts the servers; call it on the event loop. Connections are made in the background."""
        if not self._started:
            self._started = True
            self.pool.begin()

    def look(self) -> None:
        """Outside the event loop too: what is known of servers without waiting counts."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.pool.load_cached()
        else:
            self.begin()

    async def refresh(self) -> bool:
        """Applies edited config and shows a card for changed definitions; called before a server may be used. Returns
        True if nothing changed since the last refresh.
        """
        self.begin()
        if self._files != (now := self._stamps()):
            self._files = now
            await self._read_again()
        return self._drift_cards.update()

    async def use_named(self, specs: Mapping[str, ServerSpec], client: str) -> list[str]:
        """Servers that an editor named for this session. None starts before a person approved it. Gives the names that
        a server of the program or of the person has already: that one stays. Raises ServerTrustError."""
        settings = self._session_state.program.mcp
        own = {name: spec for name, spec in settings.servers.items() if name not in self._named}
        self._named = {name: spec for name, spec in specs.items() if name not in own}
        for spec in self._named.values():
            if not spec.problem:
                await run_in_thread(self.book.note_named, spec, client)
        await self._use(replace(settings, servers=own))
        return sorted(specs.keys() & own.keys())

    def pin(self, tool: RemoteTool) -> None:
        """A person read this definition and agreed to it; a card that asks about it is needless now. Raises
        ServerTrustError, ForgeError (`SERVER_NOT_FOUND`)."""
        self.pool.status(tool.server)
        self.book.pin(self.pool.specs[tool.server].scope, tool)
        self._drift_cards.update()

    async def aclose(self) -> None:
        self._drift_cards.close()
        await self.pool.aclose()
        for walls in self._walls.values():
            walls.sandbox.close()

    # ---- config

    def _stamps(self) -> tuple[Any, ...]:
        return tuple(map(file_stamp, self._config))

    async def _read_again(self) -> None:
        session_state = self._session_state
        try:
            settings: McpSettings = read_program(
                session_state.program.root, session_state.home, session_state.trust, session_state.overrides
            ).mcp
        except (ConfigError, ForgeError) as error:
            self._warn(f"Forge does not use the edited configuration until you correct it: {error}")
            return
        for warning in settings.warnings:
            if warning not in session_state.program.mcp.warnings:
                self._warn(warning)
        await self._use(settings)

    async def _use(self, settings: McpSettings) -> None:
        session_state = self._session_state
        settings = replace(settings, servers=dict(sorted({**self._named, **settings.servers}.items())))
        if settings != session_state.program.mcp:
            servers = settings.servers.values()
            learn_servers(servers, session_state.redactor)  # before anything is said about them
            if has_logins(servers):
                await run_in_thread(lambda: learn_logins(servers, session_state.home, session_state.redactor))
            session_state.use_program(replace(session_state.program, mcp=settings))
            await self.pool.replace(settings.servers)

    def _warn(self, message: str) -> None:
        self._session_state.ui.show_status(type="warning", message=message)

    # ---- what the pool asks for

    def _walls_for(self, spec: ServerSpec) -> Walls:
        """Around the zones it was given, no wider than the program has them. Raises ForgeError."""
        session_state, key = self._session_state, (spec.name, spec.digest)
        if key in self._walls:
            return self._walls[key]
        requests = [ZoneRequest(name=name, mode=AccessMode(mode)) for name, mode in spec.zones.items()]
        try:
            specs = worker_zones(f"MCP server {spec.name}", zone_specs(session_state.program), requests)
            sandbox = open_program_zones(session_state.program, session_state.home, specs, next(iter(spec.zones), None))
        except ConfigError as error:  # a zone around FORGE_HOME, for example
            raise ForgeError(str(error), code="ZONE") from None
        self._walls[key] = Walls(
            sandbox,
            session_state.program.walls,
            forge_home=session_state.home.path,
            host=WallsHost(environ=without_zones(person_environ(), session_state.program.zones, spec.zones)),
            redactor=session_state.redactor,
            rules=self._path_rules,
        )
        return self._walls[key]

    def _path_rules(self) -> tuple[PathRule, ...]:
        scope = next(iter(self._scopes.values()), None)
        return scope.orchestrator.path_rules() if scope is not None else ()

    def _tell(self, status: ServerStatus) -> None:
        data: dict[str, Any] = {"server": status.server, "state": status.state.value, "tools": status.tools}
        if status.error:
            data["error"] = status.error
        if status.retry_at is not None:
            data["retryAt"] = iso_time(status.retry_at)
        self._session_state.bus.emit("mcpStatus", data)

    async def _ask_person(self, form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        scope = self._scopes.get(ctx.worker)
        path = [link.to_wire() for link in scope.lineage] if scope is not None else []
        return await ask_form(self._session_state.ui, form, path)

    async def _sample(self, request: SamplingRequest, ctx: ToolContext) -> SamplingAnswer:
        sampler = self._samplers.get(ctx.worker)
        if sampler is None:
            return SamplingAnswer(refused="this worker has no model")
        return await sampler(request)


def session_servers(session_state: SessionState) -> SessionServers:
    """Returns the servers of the session; made once."""
    return session_state.parts.get(SessionServers, lambda: SessionServers(session_state))


def attach_servers(scope: WorkerScope, block: McpBlock) -> SessionServers:
    """The session's servers, those of them that the block names put before this worker. Raises ConfigError."""
    if problems := check_servers(block, scope.state.program):
        raise ConfigError(*problems)
    servers = session_servers(scope.state)
    scope.server_tools = servers.tools_for(scope, block.servers)
    for tool in passing_tools():
        scope.catalog.add(tool, replace=True)
    scope.orchestrator.resolve_stage.on_unknown_tool = partial(servers.load_server_of, scope)
    return servers


def without_zones(environ: Mapping[str, str], zones: Sequence[ZoneEntry], given: Collection[str]) -> dict[str, str]:
    """The environment, with a PATH that leads into none of the zones but the given ones, however it is spelled.

    Threat: an activated environment of the project stands first on PATH. Workers may write there and a server has the
    whole network by default: a file called `uvx` would be run by the next such server outside of every worker's walls,
    while its card says that the server sees no zone.
    """

    def is_open(entry: str) -> bool:
        place = zone_containing(Path(os.path.realpath(entry)), zones)
        return place is None or place[0] in given

    kept = os.pathsep.join(entry for entry in environ.get("PATH", "").split(os.pathsep) if is_open(entry))
    return {**environ, "PATH": kept}


@dataclass(frozen=True, slots=True)
class _OpenCard:
    tool: RemoteTool
    task: asyncio.Task[None]


class DriftCards:
    """Questions about changed tool definitions: one at a time for each server, and only while the server still has that
    definition. An approval pins the definition; a refusal is not asked again in this session.

    Threats: a server that changes a thousand tools and leaves no room for other questions; one that takes its change
    back, so that an approval pins what nobody offers.
    """

    def __init__(self, ui: RuntimeUI, pool: Pool, book: ServerTrustStore) -> None:
        self._ui = ui
        self._pool = pool
        self._book = book
        self._answered: set[tuple[str, str, str]] = set()
        """Definitions (scope, server, digest) that a person said yes or no to in this session."""
        self._open: dict[str, _OpenCard] = {}
        """By server."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._last_state: tuple[int, bool] | None = None
        """At the last update: every call updates, and nearly always finds the same."""

    def update(self) -> bool:
        """Raises the cards that are due, withdraws those that are not any more. True: nothing changed since the last
        update."""
        now = (self._pool.version, self._ui.may_trust)
        if now == self._last_state:
            return True
        self._last_state = now
        specs = self._pool.specs
        for server in [server for server in self._open if server not in specs]:
            self._withdraw(server)
        for server, spec in specs.items():
            drifted = self._drifted(server)
            if (shown := self._open.get(server)) is not None and shown.tool.digest not in drifted:
                self._withdraw(server)
            due = (held for digest, held in drifted.items() if (spec.scope, server, digest) not in self._answered)
            if server not in self._open and self._ui.may_trust and (held := next(due, None)) is not None:
                assert held.tool is not None
                task = asyncio.create_task(self._ask(spec.scope, held, held.tool))
                self._open[held.server] = _OpenCard(held.tool, task)
        return False

    def close(self) -> None:
        for server in tuple(self._open):
            self._withdraw(server)

    def _drifted(self, server: str) -> dict[str, HeldTool]:
        """Returns the changed tools by the digest of their present definition."""
        listing = self._pool.listing(server)
        held = listing.held if listing is not None else ()
        return {one.tool.digest: one for one in held if one.reason is HoldReason.DRIFT and one.tool is not None}

    def _withdraw(self, server: str) -> None:
        task = self._open.pop(server).task
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        task.cancel()

    async def _ask(self, scope: str, held: HeldTool, tool: RemoteTool) -> None:
        agreed = await ask_about_drift(self._ui, held)
        self._open.pop(held.server, None)
        self._last_state = None
        if agreed is None:
            return  # nobody answered: it is asked again when somebody is there
        self._answered.add((scope, held.server, tool.digest))
        if agreed and held.server in self._pool.specs and tool.digest in self._drifted(held.server):
            # What could not be pinned stays held: the next session asks again.
            try:
                self._book.pin(scope, tool)
            except ForgeError as error:
                what = f"the tool '{escape_control_chars(held.name)}' of the MCP server '{held.server}' stays held back"
                self._ui.show_status(type="warning", message=f"{what}: {error.message}")
        self.update()


_NO_CHOICES: Final[list[Any]] = []


async def ask_to_start(ui: RuntimeUI, spec: ServerSpec, card: str, diff: str) -> bool:
    """`diff`: against the config that was approved before; empty for a server that never was."""
    changed = "its configuration changed since it was approved" if diff else "it was never started before"
    request = _card("trust", f"Start the MCP server '{spec.name}'?", spec.name, card, digest([spec.scope, spec.digest]))
    request |= {
        "args": {"server": spec.name},
        "effects": [f"net mcp://{spec.name}" if spec.is_http else f"exec {escape_control_chars(spec.command)}"],
        "why": changed,
    }
    if diff:
        request["diff"] = diff
    return bool((await ui.request_approval(request))["approved"])


async def ask_about_drift(ui: RuntimeUI, held: HeldTool) -> bool | None:
    """Whether the definition as it is now may be used from here on; None: nobody answered."""
    tool = held.tool
    assert tool is not None
    request = _card(
        "definition",
        f"The tool '{escape_control_chars(held.name)}' of the MCP server '{held.server}' changed. Use it as it is now?",
        f"{held.server}/{escape_control_chars(held.name)}",
        held.message,
        digest([held.server, held.name, tool.digest]),
    )
    request |= {
        "args": {"server": held.server, "tool": held.name},
        "effects": [f"net mcp://{held.server}"],
        "why": "its definition changed after it was approved; nobody can call it until you approve it again",
        "diff": held.diff,
    }
    answer = await ui.request_approval(request)
    return None if answer["by"] == NOBODY else bool(answer["approved"])


async def ask_form(ui: RuntimeUI, form: ElicitationForm, worker_path: Sequence[Mapping[str, Any]]) -> FormAnswer:
    request: dict[str, Any] = {
        "source": form.server,
        "title": f"MCP server '{form.server}' asks",
        "message": form.message,
        "fields": [dict(field) for field in form.fields],
        "workerPath": [dict(link) for link in worker_path],
    }
    if form.url:
        request["url"] = form.url
    answer = await ui.request_form(request, worker_id=str(worker_path[-1]["id"]) if worker_path else "")
    return FormAnswer(action=str(answer["action"]), values=answer.get("values") or {})


def _card(kind: str, description: str, tool: str, payload: str, fingerprint: str) -> dict[str, Any]:
    return {
        "type": kind,
        "description": description,
        "tool": tool,
        "payload": payload,
        "risk": "high",
        "riskReasons": [],
        "choices": _NO_CHOICES,
        "fingerprint": fingerprint,
        "argsKey": fingerprint,
        "previouslyDenied": 0,
        "warnings": [],
        "workerPath": [],
    }
