"""The exported tools as clients read them, built once for each state of the catalog.

Takes the offered tools; gives their MCP definitions and their input schemas by name. Annotations are derived from what
a tool can do, not from what its author or server says: what is not known to be harmless counts as destructive and open.
A proxied server's own hints can only add a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from golem_forge.core.effects import Verb
from golem_forge.core.json import digest
from golem_forge.events.redaction import Redactor
from golem_forge.tools.catalog import DefinitionFormat, tool_definition
from golem_forge.tools.tool import SourceKind, Tool


class ExportedToolList:
    def __init__(self, offered: Callable[[], tuple[Tool, ...]], redactor: Redactor | None = None) -> None:
        """`redactor`: takes secrets out of definitions; None: there are none."""
        self._offered = offered
        self._redactor = redactor or Redactor()
        self._clean_of = 0
        self._tools: tuple[Tool, ...] = ()
        self._entries: tuple[dict[str, Any], ...] = ()
        self._schemas: dict[str, Mapping[str, Any]] = {}
        self._digest = ""

    def entries(self) -> tuple[dict[str, Any], ...]:
        """The very same objects until something changes; not to be modified."""
        self._look()
        return self._entries

    def digest(self) -> str:
        """Of all that a client can see: a tool that only people may call changes nothing here."""
        self._look()
        self._digest = self._digest or digest(list(self._entries))
        return self._digest

    def schema(self, name: str) -> Mapping[str, Any] | None:
        self._look()
        return self._schemas.get(name)

    def __contains__(self, name: str) -> bool:
        self._look()
        return name in self._schemas

    def _look(self) -> None:
        tools, clean_of = self._offered(), self._redactor.version
        if tools is self._tools and self._entries and clean_of == self._clean_of:
            return
        self._tools, self._clean_of = tools, clean_of
        self._entries = tuple(self._entry(tool) for tool in tools)
        self._schemas = {entry["name"]: entry["inputSchema"] for entry in self._entries}
        self._digest = ""

    def _entry(self, tool: Tool) -> dict[str, Any]:
        shaped = tool_definition(tool, DefinitionFormat.MCP)
        if tool.source is not SourceKind.NATIVE:
            shaped = self._redactor.without_secrets(shaped) | {"name": shaped["name"]}
        # MCP wants it said, also where it is implied
        shaped["inputSchema"] = {"type": "object", **shaped["inputSchema"]}
        return {**shaped, "annotations": derived_annotations(tool)}


_DESTROYING: Final = frozenset({Verb.DELETE, Verb.EXEC, Verb.SPAWN})
_OPEN_WORLD: Final = frozenset({Verb.NET, Verb.EXEC, Verb.SPAWN})
_NATIVE_WRITERS: Final = frozenset({"write_file", "save_memory", "update_plan"})
"""They change things and neither delete nor run any. (apply_patch deletes files too.)"""
_NATIVE_CLOSED: Final = frozenset({"Files", "Search", "Memory", "Plan", "Output"})
"""Categories of built-in tools that reach nothing outside the zones and Forge itself."""


def derived_annotations(tool: Tool) -> dict[str, Any]:
    return {
        "readOnlyHint": tool.read_only,
        "destructiveHint": not tool.read_only
        and _applies(tool, "destructiveHint", _DESTROYING, harmless=tool.name in _NATIVE_WRITERS),
        "openWorldHint": _applies(tool, "openWorldHint", _OPEN_WORLD, harmless=tool.category in _NATIVE_CLOSED),
    }


def _applies(tool: Tool, hint: str, verbs: frozenset[Verb], *, harmless: bool) -> bool:
    """`harmless`: known of a built-in tool of that name or category."""
    if tool.remote is not None or tool.redirect is not None:
        return True
    if tool.source is SourceKind.NATIVE and harmless:
        return False
    if tool.effects is not None:
        return any(effect.verb in verbs for effect in tool.effects)
    return tool.annotations.get(hint) is not False
