"""How much of a run is shown: quiet, summary, normal or debug. Events in, styled lines out.

A formatter has state (what was streamed, which answer waits, the totals): it serves one session, in event order.
Called with an event it prints the lines: `WorkerRuntime(on_event=create_trace_formatter())`.
At quiet and summary only the final answer of a turn is shown, so a message waits until the turn ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, TextIO

from golem_forge.core.leftovers import Severity
from golem_forge.events.envelope import Event
from golem_forge.ui.output import Output
from golem_forge.ui.rendering import calls, plans, reports, results
from golem_forge.ui.rendering.card import answered, card
from golem_forge.ui.rendering.diffs import diff_content, diff_summaries
from golem_forge.ui.rendering.lines import (
    Line,
    excerpt,
    indented,
    line,
    lines_of,
    mappings,
    number,
    one_line,
    plain_text,
    prose,
    speech,
    words,
    wrapped,
)
from golem_forge.ui.rendering.streams import ModelStreams, OutputStreams

Fields = Mapping[str, Any]
COMMAND: Final = "command"
"""The code of a status that answers a slash command: whoever typed it sees it, at every level."""
PERSON: Final = "human"
"""The caller of a tool that a person ran."""
TERMINAL: Final = "terminal"
"""The name of the UI whose own answers need no mention."""


class TraceLevel(StrEnum):
    QUIET = "quiet"
    SUMMARY = "summary"
    NORMAL = "normal"
    DEBUG = "debug"


_ORDER: Final = tuple(TraceLevel)


def create_trace_formatter(
    level: TraceLevel | str = TraceLevel.NORMAL,
    width: Callable[[], int] | None = None,
    output: TextIO | None = None,
) -> TraceFormatter:
    """`width`: the columns there are, to break prose at words; without it lines are as long as they are. `output`:
    where it prints when it is called; absent: standard output. ValueError names the levels."""
    return TraceFormatter(trace_level(level), width, output)


def trace_level(named: TraceLevel | str) -> TraceLevel:
    try:
        return TraceLevel(named)
    except ValueError:
        raise ValueError(f"trace level {named!r} is none of {', '.join(TraceLevel)}") from None


class TraceFormatter:
    def __init__(self, level: TraceLevel, width: Callable[[], int] | None = None, output: TextIO | None = None) -> None:
        self.level = level
        self.width = width
        self._output = output
        self._models = ModelStreams()
        self._outputs = OutputStreams()
        self._answer = ""
        """The last message of the root worker, while it may turn out to be the final one."""
        self._stream_id = ""
        self._tools: dict[str, str] = {}
        self._workers: dict[str, Fields] = {}
        self._cards: dict[str, Fields] = {}
        self._turns = 0
        self._by_person: set[str] = set()
        """Calls of a person that run: they see the result at every level."""
        self._used: Fields | None = None
        self._calls = self._failed = 0
        self._error = ""
        """The last error that was told: the end of the session does not repeat it."""
        self._refusal = ""
        """Why the last call failed, if that was told: the command that made it does not repeat it."""

    def format(self, event: Event) -> list[Line]:
        show = _SHOWN.get(event.type)
        rows = [] if show is None else show(self, event.wire, event.worker_id)
        if self.width is not None and event.type in _PROSE:
            columns = max(self.width() - 1, 20)
            rows = [part for row in rows for part in wrapped(row, columns)]
        if self.level is TraceLevel.DEBUG:
            rows = [*rows, line(f"event {event.to_json()}", "dim")]
        return rows

    def __call__(self, event: Event) -> None:
        """Prints the event's lines, without escapes."""
        if text := plain_text(self.format(event)):
            Output(self._output if self._output is not None else sys.stdout).write(text)

    def worker_tree(self) -> list[Line]:
        """Every worker of the session as it stands now."""
        return plans.worker_tree(self._workers.values())

    def rest(self) -> list[Line]:
        """What still waits, for who stops before the session has ended."""
        return [*self._models.rest(), *self._turn_ended({}, "")]

    def _at(self, least: TraceLevel) -> bool:
        return _ORDER.index(self.level) >= _ORDER.index(least)

    @property
    def _normal(self) -> bool:
        return self._at(TraceLevel.NORMAL)

    # ---- words of models and people

    def _message(self, data: Fields, worker_id: str) -> list[Line]:
        message = data.get("message")
        message = message if isinstance(message, Mapping) else {}
        text, role = words(message.get("content", "")), message.get("role")
        if role == "user":
            self._turns += 1
            return self._user_text(text, message) if self._at(TraceLevel.SUMMARY) else []
        if role == "system":
            return prose(text, "dim", "system: ") if self._at(TraceLevel.DEBUG) else []
        if self._normal:
            return self._named(speech(self._models.unspoken(text, worker_id)), worker_id)
        if not self._is_child(worker_id):
            self._answer = text
        return []

    def _user_text(self, text: str, message: Fields) -> list[Line]:
        attached = message.get("attachments")
        count = len(attached) if isinstance(attached, (list, tuple)) else 0
        rows = excerpt(speech(text, "user", "> "))
        return [*rows, [("user", f"> [{count} attached]")]] if count else rows

    def _streaming(self, data: Fields, worker_id: str) -> list[Line]:
        if self._normal:
            return self._named(self._models.add(data, worker_id), worker_id)
        request = words(data.get("requestId", ""))
        if data.get("delta") and request != self._stream_id and not self._is_child(worker_id):
            self._stream_id, self._answer = request, ""  # another request begins: what was said was not the end
        return []

    def _named(self, rows: list[Line], worker_id: str) -> list[Line]:
        """What a sub-worker says and does carries its name."""
        if not self._is_child(worker_id):
            return rows
        name = one_line(self._workers[worker_id].get("name", ""))
        return [[("dim", f"{name} │ "), *row] for row in rows]

    def _is_child(self, worker_id: str) -> bool:
        return number(self._workers.get(worker_id, {}).get("depth")) > 0

    def _turn_ended(self, data: Fields, worker_id: str) -> list[Line]:
        """`inputPrompt`: the prompt itself is the UI's to draw."""
        answer, self._answer = self._answer, ""
        return speech(answer.rstrip("\n"))

    def _status(self, data: Fields, worker_id: str) -> list[Line]:
        kind, text = data.get("type"), words(data.get("message", ""))
        if data.get("code") == COMMAND:
            told, self._refusal = self._refusal, ""
            return [] if kind == "error" and text == told else prose(text, "fail" if kind == "error" else "")
        if kind == "error":
            self._error = text
            return prose(f"error: {text}", "fail")
        if kind == "warning":
            return prose(f"warning: {text}", "warn") if self._at(TraceLevel.SUMMARY) else []
        return prose(text, "dim") if self._normal else []

    # ---- questions

    def _approval(self, data: Fields, worker_id: str) -> list[Line]:
        self._cards[words(data.get("requestId", ""))] = data
        return card(data)

    def _approval_resolved(self, data: Fields, worker_id: str) -> list[Line]:
        request = self._cards.pop(words(data.get("requestId", "")), None)
        return [] if request is None else [answered(request, data, here=TERMINAL)]

    def _form(self, data: Fields, worker_id: str) -> list[Line]:
        self._cards[words(data.get("requestId", ""))] = data
        title = line(f"── {words(data.get('source', ''))} asks: {words(data.get('title', ''))}", "title")
        fields = [
            line(words(one.get("label") or one.get("name") or ""), indent="  ") for one in mappings(data.get("fields"))
        ]
        url = [line(data["url"], indent="  ")] if data.get("url") else []
        return [title, *indented(lines_of(words(data.get("message", "")))), *url, *fields]

    def _form_resolved(self, data: Fields, worker_id: str) -> list[Line]:
        if self._cards.pop(words(data.get("requestId", "")), None) is None:
            return []
        return [line(f"form: {words(data.get('action', ''))}", "dim")]

    # ---- calls

    def _tool_started(self, data: Fields, worker_id: str) -> list[Line]:
        if data.get("caller") == "llm":
            self._answer = ""
        elif data.get("caller") == PERSON:
            self._by_person.add(words(data.get("toolCallId", "")))
        if not self._normal:
            return []
        self._tools[words(data.get("toolCallId", ""))] = words(data.get("toolName", ""))
        if self.level is TraceLevel.DEBUG:
            return self._named([calls.started({**data, "args": None}), *calls.arguments(data)], worker_id)
        return self._named([calls.started(data)], worker_id)

    def _tool_progress(self, data: Fields, worker_id: str) -> list[Line]:
        tool = self._tools.get(words(data.get("toolCallId", "")), "")
        return self._named([calls.progress(data, tool)], worker_id) if self._normal else []

    def _tool_output(self, data: Fields, worker_id: str) -> list[Line]:
        return self._named(indented(self._outputs.add(data), "  │ "), worker_id) if self._normal else []

    def _tool_result(self, data: Fields, worker_id: str) -> list[Line]:
        self._calls += 1
        self._failed += data.get("status") != "success"
        self._tools.pop(words(data.get("toolCallId", "")), None)
        rows = self._result_rows(data)
        if rows:
            self._refusal = words(data.get("error") or "")
        return self._named(rows, worker_id)

    def _result_rows(self, data: Fields) -> list[Line]:
        call = words(data.get("toolCallId", ""))
        by_person = call in self._by_person
        self._by_person.discard(call)
        self._answer = self._answer if by_person else ""  # a refused call has no start: words before it were no answer
        if not self._normal:
            if by_person:
                return results.result(data)
            if self.level is TraceLevel.SUMMARY:
                return [*results.failure(data), *results.left_behind(data, Severity.WARNING)]
            return results.left_behind(data, Severity.CRITICAL)
        if data.get("toolCallId") in self._outputs:
            rest = indented(self._outputs.finish(data.get("toolCallId")), "  │ ")
            rows = [*rest, *results.result_after_output(data)]
        else:
            rows = results.result(data)
        said = data.get("decision")
        if self.level is TraceLevel.DEBUG and isinstance(said, Mapping):
            rows += calls.decision(said)
        return rows

    # ---- the session

    def _worker(self, data: Fields, worker_id: str) -> list[Line]:
        self._workers[words(data.get("workerId", ""))] = data
        return [plans.worker(data)] if self._normal and number(data.get("depth")) > 0 else []  # a root alone is no tree

    def _usage(self, data: Fields, worker_id: str) -> list[Line]:
        session = data.get("session")
        self._used = session if isinstance(session, Mapping) else self._used
        return [line(f"usage: {reports.usage(data)}", "dim")] if self.level is TraceLevel.DEBUG else []

    def _context(self, data: Fields, worker_id: str) -> list[Line]:
        full = data.get("exceeded") is True
        if not self._at(TraceLevel.SUMMARY if full else TraceLevel.DEBUG):
            return []
        used, limit = int(number(data.get("tokensUsed"))), int(number(data.get("tokenLimit")))
        text = f"context: {used:,} of {limit:,} tokens"
        return [line(f"warning: {text}", "warn") if full else line(text, "dim")]

    def _session_end(self, data: Fields, worker_id: str) -> list[Line]:
        rows = self._turn_ended(data, worker_id)
        reason, message = data.get("reason"), data.get("message")
        about = f": {words(message)}" if message and message != self._error else ""
        if reason != "completed":
            ran = about or self._turns or self._calls
            failed = "session ended with an error" if ran else "nothing was run"
            told = "session interrupted" if reason == "interrupted" else failed
            rows += prose(told + about, "warn" if reason == "interrupted" else "fail")
        elif self._normal:
            rows += prose(f"session completed{about}", "dim")
        if self._at(TraceLevel.SUMMARY) and (self._calls or self._used is not None):
            rows.append(reports.totals(self._used, calls=self._calls, failed=self._failed))
        return rows


_Show = Callable[[TraceFormatter, Fields, str], list[Line]]


def _from_normal(render: Callable[[Fields], list[Line]]) -> _Show:
    return lambda self, data, _: render(data) if self._at(TraceLevel.NORMAL) else []


def _compacted(data: Fields) -> list[Line]:
    before, after = int(number(data.get("before"))), int(number(data.get("after")))
    return [line(f"context compacted: {before:,} → {after:,} tokens", "dim")]


_SHOWN: Final[Mapping[str, _Show]] = {
    "sessionStarted": _from_normal(lambda data: [reports.session_started(data)]),
    "message": TraceFormatter._message,
    "streaming": TraceFormatter._streaming,
    "status": TraceFormatter._status,
    "toolStarted": TraceFormatter._tool_started,
    "toolProgress": TraceFormatter._tool_progress,
    "toolOutput": TraceFormatter._tool_output,
    "toolResult": TraceFormatter._tool_result,
    "workerUpdate": TraceFormatter._worker,
    "approvalRequired": TraceFormatter._approval,
    "approvalResolved": TraceFormatter._approval_resolved,
    "formRequired": TraceFormatter._form,
    "formResolved": TraceFormatter._form_resolved,
    "inputPrompt": TraceFormatter._turn_ended,
    "manualToolsAvailable": _from_normal(lambda data: reports.manual_tools(mappings(data.get("tools")))),
    "diffSummary": _from_normal(lambda data: diff_summaries(mappings(data.get("summaries")))),
    "diffContent": _from_normal(diff_content),
    "planUpdated": _from_normal(plans.plan),
    "contextUsage": TraceFormatter._context,
    "contextCompacted": _from_normal(_compacted),
    "usageUpdated": TraceFormatter._usage,
    "catalogChanged": _from_normal(reports.catalog_changed),
    "mcpStatus": _from_normal(reports.mcp_status),
    "toolSuggested": _from_normal(reports.tool_suggested),
    "wallsReport": _from_normal(reports.walls),
    "sessionEnd": TraceFormatter._session_end,
    "runResult": TraceFormatter._turn_ended,
}
"""Event type → what is shown of it. Types that are not here only appear raw, at debug."""

_PROSE: Final = frozenset(
    {"sessionStarted", "status", "workerUpdate", "manualToolsAvailable", "contextUsage", "contextCompacted"}
    | {"usageUpdated", "catalogChanged", "mcpStatus", "toolSuggested", "wallsReport", "sessionEnd", "approvalResolved"}
)
"""Types whose lines are words of ours, to be broken where they are too long. All else is shown as it is."""
