"""A tool as its server defines it, and the ones that are kept out. Plain data; `listing.py` makes it from the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why a tool is not in the catalog."""

    SCHEMA_INVALID = "schema_invalid"
    ENTRY_INVALID = "entry_invalid"
    HIDDEN_TEXT = "hidden_text"
    DRIFT = "drift"


class Familiarity(StrEnum):
    """What the pins say of a usable definition."""

    PINNED = "pinned"
    NEW = "new"
    """It appeared after the server was first pinned: its first call asks, whatever the config says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTool:
    server: str
    name: str
    """Raw: what goes on the wire, and what rules, pins and statistics know it by."""
    description: str
    """Never empty."""
    input_schema: Mapping[str, Any]
    title: str = ""
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """As sent. Hints: what counts of them depends on trust."""
    digest: str = ""
    """The pin: over name, title, description, both schemas and annotations."""
    familiarity: Familiarity = Familiarity.PINNED

    @property
    def identity(self) -> tuple[str, str]:
        return self.server, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTool:
    """Quarantined, alone: the rest of its server works."""

    server: str
    name: str
    """Raw, made visible; `#3` for an entry without a usable name."""
    reason: Reason
    message: str
    diff: str = ""
    """`drift`: unified diff from the pinned definition to the present one."""
    tool: RemoteTool | None = None
    """`drift`: the definition that a person may approve."""

    @property
    def identity(self) -> tuple[str, str]:
        return self.tool.identity if self.tool is not None else (self.server, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One server's tools, checked one by one and held against the pins."""

    server: str
    tools: tuple[RemoteTool, ...] = ()
    held: tuple[HeldTool, ...] = ()
    diagnostics: tuple[str, ...] = ()
    """About the list as a whole: a repeated cursor, too many pages."""
