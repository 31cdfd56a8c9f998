"""SessionServers: the MCP servers of one session. One pool for all its workers, and the person's word about it.

Takes the program's config, and takes it again when one of its files was edited; asks a person before a server starts
for the first time and when a tool's definition changed. Ends every server with the session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.mcp.spec import McpSettings, ServerSpec
from golem_forge.config.program import PROGRAM_FILE
from golem_forge.config.stamps import stamp
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.events.clock import iso
from golem_forge.mcp.client.definitions.definition import RemoteTool
from golem_forge.mcp.client.definitions.manifest_cache import ManifestCache, ManifestReader
from golem_forge.mcp.client.hooks import Form, FormAnswer, Hooks, SamplingAnswer, SamplingRequest
from golem_forge.mcp.client.offering import ServerTools
from golem_forge.mcp.client.pool import Pool
from golem_forge.mcp.client.pool_place import PoolPlace
from golem_forge.mcp.client.state import ServerStatus
from golem_forge.mcp.client.tool import approval_block
from golem_forge.mcp.client.trust.trust_book import TrustBook
from golem_forge.policy.ruled_reach import hosts_in
from golem_forge.sandbox.host import person_environ
from golem_forge.sandbox.walls.settings import PathRule
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import Mode, ZoneRequest, worker_zones
from golem_forge.tools.context import ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.workers.declared_secrets import has_logins, learn_logins, learn_servers
from golem_forge.workers.mcp.cards import ask_form, ask_to_start
from golem_forge.workers.mcp.drift_cards import DriftCards
from golem_forge.workers.mcp.search_path import without_zones
from golem_forge.workers.surroundings import DEFAULT_WORKER, names_of_servers, opened_zones, zone_specs
from golem_forge.workers.tree import SessionTree, read_program

if TYPE_CHECKING:
    from golem_forge.workers.station import Station

MCP_JSON: Final = ".mcp.json"
AskForm = Callable[[Form, ToolContext], Awaitable[FormAnswer]]
Sampler = Callable[[SamplingRequest], Any]
"""Asks the model of one worker; gives an awaitable SamplingAnswer."""


class SessionServers:
    def __init__(self, tree: SessionTree) -> None:
        self._tree = tree
        self._stations: dict[str, Station] = {}
        """By worker path: on whose behalf a server may ask."""
        self._samplers: dict[str, Sampler] = {}
        self._walls: dict[tuple[str, str], Walls] = {}
        """By server and the digest of its config."""
        self.form_asker: AskForm = self._ask_person
        """Who is asked what servers want to know: whoever watches the session, or the client whose call it is."""
        self.unchecked = names_of_servers(tree.program)
        """What forge.yaml says about tools of servers whose lists nobody has seen yet, by name."""
        self._begun = False
        root = tree.program.root
        self._config = tuple(map(str, (root / PROGRAM_FILE, root / MCP_JSON, tree.home.config)))
        self._files = self._stamps()
        self.book = TrustBook(tree.home)
        self.pool = Pool(
            tree.program.mcp.servers,
            home=tree.home,
            redactor=tree.redactor,
            environ=person_environ(),
            hooks=Hooks(
                ask_form=lambda form, ctx: self.form_asker(form, ctx),
                sample=self._sample,
                approve_server=lambda spec, card, diff: ask_to_start(tree.ui, spec, card, diff),
                can_ask=lambda: tree.ui.attached,
                tell=self._tell,
                walls_for=self._walls_for,
                host_rule=hosts_in(tree.rules, str(tree.program.root), DEFAULT_WORKER),
            ),
            book=self.book,
            cache=ManifestReader(tree.home) if tree.dry else ManifestCache(tree.home),
            session_id=tree.id,
        )
        self._drift_cards = DriftCards(tree.ui, self.pool, self.book)
        tree.parts.get(PoolPlace).put(self.pool)

    # ---- workers

    def tools_for(self, station: Station, servers: tuple[str, ...]) -> ServerTools:
        """`servers`: what the worker's block names."""
        self._stations[station.path.worker] = station
        self._tree.parts.get(PoolPlace).give(station.path.worker, servers)

        def placed(names: Any) -> None:
            station.admit((), {name: approval_block(spec, tool, name) for name, (spec, tool) in names.items()})

        return ServerTools(self.pool, self.book, servers, station.catalog, on_placed=placed, warn=self._warn)

    def asks_with(self, worker: str, sampler: Sampler) -> None:
        """How the model of a worker is asked on behalf of a server."""
        self._samplers[worker] = sampler

    def begin(self) -> None:
        """From within the event loop; what has to connect does so in the background."""
        if not self._begun:
            self._begun = True
            self.pool.begin()

    async def refresh(self) -> bool:
        """Before whatever may use a server: edited config counts, changed definitions are put before a person. True:
        the servers and their lists are as they were at the last look."""
        self.begin()
        if self._files != (now := self._stamps()):
            self._files = now
            await self._read_again()
        return self._drift_cards.look()

    def pin(self, tool: RemoteTool) -> None:
        """A person read this definition and agreed to it; a card that asks about it is needless now. Raises BookError,
        ForgeError (`SERVER_NOT_FOUND`)."""
        self.pool.status(tool.server)
        self.book.pin(self.pool.specs[tool.server].scope, tool)
        self._drift_cards.look()

    async def aclose(self) -> None:
        self._drift_cards.close()
        await self.pool.aclose()
        for walls in self._walls.values():
            walls.sandbox.close()

    # ---- config

    def _stamps(self) -> tuple[Any, ...]:
        return tuple(map(stamp, self._config))

    async def _read_again(self) -> None:
        tree = self._tree
        try:
            settings: McpSettings = read_program(tree.program.root, tree.home, tree.trust, tree.overrides).mcp
        except (ConfigError, ForgeError) as error:
            self._warn(f"the edited configuration is not used until it is right again: {error}")
            return
        for warning in settings.warnings:
            if warning not in tree.program.mcp.warnings:
                self._warn(warning)
        if settings != tree.program.mcp:
            servers = settings.servers.values()
            learn_servers(servers, tree.redactor)  # before anything is said about them
            if has_logins(servers):
                await run_in_thread(lambda: learn_logins(servers, tree.home, tree.redactor))
            tree.program = replace(tree.program, mcp=settings)
            await self.pool.replace(settings.servers)

    def _warn(self, message: str) -> None:
        self._tree.ui.show_status(type="warning", message=message)

    # ---- what the pool asks for

    def _walls_for(self, spec: ServerSpec) -> Walls:
        """Around the zones it was given, no wider than the program has them. Raises ForgeError."""
        tree, key = self._tree, (spec.name, spec.digest)
        if key in self._walls:
            return self._walls[key]
        requests = [ZoneRequest(name=name, mode=Mode(mode)) for name, mode in spec.zones.items()]
        try:
            specs = worker_zones(f"MCP server {spec.name}", zone_specs(tree.program), requests)
            sandbox = opened_zones(tree.program, tree.home, specs, next(iter(spec.zones), None))
        except ConfigError as error:  # a zone around FORGE_HOME, for example
            raise ForgeError(str(error), code="ZONE") from None
        self._walls[key] = Walls(
            sandbox,
            tree.program.walls,
            forge_home=tree.home.path,
            environ=without_zones(person_environ(), tree.program.zones, spec.zones),
            redactor=tree.redactor,
            rules=self._path_rules,
        )
        return self._walls[key]

    def _path_rules(self) -> tuple[PathRule, ...]:
        station = next(iter(self._stations.values()), None)
        return station.path.path_rules() if station is not None else ()

    def _tell(self, status: ServerStatus) -> None:
        data: dict[str, Any] = {"server": status.server, "state": status.state.value, "tools": status.tools}
        if status.error:
            data["error"] = status.error
        if status.retry_at is not None:
            data["retryAt"] = iso(status.retry_at)
        self._tree.bus.emit("mcpStatus", data)

    async def _ask_person(self, form: Form, ctx: ToolContext) -> FormAnswer:
        station = self._stations.get(ctx.worker)
        path = [link.to_wire() for link in station.lineage] if station is not None else []
        return await ask_form(self._tree.ui, form, path)

    async def _sample(self, request: SamplingRequest, ctx: ToolContext) -> SamplingAnswer:
        sampler = self._samplers.get(ctx.worker)
        if sampler is None:
            return SamplingAnswer(refused="this worker has no model")
        answer: SamplingAnswer = await sampler(request)
        return answer


def servers_of(tree: SessionTree) -> SessionServers:
    """The session's one."""
    return tree.parts.get(SessionServers, lambda: SessionServers(tree))
