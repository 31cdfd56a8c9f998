"""Pool: the servers of one session. One failing server never affects another.

Nothing is started that a cached manifest makes needless; the first use starts it. `begin` never waits. What a server
does wrong ends in a call's Finished or a ForgeError that names the server; `aclose` ends every process, at once and
together. Importing this costs nothing of the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.calls import ToolCompletion
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import escape_control_chars
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client.call import call_method, call_tool
from golem_forge.mcp.client.connection import ResourceWatch
from golem_forge.mcp.client.managed_server import ManagedServer, ServerContext
from golem_forge.mcp.client.model import (
    SERVER_NOT_FOUND,
    Hooks,
    RemoteTool,
    ServerManifest,
    ServerState,
    ServerStatus,
    ServerToolList,
)
from golem_forge.mcp.client.transport import TransportOpener
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import ToolContext

if TYPE_CHECKING:
    from golem_forge.mcp.client.manifest import ManifestCache
    from golem_forge.mcp.client.trust_store import ServerTrustStore


class Pool:
    def __init__(
        self,
        specs: Mapping[str, ServerSpec],
        *,
        home: ForgeHome,
        redactor: Redactor,
        environ: Mapping[str, str],
        hooks: Hooks,
        book: ServerTrustStore,
        cache: ManifestCache,
        session_id: str = "",
    ) -> None:
        """Starts nothing before `begin`, which needs a running loop, like all coroutines here."""
        self._book = book
        self._around = ServerContext(
            opener=TransportOpener(home=home, redactor=redactor, environ=environ, hooks=hooks),
            hooks=hooks,
            trust_store=book,
            cache=cache,
            changed=self._changed,
        )
        self._owners = {name: ManagedServer(spec, self._around) for name, spec in sorted(specs.items())}
        self._leaving: set[ManagedServer] = set()
        """No longer in the config, and not yet gone."""
        self._version = 0
        self._stamp = book.stamp
        self._closed = False
        self.session_id = session_id

    # What is known

    @property
    def specs(self) -> Mapping[str, ServerSpec]:
        return {name: owner.spec for name, owner in self._owners.items()}

    def names(self) -> tuple[str, ...]:
        return tuple(self._owners)

    @property
    def version_seen(self) -> int:
        """The version at the last access to `version`; for callers that have just read it."""
        return self._version

    @property
    def version(self) -> int:
        """Grows whenever a listing, a state or a held tool changes, also by an answer given in another session."""
        stamp = self._book.stamp
        if stamp != self._stamp:
            self._stamp = stamp
            self._version += 1
        return self._version

    def _changed(self) -> None:
        self._version += 1

    def status(self, name: str) -> ServerStatus:
        return self._owner(name).status.status()

    def statuses(self) -> tuple[ServerStatus, ...]:
        return tuple(owner.status.status() for owner in self._owners.values())

    def listing(self, name: str) -> ServerToolList | None:
        """Live, or from the manifest; always held against the pins."""
        return self._owner(name).offer.listing

    def manifest(self, name: str) -> ServerManifest | None:
        return self._owner(name).offer.manifest

    def _owner(self, name: str) -> ManagedServer:
        owner = self._owners.get(name)
        if owner is None:
            raise ForgeError(f"MCP server not found: {escape_control_chars(name[:100])}", code=SERVER_NOT_FOUND)
        return owner

    # Beginning and ending

    def begin(self) -> None:
        for owner in self._owners.values():
            owner.begin()

    def load_cached(self) -> None:
        """Loads cached manifests instead of `begin`, for listings. Connects to nothing and asks nobody."""
        for owner in self._owners.values():
            owner.load_cached()

    async def wait_required(self) -> None:
        """Raises ForgeError for the first required server that cannot be used; waits as long as connecting may take."""
        required = [owner for owner in self._owners.values() if owner.spec.required and owner.spec.enabled]
        results = await asyncio.gather(*map(_linked, required), return_exceptions=True)
        for owner, result in zip(required, results, strict=True):
            if isinstance(result, ForgeError):
                text = f"required MCP server '{owner.spec.name}' is not available: {result.message}"
                raise ForgeError(text, status=result.status, code=result.code)
            if isinstance(result, BaseException):
                raise result

    async def wait_connected(self, name: str) -> None:
        """Connected and listed. Raises ForgeError with what its state says."""
        owner = self._owner(name)
        if owner.status.state is ServerState.PENDING:
            await owner.approval_prompt.wait_answered()
        await owner.link()

    def approve(self, name: str) -> None:
        self._owner(name).approve("person")

    async def reconnect(self, name: str) -> None:
        await self._owner(name).reconnect()

    async def replace(self, specs: Mapping[str, ServerSpec]) -> None:
        """An edited config: what changed or went is ended, what is new or other begins. The rest is not touched."""
        owners = self._owners.items()
        kept = {name: owner for name, owner in owners if name in specs and owner.apply_config(specs[name])}
        gone = [owner for name, owner in self._owners.items() if name not in kept]
        fresh = {name: ManagedServer(spec, self._around) for name, spec in specs.items() if name not in kept}
        self._owners = dict(sorted((kept | fresh).items()))
        self._changed()
        self._leaving.update(gone)
        await _closed(gone)
        self._leaving.difference_update(gone)
        if self._closed:
            await _closed(fresh.values())
            return
        for owner in fresh.values():
            owner.begin()

    async def aclose(self) -> None:
        self._closed = True
        await _closed([*self._owners.values(), *self._leaving])

    # Calls

    async def call(self, tool: RemoteTool, args: Mapping[str, Any], ctx: ToolContext) -> ToolCompletion:
        """Calls a tool. Never raises for a failure of the server."""
        return await call_tool(self._owner(tool.server), tool, args, ctx)

    async def list_resources(self, name: str, cursor: str | None, ctx: ToolContext) -> dict[str, Any]:
        return await self._listed(name, "resources/list", "resources", cursor, ctx)

    async def list_resource_templates(self, name: str, cursor: str | None, ctx: ToolContext) -> dict[str, Any]:
        return await self._listed(name, "resources/templates/list", "resourceTemplates", cursor, ctx)

    async def _listed(
        self, name: str, method: str, member: str, cursor: str | None, ctx: ToolContext
    ) -> dict[str, Any]:
        owner = self._owner(name)
        manifest = owner.offer.manifest
        if manifest is not None and not manifest.has_resources:
            return {member: []}  # it never said that it has any: nothing is started for that
        return await call_method(owner, method, {} if cursor is None else {"cursor": cursor}, ctx)

    async def read_resource(self, name: str, uri: str, ctx: ToolContext) -> dict[str, Any]:
        return await call_method(self._owner(name), "resources/read", {"uri": uri}, ctx)

    def watch_resource(self, name: str, uri: str, updated: Callable[[], None]) -> None:
        """Watches a resource while its server is connected and supports subscriptions. Cheap to repeat, which a new
        connection needs.
        """
        owner = self._owners.get(name)
        if owner is not None and (watch := _resource_watch(owner)) is not None:
            owner.slots.touch()
            watch.watch(uri, updated)

    def unwatch_resource(self, name: str, uri: str) -> None:
        owner = self._owners.get(name)
        if owner is not None and (watch := _resource_watch(owner)) is not None:
            watch.unwatch(uri)

    async def list_prompts(self, name: str) -> tuple[Any, ...]:
        """Raw entries, as last listed; a server that nobody has listed yet is connected to."""
        owner = self._owner(name)
        if owner.offer.manifest is None:
            await owner.link()
        return owner.offer.manifest.prompts if owner.offer.manifest is not None else ()

    async def get_prompt(self, name: str, prompt: str, args: Mapping[str, str], ctx: ToolContext) -> dict[str, Any]:
        return await call_method(self._owner(name), "prompts/get", {"name": prompt, "arguments": dict(args)}, ctx)

    async def complete(self, name: str, params: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
        return await call_method(self._owner(name), "completion/complete", params, ctx)


def _resource_watch(owner: ManagedServer) -> ResourceWatch | None:
    connection = owner.live_connection
    return connection.resources if connection is not None else None


async def _linked(owner: ManagedServer) -> None:
    await owner.approval_prompt.wait_answered(within=owner.spec.connect_timeout)
    await owner.link()


async def _closed(owners: Iterable[ManagedServer]) -> None:
    await asyncio.gather(*(owner.close() for owner in owners))
