"""How tools are made: `@tool`, `define_mcp_tool`, and toolsets; and prompts and resources, which are made the same way.

`@tool` turns a function into a Tool; the schema is built from its signature when first needed. The function stays
callable: calling the Tool in Python calls it with its own parameters, and nothing is validated, asked or recorded then;
use a session's `call` for that. `define_mcp_tool` makes a Tool whose function may return an MCP CallToolResult.

`@prompt` and `@resource` turn a function into what `forge mcp serve` offers beside tools, and a person as a slash
command: inside it is a Tool of a reserved name (`prompt:daily`, `resource:today`), called on the one path, and never
offered to a model. What else is known of it (URI, MIME type, completions) stands in its annotations.

A Toolset builds a group of Tools from one block of a worker's YAML. A new toolset is one file in `toolsets/` and one
line in its registry. It needs no base class; any object with these members will do.
"""

from __future__ import annotations

import functools
import inspect
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)
from urllib.parse import unquote

from golem_forge._version import __version__
from golem_forge.core.effects import Effect
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.options import require, takes_options
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult
from golem_forge.core.text import nearest_hint
from golem_forge.tools.context import OutputLookup, ToolContext
from golem_forge.tools.inputs import InputSpec
from golem_forge.tools.tool import Mode, NeedsApproval, SourceKind, Tool
from golem_forge.tools.validation import ToolDefinitionError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from golem_forge.sandbox.sandbox import Sandbox


P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class ToolOptions(TypedDict, total=False):
    """Options of `@tool` beside the name, the description and the schema; they are those of Tool."""

    needs_approval: NeedsApproval
    manual_execution: Mapping[str, Any]
    mode: Mode | Literal["llm", "manual", "both"]
    label: str
    category: str
    annotations: Mapping[str, Any]
    output_schema: Any
    timeout: float | None
    idle_timeout: float | None
    inline: bool
    read_only: bool
    gated: bool
    effects: tuple[Effect, ...] | None
    source: SourceKind | str
    argument_aliases: Mapping[str, str]
    max_argument_bytes: int
    code_digest: str
    takes_mapping: bool
    always_load: bool


class FunctionTool(Tool, Generic[P, R]):
    """A Tool made of a function, which it still is: `git_push("main")` runs the function itself.

    A `ctx` that is not given is an empty ToolContext, as in a test of the tool.
    """

    _output_from_annotation = True

    def __init__(self, name: str, execute: Callable[P, R], **options: Any) -> None:
        super().__init__(name, execute=execute, **options)
        functools.update_wrapper(self, execute, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        assert self.function is not None
        if (context := self.context_name) and context not in kwargs:
            bound = inspect.signature(self.function).bind_partial(*args, **kwargs)
            if context not in bound.arguments:
                kwargs[context] = ToolContext()
        value: R = self.function(*args, **kwargs)
        return value


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str = "",
    description: str | None = None,
    schema: Any = None,
    input_schema: Any = None,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


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

    def wrap(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        named = name or getattr(function, "__name__", "")
        if not named or named == "<lambda>":
            raise TypeError("a tool needs a name: use @tool(name=…) for a lambda, a partial or a callable object")
        return FunctionTool(named, function, description=description, input_schema=input_schema, **options)

    return wrap if function is None else wrap(function)


Complete = Mapping[str, Any] | Callable[..., Any] | None
"""Argument → its values, or a function of what was typed so far that gives them; or one function for all arguments."""
MOST_VALUES: Final = 100
_LONGEST_URI: Final = 1000
_VARIABLE: Final = regex(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")
_SCHEME: Final = regex(r"[A-Za-z][A-Za-z0-9+.-]*:")


def _read(value: Any, reader: Callable[[Any], Any]) -> Any:
    """Passes a function's value through `reader`, once it is there."""

    async def later() -> Any:
        return reader(await value)

    return later() if inspect.isawaitable(value) else reader(value)


class _Offered(FunctionTool[..., Any]):
    """Base of prompts and resources: it normalises their value and holds their completions."""

    _output_from_annotation = False
    complete: Complete = None

    def invoke(self, values: dict[str, Any], ctx: ToolContext | None) -> Any:
        return _read(super().invoke(values, ctx), self._shape)

    def _shape(self, value: Any) -> Any:
        raise NotImplementedError

    def completer(self) -> Tool | None:
        """The Tool `complete:…` that asks its functions; None: lists say all, or nothing does."""
        given = self.complete
        if given is None or (isinstance(given, Mapping) and not any(map(callable, given.values()))):
            return None

        def execute(args: dict[str, Any]) -> Any:
            name, typed, others = args["argument"], args["value"], args.get("others") or {}
            function = given.get(name) if isinstance(given, Mapping) else functools.partial(given, name)
            if not callable(function):
                return []
            takes = len(inspect.signature(function).parameters)
            return _read(function(typed, others) if takes > 1 else function(typed), _values)

        return Tool(
            f"complete:{self.name}",
            f"Values for an argument of {self.name}.",
            input_schema=_COMPLETE_SCHEMA,
            execute=execute,
            takes_mapping=True,
            needs_approval=self.needs_approval if not callable(self.needs_approval) else None,
            read_only=True,
        )


_COMPLETE_SCHEMA: Final = {
    "type": "object",
    "properties": {"argument": {"type": "string"}, "value": {"type": "string"}, "others": {"type": "object"}},
    "required": ["argument", "value"],
}


def _values(found: Any) -> list[str]:
    return [str(each) for each, _ in zip(found, range(MOST_VALUES + 1), strict=False)]


class PromptTool(_Offered):
    """A function that gives the messages of a prompt: a text, a content block, a message, or a list of them."""

    def _shape(self, value: Any) -> Any:
        many = value if isinstance(value, (list, tuple)) else [value]
        return {"messages": [_message(each) for each in many]}


def _message(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping) and "content" in value:
        content = value["content"]
        text = {"type": "text", "text": content} if isinstance(content, str) else content
        return {"role": value.get("role", "user"), "content": text}
    block = value if isinstance(value, Mapping) and "type" in value else {"type": "text", "text": str(value)}
    return {"role": "user", "content": dict(block)}


class ResourceTool(_Offered):
    """A function that gives the content of a resource: text, bytes, or anything that can be written as JSON."""

    def _shape(self, value: Any) -> Any:
        kind = self.annotations["resource"].get("mimeType", "")
        if isinstance(value, (bytes, bytearray)):
            return {"mimeType": kind or "application/octet-stream", "blob": b64encode(value).decode("ascii")}
        if isinstance(value, str):
            return {"mimeType": kind or "text/plain", "text": value}
        return {"mimeType": kind or "application/json", "text": json.dumps(value, ensure_ascii=False)}


@overload
def prompt(function: Callable[..., Any], /) -> PromptTool: ...
@overload
def prompt(
    *,
    name: str = "",
    description: str | None = None,
    title: str = "",
    complete: Complete = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], PromptTool]: ...


def prompt(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    description: str | None = None,
    title: str = "",
    complete: Complete = None,
    **options: Any,
) -> Any:
    """Use as `@prompt` or `@prompt(complete={"city": ["Paris", "Rome"]}, needs_approval=…, …)`.

    The function's parameters are the prompt's arguments; clients send texts, which are converted to what the signature
    says. It returns a text, a message `{role, content}`, a content block, or a list of them. `complete`: what a client
    may suggest for an argument: a list, or a function of what was typed (and of the other arguments, if it takes two).
    """

    def wrap(function: Callable[..., Any]) -> PromptTool:
        named = name or getattr(function, "__name__", "")
        made = PromptTool(
            f"prompt:{named}",
            function,
            description=description,
            label=title,
            annotations={"prompt": {"complete": _lists(complete)}},
            **{"read_only": True, **options},
        )
        made.complete = _checked_complete(made, complete)
        return made

    return wrap if function is None else wrap(function)


def resource(
    uri: str,
    /,
    *,
    name: str = "",
    description: str | None = None,
    title: str = "",
    mime_type: str = "",
    complete: Complete = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], ResourceTool]:
    """Use as `@resource("notes://today", mime_type="text/plain")`, or with variables for a template:
    `@resource("notes://{day}/text")`, whose function takes `day`. `{+path}` takes slashes too.

    The function returns text, bytes, or a value that is written as JSON. Raises ToolDefinitionError.
    """

    def wrap(function: Callable[..., Any]) -> ResourceTool:
        named = name or getattr(function, "__name__", "")
        made = ResourceTool(
            f"resource:{named}",
            function,
            description=description,
            label=title,
            annotations={"resource": {"uri": uri, "mimeType": mime_type, "complete": _lists(complete)}},
            **{"read_only": True, **options},
        )
        _check_uri(made, uri)
        made.complete = _checked_complete(made, complete)
        return made

    if not isinstance(uri, str):
        raise TypeError('@resource needs the URI: @resource("notes://today")')
    return wrap


def _lists(complete: Complete) -> dict[str, list[str] | None]:
    """The completions that are known without asking: argument → its values, None where a function has them."""
    if not isinstance(complete, Mapping):
        return {} if complete is None else {"*": None}
    return {str(key): None if callable(value) else list(map(str, value)) for key, value in complete.items()}


def _checked_complete(tool: Tool, complete: Complete) -> Complete:
    if complete is not None and not callable(complete) and not isinstance(complete, Mapping):
        raise ToolDefinitionError(f"{tool.name}: complete is a mapping of arguments to values, or a function")
    known = tool.input_schema.get("properties", {})
    for name in complete if isinstance(complete, Mapping) else ():
        if name not in known:
            hint = nearest_hint(str(name), list(known))
            raise ToolDefinitionError(f"{tool.name}: complete names {name!r}, which is not an argument{hint}")
    return complete


def _check_uri(tool: Tool, uri: str) -> None:
    variables = uri_variables(uri)
    plain = _VARIABLE.sub("", uri)
    wrong = "{" in plain or "}" in plain or "}{" in uri or len(set(variables)) < len(variables)
    if not _SCHEME.match(uri) or wrong or len(uri) > _LONGEST_URI or uri.startswith("forge:"):
        raise ToolDefinitionError(
            f"{tool.name}: {uri[:100]!r} is not a URI for a resource: write your own scheme and simple variables, "
            "like notes://{day}/text (forge: is reserved)"
        )
    required = tool.input_schema.get("required", [])
    known = tool.input_schema.get("properties", {})
    for each in variables:
        if each not in known:
            hint = nearest_hint(each, list(known))
            raise ToolDefinitionError(f"{tool.name}: the URI names {{{each}}}, which the function does not take{hint}")
    if missing := [each for each in required if each not in variables]:
        raise ToolDefinitionError(f"{tool.name}: the function needs {missing[0]!r}, which the URI does not name")


def uri_variables(uri: str) -> list[str]:
    """The names in a template, in order; none: it is the URI of one resource."""
    return [match[2] for match in _VARIABLE.finditer(uri)]


def match_uri(template: str, uri: str) -> dict[str, str] | None:
    """Returns the values of a template's variables in a URI; None if the URI does not match.

    Each variable ends where the text behind it first appears, the last one where the URI's end fits: one pass, no
    backtracking. Threat: a client's URI that a regular expression would try for hours.
    """
    pieces = _VARIABLE.split(template)  # text, "+" or nothing, name, text, …
    if not uri.startswith(pieces[0]):
        return None
    found: dict[str, str] = {}
    at = len(pieces[0])
    for place in range(1, len(pieces), 3):
        slashes, name, behind = pieces[place : place + 3]
        last = place + 3 >= len(pieces)
        end = len(uri) - len(behind) if last else uri.find(behind, at + 1)
        value = uri[at:end] if end > at and uri.startswith(behind, end) else ""
        if not value or (not slashes and any(each in value for each in "/?#")):
            return None
        found[name], at = unquote(value), end + len(behind)
    return found if at == len(uri) else None


GivenTool = Any
"""An entry of a list of `tools`: a Tool, a function, a mapping of options, a toolset or its class. It is Any because a
list of tools with different signatures is a `list[object]` to the type checker.
"""


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
    if isinstance(given, (Tool, Mapping)) or not callable(getattr(given, "get_tools", None)):
        return (as_tool(given),)
    return map(as_tool, build_tools(given))


def build_tools(toolset: Any, ctx: ToolsetContext | None = None) -> Sequence[Any]:
    """Returns the tools of a toolset or its class. Its `get_tools` takes the context or nothing. Raises TypeError if it
    returns no list of tools, or if the class needs arguments.
    """
    made = toolset
    if isinstance(toolset, type):
        if needed := ", ".join(required_arguments(toolset)):
            name = toolset.__name__
            raise TypeError(f"toolset {name} needs arguments: give {name}({needed}) instead of the class")
        made = toolset()
    takes_context = bool(inspect.signature(made.get_tools).parameters)
    found = made.get_tools(ctx or ToolsetContext()) if takes_context else made.get_tools()
    fits = isinstance(found, Iterable) and not isinstance(found, (str, Mapping))
    require(fits, f"what {type(made).__name__}.get_tools gives", "a list of tools", found)
    return list(found)


def required_arguments(maker: Callable[..., Any]) -> list[str]:
    """The parameters without which a class or function cannot be called; none where Python cannot say."""
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]


class NativeTool(Tool):
    """A Tool of Forge's own: its definition changes with the version alone. So the schemas of its arguments are shipped
    (`native_schemas.json`, written by `make reference`), and a model is built once in a process, by the first call."""

    _built: ClassVar[dict[str, InputSpec]] = {}

    @functools.cached_property
    def input_schema(self) -> dict[str, Any]:
        shipped = native_schemas().get(self.name) if self._is_lazy else None
        return super().input_schema if shipped is None else shipped

    @functools.cached_property
    def input(self) -> InputSpec:
        if not self._is_lazy:
            return super().input
        if self.name not in self._built:
            self._built[self.name] = super().input
        return self._built[self.name]


@functools.cache
def native_schemas() -> dict[str, dict[str, Any]]:
    shipped: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "native_schemas.json").read_bytes())
    return shipped


native_tool: Final = functools.partial(NativeTool, source=SourceKind.NATIVE, code_digest=__version__)


class McpTool(Tool):
    """A Tool whose function gives a CallToolResult, or anything else that a tool may return."""

    def invoke(self, values: dict[str, Any], ctx: ToolContext | None) -> Any:
        return _read(super().invoke(values, ctx), _read_result)


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


def _read_result(value: Any) -> Any:
    blocks = value.get("content") if isinstance(value, Mapping) else getattr(value, "content", None)
    if isinstance(value, ToolResult) or not isinstance(blocks, list):
        return value
    if isinstance(value, Mapping) and not all(isinstance(each, Mapping) and "type" in each for each in blocks):
        return value
    return ToolResult.from_mcp(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetContext:
    """What a toolset may build its tools from. A field that is None is taken from each call's ToolContext instead."""

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


def block_problems(model: type[BaseModel], error: ValidationError) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yields the problems of a toolset's block, each with its place and a text."""
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        if each["type"] == "extra_forbidden":
            *above, key = each["loc"]
            known = _keys_at(model, above)
            there = f". There are: {', '.join(sorted(known))}" if known else ""
            yield each["loc"], f"unknown key{nearest_hint(str(key), known, there)}"
        else:
            yield each["loc"], each["msg"].removeprefix("Value error, ")


def _keys_at(model: type[BaseModel], path: Iterable[int | str]) -> list[str]:
    """The keys of the model that a path of field names and list positions leads to; none where it cannot be told."""
    found: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int) or found is None:
            continue  # an item of a list has the model of its field
        field = found.model_fields.get(part) or next(
            (each for each in found.model_fields.values() if each.alias == part), None
        )
        found = _model_in(field.annotation) if field is not None else None
    return [] if found is None else [field.alias or name for name, field in found.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The one model that an annotation like `list[Rule] | None` is about."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = [model for each in get_args(annotation) if (model := _model_in(each)) is not None]
    return found[0] if len(found) == 1 else None
