"""ToolCall (one request) and Outcome (what became of it), with the parts an Outcome is made of.

`ToolCompletion` is what a tool returns when its call did not simply succeed or fail: a tool that runs processes knows
that the walls refused something, that a limit was reached, or which part of its output is already stored. Any other
tool returns its value, or raises.

`Leftover` is something a command left in a zone that the user's own programs would run or obey. `sandbox` finds it when
the command has ended; the Outcome carries it to the model, the journal and every UI. It is one line of text everywhere,
without a host path.

`outcome_json` gives an Outcome to programs as JSON, `EXIT_CODES` as the exit code of `forge call`. Nothing here does
I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from golem_forge.core.decisions import ChoiceEnum, Decision, Status
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.results import ToolResult
from golem_forge.core.text import display_name, shorten


class Caller(ChoiceEnum, noun="caller"):
    """The kind of caller. It decides which tools the caller sees, never how strictly a call is judged."""

    LLM = "llm"
    HUMAN = "human"
    MCP = "mcp"
    TOOL = "tool"


@dataclass(slots=True)
class ToolCall:
    name: str
    args: Any
    """The arguments as they arrived: a mapping, or the raw JSON text of one."""
    caller: Caller = Caller.LLM
    id: str = field(default_factory=new_id)
    parent_id: str = ""
    caller_name: str = ""
    """The MCP client that makes the call, as the journal names it (`mcp:laptop`); empty if the kind is enough."""
    problem: str = ""
    """Why it cannot be a call at all (its text was cut off): it gets its Outcome, `input_invalid`, and never runs."""

    @property
    def recorded_caller(self) -> str:
        return f"{self.caller.value}:{self.caller_name}" if self.caller_name else self.caller.value


def to_tool_call(named: Any, args: Any, caller: Caller | str | None, where: str) -> ToolCall:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPart:
    """A picture, a sound or a file in a result. Its bytes are kept by handle, as base64 lines."""

    handle: str
    media_type: str
    size: int
    """Size in bytes."""
    width: int = 0
    height: int = 0
    """Height in pixels; 0 if unknown or not a picture."""

    @property
    def text(self) -> str:
        """The line that stands for it where it cannot be shown."""
        pixels = f", {self.width} × {self.height}" if self.width and self.height else ""
        return f"[{self.media_type}{pixels}, {self.size:,} bytes, handle {self.handle}]"

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"handle": self.handle, "mediaType": self.media_type, "size": self.size}
        return wire | ({"width": self.width, "height": self.height} if self.width and self.height else {})


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
    """Whether the tool's code was started."""
    truncated: bool = False
    output_handle: str = ""
    notes: tuple[str, ...] = ()
    """Texts for the caller besides the result, e.g. what a person changed before approving."""
    stop_turn: bool = False
    """The person denied and ended the turn: the rest of the batch is skipped."""
    denials: tuple[dict[str, Any], ...] = ()
    protected_created: tuple[str, ...] = ()
    """Protected names, as virtual paths, that exist now and did not before."""
    leftovers: tuple[Leftover, ...] = ()
    """Files and settings that the command left in a zone and that the person's own programs would run or obey."""
    hook_texts: tuple[str, ...] = ()
    """Texts for the caller from hooks that ran after the call."""
    whole: ToolResult | None = field(default=None, compare=False, repr=False)
    """The result before it was cut, redacted like it, for a program that made the call; never recorded or shown."""
    media: tuple[MediaPart, ...] = ()
    """The pictures, sounds and files of the result, in its order."""

    @property
    def ok(self) -> bool:
        return self.status is Status.SUCCESS

    @property
    def text(self) -> str:
        """Returns the text for the caller: leftovers, notes, the result or the reason there is none, then the hooks'
        texts.
        """
        return "\n".join(part for part in (*self.leftover_texts, self.text_without_leftovers) if part)

    @property
    def leftover_texts(self) -> tuple[str, ...]:
        """`protected_created` and `leftovers`, one line each."""
        if not (self.protected_created or self.leftovers):
            return ()
        return tuple(line.text for line in leftover_lines(self.protected_created, self.leftovers))

    @property
    def text_without_leftovers(self) -> str:
        """The text without what was left behind, for who shows that apart from it."""
        body = self.result.text if self.result and self.result.text else self.error
        if self.error and self.result and self.result.text and self.error not in body:
            body = f"{self.error}\n{body}"
        if not (self.notes or self.hook_texts):
            return body
        return "\n".join(part for part in (*self.notes, body, *self.hook_texts) if part or not self.hook_texts)


@dataclass(slots=True, kw_only=True)
class ToolCompletion:
    result: ToolResult
    status: Status = Status.SUCCESS
    error: str = ""
    """Why it is no success, in words for the caller; empty: the result's text says it."""
    code: str = ""
    denials: tuple[dict[str, Any], ...] = ()
    """What the walls refused, each as `{kind, target, access, why, widen}`."""
    protected_created: tuple[str, ...] = ()
    """Protected names, as virtual paths, that exist now and did not before."""
    leftovers: tuple[Leftover, ...] = ()
    """Files and settings that the command left in a zone and that the person's own programs would run or obey."""
    output_handle: str = ""
    """The whole output, already kept; the result's text is then bounded and is not bounded again."""
    stop_turn: bool = False
    """A person, asked by a worker below, ended the turn: that ends the turn of those above it too."""
    bounded: bool = False
    """The tool has a limit of its own for its text and kept to it, whether or not anything was cut."""


LEFTOVERS: Final = "leftovers"
"""The code of a `status` event that tells of a command which no call reports on."""
MAX_LEFTOVER_LINES: Final = 20
_MAX_LINE_CHARS: Final = 2000


class Severity(StrEnum):
    NOTE = "note"
    """Ordinary work, listed because git does not show it: packages installed into `.venv`."""
    WARNING = "warning"
    """Look at it before you run something in this directory."""
    CRITICAL = "critical"
    """Somebody tried to make your programs run code. Forge undid what it could, and the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    kind: str
    """`nested_repository`, `hidden_code`, `obeyed_name`, `git_head`, `git_refs`, `git_index`, `git_sequencer`, …"""
    severity: Severity
    text: str
    """One line for a person and for the model, with virtual paths."""
    paths: tuple[str, ...] = ()
    """The virtual paths concerned; at most 20."""

    def to_wire(self) -> dict[str, Any]:
        return {"kind": self.kind, "severity": self.severity.value, "text": self.text, "paths": list(self.paths)}

    @classmethod
    def from_wire(cls, said: Mapping[str, Any]) -> Leftover:
        """Takes any mapping: a severity that is not known is a warning."""
        severity, paths = said.get("severity"), said.get("paths")
        return cls(
            kind=str(said.get("kind", "")),
            severity=next((one for one in Severity if one == severity), Severity.WARNING),
            text=str(said.get("text", "")),
            paths=tuple(map(str, paths)) if isinstance(paths, (list, tuple)) else (),
        )


@dataclass(frozen=True, slots=True)
class LeftoverLine:
    severity: Severity
    text: str


def leftover_lines(created: Iterable[str], leftovers: Iterable[Leftover]) -> list[LeftoverLine]:
    """Returns the lines that every interface shows: the most severe first, at most 20 lines and one that counts the
    rest. `created`: protected names that did not exist before.

    Threat: these texts hold file names that a command chose. Each stays one line without control characters, so that no
    name can look like a line of Forge's own. And a command chooses how many there are: each kind of each severity has
    its first line before any has its second, so that many of one kind push no other out of sight.
    """
    rank = list(Severity)
    turns: Counter[tuple[Severity, str]] = Counter()
    lines: list[tuple[int, LeftoverLine]] = []

    def add(severity: Severity, kind: str, text: str) -> None:
        lines.append((turns[severity, kind], LeftoverLine(severity, text)))
        turns[severity, kind] += 1

    for path in created:
        add(Severity.WARNING, "protected_created", f"Protected file created: {_one_line(path)}")
    for one in leftovers:
        add(one.severity, one.kind, f"Left behind ({one.severity}): {_one_line(one.text)}")
    lines.sort(key=lambda each: -rank.index(each[1].severity))
    shown = sorted(range(len(lines)), key=lambda index: (lines[index][0], index))[:MAX_LEFTOVER_LINES]
    found = [lines[index][1] for index in sorted(shown)]
    if rest := [lines[index][1] for index in sorted(set(range(len(lines))).difference(shown))]:
        found.append(LeftoverLine(rest[0].severity, f"and {len(rest)} more"))
    return found


def _one_line(text: str) -> str:
    return shorten(display_name(text), _MAX_LINE_CHARS)


EXIT_CODES: Final = {
    Status.SUCCESS: 0,
    Status.EXECUTION_FAILED: 1,
    Status.INPUT_INVALID: 2,
    Status.APPROVAL_DENIED: 3,
    Status.POLICY_DENIED: 3,
    Status.SANDBOX_DENIED: 3,
    Status.TOOL_NOT_FOUND: 4,
    Status.TIMEOUT: 124,
    Status.INTERRUPTED: 130,
    Status.SKIPPED: 130,
}


def outcome_json(outcome: Outcome, session_id: str) -> dict[str, Any]:
    result = outcome.result
    return {
        "status": outcome.status.value,
        "tool": outcome.tool,
        "callId": outcome.call.id,
        "sessionId": session_id,
        "args": outcome.args,
        "text": outcome.text,
        "value": result.value if result else None,
        **({"structured": result.structured} if result and result.structured is not None else {}),
        "error": outcome.error or None,
        "code": outcome.code or None,
        "durationMs": round(outcome.duration_ms, 3),
        "truncated": outcome.truncated,
        "outputHandle": outcome.output_handle or None,
        "protectedCreated": list(outcome.protected_created),
        "leftovers": [one.to_wire() for one in outcome.leftovers],
        **({"media": [one.to_wire() for one in outcome.media]} if outcome.media else {}),
        "decision": outcome.decision.to_json() if outcome.decision else None,
    }
