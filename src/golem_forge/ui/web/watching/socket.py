"""One page's socket: greets it, sends what it has missed, then everything as it happens, and takes its actions.

The queue is joined first and the past is read up to that moment, so nothing is lost and nothing comes twice. A page
that falls behind, or does not read for ten seconds, is closed; it resumes with the last number it has. What a page
sends is bounded and checked; the session never waits for a page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.events.envelope import Event
from golem_forge.events.jsontext import decode
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.watching.actions import take_action
from golem_forge.ui.web.watching.flowing import Flow
from golem_forge.ui.web.watching.followed import GONE, FollowedSession
from golem_forge.ui.web.watching.frames import (
    PONG,
    Frame,
    again_text,
    answer_text,
    bye_text,
    caught_up_text,
    hello_text,
    shown_texts,
)
from golem_forge.ui.web.watching.history import Page
from golem_forge.ui.web.watching.live import LiveSession
from golem_forge.ui.web.watching.page_queue import BEHIND, Ended, PageQueue
from golem_forge.ui.web.wire import Refused

if TYPE_CHECKING:
    from golem_forge.ui.web.sdk import WebSocket

    Watched = LiveSession | FollowedSession

_SEND_LIMIT_S: Final = 10.0
_CLOSE_LIMIT_S: Final = 1.0
_MOST_RECEIVED: Final = 1 << 20
_MOST_ID: Final = 200
WRONG: Final = 4400
"""Close code: the request for this stream cannot be understood."""
CROWDED: Final = 4429
"""Close code: too many pages look at this session."""
_CODES: Final = {404: GONE, 429: CROWDED}


async def serve_socket(websocket: WebSocket) -> None:
    from golem_forge.ui.web.sdk import WebSocketDisconnect

    house = websocket.app.state.house
    with contextlib.suppress(WebSocketDisconnect, OSError, RuntimeError):  # the page left meanwhile
        await websocket.accept()
        try:
            after = _after(websocket.query_params.get("after"))
            session = await house.find(websocket.path_params["id"])
            if session.audience.full:
                raise Refused(429, "Too many pages look at this session.")
            await session.arrive()
        except Refused as refused:
            await websocket.send_text(bye_text(refused.problem.problem))
            await websocket.close(_CODES.get(refused.status, WRONG))
            return
        await _Visit(websocket, session, notify=house.notify).serve(after)


def _after(given: str | None) -> int | None:
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise Refused(422, "`after` is the number of the last event the page has.")
    return int(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """How things stood when the page joined."""

    last: int
    standing: list[Event]
    questions: list[Event]
    flows: list[Flow]
    streams: list[str]

    @classmethod
    def of(cls, session: Watched) -> _Moment:
        return cls(
            last=session.last_seq,
            standing=session.standing.events(),
            questions=session.open_questions(),
            flows=session.streams.flows(),
            streams=session.streams.ids(),
        )


class _Visit:
    def __init__(self, websocket: WebSocket, session: Watched, *, notify: bool) -> None:
        self._socket = websocket
        self._session = session
        self._notify = notify
        self._queue = PageQueue()
        self._sending_since: float | None = None
        self._unread = False

    async def serve(self, after: int | None) -> None:
        from golem_forge.ui.web.sdk import WebSocketDisconnect

        session = self._session
        self._queue = session.audience.join()
        writing = asyncio.ensure_future(self._write(after, _Moment.of(session)))
        reading = asyncio.ensure_future(self._read())
        watching = asyncio.ensure_future(self._watch(writing))
        tasks: set[asyncio.Future[None]] = {writing, reading, watching}
        try:
            await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            session.audience.leave(self._queue)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, WebSocketDisconnect | OSError | RuntimeError):
                raise error

    # ---- to the page

    async def _write(self, after: int | None, moment: _Moment) -> None:
        code = await self._send_all(after, moment)
        async with asyncio.timeout(_CLOSE_LIMIT_S):
            await self._socket.close(code)

    async def _send_all(self, after: int | None, moment: _Moment) -> int:
        """The code to close with."""
        try:
            await self._catch_up(after, moment)
            while True:
                entry = await self._queue.next()
                if isinstance(entry, Flow):
                    await self._send_flow(entry)
                else:
                    await self._send(await entry.text() if isinstance(entry, Frame) else entry)
        except Ended as ended:
            return ended.code
        except asyncio.CancelledError:
            if not self._unread:
                raise
            return BEHIND

    async def _watch(self, writing: asyncio.Task[None]) -> None:
        """Lets a page go that has not taken a frame for too long. (A timer a frame would cost more than the frame.)"""
        while not self._unread:
            await asyncio.sleep(_SEND_LIMIT_S / 4)
            since = self._sending_since
            if since is not None and asyncio.get_running_loop().time() - since > _SEND_LIMIT_S:
                self._unread = True
                writing.cancel()

    async def _catch_up(self, after: int | None, moment: _Moment) -> None:
        """Everything up to that moment; what happened since waits in the queue."""
        session, last = self._session, moment.last
        resumes = after is not None and after <= last
        page = await session.history.page(after=after) if resumes else await session.history.page(before=last + 1)
        about = {"id": session.id, "state": session.state.value, "answerable": session.answerable}
        earlier = bool(after) if resumes else page.more
        standing, notify = moment.standing, self._notify
        await self._send(
            await run_in_thread(lambda: hello_text(about, last, standing, more=earlier, resumed=resumes, notify=notify))
        )
        await self._send_past(page, last)
        while resumes and page.more and page.reached < last:
            page = await session.history.page(after=page.reached)
            await self._send_past(page, last)
        questions = moment.questions
        for text in await run_in_thread(lambda: [again_text(each) for each in questions]):
            await self._send(text)
        for flow in moment.flows:
            await self._send_flow(flow)
        await self._send(caught_up_text(last, moment.streams))

    async def _send_past(self, page: Page, last: int) -> None:
        events = [event for event in page.events if event.seq <= last]
        for text in await run_in_thread(lambda: shown_texts(events)):
            await self._send(text)

    async def _send_flow(self, flow: Flow) -> None:
        queue = self._queue
        piece = await flow.piece(queue.place(flow))
        if piece is not None:
            queue.reached(flow, piece.place)
            await self._send(piece.text)
            if piece.rest:
                queue.mark(flow)

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
            self._queue.put(self._replied(message.get("text")))

    def _replied(self, text: str | None) -> str:
        if text is None or len(text) > _MOST_RECEIVED:
            return answer_text("", f"A frame is text of at most {_MOST_RECEIVED} bytes.")
        try:
            frame = decode(text)
        except (ValueError, RecursionError):
            return answer_text("", "A frame is a JSON object.")
        if not isinstance(frame, Mapping):
            return answer_text("", "A frame is a JSON object.")
        if frame.get("type") == "ping":
            return PONG
        action_id = frame.get("id")
        name = action_id[:_MOST_ID] if isinstance(action_id, str) else ""
        return self._acted(name, frame.get("type"), frame.get("data"))

    def _acted(self, action_id: str, type: Any, data: Any) -> str:
        if not isinstance(type, str) or not isinstance(data, Mapping):
            return answer_text(action_id, "An action has a `type` and an object as `data`.")
        try:
            take_action(self._session, type, data)
        except Refused as refused:
            return answer_text(action_id, refused.problem.problem, refused.problem.fields)
        except ForgeError as error:
            return answer_text(action_id, error.message)
        return answer_text(action_id)
