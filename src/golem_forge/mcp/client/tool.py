"""A tool of a server as a Tool of Forge: it enters the one path like every other and is judged like every other.

What a server says of its own tools are hints. From a trusted server, `readOnlyHint` without `destructiveHint` makes a
call unasked and a reader; from any server, `destructiveHint` makes it ask. Everything else asks and waits for its turn
as a writer. How bad a call could be follows from the walls around the server and from a trusted server's hints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from golem_forge.config.mcp.spec import ServerSpec, Trust
from golem_forge.core.canonical import digest
from golem_forge.core.effects import AtMost, Effect, Mark, Verb
from golem_forge.mcp.client.definitions.definition import Familiarity, RemoteTool
from golem_forge.sandbox.walls.levels import Level
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import Definition, Remote, SourceKind, Tool

if TYPE_CHECKING:
    from golem_forge.mcp.client.pool import Pool
    from golem_forge.policy.base import ApprovalBlock


def is_offered(spec: ServerSpec, raw_name: str) -> bool:
    """What the config says about `tools`; deny wins."""
    return any(fnmatchcase(raw_name, glob) for glob in spec.allow) and not any(
        fnmatchcase(raw_name, glob) for glob in spec.deny
    )


def only_reads(spec: ServerSpec, tool: RemoteTool) -> bool:
    """Whether a trusted server says so; from others it is only a word."""
    hints = tool.annotations
    return spec.trust is Trust.TRUSTED and hints.get("readOnlyHint") is True and not destroys(tool)


def destroys(tool: RemoteTool) -> bool:
    """Whatever is not a plain no counts as a yes: a hint of this kind can only tighten."""
    return tool.annotations.get("destructiveHint", False) is not False


def proxied_tool(pool: Pool, spec: ServerSpec, tool: RemoteTool, name: str, accept: Callable[[], None]) -> Tool:
    """`name`: what callers call it; `accept`: a person said yes to a definition they had not seen before.
    It does not raise: the call they agreed to runs."""
    made = _Proxied(pool, spec, tool, accept)
    reads = only_reads(spec, tool)
    return Tool(
        name,
        tool.description,
        input_schema=dict(tool.input_schema),
        output_schema=dict(tool.output_schema) if tool.output_schema is not None else None,
        planner=made.plan,
        needs_approval=False if reads else None,
        label=tool.title,
        category=f"MCP: {spec.name}",
        annotations={"destructiveHint": True} if destroys(tool) else None,
        read_only=reads,
        source=SourceKind.MCP,
        definition=made.definition,
        pin=made.pin,
        remote=Remote(tool.server, tool.name),
    )


def approval_block(spec: ServerSpec, tool: RemoteTool, name: str) -> ApprovalBlock:
    """What the server's config says of a tool, by the name that callers use."""
    from golem_forge.policy.base import ApprovalBlock  # brings asyncio, which listing tools does not need

    said = spec.approval_tools.get(tool.name)
    return ApprovalBlock(default=spec.approval_default, tools={name: said} if said is not None else {})


@dataclass(slots=True)
class _Proxied:
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
            reads = only_reads(self.spec, self.tool)
            self._effects = (server_effect(self.spec, reads=reads, marks=self._marks(), at_most=limit),)
        return Plan(run=run, effects=self._effects)

    def _marks(self) -> tuple[Mark, ...]:
        return (Mark.DESTRUCTIVE,) if destroys(self.tool) else ()


def server_effect(
    spec: ServerSpec, *, reads: bool, marks: tuple[Mark, ...] = (), at_most: AtMost | None = None
) -> Effect:
    """What a call of a server touches, as far as Forge can know: the server."""
    return Effect(verb=Verb.NET, target=f"mcp://{spec.name}", proven=reads, marks=marks, at_most=at_most)


def trusted_limit(spec: ServerSpec, tool: RemoteTool) -> AtMost | None:
    """What a trusted server's annotations make possible. Those of others are words, and limit nothing."""
    hints = tool.annotations
    if spec.trust is not Trust.TRUSTED or destroys(tool) or hints.get("openWorldHint", False) is not False:
        return None
    if hints.get("readOnlyHint") is True:
        return AtMost.READS
    return AtMost.WRITES if hints.get("openWorldHint") is False else None


def walled_limit(spec: ServerSpec, has_walls: bool) -> AtMost | None:
    """What the walls around a server make possible, whatever it says of itself."""
    if spec.is_http or spec.network or not has_walls:
        return None
    return AtMost.WRITES if "rw" in spec.zones.values() else AtMost.READS


async def _has_walls(spec: ServerSpec, ctx: ToolContext) -> bool:
    if spec.is_http or ctx.walls is None:
        return False
    return (await ctx.walls.report()).level in (Level.FULL, Level.LANDLOCK)
