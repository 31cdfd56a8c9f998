"""The blocks of a worker file that bring other people's code: `custom`, `external`, `workers`, `mcp`, checked.

`toolset_blocks.worker_blocks` gives them; every problem with its line is found before any of them is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from golem_forge.policy.base import ApprovalBlock
from golem_forge.sandbox.walls.environment import EnvBlock

EVERY_SERVER: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomBlock:
    """`custom: {module, tools, approval, env}`: functions of a Python file beside the worker."""

    module: str
    """As written, relative to the worker file."""
    tools: tuple[str, ...]
    """The exports that become tools; at least one, each named once."""
    approval: ApprovalBlock = field(default_factory=ApprovalBlock)
    env: EnvBlock | None = None
    origin: str = ""
    """`main.worker:7`, where the block stands."""
    key: str = "custom"
    """Its place below `toolsets`: `custom`, or `custom[1]` of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalBlock:
    """`external: {package, import | entry_point, tools, approval, env}`: tools of an installed distribution."""

    package: str
    import_path: str = ""
    """`acme_tools.web:web_search_tools`, or an attribute of the package's top module."""
    entry_point: str = ""
    """In the group `golem_forge.toolsets`. Exactly one of the two is set."""
    tools: tuple[str, ...] = ()
    """Empty: all."""
    approval: ApprovalBlock = field(default_factory=ApprovalBlock)
    env: EnvBlock | None = None
    origin: str = ""
    key: str = "external"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersBlock:
    """`workers: {allow, approval}`: which workers may be handed work."""

    allow: tuple[str, ...]
    """References as written; `Roster.delegates` gives the workers."""
    approval: ApprovalBlock = field(default_factory=ApprovalBlock)
    origin: str = ""
    key: str = "workers"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserToolsBlock:
    """`user_tools: {tools, create, approval}`: the person's own tools it sees, and whether it may make some."""

    tools: tuple[str, ...] = ("*",)
    """Globs of names."""
    create: bool = True
    """False: neither `create_custom_tool` nor the zone `/user_tools`."""
    approval: ApprovalBlock = field(default_factory=ApprovalBlock)
    origin: str = ""
    key: str = "user_tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpBlock:
    """`mcp: {servers: [git, docs]}`: which of the configured MCP servers it sees."""

    servers: tuple[str, ...] = (EVERY_SERVER,)
    """Names, each once, or `*` alone for all; `toolset_blocks.check_servers` holds them against the program."""
    origin: str = ""
    key: str = "mcp"

    def sees(self, server: str) -> bool:
        return server in self.servers or EVERY_SERVER in self.servers


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBlocks:
    """All blocks of one worker."""

    native: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Native toolset name → its own keys, without `approval`: what `tools_from_blocks` takes."""
    custom: tuple[CustomBlock, ...] = ()
    external: tuple[ExternalBlock, ...] = ()
    workers: WorkersBlock | None = None
    user_tools: UserToolsBlock | None = None
    mcp: McpBlock | None = None
    approval: Mapping[str, ApprovalBlock] = field(default_factory=dict)
    """Key of a block (`coding`, `custom[0]`) → its `approval`, where it says anything."""

    @property
    def code(self) -> tuple[CustomBlock | ExternalBlock, ...]:
        """Those whose tools are code of the program or of a package."""
        return (*self.custom, *self.external)
