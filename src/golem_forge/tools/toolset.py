"""Toolset: what builds a group of Tools out of one block of a worker's YAML, and what it is given to do so.

A new toolset is one file in `toolsets/` and one line in its registry. It needs no base class; any object that looks
like this will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import OutputLookup
from golem_forge.tools.tool import Tool

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetContext:
    """What a toolset may build its tools from. What is None here is taken from each call's ToolContext instead."""

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
