"""OpenSockets: the WebSockets that pages hold. Each can be ended from outside, with a last word to its page.

A page whose cookie is forgotten or too old is cut off at once, and all of them when the server stops. Refuses more
than a fixed number: each costs memory whether or not it is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from golem_forge.ui.web.door.login import Login
    from golem_forge.ui.web.sdk import ASGIApp, Message, Receive, Scope, Send

MOST_SOCKETS: Final = 128
GOING_AWAY: Final = 1001
LOGGED_OUT: Final = 4401
_LAST_WORD_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    code: int
    reason: str


class OpenSockets:
    def __init__(self, login: Login) -> None:
        self._login = login
        self._open: dict[asyncio.Future[Ending], None] = {}
        self._none_left = asyncio.Event()
        self._none_left.set()

    @property
    def full(self) -> bool:
        return len(self._open) >= MOST_SOCKETS

    async def serve(self, app: ASGIApp, cookie: str, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Ending] = loop.create_future()

        def log_out() -> None:
            _end(ended, LOGGED_OUT, "Logged out.")

        too_old = loop.call_later(self._login.seconds_left(cookie), log_out)
        unwatch = self._login.when_forgotten(cookie, log_out)
        self._open[ended] = None
        self._none_left.clear()
        try:
            await _until_over(app, scope, receive, send, ended)
        finally:
            too_old.cancel()
            unwatch()
            del self._open[ended]
            if not self._open:
                self._none_left.set()

    async def end_all(self, reason: str, within: float) -> None:
        """Says goodbye to every page, and waits until they are closed or the time is up."""
        for ended in list(self._open):
            _end(ended, GOING_AWAY, reason)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._none_left.wait()


async def _until_over(app: ASGIApp, scope: Scope, receive: Receive, send: Send, ended: asyncio.Future[Ending]) -> None:
    accepted = False

    async def noting(message: Message) -> None:
        nonlocal accepted
        if ended.done():
            raise OSError("this socket is closed")  # what starlette takes for a page that left
        await send(message)
        accepted = accepted or message["type"] == "websocket.accept"

    serving: asyncio.Future[Any] = asyncio.ensure_future(app(scope, receive, noting))
    either: set[asyncio.Future[Any]] = {serving, ended}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            if accepted:
                await _say_goodbye(send, ended.result())
            await asyncio.wait({serving}, timeout=_LAST_WORD_SECONDS)  # it hears of the closing as of any other
    finally:
        serving.cancel()
        await asyncio.wait({serving})
    if not serving.cancelled():
        serving.result()


async def _say_goodbye(send: Send, ending: Ending) -> None:
    bye = json.dumps({"kind": "bye", "reason": ending.reason})
    with contextlib.suppress(OSError, RuntimeError):  # TimeoutError is an OSError: it does not read what it is sent
        async with asyncio.timeout(_LAST_WORD_SECONDS):
            await send({"type": "websocket.send", "text": bye})
            await send({"type": "websocket.close", "code": ending.code, "reason": ending.reason})


def _end(ended: asyncio.Future[Ending], code: int, reason: str) -> None:
    if not ended.done():
        ended.set_result(Ending(code=code, reason=reason))
