"""CallState: one call on its way through the stages. Each stage reads what the earlier ones filled in."""

from __future__ import annotations

import json
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
    recording: CallRecording | None = None
    """Records what the call changes in the zones while it runs."""
    hook_lines: tuple[str, ...] = ()
    """Texts from hooks, shown on the approval card."""
    program: ProgramCalls | None = None
    """The program (several calls in one piece of code) that this call belongs to."""
    keeps_whole = False
    """Whether the Outcome keeps the whole result too, not only the shortened one."""
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
