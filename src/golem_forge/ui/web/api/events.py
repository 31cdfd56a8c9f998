"""What happens in a session, over HTTP: its events, actions, attachments, stored outputs, and what it changed.

A page of events is bounded, as on the socket; a single event or question is given whole, as it was recorded. Actions
are those of the socket, for programs without one. Attachments are sent first, then named by `userInput`.
Outputs are given in pages of numbered lines, only those of the session in the path, with known secrets redacted;
reading one runs, judges and records nothing.
Threat: an output handle is a file name; only `out_` and 12 hexadecimal digits are looked up.

Changes, the diff of one file and what an undo would do are the same as `/changes` and the list before `/undo`. Undoing
is no operation here: the page calls the tool `undo_changes` as a person calls any tool, and the approval card shows
every file. Files are named by their virtual paths.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from golem_forge.agent.session_changes import (
    change_json,
    read_changes,
    select,
)
from golem_forge.core.changes import ChangeSelection, ChangeSet
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.regex import regex
from golem_forge.core.text import shorten
from golem_forge.events.serialization import Event, encode_json
from golem_forge.net.server_guard import declared_size
from golem_forge.orchestrator.bound_output import stored_picture
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.undo.log import taken_back
from golem_forge.sandbox.undo.restore import NothingToUndo, UndoPreview, change_diff, preview
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.output import blocks_of, find_position, render_page
from golem_forge.ui.web.api import ApiModel, ApiRefusal
from golem_forge.ui.web.api.operation import MAX_BODY_BYTES, ApiCall, RequestedSession, operation, read_body
from golem_forge.ui.web.sdk import Response
from golem_forge.ui.web.security import TOO_MUCH_AT_ONCE
from golem_forge.ui.web.stream.history import PAGE_EVENTS
from golem_forge.ui.web.stream.socket import MAX_ACTION_ID, act_on
from golem_forge.ui.web.views import shown_members

_EventNumber = Annotated[int, Field(ge=0, le=(1 << 53) - 1)]
_NO_EVENT: Final = "This session has no event of that number."
_MAX_DIGITS: Final = 16
_MAX_INBOX: Final = 200
_MAX_ASKS: Final = 200


class EventsQuery(ApiModel, title="EventsQuery"):
    after: _EventNumber | None = None
    """The events that follow this number."""
    before: _EventNumber | None = None
    """The events just below this number. Neither: the last ones."""
    limit: Annotated[int, Field(ge=1, le=PAGE_EVENTS)] = PAGE_EVENTS


class Envelope(ApiModel, title="Envelope"):
    type: str
    seq: int
    ts: str
    session_id: str
    worker_id: str
    data: dict[str, Any]


class EventWithView(ApiModel, title="Shown-Output"):
    event: Envelope
    view: dict[str, Any]
    """How a page shows it; `cut` where `data` was shortened."""


class EventsPage(ApiModel, title="EventsPage"):
    events: list[EventWithView]
    """In rising order."""
    more: bool
    """Whether there are others beyond, in the direction that was asked for."""


class WholeEvent(ApiModel, title="WholeEvent"):
    event: Envelope


@operation("GET", "/api/sessions/{id}/events", "list_events", tag="events", answer=EventsPage)
async def list_events(call: ApiCall, query: EventsQuery) -> Response:
    """Recorded events in pages of at most 200; a page ends early where its events are long."""
    if query.after is not None and query.before is not None:
        raise ApiRefusal(422, "Give `after` or `before`, not both.", {"before": "not together with `after`"})
    session = await call.registry.find(call.path["id"])
    page = await session.history.page(after=query.after, before=query.before, limit=query.limit)
    return await json_response(lambda: {"events": [shown_members(event) for event in page.events], "more": page.more})


@operation(
    "GET",
    "/api/sessions/{id}/events/{seq}",
    "get_event",
    tag="events",
    answer=WholeEvent,
    refusals={404: "there is no event of that number"},
)
async def get_event(call: ApiCall, seq: str) -> Response:
    """One recorded event, whole."""
    session = await call.registry.find(call.path["id"])
    if not seq.isascii() or not seq.isdigit() or len(seq) > _MAX_DIGITS:
        raise ApiRefusal(404, _NO_EVENT)
    event = await session.history.one(int(seq))
    if event is None:
        raise ApiRefusal(404, _NO_EVENT)
    return await json_response(lambda: {"event": event.to_dict()})


class InboxRow(ApiModel, title="InboxRow"):
    session: str
    request_id: str
    kind: Literal["approval", "form"]
    asks: str
    """The tool that wants to run, or who asks for what."""
    risk: str
    """Of an approval: low, medium, high or critical; else empty."""
    since: str


class Inbox(ApiModel, title="Inbox"):
    questions: list[InboxRow]


@operation("GET", "/api/questions", "list_questions", tag="events")
async def list_questions(call: ApiCall) -> Inbox:
    """What waits for an answer in the sessions that run in this process, oldest first; at most 200."""
    rows = [
        _inbox_row(session.id, event)
        for session in call.registry.live_sessions()
        for event in session.open_questions()
        if event.type in ("approvalRequired", "formRequired")
    ]
    return Inbox(questions=sorted(rows, key=lambda row: row.since)[:_MAX_INBOX])


def _inbox_row(session: str, event: Event) -> InboxRow:
    wire, approval = event.wire, event.type == "approvalRequired"
    asks = wire.get("tool") or wire.get("description") if approval else f"{wire.get('source')}: {wire.get('title')}"
    return InboxRow(
        session=session,
        request_id=str(wire.get("requestId", "")),
        kind="approval" if approval else "form",
        asks=shorten(str(asks or ""), _MAX_ASKS),
        risk=str(wire.get("risk", "")) if approval else "",
        since=event.ts,
    )


@operation(
    "GET",
    "/api/sessions/{id}/questions/{requestId}",
    "get_question",
    tag="events",
    answer=WholeEvent,
    refusals={404: "no such question is open", 409: "the session does not run here"},
)
async def get_question(call: ApiCall) -> Response:
    """One open question (`approvalRequired`, `formRequired`, `inputPrompt`), whole."""
    question = call.registry.live(call.path["id"]).ui.open_question(call.path["requestId"])
    if question is None:
        raise ApiRefusal(404, "No such question is open; what it was is among the events.")
    return await json_response(lambda: {"event": question.to_dict()})


async def json_response(make: Any) -> Response:
    """Written off the loop: an event may have megabytes."""
    return Response(await run_in_thread(lambda: encode_json(make())), media_type="application/json")


class Action(ApiModel, title="Action"):
    id: Annotated[str, Field(max_length=MAX_ACTION_ID)] = ""
    """Yours, as on the socket; no answer names it here."""
    type: Literal[
        "userInput", "approvalResponse", "formResponse", "manualToolInvoke", "command", "interrupt", "getDiff"
    ]
    data: dict[str, Any]
    """The members of that action, by their wire names."""


@operation(
    "POST",
    "/api/sessions/{id}/actions",
    "act",
    tag="actions",
    status=202,
    refusals={
        404: "no such question is open",
        409: "the session does not run here, or the question was answered already",
        422: "the action does not take this, or the answer would not count; the question stays open",
        429: "too much was sent at once",
    },
)
async def act(call: ApiCall, body: Action) -> Response:
    """Answers a question, says something, runs a command or a tool, interrupts. What comes of it the events tell."""
    scope = call.request.scope
    if not call.request.app.state.login.actions_of(scope).take(declared_size(scope) or MAX_BODY_BYTES):
        raise ApiRefusal(429, TOO_MUCH_AT_ONCE)
    session = await call.registry.find(call.path["id"])
    await act_on(session, body.type, body.data, scope)
    return Response(status_code=202)


_MAX_NAME: Final = 255


class AttachmentQuery(ApiModel, title="AttachmentQuery"):
    name: str
    """What the file is called; its last component counts."""


class KeptAttachment(ApiModel, title="KeptAttachment"):
    digest: str
    name: str
    size: int


@operation(
    "POST",
    "/api/sessions/{id}/attachments",
    "attach",
    tag="actions",
    raw_body="application/octet-stream",
    status=201,
    refusals={409: "the session does not run here", 413: "more bytes than the worker takes", 422: "not taken by name"},
)
async def attach(call: ApiCall, query: AttachmentQuery) -> KeptAttachment:
    """Keeps a file for an input that names it as `{"digest", "name"}` among its `attachments`."""
    runtime = call.registry.live(call.path["id"]).runtime
    if runtime is None or not runtime.is_ready:
        raise ApiRefusal(409, "This session takes no attachments yet.")
    name = query.name.strip()
    if not name or len(name) > _MAX_NAME or "\0" in name:
        raise ApiRefusal(422, "The name of the file cannot be used.", {"name": "1 to 255 characters"})
    most = runtime.worker.attachment_policy.max_total_bytes
    data = await read_body(call.request, most, f"This worker takes at most {most} bytes of attachments.")
    kept = await run_in_thread(lambda: runtime.receive(name, data))
    return KeptAttachment(digest=kept.digest, name=kept.name, size=kept.size)


MAX_OUTPUT_LINES: Final = 2000
_DEFAULT_LINES: Final = 200
OUTPUT_HANDLE: Final = regex(r"out_[0-9a-f]{12}")
_LineNumber = Annotated[int, Field(ge=1, le=9_999_999_999)]


class OutputQuery(ApiModel, title="OutputQuery"):
    start: _LineNumber = 1
    """The first line, counted from 1."""
    end: _LineNumber | None = None
    """The last line; without it 200 lines, and of what is too long for one page what fits."""


class OutputPage(ApiModel, title="OutputPage"):
    handle: str
    text: str
    """Lines as `L<number>: text`; the last may say which they are: `[lines 1-200 of 900; continue with offset=201]`."""
    total: int
    """How many lines there are; a very long one counts once for each of its parts."""
    next: int | None
    """The `start` of the page behind this one; null: this is the last."""


@operation(
    "GET",
    "/api/sessions/{id}/outputs/{handle}",
    "read_output",
    tag="events",
    refusals={422: "no line, or more than 2000"},
)
async def read_output(call: ApiCall, subject: RequestedSession, handle: str, query: OutputQuery) -> OutputPage:
    """Lines of an output that was kept whole, by the handle in `outputHandle`."""
    session = await call.registry.find(call.path["id"])
    if not OUTPUT_HANDLE.fullmatch(handle):
        raise no_such_output()
    path = subject.home.path / "output" / session.id / handle
    return await output_page(path, handle, query, subject.redact)


async def output_page(path: Path, handle: str, query: OutputQuery, clean: Callable[[str], Any]) -> OutputPage:
    start = query.start
    count = _DEFAULT_LINES if query.end is None else query.end - start + 1
    if not 1 <= count <= MAX_OUTPUT_LINES:
        raise ApiRefusal(
            422, f"A range has 1 to {MAX_OUTPUT_LINES} lines.", {"end": f"{start} to {start + MAX_OUTPUT_LINES - 1}"}
        )
    text, total, following = await run_in_thread(lambda: _read_page(path, start, count))
    return OutputPage(handle=handle, text=clean(text), total=total, next=following)


def _read_page(path: Path, start: int, count: int) -> tuple[str, int, int | None]:
    try:
        place = find_position(blocks_of(path), start)
        text = render_page(blocks_of(path), place, count)
    except OSError:
        raise no_such_output() from None
    except ToolFailed as error:
        raise ApiRefusal(422, error.message, {"start": error.message}) from None
    rows = text.split("\n")
    shown = len(rows) - rows[-1].startswith("[lines ")  # a line of the output begins with its number
    following = place.first + shown
    return text, place.total, following if following <= place.total else None


class StoredPicture(ApiModel, title="StoredPicture"):
    handle: str
    data: str
    """The picture as base64."""


@operation("GET", "/api/sessions/{id}/pictures/{handle}", "read_picture", tag="events")
async def read_picture(call: ApiCall, subject: RequestedSession, handle: str) -> StoredPicture:
    """A picture of a tool's result, by its handle in `media`."""
    session = await call.registry.find(call.path["id"])
    if not OUTPUT_HANDLE.fullmatch(handle):
        raise no_such_output()
    data = await run_in_thread(lambda: stored_picture(subject.home.path / "output" / session.id / handle))
    if not data:
        raise no_such_output()
    return StoredPicture(handle=handle, data=data)


def no_such_output() -> ApiRefusal:
    return ApiRefusal(404, "This session keeps no such output.")


_MAX_CALLS: Final = 500
_MAX_FILES: Final = 1000
_MAX_DIFF: Final = 1 << 20
_Path = Annotated[str, Field(max_length=8192)]
_Call = Annotated[str, Field(max_length=200)]


class ChangedFile(ApiModel, title="ChangedFile"):
    path: str
    verb: str
    """`created`, `changed`, `deleted` or `mode`."""
    added: int | None
    """Lines; null: not text, or too large to compare."""
    removed: int | None
    others: list[str]
    """Who else may have changed it; undo does not take it back by itself then."""
    lost: str
    """Why it cannot be brought back; empty: it can."""


class ChangedRef(ApiModel, title="ChangedRef"):
    zone: str
    name: str
    before: str
    after: str


class CallChanges(ApiModel, title="CallChanges"):
    turn: int
    """Which message of the person; 0: they called the tool by hand."""
    call: str
    tool: str
    worker: str
    at: str
    what: str
    added: int
    removed: int
    undone: str
    """`undone`, `undone in part`; empty: it was not."""
    undoes: list[str]
    """The calls that this one took back."""
    problem: str
    """Why some changes may be missing; empty: it is complete."""
    remade: list[str]
    """Directories that a tool can make again and in which the call changed something; undo leaves them."""
    reached: list[str]
    """Hosts that the call could reach; what was sent there stays sent."""
    files: list[ChangedFile]
    refs: list[ChangedRef]


class ChangesShown(ApiModel, title="ChangesShown"):
    calls: list[CallChanges]
    """Oldest first."""
    more: bool
    """Whether earlier ones, or further files of a call, are left out."""


class ChangeSelectionQuery(ApiModel, title="ChangeSelectionQuery"):
    turn: int | None = None
    call: _Call = ""
    path: _Path = ""


class FileDiffQuery(ApiModel, title="FileDiffQuery"):
    call: _Call
    path: _Path


class FileDiffShown(ApiModel, title="FileDiffShown"):
    path: str
    diff: str
    """Unified; empty where it is no text."""


class UndoQuery(ApiModel, title="UndoQuery"):
    turn: int | None = None
    call: _Call = ""
    path: _Path = ""
    redo: bool = False


class UndoStepShown(ApiModel, title="UndoStepShown"):
    path: str
    action: str
    """`restore`, `delete`, `create`, `mode` or `ref`."""
    selected: bool
    why: str
    """Why it is not taken back by itself, or cannot be."""
    diff: str


class UndoShown(ApiModel, title="UndoShown"):
    steps: list[UndoStepShown]
    calls: list[str]
    lost: list[str]
    lasting: str
    """What undo does not take back of these calls, in words; empty: nothing."""


@operation("GET", "/api/sessions/{id}/changes", "list_changes", tag="changes")
async def list_changes(call: ApiCall, subject: RequestedSession, query: ChangeSelectionQuery) -> ChangesShown:
    """What the calls of a session changed in the zones; of one turn, call or path where it is named."""
    every = await _changes(call, subject)
    found = _selected(every, query).of(every)
    undone = taken_back(every)
    shown = [change_json(each, undone) for each in found[-_MAX_CALLS:]]
    more = len(found) > len(shown) or any(len(each["files"]) > _MAX_FILES for each in shown)
    for each in shown:
        del each["files"][_MAX_FILES:]
    return ChangesShown.model_validate(subject.redact({"calls": shown, "more": more}))


@operation(
    "GET",
    "/api/sessions/{id}/changes/diff",
    "show_change",
    tag="changes",
    refusals={404: "there is no such session, or no such change"},
)
async def show_change(call: ApiCall, subject: RequestedSession, query: FileDiffQuery) -> FileDiffShown:
    """What one call changed in one file."""
    every = await _changes(call, subject)
    found = next(
        (one for each in every if each.call == query.call for one in each.changes if one.path == query.path), None
    )
    if found is None:
        raise ApiRefusal(404, "This call did not change this file.")
    home = subject.home.path
    diff = await run_in_thread(lambda: change_diff(home, found))
    shown = subject.redact({"path": found.path, "diff": diff})
    # Cut afterwards: the beginning of a secret at the cut would be text like any other.
    return FileDiffShown.model_validate({**shown, "diff": shown["diff"][:_MAX_DIFF]})


@operation(
    "GET",
    "/api/sessions/{id}/undo",
    "preview_undo",
    tag="changes",
    refusals={409: "the session does not run here", 422: "there is no such turn, call or path"},
)
async def preview_undo(call: ApiCall, subject: RequestedSession, query: UndoQuery) -> UndoShown:
    """What the tool `undo_changes` would do with each file. Changes nothing."""
    runtime = subject.live_runtime
    every = await _changes(call, subject)
    selected = _selected(every, query)
    home, session = subject.home.path, runtime.session_id
    sandbox = runtime.path.sandbox or Sandbox(has_block=False)

    def look() -> UndoPreview:
        return preview(home, sandbox, session, selected, redo=query.redo)

    try:
        found = await run_in_thread(look)
    except NothingToUndo as error:
        raise ApiRefusal(422, error.message) from None
    shown = {
        "steps": [
            {"path": each.path, "action": each.action, "selected": each.selected, "why": each.why, "diff": each.diff}
            for each in found.steps[:_MAX_FILES]
        ],
        "calls": list(found.calls),
        "lost": [f"{each.path}: {each.why}" for each in found.lost],
        "lasting": found.lasting,
    }
    return UndoShown.model_validate(subject.redact(shown))


async def _changes(call: ApiCall, subject: RequestedSession) -> tuple[ChangeSet, ...]:
    home, session = subject.home.path, (await call.registry.find(call.path["id"])).id
    return await run_in_thread(lambda: read_changes(home, session))


def _selected(every: tuple[ChangeSet, ...], query: Any) -> ChangeSelection:
    """Refused (422) where there is no such thing."""
    try:
        return select(every, turn=query.turn, call=query.call, paths=[query.path] if query.path else [])
    except ForgeError as error:
        raise ApiRefusal(422, error.message) from None
