"""The blocks of a worker file that bring other code: `custom`, `external`, `workers`, `user_tools`, `mcp`, `approval`.

First the records, then the functions that check a value from the file. Each of these takes a value, its path in the
file and the file's Problems, adds every problem with its line, and returns the checked block, or None where it cannot
be used. All problems are found before any block is used (`toolset_blocks.worker_blocks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from golem_forge.config.approval_modes import Setting
from golem_forge.config.sandbox_block import VERDICT_CHECK
from golem_forge.config.schema import Check, ConfigProblems, MappingSchema, flag, list_of, map_of, refuse, text
from golem_forge.config.yaml_file import YamlPath
from golem_forge.core.decisions import Verdict
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.policy.base import ApprovalBlock
from golem_forge.sandbox.walls.environment import EnvBlock, env_block

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


_APPROVAL: Final = MappingSchema({"default": VERDICT_CHECK, "tools": map_of(VERDICT_CHECK)})


def approval_block(value: Any, path: YamlPath, problems: ConfigProblems) -> ApprovalBlock:
    checked: Any = _APPROVAL(value, path, problems)
    said: dict[str, Any] = checked if isinstance(checked, dict) else {}
    default = said.get("default")
    return ApprovalBlock(
        default=None if default is None else Setting(Verdict(default), problems.file.at((*path, "default"))),
        tools={
            name: Setting(Verdict(word), problems.file.at((*path, "tools", name)))
            for name, word in said.get("tools", {}).items()
        },
    )


def _names(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """At least one name, each once."""
    names = list_of(text)(value, path, problems)
    if not isinstance(names, list):
        return names
    if not value:
        problems.add(path, "expected at least one name")
    for index, name in enumerate(names):
        if name in names[:index]:
            problems.add((*path, index), f"{name!r} is named twice")
    return names


def _exports(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    names = _names(value, path, problems)
    for name in names if isinstance(names, list) else ():
        if name.startswith("_") or not name.isidentifier():
            problems.add(path, f"{name!r} cannot be exported: use the name of a function that does not start with '_'")
    return names


def _module(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if isinstance(value, str) and value.endswith(".py") and "\0" not in value:
        return value
    return refuse(problems, path, value, "a Python file, like ./tools.py")


_SHARED: Final[dict[str, Check]] = {"approval": approval_block, "env": env_block}
_CUSTOM: Final = MappingSchema({"module": _module, "tools": _exports, **_SHARED}, required=("module", "tools"))
_EXTERNAL: Final = MappingSchema(
    {"package": text, "import": text, "entry_point": text, "tools": _names, **_SHARED}, required=("package",)
)
_WORKERS: Final = MappingSchema({"allow": _names, "approval": approval_block}, required=("allow",))


_MCP: Final = MappingSchema({"servers": _names}, required=("servers",))
_USER_TOOLS: Final = MappingSchema({"tools": _names, "create": flag, "approval": approval_block})


def user_tools_block(value: Any, path: YamlPath, problems: ConfigProblems) -> UserToolsBlock | None:
    checked = _checked(_USER_TOOLS, {} if value is None else value, path, problems)
    if checked is None:
        return None
    return UserToolsBlock(
        tools=tuple(checked.get("tools", ("*",))),
        create=checked.get("create", True),
        approval=checked.get("approval") or ApprovalBlock(),
        origin=problems.file.at(path),
    )


def mcp_block(value: Any, path: YamlPath, problems: ConfigProblems) -> McpBlock | None:
    checked = _checked(_MCP, value, path, problems)
    if checked is None:
        return None
    servers = tuple(checked["servers"])
    if EVERY_SERVER in servers and len(servers) > 1:
        problems.add((*path, "servers"), f"'{EVERY_SERVER}' means every server; name it alone")
        return None
    return McpBlock(servers=servers, origin=problems.file.at(path))


def custom_blocks(value: Any, path: YamlPath, problems: ConfigProblems) -> tuple[CustomBlock, ...]:
    """One block, or a list of them."""
    if not isinstance(value, list):
        found = _custom(value, path, "custom", problems)
        return (found,) if found else ()
    if not value:
        problems.add(path, "expected at least one block")
    blocks = [_custom(each, (*path, index), f"custom[{index}]", problems) for index, each in enumerate(value)]
    return tuple(block for block in blocks if block)


def _custom(value: Any, path: YamlPath, key: str, problems: ConfigProblems) -> CustomBlock | None:
    checked = _checked(_CUSTOM, value, path, problems)
    if checked is None:
        return None
    return CustomBlock(
        module=checked["module"],
        tools=tuple(checked["tools"]),
        approval=checked.get("approval") or ApprovalBlock(),
        env=checked.get("env"),
        origin=problems.file.at(path),
        key=key,
    )


def external_block(value: Any, path: YamlPath, problems: ConfigProblems) -> ExternalBlock | None:
    if isinstance(value, dict) and ("import" in value) == ("entry_point" in value):
        problems.add(path, "needs exactly one of 'import' and 'entry_point'")
    checked = _checked(_EXTERNAL, value, path, problems)
    if checked is None:
        return None
    return ExternalBlock(
        package=checked["package"],
        import_path=checked.get("import", ""),
        entry_point=checked.get("entry_point", ""),
        tools=tuple(checked.get("tools", ())),
        approval=checked.get("approval") or ApprovalBlock(),
        env=checked.get("env"),
        origin=problems.file.at(path),
    )


def workers_block(value: Any, path: YamlPath, problems: ConfigProblems) -> WorkersBlock | None:
    checked = _checked(_WORKERS, value, path, problems)
    if checked is None:
        return None
    return WorkersBlock(
        allow=tuple(checked["allow"]),
        approval=checked.get("approval") or ApprovalBlock(),
        origin=problems.file.at(path),
    )


def _checked(shape: MappingSchema, value: Any, path: YamlPath, problems: ConfigProblems) -> dict[str, Any] | None:
    before = len(problems.found)
    checked: Any = shape(value, path, problems)
    return checked if len(problems.found) == before and isinstance(checked, dict) else None
