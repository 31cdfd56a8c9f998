"""What an Orchestrator works with: `SessionServices`, one for a session, and `CallScope`, one for each worker in it.

Both are records: they hold things and decide nothing. An embedder who has tools but no session uses
`CallScope.of(tools, sandbox=…, journal=…)`, where every service has a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golem_forge.config.sandbox_block import UndoSettings
from golem_forge.core.calls import ToolCall
from golem_forge.core.decisions import Risk
from golem_forge.core.effects import Effect
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.signals import InterruptSignal
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal
from golem_forge.events.redaction import Redactor
from golem_forge.orchestrator.schedule import Gate
from golem_forge.policy.base import ApprovalBlocks
from golem_forge.policy.evaluate import ParentPolicy
from golem_forge.policy.facts import DirectoryNames
from golem_forge.policy.hooks import HookSet
from golem_forge.policy.reviewer import Reviewer
from golem_forge.policy.rules.book import RuleBook
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.storage.home import ForgeHome, forge_home
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.context import ProgramCalls, SessionParts
from golem_forge.tools.factory import as_tools
from golem_forge.tools.tool import Tool

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import Walls

OnEffects = Callable[[ToolCall, tuple[Effect, ...]], None]
"""Called with the effects of a planned call."""
OnKept = Callable[[str, dict[str, Any]], None]
"""Called with (`exact`, `rule` or `grant`; its text) when a person keeps an answer for the session."""


@dataclass(slots=True, kw_only=True)
class SessionServices:
    """The objects that all workers of a session share."""

    id: str = field(default_factory=new_id)
    home: ForgeHome | None = None
    """None if the tools have no FORGE_HOME of their own; long outputs then go to the user's."""
    bus: EventBus | None = None
    journal: Journal | None = None
    redactor: Redactor = field(default_factory=Redactor)
    rules: RuleBook | None = None
    gate: Gate = field(default_factory=Gate)
    parts: SessionParts = field(default_factory=SessionParts)
    """Objects that tools keep for the length of the session."""
    project: str = ""
    """The program's directory; rules can be limited to it."""
    strange_zones: frozenset[str] = frozenset()
    """Zones that an untrusted program named; rules about paths allow nothing there."""
    undo: UndoSettings = field(default_factory=UndoSettings)
    turn: int = 0
    """How many messages the person has sent."""
    directory_names: DirectoryNames = field(default_factory=dict)
    """Names that fingerprints use for directories whose path differs between the session's machines."""
    hooks: HookSet | None = None
    """None if the session has no hooks."""
    reviewer: Reviewer | None = None
    """Answers questions of low risk before a person is asked."""
    four_eyes: Risk | None = None
    """Team sessions: from this risk on, a person who edited a call cannot approve it; another person is asked."""
    told_hooks: set[str] = field(default_factory=set)
    """Hooks whose failure was already shown to the person."""

    @property
    def output_folder(self) -> Path:
        return (self.home or forge_home()).path / "output"


@dataclass(slots=True, kw_only=True)
class CallScope:
    """What the stages need to know of one worker, or of one of several clients that use a worker's tools (`guest`)."""

    services: SessionServices
    catalog: Catalog
    worker: str = "main"
    """The worker's path (`main/analyzer`), by which policy and memory know it."""
    worker_id: str = ""
    """The id of the worker's run, for events; empty means that the path is used."""
    ancestors: tuple[dict[str, Any], ...] = ()
    """`{id, name, depth, task}` of each worker on the path, root first, for cards. Empty: what the path tells."""
    parents: tuple[ParentPolicy, ...] = ()
    blocks: ApprovalBlocks = field(default_factory=ApprovalBlocks)
    sandbox: Sandbox | None = None
    walls: Walls | None = None
    """The walls in which the worker's processes run."""
    signal: InterruptSignal = field(default_factory=InterruptSignal)
    grants: dict[str, set[str]] = field(default_factory=dict)
    """Worker path → what a person allowed for the session. All workers of a session share it; a guest has its own."""
    on_kept: OnKept | None = None
    on_effects: OnEffects | None = None
    guest: str = ""
    """A name that is unique among the clients; empty if the caller is no guest."""
    program: ProgramCalls | None = None
    """Set for a worker that a program called: its calls belong to that program."""
    spend_call: Callable[[], None] = lambda: None
    """Takes one call of a program from the worker's budget. Raises ForgeError if the budget is spent."""

    @classmethod
    def of(cls, tools: Catalog | Iterable[Tool], **options: Any) -> CallScope:
        """Builds a scope for tools without a session. `options` are fields of both records, and None means the default.
        Raises TypeError for other names.
        """
        options = {name: value for name, value in options.items() if value is not None}
        catalog = tools if isinstance(tools, Catalog) else Catalog(as_tools(tools))
        shared = {name: options.pop(name) for name in SessionServices.__slots__ if name in options}
        return cls(services=SessionServices(**shared), catalog=catalog, **options)
