"""Events as updates of a session: text, thought, tool calls with diffs and locations, plan, usage.

`UpdateStream.take` gives the updates that follow from one event, for a session that runs and for one that is replayed.
Chunks are appended by the client and nothing can be taken back, so text that was streamed is not sent again with its
message. The content of a tool call is replaced by each update.
Threat: clients show text as Markdown. What a tool printed and what a card quotes stands in a code block that it cannot
end. Paths in text are zone addresses; host paths stand only in `path` fields, which the protocol wants absolute.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from textwrap import dedent
from typing import Any, Final, Protocol

from golem_forge.agent.run_result import RunStatus
from golem_forge.agent.slash.handler import COMMAND_CODE
from golem_forge.agent.slash.invocation import PREFILL
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import escape_control_chars, one_line, shorten, shorten_middle
from golem_forge.events.open_questions import ANSWER_REFUSED
from golem_forge.events.serialization import Event
from golem_forge.ui.render.card import approval_card
from golem_forge.ui.render.lines import file_diffs, plain_text
from golem_forge.ui.render.reports import TurnChanges, hook_text, review_text, rewound_text
from golem_forge.ui.render.results import file_name, whole_result

Json = dict[str, Any]

MOST_TEXT: Final = 32 << 10
MOST_DIFF: Final = 512 << 10
MOST_OUTPUT: Final = 8 << 10
_MOST_ARGUMENT: Final = 4000
_MOST_TITLE: Final = 200
_MOST_LOCATIONS: Final = 20
_MOST_CALLS: Final = 2000
_CUT: Final = "\n… {count:,} characters …\n"
_BREAK: Final = "\n\n"
_BESIDE: Final = frozenset({"usage_update", "plan", "notice"})
"""Updates that are no part of the conversation: text before and after them is one message for most clients."""
_PASSING: Final = frozenset({"MODEL_RETRY", "MODEL_WAITING"})
NOTICES: Final = "notices"
COMPACTION: Final = "compaction"
DRAFT_UPDATES: Final = (NOTICES, COMPACTION)
"""Updates that are not in the stable protocol; sent only to a client that names them in
`clientCapabilities.session`.
"""
_RUN_CODES: Final = frozenset(status.value for status in RunStatus) - {RunStatus.LIMIT.value}
"""Codes of a status that says why a turn has no answer; the caller of the turn gets it as its result."""

_KINDS_BY_TOOL: Final = {
    "grep_files": "search",
    "list_dir": "search",
    "list_files": "search",
    "update_plan": "think",
    "webfetch": "fetch",
    "read_file": "read",
    "read_output": "read",
    "write_file": "edit",
    "apply_patch": "edit",
    "delete_file": "delete",
    "exec_command": "execute",
    "run_code": "execute",
    "shell": "execute",
    "write_stdin": "execute",
}
"""Native tools, whose name says what their effects will be or says more than they do."""
_KINDS_BY_VERB: Final = {
    "exec": "execute", "delete": "delete", "write": "edit", "net": "fetch", "spawn": "other", "read": "read",
}  # fmt: skip
"""The gravest first: a call has the kind of its gravest effect."""
_IN_TERMINALS: Final = frozenset({"exec_command", "shell"})
_COMMAND_ARGUMENTS: Final = ("cmd", "command")
_PATH_ARGUMENTS: Final = ("path", "file_path", "dir_path")


class Places(Protocol):
    def host_path(self, address: str, worker_id: str) -> str:
        """The absolute path of a zone address, as this worker means it; empty: it is in no zone."""

    def label(self, tool: str) -> str:
        """Returns the display name of a tool; empty if it has none or does not exist."""

    def picture(self, handle: str) -> str:
        """The base64 of a picture that a result left; empty: there is none."""


@dataclass(slots=True, kw_only=True)
class ShownCall:
    title: str
    kind: str
    worker_id: str
    output: str = ""
    """The end of its output."""
    unsent: str | None = None
    """Output that the terminal view has not received yet; None if the call has no such view."""
    fed: bool = False
    diffs: list[Json] = field(default_factory=list)
    """The diffs on its card, since the result of a deletion has none."""


@dataclass(slots=True)
class UpdateStream:
    places: Places
    replayed: bool = False
    """A session that ran before: what a person said is shown too."""
    terminals: bool = False
    """The client shows a command as a terminal that is fed here."""
    extras: frozenset[str] = frozenset()
    """The DRAFT_UPDATES that the client asks for."""
    calls: dict[str, ShownCall] = field(default_factory=dict)
    cost: float | None = None
    _root: str = ""
    _workers: dict[str, str] = field(default_factory=dict)
    """Sub-workers, by the id of their run → their name."""
    _streamed: str = ""
    """The text of the current streamed response."""
    _message_id: str = ""
    _joins: bool = False
    """The last update was text of a message: what follows at once would join it."""
    _turn_changes: TurnChanges = field(default_factory=TurnChanges)

    def take(self, event: Event) -> Iterator[Json]:
        data = event.wire
        match event.type:
            case "sessionStarted":
                self._root = event.worker_id
            case "workerUpdate":
                self._take_worker(data)
            case "streaming":
                yield from self._stream(event, data)
            case "message":
                yield from self._message(event, data.get("message") or {})
            case "status":
                yield from self._status(data)
            case "toolStarted":
                yield self._call(event.worker_id, data, "in_progress")
            case "toolResult":
                yield from self._result(event, data)
            case "contextCompacted" if COMPACTION in self.extras and not self._is_child(event.worker_id):
                for status in ("completed",) if self.replayed else ("in_progress", "completed"):
                    yield self._update("compaction_update", compactionId=f"compaction-{event.seq}", status=status)
            case "filesChanged":
                self._turn_changes.add(data)
            case "hookRan" if said := hook_text(data):
                yield self.say(f"{said}\n", thought=data["status"] != "failed")
            case "reviewed":
                yield self.say(f"{review_text(data)}\n", thought=True)
            case "sessionEnd":
                yield from self.end_turn()
            case "rewound" if self.replayed:
                yield self.say(rewound_text(data))
            case "planUpdated" if not self._is_child(event.worker_id):
                yield self._update("plan", entries=[_plan_entry(step) for step in data["plan"]])
            case "usageUpdated":
                cost = data["session"].get("cost")
                self.cost = float(cost) if isinstance(cost, (int, float)) else None
            case "contextUsage" if not self._is_child(event.worker_id):
                yield self._usage(data)

    def end_turn(self) -> Iterator[Json]:
        """Yields one line about what the turn changed."""
        if changed := self._turn_changes.end_turn():
            yield self.say(changed)

    def recall(self, thoughts: Iterable[tuple[str, str]]) -> Iterator[Json]:
        """Yields the recorded thoughts of the root worker's model: (worker id, text)."""
        for worker_id, text in thoughts:
            if not self._is_child(worker_id):
                yield self._chunk("agent_thought_chunk", shorten(text, MOST_TEXT))

    def proposed(self, event: Event) -> Json:
        """The update for a call that waits for an answer."""
        wire = event.wire
        data = {
            "toolCallId": wire.get("toolCallId") or wire["requestId"],
            "toolName": wire["tool"],
            "args": wire["args"],
            "label": wire.get("label") or str(wire["description"]).partition(": ")[0],
        }
        return self._call(event.worker_id, data, "pending", effects=[str(effect) for effect in wire["effects"]])

    def card(self, event: Event) -> list[Json]:
        """The card of a question, as the content of its call."""
        wire = event.wire
        diffs = self._diffs_of(str(wire.get("diff") or ""), event.worker_id)
        rows = approval_card(wire, [], with_diff=not diffs)
        if call := self.calls.get(str(wire.get("toolCallId"))):
            call.diffs = diffs
        return [text_content(fenced_block(plain_text(rows))), *diffs]

    def locations(self, event: Event) -> list[Json]:
        """Returns where a waiting call would change something."""
        diff = str(event.wire.get("diff") or "")
        changed = [(file.path, file.hunks[0].line if file.hunks else 1) for file in file_diffs(diff)]
        return self._locations(event.worker_id, changed) or self._argument_locations(event.worker_id, event.wire)

    def output(self, call_id: str) -> Json | None:
        """Returns the last 8 KiB that a running call has printed."""
        call = self.calls.get(call_id)
        if call is None or not call.output:
            return None
        if call.unsent is not None:
            return self._feed(call_id, call) if call.unsent else None
        return self._update(
            "tool_call_update",
            toolCallId=call_id,
            content=[text_content(fenced_block(escape_control_chars(call.output)))],
        )

    def keep_output(self, event: Event) -> None:
        data = event.wire
        call = self.calls.get(str(data["toolCallId"]))
        if call is not None:
            whole = data.get("whole")
            text = whole if isinstance(whole, str) else call.output + str(data["delta"])
            if call.unsent is not None:
                new = str(data["delta"]) if not isinstance(whole, str) else whole.removeprefix(call.output)
                call.unsent = (call.unsent + new)[-MOST_TEXT:]
            call.output = text[-MOST_OUTPUT:]

    def _feed(self, call_id: str, call: ShownCall) -> Json:
        """Threat: the view is a terminal, and a command's output could steer it: only plain text goes there."""
        data, call.unsent, call.fed = escape_control_chars(call.unsent or ""), "", True
        fed = {"terminal_output": {"terminal_id": call_id, "data": data}}
        return self._update("tool_call_update", toolCallId=call_id, _meta=fed)

    def say(self, text: str, message_id: str = "", *, thought: bool = False) -> Json:
        """Returns a message of its own."""
        text = f"{_BREAK if self._joins and not thought else ''}{text}"
        self._message_id = ""
        return self._chunk("agent_thought_chunk" if thought else "agent_message_chunk", text, message_id)

    def note(self, text: str) -> Json:
        """What holds as the session begins: a notice where the client takes them, else a message."""
        return self._notice("warning", text) if NOTICES in self.extras else self.say(f"Note: {text}\n\n")

    def _notice(self, severity: str, text: str) -> Json:
        title, _, rest = text.strip().partition("\n")
        more = {"description": rest.strip()} if rest.strip() else {}
        return self._update("notice", severity=severity, title=title, **more)

    # ---- words

    def _stream(self, event: Event, data: Mapping[str, Any]) -> Iterator[Json]:
        if self._is_child(event.worker_id):
            return
        request_id = str(data["requestId"])
        if data.get("discarded"):  # it cannot be taken back: the next attempt is another message
            self._streamed = ""
            return
        text = str(data["delta"])
        if not text:
            return
        if data.get("channel") == "thinking":
            yield self._chunk("agent_thought_chunk", text, request_id)
            return
        self._streamed += text
        if request_id != self._message_id:
            text = f"{_BREAK if self._joins else ''}{text}"
        self._message_id = request_id
        yield self._chunk("agent_message_chunk", text, request_id)

    def _message(self, event: Event, message: Mapping[str, Any]) -> Iterator[Json]:
        role, text = message.get("role"), str(message.get("content") or "")
        if self._is_child(event.worker_id):
            return
        if role == "user":
            yield from self.end_turn()  # of one that was never ended
            self._streamed, self._joins = "", False
            if self.replayed:
                names = [one_line(str(each.get("name"))) for each in message.get("attachments") or ()]
                by = f"{one_line(str(message['by']))}: " if message.get("by") else ""
                shown = "\n".join([by + text, *(f"[{name}]" for name in names)])
                yield self._chunk("user_message_chunk", shown, f"event-{event.seq}")
        elif role == "assistant":
            streamed, self._streamed = self._streamed, ""
            rest = text.removeprefix(streamed) if text.startswith(streamed) else ""
            if rest and streamed:
                yield self._chunk("agent_message_chunk", rest, self._message_id)
            elif rest:
                yield self.say(rest, f"event-{event.seq}")
            self._message_id = ""

    def _status(self, data: Mapping[str, Any]) -> Iterator[Json]:
        code, kind, text = data.get("code"), data["type"], str(data["message"])
        if code == ANSWER_REFUSED or (code in _RUN_CODES and not self.replayed) or not text.strip():
            return
        if code == COMMAND_CODE:
            shown = fenced_block(text) if "\n" in text.strip() else text
            yield self.say(f"Error: {text}" if kind == "error" else shown)
        elif code == PREFILL:
            yield self.say(text)
        elif self.replayed and code not in _RUN_CODES and code != RunStatus.LIMIT.value:
            return  # it was said about that run
        elif NOTICES in self.extras and code not in _RUN_CODES and code != RunStatus.LIMIT.value:
            yield self._notice(kind if kind in ("warning", "error") else "info", text)
        elif kind == "info" or code in _PASSING:
            yield self.say(f"{text}\n", thought=True)
        else:
            yield self.say(f"{kind.capitalize()}: {text}")

    def _chunk(self, kind: str, text: str, message_id: str = "") -> Json:
        update = self._update(kind, content={"type": "text", "text": text})
        self._joins = kind == "agent_message_chunk" and not text.endswith("\n")
        return update | ({"messageId": message_id} if message_id else {})

    # ---- calls

    def _call(self, worker_id: str, data: Mapping[str, Any], status: str, effects: list[str] | None = None) -> Json:
        call_id = str(data["toolCallId"])
        known = self.calls.get(call_id)
        if known is not None:
            view = self._terminal_view(call_id, known, data) if status == "in_progress" else {}
            return self._update("tool_call_update", toolCallId=call_id, status=status, **view)
        call = self._remember(call_id, worker_id, data, effects or [])
        locations = self._argument_locations(worker_id, data)
        view = self._terminal_view(call_id, call, data) if status == "in_progress" else {}
        return self._update(
            "tool_call",
            toolCallId=call_id,
            title=call.title,
            kind=call.kind,
            status=status,
            rawInput=_bounded(data.get("args")),
            **({"locations": locations} if locations else {}),
            **view,
        )

    def _terminal_view(self, call_id: str, call: ShownCall, data: Mapping[str, Any]) -> Json:
        """A command that runs, as a terminal of the client's that Forge feeds. The client starts nothing for it."""
        if not self.terminals or self.replayed or str(data["toolName"]) not in _IN_TERMINALS:
            return {}
        call.unsent = ""
        members = data.get("args")
        workdir = members.get("workdir") if isinstance(members, Mapping) else None
        cwd = self.places.host_path(workdir if isinstance(workdir, str) and workdir else ".", call.worker_id)
        info = {"terminal_id": call_id, **({"cwd": cwd} if cwd else {})}
        return {"content": [_terminal(call_id)], "_meta": {"terminal_info": info}}

    def _remember(self, call_id: str, worker_id: str, data: Mapping[str, Any], effects: list[str]) -> ShownCall:
        name = str(data["toolName"])
        verbs = [effect.partition(" ")[0] for effect in effects if not effect.startswith("net mcp://")]
        label = data.get("label") or (self.places.label(name) if self.replayed else "")  # a journal has no labels
        title = call_title(name, label, data.get("args"))
        if worker := self._workers.get(worker_id):
            title = f"{worker}: {title}"
        if data.get("parentCallId"):  # the protocol knows no calls inside calls
            title = f"↳ {title}"
        call = ShownCall(title=shorten(title, _MOST_TITLE), kind=call_kind(name, verbs), worker_id=worker_id)
        self.calls[call_id] = call
        if len(self.calls) > _MOST_CALLS:
            del self.calls[next(iter(self.calls))]
        return call

    def _result(self, event: Event, data: Mapping[str, Any]) -> Iterator[Json]:
        call_id = str(data["toolCallId"])
        if call_id not in self.calls:  # refused before it could start
            yield self._call(event.worker_id, data, "pending", _decided_effects(data))
        call = self.calls.pop(call_id)
        status = str(data["status"])
        done = status == "success"
        value = data.get("value")
        diffs, changed = self._changes(value if isinstance(value, Mapping) else {}, event.worker_id)
        content = [] if done else [text_content(f"{status}: {escape_control_chars(str(data.get('error') or ''))}")]
        text = "" if diffs else _result_text(data)
        ended: Json = {}
        if call.unsent is not None:
            if not call.fed and not call.unsent:
                call.unsent = text
            if call.unsent:
                yield self._feed(call_id, call)
            text = ""
            content.insert(0, _terminal(call_id))
            code = value.get("exit_code") if isinstance(value, Mapping) else None
            ended = {"_meta": {"terminal_exit": {"terminal_id": call_id, "exit_code": code, "signal": None}}}
        content += [text_content(fenced_block(text))] if text else []
        content += (diffs or (call.diffs if done else [])) + self._pictures(data)
        update = self._update("tool_call_update", toolCallId=call_id, status="completed" if done else "failed", **ended)
        if content or call.output:
            update["content"] = content
        if (
            call.kind == "other"
            and (kind := call_kind("", [e.partition(" ")[0] for e in _decided_effects(data)])) != "other"
        ):
            update["kind"] = kind
        if locations := self._locations(event.worker_id, changed):
            update["locations"] = locations
        yield update

    def _pictures(self, data: Mapping[str, Any]) -> list[Json]:
        shown: list[Json] = []
        for part in data.get("media") or ():
            if str(part.get("mediaType", "")).startswith("image/") and (found := self.places.picture(part["handle"])):
                picture = {"type": "image", "data": found, "mimeType": part["mediaType"]}
                shown.append({"type": "content", "content": picture})
        return shown

    def _changes(self, value: Mapping[str, Any], worker_id: str) -> tuple[list[Json], list[tuple[str, int]]]:
        """Returns the diffs of a result, and the changed places."""
        modified, original = value.get("modified"), value.get("original")
        if value.get("kind") == "diff" and isinstance(modified, str):
            path = self.places.host_path(str(value.get("path")), worker_id)
            known = isinstance(original, str) or bool(value.get("isNew"))
            if path and known and len(modified) + len(original or "") <= MOST_DIFF:
                line = _first_change(original if isinstance(original, str) else "", modified)
                return [diff_content(path, original, modified)], [(str(value.get("path")), line)]
        if isinstance(diff := value.get("diff"), str):
            changed = [(file.path, file.hunks[0].line if file.hunks else 1) for file in file_diffs(diff)]
            return self._diffs_of(diff, worker_id), changed
        found = value.get("matches") or ()
        places = [
            (str(each.get("path")), each["number"])
            for each in found
            if isinstance(each, Mapping) and isinstance(each.get("number"), int)
        ]
        return [], places[:_MOST_LOCATIONS]

    def _diffs_of(self, diff: str, worker_id: str) -> list[Json]:
        """One for each hunk; none at all where one file cannot be shown: half a change misleads."""
        if len(diff) > MOST_DIFF:
            return []
        shown: list[Json] = []
        for file in file_diffs(diff):
            path = self.places.host_path(file.path, worker_id)
            if not path or not file.old_shown:
                return []
            shown += [diff_content(path, None if file.is_new else hunk.old, hunk.new) for hunk in file.hunks]
        return shown

    def _argument_locations(self, worker_id: str, data: Mapping[str, Any]) -> list[Json]:
        args = data.get("args")
        if not isinstance(args, Mapping):
            return []
        offset = args.get("offset")
        line = offset if isinstance(offset, int) and offset > 0 and not isinstance(offset, bool) else 0
        named = [args[name] for name in _PATH_ARGUMENTS if isinstance(args.get(name), str)]
        return self._locations(worker_id, [(path, line) for path in named])

    def _locations(self, worker_id: str, places: list[tuple[str, int]]) -> list[Json]:
        found: list[Json] = []
        for address, line in places[:_MOST_LOCATIONS]:
            if path := self.places.host_path(address, worker_id):
                found.append({"path": path, **({"line": line} if line else {})})
        return found

    # ---- the rest

    def _take_worker(self, data: Mapping[str, Any]) -> None:
        if data.get("depth") == 0:
            self._root = str(data["workerId"])
        else:
            self._workers[str(data["workerId"])] = one_line(str(data["name"]))

    def _is_child(self, worker_id: str) -> bool:
        return worker_id in self._workers

    def _usage(self, data: Mapping[str, Any]) -> Json:
        update = self._update("usage_update", used=data["tokensUsed"], size=data["tokenLimit"])
        return update if self.cost is None else update | {"cost": {"amount": self.cost, "currency": "USD"}}

    def _update(self, kind: str, /, **members: Any) -> Json:
        if kind not in _BESIDE:
            self._joins = False
        return {"sessionUpdate": kind, **members}


# ---- parts


def text_content(text: str) -> Json:
    return {"type": "content", "content": {"type": "text", "text": text}}


def _terminal(call_id: str) -> Json:
    return {"type": "terminal", "terminalId": call_id}


def diff_content(path: str, old: Any, new: str) -> Json:
    return {"type": "diff", "path": path, "oldText": old if isinstance(old, str) else None, "newText": new}


def fenced_block(text: str) -> str:
    """A code block that the text cannot end; bounded."""
    if (between := len(text) - MOST_TEXT) > 0:
        text = shorten_middle(text, MOST_TEXT, _CUT.format(count=between))
    return code_block(text)


def code_block(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def call_kind(tool: str, verbs: list[str]) -> str:
    if kind := _KINDS_BY_TOOL.get(tool):
        return kind
    return next((kind for verb, kind in _KINDS_BY_VERB.items() if verb in verbs), "other")


def call_title(tool: str, label: Any, args: Any) -> str:
    """Returns the command, or the tool with its file."""
    members = args if isinstance(args, Mapping) else {}
    command = next((members[name] for name in _COMMAND_ARGUMENTS if isinstance(members.get(name), str)), "")
    if command and _KINDS_BY_TOOL.get(tool) == "execute":
        return one_line(command)
    about = next(
        (members[name] for name in (*_PATH_ARGUMENTS, "pattern", "url") if isinstance(members.get(name), str)), ""
    )
    named = one_line(str(label or tool))
    return f"{named} {one_line(about)}" if about else named


def _decided_effects(data: Mapping[str, Any]) -> list[str]:
    """The verbs that the Decision of a result names."""
    decision = data.get("decision")
    sources = decision.get("sources") if isinstance(decision, Mapping) else None
    return [str(source.get("id")) for source in sources or () if source.get("source") == "base"]


def _plan_entry(step: Mapping[str, Any]) -> Json:
    return {"content": str(step.get("step")), "priority": "medium", "status": step.get("status")}


def _result_text(data: Mapping[str, Any]) -> str:
    """Returns a tool's result without the status line."""
    value = data.get("value")
    kind = value.get("kind") if isinstance(value, Mapping) else ""
    if kind == "plan.update":
        return ""
    if isinstance(value, Mapping) and kind in ("search.result", "file_list"):
        found = value.get("matches") or value.get("files") or ()
        return "\n".join(_found_line(each) for each in found) or "Nothing was found."
    return dedent(plain_text(whole_result(data)[1:])).strip("\n")


def _found_line(each: Any) -> str:
    if isinstance(each, Mapping) and "number" in each:
        return one_line(f"{each.get('path')}:{each['number']}: {each.get('text')}")
    return one_line(str(file_name(each)))


def _first_change(old: str, new: str) -> int:
    """Returns the number of the first line that differs."""
    for number, (before, after) in enumerate(zip(old.split("\n"), new.split("\n"), strict=False), 1):
        if before != after:
            return number
    return min(old.count("\n"), new.count("\n")) + 1


def _bounded(value: Any, level: int = 0) -> Any:
    """Arguments as the client is shown them: long texts without their middle."""
    if isinstance(value, str):
        return shorten_middle(value, _MOST_ARGUMENT, _CUT.format(count=len(value) - _MOST_ARGUMENT))
    if isinstance(value, Mapping):
        return {str(name): _bounded(item, level + 1) for name, item in list(value.items())[:100]} if level < 8 else "…"
    if isinstance(value, (list, tuple)):
        return [_bounded(item, level + 1) for item in value[:100]] if level < 8 else "…"
    return value
