"""CallState: one call on its way through the stages. Each stage reads what the earlier ones filled in."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from golem_forge.core.calls import Outcome, ToolCall
from golem_forge.core.decisions import Decision, Status, VerdictSource
from golem_forge.core.effects import Mark, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.results import ToolResult
from golem_forge.core.signals import InterruptSignal
from golem_forge.core.text import shorten_middle
from golem_forge.orchestrator.changes import CallRecording
from golem_forge.policy.evaluate import Evaluation
from golem_forge.tools.context import Plan, ProgramCalls, ToolContext
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.tool import Tool


class CallState:
    """Made for every call, so only what differs from the defaults below is ever set."""

    tool: Tool = None  # type: ignore[assignment]
    """From resolve on. (None before: every stage after it may rely on it without asking.)"""
    arguments: Arguments = None  # type: ignore[assignment]
    """From validate on; an edit by a person replaces them."""
    ctx: ToolContext | None = None
    proposed = False
    """Whether the journal already has it."""
    plan: Plan | None = None
    planned_at = 0
    """The gate's generation when the plan was made: a writer that passed since may have made it stale."""
    found_at = 0
    """The gate's generation when the tool was looked up; only of a tool that is made from files."""
    judged: Evaluation | None = None
    """None for a call that was decided at once."""
    decision: Decision | None = None
    approved_as = ""
    """The fingerprint that was approved, for the journal; empty again once the call has to be judged anew."""
    notes: tuple[str, ...] = ()
    asked = False
    edited = False
    """Whether a person changed the arguments on a card."""
    edits: tuple[str, ...] = ()
    """Who changed what, for whoever is asked next."""
    stop_turn = False
    executed = False
    ended = False
    handover_sources: tuple[VerdictSource, ...] = ()
    """What is said of the tools that handed this call on."""
    callers: tuple[tuple[str, str], ...] = ()
    """(call id, tool) of the tools that call each other down to this one, outermost first."""
    parent: CallState | None = None
    """The running call whose tool makes this one; it runs under that call's slot at the gate."""
    depth = 0
    recording: CallRecording | None = None
    """What it changes in the zones, while it runs."""
    hook_lines: tuple[str, ...] = ()
    """What hooks say about it, for its card."""
    program: ProgramCalls | None = None
    """Of the program that this call is a part of."""
    keeps_whole = False
    """Whether its Outcome has what was cut of the result, too."""
    reads_only = False
    """Whether the slot at the gate it runs under is a reader's."""

    def __init__(self, call: ToolCall, signal: InterruptSignal, waiting: InterruptSignal) -> None:
        self.call = call
        self.signal = signal
        """Ends the call even while it runs."""
        self.waiting = waiting
        """Ends the call only while it waits: the same signal, or the batch's."""
        self.started = perf_counter()

    def share_slot(self) -> None:
        """Refuses what would let a writer run beside readers: a tool that says it only reads calls no writer."""
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
        """What a tool is told by that calls another one after its end; all else that belonged to the call can go."""
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
    """`The user changed: branch "main" → "dev".`"""
    import json

    def spell(args: dict[str, Any], name: str) -> str:
        if name not in args:
            return "(nothing)"
        return shorten_middle(json.dumps(args[name], ensure_ascii=False, default=str), 200, "…")

    names = [name for name in {**before, **after} if spell(before, name) != spell(after, name)]
    if not names:
        return ""
    return "The user changed: " + ", ".join(f"{n} {spell(before, n)} → {spell(after, n)}" for n in names) + "."
