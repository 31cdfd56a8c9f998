"""How a tool's function wants to be called: all arguments as one mapping, or one parameter for each of them.

    execute(args)                  one mapping: the parameter is no field of the schema
    execute(args, options)         the same, and the ToolContext as the second parameter
    execute(branch, force)         keywords: the parameters are fields of the schema
    execute(branch, options)       keywords, and the ToolContext: `options` is no field

The ToolContext goes to a parameter that is annotated with it or called `ctx`, to a last one called `options`, and to
the second of two that are no fields. `*, input` is always a keyword, `input, /` always the mapping. What could mean
both is refused (ToolDefinitionError), and so is a field that no parameter takes. An approval check is read by the same
rule; it may take some of the fields only.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.tools.context import ToolContext
from golem_forge.tools.inputs import context_parameter
from golem_forge.tools.validation import ToolDefinitionError

OPTIONS: Final = "options"
MAPPING_NAMES: Final = frozenset({"args", "arguments", "input", "inputs", "params", "parameters", "values"})
"""Usual names of a parameter that takes all arguments as one mapping, even if the schema has a field of that name."""
_EITHER: Final = Parameter.POSITIONAL_OR_KEYWORD
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, _EITHER)
_NAMED: Final = (*_POSITIONAL, Parameter.KEYWORD_ONLY)
_ONE_VALUE: Final = (int, float, str, bool, bytes, list, tuple, set)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSignature:
    by_keywords: bool
    context: str = ""
    """The parameter that takes the ToolContext; empty: none does."""
    context_second: bool = False
    """Whether the context is passed as the second positional argument."""
    names: tuple[str, ...] | None = None
    """For calls by keyword: the fields that the function takes; None means all."""
    closed: bool = False
    """For calls by keyword: arguments outside the schema have no parameter."""
    model: Any = None
    """The mapping is given as an instance of this model, as the parameter's annotation says."""

    def call(self, function: Callable[..., Any], values: Mapping[str, Any], ctx: ToolContext | None) -> Any:
        if self.by_keywords:
            if self.names is not None:
                values = {name: values[name] for name in self.names if name in values}
            return function(**values, **{self.context: ctx}) if self.context else function(**values)
        everything = self.model.model_construct(**values) if self.model is not None else dict(values)
        if self.context_second:
            return function(everything, ctx)
        return function(everything, **{self.context: ctx}) if self.context else function(everything)


_MAPPING_SIGNATURE: Final = CallSignature(by_keywords=False)


def signature_for_schema(function: Callable[..., Any], fields: frozenset[str], model: Any = None) -> CallSignature:
    """`fields`: of the schema; `model`: the schema, where it is a pydantic model."""
    if _is_plain(function) and function.__code__.co_varnames[0] not in (*fields, "ctx"):
        return _MAPPING_SIGNATURE  # most tools that are made by the thousand; reading a signature takes 35 µs
    shape = _read_signature(function, fields, "execute", model)
    if not shape.by_keywords or shape.names is None:
        return shape
    if left := sorted(fields.difference(shape.names)):
        raise ToolDefinitionError(
            f"{_shown(function, 'execute')} takes no {left[0]!r}, which its schema has; add that parameter, or take "
            "all of them as one mapping: (args) or (args, options)"
        )
    return replace(shape, names=None, closed=True)


def _is_plain(function: Callable[..., Any]) -> bool:
    """A function of one parameter without an annotation, by the look of its code."""
    if not inspect.isfunction(function) or function.__annotations__ or hasattr(function, "__wrapped__"):
        return False
    code = function.__code__
    stars = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return code.co_argcount == 1 and not code.co_kwonlyargcount and not code.co_flags & stars


def signature_from_parameters(function: Callable[..., Any], context: str | None) -> CallSignature:
    """Returns how to call a function whose parameters are its schema."""
    parameters = _parameters(function)
    first = next((each for each in parameters if each.kind in _POSITIONAL and each.name != context), None)
    others = [each.name for each in parameters[1:]]
    if (
        first is not None
        and first.annotation is first.empty
        and (first.name == "args" or (first.name in MAPPING_NAMES and others == [OPTIONS]))
    ):
        raise ToolDefinitionError(
            f"{_shown(function, 'execute')} takes all arguments as one mapping, so it needs a schema: a pydantic model "
            "or a JSON Schema (input_schema=…, or <name>_schema beside the function); annotate the parameter if "
            f"{first.name!r} is an argument by itself"
        )
    return CallSignature(by_keywords=True, context=context or "")


def predicate_wants_context(predicate: Callable[..., Any]) -> bool:
    """Whether a `needs_approval` function takes the context besides the arguments."""
    try:
        parameters = inspect.signature(predicate).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def may_need_schema(function: Callable[..., Any]) -> bool:
    """Whether `signature_from_parameters` may refuse it: a look at a name, for tools that are defined by the
    thousand."""
    code = getattr(function, "__code__", None)
    return code is None or not MAPPING_NAMES.isdisjoint(code.co_varnames[:2])


def approval_check(
    predicate: Callable[..., Any], fields: Callable[[], frozenset[str] | None], model: Any = None
) -> Callable[..., Any]:
    """The check as a function of the mapping (and the ToolContext): itself, where it is one. Bound as `execute` is;
    it may take some of the fields only, or none. Raises ToolDefinitionError for one that could not be called."""
    try:
        _parameters(predicate)
    except (TypeError, ValueError):
        return predicate
    known = fields()
    if known is None:
        return predicate
    shape = _read_signature(predicate, known, "needs_approval", model)
    if not shape.by_keywords and shape.model is None and (shape.context_second or not shape.context):
        return predicate
    if inspect.iscoroutinefunction(predicate):

        @functools.wraps(predicate)
        async def check(args: dict[str, Any], ctx: ToolContext, /) -> Any:
            return await shape.call(predicate, args, ctx)
    else:

        @functools.wraps(predicate)
        def check(args: dict[str, Any], ctx: ToolContext, /) -> Any:
            return shape.call(predicate, args, ctx)

    del check.__wrapped__  # its own parameters are those above
    return check


def _read_signature(
    function: Callable[..., Any], fields: frozenset[str], what: str, model: Any = None
) -> CallSignature:
    try:
        parameters = _parameters(function)
    except (TypeError, ValueError):  # written in C: nothing says how it is called
        return CallSignature(by_keywords=False)
    kinds = {each.kind for each in parameters}
    context = context_parameter(function, ToolContext) or ""
    named = [each for each in parameters if each.kind in _NAMED and each.name != context]
    if not context and len(named) > 1 and named[-1].name == OPTIONS and OPTIONS not in fields:
        context = named.pop().name
    if not named and Parameter.VAR_POSITIONAL in kinds and Parameter.VAR_KEYWORD not in kinds:
        return CallSignature(by_keywords=False, context=context)
    if named and _takes_everything(named, fields) and (shape := _mapping_signature(parameters, named, context, model)):
        return shape
    if named and _is_ambiguous(named):
        name = named[0].name
        raise ToolDefinitionError(
            f"{_shown(function, what)}: {name!r} may mean the field of that name or all arguments; "
            f"write `*, {name}` for the field, `{name}, /` for all of them"
        )
    strange = [each.name for each in named if each.name not in fields and each.default is each.empty]
    if strange:
        raise ToolDefinitionError(
            f"{_shown(function, what)}: its schema has no field {strange[0]!r} (there are: "
            f"{', '.join(sorted(fields)) or 'none'}); take the fields by name, or all of them as one mapping: "
            "(args) or (args, options)"
        )
    takes_any = Parameter.VAR_KEYWORD in kinds
    names = None if takes_any else tuple(each.name for each in named if each.name in fields)
    return CallSignature(by_keywords=True, context=context, names=names)


def _takes_everything(named: list[Parameter], fields: frozenset[str]) -> bool:
    first = named[0]
    if first.kind is Parameter.POSITIONAL_ONLY:
        return True
    one_value = first.annotation in _ONE_VALUE or first.annotation in [kind.__name__ for kind in _ONE_VALUE]
    return first.kind is _EITHER and not one_value and fields.isdisjoint(each.name for each in named)


def _mapping_signature(
    parameters: list[Parameter], named: list[Parameter], context: str, model: Any
) -> CallSignature | None:
    """Returns how to call a function with one mapping; None if it has more required parameters than a mapping and the
    ToolContext.
    """
    first, *others = named
    wanted = [each for each in others if each.default is each.empty]
    if not context and wanted and wanted[0] is others[0] and wanted[0].kind in _POSITIONAL:
        context = wanted.pop(0).name
    if wanted:
        return None
    second = parameters[1] if len(parameters) > 1 else None
    hint = first.annotation
    return CallSignature(
        by_keywords=False,
        context=context,
        context_second=second is not None and second.name == context and second.kind in _POSITIONAL,
        model=model if model is not None and (hint is model or hint == getattr(model, "__name__", "")) else None,
    )


def _is_ambiguous(named: list[Parameter]) -> bool:
    """`(args)` and `(args, options)`, where the schema has fields of these names."""
    first, *others = named
    may_be = first.name in MAPPING_NAMES and all(each.kind is _EITHER for each in named)
    return may_be and [each.name for each in others] in ([], [OPTIONS])


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    return list(inspect.signature(function).parameters.values())


def _shown(function: Callable[..., Any], what: str) -> str:
    try:
        inside = ", ".join(str(each) for each in inspect.signature(function).parameters)
    except (TypeError, ValueError):
        inside = "…"
    return f"{what}({inside})"
