"""Response models of the operations about tools, statistics and MCP servers. Field names are the API."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from golem_forge.ui.web.wire import ApiModel


class ManualTool(ApiModel, title="ManualTool"):
    """A tool that a person may run, with the fields of its form."""

    name: str
    label: str
    description: str
    category: str = ""
    source: str
    """`native`, `custom` or `mcp`."""
    fields: list[dict[str, Any]]


class UserToolModel(ApiModel, title="OwnTool"):
    """A tool folder of the person's, offered or not."""

    name: str
    state: str
    """`draft`, `built`, `tested`, `active`, `retired`; `unusable` where the folder is no tool as it is."""
    code: str = ""
    """Why it is not active, as a word: `untrusted`, `changed`, `tests_failed` …"""
    reason: str = ""
    """The same in a sentence."""
    description: str = ""
    version: str = ""
    digest: str = ""
    author: str = ""
    agent_made: bool = False
    imported: bool = False
    category: str = ""


class QuarantinedTool(ApiModel, title="Quarantine"):
    name: str
    source: str
    reason: str


class ServerTool(ApiModel, title="ServerTool"):
    """One tool of a server, offered under `name`, called `tool` by the server itself."""

    name: str
    tool: str
    title: str = ""
    description: str = ""
    pin: str
    """`pinned`, or `new`: it came after the first list, and its first call asks."""
    offered: bool
    digest: str
    annotations: dict[str, Any] = Field(default_factory=dict)
    definition: str = ""
    """Of a new one, every line of what would be agreed to."""


class HeldBackTool(ApiModel, title="HeldBack"):
    """A tool of a server that nobody can call, and why."""

    name: str
    tool: str
    reason: str
    """`drift`, `schema_invalid`, `entry_invalid`, `hidden_text`."""
    message: str
    diff: str | None = None
    """`drift`: from the definition that was pinned to the present one."""
    digest: str = ""
    """`drift`: what a yes is given to. Empty: nobody can agree to it."""


class ServerModel(ApiModel, title="Server"):
    name: str
    state: str
    error: str | None = None
    retry_at: str | None = None
    transport: str
    origin: str
    approved: bool
    trust: str
    required: bool
    tools: int | None = None
    """How many are offered; null: not known yet."""
    held: int = 0
    protocol: str | None = None
    digest: str
    """Of its configuration: what a yes to start it is given to."""
    card: str
    """What a person agrees to by that yes, line by line."""
    config_diff: str | None = None
    """What changed in it since somebody agreed."""
    last_words: list[str] = Field(default_factory=list)
    """The end of its stderr, where it failed."""
    offers: list[ServerTool] = Field(default_factory=list)
    held_back: list[HeldBackTool] = Field(default_factory=list)
    prompts: list[str] = Field(default_factory=list)
    diagnostics: list[str] = Field(default_factory=list)


class ToolList(ApiModel, title="ToolList"):
    tools: list[ManualTool]
    user_tools: list[UserToolModel]
    servers: list[ServerModel]
    quarantined: list[QuarantinedTool]
    problems: list[str] = Field(default_factory=list)
    """Why something that belongs here could not be looked at."""


class SourceFile(ApiModel, title="SourceFile"):
    """As it is stored: the person's own files are shown to them."""

    path: str
    size: int
    executable: bool
    sha256: str
    text: str | None = None
    """null: no text, or too long to be sent."""
    language: str = ""


class ToolVersion(ApiModel, title="ToolVersion"):
    digest: str
    at: str
    first_at: str
    author: str
    restored: int
    trusted: bool
    current: bool


class TrustQuestion(ApiModel, title="TrustQuestion"):
    """What a yes to `activate` is given to: these bytes, and these hosts while it is built."""

    digest: str
    text: str
    diff: str = ""
    warnings: list[str] = Field(default_factory=list)
    build_hosts: list[str] = Field(default_factory=list)
    problem: str = ""
    """Why it cannot be activated as it is."""


class UserToolDetail(ApiModel, title="OwnToolDetail"):
    folder: str
    version: str
    state: str
    code: str = ""
    reason: str = ""
    digest: str
    entrypoint: str
    author: str
    permissions: dict[str, str]
    tests: list[str]
    good: int
    bad: int
    notes: list[str]
    files: list[SourceFile]
    trust: TrustQuestion | None = None
    """null: nothing waits for a yes."""


class UsageModel(ApiModel, title="Usage"):
    calls: int
    statuses: dict[str, int]
    ran: int
    success_rate: float | None
    last_used: str | None
    median_ms: float | None
    total_ms: float


class ToolStatisticsModel(UsageModel, title="ToolStatistics"):
    name: str
    good: int
    bad: int
    time_saved_ms: float | None = None
    """An estimate, only of tools made from a suggestion."""
    digests: dict[str, UsageModel]


class ToolDetail(ApiModel, title="ToolDetail"):
    name: str
    source: str
    mode: str
    """Who may call it: `llm`, `manual` or `both`."""
    label: str
    category: str
    description: str
    aliases: list[str]
    approval: str
    """Who decides about its calls, in one sentence."""
    offered: bool
    """Whether it is in this session's catalog."""
    definition: dict[str, Any]
    """Name, description and schemas, in MCP's shape."""
    fields: list[dict[str, Any]]
    server: str = ""
    """The MCP server it belongs to."""
    problem: str = ""
    """Why it is no usable tool as it is; then there is no definition."""
    own: UserToolDetail | None = None
    versions: list[ToolVersion] = Field(default_factory=list)
    statistics: ToolStatisticsModel | None = None


class VersionDifference(ApiModel, title="Difference"):
    """From one version of a tool to another."""

    before: str
    after: str
    """Digests; empty: nothing, no version was trusted before."""
    reach: list[str]
    """What it may do, as far as that differs."""
    changes: str
    """Unified, for each file that differs."""
    warnings: list[str]


class CreationsModel(ApiModel, title="Creations"):
    """How far tools that came into being ever got; rates are shares of those that were made."""

    made: int
    built: int
    tested: int
    activated: int
    built_rate: float | None
    tested_rate: float | None
    activated_rate: float | None


class RefreshTimesModel(ApiModel, title="RefreshTimes"):
    count: int
    p50_ms: float | None = Field(alias="p50Ms")
    p95_ms: float | None = Field(alias="p95Ms")


class TotalsModel(ApiModel, title="Totals"):
    tools: int
    by_author: dict[str, int]
    by_state: dict[str, int]
    creations: CreationsModel
    reuse: float | None
    """Share of active tools that were called in at least two sessions."""
    time_saved_ms: float | None
    refresh: RefreshTimesModel


class StatisticsModel(ApiModel, title="Statistics"):
    totals: TotalsModel
    tools: list[ToolStatisticsModel]
    """The person's own, used or not, by name."""


class ActionResult(ApiModel, title="Said"):
    """What was done, in one or two sentences."""

    text: str
