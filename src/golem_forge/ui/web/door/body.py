"""A request's body on its way in and its answer on the way out, each within its time.

A body has 30 seconds and one more for every 64 KiB of it; a piece of the answer must be taken within 30. Who is slower
is let go (408): whoever holds a request open without using it keeps others out.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from golem_forge.ui.web.sdk import Message, Receive, Send

BODY_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 30.0
DROPPING_SECONDS: Final = 2.0
_BYTES_A_SECOND: Final = 1 << 16


class Abandoned(BaseException):
    """This request goes no further. Not an Exception: what answers requests must not take it for a fault of its own."""

    def __init__(self, *, slow: bool) -> None:
        super().__init__()
        self.slow = slow
        """False: the client left in the middle of its own request."""


def timely(receive: Receive) -> Receive:
    """Until the body is whole; afterwards it waits for the client to leave, as long as that takes."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    taken = 0
    whole = False

    async def next_piece() -> Message:
        nonlocal taken, whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at(started + BODY_SECONDS + taken / _BYTES_A_SECOND):
                message = await receive()
        except TimeoutError:
            raise Abandoned(slow=True) from None
        if message["type"] == "http.disconnect":
            raise Abandoned(slow=False)
        taken += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        return message

    return next_piece


async def dropped(receive: Receive, most: int) -> None:
    """The body of a refused request: a client that still sends when it is cut off never reads why."""
    read = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DROPPING_SECONDS):
            while read <= most:
                message = await receive()
                read += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def taken_in_time(send: Send) -> Send:
    async def piece(message: Message) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await send(message)
        except TimeoutError:
            raise Abandoned(slow=True) from None

    return piece
