"""ToolCall (one request) and Outcome (what became of it)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from golem_forge.core.decision import Decision
from golem_forge.core.ids import new_id
from golem_forge.core.leftovers import Leftover, leftover_lines
from golem_forge.core.result import ToolResult
from golem_forge.core.verdict import Status, Word


class Caller(Word, noun="caller"):
    """Who asks. The caller decides which tools exist for it, never how strictly a call is judged."""

    LLM = "llm"
    HUMAN = "human"
    MCP = "mcp"
    TOOL = "tool"


@dataclass(slots=True)
class ToolCall:
    name: str
    args: Any
    """As it arrived: a mapping, or the raw JSON text of one."""
    caller: Caller = Caller.LLM
    id: str = field(default_factory=new_id)
    parent_id: str = ""
    caller_name: str = ""
    """Which client of the MCP server asks, as the journal names it (`mcp:laptop`); empty: the kind says it all."""
    problem: str = ""
    """Why it cannot be a call at all (its text was cut off): it gets its Outcome, `input_invalid`, and never runs."""

    @property
    def recorded_caller(self) -> str:
        return f"{self.caller.value}:{self.caller_name}" if self.caller_name else self.caller.value


def call_of(named: Any, args: Any, caller: Caller | str | None, where: str) -> ToolCall:
    """One call as embedders write it: a name and its arguments, or a ToolCall, which has everything. TypeError for
    another shape, ValueError for a caller that there is not; `where` is what was called."""
    if isinstance(named, str):
        return ToolCall(named, args, Caller.LLM if caller is None else Caller(caller))
    if not isinstance(named, ToolCall):
        kind = f"a {type(named).__name__}" if named is not None else "None"
        raise TypeError(f"{where} takes a name and arguments, {where}('NAME', {{…}}), or one ToolCall; not {kind}")
    if args is not None or caller is not None:
        raise TypeError(f"{where}: a ToolCall has its own arguments and caller")
    return named


@dataclass(slots=True)
class Outcome:
    call: ToolCall
    tool: str
    """The canonical name, after aliases and hand-overs; the requested name when nothing was found."""
    status: Status
    result: ToolResult | None = None
    error: str = ""
    """Why it is not a success, in words for the caller; empty on success."""
    code: str = ""
    decision: Decision | None = None
    args: dict[str, Any] | None = None
    """The validated arguments that ran (or would have run), after any edit by a person."""
    duration_ms: float = 0.0
    executed: bool = False
    """Whether the tool's code was entered."""
    truncated: bool = False
    output_handle: str = ""
    notes: tuple[str, ...] = ()
    """What the caller must know besides the result, e.g. what a person changed before approving."""
    stop_turn: bool = False
    """The person denied and ended the turn: the rest of the batch is skipped."""
    denials: tuple[dict[str, Any], ...] = ()
    protected_created: tuple[str, ...] = ()
    """Protected names, as virtual paths, that exist now and did not before."""
    leftovers: tuple[Leftover, ...] = ()
    """What the command left in a zone that the person's own programs would run or obey."""

    @property
    def ok(self) -> bool:
        return self.status is Status.SUCCESS

    @property
    def text(self) -> str:
        """What the caller reads: what was left behind, the notes, then the result or the reason there is none."""
        left = self.left_lines
        return "\n".join(part for part in (*left, self.own_text) if part) if left else self.own_text

    @property
    def left_lines(self) -> tuple[str, ...]:
        """`protected_created` and `leftovers`, one line each."""
        if not (self.protected_created or self.leftovers):
            return ()
        return tuple(line.text for line in leftover_lines(self.protected_created, self.leftovers))

    @property
    def own_text(self) -> str:
        """The text without what was left behind, for who shows that apart from it."""
        body = self.result.text if self.result and self.result.text else self.error
        if self.error and self.result and self.result.text and self.error not in body:
            body = f"{self.error}\n{body}"
        return "\n".join((*self.notes, body)) if self.notes else body
