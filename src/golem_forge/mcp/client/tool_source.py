"""A server's tools as Forge tools, and the part of them that one worker sees.

`proxied_tool` makes a Tool that takes the one path like any other. A server's annotations are hints: from a trusted
server, `readOnlyHint` without `destructiveHint` makes a call a reader that runs without asking; from any server,
`destructiveHint` makes it ask. Everything else asks and runs as a writer. The risk follows from the walls around the
server and from a trusted server's hints.

`ServerTools` keeps a worker's catalog in step with the pool: usable tools of the servers that its block names are in
the catalog, held ones are quarantined with the reason. `refresh` runs before every model request and every command of a
person and costs one comparison when nothing changed. Names are computed over all servers of the session, so they do not
depend on a worker's block or on the order of connecting.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.mcp_spec import ServerSpec, ServerTrust
from golem_forge.core.effects import AtMost, Effect, Mark, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import escape_control_chars
from golem_forge.mcp.client.model import Familiarity, RemoteTool, ServerState, tool_names
from golem_forge.sandbox.walls.model import Level
from golem_forge.tools.catalog import Catalog, CatalogChanges, CatalogSync, KeptOut, SourceTool
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.tool import Definition, Remote, SourceKind, Tool

if TYPE_CHECKING:
    from golem_forge.mcp.client.pool import Pool
    from golem_forge.mcp.client.trust_store import ServerTrustStore
    from golem_forge.policy.base import ApprovalBlock


def is_offered(spec: ServerSpec, raw_name: str) -> bool:
    """Whether the config's `tools` include this one; deny wins."""
    return any(fnmatchcase(raw_name, glob) for glob in spec.allow) and not any(
        fnmatchcase(raw_name, glob) for glob in spec.deny
    )


def is_read_only(spec: ServerSpec, tool: RemoteTool) -> bool:
    """Whether a trusted server says so; from others it is only a word."""
    hints = tool.annotations
    return spec.trust is ServerTrust.TRUSTED and hints.get("readOnlyHint") is True and not is_destructive(tool)


def is_destructive(tool: RemoteTool) -> bool:
    """Whether the tool may be destructive. Anything but a plain `false` counts as yes, since such a hint can only make
    it stricter.
    """
    return tool.annotations.get("destructiveHint", False) is not False


def proxied_tool(pool: Pool, spec: ServerSpec, tool: RemoteTool, name: str, accept: Callable[[], None]) -> Tool:
    """`name`: what callers call it; `accept`: a person said yes to a definition they had not seen before.
    It does not raise: the call they agreed to runs."""
    made = _ProxiedTool(pool, spec, tool, accept)
    reads = is_read_only(spec, tool)
    return Tool(
        name,
        tool.description,
        input_schema=dict(tool.input_schema),
        output_schema=dict(tool.output_schema) if tool.output_schema is not None else None,
        planner=made.plan,
        needs_approval=False if reads else None,
        label=tool.title,
        category=f"MCP: {spec.name}",
        annotations={"destructiveHint": True} if is_destructive(tool) else None,
        read_only=reads,
        source=SourceKind.MCP,
        definition=made.definition,
        pin=made.pin,
        remote=Remote(tool.server, tool.name),
    )


def approval_block(spec: ServerSpec, tool: RemoteTool, name: str) -> ApprovalBlock:
    """Returns the server config's approval settings for a tool, by the name that callers use."""
    from golem_forge.policy.base import ApprovalBlock  # brings asyncio, which listing tools does not need

    said = spec.approval_tools.get(tool.name)
    return ApprovalBlock(default=spec.approval_default, tools={name: said} if said is not None else {})


@dataclass(slots=True)
class _ProxiedTool:
    pool: Pool
    spec: ServerSpec
    tool: RemoteTool
    accept: Callable[[], None]
    accepted: bool = False
    _said: Definition | None = None
    _effects: tuple[Effect, ...] | None = None

    def definition(self) -> Definition:
        known = self.accepted or self.tool.familiarity is Familiarity.PINNED
        if self._said is None or self._said.approved is not known:
            said = digest({"server": self.spec.digest, "tool": self.tool.digest})
            self._said = Definition(digest=said, approved=known)
        return self._said

    def pin(self) -> None:
        self.accept()
        self.accepted = True

    async def plan(self, args: dict[str, Any], ctx: ToolContext) -> Plan:
        """Waits for nothing; were it not async, every call would be handed to a thread for this."""

        async def run() -> Any:
            return await self.pool.call(self.tool, args, ctx)

        if self._effects is None:
            limit = trusted_limit(self.spec, self.tool) or walled_limit(self.spec, await _has_walls(self.spec, ctx))
            reads = is_read_only(self.spec, self.tool)
            marks = (Mark.DESTRUCTIVE,) if is_destructive(self.tool) else ()
            self._effects = (server_effect(self.spec, reads=reads, marks=marks, at_most=limit),)
        return Plan(run=run, effects=self._effects)


def server_effect(
    spec: ServerSpec, *, reads: bool, marks: tuple[Mark, ...] = (), at_most: AtMost | None = None
) -> Effect:
    """Returns the effect of a call, as far as Forge can know: it touches the server."""
    return Effect(verb=Verb.NET, target=f"mcp://{spec.name}", proven=reads, marks=marks, at_most=at_most)


def trusted_limit(spec: ServerSpec, tool: RemoteTool) -> AtMost | None:
    """Returns the limit that a trusted server's annotations give. Those of other servers limit nothing."""
    hints = tool.annotations
    if spec.trust is not ServerTrust.TRUSTED or is_destructive(tool) or hints.get("openWorldHint", False) is not False:
        return None
    if hints.get("readOnlyHint") is True:
        return AtMost.READS
    return AtMost.WRITES if hints.get("openWorldHint") is False else None


def walled_limit(spec: ServerSpec, has_walls: bool) -> AtMost | None:
    """Returns the limit that the walls around a server give, whatever it says of itself."""
    if spec.is_http or spec.network or not has_walls:
        return None
    return AtMost.WRITES if "rw" in spec.zones.values() else AtMost.READS


async def _has_walls(spec: ServerSpec, ctx: ToolContext) -> bool:
    if spec.is_http or ctx.walls is None:
        return False
    return (await ctx.walls.report()).level in (Level.FULL, Level.LANDLOCK)


ALL_SERVERS: Final = "*"
MOST_INSTRUCTIONS: Final = 2048
_log = logging.getLogger(__name__)


OnToolsAdded = Callable[[Mapping[str, tuple[ServerSpec, RemoteTool]]], None]
"""Called with the names of a server's tools, to apply the server config's approval settings."""


class ServerTools:
    def __init__(
        self,
        pool: Pool,
        book: ServerTrustStore,
        servers: tuple[str, ...],
        catalog: Catalog,
        *,
        on_placed: OnToolsAdded = lambda names: None,
        warn: Callable[[str], None] = _log.warning,
    ) -> None:
        self._pool = pool
        self._book = book
        self._servers = servers
        self._catalog = catalog
        self._sync = CatalogSync(
            catalog,
            SourceKind.MCP,
            on_placed=lambda names: on_placed({name: self._listed[name] for name in names}),
        )
        self._warn = warn
        self._seen = -1
        self._listed: dict[str, tuple[ServerSpec, RemoteTool]] = {}
        """By name, what this worker may call."""
        self._spelt: dict[str, str] = {}
        """By raw spelling, the name it means."""
        catalog.why_missing = self.why_missing

    def sees(self, server: str) -> bool:
        """Whether this worker's block names the server."""
        return ALL_SERVERS in self._servers or server in self._servers

    def server_of(self, name: str) -> str:
        """The server that a name would belong to, of those this worker sees; empty: none."""
        fitting = [server for server in self._pool.names() if name.startswith(f"{server}__") and self.sees(server)]
        return max(fitting, key=len, default="")

    def lists(self, name: str) -> bool | None:
        """Whether its server has a tool of that name, usable or held back; None: its list is not known, or no server
        that this worker sees would have it."""
        server = self.server_of(name)
        if not server or self._pool.listing(server) is None:
            return None
        return self._sync.has_placed(name) or self._sync.has_kept_out(name)

    def why_missing(self, name: str) -> str:
        """Explains by the server's state why a tool name is unknown; empty if the server is listed, or
        there is none.
        """
        server = self.server_of(name)
        if not server or self._pool.listing(server) is not None:
            return ""
        status = self._pool.status(server)
        if status.state is ServerState.PENDING:
            return status.error
        return f"the MCP server '{server}' is {status.state.value}{': ' if status.error else ''}{status.error}"

    async def wait_connected(self, server: str) -> None:
        """Connected and listed. Raises ForgeError with what its state says."""
        await self._pool.wait_connected(server)

    def instructions(self) -> tuple[tuple[str, str], ...]:
        """(server, its words to a model), of trusted servers only: anybody can write a server."""
        found = []
        for name in self._pool.names():
            manifest = self._pool.manifest(name) if self.sees(name) else None
            if manifest is not None and manifest.instructions and self._pool.specs[name].trust is ServerTrust.TRUSTED:
                said = manifest.instructions.encode("utf-8", "replace")[:MOST_INSTRUCTIONS].decode("utf-8", "ignore")
                found.append((name, escape_control_chars(said)))
        return tuple(found)

    @property
    def is_current(self) -> bool:
        """Right after a look at the pool, without another one: whether `refresh` would find nothing new."""
        return self._pool.version_seen == self._seen

    def refresh(self) -> CatalogChanges | None:
        """Updates the catalog; None if nothing changed."""
        version = self._pool.version
        if version == self._seen:
            return None
        self._seen = version
        listings = {name: listing for name in self._pool.names() if (listing := self._pool.listing(name)) is not None}
        names = tool_names([identity for listing in listings.values() for identity in listing.identities])
        self._listed = {}
        kept_out: dict[str, KeptOut] = {}
        for server, listing in listings.items():
            spec = self._pool.specs[server]
            if not self.sees(server):
                continue
            for tool in listing.tools:
                if is_offered(spec, tool.name):
                    self._listed[names[tool.identity]] = (spec, tool)
            for held in listing.held:
                name, reason = names[held.identity], f"{held.reason.value}: {held.message}"
                if name not in self._listed and is_offered(spec, held.identity[1]):  # a second entry leaves the first
                    kept_out[name] = KeptOut(mark=reason, reason=reason, diagnostic=f"{name}: {reason}")
        changes = self._sync.update({name: self._source_tool(name) for name in self._listed}, kept_out)
        self._add_spellings()
        return changes

    def _source_tool(self, name: str) -> SourceTool:
        spec, tool = self._listed[name]
        accept = partial(self.accept, name, spec, tool)
        return SourceTool(mark=(spec, tool), make=partial(proxied_tool, self._pool, spec, tool, name, accept))

    def _add_spellings(self) -> None:
        """A model that knows a raw name (from a server's own texts) means that tool; what could mean two, neither."""
        raw_names = {name: f"{tool.server}__{tool.name}" for name, (_, tool) in self._listed.items()}
        met = Counter(raw_names.values())
        spellings = {raw: name for name, raw in raw_names.items() if raw != name and met[raw] == 1}
        for raw in [raw for raw, name in self._spelt.items() if spellings.get(raw) != name]:
            self._catalog.remove_alias(raw)
        for raw, name in spellings.items():
            if self._spelt.get(raw) != name:
                self._catalog.add_alias(raw, name)
        self._spelt = spellings

    def accept(self, name: str, spec: ServerSpec, tool: RemoteTool) -> None:
        """The person's yes is for a call they saw: it runs, also where the book cannot keep what they agreed to."""
        try:
            self._book.accept_new(spec.scope, tool)
        except ForgeError as error:
            self._warn(f"'{name}' is agreed to in this session only: {error.message}")
