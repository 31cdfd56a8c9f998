"""What a Python module exports as tools: a function, a function with `<name>_schema` beside it, or a Tool.

Takes an imported module (or what an `external` import gave) and gives Tools by export name. Refuses (ExportError) a
name that is not there, one that is no function or Tool, and a Tool that only works in Forge's own process. Runs inside
module hosts and in `load_custom_tools`; imports nothing heavy by itself.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from golem_forge.core.nearest import nearest
from golem_forge.tools.tool import Tool
from golem_forge.tools.toolset import ToolsetContext

_MOST_NAMED: Final = 50


class ExportError(Exception):
    """Why a module's tools cannot be used, in words for the person who wrote the worker file."""


def module_tools(module: ModuleType, names: Iterable[str], shown: str) -> dict[str, Tool]:
    """The listed exports, in that order. `shown`: the module as the worker file names it."""
    return {name: _tool(module, name, shown) for name in names}


def _tool(module: ModuleType, name: str, shown: str) -> Tool:
    missing = object()
    value = missing if name.startswith("_") else getattr(module, name, missing)
    if value is missing:
        have = ", ".join(_public(module)) or "none"
        raise ExportError(f"Tool '{name}' not found in {shown}. Available exports: {have}")
    if isinstance(value, Tool):
        return _usable(value, shown)
    if not inspect.isroutine(value):
        raise ExportError(f"'{name}' in {shown} must be a function or a Tool")
    schema = getattr(module, f"{name}_schema", None)
    if schema is not None and not isinstance(schema, Mapping) and not hasattr(schema, "model_json_schema"):
        raise ExportError(f"'{name}_schema' in {shown} must be a pydantic model or a JSON Schema")
    return Tool(name, None, input_schema=schema, execute=value, takes_mapping=False)


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
    kind = type(error).__name__
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
