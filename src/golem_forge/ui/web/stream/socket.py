"""One page's WebSocket: greets it, sends what it missed, then everything as it happens, and takes its actions.

The queue is joined first and the past is read up to that moment, so nothing is lost or sent twice. A page that falls
behind, or does not read for ten seconds, is closed; it resumes with the last number it has. The session never waits for
a page.
Actions are checked, then put on the bus as any UI's action. Refuses (ApiRefusal) a session that does not run here
(409), data that the action does not take (422), an answer to a question that is unknown (404) or closed (409, saying
who answered), and an answer that would not count (422; the question stays open).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from inspect import get_annotations
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter

from golem_forge.core.errors import ForgeError
from golem_forge.events.model import REGISTRY
from golem_forge.events.serialization import Event, decode_json
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.render.card import field_errors
from golem_forge.ui.web.api import ApiRefusal
from golem_forge.ui.web.sdk import WebSocket, WebSocketDisconnect
from golem_forge.ui.web.security import TOO_MANY, TOO_MUCH_AT_ONCE, ActionLimit
from golem_forge.ui.web.stream.history import HistoryPage
from golem_forge.ui.web.stream.open_streams import OpenStream
from golem_forge.ui.web.stream.watched_session import (
    BEHIND,
    GONE,
    UI_NAME,
    LiveSession,
    PageQueue,
    QueueClosed,
    SessionStatus,
    WatchedSession,
    diff_for,
)
from golem_forge.ui.web.views import (
    PONG,
    Frame,
    answer_text,
    bye_text,
    frame_text,
    hello_text,
    shown_text,
)

_SEND_LIMIT_S: Final = 10.0
_CLOSE_LIMIT_S: Final = 1.0
_MAX_RECEIVED: Final = 1 << 20
MAX_ACTION_ID: Final = 200
BAD_REQUEST: Final = 4400
"""Close code: the request for this stream cannot be understood."""
_CODES: Final = {404: GONE, 429: TOO_MANY}


async def serve_socket(
    websocket: WebSocket,
    *,
    read_only: bool = False,
    find: Callable[[str], Awaitable[WatchedSession]] | None = None,
) -> None:
    """`read_only`: whoever looks may not act. `find`: gives the session, if not the registry."""
    registry = websocket.app.state.registry
    with contextlib.suppress(WebSocketDisconnect, OSError, RuntimeError):  # the page left meanwhile
        await websocket.accept()
        try:
            after = _parse_after(websocket.query_params.get("after"))
            session = await (find or registry.find)(websocket.path_params["id"])
            if session.audience.full:
                raise ApiRefusal(429, "Too many pages look at this session.")
            await session.arrive()
        except ApiRefusal as refused:
            await websocket.send_text(bye_text(refused.problem.problem))
            await websocket.close(_CODES.get(refused.status, BAD_REQUEST))
            return
        actions = websocket.app.state.login.actions_of(websocket.scope)
        connection = _PageConnection(websocket, session, actions, notify=registry.notify, read_only=read_only)
        await connection.serve(after)


def _parse_after(given: str | None) -> int | None:
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise ApiRefusal(422, "`after` is the number of the last event the page has.")
    return int(given)


class _Snapshot(NamedTuple):
    """The state of the session when the page joined."""

    last: int
    standing: list[Event]
    questions: list[Event]
    flows: list[OpenStream]
    streams: list[str]


class _PageConnection:
    def __init__(
        self, websocket: WebSocket, session: WatchedSession, actions: ActionLimit, *, notify: bool, read_only: bool
    ) -> None:
        self._socket = websocket
        self._session = session
        self._actions = actions
        self._notify = notify
        self._read_only = read_only
        self._queue = PageQueue()
        self._sending_since: float | None = None
        self._unread = False

    async def serve(self, after: int | None) -> None:
        moment = self._join()
        writing = asyncio.ensure_future(self._write(after, moment))
        reading = asyncio.ensure_future(self._read())
        watching = asyncio.ensure_future(self._watch(writing))
        tasks: set[asyncio.Future[None]] = {writing, reading, watching}
        try:
            await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._session.audience.leave(self._queue)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, WebSocketDisconnect | OSError | RuntimeError):
                raise error

    # ---- to the page

    async def _write(self, after: int | None, moment: _Snapshot) -> None:
        """Sends until the queue is closed or the page does not read, then closes the socket."""
        try:
            await self._catch_up(after, moment)
            while True:
                entry = await self._queue.next()
                if isinstance(entry, OpenStream):
                    await self._send_flow(entry)
                else:
                    await self._send(await entry.text() if isinstance(entry, Frame) else entry)
        except QueueClosed as ended:
            code = ended.code
        except asyncio.CancelledError:
            if not self._unread:
                raise
            code = BEHIND
        async with asyncio.timeout(_CLOSE_LIMIT_S):
            await self._socket.close(code)

    async def _watch(self, writing: asyncio.Task[None]) -> None:
        """Closes a page that has not taken a frame for too long. One timer a frame would cost more than the frame."""
        while not self._unread:
            await asyncio.sleep(_SEND_LIMIT_S / 4)
            since = self._sending_since
            if since is not None and asyncio.get_running_loop().time() - since > _SEND_LIMIT_S:
                self._unread = True
                writing.cancel()

    def _join(self) -> _Snapshot:
        """Joins before anything is awaited, so that all later events, the end included, wait in the queue."""
        session, audience = self._session, self._session.audience
        self._queue = audience.join()
        return _Snapshot(
            session.last_seq,
            audience.standing.events(),
            session.open_questions(),
            audience.streams.flows(),
            audience.streams.ids(),
        )

    async def _catch_up(self, after: int | None, moment: _Snapshot) -> None:
        """Sends everything up to the moment of joining."""
        session = self._session
        last, standing, questions, flows, streams = moment
        resumes = after is not None and after <= last
        page = await session.history.page(after=after) if resumes else await session.history.page(before=last + 1)
        answerable = session.answerable and not self._read_only
        about = {"id": session.id, "state": session.state.value, "answerable": answerable}
        more = {"more": bool(after) if resumes else page.more, "resumed": resumes, "notify": self._notify}
        await self._send(await run_in_thread(lambda: hello_text(about, last, standing, **more)))
        await self._send_past(page, last)
        while resumes and page.more and page.reached < last:
            page = await session.history.page(after=page.reached)
            await self._send_past(page, last)
        again = await run_in_thread(lambda: [shown_text(each, again=True) for each in questions])
        for text in again:
            await self._send(text)
        for flow in flows:
            await self._send_flow(flow)
        await self._send(frame_text("caught_up", seq=last, streams=streams))

    async def _send_past(self, page: HistoryPage, last: int) -> None:
        events = [event for event in page.events if event.seq <= last]
        for text in await run_in_thread(lambda: [shown_text(event) for event in events]):
            await self._send(text)

    async def _send_flow(self, flow: OpenStream) -> None:
        queue = self._queue
        piece = await flow.piece(queue.position(flow))
        if piece is not None:
            queue.set_position(flow, piece.place)
            await self._send(piece.text)
            if piece.rest:
                queue.put_stream(flow)

    async def _send(self, text: str) -> None:
        self._sending_since = asyncio.get_running_loop().time()
        await self._socket.send_text(text)
        self._sending_since = None

    # ---- from the page

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            fits = self._actions.take(len(message.get("bytes") or text or ""))
            self._queue.put(await self._replied(text, fits=fits))
            if self._actions.exhausted:
                self._queue.end(TOO_MANY, "This page sends too much.")
                await asyncio.sleep(_SEND_LIMIT_S + _CLOSE_LIMIT_S)  # it is being closed, and not read any more
                return
            await asyncio.sleep(0)  # what waits already is received at once; others have their turn

    async def _replied(self, text: str | None, *, fits: bool) -> str:
        """`fits`: nothing was sent too fast. Otherwise only a ping is answered as ever."""
        if text is None or len(text) > _MAX_RECEIVED:
            return answer_text("", f"A frame is text of at most {_MAX_RECEIVED} bytes.")
        try:
            frame = decode_json(text)
        except (ValueError, RecursionError):
            frame = None
        if not isinstance(frame, Mapping):
            return answer_text("", "A frame is a JSON object.")
        if frame.get("type") == "ping":
            return PONG
        action_id, type, data = frame.get("id"), frame.get("type"), frame.get("data")
        action_id = action_id[:MAX_ACTION_ID] if isinstance(action_id, str) else ""
        if not fits:
            return answer_text(action_id, TOO_MUCH_AT_ONCE)
        if not isinstance(type, str) or not isinstance(data, Mapping):
            return answer_text(action_id, "An action has a `type` and an object as `data`.")
        try:
            await act_on(self._session, type, data, self._socket.scope)
        except ApiRefusal as refused:
            return answer_text(action_id, refused.problem.problem, refused.problem.fields)
        except ForgeError as error:
            return answer_text(action_id, error.message)
        return answer_text(action_id)


ACTIONS: Final = frozenset(
    {"userInput", "approvalResponse", "formResponse", "manualToolInvoke", "command", "interrupt", "getDiff"}
)
ANSWERS: Final = frozenset({"userInput", "approvalResponse", "formResponse"})
_READ_ONLY: Final = {
    SessionStatus.ELSEWHERE: "Another process runs this session: here you can only watch it.",
    SessionStatus.CLOSED: "This session does not run: here you can only read it. Resume it to go on.",
}
_NEEDS_READY: Final = frozenset({"command", "manualToolInvoke"})
"""Actions that nothing handles before the session is ready."""
_MAX_PROBLEM: Final = 500


async def act_on(session: WatchedSession, type: str, data: Mapping[str, Any], scope: Mapping[str, Any]) -> None:
    """`scope`: of the request or the socket by which it came."""
    if isinstance(session, LiveSession) or type not in ACTIONS:
        take_action(session, type, data)
    elif not await session.act_elsewhere(type, _checked_data(type, data), scope):
        raise _read_only(session)


def take_action(session: WatchedSession, type: str, data: Mapping[str, Any]) -> None:
    if type not in ACTIONS:
        raise ApiRefusal(422, f"Unknown action; the actions are {', '.join(sorted(ACTIONS))}.", {"type": "unknown"})
    given = _checked_data(type, data)
    if not isinstance(session, LiveSession):
        raise _read_only(session)
    if type in ANSWERS:
        _answer(session, type, given)
        return
    if type == "getDiff" and diff_for(session.ui.open_question(given["requestId"]), given["path"]) is None:
        raise ApiRefusal(404, "No open question changes this path.")
    if type in _NEEDS_READY and not session.is_ready:
        raise ApiRefusal(409, "The session is just being started; answer what it asks, then try again.")
    session.bus.emit(type, given, source=UI_NAME)


def _read_only(session: WatchedSession) -> ApiRefusal:
    return ApiRefusal(409, _READ_ONLY.get(session.state, _READ_ONLY[SessionStatus.CLOSED]))


def _answer(session: LiveSession, type: str, given: dict[str, Any]) -> None:
    request = given["requestId"]
    objection = session.ui.objection(type, given)
    if objection is None:
        late = session.resolutions.late_message(request)
        raise ApiRefusal(409, late) if late else ApiRefusal(404, "No such question is open.")
    if objection:
        raise ApiRefusal(422, f"This answer does not count: {objection[:_MAX_PROBLEM]}.")
    session.bus.emit(type, given, source=UI_NAME)
    if "args" in given and (still := session.ui.open_question(request)) is not None:
        fields = field_errors(still.wire)
        words = "; ".join(f"{name}: {error}" for name, error in fields.items()) or "see the card"
        raise ApiRefusal(422, f"The changed arguments do not fit: {words[:_MAX_PROBLEM]}", fields)


def _checked_data(type: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The members this action knows, of the types it says; None where optional is left out."""
    kind = REGISTRY[type]
    known = {field.wire: field for field in kind.FIELDS}
    problems = {name[:100]: "unknown" for name in data if name not in known}
    given: dict[str, Any] = {}
    for wire, field in known.items():
        value = data.get(wire)
        if value is None:
            if field.required:
                problems[wire] = "missing"
            continue
        try:
            given[wire] = _adapter(type, field.attribute).validate_python(value, strict=True)
        except (ValueError, RecursionError):  # pydantic's words may quote a secret
            problems[wire] = "of another type than this action takes"
    if problems:
        first = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        raise ApiRefusal(422, f"{type}: {first[:_MAX_PROBLEM]}", problems)
    return given


@cache
def _adapter(type: str, attribute: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_annotations(REGISTRY[type], eval_str=True)[attribute])
