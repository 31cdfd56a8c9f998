"""Hooks as policy sees them: which are asked about a call, what they are told, and what their answer means.

Takes a `HookRun`, how the process of one hook ended (`policy/hook_process.py`); gives a `HookAnswer`. Nothing is
started here.

A hook only tightens. What would loosen a verdict is ignored, with a warning; an answer at `before_call` that cannot be
read, and one that wants other arguments, refuses the call. Exit code 0 is fine, with JSON or text on standard output; 2
refuses at `before_call` and speaks to the model elsewhere; anything else is a failure.

Names of other agents' hooks are understood on both sides: `ALIASES` is the table, and the guide shows it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.hooks_block import PATHS, Hook, HookAudience, HookPoint
from golem_forge.core.decisions import Verdict, VerdictSource, strictest
from golem_forge.core.json import unique_members
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, one_line, shorten, shorten_middle
from golem_forge.policy.rules.model import name_glob, path_matches_glob

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.model import UncoveredPath
    from golem_forge.storage.content_store import Snapshot

MOST_TOLD: Final = 4000
"""Characters that a hook may tell the model at once."""
MOST_LINE: Final = 300
"""Maximum characters of a line that a person reads."""
MOST_PATHS: Final = 1000
SOURCE: Final = "hook"
"""The `source` of verdicts that come from hooks."""
REFUSES: Final = 2
EVENT_NAMES: Final = {
    HookPoint.SESSION_START: "SessionStart",
    HookPoint.TURN_START: "UserPromptSubmit",
    HookPoint.BEFORE_CALL: "PreToolUse",
    HookPoint.AFTER_CALL: "PostToolUse",
    HookPoint.QUESTION: "Notification",
    HookPoint.TURN_END: "Stop",
    HookPoint.SESSION_END: "SessionEnd",
}
ALIASES: Final = {
    "session": ("session_id",),
    "directory": ("cwd",),
    "tool": ("tool_name", "toolName"),
    "arguments": ("tool_input", "toolArgs"),
    "call": ("tool_use_id",),
    "outcome": ("tool_response",),
    "message": ("prompt",),
    "summary": ("last_assistant_message",),
}
"""Member of a hook's input → the names that other agents use for it."""
ARGUMENT_ALIASES: Final = {"cmd": "command", "path": "file_path"}
"""Argument names of native tools → those of other agents; added only in `tool_input` and `toolArgs`."""
_VERDICTS: Final = {
    "blocked": Verdict.BLOCKED,
    "block": Verdict.BLOCKED,
    "deny": Verdict.BLOCKED,
    "ask": Verdict.ASK,
    "preApproved": Verdict.PRE_APPROVED,
    "allow": Verdict.PRE_APPROVED,
    "approve": Verdict.PRE_APPROVED,
}
_SAYS_NOTHING: Final = frozenset({"", "defer"})
_SPECIFIC: Final = "hookSpecificOutput"
_VERDICT_NAMES: Final = ("verdict", "permissionDecision", "permission", "decision")
_REASON_NAMES: Final = ("reason", "permissionDecisionReason", "stopReason")
_MODEL_NAMES: Final = ("additionalContext", "agent_message", "agentMessage")
_PERSON_NAMES: Final = ("systemMessage", "user_message", "userMessage")
_EDITS: Final = ("updatedInput", "modifiedArgs", "updated_input")
_ANSWER: Final = regex(r"(?:^|\r)[ \t]*\{", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyHook:
    """A hook of a session, with the files that it runs from."""

    hook: Hook
    snapshot: Snapshot | None = None
    """The trusted copies of the program's files that the command names. None if it names none, or if the hook is the
    person's own.
    """
    folders: tuple[str, ...] = ()
    """Below the snapshot, where Python finds what those files import."""


@dataclass(frozen=True, slots=True)
class HookSet:
    """The hooks of a session."""

    hooks: tuple[ReadyHook, ...]

    def at(self, point: HookPoint) -> tuple[ReadyHook, ...]:
        return tuple(each for each in self.hooks if each.hook.on is point)

    def for_call(self, point: HookPoint, *names: str) -> tuple[ReadyHook, ...]:
        """Returns the hooks of this point that match one of the tool names; arguments are not looked at."""
        return tuple(each for each in self.at(point) if _names_tool(each.hook, names))


def _names_tool(hook: Hook, names: Iterable[str]) -> bool:
    return not hook.tools or any(name_glob(each).fullmatch(name) for each in hook.tools for name in names if name)


def matching_paths(hook: Hook, paths: Iterable[str]) -> list[str]:
    """Returns the virtual paths that the hook's globs match."""
    return [path for path in paths if not hook.paths or any(_matches(glob, path) for glob in hook.paths)]


def _matches(glob: str, path: str) -> bool:
    return path_matches_glob(glob, path if glob.startswith("/") else path.lstrip("/").partition("/")[2])


def needs_paths(hook: Hook) -> bool:
    """Whether the hook is skipped if no path matches."""
    return bool(hook.paths) or PATHS in hook.run


def hook_input(hook: Hook, facts: Mapping[str, Any]) -> bytes:
    """Returns the JSON for the hook's standard input: Forge's member names, and beside them those of other agents."""
    said: dict[str, Any] = {"hook": hook.name, "on": hook.on.value, **facts}
    for name, others in ALIASES.items():
        if name in said:
            value = said[name]
            if name == "arguments" and isinstance(value, Mapping):
                value = {**value, **{new: value[old] for old, new in ARGUMENT_ALIASES.items() if old in value}}
            said |= dict.fromkeys(others, value)
    said["hook_event_name"] = EVENT_NAMES[hook.on]
    if "round" in said:
        said["stop_hook_active"] = said["round"] > 0
    return json.dumps(said, default=str).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOrder:
    """A request to start a hook once."""

    ready: ReadyHook
    input: bytes
    paths: Sequence[str] = ()
    """Virtual paths that replace `{paths}` in the command."""
    may_write: bool = False
    not_kept: tuple[tuple[str, UncoveredPath], ...] = ()
    """What could not be undone, and is therefore read-only for the hook (`Coverage.not_kept`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRun:
    """The result of a hook's process."""

    exit_code: int | None = None
    out: str = ""
    err: str = ""
    problem: str = ""
    """Why it has no answer, in words that follow the hook's name; empty: it ended by itself."""
    seconds: float = 0.0
    left_out: int = 0
    """Number of paths that did not fit into its command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    verdict: Verdict | None = None
    """ASK or BLOCKED."""
    reason: str = ""
    to_model: str = ""
    to_person: str = ""
    """A line that is shown to the person."""
    failure: str = ""
    """Why the hook failed; empty if it did not."""
    warnings: tuple[str, ...] = ()
    sends_back: bool = False
    """At `turn_end`: the text for the model is sent as a message that the model has to answer."""


def read_answer(hook: Hook, run: HookRun) -> HookAnswer:
    if run.problem:
        return HookAnswer(failure=run.problem)
    if run.exit_code == REFUSES:
        said = _bounded(run.err.strip() or run.out.strip()) or "it gave no reason"
        if hook.on is HookPoint.BEFORE_CALL:
            return HookAnswer(verdict=Verdict.BLOCKED, reason=_line(said))
        return HookAnswer(to_model=said, sends_back=True)
    if run.exit_code != 0:
        return _failed(hook, run)
    text = run.out.removeprefix("\ufeff").strip()
    if answer := _json_part(hook, text):
        parsed: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            parsed = json.loads(answer, object_pairs_hook=unique_members)
        if isinstance(parsed, dict):
            return _Reader(hook, parsed).answer()
        if hook.on is HookPoint.BEFORE_CALL and (parsed is not None or answer.startswith("{")):
            return HookAnswer(failure="answered with JSON that cannot be read")
    return _addressed(hook, _bounded(text)) if hook.tell is not None else HookAnswer()


def _json_part(hook: Hook, text: str) -> str:
    """The answer in what a hook printed; empty: there is none. Threat: a `before_call` hook that prints a line before
    or after it refuses, and is taken for one that says nothing: from the first brace at the start of a line on it must
    be one answer. Elsewhere what a hook prints is for the model."""
    if text.startswith("{") or hook.on is not HookPoint.BEFORE_CALL:
        return text if text.startswith("{") else ""
    if text.startswith(("[", '"')):  # perhaps JSON, and no answer
        return text
    found = _ANSWER.search(text)
    return text[found.start() :].lstrip() if found is not None else ""


def _failed(hook: Hook, run: HookRun) -> HookAnswer:
    said = _line(run.err.strip().rpartition("\n")[2])
    failure = f"ended with exit code {run.exit_code}" + (f": {said}" if said else "")
    if hook.tell not in (HookAudience.MODEL, HookAudience.BOTH):
        return HookAnswer(failure=failure)
    output = _bounded("\n".join(part for part in (run.out.strip(), run.err.strip()) if part))
    return HookAnswer(failure=failure, to_model=output or failure, sends_back=True)


def _addressed(hook: Hook, text: str) -> HookAnswer:
    to_model = text if hook.tell in (HookAudience.MODEL, HookAudience.BOTH) else ""
    return HookAnswer(to_model=to_model, to_person=_line(text) if hook.tell is not HookAudience.MODEL else "")


class _Reader:
    """Reads the members of a hook's JSON answer."""

    def __init__(self, hook: Hook, said: dict[str, Any]) -> None:
        self._hook = hook
        specific = said.get(_SPECIFIC)
        self._places = (said, specific) if isinstance(specific, dict) else (said,)
        self._unread = specific is not None and not isinstance(specific, dict)

    def answer(self) -> HookAnswer:
        hook, before = self._hook, self._hook.on is HookPoint.BEFORE_CALL
        if before and any(name in place for place in self._places for name in _EDITS):
            return HookAnswer(failure="wants to change the arguments, which no hook can")
        if before and self._unread:
            return HookAnswer(failure=f"answered with a {_SPECIFIC} that cannot be read")
        words, reason = self._verdict_words(), self._text(_REASON_NAMES)
        warnings: tuple[str, ...] = ()
        strange = next((word for word in words if word not in _VERDICTS), "")
        known = [_VERDICTS[word] for word in words if word in _VERDICTS]
        verdict = strictest(known) if known else None
        if self._places[0].get("continue") is False:
            verdict = Verdict.BLOCKED
        elif strange and before:
            return HookAnswer(failure=f"answered with the verdict {_line(strange)!r}, which nobody knows")
        elif strange:
            warnings = (f"its verdict {_line(strange)!r} has no meaning and was ignored",)
        if verdict is Verdict.PRE_APPROVED or (verdict is Verdict.ASK and not before):
            verdict = None
            warnings = (*warnings, f"its verdict {words[0]!r} was ignored: a hook can only make things stricter")
        told = _addressed(hook, self._told(("tell",)))
        to_model = "\n".join(part for part in (told.to_model, self._told(_MODEL_NAMES)) if part)
        to_person = " ".join(part for part in (told.to_person, _line(self._told(_PERSON_NAMES))) if part)
        if verdict is Verdict.BLOCKED and hook.on in (HookPoint.AFTER_CALL, HookPoint.TURN_END):
            to_model, verdict = "\n".join(part for part in (_bounded(reason), to_model) if part), None
        if before:  # there is only the card
            to_person, to_model = " ".join(part for part in (to_person, _line(to_model)) if part), ""
        return HookAnswer(
            verdict=verdict,
            reason=_line(reason) or ("it gave no reason" if verdict is not None else ""),
            to_model=to_model,
            to_person=to_person,
            warnings=warnings,
            sends_back=bool(to_model),
        )

    def _verdict_words(self) -> list[str]:
        """Under whatever names and in whatever place: the strictest counts."""
        found = (place[name] for name in _VERDICT_NAMES for place in self._places if name in place)
        words = [each if isinstance(each, str) else repr(each) for each in found if each is not None]
        return [word for word in words if word not in _SAYS_NOTHING]

    def _text(self, names: Sequence[str]) -> str:
        found = (place[name] for name in names for place in self._places if name in place)
        return next((each if isinstance(each, str) else repr(each) for each in found if each is not None), "")

    def _told(self, names: Sequence[str]) -> str:
        return _bounded(self._text(names).strip())


def _bounded(text: str) -> str:
    return shorten_middle(text, MOST_TOLD, "\n … \n")


def _line(text: str) -> str:
    return shorten(one_line(text), MOST_LINE)


def verdict_source(hook: Hook, answer: HookAnswer) -> VerdictSource | None:
    """Turns an answer at `before_call` into a verdict. A hook that failed blocks, because `approve_all` would answer an
    `ask`.
    """
    if answer.failure:
        reason = f"the hook '{hook.name}' {answer.failure}; the call was not run"
        return VerdictSource(source=SOURCE, verdict=Verdict.BLOCKED, id=hook.name, reason=reason, file=hook.origin)
    if answer.verdict is None:
        return None
    return VerdictSource(source=SOURCE, verdict=answer.verdict, id=hook.name, reason=answer.reason, file=hook.origin)


def told_model(hook: Hook, text: str) -> str:
    """A hook's words in a text that a model reads: each of its lines has a bar before it, so that none passes for a
    line of Forge's."""
    lines = "\n".join(f"  | {line}" for line in escape_control_chars(text).splitlines())
    return f"The hook '{hook.name}' says:\n{lines}"


def asks_of_hooks(sources: Collection[VerdictSource]) -> frozenset[tuple[str, str]]:
    """Returns (hook, reason) of each hook that asks."""
    asking = (each for each in sources if each.source == SOURCE and each.verdict is Verdict.ASK)
    return frozenset((each.id, each.reason) for each in asking)
