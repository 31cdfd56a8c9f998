"""How tools are made: `@tool`, `define_mcp_tool`, and toolsets.

`@tool` turns a function into a Tool; the schema is built from its signature when first needed. The function stays
callable: calling the Tool in Python calls it with its own parameters, and nothing is validated, asked or recorded then;
use a session's `call` for that. `define_mcp_tool` makes a Tool whose function may return an MCP CallToolResult.

A Toolset builds a group of Tools from one block of a worker's YAML. A new toolset is one file in `toolsets/` and one
line in its registry. It needs no base class; any object with these members will do.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, overload

from golem_forge._version import __version__
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.options import require, takes_options
from golem_forge.core.results import ToolResult
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import OutputLookup, ToolContext
from golem_forge.tools.tool import Mode, NeedsApproval, SourceKind, Tool

if TYPE_CHECKING:
    from pydantic import BaseModel


class FunctionTool(Tool):
    """A Tool made of a function, which it still is: `git_push("main")` runs the function itself.

    A `ctx` that is not given is an empty ToolContext, as in a test of the tool.
    """

    _output_from_annotation = True

    def __init__(self, name: str, execute: Callable[..., Any], **options: Any) -> None:
        super().__init__(name, execute=execute, **options)
        functools.update_wrapper(self, execute, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        assert self.function is not None
        if (context := self.context_name) and context not in kwargs:
            bound = inspect.signature(self.function).bind_partial(*args, **kwargs)
            if context not in bound.arguments:
                kwargs[context] = ToolContext()
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str = "",
    description: str | None = None,
    schema: Any = None,
    input_schema: Any = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    description: str | None = None,
    schema: Any = None,
    input_schema: Any = None,
    **options: Any,
) -> Any:
    """Use as `@tool` or `@tool(needs_approval=…, mode=…, label=…, …)`; options are those of Tool. `schema` is another
    name of `input_schema`."""
    if schema is not None and input_schema is not None and schema is not input_schema:
        raise TypeError("@tool: schema= and input_schema= are the same option; give one of them")
    input_schema = schema if input_schema is None else input_schema

    def wrap(function: Callable[..., Any]) -> FunctionTool:
        named = name or getattr(function, "__name__", "")
        if not named or named == "<lambda>":
            raise TypeError("a tool needs a name: use @tool(name=…) for a lambda, a partial or a callable object")
        return FunctionTool(named, function, description=description, input_schema=input_schema, **options)

    return wrap if function is None else wrap(function)


def as_tool(given: Any) -> Tool:
    """A Tool as it is, a function or a mapping of options as the tool that it makes. TypeError for anything else."""
    if isinstance(given, Tool):
        return given
    if isinstance(given, Mapping):
        return Tool(given)
    require(callable(given), "a tool", "a Tool or a function", given)
    made: Tool = tool(given)
    return made


def as_tools(given: Any) -> tuple[Tool, ...]:
    """`as_tool` of each, and the tools of a toolset among them. TypeError where it is no list of them."""
    many = isinstance(given, Iterable) and not isinstance(given, (str, Mapping, Tool))
    require(many, "tools", "a list of Tools, functions or toolsets", given)
    return tuple(made for each in given for made in _expanded(each))


def _expanded(given: Any) -> Iterable[Tool]:
    if isinstance(given, (Tool, Mapping, type)) or not callable(getattr(given, "get_tools", None)):
        return (as_tool(given),)

    made: Iterable[Tool] = given.get_tools(ToolsetContext())
    return made


native_tool: Final = functools.partial(Tool, source=SourceKind.NATIVE, code_digest=__version__)
"""A Tool of Forge's own: its definition changes with the version alone."""


class McpTool(Tool):
    """A Tool whose function gives a CallToolResult, or anything else that a tool may return."""

    def invoke(self, values: dict[str, Any], ctx: ToolContext | None) -> Any:
        value = super().invoke(values, ctx)
        return _await_result(value) if inspect.isawaitable(value) else _read_result(value)


@takes_options("define_mcp_tool", at=0)
def define_mcp_tool(
    name: str | Mapping[str, Any],
    description: str | None = None,
    input_schema: Any = None,
    execute: Callable[..., Any] | None = None,
    *,
    needs_approval: NeedsApproval | None = None,
    manual_execution: Mapping[str, Any] | None = None,
    mode: Mode | str | None = None,
    label: str = "",
    category: str = "",
    annotations: Mapping[str, Any] | None = None,
    output_schema: Any = None,
    timeout: float | None = None,
    read_only: bool = False,
    source: SourceKind | str = SourceKind.NATIVE,
) -> Tool:
    """A tool of source `native`: `validate_input(input)` gives Ok or Err, `execute(input)` a ToolResult, whose `to_mcp`
    is the CallToolResult. Options as those of Tool, or all of it as one mapping. Without `needs_approval` it asks.
    `source` may be said and is nothing else: ValueError."""
    if source != SourceKind.NATIVE:
        raise ValueError(f"define_mcp_tool: source is 'native', not {source!r}; Tool(…, source=…) takes another")
    return McpTool(
        name,
        description,
        input_schema=input_schema,
        execute=execute,
        needs_approval=needs_approval,
        manual_execution=manual_execution,
        mode=mode,
        label=label,
        category=category,
        annotations=annotations,
        output_schema=output_schema,
        timeout=timeout,
        read_only=read_only,
        source=SourceKind.NATIVE,
    )


async def _await_result(value: Any) -> Any:
    return _read_result(await value)


def _read_result(value: Any) -> Any:
    blocks = value.get("content") if isinstance(value, Mapping) else getattr(value, "content", None)
    if isinstance(value, ToolResult) or not isinstance(blocks, list):
        return value
    if isinstance(value, Mapping) and not all(isinstance(each, Mapping) and "type" in each for each in blocks):
        return value
    return ToolResult.from_mcp(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetContext:
    """What a toolset may build its tools from. What is None here is taken from each call's ToolContext instead."""

    config: Any = None
    """The validated block: an instance of the toolset's `config`."""
    sandbox: Sandbox | None = None
    outputs: OutputLookup | None = None


class Toolset(Protocol):
    @property
    def name(self) -> str:
        """The key under `toolsets:` in a worker file."""
        ...

    @property
    def config(self) -> type[BaseModel] | None:
        """The model of its YAML block; None: the block has no keys beside those of every toolset (`approval`)."""
        ...

    def get_tools(self, ctx: ToolsetContext) -> Sequence[Tool]: ...
