"""Annotations of an exported tool, derived from what it can do rather than from what its author or server says.

Takes a Tool, gives `readOnlyHint`, `destructiveHint` and `openWorldHint`. What is not known to be harmless counts as
destructive and open: a client that relaxes because of a hint must never be wrong to do so. What a proxied server says
of its own tool can only add a warning.
"""

from __future__ import annotations

from typing import Any, Final

from golem_forge.core.effects import Verb
from golem_forge.tools.tool import SourceKind, Tool

_DESTROYING: Final = frozenset({Verb.DELETE, Verb.EXEC, Verb.SPAWN})
_REACHING_OUT: Final = frozenset({Verb.NET, Verb.EXEC, Verb.SPAWN})
_NATIVE_WRITERS: Final = frozenset({"write_file", "save_memory", "update_plan"})
"""They change things and neither delete nor run any. (apply_patch deletes files too.)"""
_NATIVE_AT_HOME: Final = frozenset({"Files", "Search", "Memory", "Plan", "Output"})
"""Categories of built-in tools that reach nothing outside the zones and Forge itself."""


def derived_annotations(tool: Tool) -> dict[str, Any]:
    return {
        "readOnlyHint": tool.read_only,
        "destructiveHint": not tool.read_only and _may_destroy(tool),
        "openWorldHint": _reaches_out(tool),
    }


def _may_destroy(tool: Tool) -> bool:
    if tool.remote is not None or tool.redirect is not None:
        return True
    if tool.source is SourceKind.NATIVE and tool.name in _NATIVE_WRITERS:
        return False
    if tool.effects is not None:
        return any(effect.verb in _DESTROYING for effect in tool.effects)
    return tool.annotations.get("destructiveHint") is not False


def _reaches_out(tool: Tool) -> bool:
    if tool.remote is not None or tool.redirect is not None:
        return True
    if tool.source is SourceKind.NATIVE and tool.category in _NATIVE_AT_HOME:
        return False
    if tool.effects is not None:
        return any(effect.verb in _REACHING_OUT for effect in tool.effects)
    return tool.annotations.get("openWorldHint") is not False
