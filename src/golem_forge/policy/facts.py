"""CallFacts: everything policy may know about one call, gathered before it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from golem_forge.core.decision import Source
from golem_forge.core.effects import Effect
from golem_forge.core.verdict import Verdict
from golem_forge.policy.shell import CommandWorld, Parsed
from golem_forge.tools.tool import SourceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """A shell command as both analysers saw it."""

    text: str
    parsed: Parsed | None
    """None: opaque to the strict parser."""
    world: CommandWorld
    cwd: str
    reads_only: bool = False
    """Every segment is proven to only read, if all zones are read-only for it: so must its walls be built."""
    started: Parsed | None = None
    """If `reads_only`, the words in which it must be started: the proof is of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpName:
    server: str
    tool: str
    pinned: bool


@dataclass(slots=True, kw_only=True)
class CallFacts:
    tool: str
    source: SourceKind
    args: dict[str, Any]
    worker: str
    effects: tuple[Effect, ...] | None
    """None: the tool does not say."""
    command: CommandFacts | None = None
    mcp: McpName | None = None
    handed: tuple[Source, ...] = ()
    """What is said of tools that handed this call on: it can only tighten."""
    project: str = ""
    """Host directory of the program, for rules scoped to it."""

    @property
    def native(self) -> bool:
        """Effects of native tools are computed by Forge; those of other tools are only claimed."""
        return self.source is SourceKind.NATIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectVerdict:
    effect: Effect
    base: Verdict
