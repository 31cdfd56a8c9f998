"""The list of tools as clients read it, built once for each state of the catalog.

Takes the offered tools; gives their MCP shapes, and their input schemas by name. A thousand tools are written once,
not once for each client that asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from golem_forge.core.canonical import digest
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.server.annotations import derived_annotations
from golem_forge.tools.definitions import Shape, definition
from golem_forge.tools.tool import SourceKind, Tool


class Listing:
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
        shaped = definition(tool, Shape.MCP)
        if tool.source is not SourceKind.NATIVE:
            shaped = self._redactor.without_secrets(shaped) | {"name": shaped["name"]}
        # MCP wants it said, also where it is implied
        shaped["inputSchema"] = {"type": "object", **shaped["inputSchema"]}
        return {**shaped, "annotations": derived_annotations(tool)}
