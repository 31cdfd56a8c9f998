"""Tool: name, description, schemas and behaviour in one object. Whatever its source, a Tool looks like this.

Nothing is built before it is needed: a thousand tools can be defined without building a schema. `may_call` says which
callers may call a tool of which execution mode.
"""

from __future__ import annotations

import contextlib
import inspect
import marshal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import Caller, Outcome, ToolCompletion
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import error_name
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.lazy_module import hashlib
from golem_forge.core.options import options_from, snake, takes_options
from golem_forge.core.results import ToolResult
from golem_forge.core.text import nearest_hint
from golem_forge.tools.call_signature import (
    CallSignature,
    approval_check,
    may_need_schema,
    signature_for_schema,
    signature_from_parameters,
)
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.forms import mask_secrets, secret_fields
from golem_forge.tools.inputs import (
    Arguments,
    Defaults,
    InputSpec,
    ModelInput,
    PlainInput,
    SchemaInput,
    context_parameter,
    describe,
    signature_input,
)
from golem_forge.tools.results import OutputSpec, output_from_annotation, output_from_schema, to_result
from golem_forge.tools.validation import Err, InputInvalid, Ok, ToolDefinitionError

Approval = bool | str | Verdict
NeedsApproval = Approval | Callable[..., Approval | Awaitable[Approval]]
Planner = Callable[[dict[str, Any], ToolContext], Plan | Awaitable[Plan]]
Redirect = Callable[[dict[str, Any]], "tuple[str | Tool, dict[str, Any]] | None"]
"""Raw arguments → the tool that is really meant (or its name) and its arguments; None: this one."""
OnOutcome = Callable[[Outcome], None]

MAX_ARGUMENT_BYTES: Final = 1 << 20
_PLAIN: Final = (str, int, float, bool, bytes, type(None))


class Mode(StrEnum):
    """The kinds of callers that may call a tool."""

    LLM = "llm"
    MANUAL = "manual"
    BOTH = "both"


class SourceKind(StrEnum):
    NATIVE = "native"
    CUSTOM = "custom"
    MCP = "mcp"


@dataclass(frozen=True, slots=True)
class Remote:
    """A tool of an MCP server by its raw names, which rules, pins and statistics go by."""

    server: str
    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The identity of a tool's definition: approvals are for this digest and no other."""

    digest: str
    approved: bool = True
    """False if this definition was never approved; calls then ask and show `diff`."""
    diff: str = ""


class Tool:
    """One tool. Give `execute` (a function of the arguments) or `planner` (arguments → Plan), never both.

    `NamedTool` is another name of it. All of it may be given as one mapping, too: `Tool({"name": …, "execute": …})`.
    Raises TypeError, ValueError or ToolDefinitionError for a definition that cannot be meant.
    """

    _output_from_annotation = False

    @takes_options("Tool", at=1)
    def __init__(
        self,
        name: str | Mapping[str, Any],
        description: str | None = None,
        *,
        input_schema: Any = None,
        execute: Callable[..., Any] | None = None,
        planner: Planner | None = None,
        needs_approval: NeedsApproval | None = None,
        manual_execution: Mapping[str, Any] | None = None,
        mode: Mode | str | None = None,
        label: str = "",
        category: str = "",
        annotations: Mapping[str, Any] | None = None,
        output_schema: Any = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        inline: bool = False,
        read_only: bool = False,
        gated: bool = True,
        always: Verb | None = None,
        effects: tuple[Effect, ...] | None = None,
        source: SourceKind | str = SourceKind.CUSTOM,
        argument_aliases: Mapping[str, str] | None = None,
        max_argument_bytes: int = MAX_ARGUMENT_BYTES,
        code_digest: str = "",
        redirect: Redirect | None = None,
        definition: Callable[[], Definition] | None = None,
        pin: Callable[[], None] | None = None,
        takes_mapping: bool | None = None,
        shadows: bool = False,
        on_outcome: OnOutcome | None = None,
        remote: Remote | None = None,
        always_load: bool = False,
    ) -> None:
        """`manual_execution`: `{mode, label, category}`, for who prefers them together. `takes_mapping`: whether
        `execute` gets one mapping or a keyword for each argument; None: its parameters say so (`call_signature`)."""
        if not isinstance(name, str):
            raise TypeError(f"a tool's name is text, not {name!r}")
        if (execute is None) == (planner is None):
            raise TypeError(f"tool {name!r} needs either execute= or planner=")
        if not callable(execute or planner):
            raise TypeError(f"tool {name!r}: execute must be a function, not {type(execute or planner).__name__}")
        _check_options(name, needs_approval, timeout, idle_timeout)
        if input_schema is not None and not isinstance(input_schema, Mapping):
            _check_schema(name, input_schema)
        if manual_execution is not None:
            mode, label, category = _manual_execution(name, manual_execution, mode, label, category)
        self.name = name
        self._description = description
        self._input = input_schema
        self.function = execute
        self.planner = planner
        self.source = SourceKind(source)
        self.mode = _mode(name, mode) if mode else (Mode.LLM if self.source is SourceKind.CUSTOM else Mode.BOTH)
        self.label = label
        self.category = category
        self.annotations = dict(annotations or {})
        self._output = output_schema
        self.timeout = timeout
        self.idle_timeout = idle_timeout
        self.inline = inline
        self.read_only = read_only or bool(self.annotations.get("readOnlyHint"))
        self.gated = gated
        """False: it only waits for calls that pass the gate themselves (a sub-worker's), so it holds no slot there."""
        self.always = always
        """What every call of it does in some zone, whatever its arguments; None: that depends on them."""
        self.effects = effects
        self.argument_aliases = argument_aliases
        self.max_argument_bytes = max_argument_bytes
        self._code_digest = code_digest
        self.redirect = redirect
        self._definition = definition
        self.pin = pin
        self.shadows = shadows
        """It stands in the place of another tool: what rules allow that one does not count for it."""
        self.on_outcome = on_outcome
        """Told what became of each call of it, once that is recorded."""
        self.remote = remote
        """Which tool of which server it stands for; None: it is no server's."""
        self.always_load = always_load
        """True: a model is sent its definition in every request, however many tools there are."""
        self.made_from: tuple[str, ...] = ()
        """Real paths of the files it is made from, set by its source: after a change there it is looked up again."""
        self._takes_mapping = takes_mapping
        try:
            if callable(needs_approval):
                needs_approval = approval_check(needs_approval, self._fields, self._model)
            self.needs_approval = needs_approval
            if execute is not None and (may_need_schema(execute) if input_schema is None else not self._is_lazy):
                _ = self.call_signature  # what is wrong with it is said where the tool is defined
        except ToolDefinitionError as error:
            raise ToolDefinitionError(f"tool {name!r}: {error}") from None

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, source={self.source.value!r}, mode={self.mode.value!r})"

    if not TYPE_CHECKING:  # which knows what is there

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError with a hint for a name in camelCase: `tool.inputSchema` is `input_schema`."""
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # it is there, and said itself what it lacks
            known = snake(name)
            hint = f"; here it is {known!r}" if known != name and known in dir(self) else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    # What a tool says of itself

    @property
    def manual_execution(self) -> dict[str, str] | None:
        """The options for calls by a person; None if only a model may call the tool."""
        if self.mode is Mode.LLM:
            return None
        said = {"mode": self.mode.value, "label": self.label, "category": self.category}
        return {key: value for key, value in said.items() if value}

    @property
    def description(self) -> str:
        if self._description is None:
            self._description = describe(getattr(self.function, "__doc__", None))[0] or f"Custom tool: {self.name}"
        return self._description

    @cached_property
    def input(self) -> InputSpec:
        """Built on first use; raises ToolDefinitionError when the definition cannot be offered."""
        if self._input is None:
            assert self.function is not None or self.planner is not None
            return signature_input(self.function or self.planner, self.context_name)  # type: ignore[arg-type]
        if isinstance(self._input, Mapping):
            ours = self.function is not None and self._takes_mapping is None  # else somebody behind it has the schema
            defaults = Defaults.FILLED if ours else Defaults.LEFT_OUT
            return SchemaInput(dict(self._input), defaults=defaults, known_valid=self.source is SourceKind.NATIVE)
        if self._is_lazy:
            built = self._input()
            return built if isinstance(built, SchemaInput | PlainInput) else ModelInput(built)
        return ModelInput(self._input)

    @property
    def _is_lazy(self) -> bool:
        """Whether its schema is given by a function when first asked, so that defining the tool imports nothing."""
        return inspect.isfunction(self._input)

    def _fields(self) -> frozenset[str] | None:
        """The names by which its function gets arguments; None where only the function could say."""
        given = self._input
        if given is None:
            parameters = inspect.signature(self.function).parameters if self.function else ()
            return frozenset(parameters) - {self.context_name} if self.function else None
        if isinstance(given, Mapping):
            properties = given.get("properties")
            return frozenset(properties) if isinstance(properties, Mapping) else frozenset()
        if self._is_lazy:
            return frozenset(self.input_schema.get("properties", ()))
        return frozenset(getattr(given, "model_fields", ()))

    @cached_property
    def call_signature(self) -> CallSignature:
        """Returns how the function is called. Raises ToolDefinitionError if that is ambiguous."""
        assert self.function is not None
        if self._takes_mapping is not None:
            context = context_parameter(self.function, ToolContext) or ""
            return CallSignature(by_keywords=not self._takes_mapping, context=context)
        if self._input is None:
            return signature_from_parameters(self.function, context_parameter(self.function, ToolContext))
        return signature_for_schema(self.function, self._fields() or frozenset(), self._model)

    @property
    def _model(self) -> Any:
        return self._input if hasattr(self._input, "model_fields") else None

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        return self.input.schema()

    @cached_property
    def secret_fields(self) -> tuple[Mapping[str, Any], ...]:
        """Fields of its form whose values are for the tool alone."""
        return secret_fields(self.input_schema)

    def without_secrets(self, args: Any) -> Any:
        """Arguments as others may see them; the same object where no field is secret."""
        if not (fields := self.secret_fields) or not isinstance(args, Mapping):
            return args
        return mask_secrets(fields, args)

    @cached_property
    def output(self) -> OutputSpec | None:
        if self._output is not None:
            return output_from_schema(self._output)
        return output_from_annotation(self.function) if self.function and self._output_from_annotation else None

    @property
    def output_schema(self) -> dict[str, Any] | None:
        return self.output.schema() if self.output else None

    @cached_property
    def context_name(self) -> str | None:
        """The parameter of its function that takes the ToolContext."""
        if self.function is None:
            return None
        if self._input is None or self._takes_mapping is not None:
            return context_parameter(self.function, ToolContext)
        return self.call_signature.context or None

    @cached_property
    def is_async(self) -> bool:
        function = self.function
        return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is async too
        )

    @property
    def definition(self) -> Definition:
        return self._definition() if self._definition else Definition(digest=self._own_digest)

    @property
    def definition_digest(self) -> str:
        return self._own_digest if self._definition is None else self._definition().digest

    @property
    def has_own_definition(self) -> bool:
        """Whether its source watches the definition: it may change, and then needs approval anew."""
        return self._definition is not None

    @cached_property
    def wants_context(self) -> bool:
        return self.planner is not None or self.context_name is not None or callable(self.needs_approval)

    @property
    def definition_approved(self) -> bool:
        """Cheap for tools whose definition cannot change under them."""
        return self._definition is None or self._definition().approved

    @cached_property
    def _own_digest(self) -> str:
        return digest(
            {
                "name": self.name,
                "description": self.description,
                "input": self.input_schema,
                "output": self.output_schema,
                "annotations": self.annotations,
                "source": self.source.value,
                "code": self._code_digest or _module_digest(self.function),
            }
        )

    # What a tool does

    def validate(self, args: dict[str, Any]) -> Arguments:
        """Checks and coerces; raises InputInvalid with `<tool>: <field>: <problem>`."""
        if self.argument_aliases:
            args = self._without_aliases(args)
        known = self.argument_names
        if known is not None and not args.keys() <= known:
            raise self._unknown_argument(next(iter(args.keys() - known)), known)
        try:
            return self.input.check(args)
        except InputInvalid as error:
            raise InputInvalid(f"{self.name}: {error.message}", fields=error.fields) from None

    def validate_input(self, args: Any) -> Ok | Err:
        """Validates like `validate`, but returns Ok or Err instead of raising; for tests and embedders."""
        if not isinstance(args, dict):
            return Err(f"{self.name}: arguments must be an object, got {type(args).__name__}")
        try:
            return Ok(self.validate(args).values)
        except Exception as error:
            return Err(getattr(error, "message", None) or f"{self.name}: {error_name(error)}: {error}")

    async def execute(self, args: dict[str, Any], options: ToolContext | Mapping[str, Any] | None = None) -> ToolResult:
        """Runs the tool's own code: for its tests. Calls from agents go through the orchestrator instead.

        `options`: the ToolContext, or some of its fields as a mapping. Raises InputInvalid, and what the tool raises.
        """
        ctx = options if isinstance(options, ToolContext) else ToolContext.of(options or {})
        args = self.validate(args).values
        if self.planner:
            planned = self.planner(args, ctx)
            plan = await planned if inspect.isawaitable(planned) else planned
            try:
                value = plan.run()
                value = await value if inspect.isawaitable(value) else value
            finally:
                if plan.close:
                    plan.close()
        else:
            value = self.invoke(args, ctx)
            value = await value if inspect.isawaitable(value) else value
        if isinstance(value, ToolCompletion):
            return value.result
        return to_result(self.output.check(self.name, value) if self.output else value)

    def invoke(self, values: dict[str, Any], ctx: ToolContext | None) -> Any:
        """Calls the function the way it wants to be called; may return an awaitable."""
        assert self.function is not None
        return self.call_signature.call(self.function, values, ctx)

    @cached_property
    def argument_names(self) -> frozenset[str] | None:
        """Every argument there is; None if the schema may welcome others and the function can take them."""
        known = self.input.names()
        if known is None and self.function is not None and self.call_signature.closed:
            return self._fields()
        return known

    def _unknown_argument(self, name: str, known: frozenset[str], meant: str = "") -> InputInvalid:
        text = f"unknown argument {str(name)[:100]!r}{nearest_hint(meant or str(name), [meant] if meant else known)}"
        return InputInvalid(f"{self.name}: {text}", fields=((name, text),))

    def _without_aliases(self, args: dict[str, Any]) -> dict[str, Any]:
        assert self.argument_aliases is not None
        for alias, real in self.argument_aliases.items():
            if alias in args:
                if real in args:
                    raise self._unknown_argument(alias, frozenset(), meant=real)
                args = {real if key == alias else key: value for key, value in args.items()}
        return args


NamedTool = Tool
"""The name that the design documents have for it."""


def _manual_execution(
    name: str, said: Mapping[str, Any], mode: Mode | str | None, label: str, category: str
) -> tuple[Mode | str | None, str, str]:
    if not isinstance(said, Mapping):
        raise TypeError(f"tool {name!r}: manual_execution is a mapping of mode, label and category, not {said!r}")
    given = {key: value for key, value in (("mode", mode), ("label", label), ("category", category)) if value}
    where = f"tool {name!r}: manual_execution"
    options = options_from(said, known=("mode", "label", "category"), where=where)
    for key, value in given.items():
        if key in options and options[key] != value:
            raise TypeError(f"{where} says {key} {options[key]!r}, and {key}= says {value!r}; give it once")
    both = {"mode": None, "label": "", "category": ""} | given | options
    if not both["mode"]:
        raise TypeError(f"{where}: needs 'mode': {', '.join(Mode)}")
    return both["mode"], both["label"] or "", both["category"] or ""


def _mode(name: str, mode: Mode | str) -> Mode:
    if mode not in tuple(Mode):
        hint = nearest_hint(str(mode), [each.value for each in Mode], f" of {', '.join(Mode)}")
        raise ValueError(f"tool {name!r}: {mode!r} is not a mode{hint}")
    return Mode(mode)


def _check_options(name: str, needs_approval: Any, *limits: Any) -> None:
    """Checks a definition's options, so that an error appears where the tool is defined and not at its first call.
    Raises ValueError.
    """
    known = needs_approval is None or isinstance(needs_approval, bool) or callable(needs_approval)
    if not known and (not isinstance(needs_approval, str) or needs_approval not in set(Verdict)):
        options = [each.value for each in Verdict]
        expected = f"a bool, a function or one of {', '.join(options)}{nearest_hint(needs_approval, options)}"
        raise ValueError(f"tool {name!r}: needs_approval must be {expected}")
    for limit in limits:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit <= 0):
            raise ValueError(f"tool {name!r}: a timeout is a number of seconds above 0, got {limit!r}")


def _check_schema(name: str, schema: Any) -> None:
    if not hasattr(schema, "model_json_schema") and not inspect.isfunction(schema):
        shown = schema.__name__ if isinstance(schema, type) else repr(schema)[:60]
        raise ToolDefinitionError(
            f"tool {name!r}: input_schema must be a pydantic model (a class of BaseModel) or a JSON Schema, not {shown}"
        )


def _module_digest(function: Callable[..., Any] | None) -> str:
    """The bytes of the module a function comes from, its code and what it closes over: changing any is a new tool."""
    if function is None:
        return ""
    content = hashlib.sha256()
    inner = inspect.unwrap(function)
    with contextlib.suppress(OSError, TypeError), open(inspect.getsourcefile(inner) or "", "rb") as file:
        content.update(file.read())
    if code := getattr(inner, "__code__", None):
        content.update(marshal.dumps(code))
    for cell in getattr(inner, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # a cell that is not filled yet
            held = cell.cell_contents
            content.update((repr(held) if isinstance(held, _PLAIN) else str(id(held))).encode("utf-8", "replace"))
    return content.hexdigest()


def may_call(caller: Caller, mode: Mode) -> bool:
    """A person reaches manual tools, everybody else the ones offered to models."""
    return mode is not (Mode.LLM if caller == Caller.HUMAN else Mode.MANUAL)


def llm_tools(tools: Iterable[Tool]) -> list[Tool]:
    return [tool for tool in tools if may_call(Caller.LLM, tool.mode)]


def manual_tools(tools: Iterable[Tool]) -> list[Tool]:
    return [tool for tool in tools if is_manual_tool(tool)]


def is_manual_tool(tool: Tool) -> bool:
    return may_call(Caller.HUMAN, tool.mode)


get_llm_tools = llm_tools
get_manual_tools = manual_tools
"""The names that the design documents have for them."""
