"""RuntimeUI: what the runtime uses to tell UIs what happens and to ask them.

The `show_…`, `update_…` and `end_session` methods return at once; they take fields as keywords, or a mapping with wire
names or attributes. What an event has beside the given fields is filled in. `request_approval`, `request_form` and
`get_user_input` emit a question and await the answer with its id; any number may be open. They fail closed: with no
adapter attached they are at once denied, cancelled, InputUnavailable.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from golem_forge.core.ids import new_id
from golem_forge.core.options import camel, require
from golem_forge.core.results import ToolResult
from golem_forge.events.bus import EventBus
from golem_forge.events.model import ApprovalRequired, EventData, FormRequired, complete_fields, to_wire
from golem_forge.events.open_questions import (
    APPROVAL,
    COMMAND,
    FORM,
    INPUT,
    INTERRUPT,
    UI_GONE,
    AnswerData,
    AnsweredApproval,
    CancelSignal,
    EditCheck,
    InputText,
    OpenQuestions,
)
from golem_forge.events.serialization import iso_time


class InputUnavailable(Exception):
    """Raised if no input will come. `by` is the cause: `nobody` can answer, `timeout`, `interrupt`, or a `command` came
    instead.
    """

    stated_name = "InputUnavailable"

    def __init__(self, reason: str, by: str) -> None:
        super().__init__(reason)
        self.by = by


class RuntimeUI(OpenQuestions):
    # ---- telling

    def show_message(self, message: Mapping[str, Any] | str | None = None, /, **fields: Any) -> None:
        """`{role, content, timestamp?, attachments?}`; text is what the assistant says."""
        given = {"role": "assistant", "content": message} if isinstance(message, str) else _fields(message, "message")
        self.bus.emit("message", {"message": {**given, **fields}})

    def show_status(self, status: Mapping[str, Any] | str | None = None, /, **fields: Any) -> None:
        """`{type, message, code?}`; text has the type `info`."""
        given = {"type": "info", "message": status} if isinstance(status, str) else status
        self._tell("status", given, fields)

    def show_tool_started(
        self,
        tool_call_id: str | Mapping[str, Any],
        tool_name: str | None = None,
        args: Any = None,
        caller: str | None = None,
        **fields: Any,
    ) -> None:
        wire, more = _first(tool_call_id)
        self._tell("toolStarted", wire, {**more, "tool_name": tool_name, "args": args, "caller": caller, **fields})

    def show_tool_result(
        self,
        tool_call_id: str | Mapping[str, Any] | None = None,
        tool_name: str | None = None,
        status: str | ToolResult | None = None,
        value: Any = None,
        **fields: Any,
    ) -> None:
        """`value`: a semantic value `{kind, …}`; text and other values become one of kind `text` or `json`.

        A ToolResult, as `value` or in place of the status, gives both.
        """
        wire, more = _first(tool_call_id)
        if isinstance(status, ToolResult):
            status, value = None, status
        if isinstance(value, ToolResult):
            status = status or ("execution_failed" if value.is_error else "success")
            if value.is_error:
                fields.setdefault("error", value.text)
            value = value.value
        given = {**more, "tool_name": tool_name, "status": status, "value": value, **fields}
        self._tell("toolResult", _with_kind(wire), _with_kind(given))

    def show_streaming(
        self,
        request_id: str | Mapping[str, Any],
        delta: str | None = None,
        done: bool | None = None,
        channel: str | None = None,
        **fields: Any,
    ) -> None:
        wire, more = _first(request_id, "request_id")
        self._tell("streaming", wire, {**more, "delta": delta, "done": done, "channel": channel, **fields})

    def show_progress(
        self,
        tool_call_id: str | Mapping[str, Any],
        progress: float | None = None,
        total: float | None = None,
        message: str | None = None,
    ) -> None:
        wire, more = _first(tool_call_id)
        self._tell("toolProgress", wire, {**more, "progress": progress, "total": total, "message": message})

    def update_worker(self, worker: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        self._tell("workerUpdate", worker, fields)

    def update_plan(self, plan: list[dict[str, Any]], explanation: str | None = None) -> None:
        self._tell("planUpdated", {"plan": plan}, {"explanation": explanation})

    def show_diff(self, diff: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        self._tell("diffContent", diff, fields)

    def end_session(self, reason: str, message: str | None = None) -> None:
        self._tell("sessionEnd", {"reason": reason}, {"message": message})

    def _tell(self, type: str, wire: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> None:
        given = {camel(name): value for name, value in fields.items() if value is not None or name == "decision"}
        data = {**{camel(name): value for name, value in _fields(wire, type).items()}, **given}
        self.bus.emit(type, data, data.get("workerId") or "")

    # ---- asking

    async def request_approval(
        self,
        request: ApprovalRequired | Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        cancel: CancelSignal | None = None,
        check_edit: EditCheck | None = None,
        worker_id: str = "",
        **fields: Any,
    ) -> AnsweredApproval:
        """`{approved, by, choice?, remember?, args?, reason?, stop?}`, true only if approved.

        `type` and `description` are enough of a request. `by` is the UI that answered, `timeout`, `interrupt`
        (cancelled), or `nobody` when no one could. `remember` is `session` where no `choices` were offered: to keep it
        is up to whoever asks.
        """
        wire = _question(request, fields, ApprovalRequired)
        if not wire["payload"]:
            wire["payload"] = wire["description"]
        if timeout is not None:
            wire.setdefault("expiresAt", iso_time(time.time() + timeout))
        answer = await self._ask(
            APPROVAL, wire, limit_s=timeout, cancel=cancel, check_edit=check_edit, worker_id=worker_id
        )
        return AnsweredApproval(answer)

    def withdraw_approval(self, request_id: str, *, approved: bool, by: str, reason: str = "") -> None:
        """Closes an open card that needs no answer any more, e.g. because another answer covers it (`memory`)."""
        self._withdraw(request_id, {"approved": approved, "by": by, **({"reason": reason} if reason else {})})

    def answer_by_command(self, request_id: str) -> None:
        """Closes the prompt of this id: a command came in its place. It raises InputUnavailable, by `command`."""
        question = self.open_question(request_id)
        if question is not None and question.type == INPUT.asks:
            self._withdraw(request_id, {"by": COMMAND, "reason": "a command came instead"})

    async def request_form(
        self,
        form: FormRequired | Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        cancel: CancelSignal | None = None,
        worker_id: str = "",
        **fields: Any,
    ) -> AnswerData:
        """`{action, by, values?}`; nobody there, timeout and cancel all give `cancel`."""
        wire = _question(form, fields, FormRequired)
        return await self._ask(FORM, wire, limit_s=timeout, cancel=cancel, worker_id=worker_id)

    async def get_user_input(
        self,
        prompt: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        cancel: CancelSignal | None = None,
    ) -> InputText:
        """The text, with `attachments`. Raises InputUnavailable."""
        request_id = new_id()
        wire = {"requestId": request_id, "prompt": prompt}
        answer = await self._ask(INPUT, wire, limit_s=timeout, cancel=cancel)
        if "content" not in answer:
            by = answer["by"]
            raise InputUnavailable("interrupted" if by == INTERRUPT else answer.get("reason", UI_GONE), by)
        return InputText(answer["content"], request_id, answer.get("attachments"))


def _question(
    request: EventData | Mapping[str, Any] | None, fields: Mapping[str, Any], kind: type[EventData]
) -> dict[str, Any]:
    """Returns the complete question by wire names. Raises ValueError as `bus.emit`."""
    wire = to_wire(request) if isinstance(request, EventData) else dict(_fields(request, kind.TYPE))
    wire |= fields
    if not (wire.get("requestId") or wire.get("request_id")):
        wire["requestId"] = new_id()
    return complete_fields(kind, wire)


def _fields(given: Mapping[str, Any] | object, type: str) -> Mapping[str, Any]:
    if given is None or isinstance(given, Mapping):
        return given or {}
    asks = '{"type": "tool_call", "description": …}' if type == "approvalRequired" else "a mapping of its fields"
    raise TypeError(f"{type!r} takes {asks} or keywords, not {given.__class__.__name__}")


def _first(
    given: str | Mapping[str, Any] | None, name: str = "tool_call_id"
) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The first argument is an id, or a mapping of all fields."""
    return (given, {}) if isinstance(given, Mapping) else ({}, {name: given})


def _with_kind(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    value = fields.get("value")
    if value is None or (isinstance(value, Mapping) and "kind" in value):
        return fields
    semantic = {"kind": "text", "content": value} if isinstance(value, str) else {"kind": "json", "data": value}
    return {**fields, "value": semantic}


def create_runtime_ui(bus: EventBus) -> RuntimeUI:
    """The bus's own: who asks and who attaches to answer meet there, though neither knows the other."""
    require(isinstance(bus, EventBus), "create_runtime_ui: bus", "made by create_ui_event_bus()", bus)
    ui = bus.runtime_ui
    if not isinstance(ui, RuntimeUI):
        ui = bus.runtime_ui = RuntimeUI(bus)
    return ui
