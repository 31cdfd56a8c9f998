"""Worker: a `.worker` file, checked, as plain data. Who it is, what it may use, where it may reach.

`worker_file` reads a Worker, or checks one that was made in Python; `roster` finds them. Keys and defaults are those of
the file.

`custom`, `external`, `workers`, `user_tools`, `mcp` and `approval` are the blocks that bring other code. A function
that checks one takes a value from the file, its path there and the file's problems, adds every problem with its line,
and returns the checked block, or None where it cannot be used. All problems are found before any block is used
(`toolset_blocks.worker_blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from golem_forge.config.run_block import BudgetLimits, GenerationSettings, approval_settings
from golem_forge.config.validation import Check, ConfigProblems, MappingSchema, flag, list_of, text, value_that
from golem_forge.config.yaml_file import YamlPath
from golem_forge.core.decisions import Verdict
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.options import takes_options
from golem_forge.policy.base import ApprovalBlock
from golem_forge.sandbox.walls.environment import EnvBlock, env_block


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerZone:
    """A zone of the program that this worker has; None: as the program says. Never wider than there."""

    name: str
    mode: Literal["ro", "rw"] | None = None
    write: Verdict | None = None
    delete: Verdict | None = None
    subpath: str = ""
    """The part of the zone's directory that this worker sees as the zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSandbox:
    zones: tuple[WorkerZone, ...] = ()
    default_zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentPolicy:
    max_attachments: int = 4
    max_total_bytes: int = 10_000_000
    allowed_suffixes: tuple[str, ...] = ()
    denied_suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    mode: Literal["parallel", "sequential"] = "parallel"
    on_failure: Literal["collect_all", "fail_fast"] = "collect_all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    name: str
    instructions: str = ""
    description: str = ""
    mode: Literal["single", "chat"] | None = None
    """None means chat for a root worker on a terminal without input, else single."""
    model: str = ""
    model_settings: GenerationSettings = field(default_factory=GenerationSettings)
    compatible_models: tuple[str, ...] = ()
    """Globs; empty means any model."""
    toolsets: Mapping[str, Any] = field(default_factory=dict)
    """Toolset name → its block, as written."""
    sandbox: WorkerSandbox | None = None
    """None means no file access at all."""
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    attachment_policy: AttachmentPolicy = field(default_factory=AttachmentPolicy)
    allow_empty_input: bool = False
    max_iterations: int = 50
    max_context_tokens: int | None = None
    """None means the model's window."""
    batch: BatchSettings = field(default_factory=BatchSettings)
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    tool_format: Literal["auto", "native", "xml"] = "auto"
    path: Path | None = None
    """The file it was read from; None: built in, or made in Python."""
    shown_path: str = ""
    """The file's path for messages (`workers/analyzer.worker`)."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Dotted key → line in the file, for messages that come later than reading."""

    if TYPE_CHECKING:  # in Python a block may be a mapping, as in a file, and is checked where the worker is used

        def __init__(
            self,
            name: str | Mapping[str, Any] = "",
            *,
            instructions: str = "",
            description: str = "",
            mode: Literal["single", "chat"] | None = None,
            model: str | Sequence[str] = "",
            model_settings: GenerationSettings | Mapping[str, Any] = ...,
            compatible_models: Sequence[str] = (),
            toolsets: Mapping[str, Any] = {},
            sandbox: WorkerSandbox | Mapping[str, Any] | None = None,
            input_schema: Mapping[str, Any] | None = None,
            output_schema: Mapping[str, Any] | None = None,
            attachment_policy: AttachmentPolicy | Mapping[str, Any] = ...,
            allow_empty_input: bool = False,
            max_iterations: int = 50,
            max_context_tokens: int | None = None,
            batch: BatchSettings | Mapping[str, Any] = ...,
            budget: BudgetLimits | Mapping[str, Any] = ...,
            tool_format: Literal["auto", "native", "xml"] = "auto",
            path: Path | None = None,
            shown_path: str = "",
            lines: Mapping[str, int] = {},
        ) -> None: ...

    def at(self, key: str = "") -> str:
        """`workers/a.worker:7`, for messages about one key."""
        line = self.lines.get(key)
        return f"{self.shown_path}:{line}" if line else self.shown_path or self.name


Worker.__init__ = takes_options("Worker", at=1)(Worker.__init__)  # type: ignore[method-assign]


EVERY_SERVER: Final = "*"
_BlockT = TypeVar("_BlockT")


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomBlock:
    """`custom: {module, tools, prompts, resources, approval, env}`: functions of a Python file beside the worker. At
    least one of the three lists is there."""

    module: str
    """The path as written, relative to the worker file."""
    tools: tuple[str, ...] = ()
    """The exports that become tools; at least one, each named once."""
    prompts: tuple[str, ...] = ()
    """Exports that become prompts, for people and for clients of `forge mcp serve`."""
    resources: tuple[str, ...] = ()
    """Exports that clients of `forge mcp serve` read as resources."""
    approval: ApprovalBlock = field(default_factory=ApprovalBlock)
    env: EnvBlock | None = None
    origin: str = ""
    """Where the block stands, e.g. `main.worker:7`."""
    key: str = "custom"
    """Its place below `toolsets`: `custom`, or `custom[1]` of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalBlock:
    """`external: {package, import | entry_point, tools, config, approval, env}`: tools of an installed distribution."""

    package: str
    import_path: str = ""
    """`acme_tools.web:web_search_tools`, or an attribute of the package's top module."""
    entry_point: str = ""
    """An entry point in the group `golem_forge.toolsets`. Exactly one of the two is set."""
    tools: tuple[str, ...] = ()
    """Names of tools; empty means all."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The toolset's own keys; its model checks them where it is loaded."""
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
    """Globs of tool names."""
    create: bool = True
    """False removes `create_custom_tool` and the zone `/user_tools`."""
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
    native: Mapping[str, Mapping[str, Any] | str] = field(default_factory=dict)
    """Native toolset name → its own keys, without `approval`, or `off`: what `tools_from_blocks` takes."""
    custom: tuple[CustomBlock, ...] = ()
    external: tuple[ExternalBlock, ...] = ()
    workers: WorkersBlock | None = None
    user_tools: UserToolsBlock | None = None
    mcp: McpBlock | None = None
    approval: Mapping[str, ApprovalBlock] = field(default_factory=dict)
    """Key of a block (`coding`, `custom[0]`) → its `approval`, where it says anything."""

    @property
    def code(self) -> tuple[CustomBlock | ExternalBlock, ...]:
        """The blocks whose tools are code of the program or of a package."""
        return (*self.custom, *self.external)


def approval_block(value: Any, path: YamlPath, problems: ConfigProblems) -> ApprovalBlock:
    return ApprovalBlock(**approval_settings(value, path, problems))


def _names(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """Checks a list of at least one name, without repetitions."""
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


def _servers(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    names = _names(value, path, problems)
    if isinstance(names, list) and EVERY_SERVER in names and len(names) > 1:
        problems.add(path, f"'{EVERY_SERVER}' means every server; name it alone")
    return names


_own_keys: Final = value_that(lambda value: isinstance(value, dict), "a mapping of the toolset's own keys")


def _is_module(value: Any) -> bool:
    return isinstance(value, str) and value.endswith(".py") and "\0" not in value


_MODULE: Final = value_that(_is_module, "a Python file, like ./tools.py")
_SHARED: Final[dict[str, Check]] = {"approval": approval_block, "env": env_block}
_LISTS: Final[dict[str, Check]] = {"tools": _exports, "prompts": _exports, "resources": _exports}
_CUSTOM: Final = MappingSchema({"module": _MODULE, **_LISTS, **_SHARED}, required=("module", "tools"))
_CUSTOM_OFFERS: Final = MappingSchema({"module": _MODULE, **_LISTS, **_SHARED}, required=("module",))
"""The schema of a block with prompts or resources, which needs no tool."""
_EXTERNAL: Final = MappingSchema(
    {"package": text, "import": text, "entry_point": text, "tools": _names, "config": _own_keys, **_SHARED},
    required=("package",),
)
_WORKERS: Final = MappingSchema({"allow": _names, "approval": approval_block}, required=("allow",))
_USER_TOOLS: Final = MappingSchema({"tools": _names, "create": flag, "approval": approval_block})
_MCP: Final = MappingSchema({"servers": _servers}, required=("servers",))


def _read_block(
    made: Callable[..., _BlockT],
    schema: MappingSchema,
    value: Any,
    path: YamlPath,
    problems: ConfigProblems,
    **more: str,
) -> _BlockT | None:
    """The block as a record; None where it cannot be used."""
    before = len(problems.found)
    checked = schema(value, path, problems)
    if len(problems.found) > before or not isinstance(checked, dict):
        return None
    given: dict[str, Any] = {"import_path" if key == "import" else key: said for key, said in checked.items()}
    given |= {key: tuple(said) for key, said in given.items() if isinstance(said, list)}
    return made(**given, origin=problems.file.at(path), **more)


def custom_blocks(value: Any, path: YamlPath, problems: ConfigProblems) -> tuple[CustomBlock, ...]:
    """Reads one block, or a list of them."""
    if not isinstance(value, list):
        found = [_read_custom(value, path, problems)]
    else:
        if not value:
            problems.add(path, "expected at least one block")
        found = [
            _read_custom(each, (*path, index), problems, key=f"custom[{index}]") for index, each in enumerate(value)
        ]
    return tuple(block for block in found if block)


def _read_custom(value: Any, path: YamlPath, problems: ConfigProblems, **more: str) -> CustomBlock | None:
    offers = isinstance(value, dict) and ("prompts" in value or "resources" in value)
    block = _read_block(CustomBlock, _CUSTOM_OFFERS if offers else _CUSTOM, value, path, problems, **more)
    before = len(problems.found)
    for key in ("prompts", "resources") if block is not None else ():
        for index, name in enumerate(getattr(block, key)):
            first = next((other for other in _LISTS if other != key and name in getattr(block, other)), "")
            if first and not (key == "prompts" and first == "resources"):  # said once
                problems.add((*path, key, index), f"{name!r} is named under '{first}' too; it is one of them")
    return block if len(problems.found) == before else None


def external_block(value: Any, path: YamlPath, problems: ConfigProblems) -> ExternalBlock | None:
    if isinstance(value, dict) and ("import" in value) == ("entry_point" in value):
        problems.add(path, "needs exactly one of 'import' and 'entry_point'")
    return _read_block(ExternalBlock, _EXTERNAL, value, path, problems)


def workers_block(value: Any, path: YamlPath, problems: ConfigProblems) -> WorkersBlock | None:
    return _read_block(WorkersBlock, _WORKERS, value, path, problems)


def user_tools_block(value: Any, path: YamlPath, problems: ConfigProblems) -> UserToolsBlock | None:
    return _read_block(UserToolsBlock, _USER_TOOLS, value, path, problems)


def mcp_block(value: Any, path: YamlPath, problems: ConfigProblems) -> McpBlock | None:
    return _read_block(McpBlock, _MCP, value, path, problems)


CODE_BLOCKS: Final[dict[str, Check]] = {
    "custom": custom_blocks,
    "external": external_block,
    "workers": workers_block,
    "user_tools": user_tools_block,
    "mcp": mcp_block,
}
"""Blocks whose tools are not native."""
