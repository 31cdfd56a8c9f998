"""What an Orchestrator works with: `SessionServices` of a session, `CallScope` of a worker, `CallState` of a call.

Services and scope are records: they hold things and decide nothing. An embedder who has tools but no session uses
`CallScope.of(tools, sandbox=…, journal=…)`, where every service has a default. A CallState goes with its call through
the stages; each stage reads what the earlier ones filled in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from golem_forge.core.calls import Outcome, ToolCall
from golem_forge.core.changes import UndoSettings
from golem_forge.core.decisions import Decision, Risk, Status, VerdictSource
from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.results import ToolResult
from golem_forge.core.signals import InterruptSignal
from golem_forge.core.text import shorten_middle
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal
from golem_forge.events.redaction import Redactor
from golem_forge.orchestrator.gate import Gate
from golem_forge.orchestrator.schedule import ALONE, Place
from golem_forge.policy.base import ApprovalBlocks
from golem_forge.policy.evaluate import Evaluation, ParentPolicy
from golem_forge.policy.fingerprint import DirectoryNames
from golem_forge.policy.hooks import HookSet
from golem_forge.policy.reviewer import Reviewer
from golem_forge.policy.rules.book import RuleBook
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.storage.home import ForgeHome, forge_home
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.context import Plan, ProgramCalls, SessionParts, ToolContext
from golem_forge.tools.factory import as_tools
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.tool import Tool

if TYPE_CHECKING:
    from golem_forge.orchestrator.record import CallRecording
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


class CallState:
    """Holds what the stages learn about one call. One is made for every call, so only what differs from the defaults
    below is set.
    """

    tool: Tool = None  # type: ignore[assignment]
    """Set by the resolve stage; later stages use it without a None check."""
    arguments: Arguments = None  # type: ignore[assignment]
    """Set by the validate stage; replaced when a person edits them."""
    ctx: ToolContext | None = None
    proposed = False
    """Whether the journal already has the record of the proposal."""
    plan: Plan | None = None
    planned_at = 0
    """The gate's generation when the plan was made: a writer that passed since may have made it stale."""
    found_at = 0
    """The gate's generation when the tool was looked up; set only for a tool that is made from files."""
    judged: Evaluation | None = None
    """The full evaluation; None for a call that the quick path decided."""
    decision: Decision | None = None
    approved_as = ""
    """The fingerprint that was approved, for the journal; empty again once the call has to be judged anew."""
    notes: tuple[str, ...] = ()
    asked = False
    edited = False
    """Whether a person changed the arguments on a card."""
    edits: tuple[str, ...] = ()
    """Who changed which arguments, shown to the next person who is asked."""
    stop_turn = False
    executed = False
    ended = False
    handover_sources: tuple[VerdictSource, ...] = ()
    """Policy verdicts of the tools that handed this call over."""
    callers: tuple[tuple[str, str], ...] = ()
    """(call id, tool) of the tools that call each other down to this one, outermost first."""
    parent: CallState | None = None
    """The running call whose tool makes this one; it runs under that call's slot at the gate."""
    depth = 0
    place: Place = ALONE
    """Where it stands among the calls of its batch."""
    recording: CallRecording | None = None
    """Records what the call changes in the zones while it runs."""
    hook_lines: tuple[str, ...] = ()
    """Texts from hooks, shown on the approval card."""
    program: ProgramCalls | None = None
    """The program (several calls in one piece of code) that this call belongs to."""
    keeps_whole = False
    """Whether the Outcome keeps the whole result too, not only the shortened one."""
    calls_read_secret = False
    """Whether a call that its tool made has read a secret file: its own result may tell of it."""
    reads_only = False
    """Whether the call holds a reader's slot at the gate."""

    def __init__(self, call: ToolCall, signal: InterruptSignal, waiting: InterruptSignal) -> None:
        self.call = call
        self.signal = signal
        """Ends the call even while it runs."""
        self.waiting = waiting
        """Ends the call only while it waits: the same signal, or the batch's."""
        self.started = perf_counter()

    def share_slot(self) -> None:
        """Takes the parent's slot at the gate. Refuses a writer under a reader's slot: a tool that says it only reads
        calls no writer.
        """
        assert self.parent is not None
        if not self.tool.gated:  # what it waits for would wait for the slot its caller holds, for ever
            raise ForgeError(
                f"'{self.tool.name}' cannot be called from inside another tool ('{self.parent.tool.name}').",
                status=Status.POLICY_DENIED,
                code="HOLDS_SLOT",
            )
        if self.parent.reads_only and not self.read_only:
            raise ForgeError(
                f"'{self.parent.tool.name}' is declared read_only and cannot call '{self.tool.name}', which is not.",
                status=Status.POLICY_DENIED,
                code="READ_ONLY_CALLER",
            )
        self.reads_only = self.parent.reads_only

    @property
    def reads_secret(self) -> bool:
        if self.calls_read_secret:
            return True
        effects = self.judged.facts.effects if self.judged else None
        return any(Mark.SECRET_PATH in effect.marks and effect.verb is Verb.READ for effect in effects or ())

    @property
    def judged_as(self) -> str:
        return self.decision.fingerprint if self.decision else ""

    @property
    def read_only(self) -> bool:
        plan = self.plan
        return self.tool.read_only if plan is None or plan.read_only is None else plan.read_only

    def close(self) -> None:
        """Releases what the plan holds open; safe to call again."""
        plan, self.plan = self.plan, None
        if plan is not None:
            plan.release()

    def detached_copy(self) -> CallState:
        """Returns a copy with only what a tool needs to call another tool after its own call has ended, so that the
        rest can be freed.
        """
        left = CallState(self.call, self.signal, self.waiting)
        left.tool, left.depth, left.callers, left.ended = self.tool, self.depth, self.callers, True
        return left

    def outcome(self, status: Status, *, result: ToolResult | None = None, error: str = "", code: str = "") -> Outcome:
        outcome = Outcome(  # by position: made for every call, and keywords would double its cost
            self.call,
            self.tool.name if self.tool else str(self.call.name)[:200],
            status,
            result,
            error,
            code,
            self.decision,
            self.arguments.plain if self.arguments else None,
            (perf_counter() - self.started) * 1000,
            self.executed,
        )
        if self.notes or self.stop_turn:
            outcome.notes, outcome.stop_turn = self.notes, self.stop_turn
        return outcome


def describe_changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Describes an edit, e.g. `The user changed: branch "main" → "dev".` Returns an empty text if nothing changed."""

    def spell(args: dict[str, Any], name: str) -> str:
        if name not in args:
            return "(nothing)"
        return shorten_middle(json.dumps(args[name], ensure_ascii=False, default=str), 200, "…")

    names = [name for name in {**before, **after} if spell(before, name) != spell(after, name)]
    if not names:
        return ""
    return "The user changed: " + ", ".join(f"{n} {spell(before, n)} → {spell(after, n)}" for n in names) + "."
