"""Events as lines of text, by trace level: quiet, summary, normal or debug. Also the safe writer for text streams.

A `TraceFormatter` keeps state (streamed text, the answer that waits, totals): it serves one session, in event order.
Called with an event it prints the lines: `WorkerRuntime(on_event=create_trace_formatter())`. At quiet and summary only
the final answer of a turn is shown, so a message waits until the turn ends. Streamed text is given as whole lines: a
line when it ends, the rest when its stream is done; withdrawn text is followed by a line that says so.
`Output` writes to a pipe, a file or a terminal of any encoding, flushes, and never raises: a reader that went away
(`| head`) ends the writing, not the run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, TextIO

from golem_forge.core.calls import Severity
from golem_forge.core.regex import regex
from golem_forge.events.serialization import Event
from golem_forge.ui.render import reports, results
from golem_forge.ui.render.card import answer_line, approval_card
from golem_forge.ui.render.lines import (
    DISPLAY_CUT,
    Line,
    Style,
    chat_lines,
    diff_content_lines,
    diff_summary_lines,
    excerpt,
    finite_number,
    indented,
    line,
    lines_of,
    mappings_in,
    one_line,
    plain_text,
    prose_lines,
    to_text,
    wrapped_lines,
)

Fields = Mapping[str, Any]
COMMAND: Final = "command"
"""The code of a status that answers a slash command; it is shown at every level."""
PERSON: Final = "human"
"""The caller of a tool that a person ran."""
TERMINAL: Final = "terminal"
"""The name of the UI whose own answers need no mention."""


class TraceLevel(StrEnum):
    QUIET = "quiet"
    SUMMARY = "summary"
    NORMAL = "normal"
    DEBUG = "debug"


def create_trace_formatter(
    level: TraceLevel | str = TraceLevel.NORMAL,
    width: Callable[[], int] | None = None,
    output: TextIO | None = None,
) -> TraceFormatter:
    """`width`: the columns there are, to break prose at words; without it lines are as long as they are. `output`:
    where it prints when it is called; absent: standard output. ValueError names the levels."""
    try:
        return TraceFormatter(TraceLevel(level), width, output)
    except ValueError:
        raise ValueError(f"trace level {level!r} is not one of {', '.join(TraceLevel)}") from None


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
        self._inside: dict[str, int] = {}
        """Call that runs → how many calls it is inside of."""
        self._children: dict[str, int] = {}
        """Call that runs → how many lines of calls inside it were shown."""
        self._workers: dict[str, Fields] = {}
        self._cards: dict[str, Fields] = {}
        self._turns = 0
        self._by_person: set[str] = set()
        """Calls of a person that run: they see the result at every level."""
        self._used: Fields | None = None
        self._calls = self._failed = 0
        self._error = ""
        """The last error that was shown: the end of the session does not repeat it."""
        self.answers: Mapping[str, str] = {}
        """How the cards of calls were answered, for a UI that folds those cards; by call."""
        self._refusal = ""
        """Why the last call failed, if that was shown: the command that made it does not repeat it."""
        self.changes = reports.TurnChanges()
        self.display = reports.CallDisplay()

    def format(self, event: Event) -> list[Line]:
        show = _FORMATTERS.get(event.type)
        rows = [] if show is None else show(self, event.wire, event.worker_id)
        one_line_call = event.type == "toolStarted" and self.level is TraceLevel.NORMAL
        if self.width is not None and (event.type in _PROSE or one_line_call):
            rows = wrapped_lines(rows, self.width())
        if self.level is TraceLevel.DEBUG:
            rows = [*rows, line(f"event {event.to_json()}", "dim")]
        return rows

    def __call__(self, event: Event) -> None:
        """Prints the event's lines, without escapes."""
        if text := plain_text(self.format(event)):
            Output(self._output if self._output is not None else sys.stdout).write(text)

    def worker_tree(self) -> list[Line]:
        """Every worker of the session as it stands now."""
        return reports.worker_tree(self._workers.values())

    def rest(self) -> list[Line]:
        """The lines that are still held back, for a caller that stops before the session has ended."""
        return [*self._models.rest(), *self._turn_ended({}, "")]

    def _at(self, least: TraceLevel) -> bool:
        order = tuple(TraceLevel)
        return order.index(self.level) >= order.index(least)

    @property
    def _normal(self) -> bool:
        return self._at(TraceLevel.NORMAL)

    # ---- words of models and people

    def _message(self, data: Fields, worker_id: str) -> list[Line]:
        message = data.get("message")
        message = message if isinstance(message, Mapping) else {}
        text, role = to_text(message.get("content", "")), message.get("role")
        if role == "user":
            self._turns += 1
            if not self._at(TraceLevel.SUMMARY):
                return []
            attached = message.get("attachments")
            count = len(attached) if isinstance(attached, (list, tuple)) else 0
            by = f"{one_line(to_text(message['by']))} > " if message.get("by") else "> "
            rows = excerpt(chat_lines(text, "user", by))
            return [*rows, [("user", f"> [{count} attached]")]] if count else rows
        if role == "system":
            return prose_lines(text, "dim", "system: ") if self._at(TraceLevel.DEBUG) else []
        if self._normal:
            return self._named(chat_lines(self._models.not_streamed(text, worker_id)), worker_id)
        if not self._is_child(worker_id):
            self._answer = text
        return []

    def _streaming(self, data: Fields, worker_id: str) -> list[Line]:
        if self._normal:
            return self._named(self._models.add(data, worker_id), worker_id)
        request = to_text(data.get("requestId", ""))
        if data.get("delta") and request != self._stream_id and not self._is_child(worker_id):
            self._stream_id, self._answer = request, ""  # another request begins: what was said was not the end
        return []

    def _named(self, rows: list[Line], worker_id: str) -> list[Line]:
        """Prefixes the rows of a sub-worker with its name."""
        if not self._is_child(worker_id):
            return rows
        name = one_line(self._workers[worker_id].get("name", ""))
        return [[("dim", f"{name} │ "), *row] for row in rows]

    def _is_child(self, worker_id: str) -> bool:
        return finite_number(self._workers.get(worker_id, {}).get("depth")) > 0

    def _turn_ended(self, data: Fields, worker_id: str) -> list[Line]:
        """`inputPrompt`: the prompt itself is the UI's to draw."""
        answer, self._answer = self._answer, ""
        changed = self.changes.end_turn()
        rows = chat_lines(answer.rstrip("\n"))
        return [*rows, line(changed, "dim")] if changed and self._at(TraceLevel.SUMMARY) else rows

    def _files_changed(self, data: Fields, worker_id: str) -> list[Line]:
        """Collects changes; they are printed when the turn ends."""
        self.changes.add(data)
        return []

    def _status(self, data: Fields, worker_id: str) -> list[Line]:
        kind, text = data.get("type"), to_text(data.get("message", ""))
        if data.get("code") == COMMAND:
            shown, self._refusal = self._refusal, ""
            return [] if kind == "error" and text == shown else prose_lines(text, "fail" if kind == "error" else "")
        if kind == "error":
            self._error = text
            return prose_lines(f"error: {text}", "fail")
        if kind == "warning":
            return prose_lines(f"warning: {text}", "warn") if self._at(TraceLevel.SUMMARY) else []
        return prose_lines(text, "dim") if self._normal else []

    # ---- questions

    def _approval(self, data: Fields, worker_id: str) -> list[Line]:
        self._cards[to_text(data.get("requestId", ""))] = data
        return approval_card(data)

    def _approval_resolved(self, data: Fields, worker_id: str) -> list[Line]:
        request = self._cards.pop(to_text(data.get("requestId", "")), None)
        return [] if request is None else [answer_line(request, data, here=TERMINAL)]

    def _form(self, data: Fields, worker_id: str) -> list[Line]:
        self._cards[to_text(data.get("requestId", ""))] = data
        fields = mappings_in(data.get("fields"))
        title = line(f"── {to_text(data.get('source', ''))} asks: {to_text(data.get('title', ''))}", "title")
        rows = [line(to_text(one.get("label") or one.get("name") or ""), indent="  ") for one in fields]
        url = [line(data["url"], indent="  ")] if data.get("url") else []
        words = [line(data[name], indent="  ") for name in ("accept", "decline") if data.get(name)]
        return [title, *indented(lines_of(to_text(data.get("message", "")))), *url, *rows, *words]

    def _form_resolved(self, data: Fields, worker_id: str) -> list[Line]:
        form = self._cards.pop(to_text(data.get("requestId", "")), None)
        return [] if form is None else [line(reports.form_ending(form, data), "dim")]

    # ---- calls

    def _tool_started(self, data: Fields, worker_id: str) -> list[Line]:
        if data.get("caller") == "llm":
            self._answer = ""
        elif data.get("caller") == PERSON:
            self._by_person.add(to_text(data.get("toolCallId", "")))
        if not self._normal:
            return []
        call, parent = to_text(data.get("toolCallId", "")), to_text(data.get("parentCallId") or "")
        self._tools[call] = to_text(data.get("toolName", ""))
        self._inside[call] = depth = self._inside.get(parent, 0) + 1 if parent else 0
        if self.level is TraceLevel.DEBUG:
            rows = [reports.call_line({**data, "args": None}), *reports.argument_lines(data)]
        elif depth:
            rows = self._child_lines(parent, reports.call_line({**data, "caller": ""}, self.display))
        else:
            rows = [reports.call_line(data, self.display), *reports.program_lines(data)]
        return self._named(indented(rows, "  " * depth) if depth else rows, worker_id)

    def _child_lines(self, parent: str, shown: Line) -> list[Line]:
        """One line for each call inside another; of many the first."""
        count = self._children[parent] = self._children.get(parent, 0) + 1
        if count == _MAX_CHILDREN + 1:
            return [line(f"… further calls; forge log show {parent} lists them", "dim")]
        return [shown] if count <= _MAX_CHILDREN else []

    def _tool_progress(self, data: Fields, worker_id: str) -> list[Line]:
        tool = self._tools.get(to_text(data.get("toolCallId", "")), "")
        return self._named([reports.progress_line(data, tool)], worker_id) if self._normal else []

    def _tool_output(self, data: Fields, worker_id: str) -> list[Line]:
        return self._named(indented(self._outputs.add(data), "  │ "), worker_id) if self._normal else []

    def _tool_result(self, data: Fields, worker_id: str) -> list[Line]:
        self._calls += 1
        self._failed += data.get("status") != "success"
        call = to_text(data.get("toolCallId", ""))
        self._tools.pop(call, None)
        self._children.pop(call, None)
        depth = self._inside.pop(call, 0)
        rows = self._result_rows(data)
        if depth and self.level is TraceLevel.NORMAL and call not in self.answers:
            rows = [*results.failure_lines(data, self._subject(data)), *results.way_rows(data)]
            rows += results.leftover_rows(data)
        if depth and rows and self._normal:
            rows = indented(rows, "  " * depth)
        if rows:
            self._refusal = to_text(data.get("error") or "")
        return self._named(rows, worker_id)

    def _subject(self, data: Fields) -> str:
        tool = to_text(data.get("toolName", ""))
        return reports.call_subject(tool, data.get("args"), self.display.defaults.get(tool))

    def _result_rows(self, data: Fields) -> list[Line]:
        call = to_text(data.get("toolCallId", ""))
        by_person = call in self._by_person
        self._by_person.discard(call)
        self._answer = self._answer if by_person else ""  # a refused call has no start: words before it were no answer
        subject = self._subject(data)
        if not self._normal:
            if by_person:
                return results.result_lines(data, subject)
            if self.level is TraceLevel.SUMMARY:
                rows = [*results.failure_lines(data, subject), *results.way_rows(data)]
                return [*rows, *results.leftover_rows(data, Severity.WARNING)]
            return results.leftover_rows(data, Severity.CRITICAL)
        if data.get("toolCallId") in self._outputs:
            rest = indented(self._outputs.finish(data.get("toolCallId")), "  │ ")
            rows = [*rest, *results.result_after_output(data, subject)]
        elif self.display.brief and self.level is TraceLevel.NORMAL:
            width, answer = self.width() if self.width else 80, self.answers.get(call, "")
            rows = reports.brief_result(data, self.display, width, answer, asked_for=by_person)
        else:
            rows = results.result_lines(data, subject)
        decision = data.get("decision")
        if self.level is TraceLevel.DEBUG and isinstance(decision, Mapping):
            rows += results.decision_lines(decision)
        return rows

    # ---- the session

    def _worker(self, data: Fields, worker_id: str) -> list[Line]:
        self._workers[to_text(data.get("workerId", ""))] = data
        is_child = finite_number(data.get("depth")) > 0  # a root alone is no tree
        return [reports.worker_line(data)] if self._normal and is_child else []

    def _manual_tools(self, data: Fields, worker_id: str) -> list[Line]:
        self.display.learn(data.get("tools"))
        return reports.manual_tool_lines(mappings_in(data.get("tools"))) if self._normal else []

    def _usage(self, data: Fields, worker_id: str) -> list[Line]:
        session = data.get("session")
        self._used = session if isinstance(session, Mapping) else self._used
        if self.level is not TraceLevel.DEBUG:
            return []
        prices = self._used.get("prices") if self._used is not None else ""
        return [line(f"usage: {reports.usage_text({**data, 'prices': prices})}", "dim")]

    def _context(self, data: Fields, worker_id: str) -> list[Line]:
        full = data.get("exceeded") is True
        if not self._at(TraceLevel.SUMMARY if full else TraceLevel.DEBUG):
            return []
        used, limit = int(finite_number(data.get("tokensUsed"))), int(finite_number(data.get("tokenLimit")))
        text = f"context: {used:,} of {limit:,} tokens"
        return [line(f"warning: {text}", "warn") if full else line(text, "dim")]

    def _session_end(self, data: Fields, worker_id: str) -> list[Line]:
        rows = self._turn_ended(data, worker_id)
        reason, message = data.get("reason"), data.get("message")
        about = f": {to_text(message)}" if message and message != self._error else ""
        if reason != "completed":
            ran = about or self._turns or self._calls
            failed = "session ended with an error" if ran else "nothing was run"
            ending = "session interrupted" if reason == "interrupted" else failed
            rows += prose_lines(ending + about, "warn" if reason == "interrupted" else "fail")
        elif self._normal:
            rows += prose_lines(f"session completed{about}", "dim")
        if self._at(TraceLevel.SUMMARY) and (self._calls or self._used is not None):
            rows.append(reports.totals_line(self._used, calls=self._calls, failed=self._failed))
        return rows


_MAX_CHILDREN: Final = 40
_EventFormatter = Callable[[TraceFormatter, Fields, str], list[Line]]


def _from_normal(render: Callable[[Fields], list[Line]]) -> _EventFormatter:
    return lambda self, data, _: render(data) if self._at(TraceLevel.NORMAL) else []


def _server_state(self: TraceFormatter, data: Fields, worker_id: str) -> list[Line]:
    """One that waits for a person is named wherever anything is: without it the model lacks tools in silence."""
    waits = data.get("state") in _WAIT_FOR_PERSON
    return reports.mcp_status_lines(data) if self._at(TraceLevel.SUMMARY if waits else TraceLevel.NORMAL) else []


_WAIT_FOR_PERSON: Final = frozenset({"pending", "needs_login", "failed"})


def _compacted(data: Fields) -> list[Line]:
    before, after = int(finite_number(data.get("before"))), int(finite_number(data.get("after")))
    return [line(f"context compacted: {before:,} → {after:,} tokens", "dim")]


def _hook_level(data: Fields) -> TraceLevel:
    return TraceLevel.SUMMARY if data.get("status") == "failed" else TraceLevel.NORMAL


_FORMATTERS: Final[Mapping[str, _EventFormatter]] = {
    "sessionStarted": _from_normal(lambda data: [reports.session_line(data)]),
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
    "manualToolsAvailable": TraceFormatter._manual_tools,
    "diffSummary": _from_normal(lambda data: diff_summary_lines(mappings_in(data.get("summaries")))),
    "diffContent": _from_normal(diff_content_lines),
    "filesChanged": TraceFormatter._files_changed,
    "rewound": lambda self, data, _: [line(reports.rewound_text(data), "dim")] if self._at(TraceLevel.SUMMARY) else [],
    "hookRan": lambda self, data, _: reports.hook_lines(data) if self._at(_hook_level(data)) else [],
    "reviewed": _from_normal(lambda data: [line(reports.review_text(data), "dim")]),
    "planUpdated": _from_normal(reports.plan_lines),
    "contextUsage": TraceFormatter._context,
    "contextCompacted": _from_normal(_compacted),
    "usageUpdated": TraceFormatter._usage,
    "catalogChanged": _from_normal(reports.catalog_change_lines),
    "mcpStatus": _server_state,
    "toolSuggested": _from_normal(reports.suggestion_lines),
    "wallsReport": _from_normal(reports.walls_lines),
    "credentialUsed": _from_normal(lambda data: [reports.credential_line(data)]),
    "sessionEnd": TraceFormatter._session_end,
    "runResult": TraceFormatter._turn_ended,
}
"""Event type → what is shown of it. Types that are not here only appear raw, at debug."""

_PROSE: Final = frozenset(
    {"sessionStarted", "status", "workerUpdate", "manualToolsAvailable", "contextUsage", "contextCompacted"}
    | {"usageUpdated", "catalogChanged", "mcpStatus", "toolSuggested", "wallsReport", "sessionEnd", "approvalResolved"}
    | {"rewound", "hookRan", "reviewed"}
)
"""Types whose lines are Forge's own prose, which is wrapped. All else is shown as it is."""


_NON_ASCII: Final = regex(r"[^\x20-\x7e]")


class Output:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.gone = False
        """Nobody reads any more."""

    def write(self, text: str) -> None:
        if self.gone or not text:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            text = text.encode(encoding, "backslashreplace").decode(encoding)
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # closed at the other end, or at this one
            self.gone = True


def json_line(event: Event) -> str:
    """An envelope on one line, in ASCII: no reader can take a character in it for the end of the line."""
    # Outside strings JSON is ASCII, so a character that is not stands in a string, where an escape is the same.
    return _NON_ASCII.sub(lambda match: json.dumps(match.group())[1:-1], event.to_json()) + "\n"


_MAX_OUTPUT: Final = 64 * 1024
_WITHDRAWN: Final = "(withdrawn: the text above does not count)"


class LineStream:
    """One stream. `text` is everything that came and still counts."""

    def __init__(self, style: Style = "") -> None:
        self.text = ""
        self._style = style
        self._given = 0

    def add(self, delta: str) -> list[Line]:
        self.text += delta
        return self._ended() if "\n" in delta else []  # a line without end is not searched again for each piece

    def replace(self, whole: str) -> list[Line]:
        """Replaces everything shown so far by `whole`."""
        if whole.startswith(self.text[: self._given]):
            self.text = whole
            return self._ended()
        rows = self.withdraw()
        return [*rows, *self.add(whole)]

    def withdraw(self) -> list[Line]:
        rows: list[Line] = [[("dim", _WITHDRAWN)]] if self._given else []
        self.text, self._given = "", 0
        return rows

    def finish(self) -> list[Line]:
        return self._upto(len(self.text)) if len(self.text) > self._given else []

    def _ended(self) -> list[Line]:
        end = self.text.rfind("\n") + 1
        return self._upto(end) if end > self._given else []

    def _upto(self, end: int) -> list[Line]:
        rows = prose_lines(self.text[self._given : end], self._style)
        self._given = end
        return rows


class ModelStreams:
    """`streaming` events: a request's thinking, then its text. The end of a request ends both."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, LineStream]] = {}
        self._spoken: dict[str, str] = {}
        """Worker → the last text that was streamed to its end."""

    def add(self, data: Mapping[str, Any], worker_id: str) -> list[Line]:
        request = _string_or_empty(data.get("requestId"))
        thinking = data.get("channel") == "thinking"
        streams = self._open.setdefault(request, {"thinking": LineStream("thinking"), "text": LineStream()})
        if data.get("discarded"):
            del self._open[request]
            return [row for stream in streams.values() for row in stream.withdraw()][:1]
        whole, delta = data.get("whole"), _string_or_empty(data.get("delta"))
        rows = streams["thinking"].finish() if not thinking and (delta or whole) else []
        stream = streams["thinking" if thinking else "text"]
        rows += stream.replace(whole) if isinstance(whole, str) else stream.add(delta)
        if data.get("done"):
            rows += [row for each in streams.values() for row in each.finish()]
            del self._open[request]
            if streams["text"].text:
                self._spoken[worker_id] = streams["text"].text
        return rows

    def rest(self) -> list[Line]:
        return [row for streams in self._open.values() for stream in streams.values() for row in stream.finish()]

    def not_streamed(self, text: str, worker_id: str) -> str:
        """Returns the part of a message that was not streamed just before; valid once for each message."""
        spoken = self._spoken.pop(worker_id, "").strip()
        said = text.strip()
        return said[len(spoken) :].lstrip("\n") if spoken and said.startswith(spoken) else text


class OutputStreams:
    """`toolOutput` events, by call and stream; of each the first 64 KiB are shown."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, LineStream]] = {}

    def add(self, data: Mapping[str, Any]) -> list[Line]:
        call, name = _string_or_empty(data.get("toolCallId")), "stderr" if data.get("stream") == "stderr" else "stdout"
        streams = self._open.setdefault(call, {})
        stream = streams.setdefault(name, LineStream("warn" if name == "stderr" else "dim"))
        before = len(stream.text)
        if before > _MAX_OUTPUT:
            return []
        whole = data.get("whole")
        rows = stream.replace(whole) if isinstance(whole, str) else stream.add(_string_or_empty(data.get("delta")))
        if len(stream.text) > _MAX_OUTPUT >= before:
            rows.append([("dim", "..."), ("dim", DISPLAY_CUT)])
        return rows

    def __contains__(self, call_id: Any) -> bool:
        return _string_or_empty(call_id) in self._open

    def finish(self, call_id: Any) -> list[Line]:
        return [row for stream in self._open.pop(_string_or_empty(call_id), {}).values() for row in stream.finish()]


def _string_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""
