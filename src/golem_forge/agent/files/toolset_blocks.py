"""The `toolsets:` of a worker: every block checked before any tool is built, and what their `approval` says.

`worker_blocks` takes a Worker (`read_blocks` the value and path in a file that is being read), `tools_from_blocks`
plain blocks from Python. Raises ConfigError for an unknown toolset with the nearest name, every wrong key with its path
and line, `approval` for a tool that the block does not expose, and one tool name from two blocks. The block of a native
toolset is validated by the pydantic model of its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from golem_forge.agent.files.worker import (
    CODE_BLOCKS,
    EVERY_SERVER,
    McpBlock,
    UserToolsBlock,
    Worker,
    WorkerBlocks,
    approval_block,
    mcp_block,
    user_tools_block,
)
from golem_forge.agent.tool_inventory import TOOLSETS
from golem_forge.config.program import Program
from golem_forge.config.validation import ConfigProblems, dotted_path
from golem_forge.config.yaml_file import YamlFile, YamlPath
from golem_forge.core.decisions import strictest
from golem_forge.core.errors import ConfigError
from golem_forge.core.text import escape_control_chars, nearest_hint
from golem_forge.policy.base import ApprovalBlock, check_block
from golem_forge.tools.factory import Toolset, ToolsetContext, block_problems
from golem_forge.tools.tool import Tool
from golem_forge.toolsets import CodingToolset

if TYPE_CHECKING:
    from pydantic import BaseModel

OFF: Final = "off"
"""Written in place of a native toolset's block: its tools are left out, also those of a bundle."""
ALWAYS_THERE: Final = "read_output"
"""The native tool that is in every catalog, whatever the blocks say."""
_Block = TypeVar("_Block")


def worker_blocks(worker: Worker) -> WorkerBlocks:
    """The blocks of a worker, checked; its file's lines are in every origin. Raises ConfigError."""
    problems = ConfigProblems(_file_of(worker))
    blocks = read_blocks(dict(worker.toolsets), ("toolsets",), problems, TOOLSETS)
    problems.raise_if_any()
    return blocks


def read_blocks(value: Any, path: YamlPath, problems: ConfigProblems, toolsets: Mapping[str, Toolset]) -> WorkerBlocks:
    """`toolsets`: the native ones that may be named."""
    if not isinstance(value, dict):
        kind = type(value).__name__
        problems.add(path, f"must be a mapping from names to blocks, like {{'coding': {{}}}}, not {kind}")
        return WorkerBlocks()
    code = {name: read(value[name], (*path, name), problems) for name, read in CODE_BLOCKS.items() if name in value}
    custom, external = code.pop("custom", ()), code.pop("external", None)
    native: dict[str, Mapping[str, Any] | str] = {}
    approval: dict[str, ApprovalBlock] = {}
    for name, block in value.items():
        if name in CODE_BLOCKS:
            continue
        read = _read_native(name, block, (*path, name), problems, toolsets)
        if read is not None:
            native[name], approval[name] = read
    speaking = (*custom, external, code.get("workers"), code.get("user_tools"))
    approval |= {each.key: each.approval for each in speaking if each is not None}
    return WorkerBlocks(
        native=native,
        custom=custom,
        external=(external,) if external else (),
        **code,
        approval={key: said for key, said in approval.items() if said.default or said.tools},
    )


def tools_from_blocks(blocks: Mapping[str, Any], toolsets: Mapping[str, Toolset]) -> list[Tool]:
    """The native tools of plain blocks, in their order. One that two of them give (`read_file` is in `coding` too) is
    taken once."""
    read, _ = blocks_from_python(blocks, toolsets)
    tools: dict[str, Tool] = {}
    for built in native_tools(read, toolsets).values():
        for tool in built:
            tools.setdefault(tool.name, tool)
    return list(tools.values())


def blocks_from_python(
    blocks: Mapping[str, Any], toolsets: Mapping[str, Toolset]
) -> tuple[WorkerBlocks, dict[str, ApprovalBlock]]:
    """Native blocks that came from no file, and what they say about approval by tool. Raises ConfigError."""
    given = dict(blocks) if isinstance(blocks, Mapping) else blocks
    problems = _PythonProblems()
    for name in CODE_BLOCKS if isinstance(given, dict) else ():
        if name in given:
            problems.add(("toolsets", name), "needs a worker file; give its tools as `tools`")
    read = read_blocks(given, ("toolsets",), problems, toolsets)
    problems.raise_if_any()
    return read, _by_tool(read, native_names(read, toolsets))


def user_tools_from_python(block: Any) -> UserToolsBlock:
    """A `user_tools` block that came from no file. Raises ConfigError."""
    return _from_python(block, "user_tools", user_tools_block)


def mcp_from_python(block: Any) -> McpBlock:
    """An `mcp` block that came from no file. Raises ConfigError."""
    return _from_python(block, "mcp", mcp_block)


def _from_python(block: Any, key: str, reader: Callable[[Any, YamlPath, ConfigProblems], _Block | None]) -> _Block:
    problems = _PythonProblems()
    read = reader(block, ("toolsets", key), problems)
    problems.raise_if_any()
    assert read is not None  # else there was a problem
    return read


def check_servers(block: McpBlock, program: Program) -> list[str]:
    """A problem for each name that is no configured server."""
    known = sorted(program.mcp.servers)
    there = f"there are: {', '.join(known)}" if known else "none is configured"
    found: list[str] = []
    for name in block.servers:
        if name != EVERY_SERVER and name not in known:
            hint = nearest_hint(name, known, f"; {there} (`forge mcp add` adds one)")
            shown = escape_control_chars(name[:80])
            found.append(f"{block.origin}: toolsets.{block.key}.servers: no such server '{shown}'{hint}")
    return found


def native_tools(blocks: WorkerBlocks, toolsets: Mapping[str, Toolset]) -> dict[str, list[Tool]]:
    """Native toolset name → its tools, as its block configures them."""
    unheard = ConfigProblems(YamlFile("", {}, {}))  # the blocks were checked when they were read
    off = {
        tool.name
        for name, keys in blocks.native.items()
        if keys == OFF
        for tool in toolsets[name].get_tools(ToolsetContext())
    }
    return {
        name: [tool for tool in _built(toolsets[name], keys, unheard) if tool.name not in off]
        for name, keys in blocks.native.items()
        if not isinstance(keys, str)
    }


def native_names(blocks: WorkerBlocks, toolsets: Mapping[str, Toolset] = TOOLSETS) -> dict[str, list[str]]:
    """Native toolset name → names of its tools, as `approval_of` takes them."""
    return {key: [tool.name for tool in tools] for key, tools in native_tools(blocks, toolsets).items()}


def approval_of(worker: Worker, exposed: Mapping[str, Iterable[str]]) -> dict[str, ApprovalBlock]:
    """Tool name → what its block says about approval, for tools whose block says anything.

    `exposed`: block (`coding`, `custom`, `custom[1]`, `external`, `workers`) → names of its tools; a block that is not
    there was not loaded and is not checked. Raises ConfigError.
    """
    said, problems = approval_now(worker, exposed)
    if problems:
        raise ConfigError(*problems)
    return said


def approval_now(
    worker: Worker, exposed: Mapping[str, Iterable[str]]
) -> tuple[dict[str, ApprovalBlock], tuple[str, ...]]:
    """Returns the approval blocks that count, and the problems, for a session that goes on in spite of them."""
    blocks = worker_blocks(worker)
    names = {key: list(each) for key, each in exposed.items()}
    return _by_tool(blocks, names), (*_not_exposed(blocks, names), *_exposed_twice(worker, blocks, names))


def _not_exposed(blocks: WorkerBlocks, exposed: Mapping[str, list[str]]) -> Iterator[str]:
    for key, block in blocks.approval.items():
        known = exposed.get(key, ())
        for name, said in block.tools.items() if key in exposed else ():
            if name not in known:
                hint = nearest_hint(name, known, f". It exposes: {', '.join(known) or 'nothing'}")
                yield f"{said.origin}: toolsets.{key}.approval.tools.{name}: not a tool of this block{hint}"


def _exposed_twice(worker: Worker, blocks: WorkerBlocks, exposed: Mapping[str, list[str]]) -> Iterator[str]:
    owners: dict[str, list[str]] = {ALWAYS_THERE: ["Forge itself"]}
    for key, names in exposed.items():
        for name in names:
            owners.setdefault(name, []).append(key)
    for name, keys in owners.items():
        if len(keys) > 1 and not all(key in blocks.native or key == "Forge itself" for key in keys):
            both = " and ".join(f"'{key}'" for key in keys)
            yield f"{worker.at('toolsets')}: toolsets: tool '{name}' is exposed by {both}; leave it out of one of them"


def _by_tool(blocks: WorkerBlocks, exposed: Mapping[str, Iterable[str]]) -> dict[str, ApprovalBlock]:
    found: dict[str, ApprovalBlock] = {}
    for key, names in exposed.items():
        if (block := blocks.approval.get(key)) is not None:
            for name in names:
                found[name] = _stricter_block(found[name], block) if name in found else block
    return found


def _stricter_block(one: ApprovalBlock, other: ApprovalBlock) -> ApprovalBlock:
    """Two native blocks that share a tool: the stricter word counts."""
    tools = dict(one.tools)
    for name, said in other.tools.items():
        if name not in tools or strictest((tools[name].value, said.value)) is not tools[name].value:
            tools[name] = said
    return ApprovalBlock(tools=tools)


def _read_native(
    name: str, block: Any, path: YamlPath, problems: ConfigProblems, toolsets: Mapping[str, Toolset]
) -> tuple[Mapping[str, Any] | str, ApprovalBlock] | None:
    """The keys of the block (`OFF` of one that is switched off) and its approval; None where it cannot be used."""
    toolset = toolsets.get(name)
    if toolset is None:
        known = sorted((*toolsets, *CODE_BLOCKS))
        hint = nearest_hint(name, known, f". There are: {', '.join(known)}")
        problems.add(path, f"no such toolset{hint}")
        return None
    block = {} if block is None else block
    if block == OFF or block is False:
        return OFF, ApprovalBlock()
    if not isinstance(block, Mapping):
        problems.add(path, f"must be a mapping or `off`, not {type(block).__name__}")
        return None
    before = len(problems.found)
    keys = {key: value for key, value in block.items() if key != "approval"}
    approval = ApprovalBlock()
    if "approval" in block:
        approval = approval_block(block["approval"], (*path, "approval"), problems)
        tools = _built(toolset, keys, problems, path)
        if len(problems.found) == before:
            _check_native_approval(approval, tools, (*path, "approval"), problems)
    else:
        checked_block(toolset, keys, path, problems)
    return (keys, approval) if len(problems.found) == before else None


def _check_native_approval(
    approval: ApprovalBlock, tools: list[Tool], path: YamlPath, problems: ConfigProblems
) -> None:
    """Native tools decide for themselves: a block can tighten one of them by name, and nothing else."""
    if approval.default is not None:
        problems.add(
            (*path, "default"), "has no effect, because built-in tools decide for themselves; name some under 'tools'"
        )
    known = {tool.name: tool for tool in tools}
    for name, said in approval.tools.items():
        place: YamlPath = (*path, "tools", name)
        if name not in known:
            problems.add(place, f"not a tool of this block{nearest_hint(name, known)}")
        elif check_block(ApprovalBlock(tools={name: said}), known)[0]:
            problems.add(place, f"preApproved has no effect, '{name}' decides for itself")


def _built(
    toolset: Toolset, keys: Mapping[str, Any], problems: ConfigProblems, path: YamlPath = ("toolsets",)
) -> list[Tool]:
    before = len(problems.found)
    config = checked_block(toolset, keys, path, problems)
    return list(toolset.get_tools(ToolsetContext(config=config))) if len(problems.found) == before else []


class _PythonProblems(ConfigProblems):
    """Collects problems of blocks that were given in Python and not in a file."""

    def __init__(self) -> None:
        super().__init__(YamlFile("toolsets", {}, {}, {("toolsets",): "toolsets"}))

    def add(self, path: YamlPath, problem: str) -> None:
        self.found.append(f"{dotted_path(path)}: {problem}")


def _file_of(worker: Worker) -> YamlFile:
    """The worker's file as far as its lines are known."""
    lines: dict[YamlPath, int] = {}

    def note(value: Any, path: YamlPath) -> None:
        if line := worker.lines.get(dotted_path(path)):
            lines[path] = line
        items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            note(item, (*path, key))

    note(worker.toolsets, ("toolsets",))
    return YamlFile(worker.shown_path or worker.name, {}, lines)


def checked_block(
    toolset: Toolset, block: Mapping[str, Any], path: YamlPath, problems: ConfigProblems
) -> BaseModel | None:
    """The block (without `approval`) as the toolset's model; None where it has no keys of its own, or is the bundle as
    it stands, which the built-in worker has: it starts without loading pydantic."""
    if not block and isinstance(toolset, CodingToolset):
        return None
    model = toolset.config
    if model is None:
        for key in block:
            problems.add((*path, key), "unknown key; this toolset has only the key 'approval'")
        return None
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(block))
    except ValidationError as error:
        for place, text in block_problems(model, error):
            problems.add((*path, *place), text)
        return None
