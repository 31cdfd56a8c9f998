"""What a Python module exports as tools: a function, a function with its schema beside it, or a Tool.

The schema of `add_up` is `add_up_schema`, `add_upSchema`, `AddUpSchema` …: its name without case and underscores, and
the word schema. Takes an imported module (or what an `external` import gave) and gives Tools by export name. Refuses
(ExportError) a name that is not there, one that is no function or Tool, a schema that belongs to none of the module's
functions, and a Tool that only works in Forge's own process. Runs inside module hosts and in `load_custom_tools`;
imports nothing heavy by itself.
"""

from __future__ import annotations

import inspect
import traceback
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from golem_forge.core.errors import error_name
from golem_forge.core.nearest import nearest
from golem_forge.tools.decorator import FunctionTool
from golem_forge.tools.tool import Tool
from golem_forge.tools.toolset import ToolsetContext
from golem_forge.tools.validation import ToolDefinitionError

_MOST_NAMED: Final = 50
_SCHEMA: Final = "schema"


class ExportError(Exception):
    """Why a module's tools cannot be used, in words for the person who wrote the worker file."""


def module_tools(module: ModuleType, names: Iterable[str], shown: str) -> dict[str, Tool]:
    """The listed exports, in that order. `shown`: the module as the worker file names it."""
    tools = {name: _tool(module, name, shown) for name in names}
    _refuse_stray_schemas(module, shown)
    return tools


def _tool(module: ModuleType, name: str, shown: str) -> Tool:
    missing = object()
    value = missing if name.startswith("_") else getattr(module, name, missing)
    if value is missing:
        have = ", ".join(_public(module)) or "none"
        raise ExportError(f"Tool '{name}' not found in {shown}. Available exports: {have}")
    if isinstance(value, Tool):
        return _usable(value, shown)
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
    found = found or {each: value for each, value in vars(module).items() if _folded(each) == _folded(name) + _SCHEMA}
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
    folded = {_folded(name) for name in functions}
    stray = {
        name: value
        for name, value in exports.items()
        if _looks_like_schema(module, name, value) and _folded(name).removesuffix(_SCHEMA) not in folded
    }
    if not stray:
        return
    used = {id(each) for value in exports.values() for each in _mentioned(value)}
    for name, schema in stray.items():
        if id(schema) in used:
            continue
        base = name[: -len(_SCHEMA)].rstrip("_")
        tools = [each for each, value in exports.items() if isinstance(value, Tool) and _folded(each) == _folded(base)]
        if tools:
            raise ExportError(
                f"'{name}' in {shown} has no effect, the Tool '{tools[0]}' has a schema of its own; give it that one "
                f"(input_schema={name})"
            )
        close = nearest(base, _public(module))
        hint = f"; did you mean '{close}_schema', for '{close}'?" if close else ""
        raise ExportError(
            f"'{name}' in {shown} is the schema of no function there{hint} (_{name}, if it is not meant to be one)"
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


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _public(module: ModuleType) -> list[str]:
    """What could be listed: Tools, and functions that the module did not merely import."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, Tool)
            or (inspect.isroutine(value) and getattr(value, "__module__", "") == module.__name__)
        )
    ][:_MOST_NAMED]


def toolset_tools(value: Any, names: Sequence[str], shown: str) -> dict[str, Tool]:
    """What an `external` import means: a Toolset, Tools, or a callable that gives either. No names: all of them."""
    ready = isinstance(value, Tool) or (hasattr(value, "get_tools") and not isinstance(value, type))
    if callable(value) and not ready:
        value = value()
    if hasattr(value, "get_tools"):
        value = value.get_tools(ToolsetContext())
    given = [value] if isinstance(value, Tool) else list(value) if isinstance(value, Iterable) else None
    if given is None or not all(isinstance(tool, Tool) for tool in given):
        raise ExportError(f"{shown} must be a Toolset, a list of Tools, or a function that returns either")
    found: dict[str, Tool] = {}
    for tool in given:
        if tool.name in found:
            raise ExportError(f"{shown} gives two tools named '{tool.name}'")
        found[tool.name] = _usable(tool, shown)
    for name in names:
        if name not in found:
            close = nearest(name, found)
            hint = f" (did you mean '{close}'?)" if close else ""
            raise ExportError(f"Tool '{name}' not found in {shown}{hint}. Available exports: {', '.join(found)}")
    return {name: found[name] for name in names} if names else found


def _usable(tool: Tool, shown: str) -> Tool:
    if tool.planner is not None or tool.redirect is not None:
        what = "plans its calls" if tool.planner is not None else "hands calls on"
        raise ExportError(f"Tool '{tool.name}' in {shown} {what}, which only Forge's own tools can; give it execute=")
    return tool


def load_failure(error: BaseException, file: str) -> str:
    """`NameError: name 'x' is not defined (line 3)`: an import's failure, with the line of `file` it came from."""
    kind = error_name(error)
    if isinstance(error, SyntaxError):
        elsewhere = "" if error.filename == file else f" in {str(error.filename).rpartition('/')[2]}"
        line = error.lineno if error.filename == file else _line(error, file)
        words = f"{kind}: {error.msg}{elsewhere}" + (f", line {error.lineno}" if elsewhere else "")
    else:
        line, words = _line(error, file), f"{kind}: {error}" if str(error) else kind
    return f"{words} (line {line})" if line else words


def _line(error: BaseException, file: str) -> int | None:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None
