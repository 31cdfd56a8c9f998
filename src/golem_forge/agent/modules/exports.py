"""The exports of a Python tool module: tools, prompts and resources, as Tools and as definitions in plain data.

A tool is a function, a function with its schema beside it, or a Tool. The schema of `add_up` is `add_up_schema`,
`add_upSchema`, `AddUpSchema` …: its name without case and underscores, and the word schema.

`exported_tools` and `exported_offers` take an imported module, `toolset_tools` what an `external` import gave; they
return Tools by export name. They raise ExportError for a name that is not there, one that is no function or Tool, a
schema that belongs to none of the module's functions, and a Tool that only works in Forge's own process.

This code runs inside module hosts and, for embedders, in `load_custom_tools`; it imports nothing heavy: a host starts
with each session. `describe_tool` writes a tool's definition in the host, `ToolDescription.read` reads it in Forge.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from types import ModuleType
from typing import Any, Final, Literal

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import error_name
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import closest_match, nearest_remark
from golem_forge.tools.factory import (
    FunctionTool,
    PromptTool,
    ResourceTool,
    ToolsetContext,
    block_problems,
    build_tools,
    prompt,
    required_arguments,
)
from golem_forge.tools.inputs import Defaults, SchemaInput
from golem_forge.tools.tool import MAX_ARGUMENT_BYTES, Mode, Tool
from golem_forge.tools.validation import ToolDefinitionError

_MOST_NAMED: Final = 50
_SCHEMA: Final = "schema"


class ExportError(Exception):
    """Why a module's tools cannot be used, in words for the person who wrote the worker file."""

    problems: tuple[tuple[tuple[str | int, ...], str], ...] = ()
    """Problems of single keys of the block's `config`, each with its place."""


def exported_tools(module: ModuleType, names: Iterable[str], shown: str) -> dict[str, Tool]:
    """The listed exports, in that order. `shown`: the module as the worker file names it."""
    tools = {name: _tool(module, name, shown) for name in names}
    _refuse_stray_schemas(module, shown)
    return tools


COMPLETER: Final = "#complete"
"""Behind the name of an export: the tool that completes its arguments."""


def exported_offers(module: ModuleType, names: Mapping[str, Sequence[str]], shown: str) -> dict[str, Tool]:
    """The exports listed as `prompts` and `resources`, each followed by its completer where it has one."""
    found: dict[str, Tool] = {}
    for key, listed in names.items():
        for name in listed:
            made = _offer(module, key, name, shown)
            found[name] = made
            if (completer := made.completer()) is not None:
                found[f"{name}{COMPLETER}"] = completer
    return found


_OFFERS: Final = {"prompts": ("Prompt", PromptTool), "resources": ("Resource", ResourceTool)}


def _offer(module: ModuleType, key: str, name: str, shown: str) -> PromptTool | ResourceTool:
    word, kind = _OFFERS[key]
    value = _export(module, name, shown, word)
    if isinstance(value, (PromptTool, ResourceTool)) and isinstance(value, kind):
        return value
    if key == "prompts" and inspect.isfunction(value):  # as a function is a tool without being told
        return prompt(value)
    decorator = "@prompt" if key == "prompts" else '@resource("…")'
    raise ExportError(f"'{name}' in {shown} is no {word.lower()}: make it one with {decorator}")


def _export(module: ModuleType, name: str, shown: str, word: str) -> Any:
    missing = object()
    value = missing if name.startswith("_") else getattr(module, name, missing)
    if value is missing:
        known = _public(module)
        hint = nearest_remark(name, known)
        raise ExportError(
            f"{word} '{name}' not found in {shown}{hint}. Available exports: {', '.join(known) or 'none'}"
        )
    return value


def _tool(module: ModuleType, name: str, shown: str) -> Tool:
    value = _export(module, name, shown, "Tool")
    if isinstance(value, (PromptTool, ResourceTool)):
        key = "prompts" if isinstance(value, PromptTool) else "resources"
        raise ExportError(f"'{name}' in {shown} is not a tool; name it under '{key}'")
    if isinstance(value, Tool):
        return _check_usable(value, shown)
    if not inspect.isroutine(value):
        hint = f"; NamedTool({name}) makes one of a dict" if isinstance(value, Mapping) else ""
        raise ExportError(f"'{name}' in {shown} must be a function or a Tool{hint}")
    schema = _schema_of(module, name, shown)
    try:
        return FunctionTool(name, value, input_schema=schema)
    except ToolDefinitionError as error:
        raise ExportError(f"{shown}: {error}") from None


def _schema_of(module: ModuleType, name: str, shown: str) -> Any:
    """The schema beside a function; None: its signature says all. The plainest spellings of its name come first."""
    plain = (f"{name}_schema", f"{name}Schema", f"{name[:1].upper()}{name[1:]}Schema")
    found = {each: getattr(module, each) for each in plain if hasattr(module, each)}
    found = found or {
        each: value for each, value in vars(module).items() if _fold_name(each) == _fold_name(name) + _SCHEMA
    }
    if not found:
        return None
    (first, schema), *others = found.items()
    if twice := next((other for other, value in others if value is not schema), ""):
        raise ExportError(f"'{first}' and '{twice}' in {shown} are both the schema of '{name}'; keep one")
    if not isinstance(schema, Mapping) and not hasattr(schema, "model_json_schema"):
        raise ExportError(f"'{first}' in {shown} must be a pydantic model or a JSON Schema")
    return schema


def _refuse_stray_schemas(module: ModuleType, shown: str) -> None:
    """A schema that nothing uses is a misspelt one: the function would be offered with another."""
    exports = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    functions = {name: value for name, value in exports.items() if inspect.isroutine(value)}
    folded = {_fold_name(name) for name in functions}
    stray = {
        name: value
        for name, value in exports.items()
        if _looks_like_schema(module, name, value) and _fold_name(name).removesuffix(_SCHEMA) not in folded
    }
    if not stray:
        return
    used = {id(each) for value in exports.values() for each in _mentioned(value)}
    for name, schema in stray.items():
        if id(schema) in used:
            continue
        base = name[: -len(_SCHEMA)].rstrip("_")
        tools = [
            each for each, value in exports.items() if isinstance(value, Tool) and _fold_name(each) == _fold_name(base)
        ]
        if tools:
            raise ExportError(
                f"'{name}' in {shown} has no effect, the Tool '{tools[0]}' has a schema of its own; give it that one "
                f"(input_schema={name})"
            )
        close = closest_match(base, _public(module))
        hint = f"; did you mean '{close}_schema', for '{close}'?" if close else ""
        raise ExportError(
            f"'{name}' in {shown} looks like a schema, but no function there uses it{hint} "
            f"(rename it to _{name} if it is not a schema)"
        )


def _looks_like_schema(module: ModuleType, name: str, value: Any) -> bool:
    """A model or JSON Schema of the module's own, named `…Schema` or `…_schema`."""
    if not name.endswith(("Schema", "_schema")) or name in ("Schema", "_schema"):
        return False
    if isinstance(value, Mapping):
        return value.get("type") == "object" and isinstance(value.get("properties"), Mapping)
    return hasattr(value, "model_json_schema") and getattr(value, "__module__", "") == module.__name__


def _mentioned(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """The schemas that a function, a Tool or a model uses, in its annotations, its fields or as its base."""
    seen = set() if seen is None else seen
    if isinstance(value, Tool):
        found = [value._input, value._output, value.function]
    elif inspect.isroutine(value):
        found = list(_hints(value).values())
    elif isinstance(value, type) and hasattr(value, "model_fields"):
        found = [*(field.annotation for field in value.model_fields.values()), *value.__mro__[1:]]
    else:
        found = list(typing.get_args(value))
    for each in found:
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            yield from _mentioned(each, seen)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # said where its schema is built
        return {}


def _fold_name(name: str) -> str:
    return name.replace("_", "").lower()


def _public(module: ModuleType) -> list[str]:
    """Returns the names that could be listed: Tools, and functions that the module itself defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, Tool)
            or (inspect.isroutine(value) and getattr(value, "__module__", "") == module.__name__)
        )
    ][:_MOST_NAMED]


def toolset_tools(
    value: Any, names: Sequence[str], shown: str, config: Mapping[str, Any] | None = None
) -> dict[str, Tool]:
    """Returns the tools of an `external` import: a Toolset, Tools, or a callable that returns either. Without names,
    all of them. `config`: keys for the toolset.
    """
    ready = isinstance(value, Tool) or (hasattr(value, "get_tools") and not isinstance(value, type))
    if callable(value) and not ready:
        if needed := " and ".join(f"'{name}'" for name in required_arguments(value)):
            keys = "; its `get_tools(ctx)` finds the block's keys in `ctx.config`" if isinstance(value, type) else ""
            raise ExportError(f"{shown} needs {needed}, but Forge calls it without arguments{keys}")
        value = value()
    if hasattr(value, "get_tools"):
        value = build_tools(value, ToolsetContext(config=_checked_config(value, config or {}, shown)))
    elif config:
        raise ExportError(f"{shown} takes no config: it is no toolset")
    given = [value] if isinstance(value, Tool) else list(value) if isinstance(value, Iterable) else None
    if given is None or not all(isinstance(tool, Tool) for tool in given):
        raise ExportError(f"{shown} must be a Toolset, a list of Tools, or a function that returns either")
    found: dict[str, Tool] = {}
    for tool in given:
        if tool.name in found:
            raise ExportError(f"{shown} gives two tools named '{tool.name}'")
        found[tool.name] = _check_usable(tool, shown)
    for name in names:
        if name not in found:
            hint = nearest_remark(name, found)
            raise ExportError(f"Tool '{name}' not found in {shown}{hint}. Available exports: {', '.join(found)}")
    return {name: found[name] for name in names} if names else found


def _checked_config(toolset: Any, config: Mapping[str, Any], shown: str) -> Any:
    """The keys as the toolset's model has them; None where it has no model."""
    model = getattr(toolset, "config", None)
    if model is None or not hasattr(model, "model_validate"):
        if config:
            raise ExportError(f"{shown} takes no config: the toolset has no model of its keys (`config`)")
        return None
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(config))
    except ValidationError as error:
        refused = ExportError(f"{shown}: its config is not right")
        refused.problems = tuple(block_problems(model, error))
        raise refused from None


def _check_usable(tool: Tool, shown: str) -> Tool:
    if tool.redirect is not None:
        raise ExportError(f"Tool '{tool.name}' in {shown} hands calls on, which only built-in tools can")
    return tool


def load_failure(error: BaseException, file: str) -> str:
    """`NameError: name 'x' is not defined (line 3)`: an import's failure, with the line of `file` it came from."""
    kind = error_name(error)
    if isinstance(error, SyntaxError):
        elsewhere = "" if error.filename == file else f" in {str(error.filename).rpartition('/')[2]}"
        line = error.lineno if error.filename == file else _line_in(error, file)
        words = f"{kind}: {error.msg}{elsewhere}" + (f", line {error.lineno}" if elsewhere else "")
    else:
        line, words = _line_in(error, file), f"{kind}: {error}" if str(error) else kind
    return f"{words} (line {line})" if line else words


def _line_in(error: BaseException, file: str) -> int | None:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


_MAX_TEXT: Final = 64 * 1024
PREDICATE: Final = "predicate"

OwnVerdict = bool | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescription:
    export: str
    """The name by which the host finds it."""
    input_schema: dict[str, Any]
    fills_defaults: bool
    """Its host fills in the defaults of the schema: what is left out is what the schema says."""
    approval: OwnVerdict | Literal["predicate"]
    """Its own `needs_approval`: None if it has none, `predicate` if the host must be asked for each call."""
    plans: bool
    """Its host says before each call what the call would do."""
    options: Mapping[str, Any]
    """Keywords of `Tool` for everything else."""

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> ToolDescription:
        """Raises ValueError for a definition that no honest host sends. Threat: the code in a host is not Forge's."""
        approval = said.get("approval")
        if not isinstance(approval, (bool, str, type(None))) or (
            isinstance(approval, str) and approval not in (PREDICATE, *Verdict)
        ):
            raise ValueError("a verdict that is none")
        effects, output_schema = said.get("effects"), said.get("output_schema")
        options = {
            "name": str(said.get("name", ""))[:_MAX_TEXT],
            "description": str(said.get("description", ""))[:_MAX_TEXT],
            "output_schema": None if output_schema is None else dict(output_schema),
            "mode": Mode(said["mode"]),
            "label": str(said.get("label", ""))[:200],
            "category": str(said.get("category", ""))[:200],
            "annotations": dict(said.get("annotations") or {}),
            "timeout": _seconds(said.get("timeout")),
            "idle_timeout": _seconds(said.get("idle_timeout")),
            "read_only": said.get("read_only") is True,
            "always_load": said.get("always_load") is True,
            "argument_aliases": {str(key): str(value) for key, value in (said.get("aliases") or {}).items()} or None,
            "max_argument_bytes": min(int(said.get("max_argument_bytes") or MAX_ARGUMENT_BYTES), MAX_ARGUMENT_BYTES),
            "effects": None
            if effects is None
            else tuple(Effect(verb=Verb(verb), target=str(target)) for verb, target in effects),
        }
        return cls(
            export=str(said.get("export", ""))[:_MAX_TEXT],
            input_schema=dict(said["input_schema"]),
            fills_defaults=said.get("fills_defaults") is True,
            approval=approval,
            plans=said.get("plans") is True,
            options=options,
        )


def describe_tool(export: str, tool: Tool) -> dict[str, Any]:
    """A tool's definition as plain data. Raises ToolDefinitionError for a schema that cannot be built."""
    own = tool.needs_approval
    return {
        "export": export,
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "mode": tool.mode.value,
        "label": tool.label,
        "category": tool.category,
        "annotations": tool.annotations,
        "timeout": tool.timeout,
        "idle_timeout": tool.idle_timeout,
        "read_only": tool.read_only,
        "always_load": tool.always_load,
        "fills_defaults": not isinstance(tool.input, SchemaInput) or tool.input.defaults is Defaults.FILLED,
        "approval": PREDICATE if callable(own) else own,
        "plans": tool.planner is not None,
        "aliases": dict(tool.argument_aliases or {}),
        "max_argument_bytes": tool.max_argument_bytes,
        "effects": None if tool.effects is None else [[each.verb, each.target] for each in tool.effects],
    }


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None


def module_name(file: str) -> str:
    """Returns the name by which other files of a program import it; another one if that is taken."""
    stem = os.path.basename(file).removesuffix(".py")
    free = stem.isidentifier() and stem not in sys.modules and stem not in sys.stdlib_module_names
    return stem if free else f"forge_module_{stem}"


def import_file(file: str, name: str) -> ModuleType:
    """The module of a file, known to this process under a name from now on."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def import_attribute(path: str) -> Any:
    """Imports `acme_tools.web:tools` and returns that object."""
    name, _, attribute = path.partition(":")
    value: Any = importlib.import_module(name)
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            hint = nearest_remark(part, (each for each in dir(value) if not each.startswith("_")))
            raise AttributeError(f"{error}{hint}") from None
    return value


def refuse_below(refused: Sequence[str], allowed: Sequence[str]) -> None:
    """Refuses from now on the import of files below `refused`, unless they are below `allowed` or where Python already
    looks.

    Threat: a module that imports another file of the program in a way no parser sees (a path built at run time). That
    file is not in the trusted digest and may have been written by a model a minute ago, so whatever lies in a zone is
    refused. This is a safeguard, not a wall: code that wants to run other code can; the walls hold either way.
    """
    shut = _real_prefixes(refused)
    opened = _real_prefixes([*allowed, *sys.path])

    def check(path: str) -> None:
        real = os.path.realpath(path)
        if real.startswith(shut) and not real.startswith(opened):
            raise ImportError(
                f"{real} is not part of the trusted module; import it by name at the top of a file that is"
            )

    # One common base has the method that both loaders of Python files read with.
    base: Any = next(cls for cls in SourceFileLoader.__mro__ if "get_data" in vars(cls))
    read, create = base.get_data, ExtensionFileLoader.create_module

    def get_data(self: Any, path: str) -> bytes:
        check(self.path)  # of the module, also where its compiled form is asked for
        content: bytes = read(self, path)
        return content

    def create_module(self: Any, spec: Any) -> Any:
        check(self.path)
        return create(self, spec)

    base.get_data = get_data
    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]


def _real_prefixes(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path).rstrip("/") + "/" for path in paths if path)
